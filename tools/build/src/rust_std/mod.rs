//! Programs with Rust's own `std`: a package with a `fn main()` that depends on nothing of hostcall's.
//!
//! The library is the one of the toolchain, compiled from a copy of its sources that has a platform layer of ours
//! ([`layer`], whose files are in `std/` of this crate): 15 files, and some lines of one arm each where the library chooses
//! among systems. On NVIDIA atomic operations get some, too ([`layer::HIDDEN`]). The layer calls C functions of the device crate
//! (`kernel/device/src/rust_std`), which is compiled for the same library and linked into the program, with the kernel that calls
//! `main`. Nothing of this is the program's: its package is compiled as it is, as an executable of a target that the compiler is
//! told of ([`target`]).
//!
//! One way leads to every device, so that files, variables and prints of a program have the same bounds on each. On the
//! software device too the program sees hostcall's layer, and not the Linux below it.

mod code;
mod layer;
mod patch;
pub(crate) mod stacks;
mod target;

pub(crate) use code::of_listing;

use crate::assembler::cache;
use crate::toolchain::Toolchain;
use crate::{BuildError, Request, Target, flags};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of the program's profile that would give it another library than the kernel's.
pub(crate) const PROFILE: &[(&str, &str)] = &[
    ("DEBUG_ASSERTIONS", "false"),
    ("INCREMENTAL", "false"),
    ("OVERFLOW_CHECKS", "false"),
    ("RPATH", "false"),
    ("SPLIT_DEBUGINFO", "off"),
    ("STRIP", "none"),
];

/// The package by which the device crate is compiled, with the kernel.
const KERNEL: &str = "hostcall-std-kernel";

/// The device crate.
pub(crate) const DEVICE: &str = "hostcall_device";

/// What the device crate and the program are compiled with.
pub(crate) struct Library {
    /// The copy of the library's sources.
    sources: PathBuf,
    /// The target's description.
    pub target: PathBuf,
    /// The manifest of the package with the kernel.
    pub kernel: PathBuf,
}

impl Library {
    /// Makes all that in `folder`, as far as it is not there.
    ///
    /// # Errors
    /// A library that the layer does not fit; files that cannot be read or written.
    pub fn make(request: &Request, toolchain: &Toolchain, folder: &Path) -> Result<Self, BuildError> {
        let missing = |missing: &str| BuildError::NoToolchain {
            target: request.target.to_string(),
            missing: missing.into(),
        };
        let library =
            toolchain.library.as_ref().ok_or_else(|| missing("it has no sources of Rust's library"))?;
        // Not in the build's folder: cargo has another name for what lies in the workspace of a package, and would compile
        // the library anew for the program.
        let cache = cache()
            .ok_or_else(|| missing("set HOME or XDG_CACHE_HOME, where a copy of Rust's library is kept"))?;
        let sources = patch::patched(library, toolchain.version, &cache.join("hostcall"))?;
        let target = target::describe(&request.target, toolchain, folder)?;
        let kernel = folder.join("kernel");
        let files = [("Cargo.toml", manifest(&request.profile)), ("main.rs", SOURCE.to_owned())];
        for (name, text) in files {
            let file = kernel.join(name);
            if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
                let io = |error| BuildError::Io { path: file.clone(), error };
                fs::create_dir_all(&kernel).map_err(io)?;
                fs::write(&file, text).map_err(io)?;
            }
        }
        Ok(Self { sources, target, kernel: kernel.join("Cargo.toml") })
    }

    /// Tells cargo of the library.
    pub fn tell(&self, cargo: &mut Command) {
        cargo
            .arg("--target")
            .arg(&self.target)
            .args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features=", "-Zjson-target-spec"])
            .env("__CARGO_TESTS_ONLY_SRC_ROOT", &self.sources);
    }
}

/// Whether an image has what the library calls.
pub(crate) fn is_image(image: &[u8]) -> bool {
    has(image, b"__hostcall_std_exit")
}

/// Whether an image has the text by which the layer's `thread.rs` says that it starts threads. Other programs are one thread,
/// whatever the grid.
pub(crate) fn starts_threads(image: &[u8]) -> bool {
    has(image, b"hostcall-std-threads-1") || String::from_utf8_lossy(image).contains(IN_PTX)
}

/// The beginning of that text as PTX has it.
const IN_PTX: &str = "104, 111, 115, 116, 99, 97, 108, 108, 45, 115, 116, 100, 45, 116, 104, 114";

fn has(image: &[u8], text: &[u8]) -> bool {
    image.windows(text.len()).any(|window| window == text)
}

/// Where cargo puts what is compiled for the target below the build's folder: by the name of its description.
pub(crate) fn output(target: &Target, folder: &Path) -> PathBuf {
    folder.join(target::name(target))
}

/// A program, since cargo compiles what a library needs otherwise. What comes of it is not used, but the device crate that it
/// depends on.
const SOURCE: &str = "#![no_main]\n";

/// The manifest of the package with the kernel: the device crate of the checkout that this crate was built from, or else the
/// release of the same version.
fn manifest(profile: &str) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/"));
    let device = checkout.join("kernel/device");
    let from = match device.join("Cargo.toml").exists() {
        true => format!("path = {:?}", device.display().to_string()),
        false => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
    };
    let profile = match profile {
        "release" | "dev" | "test" | "bench" => String::new(),
        own => format!("[profile.{own}]\ninherits = \"release\"\n"),
    };
    format!(
        "[package]\nname = {KERNEL:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n[[bin]]\nname = {KERNEL:?}\npath = \"main.rs\"\n\
         [dependencies.hostcall-device]\n{from}\ndefault-features = false\nfeatures = [\"rust-std\"]\n\
         [workspace]\n{profile}"
    )
}

/// Arguments for the compiler of the program itself, into which `kernel` is linked.
///
/// # Errors
/// When the kernel's file cannot be read.
pub(crate) fn program_flags(
    target: &Target,
    kernel: &Path,
    listing: &Path,
) -> Result<Vec<String>, BuildError> {
    let bytes = fs::read(kernel).map_err(|error| BuildError::Io { path: kernel.into(), error })?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let mut flags = vec![
        "-Zunstable-options".to_owned(),
        "--extern".into(),
        format!("force:{DEVICE}={}", kernel.display()),
        // The kernel is found by its name, as in a library.
        "-Zexport-executable-symbols".into(),
        // Cargo does not see that the file is another one.
        format!("-Cmetadata={:016x}", hasher.finish()),
    ];
    match target {
        Target::Nvptx { .. } | Target::Cubin { .. } => {
            flags.push(format!(
                "--emit=asm={},llvm-ir={}",
                listing.display(),
                listing.with_extension("ll").display()
            ));
            flags.push(flags::UNROLL.into());
        }
        Target::Amdgpu { .. } => {
            flags.push(format!("--emit=llvm-ir={}", listing.display()));
            // Code is made of the text, behind the compiler (`code`): what the compiler itself would make ends at its first step.
            flags.push("-Cllvm-args=-stop-before=codegenprepare".into());
        }
        Target::Cpu => {
            // An image is a library. Its own functions are not those of the process by the same names.
            let link = ["-shared", "-nostartfiles", "-Wl,-Bsymbolic", "-lgcc_s"];
            flags.extend(link.map(|flag| format!("-Clink-arg={flag}")));
            // The compiler makes code for executables, whose thread-local variables the linker finds in no library. There is
            // one, the device crate's.
            flags.push("-Ztls-model=emulated".into());
        }
    }
    Ok(flags)
}

/// Arguments for every crate of such a program.
pub(crate) fn flags(target: &Target, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = match target {
        Target::Nvptx { cpu } | Target::Cubin { cpu } => flags::nvidia(cpu, toolchain),
        Target::Amdgpu { cpu } => flags::amd(cpu, toolchain),
        Target::Cpu => vec!["-Crelocation-model=pic".into()],
    };
    // Panics go by the library's own hook, which formats them. Nothing is linked but for the software device.
    let is_unused = |flag: &str| flag == flags::SENDS_PANICS || flag.starts_with("-Clink");
    flags.retain(|flag| !is_unused(flag));
    if *target != Target::Cpu {
        flags.push(flags::no_linker());
    }
    if let Target::Amdgpu { .. } = target {
        // As linkers that are given by their path are taken.
        flags.push("-Clinker-flavor=gcc".into());
    }
    flags.push("--cfg=hostcall_std".into());
    flags
}
