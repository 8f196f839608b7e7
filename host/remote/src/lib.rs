//! Services that live elsewhere: kernels call, and another process answers, on this machine or another one.
//!
//! A process [`export`]s a service by a name; another one [`import`]s it into a device. The device's server gathers the calls
//! of all waves that wait ([`hostcall_service::gather`]), and each batch is one message. The carrier is zenoh; what it is
//! asked to do stands in one module, behind a seam.
//!
//! ```ignore
//! use hostcall::{CallError, service};
//!
//! #[service]
//! trait Features {
//!     fn of(user: u64) -> [f32; 4];
//! }
//!
//! struct Store;
//!
//! impl FeaturesHandler for Store {
//!     fn of(&self, user: u64) -> Result<[f32; 4], CallError> {
//!         Ok([user as f32; 4])
//!     }
//! }
//!
//! let session = hostcall_remote::Session::builder().listen("tcp/127.0.0.1:7447").open()?;
//! let _export = hostcall_remote::export(&session, "features", Features::serve(Store))?;
//! std::thread::park();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a call ends
//! Each call ends once, and within its lane's deadline, if it has one.
//!
//! | what happens | the call ends with |
//! |---|---|
//! | the handler answers | its result or error |
//! | nobody answers for the service, or the link is not there, for [`SessionBuilder::patience`] | `Unreachable`: it did not run, and may be made again |
//! | the answerer is killed, drops the question, or an access rule denies it | `MayHaveRun`, once the carrier knows: milliseconds |
//! | the answerer is stopped, or the link is cut | `MayHaveRun`, 1.5 s after the last sign of life |
//! | the answerer lives and does not answer | `TimedOut` at the lane's deadline, `MayHaveRun` after [`SessionBuilder::longest`] |
//! | the answerer has as many questions as it may | `Busy` |
//! | it was built with other types, or speaks another version of the messages | `TypeMismatch` |
//! | it exports no such method | `NoSuchService` |
//!
//! A question is sent *at most once*: this crate never sends one again that left the process, and an answerer drops one that
//! it had before. Of several answerers each question goes to one; when that one is gone, the next goes to another.
//! Posts are sent likewise, and nobody is told how they ended.
//!
//! # When nobody waits any more
//! A handler that gathers learns it as it does for calls of its own process ([`hostcall_service::Wanted`], and its future is
//! dropped): when the lanes' deadlines have passed, which travel with the calls; when all lanes of the question went on, or
//! their launch ended, if the question is older than 10 ms; and when the process that asked is gone.
//!
//! # Trust
//! What comes over the wire is checked before it is used: lengths, versions, names and types. But who may connect may call,
//! and answer for any name: links beyond this machine want TLS and access rules, see the book. An `unsafe fn` of a service
//! trusts its callers' promises; do not export one to those that you do not trust.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod carrier;
mod counts;
mod door;
mod export;
mod import;
mod lanes;
mod members;
pub mod message;
mod once;
mod session;
#[cfg(feature = "zenoh")]
mod zenoh_carrier;

pub use counts::Counted;
pub use export::{Export, export, export_gathered};
pub use import::{Imported, import};
pub use members::{Asked, Member};
pub use session::{Session, SessionBuilder};

/// Why a session was not opened, or a service neither exported nor imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A name that no key can have.
    #[error("`{name}` cannot name a {what} here: use 1 to 64 letters, digits, `_`, `-` and `.`")]
    Name {
        /// What it was to name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An address that other machines reach, or none.
    #[error(
        "`{0}` is no address of this machine alone, such as tcp/127.0.0.1:7447; call `beyond_this_machine` to listen \
         where other machines reach it, with TLS and access rules"
    )]
    NotLoopback(String),
    /// The carrier refused.
    #[error("zenoh refuses {0}")]
    Carrier(String),
    /// The system starts no thread.
    #[error("the system starts no thread: {0}")]
    Thread(std::io::Error),
}
