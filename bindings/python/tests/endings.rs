//! A program that ends as its argument says.
#![no_std]

use hostcall_device::{Lane, env, eprintln, fs::File, println};

#[hostcall_device::main(lanes = 1)]
fn main(lane: &Lane) -> i32 {
    let mut argument = [0; 64];
    match env::arg(1, &mut argument).ok().flatten() {
        Some("says") => {
            println!("hello from {} argument", env::args_count().unwrap_or(0) - 1);
            eprintln!("aside");
            0
        }
        Some("exits") => 7,
        Some("panics") => panic!("lane {} has had enough", lane.global_id()),
        Some("waits") => {
            // Of a pipe that nobody writes.
            let mut bytes = [0; 8];
            File::open("pipe").and_then(|file| file.read(&mut bytes)).is_ok().into()
        }
        _ => loop {
            core::hint::spin_loop();
        },
    }
}
