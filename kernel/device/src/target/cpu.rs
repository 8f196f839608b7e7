//! The software device: a lane is a coroutine, and the executor does what hardware does on a GPU.

use crate::lane::Lane;
use crate::packet::Look;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_abi::cpu::{
    CpuLane, CpuOperations, ENTRY_DONE, ENTRY_EXITED, ENTRY_PANICKED, GETS_BALLOT, GETS_MATCH, GETS_NOTHING,
    OtherBarrier,
};
use hostcall_abi::launch::{ChannelParams, LaunchParams, POINT_SWITCH_AT};
use hostcall_abi::layout::LONE_WAVE;
use hostcall_channel::device::{WaveRecord, is_stopped};
use std::boxed::Box;
use std::panic;
use std::string::{String, ToString};
use std::sync::OnceLock;

/// A lane's own data, on its stack; the thread's `CURRENT` points to that of the lane that runs.
struct Local {
    lane: *mut CpuLane,
    panic: RefCell<Option<PanicText>>,
}

struct PanicText {
    message: String,
    file: String,
    line: u32,
    column: u32,
}

// Invariant CURRENT: null, or the `Local` of the lane that this thread is. It is null during an executor operation, in
// which code of the host may run, and set again when the operation comes back.
#[cfg(not(feature = "rust-std"))]
std::thread_local! {
    static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// What `std` has for threads are lanes there, and not the process's threads.
#[cfg(feature = "rust-std")]
#[thread_local]
static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };

#[inline]
fn current() -> *const Local {
    CURRENT.get()
}

#[inline]
fn set_current(local: *const Local) {
    CURRENT.set(local);
}

/// Ends a lane by unwinding, past the kernel's own frames.
struct Exit;

/// The lane that runs, and how it asks its executor. Found once and handed down: finding it reads a thread-local.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    local: *const Local,
    lane: &'static CpuLane,
}

#[inline(always)]
pub(crate) fn here() -> Here {
    let local = current();
    assert!(!local.is_null(), "hostcall's device functions work in kernels only");
    // SAFETY: CURRENT; the executor keeps a lane in place while it lives, and nothing that borrows from it
    // outlives the lane's stack.
    Here { local, lane: unsafe { &*(*local).lane } }
}

impl Here {
    /// Calls an executor operation of the running lane.
    #[inline(always)]
    fn operate<R>(self, operation: impl FnOnce(*mut CpuLane, &'static CpuOperations) -> R) -> R {
        // SAFETY: CURRENT; lane and operations are valid for the lane's life.
        let (lane, operations) = unsafe { ((*self.local).lane, &*self.lane.operations) };
        set_current(ptr::null());
        let result = operation(lane, operations);
        set_current(self.local);
        result
    }

    #[inline(always)]
    pub fn params(self) -> &'static LaunchParams {
        // SAFETY: the executor keeps the parameters valid for the life of the lane.
        unsafe { &*self.lane.launch }
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
    #[inline(always)]
    pub fn channel(self) -> &'static ChannelParams {
        // SAFETY: the host keeps them where the launch's parameters say while a launch runs.
        unsafe { &*super::global(self.params().channel).cast::<ChannelParams>() }
    }

    /// What the wave's lanes share.
    #[inline(always)]
    pub fn record(self) -> &'static WaveRecord {
        // SAFETY: the executor keeps the record for the life of the wave, and only the wave's lanes access it, by this type,
        // which has the layout of its words.
        unsafe { &*self.lane.record.cast::<WaveRecord>() }
    }

    /// The home slot to claim: the executor gives each wave that runs another one.
    #[inline(always)]
    pub fn proposed_slot(self) -> u32 {
        self.lane.proposed_slot
    }

    /// Stands for the place in the hardware where the wave runs.
    #[inline(always)]
    pub fn hardware_place(self) -> u32 {
        self.lane.proposed_slot
    }

    /// Linear index of the workgroup, x fastest.
    #[inline(always)]
    pub fn workgroup_index(self) -> u32 {
        let ([x, y, z], [width, height, _]) = (self.lane.workgroup, self.params().workgroups);
        (z * height + y) * width + x
    }

    /// The lane's index in its workgroup.
    #[inline(always)]
    pub fn index_in_workgroup(self) -> u32 {
        self.lane.wave * self.lane.wave_size + self.lane_index()
    }

    #[inline(always)]
    pub fn lanes_in_workgroup(self) -> u32 {
        let [x, y, z] = self.params().workgroup_size.map(u32::from);
        x * y * z
    }

    #[inline(always)]
    pub fn lane_index(self) -> u32 {
        self.lane.lane.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn wave_size(self) -> u32 {
        self.lane.wave_size
    }

    /// All lanes of a wave that lacks none.
    #[inline(always)]
    pub fn full(self) -> Mask {
        Mask::MAX >> (64 - self.lane.wave_size)
    }

    /// The lanes that the wave began with.
    #[inline(always)]
    pub fn wave_lanes(self) -> Mask {
        Mask::MAX >> (64 - self.lane.wave_lanes)
    }

    pub fn wave_in_workgroup(self) -> u32 {
        self.lane.wave
    }

    pub fn workgroup_memory(self) -> *mut u8 {
        self.lane.workgroup_memory
    }

    #[inline(always)]
    pub fn converge(self, site: u64) -> Mask {
        if self.lane.wave_lanes == 1 {
            return 1 << self.lane_index();
        }
        // SAFETY: the running lane asks its own executor.
        self.operate(|lane, operations| unsafe { (operations.converge)(lane, site) })
    }

    /// Those of `mask` that came to the same `site`: all.
    #[inline(always)]
    pub fn same(self, mask: Mask, _site: u64) -> Mask {
        mask
    }

    /// Gives a value to the other lanes of `mask`, and gets of theirs what `gets` says, as [`CpuOperations::exchange`] has it.
    #[inline(always)]
    fn exchange(self, mask: Mask, value: u64, gets: u32) -> u64 {
        // SAFETY: the running lane asks its own executor.
        self.operate(|lane, operations| unsafe { (operations.exchange)(lane, mask, value, gets) })
    }

    #[inline(always)]
    pub fn ballot(self, mask: Mask, yes: bool) -> Mask {
        if mask.is_power_of_two() {
            return if yes { mask } else { 0 };
        }
        self.exchange(mask, u64::from(yes), GETS_BALLOT)
    }

    #[inline(always)]
    pub fn all(self, mask: Mask, yes: bool) -> bool {
        self.ballot(mask, yes) == mask
    }

    #[inline(always)]
    pub fn broadcast(self, mask: Mask, value: u64, from: u32) -> u64 {
        if mask.is_power_of_two() { value } else { self.exchange(mask, value, from) }
    }

    /// Those of `mask` with the same `value`.
    #[inline(always)]
    pub fn matching(self, mask: Mask, value: u64) -> Mask {
        self.exchange(mask, value, GETS_MATCH)
    }

    /// The value of the lane of index `from`, one of `mask`, which each lane chooses.
    #[inline(always)]
    pub fn shuffle_u32(self, mask: Mask, value: u32, from: u32) -> u32 {
        self.broadcast(mask, value.into(), from) as u32
    }

    /// Returns the value of lane `from`, of which each lane gives the lower and the upper half.
    #[inline(always)]
    pub fn shuffle(self, mask: Mask, low: u32, high: u32, from: u32) -> u64 {
        self.broadcast(mask, u64::from(low) | u64::from(high) << 32, from)
    }

    #[inline(always)]
    pub fn sync(self, mask: Mask) {
        if !mask.is_power_of_two() {
            self.exchange(mask, 0, GETS_NOTHING);
        }
    }

    #[inline(always)]
    pub fn wait<F: FnMut() -> bool>(self, mut poll: F) {
        unsafe extern "C" fn call<F: FnMut() -> bool>(data: *mut c_void) -> bool {
            // SAFETY: `data` is the closure of the waiting lane, which stays on its stack until the wait is over,
            // and only the executor calls it, one call at a time.
            unsafe { (*data.cast::<F>())() }
        }
        // SAFETY: the running lane asks its own executor, with a function and data that fit each other.
        self.operate(|lane, operations| unsafe {
            (operations.wait)(lane, call::<F>, (&raw mut poll).cast())
        });
    }

    /// As `wait`, which leaves the processor to others.
    #[inline(always)]
    pub fn wait_with_pauses<F: FnMut() -> bool>(self, poll: F) {
        self.wait(poll);
    }

    /// Lets the time pass in which the host cannot have answered: it costs nothing to look here.
    #[inline(always)]
    pub fn pass(self, _lanes: u32, _request_pairs: u32, _look: Look) {}

    /// Announces posts that rang no bell, before the lane waits for others.
    #[inline(always)]
    fn announce_posts(self) {
        let record = self.record();
        if self.lane.bell_period_ns > 0 && record.slot().is_some() {
            crate::packet::announce_posts(record);
        }
    }

    #[inline(always)]
    pub fn will_post(self) {}

    #[inline]
    pub fn pause(self) {
        self.announce_posts();
        // SAFETY: the running lane asks its own executor.
        self.operate(|lane, operations| unsafe { (operations.pause)(lane) });
        self.end_if_cancelled();
    }

    /// Ends the lane of a cancelled launch, but leaves one that unwinds to its destructors.
    fn end_if_cancelled(self) {
        if self.cancelled() && !self.unwinding() {
            exit_lane();
        }
    }

    #[inline(always)]
    pub fn notify(self) {
        // SAFETY: the running lane asks its own executor.
        self.operate(|lane, operations| unsafe { (operations.notify)(lane) });
    }

    #[inline]
    #[track_caller]
    pub fn barrier(self) {
        self.announce_posts();
        let here = Location::caller();
        let site = core::ptr::from_ref(here).expose_provenance() as u64;
        let mut other = OtherBarrier::default();
        // SAFETY: the running lane asks its own executor, with a place to write to.
        self.operate(|lane, operations| unsafe { (operations.barrier)(lane, site, &mut other) });
        self.end_if_cancelled();
        if other.lanes == 0 {
            return;
        }
        // SAFETY: another lane of the kernel gave it, by this function.
        let there: &'static Location<'static> =
            unsafe { &*core::ptr::with_exposed_provenance(other.site as usize) };
        // One place in the source may have several addresses.
        if here != there {
            let OtherBarrier { lanes, first, .. } = other;
            panic!(
                "{lanes} of the workgroup's lanes, the first of them lane {first}, are missing at this barrier: they wait \
                 at another one, {there}"
            );
        }
    }

    /// No clock: a look is a plain read, and who waits may not ask the executor for the time.
    #[inline(always)]
    pub fn look_clock_ns(self) -> Option<u64> {
        None
    }

    pub fn clock_ns(self) -> u64 {
        // SAFETY: the running lane asks its own executor.
        self.operate(|lane, operations| unsafe { (operations.clock_ns)(lane) })
    }

    /// Whether the launch was cancelled, as far as that is known without asking over the link.
    #[inline(always)]
    pub fn cancelled(self) -> bool {
        // SAFETY: the executor keeps the flag valid for the life of the lane.
        unsafe { (*self.lane.cancelled).load(Ordering::Relaxed) }
    }

    /// Whether the lane unwinds from a panic, so that it must not wait for others any more.
    #[inline(always)]
    pub fn unwinding(self) -> bool {
        unwinds()
    }
}

/// The launch's parameters, and who the lane is, as the lane's function has them: to find these anew reads a thread-local.
#[derive(Clone, Copy)]
pub(crate) struct Params(Here);

impl Params {
    #[inline(always)]
    pub fn get(self) -> &'static LaunchParams {
        self.0.params()
    }

    /// The lane that has them, which runs.
    #[inline(always)]
    pub fn here(self) -> Here {
        self.0
    }
}

/// Lanes run one after the other: meeting costs more than asking.
pub(crate) const IN_STEP: bool = false;

/// Whether the calls of a lane that is alone go a way of their own.
pub(crate) const LONE_LANES: bool = true;

/// Whether the host's copies reach the memory of lanes that wait.
pub(crate) const HOST_COPIES: bool = true;

/// Bytes of a reply from which a lane lends its memory for it: to lend it takes as long as to copy some thousand bytes.
pub(crate) const LEAST_REPLY_TO_LEND: usize = 4096;

/// Memory that a lane lends to the host, until this is dropped.
pub(crate) struct Lent(u64);

impl Lent {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Lends a message's bytes.
    pub fn message(bytes: &[u8]) -> Self {
        Self::new(bytes.as_ptr().cast_mut(), bytes.len(), false)
    }

    /// Lends the room for a reply.
    pub fn room(bytes: &mut [u8]) -> Self {
        Self::new(bytes.as_mut_ptr(), bytes.len(), true)
    }

    fn new(start: *mut u8, len: usize, written: bool) -> Self {
        // SAFETY: the running lane asks its own executor; it has borrowed the bytes until this is dropped, and until then
        // leaves them to the host.
        Self(here().operate(|lane, operations| unsafe { (operations.lend)(lane, start, len, written) }))
    }

    /// Where the host finds it; 0 if it does not.
    pub fn address(&self) -> u64 {
        self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: the running lane asks its own executor.
            here().operate(|lane, operations| unsafe { (operations.take_back)(lane, self.0) });
        }
    }
}

/// Lanes of a wave, one bit a lane.
pub(crate) type Mask = u64;

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn bits(mask: Mask) -> u64 {
    mask
}

/// The period of the post bell, if the executor asks for one. Else every post rings: a store here costs nothing. So does
/// one that is made while its lane waits for room, since no lane runs then that could ask for the time.
pub(crate) fn bell_period() -> Option<u32> {
    if current().is_null() {
        return None;
    }
    let here = here();
    let period_ns = here.lane.bell_period_ns;
    (period_ns > 0).then(|| (here.clock_ns() / period_ns) as u32 & (LONE_WAVE - 1))
}

/// The same, where the clock shows `now_ns`.
pub(crate) fn bell_period_at(now_ns: u64) -> Option<u32> {
    let period_ns = here().lane.bell_period_ns;
    (period_ns > 0).then(|| (now_ns / period_ns) as u32 & (LONE_WAVE - 1))
}

/// A word as it is.
#[inline(always)]
pub(crate) fn seen(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Whether the running lane unwinds. A program with `std` never does; there the question itself would take memory and locks for
/// a thread-local variable, which may be on its way to its end.
#[inline(always)]
fn unwinds() -> bool {
    !cfg!(feature = "rust-std") && std::thread::panicking()
}

/// Lets other lanes run until so many nanoseconds have passed.
pub(crate) fn sleep(duration_ns: u64) {
    let here = here();
    here.announce_posts();
    let deadline_ns = here.clock_ns().saturating_add(duration_ns);
    // SAFETY: the running lane asks its own executor.
    here.operate(|lane, operations| unsafe { (operations.sleep_until)(lane, deadline_ns) });
    here.end_if_cancelled();
}

pub(crate) fn exit_lane() -> ! {
    if cfg!(feature = "rust-std") || unwinds() {
        // A second panic in a destructor would end the process, and a program with `std` does not unwind.
        // SAFETY: the running lane asks its own executor; CURRENT is null from here on.
        here().operate(|lane, operations| unsafe { (operations.end)(lane) })
    }
    panic::resume_unwind(Box::new(Exit))
}

/// For the executor, which has a lane that unwinds wait for no other one.
extern "C" fn unwinding() -> bool {
    unwinds()
}

/// Drops what a panic carried. Its destructor may panic, and what that carries has one too.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(payload) = panic::catch_unwind(panic::AssertUnwindSafe(|| drop(payload))) {
        core::mem::forget(payload);
    }
}

/// Runs a kernel's body on one lane, and then on those that follow it on its stack. For the entries that `#[kernel]` makes.
///
/// # Safety
/// `lane` is what the executor of a software device passes to a kernel's entry.
#[doc(hidden)]
pub unsafe fn enter_cpu(lane: *mut CpuLane, body: impl Fn(&Lane)) -> u32 {
    install_hook();
    let local = Local { lane, panic: RefCell::new(None) };
    set_current(&local);
    // SAFETY: the executor's promise; this is before the kernel's code.
    unsafe { (*lane).unwinding = Some(unwinding) };
    let here = here();
    let first = here.lane_index();
    // SAFETY: the host gives each launch the word of its stream.
    if unsafe { is_stopped(here.params().stop_at, here.params().sequence) } {
        end_lanes(here, first);
        return ENTRY_EXITED;
    }
    let run = || {
        let lane = Lane::new(Params(here));
        loop {
            body(&lane);
            // Nothing is between two lanes that do not wait but this.
            if here.cancelled() || !here.lane.advance() {
                return;
            }
        }
    };
    let result = panic::catch_unwind(panic::AssertUnwindSafe(run));
    set_current(&local);
    let code = match result {
        Ok(()) => ENTRY_DONE,
        Err(payload) if payload.is::<Exit>() => ENTRY_EXITED,
        Err(payload) => {
            // What the payload's destructor says is not what the lane panicked with.
            let text = local.panic.borrow_mut().take();
            discard(payload);
            // The report itself may find the launch cancelled, which unwinds again.
            let report = panic::catch_unwind(|| {
                if let Some(text) = text {
                    crate::panics::report(&text.message, &text.file, text.line, text.column);
                }
            });
            if let Err(payload) = report {
                discard(payload);
            }
            set_current(&local);
            ENTRY_PANICKED
        }
    };
    end_lanes(here, first);
    code
}

/// The lanes from `first` to this one end: the wave's last ones give the wave's slot back.
fn end_lanes(here: Here, first: u32) {
    let count = here.lane_index() - first + 1;
    crate::packet::note_end(here, Mask::MAX >> (64 - count) << first);
    set_current(ptr::null());
}

/// How messages begin of panics that do not unwind: what the standard library finds wrong of `unsafe` code, where it is compiled
/// with `debug-assertions`, and panics where none may be.
const ABORTING: [&str; 5] = [
    "misaligned pointer dereference",
    "null pointer dereference",
    "unsafe precondition(s) violated",
    "panic in a function that cannot unwind",
    "panic in a destructor during cleanup",
];

/// Keeps a lane's panic from being printed here: its message goes to the host.
///
/// Allocates nothing where the hook before is the standard library's: an image has its own, and what its statics point to is
/// lost when it is unloaded.
fn install_hook() {
    type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync>;
    static PREVIOUS: OnceLock<Hook> = OnceLock::new();
    PREVIOUS.get_or_init(|| {
        crate::backtrace::prepare();
        let previous = panic::take_hook();
        panic::set_hook(Box::new(|info| {
            let local = current();
            if local.is_null() {
                // `None` before this returns.
                return PREVIOUS.get().into_iter().for_each(|previous| previous(info));
            }
            let message = info.payload_as_str().unwrap_or("a panic whose payload is no text").to_string();
            let (file, line, column) =
                info.location().map_or(("?", 0, 0), |place| (place.file(), place.line(), place.column()));
            if ABORTING.iter().any(|begin| message.starts_with(begin)) {
                // The process ends when this returns, and nobody would ever read what the lane has said.
                let here = here();
                let (at, lane) = (here.params().workgroups, here.index_in_workgroup());
                let [x, y, z] = crate::lane::place(here.workgroup_index(), at);
                std::eprintln!(
                    "hostcall: lane {lane} of workgroup ({x}, {y}, {z}), {file}:{line}:{column}: {message}"
                );
                // SAFETY: CURRENT: the lane that panics is the one that runs.
                if let Some(before) = &*unsafe { &*local }.panic.borrow() {
                    let PanicText { message, file, line, column } = before;
                    std::eprintln!(
                        "hostcall: the lane's panic before that: {file}:{line}:{column}: {message}"
                    );
                }
            }
            let message = message + &crate::backtrace::calls();
            let text = PanicText { message, file: file.to_string(), line, column };
            // SAFETY: CURRENT: the lane that panics is the one that runs.
            *unsafe { &*local }.panic.borrow_mut() = Some(text);
        }));
        previous
    });
}
