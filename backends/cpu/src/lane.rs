//! A lane: how far it is, what it waits for, and which ones may begin in its place.
//!
//! Lanes that do not wait cost next to nothing. The kernel's entry gets a lane and the index behind the last
//! one that may follow it (`CpuLane::lane`, `end`), and runs them in a loop that is compiled with the kernel
//! (`enter_cpu` in kernel/device). That is a *run* of lanes; between two of them lie a store, two loads and
//! two comparisons. The executor notes which lanes ended when the loop comes back, or when one of them asks
//! it for something.
//!
//! | what | who has it | until |
//! |---|---|---|
//! | a lane that has not begun | the wave's mask `fresh` | a stack is given to it, or a lane before it ends on one |
//! | a run: the lanes `first` to `end` of a wave | one [`Lane`], with its fiber and its `CpuLane` | all have ended, or one gives way |
//! | a lane that gave way (*alone*) | that [`Lane`]; `end` is the index behind it | it ends; then the [`Lane`] is the seat's again |
//! | the lanes behind a lane that gave way | `fresh` | as above |
//!
//! A run also stops at a lane that lends memory, that a signal marks for its end, that takes its thread away
//! (`watch.rs`), that panics or exits, and when its launch is cancelled. A signal handler lowers `end` to the
//! index behind the `lane` that it finds; the loop stores the next lane's index first and reads `end` then
//! (`CpuLane::advance`). So a lane runs once: here if the handler found it, elsewhere if the handler came
//! before. Handler and loop are on one thread, so a compiler fence orders them.

use crate::fiber::{Fiber, Trap, Yielder};
use crate::hold::Hold;
use crate::lent::Access;
use crate::seat::Seat;
use crate::shield;
use crate::stack::{LaneStack, close_reserve, open_reserve};
use crate::thread::ThreadState;
use crate::trap;
use crate::workgroup::Workgroup;
use corosensei::CoroutineResult;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED, OtherBarrier};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

pub(crate) type Poll = unsafe extern "C" fn(*mut c_void) -> bool;

/// How a lane came to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Done,
    Exited,
    Panicked,
    Overflow,
    Fault { signal: i32, address: usize },
    Killed,
}

/// What became of a lane that was gone on with, or of the last one that began in its place.
pub(crate) enum Resumed {
    /// It blocked or paused, and is alone.
    GaveWay,
    Ended(Ending),
    /// It had taken its thread away, and has now come to an operation or to its end. Its state is the seat's.
    Away(Option<Ending>),
}

/// What a blocked lane waits for.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    Converge { site: u64 },
    Exchange { mask: u64, value: u64, gets: u32 },
    Barrier { site: u64, other: *mut OtherBarrier },
    Wait { poll: Poll, data: *mut c_void },
    Sleep { deadline_ns: u64 },
}

/// Where a signal finds a lane that shall end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whereabouts {
    /// In the kernel's own code, which can be given up.
    Open,
    /// In code of another shared object, an allocator's for example, or in a shielded allocator: it may hold locks of the
    /// process. It comes out of there by itself.
    Foreign,
    /// In an operation, which ends the lane itself.
    Operation,
    /// In a panic: the standard library may hold its lock of the panic hook.
    Panic,
}

/// Interruptions that find a lane unwinding until it may be ended in spite of that. The standard library holds its lock of
/// the panic hook in the first microseconds of a panic only; a lane that still unwinds after so many interruptions, which
/// are 10 ms apart, is in a destructor.
const UNWINDING_INTERRUPTIONS: u32 = 10;

/// Pieces of memory that a lane lends at a time: a message and the room for its reply.
const MOST_LENT: usize = 2;

/// [`Lane::alone`] of a lane behind which others may begin.
const NOT_ALONE: u32 = u32::MAX;

/// A lane that has begun, on the fiber that it has to itself. Used by its seat's thread only, but a lane that is *away* runs
/// on the thread that it took from the seat until it comes to an operation. Whatever thread runs it, to itself it is the same
/// one (see `identity`).
///
/// When a lane ends that never gave way, the lane behind it in its wave begins in its place, up to `CpuLane::end`. A lane
/// that gives way is *alone* from then on: the lanes behind it begin elsewhere, and nothing does so here.
///
/// Invariant RUN: the lanes from `first` to the one that runs began here, one after the other, and those before it have
/// ended, which is not noted yet. Whoever looks at the wave's masks while the lane is not alone calls [`Lane::catch_up`]
/// first.
///
/// Invariant LEAKED: what lies on the stack of a lane that did not come to its end is never used for anything
/// else. Threads that the lane started, and lists that it is in, may still refer to what its frames hold, and
/// to what its kernel was given.
pub(crate) struct Lane {
    abi: UnsafeCell<MaybeUninit<CpuLane>>,
    workgroup: Cell<*const Workgroup>,
    /// This lane, as its box became a pointer.
    own: Cell<*mut Lane>,
    fiber: Fiber,
    first: Cell<u32>,
    /// Index in its wave of a lane that is alone, else [`NOT_ALONE`]. Changed once for a lane, on its thread, also in a signal
    /// handler.
    alone: Cell<u32>,
    /// The lane that ran when the seat's thread was last suspected of having been in it for long, or the first one. Changed
    /// as `alone`.
    suspected: Cell<u32>,
    /// The lane's code has come to its end, so that nothing of it lies on its stack.
    finished: Cell<bool>,
    yielder: Cell<*const Yielder>,
    /// What the thread does that runs it. Read in signal handlers on that thread.
    running: Cell<*const ThreadState>,
    /// The lane is in an operation of the executor, or past its entry: it must not be ended by a signal.
    in_executor: AtomicBool,
    /// How the lane shall end, at the first place where it can. Changed by the lane's thread, also in a signal handler.
    doomed: Cell<Option<Ending>>,
    /// The reserve of the stack is open. Changed in a signal handler on the lane's thread.
    reserve_open: Cell<bool>,
    /// Interruptions that found the lane unwinding, when it was to be ended.
    unwinding_interruptions: Cell<u32>,
    /// The lane took its thread away from the seat. Changed on that thread only.
    away: AtomicBool,
    /// What the lane waits for while it is blocked.
    pub request: Cell<Request>,
    /// What the operation returns that the lane is blocked in.
    pub given: Cell<u64>,
    /// Addresses of what the lane lends to the host; 0 for nothing. Changed on the lane's thread, and when it has ended.
    lent: [Cell<u64>; MOST_LENT],
}

impl Lane {
    /// What lanes can begin on.
    pub fn new(stack: LaneStack) -> Box<Lane> {
        Box::new(Lane {
            abi: UnsafeCell::new(MaybeUninit::uninit()),
            workgroup: Cell::new(ptr::null()),
            own: Cell::new(ptr::null_mut()),
            fiber: Fiber::new(stack),
            first: Cell::new(0),
            alone: Cell::new(NOT_ALONE),
            suspected: Cell::new(0),
            finished: Cell::new(false),
            yielder: Cell::new(ptr::null()),
            running: Cell::new(ptr::null()),
            in_executor: AtomicBool::new(false),
            doomed: Cell::new(None),
            reserve_open: Cell::new(false),
            unwinding_interruptions: Cell::new(0),
            away: AtomicBool::new(false),
            request: Cell::new(Request::Sleep { deadline_ns: 0 }),
            given: Cell::new(0),
            lent: Default::default(),
        })
    }

    /// Makes this the lane `abi.lane`, which has not begun, and those behind it up to `abi.end`. It stays where it is until
    /// [`Lane::reclaim`].
    pub fn begin<'a>(self: Box<Self>, workgroup: &Workgroup, abi: CpuLane) -> &'a Lane {
        let own = Box::into_raw(self);
        // SAFETY: the box's own pointer, which nobody else has.
        let lane = unsafe { &*own };
        lane.own.set(own);
        lane.start(workgroup, abi);
        lane
    }

    /// Makes place for the next lanes, if this one has come to its end: `None` for one that was ended in the middle of its
    /// code, whose stack stays as it is for good (LEAKED).
    ///
    /// # Safety
    /// The lane has begun, and nobody goes on with it or looks for it any more.
    pub unsafe fn reclaim(&self) -> Option<Box<Lane>> {
        if !self.finished.get() {
            return None;
        }
        // SAFETY: nothing is left on the stack of a lane that has come to its end, thus nothing in the reserve.
        if self.reserve_open.get() && !unsafe { close_reserve(&self.trap().1) } {
            return None;
        }
        self.reserve_open.set(false);
        // SAFETY: `begin` got it from a box; the caller's promise.
        Some(unsafe { Box::from_raw(self.own.get()) })
    }

    fn start(&self, workgroup: &Workgroup, abi: CpuLane) {
        let first = abi.lane.load(Ordering::Relaxed);
        self.workgroup.set(workgroup);
        self.first.set(first);
        self.alone.set(NOT_ALONE);
        self.suspected.set(first);
        self.finished.set(false);
        self.doomed.set(None);
        self.unwinding_interruptions.set(0);
        self.in_executor.store(false, Ordering::Relaxed);
        let executor = self.own.get().cast();
        // SAFETY: no lane runs here, so nobody else has the ABI block.
        unsafe { (*self.abi.get()).write(CpuLane { executor, ..abi }) };
    }

    /// The code of the lanes, from the first one's beginning to the end of the last one that runs here. Called on the stack
    /// of the fiber.
    pub fn run(&self, yielder: &Yielder) -> Ending {
        self.yielder.set(yielder);
        trap::set_current(self);
        let ending = self.run_all();
        trap::set_current(ptr::null());
        ending
    }

    fn run_all(&self) -> Ending {
        let run = self.workgroup().run();
        loop {
            // SAFETY: who launched the kernel vouches for its entry and its argument block; the block of the lane is valid
            // until its code has come to its end.
            let code = unsafe { (run.entry)(self.abi.get().cast(), run.arguments.as_ptr().cast()) };
            self.in_executor.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            match code {
                // A signal that shall end the lane has let no other one follow it.
                ENTRY_DONE if !run.cancelled() && self.abi().advance() => {}
                ENTRY_DONE => return Ending::Done,
                ENTRY_PANICKED => return Ending::Panicked,
                _ => return Ending::Exited,
            }
            compiler_fence(Ordering::SeqCst);
            self.in_executor.store(false, Ordering::Relaxed);
        }
    }

    fn abi(&self) -> &CpuLane {
        // SAFETY: written by `begin`, before anything else is asked of the lane. What is changed later are atomics, and
        // `unwinding`, which is read by `unwinds` alone.
        unsafe { (*self.abi.get()).assume_init_ref() }
    }

    /// Lets no other lane follow this one here: it is alone from now on. Does nothing between two lanes, where a signal
    /// handler may ask for it.
    pub fn separate(&self) {
        if self.alone.get() == NOT_ALONE && !self.is_between_lanes() {
            let index = self.place().0;
            self.abi().end.store(index + 1, Ordering::Relaxed);
            self.alone.set(index);
        }
    }

    /// Returns whether the lane has ended, and none follows it. Its code comes to its end without waiting for anything.
    /// Asked in a signal handler, on the lane's thread.
    pub fn is_between_lanes(&self) -> bool {
        self.place().0 >= self.abi().end.load(Ordering::Relaxed)
    }

    /// Notes that the lanes have ended that ran here before this one (RUN). Called on the seat's thread.
    #[inline]
    fn catch_up(&self) {
        self.catch_up_to(self.place().0);
    }

    fn catch_up_to(&self, index: u32) {
        let first = self.first.replace(index);
        if first < index {
            self.workgroup().end_run(self.abi().wave, first, index);
        }
    }

    /// Notes what became of the lanes that ran here before (RUN), and returns the place of this one, which is alone. It may
    /// be away and run meanwhile. Called by the scheduler.
    pub fn note_alone(&self) -> (u32, u32) {
        let index = self.alone.get();
        self.catch_up_to(index);
        (index, self.abi().wave)
    }

    /// The lane whose kernel passed `abi` to an operation.
    ///
    /// # Safety
    /// `abi` is what the executor gave the kernel's entry, which is on the calling stack.
    pub unsafe fn of<'a>(abi: *mut CpuLane) -> &'a Lane {
        // SAFETY: `begin` set it to the lane, which exists as long as its stack does.
        unsafe { &*(*abi).executor.cast::<Lane>() }
    }

    pub fn workgroup(&self) -> &Workgroup {
        // SAFETY: set before the lane begins; the workgroup lives until its lanes have ended.
        unsafe { &*self.workgroup.get() }
    }

    /// Index in the wave, and of the wave in the workgroup.
    #[inline]
    pub fn place(&self) -> (u32, u32) {
        (self.abi().lane.load(Ordering::Relaxed), self.abi().wave)
    }

    /// Returns what the thread does that runs the lane. Asked on that thread.
    pub fn running(&self) -> &ThreadState {
        // SAFETY: set by `resume` to that of the thread, which is there while the thread runs lanes.
        unsafe { &*self.running.get() }
    }

    /// Returns how to end the lane from a signal, and the addresses below its stack that trap.
    pub fn trap(&self) -> &Trap {
        &self.fiber.trap
    }

    /// Returns whether the grace of the lane's launch is over.
    pub fn is_to_be_killed(&self) -> bool {
        self.workgroup().run().kill.load(Ordering::Relaxed)
    }

    /// Returns whether the lane is in an operation of the executor.
    pub fn is_in_executor(&self) -> bool {
        self.in_executor.load(Ordering::Relaxed)
    }

    /// Notes how the lane shall end, unless that is known already.
    pub fn doom(&self, ending: Ending) {
        if self.doomed.get().is_none() {
            self.doom_again(ending);
        }
    }

    /// Notes how the lane ends, whatever was known before.
    pub fn doom_again(&self, ending: Ending) {
        self.separate();
        self.doomed.set(Some(ending));
    }

    /// Returns how the lane shall end, if a signal or an operation has said so.
    pub fn doomed(&self) -> Option<Ending> {
        self.doomed.get()
    }

    /// Returns whether the lane unwinds, as its language runtime says. Asked on the lane's thread.
    pub fn unwinds(&self) -> bool {
        // SAFETY: the kernel's side wrote it before the kernel's code began, or never. A copy is read, so that nothing
        // borrows the block.
        let unwinding = unsafe { (&raw const (*self.abi.get().cast::<CpuLane>()).unwinding).read() };
        unwinding.is_some_and(|unwinding| unwinding())
    }

    /// Returns where a signal found the lane: at this address, `blocked` in a system call or not. Called in a signal
    /// handler, on the lane's thread.
    pub fn whereabouts(&self, address: usize, blocked: bool) -> Whereabouts {
        let patience = self.unwinding_interruptions.get() < UNWINDING_INTERRUPTIONS;
        if self.is_in_executor() {
            Whereabouts::Operation
        } else if patience && self.unwinds() {
            Whereabouts::Panic
        } else if blocked || self.workgroup().run().image.contains(address) && !shield::is_inside() {
            Whereabouts::Open
        } else {
            Whereabouts::Foreign
        }
    }

    /// Notes that an interruption found the lane where it could not be ended because it unwinds.
    pub fn count_interruption(&self) {
        if !self.is_in_executor() && self.unwinds() {
            self.unwinding_interruptions.set(self.unwinding_interruptions.get().saturating_add(1));
        }
    }

    /// Opens the reserve of the lane's stack after a fault at this address. Returns `false` when the address does not lie
    /// in the reserve, or the reserve cannot be opened. Called in a signal handler, on the lane's thread.
    pub fn open_reserve(&self, address: usize) -> bool {
        let (_, guard) = self.trap();
        if self.reserve_open.get() || !guard.reserve.contains(&address) {
            return false;
        }
        // SAFETY: the lane's own stack exists while the lane runs.
        let opened = unsafe { open_reserve(guard) };
        self.reserve_open.set(opened);
        opened
    }

    /// Notes that the lane is ended where it is, by a signal.
    pub fn ends(&self) {
        self.in_executor.store(true, Ordering::Relaxed);
    }

    /// Leaves the seat to another thread, if the lane has not done so.
    fn lose_seat(&self) {
        if !self.away.load(Ordering::Relaxed) {
            self.separate();
            self.away.store(true, Ordering::Relaxed);
            self.workgroup().seat().lose(self);
        }
    }

    /// Runs `operation` where signals do not end the lane.
    pub fn shielded(&self, operation: impl FnOnce(&Lane)) {
        self.in_executor.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        operation(self);
        compiler_fence(Ordering::SeqCst);
        self.in_executor.store(false, Ordering::Relaxed);
    }

    /// Ends the lane where it is. Called on the lane's stack.
    pub fn end_here(&self) -> ! {
        self.in_executor.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.doom(Ending::Exited);
        self.wait_for_end()
    }

    /// What a lane does that was interrupted: if it is still at what made it suspect, it goes away with its thread,
    /// so that the seat goes to another one. A lane that began after others in the same turn is not suspect before it has
    /// had a turn's time to itself. Returns whether the lane is away, and it is the turn of others. Called in a signal
    /// handler, on the lane's thread.
    pub fn interrupted(&self, hold: &Hold) -> bool {
        if self.in_executor.load(Ordering::Relaxed) {
            return false;
        }
        let seat = self.workgroup().seat();
        let is_away = self.away.load(Ordering::Relaxed);
        if !is_away && seat.suspect.load(Ordering::Relaxed) == seat.turns.load(Ordering::Relaxed) {
            let index = self.place().0;
            if self.suspected.replace(index) != index {
                seat.restart_turn();
                return false;
            }
            hold.close();
            self.lose_seat();
            return true;
        }
        is_away && !hold.is_open()
    }

    /// Marks the lane as inside the executor while `operation` runs on its stack.
    #[inline(always)]
    pub fn in_executor<R>(&self, operation: impl FnOnce(&Lane) -> R) -> R {
        self.in_executor.store(true, Ordering::Relaxed);
        // A signal finds the lane in the executor, or came before and is seen here.
        compiler_fence(Ordering::SeqCst);
        if self.away.load(Ordering::Relaxed) {
            self.leave_thread();
        }
        self.catch_up();
        let result = operation(self);
        if self.doomed.get().is_some() {
            self.wait_for_end();
        }
        compiler_fence(Ordering::SeqCst);
        self.in_executor.store(false, Ordering::Relaxed);
        result
    }

    /// Gives way until the scheduler has ended the lane.
    #[cold]
    #[inline(never)]
    fn wait_for_end(&self) -> ! {
        loop {
            self.suspend();
        }
    }

    /// Gives up the thread that the lane had to itself, and goes on when the seat's thread gets to it.
    #[cold]
    #[inline(never)]
    fn leave_thread(&self) {
        self.suspend();
    }

    /// Lends memory to the host. Returns by what address, or 0 if it is not lent.
    ///
    /// # Safety
    /// LENT (see `lent`), until the lane has taken it back or has ended.
    pub unsafe fn lend(&self, start: usize, len: usize, access: Access) -> u64 {
        if !self.workgroup().seat().shared.lends.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(place) = self.lent.iter().find(|place| place.get() == 0) else { return 0 };
        // What it does not take back is taken back when the scheduler notes its end.
        self.separate();
        // SAFETY: the caller's promise.
        place.set(unsafe { self.workgroup().seat().shared.lent.lend(start, len, access) });
        place.get()
    }

    /// Takes back what the lane lends by this address.
    pub fn take_back(&self, address: u64) {
        if let Some(place) = self.lent.iter().find(|place| address != 0 && place.get() == address) {
            self.workgroup().seat().shared.lent.take_back(place.replace(0));
        }
    }

    /// Takes back all that the lane lends.
    pub fn take_all_back(&self) {
        self.lent.iter().for_each(|place| self.take_back(place.get()));
    }

    /// Back to the scheduler, until it resumes the lane. Called on the lane's stack.
    #[inline(always)]
    pub fn suspend(&self) {
        // SAFETY: set when the lane started; the yielder lies at the base of its stack.
        unsafe { (*self.yielder.get()).suspend(None) };
    }

    /// Runs `action` on the scheduler's stack, which has room. Called on the lane's stack.
    pub fn on_thread_stack(&self, action: impl FnOnce() + Send) {
        // SAFETY: as in `suspend`.
        unsafe { (*self.yielder.get()).on_parent_stack(action) }
    }

    /// Goes on with the lane until it gives way or ends. Called by the scheduler.
    #[inline(always)]
    pub fn resume(&self, seat: &Seat) -> Resumed {
        self.running.set(trap::running());
        seat.next_turn();
        // SAFETY: the lane owns the fiber, and only the scheduler goes on with it, which is not in it now.
        let ending = match unsafe { self.fiber.resume(self) } {
            CoroutineResult::Yield(None) => self.doomed(),
            CoroutineResult::Yield(Some(ending)) => {
                self.finished.set(true);
                Some(ending)
            }
            CoroutineResult::Return(ending) => Some(ending),
        };
        // One that overflowed has ended by itself in its reserve.
        let ending = match (ending, self.doomed()) {
            (Some(_), Some(overflow @ Ending::Overflow)) => Some(overflow),
            (ending, _) => ending,
        };
        self.separate();
        if self.away.load(Ordering::Relaxed) {
            self.away.store(false, Ordering::Relaxed);
            return Resumed::Away(ending);
        }
        seat.next_turn();
        ending.map_or(Resumed::GaveWay, Resumed::Ended)
    }
}
