//! Does not compile.

#![no_std]

#[hostcall_device::main]
fn main() -> i32 {
    "no number"
}
