//! The answerer's end: a service of this process that kernels of others call.
//!
//! # The life of a question
//! 1. The carrier's thread brings it to the service's door ([`crate::door`]), which checks it: version, lengths, the method's
//!    name and types, and whether this batch was here before. What is wrong is answered, each call with its status; a batch
//!    that was here before is dropped; where as many questions wait as may, each call gets `Busy`.
//! 2. One of the service's *workers* runs the handler. The answer leaves when each call has one, or when the handler drops the
//!    batch.
//! 3. It ends without an answer when nobody waits for it any more: its lanes' deadlines have passed, whoever asked says that
//!    they went on, or is gone. Its [`Wanted`](hostcall_service::Wanted) tells so, its lanes do not wait, and the handler's
//!    future is dropped.
//!
//! A handler gets the calls of each question as a batch of its own ([`hostcall_service::Gathered`]), whose lanes wait as long as
//! they said. That one lane was cancelled while others of the question wait is not told.

use crate::RemoteError;
use crate::door::{Door, MOST_WAITING, Task, Work, clerk};
use crate::import::key_of;
use crate::session::{Session, check_name, spawn};
use futures_lite::future::block_on;
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_service::gather::{BatchFuture, GatheredCall};
use hostcall_service::{Caller, GatheredCalls, GatheredService, Reply, Request, Service, called_by};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

/// Threads that run a service's handlers.
const WORKERS: usize = 4;

/// A service that is answered for, until this is dropped. Nobody waits for handlers that run then.
pub struct Export {
    /// `None` while this is dropped: first of all, nothing arrives any more.
    answers: Option<Box<dyn Send>>,
    door: Arc<Door>,
    name: String,
    _session: Session,
}

impl Drop for Export {
    fn drop(&mut self) {
        self.answers = None;
        self.door.close();
    }
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
        spawn(move || waits.iter().for_each(|work| run(work, &*service)))?;
    }
    let (tasks, to_do) = flume::unbounded();
    let door = Arc::new(Door::new(methods, session.0.state.clone(), work, tasks.clone()));
    let of_clerk = Arc::downgrade(&door);
    spawn(move || clerk(&of_clerk, &to_do))?;
    let of_carrier = door.clone();
    let arrived = Box::new(move |question| of_carrier.let_in(question));
    let gone = Box::new(move |process| _ = tasks.send(Task::EndAllOf(process)));
    let answers = session.0.carrier.answers(name, arrived, gone)?;
    Ok(Export { answers: Some(answers), door, name: name.to_owned(), _session: session.clone() })
}

/// Has a service handle a question.
fn run(Work { method, lanes }: Work, service: &dyn GatheredService) {
    let Some(question) = lanes.take_question() else { return };
    let calls = (0..).zip(&question.calls).zip(lanes.deadlines()).map(|((place, call), deadline)| {
        let caller = Caller { slot: 0, lane: call.lane, ..Caller::default() };
        GatheredCall { caller, deadline: *deadline, place }
    });
    let calls = calls.collect();
    let calls = GatheredCalls::new(lanes.clone(), usize::from(question.head.width), question.words, calls);
    // A panic drops the batch, which answers it; the process's hook has told of it.
    let handle = || {
        let mut handler = service.gathered(method, calls);
        block_on(poll_fn(|context| match handler.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => lanes.poll_over(context),
        }));
    };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(handle)) {
        // A payload may panic when it is dropped.
        std::mem::forget(payload);
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
