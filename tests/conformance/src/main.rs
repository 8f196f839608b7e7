//! Runs the conformance suite on a device. The long tests, each of which ends at its first failure with a report:
//! - `cargo run --release -p hostcall-conformance -- --stress 10000000`: about a minute on two cores;
//! - `-- --repeat 100`: the whole suite, set up otherwise each time;
//! - `-- --cancels 1000000`: launches cancelled at random moments;
//! - `-- --streams 100000`: random work on streams beside a model of what must have ended;
//! - `-- --replays 100000`: replays of a graph whose kernels call, and what memory is left of them;
//! - `-- --foreign 1000000`: replays of kernels of another compiler, whatever becomes of their handlers.
#![deny(unsafe_code)]

use clap::Parser;
use hostcall_conformance::repeat::repeat;
use hostcall_conformance::{CASES, Case, Context, Outcome, cancels, foreign, replays, streams, stress};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Runs every conformance case on a device, or the stress test.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The device. Several, with commas between them, run the cases at once, each all of them, in one process.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    device: Vec<String>,
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
    /// Runs the cases so many times, and ends at the first failure. On the software device each time has a wave size and
    /// faults of its own, which its seed says.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["stress", "cancels", "wave_size"])]
    repeat: Option<u64>,
    /// Instead of the cases: cancels so many launches at random moments, while their lanes wait in every way.
    #[arg(long, value_name = "LAUNCHES", conflicts_with_all = ["stress", "wave_size", "only"])]
    cancels: Option<u64>,
    /// Instead of the cases: replays a graph whose kernels call so many times, and looks whether memory grows.
    #[arg(long, value_name = "REPLAYS", conflicts_with_all = ["stress", "cancels", "repeat", "wave_size", "only"])]
    replays: Option<u64>,
    /// Instead of the cases: replays a graph of kernels that another compiler made so many times, while handlers fail, wait, are
    /// cancelled and go away, and looks whether slots, pages and memory are as before.
    #[arg(long, value_name = "REPLAYS", conflicts_with_all = ["stress", "cancels", "replays", "repeat", "wave_size", "only"])]
    foreign: Option<u64>,
    /// Kernels for `--foreign` that were compiled of bindings/c/tests/c/turn_kernels.hip, in place of the suite's own.
    #[arg(long, value_name = "FILE", requires = "foreign")]
    foreign_code: Option<PathBuf>,
    /// Instead of the cases: so many rounds of random work on several streams, beside a model that says what must have ended.
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["stress", "cancels", "replays", "foreign", "repeat", "wave_size", "only"])]
    streams: Option<u64>,
    /// The first seed of `--repeat`, `--cancels` and `--streams`.
    #[arg(long, default_value_t = 0)]
    seed: u64,
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

/// Prints what a long test did, or its failure. The process ends at once: a test that hangs has threads that do not.
fn end(name: &str, outcome: Result<String, String>) -> ! {
    let code = match outcome {
        Ok(done) => {
            println!("{done}");
            0
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn main() -> ExitCode {
    #[allow(unsafe_code, reason = "prepares the environment")]
    // SAFETY: the first statement of `main`: no other thread runs.
    unsafe {
        hostcall::device::prepare_environment();
    }
    let options = Options::parse();
    let Options { device, image, wave_size, only, stress, repeat: times, cancels, .. } = options;
    let Options { replays, foreign, foreign_code, streams, seed, in_this_process, .. } = options;
    let of_device = |device| Context { device, image: image.clone(), wave_size, ..Context::default() };
    let contexts: Vec<Context> = device.into_iter().map(of_device).collect();
    let context = contexts[0].clone();
    if contexts.len() > 1 && [stress, times, cancels, replays, foreign, streams].iter().any(Option::is_some) {
        end("devices", Err("the long tests take one device".to_owned()));
    }
    if let Some(calls) = stress {
        let load = stress::Load { calls, rounds: 200, workgroups: 264 };
        end("stress", stress::run(&context, load).map(|done| done.to_string()));
    }
    if let Some(launches) = cancels {
        end("cancels", cancels::run(&context, seed, launches).map(|done| done.to_string()));
    }
    if let Some(count) = replays {
        end("replays", replays::run(&context, count).map(|done| done.to_string()));
    }
    if let Some(count) = foreign {
        let code = foreign_code
            .map(|file| std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display())));
        let outcome = code.transpose().and_then(|code| foreign::run(&context, count, code));
        end("foreign", outcome.map(|done| done.to_string()));
    }
    if let Some(rounds) = streams {
        end("streams", streams::run(&context, seed, rounds).map(|done| done.to_string()));
    }
    let chosen = |case: &&Case| only.is_empty() || only.iter().any(|part| case.name.contains(part));
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let run_case = |case: &Case, context: &Context| {
        let apart = case.is_fatal() && !context.is_software() && !in_this_process;
        if apart { run_apart(case, context) } else { context.run(case.run) }
    };
    if let Some(times) = times {
        let outcome = match cases.len() {
            0 => Err("no case has such a name".to_owned()),
            count => repeat(&context, (seed, times), &cases, run_case)
                .map(|()| format!("{count} cases passed {times} times on {}", context.device)),
        };
        end("repeat", outcome);
    }
    let run_all = |context: &Context| {
        let mut failed = 0;
        let device = if contexts.len() > 1 { format!(" on {}", context.device) } else { String::new() };
        for case in &cases {
            let start = Instant::now();
            let outcome = run_case(case, context);
            let seconds = start.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => println!("ok      {}{device} ({seconds:.2} s)", case.name),
                Err(error) => {
                    failed += 1;
                    println!("FAILED  {}{device} ({seconds:.2} s): {error}", case.name);
                }
            }
        }
        println!("{} cases on {}, {failed} failed", cases.len(), context.device);
        failed
    };
    let failed: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> =
            contexts.iter().skip(1).map(|context| scope.spawn(|| run_all(context))).collect();
        let first = run_all(&context);
        first + threads.into_iter().map(|thread| thread.join().unwrap_or(1)).sum::<u32>()
    });
    if failed == 0 && !cases.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
