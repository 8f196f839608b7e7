//! `hostcall run`: one program from start to end.

use crate::arguments::RunOptions;
use crate::{Outcome, complain, image};
use hostcall::device::{Error, LoadedKernel};
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchFailure};
use hostcall_build::Target;
use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Exit code of a program that panicked, as of a Rust process.
const PANICKED: i32 = 101;

/// Exit code of a timeout, as of `timeout` of coreutils.
const TIMED_OUT: i32 = 124;

/// What the exit code of a process that a signal ends is above.
const BY_SIGNAL: i32 = 128;

/// How long a cancelled program may take to end. The software device ends lanes by force after a second.
const GRACE: Duration = Duration::from_secs(2);

/// Calls that a report names one by one.
const MAX_NAMED: usize = 16;

/// What ends the wait for the program.
enum Event {
    Ended(Result<(), Error>),
    Signal(i32),
    /// Nobody reads standard output any more.
    BrokenPipe,
}

/// Runs the program that the options name.
///
/// # Errors
/// A sentence, when it cannot be run.
pub fn run(options: RunOptions) -> Outcome {
    let (sender, events) = mpsc::channel();
    let dir = options.dir.display();
    let builtins = options
        .env
        .iter()
        .fold(Builtins::builder(), |builtins, (name, value)| builtins.env(name, value))
        .dir(&options.dir)
        .args(&options.program)
        .stdout(Stdout(sender.clone()))
        .build()
        .map_err(|error| format!("cannot open the folder {dir}: {error}"))?;
    let device = Device::builder(&options.device)
        .wave_size(options.wave)
        .builtins(builtins)
        // A program may wait for its input as long as it likes.
        .server(|server| server.stall_report(Duration::MAX, |_| ()))
        .open()?;

    let kernel =
        device.load(image::find(&options.program[0], &Target::parse(&device.target())?)?)?.kernel("main")?;
    let grid = grid(&kernel, &options);
    start(&device, &kernel, grid, sender)?;
    wait(&device, grid, options.timeout, &events)
}

fn grid(kernel: &LoadedKernel, options: &RunOptions) -> Grid {
    let one_dimension = |size: u64| [u32::try_from(size).unwrap_or(u32::MAX).max(1), 1, 1];
    let info = kernel.info();
    Grid::new_3d(
        options.blocks.unwrap_or_else(|| one_dimension(info.default_workgroups)),
        options.threads.unwrap_or_else(|| one_dimension(info.default_lanes)),
    )
}

/// Launches the program, and has its end and signals sent to the channel of `sender`.
fn start(device: &Device, kernel: &LoadedKernel, grid: Grid, sender: Sender<Event>) -> Result<(), Error> {
    let no_thread = |error: io::Error| Error::Device(format!("cannot watch for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(no_thread)?;
    let for_signals = sender.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // The receiver is gone when the process is about to end.
            let _ = for_signals.send(Event::Signal(signal));
        }
    });

    let stream = device.stream()?;
    kernel.launch(&stream, grid)?;
    let device = device.clone();
    std::thread::spawn(move || {
        let result = stream.synchronize();
        device.builtins().stdio().flush();
        let _ = sender.send(Event::Ended(result));
    });
    Ok(())
}

fn wait(device: &Device, grid: Grid, timeout: Option<Duration>, events: &Receiver<Event>) -> Outcome {
    let event = match timeout {
        Some(timeout) => events.recv_timeout(timeout),
        None => events.recv().map_err(Into::into),
    };
    let (code, why) = match event {
        Ok(Event::Ended(result)) => return Ok(exit_code(device, result)),
        Ok(Event::BrokenPipe) => (BY_SIGNAL + SIGPIPE, None),
        Ok(Event::Signal(signal)) => (BY_SIGNAL + signal, Some("interrupted".to_owned())),
        Err(RecvTimeoutError::Timeout) => {
            let seconds = timeout.unwrap_or_default().as_secs_f64();
            (TIMED_OUT, Some(format!("the program did not end within {seconds} s")))
        }
        Err(RecvTimeoutError::Disconnected) => unreachable!("the signals' thread keeps the channel open"),
    };
    if let Some(why) = why {
        complain(format!("{why}: {}", report(device, grid)));
    }
    device.cancel_all();
    // A second signal ends the wait too.
    let _ = events.recv_timeout(GRACE);
    Ok(code)
}

fn exit_code(device: &Device, result: Result<(), Error>) -> i32 {
    let Err(error) = result else { return device.exit_code().unwrap_or(0) };
    complain(&error);
    match error {
        Error::Launch { failure: LaunchFailure::Panicked(_), .. } => PANICKED,
        _ => 1,
    }
}

/// What the lanes of the launch wait for.
fn report(device: &Device, grid: Grid) -> String {
    let stalls = device.waiting();
    if stalls.is_empty() {
        let lanes: u64 = grid.workgroups.iter().chain(&grid.lanes).map(|n| u64::from(*n)).product();
        let lanes = if lanes == 1 { "1 lane runs".into() } else { format!("{lanes} lanes run") };
        return format!("{lanes} without waiting for a call");
    }
    let mut report = format!("{} call(s) wait for the host", stalls.len());
    for stall in stalls.iter().take(MAX_NAMED) {
        report += &format!("\n  {stall}");
    }
    if stalls.len() > MAX_NAMED {
        report += &format!("\n  and {} more", stalls.len() - MAX_NAMED);
    }
    report
}

/// The process's standard output, which tells when nobody reads it any more.
struct Stdout(Sender<Event>);

impl Stdout {
    fn told<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            let _ = self.0.send(Event::BrokenPipe);
        }
        result
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.told(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.told(io::stdout().flush())
    }
}
