//! Counts how often each byte occurs in a text, and compares the counts with the host's.

use clap::Parser;
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::histogram::count_bytes;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Counts the bytes of a text
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// The text; this program's source if absent
    #[arg(long)]
    file: Option<PathBuf>,
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let text = match &arguments.file {
        Some(file) => {
            std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
        }
        None => include_bytes!("histogram.rs").to_vec(),
    };
    let device = hostcall_examples::device(&arguments.device).open()?;
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
