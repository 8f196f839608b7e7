//! Why a program that was linked with LLVM's GPU libc cannot be started.

use super::other_than;
use hostcall_server::llvm::LayoutError;

/// Why a program that was linked with LLVM's GPU libc cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The file is something else.
    #[error("{name}: it is no program that was linked with LLVM's GPU libc")]
    NotAProgram {
        /// The file.
        name: String,
    },
    /// It was built for another device.
    #[error("{name}: it was built for {built_for}, {}: build it for that", other_than(device, target))]
    OtherTarget {
        /// The file.
        name: String,
        /// What it was built for.
        built_for: String,
        /// The device's name.
        device: String,
        /// What the device is.
        target: String,
    },
    /// Its LLVM keeps what its calls need in another way than those that hostcall knows.
    #[error(
        "the program's LLVM has a client of {bytes} bytes for its calls, which this version of hostcall does not \
         know: link it with LLVM 19 or a release that is not much later"
    )]
    UnknownClient {
        /// Size of its client object in bytes.
        bytes: u64,
    },
    /// It cannot have so many ports.
    #[error(transparent)]
    Ports(#[from] LayoutError),
    /// It lacks a variable or a kernel that such programs have.
    #[error("the program has no {what}")]
    Missing {
        /// What it lacks, such as "kernel `_start`".
        what: String,
    },
    /// A variable has another size or value than in such programs.
    #[error("{what}")]
    Variable {
        /// Which variable, and what is wrong with it.
        what: String,
    },
    /// An argument or a variable of the environment cannot be a string of C.
    #[error("{string:?} has a zero byte, which ends a string of C")]
    ZeroByte {
        /// The string, with what is no UTF-8 replaced.
        string: String,
    },
}
