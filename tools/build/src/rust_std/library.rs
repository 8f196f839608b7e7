//! What programs are compiled with: the toolchain's library with the platform layer, and the device crate
//! with the kernel. Both are made once, in the user's cache, and builds of all workspaces use them. The
//! compiler takes the library from there as it takes one that it comes with, from its `--sysroot`.
//!
//! The library's crates have LLVM's bitcode alone, which is compiled with the program, as a whole: the
//! profile that they are made with says so ([`crate::flags::PROFILE`]).

use super::kept::Kept;
use super::{DEVICE, PROFILE, patch, target};
use crate::assembler::cache;
use crate::toolchain::Toolchain;
use crate::{BuildError, Request, Target, cargo, flags};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of the profile that the library and the kernel are made with, besides those that programs have
/// too, and that programs for AMD are made with: there LLVM 22 may lose what a loop counts where the addition
/// is checked. Its pass that gives branches a structure (StructurizeCFG) has a value pass by the addition; in
/// `args().count()` it did, and llvm/llvm-project#183792 and #210695 tell of more of the kind.
const UNCHECKED: &[(&str, &str)] = &[("DEBUG_ASSERTIONS", "false"), ("OVERFLOW_CHECKS", "false")];

/// The package by which each is compiled: a program, since cargo compiles what a library needs otherwise.
/// What comes of it is not used, but what it depends on.
const PACKAGE: &str = "[workspace]\n[package]\nname = \"hostcall-library\"\nversion = \"0.0.0\"\n\
                       edition = \"2024\"\n[[bin]]\nname = \"hostcall-library\"\npath = \"main.rs\"\n";
const SOURCE: &str = "#![no_main]\n";

/// The file with the versions that cargo takes.
const LOCK: &str = "Cargo.lock";

/// The folders of a checkout that the device crate, and what it depends on, lie in.
const CRATES: [&str; 2] = ["kernel", "core"];

/// What a program is compiled with. Nobody removes it while this lives.
pub(crate) struct Library {
    std: Kept,
    kernel: Kept,
    /// The target's description.
    target: PathBuf,
    /// Arguments for the compiler of each crate.
    flags: Vec<String>,
    /// The device crate, with the kernel.
    pub device: PathBuf,
}

impl Library {
    /// Takes it from the cache, and makes first what is not there.
    ///
    /// # Errors
    /// A library that the layer does not fit; what does not compile; files that cannot be read or written.
    pub fn take(request: &Request, toolchain: &Toolchain) -> Result<Self, BuildError> {
        let missing = |missing: &str| BuildError::NoToolchain {
            target: request.target.to_string(),
            missing: missing.into(),
        };
        let sources =
            toolchain.library.as_ref().ok_or_else(|| missing("it has no sources of Rust's library"))?;
        let cache = cache()
            .ok_or_else(|| missing("set HOME or XDG_CACHE_HOME, where Rust's library for devices is kept"))?
            .join("hostcall");
        // It is the same for all profiles of programs.
        let request = &Request { profile: "release".into(), features: Vec::new(), ..request.clone() };
        let copy = patch::Copy::of(sources, toolchain.version())?;
        let described = target::describe(&request.target, toolchain)?;
        let name = target::name(&request.target);
        let mut flags = super::flags(&request.target, toolchain);
        // What the copy links to may be another version's that says the same of itself.
        let changed = ["core/src/lib.rs", "std/src/lib.rs"].map(|file| {
            let changed = sources.join(file).metadata().ok()?;
            Some((changed.len(), changed.modified().ok()))
        });
        let made_by = (flags::PROFILE, PROFILE, UNCHECKED, PACKAGE, SOURCE);
        let key = (&copy, changed, &described, &toolchain.says, &flags, made_by);
        let std = Kept::take(&cache, "std", &key, request.progress, |folder| {
            let (copied, target) = (folder.join("sources"), folder.join(&name).with_extension("json"));
            copy.write(&copied)?;
            write(&target, &described)?;
            let mut cargo = compiler(request, toolchain, folder, "", &target, &flags)?;
            cargo.args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features="]);
            cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", copied);
            // The library's own dependencies from the toolchain's copy, so that no registry is needed.
            if let Some(vendor) = &toolchain.vendor {
                cargo::from_vendor(&mut cargo, vendor);
            }
            make(cargo, request, folder, "std", &folder.join("lib/rustlib").join(&name).join("lib"))
        })?;
        let target = std.folder.join(name).with_extension("json");
        flags.extend(["--sysroot".into(), std.folder.display().to_string()]);

        let checkout = checkout();
        let depends = device_crate(checkout);
        let contents = checkout.map(contents).transpose()?;
        let key = (&flags, &depends, contents);
        let kernel = Kept::take(&cache, "std-kernel", &key, request.progress, |folder| {
            // What it depends on is of the versions that the checkout was tried with, and asks no registry for others.
            if let Some(lock) = checkout.map(|checkout| checkout.join(LOCK)) {
                let package = folder.join("package");
                fs::create_dir_all(&package).map_err(at(&package))?;
                fs::copy(&lock, package.join(LOCK)).map_err(at(&lock))?;
            }
            let cargo = compiler(request, toolchain, folder, &depends, &target, &flags)?;
            make(cargo, request, folder, DEVICE, &folder.join("lib"))
        })?;
        let beginning = format!("lib{DEVICE}-");
        let is_device = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&beginning))
        };
        let device = files(&kernel.folder.join("lib"))?.into_iter().find(is_device);
        let device = device.ok_or_else(|| cargo::no_file(request, DEVICE))?;
        Ok(Self { std, kernel, target, flags, device })
    }

    /// Has cargo compile with it.
    pub fn tell(&self, cargo: &mut Command, request: &Request, toolchain: &Toolchain) {
        tell(cargo, request, toolchain, &self.target, &self.flags);
    }

    /// Where what the device crate depends on lies.
    pub fn dependencies(&self) -> PathBuf {
        self.kernel.folder.join("lib")
    }

    /// Removes from the build's `folder` what was compiled for the target with another library. Where that
    /// library comes back, cargo would not compile the program again, whose listing would be of this one.
    ///
    /// # Errors
    /// Files that cannot be removed or written.
    pub fn remove_others(&self, request: &Request, folder: &Path) -> Result<(), BuildError> {
        let text = format!("{}\n{}\n", self.std.folder.display(), self.kernel.folder.display());
        let (with, output) = (folder.join("made-with"), super::output(&request.target, folder));
        if fs::read_to_string(&with).ok().as_ref() != Some(&text) {
            match fs::remove_dir_all(&output) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at(&output)(error)),
                _ => write(&with, &text)?,
            }
        }
        Ok(())
    }
}

/// Tells cargo of a target, and how crates are compiled for it.
fn tell(cargo: &mut Command, request: &Request, toolchain: &Toolchain, target: &Path, flags: &[String]) {
    cargo.arg("-Zjson-target-spec").arg("--target").arg(target);
    cargo::for_device(cargo, request, toolchain, flags);
    cargo::set_profile(cargo, request, PROFILE);
    if let Target::Amdgpu { .. } = request.target {
        cargo::set_profile(cargo, request, UNCHECKED);
    }
}

/// Cargo, asked to compile in `folder` a package that has these dependencies.
fn compiler(
    request: &Request,
    toolchain: &Toolchain,
    folder: &Path,
    depends: &str,
    target: &Path,
    flags: &[String],
) -> Result<Command, BuildError> {
    let manifest = folder.join("package/Cargo.toml");
    write(&manifest, &format!("{PACKAGE}{depends}"))?;
    write(&manifest.with_file_name("main.rs"), SOURCE)?;
    let build = folder.join("build");
    let mut cargo = cargo::command(request, toolchain, &manifest, &build);
    // The library is for all workspaces: settings of the one that is here, and of this run, are none of its own.
    cargo.current_dir(folder).env("CARGO_BUILD_BUILD_DIR", &build);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PROFILE_"))
    {
        cargo.env_remove(name);
    }
    tell(&mut cargo, request, toolchain, target, flags);
    cargo::set_profile(&mut cargo, request, UNCHECKED);
    Ok(cargo)
}

/// Runs cargo in `folder`, and puts the crates that came out into `to`.
fn make(
    mut cargo: Command,
    request: &Request,
    folder: &Path,
    name: &str,
    to: &Path,
) -> Result<(), BuildError> {
    // Nothing of the package itself is needed: what it lacks may be missing.
    cargo.arg("--").arg(flags::no_linker());
    cargo::run(cargo, request, name, |_| false)?;
    let build = folder.join("build");
    // Macros are among what a crate depends on, and are of this machine.
    let of_target = super::output(&request.target, &build).join("release/deps");
    let crates = [(of_target, "rlib"), (build.join("release/deps"), "so")];
    fs::create_dir_all(to).map_err(at(to))?;
    let mut has_any = false;
    for (from, extension) in crates {
        for file in files(&from)?.iter().filter(|file| file.extension().is_some_and(|is| is == extension)) {
            let to = to.join(file.file_name().unwrap_or_default());
            fs::rename(file, &to).map_err(at(&to))?;
            has_any = true;
        }
    }
    if !has_any {
        return Err(cargo::no_file(request, name));
    }
    fs::remove_dir_all(&build).map_err(at(&build))
}

/// The checkout that this crate was built from, unless it comes from the registry.
fn checkout() -> Option<&'static Path> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    checkout.join("kernel/device/Cargo.toml").exists().then_some(checkout)
}

/// The dependency on the device crate, as a manifest says it: that of the checkout, or else the release of
/// the same version.
fn device_crate(checkout: Option<&Path>) -> String {
    let from = match checkout {
        Some(checkout) => format!("path = {:?}", checkout.join("kernel/device").display().to_string()),
        None => format!("version = \"={}\"", env!("CARGO_PKG_VERSION")),
    };
    format!("[dependencies.hostcall-device]\n{from}\ndefault-features = false\nfeatures = [\"rust-std\"]\n")
}

/// All that a checkout's device crate is compiled from.
fn contents(checkout: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, BuildError> {
    let mut contents = BTreeMap::new();
    let mut paths = vec![checkout.join("Cargo.toml"), checkout.join(LOCK)];
    paths.extend(CRATES.map(|folder| checkout.join(folder)));
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(files(&path)?);
        } else {
            contents.insert(path.clone(), fs::read(&path).map_err(at(&path))?);
        }
    }
    Ok(contents)
}

/// What lies in a folder; nothing if there is none.
fn files(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let entries = entries.map_err(at(folder))?;
            entries.map(|entry| entry.map(|entry| entry.path()).map_err(at(folder))).collect()
        }
    }
}

/// Writes a file, whose folder is made.
fn write(file: &Path, text: &str) -> Result<(), BuildError> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(at(folder))?;
    fs::write(file, text).map_err(at(file))
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cargo_metadata::MetadataCommand;
    use std::collections::HashSet;

    /// Else a change of what lies elsewhere would make no other kernel.
    #[test]
    fn what_the_device_crate_is_compiled_from_is_looked_at() {
        let checkout = checkout().expect("the test is of a checkout");
        let metadata = MetadataCommand::new().manifest_path(checkout.join("kernel/device/Cargo.toml")).exec();
        let metadata = metadata.unwrap();
        let contents = contents(checkout).unwrap();
        let package = |name: &str| metadata.packages.iter().find(|package| package.name == name);
        let (mut seen, mut todo) = (HashSet::new(), vec!["hostcall-device".to_owned()]);
        while let Some(name) = todo.pop() {
            let Some(package) = package(&name).filter(|package| package.source.is_none()) else { continue };
            if seen.insert(name) {
                assert!(contents.contains_key(package.manifest_path.as_std_path()), "{}", package.name);
                let needed = package.dependencies.iter();
                let needed = needed.filter(|needed| needed.kind == cargo_metadata::DependencyKind::Normal);
                todo.extend(needed.map(|needed| needed.name.clone()));
            }
        }
        assert!(seen.contains("hostcall-abi") && seen.contains("hostcall-macros"));
    }
}
