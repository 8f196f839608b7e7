//! The operating system's errors as a kernel gets them.

use super::sink::Failure;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use std::io::{self, ErrorKind};

/// `EMFILE` and `ENFILE`, the same on every Unix.
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

/// `EIO`, for errors that have no number.
const OTHER: i32 = 5;

/// The status that tells a kernel of an error.
pub(super) fn status(error: &io::Error) -> CallError {
    let error = match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound, _) => Error::NotFound,
        (ErrorKind::PermissionDenied, _) => Error::PermissionDenied,
        (ErrorKind::AlreadyExists, _) => Error::AlreadyExists,
        (ErrorKind::InvalidInput, _) => Error::InvalidInput,
        (_, Some(code)) if TOO_MANY_OPEN.contains(&code) => Error::TooManyOpen,
        (_, code) => {
            let output = error.get_ref().and_then(|error| error.downcast_ref::<Failure>());
            Error::Os(code.or(output.and_then(|failure| failure.code)).unwrap_or(OTHER))
        }
    };
    error.into()
}
