//! Measures the interpreter: instructions of waves in a second, by kind of code and by lanes of a wave.
//!
//! ```sh
//! cargo run --release -p hostcall-softhsa --example throughput
//! ```

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use hostcall_softhsa::device::Running;
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::{Memory, Use};

/// Threads of the device.
const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = std::env::temp_dir().join(format!("softhsa-speed-{}", std::process::id()));
    let mut clang = Command::new("clang-22");
    clang.args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O2", "-std=gnu11", "-w"]);
    if !clang.arg(folder.join("examples/throughput/kernels.c")).arg("-o").arg(&binary).status()?.success() {
        return Err("clang-22 fails".into());
    }
    let object = CodeObject::read(&std::fs::read(&binary)?)?;
    std::fs::remove_file(&binary)?;
    let memory = Arc::new(Memory::new());
    let running = Running::start(Arc::clone(&memory), THREADS)?;
    let loaded = Loaded::load(running.device(), object)?;
    let buffer = memory.allocate(256 << 20, Use::Pool).ok_or("no memory")?;
    let kernarg = memory.allocate(4096, Use::Pool).ok_or("no memory")?;
    let text: Vec<u8> = b"Some words, and\nmore of them. ".iter().copied().cycle().take(1 << 20).collect();
    for part in 0..100 {
        memory.view().write(buffer + (1 << 18) + (part << 20), &text)?;
    }
    println!("kernel     lanes  argument   seconds  M instructions/s");
    let cases = [
        ("integers", 64, 1_000_000),
        ("integers", 4096, 50_000),
        ("integers", 1, 2_000_000),
        ("floats", 4096, 20_000),
        ("local", 4096, 5_000),
        ("words", 1, 1 << 20),
        ("words", 512, 100 * 2048),
        ("gather", 32_768, 32_768),
    ];
    for (name, lanes, argument) in cases {
        memory.view().store_u32(buffer, 0)?;
        memory.view().store_u64(kernarg, buffer)?;
        memory.view().store_u32(kernarg + 8, argument)?;
        let kernel = &loaded.object.kernels[&format!("{name}.kd")];
        let spec = loaded.launch_spec(kernel, kernarg, [lanes, 1, 1], [lanes.min(256), 1, 1]);
        let before = running.device().executed();
        let start = Instant::now();
        running.device().run(spec)?;
        let seconds = start.elapsed().as_secs_f64();
        let executed = running.device().executed() - before;
        println!("{name:9} {lanes:6} {argument:9} {seconds:9.3} {:9.1}", executed as f64 / seconds / 1e6);
    }
    Ok(())
}
