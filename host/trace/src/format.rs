//! The bytes of a trace file. All numbers are little-endian.
//!
//! ```text
//! file    ┌ MAGIC (16) ┬ version u32 ┬ text bytes u32 ┬ began, Unix ns u64 ┬ CRC-32 of the header u32 ┐
//!         │ text: the fields of a call's record, for readers that know nothing of it                  │
//!         └ blocks                                                                                    ┘
//! block   ┌ BLOCK (4) ┬ kind u32 ┬ payload bytes u32 ┬ records u32 ┬ sequence u64 ┬ dropped calls u64 ┐
//!         │ CRC-32 of the payload u32 ┬ CRC-32 of what is before u32 ┬ payload                       │
//! ```
//!
//! `sequence` counts blocks from 0; `dropped calls` is the sum since the trace began. A block is the unit that is there
//! or not: what was cut or damaged is no block. In a block's payload
//!
//! - of [`Kind::Names`] each record is a tag u8, its length u16, and so many bytes;
//! - of [`Kind::Calls`] each record has [`CALL_BYTES`] bytes, as [`CALL_FIELDS`] says;
//! - of [`Kind::Posts`] each record has [`POSTS_BYTES`] bytes;
//! - of [`Kind::End`] there is one record of [`TOTALS_BYTES`] bytes;
//! - of [`Kind::Page`] there is one record: what is said of the page, as [`put_page`] puts it, which begins
//!   with its length, [`PAGE_BYTES`] or more, and then the page's own bytes: whole records;
//! - of [`Kind::Points`] each record is what is said of a wave's trace points, as [`put_points`] puts it, which begins with
//!   its length, [`POINTS_BYTES`] or more, and then so many bytes of records as `hostcall_abi::trace` has them, with times
//!   on the trace's time line.
//!
//! Records may be longer in later versions; readers take the bytes that they know.

use crate::record::{
    Call, ClockPair, Event, Page, Point, Posts, Status, StreamTotals, Totals, UNKNOWN, Waiting, WaitsFor,
};
use hostcall_abi::trace::{MAX_POINT_WORDS, PointHead, PointKind};
use std::ops::Range;
use std::sync::Arc;

pub(crate) const MAGIC: [u8; 16] = *b"hostcall trace\r\n";
pub(crate) const VERSION: u32 = 2;
pub(crate) const FILE_HEADER_BYTES: usize = 36;
pub(crate) const BLOCK: [u8; 4] = *b"HcBk";
pub(crate) const BLOCK_HEADER_BYTES: usize = 40;

/// Most bytes of a block's payload.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// Most bytes of the header's text.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 16;

/// Most bytes of a name; longer ones are cut.
pub(crate) const MAX_NAME_BYTES: usize = 1 << 10;

pub(crate) const CALL_BYTES: usize = 80;
pub(crate) const POSTS_BYTES: usize = 32;
pub(crate) const TOTALS_BYTES: usize = 32;
/// Bytes of what is said of a page.
pub(crate) const PAGE_BYTES: usize = 64;

/// Bytes of what is said of a wave's trace points.
pub(crate) const POINTS_BYTES: usize = 48;

/// Most bytes of a page, or of the part of one, in a block.
pub(crate) const MOST_PAGE_BYTES: usize = MAX_PAYLOAD_BYTES - PAGE_BYTES;

/// The fields of a call's record, in order, as the header's text has them.
pub(crate) const CALL_FIELDS: &str = "call: picked_up_ns u64, handler_began_ns u64, handler_ended_ns u64, replied_ns u64, \
     launch u64, request_bytes u64, reply_bytes u64, method u32, slot u32, workgroup u32, wave u32, source u16, lanes u8, \
     failed_lanes u8, status u8, 3 unused bytes\n";

/// What a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Names = 1,
    Calls = 2,
    Posts = 3,
    End = 4,
    Page = 5,
    Points = 6,
}

impl Kind {
    pub fn of(code: u32) -> Option<Self> {
        [Self::Names, Self::Calls, Self::Posts, Self::End, Self::Page, Self::Points]
            .into_iter()
            .find(|kind| *kind as u32 == code)
    }
}

/// Tags of records in blocks of [`Kind::Names`].
pub(crate) mod tag {
    pub const SOURCE: u8 = 1;
    pub const METHOD: u8 = 2;
    pub const KERNEL: u8 = 3;
    pub const LAUNCH_BEGAN: u8 = 4;
    pub const LAUNCH_ENDED: u8 = 5;
    pub const STREAM: u8 = 6;
    pub const STREAM_ENDED: u8 = 7;
    pub const WAITING: u8 = 8;
    pub const POINT: u8 = 9;
    pub const CLOCK: u8 = 10;
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: u32,
    pub payload_bytes: u32,
    pub records: u32,
    pub sequence: u64,
    pub dropped_calls: u64,
    pub payload_crc: u32,
}

impl BlockHeader {
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(BLOCK_HEADER_BYTES);
        bytes.extend(BLOCK);
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.payload_bytes.to_le_bytes());
        bytes.extend(self.records.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.dropped_calls.to_le_bytes());
        bytes.extend(self.payload_crc.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.try_into().expect("the fields have so many bytes")
    }

    /// Returns the header if these bytes are one.
    pub fn of(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let (checked, crc) = bytes.split_at(BLOCK_HEADER_BYTES - 4);
        let mut fields = Fields(&bytes[BLOCK.len()..]);
        let header = Self {
            kind: fields.u32()?,
            payload_bytes: fields.u32()?,
            records: fields.u32()?,
            sequence: fields.u64()?,
            dropped_calls: fields.u64()?,
            payload_crc: fields.u32()?,
        };
        let is_one = bytes.starts_with(&BLOCK)
            && crc == crc32fast::hash(checked).to_le_bytes()
            && header.payload_bytes as usize <= MAX_PAYLOAD_BYTES;
        is_one.then_some(header)
    }
}

/// Bytes of which fields are taken one after the other.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Appends a call's record.
pub(crate) fn put_call(call: &Call, to: &mut Vec<u8>) {
    let end = to.len() + CALL_BYTES;
    let longs = [
        call.picked_up_ns,
        call.handler_began_ns,
        call.handler_ended_ns,
        call.replied_ns,
        call.launch,
        call.request_bytes,
        call.reply_bytes,
    ];
    longs.iter().for_each(|long| to.extend(long.to_le_bytes()));
    let words = [call.method, call.slot, call.workgroup, call.wave];
    words.iter().for_each(|word| to.extend(word.to_le_bytes()));
    to.extend(call.source.to_le_bytes());
    to.extend([call.lanes, call.failed_lanes, call.status.0]);
    to.resize(end, 0);
}

/// Takes a call's record from its bytes.
pub(crate) fn take_call(bytes: &[u8]) -> Option<Call> {
    let mut fields = Fields(bytes);
    Some(Call {
        picked_up_ns: fields.u64()?,
        handler_began_ns: fields.u64()?,
        handler_ended_ns: fields.u64()?,
        replied_ns: fields.u64()?,
        launch: fields.u64()?,
        request_bytes: fields.u64()?,
        reply_bytes: fields.u64()?,
        method: fields.u32()?,
        slot: fields.u32()?,
        workgroup: fields.u32()?,
        wave: fields.u32()?,
        source: fields.u16()?,
        lanes: fields.u8()?,
        failed_lanes: fields.u8()?,
        status: Status(fields.u8()?),
    })
}

/// Appends the record of posts.
pub(crate) fn put_posts(posts: &Posts, to: &mut Vec<u8>) {
    let end = to.len() + POSTS_BYTES;
    [posts.from_ns, posts.until_ns, posts.count].iter().for_each(|long| to.extend(long.to_le_bytes()));
    to.extend(posts.method.to_le_bytes());
    to.extend(posts.source.to_le_bytes());
    to.resize(end, 0);
}

/// Takes the record of posts from its bytes.
pub(crate) fn take_posts(bytes: &[u8]) -> Option<Posts> {
    let mut fields = Fields(bytes);
    let [from_ns, until_ns, count] = [fields.u64()?, fields.u64()?, fields.u64()?];
    Some(Posts { from_ns, until_ns, count, method: fields.u32()?, source: fields.u16()? })
}

/// Appends the record of the end.
pub(crate) fn put_totals(totals: &Totals, to: &mut Vec<u8>) {
    let Totals { ended_ns, calls, dropped_calls, dropped_others } = *totals;
    [ended_ns, calls, dropped_calls, dropped_others].iter().for_each(|long| to.extend(long.to_le_bytes()));
}

/// Takes the record of the end from its bytes.
pub(crate) fn take_totals(bytes: &[u8]) -> Option<Totals> {
    let mut fields = Fields(bytes);
    Some(Totals {
        ended_ns: fields.u64()?,
        calls: fields.u64()?,
        dropped_calls: fields.u64()?,
        dropped_others: fields.u64()?,
    })
}

/// Appends the record of a part of a page of so many bytes, but for the part's own bytes, which follow.
pub(crate) fn put_page(page: &Page, part: Range<usize>, count: usize, to: &mut Vec<u8>) {
    let end = to.len() + PAGE_BYTES;
    // What was lost before the page was lost before its first part.
    let lost = if part.start == 0 { [page.dropped_before, page.overwritten_before] } else { [0; 2] };
    to.extend((PAGE_BYTES as u32).to_le_bytes());
    let longs = [page.sequence, page.opened_ns, lost[0], lost[1]];
    longs.iter().for_each(|long| to.extend(long.to_le_bytes()));
    let words = [page.offset_bytes + part.start as u32, page.launch, page.slot, page.workgroup, page.wave];
    words.iter().for_each(|word| to.extend(word.to_le_bytes()));
    to.extend(page.stream.to_le_bytes());
    to.push((page.is_last && part.end == count).into());
    to.resize(end, 0);
}

/// Takes the record of a page from its bytes.
pub(crate) fn take_page(bytes: &[u8]) -> Option<Page> {
    let mut fields = Fields(bytes);
    let head_bytes = fields.u32()? as usize;
    let (_, bytes) = bytes.split_at_checked(head_bytes).filter(|_| head_bytes >= PAGE_BYTES)?;
    Some(Page {
        sequence: fields.u64()?,
        opened_ns: fields.u64()?,
        dropped_before: fields.u64()?,
        overwritten_before: fields.u64()?,
        offset_bytes: fields.u32()?,
        launch: fields.u32()?,
        slot: fields.u32()?,
        workgroup: fields.u32()?,
        wave: fields.u32()?,
        stream: fields.u16()?,
        is_last: fields.u8()? != 0,
        bytes: bytes.into(),
    })
}

/// Appends a call that waits.
pub(crate) fn put_waiting(waiting: &Waiting, to: &mut Vec<u8>) {
    let Waiting { at_ns, waited_ns, launch, slot, place, lanes, source, waits_for, method } = waiting;
    [at_ns, waited_ns, launch].iter().for_each(|long| to.extend(long.to_le_bytes()));
    let ([x, y, z], wave) = place.unwrap_or(([0; 3], UNKNOWN));
    [*slot, x, y, z, wave, *lanes].iter().for_each(|word| to.extend(word.to_le_bytes()));
    to.extend(source.to_le_bytes());
    to.push(waits_for.code());
    let method = &method[..method.floor_char_boundary(MAX_NAME_BYTES)];
    to.extend((method.len() as u16).to_le_bytes());
    to.extend(method.as_bytes());
}

/// Takes a call that waits. `text` makes a text of bytes.
pub(crate) fn take_waiting(fields: &mut Fields<'_>, text: impl Fn(&[u8]) -> Arc<str>) -> Option<Waiting> {
    let [at_ns, waited_ns, launch] = [fields.u64()?, fields.u64()?, fields.u64()?];
    let slot = fields.u32()?;
    let (workgroup, wave) = ([fields.u32()?, fields.u32()?, fields.u32()?], fields.u32()?);
    let (lanes, source) = (fields.u32()?, fields.u16()?);
    let waits_for = WaitsFor::from_code(fields.u8()?)?;
    let bytes = fields.u16()?;
    let method = text(fields.bytes(bytes.into())?);
    let place = (wave != UNKNOWN).then_some((workgroup, wave));
    Some(Waiting { at_ns, waited_ns, launch, slot, place, lanes, source, waits_for, method })
}

/// Appends what a stream had in all.
pub(crate) fn put_stream_totals(totals: &StreamTotals, to: &mut Vec<u8>) {
    let StreamTotals { pages, bytes, dropped_records, overwritten_bytes, lost_bytes } = *totals;
    let longs = [pages, bytes, dropped_records, overwritten_bytes, lost_bytes];
    longs.iter().for_each(|long| to.extend(long.to_le_bytes()));
}

/// Takes what a stream had in all.
pub(crate) fn take_stream_totals(fields: &mut Fields<'_>) -> Option<StreamTotals> {
    Some(StreamTotals {
        pages: fields.u64()?,
        bytes: fields.u64()?,
        dropped_records: fields.u64()?,
        overwritten_bytes: fields.u64()?,
        lost_bytes: fields.u64()?,
    })
}

/// What is said of trace points of a wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PointsHead {
    /// The launch's number.
    pub launch: u64,
    /// Records that were lost before these.
    pub lost: u64,
    pub slot: u32,
    pub workgroup: u32,
    pub wave: u32,
    /// Bytes of the records.
    pub bytes: u32,
    pub source: u16,
}

/// Appends trace points of a wave: their records.
pub(crate) fn put_points(head: &PointsHead, records: &[u8], to: &mut Vec<u8>) {
    let end = to.len() + POINTS_BYTES;
    to.extend((POINTS_BYTES as u32).to_le_bytes());
    to.extend((records.len() as u32).to_le_bytes());
    [head.launch, head.lost].iter().for_each(|long| to.extend(long.to_le_bytes()));
    [head.slot, head.workgroup, head.wave].iter().for_each(|word| to.extend(word.to_le_bytes()));
    to.extend(head.source.to_le_bytes());
    to.resize(end, 0);
    to.extend(records);
}

/// Takes what is said of trace points, and leaves their records. `None` if they are not all there.
pub(crate) fn take_points(fields: &mut Fields<'_>) -> Option<PointsHead> {
    let (head_bytes, bytes) = (fields.u32()? as usize, fields.u32()?);
    let unknown_bytes = head_bytes.checked_sub(POINTS_BYTES)?;
    let head = PointsHead {
        launch: fields.u64()?,
        lost: fields.u64()?,
        slot: fields.u32()?,
        workgroup: fields.u32()?,
        wave: fields.u32()?,
        bytes,
        source: fields.u16()?,
    };
    const REST: usize = POINTS_BYTES - 2 * 4 - 2 * 8 - 3 * 4 - 2;
    fields.bytes(REST + unknown_bytes)?;
    (fields.0.len() >= bytes as usize).then_some(head)
}

/// Takes a record of a trace point.
pub(crate) fn take_point(head: &PointsHead, fields: &mut Fields<'_>) -> Option<Point> {
    let at_ns = fields.u64()?;
    let of_point = PointHead::of_word(fields.u64()?)?;
    let mut rest = Fields(fields.bytes(of_point.words.div_ceil(2) as usize * 16)?);
    let mut values = [0; MAX_POINT_WORDS];
    for value in &mut values[..of_point.words as usize] {
        *value = rest.u64()?;
    }
    let is_end = of_point.kind == PointKind::End;
    let (began_ns, count) =
        if is_end { (std::mem::take(&mut values[0]), 0) } else { (at_ns, of_point.words) };
    Some(Point {
        at_ns,
        began_ns,
        kind: of_point.kind,
        point: of_point.point,
        launch: head.launch,
        slot: head.slot,
        workgroup: head.workgroup,
        wave: head.wave,
        source: head.source,
        lanes: of_point.lanes as u8,
        first_lane: of_point.first_lane as u8,
        count: count as u8,
        values,
    })
}

/// Appends what is known of a trace point.
pub(crate) fn put_named_point(point: &NamedPoint<'_>, to: &mut Vec<u8>) {
    to.extend(point.source.to_le_bytes());
    [point.point, point.kind as u32, point.line].iter().for_each(|word| to.extend(word.to_le_bytes()));
    to.extend(point.tags.to_le_bytes());
    let file = &point.file[..point.file.floor_char_boundary(MAX_NAME_BYTES)];
    to.extend((file.len() as u16).to_le_bytes());
    to.extend(file.as_bytes());
    to.extend(&point.text.as_bytes()[..point.text.floor_char_boundary(MAX_NAME_BYTES)]);
}

/// What is known of a trace point.
pub(crate) struct NamedPoint<'a> {
    pub source: u16,
    pub point: u32,
    pub kind: PointKind,
    pub tags: u64,
    pub line: u32,
    pub file: &'a str,
    pub text: &'a str,
}

/// Takes what is known of a trace point. `text` makes a text of bytes.
pub(crate) fn take_named_point(fields: &mut Fields<'_>, text: impl Fn(&[u8]) -> Arc<str>) -> Option<Event> {
    let (source, point, kind, line) = (fields.u16()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let (tags, bytes) = (fields.u64()?, fields.u16()?);
    let file = text(fields.bytes(bytes.into())?);
    let kind = PointKind::of(kind)?;
    Some(Event::NamedPoint { source, point, kind, tags, line, file, text: text(fields.0) })
}

/// Appends a comparison of clocks.
pub(crate) fn put_clock(pair: &ClockPair, to: &mut Vec<u8>) {
    let ClockPair { source, device_ns, host_ns, error_ns, off_ns, drift_ppb } = *pair;
    to.extend(source.to_le_bytes());
    let longs = [device_ns, host_ns, error_ns, off_ns as u64, drift_ppb as u64];
    longs.iter().for_each(|long| to.extend(long.to_le_bytes()));
}

/// Takes a comparison of clocks.
pub(crate) fn take_clock(fields: &mut Fields<'_>) -> Option<ClockPair> {
    Some(ClockPair {
        source: fields.u16()?,
        device_ns: fields.u64()?,
        host_ns: fields.u64()?,
        error_ns: fields.u64()?,
        off_ns: fields.u64()? as i64,
        drift_ppb: fields.u64()? as i64,
    })
}
