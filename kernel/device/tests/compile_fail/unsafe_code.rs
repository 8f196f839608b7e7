//! A package that wants no unsafe code has none in its kernels either.

#![deny(unsafe_code)]

use hostcall_device::{Lane, kernel};

#[kernel]
fn nowhere(_: &Lane) {
    unsafe { std::hint::unreachable_unchecked() }
}

fn main() {}
