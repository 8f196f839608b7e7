//! Memory that lanes lend to the host while they wait for its answer: the host copies from there and to there.
//!
//! ```text
//!  lane                       executor                    host (consumer or worker)
//!  lend(buffer) ────────────► a cell, its turn: a number
//!  number in the message ───────────────────────────────► lent? locks the cell, copies
//!  waits                                                  answers REPLY_IS_THERE
//!  take_back(number) ───────► waits for the lock
//! ```
//!
//! The host's processor reaches all that lanes have, so an address in a channel could have it write anywhere.
//! So a lane lends by an operation of the executor, which gives it a number; the channel carries the number,
//! and it is looked up here. What no lane lends at that moment is not accessed, nor more of it than was lent.
//! The lane takes its memory back when it has its answer or leaves without one, and the executor does so for
//! a lane that is ended by force; both wait for the cell's lock. So the thread that copies needs no other order with
//! deadlines and cancellations.

use hostcall_abi::word::ReplyAt;
use hostcall_locks::Mutex;
use std::sync::Arc;

/// Bits of an address that say where in what was lent: lanes lend less than 128 MiB at a time.
const OFFSET_BITS: u32 = 27;

/// Bits of an address that say which cell; those above are the cell's turn.
const CELL_BITS: u32 = 20;

/// Bits of a cell's turn. An address is not 0 then, and has as many bits as a call has for it.
const TURN_BITS: u32 = ReplyAt::ADDRESS_BITS - CELL_BITS - OFFSET_BITS;

/// What lanes of an executor have lent.
///
/// Addresses are numbers of their own, not those of the memory: one of memory that was taken back is none any more, also
/// when the same lane lends the same memory again.
#[derive(Default)]
pub struct LentMemory(Mutex<Table>);

#[derive(Default)]
struct Table {
    cells: Vec<Arc<Mutex<Cell>>>,
    free: Vec<u32>,
}

/// A piece of memory that is lent, or was.
///
/// Invariant LENT: while `access` is not `None`, `len` initialised bytes lie at `start`, and while the cell is locked nobody
/// but the holder of the lock accesses them; for [`Access::Read`], nobody writes them.
#[derive(Default)]
struct Cell {
    /// How many times it was lent.
    turn: u32,
    access: Option<Access>,
    start: usize,
    len: usize,
}

/// What the host may do with memory that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The cell that an address is in, and where in what was lent.
fn split(address: u64) -> (usize, u32, usize) {
    let offset = address & ((1 << OFFSET_BITS) - 1);
    let cell = address >> OFFSET_BITS & ((1 << CELL_BITS) - 1);
    (cell as usize, (address >> (OFFSET_BITS + CELL_BITS)) as u32, offset as usize)
}

impl LentMemory {
    /// Lends memory. Returns its address here, or 0 when it is too long, or too much is lent.
    ///
    /// # Safety
    /// LENT, until [`LentMemory::take_back`] has returned.
    pub(crate) unsafe fn lend(&self, start: usize, len: usize, access: Access) -> u64 {
        if len >> OFFSET_BITS != 0 {
            return 0;
        }
        let mut table = self.0.lock();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.cells.len() >> CELL_BITS != 0 => return 0,
            None => {
                table.cells.push(Arc::default());
                table.cells.len() as u32 - 1
            }
        };
        let cell = table.cells[index as usize].clone();
        drop(table);
        let mut cell = cell.lock();
        // Never 0.
        let turn = cell.turn % ((1 << TURN_BITS) - 1) + 1;
        *cell = Cell { turn, access: Some(access), start, len };
        (u64::from(turn) << CELL_BITS | u64::from(index)) << OFFSET_BITS
    }

    /// Takes memory back: once this returns, nobody accesses it any more.
    pub(crate) fn take_back(&self, address: u64) {
        let (index, turn, _) = split(address);
        let Some(cell) = self.cell(index) else { return };
        let mut cell = cell.lock();
        if cell.turn == turn && cell.access.take().is_some() {
            drop(cell);
            self.0.lock().free.push(index as u32);
        }
    }

    fn cell(&self, index: usize) -> Option<Arc<Mutex<Cell>>> {
        self.0.lock().cells.get(index).cloned()
    }

    /// Runs `access` on `len` bytes at `address`, if a lane lends as many there, to be written if `written`.
    fn with<T>(
        &self,
        address: u64,
        len: usize,
        written: bool,
        access: impl FnOnce(*mut u8) -> T,
    ) -> Option<T> {
        let (index, turn, offset) = split(address);
        let cell = self.cell(index)?;
        let cell = cell.lock();
        let may = match cell.access? {
            Access::Read => !written,
            Access::Write => true,
        };
        let fits = offset.checked_add(len).is_some_and(|end| end <= cell.len);
        (may && cell.turn == turn && fits)
            .then(|| access(std::ptr::with_exposed_provenance_mut(cell.start + offset)))
    }

    /// Copies bytes from what a lane lends at `address`. Returns whether a lane lends as many there.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let len = bytes.len();
        let copied = self.with(address, len, false, |start| {
            // SAFETY: LENT: as many bytes lie there, which nobody writes; `bytes` are the caller's.
            unsafe { start.cast_const().copy_to(bytes.as_mut_ptr(), len) }
        });
        copied.is_some()
    }

    /// Copies bytes to what a lane lends at `address`. Returns whether a lane lends as many there, to be written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let copied = self.with(address, bytes.len(), true, |start| {
            // SAFETY: LENT: as many bytes lie there, which nobody else accesses while this runs; `bytes` are the caller's.
            unsafe { start.copy_from(bytes.as_ptr(), bytes.len()) }
        });
        copied.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    fn lend(memory: &LentMemory, bytes: &mut [u8], access: Access) -> u64 {
        let start = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: each test keeps the bytes, and accesses them by `memory` alone until it has taken them back.
        unsafe { memory.lend(start, bytes.len(), access) }
    }

    #[test]
    fn only_what_is_lent_is_accessed() {
        let (memory, mut bytes) = (LentMemory::default(), vec![1; 100]);
        let at = lend(&memory, &mut bytes, Access::Write);
        assert!(memory.write(at + 10, &[7; 90]));
        for (address, len) in [(at + 10, 91), (at, 101), (at + 101, 0), (at + (1 << OFFSET_BITS), 1), (0, 1)]
        {
            assert!(!memory.write(address, &vec![9; len]), "{len} bytes at {address:#x}");
            assert!(!memory.read(address, &mut vec![9; len]));
        }
        assert!(!memory.write(u64::MAX, &[9]) && !memory.write(at ^ 1 << (OFFSET_BITS + CELL_BITS), &[9]));
        memory.take_back(at);
        assert!(!memory.write(at, &[9]) && !memory.read(at, &mut [0]));
        assert_eq!((&bytes[..10], &bytes[10..]), (&[1; 10][..], &[7; 90][..]));
    }

    #[test]
    fn a_message_is_only_read() {
        let (memory, mut bytes) = (LentMemory::default(), vec![3; 8]);
        let (at, mut read) = (lend(&memory, &mut bytes, Access::Read), [0; 4]);
        assert!(memory.read(at + 4, &mut read) && !memory.write(at, &[9]));
        assert_eq!(read, [3; 4]);
        memory.take_back(at);
    }

    #[test]
    fn an_address_is_not_used_again_soon() {
        let (memory, mut bytes) = (LentMemory::default(), vec![0; 8]);
        let first = lend(&memory, &mut bytes, Access::Write);
        memory.take_back(first);
        let second = lend(&memory, &mut bytes, Access::Write);
        assert_ne!(first, second);
        // What was taken back once is not taken back again.
        memory.take_back(first);
        assert!(!memory.write(first, &[9]) && memory.write(second, &[9]));
        memory.take_back(second);
        assert_eq!(memory.0.lock().free.len(), 1);
    }

    #[test]
    fn a_lane_takes_back_what_is_being_filled_once_it_is() {
        let (memory, mut bytes) = (LentMemory::default(), vec![0; 8]);
        let at = lend(&memory, &mut bytes, Access::Write);
        let (begun, is_filled) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                memory.with(at, 8, true, |start| {
                    begun.store(true, Ordering::Release);
                    thread::sleep(Duration::from_millis(20));
                    // SAFETY: LENT: as many bytes lie there.
                    unsafe { start.write_bytes(5, 8) };
                    is_filled.store(true, Ordering::Release);
                })
            });
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            memory.take_back(at);
            assert!(is_filled.load(Ordering::Acquire));
        });
        assert_eq!(bytes, [5; 8]);
    }

    #[test]
    fn what_is_too_long_is_not_lent() {
        let memory = LentMemory::default();
        // SAFETY: nothing is lent, as the test says.
        assert_eq!(unsafe { memory.lend(64, 1 << OFFSET_BITS, Access::Read) }, 0);
    }
}
