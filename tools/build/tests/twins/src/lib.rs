//! Kernels with the same code, which no compiler may make one of.

#![no_std]

use hostcall_device::{Global, Lane, kernel};

/// Stores 7.
#[kernel]
pub fn first(_: &Lane, x: &Global<u32>) {
    x.set(7);
}

/// Stores 7 too.
#[kernel]
pub fn second(_: &Lane, x: &Global<u32>) {
    x.set(7);
}
