//! The heap. Pieces of up to half a chunk's size come from chunks of the device's memory, by their size's class; larger ones
//! are calls of the host. Free pieces of a class are a list, so that most allocations cost no call.

use super::realloc_fallback;
use crate::alloc::{GlobalAlloc, Layout, System};
use crate::cell::UnsafeCell;
use crate::ptr;
use crate::sys::pal::abi;
use crate::sys::sync::Mutex;

/// Bytes of a chunk, which is one call of the host.
const CHUNK: usize = 64 << 10;

/// Bytes of the smallest class, and the alignment of all pieces. Classes are powers of two.
const LEAST: usize = 16;

/// Bytes of the largest class.
const MOST: usize = 8 << 10;

const CLASSES: usize = MOST.ilog2() as usize - LEAST.ilog2() as usize + 1;

/// Of each class the first free piece, whose first word is the address of the next; and what is left of the chunk.
struct Pieces {
    free: [*mut u8; CLASSES],
    next: *mut u8,
    left: usize,
}

struct Heap {
    lock: Mutex,
    pieces: UnsafeCell<Pieces>,
}

// SAFETY: only who has the lock accesses the pieces.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    lock: Mutex::new(),
    pieces: UnsafeCell::new(Pieces { free: [ptr::null_mut(); CLASSES], next: ptr::null_mut(), left: 0 }),
};

/// Does something with the pieces, as one thread at a time.
fn with_pieces<R>(act: impl FnOnce(&mut Pieces) -> R) -> R {
    HEAP.lock.lock();
    // SAFETY: the lock is taken, and what is done allocates nothing.
    let result = act(unsafe { &mut *HEAP.pieces.get() });
    // SAFETY: it was taken above.
    unsafe { HEAP.lock.unlock() };
    result
}

/// The class of a layout's pieces, if it has one.
fn class(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(LEAST);
    (bytes <= MOST).then(|| (bytes.next_power_of_two().ilog2() - LEAST.ilog2()) as usize)
}

impl Pieces {
    /// A piece of a class, aligned to its size; null where the chunk has no room for one.
    fn take(&mut self, class: usize) -> *mut u8 {
        let piece = self.free[class];
        if !piece.is_null() {
            // SAFETY: a free piece is nobody's, and its first word was written when it became free.
            self.free[class] = unsafe { piece.cast::<*mut u8>().read() };
            return piece;
        }
        let bytes = LEAST << class;
        // The chunk is aligned to the largest class, and what is left of it ends at its end.
        let skipped = self.next.addr().wrapping_neg() & (bytes - 1);
        if self.left < skipped + bytes {
            return ptr::null_mut();
        }
        // SAFETY: `left` bytes follow, by the comparison above.
        let piece = unsafe { self.next.add(skipped) };
        // SAFETY: as above.
        self.next = unsafe { piece.add(bytes) };
        self.left -= skipped + bytes;
        piece
    }

    /// Goes on with another chunk, unless the one that there is has room for a piece of the class. Returns whether it does.
    fn begin(&mut self, chunk: *mut u8, class: usize) -> bool {
        let bytes = LEAST << class;
        let has_room = self.left >= (self.next.addr().wrapping_neg() & (bytes - 1)) + bytes;
        if !has_room {
            // What was left of the chunk before is given up, less than a piece of this class.
            (self.next, self.left) = (chunk, CHUNK);
        }
        !has_room
    }

    /// Takes a piece back.
    fn give(&mut self, class: usize, piece: *mut u8) {
        // SAFETY: the piece is nobody's any more, and has room for a pointer, which its alignment fits.
        unsafe { piece.cast::<*mut u8>().write(self.free[class]) };
        self.free[class] = piece;
    }
}

/// A piece of a class, of another chunk where the one that there is has no room; null where the host has no memory left.
fn take(class: usize) -> *mut u8 {
    loop {
        let piece = with_pieces(|pieces| pieces.take(class));
        if !piece.is_null() {
            return piece;
        }
        // Nobody has the lock while the host is asked. A thread that allocates without end would else give way, on the software
        // device, only where it has the lock, and others would never get it.
        // SAFETY: it may be called at any time.
        let chunk = unsafe { abi::alloc(CHUNK, MOST) };
        if chunk.is_null() {
            return chunk;
        }
        if !with_pieces(|pieces| pieces.begin(chunk, class)) {
            // Another thread was first.
            // SAFETY: nobody else knows of it.
            unsafe { abi::dealloc(chunk) };
        }
    }
}

#[stable(feature = "alloc_system_type", since = "1.28.0")]
// SAFETY: a piece is of one allocation until it is freed, as large as its class and aligned to that; the host's memory is as its
// layout asks.
unsafe impl GlobalAlloc for System {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => take(class),
            // SAFETY: it may be called at any time.
            None => unsafe { abi::alloc(layout.size(), layout.align()) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => with_pieces(|pieces| pieces.give(class, memory)),
            // SAFETY: the caller's promise: `alloc` gave it for the same layout, and nobody uses it any more.
            None => unsafe { abi::dealloc(memory) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: the size fits the alignment.
        let larger = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class(layout), class(larger)) {
            (Some(before), Some(after)) if before == after => memory,
            // SAFETY: the caller's promise.
            _ => unsafe { realloc_fallback(self, memory, layout, size) },
        }
    }
}
