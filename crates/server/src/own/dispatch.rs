//! From a packet to its handlers, and back for those that run at once.

use super::at_once::Job;
use super::inline::Inline;
use super::job::{self, LaneCall, LaneCalls};
use super::messages::Messages;
use super::posts::queue;
use super::registry::{Entry, Kind, Registry};
use super::reply::{ByteReply, Filling, ReplyBytes, ReplyPlace};
use super::shared::Shared;
use crate::engine::caught::catch;
use crate::engine::trace::Recording;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{BytesHead, Kind as PacketKind, PostHead, REPLY_IS_THERE, ReplyAt, reply_bytes_at};
use hostcall_channel::Region;
use hostcall_channel::host::{Answer, Batch, Scanner};
use hostcall_service::{Caller, Calls, OwnedRequest, Posts, Replies, Request, Service, called_by};
use hostcall_trace::Source;
use std::sync::Arc;

/// Runs a handler's method for one lane, whose reply may go to `place`. Returns the reply. A panic becomes an error.
pub(crate) fn run_for_bytes(
    messages: &Messages,
    service: &dyn Service,
    method: usize,
    request: Request<'_>,
    place: ReplyPlace,
) -> Result<ByteReply, CallError> {
    let mut filling = Filling::new(messages, request.reply_capacity, place);
    match catch(|| service.call(method, request, &mut filling)) {
        Ok(result) => result.map(|()| filling.finish()),
        Err(_) => Err(CallError::Panicked),
    }
}

/// Answers every lane of a batch with an error.
#[inline(never)]
pub(crate) fn refuse(shared: &Shared, batch: &Batch, error: CallError) {
    for packet in 0..batch.count() {
        if let Some(mut recording) = record(shared, batch, packet) {
            recording.lanes_ended(batch.rung().lanes(), Status::Error(error));
            recording.answered("no method", batch.rung().service().into(), launch_of(batch, packet));
        }
        batch.answer(packet).all(shared.memory.region(), Status::Error(error));
    }
}

fn launch_of(batch: &Batch, packet: usize) -> LaunchId {
    batch.lines().caller(batch.ranks(packet).start).launch
}

/// Begins the record of a packet's call, if there is a tracer.
fn record(shared: &Shared, batch: &Batch, packet: usize) -> Option<Recording> {
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
    let newest;
    let entry = match registry.entry(rung.service(), rung.check()) {
        Ok(entry) => entry,
        Err(_) => {
            // The service may have come since the consumer last looked.
            newest = shared.registry();
            match newest.entry(rung.service(), rung.check()) {
                Ok(entry) => entry,
                Err(error) => return refuse(shared, batch, error),
            }
        }
    };
    match &entry.service.kind {
        _ if rung.kind() != PacketKind::Words => bytes_packet(shared, inline, entry, scanner, batch),
        Kind::Inline(service) if shared.trace.is_none() => {
            // It has ended for reports before its lanes may learn of it.
            let runs = inline.run(entry, batch.lines().caller(0), batch.lines().lanes());
            handle(&***service, entry.index, Calls::new(batch.lines(), replies));
            drop(runs);
            batch.answer_all(shared.memory.region(), replies);
        }
        Kind::Inline(service) => traced(shared, inline, entry, &***service, batch, replies),
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
    let runs = inline.run(entry, batch.lines().caller(0), batch.lines().lanes());
    let began_ns = now_ns();
    handle(service, entry.index, Calls::new(batch.lines(), replies));
    drop(runs);
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

/// Has calls handled at once.
#[inline(always)]
fn handle(service: &dyn Service, method: usize, mut calls: Calls<'_>) {
    let mut left = calls.left() + 1;
    // A handler's panic is one lane's; those after it have theirs handled.
    while calls.left() < left {
        left = calls.left();
        if catch(|| service.calls(method, &mut calls)).is_ok() {
            break;
        }
        calls.panicked();
    }
    if calls.left() > 0 {
        calls.refuse();
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

/// A packet of kind `Bytes` or `BytesMore`, which is alone in its batch.
#[inline(never)]
fn bytes_packet(shared: &Arc<Shared>, inline: &Inline, entry: &Arc<Entry>, scanner: &Scanner, batch: &Batch) {
    let (answer, kind) = (batch.answer(0), batch.rung().kind());
    let region = shared.memory.region();
    let lines = batch.lines();
    let head_words = lines.argument_words().wrapping_sub(BytesHead::LINE_WORDS);
    if ![BytesHead::SHORT_WORDS, BytesHead::WORDS].contains(&head_words) {
        return answer.all(region, Status::Error(CallError::Malformed));
    }
    let is_last = kind == PacketKind::Bytes;
    let inline_service = match &entry.service.kind {
        Kind::Inline(service) if catch(|| service.would_wait(entry.index)) == Ok(false) => Some(service),
        _ => None,
    };
    let mut calls = LaneCalls::with_capacity(lines.lanes());
    for (rank, place) in (0..answer.lanes()).zip(0..) {
        let words = lines.words(place);
        let line = &words[head_words..][..BytesHead::LINE_WORDS];
        let [bytes_at, reply_at] = if head_words == BytesHead::WORDS { [words[3], words[4]] } else { [0; 2] };
        let head = BytesHead::from_words([words[0], words[1], words[2], bytes_at, reply_at]);
        let share = answer.area_share(region, head.area);
        let reply_place = ReplyPlace { area: head.area, share: share.unwrap_or(0), wanted_at: head.reply_at };
        let caller = lines.caller(place);
        let key = (answer.slot(), caller.lane);
        let read = |from, bytes, to: &mut Vec<u8>| {
            answer.append_bytes(region, head.area, rank, from, bytes, to);
        };
        let taken = share.ok_or(CallError::Malformed).and_then(|share| {
            // What a thread that handles the call can read itself, the consumer leaves to it.
            if head.begins && is_last && (inline_service.is_none() || head.bytes_at != 0) {
                let (message, unread) = shared.messages.take_whole(key, (&head, line), share, read)?;
                if inline_service.is_none() {
                    return Ok(Some((message, Some(unread), None)));
                }
                let fetched = shared.messages.fetch(unread.lent_at, unread.bytes)?;
                return Ok(Some((message, None, Some(fetched))));
            }
            let whole =
                shared.messages.take_piece(key, caller.launch, (&head, line), share, is_last, read)?;
            Ok(whole.map(|message| (message, None, None)))
        });
        match taken {
            Ok(Some((message, unread, fetched))) => {
                let capacity = usize::try_from(head.reply_capacity).unwrap_or(usize::MAX);
                let request = OwnedRequest {
                    words: message.words,
                    bytes: message.bytes,
                    reply_capacity: capacity.min(shared.messages.budget.most_each),
                    caller,
                };
                let timeout_us = lines.tag(place).timeout_us;
                let charge = Some(message.charge);
                let mut call = LaneCall { request, unread, fetched: None, charge, timeout_us };
                if let Some(fetched) = fetched {
                    call.put_fetched(fetched);
                }
                calls.push((Ok(call), reply_place));
            }
            Err(error) if is_last => calls.push((Err(error), ReplyPlace::default())),
            taken => answer.lane(region, rank, taken.map_or_else(Status::Error, |_| Status::Ok), &[]),
        }
    }
    if !is_last {
        return;
    }
    let Some(service) = inline_service else {
        if may_call_at_once(shared, entry)
            && calls.len() == 1
            && calls[0].0.as_ref().is_ok_and(is_there_whole)
        {
            let Some((Ok(call), place)) = calls.pop() else { unreachable!("it was looked at") };
            let (launch, recording) = (launch_of(batch, 0), record(shared, batch, 0));
            let answer = scanner.detach(&shared.memory, batch.answer(0));
            let (shared, entry) = (shared.clone(), entry.clone());
            let job = Job { entry, answer, launch, call, place, recording, shared };
            return job.shared.clone().at_once.push(job);
        }
        return start(shared, entry, scanner, batch, 0, calls);
    };
    let mut recording = record(shared, batch, 0);
    if let Some(recording) = &mut recording {
        recording.began(recording.now_ns());
        recording.add_bytes(calls.iter().flat_map(|(call, _)| call).map(LaneCall::request_bytes).sum(), 0);
    }
    for (rank, (call, place)) in (0..).zip(calls) {
        let caller = lines.caller(rank as usize);
        let runs = inline.run(entry, caller, lines.lanes() - rank as usize);
        let result = call.and_then(|call| {
            let (messages, request) = (&shared.messages, call.as_request());
            called_by(caller, || run_for_bytes(messages, &***service, entry.index, request, place))
        });
        drop(runs);
        let reply_bytes = result.as_ref().map_or(0, ByteReply::len);
        if let Some(recording) = &mut recording {
            recording.ended(recording.now_ns());
        }
        let (status, words) = put_bytes(shared, region, &answer, place, rank, caller, result);
        if let Some(recording) = &mut recording {
            recording.add_bytes(0, reply_bytes);
            recording.lanes_ended(1, status);
        }
        answer.lane(region, rank, status, &words);
    }
    if let Some(mut recording) = recording {
        recording.answered(entry.method.name(), entry.method.number().into(), launch_of(batch, 0));
    }
}

/// Returns whether handlers of a method may answer at once although others of its service wait.
fn may_call_at_once(shared: &Shared, entry: &Entry) -> bool {
    match &entry.service.kind {
        Kind::Inline(service) | Kind::Blocking(service) => {
            shared.has_helpers && catch(|| service.may_call_at_once(entry.index)) == Ok(true)
        }
        Kind::Async(_) => false,
    }
}

/// Returns whether a request needs nothing to be read any more.
fn is_there_whole(call: &LaneCall) -> bool {
    call.unread.as_ref().is_none_or(|unread| unread.bytes == 0)
}

/// Puts a byte reply where the lane finds it; returns what to answer the lane.
pub(crate) fn put_bytes(
    shared: &Shared,
    region: Region<'_>,
    answer: &Answer,
    place: ReplyPlace,
    rank: u32,
    caller: Caller,
    result: Result<ByteReply, CallError>,
) -> (Status, [u64; MAX_WORDS]) {
    let ReplyPlace { area, share, .. } = place;
    let put = || {
        let reply = result?;
        let (total, mut line) = (reply.len(), [0; MAX_WORDS]);
        line[0] = total as u64;
        // What the lane has said that it waits for, see `bytes_result_words`.
        let inline = &mut line[1..answer.result_words().clamp(1, MAX_WORDS)];
        let ByteReply { words, bytes } = reply;
        let bytes_at = reply_bytes_at(words.len());
        let is_there = matches!(bytes, ReplyBytes::There(_));
        if total <= size_of_val(inline) && !is_there {
            let (of_words, of_bytes) = inline.split_at_mut(words.len());
            of_words.copy_from_slice(&words);
            for (to, chunk) in of_bytes.iter_mut().zip(bytes.as_slice().chunks(8)) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                *to = u64::from_le_bytes(word);
            }
            return Ok(line);
        }
        if let Some(room) = inline.get_mut(1..1 + words.len()) {
            room.copy_from_slice(&words);
        } else {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if words.len() > share {
                return Err(CallError::Malformed);
            }
            answer.write_bytes(region, area, rank, 0, &words);
        }
        if is_there {
            line[0] |= REPLY_IS_THERE;
            return Ok(line);
        }
        let key = (answer.slot(), caller.lane);
        // A lane of a launch that is over may have left without its answer.
        let wanted_at = if shared.launches.is_live(caller.launch) { place.wanted_at } else { ReplyAt::NONE };
        let len = bytes.as_slice().len();
        let is_pulled = shared.messages.is_sooner_pulled(len, wanted_at);
        let to = wanted_at.address();
        if !is_pulled && shared.messages.copy_to_lane(bytes.as_slice(), to, answer.lanes()) {
            line[0] |= REPLY_IS_THERE;
            return Ok(line);
        }
        // Lanes that share an area do not pull out of it.
        let takes_loan = is_pulled && answer.lanes() > 1;
        let bytes = match bytes {
            ReplyBytes::Few(bytes) if bytes_at + len <= share => {
                match takes_loan.then(|| shared.messages.loan_of(&bytes)) {
                    Some(Ok(loan)) => loan,
                    _ => {
                        answer.write_bytes(region, area, rank, bytes_at, &bytes);
                        return Ok(line);
                    }
                }
            }
            bytes => bytes.into_loan(&shared.messages)?,
        };
        line[1] = shared.messages.lend(key, caller.launch, bytes);
        Ok(line)
    };
    match put() {
        Ok(line) => (Status::Ok, line),
        Err(error) => (Status::Error(error), [0; MAX_WORDS]),
    }
}

/// Hands a packet of a batch to threads that may wait.
fn start(
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
    let newest;
    let entry = match registry.entry(head.service, head.extra) {
        Ok(entry) => entry,
        Err(_) => {
            newest = shared.registry();
            match newest.entry(head.service, head.extra) {
                Ok(entry) => entry,
                Err(_) => {
                    shared.statistics.count_refused_posts(posts.left());
                    return posts.count();
                }
            }
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
                        refused += malformed;
                        break;
                    }
                    Err(_) => refused += 1,
                }
            }
            drop(runs);
            if !posts.is_declined() {
                refused += posts.left();
            } else if !shared.launches.is_live(caller.launch) {
                // Nobody waits for what a cancelled launch said.
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
    if let Some(trace) = shared.trace.as_ref().filter(|_| taken > 0) {
        trace.posts(entry.method.name(), entry.method.number().into(), taken as u64);
    }
    taken
}
