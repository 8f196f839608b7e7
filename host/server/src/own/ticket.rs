//! The ticket of a packet of calls whose handlers may wait: what of it is unread, where its replies go, and the
//! [`Answers`] for which its handlers, its deadlines and cancellations race.

use super::bytes;
use super::job::LaneCall;
use super::messages::Unread;
use super::registry::{Entry, Kind};
use super::reply::{ByteReply, ReplyPlace};
use super::shared::Shared;
use crate::engine::answers::{Answers, Notify, PacketAnswer};
use crate::engine::calls::Call;
use crate::engine::trace::Recording;
use crate::engine::watchdog::{Waiting, WaitsFor, Watched};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::Kind as PacketKind;
use hostcall_channel::host::DetachedAnswer;
use hostcall_locks::Mutex;
use hostcall_service::Caller;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;
use tracing::Level;

/// The right to answer a packet, shared by its lanes' handlers, the watchdog and cancellations.
pub(crate) struct Ticket {
    answers: Answers<Lanes, Arc<Shared>>,
    /// Ranks of the lanes whose handlers have begun.
    begun: AtomicU64,
    /// Ranks of those that have waited for their turn.
    in_turn: AtomicU64,
    /// Deadlines of lanes, by their ranks; the first one last. No copy is made under the lock.
    deadlines: Mutex<Vec<(Instant, u32)>>,
    pub entry: Arc<Entry>,
    slot: u32,
    launch: LaunchId,
    started: Instant,
    pub shared: Arc<Shared>,
    kind: PacketKind,
    /// Where each lane's reply may go.
    pub places: SmallVec<[ReplyPlace; 1]>,
    /// The calls that no thread has taken, by their ranks; those that are taken next last.
    pub left: Mutex<SmallVec<[(u32, LaneCall); 1]>>,
}

/// How a packet's lanes are answered.
struct Lanes {
    answer: DetachedAnswer,
    entry: Arc<Entry>,
    started: Instant,
    record: Option<Box<Record>>,
}

/// What a tracer gets of the packet.
struct Record {
    recording: Recording,
    entry: Arc<Entry>,
    launch: LaunchId,
}

impl Record {
    /// Records that lanes have their answers. The slot is not free yet, so that no later call of it is recorded before.
    fn ended(&mut self, lanes: u32, status: Status, is_last: bool) {
        self.recording.lanes_ended(lanes, status);
        if is_last {
            let method = &self.entry.method;
            self.recording.answered(method.name(), method.number().into(), self.launch);
        }
    }
}

impl Lanes {
    /// Counts lanes that get their answers now.
    fn count(&self, lanes: u32, status: Status) {
        self.entry.counts.add_answers(lanes, status, Some(self.started.elapsed()));
    }

    /// Records that a handler begins.
    fn began(&mut self) {
        if let Some(Record { recording, .. }) = self.record.as_deref_mut() {
            recording.began(recording.now_ns());
        }
    }

    /// Counts a lane's answer, gives it, and records it.
    fn give(&mut self, rank: u32, status: Status, words: &[u64], is_last: bool) {
        self.count(1, status);
        self.answer.lane(rank, status, words);
        if let Some(record) = &mut self.record {
            record.ended(1, status, is_last);
        }
    }
}

impl PacketAnswer for Lanes {
    fn give_up(&mut self, lanes: u32) {
        let status = Status::Error(CallError::Cancelled);
        self.count(lanes, status);
        // Lanes that have an answer keep it.
        self.answer.rest(status);
        if let Some(record) = &mut self.record {
            record.ended(lanes, status, true);
        }
    }
}

impl Notify for Arc<Shared> {
    fn answered(&self, is_last: bool) {
        Shared::answered(self);
        // A lane may have rung again before the slot was free to be looked at.
        if is_last {
            self.wake();
        }
    }
}

impl Ticket {
    /// Makes the ticket of a packet whose lanes' replies may go to `places`. `deadlines` are those of lanes, by their ranks.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the ticket, and one place makes it")]
    pub fn new(
        shared: &Arc<Shared>,
        entry: &Arc<Entry>,
        kind: PacketKind,
        answer: DetachedAnswer,
        launch: LaunchId,
        places: SmallVec<[ReplyPlace; 1]>,
        mut deadlines: Vec<(Instant, u32)>,
        recording: Option<Recording>,
        started: Instant,
    ) -> Arc<Self> {
        deadlines.sort_unstable_by(|a, b| b.cmp(a));
        let (slot, lanes) = (answer.answer().slot(), answer.answer().lanes());
        let record = recording.map(|recording| Box::new(Record { recording, entry: entry.clone(), launch }));
        let lanes_answer = Lanes { answer, entry: entry.clone(), started, record };
        Arc::new(Self {
            answers: Answers::new(lanes, lanes_answer, shared.clone()),
            begun: AtomicU64::new(0),
            in_turn: AtomicU64::new(0),
            deadlines: Mutex::new(deadlines),
            entry: entry.clone(),
            slot,
            launch,
            started,
            shared: shared.clone(),
            kind,
            places,
            left: Mutex::default(),
        })
    }

    /// Answers one lane with what its handler made.
    pub fn finish(&self, rank: u32, caller: Caller, result: Result<ByteReply, CallError>) {
        self.answers.give(rank, |lanes, is_last| {
            if let Some(Record { recording, .. }) = lanes.record.as_deref_mut() {
                recording.ended(recording.now_ns());
                recording.add_bytes(0, result.as_ref().map_or(0, ByteReply::len));
            }
            if self.kind == PacketKind::Words {
                match result {
                    Ok(reply) => lanes.give(rank, Status::Ok, &reply.words, is_last),
                    Err(error) => lanes.give(rank, Status::Error(error), &[], is_last),
                }
            } else {
                let (region, answer) = (lanes.answer.region(), lanes.answer.answer());
                let place = self.places[rank as usize];
                let (status, words) = bytes::put(&self.shared, region, answer, place, rank, caller, result);
                lanes.give(rank, status, &words, is_last);
            }
        });
    }

    /// Answers those of the lanes of these ranks, a bit each, that have no answer: each with the status and the result words
    /// that `reply` has for it. For calls without bytes.
    pub fn finish_words<'a>(&self, ranks: u64, reply: impl Fn(u32) -> (Status, &'a [u64])) {
        self.answers.give_many(ranks, |lanes, ranks, is_last| {
            if let Some(Record { recording, .. }) = lanes.record.as_deref_mut() {
                recording.ended(recording.now_ns());
            }
            let mut left = ranks;
            let mut ok = 0;
            while left != 0 {
                let rank = left.trailing_zeros();
                left &= left - 1;
                let (status, words) = reply(rank);
                match status {
                    Status::Ok => ok += 1,
                    Status::Error(_) => lanes.count(1, status),
                }
                lanes.answer.lane(rank, status, words);
                if let Some(record) = &mut lanes.record {
                    record.recording.add_bytes(0, size_of_val(words));
                    record.ended(1, status, is_last && left == 0);
                }
            }
            if ok > 0 {
                lanes.count(ok, Status::Ok);
            }
        });
    }

    /// Returns whether its calls came by words, and so are answered by words.
    pub fn is_of_words(&self) -> bool {
        self.kind == PacketKind::Words
    }

    /// Answers all lanes that have no answer with an error.
    pub fn fail(&self, error: CallError) {
        self.finish_words(u64::MAX, |_| (Status::Error(error), &[]));
    }

    /// Notes that the handler of all lanes begins. Returns the ranks of those that have no answer, a bit each.
    pub fn begin_all(&self) -> u64 {
        let open = self.answers.open();
        self.begun.store(open, Ordering::Relaxed);
        if open != 0 {
            self.answers.with(open.trailing_zeros(), Lanes::began);
        }
        open
    }

    /// Waits until all lanes have their answers, whoever gives them. One future may.
    pub fn poll_all_answered(&self, context: &mut Context<'_>) -> Poll<()> {
        self.answers.poll_all_answered(context)
    }

    /// Returns whether a lane has no answer.
    pub fn waits(&self, rank: u32) -> bool {
        self.answers.waits(rank)
    }

    /// Waits until a lane has its answer, whoever gives it.
    pub fn poll_answered(&self, rank: u32, context: &mut Context<'_>) -> Poll<()> {
        self.answers.poll_answered(rank, context)
    }

    /// Notes that a lane waits for its turn.
    pub fn waits_for_turn(&self, rank: u32) {
        self.in_turn.fetch_or(1 << rank, Ordering::Relaxed);
    }

    /// Notes that a lane's handler begins. Returns whether it is to: the lane has no answer, and the service is there.
    pub fn begin(&self, rank: u32, call: &mut LaneCall) -> bool {
        if self.entry.service.is_removed() {
            call.free();
            self.finish(rank, call.request.caller, Err(CallError::NoSuchService));
            return false;
        }
        self.begun.fetch_or(1 << rank, Ordering::Relaxed);
        self.answers.with(rank, Lanes::began).is_some()
    }

    /// Reads what of a lane's request is unread. Returns whether the lane has no answer.
    pub fn read(&self, rank: u32, call: &mut LaneCall) -> bool {
        let caller = call.request.caller;
        call.free_before();
        let read = self.answers.with(rank, |lanes| {
            let Some(Unread { area, from, bytes, lent_at, .. }) = call.unread.take() else { return Ok(()) };
            if lent_at == 0 {
                let (answer, to) = (&lanes.answer, &mut call.request.bytes);
                answer.answer().append_bytes(answer.region(), area, rank, from, bytes, to);
                return Ok(());
            }
            self.shared.messages.fetch(lent_at, bytes).map(|fetched| call.put_fetched(fetched))
        });
        if let Some(Err(error)) = read {
            call.free();
            self.finish(rank, caller, Err(error));
        }
        matches!(read, Some(Ok(())))
    }
}

impl Call for Ticket {
    fn is_open(&self) -> bool {
        self.answers.open() != 0
    }

    fn launch(&self) -> LaunchId {
        self.launch
    }
}

impl Watched for Ticket {
    fn started(&self) -> Instant {
        self.started
    }

    fn deadline(&self) -> Option<Instant> {
        let (open, mut deadlines) = (self.answers.open(), self.deadlines.lock());
        while deadlines.pop_if(|(_, rank)| open >> *rank & 1 == 0).is_some() {}
        deadlines.last().map(|(deadline, _)| *deadline)
    }

    fn expire(&self, now: Instant) {
        let status = Status::Error(CallError::TimedOut);
        let expire =
            |rank| self.answers.try_give(rank, |lanes, is_last| lanes.give(rank, status, &[], is_last));
        let mut late = Vec::new();
        let next =
            || self.deadlines.lock().last().filter(|(deadline, _)| *deadline <= now).map(|next| next.1);
        while let Some(rank) = next() {
            let was_open = self.waits(rank);
            if !expire(rank) {
                // Another lane's answer is being copied. The watchdog comes again.
                break;
            }
            self.deadlines.lock().retain(|(_, of)| *of != rank);
            if was_open {
                late.push(rank);
            }
        }
        if late.is_empty() {
            return;
        }
        let (launch, slot) = (self.launch, self.slot);
        self.shared.engine.log(Level::DEBUG, move || {
            tracing::debug!(%launch, slot, ranks = ?late, "a call's deadline has passed");
        });
    }

    fn give_up(&self) {
        self.answers.give_up();
    }

    fn give_up_soon(&self) {
        self.answers.give_up_soon();
    }

    fn slot(&self) -> u32 {
        self.slot
    }

    fn waiting(&self) -> Waiting {
        let open = self.answers.open();
        let is_async = matches!(self.entry.service.kind, Kind::Async(_));
        let waits_for = if is_async || open & self.begun.load(Ordering::Relaxed) != 0 {
            WaitsFor::Handler
        } else if open & self.in_turn.load(Ordering::Relaxed) != 0 || self.entry.service.gathers() {
            WaitsFor::Turn
        } else {
            WaitsFor::Thread
        };
        let (lanes, service) = (open.count_ones(), self.entry.method.name().to_string());
        self.shared.waiting(self.slot, self.launch, lanes, service, self.started.elapsed(), waits_for)
    }
}
