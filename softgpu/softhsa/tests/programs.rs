//! C programs that are compiled for the host and for gfx942 and must compute the same.

mod clang;

use std::process::Command;
use std::sync::Arc;

use clang::{compile_for_device, compile_for_device_with, compile_for_host};
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
    assert!(memory.free(buffer) && memory.free(kernarg));
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

/// Arguments that are in registers when a kernel starts: the code that loads them otherwise is passed by.
#[test]
fn arguments_are_preloaded() {
    const TRAP: u32 = 0xbf92_0002;
    let folder = clang::folder("preload");
    let running = Running::start(Arc::new(Memory::new()), 2).expect("the device starts");
    let memory = &running.device().memory;
    for (count, words) in [(0, 0), (2, 4), (4, 6)] {
        let more = ["-mllvm", &format!("-amdgpu-kernarg-preload-count={count}")];
        let file = compile_for_device_with("preload", &folder, "-O1", &more);
        let mut object =
            CodeObject::read(&std::fs::read(file).expect("it was written")).expect("clang wrote it");
        let kernel = &object.kernels["run.kd"];
        assert_eq!(kernel.descriptor.preloaded.words, words, "of {count} arguments");
        if words > 0 {
            let start = kernel.descriptor_offset.checked_add_signed(kernel.descriptor.entry_offset);
            let start = start.expect("the code is in the image") as usize;
            object.image[start..start + 4].copy_from_slice(&TRAP.to_le_bytes());
        }
        let loaded = Loaded::load(running.device(), object).expect("the code object is loaded");
        let kernel = &loaded.object.kernels["run.kd"];
        let [results, kernarg] = [0, 1].map(|_| memory.allocate(4096, Use::Pool).expect("there is memory"));
        for (at, word) in [(0, results), (8, 1 << 40), (16, 7 | 1000 << 32)] {
            memory.view().store_u64(kernarg + at, word).expect("it is inside");
        }
        let spec = loaded.launch_spec(kernel, kernarg, [128, 1, 1], [64, 1, 1]);
        if let Err(failure) = running.device().run(spec) {
            panic!("{count} arguments: {failure}");
        }
        for lane in 0..128 {
            let found = memory.view().load_u64(results + lane * 8);
            assert_eq!(found, Ok((1 << 40) + 7 * 3 + 1000 + lane), "{count} arguments, lane {lane}");
        }
        assert!(memory.free(results) && memory.free(kernarg));
    }
    // Words behind the last argument are no arguments.
    let file =
        compile_for_device_with("preload", &folder, "-O1", &["-mllvm", "-amdgpu-kernarg-preload-count=4"]);
    let mut file = std::fs::read(file).expect("it was written");
    // The descriptor's last eight bytes: the arguments' address is in registers, and six words are preloaded.
    let end = [0x08, 0, 6, 0, 0, 0, 0, 0];
    let places: Vec<usize> = (0..file.len() - 8).step_by(8).filter(|&at| file[at..at + 8] == end).collect();
    assert_eq!(places.len(), 1, "{places:?}");
    // Six from the second on.
    file[places[0] + 2] = 1 << 7 | 6;
    let refused = CodeObject::read(&file).expect_err("there are six words").to_string();
    assert!(refused.contains("the kernel run.kd preloads more than its 24 bytes of arguments"), "{refused}");
}
