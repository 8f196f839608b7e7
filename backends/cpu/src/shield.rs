//! Allocators that are linked into the program, inside of which no lane is ended.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    /// Calls of [`Shielded`] allocators that the thread is in. Read in signal handlers on the same thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether the calling thread is inside of a [`Shielded`] allocator.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// A global allocator inside of which the software device ends no lane, as it ends none inside of the system's.
///
/// The device knows code that holds locks of the process by the shared object that it is in. An allocator that is linked
/// into the program looks like the kernel, and a lane that is ended inside of it (it overflowed its stack, or its launch was
/// cancelled) leaves the allocator's lock held: the process hangs. So a program with such an allocator says
///
/// ```
/// use hostcall_softdev::Shielded;
/// # use std::alloc::System as Allocator;
///
/// #[global_allocator]
/// static ALLOCATOR: Shielded<Allocator> = Shielded::new(Allocator);
/// ```
#[derive(Debug, Default)]
pub struct Shielded<A>(A);

impl<A> Shielded<A> {
    /// Shields this allocator.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

fn inside<R>(work: impl FnOnce() -> R) -> R {
    DEPTH.set(DEPTH.get() + 1);
    // For the signal handler, which runs on this thread.
    compiler_fence(Ordering::SeqCst);
    let result = work();
    compiler_fence(Ordering::SeqCst);
    DEPTH.set(DEPTH.get() - 1);
    result
}

// SAFETY: does what `A` does.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Shielded<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise.
        inside(|| unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise.
        inside(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise.
        inside(|| unsafe { self.0.dealloc(memory, layout) });
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: by the caller's promise.
        inside(|| unsafe { self.0.realloc(memory, layout, bytes) })
    }
}
