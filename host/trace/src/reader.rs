//! Reading a trace file, event by event.

use crate::descriptor::Descriptor;
use crate::format::{
    self, BLOCK, BLOCK_HEADER_BYTES, BlockHeader, CALL_BYTES, FILE_HEADER_BYTES, Fields, Kind, MAGIC,
    MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, PAGE_BYTES, POSTS_BYTES, PointsHead, TOTALS_BYTES,
    VERSION, tag,
};
use crate::record::{Ending, Event};
use hostcall_abi::launch::LaunchId;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Most kernels' names that are kept.
const MOST_KERNELS: usize = 1 << 16;

/// Why a file was not opened as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not begin as a trace does.
    #[error("it is no trace of hostcall")]
    NotATrace,
    /// It ends within the header.
    #[error("it was cut within its first {FILE_HEADER_BYTES} bytes")]
    Cut,
    /// A later version wrote it.
    #[error("it is a trace of version {0}, and this hostcall reads version {VERSION}: take a newer one")]
    Version(u32),
    /// The header's checksum is wrong.
    #[error("its header is damaged")]
    Damaged,
}

/// What the header of a trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// When the trace began, in nanoseconds since 1970, UTC.
    pub began_unix_ns: u64,
    /// The fields of records, for people.
    pub fields: String,
}

/// Reads a trace. As an iterator it gives the events in the order of the file, and ends where the file was cut.
///
/// It needs no more than 2 MiB and the names of kernels, whatever the file says.
pub struct Reader<R> {
    input: R,
    header: Header,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were used.
    used: usize,
    /// The file's position of the buffer's first byte.
    base: u64,
    block: Block,
    ready: VecDeque<Event>,
    next_sequence: u64,
    dropped_calls: u64,
    kernels: HashMap<u32, Arc<str>>,
    is_complete: bool,
    is_over: bool,
}

/// The block whose records are read.
#[derive(Default)]
struct Block {
    payload: Vec<u8>,
    at: usize,
    kind: Option<Kind>,
    /// Bytes of a record, if all have the same.
    stride: usize,
    /// Of trace points: whose they are, and bytes of them that are not read.
    points: (PointsHead, usize),
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace.
    ///
    /// # Errors
    /// When it is none, or cannot be read.
    pub fn new(input: R) -> Result<Self, OpenError> {
        let mut reader = Self {
            input,
            header: Header { version: 0, began_unix_ns: 0, fields: String::new() },
            buffer: Vec::new(),
            used: 0,
            base: 0,
            block: Block::default(),
            ready: VecDeque::new(),
            next_sequence: 0,
            dropped_calls: 0,
            kernels: HashMap::new(),
            is_complete: false,
            is_over: false,
        };
        let is_there = reader.fill(FILE_HEADER_BYTES)?;
        let bytes = reader.rest();
        let begin = &bytes[..bytes.len().min(MAGIC.len())];
        if begin.is_empty() || !MAGIC.starts_with(begin) {
            return Err(OpenError::NotATrace);
        }
        if !is_there {
            return Err(OpenError::Cut);
        }
        let crc = crc32fast::hash(&bytes[..FILE_HEADER_BYTES - 4]);
        let mut fields = Fields(&bytes[MAGIC.len()..FILE_HEADER_BYTES]);
        let header = (fields.u32(), fields.u32(), fields.u64(), fields.u32());
        let (Some(version), Some(text_bytes), Some(began_unix_ns), Some(crc_there)) = header else {
            return Err(OpenError::Damaged);
        };
        if crc_there != crc || text_bytes as usize > MAX_TEXT_BYTES {
            return Err(OpenError::Damaged);
        }
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        reader.used += FILE_HEADER_BYTES;
        reader.fill(text_bytes as usize)?;
        let text = &reader.rest()[..reader.rest().len().min(text_bytes as usize)];
        let (fields, taken) = (String::from_utf8_lossy(text).into_owned(), text.len());
        reader.used += taken;
        reader.header = Header { version, began_unix_ns, fields };
        Ok(reader)
    }

    /// Returns what the header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns how many bytes of the file were read and used.
    pub fn bytes_read(&self) -> u64 {
        self.base + self.used as u64
    }

    /// Returns whether the trace's end was read: the tracer ended in order, and the file was not cut.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Goes on where the file ended before, which may have grown since.
    pub(crate) fn resume(&mut self) {
        self.is_over = false;
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// Sees to it that so many unused bytes are in the buffer. Returns `false` if the file ends before.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        while self.buffer.len() - self.used < bytes {
            if self.used > 0 {
                self.buffer.drain(..self.used);
                self.base += self.used as u64;
                self.used = 0;
            }
            let before = self.buffer.len();
            let more = READ_BYTES.max(bytes - before);
            self.buffer.resize(before + more, 0);
            let read = self.input.read(&mut self.buffer[before..]);
            self.buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Goes on to the next block, past what is damaged. Returns `false` at the end of the file.
    fn next_block(&mut self) -> io::Result<bool> {
        let mut damaged = 0;
        let found = loop {
            if !self.fill(BLOCK_HEADER_BYTES)? {
                break None;
            }
            let header = self.rest().first_chunk().and_then(BlockHeader::of);
            let Some(header) = header else {
                // Where a block may begin next.
                let rest = &self.rest()[1..];
                let begins = |window: &[u8]| window == &BLOCK[..window.len()];
                let at = (0..rest.len()).find(|at| begins(&rest[*at..rest.len().min(at + BLOCK.len())]));
                let skipped = 1 + at.unwrap_or(rest.len());
                self.used += skipped;
                damaged += skipped as u64;
                continue;
            };
            let bytes = header.payload_bytes as usize;
            if !self.fill(BLOCK_HEADER_BYTES + bytes)? {
                break None;
            }
            let payload = &self.buffer[self.used + BLOCK_HEADER_BYTES..][..bytes];
            let is_sound = crc32fast::hash(payload) == header.payload_crc;
            let stride = Kind::of(header.kind).and_then(|kind| stride(kind, &header));
            if is_sound && stride.is_some() {
                self.block.payload.clear();
                self.block.payload.extend_from_slice(payload);
            }
            self.used += BLOCK_HEADER_BYTES + bytes;
            match stride {
                _ if !is_sound => damaged += (BLOCK_HEADER_BYTES + bytes) as u64,
                // Of a kind that a later version knows.
                None => self.next_sequence = header.sequence.saturating_add(1),
                Some(stride) => {
                    (self.block.at, self.block.stride, self.block.kind) = (0, stride, Kind::of(header.kind));
                    self.block.points.1 = 0;
                    break Some(header);
                }
            }
        };
        if damaged > 0 {
            self.ready.push_back(Event::Damaged(damaged));
        }
        let Some(header) = found else { return Ok(false) };
        match header.sequence.saturating_sub(self.next_sequence) {
            0 => {}
            missing => self.ready.push_back(Event::Missing(missing)),
        }
        self.next_sequence = header.sequence.saturating_add(1);
        match header.dropped_calls.saturating_sub(self.dropped_calls) {
            0 => {}
            dropped => self.ready.push_back(Event::Dropped(dropped)),
        }
        self.dropped_calls = self.dropped_calls.max(header.dropped_calls);
        Ok(true)
    }

    /// Returns the next record of the block; `None` at its end.
    fn next_record(&mut self) -> Option<Event> {
        let Block { payload, at, kind, stride, points } = &mut self.block;
        let kind = (*kind)?;
        if kind == Kind::Points {
            return next_point(payload, at, points);
        }
        let rest = payload.get(*at..).filter(|rest| !rest.is_empty())?;
        if kind != Kind::Names {
            let record = rest.get(..*stride)?;
            *at += *stride;
            return match kind {
                Kind::Calls => format::take_call(record).map(Event::Call),
                Kind::Posts => format::take_posts(record).map(Event::Posts),
                Kind::Page => format::take_page(record).map(Event::Page),
                _ => {
                    self.is_complete = true;
                    format::take_totals(record).map(Event::Ended)
                }
            };
        }
        loop {
            let rest = payload.get(*at..).filter(|rest| !rest.is_empty())?;
            let mut fields = Fields(rest);
            let body = fields.u8().zip(fields.u16());
            let body = body.and_then(|(tag, bytes)| Some((tag, fields.bytes(bytes.into())?)));
            let Some((tag, body)) = body else {
                let damaged = rest.len() as u64;
                *at = payload.len();
                return Some(Event::Damaged(damaged));
            };
            *at = payload.len() - fields.0.len();
            if let Some(event) = name(tag, body, &mut self.kernels) {
                return Some(event);
            }
        }
    }
}

/// Returns the next record of a block of trace points; `None` at its end.
fn next_point(payload: &[u8], at: &mut usize, (head, left): &mut (PointsHead, usize)) -> Option<Event> {
    loop {
        let rest = payload.get(*at..).filter(|rest| !rest.is_empty())?;
        let mut fields = Fields(if *left > 0 { &rest[..*left] } else { rest });
        let before = fields.0.len();
        let damaged = if *left == 0 {
            match format::take_points(&mut fields) {
                Some(taken) => {
                    (*head, *left) = (taken, taken.bytes as usize);
                    *at += before - fields.0.len();
                    if head.lost > 0 {
                        return Some(Event::PointsLost { source: head.source, records: head.lost });
                    }
                    continue;
                }
                None => rest.len(),
            }
        } else {
            match format::take_point(head, &mut fields) {
                Some(point) => {
                    let used = before - fields.0.len();
                    (*at, *left) = (*at + used, *left - used);
                    return Some(Event::Point(point));
                }
                None => std::mem::take(left),
            }
        };
        *at += damaged;
        return Some(Event::Damaged(damaged as u64));
    }
}

/// Returns the bytes of each record of a block, 1 where they differ; `None` when the header makes no sense.
fn stride(kind: Kind, header: &BlockHeader) -> Option<usize> {
    let (bytes, records) = (header.payload_bytes as usize, header.records as usize);
    let least = match kind {
        Kind::Names | Kind::Points => return Some(1),
        Kind::Calls => CALL_BYTES,
        Kind::Posts => POSTS_BYTES,
        Kind::End => TOTALS_BYTES,
        Kind::Page => PAGE_BYTES,
    };
    let stride = bytes.checked_div(records)?;
    (stride >= least && stride * records == bytes).then_some(stride)
}

/// Reads a record of a block of names. Returns `None` for what is none, a later version's, or a kernel's name.
fn name(tag: u8, body: &[u8], kernels: &mut HashMap<u32, Arc<str>>) -> Option<Event> {
    let text = |bytes: &[u8]| -> Arc<str> {
        // What is no UTF-8 gets longer.
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME_BYTES)]);
        text[..text.floor_char_boundary(MAX_NAME_BYTES)].into()
    };
    let mut fields = Fields(body);
    match tag {
        tag::SOURCE => {
            let (source, bytes) = (fields.u16()?, fields.u16()?);
            let device = text(fields.bytes(bytes.into())?);
            Some(Event::Source { source, device, protocol: text(fields.0) })
        }
        tag::METHOD => {
            let (method, number) = (fields.u32()?, fields.u32()?);
            Some(Event::Method { method, number, name: text(fields.0) })
        }
        tag::KERNEL => {
            let kernel = fields.u32()?;
            if kernels.len() < MOST_KERNELS {
                kernels.entry(kernel).or_insert_with(|| text(fields.0));
            }
            None
        }
        tag::LAUNCH_BEGAN => {
            let (launch, at_ns) = (fields.u64()?, fields.u64()?);
            let workgroups = [fields.u32()?, fields.u32()?, fields.u32()?];
            let kernel = kernels.get(&fields.u32()?).cloned().unwrap_or_else(|| "".into());
            let source = fields.u16()?;
            let id = LaunchId::from_bits(fields.u32().unwrap_or(0));
            Some(Event::LaunchBegan { launch, source, at_ns, workgroups, kernel, id })
        }
        tag::LAUNCH_ENDED => {
            let (launch, at_ns) = (fields.u64()?, fields.u64()?);
            Some(Event::LaunchEnded { launch, at_ns, ending: Ending(fields.u8()?) })
        }
        tag::WAITING => format::take_waiting(&mut fields, text).map(Event::Waiting),
        tag::POINT => format::take_named_point(&mut fields, text),
        tag::CLOCK => format::take_clock(&mut fields).map(Event::Clock),
        tag::STREAM => {
            let (stream, record_bytes, schema) = (fields.u16()?, fields.u32()?, fields.u64()?);
            let bytes = fields.u16()?;
            let name = text(fields.bytes(bytes.into())?);
            let bytes = fields.u16()?;
            let policy = text(fields.bytes(bytes.into())?);
            let descriptor = Descriptor::take(&mut fields, record_bytes).map(Arc::new);
            Some(Event::Stream { stream, record_bytes, schema, name, policy, descriptor })
        }
        tag::STREAM_ENDED => {
            let stream = fields.u16()?;
            Some(Event::StreamEnded { stream, totals: format::take_stream_totals(&mut fields)? })
        }
        _ => None,
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(event) = self.next_record() {
                return Some(Ok(event));
            }
            if self.is_over || self.is_complete {
                return None;
            }
            match self.next_block() {
                Ok(is_there) => self.is_over = !is_there,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
            if self.is_over {
                self.block = Block::default();
            }
        }
    }
}

/// What is kept of a file's names is bounded, and so is a block.
const _: () = assert!(MAX_PAYLOAD_BYTES + READ_BYTES + BLOCK_HEADER_BYTES <= 2 << 20);
