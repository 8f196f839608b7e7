use crate::group::Group;
use crate::hold::Hold;
use crate::seat::Seat;
use corosensei::stack::{DefaultStack, Stack};
use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED};
use std::cell::{Cell, OnceCell, UnsafeCell};
use std::ffi::c_void;
use std::ops::Range;
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
    Barrier,
    Wait { poll: Poll, data: *mut c_void },
}

type Fiber = Coroutine<(), (), Ending, DefaultStack>;

/// A lane of a resident workgroup: a coroutine on a stack of its own. Used by its seat's thread only, but that
/// one which is *away* runs on the thread that it took from the seat until it comes to an operation.
///
/// Its code may be given up at any instruction (see [`crate::trap`]), so an operation changes, of what is not
/// the lane's own, only single cells, and each such state is one that the scheduler can go on from.
pub(crate) struct Lane {
    abi: UnsafeCell<CpuLane>,
    group: Cell<*const Group>,
    /// `None` before the lane is attached and once it has ended.
    fiber: UnsafeCell<Option<Fiber>>,
    /// How to end the lane from a signal, and the addresses below its stack that trap.
    trap: OnceCell<(CoroutineTrapHandler<Ending>, Range<usize>)>,
    yielder: Cell<*const Yielder<(), ()>>,
    /// The lane is in an operation of the executor, or past its entry: it must not be killed by a signal.
    in_executor: AtomicBool,
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
            away: AtomicBool::new(false),
            request: Cell::new(Request::Barrier),
            converged: Cell::new(0),
            delay: Cell::new(0),
        }
    }

    /// Makes the lane ready to start, once it has its place in its workgroup and in memory.
    pub fn attach(&self, group: &Group, stack: DefaultStack, guard_bytes: usize) {
        self.group.set(group);
        let lane: *const Lane = self;
        let limit = stack.limit().get();
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
        let _ = self.trap.set((fiber.trap_handler(), limit..limit + guard_bytes));
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

    /// How to end the lane from a signal, and the addresses below its stack that trap.
    pub fn trap(&self) -> Option<&(CoroutineTrapHandler<Ending>, Range<usize>)> {
        self.trap.get()
    }

    /// Whether a signal may end the lane where it is.
    pub fn may_be_killed(&self) -> bool {
        !self.in_executor.load(Ordering::Relaxed) && self.group().run().kill.load(Ordering::Relaxed)
    }

    /// Notes that the lane is being ended where it is.
    pub fn ends(&self) {
        self.in_executor.store(true, Ordering::Relaxed);
    }

    /// What a lane does that was interrupted: if it is still at what made it suspect, it goes away with its thread,
    /// so that the seat goes to another one; and if it is away, it waits for its turn. Called in a signal handler,
    /// on the lane's thread.
    pub fn interrupted(&self, hold: &Hold) {
        if self.in_executor.load(Ordering::Relaxed) {
            return;
        }
        let seat = self.group().seat();
        if self.away.load(Ordering::Relaxed) {
            hold.wait();
        } else if seat.suspect.load(Ordering::Relaxed) == seat.turns.load(Ordering::Relaxed) {
            self.away.store(true, Ordering::Relaxed);
            hold.close();
            seat.lose(self);
            hold.wait();
        }
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
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(ending) => Some(ending),
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

    /// Takes the stack of a lane that has ended, or that ends with this: what is on the stack is forgotten.
    pub fn take_stack(&self) -> Option<DefaultStack> {
        // SAFETY: as in `resume`.
        let mut fiber = unsafe { (*self.fiber.get()).take() }?;
        // SAFETY: a kernel's frames may be given up: that is what cancelling by force is documented to do. The
        // coroutine's own frame holds no value with a destructor.
        unsafe { fiber.force_reset() };
        Some(fiber.into_stack())
    }
}
