//! `hostcall new`: a package to start from.

use crate::Outcome;
use std::fs;
use std::path::Path;

const PROGRAM: &str = r#"#![no_std]

use hostcall_device::{Lane, println};

#[hostcall_device::main(workgroups = 2, lanes = 4)]
fn main(lane: &Lane) {
    println!("Hello from lane {} of {}", lane.global_id(), lane.grid_lanes());
}
"#;

/// Makes the folder with the package's files.
///
/// # Errors
/// A sentence, when the name is none for a package, or the folder cannot be made.
pub fn create(folder: &Path) -> Outcome {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !is_package_name(name) {
        return Err(format!(
            "`{name}` is no name for a package: take ASCII letters, digits, `-` and `_`, a letter first, and no \
             word of Rust's own"
        )
        .into());
    }
    let io = |error| format!("cannot make {}: {error}", folder.display());
    if folder.exists() {
        return Err(format!("{} exists already: take another name", folder.display()).into());
    }
    fs::create_dir_all(folder.join("src")).map_err(io)?;
    fs::write(folder.join("Cargo.toml"), manifest(name)).map_err(io)?;
    fs::write(folder.join("src/lib.rs"), PROGRAM).map_err(io)?;
    fs::write(folder.join(".gitignore"), "/target/\n").map_err(io)?;
    crate::print(format_args!("Made {0}. Run it with `hostcall run {0}`.\n", folder.display()))
}

/// Words that cannot name a library: Rust's keywords and its own crates.
const TAKEN: &[&str] = &[
    "Self",
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "hostcall-device",
    "hostcall_device",
];

fn is_package_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        && !TAKEN.contains(&name)
}

fn manifest(name: &str) -> String {
    // The checkout that this command was built from, or else the release of the same version.
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("device");
    let device = if device.join("Cargo.toml").exists() {
        format!("{{ path = {:?} }}", device.display().to_string())
    } else {
        format!("{:?}", env!("CARGO_PKG_VERSION"))
    };
    format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"

[dependencies]
hostcall-device = {device}

# A workspace of its own, wherever it lies.
[workspace]
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["x", "my-program", "a_1"] {
            assert!(is_package_name(good), "{good}");
        }
        for bad in ["", "1x", "-x", "fn", "a.b", "ä", "a b", "hostcall-device"] {
            assert!(!is_package_name(bad), "{bad}");
        }
    }
}
