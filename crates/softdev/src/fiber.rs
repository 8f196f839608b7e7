//! What lanes run on: coroutines, each with a stack of its own, on which one lane runs after the other.
//!
//! A lane has a fiber from when it begins until it ends. So lanes that never wait all run on one stack, which stays in the
//! processor's cache.

use crate::lane::{Ending, Lane};
use crate::stack::{Guard, LaneStack};
use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult};

/// Gives way with `None`, or with how its lane ended: then it waits for the next lane. It returns only when a signal ends its
/// lane.
type LaneCoroutine = Coroutine<*const Lane, Option<Ending>, Ending, LaneStack>;

pub(crate) type Yielder = corosensei::Yielder<*const Lane, Option<Ending>>;

/// How to end a lane from a signal, and the addresses below its stack that trap.
pub(crate) type Trap = (CoroutineTrapHandler<Ending>, Guard);

pub(crate) struct Fiber {
    /// `None` while this is dropped.
    coroutine: Option<LaneCoroutine>,
    pub trap: Trap,
}

impl Fiber {
    pub fn new(stack: LaneStack) -> Box<Fiber> {
        let guard = stack.guard();
        // No value with a destructor lies in the frame of this function.
        let coroutine = LaneCoroutine::with_stack(stack, |yielder, mut lane| -> Ending {
            loop {
                // SAFETY: the lane's group keeps it in place until it has ended, which the scheduler learns below.
                let ending = unsafe { &*lane }.run(yielder);
                lane = yielder.suspend(Some(ending));
            }
        });
        let trap = (coroutine.trap_handler(), guard);
        Box::new(Fiber { coroutine: Some(coroutine), trap })
    }

    /// Goes on with `lane`, which has begun here and not ended, or begins here.
    ///
    /// # Safety
    /// `fiber` exists, and nobody else goes on with it. Signal handlers of the thread may read its `trap` meanwhile.
    pub unsafe fn resume(fiber: *mut Fiber, lane: &Lane) -> CoroutineResult<Option<Ending>, Ending> {
        // SAFETY: the caller's promise. The one field is borrowed.
        let coroutine = unsafe { &mut (*fiber).coroutine };
        coroutine.as_mut().expect("it is taken when the fiber is dropped only").resume(lane)
    }

    /// Gives up what lies on the stack, and returns the stack.
    ///
    /// # Safety
    /// The frames of a lane that lie there may be given up.
    pub unsafe fn into_stack(mut self) -> LaneStack {
        let mut coroutine = self.coroutine.take().expect("as in `resume`");
        // SAFETY: the caller's promise; the coroutine's own frame holds no value with a destructor.
        unsafe { coroutine.force_reset() };
        coroutine.into_stack()
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        if let Some(mut coroutine) = self.coroutine.take() {
            // SAFETY: only fibers whose lanes have ended are dropped whole, and the frame that waits for the next one holds no
            // value with a destructor.
            unsafe { coroutine.force_reset() };
        }
    }
}
