//! Compiles kernels in C for the cases of kernels that other compilers made, with clang where it is installed.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const INCLUDE: &str = "../../bindings/c/include";
const KERNELS: &str = "../../bindings/c/tests/c/raw_kernels.c";

/// What clang is told for each target; the first is the name of the file.
const TARGETS: [(&str, &[&str]); 2] = [
    ("foreign.co", &["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib"]),
    (
        "foreign.ptx",
        &[
            "--target=nvptx64-nvidia-cuda",
            "-march=sm_70",
            "-Xclang",
            "-target-feature",
            "-Xclang",
            "+ptx63",
            "-S",
        ],
    ),
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(foreign_kernels)");
    println!("cargo::rerun-if-changed={INCLUDE}/hostcall_device.h");
    println!("cargo::rerun-if-changed={KERNELS}");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets the folder"));
    let compile = |(name, flags): (&str, &[&str])| {
        let mut clang = Command::new("clang-22");
        clang
            .args(flags)
            .args(["-O2", "-ffreestanding", "-I", INCLUDE, KERNELS, "-o"])
            .arg(folder.join(name));
        clang.status().is_ok_and(|status| status.success())
    };
    // Without it everything builds, and the cases say so.
    if TARGETS.into_iter().all(compile) {
        println!("cargo::rustc-cfg=foreign_kernels");
    }
}
