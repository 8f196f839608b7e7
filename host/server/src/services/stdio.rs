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
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_service::{Caller, Output, caller};
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
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

    /// Returns what writes the output.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Returns the sink, for what a launch prints or flushes, which is noted before it does.
    #[inline]
    pub(crate) fn sink_of(&self, launch: LaunchId) -> &Sink {
        if self.last_printing.load(Ordering::Relaxed) != launch.to_bits() {
            self.printing.change(|printing| {
                printing.insert(launch);
                self.last_printing.store(launch.to_bits(), Ordering::Relaxed);
            });
        }
        &self.sink
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

    /// Waits until all that was printed before has been written.
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

    /// Returns what was printed and is not written.
    pub fn unwritten(&self) -> Option<Unwritten> {
        self.sink.unwritten()
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
        let sink = self.0.sink_of(calling_launch());
        let Some(lines) = self.0.lines() else {
            return sink.write(stream, data).map_err(|error| status(&error));
        };
        if let Some(admitted) = lines.admit(caller().unwrap_or_default(), None) {
            sink.wait_for_room();
            sink.check(stream).map_err(|error| status(&error))?;
            admitted.append(sink, stream, data);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), CallError> {
        self.0.sink_of(calling_launch()).flush().map_err(|error| status(&error))
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
