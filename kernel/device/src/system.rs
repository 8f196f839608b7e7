//! The system service: what kernels and programs tell the host about themselves. The host implements
//! [`SystemHandler`].
//!
//! A printed line is no call of this service: one of at most five words is a post with the number
//! [`hostcall_abi::service::number::PRINT`] and the format's id in its extra bits, any other is some posts with
//! the number [`hostcall_abi::service::number::LINE`].

use hostcall_abi::service::number;
use hostcall_macros::service;

/// Panics, exit codes and printed lines.
#[service(number = number::SYSTEM, internal, rare)]
pub trait System {
    /// Reports the panic of lane `lane` (its index in the workgroup) of workgroup (`x`, `y`, `z`).
    fn panic(x: u32, y: u32, z: u32, lane: u32, line: u32, column: u32, message: &str, file: &str);

    /// Ends the program with this exit code, all lanes of it.
    fn exit(code: i32);

    /// Gives the id, 1 to 2²⁴ − 1, by which lines of a format are printed to stream 1 (stdout) or 2
    /// (stderr). Equal formats get equal ids. The format's text, of so many bytes, was posted by the lane that has this name
    /// ([`hostcall_abi::service::number::TEXT`]). `tags` are the arguments' types as
    /// `hostcall_format::tags` has them, or 0 for a format whose lines come with them.
    fn register_format(lane: u64, tags: u64, stream: u32, text_bytes: u64) -> u32;

    /// Says that this lane's `main` returned a code other than 0; the other lanes go on. The program's code is
    /// the first that any lane returned.
    fn main_returned(code: i32);

    /// Says that a line for stream 1 (stdout) or 2 (stderr) is lost, because this is too much for one
    /// (`hostcall_format::unformatted::MOST_LINE_BYTES`).
    fn line_too_long(stream: u32, bytes: u64);
}
