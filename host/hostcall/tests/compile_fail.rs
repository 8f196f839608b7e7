//! Programs that must not compile, since they would reach memory that is not the kernel's or race, with what the compiler says.
//!
//! What it says differs from version to version: the test runs with the one that the workspace names as the oldest.
//! `TRYBUILD=overwrite cargo test -p hostcall --test compile_fail` writes the texts anew.

use std::process::Command;

#[test]
fn programs_that_must_not_compile() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let pinned = concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), ".");
    if !version.starts_with(pinned) {
        eprintln!("not run: this is {}, and the texts are those of {pinned}x", version.trim());
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
