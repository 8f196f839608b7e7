//! Writing pages of raw channels to a trace file.

use crate::descriptor::Descriptor;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, Kind, MOST_PAGE_BYTES, put_page, put_stream_totals, put_totals, tag,
};
use crate::output::{Blocks, Output, Unwritten};
use crate::record::{Page, StreamTotals, Totals};
use crate::tracer::{cannot_write, create, header};
use crate::writer::{cut, elapsed_ns};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// Bytes of pages that are gathered before the file gets them: a call of the system takes as long as copying some
/// thousands.
const GATHERED_BYTES: usize = 1 << 20;

/// A trace file of streams: of what kernels wrote to raw channels. Each page is a block of it, which is there or not wherever the
/// file is cut. [`Reader`](crate::Reader) reads it.
pub struct StreamFile {
    output: Output,
    start: Instant,
    sequence: u64,
    /// Bytes of the records of each stream.
    record_bytes: Vec<u32>,
    /// What is gathered.
    blocks: Blocks,
}

impl StreamFile {
    /// Makes a new file at this path, or writes over the one that is there.
    ///
    /// # Errors
    /// The system's with the path, also when something else that records writes the file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::new(create(path)?).map_err(|error| cannot_write(path, &error))
    }

    /// Writes to this file.
    ///
    /// # Errors
    /// The writer's, when the header cannot be written.
    pub fn new(mut file: impl Write + Send + 'static) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        file.write_all(&header(unix))?;
        let (output, record_bytes, blocks) = (Output::new(file), Vec::new(), Blocks::default());
        Ok(Self { output, start: Instant::now(), sequence: 0, record_bytes, blocks })
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
    /// As for [`StreamFile::stream`]: without how many bytes of added pages are lost, which [`StreamFile::flush`] says if it is
    /// called before.
    pub fn page(&mut self, page: &Page) -> io::Result<()> {
        self.add(page, page.bytes.len(), |bytes| bytes.extend_from_slice(&page.bytes));
        self.flush().map_err(|unwritten| unwritten.error)
    }

    /// Adds a page, whose `count` bytes `append` appends, to those that wait to be written: until there are
    /// many, or [`StreamFile::hand_on`] or [`StreamFile::flush`] is called. `page.bytes` is not looked at.
    ///
    /// Once there are many, a thread of the file's own writes them while more are added. No more than some
    /// MiB wait for it.
    ///
    /// # Errors
    /// The writer's, for these pages or for any that were added before, with how many bytes of pages are not
    /// in the file that no error told of before. The file is of no more use then.
    ///
    /// # Panics
    /// When `append` appends another number of bytes, and when the writer panics.
    pub fn add_page(
        &mut self,
        page: &Page,
        count: usize,
        append: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Unwritten> {
        self.add(page, count, append);
        if self.blocks.bytes.len() < GATHERED_BYTES { Ok(()) } else { self.output.give(&mut self.blocks) }
    }

    /// Has the pages that wait written soon: where a thread writes, by it. While it has others to write,
    /// they wait on: who has no more pages for now calls this again.
    ///
    /// # Errors
    /// As for [`StreamFile::add_page`].
    ///
    /// # Panics
    /// When the writer panics.
    pub fn hand_on(&mut self) -> Result<(), Unwritten> {
        self.output.offer(&mut self.blocks)
    }

    /// Writes the pages that wait, and waits until all are written.
    ///
    /// # Errors
    /// As for [`StreamFile::add_page`].
    ///
    /// # Panics
    /// When the writer panics.
    pub fn flush(&mut self) -> Result<(), Unwritten> {
        self.output.write(&mut self.blocks)
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
        self.blocks.pages.push((self.blocks.bytes.len(), count as u64));
    }

    /// Says what a stream had in all.
    ///
    /// # Errors
    /// As for [`StreamFile::page`].
    pub fn end_stream(&mut self, stream: u16, totals: &StreamTotals) -> io::Result<()> {
        let mut body = stream.to_le_bytes().to_vec();
        put_stream_totals(totals, &mut body);
        self.name(tag::STREAM_ENDED, &body)
    }

    /// Ends the file in order.
    ///
    /// # Errors
    /// As for [`StreamFile::page`].
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
        let blocks = &mut self.blocks.bytes;
        let header_at = blocks.len();
        let payload_at = header_at + BLOCK_HEADER_BYTES;
        blocks.resize(payload_at, 0);
        put(blocks);
        let payload = &blocks[payload_at..];
        let header = BlockHeader {
            kind: kind as u32,
            payload_bytes: payload.len() as u32,
            records: 1,
            sequence: self.sequence,
            dropped_calls: 0,
            payload_crc: crc32fast::hash(payload),
        };
        blocks[header_at..payload_at].copy_from_slice(&header.to_bytes());
        self.sequence += 1;
    }
}
