//! Runs the conformance suite on a device. The long stress test is
//! `cargo run --release -p hostcall-conformance -- --stress 10000000`, about a minute on two cores.
#![forbid(unsafe_code)]

use clap::Parser;
use hostcall_conformance::{CASES, Context, stress};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Runs every conformance case on a device, or the stress test.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The device.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Image of programs/conformance, built for the device; the software device also runs without.
    #[arg(long)]
    image: Option<PathBuf>,
    /// Lanes of the software device's waves.
    #[arg(long, default_value_t = 32)]
    wave_size: u32,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Instead of the cases: makes so many calls of all kinds, from 1,056 waves at once.
    #[arg(long, value_name = "CALLS")]
    stress: Option<u64>,
}

fn main() -> ExitCode {
    let Options { device, image, wave_size, only, stress } = Options::parse();
    let context = Context { device, image, wave_size, ..Context::default() };
    if let Some(calls) = stress {
        return match stress::run(&context, stress::Load { calls, rounds: 200, workgroups: 264 }) {
            Ok(done) => {
                println!("{done}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("stress: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut run, mut failed) = (0, 0);
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        let start = Instant::now();
        let outcome = context.run(case.run);
        let seconds = start.elapsed().as_secs_f64();
        run += 1;
        match outcome {
            Ok(()) => println!("ok      {} ({seconds:.2} s)", case.name),
            Err(error) => {
                failed += 1;
                println!("FAILED  {} ({seconds:.2} s): {error}", case.name);
            }
        }
    }
    println!("{run} cases on {}, {failed} failed", context.device);
    if failed == 0 && run > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
