//! Nobody else implements the trait whose values are addresses (S2).
use hostcall::device::{Arguments, Error, IntoArg};
use hostcall::hostcall_device::kernel::Slice;

struct Forged(u64);

impl IntoArg<Slice<u64>> for Forged {}

struct Block;

impl Arguments<(Slice<u64>,)> for Block {}

fn main() {
    let _: Option<Error> = None;
}
