//! The C interface of HSA: the functions that a loader and a hostcall runtime use.
//!
//! **Contract C.** Every function of this interface demands of its caller what the HSA specification demands: pointers
//! to results are valid for writes of their type, pointers to inputs for reads, texts end with a 0 byte, and memory that
//! is copied, pinned or run from stays valid for as long as the specification says. Handles may be any number; they are
//! looked up.
//!
//! Hostcall's device `gfx942` is another client of the same runtime, and all clients' handles can be guessed.
//! So a client ends, frees and changes only what it made, and shuts the runtime down as often as it started
//! it. Functions that only look, wait or start the runtime demand nothing of this and are safe; all others
//! are `unsafe`.

mod agents;
#[allow(missing_docs, reason = "the names are the HSA headers'")]
mod attribute;
mod code;
mod copies;
mod doorbells;
mod extensions;
mod isas;
mod loader;
mod memory_pools;
mod profiling;
mod queues;
mod regions;
mod runtime;
mod signals;
mod symbols;
mod threads;
mod waits;

pub use symbols::{functions, symbol};

use std::ffi::{CStr, c_char, c_void};

use runtime::Runtime;

/// A status of HSA.
pub type Status = u32;

/// The statuses that this library returns.
#[allow(missing_docs, reason = "the names are the HSA specification's")]
pub mod status {
    use super::Status;

    pub const SUCCESS: Status = 0;
    pub const INFO_BREAK: Status = 1;
    pub const ERROR: Status = 0x1000;
    pub const INVALID_ARGUMENT: Status = 0x1001;
    pub const INVALID_QUEUE_CREATION: Status = 0x1002;
    pub const INVALID_ALLOCATION: Status = 0x1003;
    pub const INVALID_AGENT: Status = 0x1004;
    pub const INVALID_REGION: Status = 0x1005;
    pub const INVALID_SIGNAL: Status = 0x1006;
    pub const INVALID_QUEUE: Status = 0x1007;
    pub const OUT_OF_RESOURCES: Status = 0x1008;
    pub const INVALID_PACKET_FORMAT: Status = 0x1009;
    pub const NOT_INITIALIZED: Status = 0x100b;
    pub const INCOMPATIBLE_ARGUMENTS: Status = 0x100d;
    pub const INVALID_INDEX: Status = 0x100e;
    pub const INVALID_ISA: Status = 0x100f;
    pub const INVALID_CODE_OBJECT: Status = 0x1010;
    pub const INVALID_EXECUTABLE: Status = 0x1011;
    pub const FROZEN_EXECUTABLE: Status = 0x1012;
    pub const INVALID_SYMBOL_NAME: Status = 0x1013;
    pub const VARIABLE_ALREADY_DEFINED: Status = 0x1014;
    pub const EXCEPTION: Status = 0x1016;
    pub const INVALID_ISA_NAME: Status = 0x1017;
    pub const INVALID_EXECUTABLE_SYMBOL: Status = 0x1019;
    pub const INVALID_FILE: Status = 0x1020;
    pub const INVALID_CODE_OBJECT_READER: Status = 0x1021;
    pub const INVALID_CACHE: Status = 0x1022;
    pub const INVALID_WAVEFRONT: Status = 0x1023;
    pub const INVALID_SIGNAL_GROUP: Status = 0x1024;
    pub const INVALID_MEMORY_POOL: Status = 40;
    pub const MEMORY_APERTURE_VIOLATION: Status = 41;
    pub const ILLEGAL_INSTRUCTION: Status = 42;
    pub const MEMORY_FAULT: Status = 43;
}

/// Returns a status's text.
pub fn status_text(status: Status) -> Option<&'static CStr> {
    Some(match status {
        status::SUCCESS => c"The function has been executed successfully.",
        status::INFO_BREAK => c"A traversal over a list of elements has been interrupted by the application.",
        status::ERROR => c"A generic error has occurred.",
        status::INVALID_ARGUMENT => c"One of the arguments does not fit.",
        status::INVALID_QUEUE_CREATION => c"The queue cannot be created as asked.",
        status::INVALID_ALLOCATION => c"The requested allocation is not valid.",
        status::INVALID_AGENT => c"The agent is not valid.",
        status::INVALID_REGION => c"The memory region is not valid.",
        status::INVALID_SIGNAL => c"The signal is not valid.",
        status::INVALID_QUEUE => c"The queue is not valid.",
        status::OUT_OF_RESOURCES => c"There are not enough resources.",
        status::INVALID_PACKET_FORMAT => c"The AQL packet is malformed.",
        status::NOT_INITIALIZED if runtime::is_forked() => {
            c"This process was forked from one that used the software HSA runtime, whose threads it does not have."
        }
        status::NOT_INITIALIZED => c"The HSA runtime has not been initialized: call hsa_init first.",
        status::INCOMPATIBLE_ARGUMENTS => c"The arguments do not fit together.",
        status::INVALID_INDEX => c"The index is not valid.",
        status::INVALID_ISA => c"The instruction set architecture is not valid.",
        status::INVALID_CODE_OBJECT => c"The code object is not valid.",
        status::INVALID_EXECUTABLE => c"The executable is not valid.",
        status::FROZEN_EXECUTABLE => c"The executable is frozen.",
        status::INVALID_SYMBOL_NAME => c"There is no symbol with the given name.",
        status::VARIABLE_ALREADY_DEFINED => c"The executable has a symbol of this name on the agent.",
        status::EXCEPTION => {
            c"An HSAIL operation resulted in a hardware exception: a kernel ended with a trap."
        }
        status::INVALID_ISA_NAME => c"The name is not that of an instruction set architecture of this runtime.",
        status::INVALID_EXECUTABLE_SYMBOL => c"The executable symbol is not valid.",
        status::INVALID_FILE => c"The file cannot be read.",
        status::INVALID_CACHE => c"The cache is not valid.",
        status::INVALID_WAVEFRONT => c"The wavefront is not valid.",
        status::INVALID_SIGNAL_GROUP => c"The signal group is not valid.",
        status::INVALID_CODE_OBJECT_READER => c"The code object reader is not valid.",
        status::INVALID_MEMORY_POOL => c"The memory pool is not valid.",
        status::MEMORY_APERTURE_VIOLATION => {
            c"A kernel accessed local or scratch memory that it does not have."
        }
        status::ILLEGAL_INSTRUCTION => c"A kernel executed an instruction that is not known.",
        status::MEMORY_FAULT => c"A kernel accessed memory that no allocation holds.",
        _ => return None,
    })
}

/// Makes a C function's result of a Rust function's.
fn report(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(status::SUCCESS)
}

/// Calls a function of the client's for each item until it asks to stop, which is what the result says then.
fn each<T>(items: impl IntoIterator<Item = T>, mut callback: impl FnMut(T) -> Status) -> Result<(), Status> {
    items.into_iter().try_for_each(|item| match callback(item) {
        status::SUCCESS => Ok(()),
        other => Err(other),
    })
}

/// Writes a result where the caller wants it.
///
/// # Safety
///
/// The pointer is null or valid for a write of a `T` (contract C).
unsafe fn give<T>(place: *mut T, value: T) -> Result<(), Status> {
    if place.is_null() {
        return Err(status::INVALID_ARGUMENT);
    }
    // SAFETY: by this function's contract; the place may be unaligned as far as Rust is concerned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Writes a text of a fixed length, filled up with zeros.
///
/// # Safety
///
/// The pointer is null or valid for writes of `length` bytes (contract C).
unsafe fn give_text(place: *mut c_void, text: &str, length: usize) -> Result<(), Status> {
    if place.is_null() {
        return Err(status::INVALID_ARGUMENT);
    }
    for index in 0..length {
        let byte = text.as_bytes().get(index).copied().unwrap_or(0);
        // SAFETY: the index is less than the length; the rest by this function's contract.
        unsafe { place.cast::<u8>().add(index).write(byte) };
    }
    Ok(())
}

/// Starts the runtime, or counts another user of it.
pub extern "C" fn hsa_init() -> Status {
    report(Runtime::retain())
}

/// Ends one user's use of the runtime; the last one's ends the runtime.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_shut_down() -> Status {
    report(Runtime::release())
}

/// Gives a status's text.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_status_string(status: Status, text: *mut *const c_char) -> Status {
    match status_text(status) {
        // SAFETY: contract C.
        Some(found) => report(unsafe { give(text, found.as_ptr()) }),
        None => status::INVALID_ARGUMENT,
    }
}

/// Calls a function of the client's on another thread.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_async_function(
    callback: Option<extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> Status {
    let start = |runtime: std::sync::Arc<Runtime>| {
        let (callback, data) = (callback.ok_or(status::INVALID_ARGUMENT)?, runtime::ClientData(data));
        runtime.call("async function", move || callback(data.get()))
    };
    report(Runtime::get().and_then(start))
}

/// Copies the text of the last launch that failed on any device: kernel, place, instruction and reason; or of why the
/// runtime did not start. Returns its length without the 0 byte, or 0 if nothing has failed. This function is no part of HSA.
///
/// # Safety
///
/// `text` is valid for writes of `bytes` bytes.
pub unsafe extern "C" fn softhsa_last_failure(text: *mut c_char, bytes: usize) -> usize {
    let failure = runtime::last_failure();
    if bytes > 0 && !text.is_null() {
        let fitting = failure.floor_char_boundary(bytes - 1);
        // SAFETY: `fitting` and the 0 byte behind are within the buffer.
        let _ = unsafe { give_text(text.cast(), &failure[..fitting], fitting + 1) };
    }
    failure.len()
}
