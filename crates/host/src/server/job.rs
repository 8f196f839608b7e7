//! Calls whose handlers may wait: on worker threads or as a future for each lane, and a ticket that answers the
//! packet once, whoever is first: the handler, the deadline, or a cancellation.

use super::control::Shared;
use super::dispatch;
use super::registry::{Entry, Handler};
use futures_lite::FutureExt;
use hostcall_abi::service::{AsyncService, OwnedRequest, Service};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::Kind;
use hostcall_channel::host::DetachedAnswer;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

/// The right to answer a packet, shared by its lanes' handlers, the watchdog and cancellations.
pub(crate) struct Ticket {
    answer: Mutex<Answering>,
    pub entry: Arc<Entry>,
    pub slot: u32,
    pub launch: u64,
    pub started: Instant,
    pub deadline: Option<Instant>,
    shared: Arc<Shared>,
}

struct Answering {
    answer: Option<DetachedAnswer>,
    lanes_left: usize,
}

impl Ticket {
    fn lock(&self) -> std::sync::MutexGuard<'_, Answering> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one lane, unless the packet was answered as a whole meanwhile.
    fn lane(&self, answer: impl FnOnce(&mut DetachedAnswer)) {
        let mut answering = self.lock();
        if let Some(detached) = &mut answering.answer {
            answer(detached);
            answering.lanes_left -= 1;
            if answering.lanes_left == 0 {
                answering.answer = None;
            }
            drop(answering);
            (self.shared.on_answer)();
        }
    }

    /// Gives the lanes that have no answer yet this error; handlers that still run answer nobody.
    pub fn give_up(&self, error: CallError) {
        if let Some(mut answer) = self.lock().answer.take() {
            answer.rest(Status::Error(error));
            drop(answer);
            (self.shared.on_answer)();
        }
    }

    /// Whether lanes still wait.
    pub fn is_open(&self) -> bool {
        self.lock().answer.is_some()
    }
}

/// A packet's handlers.
pub(crate) struct Job {
    shared: Arc<Shared>,
    ticket: Arc<Ticket>,
    kind: Kind,
}

impl Job {
    pub fn start(
        shared: &Arc<Shared>,
        entry: Arc<Entry>,
        kind: Kind,
        answer: DetachedAnswer,
        requests: Vec<Result<OwnedRequest, CallError>>,
        timeout_us: Option<u32>,
    ) {
        let started = Instant::now();
        let ticket = Arc::new(Ticket {
            slot: answer.answer().slot(),
            launch: shared.owner(answer.answer().slot()).launch,
            answer: Mutex::new(Answering { lanes_left: requests.len(), answer: Some(answer) }),
            entry: entry.clone(),
            started,
            deadline: timeout_us.map(|us| started + Duration::from_micros(us.into())),
            shared: shared.clone(),
        });
        shared.watchdog.watch(&ticket);
        let job = Self { shared: shared.clone(), ticket, kind };
        let mut lanes = Vec::with_capacity(requests.len());
        for (rank, request) in (0..).zip(requests) {
            match request {
                Ok(request) => lanes.push((rank, request)),
                Err(error) => job.finish(rank, 0, Err(error)),
            }
        }
        match &entry.handler {
            Handler::Sync(service, _) => {
                let (service, lanes) = (service.clone(), Mutex::new(lanes.into_iter()));
                work(Arc::new(Lanes { job, service, index: entry.index, lanes }));
            }
            Handler::Async(service) => {
                let job = Arc::new(job);
                for (rank, request) in lanes {
                    smol::spawn(answer_later(job.clone(), service.clone(), entry.index, rank, request))
                        .detach();
                }
            }
        }
    }

    fn finish(&self, rank: u32, lane: u8, result: Result<(Vec<u64>, Vec<u8>), CallError>) {
        self.ticket.lane(|detached| {
            let (status, words) = if self.kind == Kind::Words {
                match result {
                    Ok((words, _)) => return detached.lane(rank, Status::Ok, &words),
                    Err(error) => (Status::Error(error), [0; 2]),
                }
            } else {
                let region = detached.region();
                dispatch::put_bytes(&self.shared, region, detached.answer(), rank, lane, result)
            };
            detached.lane(rank, status, &words);
        });
    }
}

/// The lanes of a packet whose handlers have not begun.
struct Lanes {
    job: Job,
    service: Arc<dyn Service>,
    index: usize,
    lanes: Mutex<IntoIter<(u32, OwnedRequest)>>,
}

/// Has a worker run handlers of a packet's lanes, one after the other. Before its first it starts another worker if
/// lanes are left: one handler that waits delays no other lane's, and handlers that do not wait are done before
/// many workers have come.
fn work(lanes: Arc<Lanes>) {
    blocking::unblock(move || {
        let mut is_first = true;
        loop {
            let mut left = lanes.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((rank, request)) = left.next() else { return };
            let is_last = left.len() == 0;
            drop(left);
            if std::mem::take(&mut is_first) && !is_last {
                work(lanes.clone());
            }
            let result = dispatch::run_for_bytes(lanes.service.as_ref(), lanes.index, request.as_request());
            lanes.job.finish(rank, request.caller.lane, result);
        }
    })
    .detach();
}

async fn answer_later(
    job: Arc<Job>,
    service: Arc<dyn AsyncService>,
    index: usize,
    rank: u32,
    request: OwnedRequest,
) {
    let (lane, capacity) = (request.caller.lane, request.reply_capacity);
    let handler = async { service.call(index, request).await };
    let result = match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(Ok(reply)) if reply.bytes.len() <= capacity => Ok((reply.words, reply.bytes)),
        Ok(Ok(_)) => Err(CallError::TooLarge),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(CallError::Panicked),
    };
    job.finish(rank, lane, result);
}
