//! Has a kernel but nothing to run.

#![no_std]

use hostcall_device::{Lane, kernel};

#[kernel]
pub fn idle(_lane: &Lane) {}
