//! How a call ended. Every call ends in exactly one [`Status`], which reaches the calling lane.

/// The end of one lane's call, as it crosses the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The handler returned a result.
    Ok,
    /// The handler was not run, or did not return a result.
    Error(CallError),
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No service has this number and there is no default service.
    NoSuchService,
    /// The handler failed with this code of its own.
    Failed(i32),
    /// The handler panicked; the server goes on.
    Panicked,
    /// The launch was cancelled or the server shut down before the call was answered.
    Cancelled,
    /// The message is longer than the server accepts, or the reply longer than the caller's buffer.
    TooLarge,
    /// The caller's or the service's deadline passed before the handler returned.
    TimedOut,
    /// The service exists, but its request or reply types are not the caller's.
    TypeMismatch,
    /// The request (or, seen from the device, the reply) does not decode.
    Malformed,
    /// The server holds as many bytes of messages and replies as it may, as many files are open, or the system starts no thread
    /// for async handlers: try again later.
    Busy,
    /// Nobody answers for a service of another process, and the call was not sent: it did not run, and may be made again.
    Unreachable,
    /// Whoever had the call, a service of another process, is gone or silent: the call may have run, or may run yet.
    MayHaveRun,
}

impl Status {
    /// Packs the status in the low 40 bits: code in bits 0–7, the handler's own code in bits 8–39.
    pub const fn to_bits(self) -> u64 {
        match self {
            Status::Ok => 0,
            Status::Error(error) => match error {
                CallError::NoSuchService => 1,
                CallError::Failed(code) => 2 | ((code as u32 as u64) << 8),
                CallError::Panicked => 3,
                CallError::Cancelled => 4,
                CallError::TooLarge => 5,
                CallError::TimedOut => 6,
                CallError::TypeMismatch => 7,
                CallError::Malformed => 8,
                CallError::Busy => 9,
                CallError::Unreachable => 10,
                CallError::MayHaveRun => 11,
            },
        }
    }

    /// The inverse of [`Status::to_bits`]; an unknown code reads as [`CallError::Malformed`].
    pub const fn from_bits(bits: u64) -> Self {
        let error = match bits & 0xff {
            0 => return Status::Ok,
            1 => CallError::NoSuchService,
            2 => CallError::Failed((bits >> 8) as u32 as i32),
            3 => CallError::Panicked,
            4 => CallError::Cancelled,
            5 => CallError::TooLarge,
            6 => CallError::TimedOut,
            7 => CallError::TypeMismatch,
            9 => CallError::Busy,
            10 => CallError::Unreachable,
            11 => CallError::MayHaveRun,
            _ => CallError::Malformed,
        };
        Status::Error(error)
    }

    /// Returns `Ok(())`, or the error.
    ///
    /// # Errors
    /// The status's error, if it is one.
    pub const fn into_result(self) -> Result<(), CallError> {
        match self {
            Status::Ok => Ok(()),
            Status::Error(error) => Err(error),
        }
    }
}

impl core::fmt::Display for CallError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CallError::NoSuchService => f.write_str("the host has no such service: register it with the device before the launch"),
            CallError::Failed(code) => write!(f, "the handler failed with code {code}"),
            CallError::Panicked => f.write_str("the handler panicked"),
            CallError::Cancelled => f.write_str("the call was cancelled"),
            CallError::TooLarge => f.write_str("the message is longer than the server accepts (`message_limit`), or the reply than the caller's buffer"),
            CallError::TimedOut => f.write_str("the call's deadline passed"),
            CallError::TypeMismatch => f.write_str("caller and service disagree on the types of the call"),
            CallError::Malformed => f.write_str("the message does not decode"),
            CallError::Busy => f.write_str("the server holds as many messages, files or threads as it may; try again later"),
            CallError::Unreachable => f.write_str("nobody answers for the service, and the call did not run; try again later"),
            CallError::MayHaveRun => f.write_str("whoever had the call is gone or silent, and it may have run"),
        }
    }
}

impl core::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_link() {
        let errors = [
            CallError::NoSuchService,
            CallError::Failed(0),
            CallError::Failed(-1),
            CallError::Failed(i32::MIN),
            CallError::Panicked,
            CallError::Cancelled,
            CallError::TooLarge,
            CallError::TimedOut,
            CallError::TypeMismatch,
            CallError::Malformed,
            CallError::Busy,
            CallError::Unreachable,
            CallError::MayHaveRun,
        ];
        assert_eq!(Status::from_bits(Status::Ok.to_bits()), Status::Ok);
        for error in errors {
            let bits = Status::Error(error).to_bits();
            assert!(bits < 1 << 40);
            assert_eq!(Status::from_bits(bits), Status::Error(error));
        }
        assert_eq!(Status::from_bits(0xff), Status::Error(CallError::Malformed));
    }
}
