//! The program's arguments, which the host gives one by one.

pub use super::common::Args;
use crate::ffi::OsString;
use crate::sys::pal::{abi, whole};

pub fn args() -> Args {
    let argument = |index| {
        whole(|room| {
            // SAFETY: the room is this function's until the call returns.
            usize::try_from(unsafe { abi::arg(index, room.as_mut_ptr(), room.len()) })
        })
        .ok()
        // SAFETY: the strings of this platform are any bytes.
        .map(|bytes| unsafe { OsString::from_encoded_bytes_unchecked(bytes) })
    };
    Args::new((0..).map_while(argument).collect())
}
