//! Types that no kernel can take.

use hostcall_device::{Lane, Shared, kernel};

#[kernel]
fn option(_: &Lane, _number: Option<u32>) {}

#[kernel]
fn letters(_: &Lane, _letters: &[char]) {}

#[kernel]
fn text(_: &Lane, _text: &str) {}

#[kernel]
fn flags(_: &Lane, _flags: &[bool]) {}

#[kernel]
fn kept(_: &Lane, _value: Option<&'static u32>) {}

#[kernel]
fn unmarked(_: &Lane, _cells: &[Shared<u32>; 4]) {}

#[kernel(instances(of_flags = <bool>, of_numbers = <u32>))]
fn generic<T>(_: &Lane, _values: &[T]) {}

#[kernel(instances(kept_slice = <&'static [u32]>))]
fn kept_generic<T>(_: &Lane, _values: T) {}

#[kernel(instances(unbounded = <u64>))]
fn needs_copy<T: Iterator>(_: &Lane, _value: T) {}

#[kernel]
fn no_lane(_lane: &u32) {}

fn main() {}
