//! What the rest of the platform layer is made of: the functions that reach the host, which the device crate has
//! (`kernel/device/src/rust_std`), and what becomes of the program's beginning and end.

pub mod abi;
pub mod futex;

use crate::io;
use crate::panic::Location;
use crate::string::ToString;
use crate::sync::atomic::{Atomic, AtomicBool, Ordering};

/// The program runs: before it does, there may be no lane that could ask the host.
static RUNS: Atomic<bool> = AtomicBool::new(false);

/// Whether the host can be asked.
pub fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

// SAFETY: as the runtime calls it: once, before `main`.
pub unsafe fn init(_argument_count: isize, _arguments: *const *const u8, _sigpipe: u8) {
    RUNS.store(true, Ordering::Relaxed);
}

// SAFETY: as the runtime calls it: once, behind `main`.
pub unsafe fn cleanup() {
    // SAFETY: the thread ends, which is the main one, or the one that ends the program.
    unsafe { crate::sys::thread_local::key::end_of_thread() }
}

pub fn unsupported<T>() -> io::Result<T> {
    Err(unsupported_err())
}

pub fn unsupported_err() -> io::Error {
    io::Error::UNSUPPORTED_PLATFORM
}

/// What a process ends with that a signal aborted.
const ABORTED: i32 = 134;

pub fn abort_internal() -> ! {
    // SAFETY: it may be called at any time.
    unsafe { abi::exit(ABORTED) }
}

/// Tells the host of a panic, which the hook has shown already.
pub fn panicked(message: &dyn crate::fmt::Display, location: &Location<'_>) {
    let (message, file) = (message.to_string(), location.file());
    // SAFETY: both texts live until the call returns.
    unsafe {
        abi::panicked(
            message.as_ptr(),
            message.len(),
            file.as_ptr(),
            file.len(),
            location.line(),
            location.column(),
        );
    }
}

/// Ends the lane in place of unwinding.
pub fn end() -> ! {
    // SAFETY: it may be called at any time.
    unsafe { abi::end() }
}

/// The error that a number of the device's stands for, if it stands for one.
pub fn checked(number: i32) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}

/// The length that a function gave, or its error.
pub fn checked_length(length: i64) -> io::Result<usize> {
    if length < 0 { Err(io::Error::from_raw_os_error(-length as i32)) } else { Ok(length as usize) }
}

/// Reads what is as long as `get` says, with enough room at the first or second call: it gets room, and returns how much all
/// takes.
pub fn whole<E>(mut get: impl FnMut(&mut [u8]) -> Result<usize, E>) -> Result<Vec<u8>, E> {
    let mut bytes = vec![0; 256];
    loop {
        let len = get(&mut bytes)?;
        if len <= bytes.len() {
            bytes.truncate(len);
            return Ok(bytes);
        }
        bytes.resize(len, 0);
    }
}
