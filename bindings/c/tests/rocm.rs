//! Hosts in C of kernels that clang compiled and linked with ROCm's device libraries, on the GPU in software.

mod common;
#[path = "../../../host/hostcall/tests/rocm/compile.rs"]
mod compile;

use common::run;
use hostcall::rocm::{KernelArgument, Version};
use hostcall::services::{Builtins, Sink};
use hostcall::{Device, Grid};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

const LANES: u64 = 1000;

/// The example, linked with the shared library.
static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| common::compile("examples/rocm.c", &common::shared()));

/// Returns the path of a file of kernels, compiled.
fn code_object(source: &'static str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostcall-c-{source}.co"));
    std::fs::write(&path, compile::compile(source, 5, "-O2")).expect("the file is written");
    path
}

static KERNELS: LazyLock<PathBuf> = LazyLock::new(|| code_object("kernels.hip"));

/// What the example prints, sorted.
fn lines(printed: &str) -> Vec<String> {
    let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_host_in_c_does_what_one_in_rust_does() {
    let (text, called) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<Mutex<u64>>::default());
    let (written, count) = (text.clone(), called.clone());
    let sink = Sink::callback(move |_, text| written.lock().unwrap().extend_from_slice(text));
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let device = Device::builder("gfx942").builtins(builtins).open().unwrap();
    let function = device.rocm_services().register_function(move |words| {
        *count.lock().unwrap() += 1;
        [words[0] * 10 + words[1], words[0] + words[1]]
    });
    let function = function.unwrap();
    let code = device.load_code_object(&*KERNELS, Version::Stacks).unwrap();
    let stream = device.stream().unwrap();
    let grid = Grid::new(LANES.div_ceil(256) as u32, 256);
    let sums = device.alloc_zeroed::<u64>(LANES as usize).unwrap();
    let lengths = device.alloc_zeroed::<i32>(LANES as usize).unwrap();
    let lanes = KernelArgument::value(LANES);
    let of_calls = [
        KernelArgument::buffer(&sums),
        lanes.clone(),
        KernelArgument::value(function),
        KernelArgument::value(3u64),
    ];
    // SAFETY: the kernels take these, and write a number for each of the lanes at most.
    unsafe {
        code.kernel("calls").unwrap().launch(&stream, grid, &of_calls).unwrap();
        let lines = code.kernel("lines").unwrap();
        lines.launch(&stream, grid, &[KernelArgument::buffer(&lengths), lanes]).unwrap();
    }
    stream.synchronize().unwrap();
    device.builtins().stdio().flush().unwrap();
    let called = *called.lock().unwrap();
    let (sum, length): (u64, i32) = (sums.read().unwrap().iter().sum(), lengths.read().unwrap().iter().sum());
    let printed = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let expected = format!("{printed}{called} calls, sum {sum}, {length} characters\n");
    assert!(called > 2000 && length > 10_000);

    let mut host = Command::new(&*EXAMPLE);
    host.arg("gfx942").arg(&*KERNELS).arg(LANES.to_string());
    assert_eq!(lines(&run(&mut host)), lines(&expected));
}

#[test]
fn what_cannot_be_is_refused_and_told() {
    let host = common::compile("tests/c/rocm_checks.c", &common::shared());
    let mut host = Command::new(host);
    assert_eq!(run(host.arg(&*KERNELS).arg(code_object("arguments.cl"))), "passed\n");
}

/// A small grid: under valgrind the GPU in software takes its time.
#[test]
fn a_host_has_no_error_under_valgrind() {
    let mut command = common::valgrind();
    command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]).arg(&*EXAMPLE);
    run(command.arg("gfx942").arg(&*KERNELS).arg("70"));
}
