use crate::package::host_cargo;
use crate::{BuildError, Target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the compiler that builds for GPUs.
pub(crate) const DEVICE_RUSTC: &str = "HOSTCALL_DEVICE_RUSTC";

/// Names the cargo that goes with the compiler, whichever that is; the one beside it if unset.
pub(crate) const DEVICE_CARGO: &str = "HOSTCALL_DEVICE_CARGO";

/// First compiler with LLVM 22, whose GPU back ends the device code is written for.
const OLDEST_RUST: (u32, u32) = (1, 96);

const HOW_TO_INSTALL: &str = "on Debian, `apt-get install --no-install-recommends rustc-web cargo-web rust-web-src \
    llvm-22 lld-22 clang-22`; elsewhere, `rustup toolchain install nightly -c rust-src -c llvm-tools -c \
    llvm-bitcode-linker`";

/// Cargo and compiler that build for a target.
pub(crate) struct Toolchain {
    pub cargo: PathBuf,
    /// None: whatever that cargo takes.
    pub rustc: Option<PathBuf>,
    /// What the compiler says of its version, and of LLVM's.
    pub says: String,
    /// The library's sources.
    pub library: Option<PathBuf>,
    /// A copy of the packages that `core` and `alloc` are built with, for builds without a registry.
    pub vendor: Option<PathBuf>,
    /// Linker for AMD code objects that knows the target's arguments; None: the compiler's own.
    pub clang: Option<PathBuf>,
    /// Its library hands to a panic what the device crate can send without formatting it.
    pub sends_panics: bool,
}

/// What the library's sources have if a panic's message is what the device crate takes it for
/// (`kernel/device/src/panics/unformatted.rs`).
const PANIC_SOURCES: [(&str, &str); 3] = [
    (
        "core/src/panic/panic_info.rs",
        "pub struct PanicMessage<'a> {\n    message: &'a fmt::Arguments<'a>,\n}",
    ),
    (
        "core/src/fmt/mod.rs",
        "pub struct Arguments<'a> {\n    template: NonNull<u8>,\n    args: NonNull<rt::Argument<'a>>,\n}",
    ),
    (
        "core/src/fmt/rt.rs",
        "value: NonNull<()>,\n        formatter: unsafe fn(NonNull<()>, &mut Formatter<'_>) -> Result,\n        \
         _lifetime: PhantomData<&'a ()>,\n    },\n    Count(u16),\n}",
    ),
];

/// Whether a library's sources have [`PANIC_SOURCES`].
fn sends_panics(library: &Path) -> bool {
    PANIC_SOURCES.iter().all(|(file, text)| {
        std::fs::read_to_string(library.join(file)).is_ok_and(|source| source.contains(text))
    })
}

impl Toolchain {
    pub fn find(target: &Target) -> Result<Self, BuildError> {
        if *target == Target::Cpu {
            return Ok(Self {
                cargo: host_cargo(),
                rustc: None,
                says: String::new(),
                library: None,
                vendor: None,
                clang: None,
                sends_panics: false,
            });
        }
        Self::with_sources(target)
    }

    /// Finds one that compiles the library itself.
    pub fn with_sources(target: &Target) -> Result<Self, BuildError> {
        let missing = |missing| BuildError::NoToolchain { target: target.to_string(), missing };

        let mut reasons = Vec::new();
        for (rustc, cargo) in candidates() {
            match Self::check(&rustc, cargo, target) {
                Ok(toolchain) => return Ok(toolchain),
                Err(reason) => reasons.push(format!("{} {reason}", rustc.display())),
            }
        }
        let tried = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        Err(missing(format!("install a device toolchain: {HOW_TO_INSTALL}{tried}")))
    }

    /// The version of Rust, which the library's sources have too.
    pub fn version(&self) -> Option<(u32, u32)> {
        version_of(&self.says)
    }

    fn check(rustc: &Path, cargo: PathBuf, target: &Target) -> Result<Self, String> {
        let says = said(rustc, &["-vV"]).ok_or("does not run")?;
        if version_of(&says).is_none_or(|version| version < OLDEST_RUST) {
            return Err(format!(
                "is {}, older than {}.{}",
                says.lines().next().unwrap_or_default(),
                OLDEST_RUST.0,
                OLDEST_RUST.1
            ));
        }
        if said(&cargo, &["--version"]).is_none() {
            return Err(format!("has no cargo: {} does not run", cargo.display()));
        }
        let sysroot = said(rustc, &["--print", "sysroot"]).ok_or("has no sysroot")?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
        if !library.join("core/src/lib.rs").exists() {
            return Err("lacks its library's sources, rust-src".into());
        }
        // Compilers come with different versions of LLVM.
        let list =
            target.triple().and_then(|triple| said(rustc, &["--print", "target-cpus", "--target", triple]));
        if list.is_some_and(|list| !list.split_whitespace().any(|known| known == target.cpu())) {
            return Err(format!("does not know {}", target.cpu()));
        }
        let clang = Some(PathBuf::from("clang-22")).filter(|clang| said(clang, &["--version"]).is_some());
        let is_rustup = library.join("../../../multirust-channel-manifest.toml").exists();
        if matches!(target, Target::Amdgpu { .. }) && clang.is_none() && !is_rustup {
            return Err("links AMD code objects with clang-22 and lld-22, which are missing".into());
        }
        let sends_panics = sends_panics(&library);
        let vendor = Some(library.join("vendor")).filter(|vendor| vendor.exists());
        let rustc = Some(rustc.into());
        Ok(Self { cargo, rustc, says, library: Some(library), vendor, clang, sends_panics })
    }
}

/// Compilers with their cargos, the ones that the user named first.
fn candidates() -> Vec<(PathBuf, PathBuf)> {
    let mut compilers = Vec::new();
    if let Some(rustc) = std::env::var_os(DEVICE_RUSTC) {
        compilers.push(PathBuf::from(rustc));
    } else {
        let debian = Path::new("/usr/bin/rustc");
        compilers.extend(debian.exists().then(|| debian.into()));
        let sysroot = said(Path::new("rustup"), &["run", "nightly", "rustc", "--print", "sysroot"]);
        compilers.extend(sysroot.map(|sysroot| Path::new(sysroot.trim()).join("bin/rustc")));
    }
    let named = std::env::var_os(DEVICE_CARGO).map(PathBuf::from);
    let with_cargo = |rustc: PathBuf| {
        let cargo = named.clone().unwrap_or_else(|| rustc.with_file_name("cargo"));
        (rustc, cargo)
    };
    compilers.into_iter().map(with_cargo).collect()
}

/// What the program prints, if it runs and ends well.
fn said(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Major and minor of `rustc 1.96.0 (…)`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`Target::parse`] takes is what the compilers know: every name that the list has, and no other but those that
    /// are too old or stand for a whole generation.
    #[test]
    fn targets_are_those_of_the_compiler() {
        for target in ["sm_70", "gfx900"].map(|name| Target::parse(name).unwrap()) {
            let Ok(toolchain) = Toolchain::find(&target) else { continue };
            let rustc = toolchain.rustc.unwrap();
            let triple = target.triple().unwrap();
            let list = said(&rustc, &["--print", "target-cpus", "--target", triple]).unwrap();
            let known: Vec<&str> = list.split_whitespace().collect();
            let prefix = target.cpu().trim_end_matches(|c: char| c.is_ascii_digit());
            for name in Target::names().filter(|name| name.starts_with(prefix)) {
                assert!(known.contains(&name), "{name}");
            }
            let number = |name: &str| {
                name.trim_start_matches(prefix).trim_end_matches(char::is_alphabetic).parse::<u32>()
            };
            for name in known.iter().filter(|name| name.starts_with(prefix) && !name.contains("generic")) {
                let is_old = prefix == "gfx" && number(name).is_ok_and(|number| number < 900 && number > 90);
                let result = Target::parse(name);
                assert!(is_old || matches!(result, Ok(_) | Err(BuildError::TooOld(_))), "{name}");
            }
        }
    }

    /// Of the compiler that is here, or panics would be formatted by the device, unseen.
    #[test]
    fn panics_are_sent_with_this_compiler() {
        let Ok(toolchain) = Toolchain::find(&Target::parse("sm_70").unwrap()) else { return };
        assert!(toolchain.sends_panics, "{:?} has another `core`: see PANIC_SOURCES", toolchain.rustc);
        assert!(!sends_panics(Path::new("/nowhere")));
    }

    #[test]
    fn versions_compare() {
        assert_eq!(version_of("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"), Some((1, 97)));
        assert!(version_of("rustc 1.100.1 (x)").unwrap() > OLDEST_RUST);
        assert_eq!(version_of("clang"), None);
    }
}
