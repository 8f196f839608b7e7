//! AMD: `core`'s intrinsics. The launch's parameters are found through the dispatch packet, and workgroup
//! memory is memory of the device, since Rust has no way yet to name LDS.

use core::arch::amdgpu as intrinsics;
use hostcall_abi::launch::LaunchParams;

unsafe extern "unadjusted" {
    #[link_name = "llvm.readsteadycounter"]
    safe fn llvm_steady_counter() -> u64;
}

/// Offsets in the HSA kernel dispatch packet (HSA Platform System Architecture 1.2, section 2.9).
const PACKET_GRID_SIZE_X: usize = 12;
const PACKET_KERNARG_ADDRESS: usize = 40;

fn packet_field<T: Copy>(offset: usize) -> T {
    // SAFETY: the dispatch packet is 64 readable bytes, and the fields are aligned.
    unsafe { core::intrinsics::gpu::amdgpu_dispatch_ptr().cast::<u8>().add(offset).cast::<T>().read() }
}

/// Kernels take their arguments by address: the first is that of the parameters.
pub(crate) fn first_param() -> *const LaunchParams {
    let arguments = packet_field::<u64>(PACKET_KERNARG_ADDRESS) as usize as *const *const LaunchParams;
    // SAFETY: the kernel's arguments stay readable where the packet says while the kernel runs.
    unsafe { arguments.read() }
}

/// The parameters stay where the kernel's first argument says.
pub(crate) fn set_params(_params: &LaunchParams) {}

#[inline(always)]
pub(crate) fn position() -> [u32; 3] {
    // The physical workgroup has one dimension, so that waves are whole whatever the workgroup's shape.
    let [width, height, _] = super::params().workgroup_size;
    let linear = intrinsics::workitem_id_x();
    [linear % width, linear / width % height, linear / width / height]
}

fn lanes_in_workgroup() -> u32 {
    let [x, y, z] = super::params().workgroup_size;
    x * y * z
}

pub(crate) fn wave_in_workgroup() -> u32 {
    intrinsics::workitem_id_x() / wave_size()
}

pub(crate) fn block_index() -> u64 {
    u64::from(intrinsics::workgroup_id_x())
}

pub(crate) fn block_count() -> u64 {
    u64::from(packet_field::<u32>(PACKET_GRID_SIZE_X) / lanes_in_workgroup())
}

pub(crate) fn slot() -> u32 {
    super::params().slot_base
        + intrinsics::workgroup_id_x() * lanes_in_workgroup().div_ceil(wave_size())
        + wave_in_workgroup()
}

pub(crate) fn lane_index() -> u32 {
    intrinsics::mbcnt_hi(u32::MAX, intrinsics::mbcnt_lo(u32::MAX, 0))
}

pub(crate) fn wave_size() -> u32 {
    intrinsics::wavefrontsize()
}

pub(crate) fn wave_lanes() -> u64 {
    let left = lanes_in_workgroup() - wave_in_workgroup() * wave_size();
    u64::MAX >> (64 - left.min(wave_size()))
}

pub(crate) fn workgroup_memory() -> *mut u8 {
    let params = super::params();
    let at = u64::from(params.workgroup_memory_bytes) * u64::from(intrinsics::workgroup_id_x());
    (params.workgroup_memory + at) as usize as *mut u8
}

pub(crate) fn converge(_site: u64) -> u64 {
    intrinsics::ballot(true)
}

pub(crate) fn ballot(_mask: u64, yes: bool) -> u64 {
    intrinsics::ballot(yes)
}

pub(crate) fn broadcast(_mask: u64, value: u64, from: u32) -> u64 {
    // SAFETY: `from` is the index of an active lane, the same for all lanes of the group.
    unsafe { intrinsics::readlane_u64(value, from) }
}

pub(crate) fn sync(_mask: u64) {
    intrinsics::wave_barrier();
}

pub(crate) fn wait<F: FnMut() -> bool>(mut poll: F) {
    while !poll() {
        intrinsics::s_sleep::<1>();
    }
}

pub(crate) fn pause() {
    intrinsics::s_sleep::<8>();
}

pub(crate) fn notify() {}

pub(crate) fn barrier() {
    workgroup_barrier();
}

pub(crate) fn workgroup_barrier() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::AcqRel);
    intrinsics::s_barrier();
    core::sync::atomic::fence(core::sync::atomic::Ordering::AcqRel);
}

pub(crate) fn cancelled() -> bool {
    false
}

/// 8 µs of the steady counter: less than the host goes on looking at a ring that had posts.
pub(crate) const BELL_QUIET: u64 = 800;

pub(crate) fn bell_clock() -> u64 {
    llvm_steady_counter()
}

/// The steady counter runs at 100 MHz on every AMD GPU since gfx9.
pub(crate) fn clock_ns() -> u64 {
    llvm_steady_counter() * 10
}

/// AMD has no way to end one lane: this ends the wave.
pub(crate) fn exit_lane() -> ! {
    intrinsics::endpgm()
}
