//! Writing pages of raw channels to a trace file.

use crate::descriptor::Descriptor;
use crate::format::{Kind, MAX_PAYLOAD_BYTES, MOST_PAGE_BYTES, put_page, put_stream_totals, put_totals, tag};
use crate::record::{Page, StreamTotals, Totals};
use crate::tracer::header;
use crate::writer::{cut, elapsed_ns, write_block};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// A trace file of streams: of what kernels wrote to raw channels. Each page is a block of it, which is there or not wherever the
/// file is cut. [`Reader`](crate::Reader) reads it.
pub struct StreamFile {
    file: Box<dyn Write + Send>,
    start: Instant,
    sequence: u64,
    /// Bytes of the records of each stream.
    record_bytes: Vec<u32>,
    payload: Vec<u8>,
}

impl StreamFile {
    /// Makes a new file at this path, or writes over the one that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::create(path)?)
    }

    /// Writes to this file, a block at a time, unbuffered.
    ///
    /// # Errors
    /// The writer's, when the header cannot be written.
    pub fn new(file: impl Write + Send + 'static) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut file: Box<dyn Write + Send> = Box::new(file);
        file.write_all(&header(unix))?;
        let payload = Vec::with_capacity(MAX_PAYLOAD_BYTES);
        Ok(Self { file, start: Instant::now(), sequence: 0, record_bytes: Vec::new(), payload })
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
        // A block has whole records.
        let record_bytes = self.record_bytes.get(usize::from(page.stream)).map_or(1, |bytes| *bytes as usize);
        let most = MOST_PAGE_BYTES - MOST_PAGE_BYTES % record_bytes.min(MOST_PAGE_BYTES);
        let mut from = 0;
        loop {
            let part = &page.bytes[from..page.bytes.len().min(from + most)];
            put_page(page, from, part, &mut self.payload);
            self.block(Kind::Page)?;
            from += part.len();
            if from == page.bytes.len() {
                return Ok(());
            }
        }
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
        put_totals(&Totals { ended_ns: elapsed_ns(self.start), ..Totals::default() }, &mut self.payload);
        self.block(Kind::End)
    }

    fn name(&mut self, tag: u8, body: &[u8]) -> io::Result<()> {
        self.payload.push(tag);
        self.payload.extend((body.len() as u16).to_le_bytes());
        self.payload.extend(body);
        self.block(Kind::Names)
    }

    /// Writes the block whose one record is in the payload.
    fn block(&mut self, kind: Kind) -> io::Result<()> {
        let sequence = self.sequence;
        self.sequence += 1;
        let written = write_block(&mut self.file, kind, sequence, 0, 1, &self.payload);
        self.payload.clear();
        written
    }
}
