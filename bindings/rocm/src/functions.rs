//! The functions of the interface. None of them unwinds: a panic is a fault in the library and becomes
//! [`Error::Internal`].

use crate::handlers::{self, ErrorHandler, Handler};
use crate::state::State;
use hostcall_server::rocm::{ALIGN, Layout, Version};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// What a function returns other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// The consumer runs, or some consumer does.
    ConsumerActive = 1,
    /// The system started no thread.
    LaunchFailed = 3,
    /// What was asked for cannot be done.
    InvalidRequest = 4,
    /// A service has no handler.
    ServiceUnknown = 5,
    /// A buffer is not aligned.
    IncorrectAlignment = 6,
    /// A pointer is null.
    Null = 7,
    /// HSA is not there, or a fault in the library.
    Internal = 8,
}

/// Gives C a function's result.
fn status(run: impl FnOnce() -> Result<(), Error>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        // Its drop could panic as well.
        std::mem::forget(payload);
        Err(Error::Internal)
    });
    result.map_or_else(|error| error as c_int, |()| 0)
}

/// The opaque type of a handle.
#[repr(C)]
pub struct RawConsumer {
    _private: [u8; 0],
}

/// Returns the number of a consumer. The pointer is not followed (STATE).
fn id(consumer: *mut RawConsumer) -> Result<usize, Error> {
    if consumer.is_null() { Err(Error::Null) } else { Ok(consumer.addr()) }
}

/// Returns the name of an error.
pub extern "C" fn error_string(error: c_int) -> *const c_char {
    let name = match error {
        0 => c"AMD_HOSTCALL_SUCCESS",
        1 => c"AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE",
        2 => c"AMD_HOSTCALL_ERROR_CONSUMER_INACTIVE",
        3 => c"AMD_HOSTCALL_ERROR_CONSUMER_LAUNCH_FAILED",
        4 => c"AMD_HOSTCALL_ERROR_INVALID_REQUEST",
        5 => c"AMD_HOSTCALL_ERROR_SERVICE_UNKNOWN",
        6 => c"AMD_HOSTCALL_ERROR_INCORRECT_ALIGNMENT",
        7 => c"AMD_HOSTCALL_ERROR_NULLPTR",
        8 => c"AMD_HOSTCALL_INTERNAL_ERROR",
        _ => c"unknown error",
    };
    name.as_ptr()
}

/// Makes a consumer.
///
/// # Safety
/// CALLER: `consumer` is null or valid for writes.
pub unsafe extern "C" fn create_consumer(consumer: *mut *mut RawConsumer) -> c_int {
    if consumer.is_null() {
        return Error::Null as c_int;
    }
    let mut id = 0;
    let result = status(|| {
        id = State::lock().create()?;
        Ok(())
    });
    // SAFETY: CALLER; it is not null.
    unsafe { consumer.write(std::ptr::without_provenance_mut(id)) };
    result
}

/// Destroys a consumer.
pub extern "C" fn destroy_consumer(consumer: *mut RawConsumer) -> c_int {
    status(|| {
        // The lock is released before the consumer's thread is waited for.
        let removed = State::lock().destroy(id(consumer)?)?;
        removed.end();
        Ok(())
    })
}

/// Starts a consumer's thread.
pub extern "C" fn launch_consumer(consumer: *mut RawConsumer) -> c_int {
    status(|| State::lock().launch(id(consumer)?))
}

/// Registers the handler of a service.
///
/// # Safety
/// CALLER: `handler` may be called with `state` by any thread until the process ends.
pub unsafe extern "C" fn register_service(
    service: u32,
    handler: Option<Handler>,
    state: *mut c_void,
) -> c_int {
    status(|| {
        let handler = handler.ok_or(Error::Null)?;
        // SAFETY: CALLER, the same promise.
        unsafe { handlers::register(service, handler, state) }
    })
}

/// Registers the library's own `printf`.
pub extern "C" fn register_printf() -> c_int {
    status(handlers::register_printf)
}

/// Returns the bytes of a buffer.
pub extern "C" fn get_buffer_size(packets: u32) -> usize {
    Layout::new(Version::Stacks, packets).map_or(0, |layout| layout.bytes())
}

/// Returns a buffer's alignment.
pub extern "C" fn get_buffer_alignment() -> u32 {
    ALIGN as u32
}

/// Makes an empty buffer.
///
/// # Safety
/// CALLER: `buffer` is null or has [`get_buffer_size`] bytes that nobody else uses now.
pub unsafe extern "C" fn initialize_buffer(buffer: *mut c_void, packets: u32) -> c_int {
    status(|| {
        let buffer = NonNull::new(buffer.cast::<u8>()).ok_or(Error::Null)?;
        // SAFETY: CALLER, the same promise.
        unsafe { State::lock().initialize(buffer, packets) }
    })
}

/// Has a consumer serve a buffer.
///
/// # Safety
/// CALLER: the buffer has its bytes until it is deregistered or the consumer is destroyed.
pub unsafe extern "C" fn register_buffer(consumer: *mut RawConsumer, buffer: *mut c_void) -> c_int {
    status(|| {
        let id = id(consumer)?;
        let buffer = NonNull::new(buffer.cast::<u8>()).ok_or(Error::Null)?;
        // SAFETY: CALLER, the same promise.
        unsafe { State::lock().register(id, buffer) }
    })
}

/// Has a consumer serve a buffer no more.
pub extern "C" fn deregister_buffer(consumer: *mut RawConsumer, buffer: *mut c_void) -> c_int {
    status(|| {
        let id = id(consumer)?;
        let buffer = NonNull::new(buffer.cast::<u8>()).ok_or(Error::Null)?;
        State::lock().deregister(id, buffer)
    })
}

/// Registers the error handler.
///
/// # Safety
/// CALLER: `handler` may be called with `state` by any thread until the process ends.
pub unsafe extern "C" fn on_error(handler: Option<ErrorHandler>, state: *mut c_void) -> c_int {
    status(|| {
        let handler = handler.ok_or(Error::Null)?;
        // Nobody is launched meanwhile.
        let consumers = State::lock();
        if consumers.is_active() {
            return Err(Error::ConsumerActive);
        }
        // SAFETY: CALLER, the same promise.
        unsafe { handlers::on_error(handler, state) }
    })
}

/// Has the library tell what consumers do.
pub extern "C" fn enable_debug() {
    handlers::enable_debug();
}
