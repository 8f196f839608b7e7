//! Builds a device program (a package that depends on `hostcall-device`) into an image that a device loads:
//! a shared object for the software device, PTX for NVIDIA, a code object for AMD.
//!
//! The CPU needs only the cargo at hand. GPUs need a nightly toolchain with its library's sources, or
//! Debian's packages of one; see [`available`].
//!
//! ```no_run
//! use hostcall_build::{Progress, Request, Target, build};
//!
//! let image = build(&Request {
//!     package: "programs/hello".into(),
//!     target: Target::parse("sm_90")?,
//!     target_dir: None,
//!     progress: Progress::Inherit,
//! })?;
//! println!("{} has kernels {:?}", image.path.display(), image.kernels);
//! # Ok::<(), hostcall_build::BuildError>(())
//! ```

#![forbid(unsafe_code)]

mod cargo;
mod error;
mod image;
mod package;
mod target;
mod toolchain;

pub use error::BuildError;
pub use image::Image;
pub use target::Target;

use package::Package;
use std::path::PathBuf;
use toolchain::Toolchain;

/// What to build, for what, and where.
#[derive(Clone, Debug)]
pub struct Request {
    /// Folder with the program's `Cargo.toml`.
    pub package: PathBuf,
    /// Device to build for.
    pub target: Target,
    /// Folder for what is built; the package's own target folder if `None`. Everything is put into
    /// `hostcall/<cpu>` below it, away from other builds.
    pub target_dir: Option<PathBuf>,
    /// What of cargo's output is shown.
    pub progress: Progress,
}

/// What is shown of cargo's own output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything, on standard error, as it comes.
    Inherit,
    /// Nothing; a failed compile's output is in [`BuildError::Compile`].
    Quiet,
}

/// Builds the program and returns its image. Compiles only what changed.
///
/// # Errors
/// See [`BuildError`]; each sentence says what to do.
pub fn build(request: &Request) -> Result<Image, BuildError> {
    let package = Package::read(&request.package)?;
    let folder = request
        .target_dir
        .as_ref()
        .unwrap_or(&package.target_dir)
        .join("hostcall")
        .join(request.target.cpu());
    let toolchain = Toolchain::find(&request.target)?;
    let built = cargo::compile(&package, &request.target, &toolchain, &folder, request.progress)?;
    Image::take(&built, &folder, &package, &request.target)
}

/// Whether this machine has what is needed to build for `target`.
///
/// # Errors
/// [`BuildError::NoToolchain`], which names what to install.
pub fn available(target: &Target) -> Result<(), BuildError> {
    Toolchain::find(target).map(drop)
}
