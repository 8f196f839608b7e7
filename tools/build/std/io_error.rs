//! Errors of the host: an `errno` of Linux, and numbers of hostcall's own.

use crate::io::ErrorKind;

/// What the device crate calls `OWN_ERRORS`.
const OWN: i32 = 1 << 16;
const OUTSIDE_DIR: i32 = OWN;
const NO_DIR: i32 = OWN + 1;
const UNEXPECTED_END: i32 = OWN + 2;
const NET_DENIED: i32 = OWN + 4;
const NO_SUCH_NAME: i32 = OWN + 5;

/// The number of the last error, which nobody keeps.
pub fn errno() -> i32 {
    0
}

pub fn is_interrupted(number: i32) -> bool {
    number == 4
}

pub fn decode_error_kind(number: i32) -> ErrorKind {
    match number {
        1 | 13 | OUTSIDE_DIR | NO_DIR | NET_DENIED => ErrorKind::PermissionDenied,
        2 => ErrorKind::NotFound,
        4 => ErrorKind::Interrupted,
        7 => ErrorKind::ArgumentListTooLong,
        11 => ErrorKind::WouldBlock,
        12 => ErrorKind::OutOfMemory,
        16 => ErrorKind::ResourceBusy,
        17 => ErrorKind::AlreadyExists,
        18 => ErrorKind::CrossesDevices,
        20 => ErrorKind::NotADirectory,
        21 => ErrorKind::IsADirectory,
        22 => ErrorKind::InvalidInput,
        26 => ErrorKind::ExecutableFileBusy,
        27 => ErrorKind::FileTooLarge,
        28 => ErrorKind::StorageFull,
        29 => ErrorKind::NotSeekable,
        30 => ErrorKind::ReadOnlyFilesystem,
        31 => ErrorKind::TooManyLinks,
        32 => ErrorKind::BrokenPipe,
        35 => ErrorKind::Deadlock,
        36 => ErrorKind::InvalidFilename,
        38 | 95 => ErrorKind::Unsupported,
        39 => ErrorKind::DirectoryNotEmpty,
        40 => ErrorKind::FilesystemLoop,
        98 => ErrorKind::AddrInUse,
        99 => ErrorKind::AddrNotAvailable,
        100 => ErrorKind::NetworkDown,
        101 => ErrorKind::NetworkUnreachable,
        103 => ErrorKind::ConnectionAborted,
        104 => ErrorKind::ConnectionReset,
        107 => ErrorKind::NotConnected,
        110 => ErrorKind::TimedOut,
        111 => ErrorKind::ConnectionRefused,
        113 => ErrorKind::HostUnreachable,
        115 => ErrorKind::InProgress,
        116 => ErrorKind::StaleNetworkFileHandle,
        122 => ErrorKind::QuotaExceeded,
        UNEXPECTED_END => ErrorKind::UnexpectedEof,
        _ => ErrorKind::Uncategorized,
    }
}

/// What an error says. Of the system's, those that files, streams and sockets end with have the words that Linux has for them, so that
/// a program prints the same there.
pub fn error_string(number: i32) -> String {
    let text = match number {
        1 => "Operation not permitted",
        2 => "No such file or directory",
        4 => "Interrupted system call",
        5 => "Input/output error",
        6 => "No such device or address",
        9 => "Bad file descriptor",
        11 => "Resource temporarily unavailable",
        12 => "Cannot allocate memory",
        13 => "Permission denied",
        16 => "Device or resource busy",
        17 => "File exists",
        18 => "Invalid cross-device link",
        20 => "Not a directory",
        21 => "Is a directory",
        22 => "Invalid argument",
        24 => "Too many open files",
        26 => "Text file busy",
        27 => "File too large",
        28 => "No space left on device",
        29 => "Illegal seek",
        30 => "Read-only file system",
        31 => "Too many links",
        32 => "Broken pipe",
        36 => "File name too long",
        39 => "Directory not empty",
        40 => "Too many levels of symbolic links",
        84 => "Invalid or incomplete multibyte or wide character",
        89 => "Destination address required",
        90 => "Message too long",
        95 => "Operation not supported",
        97 => "Address family not supported by protocol",
        98 => "Address already in use",
        99 => "Cannot assign requested address",
        100 => "Network is down",
        101 => "Network is unreachable",
        103 => "Software caused connection abort",
        104 => "Connection reset by peer",
        107 => "Transport endpoint is not connected",
        110 => "Connection timed out",
        111 => "Connection refused",
        113 => "No route to host",
        122 => "Disk quota exceeded",
        OUTSIDE_DIR => "the path leads out of the directory that the host opened (`--dir`)",
        NO_DIR => "the host opened no directory to the program",
        UNEXPECTED_END => "the file or stream ended too early",
        NET_DENIED => {
            "the host does not open this name or address to the program (`--net` lets it connect, `--listen` listen)"
        }
        NO_SUCH_NAME => "failed to lookup address information",
        number if number > OWN => "the call to the host failed",
        _ => "an error of the host's system",
    };
    text.into()
}
