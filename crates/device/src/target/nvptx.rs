//! NVIDIA: special registers, warp operations as LLVM intrinsics (which are convergent; `asm!` is not and can
//! be hoisted out of a branch). At the start of dynamic shared memory lie the launch's parameters and then what the
//! device remembers of each wave's slot: a store to global memory would evict it from the L1 cache.

use core::arch::{asm, global_asm};
use hostcall_abi::launch::{LAUNCH_PARAMS_BYTES, LaunchParams, shared_bytes};
use hostcall_abi::layout::{SLOT_STATE_BYTES, Sizes};

global_asm!(".extern .shared .align 64 .b8 hostcall_shared[];");

/// Where the first wave's state lies in shared memory.
const STATES_AT: usize = shared_bytes(0) as usize;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.activemask"]
    fn llvm_activemask() -> u32;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn llvm_all(mask: u32, yes: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn llvm_ballot(mask: u32, yes: bool) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_shuffle(mask: u32, value: u32, from: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn llvm_match(mask: u32, value: u64) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn llvm_block_sync(barrier: u32);
    #[link_name = "llvm.nvvm.isspacep.global"]
    fn llvm_is_global(pointer: *const u8) -> bool;
    #[link_name = "llvm.nvvm.isspacep.shared"]
    fn llvm_is_shared(pointer: *const u8) -> bool;
    #[link_name = "llvm.nvvm.nanosleep"]
    fn llvm_nanosleep(ns: u32);
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    safe fn llvm_lane() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    safe fn llvm_tid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    safe fn llvm_ntid_x() -> u32;
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

/// Puts the parameters where every function of the kernel finds them. Every lane of the workgroup comes here.
#[inline(always)]
pub(crate) fn set_params(params: &LaunchParams) {
    if llvm_tid_x() == 0 {
        // SAFETY: the launch gave `shared_bytes` more shared memory than the kernel uses, and no other lane touches it
        // before the barrier.
        unsafe { shared().cast::<LaunchParams>().write(*params) };
    }
    workgroup_barrier();
}

/// Where the state of the wave's slot lies between launches.
#[inline(always)]
fn kept_state() -> *mut u8 {
    global(here().params().states).wrapping_add(here().slot() as usize * SLOT_STATE_BYTES).cast_mut()
}

/// Each of the wave's lanes copies its words of a state.
#[inline(always)]
fn copy_state(from: *const u8, to: *mut u8) {
    let mut at = llvm_lane() as usize;
    while at < SLOT_STATE_BYTES / 4 {
        // SAFETY: both are states of this wave's slot, and no other lane touches these words now.
        unsafe { to.cast::<u32>().add(at).write(from.cast::<u32>().add(at).read()) };
        at += here().wave_lanes().count_ones() as usize;
    }
}

/// Takes the state of the wave's slot into shared memory. Every lane comes here.
#[inline(always)]
pub(crate) fn load_state() {
    copy_state(kept_state(), here().state().cast_mut());
    here().sync(here().wave_lanes());
}

/// Keeps the state for the next launch. Lanes that ended the program or found it cancelled do not come here: the host
/// clears the states of such a launch.
#[inline(always)]
pub(crate) fn save_state() {
    here().sync(here().wave_lanes());
    copy_state(here().state(), kept_state());
}

/// The physical grid and its workgroups have one dimension.
#[inline(always)]
pub(crate) fn block_index() -> u64 {
    u64::from(llvm_ctaid_x())
}

#[inline(always)]
pub(crate) fn block_count() -> u64 {
    u64::from(llvm_nctaid_x())
}

/// The channel's sizes.
#[inline(always)]
pub(crate) fn sizes(params: LaunchParams) -> Sizes {
    params.sizes
}

/// The lanes of a wave that are together read a word as fast as one does.
pub(crate) const IN_STEP: bool = true;

/// Lanes of a wave, one bit a lane.
pub(crate) type Mask = u32;

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn bits(mask: Mask) -> u64 {
    mask.into()
}

const WHOLE: Mask = Mask::MAX;

/// The lane that runs. What it is stands in registers.
#[derive(Clone, Copy)]
pub(crate) struct Here;

#[inline(always)]
pub(crate) fn here() -> Here {
    Here
}

impl Here {
    /// The parameters, by value: of the loads those stay whose fields the caller looks at, once a function and
    /// outside of its loops. That is what `nomem` says, and it holds because `enter_gpu` writes them in a function
    /// that does not read them.
    #[inline(always)]
    pub fn params(self) -> LaunchParams {
        let mut words = [[0u64; 2]; LAUNCH_PARAMS_BYTES / 16];
        macro_rules! load {
            ($($at:literal)*) => {$(
                // SAFETY: `set_params` wrote them; the symbol is aligned to 64 bytes.
                unsafe {
                    let (a, b);
                    asm!(concat!("ld.shared.v2.b64 {{{a}, {b}}}, [hostcall_shared+", $at, "*16];"),
                        a = out(reg64) a, b = out(reg64) b, options(pure, nomem, nostack, preserves_flags));
                    words[$at] = [a, b];
                }
            )*};
        }
        load!(0 1 2 3 4 5 6 7 8 9);
        // SAFETY: the type is as long, has no padding, and any bits are a value of its numbers.
        unsafe { core::mem::transmute(words) }
    }

    #[inline(always)]
    pub fn position(self) -> [u32; 3] {
        let [width, height, _] = self.params().workgroup_size;
        let linear = llvm_tid_x();
        [linear % width, linear / width % height, linear / width / height]
    }

    #[inline(always)]
    pub fn wave_in_workgroup(self) -> u32 {
        llvm_tid_x() / 32
    }

    #[inline(always)]
    pub fn slot(self) -> u32 {
        let waves = llvm_ntid_x().div_ceil(32);
        self.params().slot_base + llvm_ctaid_x() * waves + self.wave_in_workgroup()
    }

    /// What the device remembers of the wave's slot.
    #[inline(always)]
    pub fn state(self) -> *const u8 {
        let at = STATES_AT + self.wave_in_workgroup() as usize * SLOT_STATE_BYTES;
        let state = shared().wrapping_add(at).cast_const();
        // SAFETY: the launch gave each wave a state in shared memory.
        unsafe { core::hint::assert_unchecked(llvm_is_shared(state)) };
        state
    }

    #[inline(always)]
    pub fn lane_index(self) -> u32 {
        llvm_lane()
    }

    #[inline(always)]
    pub fn wave_size(self) -> u32 {
        32
    }

    /// All lanes of a wave that lacks none.
    #[inline(always)]
    pub fn full(self) -> Mask {
        WHOLE
    }

    /// The lanes that the wave began with.
    #[inline(always)]
    pub fn wave_lanes(self) -> Mask {
        let left = llvm_ntid_x() - self.wave_in_workgroup() * 32;
        if left >= 32 { WHOLE } else { (1 << left) - 1 }
    }

    #[inline(always)]
    pub fn workgroup_memory(self) -> *mut u8 {
        shared().wrapping_add(shared_bytes(llvm_ntid_x().div_ceil(32)) as usize)
    }

    #[inline(always)]
    pub fn converge(self, _site: u64) -> Mask {
        // SAFETY: reads the mask of the lanes that run this together.
        unsafe { llvm_activemask() }
    }

    // With a mask that is a constant, wave operations are one instruction; with any other, ptxas adds a check of
    // who came.

    /// Those of `mask` that came to the same `site`.
    #[inline(always)]
    pub fn same(self, mask: Mask, site: u64) -> Mask {
        match mask {
            // SAFETY: as for `ballot`.
            WHOLE => unsafe { llvm_match(WHOLE, site) },
            alone if alone.is_power_of_two() => alone,
            // SAFETY: as for `ballot`.
            part => unsafe { llvm_match(part, site) },
        }
    }

    #[inline(always)]
    pub fn ballot(self, mask: Mask, yes: bool) -> Mask {
        // SAFETY: the lanes of `mask` came out of one `converge` and all come here.
        unsafe { if mask == WHOLE { llvm_ballot(WHOLE, yes) } else { llvm_ballot(mask, yes) } }
    }

    #[inline(always)]
    pub fn all(self, mask: Mask, yes: bool) -> bool {
        // SAFETY: as for `ballot`.
        unsafe { if mask == WHOLE { llvm_all(WHOLE, yes) } else { llvm_all(mask, yes) } }
    }

    #[inline(always)]
    pub fn broadcast(self, mask: Mask, value: u64, from: u32) -> u64 {
        let share = |mask: Mask| {
            // SAFETY: as for `ballot`; `from` is one of the lanes.
            let (low, high) = unsafe {
                (
                    llvm_shuffle(mask, value as u32, from, 31),
                    llvm_shuffle(mask, (value >> 32) as u32, from, 31),
                )
            };
            u64::from(low) | u64::from(high) << 32
        };
        match mask {
            WHOLE => share(WHOLE),
            alone if alone.is_power_of_two() => value,
            part => share(part),
        }
    }

    #[inline(always)]
    pub fn sync(self, mask: Mask) {
        // SAFETY: as for `ballot`.
        unsafe {
            if mask == WHOLE {
                llvm_warp_sync(WHOLE);
            } else if !mask.is_power_of_two() {
                llvm_warp_sync(mask);
            }
        }
    }

    #[inline(always)]
    pub fn wait<F: FnMut() -> bool>(self, mut poll: F) {
        while !poll() {}
    }

    /// Waits for another part of the wave: between two looks an eighth of the time that it has waited, so that a part
    /// which waits for long leaves the processor, and what guards its memory under a sanitizer, to others.
    #[inline(always)]
    pub fn wait_for_part<F: FnMut() -> bool>(self, mut poll: F) {
        let start = llvm_clock();
        while !poll() {
            let cycles = llvm_clock().wrapping_sub(start);
            // A cycle is half a nanosecond, and 2^20 of these are the longest sleep that there is.
            let ns = (cycles / 16).min(1 << 20);
            // SAFETY: sleeps.
            unsafe { llvm_nanosleep(ns as u32) };
        }
    }

    /// Lets the time pass in which the host cannot have answered a wave's request of so many pairs a lane. A look takes
    /// 1.2 µs, and one that comes too early delays the next.
    #[inline(always)]
    pub fn pass(self, request_pairs: u32) {
        let start = llvm_clock();
        while llvm_clock().wrapping_sub(start) < u64::from(request_pairs * PASS_CYCLES_A_PAIR) {}
    }

    pub fn pause(self) {
        let before = self.clock_ns();
        // SAFETY: sleeps.
        unsafe { llvm_nanosleep(200) };
        super::gpu::end_if_cancelled(self, before);
    }

    #[inline(always)]
    pub fn notify(self) {}

    pub fn barrier(self) {
        workgroup_barrier();
    }

    pub fn clock_ns(self) -> u64 {
        llvm_globaltimer()
    }

    #[inline(always)]
    pub fn cancelled(self) -> bool {
        false
    }

    #[inline(always)]
    pub fn unwinding(self) -> bool {
        false
    }
}

/// A device address as a pointer, which is known to be no address of shared or local memory.
#[inline(always)]
pub(crate) fn global(address: u64) -> *const u8 {
    let pointer = address as usize as *const u8;
    // SAFETY: the host gives addresses of global memory only.
    unsafe { core::hint::assert_unchecked(llvm_is_global(pointer)) };
    pointer
}

#[inline(always)]
pub(crate) fn workgroup_barrier() {
    // SAFETY: the caller says that all lanes of the workgroup come here; those that ended do not count.
    unsafe { llvm_block_sync(0) };
}

/// What each pair of a wave's lanes takes on the link and on the host, in clock cycles. Of 0, 100, 200, 300 and 400, 300
/// gave the shortest call on an H200; runs differ by more than these do, see docs/measurements.md.
const PASS_CYCLES_A_PAIR: u32 = 300;

/// The period of the post bell: about 8 µs of clock cycles, which is less than the host goes on looking at a ring that
/// had posts. The numbers begin again after hours.
#[inline(always)]
pub(crate) fn bell_period() -> Option<u32> {
    Some((llvm_clock() >> 14) as u32)
}

pub(crate) fn exit_lane() -> ! {
    // SAFETY: ends the lane; nothing of it is left.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}
