//! Hosts in C and C++ that serve LLVM's protocol in memory of their own, without a device of hostcall's.

mod common;

use common::{library, run, shared, source, text};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostcall-c-{name}"))
}

/// Clients that are threads of the host.
static CLIENTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = built("llvm_client");
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread", "-I"]);
    command.arg(source("include")).arg(source("tests/c/llvm_client.cpp")).args(shared());
    run(command.arg("-o").arg(&program));
    program
});

/// The example, whose GPU is software.
static LOADER: LazyLock<PathBuf> = LazyLock::new(|| {
    let [hostcall, path] = shared();
    common::compile("examples/llvm.c", &[hostcall, path, library("libsofthsa.so").into()])
});

/// A program for gfx942 with the client of a version.
fn program(version: u32) -> PathBuf {
    let image = built(&format!("llvm_program-{version}"));
    let mut command = Command::new("clang-22");
    command.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-O2", "-std=gnu11", "-ffreestanding"]);
    command.args(["-nogpulib", "-nostdlib", "-I"]).arg(source("../../tools/cli/tests/llvm/freestanding"));
    command.arg(format!("-DRPC_VERSION={version}")).arg(source("tests/c/llvm_program.c"));
    run(command.arg("-o").arg(&image));
    image
}

#[test]
fn clients_of_every_version_are_served_in_the_callers_memory() {
    assert_eq!(run(&mut Command::new(&*CLIENTS)), "passed\n");
}

#[test]
fn a_host_in_c_serves_a_client_in_its_process() {
    let host = common::compile("examples/llvm_host.c", &shared());
    let output = Command::new(host).output().expect("the host was built");
    let (printed, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{told}");
    // The book's page on LLVM shows these lines.
    assert_eq!(
        printed,
        "40 + 2 is 42, and what nobody has 0\n4 calls, 1 of ours, 1 that nobody has; exit code 3\n"
    );
    let page = std::fs::read_to_string(source("../../docs/book/src/llvm.md")).unwrap();
    let shown = format!("{printed}{told}");
    assert!(shown.lines().all(|line| page.lines().any(|of_page| of_page == line)), "{shown}");
}

#[test]
fn a_loader_in_c_runs_programs_of_every_version() {
    // LLVM 19's opcodes have 16 bits, which the application's own does not fit.
    for (version, lanes, doubled) in [(19, 128, 0), (20, 192, 192), (26, 40, 40)] {
        let mut loader = Command::new(&*LOADER);
        let output = loader.arg(program(version)).arg(lanes.to_string()).args(["one", "last"]).output();
        let output = output.expect("the loader was built");
        let (printed, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), &*printed), (Some(8 | 3), "last\n"), "{version}: {told}");
        assert_eq!(told, format!("{doubled} lanes doubled\n"));
    }
}

#[test]
fn what_is_no_image_of_the_protocol_is_refused() {
    let image = built("llvm_none");
    let mut command = Command::new("clang-22");
    command.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-nostdlib", "-xc", "-"]);
    let mut child = command.arg("-o").arg(&image).stdin(std::process::Stdio::piped()).spawn().unwrap();
    // The client of a later LLVM than is known.
    let code = b"__attribute__((visibility(\"protected\"))) char __llvm_rpc_client[4096] = {1};\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), code).unwrap();
    assert!(child.wait().unwrap().success());
    for (image, sentence) in [
        (image, "the image's LLVM has a client of 4096 bytes"),
        (source("Cargo.toml"), "it is no image of a program"),
    ] {
        let output = Command::new(&*LOADER).arg(image).arg("1").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(sentence), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
}

/// The clients spin, so that there is one thread at a time.
#[test]
fn a_host_of_clients_has_no_error_under_valgrind() {
    let mut command = common::valgrind();
    run(command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]).arg(&*CLIENTS));
}
