//! The header of kernels that other compilers make: what it says of layouts, threads of the host as waves, and kernels on the
//! GPU in software.

mod bound;
#[path = "../common/mod.rs"]
mod common;
mod contexts;
mod example;
mod gfx942;
mod launched;
mod layouts;
mod nvptx64;
mod points;
mod post_queue;
mod services;
mod threads;
mod waits;
mod waves;

use common::{run, source};
use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostcall-c-device-{name}"))
}

/// How clang makes a code object of HIP for the GPU in software.
const HIP: [&str; 6] =
    ["-x", "hip", "--offload-arch=gfx942", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc"];

/// How it makes PTX of CUDA C++. A CUDA that is installed may be later than clang.
const CUDA: [&str; 8] = [
    "-x",
    "cuda",
    "--cuda-gpu-arch=sm_90",
    "--cuda-device-only",
    "--cuda-feature=+ptx78",
    "-nocudainc",
    "-Wno-unknown-cuda-version",
    "-S",
];

/// How it makes a code object of OpenCL C.
const OPENCL: [&str; 7] = [
    "-x",
    "cl",
    "-cl-std=CL2.0",
    "--target=amdgcn-amd-amdhsa",
    "-mcpu=gfx942",
    "-nogpulib",
    "-ffreestanding",
];

/// Kernels in HIP or CUDA C++.
fn hip_kernels(compiler: &[&str], file: &str, name: &str) -> PathBuf {
    let folder = source("tests/c").display().to_string();
    // In place of CUDA's and HIP's headers.
    let language = ["-std=c++17", "-nogpulib", "-include", "gpu.h", "-I", &folder];
    kernels(&[compiler, &language].concat(), file, name)
}

/// A source as a code object for the GPU in software, or as PTX.
fn kernels(compiler: &[&str], file: &str, name: &str) -> PathBuf {
    let made = temporary(name);
    let mut command = Command::new("clang-22");
    // The last level counts.
    command.arg("-O2").args(compiler).args(FLAGS).arg("-I").arg(source("include")).arg(source(file));
    run(command.arg("-o").arg(&made));
    made
}

/// What a writer of texts writes, each filled up to whole words. `first` is added to each byte.
fn texts_of(first: u64, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count {
        bytes.extend((0..7 * i % 300).map(|at| (i + at + first) as u8));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}
