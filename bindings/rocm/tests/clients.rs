//! Hosts in C, written against the header, with threads that play the waves of a device. Each behaviour has a process of its
//! own, on the software HSA runtime.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// Returns a library that Cargo builds beside the tests.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let deps = test.parent().expect("it is in a folder");
    let places = [deps.join(name), deps.with_file_name(name)];
    places.into_iter().find(|path| path.exists()).expect("Cargo built the library")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command is installed (.ci/install-device-toolchain)")
}

fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A folder in which the software runtime has the name of ROCm's.
static RUNTIME: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("amd-hostcall-runtime");
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let link = folder.join("libhsa-runtime64.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library("libsofthsa.so"), &link).expect("the link is made");
    folder
});

fn compile(name: &str, libraries: &[OsString]) -> PathBuf {
    let client = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"];
    let mut include = OsString::from("-I");
    include.push(source("include"));
    let mut command = Command::new("cc");
    command.args(flags).arg(include).arg(source("tests/c/client.c")).args(libraries);
    run(command.arg("-lhsa-runtime64").arg("-o").arg(&client));
    client
}

/// The client, linked with the shared library.
static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = library("libamd_hostcall.so");
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(library.parent().expect("it is in a folder"));
    compile("amd-hostcall-client", &[library.into(), path])
});

fn case_of(client: &Path, name: &str) -> Output {
    let mut command = Command::new("timeout");
    output(command.arg("240").arg(client).arg(name).env("LD_LIBRARY_PATH", RUNTIME.as_os_str()))
}

fn passes_of(client: &Path, name: &str) -> (String, String) {
    let output = case_of(client, name);
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{name}: {} {printed} {errors}", output.status);
    let printed = printed.strip_suffix("passed\n").unwrap_or_else(|| panic!("{name}: {printed} {errors}"));
    (printed.to_owned(), errors)
}

fn passes(name: &str) -> (String, String) {
    passes_of(&CLIENT, name)
}

/// Checks that the case ends as by `abort`, and returns what it printed.
fn aborts(name: &str) -> (String, String) {
    let output = case_of(&CLIENT, name);
    // `timeout` ends by the signal that its command ended by, or tells of it as a shell does.
    let status = output.status;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert!(signal == Some(6) || status.code() == Some(134), "{status} {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_header_is_pedantic_c99_and_cxx() {
    let header = source("tests/c/header.c");
    let include = source("include");
    let flags = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"].map(OsStr::new);
    for (compiler, language) in [("cc", ["-std=c99", "-xc"]), ("g++", ["-std=c++11", "-xc++"])] {
        run(Command::new(compiler).args(language).args(flags).arg("-I").arg(&include).arg(&header));
    }
}

#[test]
fn symbols_have_the_interface_s_version() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library("libamd_hostcall.so")));
    let header = std::fs::read_to_string(source("include/amd_hostcall.h")).expect("the header is there");
    let declared = header.split("amd_hostcall_").skip(1).filter_map(|rest| rest.split_once('('));
    let mut functions: Vec<_> = declared
        .map(|(name, _)| name)
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .collect();
    functions.sort_unstable();
    functions.dedup();
    assert_eq!(functions.len(), 13, "{functions:?}");
    for name in functions {
        let symbol = format!(" T amd_hostcall_{name}@@AMD_HOSTCALL_1\n");
        assert!(symbols.contains(&symbol), "{name} is missing in {symbols}");
    }
}

#[test]
fn creation_fails_without_hsa() {
    passes("no_hsa");
}

#[test]
fn consumers_and_buffers_have_their_lives() {
    for name in ["life", "initialize", "deregister", "on_error", "services", "consumers", "within", "closing"]
    {
        passes(name);
    }
}

#[test]
fn each_lane_is_answered_once() {
    for name in ["one", "wave", "gaps", "many"] {
        passes(name);
    }
}

#[test]
fn a_service_without_a_handler_stops_the_process() {
    let (printed, errors) = aborts("unknown");
    assert_eq!(printed, "stops: 5 AMD_HOSTCALL_ERROR_SERVICE_UNKNOWN\n");
    assert!(errors.contains("called service 701"), "{errors}");
}

#[test]
fn a_handler_that_fails_stops_the_process() {
    let (printed, errors) = aborts("fatal");
    assert_eq!(printed, "stops: -5 unknown error\n");
    assert!(errors.contains("service 700 returned -5"), "{errors}");
}

#[test]
fn kernels_print() {
    let (printed, errors) = passes("printing");
    assert_eq!(printed, "42 0.50 [hello world] -7, and a longer line than one packet takes\n");
    assert_eq!(errors, "to the other\n");
}

#[test]
fn processes_exit_cleanly_while_waves_print() {
    let children: Vec<_> = (0..5).map(|_| std::thread::spawn(|| case_of(&CLIENT, "child"))).collect();
    for child in children {
        let output = child.join().expect("the thread ends");
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && errors.is_empty(), "{} {errors}", output.status);
        assert!(printed.contains("in flight\n"), "{printed}");
    }
}

#[test]
fn a_hostile_buffer_harms_nobody() {
    passes("hostile");
}

/// What is possibly lost are tables of the library's, which valgrind has no pointer to the begin of.
#[test]
fn valgrind_finds_no_error_and_no_leak() {
    for name in ["life", "initialize", "services", "one", "gaps", "printing"] {
        let mut command = Command::new("timeout");
        command.args(["300", "valgrind", "--fair-sched=try"]);
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect"]);
        command.arg(&*CLIENT).arg(name).env("LD_LIBRARY_PATH", RUNTIME.as_os_str());
        run(&mut command);
    }
}

#[test]
fn the_static_library_has_the_same_functions() {
    let libraries = [library("libamd_hostcall.a").into(), "-ldl".into(), "-lm".into(), "-lgcc_s".into()];
    let client = compile("amd-hostcall-static-client", &libraries);
    passes_of(&client, "wave");
}
