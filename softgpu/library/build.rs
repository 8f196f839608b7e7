//! Gives the linker the versions of the shared library's symbols.

use std::env;
use std::path::PathBuf;

fn main() {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets the package's folder"));
    let map = folder.join("exports.map");
    println!("cargo::rerun-if-changed={}", map.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
}
