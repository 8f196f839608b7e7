//! What Rust's own `std` calls where it has hostcall's platform layer (`tools/build/std`), and the kernel that runs a program's
//! `fn main()`. Both sides are C functions of the same names, because `std` can depend on no crate of ours: [`files`] has
//! those about files and folders, [`net`] those about the network, [`threads`] those about threads, this module the rest.
//!
//! A function that fails returns an error's number: an `errno` of Linux, or one of the numbers behind [`OWN_ERRORS`]. A length is
//! not negative, and the negative number is an error.
//!
//! # Invariants
//! ONE-LANE: of each workgroup one lane runs code of `std` and of the program, and of all launches of a loaded image one does,
//! so that a workgroup is a thread. [`program`] keeps it: it is a kernel for workgroups of one lane, and the grid's first one
//! takes [`STARTED`], once for each time that an image is loaded.
//! ABI: a function is called by the layer alone, with slices by their address and length, which are the caller's until the
//! function returns, and with room for one value where it writes one.

mod files;
#[cfg(target_arch = "nvptx64")]
mod mathematics;
mod net;
mod threads;

use crate::abi::CallError;
use crate::io::Error;
use crate::services::{Environment, Stdin, Stdout};
use crate::{Lane, heap, panics, process, target, time};
use core::alloc::Layout;
use core::ptr::null_mut;
use core::slice::{from_raw_parts, from_raw_parts_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// The first number of errors that no `errno` stands for; `io_error.rs` of the layer has their kinds and texts.
const OWN_ERRORS: i32 = 1 << 16;

/// The number by which the layer knows an error.
fn number(error: CallError) -> i32 {
    match Error::from(error) {
        Error::NotFound => 2,
        Error::Closed => 9,
        Error::PermissionDenied => 13,
        Error::AlreadyExists => 17,
        Error::InvalidInput => 22,
        Error::TooManyOpen => 24,
        Error::NotUtf8 => 84,
        Error::Os(code) if (1..OWN_ERRORS).contains(&code) => code,
        Error::OutsideDir => OWN_ERRORS,
        Error::NoDir => OWN_ERRORS + 1,
        Error::UnexpectedEnd => OWN_ERRORS + 2,
        Error::NetDenied => OWN_ERRORS + 4,
        Error::NoSuchName => OWN_ERRORS + 5,
        _ => OWN_ERRORS + 3,
    }
}

/// What a function returns that has nothing else to give: 0 is none of the errors.
fn code(result: Result<(), CallError>) -> i32 {
    result.map_or_else(number, |()| 0)
}

/// What a function returns that gives a length.
fn length(result: Result<usize, CallError>) -> i64 {
    result.map_or_else(|error| -i64::from(number(error)), |len| len as i64)
}

/// What a function returns that gives the length of what may be there, or -1, and all of it if there was room.
fn length_of_any(result: Result<(Option<u64>, usize), CallError>) -> i64 {
    result.ok().and_then(|(len, _)| len).map_or(-1, |len| len as i64)
}

/// Writes a value for the caller, or returns the error.
///
/// # Safety
/// `to` has room for a value.
unsafe fn put<T>(result: Result<T, CallError>, to: *mut T) -> i32 {
    match result {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { to.write(value) };
            0
        }
        Err(error) => number(error),
    }
}

/// The caller's bytes.
///
/// # Safety
/// They are `len` readable bytes, as long as the result is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise; of none, no address is dereferenced.
    if len == 0 { &[] } else { unsafe { from_raw_parts(data, len) } }
}

/// The caller's room.
///
/// # Safety
/// They are `len` bytes that nobody else accesses as long as the result is used.
unsafe fn room<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: as in `bytes`.
    if len == 0 { &mut [] } else { unsafe { from_raw_parts_mut(data, len) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_write(stream: u32, data: *const u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Stdout::write(stream, unsafe { bytes(data, len) }))
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_flush() -> i32 {
    code(Stdout::flush())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_read(data: *mut u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length(Stdin::read(unsafe { room(data, len) }).map(|((), len)| len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_arg(index: u32, data: *mut u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length_of_any(Environment::argument(index, unsafe { room(data, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_var_at(index: u32, data: *mut u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length_of_any(Environment::variable_at(index, unsafe { room(data, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_current_dir(data: *mut u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length_of_any(Environment::current_dir(unsafe { room(data, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_random(data: *mut u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Environment::random(unsafe { room(data, len) }).map(|_| ()))
}

/// Nanoseconds since 1970 by the host's clock.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_wall_ns() -> i64 {
    // A call fails where the launch was cancelled, which ends the lane soon.
    crate::time::now_ns().unwrap_or(0)
}

/// Nanoseconds by the device's own clock, which costs no call.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_clock_ns() -> u64 {
    target::here().clock_ns()
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_sleep(ns: u64) {
    time::sleep(Duration::from_nanos(ns));
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_alloc(size: usize, align: usize) -> *mut u8 {
    Layout::from_size_align(size, align).map_or(null_mut(), heap::alloc)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_dealloc(data: *mut u8) {
    // SAFETY: the layer frees what `__hostcall_std_alloc` gave, when nobody uses it any more. Nobody is left to be told of
    // a failure.
    let _ = unsafe { heap::dealloc(data) };
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_exit(code: i32) -> ! {
    process::exit(code)
}

/// Tells the host of a panic, after which the lane ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_panicked(
    message: *const u8,
    message_len: usize,
    file: *const u8,
    file_len: usize,
    line: u32,
    column: u32,
) {
    // SAFETY: ABI; both come from a `str`.
    let [message, file] = [(message, message_len), (file, file_len)]
        .map(|(data, len)| unsafe { core::str::from_utf8_unchecked(bytes(data, len)) });
    panics::report(message, file, line, column);
}

/// Ends the lane, which does not unwind.
#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_end() -> ! {
    target::exit_lane()
}

/// Whether the program has begun since the image was loaded.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The kernel of a program with `std`.
#[crate::main(lanes = 1, max_lanes = 1)]
fn program(lane: &Lane) -> i32 {
    if lane.global_id() != 0 {
        threads::serve();
        return 0;
    }
    if STARTED.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        panics::report(
            "a program with std runs once for each time that its image is loaded",
            file!(),
            line!(),
            1,
        );
        target::exit_lane();
    }
    // So that a panic is printed by std's own hook, and not kept as the message of a kernel's panic.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    drop(std::panic::take_hook());
    threads::main()
}
