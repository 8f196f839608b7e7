//! The seam to what carries messages. All that knows zenoh is in `zenoh_carrier.rs`, which implements this.

use crate::RemoteError;
use std::borrow::Cow;
use std::time::Duration;

/// How a question ended.
#[derive(Debug)]
pub enum End<'a> {
    /// This came back.
    Answered(Cow<'a, [u8]>),
    /// Nothing came back, and nothing will: whoever had the question is gone, was denied, or dropped it.
    Nothing,
    /// Nothing came back in time.
    Late,
}

/// Gets told how a question ended.
pub type Told = Box<dyn FnOnce(End<'_>) + Send + Sync>;

/// A question that arrived. Dropping it ends it at the other side, with nothing.
pub trait Arrived: Send {
    /// Returns the name behind the service's: the method's.
    fn method(&self) -> &str;
    /// Returns the message.
    fn message(&self) -> Cow<'_, [u8]>;
    /// Sends the answer.
    fn answer(&self, message: Vec<u8>);
}

/// Asks one method of a service. Its functions may wait for the link, but for a message of a few KiB while little is under
/// way. They may be called in a runtime of one thread.
pub trait Asks: Send + Sync {
    /// Returns whether somebody answers now, as far as this end knows. If it says no, nothing that is asked leaves this
    /// process. Does not wait.
    fn is_answered(&self) -> bool;
    /// Sends a question, and calls `end` once: on any thread, this one too, which it must not hold up.
    fn ask(&self, message: Vec<u8>, timeout: Duration, end: Told);
    /// Sends a message that nobody answers to all who answer such questions.
    fn tell(&self, message: Vec<u8>);
}

/// Is called with questions, on threads of the carrier's that it must not hold up. It neither answers nor drops one there.
pub type OnArrived = Box<dyn Fn(Box<dyn Arrived>) + Send + Sync>;

/// Is called with the number of a process that asks no more, on threads of the carrier's that it must not hold up.
pub type OnGone = Box<dyn Fn(u64) + Send + Sync>;

/// Is called with names that are announced (`true`) or are not any more, on threads of the carrier's that it must not hold up.
pub type OnSeen = Box<dyn Fn(&str, bool) + Send + Sync>;

/// Is called with messages, on threads of the carrier's that it must not hold up.
pub type OnHeard = Box<dyn Fn(Vec<u8>) + Send + Sync>;

/// Carries questions to whoever answers, and answers back.
pub trait Carrier: Send + Sync {
    /// Prepares to ask a method of a service.
    ///
    /// # Errors
    /// When the names are none for this carrier, or it is closed.
    fn asks(&self, service: &str, method: &str) -> Result<Box<dyn Asks>, RemoteError>;
    /// Has those who answer for a service learn when this process is gone, or what this returns is dropped.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn asker(&self, service: &str, process: u64) -> Result<Box<dyn Send>, RemoteError>;
    /// Answers for a service until what this returns is dropped.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn answers(&self, service: &str, arrived: OnArrived, gone: OnGone) -> Result<Box<dyn Send>, RemoteError>;
    /// Lets others see a name until what this returns is dropped, or this process ends.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn announce(&self, name: &str) -> Result<Box<dyn Send>, RemoteError>;
    /// Calls `seen` with each name that is announced, and again with `false` once it is not any more, until what this returns is
    /// dropped. It is called on threads of the carrier's, which it must not hold up.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn watch(&self, seen: OnSeen) -> Result<Box<dyn Send>, RemoteError>;
    /// Tells all that hear. It waits for room on the link, until that is given up, and is dropped without one.
    fn tell(&self, name: &str, message: Vec<u8>);
    /// Hears what others tell, until what this returns is dropped. `heard` is called as [`Carrier::watch`]'s function is.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn hear(&self, heard: OnHeard) -> Result<Box<dyn Send>, RemoteError>;
    /// Answers what members are asked under a name, until what this returns is dropped.
    ///
    /// # Errors
    /// As for [`Carrier::asks`].
    fn answers_as(&self, name: &str, arrived: OnArrived) -> Result<Box<dyn Send>, RemoteError>;
    /// Asks the member with a name, or all without one, and waits until all have answered, or for this long. `answered` is called
    /// with each answer; a member may give several.
    fn ask_members(
        &self,
        name: Option<&str>,
        what: &str,
        message: Vec<u8>,
        timeout: Duration,
        answered: OnHeard,
    );
}
