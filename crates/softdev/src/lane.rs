use crate::group::Group;
use crate::hold::Hold;
use crate::seat::Seat;
use crate::shield;
use crate::stack::{Guard, LaneStack, open_reserve};
use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED, OtherBarrier};
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::ffi::c_void;
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

/// What became of a lane that was gone on with.
pub(crate) enum Resumed {
    /// It blocked or paused.
    GaveWay,
    Ended(Ending),
    /// It had taken its thread away, and has now come to an operation or to its end. Its state is the seat's.
    Away(Option<Ending>),
}

/// What a blocked lane waits for.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    Converge { site: u64 },
    Exchange { mask: u64, value: u64, values: *mut [u64; 64] },
    Barrier { site: u64, other: *mut OtherBarrier },
    Wait { poll: Poll, data: *mut c_void },
    Sleep { deadline_ns: u64 },
}

/// Where a signal finds a lane that shall end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
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

type Fiber = Coroutine<(), (), Ending, LaneStack>;

/// A lane of a resident workgroup: a coroutine on a stack of its own. Used by its seat's thread only, but that
/// one which is *away* runs on the thread that it took from the seat until it comes to an operation.
///
/// Invariant UNWINDING: a lane that unwinds does not leave its thread, and no other lane runs on that thread
/// meanwhile, since the language runtime counts panics by thread. Its operations return without giving way.
pub(crate) struct Lane {
    abi: UnsafeCell<CpuLane>,
    group: Cell<*const Group>,
    /// `None` before the lane is attached and once it has ended.
    fiber: UnsafeCell<Option<Fiber>>,
    /// How to end the lane from a signal, and the addresses below its stack that trap.
    trap: OnceCell<(CoroutineTrapHandler<Ending>, Guard)>,
    yielder: Cell<*const Yielder<(), ()>>,
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
    /// The mask that a `converge` returns.
    pub converged: Cell<u64>,
    /// Turns that an injected fault leaves the lane out for, plus one.
    pub delay: Cell<u8>,
}

impl Lane {
    pub fn new(abi: CpuLane) -> Lane {
        Lane {
            abi: UnsafeCell::new(abi),
            group: Cell::new(ptr::null()),
            fiber: UnsafeCell::new(None),
            trap: OnceCell::new(),
            yielder: Cell::new(ptr::null()),
            in_executor: AtomicBool::new(false),
            doomed: Cell::new(None),
            reserve_open: Cell::new(false),
            unwinding_interruptions: Cell::new(0),
            away: AtomicBool::new(false),
            request: Cell::new(Request::Sleep { deadline_ns: 0 }),
            converged: Cell::new(0),
            delay: Cell::new(0),
        }
    }

    /// Makes the lane ready to start, once it has its place in its workgroup and in memory.
    pub fn attach(&self, group: &Group, stack: LaneStack) {
        self.group.set(group);
        let lane: *const Lane = self;
        let guard = stack.guard();
        let fiber = Fiber::with_stack(stack, move |yielder, ()| {
            // SAFETY: the group keeps the lane in place until the coroutine is gone.
            let lane = unsafe { &*lane };
            lane.yielder.set(yielder);
            let run = lane.group().run();
            // SAFETY: who launched the kernel vouches for its entry and its argument block; the lane's block
            // is valid until the lane has ended.
            let code = unsafe { (run.entry)(lane.abi.get(), run.arguments.as_ptr().cast()) };
            lane.in_executor.store(true, Ordering::Relaxed);
            match code {
                ENTRY_DONE => Ending::Done,
                ENTRY_PANICKED => Ending::Panicked,
                _ => Ending::Exited,
            }
        });
        let _ = self.trap.set((fiber.trap_handler(), guard));
        // SAFETY: the lane has not started, so nobody else has the ABI block or the coroutine.
        unsafe {
            (*self.abi.get()).executor = lane.cast_mut().cast();
            *self.fiber.get() = Some(fiber);
        }
    }

    /// The lane whose kernel passed `abi` to an operation.
    ///
    /// # Safety
    /// `abi` is what the executor gave the kernel's entry, which is on the calling stack.
    pub unsafe fn of<'a>(abi: *mut CpuLane) -> &'a Lane {
        // SAFETY: `attach` set it to the lane, which exists as long as its stack does.
        unsafe { &*(*abi).executor.cast::<Lane>() }
    }

    pub fn group(&self) -> &Group {
        // SAFETY: set before the lane starts; the group owns the lane.
        unsafe { &*self.group.get() }
    }

    /// Index in the wave, and of the wave in the workgroup.
    pub fn place(&self) -> (u32, u32) {
        // SAFETY: once the lane is attached the block is only read.
        let abi = unsafe { &*self.abi.get() };
        (abi.lane, abi.wave)
    }

    /// Returns how to end the lane from a signal, and the addresses below its stack that trap.
    pub fn trap(&self) -> Option<&(CoroutineTrapHandler<Ending>, Guard)> {
        self.trap.get()
    }

    /// Returns whether the grace of the lane's launch is over.
    pub fn is_to_be_killed(&self) -> bool {
        self.group().run().kill.load(Ordering::Relaxed)
    }

    /// Returns whether the lane is in an operation of the executor.
    pub fn is_in_executor(&self) -> bool {
        self.in_executor.load(Ordering::Relaxed)
    }

    /// Notes how the lane shall end, unless that is known already.
    pub fn doom(&self, ending: Ending) {
        if self.doomed.get().is_none() {
            self.doomed.set(Some(ending));
        }
    }

    /// Notes how the lane ends, whatever was known before.
    pub fn doom_again(&self, ending: Ending) {
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
        let unwinding = unsafe { (&raw const (*self.abi.get()).unwinding).read() };
        unwinding.is_some_and(|unwinding| unwinding())
    }

    /// Returns where a signal found the lane: at this address, `blocked` in a system call or not. Called in a signal
    /// handler, on the lane's thread.
    pub fn place_at(&self, address: usize, blocked: bool) -> Place {
        let patience = self.unwinding_interruptions.get() < UNWINDING_INTERRUPTIONS;
        if self.is_in_executor() {
            Place::Operation
        } else if patience && self.unwinds() {
            Place::Panic
        } else if blocked || self.group().run().image.contains(address) && !shield::is_inside() {
            Place::Open
        } else {
            Place::Foreign
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
        let Some((_, guard)) = self.trap() else { return false };
        if self.reserve_open.get() || !guard.reserve.contains(&address) {
            return false;
        }
        // SAFETY: the lane's own stack exists while the lane runs.
        let opened = unsafe { open_reserve(guard) };
        self.reserve_open.set(opened);
        opened
    }

    /// Notes that the lane is ended where it is, by a signal. Its thread leaves the seat, so that nothing of the process
    /// runs on that thread any more: the lane may have left thread-local variables in any state.
    pub fn ends(&self) {
        self.in_executor.store(true, Ordering::Relaxed);
        self.lose_seat();
    }

    /// Leaves the seat to another thread, if the lane has not done so.
    fn lose_seat(&self) {
        if !self.away.load(Ordering::Relaxed) {
            self.away.store(true, Ordering::Relaxed);
            self.group().seat().lose(self);
        }
    }

    /// Leaves the seat to another thread before the lane waits on its own.
    pub fn keep_thread(&self) {
        self.shielded(Lane::lose_seat);
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
        if self.unwinds() {
            // The thread counts a panic for good.
            crate::trap::spoil_thread();
            self.lose_seat();
        }
        loop {
            self.suspend();
        }
    }

    /// What a lane does that was interrupted: if it is still at what made it suspect, it goes away with its thread,
    /// so that the seat goes to another one. Returns whether it is away, and it is the turn of others. Called in a signal
    /// handler, on the lane's thread.
    pub fn interrupted(&self, hold: &Hold) -> bool {
        if self.in_executor.load(Ordering::Relaxed) {
            return false;
        }
        let seat = self.group().seat();
        let is_away = self.away.load(Ordering::Relaxed);
        if !is_away && seat.suspect.load(Ordering::Relaxed) == seat.turns.load(Ordering::Relaxed) {
            hold.close();
            self.lose_seat();
            return true;
        }
        is_away && !hold.is_open()
    }

    /// Marks the lane as inside the executor while `operation` runs on its stack.
    pub fn in_executor<R>(&self, operation: impl FnOnce(&Lane) -> R) -> R {
        self.in_executor.store(true, Ordering::Relaxed);
        // A signal finds the lane in the executor, or came before and is seen here.
        compiler_fence(Ordering::SeqCst);
        if self.away.load(Ordering::Relaxed) {
            self.leave_thread();
        }
        let result = operation(self);
        while self.doomed.get().is_some() {
            self.suspend();
        }
        compiler_fence(Ordering::SeqCst);
        self.in_executor.store(false, Ordering::Relaxed);
        result
    }

    /// Gives up the thread that the lane had to itself, and goes on when the seat's thread gets to it.
    #[cold]
    #[inline(never)]
    fn leave_thread(&self) {
        self.suspend();
    }

    /// Back to the scheduler, until it resumes the lane. Called on the lane's stack.
    pub fn suspend(&self) {
        // SAFETY: set when the lane started; the yielder lies at the base of its stack.
        unsafe { (*self.yielder.get()).suspend(()) }
    }

    /// Runs `action` on the scheduler's stack, which has room. Called on the lane's stack.
    pub fn on_thread_stack(&self, action: impl FnOnce() + Send) {
        // SAFETY: as in `suspend`.
        unsafe { (*self.yielder.get()).on_parent_stack(action) }
    }

    /// Goes on with the lane until it gives way or ends. Called by the scheduler.
    pub fn resume(&self, seat: &Seat) -> Resumed {
        // SAFETY: only the scheduler touches the coroutine, and it is not in it now.
        let Some(fiber) = (unsafe { (*self.fiber.get()).as_mut() }) else { return Resumed::GaveWay };
        seat.next_turn();
        let ending = match crate::trap::with_current(self, || fiber.resume(())) {
            CoroutineResult::Yield(()) => self.doomed(),
            // One that overflowed has ended by itself in its reserve.
            CoroutineResult::Return(ending) => match self.doomed() {
                Some(overflow @ Ending::Overflow) => Some(overflow),
                _ => Some(ending),
            },
        };
        if self.away.load(Ordering::Relaxed) {
            self.away.store(false, Ordering::Relaxed);
            return Resumed::Away(ending);
        }
        seat.next_turn();
        ending.map_or(Resumed::GaveWay, Resumed::Ended)
    }

    /// Whether the lane's code has begun.
    pub fn started(&self) -> bool {
        // SAFETY: as in `resume`.
        unsafe { (*self.fiber.get()).as_ref() }.is_some_and(Coroutine::started)
    }

    /// Takes the stack of a lane that has ended, or that ends with this: what is on the stack is forgotten. `None`
    /// when the lane has none any more, or the stack cannot be used again.
    pub fn take_stack(&self) -> Option<LaneStack> {
        // SAFETY: as in `resume`.
        let mut fiber = unsafe { (*self.fiber.get()).take() }?;
        // SAFETY: a kernel's frames may be given up: that is what cancelling by force is documented to do. The
        // coroutine's own frame holds no value with a destructor.
        unsafe { fiber.force_reset() };
        let mut stack = fiber.into_stack();
        let whole = !self.reserve_open.replace(false) || stack.close_reserve();
        whole.then_some(stack)
    }
}
