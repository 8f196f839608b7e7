//! The standard streams, which the host has.

use crate::io::{self, BorrowedCursor, IoSlice};
use crate::sys::pal::{abi, checked, checked_length};

pub struct Stdin;

impl Stdin {
    pub const fn new() -> Self {
        Self
    }
}

impl io::Read for Stdin {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the room is this function's until the call returns.
        checked_length(unsafe { abi::read(room.as_mut_ptr(), room.len()) })
    }

    fn read_buf(&mut self, cursor: BorrowedCursor<'_>) -> io::Result<()> {
        io::default_read_buf(|room| self.read(room), cursor)
    }
}

/// Bytes of one call at most: less than any server takes in a message.
const MOST: usize = 1 << 20;

/// An output of this number.
pub struct Output<const STREAM: u32>;

pub type Stdout = Output<1>;
pub type Stderr = Output<2>;

impl<const STREAM: u32> Output<STREAM> {
    pub const fn new() -> Self {
        Self
    }
}

impl<const STREAM: u32> io::Write for Output<STREAM> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = data.len().min(MOST);
        // SAFETY: the data is the caller's until the call returns.
        checked(unsafe { abi::write(STREAM, data.as_ptr(), len) })?;
        Ok(len)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        io::default_write_vectored(|data| self.write(data), data)
    }

    fn flush(&mut self) -> io::Result<()> {
        // SAFETY: it may be called at any time.
        checked(unsafe { abi::flush() })
    }
}

pub const STDIN_BUF_SIZE: usize = crate::sys::io::DEFAULT_BUF_SIZE;

/// Whether a stream is closed, of which there is none: the host has all three.
pub fn is_ebadf(_error: &io::Error) -> bool {
    false
}

pub fn panic_output() -> Option<impl io::Write> {
    Some(Stderr::new())
}
