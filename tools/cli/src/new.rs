//! `hostcall new`: packages to start from.

use crate::Outcome;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Files of a package: paths below its folder, with what they hold.
type Files = Vec<(&'static str, String)>;

/// Makes a package of a program that runs on a device as a whole.
///
/// # Errors
/// A sentence, when the name is none for a package, or the folder cannot be made.
pub fn package(folder: &Path) -> Outcome {
    let name = package_name(folder)?;
    let fill = |text: &str| text.replace("@NAME@", name).replace("@DEVICE@", &dependency("kernel/device"));
    let files = vec![
        ("Cargo.toml", fill(include_str!("../templates/program/Cargo.toml.in"))),
        ("src/lib.rs", fill(include_str!("../templates/program/lib.rs.in"))),
        (".gitignore", IGNORED.into()),
    ];
    make(folder, &files)?;
    crate::print(format_args!("Made {0}. Run it with `hostcall run {0}`.\n", folder.display()))
}

/// Makes a package of a host program, with one of kernels in it.
///
/// # Errors
/// As for [`package`].
pub fn app(folder: &Path) -> Outcome {
    let name = package_name(folder)?;
    if CARGOS_FOLDERS.contains(&name) {
        return Err(
            format!("cargo puts a folder `{name}` where the program would be: take another name").into()
        );
    }
    let fill = |text: &str| {
        text.replace("@NAME@", name)
            .replace("@KERNELS@", &format!("{}_kernels", name.replace('-', "_")))
            .replace("@DEVICE@", &dependency("kernel/device"))
            .replace("@BUILD@", &dependency("tools/build"))
            .replace("@HOST@", &dependency("host/hostcall"))
    };
    let files = vec![
        ("Cargo.toml", fill(include_str!("../templates/app/Cargo.toml.in"))),
        ("build.rs", fill(include_str!("../templates/app/build.rs.in"))),
        ("src/main.rs", fill(include_str!("../templates/app/main.rs.in"))),
        ("kernels/Cargo.toml", fill(include_str!("../templates/app/kernels.toml.in"))),
        ("kernels/src/lib.rs", fill(include_str!("../templates/app/kernels.rs.in"))),
        (".gitignore", IGNORED.into()),
    ];
    make(folder, &files)?;
    crate::print(format_args!(
        "Made {0}. Run it with `cargo run --release` there, and on a GPU with `cargo run --release -- cuda:0`.\n",
        folder.display()
    ))
}

const IGNORED: &str = "/target/\n";

/// Makes the folder with all of the files, or nothing.
fn make(folder: &Path, files: &Files) -> Result<(), Box<dyn Error>> {
    let cannot = |error: io::Error| format!("cannot make {}: {error}", folder.display());
    let exists = || format!("{} exists already: take another name", folder.display());
    if folder.symlink_metadata().is_ok() {
        return Err(exists().into());
    }
    // Beside it, so that it can be renamed.
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Some(file) = parent.ancestors().find(|above| above.exists() && !above.is_dir()) {
        return Err(format!("cannot make {}: {} is no folder", folder.display(), file.display()).into());
    }
    check_ascents(parent).map_err(|reason| format!("cannot make {}: {reason}", folder.display()))?;
    fs::create_dir_all(parent).map_err(cannot)?;
    let unfinished = Unfinished::new(parent).map_err(cannot)?;
    for (path, text) in files {
        let path = unfinished.0.join(path);
        fs::create_dir_all(path.parent().expect("it is below the folder")).map_err(cannot)?;
        fs::write(path, text).map_err(cannot)?;
    }
    // In place of an empty folder that somebody made meanwhile at most.
    fs::rename(&unfinished.0, folder).map_err(cannot)?;
    Ok(())
}

/// Refuses a path that ascends from a folder which does not exist, and would be made only for that.
fn check_ascents(path: &Path) -> Result<(), String> {
    let components: Vec<_> = path.components().collect();
    let Some(last) = components.iter().rposition(|component| *component == Component::ParentDir) else {
        return Ok(());
    };
    let ascent: PathBuf = components[..=last].iter().collect();
    if ascent.is_dir() {
        return Ok(());
    }
    Err(format!("{} does not exist, so write the path without it", ascent.display()))
}

/// A folder that is removed unless it is renamed.
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(parent: &Path) -> io::Result<Self> {
        let folder = parent.join(format!(".hostcall-new-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Nothing can be done about what cannot be removed.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns what a manifest says of one of hostcall's packages: its folder in the checkout that this command was built
/// from, or else the release of the same version.
fn dependency(folder: &str) -> String {
    dependency_beside(Path::new(env!("CARGO_MANIFEST_DIR")), folder)
}

fn dependency_beside(this_package: &Path, folder: &str) -> String {
    let checkout = this_package.ancestors().nth(2).unwrap_or(this_package);
    let folder = checkout.join(folder);
    if folder.join("Cargo.toml").exists() {
        format!("{{ path = {:?} }}", folder.display().to_string())
    } else {
        format!("{:?}", env!("CARGO_PKG_VERSION"))
    }
}

/// Returns the folder's name, if a package can have it.
fn package_name(folder: &Path) -> Result<&str, Box<dyn Error>> {
    // A path such as `..` ends in no name, and is shown as a whole.
    let last = folder.file_name().unwrap_or(folder.as_os_str());
    let name = last.to_str().unwrap_or_default();
    if is_package_name(name) {
        return Ok(name);
    }
    if is_crate(name) {
        return Err(format!("`{name}` is a crate that programs use: take another name").into());
    }
    let name = last.to_string_lossy();
    Err(format!(
        "`{name}` is no name for a package: take ASCII letters, digits, `-` and `_`, a letter first, and no word of \
         Rust's own"
    )
    .into())
}

/// Crates that a package may use, whose name it cannot have itself.
const CRATES: &[&str] =
    &["alloc", "core", "hostcall", "hostcall_build", "hostcall_device", "proc_macro", "std", "test"];

/// Says whether a package's library would be one of [`CRATES`].
fn is_crate(name: &str) -> bool {
    CRATES.contains(&&*name.replace('-', "_"))
}

/// Folders beside the programs that cargo builds, whose names it refuses for programs.
const CARGOS_FOLDERS: &[&str] = &["build", "deps", "examples", "incremental"];

/// Words that cannot name a library: Rust's keywords.
const TAKEN: &[&str] = &[
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

fn is_package_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        && !TAKEN.contains(&name)
        && !is_crate(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn outside_of_a_checkout_dependencies_are_versions() {
        assert!(dependency("kernel/device").starts_with("{ path = "));
        let version = format!("{:?}", env!("CARGO_PKG_VERSION"));
        assert_eq!(dependency_beside(Path::new("/registry/hostcall-cli-0.1.0"), "kernel/device"), version);
    }

    #[test]
    fn no_folder_is_made_to_ascend_from() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = |path: &str| temporary.path().join(path);
        let refused = make(&folder("a/../b"), &Files::new()).expect_err("there is no a");
        assert!(
            refused.to_string().contains("a/.. does not exist, so write the path without it"),
            "{refused}"
        );
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
        make(&folder("a/b"), &Files::new()).unwrap();
        make(&folder("a/../c/d"), &Files::new()).unwrap();
        assert!(folder("c/d").is_dir());
    }

    #[test]
    fn names() {
        for good in ["x", "my-program", "a_1"] {
            assert!(is_package_name(good), "{good}");
        }
        for bad in ["", "1x", "-x", "fn", "test", "a.b", "ä", "a b", "hostcall-device", "proc-macro"] {
            assert!(!is_package_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_refusal_shows_the_name() {
        let refused = |path: &OsStr| package_name(Path::new(path)).unwrap_err().to_string();
        assert!(refused("..".as_ref()).starts_with("`..` is no name"));
        assert!(refused("a/b c".as_ref()).starts_with("`b c` is no name"));
        assert!(refused(OsStr::from_bytes(b"a\xff")).starts_with("`a\u{fffd}` is no name"));
    }

    #[test]
    fn an_app_has_a_name_that_cargo_takes_for_programs() {
        let temporary = tempfile::tempdir().unwrap();
        for name in CARGOS_FOLDERS {
            let refused = app(&temporary.path().join(name)).expect_err("cargo refuses it");
            assert!(refused.to_string().contains("take another name"), "{refused}");
        }
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}
