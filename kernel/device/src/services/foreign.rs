use hostcall_abi::service::number;
use hostcall_macros::service;

/// What kernels print and check that other compilers made, by `hostcall_device.h`.
#[service(number = number::FOREIGN, internal)]
pub trait Foreign {
    /// Prints to stream 1 (stdout) or 2 (stderr) what a format of C's makes of its arguments: a word for each, or of a text its
    /// bytes in whole words, which a zero byte ends. Returns how many bytes that is.
    fn print(stream: u32, format: &[u8], arguments: &[u8]) -> u64;
    /// Tells of a check that the host has given a number: bits 0 to 31 of `place` are that, then come 10 bits each of the
    /// thread's x, y and z. `block` has 32, 16 and 16 bits: of larger grids the upper bits are not told.
    fn numbered_check_failed(place: u64, block: u64);
}
