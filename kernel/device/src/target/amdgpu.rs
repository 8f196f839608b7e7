//! AMD: `core`'s intrinsics. The launch's parameters are found through the dispatch packet. Workgroup memory is LDS, whose
//! addresses begin where a hardware register says: Rust has no way yet to declare a variable there.

use crate::packet::Look;
use core::arch::amdgpu as intrinsics;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use hostcall_abi::launch::{ChannelParams, LaunchParams, POINT_SWITCH_AT};
use hostcall_abi::layout::{LONE_WAVE, WAVE_RECORD_BYTES, WaveRecordWords, post_bell};
use hostcall_channel::device::{WaveRecord, is_stopped, stop_from};

unsafe extern "unadjusted" {
    #[link_name = "llvm.readsteadycounter"]
    safe fn llvm_steady_counter() -> u64;
    #[link_name = "llvm.amdgcn.s.getreg"]
    safe fn llvm_hardware_register(field: i32) -> u32;
}

/// Offsets in the HSA kernel dispatch packet (HSA Platform System Architecture 1.2, section 2.9).
const PACKET_KERNARG_ADDRESS: usize = 40;

/// The upper 16 bits of the hardware register `SH_MEM_BASES` (number 15): register, first bit and bits less one. They are the
/// upper 16 bits of LDS's first address.
const LDS_BASE_FIELD: i32 = 15 | 16 << 6 | 15 << 11;

fn packet_field<T: Copy>(offset: usize) -> T {
    // SAFETY: the dispatch packet is 64 readable bytes, and the fields are aligned.
    unsafe { core::intrinsics::gpu::amdgpu_dispatch_ptr().cast::<u8>().add(offset).cast::<T>().read() }
}

/// Whether anything looks into the records of the kernel's waves: the build does not say.
#[inline(always)]
pub(crate) fn has_record() -> bool {
    true
}

/// Whether the kernel's waves have a copy of the switch of trace points.
#[inline(always)]
pub(crate) fn has_points() -> bool {
    false
}

/// Whether the kernel's waves post: the build does not say.
#[inline(always)]
pub(crate) fn has_posts() -> bool {
    true
}

/// Makes the record of a wave that begins. Returns whether the wave shall end at once. The parameters stay where the
/// kernel's first argument says.
///
/// # Safety
/// They are the parameters that the host gave the kernel.
pub(crate) unsafe fn begin_wave(params: &LaunchParams) -> bool {
    // SAFETY: the host gives each launch the word of its stream. All lanes of a wave read the same.
    let stopped = unsafe { is_stopped(params.stop_at, params.sequence) };
    // While the word is on its way.
    let here = here();
    if here.lane_index() == 0 {
        // SAFETY: the host gives a record for each wave of the grid, and the wave's other lanes wait below.
        unsafe { here.record_address().cast::<WaveRecordWords>().write(WaveRecordWords::BEGIN) };
    }
    here.sync(here.wave_lanes());
    if stopped {
        core::hint::cold_path();
        // The grid's first wave begins before any other: of a launch that is stopped later, it has begun.
        if here.index_in_workgroup() == 0 && here.workgroup_index() == 0 {
            // SAFETY: the host gives each launch the words of its stream.
            unsafe { stop_from(params.stop_at, params.sequence - 1) };
        }
    }
    stopped
}

/// The lanes of a wave that are together read a word as fast as one does.
pub(crate) const IN_STEP: bool = true;

/// Whether the calls of a lane that is alone go a way of their own. LLVM 22 compiles it wrongly: later, lanes print nothing
/// of what they format.
pub(crate) const LONE_LANES: bool = false;

/// Whether the host's copies reach the memory of lanes that wait.
pub(crate) const HOST_COPIES: bool = false;

/// Whether an address is of memory that all lanes have in common, and that the host's copies reach.
pub(crate) fn is_global(_: *const u8) -> bool {
    false
}

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
    pub fn lanes_in_workgroup(self) -> u32 {
        let [x, y, z] = self.params().workgroup_size.map(u32::from);
        x * y * z
    }

    /// The lane's index in its workgroup.
    pub fn index_in_workgroup(self) -> u32 {
        intrinsics::workitem_id_x()
    }

    /// Linear index of the workgroup, x fastest.
    pub fn workgroup_index(self) -> u32 {
        intrinsics::workgroup_id_x()
    }

    pub fn wave_in_workgroup(self) -> u32 {
        intrinsics::workitem_id_x() / self.wave_size()
    }

    /// The channel's [`PointSwitch`](hostcall_abi::trace::PointSwitch), as it is now.
    #[inline(always)]
    pub fn point_switch(self) -> u64 {
        let switch = super::global(self.params().channel + POINT_SWITCH_AT as u64).cast::<AtomicU64>();
        // SAFETY: the host keeps the word behind the channel's parameters while a launch runs, and stores it as a whole.
        unsafe { &*switch }.load(Ordering::Relaxed)
    }

    /// What [`Here::point_switch`] is: a look at it costs no more than one at a copy.
    #[inline(always)]
    pub fn point_switch_before(self) -> u64 {
        self.point_switch()
    }

    /// The channel's parameters.
    pub fn channel(self) -> &'static ChannelParams {
        // SAFETY: the host keeps them where the launch's parameters say while a launch runs.
        unsafe { &*super::global(self.params().channel).cast::<ChannelParams>() }
    }

    /// The home slot to look at first. There is no cheap way to know where the wave runs on every GPU; waves of a grid begin in
    /// order, and those that run together are close in it.
    pub fn proposed_slot(self) -> u32 {
        let waves = self.lanes_in_workgroup().div_ceil(self.wave_size());
        self.workgroup_index() * waves + self.wave_in_workgroup()
    }

    /// Stands for the place in the hardware where the wave runs.
    pub fn hardware_place(self) -> u32 {
        self.proposed_slot()
    }

    fn record_address(self) -> *mut u8 {
        let params = self.params();
        let waves = self.lanes_in_workgroup().div_ceil(self.wave_size()) as usize;
        let bytes = (waves * WAVE_RECORD_BYTES).next_multiple_of(64);
        let at =
            self.workgroup_index() as usize * bytes + self.wave_in_workgroup() as usize * WAVE_RECORD_BYTES;
        (params.wave_records as usize + at) as *mut u8
    }

    /// What the wave's lanes share.
    pub fn record(self) -> &'static WaveRecord {
        // SAFETY: `begin_wave` made it, by whose type only the wave's lanes access it; it has the layout of its words.
        unsafe { &*self.record_address().cast::<WaveRecord>() }
    }

    /// Returns what [`Here::record`] does: there always is a record.
    pub fn record_anew(self) -> &'static WaveRecord {
        self.record()
    }

    /// The slot that the wave has.
    pub fn slot(self) -> Option<u32> {
        self.record().slot()
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

    /// The dispatch asks for as much LDS as the launch's parameters say, and kernels declare none, so that it begins at the
    /// first address.
    pub fn workgroup_memory(self) -> *mut u8 {
        (u64::from(llvm_hardware_register(LDS_BASE_FIELD)) << 48) as *mut u8
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

    /// Those of `mask` with the same `value`.
    pub fn matching(self, mask: Mask, value: u64) -> Mask {
        self.same(mask, value)
    }

    /// The value of the lane of index `from`, one of `mask`, which each lane chooses.
    pub fn shuffle_u32(self, _mask: Mask, value: u32, from: u32) -> u32 {
        // SAFETY: exchanges registers of active lanes; the instruction takes four times the index.
        unsafe { intrinsics::ds_bpermute(from * 4, value) }
    }

    /// Returns the value of lane `from`, of which each lane gives the lower and the upper half.
    pub fn shuffle(self, mask: Mask, low: u32, high: u32, from: u32) -> u64 {
        u64::from(self.shuffle_u32(mask, low, from)) | u64::from(self.shuffle_u32(mask, high, from)) << 32
    }

    pub fn sync(self, _mask: Mask) {
        intrinsics::wave_barrier();
    }

    pub fn wait<F: FnMut() -> bool>(self, mut poll: F) {
        while !poll() {
            intrinsics::s_sleep::<1>();
        }
    }

    /// As `wait`, which leaves the processor to others.
    pub fn wait_with_pauses<F: FnMut() -> bool>(self, poll: F) {
        self.wait(poll);
    }

    /// Lets the time pass in which the host cannot have answered: it costs nothing to look here.
    #[inline(always)]
    pub fn pass(self, _lanes: u32, _request_pairs: u32, _look: Look) {}

    /// Tells the host of posts that it was not told of, before the lane waits for what the host may do because of them.
    fn announce_posts(self) {
        if self.slot().is_some() {
            crate::packet::announce_posts(self.record());
        }
    }

    #[inline(always)]
    pub fn will_post(self) {}

    pub fn pause(self) {
        self.announce_posts();
        let before = self.clock_ns();
        intrinsics::s_sleep::<8>();
        super::gpu::end_if_cancelled(self, before);
    }

    pub fn notify(self) {}

    pub fn barrier(self) {
        self.announce_posts();
        workgroup_barrier();
    }

    /// No clock: each wave looks for itself. To share looks takes a read-modify-write and stack in every wait, and what it
    /// would spare on an AMD GPU was not measured.
    pub fn look_clock_ns(self) -> Option<u64> {
        None
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

pub(crate) fn workgroup_barrier() {
    fence(Ordering::AcqRel);
    intrinsics::s_barrier();
    fence(Ordering::AcqRel);
}

/// The period of the post bell, by the steady counter of 10 ns a tick: the longest power of two of ticks that is no longer
/// than [`post_bell::PERIOD_NS`].
pub(crate) fn bell_period() -> Option<u32> {
    const TICKS: u64 = post_bell::PERIOD_NS / 10;
    Some((llvm_steady_counter() >> TICKS.ilog2()) as u32 & (LONE_WAVE - 1))
}

/// The same, where the clock shows `now_ns`.
pub(crate) fn bell_period_at(_now_ns: u64) -> Option<u32> {
    // To divide by ten takes longer than to ask.
    bell_period()
}

/// A word as it is.
#[inline(always)]
pub(crate) fn seen(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Whether a lane that polls rings the same doorbell again: every 120 ms. By the clock, since a GPU in software polls seldom.
pub(crate) fn rings_again(_polls: u32, rang: &mut u64) -> bool {
    const TICKS: u64 = 12_000_000;
    let now = llvm_steady_counter();
    if *rang == 0 {
        *rang = now;
    }
    let again = now - *rang >= TICKS;
    if again {
        *rang = now;
    }
    again
}

/// AMD has no way to end one lane: this ends the wave.
pub(crate) fn exit_lane() -> ! {
    super::gpu::end_lanes(true);
    intrinsics::endpgm()
}
