//! Where printed text goes: a bounded queue, and a thread that writes it out.
//!
//! Text for both streams is appended to one buffer, so that their order is kept. A line after a quiet time is written at
//! once, and many lines go out in large writes. Nobody waits for a slow writer but those who may: handlers on threads of
//! their own wait from [`MOST_BYTES`] on, and posts of kernels are declined from [`MOST_POSTED_BYTES`] on, so that they
//! stay in their rings. No line is lost, and no more memory is taken.
//!
//! A writer that fails, or panics, is given up: what comes after would follow a gap. From then on, writes to its stream and
//! flushes end with its error, and what kernels print is dropped and counted. Where nobody flushes, a line on the standard
//! error says so in the end. The same is told of text that the server refused: its stream goes on.

use super::lines::{Printing, mark};
use crate::engine::caught::{Contained, catch, drop_caught};
use crate::engine::is_engines;
use hostcall_locks::{Condvar, Mutex, MutexGuard};
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are written out without waiting for more.
const FULL_BYTES: usize = 64 << 10;

/// Bytes that wait to be written from which on handlers wait that append more.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Bytes that wait to be written from which on posts are declined. What is taken at a time may go beyond it.
const MOST_POSTED_BYTES: usize = 64 << 20;

/// How long after a write the writer waits for [`FULL_BYTES`].
const GATHER: Duration = Duration::from_micros(100);

/// Bytes of what was printed last that are kept for who looks at the process.
const TAIL_BYTES: usize = 4 << 10;

/// One of the two streams of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
        })
    }
}

/// What was printed and is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unwritten {
    /// Bytes of both streams. The writer may have some of the next 64 KiB already.
    pub bytes: u64,
    /// The stream whose writer has the next ones.
    pub stream: Stream,
    /// For how long that writer has not taken them.
    pub waited: Duration,
}

/// As part of a sentence, such as `1234 bytes wait for the reader of the standard output, for 2.0 s now`.
impl Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, stream, waited } = self;
        write!(f, "{bytes} bytes wait for the reader of the {stream}, for {:.1} s now", waited.as_secs_f64())
    }
}

type WriteText = Box<dyn FnMut(Stream, &[u8]) -> io::Result<()> + Send>;

/// Text that a sink's writer is about to write.
#[derive(Clone, Copy, Debug)]
pub struct TakenText<'a> {
    /// The sink: see [`Sink::number`].
    pub sink: u64,
    /// How many bytes were appended to the sink before.
    pub position: u64,
    /// The text of both streams, as long as it was.
    pub text: &'a [u8],
}

static LISTENER: OnceLock<fn(TakenText<'_>)> = OnceLock::new();

/// Has this function hear of all text of all sinks of the process, on the threads that write it, just before they do. It must not
/// wait. The first function counts.
pub fn hear_text(listener: fn(TakenText<'_>)) {
    // A second one is dropped, as documented.
    let _ = LISTENER.set(listener);
}

/// Why a stream's writer was given up.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Failure {
    kind: io::ErrorKind,
    /// The system's number of the error.
    pub code: Option<i32>,
    text: String,
}

impl Failure {
    fn new(stream: Stream, error: &io::Error) -> Self {
        let text = format!("{stream}: {error}");
        Self { kind: error.kind(), code: error.raw_os_error(), text }
    }

    fn to_error(&self) -> io::Error {
        io::Error::new(self.kind, self.clone())
    }
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The streams that `bytes` go to: runs of so many bytes.
    runs: Vec<(Stream, usize)>,
    /// Bytes that were ever appended.
    appended: u64,
    /// The last of those that the writer has taken, [`TAIL_BYTES`] at most.
    tail: Vec<u8>,
    /// Those of them that were written, or dropped because their writer failed.
    written: u64,
    /// Those that were dropped, and those that were refused before they came here.
    lost: u64,
    /// Texts that were refused, and the first of them.
    refused: u64,
    first_refused: Option<Failure>,
    /// Why each stream's writer was given up.
    failed: [Option<Failure>; 2],
    /// Whose line of each stream has not ended, where lines say where they come from.
    unfinished: [Option<Printing>; 2],
    /// Somebody who flushed has got the error.
    is_told: bool,
    /// The writer waits for the first byte, however long that takes.
    idle: bool,
    /// The stream whose writer has bytes, and since when.
    writing: Option<(Stream, Instant)>,
    /// Callers that wait for what they appended to be written.
    flushers: usize,
    closing: bool,
    /// The writer, until its thread starts with the first text.
    writer: Option<Contained<WriteText>>,
    thread: Option<JoinHandle<()>>,
}

impl State {
    fn is_urgent(&self) -> bool {
        self.bytes.len() >= FULL_BYTES || self.flushers > 0 || self.closing
    }

    /// Notes that the writer has taken these bytes.
    fn note_tail(&mut self, taken: &[u8]) {
        let new = &taken[taken.len().saturating_sub(TAIL_BYTES)..];
        let old = self.tail.len().saturating_sub(TAIL_BYTES - new.len());
        self.tail.drain(..old.min(self.tail.len()));
        self.tail.extend_from_slice(new);
    }

    /// Gives up both streams: nobody writes any more.
    fn give_up(&mut self, error: &io::Error) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.failed[stream as usize].get_or_insert_with(|| Failure::new(stream, error));
        }
        self.lost += self.appended - self.written;
        self.written = self.appended;
        self.bytes.clear();
        self.runs.clear();
    }

    fn failure(&self, stream: Stream) -> Option<&Failure> {
        self.failed[stream as usize].as_ref()
    }

    /// Returns why something is lost.
    fn loss(&self) -> Option<Failure> {
        let mut failure = self.failed.iter().flatten().next().or(self.first_refused.as_ref())?.clone();
        if self.refused > 1 {
            failure.text += &format!("; {} texts were refused in all", self.refused);
        }
        Some(failure)
    }
}

#[derive(Default)]
struct Queue {
    /// No other sink of the process has it.
    number: u64,
    state: Mutex<State>,
    /// Signals the writer.
    work: Condvar,
    /// Signals those who wait for room, or for their text to be written.
    written: Condvar,
}

/// Where printed text goes: a queue and a thread that writes it out. Clones are the same sink; when the last is dropped,
/// what is left is written.
#[derive(Clone)]
pub struct Sink(Arc<Owned>);

struct Owned(Arc<Queue>);

impl Sink {
    fn new(write: impl FnMut(Stream, &[u8]) -> io::Result<()> + Send + 'static) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let queue = Queue { number: NEXT.fetch_add(1, Ordering::Relaxed), ..Queue::default() };
        queue.state.lock().writer = Some(Contained::new(Box::new(write)));
        Self(Arc::new(Owned(Arc::new(queue))))
    }

    /// Sends each stream to a writer.
    pub fn writers(mut stdout: impl Write + Send + 'static, mut stderr: impl Write + Send + 'static) -> Self {
        Self::new(move |stream, text| match stream {
            Stream::Stdout => stdout.write_all(text).and_then(|()| stdout.flush()),
            Stream::Stderr => stderr.write_all(text).and_then(|()| stderr.flush()),
        })
    }

    /// Sends both streams to one writer.
    pub fn writer(mut writer: impl Write + Send + 'static) -> Self {
        Self::new(move |_, text| writer.write_all(text).and_then(|()| writer.flush()))
    }

    /// Gives text to a callback, in pieces as they come, which may end within a line. It runs on a thread of the sink's.
    pub fn callback(mut callback: impl FnMut(Stream, &[u8]) + Send + 'static) -> Self {
        Self::new(move |stream, text| {
            callback(stream, text);
            Ok(())
        })
    }

    /// Makes each line an event of [`tracing`] with the target `hostcall::output`: of level `INFO` for standard output, `WARN` for
    /// standard error.
    pub fn tracing() -> Self {
        let mut lines = [Line(Stream::Stdout, Vec::new()), Line(Stream::Stderr, Vec::new())];
        Self::new(move |stream, text| {
            lines[stream as usize].push(text);
            Ok(())
        })
    }

    /// Sends the streams to those of the process.
    pub fn process() -> Self {
        Self::writers(io::stdout(), io::stderr())
    }

    /// Appends text to a stream, waiting for room.
    ///
    /// # Errors
    /// When the stream's writer has failed: with its name and the system's reason.
    pub fn write(&self, stream: Stream, text: &[u8]) -> io::Result<()> {
        self.wait_for_room();
        self.check(stream)?;
        self.append().text(stream, |bytes| bytes.extend_from_slice(text));
        Ok(())
    }

    /// Returns the error of a stream's writer that has failed.
    pub(super) fn check(&self, stream: Stream) -> io::Result<()> {
        self.0.0.state.lock().failure(stream).map_or(Ok(()), |failure| Err(failure.to_error()))
    }

    /// Notes that the server refused `what`, of at least so many bytes: flushes end with an error from then on.
    pub(crate) fn refuse(&self, stream: Stream, bytes: u64, what: &dyn Display, reason: &dyn Display) {
        let mut state = self.0.0.state.lock();
        state.lost = state.lost.saturating_add(bytes);
        state.refused += 1;
        state.first_refused.get_or_insert_with(|| {
            let text = format!("{stream}: {what} was refused: {reason}");
            Failure { kind: io::ErrorKind::Other, code: None, text }
        });
    }

    /// Waits until there is room for more.
    pub(crate) fn wait_for_room(&self) {
        let queue = &self.0.0;
        let state = queue.state.lock();
        if state.bytes.len() >= MOST_BYTES {
            queue.work.notify_one();
            drop(queue.written.wait_while(state, |state| state.bytes.len() >= MOST_BYTES));
        }
    }

    /// Returns whether kernels' posts are declined now, because too much waits to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.0.0.state.lock().bytes.len() >= MOST_POSTED_BYTES
    }

    /// Appends without waiting; nobody else does meanwhile.
    #[inline]
    pub(crate) fn append(&self) -> Append<'_> {
        Append { state: self.0.0.state.lock(), queue: &self.0.0 }
    }

    /// Waits until all that was appended before has been written. What is appended meanwhile is not waited for.
    ///
    /// # Errors
    /// When a stream's writer has failed, now or before: with its name and the system's reason. When the
    /// server refused text, now or before.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_until(None).map(drop)
    }

    /// Waits as [`Sink::flush`] does, until `deadline` at most. Returns whether all has been written.
    ///
    /// # Errors
    /// As for [`Sink::flush`].
    pub fn flush_until(&self, deadline: Option<Instant>) -> io::Result<bool> {
        self.wait_written(self.appended(), deadline).inspect_err(|_| self.0.0.state.lock().is_told = true)
    }

    /// Waits until so many of the bytes that were ever appended have been written, or dropped because their writer failed, until
    /// `deadline` at most. Returns whether they have been. See [`Sink::appended`].
    ///
    /// # Errors
    /// As for [`Sink::flush`].
    pub fn wait_written(&self, appended: u64, deadline: Option<Instant>) -> io::Result<bool> {
        let queue = &self.0.0;
        let mut state = queue.state.lock();
        if state.written < appended {
            state.flushers += 1;
            queue.work.notify_one();
            state = queue.written.wait_until(state, deadline, |state| state.written < appended);
            state.flushers -= 1;
        }
        match state.loss() {
            Some(failure) => Err(failure.to_error()),
            None => Ok(state.written >= appended),
        }
    }

    /// Returns what waits to be written.
    pub fn unwritten(&self) -> Option<Unwritten> {
        let state = self.0.0.state.lock();
        let bytes = state.appended - state.written;
        let next = || state.runs.first().map(|(stream, _)| (*stream, Duration::ZERO));
        let (stream, waited) =
            state.writing.map(|(stream, since)| (stream, since.elapsed())).or_else(next)?;
        (bytes > 0).then_some(Unwritten { bytes, stream, waited })
    }

    /// Returns how many bytes were ever appended.
    pub fn appended(&self) -> u64 {
        self.0.0.state.lock().appended
    }

    /// Returns the last bytes that were appended to both streams, up to 4 KiB: they may begin within a character.
    pub fn tail(&self) -> Vec<u8> {
        let state = self.0.0.state.lock();
        let waiting = &state.bytes[state.bytes.len().saturating_sub(TAIL_BYTES)..];
        let taken = state.tail.len().saturating_sub(TAIL_BYTES - waiting.len());
        [&state.tail[taken..], waiting].concat()
    }

    /// Returns the sink's number, which no other sink of the process has.
    pub fn number(&self) -> u64 {
        self.0.0.number
    }

    /// Returns how many bytes the writer has taken, and the last of them, up to 4 KiB. A function that hears text
    /// ([`hear_text`]) may be told of these later, and is told of all that follow.
    pub fn taken(&self) -> (u64, Vec<u8>) {
        let state = self.0.0.state.lock();
        (state.appended - state.bytes.len() as u64, state.tail.clone())
    }

    /// Returns whether so many bytes were written, or dropped because their writer failed; else they are soon.
    pub fn has_written(&self, appended: u64) -> bool {
        let state = self.0.0.state.lock();
        if state.written < appended {
            self.0.0.work.notify_one();
        }
        state.written >= appended
    }

    /// Returns how many bytes were dropped, because the writer of their stream had failed or the server
    /// refused them. A line that is too long counts as the longest that is taken.
    pub fn lost_bytes(&self) -> u64 {
        self.0.0.state.lock().lost
    }
}

impl Owned {
    /// Writes to the standard error that text was lost, unless somebody who flushed knows why.
    fn report_loss(&self) {
        let state = self.0.state.lock();
        let Some(failure) = state.loss().filter(|_| !state.is_told) else { return };
        let line = match state.lost {
            // How long lines are that could not be formatted is not known.
            0 => format!("hostcall: text that kernels printed is lost: {failure}\n"),
            bytes => format!("hostcall: {bytes} bytes that kernels printed are lost: {failure}\n"),
        };
        drop(state);
        // A standard error that is closed changes nothing.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closing = true;
        let (thread, unused) = (state.thread.take(), state.writer.take());
        drop(state);
        drop(unused);
        self.0.work.notify_one();
        // A thread of a server's must not wait, and the sink's own cannot; the text is written all the same.
        let here = std::thread::current().id();
        if is_engines() || thread.as_ref().is_some_and(|thread| thread.thread().id() == here) {
            return;
        }
        if let Some(thread) = thread {
            // It catches what a writer panics with.
            let _ = thread.join();
        }
        self.report_loss();
    }
}

/// Append access to a sink.
pub(crate) struct Append<'a> {
    state: MutexGuard<'a, State>,
    queue: &'a Arc<Queue>,
}

impl Append<'_> {
    /// Returns whether a handler that may wait would wait for room.
    pub fn is_full(&self) -> bool {
        self.state.bytes.len() >= MOST_BYTES
    }

    /// Returns whether the stream's writer has failed.
    pub fn has_failed(&self, stream: Stream) -> bool {
        self.state.failure(stream).is_some()
    }

    /// Appends to a stream what `write` appends to the buffer, and returns what that returns.
    #[inline]
    pub fn text<R>(&mut self, stream: Stream, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let state = &mut *self.state;
        let before = state.bytes.len();
        let mut whole = Whole { bytes: &mut state.bytes, len: before };
        let result = write(whole.bytes);
        whole.len = usize::MAX;
        drop(whole);
        let added = state.bytes.len() - before;
        if added == 0 {
            return result;
        }
        if state.failure(stream).is_some() {
            state.bytes.truncate(before);
            state.lost += added as u64;
            return result;
        }
        state.appended += added as u64;
        match state.runs.last_mut() {
            Some((last, len)) if *last == stream => *len += added,
            _ => state.runs.push((stream, added)),
        }
        if let Some(writer) = state.writer.take() {
            start(self.queue, state, writer);
        }
        result
    }
}

/// Cuts the buffer to `len` when it is dropped: what was written before a panic belongs to no run.
struct Whole<'a> {
    bytes: &'a mut Vec<u8>,
    len: usize,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.len);
    }
}

impl Append<'_> {
    /// Appends what somebody prints, with a prefix before each line that begins.
    pub(super) fn marked(&mut self, stream: Stream, who: Printing, prefix: &[u8], text: &[u8]) {
        let mut unfinished = self.state.unfinished[stream as usize].take();
        self.text(stream, |out| mark(out, &mut unfinished, who, prefix, text));
        self.state.unfinished[stream as usize] = unfinished;
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        let len = self.state.bytes.len();
        if len >= FULL_BYTES || self.state.idle && len > 0 {
            self.queue.work.notify_one();
        }
    }
}

/// Starts the thread of a sink.
#[cold]
fn start(queue: &Arc<Queue>, state: &mut State, writer: Contained<WriteText>) {
    let shared = queue.clone();
    let thread = std::thread::Builder::new().name("hostcall-output".into());
    let run = move || {
        // What is known to panic is caught where it does.
        if catch(|| write_out(&shared, writer)).is_err() {
            shared.state.lock().give_up(&io::Error::other("its thread panicked"));
            shared.written.notify_all();
        }
    };
    match thread.spawn(run) {
        Ok(thread) => state.thread = Some(thread),
        Err(error) => {
            state.give_up(&error);
        }
    }
}

/// Writes text to a stream. The error is a user's value: it is asked and dropped here, where panics are caught.
fn give(write: &mut WriteText, stream: Stream, text: &[u8]) -> Result<(), Failure> {
    let given = catch(|| {
        write(stream, text).map_err(|error| {
            let failure = Failure::new(stream, &error);
            drop_caught(error);
            failure
        })
    });
    given.unwrap_or_else(|_| Err(Failure::new(stream, &io::Error::other("the writer panicked"))))
}

/// Divides a text into pieces of at most [`FULL_BYTES`], at ends of lines where it has some: what a writer that waits has not
/// taken is known by pieces.
fn pieces(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let most = &text[..text.len().min(FULL_BYTES)];
        let line = most.iter().rposition(|byte| *byte == b'\n').filter(|_| most.len() < text.len());
        let piece;
        (piece, text) = text.split_at(line.map_or(most.len(), |end| end + 1));
        (!piece.is_empty()).then_some(piece)
    })
}

/// The writer's thread.
fn write_out(queue: &Queue, mut write: Contained<WriteText>) {
    let (mut bytes, mut runs, mut given_up) = (Vec::new(), Vec::new(), None);
    let mut state = queue.state.lock();
    loop {
        state.idle = true;
        state = queue.work.wait_while(state, |state| state.bytes.is_empty() && !state.closing);
        state.idle = false;
        if state.bytes.is_empty() {
            return;
        }
        std::mem::swap(&mut state.bytes, &mut bytes);
        state.note_tail(&bytes);
        std::mem::swap(&mut state.runs, &mut runs);
        if let Some(listener) = LISTENER.get() {
            let position = state.appended - bytes.len() as u64;
            state.writing = runs.first().map(|(stream, _)| (*stream, Instant::now()));
            drop(state);
            let text = TakenText { sink: queue.number, position, text: &bytes };
            let _ = catch(|| listener(text));
            state = queue.state.lock();
        }
        let mut rest = &bytes[..];
        let pieces = runs.drain(..).flat_map(|(stream, len)| {
            let text;
            (text, rest) = rest.split_at(len);
            pieces(text).map(move |piece| (stream, piece))
        });
        for (stream, text) in pieces {
            let len = text.len();
            if state.failure(stream).is_some() {
                state.lost += len as u64;
            } else {
                state.writing = Some((stream, Instant::now()));
                drop(state);
                let given = give(&mut write, stream, text);
                state = queue.state.lock();
                state.writing = None;
                if let Err(failure) = given {
                    state.failed[stream as usize] = Some(failure.clone());
                    state.lost += len as u64;
                    given_up = Some(failure);
                }
            }
            state.written += len as u64;
            queue.written.notify_all();
            if let Some(failure) = given_up.take() {
                // A subscriber may panic, and take its time.
                drop(state);
                let _ = catch(|| tracing::warn!(%failure, "an output is given up"));
                state = queue.state.lock();
            }
        }
        bytes.clear();
        queue.written.notify_all();
        // What follows a write soon is mostly part of much.
        (state, _) = queue.work.wait_timeout_while(state, GATHER, |state| !state.is_urgent());
    }
}

/// A stream's line that has not ended.
struct Line(Stream, Vec<u8>);

impl Line {
    fn push(&mut self, mut text: &[u8]) {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            self.1.extend_from_slice(&text[..end]);
            self.end();
            text = &text[end + 1..];
        }
        self.1.extend_from_slice(text);
    }

    fn end(&mut self) {
        let line = String::from_utf8_lossy(&self.1);
        match self.0 {
            Stream::Stdout => tracing::info!(target: "hostcall::output", "{line}"),
            Stream::Stderr => tracing::warn!(target: "hostcall::output", "{line}"),
        }
        self.1.clear();
    }
}

/// What the last line lacks is a newline.
impl Drop for Line {
    fn drop(&mut self) {
        if !self.1.is_empty() {
            self.end();
        }
    }
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
