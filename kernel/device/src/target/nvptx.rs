//! NVIDIA: special registers, warp operations as LLVM intrinsics (which are convergent; `asm!` is not and can
//! be hoisted out of a branch). At the start of dynamic shared memory lies a copy of the switch of trace points, then the waves' records: what the device remembers of
//! the wave's slot (a store to global memory would evict it from the L1 cache) and then the launch's parameters.

use crate::packet::Look;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_abi::launch::{
    ChannelParams, LAUNCH_PARAMS_BYTES, LAUNCH_PARAMS_KEPT, LaunchId, LaunchParams, POINT_SWITCH_AT,
    SHARED_RECORD_BYTES, SHARED_SWITCH_BYTES, shared_bytes,
};
use hostcall_abi::layout::{
    CLAIMING, LONE_WAVE, NO_SLOT, SLOT_GROUP, WAVE_RECORD_BYTES, WaveRecordWords, post_bell,
};
use hostcall_channel::device::{WaveRecord, begin_launch, note_skipped};

global_asm!(".extern .shared .align 64 .b8 hostcall_shared[];");

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.activemask"]
    fn llvm_activemask() -> u32;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn llvm_all(mask: u32, yes: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn llvm_ballot(mask: u32, yes: bool) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn llvm_shuffle(mask: u32, value: u32, from: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn llvm_shuffle_up(mask: u32, value: u32, by: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn llvm_match(mask: u32, value: u64) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.add"]
    fn llvm_redux_add(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    fn llvm_redux_umin(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    fn llvm_redux_umax(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.min"]
    fn llvm_redux_min(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.max"]
    fn llvm_redux_max(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.and"]
    fn llvm_redux_and(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.or"]
    fn llvm_redux_or(value: u32, mask: u32) -> u32;
    #[cfg(target_feature = "sm_80")]
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    fn llvm_redux_xor(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn llvm_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.all"]
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
    #[link_name = "llvm.nvvm.read.ptx.sreg.smid"]
    safe fn llvm_smid() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.warpid"]
    safe fn llvm_warpid() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clock64"]
    safe fn llvm_clock() -> u64;
    #[link_name = "llvm.nvvm.read.ptx.sreg.globaltimer"]
    safe fn llvm_globaltimer() -> u64;
}

/// The start of dynamic shared memory, and a comment.
macro_rules! shared_with {
    ($comment:literal) => {{
        let shared: *mut u8;
        // SAFETY: takes an address, touches nothing.
        unsafe {
            asm!(concat!("{{ .reg .u64 %hostcall; mov.u64 %hostcall, hostcall_shared; cvta.shared.u64 {shared}, %hostcall; }}", $comment),
                shared = out(reg64) shared, options(pure, nomem, nostack, preserves_flags));
        }
        shared
    }};
}

#[inline(always)]
fn shared() -> *mut u8 {
    shared_with!("")
}

/// A question that the build answers, when it has all code of a kernel before it: it writes 0 for 1 where the answer is no
/// (`tools/build/src/spared.rs`), and the assembler leaves out what depends on it.
macro_rules! asked_of_build {
    ($question:literal) => {{
        let answer: u32;
        // SAFETY: sets a register.
        unsafe {
            asm!(concat!("mov.u32 {answer}, 1; // ", $question), answer = out(reg32) answer,
                options(pure, nomem, nostack, preserves_flags));
        }
        answer != 0
    }};
}

/// Whether anything looks into the records of the kernel's waves.
#[inline(always)]
pub(crate) fn has_record() -> bool {
    asked_of_build!("hostcall asks: record")
}

/// Whether the kernel's waves post.
#[inline(always)]
pub(crate) fn has_posts() -> bool {
    asked_of_build!("hostcall asks: posts")
}

/// Whether the kernel has trace points.
#[inline(always)]
pub(crate) fn has_points() -> bool {
    asked_of_build!("hostcall asks: points")
}

/// Whether a panic of the function that asks is formatted here, which is one of two that the build makes where the program has values
/// that only its own functions show.
#[cfg(hostcall_unformatted)]
#[inline(always)]
pub(crate) fn formats_panics() -> bool {
    asked_of_build!("hostcall asks: formats")
}

#[cfg(hostcall_unformatted)]
global_asm!(".extern .global .align 8 .b64 hostcall_formatters[];");

/// What functions that show values are given: pairs of a function's address and a [`Tag`](hostcall_format::unformatted::Tag),
/// which the build writes, and a pair of zeros.
#[cfg(hostcall_unformatted)]
#[inline(always)]
pub(crate) fn formatters() -> *const [usize; 2] {
    let table;
    // SAFETY: takes an address, touches nothing.
    unsafe {
        asm!("{{ .reg .u64 %hostcall; mov.u64 %hostcall, hostcall_formatters; cvta.global.u64 {table}, %hostcall; }}",
            table = out(reg64) table, options(pure, nomem, nostack, preserves_flags));
    }
    table
}

/// Bytes of dynamic shared memory that the launch gave the workgroup.
#[cfg(target_feature = "sm_90")]
#[inline(always)]
pub(super) fn dynamic_shared_bytes() -> u32 {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {bytes}, %dynamic_smem_size;", bytes = out(reg32) bytes, options(pure, nomem, nostack, preserves_flags));
    }
    bytes
}

/// Returns where the dynamic shared memory begins, as an address that instructions for shared memory take.
#[inline(always)]
pub(super) fn shared_start() -> u32 {
    let start: u32;
    // SAFETY: takes an address, touches nothing.
    unsafe {
        asm!("mov.u32 {start}, hostcall_shared;", start = out(reg32) start,
            options(pure, nomem, nostack, preserves_flags));
    }
    start
}

/// An address of shared memory as instructions for that take it. Addresses there are apart by as much as everywhere (PTX ISA,
/// "Generic Addressing"). Made of [`shared`], as places of workgroup memory are, so that what lies between becomes a part of
/// the instruction; `cvta.to.shared` would hide it.
#[inline(always)]
pub(super) fn shared_address<T>(at: *mut T) -> u32 {
    shared_start().wrapping_add((at as usize as u32).wrapping_sub(shared() as usize as u32))
}

/// Address in shared memory of the wave's record.
#[inline(always)]
fn record_at() -> u32 {
    shared_start() + SHARED_SWITCH_BYTES as u32 + llvm_tid_x() / 32 * SHARED_RECORD_BYTES as u32
}

/// Makes the record of a wave that begins: a handful of stores of its first lane. Returns whether the wave shall end at
/// once. Every lane of the wave comes here.
///
/// # Safety
/// They are the parameters that the host gave the kernel.
#[inline(always)]
pub(crate) unsafe fn begin_wave(params: &LaunchParams) -> bool {
    // SAFETY: the host gives each launch the words of its stream and of its list. All lanes of a wave read the same.
    let begun = unsafe { begin_launch(params) };
    let lanes = llvm_ntid_x();
    if has_points() {
        // Each wave for itself, so that its first point finds what is there; all waves of a workgroup store to the same place.
        let switch = look_at_switch(params.channel);
        // SAFETY: the launch gave these bytes too; the switch's copy is accessed by single instructions alone.
        unsafe {
            asm!("st.volatile.shared.b64 [hostcall_shared], {switch};", switch = in(reg64) switch, options(nostack))
        };
    }
    if has_record() && llvm_tid_x() % 32 == 0 {
        let [a, b, c, d] = WaveRecordWords::BEGIN_FIRST;
        let launch = LaunchId::from_bits(params.launch.to_bits() + begun.launch);
        let words = LaunchParams { sequence: begun.sequence, launch, ..*params }.to_words();
        const {
            assert!(core::mem::offset_of!(WaveRecordWords, slot) % 16 == 0);
            assert!(size_of::<[u64; 8]>() == LAUNCH_PARAMS_KEPT);
        }
        // SAFETY: the launch gave `shared_bytes` more shared memory than the kernel uses, and the wave's other lanes wait
        // below. What of the record is not written here is written by whoever claims a slot, and nobody reads it before. What
        // depends on words that are on their way comes last.
        unsafe {
            asm!("st.shared.v4.b32 [{at}], {{{a}, {b}, {c}, {d}}};", "st.shared.v4.b32 [{at}+{slot}], {{{none}, 0, 0, 0}};",
                "st.shared.v2.b64 [{at}+{to}], {{{e}, {f}}};", "st.shared.v2.b64 [{at}+{to}+32], {{{i}, {j}}};",
                "st.shared.v2.b64 [{at}+{to}+48], {{{k}, {l}}};", "st.shared.v2.b64 [{at}+{to}+16], {{{g}, {h}}};",
                at = in(reg32) record_at(), a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
                none = in(reg32) NO_SLOT, slot = const core::mem::offset_of!(WaveRecordWords, slot),
                to = const WAVE_RECORD_BYTES,
                e = in(reg64) words[0], f = in(reg64) words[1], g = in(reg64) words[2], h = in(reg64) words[3],
                i = in(reg64) words[4], j = in(reg64) words[5], k = in(reg64) words[6], l = in(reg64) words[7],
                options(nostack));
        }
    }
    let here = here();
    // The same for all lanes of the workgroup.
    if !has_record() {
    } else if lanes.is_multiple_of(32) {
        here.sync(WHOLE)
    } else {
        here.sync(here.wave_lanes())
    }
    if !(begun.is_stopped | begun.is_skipped) {
        return false;
    }
    core::hint::cold_path();
    // The grid's first wave begins before any other: of a launch that is stopped later, it has begun. One that has no turn
    // does not say so: the list's last one that ran is behind it.
    if !begun.is_skipped && llvm_tid_x() == 0 && llvm_ctaid_x() == 0 {
        // SAFETY: the words of the launch's stream.
        unsafe { note_skipped(params.stop_at, begun.sequence) };
    }
    true
}

/// Reads the word behind the channel's parameters by which the host switches trace points.
#[inline(always)]
fn look_at_switch(channel: u64) -> u64 {
    let switch = global(channel + POINT_SWITCH_AT as u64).cast::<AtomicU64>();
    // SAFETY: the host keeps the word there while a launch runs, and stores it as a whole.
    unsafe { &*switch }.load(Ordering::Relaxed)
}

/// Where the launch's parameters are. In the function that wrote them as in any other, nothing is read before `of_wave`, and
/// after it compilers may keep what was read: of the loads those stay whose fields the caller looks at, once a function and
/// outside of its loops.
#[derive(Clone, Copy)]
pub(crate) struct Params(u32);

impl Params {
    #[inline(always)]
    pub fn of_wave() -> Self {
        let mut at = record_at();
        // SAFETY: nothing happens. Because it is not `pure` it comes after `begin_wave`.
        unsafe { asm!("// {at}", at = inout(reg32) at, options(nostack, preserves_flags)) };
        Self(at)
    }

    /// The parameters, by value. AMD's part is zero. The build lets a kernel's own code read them where the launch put
    /// them, but for the words that `begin_wave` may have changed.
    #[inline(always)]
    pub fn get(self) -> LaunchParams {
        let mut words = [[0u64; 2]; LAUNCH_PARAMS_BYTES / 16];
        macro_rules! load {
            ($($at:literal)*) => {$(
                // SAFETY: `begin_wave` wrote them, and nobody writes them again.
                unsafe {
                    let (a, b);
                    asm!("ld.shared.v2.b64 {{{a}, {b}}}, [{at}+{from}]; // hostcall reads: {place}",
                        at = in(reg32) self.0, from = const WAVE_RECORD_BYTES + 16 * $at, place = const 16 * $at,
                        a = out(reg64) a, b = out(reg64) b, options(pure, nomem, nostack, preserves_flags));
                    words[$at] = [a, b];
                }
            )*};
        }
        load!(0 1 2 3);
        const { assert!(LAUNCH_PARAMS_KEPT == 4 * 16) };
        // SAFETY: the type is as long, has no padding, and any bits are a value of its numbers.
        unsafe { core::mem::transmute(words) }
    }
}

/// The lanes of a wave that are together read a word as fast as one does.
pub(crate) const IN_STEP: bool = true;

/// Whether the calls of a lane that is alone go a way of their own.
pub(crate) const LONE_LANES: bool = true;

/// Cycles for which a lane that may have to wait for long looks all the time: twice as many as an answer takes that comes at
/// once, with a few KiB.
const WAIT_CYCLES: u64 = 20_000;

/// Whether the host's copies reach the memory of lanes that wait.
pub(crate) const HOST_COPIES: bool = true;

/// Whether an address is of memory that all lanes have in common.
#[inline(always)]
pub(crate) fn is_global(address: *const u8) -> bool {
    // SAFETY: looks at the address alone.
    unsafe { llvm_is_global(address) }
}

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
    /// The parameters, by value.
    #[inline(always)]
    pub fn params(self) -> LaunchParams {
        Params::of_wave().get()
    }

    /// The channel's [`PointSwitch`](hostcall_abi::trace::PointSwitch), as it is now.
    #[inline(always)]
    pub fn point_switch(self) -> u64 {
        look_at_switch(self.params().channel)
    }

    /// The switch as it was at the workgroup's trace point before this one. A look at the word itself goes to the GPU's second-level
    /// cache, and a point that nobody wants would wait for it.
    #[cfg(target_feature = "sm_80")]
    #[inline(always)]
    pub fn point_switch_before(self) -> u64 {
        let switch;
        // SAFETY: `begin_wave` made the copy. The next one is on its way when this returns: of as many bytes as the host keeps there,
        // to as many that the launch gave, which nobody accesses but by single instructions.
        unsafe {
            asm!("ld.volatile.shared.b64 {switch}, [hostcall_shared]; // hostcall has: points",
                "cp.async.cg.shared.global [hostcall_shared], [{channel}+{at}], {bytes};",
                switch = out(reg64) switch, channel = in(reg64) self.params().channel, at = const POINT_SWITCH_AT,
                bytes = const SHARED_SWITCH_BYTES, options(nostack));
        }
        switch
    }

    /// The switch as it is now: these GPUs have no copies that waves do not wait for.
    #[cfg(not(target_feature = "sm_80"))]
    #[inline(always)]
    pub fn point_switch_before(self) -> u64 {
        self.point_switch()
    }

    /// The channel's parameters.
    #[inline(always)]
    pub fn channel(self) -> &'static ChannelParams {
        // SAFETY: the host keeps them where the launch's parameters say while a launch runs.
        unsafe { &*global(self.params().channel).cast::<ChannelParams>() }
    }

    /// What the wave's lanes share.
    #[inline(always)]
    pub fn record(self) -> &'static WaveRecord {
        let at = SHARED_SWITCH_BYTES + llvm_tid_x() as usize / 32 * SHARED_RECORD_BYTES;
        let record = shared_with!(" // hostcall has: record").wrapping_add(at).cast_const();
        // SAFETY: the launch gave each wave a record in shared memory, which `begin_wave` made, and only the wave's lanes
        // access it, by this type, which has the layout of its words.
        unsafe {
            core::hint::assert_unchecked(llvm_is_shared(record));
            &*record.cast::<WaveRecord>()
        }
    }

    /// Returns what [`Here::record`] does, for what is rare or of no account where nothing else looks into the record: neither is
    /// the address known before, nor anything read of it, and the build does not take it for a reason to make the record.
    #[inline(always)]
    pub fn record_anew(self) -> &'static WaveRecord {
        let record: *const u8;
        // SAFETY: as in `record`. The assembly takes an address, and touches nothing; it is not `pure`, so that it stays here.
        unsafe {
            asm!("{{ .reg .u32 %hostcall_wave; .reg .u64 %hostcall_record; mov.u32 %hostcall_wave, %tid.x;",
                "shr.u32 %hostcall_wave, %hostcall_wave, 5; mov.u64 %hostcall_record, hostcall_shared;",
                "mad.wide.u32 %hostcall_record, %hostcall_wave, {bytes}, %hostcall_record;",
                "add.u64 %hostcall_record, %hostcall_record, {first}; cvta.shared.u64 {record}, %hostcall_record; }}",
                record = out(reg64) record, bytes = const SHARED_RECORD_BYTES, first = const SHARED_SWITCH_BYTES, options(nostack, preserves_flags));
            core::hint::assert_unchecked(llvm_is_shared(record));
            &*record.cast::<WaveRecord>()
        }
    }

    /// The slot that the wave has.
    #[inline(always)]
    pub fn slot(self) -> Option<u32> {
        let slot: u32;
        // SAFETY: `begin_wave` made the record, whose word is accessed atomically.
        unsafe {
            asm!("ld.acquire.cta.shared.b32 {slot}, [{at}+{to}];", slot = out(reg32) slot, at = in(reg32) record_at(),
                to = const core::mem::offset_of!(WaveRecordWords, slot), options(nostack));
        }
        (slot < CLAIMING).then_some(slot)
    }

    /// The place in the hardware where the wave runs, which no other wave has unless one of them was moved.
    #[inline(always)]
    pub fn hardware_place(self) -> u32 {
        llvm_smid() * SLOT_GROUP + llvm_warpid() % SLOT_GROUP
    }

    /// The home slot to look at first, which most likely no other wave has. Of a grid of so few workgroups that a
    /// multiprocessor has one at most, the waves count from the slot with the longest ring on; the hardware's numbers begin
    /// anywhere.
    #[inline(always)]
    pub fn proposed_slot(self) -> u32 {
        let multiprocessors = self.params().home_slots / SLOT_GROUP;
        if llvm_nctaid_x() > multiprocessors {
            return self.hardware_place();
        }
        llvm_smid() * SLOT_GROUP + self.wave_in_workgroup()
    }

    #[inline(always)]
    pub fn index_in_workgroup(self) -> u32 {
        llvm_tid_x()
    }

    #[inline(always)]
    pub fn lanes_in_workgroup(self) -> u32 {
        llvm_ntid_x()
    }

    /// Linear index of the workgroup, x fastest. The hardware's grid has one dimension.
    #[inline(always)]
    pub fn workgroup_index(self) -> u32 {
        llvm_ctaid_x()
    }

    #[inline(always)]
    pub fn wave_in_workgroup(self) -> u32 {
        llvm_tid_x() / 32
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
        let lanes = llvm_ntid_x();
        if llvm_tid_x() | 31 < lanes { WHOLE } else { (1 << (lanes % 32)) - 1 }
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

    /// Those of `mask` with the same `value`.
    #[inline(always)]
    pub fn matching(self, mask: Mask, value: u64) -> Mask {
        self.same(mask, value)
    }

    /// The value of the lane of index `from`, one of `mask`, which each lane chooses.
    #[inline(always)]
    pub fn shuffle_u32(self, mask: Mask, value: u32, from: u32) -> u32 {
        // SAFETY: as for `ballot`; `from` is one of the lanes.
        unsafe {
            if mask == WHOLE {
                llvm_shuffle(WHOLE, value, from, 31)
            } else {
                llvm_shuffle(mask, value, from, 31)
            }
        }
    }

    /// Returns the value of lane `from`, of which each lane gives the lower and the upper half.
    #[inline(always)]
    pub fn shuffle(self, mask: Mask, low: u32, high: u32, from: u32) -> u64 {
        u64::from(self.shuffle_u32(mask, low, from)) | u64::from(self.shuffle_u32(mask, high, from)) << 32
    }

    /// What the lane `by` before this one has, in a whole wave; the first `by` lanes have their own. Unlike
    /// [`Here::shuffle_u32`] it needs no register for the other lane's index.
    #[inline(always)]
    pub fn shuffle_up_u32(self, value: u32, by: u32) -> u32 {
        // SAFETY: as for `ballot`.
        unsafe { llvm_shuffle_up(WHOLE, value, by, 0) }
    }

    /// The lanes' values combined.
    #[cfg(target_feature = "sm_80")]
    #[inline(always)]
    pub fn redux(self, mask: Mask, operation: crate::wave::Operation, value: u32) -> u32 {
        use crate::wave::Operation;
        let reduce = |mask: Mask| {
            // SAFETY: as for `ballot`.
            unsafe {
                match operation {
                    Operation::Add => llvm_redux_add(value, mask),
                    Operation::UnsignedMin => llvm_redux_umin(value, mask),
                    Operation::UnsignedMax => llvm_redux_umax(value, mask),
                    Operation::SignedMin => llvm_redux_min(value, mask),
                    Operation::SignedMax => llvm_redux_max(value, mask),
                    Operation::And => llvm_redux_and(value, mask),
                    Operation::Or => llvm_redux_or(value, mask),
                    Operation::Xor => llvm_redux_xor(value, mask),
                }
            }
        };
        if mask == WHOLE { reduce(WHOLE) } else { reduce(mask) }
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

    /// Waits. After 10 µs, between two looks passes an eighth of the time that it has waited, so that who waits for long leaves
    /// the processor, the link to the host, and what guards its memory under a sanitizer, to others.
    #[inline(always)]
    pub fn wait_with_pauses<F: FnMut() -> bool>(self, mut poll: F) {
        let start = llvm_clock();
        while !poll() {
            let cycles = llvm_clock().wrapping_sub(start);
            if cycles > WAIT_CYCLES {
                // A cycle is half a nanosecond, and 2^20 of these are the longest sleep that there is.
                let ns = (cycles / 16).min(1 << 20);
                // SAFETY: sleeps.
                unsafe { llvm_nanosleep(ns as u32) };
            }
        }
    }

    /// Lets the time pass in which the host cannot have answered the request of so many lanes, of so many pairs a lane. A look
    /// takes 1.2 µs, and one that comes too early delays the next.
    #[inline(always)]
    pub fn pass(self, lanes: u32, request_pairs: u32, look: Look) {
        let cycles = match look {
            _ if lanes > 1 => request_pairs * PASS_CYCLES_A_PAIR,
            Look::AllTheTime => PASS_CYCLES_ALONE,
            Look::WithPauses { is_lent: false, .. } => PASS_CYCLES_WITH_BYTES,
            Look::WithPauses { is_lent: true, .. } => PASS_CYCLES_WITH_LOAN,
        };
        let start = llvm_clock();
        while llvm_clock().wrapping_sub(start) < cycles.into() {}
    }

    /// Tells the host of posts that it was not told of, before the lane waits for what the host may do because of them.
    #[inline(always)]
    fn announce_posts(self) {
        if has_posts() && self.slot().is_some() {
            // Else its address would take registers in loops with barriers.
            crate::packet::announce_posts(self.record_anew());
        }
    }

    /// Says to the build that the kernel's waves post.
    #[inline(always)]
    pub fn will_post(self) {
        // SAFETY: nothing happens.
        unsafe { asm!("// hostcall has: posts", options(nomem, nostack, preserves_flags)) };
    }

    pub fn pause(self) {
        self.announce_posts();
        let before = self.clock_ns();
        // SAFETY: sleeps.
        unsafe { llvm_nanosleep(200) };
        super::gpu::end_if_cancelled(self, before);
    }

    #[inline(always)]
    pub fn notify(self) {}

    pub fn barrier(self) {
        self.announce_posts();
        workgroup_barrier();
    }

    /// The clock, by which waves share looks over the link.
    pub fn look_clock_ns(self) -> Option<u64> {
        Some(self.clock_ns())
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

/// A device address as a pointer, which is known to be no address of shared or local memory, so that accesses by it are
/// `ld.global` and `st.global`.
///
/// LLVM looks for what is assumed of a pointer only in the block where another pointer is made of it, forgets it where all
/// that needs the pointer is in a later block, and drops what is assumed of a value that nothing else needs. So the pointer is
/// made anew here, of a zero that LLVM does not know, and is needed here. The assembler sees that it is zero and that comments
/// need nothing: no instruction is left.
#[inline(always)]
pub(crate) fn global(address: u64) -> *const u8 {
    let pointer = address as usize as *const u8;
    let zero: usize;
    // SAFETY: the host gives addresses of global memory only. The assembly makes a zero, which moves no pointer.
    unsafe {
        let is_global = llvm_is_global(pointer);
        asm!("mov.u64 {zero}, 0; // {is_global}", zero = out(reg64) zero, is_global = in(reg32) u32::from(is_global),
            options(nomem, nostack, preserves_flags));
        core::hint::assert_unchecked(is_global);
        let pointer = pointer.add(zero);
        asm!("// {pointer}", pointer = in(reg64) pointer, options(nomem, nostack, preserves_flags));
        pointer
    }
}

#[inline(always)]
pub(crate) fn workgroup_barrier() {
    // SAFETY: barriers may be waited at by lanes of a wave one by one, wherever each is; those that ended do not count. Where
    // lanes come to different ones, they wait until the launch is cancelled, or meet at the wrong one.
    unsafe { llvm_block_sync(0) };
}

/// What each pair of a wave's lanes takes on the link and on the host, in clock cycles. Of 0, 100, 200, 300 and 400, 300
/// gave the shortest call on an H200; runs differ by more than these do, see docs/history.
const PASS_CYCLES_A_PAIR: u32 = 300;

/// What a lone lane's request takes on the link and on the host, and what it says on its way, in clock cycles.
const PASS_CYCLES_ALONE: u32 = 750;

/// What a lone lane's call with bytes takes until its answer can be there, in clock cycles. Of 750, 1200, 1600 and 2000, the last two gave the same time in all runs on an H200: with less,
/// a look comes too early in some.
const PASS_CYCLES_WITH_BYTES: u32 = 1600;

/// What a lone lane's call whose reply the host lends takes until its answer can be there, in clock cycles.
const PASS_CYCLES_WITH_LOAN: u32 = 2700;

/// The period of the post bell, by the device's global clock.
#[inline(always)]
pub(crate) fn bell_period() -> Option<u32> {
    bell_period_at(llvm_globaltimer())
}

/// The same, where the clock shows `now_ns`.
#[inline(always)]
pub(crate) fn bell_period_at(now_ns: u64) -> Option<u32> {
    Some((now_ns >> post_bell::PERIOD_NS.ilog2()) as u32 & (LONE_WAVE - 1))
}

/// What the multiprocessor has seen of a word, perhaps before others changed it. A look at the word itself goes to the GPU's
/// second-level cache, which takes ten times as long.
#[inline(always)]
pub(crate) fn seen(word: &AtomicU64) -> u64 {
    let value;
    // SAFETY: reads what may be read at any time, as a whole.
    unsafe {
        asm!("ld.relaxed.cta.b64 {value}, [{word}];", value = out(reg64) value, word = in(reg64) word,
            options(nostack, preserves_flags, readonly));
    }
    value
}

pub(crate) fn exit_lane() -> ! {
    super::gpu::end_lanes(true);
    exit()
}

/// Ends the lane, of which everything else has been ended.
#[inline(always)]
pub(super) fn exit() -> ! {
    // SAFETY: ends the lane; nothing of it is left.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}
