//! What `#[kernel]` and `#[main]` make for the software device.

use hostcall_device::abi::launch::{KernelInfo, RawSlice};
use hostcall_device::abi::{ABI_VERSION, cpu, layout};
use hostcall_device::kernel::{Kernel, Ref, Slice};
use hostcall_device::{Global, Lane, kernel, main};
use std::sync::atomic::AtomicU32;

const TILE_BYTES: u64 = 1 << 10;

/// Copies what `keys` says.
#[kernel(workgroup_memory = 4 * TILE_BYTES)]
pub fn gather(lane: &Lane, keys: &[u64], factor: f32, count: &AtomicU32, out: &[Global<u64>]) {
    let _ = (lane, factor, count);
    for (key, out) in keys.iter().zip(out) {
        out.set(*key);
    }
}

#[kernel(name = "plain_1")]
fn plain(_: &Lane) {}

#[main(workgroups = 3, lanes = 64)]
fn program(_lane: &Lane) -> i32 {
    0
}

#[test]
fn a_kernel_has_its_types_and_info() {
    #[allow(clippy::type_complexity)] // it is what the test is about
    let typed: Kernel<(Slice<u64>, f32, Ref<AtomicU32>, Slice<Global<u64>>)> = gather;
    assert_eq!(typed.name, "gather");
    let info = typed.info;
    assert_eq!((info.magic, info.abi_version), (layout::MAGIC, u64::from(ABI_VERSION)));
    assert_eq!((info.default_workgroups, info.default_lanes), (0, 0));
    assert_eq!(info.workgroup_memory_bytes, 4096);
    #[repr(C)]
    struct Arguments(RawSlice, f32, u64, RawSlice);
    assert_eq!(info.argument_bytes, size_of::<Arguments>() as u64);
    assert_ne!(info.schema, plain.info.schema);
    assert_eq!((plain.name, plain.info.argument_bytes), ("plain_1", 0));
}

#[test]
fn main_carries_its_grid() {
    assert_eq!(program.name, hostcall_device::abi::launch::MAIN_KERNEL);
    assert_eq!((program.info.default_workgroups, program.info.default_lanes), (3, 64));
}

#[test]
fn entries_and_infos_are_exported() {
    // SAFETY: the statics that the macros export under these names have this type.
    unsafe extern "C" {
        safe static hostcall_kernel_info_gather: KernelInfo;
        safe static hostcall_kernel_info_main: KernelInfo;
        safe static hostcall_kernel_info_plain_1: KernelInfo;
        fn hostcall_kernel_gather(lane: *mut cpu::CpuLane, arguments: *const u8) -> u32;
    }
    assert_eq!(hostcall_kernel_info_gather, gather.info);
    assert_eq!(hostcall_kernel_info_main, program.info);
    assert_eq!(hostcall_kernel_info_plain_1, plain.info);
    assert!(std::ptr::fn_addr_eq(gather.entry, hostcall_kernel_gather as cpu::Entry));
}
