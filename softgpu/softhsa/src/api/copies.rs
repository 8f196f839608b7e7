//! Copies and fills.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::runtime::Runtime;
use super::signals::{Condition, Signal};
use super::waits::Waiting;
use super::{Status, give, report, status};

/// Copies bytes.
///
/// # Safety
///
/// Contract C: both sides are valid for the bytes. Memory that devices write at the same time is the client's matter.
pub unsafe extern "C" fn hsa_memory_copy(to: *mut c_void, from: *const c_void, bytes: usize) -> Status {
    let copy = || {
        Runtime::get()?;
        if to.is_null() || from.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C; the regions may overlap.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast(), bytes) };
        Ok(())
    };
    report(copy())
}

/// Sets `count` numbers of 32 bits.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_fill(pointer: *mut c_void, value: u32, count: usize) -> Status {
    let fill = || {
        Runtime::get()?;
        if pointer.is_null() || !pointer.addr().is_multiple_of(4) {
            return Err(status::INVALID_ARGUMENT);
        }
        for index in 0..count {
            // SAFETY: contract C says that there are `count` numbers.
            unsafe { pointer.cast::<u32>().add(index).write(value) };
        }
        Ok(())
    };
    report(fill())
}

/// A copy that waits for signals: rows of bytes, one behind the other or further apart.
struct Copy {
    to: Rows,
    from: Rows,
    /// Bytes of a row, rows of a layer, and layers.
    range: [usize; 3],
    done: Option<Signal>,
}

/// One side of a copy.
#[derive(Clone, Copy)]
struct Rows {
    first: *mut c_void,
    /// Bytes from a row to the next one.
    pitch: usize,
    /// Bytes from a layer to the next one.
    slice: usize,
}

impl Rows {
    fn row(&self, row: usize, layer: usize) -> *mut c_void {
        self.first
            .wrapping_byte_add(row.wrapping_mul(self.pitch))
            .wrapping_byte_add(layer.wrapping_mul(self.slice))
    }
}

// SAFETY: by contract C both sides stay valid until the copy's signal says that it is done, on whichever thread.
unsafe impl Send for Copy {}

impl Copy {
    fn run(&self, runtime: &Runtime) {
        let began = runtime.now();
        let [bytes, rows, layers] = self.range;
        for layer in 0..layers {
            for row in 0..rows {
                // SAFETY: contract C of the function that made the copy.
                unsafe { copy_whole(self.to.row(row, layer), self.from.row(row, layer), bytes) };
            }
        }
        if let Some(done) = &self.done {
            runtime.complete(done, began);
        }
    }
}

/// Copies bytes as a copy engine does: aligned numbers of up to 8 bytes arrive whole, also where waves access them
/// meanwhile.
///
/// # Safety
///
/// Both sides are valid for so many bytes, and do not overlap.
unsafe fn copy_whole(to: *mut c_void, from: *const c_void, bytes: usize) {
    // Who sees a number, and has an acquire fence behind that, sees what was before the copy.
    fence(Ordering::Release);
    let mut at = 0;
    macro_rules! copy_numbers {
        ($atomic:ty) => {
            if (to.addr() | from.addr()).is_multiple_of(size_of::<$atomic>()) {
                while bytes - at >= size_of::<$atomic>() {
                    // SAFETY: the number lies in both sides, which are aligned to its size, as is `at`: what came before were
                    // numbers as large or larger.
                    unsafe {
                        let from = <$atomic>::from_ptr(from.byte_add(at).cast_mut().cast());
                        let to = <$atomic>::from_ptr(to.byte_add(at).cast());
                        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    at += size_of::<$atomic>();
                }
            }
        };
    }
    copy_numbers!(AtomicU64);
    copy_numbers!(AtomicU32);
    copy_numbers!(AtomicU16);
    copy_numbers!(AtomicU8);
}

/// Copies after all of the signals have become 0, and then subtracts 1 from the completion signal.
///
/// # Safety
///
/// The pointer is valid for reads of `count` signals if there are any, and the copy's sides are valid until it is done.
unsafe fn start(
    runtime: &Arc<Runtime>,
    (to, from, range): (Rows, Rows, [usize; 3]),
    count: u32,
    signals: *const u64,
    done: u64,
) -> Result<(), Status> {
    if to.first.is_null() || from.first.is_null() || count > 0 && signals.is_null() {
        return Err(status::INVALID_ARGUMENT);
    }
    let done = if done == 0 { None } else { Some(runtime.signals.find(done)?) };
    let find = |index: usize| {
        const EQUAL: u32 = 0;
        // SAFETY: by this function's contract.
        let handle = unsafe { signals.add(index).read_unaligned() };
        let signal = runtime.signals.find(handle)?;
        Ok::<_, Status>(Condition { signal, condition: EQUAL, compare: 0 })
    };
    let conditions = (0..count as usize).map(find).collect::<Result<Vec<_>, _>>()?;
    let copy = Copy { to, from, range, done };
    if conditions.is_empty() {
        copy.run(runtime);
        return Ok(());
    }
    let weak = Arc::downgrade(runtime);
    let run = Box::new(move |_| {
        // All of it, since its pointers by themselves may not go to another thread.
        let copy = &copy;
        if let Some(runtime) = weak.upgrade() {
            copy.run(&runtime);
        }
        false
    });
    runtime.copies.add(runtime, Waiting { conditions, ends_with_signals: false, run })
}

/// Tells which copy engines are idle: the only one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_copy_engine_status(to: u64, from: u64, engines: *mut u32) -> Status {
    let tell = || {
        let runtime = Runtime::get()?;
        runtime.check_agent(to)?;
        runtime.check_agent(from)?;
        // SAFETY: contract C.
        unsafe { give(engines, 1) }
    };
    report(tell())
}

/// Copies bytes after all of the signals have become 0, and then subtracts 1 from the completion signal. The variant that
/// names an engine has two parameters more, which are not looked at: there is one engine.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_async_copy(
    to: *mut c_void,
    to_agent: u64,
    from: *const c_void,
    from_agent: u64,
    bytes: usize,
    count: u32,
    signals: *const u64,
    done: u64,
) -> Status {
    let start = || {
        let runtime = Runtime::get()?;
        runtime.check_agent(to_agent)?;
        runtime.check_agent(from_agent)?;
        let row = |first| Rows { first, pitch: 0, slice: 0 };
        // SAFETY: contract C.
        unsafe { start(&runtime, (row(to), row(from.cast_mut()), [bytes, 1, 1]), count, signals, done) }
    };
    report(start())
}

/// A side of [`hsa_amd_memory_async_copy_rect`]: HSA's `hsa_pitched_ptr_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PitchedPointer {
    base: *mut c_void,
    pitch: usize,
    slice: usize,
}

/// Copies a part of layers of rows: `range` is bytes, rows and layers, as both offsets are. Waits as
/// [`hsa_amd_memory_async_copy`] does.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_async_copy_rect(
    to: *const PitchedPointer,
    to_offset: *const [u32; 3],
    from: *const PitchedPointer,
    from_offset: *const [u32; 3],
    range: *const [u32; 3],
    agent: u64,
    _direction: u32,
    count: u32,
    signals: *const u64,
    done: u64,
) -> Status {
    let start = || {
        let runtime = Runtime::get()?;
        runtime.gpu(agent)?;
        let is_null = |place: *const [u32; 3]| place.is_null();
        if to.is_null() || from.is_null() || [to_offset, from_offset, range].into_iter().any(is_null) {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C.
        let (sides, [to_offset, from_offset, range]) = unsafe {
            let numbers = [to_offset, from_offset, range].map(|place| place.read_unaligned());
            ([to.read_unaligned(), from.read_unaligned()], numbers.map(|numbers| numbers.map(|n| n as usize)))
        };
        let [to, from] = [(sides[0], to_offset), (sides[1], from_offset)].map(|(side, [x, row, layer])| {
            let rows = Rows { first: side.base, pitch: side.pitch, slice: side.slice };
            // No address is 0 that is not from the start.
            if side.base.is_null() {
                rows
            } else {
                Rows { first: rows.row(row, layer).wrapping_byte_add(x), ..rows }
            }
        });
        // SAFETY: contract C.
        unsafe { start(&runtime, (to, from, range), count, signals, done) }
    };
    report(start())
}
