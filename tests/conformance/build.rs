//! Compiles kernels in C and C++ for the cases of kernels that other compilers made, with clang where it is installed.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const INCLUDE: &str = "../../bindings/c/include";
const KERNELS: &str = "../../bindings/c/tests/c/raw_kernels.c";
const TURNS: &str = "../../bindings/c/tests/c/turn_kernels.hip";
/// In place of CUDA's and HIP's headers.
const LANGUAGE: &str = "../../bindings/c/tests/c/gpu.h";

/// What clang makes: the file, the source, and what clang is told.
const FILES: [(&str, &str, &[&str]); 5] = [
    ("foreign.co", KERNELS, &["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-ffreestanding"]),
    (
        "foreign.ptx",
        KERNELS,
        &[
            "--target=nvptx64-nvidia-cuda",
            "-march=sm_70",
            "-Xclang",
            "-target-feature",
            "-Xclang",
            "+ptx63",
            "-S",
            "-ffreestanding",
        ],
    ),
    (
        "turns.co",
        TURNS,
        &[
            "-x",
            "hip",
            "--offload-arch=gfx942",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            "-nogpuinc",
            "-nogpulib",
            "-std=c++17",
            "-include",
            LANGUAGE,
        ],
    ),
    (
        "turns.ptx",
        TURNS,
        &[
            "-x",
            "cuda",
            "--cuda-gpu-arch=sm_70",
            "--cuda-device-only",
            "--cuda-feature=+ptx63",
            "-nocudainc",
            "-nogpulib",
            "-Wno-unknown-cuda-version",
            "-S",
            "-std=c++17",
            "-include",
            LANGUAGE,
        ],
    ),
    ("turns.o", TURNS, &["-x", "c", "-std=gnu99", "-fPIC", "-c"]),
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(foreign_kernels)");
    println!("cargo::rerun-if-changed={INCLUDE}");
    for source in [KERNELS, TURNS, LANGUAGE] {
        println!("cargo::rerun-if-changed={source}");
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets the folder"));
    let compile = |(name, source, flags): (&str, &str, &[&str])| {
        let mut clang = Command::new("clang-22");
        clang.args(flags).args(["-O2", "-I", INCLUDE, source, "-o"]).arg(folder.join(name));
        clang.status().is_ok_and(|status| status.success())
    };
    let archive = || {
        let mut ar = Command::new("ar");
        ar.arg("crs").arg(folder.join("libhostcall_turns.a")).arg(folder.join("turns.o"));
        ar.status().is_ok_and(|status| status.success())
    };
    // Without it everything builds, and the cases say so.
    if FILES.into_iter().all(compile) && archive() {
        println!("cargo::rustc-cfg=foreign_kernels");
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static=hostcall_turns");
    }
}
