//! C's files: buffered, with a place for characters that were put back, and flags for end and error.

use hostcall_locks::{Mutex, MutexGuard};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};

/// Bytes that are written together.
const OUTPUT_BYTES: usize = 64 << 10;

/// Most characters that are put back one after the other.
const MAX_UNGET: usize = 4096;

/// What C gives for an error, or instead of a character: `EOF`.
pub(super) const FAILED: i64 = -1;

/// Locks, or does not when that would wait and may not.
pub(super) fn lock<T>(mutex: &Mutex<T>, may_wait: bool) -> Option<MutexGuard<'_, T>> {
    if may_wait { Some(mutex.lock()) } else { mutex.try_lock() }
}

/// How much to read.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    /// At most so many bytes.
    pub bytes: usize,
    /// No further than the first newline.
    pub line: bool,
}

/// What reading keeps beside its source.
#[derive(Default)]
pub(super) struct Reading {
    /// Characters that were put back, the next to read last.
    unget: Vec<u8>,
    pub end: bool,
    pub error: bool,
}

impl Reading {
    /// Reads from `source` what was put back first, and waits until there is enough or it ends.
    pub fn read(&mut self, source: &mut impl BufRead, amount: Amount, out: &mut Vec<u8>) {
        let full = |out: &Vec<u8>| out.len() >= amount.bytes || amount.line && out.last() == Some(&b'\n');
        while !full(out)
            && let Some(byte) = self.unget.pop()
        {
            out.push(byte);
        }
        while !full(out) && !self.end {
            let bytes = match source.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.error = true;
                    return;
                }
            };
            self.end = bytes.is_empty();
            let bytes = &bytes[..bytes.len().min(amount.bytes - out.len())];
            let newline = bytes.iter().position(|byte| amount.line && *byte == b'\n');
            let len = newline.map_or(bytes.len(), |at| at + 1);
            out.extend_from_slice(&bytes[..len]);
            source.consume(len);
        }
    }

    /// Puts a character back.
    pub fn unget(&mut self, character: i64) -> i64 {
        if character == FAILED || self.unget.len() == MAX_UNGET {
            return FAILED;
        }
        self.unget.push(character as u8);
        self.end = false;
        i64::from(character as u8)
    }
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub read: bool,
    pub write: bool,
    pub append: bool,
}

/// An open file.
pub(super) struct CFile {
    source: BufReader<File>,
    access: Access,
    pub reading: Reading,
    /// Bytes that are not written yet.
    output: Vec<u8>,
}

impl CFile {
    pub fn new(file: File, access: Access) -> io::Result<Self> {
        let mut source = BufReader::new(file);
        if access.append
            && let Err(error) = source.seek(SeekFrom::End(0))
            // A pipe has no places, and is written at its end always.
            && error.kind() != io::ErrorKind::NotSeekable
        {
            return Err(error);
        }
        Ok(Self { source, access, reading: Reading::default(), output: Vec::new() })
    }

    /// Whether reading so much neither waits nor writes.
    pub fn has(&self, amount: Amount) -> bool {
        let buffered = self.reading.unget.len() + self.source.buffer().len();
        self.output.is_empty()
            && (self.reading.end
                || buffered >= amount.bytes
                || amount.line && self.source.buffer().contains(&b'\n'))
    }

    pub fn read(&mut self, amount: Amount, out: &mut Vec<u8>) {
        if !self.access.read || self.write_out().is_err() {
            self.reading.error = true;
            return;
        }
        self.reading.read(&mut self.source, amount, out);
    }

    /// Whether so many bytes can be taken without writing any.
    pub fn takes(&self, bytes: usize) -> bool {
        self.is_between() && self.output.len() + bytes <= OUTPUT_BYTES
    }

    /// Whether the next byte is written where the system would write it.
    fn is_between(&self) -> bool {
        self.reading.unget.is_empty() && self.source.buffer().is_empty()
    }

    /// Writes bytes. How many were taken.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let written = self.try_write(bytes);
        self.reading.error |= written.is_err();
        written.map_or(0, |()| bytes.len())
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.access.write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if !self.is_between() {
            self.move_to(SeekFrom::Current(0))?;
        }
        if self.output.len() + bytes.len() > OUTPUT_BYTES {
            self.write_out()?;
        }
        if bytes.len() > OUTPUT_BYTES {
            return self.source.get_mut().write_all(bytes);
        }
        self.output.extend_from_slice(bytes);
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        let result = self.source.get_mut().write_all(&self.output);
        self.output.clear();
        result
    }

    /// Moves to a position, from which on the file is read and written.
    fn move_to(&mut self, to: SeekFrom) -> io::Result<()> {
        self.write_out()?;
        let put_back = self.reading.unget.len() as i64;
        let to = match to {
            SeekFrom::Current(offset) => SeekFrom::Current(offset.saturating_sub(put_back)),
            to => to,
        };
        self.source.seek(to)?;
        self.reading.unget.clear();
        Ok(())
    }

    pub fn seek(&mut self, offset: i64, whence: i64) -> i64 {
        let to = match whence {
            0 => u64::try_from(offset).ok().map(SeekFrom::Start),
            1 => Some(SeekFrom::Current(offset)),
            2 => Some(SeekFrom::End(offset)),
            _ => None,
        };
        match to.map(|to| self.move_to(to)) {
            Some(Ok(())) => {
                self.reading.end = false;
                0
            }
            _ => FAILED,
        }
    }

    /// Whether [`CFile::tell`] and [`CFile::flush`] write nothing.
    pub fn is_flushed(&self) -> bool {
        self.output.is_empty()
    }

    pub fn tell(&mut self) -> i64 {
        if self.write_out().is_err() {
            self.reading.error = true;
            return FAILED;
        }
        let position = self.source.stream_position().ok().and_then(|at| i64::try_from(at).ok());
        position.map_or(FAILED, |position| position - self.reading.unget.len() as i64)
    }

    pub fn flush(&mut self) -> i64 {
        match self.write_out() {
            Ok(()) => 0,
            Err(_) => {
                self.reading.error = true;
                FAILED
            }
        }
    }

    pub fn unget(&mut self, character: i64) -> i64 {
        if self.access.read { self.reading.unget(character) } else { FAILED }
    }
}

impl Drop for CFile {
    fn drop(&mut self) {
        // Whoever wants to know closes it.
        let _ = self.write_out();
    }
}
