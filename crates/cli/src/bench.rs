//! `hostcall bench`.

use crate::{Outcome, print};
use hostcall_bench::{Group, Options, Row, bench};
use std::path::PathBuf;

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
    if !json {
        print(format_args!("{:<32} {:>16} {:>9} {:>16} {:>7}\n", "name", "value", "unit", "floor", "ratio"))?;
    }
    let report = bench(&options, |row| {
        if !json {
            // A reader that has gone is found out by the next line.
            let _ = print(format_args!("{}\n", line(row)));
        }
    })?;
    if json { print(format_args!("{}\n", serde_json::to_string(&report)?)) } else { Ok(0) }
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
