//! What lanes run on: coroutines, each with a stack of its own, on which one lane runs after the other.
//!
//! Lanes that never wait all run on one stack, which stays in the processor's cache.
//!
//! A processor predicts where a function returns to by the calls before it. After a switch these were another stack's, and
//! each function that was entered before costs some 20 cycles when it returns. So all that leads to a switch, on both sides,
//! is inlined: a barrier takes half the time.

use crate::identity::Identity;
use crate::lane::{Ending, Lane};
use crate::stack::{Guard, LaneStack};
use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult};
use std::cell::UnsafeCell;

/// Gives way with `None`, or with how its lanes ended: then it waits for the next ones. It returns only when a signal ends its
/// lane.
type LaneCoroutine = Coroutine<*const Lane, Option<Ending>, Ending, LaneStack>;

pub(crate) type Yielder = corosensei::Yielder<*const Lane, Option<Ending>>;

/// How to end a lane from a signal, and the addresses below its stack that trap.
pub(crate) type Trap = (CoroutineTrapHandler<Ending>, Guard);

pub(crate) struct Fiber {
    coroutine: UnsafeCell<LaneCoroutine>,
    /// What lanes here are to themselves.
    identity: Identity,
    /// Signal handlers read it while the coroutine runs.
    pub trap: Trap,
}

impl Fiber {
    pub fn new(stack: LaneStack) -> Fiber {
        let (guard, identity) = (stack.guard(), stack.identity());
        // No value with a destructor lies in the frame of this function.
        let coroutine = LaneCoroutine::with_stack(stack, |yielder, mut lane| -> Ending {
            loop {
                // SAFETY: who goes on with the fiber keeps the lane in place until it has ended, which the scheduler learns
                // below.
                let ending = unsafe { &*lane }.run(yielder);
                lane = yielder.suspend(Some(ending));
            }
        });
        let trap = (coroutine.trap_handler(), guard);
        Fiber { coroutine: UnsafeCell::new(coroutine), identity, trap }
    }

    /// Goes on with `lane`, which has begun here and not ended, or begins here.
    ///
    /// # Safety
    /// Nobody else goes on with the fiber meanwhile.
    #[inline(always)]
    pub unsafe fn resume(&self, lane: &Lane) -> CoroutineResult<Option<Ending>, Ending> {
        // SAFETY: the caller's promise; nothing else accesses the coroutine through a shared reference.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        // SAFETY: the fiber's own identity; nothing else is done meanwhile but to switch there and back.
        unsafe { self.identity.with(|| coroutine.resume(lane)) }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: only fibers whose lanes have come to their ends are dropped, and the frame that waits for the next one holds
        // no value with a destructor.
        unsafe { self.coroutine.get_mut().force_reset() };
    }
}
