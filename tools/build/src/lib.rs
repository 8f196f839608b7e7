//! Builds a device program (a package that depends on `hostcall-device`) into an image that a device loads: a
//! shared object for the software device, PTX or a cubin for NVIDIA, a code object for AMD.
//!
//! The CPU needs only the cargo at hand. GPUs need a nightly toolchain with its library's sources, or
//! Debian's packages of one; see [`available`]. An image says what its kernels need: types, registers, stack.
//!
//! Begin at [`build`], or at [`Kernels`] for a build script; [`bind_c`] makes headers for other compilers. What is
//! done to the code stands in `flags` (what compilers are told), `registers`, `contraction`, `stack` and `spared`
//! (what is changed in NVIDIA's PTX).
//!
//! ```no_run
//! use hostcall_build::{Request, Target, build};
//!
//! let image = build(&Request::new("programs/hello", Target::parse("sm_90")?))?;
//! println!("{} has kernels {:?}", image.path.display(), image.kernels);
//! # Ok::<(), hostcall_build::BuildError>(())
//! ```
//!
//! A host program that launches kernels carries their images: its `build.rs` makes them with [`Kernels`].
//!
//! Environment variables: `HOSTCALL_DEVICE_RUSTC` and `HOSTCALL_DEVICE_CARGO` name the compiler and the cargo
//! that build for GPUs; `HOSTCALL_TARGETS` names the targets that [`Kernels`] builds for; `PTXAS` names
//! NVIDIA's assembler.

#![forbid(unsafe_code)]

mod assembler;
mod bind;
mod calls;
mod cargo;
mod contraction;
mod error;
mod flags;
mod image;
mod kernels;
mod lock;
mod order;
mod package;
mod panics;
mod ptx;
mod reached;
mod registers;
mod report;
mod rust_std;
mod spared;
mod stack;
mod target;
mod toolchain;

pub use assembler::assembler;
pub use bind::{BindError, bind_c, bind_python};
pub use error::BuildError;
pub use image::Image;
pub use kernels::Kernels;
pub use report::{KernelReport, Report, report};
pub use target::Target;

use lock::FolderLock;
use package::Package;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use toolchain::Toolchain;

/// What to build, for what, how, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Folder with the program's `Cargo.toml`.
    pub package: PathBuf,
    /// Device to build for.
    pub target: Target,
    /// Folder for what is built; the package's own target folder if `None`. Everything is put into
    /// `hostcall/<cpu>` below it, away from other builds.
    pub target_dir: Option<PathBuf>,
    /// The package's profile. GPU code is always optimised and linked as a whole, whatever the profile says.
    pub profile: String,
    /// Features of the package to turn on besides its default ones, each as cargo's `--features` takes it.
    pub features: Vec<String>,
    /// What of cargo's output is shown.
    pub progress: Progress,
    /// The environment is that of a build script.
    pub(crate) in_build_script: bool,
}

impl Request {
    /// Asks for the package in a folder with the `release` profile and default features, in its own target folder, and
    /// for all of cargo's output.
    pub fn new(package: impl Into<PathBuf>, target: Target) -> Self {
        Self {
            package: package.into(),
            target,
            target_dir: None,
            profile: "release".into(),
            features: Vec::new(),
            progress: Progress::Inherit,
            in_build_script: false,
        }
    }

    /// Puts what is built into a folder.
    #[must_use]
    pub fn target_dir(self, folder: impl Into<PathBuf>) -> Self {
        Self { target_dir: Some(folder.into()), ..self }
    }

    /// Takes a profile of the package other than `release`.
    #[must_use]
    pub fn profile(self, profile: impl Into<String>) -> Self {
        Self { profile: profile.into(), ..self }
    }

    /// Turns features of the package on.
    #[must_use]
    pub fn features(self, features: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { features: features.into_iter().map(Into::into).collect(), ..self }
    }

    /// Shows nothing of cargo's output.
    #[must_use]
    pub fn quiet(self) -> Self {
        Self { progress: Progress::Quiet, ..self }
    }
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
    build_locked(request).map(|(image, _)| image)
}

/// Does what [`build`] and then [`report`] do, and lets no other build come between: one with other
/// features, or of a source that was changed meanwhile, leaves the compiler's output where the report reads
/// it.
///
/// # Errors
/// As for [`build`]. With the image comes what [`report`] returns.
pub fn build_with_report(request: &Request) -> Result<(Image, Result<Report, BuildError>), BuildError> {
    let (image, _lock) = build_locked(request)?;
    let report = report::of_image(request, &image);
    Ok((image, report))
}

/// Builds the program, and returns with its image what keeps other builds out.
fn build_locked(request: &Request) -> Result<(Image, FolderLock), BuildError> {
    let package = Package::read(&request.package)?;
    let folder = folder_of(request, &package);
    let toolchain = match &package.program {
        Some(_) => Toolchain::with_sources(&request.target)?,
        None => Toolchain::find(&request.target)?,
    };
    let lock = FolderLock::take(&folder, request.progress)?;
    let built = match &package.program {
        Some(_) => cargo::compile_program(request, &package, &toolchain, &folder)?,
        None => cargo::compile(request, &package, &toolchain, &folder)?,
    };
    let image = Image::take(&built, &image_folder(request, folder), &package, &request.target)?;
    Ok((image, lock))
}

/// Where the image lies. One of another profile or of other features does not take the place of the usual
/// one, nor of one that somebody is about to load.
fn image_folder(request: &Request, mut folder: PathBuf) -> PathBuf {
    if request.profile != "release" {
        folder.push(&request.profile);
    }
    let names = request.features.iter().flat_map(|names| names.split([',', ' ']));
    let features: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    if !features.is_empty() {
        let mut hasher = DefaultHasher::new();
        features.hash(&mut hasher);
        folder.push(format!("features-{:016x}", hasher.finish()));
    }
    folder
}

/// Where what is built for a target lies.
fn folder_of(request: &Request, package: &Package) -> PathBuf {
    let folder = request.target_dir.as_ref().unwrap_or(&package.target_dir);
    let cpu = request.target.cpu();
    // What is compiled for `std` is another library.
    let own = if package.program.is_some() { format!("std-{cpu}") } else { cpu.to_owned() };
    folder.join("hostcall").join(own)
}

/// Whether the package in a folder is an ordinary program, with a `fn main()` and Rust's own `std`, and not one of kernels.
///
/// # Errors
/// When it is no package, or none of either.
pub fn has_std(package: &Path) -> Result<bool, BuildError> {
    Ok(Package::read(package)?.program.is_some())
}

/// Whether an image is of such a program.
#[must_use]
pub fn is_of_std(image: &[u8]) -> bool {
    rust_std::is_image(image)
}

/// Whether an image of such a program may start threads, so that a grid with waves for them is of use.
#[must_use]
pub fn starts_threads(image: &[u8]) -> bool {
    rust_std::starts_threads(image)
}

/// Whether this machine has what is needed to build for `target`.
///
/// # Errors
/// [`BuildError::NoToolchain`], which names what to install.
pub fn available(target: &Target) -> Result<(), BuildError> {
    if let Target::Cubin { cpu } = target {
        assembler::find(cpu)?;
    }
    Toolchain::find(target).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_other_features_lie_elsewhere() {
        let of = |features: &[&str], profile: &str| {
            let request = Request::new("p", Target::Cpu).features(features.iter().copied()).profile(profile);
            image_folder(&request, "cpu".into())
        };
        assert_eq!(of(&[], "release"), PathBuf::from("cpu"));
        assert_eq!(of(&[""], "dev"), PathBuf::from("cpu/dev"));
        let both = of(&["a", "b"], "release");
        assert_eq!([of(&["b,a"], "release"), of(&["a b", "a"], "release")], [both.clone(), both.clone()]);
        for other in [of(&[], "release"), of(&["a"], "release"), of(&["ab"], "release"), of(&["a,b"], "dev")]
        {
            assert_ne!(other, both);
        }
    }
}
