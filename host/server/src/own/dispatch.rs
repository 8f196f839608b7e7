//! From a packet to its handlers, and back for those that run at once.

use super::bytes;
use super::gather;
use super::inline::Inline;
use super::job::{self, LaneCall, LaneCalls};
use super::posts::queue;
use super::registry::{Entry, Kind, Registry};
use super::reply::ReplyPlace;
use super::shared::Shared;
use super::unserved;
use crate::engine::caught::catch;
use crate::engine::trace::Recording;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Kind as PacketKind, PostHead};
use hostcall_channel::host::{Batch, Scanner};
use hostcall_service::{Caller, Calls, OwnedRequest, Posts, Replies, Service};
use hostcall_trace::Source;
use std::sync::Arc;
use std::time::Instant;

/// Answers every lane of a batch with an error.
#[inline(never)]
pub(crate) fn refuse(shared: &Shared, batch: &Batch, error: CallError) {
    let rung = batch.rung();
    let registry = shared.registry();
    let entry = registry.entry(rung.service(), rung.check()).ok();
    let counts = entry.map_or_else(|| registry.unknown(), |entry| entry.counts.clone());
    counts.add_answers(batch.lines().lanes() as u32, Status::Error(error), None);
    for packet in 0..batch.count() {
        if let Some(mut recording) = record(shared, batch, packet) {
            let name = entry.map_or("(no service)::no such method", |entry| entry.method.name());
            recording.lanes_ended(rung.lanes(), Status::Error(error));
            recording.answered(name, rung.service().into(), launch_of(batch, packet));
        }
        batch.answer(packet).all(shared.memory.region(), Status::Error(error));
    }
}

pub(super) fn launch_of(batch: &Batch, packet: usize) -> LaunchId {
    batch.lines().caller(batch.ranks(packet).start).launch
}

/// Begins the record of a packet's call, if there is a tracer.
pub(super) fn record(shared: &Shared, batch: &Batch, packet: usize) -> Option<Recording> {
    let trace = shared.trace.as_ref()?;
    let (rung, slot) = (batch.rung(), batch.answer(packet).slot());
    let mut recording = Recording::start(trace, slot, rung.lanes());
    let launch = launch_of(batch, packet);
    let owner = shared.memory.region().alleged_owner(slot).filter(|owner| owner.launch == launch);
    if let Some(owner) = owner {
        recording.set_place(owner.workgroup, owner.wave);
    }
    Some(recording)
}

/// Answers a batch, or sees to it that it will be.
#[inline]
pub(crate) fn batch(
    shared: &Arc<Shared>,
    inline: &Inline,
    registry: &Registry,
    scanner: &Scanner,
    batch: &Batch,
    replies: &mut Replies,
) {
    let rung = batch.rung();
    let mut newest = None;
    let entry = match entry_of(shared, registry, &mut newest, rung.service(), rung.check()) {
        Ok(entry) => entry,
        Err(error) => {
            // Before the lanes have their answers: who waits for their kernel finds them counted.
            for packet in 0..batch.count() {
                let (launch, lanes) = (launch_of(batch, packet), batch.ranks(packet).len() as u64);
                unserved::count(shared, launch, rung.service(), error, lanes, 0);
            }
            return refuse(shared, batch, error);
        }
    };
    match &entry.service.kind {
        _ if rung.kind() != PacketKind::Words => bytes::packet(shared, inline, entry, scanner, batch),
        Kind::Inline(service) if shared.trace.is_none() => {
            run(shared, inline, entry, &***service, batch, replies);
            batch.answer_all(shared.memory.region(), replies);
        }
        Kind::Inline(service) => traced(shared, inline, entry, &***service, batch, replies),
        Kind::Gathered { .. } => gather::batch(shared, entry, scanner, batch),
        _ => words_packets(shared, entry, scanner, batch),
    }
}

/// Answers a batch at once and records its calls. Its packets are handled together, and so have the same times.
#[inline(never)]
fn traced(
    shared: &Shared,
    inline: &Inline,
    entry: &Entry,
    service: &dyn Service,
    batch: &Batch,
    replies: &mut Replies,
) {
    let mut recordings: Vec<_> =
        (0..batch.count()).filter_map(|packet| record(shared, batch, packet)).collect();
    let now_ns = || shared.trace.as_ref().map_or(0, Source::now_ns);
    let began_ns = now_ns();
    run(shared, inline, entry, service, batch, replies);
    let ended_ns = now_ns();
    let rung = batch.rung();
    let word_bytes = size_of::<u64>() * rung.lanes() as usize;
    for (packet, recording) in recordings.iter_mut().enumerate() {
        recording.began(began_ns);
        recording.ended(ended_ns);
        recording.add_bytes(rung.argument_words() * word_bytes, rung.result_words() * word_bytes);
        for rank in batch.ranks(packet) {
            recording.lanes_ended(1, Status::from_bits(replies.planes()[0][rank][1]));
        }
        recording.answered(entry.method.name(), entry.method.number().into(), launch_of(batch, packet));
    }
    // After the records: who learns that a launch has ended finds its calls recorded.
    batch.answer_all(shared.memory.region(), replies);
}

/// Finds the method of a number whose types have this check: in the consumer's registry, or in the newest one, since its
/// service may have come meanwhile.
#[inline(always)]
fn entry_of<'r>(
    shared: &Shared,
    registry: &'r Registry,
    newest: &'r mut Option<Arc<Registry>>,
    service: u16,
    check: u32,
) -> Result<&'r Arc<Entry>, CallError> {
    match registry.entry(service, check) {
        Ok(entry) => Ok(entry),
        Err(_) => newest.insert(shared.registry()).entry(service, check),
    }
}

/// Has a batch handled at once, counts it, and notes how long some of them took.
#[inline(always)]
fn run(
    shared: &Shared,
    inline: &Inline,
    entry: &Entry,
    service: &dyn Service,
    batch: &Batch,
    replies: &mut Replies,
) {
    let timed = inline.is_timed().then(Instant::now);
    // It has ended for reports before its lanes may learn of it.
    let runs = inline.run(entry, batch.lines().caller(0), batch.lines().lanes());
    handle(shared, entry, service, Calls::new(batch.lines(), replies));
    drop(runs);
    // Before the lanes have their answers.
    entry.counts.add_calls(inline.consumer, batch.lines().lanes());
    if replies.has_errors() {
        entry.counts.note_errors(inline.consumer, batch, replies);
    }
    if let Some(began) = timed {
        entry.counts.note_time(inline.consumer, began.elapsed());
    }
}

/// Has calls handled at once.
#[inline(always)]
fn handle(shared: &Shared, entry: &Entry, service: &dyn Service, mut calls: Calls<'_>) {
    let mut left = calls.left() + 1;
    // A handler's panic is one lane's; those after it have theirs handled.
    while calls.left() < left {
        left = calls.left();
        if catch(|| service.calls(entry.index, &mut calls)).is_ok() {
            break;
        }
        calls.panicked();
        tell_of_panic(shared, entry);
    }
    if calls.left() > 0 {
        calls.refuse();
    }
}

/// Tells of the panic of a handler of several lanes' calls or posts, for the one begun last.
#[cold]
fn tell_of_panic(shared: &Shared, entry: &Entry) {
    if let Some(caller) = hostcall_service::caller() {
        shared.handler_panicked(entry, caller);
    }
}

/// Packets of kind `Words` whose handlers may wait.
#[inline(never)]
fn words_packets(shared: &Arc<Shared>, entry: &Arc<Entry>, scanner: &Scanner, batch: &Batch) {
    let lines = batch.lines();
    for packet in 0..batch.count() {
        let calls = batch.ranks(packet).map(|rank| {
            let words = lines.words(rank)[..lines.argument_words()].to_vec();
            let caller = lines.caller(rank);
            let request = OwnedRequest { words, bytes: Vec::new(), reply_capacity: 0, caller };
            let timeout_us = lines.tag(rank).timeout_us;
            (
                Ok(LaneCall { request, unread: None, fetched: None, charge: None, timeout_us }),
                ReplyPlace::default(),
            )
        });
        start(shared, entry, scanner, batch, packet, calls.collect());
    }
}

/// Hands a packet of a batch to threads that may wait.
pub(super) fn start(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    batch: &Batch,
    packet: usize,
    calls: LaneCalls,
) {
    let (launch, recording) = (launch_of(batch, packet), record(shared, batch, packet));
    let answer = scanner.detach(&shared.memory, batch.answer(packet));
    job::start(shared, entry, batch.rung().kind(), answer, launch, calls, recording);
}

/// Handles a run of posts, or has it handled later. Returns how many were taken; the others stay where they are.
#[inline]
pub(crate) fn posts(
    shared: &Arc<Shared>,
    inline: &Inline,
    registry: &Registry,
    caller: Caller,
    head: PostHead,
    mut posts: Posts<'_>,
) -> usize {
    if !shared.launches.is_known(caller.launch) {
        shared.statistics.count_refused_posts(posts.left());
        return posts.count();
    }
    let mut newest = None;
    let entry = match entry_of(shared, registry, &mut newest, head.service, head.extra) {
        Ok(entry) => entry,
        Err(error) => {
            let left = posts.left();
            unserved::count(shared, caller.launch, head.service, error, 0, left as u64);
            shared.statistics.count_refused_posts(left);
            return posts.count();
        }
    };
    match &entry.service.kind {
        Kind::Inline(service) => {
            // Whoever posted does not wait.
            let runs = inline.run(entry, caller, 0);
            let (mut refused, mut left) = (0, posts.left() + 1);
            // A post whose handler panicked is refused, and those after it are handled.
            while posts.left() < left {
                left = posts.left();
                match catch(|| service.posts(entry.index, &mut posts)) {
                    Ok(malformed) => {
                        // A service may say any number.
                        refused += malformed.min(left - posts.left());
                        break;
                    }
                    Err(_) => {
                        refused += 1;
                        tell_of_panic(shared, entry);
                    }
                }
            }
            drop(runs);
            if !posts.is_declined() {
                refused += posts.left();
            } else if !shared.launches.is_live(caller.launch) || !posts.may_decline() {
                // Nobody waits for what a cancelled launch said, and what cannot be found again is lost.
                refused += posts.left();
                posts.for_each(|_, _| ());
            } else {
                shared.posts_declined();
            }
            if refused > 0 {
                shared.statistics.count_refused_posts(refused);
            }
        }
        _ => queue(shared, entry, &mut posts),
    }
    let taken = if posts.is_declined() { posts.count() - posts.left() } else { posts.count() };
    entry.counts.add_posts(inline.consumer, taken);
    if let Some(trace) = shared.trace.as_ref().filter(|_| taken > 0) {
        trace.posts(entry.method.name(), entry.method.number().into(), taken as u64);
    }
    taken
}
