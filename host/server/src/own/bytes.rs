//! Packets of calls with bytes: what a consumer does with them, and where their replies are put.

use super::dispatch::{launch_of, record, start};
use super::inline::Inline;
use super::job::LaneCall;
use super::messages::{LaneKey, Message, Messages};
use super::registry::{Entry, Kind};
use super::reply::{ByteReply, Filling, ReplyBytes, ReplyPlace};
use super::shared::Shared;
use crate::engine::caught::catch;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{BytesHead, Kind as PacketKind, REPLY_IS_THERE, ReplyAt, reply_bytes_at};
use hostcall_channel::Region;
use hostcall_channel::host::{Answer, Batch, Scanner};
use hostcall_service::{Caller, OwnedRequest, Request, Service, called_by};
use std::sync::Arc;
use std::time::Instant;

/// What a lane's packet says of its call.
struct LanePacket {
    head: BytesHead,
    /// The words behind the head.
    line: [u64; BytesHead::LINE_WORDS],
    /// Bytes of the lane's share of the byte area; `None` if there is no such area.
    share: Option<usize>,
    caller: Caller,
    timeout_us: u32,
    rank: u32,
}

impl LanePacket {
    /// Reads what the lane of this rank says; `head_words` of its line are the head.
    #[inline(always)]
    fn read(batch: &Batch, answer: &Answer, region: Region<'_>, head_words: usize, rank: u32) -> Self {
        let (lines, place) = (batch.lines(), rank as usize);
        let words = lines.words(place);
        let [bytes_at, reply_at] = if head_words == BytesHead::WORDS { [words[3], words[4]] } else { [0; 2] };
        let head = BytesHead::from_words([words[0], words[1], words[2], bytes_at, reply_at]);
        Self {
            head,
            line: std::array::from_fn(|i| words[head_words + i]),
            share: answer.area_share(region, head.area),
            caller: lines.caller(place),
            timeout_us: lines.tag(place).timeout_us,
            rank,
        }
    }

    fn key(&self, answer: &Answer) -> LaneKey {
        (answer.slot(), self.caller.lane)
    }

    fn reply_place(&self) -> ReplyPlace {
        let Self { head, share, .. } = self;
        ReplyPlace { area: head.area, share: share.unwrap_or(0), wanted_at: head.reply_at }
    }

    fn reply_capacity(&self, messages: &Messages) -> usize {
        let capacity = usize::try_from(self.head.reply_capacity).unwrap_or(usize::MAX);
        capacity.min(messages.budget.most_each)
    }

    /// Takes a piece of a message, as [`Messages::take_piece`] does.
    fn take_piece(
        &self,
        messages: &Messages,
        answer: &Answer,
        region: Region<'_>,
        is_last: bool,
    ) -> Result<Option<Message>, CallError> {
        let (share, launch) = (self.share.ok_or(CallError::Malformed)?, self.caller.launch);
        let read = self.reader(answer, region);
        messages.take_piece(self.key(answer), launch, (&self.head, &self.line), share, is_last, read)
    }

    /// Returns what appends bytes of the lane's share to a vector.
    #[inline(always)]
    fn reader(&self, answer: &Answer, region: Region<'_>) -> impl FnMut(usize, usize, &mut Vec<u8>) {
        let (area, rank) = (self.head.area, self.rank);
        move |from, bytes, to| answer.append_bytes(region, area, rank, from, bytes, to)
    }
}

/// A packet of kind `Bytes` or `BytesMore`, which is alone in its batch.
#[inline(never)]
pub(crate) fn packet(
    shared: &Arc<Shared>,
    inline: &Inline,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    batch: &Batch,
) {
    let (answer, region) = (batch.answer(0), shared.memory.region());
    let head_words = batch.lines().argument_words().wrapping_sub(BytesHead::LINE_WORDS);
    if ![BytesHead::SHORT_WORDS, BytesHead::WORDS].contains(&head_words) {
        let status = Status::Error(CallError::Malformed);
        entry.counts.add_answers(answer.lanes(), status, None);
        return answer.all(region, status);
    }
    let lanes = (0..answer.lanes()).map(|rank| LanePacket::read(batch, &answer, region, head_words, rank));
    if batch.rung().kind() != PacketKind::Bytes {
        for lane in lanes {
            let taken = lane.take_piece(&shared.messages, &answer, region, false);
            answer.lane(region, lane.rank, taken.map_or_else(Status::Error, |_| Status::Ok), &[]);
        }
        return;
    }
    match &entry.service.kind {
        Kind::Inline(service) => at_once(shared, inline, entry, &***service, batch, lanes),
        _ => later(shared, entry, scanner, batch, lanes),
    }
}

/// Has the calls of a packet answered by the thread that found them.
#[inline(always)]
fn at_once(
    shared: &Shared,
    inline: &Inline,
    entry: &Entry,
    service: &dyn Service,
    batch: &Batch,
    lanes: impl ExactSizeIterator<Item = LanePacket>,
) {
    let (answer, region, messages) = (batch.answer(0), shared.memory.region(), &shared.messages);
    let mut recording = record(shared, batch, 0);
    if let Some(recording) = &mut recording {
        recording.began(recording.now_ns());
    }
    let mut left = lanes.len();
    for lane in lanes {
        let (caller, place) = (lane.caller, lane.reply_place());
        let mut request_bytes = 0;
        let mut handle = |words: &[u64], bytes: &[u8]| {
            request_bytes = size_of_val(words) + bytes.len();
            let request = Request { words, bytes, reply_capacity: lane.reply_capacity(messages), caller };
            let timed = inline.is_timed().then(Instant::now);
            let runs = inline.run(entry, caller, left);
            let result = called_by(caller, || run(shared, entry, service, request, place.share));
            drop(runs);
            if let Some(began) = timed {
                entry.counts.note_time(inline.consumer, began.elapsed());
            }
            result
        };
        let mut take = || {
            if !lane.head.begins {
                let message = lane.take_piece(messages, &answer, region, true)?;
                let message = message.expect("a message is whole with its last piece");
                return handle(&message.words, &message.bytes);
            }
            let (share, mut read) = (lane.share.ok_or(CallError::Malformed)?, lane.reader(&answer, region));
            let line = (&lane.head, &lane.line[..]);
            let (words, _charge, unread) = messages.take_whole(lane.key(&answer), line, share, &mut read)?;
            drop(unread.before);
            if unread.lent_at != 0 {
                return handle(&words, messages.fetch(unread.lent_at, unread.bytes)?.as_slice());
            }
            let mut bytes = Vec::new();
            read(unread.from, unread.bytes, &mut bytes);
            handle(&words, &bytes)
        };
        let result = take();
        left -= 1;
        let reply_bytes = result.as_ref().map_or(0, ByteReply::len);
        if let Some(recording) = &mut recording {
            recording.ended(recording.now_ns());
        }
        let (status, words) = put(shared, region, &answer, place, lane.rank, caller, result);
        if let Some(recording) = &mut recording {
            recording.add_bytes(request_bytes, reply_bytes);
            recording.lanes_ended(1, status);
        }
        entry.counts.add_calls(inline.consumer, 1);
        entry.counts.note_end(inline.consumer, status);
        answer.lane(region, lane.rank, status, &words);
    }
    if let Some(mut recording) = recording {
        recording.answered(entry.method.name(), entry.method.number().into(), launch_of(batch, 0));
    }
}

/// Hands the calls of a packet to threads that may wait. What these can read themselves, the consumer leaves to them.
fn later(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    scanner: &Scanner,
    batch: &Batch,
    lanes: impl Iterator<Item = LanePacket>,
) {
    let (answer, region, messages) = (batch.answer(0), shared.memory.region(), &shared.messages);
    let calls = lanes.map(|lane| {
        let take = || {
            if !lane.head.begins {
                let message = lane.take_piece(messages, &answer, region, true)?;
                let Message { words, bytes, charge } =
                    message.expect("a message is whole with its last piece");
                return Ok((words, bytes, charge, None));
            }
            let (share, read) = (lane.share.ok_or(CallError::Malformed)?, lane.reader(&answer, region));
            let line = (&lane.head, &lane.line[..]);
            let (words, charge, unread) = messages.take_whole(lane.key(&answer), line, share, read)?;
            Ok((words, Vec::new(), charge, Some(unread)))
        };
        let call = take().map(|(words, bytes, charge, unread)| LaneCall {
            request: OwnedRequest {
                words: words.into_vec(),
                bytes,
                reply_capacity: lane.reply_capacity(messages),
                caller: lane.caller,
            },
            unread,
            fetched: None,
            charge: Some(charge),
            timeout_us: lane.timeout_us,
        });
        let place = if call.is_ok() { lane.reply_place() } else { ReplyPlace::default() };
        (call, place)
    });
    start(shared, entry, scanner, batch, 0, calls.collect());
}

/// Runs the handler of a method for one lane, which has `share` bytes of a byte area. Returns the reply. A panic becomes an
/// error.
pub(crate) fn run(
    shared: &Shared,
    entry: &Entry,
    service: &dyn Service,
    request: Request<'_>,
    share: usize,
) -> Result<ByteReply, CallError> {
    let mut filling = Filling::new(&shared.messages, request.reply_capacity, share);
    match catch(|| service.call(entry.index, request, &mut filling)) {
        Ok(result) => result.map(|()| filling.finish()),
        Err(_) => {
            shared.handler_panicked(entry, request.caller);
            Err(CallError::Panicked)
        }
    }
}

/// Puts a byte reply where the lane finds it; returns what to answer the lane.
pub(crate) fn put(
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
        if total <= size_of_val(inline) {
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
