//! What the tests share: the libraries that Cargo built, and compiling and running hosts.
#![allow(dead_code, reason = "each test uses a part")]

use hostcall::Output as ReplyBytes;
use hostcall_abi::status::CallError;
use hostcall_build::{Request, Target, build};
use inventory::{InventoryHandler, Refused};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex};

/// The folder of what Cargo built for the tests.
fn deps() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.parent().expect("it is in a folder").to_owned()
}

/// Returns a library that Cargo builds beside the tests.
pub fn library(name: &str) -> PathBuf {
    let deps = deps();
    let places = [deps.join(name), deps.with_file_name(name)];
    places.into_iter().find(|path| path.exists()).expect("Cargo built the library")
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn output(command: &mut Command) -> Output {
    command.output().expect("the command is installed (.ci/install-device-toolchain)")
}

/// Runs a command that ends well, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Valgrind, which finds no error and gives every thread its turn: without that one that spins keeps the others waiting for
/// seconds. Add its other flags, the program and its arguments.
pub fn valgrind() -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", "valgrind", "--quiet", "--error-exitcode=9", "--fair-sched=try"]);
    command
}

/// What a program is linked with that takes the shared library.
pub fn shared() -> [OsString; 2] {
    let library = library("libhostcall_c.so");
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(library.parent().expect("it is in a folder"));
    [library.into(), path]
}

/// Compiles a host in C.
pub fn compile(file: &str, libraries: &[OsString]) -> PathBuf {
    let name = Path::new(file).file_stem().expect("it is a file").to_string_lossy().into_owned();
    compile_as(&name, file, libraries)
}

/// Compiles a host in C to a program of this name.
pub fn compile_as(name: &str, file: &str, libraries: &[OsString]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostcall-c-{name}"));
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread", "-I"]);
    command.arg(source("include")).arg(source(file)).args(libraries).arg("-o").arg(&program);
    run(&mut command);
    program
}

/// Builds a folder of programs for the software device.
fn image(program: &str) -> PathBuf {
    let target = Target::parse("cpu").expect("there is such a target");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostcall-c-programs");
    let request = Request::new(source("../../programs").join(program), target).target_dir(folder).quiet();
    build(&request).expect("the program is built").path
}

/// The image of programs/inventory for the software device.
pub static IMAGE: LazyLock<PathBuf> = LazyLock::new(|| image("inventory"));

/// The image of programs/conformance for the software device.
pub static CONFORMANCE: LazyLock<PathBuf> = LazyLock::new(|| image("conformance"));

/// The items by key, with name and amount.
#[derive(Clone, Default)]
pub struct Store(pub Arc<Mutex<BTreeMap<u64, (String, u64)>>>);

impl InventoryHandler for Store {
    fn find(&self, key: u64, name: &mut ReplyBytes<'_>) -> Result<Option<u64>, CallError> {
        let items = self.0.lock().unwrap();
        let Some((text, amount)) = items.get(&key) else { return Ok(None) };
        name.push(text.as_bytes())?;
        Ok(Some(*amount))
    }

    fn add(&self, key: u64, amount: u64, name: &str) -> Result<Result<(), Refused>, CallError> {
        let mut items = self.0.lock().unwrap();
        if items.contains_key(&key) {
            return Ok(Err(Refused::Duplicate));
        }
        items.insert(key, (name.to_owned(), amount));
        Ok(Ok(()))
    }

    fn transfer(&self, from: u64, to: u64, amount: u64) -> Result<Result<u64, Refused>, CallError> {
        let mut items = self.0.lock().unwrap();
        if !items.contains_key(&to) {
            return Ok(Err(Refused::NoSuchItem));
        }
        let Some((_, has)) = items.get_mut(&from) else { return Ok(Err(Refused::NoSuchItem)) };
        if *has < amount {
            return Ok(Err(Refused::TooFew(*has)));
        }
        *has -= amount;
        let left = *has;
        items.get_mut(&to).unwrap().1 += amount;
        Ok(Ok(left))
    }
}
