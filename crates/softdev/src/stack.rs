//! The stacks of lanes.

use corosensei::stack::{Stack, StackPointer};
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr;

/// Bytes below a lane's stack that become part of it when the lane overflows where it cannot be ended, in an
/// allocator for example. They hold the frames until the lane leaves that place.
const RESERVE_BYTES: usize = 256 << 10;

/// A lane's stack in an address range of its own. From below: a guard page that stays inaccessible, the reserve, which
/// is inaccessible until [`open_reserve`] opens it, and the stack.
///
/// The range is two memory mappings, as the guard and the reserve are one while the reserve is closed.
pub(crate) struct LaneStack {
    start: NonZeroUsize,
    page_bytes: usize,
    stack_bytes: usize,
}

/// The parts of a lane's stack that trap.
#[derive(Clone)]
pub(crate) struct Guard {
    /// Stays inaccessible.
    pub page: Range<usize>,
    pub reserve: Range<usize>,
}

impl LaneStack {
    /// Maps a stack with room for `stack_bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// The system has no memory, or the process has too many mappings.
    pub fn new(stack_bytes: usize) -> io::Result<LaneStack> {
        // SAFETY: has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the lanes' stacks are too large");
        let stack_bytes = stack_bytes.checked_next_multiple_of(page_bytes).ok_or_else(too_large)?;
        let below = page_bytes + RESERVE_BYTES;
        let len = stack_bytes.checked_add(below).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new mapping where the system finds room touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonZeroUsize::new(start as usize).expect("the system maps nothing at address 0");
        // Unmaps the range if the next step fails.
        let stack = LaneStack { start, page_bytes, stack_bytes };
        // SAFETY: the range is part of the mapping above, which nobody else knows of.
        if unsafe { protect(start.get() + below..start.get() + len, libc::PROT_READ | libc::PROT_WRITE) } {
            Ok(stack)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub fn guard(&self) -> Guard {
        let (start, reserve) = (self.start.get(), self.start.get() + self.page_bytes);
        Guard { page: start..reserve, reserve: reserve..reserve + RESERVE_BYTES }
    }

    /// Makes the reserve inaccessible again, and gives its memory back. Returns whether that was possible.
    pub fn close_reserve(&mut self) -> bool {
        let reserve = self.guard().reserve;
        // SAFETY: no lane uses the stack while it is borrowed mutably, so nobody reads what this throws away.
        unsafe {
            libc::madvise(reserve.start as *mut libc::c_void, reserve.len(), libc::MADV_DONTNEED);
            protect(reserve, libc::PROT_NONE)
        }
    }
}

/// Makes a lane's reserve part of its stack. Returns whether that was possible. Async-signal-safe, but for `errno`.
///
/// # Safety
/// The guard is of a stack that exists.
pub(crate) unsafe fn open_reserve(guard: &Guard) -> bool {
    // SAFETY: the range is part of the stack's mapping; nobody relies on its being inaccessible but the lane itself,
    // whose handler asks for this.
    unsafe { protect(guard.reserve.clone(), libc::PROT_READ | libc::PROT_WRITE) }
}

/// # Safety
/// The range is whole pages of a lane's stack, whose users expect the change.
unsafe fn protect(range: Range<usize>, protection: i32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::mprotect(range.start as *mut libc::c_void, range.len(), protection) == 0 }
}

impl Drop for LaneStack {
    fn drop(&mut self) {
        let len = self.page_bytes + RESERVE_BYTES + self.stack_bytes;
        // SAFETY: the mapping of `new`, which nothing uses after its owner.
        unsafe { libc::munmap(self.start.get() as *mut libc::c_void, len) };
    }
}

// SAFETY: the stack has a guard page below, at least 16 KiB (`Config::check`), and page-aligned bounds.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        let len = self.page_bytes + RESERVE_BYTES + self.stack_bytes;
        self.start.checked_add(len).expect("a mapping ends below the address space's end")
    }

    fn limit(&self) -> StackPointer {
        self.start
    }
}
