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
//!   with its length, [`PAGE_BYTES`] or more, and then the page's own bytes: whole records.
//!
//! Records may be longer in later versions; readers take the bytes that they know.

use crate::record::{Call, Page, Posts, Status, StreamTotals, Totals, UNKNOWN, Waiting, WaitsFor};
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
}

impl Kind {
    pub fn of(code: u32) -> Option<Self> {
        [Self::Names, Self::Calls, Self::Posts, Self::End, Self::Page]
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
