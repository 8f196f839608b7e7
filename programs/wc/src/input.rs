//! The files to count in, and how a lane counts in its part of one.

use crate::count::{Counts, LOOK_AHEAD, Wanted};
use alloc::vec;
use alloc::vec::Vec;
use hostcall_device::fs::{self, File, Handle, Map};
use hostcall_device::{Lane, io};

pub use hostcall_device::io::Error;

/// Lanes begin to read at multiples of this, from where a mapped file's bytes come fastest.
const ALIGNMENT: usize = 64;

/// Bytes that a lane reads at a time, besides those to look ahead at.
const READ_BYTES: usize = (32 << 10) - ALIGNMENT;

/// A part smaller than this is not worth another lane.
const PART_BYTES: u64 = 4 << 10;

/// A file with less bytes is read by calls, which take less time than to map it.
const MAP_BYTES: u64 = 1 << 20;

const EISDIR: i32 = 21;
const ESPIPE: i32 = 29;

/// Where a file's bytes come from.
pub enum Source<'launch> {
    /// The host's files, any part at any time.
    Regular {
        file: Handle,
        len: u64,
        /// The file in place, if it is long enough and the device reaches it.
        map: Option<Map<'launch>>,
    },
    /// A file that is read from start to end.
    Stream(Handle),
    Stdin,
    /// The file could not be opened.
    None(Error),
}

/// A file of the command line.
pub struct Input<'launch> {
    /// The name as the system has it; `None` for the standard input that nobody named.
    pub name: Option<Vec<u8>>,
    pub source: Source<'launch>,
}

impl<'launch> Input<'launch> {
    pub fn open(lane: &'launch Lane, name: Option<Vec<u8>>) -> Self {
        let source = match name.as_deref() {
            None | Some(b"-") => Source::Stdin,
            Some([]) => Source::None(Error::NotFound),
            Some(name) => Self::source(lane, name).unwrap_or_else(Source::None),
        };
        Self { name, source }
    }

    fn source(lane: &'launch Lane, name: &[u8]) -> fs::Result<Source<'launch>> {
        let file = File::open(name)?;
        match file.read_at(0, &mut [0]) {
            // Also files that say that they are empty and are not, as those of /proc.
            Ok(_) if file.len()? == 0 => Ok(Source::Stream(file.into_handle())),
            Ok(_) => {
                let (len, file) = (file.len()?, file.into_handle());
                let map = if len < MAP_BYTES { None } else { file.map(lane).ok() };
                Ok(Source::Regular { file, len, map: map.filter(Map::is_in_place) })
            }
            Err(Error::Os(ESPIPE)) => Ok(Source::Stream(file.into_handle())),
            Err(error) => Err(error),
        }
    }

    /// Bytes of a file on a disk, for the width of the columns; `None` for other files.
    pub fn disk_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Regular { len, .. } => Some(len),
            Source::Stream(file) => file.len().ok(),
            _ => None,
        }
    }

    /// Whether there is nothing to print of it.
    pub fn is_missing(&self) -> bool {
        matches!(self.source, Source::None(error) if error != Error::Os(EISDIR))
    }

    /// Counts in part `part` of `parts`; only bytes when nothing is `wanted`, if the file says how many it has.
    pub fn count(&self, part: u64, parts: u64, wanted: Option<Wanted>) -> fs::Result<Counts> {
        match self.source {
            Source::Regular { file, len, ref map } => {
                let step = len.div_ceil(parts).max(PART_BYTES).next_multiple_of(ALIGNMENT as u64);
                let start = part.saturating_mul(step).min(len);
                let end = start.saturating_add(step).min(len);
                match wanted {
                    Some(wanted) => match map.as_ref().filter(|map| map.len() == len) {
                        Some(map) => count_part(|at, buffer| map.read_at(at, buffer), start, end, wanted),
                        None => count_part(|at, buffer| file.read_at(at, buffer), start, end, wanted),
                    },
                    None => Ok(Counts { bytes: end - start, ..Counts::default() }),
                }
            }
            Source::Stream(file) if part == 0 => count_stream(|buffer| file.read(buffer), wanted),
            Source::Stdin if part == 0 => count_stream(|buffer| io::stdin().read(buffer), wanted),
            Source::None(error) if part == 0 => Err(error),
            _ => Ok(Counts::default()),
        }
    }
}

fn count_part(
    read_at: impl Fn(u64, &mut [u8]) -> fs::Result<usize>,
    mut start: u64,
    end: u64,
    wanted: Wanted,
) -> fs::Result<Counts> {
    let mut counts = Counts::default();
    let mut buffer = vec![0; READ_BYTES.min((end - start) as usize) + LOOK_AHEAD];
    while start < end {
        let want = buffer.len().min((end - start) as usize + LOOK_AHEAD);
        let got = read_at(start, &mut buffer[..want])?;
        // The last characters may go on in what was not read, unless nothing follows.
        let whole = if got == want { got - LOOK_AHEAD } else { got };
        let len = whole.min((end - start) as usize);
        if len == 0 {
            break;
        }
        counts.add(&buffer[..got], len, wanted);
        start += len as u64;
    }
    Ok(counts)
}

fn count_stream(
    mut read: impl FnMut(&mut [u8]) -> fs::Result<usize>,
    wanted: Option<Wanted>,
) -> fs::Result<Counts> {
    let wanted = wanted.unwrap_or_default();
    let mut counts = Counts::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut kept = 0;
    loop {
        let got = read(&mut buffer[kept..])?;
        let filled = kept + got;
        let len = if got == 0 { filled } else { filled.saturating_sub(LOOK_AHEAD) };
        counts.add(&buffer[..filled], len, wanted);
        if got == 0 {
            return Ok(counts);
        }
        buffer.copy_within(len..filled, 0);
        kept = filled - len;
    }
}

/// The error as coreutils words it.
pub fn message(error: Error) -> &'static str {
    match error {
        Error::NotFound => "No such file or directory",
        Error::PermissionDenied => "Permission denied",
        Error::Os(EISDIR) => "Is a directory",
        Error::Os(20) => "Not a directory",
        Error::Os(28) => "No space left on device",
        Error::Os(36) => "File name too long",
        Error::Os(40) => "Too many levels of symbolic links",
        error => error.message(),
    }
}
