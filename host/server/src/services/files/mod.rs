//! Files below one directory, as kernels open, read, write and map them.
//!
//! The system lets one thread at a time write to a file. So writes of a file are handled in a turn
//! (`Service::turn`, in `turns`). Those at a place have one of two turns, by the part of the file that they
//! go to: while the system has one thread write, the other gets into its cache what it writes next.

mod bound;
mod folders;
mod mapping;
mod root;
mod table;
#[cfg(test)]
mod tests;
mod turns;

use super::calling_launch;
use super::error::status;
use crate::engine::LaunchSet;
pub(crate) use bound::{Bound, Permit};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_channel::FileMapper;
use hostcall_device::io::Error;
use hostcall_device::services::FilesHandler;
use hostcall_service::Output;
use mapping::{Mapping, Mappings};
pub(crate) use root::Root;
use rustix::fs::{OFlags, fcntl_getfl};
use std::ffi::OsStr;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;
use table::{OpenFile, Table};
pub(super) use turns::FilesInTurn;

/// Most bytes that are read at a time where the file does not say how many it has.
const PIECE_BYTES: usize = 1 << 20;

const CACHE_LINE_BYTES: usize = 64;

type IsKnown = Box<dyn Fn(LaunchId) -> bool + Send + Sync>;
type OwnerOf = Box<dyn Fn(LaunchId) -> LaunchId + Send + Sync>;

/// The files that kernels have open, below one directory.
///
/// A file is its launch's. It is closed by the lane that drops or closes it, and when the launch ends by a panic, a fault, a
/// cancellation or an exit code. A launch that ends well leaves the files that its lanes did not close: a `static` may
/// hold a handle for later launches.
pub struct OpenFiles {
    root: Option<Root>,
    table: Table,
    bound: Bound,
    is_known: OnceLock<IsKnown>,
    owner_of: OnceLock<OwnerOf>,
    mappings: Mappings,
    mapper: OnceLock<Box<dyn FileMapper>>,
}

impl OpenFiles {
    /// Files below `dir`. `/` opens all that the process can reach, and relative paths are then the process's.
    ///
    /// # Errors
    /// When the directory cannot be opened, with its path.
    pub fn below(dir: &Path) -> io::Result<Self> {
        let root = Root::new(dir).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot open the folder {} to kernels: {error}", dir.display()),
            )
        })?;
        Ok(Self { root: Some(root), ..Self::none() })
    }

    /// No files: every path is refused with [`Error::NoDir`].
    pub fn none() -> Self {
        Self {
            root: None,
            table: Table::default(),
            bound: Bound::default(),
            is_known: OnceLock::new(),
            owner_of: OnceLock::new(),
            mappings: Mappings::default(),
            mapper: OnceLock::new(),
        }
    }

    /// Lets at most so many files be open at a time.
    pub(super) fn with_bound(self, most: usize) -> Self {
        Self { bound: Bound::new(most), ..self }
    }

    /// Has `is_known` asked whether a launch has begun and not ended, so that no file is opened for one that has ended
    /// meanwhile. Only the first such function counts.
    pub fn set_launches(&self, is_known: impl Fn(LaunchId) -> bool + Send + Sync + 'static) {
        // A second one is dropped, as documented.
        let _ = self.is_known.set(Box::new(is_known));
    }

    /// Has `owner_of` asked whose a file is that a launch opens or maps: its own, or its context's. Only the first such function
    /// counts.
    pub fn set_owners(&self, owner_of: impl Fn(LaunchId) -> LaunchId + Send + Sync + 'static) {
        // A second one is dropped, as documented.
        let _ = self.owner_of.set(Box::new(owner_of));
    }

    /// Whose is what the calling launch opens.
    pub(super) fn owner(&self) -> LaunchId {
        let launch = calling_launch();
        self.owner_of.get().map_or(launch, |owner_of| owner_of(launch))
    }

    /// Whether an owner has ended, so that nothing is opened for it any more.
    pub(super) fn has_ended(&self, owner: LaunchId) -> bool {
        owner != LaunchId::NONE && self.is_known.get().is_some_and(|is_known| !is_known(owner))
    }

    /// Has files mapped by `mapper`. Only the first one counts; without one, kernels read and write by calls
    /// what they map.
    pub fn set_mapper(&self, mapper: impl FileMapper) {
        // A second one is dropped, as documented.
        let _ = self.mapper.set(Box::new(mapper));
    }

    /// Ends the mappings that launches made, of which none of their lanes is left, however they ended. The launches
    /// must have ended for the function of [`OpenFiles::set_launches`].
    pub fn unmap_of(&self, launches: &LaunchSet) {
        self.mappings.remove_of(launches);
    }

    /// Closes the files that a launch opened, of which none of its lanes is left; their handles are void. The launch must
    /// have ended for the function of [`OpenFiles::set_launches`].
    pub fn close_of(&self, launch: LaunchId) {
        self.table.remove_of(|owner| owner == launch);
    }

    /// Closes all files; their handles are void. For the end of a device's session. Mappings stay as long as their
    /// launches, whose lanes may be reading them.
    pub fn close_all(&self) {
        self.table.remove_of(|_| true);
    }

    /// Files that are open.
    pub fn open_count(&self) -> usize {
        self.table.len()
    }

    /// Takes the right to open one more file.
    pub(crate) fn permit(&self) -> Result<Permit, CallError> {
        self.bound.take().ok_or(Error::TooManyOpen.into())
    }

    /// What paths are relative to.
    pub(crate) fn root(&self) -> Result<&Root, CallError> {
        self.root.as_ref().ok_or(Error::NoDir.into())
    }
}

/// The turn of writes to a file: the same however often it is open. The system lets one thread at a time write to a file, and
/// those that wait for it there look all the time, on processors that others need.
fn turn_of(file: &File) -> Option<u64> {
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
    Some(metadata.dev().rotate_left(32) ^ metadata.ino())
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

/// Has `read` read into the memory that the device reads, until there is no more or it has enough. An error
/// after the first piece, or that there is no memory for more, is left to be found by the next read: what was read is not
/// read again. `read` gets how many bytes were read before;
/// `left` says how many the file may have, so that no memory is taken for more.
fn pass_on(
    out: &mut Output<'_>,
    left: impl Fn() -> Option<u64>,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<(), CallError> {
    let mut most = PIECE_BYTES;
    if out.capacity() > PIECE_BYTES {
        most =
            left().map_or(PIECE_BYTES, |left| usize::try_from(left).unwrap_or(usize::MAX).max(PIECE_BYTES));
    }
    let mut done = 0;
    while out.capacity() > 0 {
        let want = out.capacity().min(most);
        match out.fill(want, |bytes| retried(|| read(bytes, done))).flatten() {
            Ok(len) => {
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

impl FilesHandler for super::SharedHandler<OpenFiles> {
    fn open(&self, path: &[u8], flags: u32) -> Result<u64, CallError> {
        let table = &self.0.table;
        let owner = self.0.owner();
        // Before the file is made or cut.
        let permit = self.0.permit()?;
        let file = self.0.root()?.open(as_path(path), flags)?;
        let turn = turn_of(&file);
        let handle = table.insert(OpenFile { file, turn, owner, _permit: permit });
        // A launch that ended while this ran may have had its files closed before this one was among them.
        if self.0.has_ended(owner) {
            table.remove(handle)?;
            return Err(CallError::Cancelled);
        }
        Ok(handle)
    }

    fn close(&self, file: u64) -> Result<(), CallError> {
        self.0.table.remove(file)
    }

    fn read(&self, file: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        pass_on(out, || None, |buffer, _| (&**file).read(buffer))
    }

    fn read_at(&self, file: u64, offset: u64, out: &mut Output<'_>) -> Result<(), CallError> {
        let file = self.0.table.get(file)?;
        let left = || file.metadata().ok().map(|metadata| metadata.len().saturating_sub(offset));
        pass_on(out, left, |buffer, done| file.read_at(buffer, offset.saturating_add(done)))
    }

    fn write(&self, file: u64, data: &[u8]) -> Result<u64, CallError> {
        let file = self.0.table.get(file)?;
        retried(|| (&**file).write(data)).map(|len| len as u64)
    }

    fn write_at(&self, file: u64, offset: u64, data: &[u8]) -> Result<u64, CallError> {
        let file = self.0.table.get(file)?;
        // The system takes up to three times as long to copy what lies in no cache, and lets nobody else write meanwhile.
        black_box(data.iter().step_by(CACHE_LINE_BYTES).fold(0, |all, byte| all ^ byte));
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
        (&**file).seek(to).map_err(|error| status(&error))
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

    fn map(&self, file: u64, writable: bool) -> Result<(u64, u64, u64), CallError> {
        let OpenFiles { table, mappings, mapper, .. } = &*self.0;
        let (file, owner) = (table.get(file)?, self.0.owner());
        let permit = self.0.permit()?;
        let metadata = file.metadata().map_err(|error| status(&error))?;
        if !metadata.is_file() {
            return Err(Error::InvalidInput.into());
        }
        let mode = fcntl_getfl(&**file).map_err(|error| status(&error.into()))? & OFlags::ACCMODE;
        if mode != OFlags::RDWR && (writable || mode != OFlags::RDONLY) {
            return Err(Error::PermissionDenied.into());
        }
        let len = metadata.len();
        let mapper = mapper.get().filter(|_| len > 0 && owner != LaunchId::NONE);
        let block = mapper.and_then(|mapper| mapper.map(&file, len, writable));
        let address = block.as_ref().map_or(0, |block| block.address);
        let handle = mappings.insert(Mapping { owner, _block: block, _permit: permit });
        // A launch that ended while this ran may have had its mappings ended before this one was among them.
        if self.0.has_ended(owner) {
            drop(mappings.remove(handle, owner));
            return Err(CallError::Cancelled);
        }
        Ok((handle, address, len))
    }

    fn unmap(&self, mapping: u64) -> Result<(), CallError> {
        let ended = self.0.mappings.remove(mapping, self.0.owner()).ok_or(Error::Closed)?;
        drop(ended);
        Ok(())
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
