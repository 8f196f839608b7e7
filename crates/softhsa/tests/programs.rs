//! C programs that are compiled for the host and for gfx942 and must compute the same.

mod clang;

use std::process::Command;
use std::sync::Arc;

use clang::{compile_for_device, compile_for_host};
use hostcall_softhsa::device::Running;
use hostcall_softhsa::exec::coverage::{self, Exactness};
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::{Memory, Use};

/// Runs the program on the device and returns the sum of its lanes' checksums.
fn sum_on_device(running: &Running, object: CodeObject, lanes: u32) -> u64 {
    let memory = &running.device().memory;
    let loaded = Loaded::load(running.device(), object).expect("the code object is loaded");
    let kernel = &loaded.object.kernels["run.kd"];
    let buffer = memory.allocate(4096, Use::Pool).expect("there is memory");
    let kernarg = memory.allocate(4096, Use::Pool).expect("there is memory");
    memory.view().store_u64(kernarg, buffer).expect("it is inside");
    let spec = loaded.launch_spec(kernel, kernarg, [lanes, 1, 1], [256, 1, 1]);
    if let Err(failure) = running.device().run(spec) {
        panic!("{failure}");
    }
    let sum = memory.view().load_u64(buffer).expect("it is inside");
    assert!(memory.free(buffer, Use::Pool) && memory.free(kernarg, Use::Pool));
    sum
}

fn agree(name: &str, lanes: u32) {
    let folder = clang::folder(name);
    let program = compile_for_host(name, &folder);
    let output = Command::new(program).arg(lanes.to_string()).output().expect("the program runs");
    let expected =
        u64::from_str_radix(String::from_utf8_lossy(&output.stdout).trim(), 16).expect("it prints a number");
    let running = Running::start(Arc::new(Memory::new()), 2).expect("the device starts");
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let file = std::fs::read(compile_for_device(name, &folder, level)).expect("it was written");
        let object = CodeObject::read(&file).expect("clang writes code objects");
        let sum = sum_on_device(&running, object, lanes);
        assert_eq!(sum, expected, "{name} {level}: {sum:#x} instead of {expected:#x}");
    }
    let report = coverage::report();
    let executed = report.values().filter(|(_, executed)| *executed).count();
    let count = |exactness| report.values().filter(|(found, _)| *found == exactness).count();
    let (exact, near) = (count(Exactness::Exact), count(Exactness::Approximate));
    println!(
        "{executed} mnemonics executed; {exact} exact, {near} approximate, {} missing",
        count(Exactness::Missing)
    );
}

#[test]
fn integers_agree_with_the_host() {
    agree("integers", 300);
}

#[test]
fn floats_agree_with_the_host_bit_for_bit() {
    agree("floats", 512);
}

#[test]
fn roundings_agree_with_the_host_bit_for_bit() {
    agree("roundings", 256);
}

#[test]
fn bytes_and_dot_products_agree_with_the_host() {
    agree("bytes", 256);
}

#[test]
fn lanes_agree_with_the_host() {
    agree("lanes", 1024);
}
