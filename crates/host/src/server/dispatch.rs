//! From a packet to its handlers, and back for those that run at once.

use super::control::Shared;
use super::job::Job;
use super::registry::{Entry, Handler, Mode, Registry};
use hostcall_abi::batch::{Calls, LaneReply, Posts};
use hostcall_abi::service::{Caller, OwnedRequest, Reply, Request, Service};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{BytesHead, Kind, PostHead};
use hostcall_abi::{MAX_LANES, MAX_WORDS};
use hostcall_channel::Region;
use hostcall_channel::host::{Answer, Packet, Scanner};
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

/// Answers a packet, or sees to it that it will be.
#[inline]
pub(crate) fn packet(
    shared: &Arc<Shared>,
    registry: &Registry,
    scanner: &Scanner,
    packet: &Packet,
    answer: Answer,
    replies: &mut [LaneReply; MAX_LANES],
) {
    let region = shared.memory.region();
    let refuse = |error| answer.all(region, Status::Error(error));
    let owner = shared.owner(answer.slot());
    if owner.cancelled {
        return refuse(CallError::Cancelled);
    }
    let newest;
    let entry = match registry.entry(packet.doorbell.service, packet.doorbell.check) {
        Ok(entry) => entry,
        Err(_) => {
            // The service may have come since the consumer last looked.
            newest = shared.registry();
            match newest.entry(packet.doorbell.service, packet.doorbell.check) {
                Ok(entry) => entry,
                Err(error) => return refuse(error),
            }
        }
    };
    if packet.doorbell.kind != Kind::Words {
        return bytes_packet(shared, entry, scanner, packet, answer, owner.launch);
    }
    let lines = packet.lines();
    let caller = Caller { launch: owner.launch, slot: answer.slot(), lane: 0 };
    if let Handler::Sync(service, Mode::Inline) = &entry.handler {
        let mut calls = Calls::new(lines, caller, replies);
        let mut left = calls.left() + 1;
        // A handler's panic is one lane's; those after it have theirs handled.
        while calls.left() < left {
            left = calls.left();
            if catch_unwind(AssertUnwindSafe(|| service.calls(entry.index, &mut calls))).is_ok() {
                break;
            }
            calls.panicked();
        }
        calls.refuse();
        return answer.lanes_with(region, replies);
    }
    let requests = (0..packet.lanes())
        .map(|rank| {
            let words = lines.words::<MAX_WORDS>(rank)[..lines.argument_words()].to_vec();
            let caller = Caller { lane: lines.tag(rank).lane, ..caller };
            Ok(OwnedRequest { words, bytes: Vec::new(), reply_capacity: 0, caller })
        })
        .collect();
    start(shared, entry, scanner, packet, answer, requests);
}

/// A packet of kind `Bytes`, `BytesMore` or `BytesFetch`.
fn bytes_packet(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    packet: &Packet,
    answer: Answer,
    launch: u64,
) {
    let region = shared.memory.region();
    let share = region.layout().bulk_share(packet.lanes());
    let lines = packet.lines();
    if lines.argument_words() != BytesHead::WORDS {
        return answer.all(region, Status::Error(CallError::Malformed));
    }
    let mut requests = Vec::with_capacity(packet.lanes() as usize);
    for rank in 0..packet.lanes() {
        let words = lines.words::<{ BytesHead::WORDS }>(rank);
        let lane = lines.tag(rank).lane;
        let key = (answer.slot(), lane);
        match packet.doorbell.kind {
            Kind::BytesFetch => {
                let fetched = shared.pieces(key, |pieces| {
                    let piece = pieces.fetch(words[0], share)?;
                    answer.write_bulk(region, rank, piece);
                    Ok(())
                });
                let status = fetched.map_or_else(Status::Error, |()| Status::Ok);
                answer.lane(region, rank, status, &[]);
            }
            kind => {
                let head = BytesHead::from_words(words);
                let taken = shared.pieces(key, |pieces| {
                    answer.read_bulk(region, rank, pieces.extend(&head, share, shared.message_limit)?);
                    if kind == Kind::BytesMore {
                        return Ok(None);
                    }
                    let (words, bytes) = pieces.finish(&head)?;
                    let reply_capacity =
                        usize::try_from(head.reply_capacity).unwrap_or(usize::MAX).min(shared.message_limit);
                    let caller = Caller { launch, slot: answer.slot(), lane };
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
    if packet.doorbell.kind != Kind::Bytes {
        return;
    }
    if let Handler::Sync(service, Mode::Inline) = &entry.handler {
        for (rank, request) in requests.iter().enumerate() {
            let result = request
                .as_ref()
                .map_err(|error| *error)
                .and_then(|request| run_for_bytes(service.as_ref(), entry.index, request.as_request()));
            reply_bytes(shared, region, &answer, rank as u32, lines.tag(rank as u32).lane, result);
        }
        return;
    }
    start(shared, entry, scanner, packet, answer, requests);
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

/// Hands a packet to threads that may wait.
fn start(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    packet: &Packet,
    answer: Answer,
    requests: Vec<Result<OwnedRequest, CallError>>,
) {
    let lines = packet.lines();
    let timeout_us = (0..packet.lanes()).map(|rank| lines.tag(rank).timeout_us).filter(|us| *us > 0).min();
    let answer = scanner.detach(&shared.memory, answer);
    Job::start(shared, entry.clone(), packet.doorbell.kind, answer, requests, timeout_us);
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
