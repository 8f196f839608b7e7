//! Random bytes, of the host's system.

use crate::sys::pal::{abi, checked};

pub fn fill_bytes(bytes: &mut [u8]) {
    // SAFETY: the bytes are this function's until the call returns.
    checked(unsafe { abi::random(bytes.as_mut_ptr(), bytes.len()) }).expect("the host gives random bytes");
}
