//! The standard streams of programs: any reader and any [`Sink`], those of the process if nobody says otherwise.

use super::calling_launch;
use super::error::status;
use super::lines::{Lines, MarkedLines};
use super::sink::{Sink, Stream, Unwritten};
use crate::WavePlace;
use crate::engine::caught::Contained;
use crate::engine::rare::Rare;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::status::CallError;
use hostcall_abi::word::Owner;
use hostcall_device::services::{StdinHandler, StdoutHandler};
use hostcall_service::{Caller, Output, caller};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

impl Stream {
    /// Returns the stream that a device calls by this number.
    pub(super) fn from_number(number: u32) -> Result<Self, CallError> {
        match number {
            1 => Ok(Self::Stdout),
            2 => Ok(Self::Stderr),
            _ => Err(CallError::Malformed),
        }
    }
}

type Input = BufReader<Contained<Box<dyn Read + Send>>>;

impl Read for Contained<Box<dyn Read + Send>> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read(buffer)
    }
}

/// The standard streams. Dropping it writes out what is left.
pub struct Stdio {
    stdin: Mutex<Input>,
    sink: Sink,
    /// What is asked of lines, if anything is.
    lines: Option<MarkedLines>,
    /// Sinks of launches that have one of their own.
    sinks: RwLock<HashMap<LaunchId, Sink>>,
    /// There were such launches.
    has_sinks: AtomicBool,
    /// Launches that have printed.
    printing: Rare<HashSet<LaunchId>>,
    /// One of them, or none: the bits of its id. Changed under the lock of `printing`.
    last_printing: AtomicU32,
}

impl Stdio {
    /// Takes input from `stdin` and sends output to `sink`.
    pub fn new(stdin: impl Read + Send + 'static, sink: Sink) -> Self {
        Self {
            stdin: Mutex::new(BufReader::new(Contained::new(Box::new(stdin)))),
            sink,
            lines: None,
            sinks: RwLock::default(),
            has_sinks: AtomicBool::new(false),
            printing: Rare::default(),
            last_printing: AtomicU32::new(LaunchId::NONE.to_bits()),
        }
    }

    /// Leaves lines out, or has them say where they come from.
    #[must_use]
    pub fn with_lines(self, lines: Lines) -> Self {
        Self { lines: MarkedLines::new(lines), ..self }
    }

    /// Notes of which device the kernels are that print, how many lanes its waves have, and how the place of a caller is found
    /// ([`Server::knows_origin`](crate::Server::knows_origin)). The first device counts.
    pub fn set_origin(
        &self,
        device: &str,
        wave_size: u32,
        finds_place: impl Fn(Caller, Option<Owner>) -> (Arc<str>, Option<WavePlace>) + Send + Sync + 'static,
    ) {
        if let Some(lines) = &self.lines {
            lines.set_origin(device.to_owned(), wave_size, Box::new(finds_place));
        }
    }

    /// What is asked of lines, if anything is.
    #[inline]
    pub(super) fn lines(&self) -> Option<&MarkedLines> {
        self.lines.as_ref()
    }

    /// Sends what a launch prints to a sink of its own, until [`Stdio::unroute`]. To be called before it starts.
    pub fn route(&self, launch: LaunchId, sink: Sink) {
        self.has_sinks.store(true, Ordering::Release);
        self.sinks.write().insert(launch, sink);
    }

    /// Forgets the sink of a launch that has ended, and returns it.
    pub fn unroute(&self, launch: LaunchId) -> Option<Sink> {
        self.sinks.write().remove(&launch)
    }

    /// Returns the sink of launches that have none of their own.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Prints to the sink of a launch, or flushes it.
    #[inline]
    pub(crate) fn with_sink<R>(&self, launch: LaunchId, work: impl FnOnce(&Sink) -> R) -> R {
        self.note_printing(launch);
        if self.has_sinks.load(Ordering::Acquire)
            && let Some(sink) = self.sinks.read().get(&launch).cloned()
        {
            return work(&sink);
        }
        work(&self.sink)
    }

    /// Notes that a launch prints, before it does.
    #[inline]
    fn note_printing(&self, launch: LaunchId) {
        if self.last_printing.load(Ordering::Relaxed) != launch.to_bits() {
            self.printing.change(|printing| {
                printing.insert(launch);
                self.last_printing.store(launch.to_bits(), Ordering::Relaxed);
            });
        }
    }

    /// Returns whether some of the launches have printed, and forgets it. To be called when they have ended and their posts
    /// were taken.
    pub fn take_printing(&self, launches: LaunchIds) -> bool {
        let take = |printing: &mut HashSet<_>| {
            let have_printed = launches.ids().fold(false, |any, launch| printing.remove(&launch) | any);
            let last = LaunchId::from_bits(self.last_printing.load(Ordering::Relaxed));
            if have_printed && launches.contains(last) {
                self.last_printing.store(LaunchId::NONE.to_bits(), Ordering::Relaxed);
            }
            have_printed
        };
        self.printing.change_some(take).unwrap_or(false)
    }

    /// Returns the input, which nobody else reads meanwhile.
    pub(crate) fn stdin(&self) -> MutexGuard<'_, impl BufRead + use<>> {
        self.stdin.lock()
    }

    /// Waits until all that was printed before has been written, except by launches with sinks of their own.
    ///
    /// # Errors
    /// When a writer has failed, now or before: with the stream's name and the system's reason.
    pub fn flush(&self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Waits as [`Stdio::flush`] does, until `deadline` at most. Returns whether all has been written.
    ///
    /// # Errors
    /// As for [`Stdio::flush`].
    pub fn flush_until(&self, deadline: Instant) -> io::Result<bool> {
        self.sink.flush_until(Some(deadline))
    }

    /// Returns what was printed and is not written, except by launches with sinks of their own.
    pub fn unwritten(&self) -> Option<Unwritten> {
        self.sink.unwritten()
    }

    /// Returns whether printing waits for a writer.
    pub(crate) fn is_any_full(&self) -> bool {
        let is_full = |sinks: &HashMap<LaunchId, Sink>| sinks.values().any(Sink::is_full);
        self.sink.is_full() || self.has_sinks.load(Ordering::Acquire) && is_full(&self.sinks.read())
    }
}

impl StdinHandler for super::SharedHandler<Stdio> {
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
        let mut is_first = true;
        loop {
            match push_of_line(&mut *stdin, out) {
                Ok(true) => is_first = false,
                Err(error) if is_first => return Err(error),
                // What was pushed is not read again. What went wrong is found by the next read.
                Ok(false) | Err(_) => return Ok(()),
            }
        }
    }
}

/// Passes on what of a line comes next in one piece. Returns whether the line may go on.
fn push_of_line(stdin: &mut impl BufRead, out: &mut Output<'_>) -> Result<bool, CallError> {
    if out.capacity() == 0 {
        return Ok(false);
    }
    let bytes = fill(stdin)?;
    let bytes = &bytes[..bytes.len().min(out.capacity())];
    let newline = bytes.iter().position(|byte| *byte == b'\n');
    let len = newline.map_or(bytes.len(), |at| at + 1);
    out.push(&bytes[..len])?;
    stdin.consume(len);
    Ok(newline.is_none() && len > 0)
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

impl StdoutHandler for super::SharedHandler<Stdio> {
    fn write(&self, stream: u32, data: &[u8]) -> Result<(), CallError> {
        let stream = Stream::from_number(stream)?;
        let written = self.0.with_sink(calling_launch(), |sink| match self.0.lines() {
            None => sink.write(stream, data),
            Some(lines) => {
                if let Some(admitted) = lines.admit(caller().unwrap_or_default(), None) {
                    sink.wait_for_room();
                    sink.check(stream)?;
                    admitted.append(sink, stream, data);
                }
                Ok(())
            }
        });
        written.map_err(|error| status(&error))
    }

    fn flush(&self) -> Result<(), CallError> {
        self.0.with_sink(calling_launch(), Sink::flush).map_err(|error| status(&error))
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
