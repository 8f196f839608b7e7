use hostcall_abi::service::number;
use hostcall_macros::service;

/// The standard input. Fails with the codes of [`crate::io::Error`].
#[service(number = number::FILES + 16, internal)]
pub trait Stdin {
    /// Reads what is there, waiting for at least one byte. Nothing comes at the end of the input.
    fn read(out: &mut [u8]);
    /// Reads to the end of the line, `\n` included, or as much of it as fits.
    fn read_line(out: &mut [u8]);
}

/// The standard outputs, as bytes.
#[service(number = number::FILES + 20, internal)]
pub trait Stdout {
    /// Appends to stream 1 (stdout) or 2 (stderr), all or nothing.
    fn write(stream: u32, data: &[u8]);
    /// Waits until what was written to both streams before has left the host process.
    fn flush();
}
