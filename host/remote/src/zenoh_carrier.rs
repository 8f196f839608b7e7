//! The carrier: zenoh. What it does and does not say was tried, and decides how it is used here:
//! - A question whose answerer was killed, stopped until its lease ended, denied by an access rule, or that dropped it, ends
//!   with no reply and no error. So zero replies are never read as "it did not run".
//! - Where nobody answers, a question ends as quickly. So [`Asks::is_answered`] asks zenoh for matching answerers *before*
//!   anything is sent.
//! - Its callbacks must not wait, nor call it. So they pass on what they get.
//! - What opens, declares and closes must not be called from a runtime of one thread, and is called on threads of its own. To
//!   ask and to answer does not enter a runtime.
//! - A question's timer runs on when it was answered: some hundred bytes for as long as it might have taken.
//! - A link is given up when nothing came for its lease: 1.5 s here, where zenoh's own is 10 s.

use crate::RemoteError;
use crate::carrier::{Arrived, Asks, Carrier, End, OnArrived, OnGone, OnHeard, OnSeen, Told};
use futures_lite::future::block_on;
use hostcall_locks::Mutex;
use std::borrow::Cow;
use std::time::Duration;
use zenoh::bytes::ZBytes;
use zenoh::qos::CongestionControl;
use zenoh::query::{ConsolidationMode, Querier, Query, QueryTarget, Queryable, Reply};
use zenoh::sample::{Sample, SampleKind};
use zenoh::{Config, Session, Wait};

/// What zenoh is told before what a user says: nothing is looked for on the network, and nothing listens. No message takes more
/// memory than the longest answer, 32.5 MiB, needs.
const DEFAULTS: [(&str, &str); 13] = [
    ("mode", "\"peer\""),
    ("scouting/multicast/enabled", "false"),
    ("scouting/gossip/enabled", "false"),
    ("listen/endpoints", "[]"),
    ("connect/endpoints", "[]"),
    ("connect/timeout_ms", "-1"),
    ("connect/exit_on_failure", "false"),
    ("connect/retry", "{ period_init_ms: 100, period_max_ms: 400, period_increase_factor: 2 }"),
    ("transport/link/tx/lease", "1500"),
    ("transport/link/tx/keep_alive", "4"),
    ("transport/link/rx/max_message_size", "67108864"),
    ("transport/shared_memory/enabled", "false"),
    ("transport/unicast/max_sessions", "10000"),
];

/// Runs what calls zenoh on a thread that no runtime has.
fn apart<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Something of zenoh's, which is dropped on a thread that no runtime has.
struct Apart<T: Send>(Option<T>);

impl<T: Send> Apart<T> {
    fn get(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send> Drop for Apart<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        apart(move || drop(value));
    }
}

/// A session of zenoh's, and whose services are meant.
pub(crate) struct ZenohCarrier {
    session: Apart<Session>,
    job: String,
}

fn failed(what: &str, error: impl std::fmt::Display) -> RemoteError {
    RemoteError::Carrier(format!("{what}: {error}"))
}

impl ZenohCarrier {
    /// Opens a session. `settings` are zenoh's names with values in JSON5; later ones count.
    pub fn open(job: String, file: Option<&str>, settings: &[(String, String)]) -> Result<Self, RemoteError> {
        let mut config = match file {
            None => Config::default(),
            Some(file) => Config::from_file(file).map_err(|error| failed(file, error))?,
        };
        let defaults = DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // A file says what it says in place of the defaults but for what must hold.
        let defaults: Vec<_> = defaults
            .filter(|(name, _)| {
                file.is_none() || name.starts_with("transport/") || name.starts_with("scouting/")
            })
            .collect();
        for (name, value) in defaults.iter().chain(settings) {
            config.insert_json5(name, value).map_err(|error| failed(&format!("{name} = {value}"), error))?;
        }
        let session = apart(|| zenoh::open(config).wait()).map_err(|error| failed("open", error))?;
        Ok(Self { session: Apart(Some(session)), job })
    }

    /// The key of what members of a job tell each other, which no service's is.
    fn member_key(&self, what: &str) -> String {
        format!("hostcall-members/{}/{what}", self.job)
    }

    fn key(&self, service: &str, method: &str) -> String {
        format!("hostcall/{}/{service}/{method}", self.job)
    }
}

impl Carrier for ZenohCarrier {
    fn asks(&self, service: &str, method: &str) -> Result<Box<dyn Asks>, RemoteError> {
        let (session, key) = (self.session.get().clone(), self.key(service, method));
        let querier = apart(|| session.declare_querier(key.clone()).target(QueryTarget::BestMatching).wait());
        let querier = querier.map_err(|error| failed(&key, error))?;
        Ok(Box::new(ZenohAsks { session: Apart(Some(session)), key, querier: Apart(Some(querier)) }))
    }

    fn asker(&self, service: &str, process: u64) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.key(service, &asker_part(&format!("{process:x}"))));
        let token = apart(|| session.liveliness().declare_token(key.clone()).wait());
        Ok(Box::new(Apart(Some(token.map_err(|error| failed(&key, error))?))))
    }

    fn answers(&self, service: &str, arrived: OnArrived, gone: OnGone) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.key(service, "**"));
        let prefix = key.len() - "**".len();
        let callback = move |query: Query| arrived(Box::new(ZenohArrived { query, prefix }));
        let askers = self.key(service, &asker_part("*"));
        let of_asker = move |sample: Sample| {
            let process = sample.key_expr().as_str().rsplit('/').next().unwrap_or_default();
            if sample.kind() == SampleKind::Delete
                && let Ok(process) = u64::from_str_radix(process, 16)
            {
                gone(process);
            }
        };
        // Complete: of several answerers, a question goes to one.
        let queryable =
            apart(|| session.declare_queryable(key.clone()).complete(true).callback(callback).wait());
        let queryable: Queryable<()> = queryable.map_err(|error| failed(&key, error))?;
        let lives =
            apart(|| session.liveliness().declare_subscriber(askers.clone()).callback(of_asker).wait());
        let lives = lives.map_err(|error| failed(&askers, error))?;
        Ok(Box::new(Apart(Some((queryable, lives)))))
    }

    fn announce(&self, name: &str) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.member_key(&format!("alive/{name}")));
        let token = apart(|| session.liveliness().declare_token(key.clone()).wait());
        Ok(Box::new(Apart(Some(token.map_err(|error| failed(&key, error))?))))
    }

    fn watch(&self, seen: OnSeen) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.member_key("alive/**"));
        let prefix = key.len() - "**".len();
        let callback = move |sample: Sample| {
            if let Some(name) = sample.key_expr().as_str().get(prefix..) {
                seen(name, sample.kind() == SampleKind::Put);
            }
        };
        let watches = apart(|| {
            session.liveliness().declare_subscriber(key.clone()).history(true).callback(callback).wait()
        });
        Ok(Box::new(Apart(Some(watches.map_err(|error| failed(&key, error))?))))
    }

    fn tell(&self, name: &str, message: Vec<u8>) {
        let key = self.member_key(&format!("told/{name}"));
        // Not dropped: zenoh does that after 1 ms without room, which a machine with too much to do soon has.
        let told = self.session.get().put(key, message).congestion_control(CongestionControl::Block).wait();
        // It fails where the session is closed: nobody hears it then either.
        drop(told);
    }

    fn hear(&self, heard: OnHeard) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.member_key("told/**"));
        let callback = move |sample: Sample| heard(sample.payload().to_bytes().into_owned());
        let hears = apart(|| session.declare_subscriber(key.clone()).callback(callback).wait());
        Ok(Box::new(Apart(Some(hears.map_err(|error| failed(&key, error))?))))
    }

    fn answers_as(&self, name: &str, arrived: OnArrived) -> Result<Box<dyn Send>, RemoteError> {
        let (session, key) = (self.session.get(), self.member_key(&format!("ask/{name}/**")));
        let prefix = key.len() - "**".len();
        // A question to all has no name where this one has its own.
        let what = move |query: &Query| query.parameters().get("what").unwrap_or_default().to_owned();
        let own = key[..prefix].trim_end_matches('/').to_owned();
        let callback = move |query: Query| {
            let what = what(&query);
            arrived(Box::new(MemberArrived { query, what, key: own.clone() }));
        };
        let queryable = apart(|| session.declare_queryable(key.clone()).callback(callback).wait());
        Ok(Box::new(Apart(Some(queryable.map_err(|error| failed(&key, error))?))))
    }

    fn ask_members(
        &self,
        name: Option<&str>,
        what: &str,
        message: Vec<u8>,
        timeout: Duration,
        answered: OnHeard,
    ) {
        let key = self.member_key(&format!("ask/{}/q", name.unwrap_or("*")));
        // It is dropped with the callback, after the last answer.
        let (ended, end) = flume::bounded::<()>(1);
        let callback = move |reply: Reply| {
            let _ended = &ended;
            if let Ok(sample) = reply.result() {
                answered(sample.payload().to_bytes().into_owned());
            }
        };
        let session = self.session.get();
        let asked = apart(|| {
            session
                .get(format!("{key}?what={what}"))
                .target(QueryTarget::All)
                .consolidation(ConsolidationMode::None)
                .express(true)
                .timeout(timeout)
                .payload(ZBytes::from(message))
                .callback(callback)
                .wait()
        });
        drop(asked);
        let _ = end.recv_timeout(timeout + Duration::from_millis(200));
    }
}

/// A question to a member.
struct MemberArrived {
    query: Query,
    what: String,
    key: String,
}

impl Arrived for MemberArrived {
    fn method(&self) -> &str {
        &self.what
    }

    fn message(&self) -> Cow<'_, [u8]> {
        self.query.payload().map(ZBytes::to_bytes).unwrap_or_default()
    }

    fn answer(&self, message: Vec<u8>) {
        let reply = self.query.reply(format!("{}/q", self.key), message);
        // It fails where whoever asked is gone.
        let _ = reply.express(true).wait();
    }
}

/// Returns the part of a key by which it is known that a process asks. No method's name is such a one.
fn asker_part(process: &str) -> String {
    format!("-askers-/{process}")
}

struct ZenohAsks {
    session: Apart<Session>,
    key: String,
    querier: Apart<Querier<'static>>,
}

/// Tells how a question ended: by its reply, or when zenoh drops its callback.
struct Ends(Mutex<Option<Told>>);

impl Ends {
    fn end(&self, end: End<'_>) {
        let told = self.0.lock().take();
        if let Some(told) = told {
            told(end);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.end(End::Nothing);
    }
}

impl ZenohAsks {
    fn get(
        &self,
        message: Vec<u8>,
        target: QueryTarget,
        timeout: Duration,
        told: impl Fn(Reply) + Send + Sync + 'static,
    ) {
        let asked = self
            .session
            .get()
            .get(&self.key)
            .target(target)
            .consolidation(ConsolidationMode::None)
            .congestion_control(CongestionControl::Block)
            .express(true)
            .timeout(timeout)
            .payload(ZBytes::from(message))
            .callback(told)
            .wait();
        // Where this fails, the callback is dropped, which ends the question.
        drop(asked);
    }
}

impl Asks for ZenohAsks {
    fn is_answered(&self) -> bool {
        // Not `wait`, which enters zenoh's runtime: this future is ready.
        let status = self.querier.get().matching_status();
        block_on(async { status.await }).is_ok_and(|status| status.matching())
    }

    fn ask(&self, message: Vec<u8>, timeout: Duration, end: Told) {
        let ends = Ends(Mutex::new(Some(end)));
        self.get(message, QueryTarget::BestMatching, timeout, move |reply| match reply.result() {
            Ok(sample) => ends.end(End::Answered(sample.payload().to_bytes())),
            // The only error that zenoh gives.
            Err(_) => ends.end(End::Late),
        });
    }

    fn tell(&self, message: Vec<u8>) {
        self.get(message, QueryTarget::All, Duration::from_millis(100), |_| ());
    }
}

struct ZenohArrived {
    query: Query,
    prefix: usize,
}

impl Arrived for ZenohArrived {
    fn method(&self) -> &str {
        self.query.key_expr().as_str().get(self.prefix..).unwrap_or_default()
    }

    fn message(&self) -> Cow<'_, [u8]> {
        self.query.payload().map(|payload| payload.to_bytes()).unwrap_or_default()
    }

    fn answer(&self, message: Vec<u8>) {
        let query = &self.query;
        let reply = query.reply(query.key_expr().clone(), message);
        // It fails where whoever asked is gone.
        let _ = reply.express(true).wait();
    }
}
