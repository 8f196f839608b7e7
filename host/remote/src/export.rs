//! The answerer's end: a service of this process that kernels of others call.
//!
//! # The life of a question
//! 1. zenoh's thread passes it on to the service's *door*, a thread of this crate.
//! 2. The door checks it: version, lengths, the method's name and types, and whether this batch was here before. What is wrong
//!    is answered at once, each call with its status. A batch that was here before is dropped.
//! 3. The door gives it to the service's *workers*. Where as many questions wait as may, each call gets `Busy`.
//! 4. A worker runs the handler. The answer leaves when each call has one, or when the handler drops the batch.
//!
//! A handler gets the calls of each question as a batch of its own ([`hostcall_service::Gathered`]), and whose lanes wait no longer
//! than they said: what is answered later is answered with `TimedOut`, which nobody gets. It is not told of callers that are
//! gone.

use crate::RemoteError;
use crate::carrier::Arrived;
use crate::counts::add;
use crate::import::key_of;
use crate::message::{Answer, Bad, Head, MAX_BYTES, Question};
use crate::once::Once;
use crate::session::{Inner, Session, check_name, spawn};
use futures_lite::future::block_on;
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::status::Status;
use hostcall_locks::Mutex;
use hostcall_service::gather::{BatchFuture, GatheredCall, GatheredLanes};
use hostcall_service::{Caller, GatheredCalls, GatheredService, Reply, Request, Service, called_by};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

/// Threads that run a service's handlers.
const WORKERS: usize = 4;

/// Most questions that wait for a worker.
const MOST_WAITING: usize = 256;

/// Most questions that wait for the door. It checks and refuses, which takes it microseconds.
const MOST_AT_DOOR: usize = 4096;

/// A service that is answered for, until this is dropped. Handlers that run then go on, and nobody gets their answers.
pub struct Export {
    /// First: nothing arrives any more.
    _answers: Box<dyn Send>,
    name: String,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Answers the calls that kernels of other processes make to a service, by this name in the session's job. Its handlers run on
/// threads of this crate, several questions at a time, the calls of one question one after the other.
///
/// Other processes may answer for the same name: each question goes to one of them.
///
/// # Errors
/// When the name or a method's is no part of a key, or the system starts no thread.
pub fn export(session: &Session, name: &str, service: impl Service) -> Result<Export, RemoteError> {
    export_gathered(session, name, OneByOne(Arc::new(service)))
}

/// Does what [`export`] does with a service whose handlers get the calls of a question at once.
///
/// # Errors
/// As for [`export`].
pub fn export_gathered(
    session: &Session,
    name: &str,
    service: impl GatheredService,
) -> Result<Export, RemoteError> {
    check_name("service", name)?;
    let methods = service.methods().iter().map(|method| Ok((key_of(method)?, *method)));
    let methods = methods.collect::<Result<Vec<_>, RemoteError>>()?;
    let service: Arc<dyn GatheredService> = Arc::new(service);
    let (work, waits) = flume::bounded::<Work>(MOST_WAITING);
    for _ in 0..WORKERS {
        let (service, waits) = (service.clone(), waits.clone());
        spawn(move || waits.iter().for_each(|work| work.run(&*service)))?;
    }
    let (arrive, arrived) = flume::unbounded::<Box<dyn Arrived>>();
    let door = Door { methods, inner: session.0.clone(), once: Once::default(), work };
    spawn(move || door.run(&arrived))?;
    let answers = session.0.carrier.answers(name, Box::new(move |question| _ = arrive.send(question)))?;
    Ok(Export { _answers: answers, name: name.to_owned() })
}

/// Checks what arrives.
struct Door {
    /// With the part of the key that names each.
    methods: Vec<(String, Method)>,
    inner: Arc<Inner>,
    once: Once,
    work: flume::Sender<Work>,
}

/// A question for a worker.
struct Work {
    arrived: Box<dyn Arrived>,
    question: Question,
    method: usize,
    came: Instant,
    inner: Arc<Inner>,
}

impl Door {
    fn run(mut self, arrived: &flume::Receiver<Box<dyn Arrived>>) {
        while let Ok(question) = arrived.recv() {
            let is_crowded = arrived.len() > MOST_AT_DOOR;
            if is_crowded || !self.let_in(question) {
                add(&self.inner.counts.refused, 1);
            }
        }
    }

    /// Returns whether a question went to the workers.
    fn let_in(&mut self, arrived: Box<dyn Arrived>) -> bool {
        let came = Instant::now();
        let message = arrived.message();
        if message.len() > MAX_BYTES {
            return false;
        }
        let refuse = |arrived: &dyn Arrived, head: Head, error| {
            arrived.answer(Answer::all(head, Status::Error(error)).encode());
            false
        };
        let question = match Question::decode(&message) {
            Ok(question) => question,
            Err(Bad::OtherVersion(head)) => return refuse(&*arrived, head, CallError::TypeMismatch),
            // It does not say how many calls it has.
            Err(Bad::Malformed) => return false,
        };
        let head = question.head;
        if !self.once.is_new(head.process, head.batch) {
            return false;
        }
        let found = self.methods.iter().position(|(key, _)| key == arrived.method());
        let Some(method) = found else { return refuse(&*arrived, head, CallError::NoSuchService) };
        let schema = self.methods[method].1.schema();
        if schema != question.schema {
            return refuse(&*arrived, head, CallError::TypeMismatch);
        }
        let work = Work { arrived, question, method, came, inner: self.inner.clone() };
        match self.work.try_send(work) {
            Ok(()) => true,
            Err(flume::TrySendError::Full(work) | flume::TrySendError::Disconnected(work)) => {
                refuse(&*work.arrived, head, CallError::Busy)
            }
        }
    }
}

impl Work {
    fn run(self, service: &dyn GatheredService) {
        let Self { arrived, question, method, came, inner } = self;
        let Question { head, calls, words, .. } = question;
        let deadlines: Vec<_> =
            calls.iter().map(|call| call.remaining.map(|remaining| came + remaining)).collect();
        let gathered = (0..).zip(&calls).zip(&deadlines).map(|((place, call), deadline)| GatheredCall {
            caller: Caller { slot: 0, lane: call.lane, ..Caller::default() },
            deadline: *deadline,
            place,
        });
        let gathered: Vec<_> = gathered.collect();
        let lanes = Arc::new(Lanes {
            head,
            deadlines,
            left: AtomicUsize::new(gathered.len()),
            answers: Mutex::new(Answers { of: vec![None; gathered.len()], width: 0, words: Vec::new() }),
            arrived: Mutex::new(Some(arrived)),
            inner,
        });
        let calls = GatheredCalls::new(lanes, usize::from(head.width), words, gathered);
        // A panic drops the batch, which answers it; the process's hook has told of it.
        let run = || block_on(service.gathered(method, calls));
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            // A payload may panic when it is dropped.
            std::mem::forget(payload);
        }
    }
}

/// The answers that calls of a question have so far.
struct Answers {
    of: Vec<Option<Status>>,
    width: usize,
    /// `width` words for each call.
    words: Vec<u64>,
}

impl Answers {
    /// Makes room for so many result words of each call.
    fn widen(&mut self, width: usize) {
        if width > self.width {
            let mut words = vec![0; self.of.len() * width];
            for (to, from) in words.chunks_exact_mut(width).zip(self.words.chunks_exact(self.width.max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
            (self.words, self.width) = (words, width);
        }
    }
}

/// The lanes of a question, which wait in another process.
struct Lanes {
    head: Head,
    deadlines: Vec<Option<Instant>>,
    /// Calls without an answer.
    left: AtomicUsize,
    answers: Mutex<Answers>,
    /// `None` once it was answered.
    arrived: Mutex<Option<Box<dyn Arrived>>>,
    inner: Arc<Inner>,
}

impl Lanes {
    fn is_late(&self, place: u32) -> bool {
        self.deadlines[place as usize].is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Sends the answer.
    fn send(&self, answers: Answers) {
        let Some(arrived) = self.arrived.lock().take() else { return };
        let statuses =
            answers.of.into_iter().map(|status| status.unwrap_or(Status::Error(CallError::Cancelled)));
        let head = Head { width: answers.width as u16, ..self.head };
        arrived.answer(Answer { head, statuses: statuses.collect(), words: answers.words }.encode());
        add(&self.inner.counts.answered, 1);
    }

    /// Takes the answers, to be sent.
    fn take(answers: &mut Answers) -> Answers {
        std::mem::replace(answers, Answers { of: Vec::new(), width: 0, words: Vec::new() })
    }
}

impl GatheredLanes for Lanes {
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]) {
        let width = words.len().checked_div(places.len()).unwrap_or(0);
        let mut guard = self.answers.lock();
        let answers = &mut *guard;
        if answers.of.is_empty() {
            return;
        }
        answers.widen(width);
        for (at, place) in places.iter().enumerate() {
            let place_of = *place as usize;
            if answers.of[place_of].is_some() {
                continue;
            }
            let status = if self.is_late(*place) { Status::Error(CallError::TimedOut) } else { statuses[at] };
            answers.of[place_of] = Some(status);
            if status == Status::Ok {
                answers.words[place_of * answers.width..][..width]
                    .copy_from_slice(&words[at * width..(at + 1) * width]);
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        if self.left.load(Ordering::Relaxed) == 0 {
            let answers = Self::take(answers);
            drop(guard);
            self.send(answers);
        }
    }

    fn waits(&self, place: u32) -> bool {
        let answers = self.answers.lock();
        answers.of.get(place as usize).is_some_and(Option::is_none) && !self.is_late(place)
    }

    fn is_wanted(&self) -> bool {
        (0..self.head.count).any(|place| self.waits(place))
    }

    // Nobody in this process learns that lanes of another one went on: whoever looks sees it by their deadlines.
    fn wake_when_unwanted(&self, _: u64, _: &Waker) {}

    fn forget_waker(&self, _: u64) {}

    fn end(&self, panicked: bool) {
        let error = if panicked { CallError::Panicked } else { CallError::Cancelled };
        let mut guard = self.answers.lock();
        if guard.of.is_empty() {
            return;
        }
        let mut answers = Self::take(&mut guard);
        drop(guard);
        answers.of.iter_mut().for_each(|of| _ = of.get_or_insert(Status::Error(error)));
        self.send(answers);
    }
}

/// A service whose handlers get one call at a time.
struct OneByOne<S>(Arc<S>);

/// The result words of a call.
#[derive(Default)]
struct Words(Vec<u64>);

impl Reply for Words {
    fn words(&mut self, words: &[u64]) {
        self.0 = words.to_vec();
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if bytes.is_empty() { Ok(()) } else { Err(CallError::TooLarge) }
    }
}

impl<S: Service> GatheredService for OneByOne<S> {
    fn methods(&self) -> &[Method] {
        self.0.methods()
    }

    fn gathered(&self, method: usize, calls: GatheredCalls) -> BatchFuture {
        let service = self.0.clone();
        Box::pin(async move {
            for call in 0..calls.len() {
                if !calls.waits(call) {
                    calls.answer(call, Err(CallError::TimedOut));
                    continue;
                }
                let caller = calls.caller(call);
                let request = Request { words: calls.words_of(call), bytes: &[], reply_capacity: 0, caller };
                let mut reply = Words::default();
                let handle = || called_by(caller, || service.call(method, request, &mut reply));
                let result = match catch_unwind(AssertUnwindSafe(handle)) {
                    Ok(result) => result,
                    Err(payload) => {
                        std::mem::forget(payload);
                        Err(CallError::Panicked)
                    }
                };
                calls.answer(call, result.map(|()| &reply.0[..]));
            }
        })
    }
}
