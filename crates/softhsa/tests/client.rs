//! A C client, written against the official HSA headers, runs against this library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns this crate as a shared library, which Cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let deps = test.parent().expect("it is in a folder");
    let places = [deps.join("libhostcall_softhsa.so"), deps.with_file_name("libhostcall_softhsa.so")];
    places.into_iter().find(|path| path.exists()).expect("Cargo built the library")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command is installed (.ci/install-device-toolchain)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_c_client_runs_unchanged() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client");
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let (object, client) = (folder.join("device"), folder.join("client"));
    let target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O2", "-std=gnu11"];
    run(Command::new("clang-22").args(target).arg(source.join("device.c")).arg("-o").arg(&object));
    let library = library();
    let mut path = std::ffi::OsString::from("-Wl,-rpath,");
    path.push(library.parent().expect("it is in a folder"));
    let flags = ["-std=gnu11", "-Wall", "-O1"];
    let client_source = source.join("client.c");
    run(Command::new("cc").args(flags).arg(client_source).arg(&library).arg(path).arg("-o").arg(&client));
    assert_eq!(run(Command::new("timeout").arg("120").arg(&client).arg(&object)), "passed\n");
}
