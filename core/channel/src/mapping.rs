//! Files of the host that kernels read and write in place.

use crate::Block;
use std::fs::File;

/// Where files are mapped for a device. It is called from the server's threads, so it must not wait for
/// kernels.
///
/// # Safety
/// Promises of each [`Block`] that it returns, as long as [`Block::memory`] lives: [`Block::address`] is that
/// of a page from which on kernels of the device reach the file's first `len` bytes, in whole pages, to read
/// and, if it is `writable`, to write them by words and bytes. They do so without faults also when the file
/// is cut meanwhile; what they read past its new end does not matter.
pub unsafe trait FileMapper: Send + Sync + 'static {
    /// Maps a file of `len` bytes, which is not 0. `None` when the device cannot reach it.
    fn map(&self, file: &File, len: u64, writable: bool) -> Option<Block>;
}
