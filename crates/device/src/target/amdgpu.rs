//! AMD: `core`'s intrinsics. The launch's parameters are found through the dispatch packet, and workgroup
//! memory is memory of the device, since Rust has no way yet to name LDS.

use core::arch::amdgpu as intrinsics;
use hostcall_abi::launch::LaunchParams;
use hostcall_abi::layout::{SLOT_STATE_BYTES, Sizes};

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

/// The parameters stay where the kernel's first argument says.
pub(crate) fn set_params(_params: &LaunchParams) {}

// A slot's state stays in the device's memory.

pub(crate) fn load_state() {}

pub(crate) fn save_state() {}

pub(crate) fn block_index() -> u64 {
    u64::from(intrinsics::workgroup_id_x())
}

pub(crate) fn block_count() -> u64 {
    u64::from(packet_field::<u32>(PACKET_GRID_SIZE_X) / here().lanes_in_workgroup())
}

/// The channel's sizes, where the parameters keep them.
#[inline(always)]
pub(crate) fn sizes(params: &'static LaunchParams) -> &'static Sizes {
    &params.sizes
}

/// The lanes of a wave that are together read a word as fast as one does.
pub(crate) const IN_STEP: bool = true;

/// Lanes of a wave, one bit a lane.
pub(crate) type Mask = u64;

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn bits(mask: Mask) -> u64 {
    mask
}

/// The lane that runs. What it is stands in registers.
#[derive(Clone, Copy)]
pub(crate) struct Here;

#[inline(always)]
pub(crate) fn here() -> Here {
    Here
}

impl Here {
    /// Kernels take their arguments by address: the first is that of the parameters.
    #[inline(always)]
    pub fn params(self) -> &'static LaunchParams {
        let arguments = packet_field::<u64>(PACKET_KERNARG_ADDRESS) as usize as *const *const LaunchParams;
        // SAFETY: the kernel's arguments stay readable where the packet says while the kernel runs.
        unsafe { &*arguments.read() }
    }

    #[inline(always)]
    pub fn position(self) -> [u32; 3] {
        // The physical workgroup has one dimension, so that waves are whole whatever the workgroup's shape.
        let [width, height, _] = self.params().workgroup_size;
        let linear = intrinsics::workitem_id_x();
        [linear % width, linear / width % height, linear / width / height]
    }

    fn lanes_in_workgroup(self) -> u32 {
        let [x, y, z] = self.params().workgroup_size;
        x * y * z
    }

    pub fn wave_in_workgroup(self) -> u32 {
        intrinsics::workitem_id_x() / self.wave_size()
    }

    pub fn slot(self) -> u32 {
        let waves = self.lanes_in_workgroup().div_ceil(self.wave_size());
        self.params().slot_base + intrinsics::workgroup_id_x() * waves + self.wave_in_workgroup()
    }

    /// What the device remembers of the wave's slot.
    pub fn state(self) -> *const u8 {
        global(self.params().states).wrapping_add(self.slot() as usize * SLOT_STATE_BYTES)
    }

    pub fn lane_index(self) -> u32 {
        intrinsics::mbcnt_hi(u32::MAX, intrinsics::mbcnt_lo(u32::MAX, 0))
    }

    pub fn wave_size(self) -> u32 {
        intrinsics::wavefrontsize()
    }

    /// All lanes of a wave that lacks none.
    pub fn full(self) -> Mask {
        Mask::MAX >> (64 - self.wave_size())
    }

    /// The lanes that the wave began with.
    pub fn wave_lanes(self) -> Mask {
        let left = self.lanes_in_workgroup() - self.wave_in_workgroup() * self.wave_size();
        Mask::MAX >> (64 - left.min(self.wave_size()))
    }

    pub fn workgroup_memory(self) -> *mut u8 {
        let params = self.params();
        let at = u64::from(params.workgroup_memory_bytes) * u64::from(intrinsics::workgroup_id_x());
        (params.workgroup_memory + at) as usize as *mut u8
    }

    pub fn converge(self, _site: u64) -> Mask {
        intrinsics::ballot(true)
    }

    /// Those of `mask` that came to the same `site`.
    pub fn same(self, mask: Mask, site: u64) -> Mask {
        let (mut left, mut own) = (mask, 0);
        while left != 0 {
            // SAFETY: the index of an active lane, the same for all.
            let theirs = unsafe { intrinsics::readlane_u64(site, left.trailing_zeros()) };
            let same = intrinsics::ballot(site == theirs);
            if site == theirs {
                own = same;
            }
            left &= !same;
        }
        own
    }

    pub fn ballot(self, _mask: Mask, yes: bool) -> Mask {
        intrinsics::ballot(yes)
    }

    pub fn all(self, mask: Mask, yes: bool) -> bool {
        intrinsics::ballot(yes) == mask
    }

    pub fn broadcast(self, _mask: Mask, value: u64, from: u32) -> u64 {
        // SAFETY: `from` is the index of an active lane, the same for all lanes of the group.
        unsafe { intrinsics::readlane_u64(value, from) }
    }

    pub fn sync(self, _mask: Mask) {
        intrinsics::wave_barrier();
    }

    pub fn wait<F: FnMut() -> bool>(self, mut poll: F) {
        while !poll() {
            intrinsics::s_sleep::<1>();
        }
    }

    /// Waits for another part of the wave.
    pub fn wait_for_part<F: FnMut() -> bool>(self, poll: F) {
        self.wait(poll);
    }

    /// Lets the time pass in which the host cannot have answered: it costs nothing to look here.
    #[inline(always)]
    pub fn pass(self, _request_pairs: u32) {}

    pub fn pause(self) {
        let before = self.clock_ns();
        intrinsics::s_sleep::<8>();
        super::gpu::end_if_cancelled(self, before);
    }

    pub fn notify(self) {}

    pub fn barrier(self) {
        workgroup_barrier();
    }

    /// The steady counter runs at 100 MHz on every AMD GPU since gfx9.
    pub fn clock_ns(self) -> u64 {
        llvm_steady_counter() * 10
    }

    pub fn cancelled(self) -> bool {
        false
    }

    pub fn unwinding(self) -> bool {
        false
    }
}

/// A device address as a pointer.
pub(crate) fn global(address: u64) -> *const u8 {
    address as usize as *const u8
}

pub(crate) fn workgroup_barrier() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::AcqRel);
    intrinsics::s_barrier();
    core::sync::atomic::fence(core::sync::atomic::Ordering::AcqRel);
}

/// The period of the post bell: 5 µs of the steady counter, which is less than the host goes on looking at a ring that
/// had posts. The numbers begin again after hours.
pub(crate) fn bell_period() -> Option<u32> {
    Some((llvm_steady_counter() >> 9) as u32)
}

/// AMD has no way to end one lane: this ends the wave.
pub(crate) fn exit_lane() -> ! {
    intrinsics::endpgm()
}
