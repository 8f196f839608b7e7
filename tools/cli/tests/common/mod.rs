//! Running the command and its programs.
#![allow(dead_code, reason = "each test uses a part")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

pub fn hostcall(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostcall"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A folder below this package.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The image of the program in the folder.
pub fn build(program: &Path) -> PathBuf {
    let output = hostcall([OsStr::new("build"), program.as_os_str()]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    PathBuf::from(stdout(&output).trim_end())
}

/// The image of the test program `acts`.
pub fn acts() -> &'static str {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| build(&here("tests/programs/acts"))).to_str().unwrap()
}

/// Runs `acts` with the options, divided by spaces, and its arguments.
pub fn act(options: &str, arguments: &[&str]) -> Output {
    acting(options, arguments).output().unwrap()
}

pub fn acting(options: &str, arguments: &[&str]) -> Command {
    let mut command = hostcall(["run"]);
    command.args(options.split_whitespace()).arg(acts()).args(arguments);
    command
}

/// The output for an input through a pipe.
pub fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    })
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit code and all of both outputs.
#[track_caller]
pub fn expect(output: &Output, code: i32, out: &str, err: &str) {
    assert_eq!((output.status.code(), &*stdout(output), &*stderr(output)), (Some(code), out, err));
}
