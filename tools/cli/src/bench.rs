//! `hostcall bench`.

use crate::output::Stdout;
use crate::wait::BY_SIGNAL;
use crate::{Outcome, complain, print};
use hostcall_bench::{Group, Options, Row, bench};
use signal_hook::consts::SIGPIPE;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::exit;

fn options(device: String, image: Option<PathBuf>) -> Options {
    Options { device, image, repeats: 5, only: Vec::new() }
}

/// Prints by the driver's `printf`, and says on standard error how many lines a second.
pub fn device_printf(device: String, image: Option<PathBuf>) -> Outcome {
    eprintln!("{}", hostcall_bench::device_printf(&options(device, image))?);
    Ok(0)
}

/// The names of all benchmarks.
pub fn group_names() -> String {
    Group::ALL.map(Group::name).join(", ")
}

/// The benchmarks of this name.
///
/// # Errors
/// When there are none.
pub fn group(name: &str) -> Result<Group, String> {
    let group = Group::ALL.into_iter().find(|group| group.name() == name);
    group.ok_or_else(|| format!("there are: {}", group_names()))
}

/// Measures the device; one line a figure, or one JSON object.
pub fn run(device: String, image: Option<PathBuf>, json: bool, only: Vec<Group>) -> Outcome {
    let options = Options { only, ..options(device, image) };
    let mut head =
        Some(format!("{:<32} {:>16} {:>9} {:>16} {:>7}\n", "name", "value", "unit", "floor", "ratio"));
    let report = bench(&options, |row| {
        if !json {
            print_or_exit(&format!("{}{}\n", head.take().unwrap_or_default(), line(row)));
        }
    })?;
    if cfg!(debug_assertions) {
        complain("this build is not optimised: build with `--release` for figures that say something");
    }
    if json { print(format_args!("{}\n", serde_json::to_string(&report)?)) } else { Ok(0) }
}

/// Prints a figure, or ends the command: what nobody gets needs no measuring.
fn print_or_exit(text: &str) {
    if let Err(error) = Stdout.write_all(text.as_bytes()).and_then(|()| Stdout.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(BY_SIGNAL + SIGPIPE);
        }
        complain(format!("cannot write to the standard output: {error}"));
        exit(1);
    }
}

fn line(row: &Row) -> String {
    let number = |value: f64| {
        if value < 10.0 {
            format!("{value:.3}")
        } else if value < 1e5 {
            format!("{value:.1}")
        } else {
            format!("{value:.3e}")
        }
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    format!(
        "{:<32} {:>16} {:>9} {:>16} {:>7}",
        row.name,
        number(row.value),
        row.unit,
        or_dash(row.floor.map(number)),
        or_dash(row.ratio.map(|ratio| format!("{ratio:.2}")))
    )
}
