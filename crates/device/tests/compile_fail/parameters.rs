//! Types that no kernel can take.

use hostcall_device::{Lane, kernel};

#[kernel]
fn option(_: &Lane, _number: Option<u32>) {}

#[kernel]
fn letters(_: &Lane, _letters: &[char]) {}

#[kernel]
fn text(_: &Lane, _text: &str) {}

#[kernel]
fn flags(_: &Lane, _flags: &[bool]) {}

fn main() {}
