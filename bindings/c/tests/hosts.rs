//! Hosts in C, Python and Rust of the same kernels.

mod common;

use common::{CONFORMANCE, IMAGE, Store, library, run, source};
use hostcall::{Device, Grid};
use inventory::{Inventory, outcome};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const LANES: usize = 300;

/// The example in C, linked with the shared library.
static INVENTORY: LazyLock<PathBuf> =
    LazyLock::new(|| common::compile("examples/inventory.c", &common::shared()));

/// What hosts in C do besides.
static WORK: LazyLock<PathBuf> = LazyLock::new(|| common::compile("tests/c/work.c", &common::shared()));

/// Graphs with bodies, and what their replays tell.
static GRAPHS: LazyLock<PathBuf> = LazyLock::new(|| common::compile("tests/c/graphs.c", &common::shared()));

/// What the host in Rust prints.
static EXPECTED: LazyLock<String> = LazyLock::new(|| {
    let store = Store::default();
    let device = Device::builder("cpu").service(Inventory::serve(store.clone())).open().unwrap();
    let image = device.load(&*IMAGE).unwrap();
    let stream = device.stream().unwrap();
    let keys: Vec<u64> = (0..LANES as u64).map(|i| if i % 4 == 3 { i } else { i + 1 }).collect();
    let to: Vec<u64> = keys.iter().map(|key| key % 3 + 1).collect();
    let (keys, to) = (device.upload(&keys).unwrap(), device.upload(&to).unwrap());
    let outcomes = device.alloc_zeroed::<u32>(LANES).unwrap();
    let grid = Grid::new(LANES.div_ceil(64) as u32, 64);
    use hostcall::LaunchKernel;
    image.typed(&inventory::stock).unwrap().launch(&stream, grid, (&keys, 10, &outcomes)).unwrap();
    let transfer = image.typed(&inventory::transfer).unwrap();
    transfer.launch(&stream, grid, (&keys, &to, 3, &outcomes)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(outcomes.read().unwrap(), [outcome::MOVED; LANES]);
    let mut text = String::new();
    for (key, (name, amount)) in &*store.0.lock().unwrap() {
        writeln!(text, "{key} {name}: {amount}").unwrap();
    }
    text
});

/// The lines that the host itself prints at the end, after those of kernels.
fn table(printed: &str) -> String {
    let of_host = |line: &&str| !line.starts_with("added ") && !line.starts_with("found ");
    printed.lines().filter(of_host).fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn a_host_in_c_does_what_one_in_rust_does() {
    let printed = run(Command::new(&*INVENTORY).arg(&*IMAGE).arg(LANES.to_string()));
    assert_eq!(table(&printed), *EXPECTED);
}

#[test]
fn the_static_library_does_it_as_well() {
    let libraries = [library("libhostcall_c.a").into(), "-ldl".into(), "-lm".into(), "-lgcc_s".into()];
    let host = common::compile_as("inventory-static", "examples/inventory.c", &libraries);
    assert_eq!(table(&run(Command::new(host).arg(&*IMAGE).arg(LANES.to_string()))), *EXPECTED);
}

#[test]
fn a_host_in_python_does_it_as_well() {
    let mut host = Command::new("python3");
    host.arg(source("examples/host.py")).arg(library("libhostcall_c.so")).arg(&*IMAGE).arg(LANES.to_string());
    assert_eq!(table(&run(&mut host)), *EXPECTED);
}

#[test]
fn what_cannot_be_is_refused_and_told() {
    let host = common::compile("tests/c/checks.c", &common::shared());
    assert_eq!(run(Command::new(host).arg(&*IMAGE)), "passed\n");
}

#[test]
fn closures_pinned_memory_functions_graphs_and_traces_do_their_work() {
    let trace = WORK.with_extension("trace");
    assert_eq!(run(Command::new(&*WORK).arg(&*CONFORMANCE).arg(&trace)), "passed\n");
    let file = std::fs::File::open(&trace).expect("the trace is there");
    let mut reader = hostcall::trace::Reader::new(file).expect("it is a trace");
    let calls = reader.by_ref().filter(|event| matches!(event, Ok(hostcall::trace::Event::Call(_)))).count();
    assert!(reader.is_complete() && calls > 0);
}

/// The service that the kernels call has a number that comes from its name.
fn number_of_turns() -> String {
    conformance::graphs::Turns::METHODS[0].number().to_string()
}

#[test]
fn conditions_decide_about_bodies_and_replays_tell_what_fails() {
    assert_eq!(run(Command::new(&*GRAPHS).arg(&*CONFORMANCE).arg(number_of_turns())), "passed\n");
}

#[test]
fn what_has_ended_is_known_although_a_kernel_behind_it_waits() {
    let host = common::compile("tests/c/progress.c", &common::shared());
    assert_eq!(run(Command::new(host).arg(&*CONFORMANCE).arg(number_of_turns())), "passed\n");
}

/// A device's signal handlers stay when the library is unloaded: so does the library.
#[test]
fn a_program_that_unloads_the_library_goes_on() {
    let host = common::compile("tests/c/unload.c", &["-ldl".into()]);
    assert_eq!(run(Command::new(host).arg(library("libhostcall_c.so"))), "passed\n");
}

/// Valgrind counts 48 bytes of std's as possibly lost: a thread that ended has them.
#[test]
fn the_example_has_no_leak_and_no_error() {
    let flags = ["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"];
    for lanes in ["none", "100", "300"] {
        run(common::valgrind().args(flags).arg(&*INVENTORY).arg(&*IMAGE).arg(lanes));
    }
}

/// Leaks are not looked for: lanes panic, and what an image's statics point to then is lost when it is unloaded.
#[test]
fn a_host_whose_lanes_panic_has_no_error() {
    let trace = WORK.with_extension("valgrind");
    run(common::valgrind().arg("--leak-check=no").arg(&*WORK).arg(&*CONFORMANCE).arg(trace));
    run(common::valgrind().arg("--leak-check=no").arg(&*GRAPHS).arg(&*CONFORMANCE).arg(number_of_turns()));
}
