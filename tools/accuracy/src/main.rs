//! Prints how far hostcall's mathematics is from exact results, or what a device computes otherwise than the host.
#![forbid(unsafe_code)]

use clap::Parser;
use hostcall_accuracy::functions::functions;
use hostcall_accuracy::measure::measure_all;
use hostcall_accuracy::progress::Progress;
use hostcall_accuracy::{Real, device};
use hostcall_conformance::Context;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Most points, which take years.
const MOST_POINTS: u64 = 1 << 48;

/// Measures the error of the functions of `hostcall::math` against MPFR, on this machine's processor. With --device,
/// compares a device's results with this processor's bit by bit instead, and measures the errors of the fast forms.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Points of each function.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=MOST_POINTS))]
    points: u64,
    /// Only functions of these names, with commas between them.
    #[arg(long, value_delimiter = ',', conflicts_with = "device")]
    only: Vec<String>,
    /// A device: cpu, cuda:0, amdgpu:0, gfx942.
    #[arg(long)]
    device: Option<String>,
    /// Image of programs/conformance, built for the device; the software device also runs without.
    #[arg(long, requires = "device")]
    image: Option<PathBuf>,
}

/// Returns what is wrong with names that no function of either type has.
fn check_names(only: &[String]) -> Result<(), String> {
    let singles = functions::<f32>().into_iter().map(|function| function.name);
    let known: BTreeSet<_> =
        singles.chain(functions::<f64>().into_iter().map(|function| function.name)).collect();
    match only.iter().find(|name| !known.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<_> = known.into_iter().collect();
            Err(format!("there is no function `{name}`: there are {}", known.join(", ")))
        }
    }
}

/// Prints the errors of a type's functions. Returns how many are larger than documented.
fn measure<T: Real>(options: &Options) -> usize {
    let mut too_large = 0;
    for function in functions::<T>() {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == function.name) {
            continue;
        }
        let (start, points) = (Instant::now(), options.points);
        let progress = Progress::new(format!("{} of {}", function.name, T::NAME), points);
        let worst = measure_all(&function, points, &|done| progress.tell(done));
        drop(progress);
        let is_within = worst.error <= function.bound;
        too_large += usize::from(!is_within);
        println!(
            "{:<16} {:<4} {:>12.4} {:>8} {:>10}  at {} gives {:e}{} ({:.1} s)",
            function.name,
            T::NAME,
            worst.error,
            function.bound,
            points,
            worst.arguments.map(|argument| format!("{:e}", argument.wide())).join(", "),
            worst.result.wide(),
            if is_within { "" } else { "  TOO FAR" },
            start.elapsed().as_secs_f64(),
        );
    }
    too_large
}

/// Prints what differs on a device. Returns how many functions do, or are farther off than documented.
fn compare(device: &str, options: &Options) -> Result<usize, String> {
    let context = Context { device: device.to_owned(), image: options.image.clone(), ..Context::default() };
    let progress = |what: &str| Progress::new(format!("{what} on {device}"), options.points);
    let of_type = progress("f32");
    let mut differences = device::compare_floats(&context, options.points, |done| of_type.tell(done))?;
    drop(of_type);
    let of_type = progress("f64");
    differences.append(&mut device::compare_doubles(&context, options.points, |done| of_type.tell(done))?);
    drop(of_type);
    for (name, difference) in &differences {
        println!("{name:<24} differs at {} points, first {}", difference.points, difference.first);
    }
    println!(
        "{} functions differ between {device} and the host, at {} points",
        differences.len(),
        options.points
    );
    let fast = progress("fast forms");
    let errors = device::measure_fast(&context, options.points, |done| fast.tell(done))?;
    drop(fast);
    for (name, error) in &errors {
        println!("{name:<16} {:>8.3} of its bound: {}", error.of_bound, error.text);
    }
    Ok(differences.len() + errors.iter().filter(|(_, error)| error.of_bound > 1.0).count())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.device {
        Some(device) => compare(device, &options),
        None => check_names(&options.only).map(|()| {
            println!(
                "{:<16} {:<4} {:>12} {:>8} {:>10}",
                "function", "type", "error, ULP", "at most", "points"
            );
            measure::<f32>(&options) + measure::<f64>(&options)
        }),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} functions are not as documented");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("hostcall-accuracy: {error}");
            ExitCode::FAILURE
        }
    }
}
