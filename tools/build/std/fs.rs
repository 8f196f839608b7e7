//! Files and folders below the one that the host opened.

use crate::ffi::{OsStr, OsString};
use crate::fmt;
use crate::fs::TryLockError;
use crate::io::{self, BorrowedCursor, IoSlice, IoSliceMut, SeekFrom};
use crate::path::{Path, PathBuf};
pub use crate::sys::fs::common::{Dir, exists};
use crate::sys::pal::{abi, checked, checked_length, unsupported, whole};
use crate::sys::time::SystemTime;

/// The bits of [`OpenOptions`], as the host has them.
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const APPEND: u32 = 1 << 2;
const TRUNCATE: u32 = 1 << 3;
const CREATE: u32 = 1 << 4;
const CREATE_NEW: u32 = 1 << 5;

/// The kinds of files, as the host has them.
const FILE: u32 = 0;
const DIR: u32 = 1;
const SYMLINK: u32 = 2;

/// The bits of a mode that let somebody write.
const WRITABLE: u32 = 0o222;

/// A file that is open until this is dropped.
pub struct File(u64);

#[derive(Clone, Debug)]
pub struct FileAttr(abi::Metadata);

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileType(u32);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePermissions(u32);

#[derive(Copy, Clone, Debug, Default)]
pub struct FileTimes;

#[derive(Clone, Debug)]
pub struct OpenOptions(u32);

#[derive(Debug)]
pub struct DirBuilder;

impl FileAttr {
    pub fn size(&self) -> u64 {
        self.0.len
    }

    pub fn perm(&self) -> FilePermissions {
        FilePermissions(self.0.mode)
    }

    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }

    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(SystemTime::of_ns(self.0.modified_ns))
    }

    /// The host does not say it.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        unsupported()
    }

    /// The host does not say it.
    pub fn created(&self) -> io::Result<SystemTime> {
        unsupported()
    }
}

impl FileType {
    pub fn is_dir(&self) -> bool {
        self.0 == DIR
    }

    pub fn is_file(&self) -> bool {
        self.0 == FILE
    }

    pub fn is_symlink(&self) -> bool {
        self.0 == SYMLINK
    }
}

impl FilePermissions {
    pub fn readonly(&self) -> bool {
        self.0 & WRITABLE == 0
    }

    pub fn set_readonly(&mut self, readonly: bool) {
        if readonly {
            self.0 &= !WRITABLE;
        } else {
            self.0 |= WRITABLE;
        }
    }
}

impl FileTimes {
    pub fn set_accessed(&mut self, _time: SystemTime) {}

    pub fn set_modified(&mut self, _time: SystemTime) {}
}

impl OpenOptions {
    pub fn new() -> Self {
        Self(0)
    }

    fn set(&mut self, flag: u32, on: bool) {
        self.0 = if on { self.0 | flag } else { self.0 & !flag };
    }

    pub fn read(&mut self, on: bool) {
        self.set(READ, on);
    }

    pub fn write(&mut self, on: bool) {
        self.set(WRITE, on);
    }

    pub fn append(&mut self, on: bool) {
        self.set(APPEND, on);
    }

    pub fn truncate(&mut self, on: bool) {
        self.set(TRUNCATE, on);
    }

    pub fn create(&mut self, on: bool) {
        self.set(CREATE, on);
    }

    pub fn create_new(&mut self, on: bool) {
        self.set(CREATE_NEW, on);
    }
}

/// A path's bytes.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// Calls a function that takes a path.
fn on(path: &Path, call: unsafe extern "C" fn(*const u8, usize) -> i32) -> io::Result<()> {
    let path = bytes(path);
    // SAFETY: the path is the caller's until the call returns.
    checked(unsafe { call(path.as_ptr(), path.len()) })
}

impl File {
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        let (path, mut file) = (bytes(path), 0);
        // SAFETY: the path is the caller's, and the number this function's, until the call returns.
        checked(unsafe { abi::open(path.as_ptr(), path.len(), options.0, &mut file) })?;
        Ok(Self(file))
    }

    pub fn file_attr(&self) -> io::Result<FileAttr> {
        let mut found = abi::Metadata::default();
        // SAFETY: what is written is this function's until the call returns.
        checked(unsafe { abi::file_metadata(self.0, &mut found) })?;
        Ok(FileAttr(found))
    }

    pub fn fsync(&self) -> io::Result<()> {
        // SAFETY: any number may be given.
        checked(unsafe { abi::file_sync(self.0) })
    }

    pub fn datasync(&self) -> io::Result<()> {
        self.fsync()
    }

    pub fn lock(&self) -> io::Result<()> {
        unsupported()
    }

    pub fn lock_shared(&self) -> io::Result<()> {
        unsupported()
    }

    pub fn try_lock(&self) -> Result<(), TryLockError> {
        unsupported().map_err(TryLockError::Error)
    }

    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        unsupported().map_err(TryLockError::Error)
    }

    pub fn unlock(&self) -> io::Result<()> {
        unsupported()
    }

    pub fn truncate(&self, len: u64) -> io::Result<()> {
        // SAFETY: any number may be given.
        checked(unsafe { abi::file_set_len(self.0, len) })
    }

    pub fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the room is the caller's until the call returns.
        checked_length(unsafe { abi::file_read(self.0, room.as_mut_ptr(), room.len()) })
    }

    pub fn read_vectored(&self, room: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        io::default_read_vectored(|room| self.read(room), room)
    }

    pub fn is_read_vectored(&self) -> bool {
        false
    }

    pub fn read_buf(&self, cursor: BorrowedCursor<'_>) -> io::Result<()> {
        io::default_read_buf(|room| self.read(room), cursor)
    }

    pub fn write(&self, data: &[u8]) -> io::Result<usize> {
        // SAFETY: the data is the caller's until the call returns.
        checked_length(unsafe { abi::file_write(self.0, data.as_ptr(), data.len()) })
    }

    pub fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        io::default_write_vectored(|data| self.write(data), data)
    }

    pub fn is_write_vectored(&self) -> bool {
        false
    }

    pub fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    pub fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let (whence, offset) = match to {
            SeekFrom::Start(offset) => (0, i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?),
            SeekFrom::Current(offset) => (1, offset),
            SeekFrom::End(offset) => (2, offset),
        };
        let mut at = 0;
        // SAFETY: what is written is this function's until the call returns.
        checked(unsafe { abi::file_seek(self.0, whence, offset, &mut at) })?;
        Ok(at)
    }

    pub fn size(&self) -> Option<io::Result<u64>> {
        None
    }

    pub fn tell(&self) -> io::Result<u64> {
        self.seek(SeekFrom::Current(0))
    }

    /// The host has one number for a file.
    pub fn duplicate(&self) -> io::Result<Self> {
        unsupported()
    }

    /// The host sets them by the file's path alone.
    pub fn set_permissions(&self, _permissions: FilePermissions) -> io::Result<()> {
        unsupported()
    }

    pub fn set_times(&self, _times: FileTimes) -> io::Result<()> {
        unsupported()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the file is this value's alone.
        unsafe { abi::close(self.0) };
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("handle", &self.0).finish()
    }
}

impl DirBuilder {
    pub fn new() -> Self {
        Self
    }

    pub fn mkdir(&self, path: &Path) -> io::Result<()> {
        on(path, abi::create_dir)
    }
}

/// A folder's entries, as they were at one moment, in the order of their names.
pub struct ReadDir {
    folder: PathBuf,
    /// Of each a byte for its kind, two for the length of its name, of which the first counts least, and the name.
    entries: crate::vec::IntoIter<u8>,
}

pub struct DirEntry {
    path: PathBuf,
    kind: FileType,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.folder).finish()
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        let kind = self.entries.next()?;
        let len = u16::from_le_bytes([self.entries.next()?, self.entries.next()?]);
        let name: Vec<u8> = self.entries.by_ref().take(len.into()).collect();
        // SAFETY: the strings of this platform are any bytes.
        let name = unsafe { OsString::from_encoded_bytes_unchecked(name) };
        Some(Ok(DirEntry { path: self.folder.join(name), kind: FileType(kind.into()) }))
    }
}

impl DirEntry {
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn file_name(&self) -> OsString {
        self.path.file_name().map(OsStr::to_owned).unwrap_or_default()
    }

    pub fn metadata(&self) -> io::Result<FileAttr> {
        lstat(&self.path)
    }

    pub fn file_type(&self) -> io::Result<FileType> {
        Ok(self.kind)
    }
}

pub fn readdir(path: &Path) -> io::Result<ReadDir> {
    let folder = bytes(path);
    let entries = whole(|room| {
        // SAFETY: path and room are nobody else's until the call returns.
        checked_length(unsafe { abi::entries(folder.as_ptr(), folder.len(), room.as_mut_ptr(), room.len()) })
    })?;
    Ok(ReadDir { folder: path.to_owned(), entries: entries.into_iter() })
}

pub fn unlink(path: &Path) -> io::Result<()> {
    on(path, abi::remove)
}

pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (bytes(from), bytes(to));
    // SAFETY: the paths are the caller's until the call returns.
    checked(unsafe { abi::rename(from.as_ptr(), from.len(), to.as_ptr(), to.len()) })
}

pub fn set_perm(path: &Path, permissions: FilePermissions) -> io::Result<()> {
    let path = bytes(path);
    // SAFETY: the path is the caller's until the call returns.
    checked(unsafe { abi::set_permissions(path.as_ptr(), path.len(), permissions.0) })
}

pub fn set_times(_path: &Path, _times: FileTimes) -> io::Result<()> {
    unsupported()
}

pub fn set_times_nofollow(_path: &Path, _times: FileTimes) -> io::Result<()> {
    unsupported()
}

pub fn rmdir(path: &Path) -> io::Result<()> {
    on(path, abi::remove_dir)
}

pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    on(path, abi::remove_dir_all)
}

/// The host makes and tells no links.
pub fn readlink(_path: &Path) -> io::Result<PathBuf> {
    unsupported()
}

pub fn symlink(_original: &Path, _link: &Path) -> io::Result<()> {
    unsupported()
}

pub fn link(_original: &Path, _link: &Path) -> io::Result<()> {
    unsupported()
}

fn attributes(path: &Path, follow: bool) -> io::Result<FileAttr> {
    let (path, mut found) = (bytes(path), abi::Metadata::default());
    // SAFETY: the path is the caller's, and what is written this function's, until the call returns.
    checked(unsafe { abi::metadata(path.as_ptr(), path.len(), follow, &mut found) })?;
    Ok(FileAttr(found))
}

pub fn stat(path: &Path) -> io::Result<FileAttr> {
    attributes(path, true)
}

pub fn lstat(path: &Path) -> io::Result<FileAttr> {
    attributes(path, false)
}

pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    let asked = bytes(path);
    let found = whole(|room| {
        // SAFETY: path and room are nobody else's until the call returns.
        checked_length(unsafe {
            abi::canonicalize(asked.as_ptr(), asked.len(), room.as_mut_ptr(), room.len())
        })
    })?;
    // SAFETY: the strings of this platform are any bytes.
    let found: PathBuf = unsafe { OsString::from_encoded_bytes_unchecked(found) }.into();
    if found.is_absolute() {
        return Ok(found);
    }
    // It begins at the folder that the host opened.
    let folder = crate::sys::paths::getcwd()?;
    Ok(if found == Path::new(".") { folder } else { folder.join(found) })
}

pub fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let (from, to) = (bytes(from), bytes(to));
    // SAFETY: the paths are the caller's until the call returns.
    let len = checked_length(unsafe { abi::copy(from.as_ptr(), from.len(), to.as_ptr(), to.len()) })?;
    Ok(len as u64)
}
