//! Compiling kernels in HIP and OpenCL C, as tests of several crates do.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Where Debian's package `rocm-device-libs` has them.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";

/// Options of device code that the libraries have a file for, besides the code object's version. They know gfx940, whose code
/// gfx942 executes.
const OPTIONS: [&str; 6] = [
    "isa_version_940",
    "wavefrontsize64_on",
    "unsafe_math_off",
    "finite_only_off",
    "daz_opt_off",
    "correctly_rounded_sqrt_on",
];

/// The folder of the kernels.
pub fn folder() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (own, beside) = (package.join("tests/rocm"), package.join("../../host/hostcall/tests/rocm"));
    if own.exists() { own } else { beside }
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command is installed (.ci/install-device-toolchain)");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns a file of kernels as a code object of this version for gfx942, which the first test that wants it compiles.
pub fn compile(source: &'static str, version: u32, level: &'static str) -> Vec<u8> {
    compile_for("gfx942", source, version, level)
}

/// Returns a file of kernels as a code object of this version for this target.
pub fn compile_for(target: &'static str, source: &'static str, version: u32, level: &'static str) -> Vec<u8> {
    type Compiled = HashMap<(&'static str, &'static str, u32, &'static str), Arc<OnceLock<Vec<u8>>>>;
    static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);
    let place = COMPILED.lock().unwrap().entry((target, source, version, level)).or_default().clone();
    place.get_or_init(|| compile_now(target, source, version, level)).clone()
}

/// Compiles a file of kernels.
fn compile_now(target: &str, source: &str, version: u32, level: &str) -> Vec<u8> {
    let name = format!("{source}-{target}-{version}{level}-{}", std::process::id());
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut clang = Command::new("clang-22");
    let libraries = match source.ends_with(".cl") {
        true => {
            clang.args([
                "-x",
                "cl",
                "-cl-std=CL2.0",
                "--target=amdgcn-amd-amdhsa",
                &format!("-mcpu={target}"),
            ]);
            ["opencl", "ockl"]
        }
        false => {
            clang.args([
                "-x",
                "hip",
                &format!("--offload-arch={target}"),
                "--cuda-device-only",
                "--no-gpu-bundle-output",
            ]);
            let is_buffered = source.starts_with("buffered");
            let kind = if is_buffered { "-mprintf-kind=buffered" } else { "-mprintf-kind=hostcall" };
            clang.args(["-nogpuinc", kind]);
            [if is_buffered { "opencl" } else { "hip" }, "ockl"]
        }
    };
    clang.args(["-nogpulib", level, &format!("-mcode-object-version={version}")]);
    // Arguments lie in version 6 where they lie in version 5, and the libraries are older.
    let options = OPTIONS.map(str::to_owned).into_iter().chain([format!("abi_version_{}00", version.min(5))]);
    let libraries =
        libraries.map(str::to_owned).into_iter().chain(options.map(|option| format!("oclc_{option}")));
    for library in libraries {
        clang.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang", &format!("{LIBRARIES}/{library}.bc")]);
    }
    run(clang.arg(folder().join(source)).arg("-o").arg(&object));
    let image = std::fs::read(&object).expect("it was compiled");
    std::fs::remove_file(&object).expect("it is there");
    image
}
