//! Files of the host that a kernel reads and writes in place.

use crate::fs::Handle;
use crate::io::{Error, Result};
use crate::lane::Lane;
use crate::pull::pull_mapped;
use crate::services::Files;
use core::marker::PhantomData;
use hostcall_channel::device::{load_mapped, read_mapped, write_mapped};

/// A file of the host, mapped: what is read of it comes from the system's own memory of the file, without a
/// call, where system and driver allow that ([`Map::is_in_place`]). Elsewhere each read and write is a call,
/// as [`Handle::read_at`] and [`Handle::write_at`] make them.
///
/// Lanes of the launch may use a mapping together. It ends when it is dropped, or with its launch.
///
/// # Files that others change
/// A mapping has as many bytes as the file had when it was made. Another lane, process or handle may write to
/// the file meanwhile: a read then finds old bytes, new ones, or some of both. Where a file was cut, reads
/// past its new end find zeros (on the software device) or what was there before (on a GPU), and writes there
/// are lost; or, where the mapping is not in place, reads fail with [`Error::UnexpectedEnd`], and writes
/// lengthen the file.
#[derive(Debug)]
pub struct Map<'launch> {
    file: Handle,
    mapping: u64,
    /// Where the device reaches the content, or 0.
    address: u64,
    len: u64,
    writable: bool,
    // The host ends the mapping with the launch.
    launch: PhantomData<&'launch Lane>,
}

impl Handle {
    /// Maps the file for reading.
    ///
    /// # Errors
    /// As for all methods of a handle; [`Error::PermissionDenied`] when the file was not opened for reading.
    pub fn map(self, _lane: &Lane) -> Result<Map<'_>> {
        Map::new(self, false)
    }

    /// Maps the file, which was opened for reading and writing, for both.
    ///
    /// # Errors
    /// As for [`Handle::map`].
    pub fn map_mut(self, _lane: &Lane) -> Result<Map<'_>> {
        Map::new(self, true)
    }
}

#[allow(
    clippy::len_without_is_empty,
    reason = "`is_empty` of what has a length when it was made says little"
)]
impl Map<'_> {
    fn new(file: Handle, writable: bool) -> Result<Self> {
        let (mapping, address, len) = Files::map(file.number(), writable)?;
        Ok(Self { file, mapping, address, len, writable, launch: PhantomData })
    }

    /// Bytes that the file had when it was mapped.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether reads and writes are loads and stores, and no calls.
    pub fn is_in_place(&self) -> bool {
        self.address != 0
    }

    /// How many of `len` bytes from `offset` on the mapping has.
    fn within(&self, offset: u64, len: usize) -> usize {
        usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(len)
    }

    /// Reads 8 bytes from 8 × `index` on, the lowest first. Where lanes of a wave read words side by side,
    /// they travel together.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`] past the last whole word; as for [`Map::read_at`].
    #[inline]
    pub fn word(&self, index: u64) -> Result<u64> {
        if index >= self.len / 8 {
            return Err(Error::UnexpectedEnd);
        }
        if self.is_in_place() {
            // SAFETY: MAPPED: the word lies within the mapping, which the host keeps for the launch.
            return Ok(unsafe { load_mapped(self.address + 8 * index) });
        }
        let mut word = [0; 8];
        self.read_at(8 * index, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Reads from byte `offset` on and returns how many bytes were read: as many as `buffer` has, unless the
    /// mapping ends before.
    ///
    /// # Errors
    /// Where the mapping is not in place, those of [`Handle::read_at`] and [`Error::UnexpectedEnd`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let len = self.within(offset, buffer.len());
        if len == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..len];
        if self.is_in_place() {
            let from = self.address + offset;
            // SAFETY: MAPPED: the bytes lie within the mapping, which the host keeps for the launch.
            unsafe {
                let pulled = pull_mapped(from, buffer);
                read_mapped(from + pulled as u64, &mut buffer[pulled..]);
            }
            return Ok(len);
        }
        let mut read = 0;
        while read < len {
            match self.file.read_at(offset + read as u64, &mut buffer[read..])? {
                0 => return Err(Error::UnexpectedEnd),
                more => read += more,
            }
        }
        Ok(len)
    }

    /// Writes from byte `offset` on and returns how many bytes were written: all, unless the mapping ends
    /// before. Others see them when the host's system does.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`] of a mapping for reading; where it is not in place, those of
    /// [`Handle::write_at`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        if !self.writable {
            return Err(Error::PermissionDenied);
        }
        let data = &data[..self.within(offset, data.len())];
        if data.is_empty() {
            return Ok(0);
        }
        if self.is_in_place() {
            // SAFETY: MAPPED: as in `read_at`, and the mapping is writable.
            unsafe { write_mapped(self.address + offset, data) };
            return Ok(data.len());
        }
        let mut written = 0;
        while written < data.len() {
            match self.file.write_at(offset + written as u64, &data[written..])? {
                0 => return Err(Error::UnexpectedEnd),
                more => written += more,
            }
        }
        Ok(written)
    }
}

impl Drop for Map<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told; the host ends it with the launch in any case.
        let _ = Files::unmap(self.mapping);
    }
}
