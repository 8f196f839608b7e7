//! Processes of a job that tell each other what they do: who is there, what there is to say, and answers to
//! who asks all.
//!
//! What a member tells goes to those that hear it now. It waits for room on its link, until that is given up,
//! which takes 1.5 s without a sign of life of the other end; what it tells without a link is dropped, and the
//! carrier says so to nobody. So what must not be lost unseen is numbered by who tells it. A name is seen by
//! others from when it is announced until its process ends, which is noticed in milliseconds, or until the
//! link is given up.

use crate::RemoteError;
use crate::carrier::Arrived;
use crate::session::{Session, check_name};
use std::fmt;
use std::time::Duration;

/// Something that lasts as long as it is kept: a name that others see, a function that is called.
pub struct Member {
    _kept: Box<dyn Send>,
}

impl Member {
    fn new(kept: Box<dyn Send>) -> Self {
        Self { _kept: kept }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").finish_non_exhaustive()
    }
}

/// A question that a member was asked. Without an answer until it is dropped, it has none.
pub struct Asked(Box<dyn Arrived>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.what()).finish()
    }
}

impl Asked {
    /// Returns what is asked for: anything that the other side says.
    pub fn what(&self) -> &str {
        self.0.method()
    }

    /// Returns what was sent with it: any bytes.
    pub fn message(&self) -> Vec<u8> {
        self.0.message().into_owned()
    }

    /// Answers. It may be called several times.
    pub fn answer(&self, message: Vec<u8>) {
        self.0.answer(message);
    }
}

/// Checks a name of parts that `/` divides.
fn check_path(name: &str) -> Result<(), RemoteError> {
    name.split('/').try_for_each(|part| check_name("member", part))
}

impl Session {
    /// Lets others of the job see a name, of parts that `/` divides, as long as what this returns is kept.
    ///
    /// # Errors
    /// When no key can have the name.
    pub fn announce(&self, name: &str) -> Result<Member, RemoteError> {
        check_path(name)?;
        self.0.carrier.announce(name).map(Member::new)
    }

    /// Calls a function with each name that others have announced or announce, and `true`; and with `false`
    /// once it is gone. It is called on the carrier's threads, and must not wait. Names may be any that a
    /// stranger announces.
    ///
    /// # Errors
    /// When the carrier refuses.
    pub fn watch(&self, seen: impl Fn(&str, bool) + Send + Sync + 'static) -> Result<Member, RemoteError> {
        self.0.carrier.watch(Box::new(seen)).map(Member::new)
    }

    /// Tells those of the job that hear now. It waits for room on the link, until that is given up, and is
    /// dropped without one.
    ///
    /// # Errors
    /// When no key can have the name.
    pub fn tell(&self, name: &str, message: Vec<u8>) -> Result<(), RemoteError> {
        check_name("member", name)?;
        self.0.carrier.tell(name, message);
        Ok(())
    }

    /// Calls a function with all that others tell from now on, as [`Session::watch`] does. The bytes may be
    /// any.
    ///
    /// # Errors
    /// When the carrier refuses.
    pub fn hear(&self, heard: impl Fn(Vec<u8>) + Send + Sync + 'static) -> Result<Member, RemoteError> {
        self.0.carrier.hear(Box::new(heard)).map(Member::new)
    }

    /// Calls a function with what is asked of a name, or of all, as [`Session::watch`] does.
    ///
    /// # Errors
    /// When no key can have the name, or the carrier refuses.
    pub fn answer(
        &self,
        name: &str,
        asked: impl Fn(Asked) + Send + Sync + 'static,
    ) -> Result<Member, RemoteError> {
        check_name("member", name)?;
        let arrived = move |arrived| asked(Asked(arrived));
        self.0.carrier.answers_as(name, Box::new(arrived)).map(Member::new)
    }

    /// Asks who answers for a name, or all without one. Waits until all have answered, or for `timeout`. A
    /// function is called with each answer, as [`Session::watch`] calls its. Who gives none is not told of.
    ///
    /// # Errors
    /// When no key can have the name or `what`.
    pub fn ask(
        &self,
        name: Option<&str>,
        what: &str,
        message: Vec<u8>,
        timeout: Duration,
        answered: impl Fn(Vec<u8>) + Send + Sync + 'static,
    ) -> Result<(), RemoteError> {
        name.map_or(Ok(()), |name| check_name("member", name))?;
        check_name("question", what)?;
        self.0.carrier.ask_members(name, what, message, timeout, Box::new(answered));
        Ok(())
    }
}
