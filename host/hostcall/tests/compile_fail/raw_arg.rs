//! A raw argument is made by whoever vouches for it (S2).
use hostcall::device::RawArg;
use hostcall::hostcall_device::kernel::Slice;
use std::sync::Arc;

fn main() {
    let raw = hostcall::hostcall_device::abi::launch::RawSlice { address: 8, len: 1 << 40 };
    let _ = RawArg::<Slice<u64>>::new(raw, Arc::new(()));
}
