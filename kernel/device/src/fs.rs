//! Files of the host, below the directory that it opened to kernels. A path is text, or bytes, as the host's system has
//! them. Functions have the names that they have in `std::fs`, but for [`remove`] of a file; where these give back text or a
//! list, kernels without a heap pass a buffer ([`read_dir_into`], [`canonicalize`]). Nothing makes links here.
//!
//! A [`File`] closes when it is dropped. Its [`Handle`] may be copied to other lanes, which then use the file
//! together: with [`Handle::read_at`] and [`Handle::write_at`] they do not depend on each other.
//!
//! A launch that panics, faults, is cancelled or exits has its open files closed when it ends. One that ends well may leave
//! a handle to later launches, in a `static`: what it neither drops nor closes stays open.
//!
//! ```
//! use hostcall_device::fs::File;
//! use hostcall_device::{Lane, io};
//!
//! /// Each lane reads a block of its own of one file that all share.
//! fn block(lane: &Lane, block: &mut [u8; 512]) -> io::Result<()> {
//!     let handle = lane.once_per_workgroup(|| File::open("data").map(File::into_handle))?;
//!     handle.read_at(lane.local_id() as u64 * 512, block)?;
//!     Ok(())
//! }
//! ```

mod folders;

use crate::services::{Files, open_flags};
use core::ops::Deref;
use hostcall_abi::schema;
use hostcall_abi::wire::Wire;

pub use crate::io::{Error, Result};
pub use crate::map::Map;
pub use folders::*;

/// Bytes that one call writes at most: less than any server takes in a message unless it is told otherwise.
const MAX_WRITE_BYTES: usize = 16 << 20;

/// Where [`Handle::seek`] moves a file's position to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// So many bytes after the start.
    Start(u64),
    /// So many bytes after the end.
    End(i64),
    /// So many bytes after the position.
    Current(i64),
}

/// An open file, as any lane of its device may use it: to other devices it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Wire for Handle {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("fs::Handle");
    fn to_words(&self, words: &mut [u64]) {
        words[0] = self.0;
    }
    fn from_words(words: &[u64]) -> Option<Self> {
        Some(Self(words[0]))
    }
}

/// All methods fail with [`Error::Closed`] once the file was closed, and with what the host reports.
#[allow(clippy::len_without_is_empty, reason = "a length that is asked for is no property")]
impl Handle {
    /// The number by which the host knows the file.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Reads from the file's position on, which moves, and returns how many bytes were read: 0 at the end.
    ///
    /// # Errors
    /// See above.
    pub fn read(self, buffer: &mut [u8]) -> Result<usize> {
        Ok(Files::read(self.0, buffer)?.1)
    }

    /// Reads from byte `offset` on and returns how many bytes were read: 0 at the end. The file's position
    /// stays.
    ///
    /// # Errors
    /// See above.
    pub fn read_at(self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(Files::read_at(self.0, offset, buffer)?.1)
    }

    /// Fills `buffer` from the file's position on.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`]; see above.
    pub fn read_exact(self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(Error::UnexpectedEnd),
                len => buffer = &mut buffer[len..],
            }
        }
        Ok(())
    }

    /// Writes at the file's position, which moves, and returns how many bytes were written, less than all at
    /// times.
    ///
    /// # Errors
    /// See above.
    pub fn write(self, data: &[u8]) -> Result<usize> {
        Ok(Files::write(self.0, &data[..data.len().min(MAX_WRITE_BYTES)])? as usize)
    }

    /// Writes at byte `offset` and returns how many bytes were written, less than all at times. The file's
    /// position stays.
    ///
    /// # Errors
    /// See above.
    pub fn write_at(self, offset: u64, data: &[u8]) -> Result<usize> {
        Ok(Files::write_at(self.0, offset, &data[..data.len().min(MAX_WRITE_BYTES)])? as usize)
    }

    /// Writes all of `data` at the file's position.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`]; see above.
    pub fn write_all(self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            match self.write(data)? {
                0 => return Err(Error::UnexpectedEnd),
                len => data = data.get(len..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Moves the file's position and returns it.
    ///
    /// # Errors
    /// See above.
    pub fn seek(self, to: SeekFrom) -> Result<u64> {
        let (whence, offset) = match to {
            SeekFrom::Start(offset) => (0, i64::try_from(offset).map_err(|_| Error::InvalidInput)?),
            SeekFrom::Current(offset) => (1, offset),
            SeekFrom::End(offset) => (2, offset),
        };
        Ok(Files::seek(self.0, whence, offset)?)
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// See above.
    pub fn len(self) -> Result<u64> {
        Ok(Files::len(self.0)?)
    }

    /// Cuts the file to `len` bytes, or lengthens it with zeros.
    ///
    /// # Errors
    /// See above.
    pub fn set_len(self, len: u64) -> Result<()> {
        Ok(Files::set_len(self.0, len)?)
    }

    /// Waits until the file's content has reached the host's disk.
    ///
    /// # Errors
    /// See above.
    pub fn sync(self) -> Result<()> {
        Ok(Files::sync(self.0)?)
    }

    /// Closes the file for every lane.
    ///
    /// # Errors
    /// See above.
    pub fn close(self) -> Result<()> {
        Ok(Files::close(self.0)?)
    }

    /// Appends the rest of the file to `buffer`.
    ///
    /// # Errors
    /// See above.
    #[cfg(feature = "alloc")]
    pub fn read_to_end(self, buffer: &mut alloc::vec::Vec<u8>) -> Result<()> {
        crate::io::read_to_end(buffer, |room| self.read(room))
    }
}

/// An open file that closes when it is dropped. It has the methods of its [`Handle`].
#[derive(Debug)]
pub struct File(Handle);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::OutsideDir`], [`Error::NoDir`], and what else the host reports.
    pub fn open(path: impl AsRef<[u8]>) -> Result<Self> {
        OpenOptions::new().read().open(path)
    }

    /// Makes a file, or cuts it to nothing, for writing.
    ///
    /// # Errors
    /// [`Error::OutsideDir`], and what else the host reports.
    pub fn create(path: impl AsRef<[u8]>) -> Result<Self> {
        OpenOptions::new().write().create().truncate().open(path)
    }

    /// The handle, for lanes to share. The file stays open until [`Handle::close`], until the launch that opened it ends
    /// early, or until the host closes the device.
    pub fn into_handle(self) -> Handle {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Deref for File {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Nobody is left to be told: who wants to know closes the handle.
        let _ = self.0.close();
    }
}

/// How to open a file; as `std::fs::OpenOptions`, but each method only turns its option on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions(u32);

impl OpenOptions {
    /// Nothing turned on.
    pub const fn new() -> Self {
        Self(0)
    }

    /// For reading.
    pub const fn read(self) -> Self {
        Self(self.0 | open_flags::READ)
    }

    /// For writing.
    pub const fn write(self) -> Self {
        Self(self.0 | open_flags::WRITE)
    }

    /// For writing at the end, wherever other writes have moved it.
    pub const fn append(self) -> Self {
        Self(self.0 | open_flags::APPEND)
    }

    /// Cuts the file to nothing.
    pub const fn truncate(self) -> Self {
        Self(self.0 | open_flags::TRUNCATE)
    }

    /// Makes the file when it is not there.
    pub const fn create(self) -> Self {
        Self(self.0 | open_flags::CREATE)
    }

    /// Makes the file, or fails with [`Error::AlreadyExists`].
    pub const fn create_new(self) -> Self {
        Self(self.0 | open_flags::CREATE_NEW)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::OutsideDir`], [`Error::TooManyOpen`], and what else the host reports.
    pub fn open(self, path: impl AsRef<[u8]>) -> Result<File> {
        Ok(File(Handle(Files::open(path.as_ref(), self.0)?)))
    }
}

/// Removes a file.
///
/// # Errors
/// [`Error::NotFound`], [`Error::OutsideDir`], and what else the host reports.
pub fn remove(path: impl AsRef<[u8]>) -> Result<()> {
    Ok(Files::remove(path.as_ref())?)
}

/// Renames a file or directory, in place of what has the new name.
///
/// # Errors
/// As for [`remove`].
pub fn rename(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
    Ok(Files::rename(from.as_ref(), to.as_ref())?)
}

/// Makes a directory.
///
/// # Errors
/// [`Error::AlreadyExists`]; as for [`remove`].
pub fn create_dir(path: impl AsRef<[u8]>) -> Result<()> {
    Ok(Files::create_dir(path.as_ref())?)
}

/// Removes an empty directory.
///
/// # Errors
/// As for [`remove`].
pub fn remove_dir(path: impl AsRef<[u8]>) -> Result<()> {
    Ok(Files::remove_dir(path.as_ref())?)
}

/// Writes a file anew.
///
/// # Errors
/// As for [`File::create`] and [`Handle::write_all`].
pub fn write(path: impl AsRef<[u8]>, data: &[u8]) -> Result<()> {
    File::create(path)?.write_all(data)
}

/// The content of a file.
///
/// # Errors
/// As for [`File::open`] and [`Handle::read`].
#[cfg(feature = "alloc")]
pub fn read(path: impl AsRef<[u8]>) -> Result<alloc::vec::Vec<u8>> {
    let mut data = alloc::vec::Vec::new();
    File::open(path)?.read_to_end(&mut data)?;
    Ok(data)
}

/// The content of a file that is text.
///
/// # Errors
/// [`Error::NotUtf8`]; as for [`read`].
#[cfg(feature = "alloc")]
pub fn read_to_string(path: impl AsRef<[u8]>) -> Result<alloc::string::String> {
    alloc::string::String::from_utf8(read(path)?).map_err(|_| Error::NotUtf8)
}
