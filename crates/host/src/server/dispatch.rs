//! From a packet to its handlers, and back for those that run at once.

use super::control::Shared;
use super::job::Job;
use super::registry::{Entry, Handler, Mode, Registry};
use hostcall_abi::batch::{Calls, Posts, Replies};
use hostcall_abi::service::{Caller, OwnedRequest, Reply, Request, Service};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{BytesHead, Kind, PostHead};
use hostcall_channel::Region;
use hostcall_channel::host::{Answer, Batch, Scanner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The reply of a byte call: result words, then bytes.
#[derive(Default)]
pub(crate) struct BytesReply {
    words: Vec<u64>,
    bytes: Vec<u8>,
    capacity: usize,
}

impl Reply for BytesReply {
    fn words(&mut self, words: &[u64]) {
        self.words = words.to_vec();
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if self.bytes.len() + bytes.len() > self.capacity {
            return Err(CallError::TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Runs a handler's method; a panic becomes a status.
pub(crate) fn run(
    service: &dyn Service,
    method: usize,
    request: Request<'_>,
    reply: &mut dyn Reply,
) -> Status {
    match catch_unwind(AssertUnwindSafe(|| service.call(method, request, reply))) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(error)) => Status::Error(error),
        Err(_) => Status::Error(CallError::Panicked),
    }
}

/// Runs a handler's method for a byte call and returns the reply's words and bytes.
pub(crate) fn run_for_bytes(
    service: &dyn Service,
    method: usize,
    request: Request<'_>,
) -> Result<(Vec<u64>, Vec<u8>), CallError> {
    let mut reply = BytesReply { capacity: request.reply_capacity, ..BytesReply::default() };
    run(service, method, request, &mut reply).into_result()?;
    Ok((reply.words, reply.bytes))
}

/// Answers every lane of a batch with an error.
pub(crate) fn refuse(region: Region<'_>, batch: &Batch, error: CallError) {
    for packet in 0..batch.count() {
        batch.answer(packet).all(region, Status::Error(error));
    }
}

/// Answers a batch, or sees to it that it will be.
#[inline]
pub(crate) fn batch(
    shared: &Arc<Shared>,
    registry: &Registry,
    scanner: &Scanner,
    batch: &Batch,
    replies: &mut Replies,
) {
    let region = shared.memory.region();
    let rung = batch.rung();
    let newest;
    let entry = match registry.entry(rung.service(), rung.check()) {
        Ok(entry) => entry,
        Err(_) => {
            // The service may have come since the consumer last looked.
            newest = shared.registry();
            match newest.entry(rung.service(), rung.check()) {
                Ok(entry) => entry,
                Err(error) => return refuse(region, batch, error),
            }
        }
    };
    match &entry.handler {
        _ if rung.kind() != Kind::Words => bytes_packet(shared, entry, scanner, batch),
        Handler::Sync(service, Mode::Inline) => {
            handle(service.as_ref(), entry.index, Calls::new(batch.lines(), replies));
            batch.answer_all(region, replies);
        }
        _ => words_packets(shared, entry, scanner, batch),
    }
}

/// Has calls handled at once.
#[inline(always)]
fn handle(service: &dyn Service, method: usize, mut calls: Calls<'_>) {
    let mut left = calls.left() + 1;
    // A handler's panic is one lane's; those after it have theirs handled.
    while calls.left() < left {
        left = calls.left();
        if catch_unwind(AssertUnwindSafe(|| service.calls(method, &mut calls))).is_ok() {
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
        let requests = batch.ranks(packet).map(|rank| {
            let words = lines.words(rank)[..lines.argument_words()].to_vec();
            Ok(OwnedRequest { words, bytes: Vec::new(), reply_capacity: 0, caller: lines.caller(rank) })
        });
        start(shared, entry, scanner, batch, packet, requests.collect());
    }
}

/// A packet of kind `Bytes`, `BytesMore` or `BytesFetch`, which is alone in its batch.
#[inline(never)]
fn bytes_packet(shared: &Arc<Shared>, entry: &Arc<Entry>, scanner: &Scanner, batch: &Batch) {
    let (answer, kind) = (batch.answer(0), batch.rung().kind());
    let region = shared.memory.region();
    let share = region.layout().bulk_share(answer.lanes());
    let lines = batch.lines();
    if lines.argument_words() != BytesHead::WORDS {
        return answer.all(region, Status::Error(CallError::Malformed));
    }
    let mut requests = Vec::with_capacity(lines.lanes());
    for (rank, place) in (0..answer.lanes()).zip(0..) {
        let [piece, total, rest, ..] = lines.words(place);
        let caller = lines.caller(place);
        let key = (answer.slot(), caller.lane);
        match kind {
            Kind::BytesFetch => {
                let fetched = shared.pieces(key, |pieces| {
                    let piece = pieces.fetch(piece, share)?;
                    answer.write_bulk(region, rank, piece);
                    Ok(())
                });
                let status = fetched.map_or_else(Status::Error, |()| Status::Ok);
                answer.lane(region, rank, status, &[]);
            }
            _ => {
                let head = BytesHead::from_words([piece, total, rest]);
                let taken = shared.pieces(key, |pieces| {
                    answer.read_bulk(region, rank, pieces.extend(&head, share, shared.message_limit)?);
                    if kind == Kind::BytesMore {
                        return Ok(None);
                    }
                    let (words, bytes) = pieces.finish(&head)?;
                    let reply_capacity =
                        usize::try_from(head.reply_capacity).unwrap_or(usize::MAX).min(shared.message_limit);
                    Ok(Some(OwnedRequest { words, bytes, reply_capacity, caller }))
                });
                match taken {
                    Ok(None) => answer.lane(region, rank, Status::Ok, &[]),
                    Ok(Some(request)) => requests.push(Ok(request)),
                    Err(error) if kind == Kind::BytesMore => {
                        answer.lane(region, rank, Status::Error(error), &[]);
                    }
                    Err(error) => requests.push(Err(error)),
                }
            }
        }
    }
    if kind != Kind::Bytes {
        return;
    }
    if let Handler::Sync(service, Mode::Inline) = &entry.handler {
        for (rank, request) in (0..).zip(&requests) {
            let result = request
                .as_ref()
                .map_err(|error| *error)
                .and_then(|request| run_for_bytes(service.as_ref(), entry.index, request.as_request()));
            reply_bytes(shared, region, &answer, rank, lines.caller(rank as usize).lane, result);
        }
        return;
    }
    start(shared, entry, scanner, batch, 0, requests);
}

/// Answers one lane of a byte call.
pub(crate) fn reply_bytes(
    shared: &Shared,
    region: Region<'_>,
    answer: &Answer,
    rank: u32,
    lane: u8,
    result: Result<(Vec<u64>, Vec<u8>), CallError>,
) {
    let (status, words) = put_bytes(shared, region, answer, rank, lane, result);
    answer.lane(region, rank, status, &words);
}

/// Puts a byte reply where the lane finds it; returns what to answer the lane.
pub(crate) fn put_bytes(
    shared: &Shared,
    region: Region<'_>,
    answer: &Answer,
    rank: u32,
    lane: u8,
    result: Result<(Vec<u64>, Vec<u8>), CallError>,
) -> (Status, [u64; 2]) {
    let (words, bytes) = match result {
        Ok(reply) => reply,
        Err(error) => return (Status::Error(error), [0; 2]),
    };
    let reply = if words.is_empty() {
        bytes
    } else {
        let mut reply = Vec::with_capacity(words.len() * 8 + bytes.len());
        words.iter().for_each(|word| reply.extend_from_slice(&word.to_le_bytes()));
        reply.extend_from_slice(&bytes);
        reply
    };
    let share = region.layout().bulk_share(answer.lanes());
    let total = reply.len() as u64;
    if reply.len() <= share {
        answer.write_bulk(region, rank, &reply);
    } else {
        let _ = shared.pieces((answer.slot(), lane), |pieces| {
            answer.write_bulk(region, rank, pieces.keep_reply(reply, share));
            Ok(())
        });
    }
    (Status::Ok, [total, words.len() as u64])
}

/// Hands a packet of a batch to threads that may wait.
fn start(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    batch: &Batch,
    packet: usize,
    requests: Vec<Result<OwnedRequest, CallError>>,
) {
    let lines = batch.lines();
    let timeout_us = batch.ranks(packet).map(|rank| lines.tag(rank).timeout_us).filter(|us| *us > 0).min();
    let answer = scanner.detach(&shared.memory, batch.answer(packet));
    Job::start(shared, entry.clone(), batch.rung().kind(), answer, requests, timeout_us);
}

/// Handles a run of posts.
#[inline]
pub(crate) fn posts(shared: &Shared, registry: &Registry, slot: u32, head: PostHead, posts: Posts<'_>) {
    let newest;
    let entry = match registry.entry(head.service, head.extra) {
        Ok(entry) => entry,
        Err(_) => {
            newest = shared.registry();
            match newest.entry(head.service, head.extra) {
                Ok(entry) => entry,
                Err(_) => return shared.statistics.count_refused_posts(posts.left()),
            }
        }
    };
    let mut posts = posts.of(Caller { launch: shared.owner(slot).launch, slot, lane: 0 });
    match &entry.handler {
        Handler::Sync(service, Mode::Inline) => {
            let (mut refused, mut left) = (0, posts.left() + 1);
            // A post whose handler panicked is refused, and those after it are handled.
            while posts.left() < left {
                left = posts.left();
                match catch_unwind(AssertUnwindSafe(|| service.posts(entry.index, &mut posts))) {
                    Ok(malformed) => {
                        refused += malformed;
                        break;
                    }
                    Err(_) => refused += 1,
                }
            }
            refused += posts.left();
            if refused > 0 {
                shared.statistics.count_refused_posts(refused);
            }
        }
        _ => posts.for_each(|words, caller| shared.post_later(entry, head.extra, words, caller)),
    }
}
