//! Counts how often each byte occurs in a text: each workgroup in its own memory, then all of them in the device's.
//!
//! `cargo run --release -p hostcall --example histogram -- [FILE]`
//!
//! Counting in workgroup memory first keeps lanes from waiting for each other at the same few words of the device's memory.
//! The result is compared with the host's.

use hostcall::atomic::Scope;
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Shared, kernel};
use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;

/// Adds the bytes' counts to `counts`.
#[kernel]
fn count_bytes(lane: &Lane, #[workgroup] own: &[Shared<u32>; 256], bytes: &[u8], counts: &[Global<u32>]) {
    let [width, ..] = lane.workgroup_size();
    for value in (lane.local_id()..256).step_by(width as usize) {
        own[value].set(0);
    }
    lane.barrier();
    for byte in bytes.iter().skip(lane.global_id()).step_by(lane.grid_lanes()) {
        own[*byte as usize].fetch_add(1, Relaxed);
    }
    lane.barrier();
    for value in (lane.local_id()..256).step_by(width as usize) {
        match own[value].get() {
            0 => {}
            sum => _ = counts[value].fetch_add(sum, Relaxed, Scope::Device),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let file =
        std::env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into());
    let text = std::fs::read(file)?;
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let (bytes, counts) = (device.upload(&text)?, device.alloc_zeroed::<u32>(256)?);
    count_bytes.launch(&stream, Grid::new(16, 128), (&bytes, &counts))?;
    stream.synchronize()?;
    let counts = counts.read()?;
    let mut expected = vec![0u32; 256];
    text.iter().for_each(|byte| expected[*byte as usize] += 1);
    if counts != expected {
        return Err("the host counts otherwise".into());
    }
    let mut letters: Vec<(u32, char)> =
        (0u8..=255).map(|byte| (counts[byte as usize], char::from(byte))).collect();
    letters.sort_unstable_by(|a, b| b.cmp(a));
    letters.iter().take(8).for_each(|(times, letter)| println!("{times:8} {letter:?}"));
    Ok(())
}
