//! Runs the first kernel of a code object with one lane, whose only argument is a buffer of 4096 numbers of 64 bits,
//! and prints the first of them.

use std::sync::Arc;

use hostcall_softhsa::device::Running;
use hostcall_softhsa::load::{CodeObject, Loaded};
use hostcall_softhsa::memory::{Memory, Use};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give the file of a code object")?;
    let lanes: u32 = arguments.next().map_or(Ok(1), |lanes| lanes.parse())?;
    let object = CodeObject::read(&std::fs::read(path)?)?;
    let memory = Arc::new(Memory::new());
    let running = Running::start(Arc::clone(&memory), 2)?;
    let loaded = Loaded::load(running.device(), object)?;
    let kernel = loaded.object.kernels.values().next().ok_or("the code object has no kernel")?;
    let buffer = memory.allocate(8 * 4096, Use::Pool).ok_or("no memory")?;
    let kernarg = memory.allocate(kernel.kernarg_bytes as usize + 64, Use::Pool).ok_or("no memory")?;
    memory.view().store_u64(kernarg, buffer)?;
    let spec = loaded.launch_spec(kernel, kernarg, [lanes, 1, 1], [lanes.min(256), 1, 1]);
    let outcome = running.device().run(spec);
    if let Err(failure) = outcome {
        eprintln!("{failure}");
        std::process::exit(1);
    }
    println!("{:016x}", memory.view().load_u64(buffer)?);
    for index in 1..4000 {
        if std::env::var_os("TRACE").is_some() {
            println!("{index} {:016x}", memory.view().load_u64(buffer + 8 * index)?);
        }
    }
    Ok(())
}
