//! The caller's handlers, for all consumers of the process, and what is fatal.

use crate::functions::Error;
use hostcall_locks::RwLock;
use hostcall_server::rocm::{Mode, Packet, Services, number};
use hostcall_server::services::Builtins;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

/// The caller's handler of a service: state, service and a lane's eight words.
pub type Handler = unsafe extern "C-unwind" fn(*mut c_void, u32, *mut u64) -> c_int;

/// The caller's error handler: state and error.
pub type ErrorHandler = unsafe extern "C-unwind" fn(*mut c_void, c_int);

/// A function of the caller's and what it gets.
#[derive(Clone, Copy)]
struct Callback<F> {
    function: F,
    state: *mut c_void,
}

// SAFETY: CALLER: any thread may call the function with the state, which is passed on and not followed.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Callback<F> {}

/// Who handles a service.
#[derive(Clone, Copy)]
enum Registered {
    Caller(Callback<Handler>),
    /// The library's own `printf`.
    Printf,
}

static HANDLERS: LazyLock<RwLock<HashMap<u32, Registered>>> = LazyLock::new(RwLock::default);
static ON_ERROR: OnceLock<Callback<ErrorHandler>> = OnceLock::new();
static PRINTF: OnceLock<Builtins> = OnceLock::new();
static DEBUG: AtomicBool = AtomicBool::new(false);

/// Writes a line on the standard error, if it takes one.
fn line(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "amd_hostcall: {text}");
}

/// Writes a line for whoever looks for a fault in his program.
pub(crate) fn debug(text: std::fmt::Arguments<'_>) {
    if DEBUG.load(Ordering::Relaxed) {
        line(text);
    }
}

pub(crate) fn enable_debug() {
    DEBUG.store(true, Ordering::Relaxed);
}

/// Registers a handler.
///
/// # Safety
/// CALLER: `function` may be called with `state` by any thread until the process ends.
pub(crate) unsafe fn register(service: u32, function: Handler, state: *mut c_void) -> Result<(), Error> {
    add(service, Registered::Caller(Callback { function, state }))
}

fn add(service: u32, handler: Registered) -> Result<(), Error> {
    let mut handlers = HANDLERS.write();
    if handlers.contains_key(&service) {
        return Err(Error::InvalidRequest);
    }
    handlers.insert(service, handler);
    drop(handlers);
    debug(format_args!("service {service} has a handler"));
    Ok(())
}

/// Registers the library's own `printf`.
pub(crate) fn register_printf() -> Result<(), Error> {
    let mut handlers = HANDLERS.write();
    if handlers.contains_key(&number::PRINTF) {
        return Err(Error::InvalidRequest);
    }
    let builtins = Builtins::builder().build().map_err(|_| Error::Internal)?;
    services().register_printf(&builtins).map_err(|_| Error::InvalidRequest)?;
    let _ = PRINTF.set(builtins);
    // SAFETY: C's function; what is registered neither unwinds nor uses anything that is gone by then.
    unsafe { atexit(flush_at_exit) };
    handlers.insert(number::PRINTF, Registered::Printf);
    Ok(())
}

unsafe extern "C" {
    /// C's function: `function` is called when the process exits.
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn flush_at_exit() {
    let _ = std::panic::catch_unwind(flush);
}

/// Waits until the printed lines are written.
pub(crate) fn flush() {
    if let Some(builtins) = PRINTF.get() {
        // Whoever closed an output does not want to know.
        let _ = builtins.stdio().flush();
    }
}

/// Registers the error handler.
///
/// # Safety
/// As for [`register`].
pub(crate) unsafe fn on_error(function: ErrorHandler, state: *mut c_void) -> Result<(), Error> {
    ON_ERROR.set(Callback { function, state }).map_err(|_| Error::InvalidRequest)
}

/// The services of all consumers: each goes to the caller's handlers, which are looked up for each packet.
pub(crate) fn services() -> &'static Services {
    static SERVICES: LazyLock<Services> = LazyLock::new(|| {
        let services = Services::new();
        let taken = services.register(number::DEFAULT, "amd_hostcall", Mode::Inline, dispatch);
        debug_assert!(taken.is_ok(), "nothing is registered yet");
        services
    });
    &SERVICES
}

/// Calls the handler of a packet's service for each of its lanes.
fn dispatch(packet: &mut Packet<'_>) {
    let service = packet.service();
    let handlers = HANDLERS.read();
    let own = if service == number::DEFAULT { None } else { handlers.get(&service) };
    let handler = own.or_else(|| handlers.get(&number::DEFAULT)).copied();
    // A handler may register another.
    drop(handlers);
    debug(format_args!("service {service} for the lanes {:#x}", packet.mask()));
    if let Some(Registered::Printf) = handler {
        // Its handler was registered after this packet was found: the line is lost, as `printf` says.
        packet.lanes().for_each(|(_, words)| words[0] = u64::MAX);
        return;
    }
    let Some(Registered::Caller(handler)) = handler else {
        line(format_args!(
            "a kernel called service {service}, for which no handler is registered, nor a default one: the process stops"
        ));
        stop(Error::ServiceUnknown as c_int);
    };
    for (_, words) in packet.lanes() {
        // SAFETY: CALLER: the handler may be called so; the words are eight and nobody else's.
        let result = unsafe { (handler.function)(handler.state, service, words.as_mut_ptr()) };
        if result != 0 {
            line(format_args!("the handler of service {service} returned {result}: the process stops"));
            stop(result);
        }
    }
}

/// Tells the caller's error handler, and ends the process.
fn stop(error: c_int) -> ! {
    if let Some(handler) = ON_ERROR.get() {
        // SAFETY: CALLER: the handler may be called so.
        unsafe { (handler.function)(handler.state, error) };
    }
    flush();
    std::process::abort()
}
