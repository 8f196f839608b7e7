use crate::Target;
use crate::toolchain::DEVICE_RUSTC;
use std::path::PathBuf;

/// Why a program was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is no target.
    #[error("unknown target `{name}`{}: there are {}", did_you_mean(*like), Target::names().collect::<Vec<_>>().join(", "))]
    UnknownTarget {
        /// The name.
        name: String,
        /// The target's name that it is most like.
        like: Option<&'static str>,
    },
    /// The name is an architecture that hostcall does not support.
    #[error(
        "{0} is too old: the memory model that hostcall needs begins with {oldest}, which `cuda` stands for",
        oldest = Target::OLDEST_NVIDIA
    )]
    TooOld(String),
    /// The folder holds no package.
    #[error("no Cargo.toml in {}: name the folder of a program's package", folder.display())]
    NoPackage {
        /// Folder that was looked in.
        folder: PathBuf,
    },
    /// There is no such folder.
    #[error("there is no folder {}: name that of a program's package, or make one with `hostcall new`", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// What is named is a file.
    #[error("{} is a file: name the folder of a program's package", file.display())]
    NotFolder {
        /// The file.
        file: PathBuf,
    },
    /// The folder is that of a workspace, and of no package.
    #[error(
        "{} has a workspace and no package of its own: name the folder of a program's package in it{}",
        folder.display(), such_as(programs)
    )]
    Workspace {
        /// The folder.
        folder: PathBuf,
        /// Folders of the packages in it that are programs or have kernels.
        programs: Vec<PathBuf>,
    },
    /// The package is a program of the host's.
    #[error(
        "{name} is a program of the host's, which launches kernels itself: start it with `cargo run --release` in {}; \
         `hostcall run` is for packages that have a main kernel, and `hostcall build` for packages of kernels{}",
        folder.display(), such_as(kernels)
    )]
    HostProgram {
        /// The package's name.
        name: String,
        /// The package's folder.
        folder: PathBuf,
        /// Folders of the packages of its workspace that have kernels.
        kernels: Vec<PathBuf>,
    },
    /// The package is a library of the host's.
    #[error(
        "{name} is a library of the host's and has no program: `hostcall run` is for packages that have a main kernel, and \
         `hostcall build` for packages of kernels{}",
        such_as(kernels)
    )]
    HostLibrary {
        /// The package's name.
        name: String,
        /// Folders of the packages of its workspace that have kernels.
        kernels: Vec<PathBuf>,
    },
    /// The package's path is no UTF-8, as cargo's paths have to be.
    #[error("cargo takes no path that is not UTF-8, such as {}: rename its folders, or move the package", folder.display())]
    NotUtf8 {
        /// The package's folder, from the root on.
        folder: PathBuf,
    },
    /// Cargo could not read the package.
    #[error("cargo cannot read the package in {}:\n{output}", folder.display())]
    Package {
        /// The package's folder.
        folder: PathBuf,
        /// What cargo said.
        output: String,
    },
    /// The package has several programs with `std`.
    #[error(
        "{name} has several programs, {programs}: name the one to run as `default-run` in its Cargo.toml"
    )]
    SeveralPrograms {
        /// The package's name.
        name: String,
        /// Their names.
        programs: String,
    },
    /// The sources of Rust's library are of a version that cannot be given a platform layer.
    #[error(
        "a program with std cannot be built with the library in {}, since {why}: install Rust {supported}, such as Debian's \
         rustc-web, and name its compiler as {DEVICE_RUSTC}",
        sources.display()
    )]
    OtherLibrary {
        /// The library's folder.
        sources: PathBuf,
        /// What does not fit.
        why: String,
        /// The version that fits.
        supported: String,
    },
    /// The package is no hostcall program.
    #[error(
        "{name} is not a hostcall program: give it a src/main.rs, or add `hostcall-device` to the dependencies of its \
         Cargo.toml"
    )]
    NotProgram {
        /// The package's name.
        name: String,
    },
    /// The package has no library target.
    #[error("{name} has no library: a program's kernels are in src/lib.rs")]
    NoLibrary {
        /// The package's name.
        name: String,
    },
    /// The compiler said no.
    #[error("{name} does not compile for {target}: mend what the compiler names{}", after_colon(output.trim_end()))]
    Compile {
        /// The package's name.
        name: String,
        /// Name of the target.
        target: String,
        /// What cargo said; empty if it was shown already.
        output: String,
    },
    /// Cargo said no before the compiler was asked.
    #[error("cargo does not build {name} for {target}: mend what it says{}", after_colon(output.trim_end()))]
    Cargo {
        /// The package's name.
        name: String,
        /// Name of the target.
        target: String,
        /// What cargo said; empty if it was shown already.
        output: String,
    },
    /// A signal has ended cargo.
    #[error("cargo was ended by signal {signal} before it had built {name} for {target}: build again")]
    Ended {
        /// The package's name.
        name: String,
        /// Name of the target.
        target: String,
        /// The signal's number.
        signal: i32,
    },
    /// The image has no kernels.
    #[error(
        "{name} has no kernel: mark its main function with #[hostcall_device::main] or a function with \
         #[hostcall_device::kernel]"
    )]
    NoKernel {
        /// The package's name.
        name: String,
    },
    /// The image has kernels but no `main`.
    #[error("{} has no main kernel: mark its main function with #[hostcall_device::main]", image.display())]
    NoMain {
        /// The image.
        image: PathBuf,
    },
    /// What builds for this target is not installed.
    #[error("cannot build for {target}: {missing}")]
    NoToolchain {
        /// Name of the target.
        target: String,
        /// What is missing and how to install it.
        missing: String,
    },
    /// There is no report of the image's kernels.
    #[error("no report: {0}")]
    NoReport(String),
    /// `HOSTCALL_TARGETS` has `none` beside targets.
    #[error("HOSTCALL_TARGETS names targets and `none`, which stands for no target: leave it or them away")]
    NoneAndTargets,
    /// `Kernels` was used outside of a build script.
    #[error(
        "this is no build script: call it from build.rs, where cargo sets CARGO_MANIFEST_DIR and OUT_DIR"
    )]
    NoBuildScript,
    /// NVIDIA's assembler said no.
    #[error(
        "{} cannot assemble {}: take one that knows this architecture and version of PTX{}",
        tool.display(), image.display(), after_colon(output)
    )]
    Assemble {
        /// The PTX.
        image: PathBuf,
        /// The assembler.
        tool: PathBuf,
        /// What it said.
        output: String,
    },
    /// A tool could not be started.
    #[error("cannot run {}: {error}; check that it is installed and in PATH", tool.display())]
    Tool {
        /// The program.
        tool: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file could not be read or written.
    #[error("cannot read or write {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

fn such_as(folders: &[PathBuf]) -> String {
    folders.first().map_or_else(String::new, |first| format!(", such as {}", first.display()))
}

fn did_you_mean(like: Option<&str>) -> String {
    like.map_or_else(String::new, |like| format!(" (did you mean {like}?)"))
}

fn after_colon(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(":\n{output}") }
}
