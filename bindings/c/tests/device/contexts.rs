//! Calls and posts of kernels that others launch: the same kernels for threads of the host, the GPU in software, and NVIDIA's
//! compilers.

use crate::common::{self, run, source};
use crate::{CUDA, FLAGS, HIP, OPENCL, hip_kernels, kernels, nvptx64, temporary};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const KERNELS: &str = "tests/c/contexts.hip";

/// The host, whose threads are lanes too.
static HOST: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary("contexts");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-g", "-O1", "-pthread"]).args(FLAGS).arg("-I").arg(source("include"));
    command.arg(source("tests/c/contexts.cpp")).arg(host_library()).args(common::shared());
    run(command.arg("-o").arg(&program));
    program
});

/// hostcall_library.c for threads.
fn host_library() -> PathBuf {
    let made = temporary("library.o");
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-O1", "-c"]).args(FLAGS).arg(source("include/hostcall_library.c"));
    run(command.arg("-o").arg(&made));
    made
}

/// The folder of what `scripts/device-library` makes.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = temporary("library");
    let mut command = Command::new(source("../../scripts/device-library"));
    run(command.arg(&folder).env("NVCC", nvidia().join("bin/nvcc")));
    folder
});

#[test]
fn threads_call_from_a_context() {
    assert_eq!(run(Command::new(&*HOST).arg("cpu")), "passed\n");
}

#[test]
fn kernels_in_hip_call_from_a_context() {
    // What a compiler merges or moves, it does where it optimises; else it keeps all in memory, which takes the GPU in software long.
    for (level, lanes) in [("-O3", "1500"), ("-O1", "1500"), ("-O0", "7")] {
        let code = hip_kernels(&[&HIP[..], &[level]].concat(), KERNELS, &format!("contexts{level}.co"));
        let linked = linked_kernel(&format!("linked{level}.co"), level);
        let mut host = Command::new(&*HOST);
        assert_eq!(run(host.arg("gfx942").arg(code).arg(linked).arg(lanes)), "passed\n", "{level}");
    }
}

/// OpenCL C has the same kernels.
#[test]
fn kernels_in_opencl_call_from_a_context() {
    let linked = linked_kernel("linked-cl.co", "-O3");
    let code = kernels(&[&OPENCL[..], &["-O3"]].concat(), KERNELS, "contexts-cl.co");
    assert_eq!(run(Command::new(&*HOST).arg("gfx942").arg(code).arg(&linked)), "passed\n");
}

/// The kernel of library_kernels.h, with the library's bitcode.
fn linked_kernel(name: &str, level: &str) -> PathBuf {
    let bitcode = LIBRARY.join("hostcall_amdgcn.bc").display().to_string();
    let compiler = [&HIP[..], &[level, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", &bitcode]].concat();
    hip_kernels(&compiler, "tests/c/library.hip", name)
}

/// Code of the first header of this major version (docs/context-abi.md) works with hosts of all that follow:
/// `clang-22 -x hip --offload-arch=gfx942 -Os` made it of context_kernels.h as it was then.
#[test]
fn code_of_the_first_header_works() {
    let linked = linked_kernel("linked-1.0.co", "-O2");
    let kept = source("tests/kept/contexts-1.0.gfx942.co");
    assert_eq!(run(Command::new(&*HOST).arg("gfx942").arg(kept).arg(linked)), "passed\n");
}

#[test]
fn clang_compiles_them_for_nvidia() {
    nvptx64::assemble(&hip_kernels(&CUDA, KERNELS, "contexts.ptx"));
}

/// The folder in which `.ci/install-device-toolchain` puts NVIDIA's compilers.
pub fn nvidia() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).expect("there is a home");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    cache.join("hostcall/nvidia")
}

#[test]
fn the_library_is_made_for_nvidia() {
    let mut ptxas = Command::new(nvptx64::ptxas().expect("NVIDIA's assembler is installed"));
    run(ptxas.args(["-arch=sm_90", "-c", "-o", "/dev/null"]).arg(LIBRARY.join("hostcall_sm_70.ptx")));
    for file in ["hostcall_nvptx64.bc", "hostcall_sm_90.ltoir"] {
        assert!(LIBRARY.join(file).exists(), "{file}");
    }
}

/// Symbols and lanes survive in code that is made to be debugged, and in compilers that are as old as the bitcode's or newer.
#[test]
fn debug_and_release_code_links_the_library() {
    let bitcode = |of: &str| LIBRARY.join(format!("hostcall_{of}.bc")).display().to_string();
    for compiler in ["clang-19", "clang-22"] {
        for (level, name) in [(&["-O0", "-g"][..], "debug"), (&["-O2", "-g"], "both"), (&["-O3"], "release")]
        {
            let made = temporary(&format!("library-{compiler}-{name}.ptx"));
            let mut command = Command::new(compiler);
            command.args(CUDA).args(level).args(["-std=c++17", "-nogpulib", "-Wno-linker-warnings"]);
            command.args(["-include", "gpu.h", "-I"]).arg(source("tests/c"));
            command.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang", &bitcode("nvptx64")]);
            run(command.arg(source("tests/c/library.hip")).arg("-o").arg(&made));
            nvptx64::assemble(&made);
        }
    }
    let debug = ["-O0", "-g", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", &bitcode("amdgcn")];
    let code = hip_kernels(&HIP, KERNELS, "contexts-2.co");
    let linked = hip_kernels(&[&HIP[..], &debug].concat(), "tests/c/library.hip", "linked-debug.co");
    assert_eq!(run(Command::new(&*HOST).arg("gfx942").arg(code).arg(linked)), "passed\n");
}

/// Triton's own compiler reads the bitcode and links it into kernels, which takes few registers more.
#[test]
fn triton_links_the_library() {
    let ptxas = nvptx64::ptxas().expect("NVIDIA's assembler is installed");
    let mut command = Command::new("python3");
    command.arg(source("tests/c/triton_kernels.py")).arg(LIBRARY.join("hostcall_nvptx64.bc")).arg(ptxas);
    command.env("PYTHONPATH", nvidia().with_file_name("triton"));
    command.env("TRITON_CACHE_DIR", temporary("triton-cache"));
    print!("{}", run(&mut command));
}

#[test]
fn nvcc_compiles_them_for_gpu_and_host() {
    for file in [KERNELS, "examples/walk.hip"] {
        let mut command = Command::new(nvidia().join("bin/nvcc"));
        command.args(["-x", "cu", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]);
        command.arg(source("include")).arg("-I").arg(source("tests/c")).arg(source(file));
        run(command.arg("-o").arg(temporary("nvcc.o")));
    }
}

/// NVRTC, by which CuPy and Numba compile: it has no headers but those that it is given.
#[test]
fn nvrtc_compiles_them() {
    let mut command = Command::new("python3");
    command.arg(source("tests/c/nvrtc.py")).arg(nvidia().join("lib"));
    let text = |file: &str| source(file).display().to_string();
    let files = [KERNELS, "tests/c/context_kernels.h", "include/hostcall_device.h"];
    assert_eq!(run(command.args(files.map(text))), "compiled\n");
}

/// C and C++ of other standards take the header too.
#[test]
fn compilers_of_the_host_take_the_header() {
    for (compiler, language, standard) in [
        ("cc", "c", "-std=gnu99"),
        ("c++", "c++", "-std=c++11"),
        ("clang-22", "c", "-std=c17"),
        ("clang-22", "c++", "-std=c++20"),
    ] {
        let mut command = Command::new(compiler);
        command.args(["-x", language, standard, "-O2", "-c", "-o"]).arg(Path::new("/dev/null")).args(FLAGS);
        run(command.arg("-I").arg(source("include")).arg(source("tests/c/calls.c")));
    }
}
