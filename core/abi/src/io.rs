//! The error of files and streams, which hosts print for kernels.

use crate::schema;
use crate::status::{CallError, Status};
use crate::wire::Wire;
use core::fmt;

/// Why an operation on a file or stream failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file or directory.
    NotFound,
    /// The host's user may not do this.
    PermissionDenied,
    /// The file exists already.
    AlreadyExists,
    /// The path leads out of the directory that the host opened to kernels.
    OutsideDir,
    /// The path, offset or combination of options makes no sense.
    InvalidInput,
    /// So many files are open that the host opens no more.
    TooManyOpen,
    /// The file was closed.
    Closed,
    /// The input ended too early, or nothing more can be written.
    UnexpectedEnd,
    /// What was read is no UTF-8.
    NotUtf8,
    /// The host opened no directory to kernels.
    NoDir,
    /// The host does not open this name or address of the network to kernels.
    NetDenied,
    /// Nobody knows an address of this name.
    NoSuchName,
    /// Another error of the host's operating system: its `errno`.
    Os(i32),
    /// The call itself failed.
    Call(CallError),
}

/// The errors that have a code of their own, which is −1 for the first.
const CODED: [Error; 12] = [
    Error::NotFound,
    Error::PermissionDenied,
    Error::AlreadyExists,
    Error::OutsideDir,
    Error::InvalidInput,
    Error::TooManyOpen,
    Error::Closed,
    Error::UnexpectedEnd,
    Error::NotUtf8,
    Error::NoDir,
    Error::NetDenied,
    Error::NoSuchName,
];

impl Error {
    /// What went wrong, without numbers.
    pub const fn message(&self) -> &'static str {
        match self {
            Error::NotFound => "there is no such file or directory",
            Error::PermissionDenied => "permission denied",
            Error::AlreadyExists => "the file exists already",
            Error::OutsideDir => {
                "the path leads out of the directory that the host opened: open another with `Builtins::builder().dir(..)`, or \
                 `--dir` of `hostcall run`"
            }
            Error::NoDir => {
                "the host opened no directory to kernels: open one with `Builtins::builder().dir(..)`"
            }
            Error::NetDenied => {
                "the host does not open this name or address to kernels: open it with `Builtins::builder().net(..)` or \
                 `.listen(..)`, or `--net` or `--listen` of `hostcall run`"
            }
            Error::NoSuchName => "nobody knows an address of this name",
            Error::InvalidInput => "the path, offset or options make no sense",
            Error::TooManyOpen => "too many files are open",
            Error::Closed => "the file was closed",
            Error::UnexpectedEnd => "the file or stream ended too early",
            Error::NotUtf8 => "the text is no UTF-8",
            Error::Os(_) => "the host's operating system reported an error",
            Error::Call(_) => "the call to the host failed",
        }
    }
}

/// What the `errno`s of Linux say that operations on files and streams end with.
fn os_error(code: i32) -> Option<&'static str> {
    Some(match code {
        4 => "a signal came first",
        5 => "input or output failed",
        6 => "there is no such device, or nobody reads the pipe",
        9 => "the file was opened for reading or writing alone",
        11 => "it would have to wait",
        12 => "there is no memory left",
        16 => "it is in use",
        17 => "it exists already",
        18 => "the two paths are of different file systems",
        19 => "there is no such device",
        20 => "a part of the path is no directory",
        21 => "it is a directory",
        25 => "the device does not do this",
        26 => "the file is a program that runs",
        27 => "the file is too large",
        28 => "no space is left on the device",
        29 => "a pipe has no positions",
        30 => "the file system is read-only",
        31 => "it has too many links",
        32 => "nobody reads the pipe any more",
        36 => "the file's name is too long",
        37 => "there are no locks left",
        38 | 95 => "the file system does not do this",
        39 => "the directory is not empty",
        40 => "too many symbolic links follow each other",
        75 => "the number is too large for the file system",
        104 => "the other end closed the connection",
        110 => "it took too long",
        116 => "the file is not there any more",
        122 => "the user's share of the disk is full",
        _ => return None,
    })
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(code) if code < 0 => {
                CODED.get(code.unsigned_abs() as usize - 1).copied().unwrap_or(Error::Os(code))
            }
            CallError::Failed(code) => Error::Os(code),
            error => Error::Call(error),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        match error {
            Error::Os(code) => CallError::Failed(code),
            Error::Call(error) => error,
            error => {
                let index = CODED.iter().position(|coded| *coded == error).unwrap_or(CODED.len());
                CallError::Failed(-(index as i32) - 1)
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Os(code) => match os_error(*code) {
                Some(name) => write!(f, "the host's operating system reported error {code}: {name}"),
                None => write!(f, "the host's operating system reported error {code}"),
            },
            Error::Call(error) => error.fmt(f),
            error => f.write_str(error.message()),
        }
    }
}

/// What `unwrap` says.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotFound => "NotFound",
            Error::PermissionDenied => "PermissionDenied",
            Error::AlreadyExists => "AlreadyExists",
            Error::OutsideDir => "OutsideDir",
            Error::InvalidInput => "InvalidInput",
            Error::TooManyOpen => "TooManyOpen",
            Error::Closed => "Closed",
            Error::UnexpectedEnd => "UnexpectedEnd",
            Error::NotUtf8 => "NotUtf8",
            Error::NoDir => "NoDir",
            Error::NetDenied => "NetDenied",
            Error::NoSuchName => "NoSuchName",
            Error::Os(code) => {
                return match os_error(*code) {
                    Some(name) => write!(f, "Os({code}: {name})"),
                    None => write!(f, "Os({code})"),
                };
            }
            Error::Call(error) => return write!(f, "Call({error:?})"),
        })
    }
}

impl core::error::Error for Error {}

impl Wire for Error {
    const WORDS: usize = 1;
    const SCHEMA: u64 = schema::of("io::Error");
    fn to_words(&self, words: &mut [u64]) {
        words[0] = Status::Error((*self).into()).to_bits();
    }
    fn from_words(words: &[u64]) -> Option<Self> {
        Status::from_bits(words[0]).into_result().err().map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_errors_of_the_system_are_named() {
        let text = |code| Error::Os(code).to_string();
        assert_eq!(text(28), "the host's operating system reported error 28: no space is left on the device");
        assert_eq!(text(16), "the host's operating system reported error 16: it is in use");
        assert_eq!(text(-99), "the host's operating system reported error -99");
        let unwrapped = |code| format!("{:?}", Error::Os(code));
        assert_eq!(unwrapped(28), "Os(28: no space is left on the device)");
        assert_eq!(unwrapped(-99), "Os(-99)");
    }

    #[test]
    fn errors_survive_the_link() {
        for error in
            CODED.into_iter().chain([Error::Os(5), Error::Os(-99), Error::Call(CallError::Cancelled)])
        {
            assert_eq!(Error::from(CallError::from(error)), error);
            let mut words = [0];
            error.to_words(&mut words);
            assert_eq!(Error::from_words(&words), Some(error));
        }
        assert_eq!(Error::from(CallError::Failed(i32::MIN)), Error::Os(i32::MIN));
        assert_eq!(Error::from_words(&[0]), None);
    }
}
