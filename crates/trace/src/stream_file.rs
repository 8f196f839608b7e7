//! Writing pages of raw channels to a trace file.

use crate::descriptor::Descriptor;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, Kind, MOST_PAGE_BYTES, put_page, put_stream_totals, put_totals, tag,
};
use crate::record::{Page, StreamTotals, Totals};
use crate::tracer::header;
use crate::writer::{cut, elapsed_ns};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// Bytes of pages that are gathered before the file gets them: a call of the system takes as long as copying some
/// thousands.
const GATHERED_BYTES: usize = 1 << 20;

/// A trace file of streams: of what kernels wrote to raw channels. Each page is a block of it, which is there or not wherever the
/// file is cut. [`Reader`](crate::Reader) reads it.
pub struct StreamFile {
    file: Box<dyn Write + Send>,
    start: Instant,
    sequence: u64,
    /// Bytes of the records of each stream.
    record_bytes: Vec<u32>,
    /// Whole blocks that the file does not have yet.
    blocks: Vec<u8>,
    /// Where in `blocks` the block of a page, or of its last part, ends, and how many bytes the page has.
    pages: Vec<(usize, u64)>,
}

impl StreamFile {
    /// Makes a new file at this path, or writes over the one that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::create(path)?)
    }

    /// Writes to this file.
    ///
    /// # Errors
    /// The writer's, when the header cannot be written.
    pub fn new(file: impl Write + Send + 'static) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut file: Box<dyn Write + Send> = Box::new(file);
        file.write_all(&header(unix))?;
        let (record_bytes, blocks, pages) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { file, start: Instant::now(), sequence: 0, record_bytes, blocks, pages })
    }

    /// Adds a stream of records of so many bytes (1 for bytes), whose type has this hash, and returns its
    /// number. With a descriptor, readers can show the records.
    ///
    /// # Errors
    /// The writer's, here and below. The file is of no more use then.
    pub fn stream(
        &mut self,
        name: &str,
        record_bytes: u32,
        schema: u64,
        policy: &str,
        descriptor: Option<&Descriptor>,
    ) -> io::Result<u16> {
        let too_many = |_| io::Error::other("a trace file has 65,536 streams at most");
        let (stream, name, policy) =
            (u16::try_from(self.record_bytes.len()).map_err(too_many)?, cut(name), cut(policy));
        self.record_bytes.push(record_bytes.max(1));
        let mut body = stream.to_le_bytes().to_vec();
        body.extend(record_bytes.to_le_bytes());
        body.extend(schema.to_le_bytes());
        body.extend((name.len() as u16).to_le_bytes());
        body.extend(name.as_bytes());
        body.extend((policy.len() as u16).to_le_bytes());
        body.extend(policy.as_bytes());
        if let Some(descriptor) = descriptor {
            descriptor.put(&mut body);
        }
        self.name(tag::STREAM, &body)?;
        Ok(stream)
    }

    /// Writes a page: a block, or several if it has about 1 MiB or more.
    ///
    /// # Errors
    /// As for [`StreamFile::stream`].
    pub fn page(&mut self, page: &Page) -> io::Result<()> {
        self.add(page, page.bytes.len(), |bytes| bytes.extend_from_slice(&page.bytes));
        self.flush().map_err(|unwritten| unwritten.error)
    }

    /// Adds a page, whose `count` bytes `append` appends, to those that wait to be written: until there are many, or
    /// [`StreamFile::flush`] is called. `page.bytes` is not looked at.
    ///
    /// # Errors
    /// The writer's, with how many bytes of pages that were added are not in the file. It is of no more use then.
    ///
    /// # Panics
    /// When `append` appends another number of bytes.
    pub fn add_page(
        &mut self,
        page: &Page,
        count: usize,
        append: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Unwritten> {
        self.add(page, count, append);
        if self.blocks.len() < GATHERED_BYTES { Ok(()) } else { self.flush() }
    }

    /// Writes the pages that wait.
    ///
    /// # Errors
    /// As for [`StreamFile::add_page`].
    pub fn flush(&mut self) -> Result<(), Unwritten> {
        let mut written = 0;
        let result = loop {
            let left = self.blocks.get(written..).unwrap_or_default();
            if left.is_empty() {
                break self.file.flush();
            }
            match self.file.write(left) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let unwritten = self.pages.drain(..).filter(|(end, _)| *end > written);
        let bytes = unwritten.map(|(_, bytes)| bytes).sum();
        self.blocks.clear();
        result.map_err(|error| Unwritten { bytes, error })
    }

    fn add(&mut self, page: &Page, count: usize, append: impl FnOnce(&mut Vec<u8>)) {
        // A block has whole records.
        let record_bytes = self.record_bytes.get(usize::from(page.stream)).map_or(1, |bytes| *bytes as usize);
        let most = MOST_PAGE_BYTES - MOST_PAGE_BYTES % record_bytes.min(MOST_PAGE_BYTES);
        if count <= most {
            self.block(Kind::Page, |to| {
                put_page(page, 0..count, count, to);
                let begin = to.len();
                append(to);
                assert_eq!(to.len() - begin, count, "a page has as many bytes as were announced");
            });
        } else {
            let mut bytes = Vec::with_capacity(count);
            append(&mut bytes);
            assert_eq!(bytes.len(), count, "a page has as many bytes as were announced");
            for from in (0..count).step_by(most) {
                let part = from..count.min(from + most);
                self.block(Kind::Page, |to| {
                    put_page(page, part.clone(), count, to);
                    to.extend_from_slice(&bytes[part]);
                });
            }
        }
        self.pages.push((self.blocks.len(), count as u64));
    }

    /// Says what a stream had in all.
    ///
    /// # Errors
    /// As for [`StreamFile::stream`].
    pub fn end_stream(&mut self, stream: u16, totals: &StreamTotals) -> io::Result<()> {
        let mut body = stream.to_le_bytes().to_vec();
        put_stream_totals(totals, &mut body);
        self.name(tag::STREAM_ENDED, &body)
    }

    /// Ends the file in order.
    ///
    /// # Errors
    /// As for [`StreamFile::stream`].
    pub fn finish(mut self) -> io::Result<()> {
        let totals = Totals { ended_ns: elapsed_ns(self.start), ..Totals::default() };
        self.block(Kind::End, |to| put_totals(&totals, to));
        self.flush().map_err(|unwritten| unwritten.error)
    }

    fn name(&mut self, tag: u8, body: &[u8]) -> io::Result<()> {
        self.block(Kind::Names, |to| {
            to.push(tag);
            to.extend((body.len() as u16).to_le_bytes());
            to.extend(body);
        });
        self.flush().map_err(|unwritten| unwritten.error)
    }

    /// Adds a block with the one record that `put` appends.
    fn block(&mut self, kind: Kind, put: impl FnOnce(&mut Vec<u8>)) {
        let header_at = self.blocks.len();
        let payload_at = header_at + BLOCK_HEADER_BYTES;
        self.blocks.resize(payload_at, 0);
        put(&mut self.blocks);
        let payload = &self.blocks[payload_at..];
        let header = BlockHeader {
            kind: kind as u32,
            payload_bytes: payload.len() as u32,
            records: 1,
            sequence: self.sequence,
            dropped_calls: 0,
            payload_crc: crc32fast::hash(payload),
        };
        self.blocks[header_at..payload_at].copy_from_slice(&header.to_bytes());
        self.sequence += 1;
    }
}

/// Pages that are not in a file, and why.
#[derive(Debug)]
pub struct Unwritten {
    /// Bytes of the pages, of those that were added.
    pub bytes: u64,
    /// What the writer answered.
    pub error: io::Error,
}
