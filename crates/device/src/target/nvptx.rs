//! NVIDIA: special registers, warp operations as LLVM intrinsics (which are convergent; `asm!` is not and can
//! be hoisted out of a branch), and the launch's parameters at the start of dynamic shared memory.

use core::arch::{asm, global_asm};
use hostcall_abi::launch::LaunchParams;

global_asm!(".extern .shared .align 64 .b8 hostcall_shared[];");

/// Bytes of dynamic shared memory before the workgroup's memory: the launch's parameters.
const PARAMS_BYTES: usize = 128;
const _: () = assert!(size_of::<LaunchParams>() <= PARAMS_BYTES);

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.activemask"]
    fn llvm_activemask() -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn llvm_ballot(mask: u32, yes: bool) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_shuffle(mask: u32, value: u32, from: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn llvm_block_sync(barrier: u32);
    #[link_name = "llvm.nvvm.nanosleep"]
    fn llvm_nanosleep(ns: u32);
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    safe fn llvm_lane() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    safe fn llvm_tid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.y"]
    safe fn llvm_tid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.z"]
    safe fn llvm_tid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    safe fn llvm_ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.x"]
    safe fn llvm_nctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clock64"]
    safe fn llvm_clock() -> u64;
    #[link_name = "llvm.nvvm.read.ptx.sreg.globaltimer"]
    safe fn llvm_globaltimer() -> u64;
}

#[inline(always)]
fn shared() -> *mut u8 {
    let shared: *mut u8;
    // SAFETY: takes an address, touches nothing.
    unsafe {
        asm!("{{ .reg .u64 %hostcall; mov.u64 %hostcall, hostcall_shared; cvta.shared.u64 {shared}, %hostcall; }}",
            shared = out(reg64) shared, options(pure, nomem, nostack, preserves_flags));
    }
    shared
}

pub(crate) fn first_param() -> *const LaunchParams {
    shared().cast()
}

/// Puts the parameters where every function of the kernel finds them.
#[inline(always)]
pub(crate) fn set_params(params: &LaunchParams) {
    // SAFETY: the launch gave `PARAMS_BYTES` more shared memory than the kernel uses. Every lane writes the
    // same values, and synchronises with its wave before it reads.
    unsafe { shared().cast::<LaunchParams>().write(*params) };
    // SAFETY: all lanes of the wave that exist are here: the kernel has only begun.
    unsafe { llvm_warp_sync(wave_lanes() as u32) };
}

#[inline(always)]
fn linear_tid() -> u32 {
    let [x, y, z] = position();
    let [width, height, _] = super::params().workgroup_size;
    (z * height + y) * width + x
}

#[inline(always)]
fn lanes_in_workgroup() -> u32 {
    let [x, y, z] = super::params().workgroup_size;
    x * y * z
}

#[inline(always)]
pub(crate) fn position() -> [u32; 3] {
    [llvm_tid_x(), llvm_tid_y(), llvm_tid_z()]
}

#[inline(always)]
pub(crate) fn wave_in_workgroup() -> u32 {
    linear_tid() / 32
}

/// The physical grid has one dimension.
#[inline(always)]
pub(crate) fn block_index() -> u64 {
    u64::from(llvm_ctaid_x())
}

#[inline(always)]
pub(crate) fn block_count() -> u64 {
    u64::from(llvm_nctaid_x())
}

#[inline(always)]
pub(crate) fn slot() -> u32 {
    super::params().slot_base + llvm_ctaid_x() * lanes_in_workgroup().div_ceil(32) + wave_in_workgroup()
}

#[inline(always)]
pub(crate) fn lane_index() -> u32 {
    llvm_lane()
}

#[inline(always)]
pub(crate) fn wave_size() -> u32 {
    32
}

/// The lanes that the wave began with.
#[inline(always)]
pub(crate) fn wave_lanes() -> u64 {
    let left = lanes_in_workgroup() - wave_in_workgroup() * 32;
    if left >= 32 { 0xffff_ffff } else { (1 << left) - 1 }
}

#[inline(always)]
pub(crate) fn workgroup_memory() -> *mut u8 {
    // SAFETY: the launch gave more shared memory than the parameters take.
    unsafe { shared().add(PARAMS_BYTES) }
}

#[inline(always)]
pub(crate) fn converge(_site: u64) -> u64 {
    // SAFETY: reads the mask of the lanes that run this together.
    u64::from(unsafe { llvm_activemask() })
}

#[inline(always)]
pub(crate) fn ballot(mask: u64, yes: bool) -> u64 {
    // SAFETY: the lanes of `mask` came out of one `converge` and all come here.
    u64::from(unsafe { llvm_ballot(mask as u32, yes) })
}

#[inline(always)]
pub(crate) fn broadcast(mask: u64, value: u64, from: u32) -> u64 {
    // SAFETY: as for `ballot`; `from` is one of the lanes.
    let (low, high) = unsafe {
        (
            llvm_shuffle(mask as u32, value as u32, from, 31),
            llvm_shuffle(mask as u32, (value >> 32) as u32, from, 31),
        )
    };
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
pub(crate) fn sync(mask: u64) {
    if !mask.is_power_of_two() {
        // SAFETY: as for `ballot`.
        unsafe { llvm_warp_sync(mask as u32) };
    }
}

#[inline(always)]
pub(crate) fn wait<F: FnMut() -> bool>(mut poll: F) {
    while !poll() {}
}

pub(crate) fn pause() {
    // SAFETY: sleeps.
    unsafe { llvm_nanosleep(200) };
}

#[inline(always)]
pub(crate) fn notify() {}

pub(crate) fn barrier() {
    workgroup_barrier();
}

#[inline(always)]
pub(crate) fn workgroup_barrier() {
    // SAFETY: the caller says that all lanes of the workgroup come here; those that ended do not count.
    unsafe { llvm_block_sync(0) };
}

#[inline(always)]
pub(crate) fn cancelled() -> bool {
    false
}

/// About 8 µs of clock cycles: less than the host goes on looking at a ring that had posts.
pub(crate) const BELL_QUIET: u64 = 1 << 14;

#[inline(always)]
pub(crate) fn bell_clock() -> u64 {
    llvm_clock()
}

pub(crate) fn clock_ns() -> u64 {
    llvm_globaltimer()
}

pub(crate) fn exit_lane() -> ! {
    // SAFETY: ends the lane; nothing of it is left.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}
