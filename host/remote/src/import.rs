//! The caller's end: a service of this process whose calls another process answers.
//!
//! # The life of a batch
//! 1. The device's server gathers calls and gives them to [`Imported`], which makes one message of them.
//! 2. The service's thread asks whether somebody answers. If nobody does, it waits as long as the session's patience says, from
//!    when somebody answered last, and then the calls end with `Unreachable`: nothing has left this process.
//! 3. It sends the question, once. From here on the calls may have run.
//! 4. The answer has a status for each call. A question that ends without one, or late, ends its calls with `MayHaveRun`;
//!    an answer that is none ends them with `Malformed`.
//!
//! Lanes whose deadlines pass meanwhile go on, as those of any service; when none waits, the question is forgotten.

use crate::RemoteError;
use crate::carrier::{Asks, End};
use crate::counts::add;
use crate::message::{Answer, Asked, Bad, Head, MAX_CALLS, Question, VERSION};
use crate::session::{Inner, Session, check_name, spawn};
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::status::Status;
use hostcall_service::gather::BatchFuture;
use hostcall_service::{GatheredCalls, GatheredService, Wanted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the thread looks whether an answerer has come.
const LOOK_EACH: Duration = Duration::from_millis(5);

/// A service that another process answers: what [`import`] makes, for the `gathered_service` of a device's builder.
pub struct Imported {
    methods: &'static [Method],
    inner: Arc<Inner>,
    questions: flume::Sender<ToAsk>,
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Imported").field("methods", &self.methods.len()).finish_non_exhaustive()
    }
}

/// A question for the service's thread.
struct ToAsk {
    method: usize,
    message: Vec<u8>,
    calls: usize,
    timeout: Duration,
    wanted: Wanted,
    end: flume::Sender<Option<End>>,
}

/// Makes a service of which another process answers the calls: the one that exports this name in the session's job, with these
/// methods: `Features::METHODS` of the `#[service]` trait `Features`, which both processes have.
///
/// ```ignore
/// use hostcall::{Device, Gather, service};
///
/// #[service]
/// trait Features {
///     fn of(user: u64) -> [f32; 4];
/// }
///
/// let session = hostcall_remote::Session::builder().connect("tcp/127.0.0.1:7447").open()?;
/// let features = hostcall_remote::import(&session, "features", Features::METHODS)?;
/// let device = Device::builder("cpu").gathered_service(features, Gather::default()).open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the name or a method's is no part of a key, or the system starts no thread.
pub fn import(session: &Session, name: &str, methods: &'static [Method]) -> Result<Imported, RemoteError> {
    check_name("service", name)?;
    let mut asks = Vec::with_capacity(methods.len());
    for method in methods {
        asks.push(session.0.carrier.asks(name, &key_of(method)?)?);
    }
    let (questions, to_ask) = flume::unbounded();
    let inner = session.0.clone();
    let asker = Asker { asks, inner, lost: Some(Instant::now()) };
    spawn(move || asker.run(&to_ask))?;
    Ok(Imported { methods, inner: session.0.clone(), questions })
}

/// Returns the part of a key that is a method's.
pub(crate) fn key_of(method: &Method) -> Result<String, RemoteError> {
    let name = method.name();
    let is_part = |c: char| !"*$#?/".contains(c) && !c.is_whitespace();
    let parts: Vec<_> = name.split("::").collect();
    if parts.iter().any(|part| part.is_empty() || !part.chars().all(is_part)) {
        return Err(RemoteError::Name { what: "method", name: name.to_owned() });
    }
    Ok(parts.join("/"))
}

/// What the service's thread has.
struct Asker {
    /// By method.
    asks: Vec<Box<dyn Asks>>,
    inner: Arc<Inner>,
    /// Since when nobody answers for the service, as far as was looked.
    lost: Option<Instant>,
}

impl Asker {
    fn run(mut self, to_ask: &flume::Receiver<ToAsk>) {
        while let Ok(ToAsk { method, message, calls, timeout, wanted, end }) = to_ask.recv() {
            if !self.wait_for_answerer(method, &wanted) {
                let _ = end.send(None);
                continue;
            }
            add(&self.inner.counts.questions, 1);
            add(&self.inner.counts.calls, calls);
            let tell = move |ended| _ = end.send(Some(ended));
            self.asks[method].ask(message, timeout, Box::new(tell));
        }
    }

    /// Waits for somebody who answers. Returns whether there is one.
    fn wait_for_answerer(&mut self, method: usize, wanted: &Wanted) -> bool {
        loop {
            if self.asks[method].is_answered() {
                self.lost = None;
                return true;
            }
            let lost = *self.lost.get_or_insert_with(Instant::now);
            if lost.elapsed() >= self.inner.patience || !wanted.is_wanted() {
                return false;
            }
            std::thread::sleep(LOOK_EACH);
        }
    }
}

impl Imported {
    /// Returns the message with the calls, and how long its answer is waited for.
    fn question(&self, method: usize, calls: &GatheredCalls) -> (Question, Duration) {
        let inner = &self.inner;
        let now = Instant::now();
        let remaining = |call| calls.deadline(call).map(|deadline| deadline.saturating_duration_since(now));
        let asked: Vec<_> = (0..calls.len())
            .map(|call| Asked { remaining: remaining(call), lane: calls.caller(call).lane })
            .collect();
        // A lane with a deadline goes on by itself; the question ends after all have.
        let timeout = asked.iter().map(|call| call.remaining.unwrap_or(inner.longest)).max();
        let head = Head {
            version: VERSION,
            width: calls.argument_words() as u16,
            count: calls.len() as u32,
            batch: inner.batches.fetch_add(1, Ordering::Relaxed),
            process: inner.process,
        };
        let schema = self.methods[method].schema();
        let question = Question { head, schema, calls: asked, words: calls.words().to_vec() };
        (question, timeout.unwrap_or(inner.longest).max(Duration::from_millis(1)))
    }
}

/// Answers the calls of a batch with what came of its question.
fn settle(inner: &Inner, calls: GatheredCalls, asked: &Head, end: Option<End>) {
    let error = match end {
        None => CallError::Unreachable,
        Some(End::Nothing | End::Late) => return lose(inner, calls),
        Some(End::Answered(bytes)) => match Answer::decode(&bytes) {
            Ok(answer) if answer.is_to(asked) => {
                let counted = answer
                    .statuses
                    .iter()
                    .filter(|status| matches!(status, Status::Error(CallError::MayHaveRun)));
                add(&inner.counts.may_have_run, counted.count());
                return calls.answer_from(0, &answer.statuses, &answer.words);
            }
            Err(Bad::OtherVersion(_)) => CallError::TypeMismatch,
            _ => CallError::Malformed,
        },
    };
    if error == CallError::Unreachable {
        add(&inner.counts.unreachable, calls.len());
    }
    calls.fail(error);
}

/// Answers the calls of a question of which nothing is known: those whose deadlines have passed are late, whoever notices it first.
fn lose(inner: &Inner, calls: GatheredCalls) {
    let now = Instant::now();
    for call in 0..calls.len() {
        if calls.deadline(call).is_some_and(|deadline| deadline <= now) {
            calls.answer(call, Err(CallError::TimedOut));
        } else {
            add(&inner.counts.may_have_run, 1);
            calls.answer(call, Err(CallError::MayHaveRun));
        }
    }
}

impl GatheredService for Imported {
    fn methods(&self) -> &[Method] {
        self.methods
    }

    fn gathered(&self, method: usize, calls: GatheredCalls) -> BatchFuture {
        let inner = self.inner.clone();
        if calls.len() > MAX_CALLS {
            return Box::pin(async move { calls.fail(CallError::TooLarge) });
        }
        let (question, timeout) = self.question(method, &calls);
        let (end, ended) = flume::bounded(1);
        let to_ask = ToAsk {
            method,
            message: question.encode(),
            calls: calls.len(),
            timeout,
            wanted: calls.wanted(),
            end,
        };
        let sent = self.questions.send(to_ask).is_ok();
        Box::pin(async move {
            // A thread that has ended drops its questions: it had not asked them, or lost them.
            let end = if sent { ended.recv_async().await.unwrap_or(Some(End::Nothing)) } else { None };
            settle(&inner, calls, &question.head, end);
        })
    }
}
