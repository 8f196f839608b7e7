//! Files below one directory.

mod root;
mod table;
#[cfg(test)]
mod tests;

use super::error::status;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::FilesHandler;
use hostcall_service::Output;
pub(crate) use root::Root;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use table::Table;

/// Bytes that are read at a time, on their way to the reply.
const PIECE_BYTES: usize = 64 << 10;

/// The files that kernels have open, below one directory.
pub struct OpenFiles {
    root: Option<Root>,
    table: Table,
}

impl OpenFiles {
    /// Files below `dir`. `/` opens all that the process can reach, and relative paths are then the process's.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn below(dir: &Path) -> io::Result<Self> {
        Ok(Self { root: Some(Root::new(dir)?), table: Table::default() })
    }

    /// No files: every path is refused with [`Error::NoDir`].
    pub fn none() -> Self {
        Self { root: None, table: Table::default() }
    }

    /// Closes all files; their handles are void. For the end of a device's session.
    pub fn close_all(&self) {
        self.table.clear();
    }

    /// Files that are open.
    pub fn open_count(&self) -> usize {
        self.table.len()
    }

    /// What paths are relative to.
    pub(crate) fn root(&self) -> Result<&Root, CallError> {
        self.root.as_ref().ok_or(Error::NoDir.into())
    }
}

/// A path as a kernel sends it, which is one as the system has it.
fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Repeats an operation that a signal interrupted.
fn retried<T>(mut operation: impl FnMut() -> io::Result<T>) -> Result<T, CallError> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map_err(|error| status(&error)),
        }
    }
}

/// Passes what `read` gives on to the device until there is no more or it has enough. An error after the first
/// piece is left to be found by the next read.
fn pass_on(
    out: &mut Output<'_>,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<(), CallError> {
    let mut buffer = vec![0; out.capacity().min(PIECE_BYTES)];
    let mut done = 0;
    while out.capacity() > 0 {
        let want = out.capacity().min(PIECE_BYTES);
        match retried(|| read(&mut buffer[..want], done)) {
            Ok(len) => {
                out.push(&buffer[..len])?;
                done += len as u64;
                if len < want {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(())
}

impl FilesHandler for super::Shared<OpenFiles> {
    fn open(&self, path: &[u8], flags: u32) -> Result<u64, CallError> {
        // Before the file is made or cut; `insert` checks again.
        if !self.0.table.has_room() {
            return Err(Error::TooManyOpen.into());
        }
        self.0.table.insert(self.0.root()?.open(as_path(path), flags)?)
    }

    fn close(&self, file: u64) -> Result<(), CallError> {
        self.0.table.remove(file)
    }

    fn read(&self, file: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        pass_on(out, |buffer, _| (&*file).read(buffer))
    }

    fn read_at(&self, file: u64, offset: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        pass_on(out, |buffer, done| file.read_at(buffer, offset.saturating_add(done)))
    }

    fn write(&self, file: u64, data: &[u8]) -> Result<u64, CallError> {
        let file = self.0.table.get(file)?;
        retried(|| (&*file).write(data)).map(|len| len as u64)
    }

    fn write_at(&self, file: u64, offset: u64, data: &[u8]) -> Result<u64, CallError> {
        let file = self.0.table.get(file)?;
        retried(|| file.write_at(data, offset)).map(|len| len as u64)
    }

    fn seek(&self, file: u64, whence: u32, offset: i64) -> Result<u64, CallError> {
        let to = match whence {
            0 => SeekFrom::Start(u64::try_from(offset).map_err(|_| Error::InvalidInput)?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            _ => return Err(Error::InvalidInput.into()),
        };
        let file = self.0.table.get(file)?;
        (&*file).seek(to).map_err(|error| status(&error))
    }

    fn len(&self, file: u64) -> Result<u64, CallError> {
        let metadata = self.0.table.get(file)?.metadata().map_err(|error| status(&error))?;
        Ok(metadata.len())
    }

    fn set_len(&self, file: u64, len: u64) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        retried(|| file.set_len(len))
    }

    fn sync(&self, file: u64) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        retried(|| File::sync_all(&file))
    }

    fn remove(&self, path: &[u8]) -> Result<(), CallError> {
        self.0.root()?.remove(as_path(path))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), CallError> {
        self.0.root()?.rename(as_path(from), as_path(to))
    }

    fn create_dir(&self, path: &[u8]) -> Result<(), CallError> {
        self.0.root()?.create_dir(as_path(path))
    }

    fn remove_dir(&self, path: &[u8]) -> Result<(), CallError> {
        self.0.root()?.remove_dir(as_path(path))
    }
}
