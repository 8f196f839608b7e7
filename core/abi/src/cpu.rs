//! The software device's binary interface: what a kernel compiled for the CPU finds where a GPU has
//! hardware. Executor and kernel may be different shared objects, so this is C layout. Each kernel
//! says for which [`crate::ABI_VERSION`] it was compiled.
//!
//! A kernel's entry is an [`Entry`], called on a stack of its own. It runs one lane, and then those that follow it in the
//! wave, as long as none of them gives way: a lane that does has the stack to itself from then on.

use crate::launch::LaunchParams;
use crate::layout::WaveRecordWords;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

/// The lane of a resident wave that runs on a stack, and the lanes that may follow it there. The executor owns it; the
/// kernel's side only reads it, but for `lane` and `unwinding`. It stays where it is while the entry runs, which is one
/// thread to itself from its beginning to its end, whichever thread of the executor runs it.
#[repr(C)]
pub struct CpuLane {
    /// Index in the wave of the lane that runs. Where it is `end` or more, none runs.
    pub lane: AtomicU32,
    /// Index behind the last lane that may run here. The executor lowers it to the one behind `lane` when that gives way,
    /// or keeps its thread for long: the lanes behind it then run elsewhere. It does so in operations, and at any time
    /// in a signal handler on the lane's thread.
    pub end: AtomicU32,
    /// Lanes of a full wave: 32 or 64.
    pub wave_size: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// Position of the workgroup in the grid.
    pub workgroup: [u32; 3],
    /// The home slot that the wave claims when it needs one: no other wave that runs claims it.
    pub proposed_slot: u32,
    /// Lanes that the wave started with (the last wave of a workgroup may be partial).
    pub wave_lanes: u32,
    /// The launch's parameters; valid for the life of the lane.
    pub launch: *const LaunchParams,
    /// What the wave's lanes share, which began as [`WaveRecordWords::BEGIN`]; valid for the life of the lane.
    pub record: *mut WaveRecordWords,
    /// The workgroup's memory: `workgroup_memory_bytes` of the launch, zeroed, 64-byte aligned, valid for the
    /// life of the workgroup.
    pub workgroup_memory: *mut u8,
    /// Whether the launch was cancelled, so that lanes shall end; valid for the life of the lane.
    pub cancelled: *const AtomicBool,
    /// The operations below; valid for the life of the lane.
    pub operations: *const CpuOperations,
    /// The executor's own.
    pub executor: *mut c_void,
    /// Period of the device's clock in which a wave rings its post bell at most once, in ns, as a GPU's waves do. 0 lets it
    /// ring for every post.
    pub bell_period_ns: u64,
    /// Says whether the calling thread unwinds, by the language runtime that the kernel is linked with. The kernel's
    /// side writes it before anything of the kernel runs; `None` says that kernels do
    /// not unwind. It is called at any time while the lane runs, also in a signal handler on the lane's thread.
    pub unwinding: Option<extern "C" fn() -> bool>,
}

/// What a lane asks of the executor. Each function takes the lane that runs on the calling stack. Others of its wave may run
/// at any time.
///
/// A lane that unwinds waits for no other lane: `converge` returns the lane's own bit, `exchange` is one of that lane alone,
/// `barrier` returns at once.
#[repr(C)]
pub struct CpuOperations {
    /// Waits for the lanes of the wave that come to the same `site`, until no other lane of the wave can run
    /// on, and returns the mask of those that came (this lane's bit is set). Not every lane that could have
    /// come must: a wave may split anywhere, as on a GPU.
    pub converge: unsafe extern "C" fn(lane: *mut CpuLane, site: u64) -> u64,
    /// All lanes of `mask` call this, which a `converge` gave, or which are all [`CpuLane::wave_lanes`] that the wave started
    /// with. Each gives a value, and when all have come or ended each gets what it asks for by `gets`: below 64, the value of
    /// the lane of that index, 0 if none came; or [`GETS_BALLOT`], [`GETS_MATCH`], [`GETS_NOTHING`]. Orders memory among them.
    pub exchange: unsafe extern "C" fn(lane: *mut CpuLane, mask: u64, value: u64, gets: u32) -> u64,
    /// Waits until every lane of the workgroup that has not ended has called it. If some of them came to another `site`,
    /// writes to `other` at which the most did.
    pub barrier: unsafe extern "C" fn(lane: *mut CpuLane, site: u64, other: *mut OtherBarrier),
    /// Returns once `poll(data)` is true. `poll` is called from the executor's own stack on the same thread, must not block,
    /// and is not called again once it was true. A lane counts the calls, to look for its launch's end or to ring again.
    pub wait: unsafe extern "C" fn(
        lane: *mut CpuLane,
        poll: unsafe extern "C" fn(*mut c_void) -> bool,
        data: *mut c_void,
    ),
    /// Lets other lanes run; for loops that wait for memory to change.
    pub pause: unsafe extern "C" fn(lane: *mut CpuLane),
    /// Hints to the host that a doorbell was rung or a post written. May be lost.
    pub notify: unsafe extern "C" fn(lane: *mut CpuLane),
    /// Nanoseconds of the device's clock since some fixed point.
    pub clock_ns: unsafe extern "C" fn(lane: *mut CpuLane) -> u64,
    /// Returns once the device's clock has reached `deadline_ns`, or the launch is cancelled.
    pub sleep_until: unsafe extern "C" fn(lane: *mut CpuLane, deadline_ns: u64),
    /// Ends the lane where it is, as [`ENTRY_EXITED`] does, without unwinding: what it owns leaks. For a lane that
    /// shall end while it unwinds.
    pub end: unsafe extern "C" fn(lane: *mut CpuLane) -> !,
    /// Lends `len` bytes at `start` to the host, which reads them, and writes them if `written`, until `take_back` has
    /// returned. Returns by what address the host finds them, or 0 if they are not lent: a lane lends two pieces at most,
    /// each of less than 128 MiB. May be called by a lane that unwinds.
    pub lend: unsafe extern "C" fn(lane: *mut CpuLane, start: *mut u8, len: usize, written: bool) -> u64,
    /// Takes back what the lane has lent by this address. Waits for whoever accesses it just then. May be called by a lane
    /// that unwinds. What a lane has not taken back when it ends is taken back then.
    pub take_back: unsafe extern "C" fn(lane: *mut CpuLane, address: u64),
}

/// Of an exchange: the mask of the lanes whose value is not 0.
pub const GETS_BALLOT: u32 = 64;
/// The mask of the lanes that gave the same value as the one that asks.
pub const GETS_MATCH: u32 = 65;
/// Nothing: 0.
pub const GETS_NOTHING: u32 = 66;

/// Where lanes waited that were missing at a barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OtherBarrier {
    /// The site of their barrier.
    pub site: u64,
    /// How many came there: 0 if all lanes came to the same one.
    pub lanes: u32,
    /// Index in the workgroup of the first of them.
    pub first: u32,
}

impl CpuLane {
    /// Goes on to the lane behind the one that has just ended, for a kernel's entry. Returns `false` if that one does not
    /// run here: then the lane that has ended is still the one of this stack, and the entry returns.
    #[inline(always)]
    pub fn advance(&self) -> bool {
        let ended = self.lane.load(Ordering::Relaxed);
        // A signal handler of this thread lowers `end` to the index behind the `lane` that it finds. It finds the next
        // lane, which then runs here, or it came before, and what it wrote is read below.
        self.lane.store(ended + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let goes_on = ended + 1 < self.end.load(Ordering::Relaxed);
        if !goes_on {
            self.lane.store(ended, Ordering::Relaxed);
        }
        goes_on
    }
}

/// A kernel's entry: `arguments` points to its argument block. It runs the lane [`CpuLane::lane`], and may then go on with
/// the next ones, as long as [`CpuLane::advance`] says so. It returns how the last lane ended that it ran; those before it
/// are done. If there are lanes left up to [`CpuLane::end`], the executor calls it again for them.
pub type Entry = unsafe extern "C" fn(lane: *mut CpuLane, arguments: *const u8) -> u32;

/// The lane ended.
pub const ENTRY_DONE: u32 = 0;
/// The lane's kernel panicked.
pub const ENTRY_PANICKED: u32 = 1;
/// The lane ended early: it asked the program to exit, or found its launch cancelled.
pub const ENTRY_EXITED: u32 = 2;
