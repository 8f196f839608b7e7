//! Loans: memory of the host in which a device reads a long reply, in one go and in place.
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0–7 | 0; 1 once the lane has read its reply | host, then the lane |
//! | 8–63 | nothing | |
//! | 64 on | the reply's bytes | host, before it lends them |

use crate::primitive::{AtomicU64, Ordering, fence};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use hostcall_abi::layout::LOAN_HEADER_BYTES;

/// Where loans come from. It is called from the server's threads, so it must not wait for kernels.
pub trait LoanMemory: Send + Sync + 'static {
    /// Allocates memory for a loan of `bytes` bytes, and for as many more as come with it. Empty when there is no room.
    fn allocate(&self, bytes: usize) -> Vec<Loan>;

    /// Most bytes of loans that are kept for later replies. Memory that cannot be freed while kernels run is best kept.
    fn most_kept_bytes(&self) -> usize {
        64 << 20
    }

    /// Copies from `address`, where a lane that waits says that it has as many bytes of the device's memory. Returns `false`
    /// when that cannot be.
    fn copy_from_lane(&self, _address: u64, _bytes: &mut [u8]) -> bool {
        false
    }

    /// Copies `bytes` to `address`, where a lane that waits says that it has as many bytes of the device's memory. Returns
    /// `false` when that cannot be, or the lane reads them faster itself; nothing but those bytes was changed then.
    fn copy_to_lane(&self, _bytes: &[u8], _address: u64) -> bool {
        false
    }
}

/// Memory of the host's process, which the software device reaches.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessLoans;

impl LoanMemory for ProcessLoans {
    fn allocate(&self, bytes: usize) -> Vec<Loan> {
        allocate_in_process(bytes).into_iter().collect()
    }
}

fn allocate_in_process(bytes: usize) -> Option<Loan> {
    // One header more, of which alignment takes a part.
    let size = bytes.checked_add(2 * LOAN_HEADER_BYTES)?;
    let mut memory = Vec::<u64>::new();
    memory.try_reserve_exact(size.div_ceil(8)).ok()?;
    let start = NonNull::new(memory.as_mut_ptr().cast::<u8>())?;
    // SAFETY: the vector has as many bytes after its start. From there on there are `bytes` and a header.
    let start = unsafe { start.add(start.align_offset(LOAN_HEADER_BYTES)) };
    // SAFETY: as above; the bytes are the host's own until they are lent.
    unsafe { start.write_bytes(0, LOAN_HEADER_BYTES + bytes) };
    // The vector is never looked into; it is kept for its drop.
    struct Kept(#[expect(dead_code, reason = "kept for its drop")] Vec<u64>);
    let address = start.as_ptr().expose_provenance() as u64;
    // SAFETY: the vector owns the memory, which has been written and is aligned; the software device
    // reaches it there.
    Some(unsafe { Loan::new(start, address, bytes, Box::new(Kept(memory))) })
}

/// Memory for a reply, which the host has for itself (invariant LOAN).
pub struct Loan {
    start: NonNull<u8>,
    address: u64,
    bytes: usize,
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the memory is the loan's own, and its owner is `Send` and `Sync`.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// A loan of memory that `owner` keeps.
    ///
    /// # Safety
    /// LOAN: [`LOAN_HEADER_BYTES`] and `bytes` initialised bytes lie at `start`, a multiple of 64, until
    /// `owner` is dropped, and nobody else uses them. Kernels of the device reach them at `address`.
    pub unsafe fn new(start: NonNull<u8>, address: u64, bytes: usize, owner: Box<dyn Send + Sync>) -> Self {
        Self { start, address, bytes, _owner: owner }
    }

    /// The memory's bytes: whatever was there before, until they are written.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: LOAN: the bytes are there, initialised, and the host's alone.
        unsafe { core::slice::from_raw_parts(self.start.add(LOAN_HEADER_BYTES).as_ptr(), self.bytes) }
    }

    /// The memory's bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(LOAN_HEADER_BYTES).as_ptr(), self.bytes) }
    }

    fn returned(&self) -> &AtomicU64 {
        // SAFETY: LOAN: the word is there, aligned, and accessed by this function and by the device only.
        unsafe { self.start.cast::<AtomicU64>().as_ref() }
    }

    /// Lends the memory to the lane whose answer tells of it next, from this thread.
    pub fn lend(self) -> Lent {
        self.returned().store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        Lent(self)
    }
}

/// A loan that a lane may be reading.
pub struct Lent(Loan);

impl Lent {
    /// Where the device finds it.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns whether the lane says that it has read its reply.
    pub fn is_returned(&self) -> bool {
        self.0.returned().load(Ordering::Acquire) != 0
    }

    /// Takes the memory back from a lane that has read its reply: it says so, it calls again, or it has
    /// ended. A lane that lies about that reads garbage.
    pub fn take_back(self) -> Loan {
        self.0
    }
}
