//! Copies and fills.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::runtime::Runtime;
use super::signals::Signal;
use super::waits::Waiting;
use super::{Status, report, status};

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

/// A copy that waits for signals.
struct Copy {
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    done: Option<Signal>,
}

// SAFETY: by contract C both sides stay valid until the copy's signal says that it is done, on whichever thread.
unsafe impl Send for Copy {}

impl Copy {
    fn run(&self, runtime: &Runtime) {
        // SAFETY: contract C of `hsa_amd_memory_async_copy`.
        unsafe { copy_whole(self.to, self.from, self.bytes) };
        if let Some(done) = &self.done {
            runtime.complete(done, None);
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

/// Copies bytes after all of the signals have become 0, and then subtracts 1 from the completion signal.
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
        if to.is_null() || from.is_null() || count > 0 && signals.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        let done = if done == 0 { None } else { Some(runtime.signals.find(done)?) };
        let find = |index: usize| {
            const EQUAL: u32 = 0;
            // SAFETY: contract C says that there are `count` signals.
            let handle = unsafe { signals.add(index).read_unaligned() };
            runtime.signals.find(handle).map(|signal| (signal, EQUAL, 0))
        };
        let conditions = (0..count as usize).map(find).collect::<Result<Vec<_>, _>>()?;
        let copy = Copy { to, from, bytes, done };
        if conditions.is_empty() {
            copy.run(&runtime);
            return Ok(());
        }
        let weak = Arc::downgrade(&runtime);
        let run = Box::new(move |_| {
            // All of it, since its pointers by themselves may not go to another thread.
            let copy = &copy;
            if let Some(runtime) = weak.upgrade() {
                copy.run(&runtime);
            }
            false
        });
        runtime.copies.add(&runtime, Waiting { conditions, ends_with_signals: false, run })
    };
    report(start())
}
