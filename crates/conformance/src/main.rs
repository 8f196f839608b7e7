//! Runs the conformance suite on a device. The long stress test is
//! `cargo run --release -p hostcall-conformance -- --stress 10000000`, about a minute on two cores.
#![forbid(unsafe_code)]

use clap::Parser;
use hostcall_conformance::{CASES, Case, Context, Outcome, stress};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
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
    /// Only cases whose name contains one of these, with commas between them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Instead of the cases: makes so many calls of all kinds, from 1,056 waves at once.
    #[arg(long, value_name = "CALLS")]
    stress: Option<u64>,
    /// Runs also those cases in this process after which it cannot use a GPU any more.
    #[arg(long, hide = true)]
    in_this_process: bool,
}

/// Runs one case in a process of its own.
fn run_apart(case: &Case, context: &Context) -> Outcome {
    let run = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--in-this-process", "--only", case.name, "--device", &context.device]);
        if let Some(image) = &context.image {
            command.arg("--image").arg(image);
        }
        command.output()
    };
    let output = run().map_err(|error| format!("cannot run it in a process of its own: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&text).trim()))
}

fn main() -> ExitCode {
    let Options { device, image, wave_size, only, stress, in_this_process } = Options::parse();
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
    let chosen = |case: &&Case| only.is_empty() || only.iter().any(|part| case.name.contains(part));
    for case in CASES.iter().filter(chosen) {
        let start = Instant::now();
        let apart = case.is_fatal() && !context.is_software() && !in_this_process;
        let outcome = if apart { run_apart(case, &context) } else { context.run(case.run) };
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
