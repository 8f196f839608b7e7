//! The caller's end: a service of this process whose calls another process answers.
//!
//! # The life of a batch
//! 1. The device's server gathers calls and gives them to [`Imported`], which makes one message of them.
//! 2. It asks whether somebody answers. If nobody does, the service's thread waits as long as the session's patience says, from
//!    when somebody answered last, and then the calls end with `Unreachable`: nothing has left this process.
//! 3. It sends the question, once. From here on the calls may have run.
//! 4. The answer has a status for each call. A question that ends without one, or late, ends its calls with `MayHaveRun`;
//!    an answer that is none ends them with `Malformed`.
//!
//! Lanes whose deadlines pass meanwhile go on, as those of any service. When none waits, the question is forgotten. Whoever has
//! it is told, if it has had it for some time.
//!
//! # Which threads
//! Each thread that a message passes costs both processes a turn of the scheduler. So a question is sent by the thread that
//! gathered it, and its answers are given to the lanes by the carrier's. The service's thread sends what may have to wait:
//! where nobody answers, and where so much is under way that the link may be full.

use crate::RemoteError;
use crate::carrier::{Asks, End};
use crate::counts::add;
use crate::message::{self, Answer, Asked, Bad, Head, MAX_CALLS, MAX_WORDS_TOGETHER, VERSION};
use crate::session::{Inner, Session, SessionState, check_name, spawn};
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::status::Status;
use hostcall_locks::Mutex;
use hostcall_service::gather::BatchFuture;
use hostcall_service::{GatheredCalls, GatheredService};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often the thread looks whether an answerer has come.
const LOOK_EACH: Duration = Duration::from_millis(5);

/// Most bytes of a session's questions that are not answered, with which another one is sent by the thread that gathered it: the
/// carrier and the system take as many without waiting for the link.
const LITTLE_UNDER_WAY: usize = 64 << 10;

/// How long an answerer has had a question that it is told of when nobody waits for the answer any more. For others the message
/// would cost more than it spares.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// A service that another process answers: what [`import`] makes, for the `gathered_service` of a device's builder.
pub struct Imported {
    shared: Arc<Shared>,
    tasks: flume::Sender<Task>,
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Imported").field("methods", &self.shared.methods.len()).finish_non_exhaustive()
    }
}

/// What the service's thread is to do.
enum Task {
    /// Send a question.
    Ask(Arc<Batch>),
    /// Say that nobody waits for the answer to a question of a method.
    Tell(usize, Head),
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
    session.0.asks_of(name)?;
    let lost = Mutex::new(Some(Instant::now()));
    let shared = Arc::new(Shared { methods, asks, inner: session.0.clone(), lost });
    let (tasks, to_do) = flume::unbounded();
    let of_thread = shared.clone();
    spawn(move || of_thread.run(&to_do))?;
    Ok(Imported { shared, tasks })
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

/// What the threads have that send questions.
struct Shared {
    methods: &'static [Method],
    /// By method.
    asks: Vec<Box<dyn Asks>>,
    inner: Arc<Inner>,
    /// Since when nobody answers for the service, as far as was looked.
    lost: Mutex<Option<Instant>>,
}

impl Shared {
    /// Does what threads that gather leave to the service's.
    fn run(&self, to_do: &flume::Receiver<Task>) {
        for task in to_do {
            match task {
                Task::Ask(batch) if self.wait_for_answerer(&batch) => self.ask(&batch),
                Task::Ask(batch) => batch.end(None),
                Task::Tell(method, head) => self.asks[method].tell(head.unwanted()),
            }
        }
    }

    /// Returns whether somebody answers.
    fn is_answered(&self, method: usize) -> bool {
        let is_answered = self.asks[method].is_answered();
        if is_answered {
            *self.lost.lock() = None;
        }
        is_answered
    }

    /// Waits for somebody who answers. Returns whether there is one.
    fn wait_for_answerer(&self, batch: &Batch) -> bool {
        loop {
            if self.is_answered(batch.method) {
                return true;
            }
            let lost = *self.lost.lock().get_or_insert_with(Instant::now);
            if lost.elapsed() >= self.inner.state.patience || !batch.is_wanted() {
                return false;
            }
            std::thread::sleep(LOOK_EACH);
        }
    }

    /// Sends a question, if a lane waits for its answer.
    fn ask(&self, batch: &Arc<Batch>) {
        let Some((message, timeout)) = batch.question(self.methods[batch.method].schema()) else { return };
        let under_way = UnderWay::new(&self.inner.state, message.len());
        let of_batch = batch.clone();
        let end = move |end: End<'_>| {
            drop(under_way);
            of_batch.end(Some(end));
        };
        self.asks[batch.method].ask(message, timeout, Box::new(end));
    }
}

/// Bytes of a question that is not answered.
struct UnderWay {
    session: Arc<SessionState>,
    bytes: usize,
}

impl UnderWay {
    fn new(session: &Arc<SessionState>, bytes: usize) -> Self {
        session.under_way.fetch_add(bytes, Ordering::Relaxed);
        Self { session: session.clone(), bytes }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.session.under_way.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A batch on its way.
struct Batch {
    method: usize,
    session: Arc<SessionState>,
    state: Mutex<State>,
}

struct State {
    /// `None` once they have their answers, or no lane waits any more.
    calls: Option<GatheredCalls>,
    /// When a question was made of them.
    asked: Option<(Head, Instant)>,
    /// Of whoever waits for the end.
    waker: Option<Waker>,
}

impl Batch {
    fn is_wanted(&self) -> bool {
        self.state.lock().calls.is_some()
    }

    /// Returns the message with the calls, and how long its answer is waited for; `None` if no lane waits.
    fn question(&self, schema: u64) -> Option<(Vec<u8>, Duration)> {
        let (session, now) = (&self.session, Instant::now());
        let mut state = self.state.lock();
        let state = &mut *state;
        let calls = state.calls.as_ref()?;
        let remaining = |call| calls.deadline(call).map(|deadline| deadline.saturating_duration_since(now));
        // A lane with a deadline goes on by itself; the question ends after all have.
        let timeout = (0..calls.len()).map(|call| remaining(call).unwrap_or(session.longest)).max();
        let head = Head {
            version: VERSION,
            width: calls.argument_words() as u16,
            count: calls.len() as u32,
            batch: session.batches.fetch_add(1, Ordering::Relaxed),
            process: session.process,
        };
        let asked =
            (0..calls.len()).map(|call| Asked { remaining: remaining(call), lane: calls.caller(call).lane });
        let message = message::question(&head, schema, asked, calls.words());
        state.asked = Some((head, now));
        add(&session.counts.questions, 1);
        add(&session.counts.calls, calls.len());
        Some((message, timeout.unwrap_or(session.longest).max(Duration::from_millis(1))))
    }

    /// Answers the calls with what came of their question; `None`: it was not sent.
    fn end(&self, end: Option<End<'_>>) {
        let mut state = self.state.lock();
        let (calls, asked, waker) = (state.calls.take(), state.asked, state.waker.take());
        drop(state);
        if let Some(calls) = calls {
            settle(&self.session, calls, asked.map(|(head, _)| head), end);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits for a batch's end. Dropped before, no lane waits any more.
struct Asking {
    batch: Arc<Batch>,
    tasks: flume::Sender<Task>,
}

impl Future for Asking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.batch.state.lock();
        if state.calls.is_none() {
            return Poll::Ready(());
        }
        let before = state.waker.replace(context.waker().clone());
        // A waker is a user's: not under the lock.
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.batch.state.lock();
        let (calls, asked) = (state.calls.take(), state.asked);
        drop(state);
        if let (Some(calls), Some((head, at))) = (calls, asked)
            && at.elapsed() >= TELL_AFTER
            // The answerer knows their deadlines.
            && (0..calls.len()).any(|call| calls.remaining(call) != Some(Duration::ZERO))
        {
            let _ = self.tasks.send(Task::Tell(self.batch.method, head));
        }
    }
}

/// Answers the calls of a batch with what came of its question.
fn settle(session: &SessionState, calls: GatheredCalls, asked: Option<Head>, end: Option<End<'_>>) {
    let error = match end {
        None => CallError::Unreachable,
        Some(End::Nothing | End::Late) => return lose(session, calls),
        Some(End::Answered(bytes)) => match Answer::decode(&bytes) {
            Ok(answer) if asked.is_some_and(|asked| answer.is_to(&asked)) => {
                let counted = answer
                    .statuses
                    .iter()
                    .filter(|status| matches!(status, Status::Error(CallError::MayHaveRun)));
                add(&session.counts.may_have_run, counted.count());
                return calls.answer_from(0, &answer.statuses, &answer.words);
            }
            Err(Bad::OtherVersion(_)) => CallError::TypeMismatch,
            _ => CallError::Malformed,
        },
    };
    if error == CallError::Unreachable {
        add(&session.counts.unreachable, calls.len());
    }
    calls.fail(error);
}

/// Answers the calls of a question of which nothing is known: those whose deadlines have passed are late, whoever notices it first.
fn lose(session: &SessionState, calls: GatheredCalls) {
    let now = Instant::now();
    for call in 0..calls.len() {
        if calls.deadline(call).is_some_and(|deadline| deadline <= now) {
            calls.answer(call, Err(CallError::TimedOut));
        } else {
            add(&session.counts.may_have_run, 1);
            calls.answer(call, Err(CallError::MayHaveRun));
        }
    }
}

impl GatheredService for Imported {
    fn methods(&self) -> &[Method] {
        self.shared.methods
    }

    fn gathered(&self, method: usize, calls: GatheredCalls) -> BatchFuture {
        let shared = &self.shared;
        if calls.len() > MAX_CALLS || calls.words().len() > MAX_WORDS_TOGETHER {
            return Box::pin(async move { calls.fail(CallError::TooLarge) });
        }
        let bytes = 8 * (calls.len() + calls.words().len());
        let state = Mutex::new(State { calls: Some(calls), asked: None, waker: None });
        let batch = Arc::new(Batch { method, session: shared.inner.state.clone(), state });
        let under_way = shared.inner.state.under_way.load(Ordering::Relaxed);
        if under_way + bytes <= LITTLE_UNDER_WAY && shared.is_answered(method) {
            shared.ask(&batch);
        } else if self.tasks.send(Task::Ask(batch.clone())).is_err() {
            batch.end(None);
        }
        Box::pin(Asking { batch, tasks: self.tasks.clone() })
    }
}
