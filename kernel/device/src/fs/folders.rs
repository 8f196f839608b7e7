//! Folders, and what the host says of files.

use super::Handle;
use crate::io::{Error, Result};
use crate::services::{ENTRY_HEAD_BYTES, Folders, file_kinds};
use hostcall_abi::CallError;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileType {
    /// A file with content.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

impl FileType {
    fn new(kind: u32) -> Self {
        match kind {
            file_kinds::FILE => Self::File,
            file_kinds::DIR => Self::Dir,
            file_kinds::SYMLINK => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// What the host says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    file_type: FileType,
    len: u64,
    mode: u32,
    modified_ns: i64,
}

#[allow(clippy::len_without_is_empty, reason = "`std`'s has none")]
impl Metadata {
    fn new((kind, len, mode, modified_ns): (u32, u64, u32, i64)) -> Self {
        Self { file_type: FileType::new(kind), len, mode, modified_ns }
    }

    /// What it is.
    pub const fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Whether it is a file with content.
    pub const fn is_file(&self) -> bool {
        matches!(self.file_type, FileType::File)
    }

    /// Whether it is a folder.
    pub const fn is_dir(&self) -> bool {
        matches!(self.file_type, FileType::Dir)
    }

    /// Whether it is a symbolic link, which only [`symlink_metadata`] tells of.
    pub const fn is_symlink(&self) -> bool {
        matches!(self.file_type, FileType::Symlink)
    }

    /// Bytes in the file.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Who may do what with it: the last twelve bits of the mode, `0o644`.
    pub const fn mode(&self) -> u32 {
        self.mode
    }

    /// When it was modified, in nanoseconds since 1970.
    pub const fn modified_ns(&self) -> i64 {
        self.modified_ns
    }
}

impl Handle {
    /// What the host says of the file.
    ///
    /// # Errors
    /// See above.
    pub fn metadata(self) -> Result<Metadata> {
        Ok(Metadata::new(Folders::metadata_of_file(self.0)?))
    }
}

/// What the host says of a file or folder; of what a symbolic link leads to.
///
/// # Errors
/// As for [`super::remove`].
pub fn metadata(path: impl AsRef<[u8]>) -> Result<Metadata> {
    Ok(Metadata::new(Folders::metadata(path.as_ref(), true)?))
}

/// What the host says of a file or folder, or of a symbolic link itself.
///
/// # Errors
/// As for [`super::remove`].
pub fn symlink_metadata(path: impl AsRef<[u8]>) -> Result<Metadata> {
    Ok(Metadata::new(Folders::metadata(path.as_ref(), false)?))
}

/// Whether a path leads to something.
///
/// # Errors
/// When that cannot be said: [`Error::OutsideDir`], [`Error::NoDir`], and what else the host reports.
pub fn exists(path: impl AsRef<[u8]>) -> Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(Error::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets who may do what with a file: the last twelve bits of its mode, `0o644`.
///
/// # Errors
/// As for [`super::remove`].
pub fn set_permissions(path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    Ok(Folders::set_permissions(path.as_ref(), mode)?)
}

/// Makes a folder, and those above it that are not there.
///
/// # Errors
/// As for [`super::create_dir`], but not where the folder is there already.
pub fn create_dir_all(path: impl AsRef<[u8]>) -> Result<()> {
    Ok(Folders::create_dir_all(path.as_ref())?)
}

/// Removes a folder with all that is in it. Links in it are removed, and not what they lead to.
///
/// # Errors
/// As for [`super::remove`].
pub fn remove_dir_all(path: impl AsRef<[u8]>) -> Result<()> {
    Ok(Folders::remove_dir_all(path.as_ref())?)
}

/// Copies a file's content and permissions, in place of what has the new name, and returns how many bytes it has.
///
/// # Errors
/// As for [`super::remove`].
pub fn copy(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<u64> {
    Ok(Folders::copy(from.as_ref(), to.as_ref())?)
}

/// A path without links, `.` and `..`, in `buffer`: relative to the folder that the host opened to kernels, unless that is
/// `/`.
///
/// # Errors
/// [`CallError::TooLarge`] as [`Error::Call`] when it does not fit; as for [`super::remove`].
pub fn canonicalize(path: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<&[u8]> {
    let filled = Folders::canonicalize(path.as_ref(), buffer)?;
    whole(filled, buffer)
}

/// The entries of a folder in the order of their names, read into `buffer`. With the heap, [`read_dir`] needs none.
///
/// ```
/// use hostcall_device::{fs, io, println};
///
/// fn list() -> io::Result<()> {
///     let mut buffer = [0; 4096];
///     for entry in fs::read_dir_into("data", &mut buffer)? {
///         println!("{:?}: {}", entry.file_type(), core::str::from_utf8(entry.name()).unwrap_or("?"));
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`CallError::TooLarge`] as [`Error::Call`] when they do not fit; as for [`super::remove`].
pub fn read_dir_into(path: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Entries<'_>> {
    let filled = Folders::entries(path.as_ref(), buffer)?;
    Ok(Entries { left: whole(filled, buffer)? })
}

/// What the host filled, if `buffer` has all of it.
fn whole((len, filled): (u64, usize), buffer: &[u8]) -> Result<&[u8]> {
    if len != filled as u64 {
        return Err(Error::Call(CallError::TooLarge));
    }
    Ok(&buffer[..filled])
}

/// A folder's entries, each once, without `.` and `..`.
#[derive(Clone, Debug)]
pub struct Entries<'b> {
    left: &'b [u8],
}

/// An entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'b> {
    file_type: FileType,
    name: &'b [u8],
}

impl<'b> Entry<'b> {
    /// What it is; a symbolic link is one.
    pub const fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Its name in the folder.
    pub const fn name(&self) -> &'b [u8] {
        self.name
    }
}

impl<'b> Iterator for Entries<'b> {
    type Item = Entry<'b>;

    fn next(&mut self) -> Option<Entry<'b>> {
        let ([kind, low, high], rest) = self.left.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        let (name, left) = rest.split_at_checked(len)?;
        self.left = left;
        Some(Entry { file_type: FileType::new((*kind).into()), name })
    }
}

#[cfg(feature = "alloc")]
mod owned {
    use super::*;
    use alloc::{vec, vec::Vec};

    /// The entries of a folder, as they were at one moment.
    #[derive(Clone, Debug)]
    pub struct ReadDir {
        bytes: Vec<u8>,
    }

    impl ReadDir {
        /// The entries in the order of their names.
        pub fn entries(&self) -> Entries<'_> {
            Entries { left: &self.bytes }
        }
    }

    impl<'d> IntoIterator for &'d ReadDir {
        type Item = Entry<'d>;
        type IntoIter = Entries<'d>;

        fn into_iter(self) -> Entries<'d> {
            self.entries()
        }
    }

    /// Reads the entries of a folder: `for entry in &fs::read_dir("data")?`.
    ///
    /// # Errors
    /// As for [`crate::fs::remove`].
    pub fn read_dir(path: impl AsRef<[u8]>) -> Result<ReadDir> {
        let mut bytes = vec![0; 1024];
        loop {
            let (len, filled) = Folders::entries(path.as_ref(), &mut bytes)?;
            if len == filled as u64 {
                bytes.truncate(filled);
                return Ok(ReadDir { bytes });
            }
            // Some more may come until the host looks again.
            bytes.resize(len as usize + 1024, 0);
        }
    }
}

#[cfg(feature = "alloc")]
pub use owned::{ReadDir, read_dir};
