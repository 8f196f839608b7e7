//! One call with words only: the path that must be short.

#![no_std]

use hostcall_device::Lane;
use hostcall_device::abi::service::Method;
use hostcall_device::call::{CallOptions, call};

const METHOD: Method = Method::untyped("SmallCall::add", 300);

#[hostcall_device::main]
fn main(lane: &Lane) -> i32 {
    call::<u64, u64>(&METHOD, CallOptions::DEFAULT, &u64::from(lane.index())).map_or(1, |reply| reply as i32)
}
