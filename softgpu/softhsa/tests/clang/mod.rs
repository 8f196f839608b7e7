//! Compiles the programs of `tests/programs` with clang 22.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a folder for what is built of a program.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("programs-{name}"));
    std::fs::create_dir_all(&folder).expect("the folder is made");
    folder
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"))
}

/// Flags that give programs one meaning on both machines.
const SAME: [&str; 4] = ["-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-w"];

fn clang(arguments: &mut Command) {
    let output = arguments.output().expect("clang-22 is installed (.ci/install-device-toolchain)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles a program for the host and returns its path.
#[allow(dead_code, reason = "not every test binary compares with the host")]
pub fn compile_for_host(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join("host");
    clang(
        Command::new("clang-22").args(SAME).arg("-O1").arg(source(name)).arg("-o").arg(&program).arg("-lm"),
    );
    program
}

/// Compiles a program for gfx942 and returns the code object's path.
pub fn compile_for_device(name: &str, folder: &Path, level: &str) -> PathBuf {
    compile_for_device_with(name, folder, level, &[])
}

/// Compiles a program for gfx942 with more arguments and returns the code object's path.
pub fn compile_for_device_with(name: &str, folder: &Path, level: &str, more: &[&str]) -> PathBuf {
    let program = folder.join(format!("device{level}"));
    let target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", level];
    let mut compiler = Command::new("clang-22");
    clang(compiler.args(SAME).args(target).args(more).arg(source(name)).arg("-o").arg(&program));
    program
}
