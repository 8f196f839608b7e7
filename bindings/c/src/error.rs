//! Statuses and errors.

use crate::functions::functions;
use crate::handle::Out;
use hostcall::Error;
use hostcall::device::LaunchFailure;
use hostcall::graph::NodeFailure;
use hostcall::server::{RegisterError, ServerError};
use hostcall::services::Panic;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// How a function ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum hostcall_status {
    /// It did what it is for.
    Ok = 0,
    /// An argument of the function cannot be: NULL, an unknown kind, a number that is too large, a text that is no UTF-8.
    InvalidArgument = 1,
    /// There is no such device, or it cannot be used.
    NoDevice = 2,
    /// The image cannot be used, or has no such kernel.
    Image = 3,
    /// What was asked for does not fit: a launch, a part of a buffer, a service's number, another device's handle.
    Refused = 4,
    /// A lane panicked; hostcall_error_panic has its message and place.
    Panicked = 5,
    /// The launch was cancelled, or did not run because one before it in its stream ended early. A kernel of a code object that
    /// was to be cancelled has run to its end.
    Cancelled = 6,
    /// A lane did what the device does not allow, or the launch did not start.
    LaunchFailed = 7,
    /// The time that was given has passed.
    TimedOut = 8,
    /// The device was closed.
    Closed = 9,
    /// Waiting would never end, or not before its limit: it was called in a function that what it waits for waits for.
    WouldDeadlock = 10,
    /// The device, its driver or the system failed.
    Device = 11,
    /// A fault in the library.
    Internal = 12,
}

/// Why a function failed. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_error {
    status: hostcall_status,
    text: CString,
    panic: Option<PanicTexts>,
}

struct PanicTexts {
    message: CString,
    file: CString,
    panic: Panic,
}

/// A lane's panic. The texts live as long as the error.
#[repr(C)]
pub struct hostcall_panic {
    /// The message; one that was cut after 4 KiB ends with ` [cut]`.
    pub message: *const c_char,
    /// The source file.
    pub file: *const c_char,
    /// The line in the file, from 1.
    pub line: u32,
    /// The column in the line, from 1.
    pub column: u32,
    /// The workgroup's place in the grid, in x, y and z.
    pub workgroup: [u32; 3],
    /// The lane's index in its workgroup.
    pub lane: u32,
}

/// Why a function of the library fails, before it is a handle.
pub struct Failure {
    pub(crate) status: hostcall_status,
    text: String,
    panic: Option<Panic>,
}

impl Failure {
    pub(crate) fn new(status: hostcall_status, text: impl ToString) -> Self {
        Self { status, text: text.to_string(), panic: None }
    }

    pub(crate) fn invalid(text: impl ToString) -> Self {
        Self::new(hostcall_status::InvalidArgument, text)
    }

    /// The failure of a kernel's argument.
    pub(crate) fn of_argument(mut self, place: usize) -> Self {
        self.text = format!("argument {place} (the first is 0): {}", self.text);
        self
    }
}

/// Returns how a launch ended, with its lane's panic.
fn of_launch(failure: &LaunchFailure, panic: &mut Option<Panic>) -> hostcall_status {
    use hostcall_status as status;
    match failure {
        LaunchFailure::Panicked { first, .. } => {
            *panic = first.clone();
            status::Panicked
        }
        LaunchFailure::Cancelled | LaunchFailure::Skipped | LaunchFailure::RanToEnd => status::Cancelled,
        LaunchFailure::TimedOut => status::TimedOut,
        _ => status::LaunchFailed,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use hostcall_status as status;
        let mut panic = None;
        let status = match &error {
            Error::NoSuchDevice { .. } | Error::Unavailable { .. } => status::NoDevice,
            Error::Image(_) | Error::CodeObject(_) => status::Image,
            Error::Launch { failure, .. } => of_launch(failure, &mut panic),
            Error::Replay(failure) => match &failure.cause {
                NodeFailure::Launch(failure) => of_launch(failure, &mut panic),
                NodeFailure::Refused(_) => status::Refused,
                NodeFailure::Device(_) => status::Device,
                // Functions of C do not panic.
                _ => status::Internal,
            },
            Error::HostFunction { .. } => status::Internal,
            Error::TimedOut { .. } => status::TimedOut,
            Error::Closed => status::Closed,
            Error::WouldDeadlock { .. } => status::WouldDeadlock,
            Error::Server(ServerError::Register(_)) => status::Refused,
            Error::Builtins(_) | Error::Server(_) | Error::NoThread { .. } | Error::Backend(_) => {
                status::Device
            }
            _ => status::Refused,
        };
        let mut text = error.to_string();
        if status == status::NoDevice {
            // Who has the library need not have the command.
            text = text.replace("`hostcall devices`", "`hostcall_devices`");
        }
        Self { status, text, panic }
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        Self::new(hostcall_status::Refused, error)
    }
}

/// Makes a text that C can read: what has a zero byte in it ends there.
pub(crate) fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// Runs a function of the library, and gives the caller its error.
pub(crate) fn run(
    error: Out<'_, hostcall_error>,
    run: impl FnOnce() -> Result<(), Failure>,
) -> hostcall_status {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        // Its drop could panic as well.
        std::mem::forget(payload);
        let text = "a fault in the library: the panic's message is on the standard error";
        Err(Failure::new(hostcall_status::Internal, text))
    });
    let (status, failure) = match result {
        Ok(()) => (hostcall_status::Ok, None),
        Err(failure) => (failure.status, Some(failure)),
    };
    if let Some(error) = error {
        error.write(failure.map_or(null_mut(), |Failure { status, text, panic }| {
            let panic = panic.map(|panic| {
                let (message, file) = (c_text(&panic.message), c_text(&panic.file));
                PanicTexts { message, file, panic }
            });
            Box::into_raw(Box::new(hostcall_error { status, text: c_text(&text), panic }))
        }));
    }
    status
}

functions! {
    /// Returns the status that the function returned; HOSTCALL_STATUS_OK for NULL.
    ask hostcall_error_status(error: &hostcall_error) -> hostcall_status { error.status }

    /// Returns a sentence that says what is wrong and what to do. It lives as long as the error; it is empty for NULL.
    ask hostcall_error_text(error: Option<&hostcall_error>) -> *const c_char {
        error.map_or(c"".as_ptr(), |error| error.text.as_ptr())
    }

    /// Puts a lane's panic into `panic` and returns true, if that is what the error tells of.
    ask hostcall_error_panic(error: &hostcall_error, panic: &mut MaybeUninit<hostcall_panic>) -> bool {
        let Some(texts) = &error.panic else { return Ok(false) };
        let Panic { line, column, workgroup, lane, .. } = texts.panic;
        let (message, file) = (texts.message.as_ptr(), texts.file.as_ptr());
        panic.write(hostcall_panic { message, file, line, column, workgroup, lane });
        true
    }

    /// Frees an error and sets the handle to NULL. NULL is let be.
    free hostcall_error_free(error: hostcall_error) { drop(error) }
}
