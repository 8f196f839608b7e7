//! The `hostcall` command: builds and runs device programs.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod image;
mod llvm;
mod package;
mod run;

use arguments::{Arguments, Command};
use clap::Parser;
use clap::error::ErrorKind;
use hostcall_build::{Progress, Request};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::exit;

/// What a subcommand ends with: an exit code, or a sentence for standard error.
type Outcome = Result<i32, Box<dyn Error>>;

/// Exit code of wrong usage.
const USAGE: i32 = 2;

fn main() {
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => match arguments.command {
            Command::Run(options) => run::run(options),
            Command::Build { target, program } => {
                let request =
                    Request { package: program, target, target_dir: None, progress: Progress::Inherit };
                hostcall_build::build(&request)
                    .map_err(Into::into)
                    .and_then(|image| print(format_args!("{}\n", image.path.display())))
            }
            Command::New { name } => package::create(&name),
            Command::Devices => devices(),
            Command::Bench { device, image, device_printf: true, .. } => bench::device_printf(device, image),
            Command::Bench { device, image, json, only, .. } => bench::run(device, image, json, only),
        },
        Err(error) => usage(&error),
    };
    // Not by returning: a service may still wait, for input that nobody reads any more.
    exit(outcome.unwrap_or_else(|error| {
        complain(error);
        1
    }))
}

/// Tells the user what is wrong.
fn complain(error: impl Display) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(io::stderr(), "hostcall: {error}");
}

/// Prints to standard output, whose reader may be gone.
fn print(text: std::fmt::Arguments<'_>) -> Outcome {
    match io::stdout().write_fmt(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}

/// Says in one sentence what the parser says in several lines.
fn usage(error: &clap::Error) -> Outcome {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return print(format_args!("{error}"));
    }
    let text = error.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = io::stderr().write_all(text.as_bytes());
        return Ok(USAGE);
    }
    let first = text.split("\n\n").next().unwrap_or_default();
    let sentence = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    complain(format!("{sentence}; `hostcall --help` says more"));
    Ok(USAGE)
}

fn devices() -> Outcome {
    let mut lines = String::new();
    for device in hostcall::device::devices() {
        lines += &format!("{:<8} {}", device.name, device.description);
        if let Some(why) = device.unavailable {
            lines += &format!(" (not available: {why})");
        }
        lines.push('\n');
    }
    print(format_args!("{lines}"))
}
