//! Programs of LLVM's protocol from start to end, through the NVIDIA device and a driver that runs their kernels in this
//! process's place of a GPU: what is not tested so is the GPU alone.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use common::{expect, here, hostcall, stderr, stdout};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the driver and the programs, built once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("llvm-host");
        fs::create_dir_all(&folder).unwrap();
        let library = folder.join("libcuda.so.1");
        compile(
            &here("tests/llvm/host/driver.c"),
            &library,
            &["-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread"],
        );
        folder
    })
}

fn compile(source: &Path, library: &Path, options: &[&str]) {
    // Other tests may make or use the same file.
    let new = tempfile::NamedTempFile::new_in(library.parent().unwrap()).unwrap();
    let status = Command::new("cc")
        .args(["-std=gnu11", "-w", "-O1", "-shared", "-fPIC", "-D__NVPTX__", "-I"])
        .arg(here("tests/llvm/host"))
        .arg("-I")
        .arg(here("tests/llvm/freestanding"))
        .arg(source)
        .arg("-o")
        .arg(new.path())
        .args(options)
        .status();
    assert!(status.expect("a C compiler, which Rust links with").success());
    new.persist(library).unwrap();
}

/// PTX of a program in name, whose kernels the driver takes from a shared object.
fn program(source: &str, version: u32, symbols: &[&str]) -> String {
    let library = folder().join(format!("{source}-{version}.so").replace('/', "-"));
    let define = format!("-DRPC_VERSION={version}");
    compile(&here(&format!("tests/llvm/{source}.c")), &library, &[&define]);
    let client = match version {
        19 => ".visible .global .align 8 .u64 __llvm_libc_rpc_client;".to_owned(),
        20 => ".visible .global .align 8 .b8 __llvm_rpc_client[552];".to_owned(),
        _ => ".visible .global .align 8 .b8 __llvm_rpc_client[2096];".to_owned(),
    };
    let mut ptx = format!("// host: {}\n.version 7.8\n.target sm_80\n{client}\n", library.display());
    for kernel in ["_begin", "_start", "_end"] {
        writeln!(ptx, ".visible .entry {kernel}(").unwrap();
    }
    for symbol in symbols {
        writeln!(ptx, ".visible .const .align 8 .u64 {symbol} = f;").unwrap();
    }
    let image = library.with_extension("ptx");
    let new = tempfile::NamedTempFile::new_in(folder()).unwrap();
    fs::write(&new, ptx).unwrap();
    new.persist(&image).unwrap();
    image.to_str().unwrap().to_owned()
}

/// The command, with the driver.
fn run(arguments: &[&str]) -> Command {
    let mut command = hostcall(["run"]);
    command.args(arguments).env("LD_LIBRARY_PATH", folder());
    command
}

/// A file that is beside the programs' sources.
fn expected(name: &str) -> String {
    fs::read_to_string(here(&format!("tests/llvm/freestanding/{name}"))).unwrap()
}

const VERSIONS: [u32; 3] = [19, 20, 26];

#[test]
fn programs_get_arguments_and_variables_in_every_version() {
    for version in VERSIONS {
        let hello = program("freestanding/hello", version, &[]);
        let output = run(&["--env", "COLOUR=blue", &hello, "one", "two words"]).output().unwrap();
        expect(&output, 3, &expected("hello.out"), "");
        let output =
            run(&["--inherit-env", "--device", "cuda:0", &hello]).env("COLOUR", "red").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stdout(&output).ends_with("COLOUR=red\n"), "{}", stdout(&output));
    }
}

#[test]
fn every_lane_gets_its_own_answers() {
    for version in VERSIONS {
        let calls = program("freestanding/calls", version, &[]);
        let grid = ["--threads", "96", "--blocks-x", "3", "--blocks-y", "3"];
        expect(&run(&[&grid[..], &[&calls]].concat()).output().unwrap(), 0, "", "");
        let few_ports = ["--threads", "40", "--ports", "1", &calls];
        expect(&run(&few_ports).output().unwrap(), 0, "", "");
        let printf = program("freestanding/printf", version, &[]);
        expect(&run(&["--threads", "4", &printf]).output().unwrap(), 0, &expected("printf.out"), "");
    }
}

/// The program that ends as it is told.
fn ends() -> String {
    let symbols = [
        "__init_array_object_second_65535",
        "__init_array_object_first_101",
        "__fini_array_object_last_65535",
        "__llvm_libc_clock_freq",
    ];
    program("host/ends", 19, &symbols)
}

const BEFORE_MAIN: &str = "the first constructor\nthe second constructor\n";

#[test]
fn constructors_run_before_main_and_destructors_after_it() {
    let ends = ends();
    let output = run(&["--threads", "3", &ends]).output().unwrap();
    let text = format!("{BEFORE_MAIN}main\nmain\nmain\nthe destructor\n");
    expect(&output, 7, &text, "");
    expect(&run(&[&ends, "clock"]).output().unwrap(), 0, &format!("{BEFORE_MAIN}main\nthe destructor\n"), "");
}

#[test]
fn a_program_ends_itself_while_a_kernel_runs() {
    let ends = ends();
    let text = format!("{BEFORE_MAIN}main\n");
    expect(&run(&[&ends, "exit"]).output().unwrap(), 9, &text, "");
    expect(&run(&[&ends, "abort"]).output().unwrap(), 134, &text, "");
}

#[test]
fn what_goes_wrong_is_one_sentence_after_the_output() {
    let ends = ends();
    let text = format!("{BEFORE_MAIN}main\n");
    for (how, code, sentence) in [
        ("fault", 1, "hostcall: kernel _start: running the kernel: an illegal memory access was encountered"),
        ("garbage", 1, "hostcall: kernel _start: a call by port 0 of LLVM's protocol cannot go on"),
        ("hang", 124, "hostcall: the program did not end within 0.5 s: 1 lane has not ended"),
    ] {
        let timeout = if how == "hang" { "0.5" } else { "60" };
        let output = run(&["--timeout", timeout, &ends, how]).output().unwrap();
        assert_eq!(
            (output.status.code(), &*stdout(&output)),
            (Some(code), &*text),
            "{how}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).starts_with(sentence), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1);
    }
    let output = run(&["--threads", "1024", "--blocks", "2", "--threads-z", "2", &ends]).output().unwrap();
    expect(&output, 1, "", "hostcall: a workgroup has at most 1024 lanes, not 2048\n");
}

#[test]
fn resources_are_printed_apart() {
    let hello = program("freestanding/hello", 19, &[]);
    let output = run(&["--print-resource-usage", &hello, "x"]).output().unwrap();
    let line = |kernel| format!("{kernel}: 40 registers and 16 bytes of stack a lane, 0 bytes a workgroup\n");
    assert_eq!(stderr(&output), ["_begin", "_start", "_end"].map(line).concat());
    assert_eq!(output.status.code(), Some(2));
}
