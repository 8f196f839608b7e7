//! The standard streams of programs: any reader and writers, of the process if nobody says otherwise.
//!
//! Text is appended to one buffer for both outputs, so that their order is kept, and a thread of its own
//! writes it out: a slow terminal delays nobody until the buffer is full, a line after a quiet time is written
//! at once, and many lines go out in large writes. Of a full buffer, handlers on threads of their own wait first; a
//! server's consumers, which print the lines of kernels, have much more room, so that they serve other calls while a
//! reader is slow. Only beyond that they wait too: no line is lost, and no more memory is taken.

use super::error::status;
use hostcall_abi::service::Output;
use hostcall_abi::status::CallError;
use hostcall_device::services::{StdinHandler, StdoutHandler};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that are written out without waiting for more.
const FULL_BYTES: usize = 64 << 10;

/// Bytes that may wait to be written; who appends more waits,
const MAX_BYTES: usize = 4 << 20;
/// and who delays others by that waits only when there are more than these.
const MAX_BYTES_AT_ONCE: usize = 64 << 20;

/// How long after a write the writer waits for [`FULL_BYTES`].
const GATHER: Duration = Duration::from_micros(100);

/// One of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// The stream that a device calls by this number.
    pub(super) fn from_number(number: u32) -> Result<Self, CallError> {
        match number {
            1 => Ok(Self::Stdout),
            2 => Ok(Self::Stderr),
            _ => Err(CallError::Malformed),
        }
    }
}

/// Where the streams come from and go to.
pub struct Streams {
    /// Standard input.
    pub stdin: Box<dyn Read + Send>,
    /// Standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error.
    pub stderr: Box<dyn Write + Send>,
}

impl Streams {
    /// Those of the process.
    pub fn process() -> Self {
        Self { stdin: Box::new(io::stdin()), stdout: Box::new(io::stdout()), stderr: Box::new(io::stderr()) }
    }

    /// An empty input, and outputs that go nowhere.
    pub fn none() -> Self {
        Self { stdin: Box::new(io::empty()), stdout: Box::new(io::sink()), stderr: Box::new(io::sink()) }
    }
}

/// Text that is not written yet.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// The streams that `bytes` go to: runs of so many bytes.
    runs: Vec<(Stream, usize)>,
    /// The writer is at work on what it took before.
    writing: bool,
    /// The writer waits for the first byte, however long that takes.
    idle: bool,
    /// Callers that wait for all to be written.
    flushers: usize,
    closing: bool,
}

impl Pending {
    fn is_urgent(&self) -> bool {
        self.bytes.len() >= FULL_BYTES || self.flushers > 0 || self.closing
    }
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    /// Signals the writer.
    work: Condvar,
    /// Signals those who wait for room or for all to be written.
    written: Condvar,
}

/// The standard streams. Dropping it writes out what is left.
pub struct Stdio {
    stdin: Mutex<BufReader<Box<dyn Read + Send>>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Stdio {
    /// Streams of these ends.
    ///
    /// # Panics
    /// When the system starts no thread.
    pub fn new(streams: Streams) -> Self {
        let Streams { stdin, stdout, stderr } = streams;
        let shared = Arc::<Shared>::default();
        let for_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("hostcall-stdio".into())
            .spawn(move || write_out(&for_writer, stdout, stderr))
            .expect("the system starts a thread");
        Self { stdin: Mutex::new(BufReader::new(stdin)), shared, writer: Some(writer) }
    }

    /// The outputs, to append to; nobody else does meanwhile.
    pub(crate) fn outputs(&self) -> Outputs<'_> {
        Outputs { pending: self.shared.pending.lock(), shared: &self.shared }
    }

    /// The input, which nobody else reads meanwhile.
    pub(crate) fn stdin(&self) -> MutexGuard<'_, impl BufRead + use<>> {
        self.stdin.lock()
    }

    /// Waits until all that was appended before has been written.
    pub fn flush(&self) {
        let mut pending = self.shared.pending.lock();
        pending.flushers += 1;
        self.shared.work.notify_one();
        self.shared.written.wait_while(&mut pending, |pending| pending.writing || !pending.bytes.is_empty());
        pending.flushers -= 1;
    }

    /// Whether so much waits to be written that appending would wait.
    pub fn is_full(&self) -> bool {
        self.shared.pending.lock().bytes.len() >= MAX_BYTES
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.shared.pending.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so.
            let _ = writer.join();
        }
    }
}

/// Append access to the outputs.
pub(crate) struct Outputs<'a> {
    pending: MutexGuard<'a, Pending>,
    shared: &'a Shared,
}

impl Outputs<'_> {
    /// Whether appending would first wait for room.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.bytes.len() >= MAX_BYTES
    }

    /// Appends to a stream what `write` appends to the buffer, first waiting for room.
    #[inline]
    pub fn append<R>(&mut self, stream: Stream, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.append_below(MAX_BYTES, stream, write)
    }

    /// As [`Outputs::append`], for callers who should not wait: they have more room.
    #[inline]
    pub fn append_at_once<R>(&mut self, stream: Stream, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.append_below(MAX_BYTES_AT_ONCE, stream, write)
    }

    #[inline]
    fn append_below<R>(&mut self, most: usize, stream: Stream, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if self.pending.bytes.len() >= most {
            self.shared.work.notify_one();
            self.shared.written.wait_while(&mut self.pending, |pending| pending.bytes.len() >= most);
        }
        let Pending { bytes, runs, .. } = &mut *self.pending;
        let before = bytes.len();
        let result = write(bytes);
        let added = bytes.len() - before;
        match runs.last_mut() {
            Some((last, len)) if *last == stream => *len += added,
            _ => runs.push((stream, added)),
        }
        result
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        let len = self.pending.bytes.len();
        if len >= FULL_BYTES || self.pending.idle && len > 0 {
            self.shared.work.notify_one();
        }
    }
}

/// The writer's thread. An output that fails once, as a pipe that nobody reads any more, is given up silently.
fn write_out(shared: &Shared, stdout: Box<dyn Write + Send>, stderr: Box<dyn Write + Send>) {
    let (mut stdout, mut stderr) = (Some(stdout), Some(stderr));
    let (mut bytes, mut runs) = (Vec::new(), Vec::new());
    let mut pending = shared.pending.lock();
    loop {
        pending.idle = true;
        shared.work.wait_while(&mut pending, |pending| pending.bytes.is_empty() && !pending.closing);
        pending.idle = false;
        if pending.bytes.is_empty() {
            return;
        }
        std::mem::swap(&mut pending.bytes, &mut bytes);
        std::mem::swap(&mut pending.runs, &mut runs);
        pending.writing = true;
        drop(pending);
        let mut rest = &bytes[..];
        for (stream, len) in runs.drain(..) {
            let run;
            (run, rest) = rest.split_at(len);
            let output = match stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            };
            let write = |output: &mut Box<dyn Write + Send>| {
                output.write_all(run)?;
                output.flush()
            };
            if output.as_mut().is_some_and(|output| write(output).is_err()) {
                *output = None;
            }
        }
        bytes.clear();
        pending = shared.pending.lock();
        pending.writing = false;
        shared.written.notify_all();
        // What follows a write soon is mostly part of much.
        shared.work.wait_while_for(&mut pending, |pending| !pending.is_urgent(), GATHER);
    }
}

impl StdinHandler for super::Shared<Stdio> {
    fn read(&self, out: &mut Output<'_>) -> Result<(), CallError> {
        let mut stdin = self.0.stdin.lock();
        let bytes = fill(&mut *stdin)?;
        let len = bytes.len().min(out.capacity());
        out.push(&bytes[..len])?;
        stdin.consume(len);
        Ok(())
    }

    fn read_line(&self, out: &mut Output<'_>) -> Result<(), CallError> {
        let mut stdin = self.0.stdin.lock();
        while out.capacity() > 0 {
            let bytes = fill(&mut *stdin)?;
            let bytes = &bytes[..bytes.len().min(out.capacity())];
            let newline = bytes.iter().position(|byte| *byte == b'\n');
            let len = newline.map_or(bytes.len(), |at| at + 1);
            out.push(&bytes[..len])?;
            stdin.consume(len);
            if newline.is_some() || len == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// The bytes of the input that come next; none at its end.
fn fill(stdin: &mut impl BufRead) -> Result<&[u8], CallError> {
    while let Err(error) = stdin.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(status(&error));
        }
    }
    // Filled above, so this reads nothing, except at the end of the input.
    stdin.fill_buf().map_err(|error| status(&error))
}

impl StdoutHandler for super::Shared<Stdio> {
    fn write(&self, stream: u32, data: &[u8]) -> Result<(), CallError> {
        let stream = Stream::from_number(stream)?;
        self.0.outputs().append(stream, |bytes| bytes.extend_from_slice(data));
        Ok(())
    }

    fn flush(&self) -> Result<(), CallError> {
        self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
