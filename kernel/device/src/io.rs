//! The standard streams as bytes.

use crate::services::{Stdin as StdinService, Stdout};
use hostcall_abi::service::number;

pub use hostcall_abi::io::Error;

/// Result of an operation on a file or stream.
pub type Result<T> = core::result::Result<T, Error>;

/// The program's standard input.
#[derive(Clone, Copy, Debug)]
pub struct Stdin(());

/// The program's standard input, which all lanes share.
pub const fn stdin() -> Stdin {
    Stdin(())
}

impl Stdin {
    /// Reads what is there, waiting for at least one byte. 0 bytes mean the end of the input.
    ///
    /// # Errors
    /// What the host reports.
    pub fn read(self, buffer: &mut [u8]) -> Result<usize> {
        Ok(StdinService::read(buffer)?.1)
    }

    /// Reads to the end of the line, `\n` included, or as much of it as fits `buffer`; the rest comes with the
    /// next read. An empty text means the end of the input.
    ///
    /// # Errors
    /// [`Error::NotUtf8`], and what the host reports.
    pub fn read_line(self, buffer: &mut [u8]) -> Result<&str> {
        let ((), len) = StdinService::read_line(buffer)?;
        core::str::from_utf8(&buffer[..len]).map_err(|_| Error::NotUtf8)
    }

    /// Appends the rest of the input to `buffer`.
    ///
    /// # Errors
    /// What the host reports.
    #[cfg(feature = "alloc")]
    pub fn read_to_end(self, buffer: &mut alloc::vec::Vec<u8>) -> Result<()> {
        read_to_end(buffer, |room| self.read(room))
    }
}

/// Appends to `buffer` until `read` gives nothing more.
#[cfg(feature = "alloc")]
pub(crate) fn read_to_end(
    buffer: &mut alloc::vec::Vec<u8>,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
) -> Result<()> {
    let mut len = buffer.len();
    let result = loop {
        if buffer.len() < len + 1024 {
            buffer.resize((2 * len).max(4096), 0);
        }
        match read(&mut buffer[len..]) {
            Ok(0) => break Ok(()),
            Ok(more) => len += more,
            Err(error) => break Err(error),
        }
    };
    buffer.truncate(len);
    result
}

/// A standard output, for bytes; `print!` and its like are for text.
#[derive(Clone, Copy, Debug)]
pub struct Output(u32);

/// The program's standard output, which all lanes share.
pub const fn stdout() -> Output {
    Output(1)
}

/// The program's standard error, which all lanes share.
pub const fn stderr() -> Output {
    Output(2)
}

impl Output {
    /// Appends all of `data`, not mixed with what other lanes write.
    ///
    /// # Errors
    /// What the host reports: also that nobody reads the output any more. What was printed or written before may have failed
    /// to be written meanwhile, which is told here too.
    pub fn write(self, data: &[u8]) -> Result<()> {
        Ok(Stdout::write(self.0, data)?)
    }

    /// Waits until everything that this lane wrote or printed before has left the host's process.
    ///
    /// # Errors
    /// What the host reports.
    pub fn flush(self) -> Result<()> {
        Ok(Stdout::flush()?)
    }
}

// Both are part of the family that `number::FILES` begins.
const _: () = assert!(Stdout::METHODS[0].number() < number::ENVIRONMENT);
