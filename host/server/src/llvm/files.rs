//! Files that programs open, and the handles that stand for them where C has pointers.

use super::stream::{Access, CFile, FAILED};
use crate::services::{OpenFiles, Permit};
use hostcall_device::services::open_flags;
use hostcall_locks::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long flushing all files waits for one that is in use.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Bits of a handle that tell files (0) from the standard streams.
const TAG_BITS: u32 = 2;

type OpenFile = Arc<Mutex<CFile>>;

/// A place in the table.
struct FileEntry {
    /// Changes when the file is closed, so that handles to it are known to be old.
    generation: u32,
    file: Option<(OpenFile, Permit)>,
}

#[derive(Default)]
struct Table {
    places: Vec<FileEntry>,
    free: Vec<u32>,
}

/// The files of a program.
pub(super) struct Files {
    below: Arc<OpenFiles>,
    table: Mutex<Table>,
}

/// A handle: the generation in the upper half; in the lower the place, counted from 1, above the tag's bits.
fn handle(place: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(place + 1) << TAG_BITS
}

impl Table {
    fn place(&mut self, handle: u64) -> Option<(u32, &mut FileEntry)> {
        let index = ((handle as u32) >> TAG_BITS).checked_sub(1)?;
        let place = self.places.get_mut(index as usize)?;
        (place.generation == (handle >> 32) as u32).then_some((index, place))
    }
}

/// What a mode as `fopen` takes it means.
fn parse_mode(mode: &[u8]) -> Option<(u32, Access)> {
    let mode = mode.split(|byte| *byte == 0).next()?;
    let (kind, rest) = mode.split_first()?;
    if !rest.iter().all(|byte| b"+bxe".contains(byte)) {
        return None;
    }
    let (both, exclusive) = (rest.contains(&b'+'), rest.contains(&b'x'));
    let new = if exclusive { open_flags::CREATE_NEW } else { open_flags::CREATE };
    let (mut flags, read, write, append) = match kind {
        b'r' => (0, true, both, false),
        b'w' => (new | open_flags::TRUNCATE, both, true, false),
        b'a' => (new | open_flags::APPEND, both, true, true),
        _ => return None,
    };
    flags |= if read { open_flags::READ } else { 0 };
    flags |= if write { open_flags::WRITE } else { 0 };
    Some((flags, Access { read, write, append }))
}

/// A path as programs send it, with a zero byte behind it.
fn path(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes.split(|byte| *byte == 0).next()?)))
}

/// C's result of what succeeded or not.
fn status<E>(result: Option<Result<(), E>>) -> i64 {
    if matches!(result, Some(Ok(()))) { 0 } else { FAILED }
}

impl Files {
    /// No open files yet, and those below the same directory as `below`'s to open.
    pub fn new(below: Arc<OpenFiles>) -> Self {
        Self { below, table: Mutex::default() }
    }

    /// Opens a file; 0 when that fails.
    pub fn open(&self, name: &[u8], mode: &[u8]) -> u64 {
        self.try_open(name, mode).unwrap_or(0)
    }

    fn try_open(&self, name: &[u8], mode: &[u8]) -> Option<u64> {
        let (flags, access) = parse_mode(mode)?;
        // Before the file is made or cut.
        let permit = self.below.permit().ok()?;
        let file = self.below.root().ok()?.open(path(name)?, flags).ok()?;
        let file = Arc::new(Mutex::new(CFile::new(file, access).ok()?));
        let mut table = self.table.lock();
        let index = table.free.pop().unwrap_or_else(|| {
            table.places.push(FileEntry { generation: 1, file: None });
            table.places.len() as u32 - 1
        });
        let place = &mut table.places[index as usize];
        place.file = Some((file, permit));
        Some(handle(index, place.generation))
    }

    /// The file of a handle.
    pub fn get(&self, handle: u64) -> Option<OpenFile> {
        self.table.lock().place(handle)?.1.file.as_ref().map(|(file, _)| file.clone())
    }

    /// Closes a file.
    pub fn close(&self, handle: u64) -> i64 {
        let (file, _permit) = {
            let mut table = self.table.lock();
            let Some((index, place)) = table.place(handle) else { return FAILED };
            let Some(file) = place.file.take() else { return FAILED };
            place.generation = place.generation.wrapping_add(1).max(1);
            table.free.push(index);
            file
        };
        file.lock().flush()
    }

    /// Writes out what is held back of all files.
    pub fn flush_all(&self) -> i64 {
        let open = |place: &FileEntry| place.file.as_ref().map(|(file, _)| file.clone());
        let files: Vec<OpenFile> = self.table.lock().places.iter().filter_map(open).collect();
        // Reading may hold a file for ever; it has been written out before.
        let flush = |file: &OpenFile| {
            let begun = Instant::now();
            loop {
                match file.try_lock() {
                    Some(mut file) => return file.flush(),
                    None if begun.elapsed() >= LONGEST_WAIT => return 0,
                    None => thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        files.iter().map(flush).fold(0, i64::min)
    }

    /// Removes a file or an empty directory.
    pub fn remove(&self, name: &[u8]) -> i64 {
        let (Ok(root), Some(name)) = (self.below.root(), path(name)) else { return FAILED };
        status(Some(root.remove(name).or_else(|_| root.remove_dir(name))))
    }

    /// Renames a file or directory.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> i64 {
        let names = path(from).zip(path(to)).zip(self.below.root().ok());
        status(names.map(|((from, to), root)| root.rename(from, to)))
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
