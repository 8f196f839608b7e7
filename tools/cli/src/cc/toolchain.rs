//! Finding clang, flang, their tools, and LLVM's libc for GPUs.

use super::Processor;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest LLVM whose libc for GPUs `hostcall run` serves.
const OLDEST: u32 = 19;

/// Where LLVM says how its libc for GPUs is built.
const HOW_TO_BUILD: &str = "https://libc.llvm.org/gpu/building.html";

/// LLVM's libc for one triple.
#[derive(Debug)]
pub struct Libc {
    /// The folder of libc.a.
    pub library: PathBuf,
    /// What starts a program.
    pub startup: PathBuf,
    /// Folders of headers, C++'s first.
    pub include: Vec<PathBuf>,
}

impl Libc {
    /// Finds libc in a folder where LLVM was installed, or that is its own.
    fn below(folder: &Path, triple: &str) -> Option<Self> {
        let of_triple = folder.join("lib").join(triple);
        let library =
            [of_triple.as_path(), folder].into_iter().find(|place| place.join("libc.a").is_file())?;
        let include = folder.join("include");
        let headers = [include.join(triple).join("c++/v1"), include.join("c++/v1"), include.join(triple)];
        let mut headers: Vec<PathBuf> = headers.into_iter().filter(|place| place.is_dir()).collect();
        // C++'s would stand there without its library too.
        if !library.join("libc++.a").is_file() {
            headers.retain(|place| !place.ends_with("c++/v1"));
        }
        if library == folder && include.is_dir() {
            headers.push(include);
        }
        Some(Self { startup: library.join("crt1.o"), library: library.to_owned(), include: headers })
    }

    pub fn has(&self, file: &str) -> bool {
        self.library.join(file).is_file()
    }

    /// Returns options that link what is there of the libraries that every program gets.
    pub fn libraries(&self) -> Vec<String> {
        let all = ["flang_rt.runtime", "c++", "c++abi", "c", "m"];
        let there = all.iter().filter(|name| self.has(&format!("lib{name}.a")));
        there.map(|name| format!("-l{name}")).collect()
    }
}

/// A clang with its libc.
#[derive(Debug)]
pub struct Toolchain {
    pub clang: PathBuf,
    pub version: u32,
    pub libc: Libc,
}

/// A clang of the user's.
struct Clang {
    path: PathBuf,
    version: u32,
    /// Folders where its libc may be: where LLVM is installed, and its own.
    roots: Vec<PathBuf>,
}

impl Clang {
    /// Asks a clang about itself.
    fn ask(path: PathBuf) -> Option<Self> {
        let resources = PathBuf::from(said(&path, "-print-resource-dir")?);
        let version = resources.file_name()?.to_str()?.split('.').next()?.parse().ok()?;
        // LLVM/lib/clang/22
        let root = resources.ancestors().nth(3)?.to_owned();
        Some(Self { path, version, roots: vec![root, resources] })
    }
}

impl Toolchain {
    /// Finds a clang and a libc for the processor.
    ///
    /// # Errors
    /// A sentence that says what is missing and how to get it.
    pub fn find(processor: &Processor, libc: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let triple = processor.triple();
        let of_environment = std::env::var_os("HOSTCALL_LIBC").map(PathBuf::from);
        let named = libc.map(Path::to_owned).or(of_environment);
        let clangs = find_clangs(named.as_deref())?;
        let (clang, libc) = match named {
            Some(folder) => {
                let libc = Libc::below(&folder, triple).ok_or_else(|| {
                    let at = folder.join("lib").join(triple);
                    format!(
                        "{} has no LLVM libc for {}: neither {} nor {} is there; {HOW_TO_BUILD} says how to build it",
                        folder.display(),
                        processor.name(),
                        at.join("libc.a").display(),
                        folder.join("libc.a").display()
                    )
                })?;
                (clangs.into_iter().next().expect("one at least was found"), libc)
            }
            None => {
                let looked: Vec<String> =
                    clangs.iter().map(|clang| clang.path.display().to_string()).collect();
                let of = |clang: &Clang| clang.roots.iter().find_map(|root| Libc::below(root, triple));
                let found = clangs.into_iter().find_map(|clang| of(&clang).map(|libc| (clang, libc)));
                found.ok_or_else(|| {
                    format!(
                        "LLVM's libc for {} is not installed: no lib/{triple}/libc.a is beside {}; build it as {HOW_TO_BUILD} \
                         says, and name its folder by --libc or HOSTCALL_LIBC where it is not beside clang",
                        processor.name(),
                        looked.join(" or ")
                    )
                })?
            }
        };
        if !libc.startup.is_file() {
            return Err(format!(
                "{} is not there, which starts programs: LLVM installs it beside libc.a",
                libc.startup.display()
            )
            .into());
        }
        Ok(Self { clang: clang.path, version: clang.version, libc })
    }

    /// Returns a tool of LLVM's that belongs to the clang.
    ///
    /// # Errors
    /// A sentence, when it is not installed.
    pub fn tool(&self, name: &str) -> Result<PathBuf, Box<dyn Error>> {
        let path = said(&self.clang, &format!("-print-prog-name={name}")).map(PathBuf::from);
        let path = path.filter(|path| path.is_absolute() && path.is_file());
        let version = self.version;
        let versioned = || in_path(&format!("{name}-{version}"));
        path.or_else(versioned).ok_or_else(|| {
            let package = if name == "ld.lld" { "lld" } else { "llvm" };
            format!(
                "{name} of LLVM {version} is not installed, which links the program: install it (Debian's package is \
                 {package}-{version})"
            )
            .into()
        })
    }

    /// Returns an error where clang finds no linker for AMD's GPUs.
    pub fn check_linker(&self) -> Result<(), Box<dyn Error>> {
        if in_path("ld.lld").is_some() { Ok(()) } else { self.tool("ld.lld").map(drop) }
    }
}

/// Returns what a compiler prints for an option.
fn said(compiler: &Path, option: &str) -> Option<String> {
    let output = Command::new(compiler).arg(option).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

/// Returns the folders of PATH.
fn folders() -> Vec<PathBuf> {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

fn in_path(name: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns programs of this name in PATH, also with a version behind it (`clang-22`).
fn versions_in_path(name: &str) -> Vec<PathBuf> {
    let is_it = |file: &str| match file.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())),
        None => false,
    };
    let entries = folders().into_iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let found =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_it)).map(|entry| entry.path());
    let mut found: Vec<_> = found.filter(|path| is_program(path)).collect();
    found.sort();
    found
}

/// Returns the clangs to look at, the best first; one at least.
fn find_clangs(libc: Option<&Path>) -> Result<Vec<Clang>, Box<dyn Error>> {
    if let Some(named) = std::env::var_os("HOSTCALL_CLANG") {
        let path = PathBuf::from(&named);
        let path = if path.components().count() > 1 { Some(path) } else { path.to_str().and_then(in_path) };
        let clang = path.and_then(Clang::ask);
        let clang =
            clang.ok_or_else(|| format!("HOSTCALL_CLANG names {}, which is no clang", named.display()))?;
        if clang.version < OLDEST {
            return Err(format!(
                "HOSTCALL_CLANG names clang {}: LLVM {OLDEST} is the oldest whose libc for GPUs is served",
                clang.version
            )
            .into());
        }
        return Ok(vec![clang]);
    }
    // One that was installed with the libc is made for it.
    let beside = libc.map(|folder| folder.join("bin/clang")).filter(|clang| is_program(clang));
    let mut clangs: Vec<Clang> = versions_in_path("clang").into_iter().filter_map(Clang::ask).collect();
    clangs.retain(|clang| clang.version >= OLDEST);
    clangs.sort_by_key(|clang| std::cmp::Reverse(clang.version));
    clangs.splice(..0, beside.and_then(Clang::ask));
    clangs.dedup_by(|a, b| a.roots == b.roots);
    if clangs.is_empty() {
        return Err(format!(
            "no clang of LLVM {OLDEST} or later is in PATH: install one (Debian's package is clang-22), or name one by HOSTCALL_CLANG"
        )
        .into());
    }
    Ok(clangs)
}

/// Finds flang: the one that is named, one beside clang, or one in PATH.
///
/// # Errors
/// A sentence, when there is none.
pub fn find_flang(toolchain: &Toolchain) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(named) = std::env::var_os("HOSTCALL_FLANG") {
        return Ok(named.into());
    }
    let beside = toolchain.tool("flang").ok();
    let in_path = || versions_in_path("flang").pop();
    beside.or_else(in_path).ok_or_else(|| {
        let version = toolchain.version;
        format!(
            "no flang is in PATH, which compiles Fortran: install LLVM's (Debian's package is flang-{version}), or name one by \
             HOSTCALL_FLANG"
        )
        .into()
    })
}
