//! A session: a process's links to others.

use crate::RemoteError;
use crate::carrier::Carrier;
use crate::counts::Counts;
#[cfg(feature = "zenoh")]
use crate::zenoh_carrier::ZenohCarrier;
use hostcall_locks::Mutex;
use std::collections::HashMap;
#[cfg(feature = "zenoh")]
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A process's links to processes that answer, or that ask. Clones are the same session, which is closed when the last of
/// them, and of what was exported and imported by it, is dropped.
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// By which answerers know that this process asks, by service. First: gone before the session is closed.
    asker_of: Mutex<HashMap<String, Box<dyn Send>>>,
    pub carrier: Box<dyn Carrier>,
    pub state: Arc<SessionState>,
}

/// What a session has but for its links. The carrier's threads have this alone: whoever drops the last [`Inner`] closes the
/// session, which must not wait for itself.
#[derive(Default)]
pub(crate) struct SessionState {
    pub counts: Counts,
    /// A number that no other process has, nor this one after `fork` and a new session.
    pub process: u64,
    pub batches: AtomicU64,
    /// Bytes of the messages with questions that are not answered.
    pub under_way: AtomicUsize,
    pub longest: Duration,
    pub patience: Duration,
}

impl Inner {
    /// Has answerers for a service learn when this process is gone.
    pub fn asks_of(&self, service: &str) -> Result<(), RemoteError> {
        let mut asker_of = self.asker_of.lock();
        if !asker_of.contains_key(service) {
            asker_of.insert(service.to_owned(), self.carrier.asker(service, self.state.process)?);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("process", &self.0.state.process).finish_non_exhaustive()
    }
}

impl Session {
    /// Returns a builder of a session that neither listens nor connects.
    pub fn builder() -> SessionBuilder {
        SessionBuilder {
            job: "default".to_owned(),
            listen: Vec::new(),
            connect: Vec::new(),
            may_listen_everywhere: false,
            settings: Vec::new(),
            file: None,
            longest: Duration::from_secs(30),
            patience: Duration::from_secs(1),
        }
    }

    /// Returns what was counted since the session was opened.
    pub fn counts(&self) -> crate::Counted {
        self.0.state.counts.get()
    }
}

/// Settings of a [`Session`].
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "zenoh"), expect(dead_code, reason = "settings of the carrier"))]
pub struct SessionBuilder {
    job: String,
    listen: Vec<String>,
    connect: Vec<String>,
    may_listen_everywhere: bool,
    settings: Vec<(String, String)>,
    file: Option<String>,
    longest: Duration,
    patience: Duration,
}

impl SessionBuilder {
    /// Whose services are meant: sessions of other jobs see none of these. Default `default`.
    pub fn job(self, job: impl Into<String>) -> Self {
        Self { job: job.into(), ..self }
    }

    /// Listens at an address, such as `tcp/127.0.0.1:7447`, for others that connect. Other addresses than this machine's own
    /// loopback need [`SessionBuilder::beyond_this_machine`].
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Connects to whoever listens at an address, now or later, and again when the link was lost.
    pub fn connect(mut self, address: impl Into<String>) -> Self {
        self.connect.push(address.into());
        self
    }

    /// Lets [`SessionBuilder::listen`] have addresses that other machines reach. Who reaches one may ask and answer: see the
    /// chapter on services that live elsewhere of hostcall's book, which has TLS and access control.
    pub fn beyond_this_machine(self) -> Self {
        Self { may_listen_everywhere: true, ..self }
    }

    /// Sets one of zenoh's own settings, by its path and a value in JSON5: `("transport/link/tls/enable_mtls", "true")`.
    pub fn setting(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((path.into(), value.into()));
        self
    }

    /// Reads zenoh's settings from a file of its own kind, JSON5. What is said here besides counts instead. Where the file
    /// listens is not looked at.
    pub fn file(self, path: impl Into<String>) -> Self {
        Self { file: Some(path.into()), ..self }
    }

    /// How long a lane that has no deadline waits for an answerer that is there and silent. Its call ends with
    /// [`CallError::MayHaveRun`](hostcall_abi::CallError::MayHaveRun) then. Default 30 s.
    pub fn longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// How long calls wait for an answerer to come (back) from when there was one last, or the service was imported. After
    /// that they end at once with [`CallError::Unreachable`](hostcall_abi::CallError::Unreachable), until there is one.
    /// Default 1 s.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Opens the session. Does not wait for those it connects to.
    ///
    /// # Errors
    /// When an address or a setting is none, or cannot be had.
    #[cfg(feature = "zenoh")]
    pub fn open(self) -> Result<Session, RemoteError> {
        check_name("job", &self.job)?;
        if !self.may_listen_everywhere {
            self.listen.iter().try_for_each(|address| check_loopback(address))?;
        }
        let list = |addresses: &[String]| format!("{addresses:?}");
        let mut settings = Vec::new();
        if !self.listen.is_empty() {
            settings.push(("listen/endpoints".to_owned(), list(&self.listen)));
        }
        if !self.connect.is_empty() {
            settings.push(("connect/endpoints".to_owned(), list(&self.connect)));
        }
        settings.extend(self.settings.iter().cloned());
        let carrier = ZenohCarrier::open(self.job.clone(), self.file.as_deref(), &settings)?;
        Ok(self.over(Box::new(carrier)))
    }

    /// Makes a session of which something else carries the messages.
    #[doc(hidden)]
    pub fn over(self, carrier: Box<dyn Carrier>) -> Session {
        let state = SessionState {
            counts: Counts::default(),
            process: process_number(),
            batches: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            longest: self.longest,
            patience: self.patience,
        };
        Session(Arc::new(Inner { asker_of: Mutex::default(), carrier, state: Arc::new(state) }))
    }
}

/// Returns a number that differs from process to process and from session to session.
fn process_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    // Keys of the hasher are random in each process.
    RandomState::new().hash_one((std::process::id(), now))
}

/// Starts a thread of this crate.
pub(crate) fn spawn(run: impl FnOnce() + Send + 'static) -> Result<(), RemoteError> {
    let thread = std::thread::Builder::new().name("hostcall-remote".into());
    thread.spawn(run).map(drop).map_err(RemoteError::Thread)
}

/// Checks that a name can be part of a key.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), RemoteError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        return Err(RemoteError::Name { what, name: name.to_owned() });
    }
    Ok(())
}

/// Checks that an address to listen at is this machine's own.
#[cfg(feature = "zenoh")]
fn check_loopback(address: &str) -> Result<(), RemoteError> {
    let not = || RemoteError::NotLoopback(address.to_owned());
    let place = address.split_once('/').ok_or_else(not)?.1;
    let place = place.split(['#', '?']).next().unwrap_or_default();
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    let mut found = place.to_socket_addrs().map_err(|_| not())?.peekable();
    if found.peek().is_some() && found.all(|found| is_loopback(found.ip())) { Ok(()) } else { Err(not()) }
}

#[cfg(all(test, feature = "zenoh"))]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_at_unless_told() {
        for address in ["tcp/127.0.0.1:0", "tcp/[::1]:7447", "tls/127.0.0.1:7447#iface=lo"] {
            assert!(check_loopback(address).is_ok(), "{address}");
        }
        for address in ["tcp/0.0.0.0:7447", "tcp/[::]:7447", "tcp/192.0.2.1:1", "127.0.0.1:1", "tcp/", ""] {
            let error = check_loopback(address).unwrap_err().to_string();
            assert!(error.contains("beyond_this_machine"), "{error}");
        }
        let session = Session::builder().listen("tcp/0.0.0.0:0").open();
        assert!(matches!(session, Err(RemoteError::NotLoopback(_))));
    }

    #[test]
    fn names_are_parts_of_keys() {
        for name in ["", "a/b", "*", "a b", "é", &"a".repeat(65)] {
            assert!(check_name("job", name).is_err(), "{name}");
        }
        assert!(check_name("job", "train-7_b.c").is_ok());
    }
}
