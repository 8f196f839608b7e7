//! Greets, and says who and where its lanes are.
//!
//! `hostcall run --env NAME=World programs/hello first second`

#![no_std]

use hostcall_device::{CallError, Lane, env, eprintln, println, time};

#[hostcall_device::main(lanes = 8)]
fn main(lane: &Lane) -> i32 {
    if lane.global_id() == 0 && greet().is_err() {
        eprintln!("hello: the host does not answer");
        return 1;
    }
    // The first workgroup's lanes speak after the greeting.
    lane.barrier();
    let [workgroup, ..] = lane.workgroup();
    println!(
        "lane {} of the grid: lane {} of wave {} of workgroup {}",
        lane.global_id(),
        lane.index(),
        lane.wave(),
        workgroup
    );
    0
}

fn greet() -> Result<(), CallError> {
    let mut name = [0; 256];
    println!("Hello, {}!", env::var("NAME", &mut name)?.unwrap_or("World"));
    let now_s = time::now_ns()? / 1_000_000_000;
    println!("It is {} seconds after the start of 1970.", now_s);
    for index in 0..env::args_count()? {
        let mut argument = [0; 1024];
        if let Some(argument) = env::arg(index, &mut argument)? {
            println!("argument {}: {}", index, argument);
        }
    }
    Ok(())
}
