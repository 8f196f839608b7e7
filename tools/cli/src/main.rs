//! The `hostcall` command: builds and runs device programs, measures, and reads traces. The longer subcommands are
//! modules of their names (`run`, `new`, `trace`, `bench`); `arguments` reads what they share.
//!
//! A program's standard streams and exit code are the command's own. What is wrong is told in one sentence on the
//! standard error, with exit code 1 or, for options, 2; `hostcall --help` lists all codes.

#![deny(unsafe_code)]

mod arguments;
mod bench;
mod cc;
mod image;
mod llvm;
mod new;
mod output;
mod report;
mod run;
mod serve;
mod top;
mod trace;
mod wait;
mod waits;

use crate::output::Stdout;
use arguments::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use hostcall_trace::escaped;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, exit};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Adds numbers that other processes have said, which may be any.
fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// What a subcommand ends with: an exit code, or a sentence for standard error.
type Outcome = Result<i32, Box<dyn Error>>;

/// Exit code of wrong usage.
const USAGE: i32 = 2;

fn main() {
    // A file that must not grow is then an error of whoever writes it. What is started here has the signal as it was.
    if let Err(error) = signal_hook::flag::register(libc::SIGXFSZ, Arc::default()) {
        complain(run::no_watch(error));
    }
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => match arguments.command {
            Command::Run(options) => {
                if options.report.is_some() {
                    report::begin();
                }
                report::print(run::run(*options))
            }
            Command::Build { target, report, build, program } => {
                let program = image::package_around(program);
                build_image(&build.request(program, target.clone()), &target, report)
            }
            Command::Cc { arguments } => cc::run(arguments),
            Command::Bind { file, python, service } => bind(&file, python, service.as_deref()),
            Command::New { app: false, name } => new::package(&name),
            Command::New { app: true, name } => new::app(&name),
            Command::Trace(command) => trace::run(command),
            Command::Serve(options) => serve::run(options),
            Command::Top { pids, every } => top::run_processes(pids, every),
            Command::Waits { json, pids } => waits::run(&pids, json),
            Command::Collect { arguments } => collect(&arguments),
            Command::Devices { verbose } => devices(verbose),
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
    let text = visible(&error.to_string());
    if !report::keep(&text) {
        // Nobody can be told that standard error is closed.
        let _ = writeln!(io::stderr(), "hostcall: {text}");
    }
}

/// A text whose control characters a terminal does not obey, but for lines and tabs: a program may have said it.
fn visible(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']).map(|part| match part.char_indices().next_back() {
        Some((at, end @ ('\n' | '\t'))) => format!("{}{end}", escaped(&part[..at])),
        _ => escaped(part).into_owned(),
    });
    parts.collect()
}

/// How long a wait for somebody else is not told of.
const TELL_AFTER: Duration = Duration::from_millis(500);

/// Does what waits for the other end of a file that is a pipe, and says so when it does.
fn telling<T>(pipe: &Path, what: String, work: impl FnOnce() -> T) -> T {
    if !pipe.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    let tell = move || {
        if is_done.recv_timeout(TELL_AFTER) == Err(RecvTimeoutError::Timeout) {
            complain(what);
        }
    };
    // Where the system starts no thread, nothing is said.
    let _ = spawn("hostcall-telling", tell);
    let result = work();
    drop(done);
    result
}

/// Starts a thread.
///
/// # Errors
/// A sentence, where the system starts none.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(|error| {
        let sentence = format!(
            "the system starts no thread: {error}; raise its limit (`ulimit -u`), or end other programs"
        );
        io::Error::new(error.kind(), sentence)
    })
}

/// Prints to standard output, whose reader may be gone.
fn print(text: std::fmt::Arguments<'_>) -> Outcome {
    print_bytes(text.to_string().as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Outcome {
    match Stdout.write_all(bytes).and_then(|()| Stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to the standard output: {error}").into())
        }
        _ => Ok(0),
    }
}

/// Builds a program and prints its path, and what its kernels need if that is asked for.
fn build_image(request: &hostcall_build::Request, target: &hostcall_build::Target, report: bool) -> Outcome {
    if report && *target == hostcall_build::Target::Cpu {
        complain("--report says what kernels need of a GPU: name one with --target, such as sm_90 or gfx942");
        return Ok(USAGE);
    }
    if !report {
        return print_path(&hostcall_build::build(request)?.path);
    }
    let (image, report) = hostcall_build::build_with_report(request)?;
    print_path(&image.path)?;
    print(format_args!("{}", report?))
}

/// Prints a path as the system has it, which need not be UTF-8.
fn print_path(path: &Path) -> Outcome {
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(b'\n');
    print_bytes(&line)
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
    complain(format!("{sentence}{}; `{} --help` says more", suggestion(error), command_meant()));
    Ok(USAGE)
}

/// The command with the subcommands that the user named, whose help has their options.
fn command_meant() -> String {
    let all = Arguments::command();
    let (mut command, mut names) = (&all, all.get_name().to_owned());
    for argument in std::env::args_os().skip(1) {
        let Some(subcommand) = command.find_subcommand(&argument) else { break };
        names += &format!(" {}", subcommand.get_name());
        command = subcommand;
    }
    names
}

/// What the user may have meant, as the parser found it.
fn suggestion(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = kinds.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.clone()),
        // The most similar is the last.
        Some(ContextValue::Strings(names)) => names.last().cloned(),
        _ => None,
    });
    meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"))
}

fn bind(file: &Path, python: bool, service: Option<&str>) -> Outcome {
    let bind = if python { hostcall_build::bind_python } else { hostcall_build::bind_c };
    print(format_args!("{}", bind(file, service)?))
}

/// Becomes the program that collects, which lies beside this one or where the system looks for programs.
fn collect(arguments: &[OsString]) -> Outcome {
    let name = "hostcall-collect";
    let beside =
        std::env::current_exe().ok().map(|own| own.with_file_name(name)).filter(|file| file.is_file());
    let error = process::Command::new(beside.unwrap_or_else(|| name.into())).args(arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no {name} beside this program nor on PATH: `cargo install {name}` installs it")
        }
        _ => format!("cannot run {name}: {error}"),
    }
    .into())
}

fn devices(verbose: bool) -> Outcome {
    let mut lines = String::new();
    for device in hostcall::device::devices() {
        lines += &format!("{:<8} {}", device.name, device.description);
        match device.unavailable {
            Some(why) => lines += &format!(" (not available: {why})\n"),
            None if verbose => lines += &format!("\n{}", details(&device.name)),
            None => lines.push('\n'),
        }
    }
    print(format_args!("{lines}"))
}

/// Says in lines of their own what a device is.
fn details(name: &str) -> String {
    let device = match hostcall::Device::open(name) {
        Ok(device) => device,
        Err(error) => return format!("         cannot be opened: {error}\n"),
    };
    let it = device.properties();
    let own_memory = match it.memory_bytes {
        0 => "none of its own".to_owned(),
        bytes => format!("{} MiB", bytes >> 20),
    };
    let lines = [
        ("built for by", format!("hostcall build --target {}", it.target)),
        ("waves", format!("of {} lanes, {} at a time", it.wave_size, it.resident_waves)),
        (
            "workgroups",
            format!("of {} lanes and {} KiB at most", it.max_workgroup_lanes, it.max_workgroup_bytes >> 10),
        ),
        ("processors", it.multiprocessors.to_string()),
        ("memory", own_memory),
        ("clock", format!("{:.3} MHz", it.clock_hz as f64 / 1e6)),
    ];
    lines.map(|(what, value)| format!("         {what:<13}{value}\n")).concat()
}
