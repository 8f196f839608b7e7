//! `hostcall run`: one program from start to end.

use crate::arguments::RunOptions;
use crate::image::Program;
use crate::{Outcome, complain, llvm};
use hostcall::device::{Error, LoadedKernel};
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchFailure};
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
pub const BY_SIGNAL: i32 = 128;

/// How long a cancelled program may take to end. The software device ends lanes by force after a second.
const GRACE: Duration = Duration::from_secs(2);

/// Calls that a report names one by one.
const MAX_NAMED: usize = 16;

/// What ends the wait for the program.
pub enum Event {
    /// With its exit code.
    Ended(Result<i32, Error>),
    Signal(i32),
    /// Nobody reads standard output any more.
    BrokenPipe,
    /// The program did what it must not, and cannot go on.
    Broken(String),
}

/// Runs the program that the options name.
///
/// # Errors
/// A sentence, when it cannot be run.
pub fn run(options: RunOptions) -> Outcome {
    let (sender, events) = mpsc::channel();
    let program = Program::find(&options.program[0])?;
    let device = match &options.device {
        Some(device) => device.clone(),
        None => program.device()?,
    };
    let device = open(&device, &program, &options, sender.clone())?;
    let image = program.image_for(&device)?;
    let started = match program {
        Program::Llvm(..) => llvm::start(&device, &image, &options, sender),
        Program::Package(_) | Program::Image(..) => {
            let kernel = device.load(image)?.kernel("main")?;
            start(&device, &kernel, &options, sender)
        }
    };
    wait(&device, &started?, options.timeout, &events)
}

/// A program that runs.
pub struct Started {
    pub grid: Grid,
    /// Its calls can be cancelled, and the device tells what it waits for.
    pub can_cancel: bool,
}

fn open(name: &str, program: &Program, options: &RunOptions, sender: Sender<Event>) -> Result<Device, Error> {
    let dir = options.dir.display();
    let builtins = options
        .variables()
        .into_iter()
        .fold(Builtins::builder(), |builtins, (name, value)| builtins.env(name, value))
        .dir(&options.dir)
        .args(&options.program)
        .stdout(Stdout(sender))
        .build()
        .map_err(|error| Error::Device(format!("cannot open the folder {dir}: {error}")))?;
    let mut device = Device::builder(name)
        .wave_size(options.wave)
        .builtins(builtins)
        // A program may wait for its input as long as it likes.
        .server(|server| server.stall_report(Duration::MAX, |_| ()));
    if let Program::Llvm(..) = program {
        // It makes no calls by the device's own channel.
        device = device.slots(1);
    }
    device.open()
}

/// Has signals sent to the channel of `sender`.
pub fn watch_signals(sender: Sender<Event>) -> Result<(), Error> {
    let no_thread = |error: io::Error| Error::Device(format!("cannot watch for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(no_thread)?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // The receiver is gone when the process is about to end.
            let _ = sender.send(Event::Signal(signal));
        }
    });
    Ok(())
}

/// Launches the program, and has its end and signals sent to the channel of `sender`.
fn start(
    device: &Device,
    kernel: &LoadedKernel,
    options: &RunOptions,
    sender: Sender<Event>,
) -> Result<Started, Error> {
    let at_most = |size: u64| u32::try_from(size).unwrap_or(u32::MAX).max(1);
    let info = kernel.info();
    let grid = options.grid(at_most(info.default_workgroups), at_most(info.default_lanes));
    if options.print_resource_usage {
        match kernel.resources() {
            Some(resources) => eprintln!("{resources}"),
            None => complain("the device does not say what kernels need of it"),
        }
    }
    watch_signals(sender.clone())?;
    let stream = device.stream()?;
    kernel.launch(&stream, grid)?;
    let device = device.clone();
    std::thread::spawn(move || {
        let result = stream.synchronize();
        device.builtins().stdio().flush();
        let _ = sender.send(Event::Ended(result.map(|()| device.exit_code().unwrap_or(0))));
    });
    Ok(Started { grid, can_cancel: true })
}

fn wait(device: &Device, started: &Started, timeout: Option<Duration>, events: &Receiver<Event>) -> Outcome {
    let event = match timeout {
        Some(timeout) => events.recv_timeout(timeout),
        None => events.recv().map_err(Into::into),
    };
    let (code, why) = match event {
        Ok(Event::Ended(result)) => return Ok(exit_code(result)),
        Ok(Event::Broken(why)) => {
            flush(device);
            return Err(why.into());
        }
        Ok(Event::BrokenPipe) => (BY_SIGNAL + SIGPIPE, None),
        Ok(Event::Signal(signal)) => (BY_SIGNAL + signal, Some("interrupted".to_owned())),
        Err(RecvTimeoutError::Timeout) => {
            let seconds = timeout.unwrap_or_default().as_secs_f64();
            (TIMED_OUT, Some(format!("the program did not end within {seconds} s")))
        }
        Err(RecvTimeoutError::Disconnected) => unreachable!("the signals' thread keeps the channel open"),
    };
    if let Some(why) = why {
        complain(format!("{why}: {}", report(device, started)));
    }
    if started.can_cancel {
        device.cancel_all();
        // A second signal ends the wait too.
        let _ = events.recv_timeout(GRACE);
    } else {
        flush(device);
    }
    Ok(code)
}

/// Writes out what the program has printed, unless its reader takes too long.
fn flush(device: &Device) {
    let (done, flushed) = mpsc::channel();
    let device = device.clone();
    std::thread::spawn(move || {
        device.builtins().stdio().flush();
        let _ = done.send(());
    });
    let _ = flushed.recv_timeout(GRACE);
}

fn exit_code(result: Result<i32, Error>) -> i32 {
    result.unwrap_or_else(|error| {
        complain(&error);
        match error {
            Error::Launch { failure: LaunchFailure::Panicked(_), .. } => PANICKED,
            _ => 1,
        }
    })
}

/// What the lanes of the launch wait for.
fn report(device: &Device, Started { grid, can_cancel }: &Started) -> String {
    let stalls = device.waiting();
    if stalls.is_empty() {
        let lanes: u64 = grid.workgroups.iter().chain(&grid.lanes).map(|n| u64::from(*n)).product();
        return match (lanes, can_cancel) {
            (1, true) => "1 lane runs without waiting for a call".into(),
            (_, true) => format!("{lanes} lanes run without waiting for a call"),
            (1, false) => "1 lane has not ended".into(),
            (_, false) => format!("not all of {lanes} lanes have ended"),
        };
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
