//! The stacks of lanes.

use crate::identity::{self, Founding, Identity};
use corosensei::stack::{Stack, StackPointer};
use hostcall_locks::Mutex;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, ptr};

/// Bytes below a lane's stack that become part of it when the lane overflows where it cannot be ended, in an
/// allocator for example. They hold the frames until the lane leaves that place.
const RESERVE_BYTES: usize = 256 << 10;

/// A lane's stack in an address range of its own. From below: a guard page that stays inaccessible, the reserve, which
/// is inaccessible until [`open_reserve`] opens it, the stack, and the thread block of its [`Identity`].
///
/// The range is [two memory mappings](MAPPINGS), as the guard and the reserve are one while the reserve is closed. It stays
/// mapped as long as the process lives; who needs a stack gets one that is not used any more, if there is one. All stacks
/// together take at most three quarters of the mappings that a process may have: one that has none left cannot even start a
/// thread, on which Rust's library ends it.
pub(crate) struct LaneStack {
    parts: Parts,
}

#[derive(Clone, Copy)]
struct Parts {
    start: NonZeroUsize,
    page_bytes: usize,
    /// Room that was asked for, in whole pages.
    stack_bytes: usize,
    identity: Identity,
}

/// Memory mappings of a stack.
const MAPPINGS: usize = 2;

/// Stacks that were made, or are about to be.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Stacks that nobody uses, by their room.
static UNUSED: Mutex<BTreeMap<usize, Vec<Parts>>> = Mutex::new(BTreeMap::new());

/// Nobody takes or gives back stacks while what is returned lives.
pub(crate) fn hold() -> impl Sized {
    UNUSED.lock()
}

/// The parts of a lane's stack that trap.
#[derive(Clone)]
pub(crate) struct Guard {
    /// Stays inaccessible.
    pub page: Range<usize>,
    pub reserve: Range<usize>,
}

impl LaneStack {
    /// Returns stacks with room for `stack_bytes`, rounded up to whole pages: `count`, or as many as there can be, at least one.
    ///
    /// # Errors
    /// The system has no memory or no thread, or the process's stacks have the mappings that they may have.
    pub fn some(stack_bytes: usize, count: usize) -> io::Result<Vec<LaneStack>> {
        // SAFETY: has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the lanes' stacks are too large");
        let stack_bytes = stack_bytes.checked_next_multiple_of(page_bytes).ok_or_else(too_large)?;
        if let Some(parts) = UNUSED.lock().get_mut(&stack_bytes).and_then(Vec::pop) {
            return Ok(vec![LaneStack { parts }]);
        }
        let count = reserve(count)?;
        let begun: Vec<_> = (0..count).map(|_| Self::begin(page_bytes, stack_bytes)).collect();
        let made = begun.into_iter().map(|begun| {
            let (start, founding) = begun?;
            let identity = founding.finish(stack_bytes)?;
            Ok(LaneStack { parts: Parts { start, page_bytes, stack_bytes, identity } })
        });
        let (made, failed): (Vec<_>, Vec<_>) = made.partition(io::Result::is_ok);
        MADE.fetch_sub(failed.len(), Ordering::Relaxed);
        match failed.into_iter().next() {
            Some(Err(error)) if made.is_empty() => Err(error),
            _ => Ok(made.into_iter().flatten().collect()),
        }
    }

    /// Begins to make a stack. Returns where its range begins.
    fn begin(page_bytes: usize, stack_bytes: usize) -> io::Result<(NonZeroUsize, Founding)> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the lanes' stacks are too large");
        let below = page_bytes + RESERVE_BYTES;
        let block_bytes = identity::block_bytes().next_multiple_of(page_bytes);
        let len = stack_bytes.checked_add(below + block_bytes).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new mapping where the system finds room touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonZeroUsize::new(start.expose_provenance()).expect("the system maps nothing at address 0");
        let stack = start.get() + below..start.get() + len;
        // SAFETY: the range is part of the mapping above, which nobody else knows of.
        if unsafe { !protect(stack.clone(), libc::PROT_READ | libc::PROT_WRITE) } {
            let error = io::Error::last_os_error();
            // SAFETY: as above.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start.get()), len) };
            return Err(error);
        }
        // SAFETY: the memory is this stack's, and is never unmapped.
        Ok((start, unsafe { Founding::start(stack) }?))
    }

    pub fn guard(&self) -> Guard {
        let Parts { start, page_bytes, .. } = self.parts;
        let reserve = start.get() + page_bytes;
        Guard { page: start.get()..reserve, reserve: reserve..reserve + RESERVE_BYTES }
    }

    /// Returns what lanes on this stack are to themselves.
    pub fn identity(&self) -> Identity {
        self.parts.identity
    }
}

/// Counts `count` stacks more, or as many as there may be, at least one. Returns how many.
fn reserve(count: usize) -> io::Result<usize> {
    /// What Linux gives a process unless it was told otherwise.
    const USUAL: usize = 65_530;
    static MAPPINGS_OF_A_PROCESS: LazyLock<usize> = LazyLock::new(|| {
        let told = fs::read_to_string("/proc/sys/vm/max_map_count");
        told.ok().and_then(|told| told.trim().parse().ok()).unwrap_or(USUAL)
    });
    let mappings = *MAPPINGS_OF_A_PROCESS;
    let most = mappings / 4 * 3 / MAPPINGS;
    let more = |made| Some(count.min(most - made)).filter(|&more| more > 0);
    let before = MADE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| Some(made + more(made)?));
    before.ok().and_then(more).ok_or_else(|| {
        let sentence = format!(
            "the software devices of this process have {most} stacks of lanes, which take three quarters of \
             the {mappings} memory mappings that it may have (`vm.max_map_count`)"
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, sentence)
    })
}

/// Makes the reserve inaccessible again, and gives its memory back. Returns whether that was possible.
///
/// # Safety
/// The guard is of a stack that exists, of whose reserve nobody uses anything.
pub(crate) unsafe fn close_reserve(guard: &Guard) -> bool {
    let reserve = guard.reserve.clone();
    // SAFETY: the caller's promise.
    unsafe {
        give_back(reserve.clone());
        protect(reserve, libc::PROT_NONE)
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

/// Gives the memory of pages back, which are zeros then.
///
/// # Safety
/// The range is whole pages of a lane's stack, of which nobody uses anything.
unsafe fn give_back(range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { libc::madvise(ptr::with_exposed_provenance_mut(range.start), range.len(), libc::MADV_DONTNEED) };
}

impl Drop for LaneStack {
    /// Leaves the stack to who needs one next.
    fn drop(&mut self) {
        let Parts { page_bytes, stack_bytes, identity, .. } = self.parts;
        let start = self.guard().reserve.end;
        // SAFETY: below the thread block nothing is used once the stack has no owner.
        unsafe { give_back(start..identity.stack_base / page_bytes * page_bytes) };
        UNUSED.lock().entry(stack_bytes).or_default().push(self.parts);
    }
}

// SAFETY: the stack has a guard page below, at least 16 KiB (`Config::check`, `Founding::finish`), and aligned bounds.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.parts.identity.stack_base).expect("the system maps nothing at address 0")
    }

    fn limit(&self) -> StackPointer {
        self.parts.start
    }
}
