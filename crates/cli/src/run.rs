//! `hostcall run`: one program from start to end.

use crate::arguments::RunOptions;
use crate::image::{Program, SOFTWARE};
use crate::trace::Tracing;
use crate::{Outcome, USAGE, complain, llvm, output};
use hostcall::device::{Error as DeviceError, KernelResources, LoadedKernel, SoftwareDeviceConfig};
use hostcall::server::WaitsFor;
use hostcall::services::Builtins;
use hostcall::trace::Tracer;
use hostcall::{Device, Grid, LaunchFailure};
use signal_hook::consts::{SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::error::Error;
use std::io::{self, Write};
use std::process::exit;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Exit code of a program that panicked, as of a Rust process.
const PANICKED: i32 = 101;

/// Exit code of a timeout, as of `timeout` of coreutils.
const TIMED_OUT: i32 = 124;

/// What the exit code of a process that a signal ends is above.
pub const BY_SIGNAL: i32 = 128;

/// How long a cancelled program may take to end. The software device ends lanes by force after a second.
const GRACE: Duration = Duration::from_secs(2);

/// Calls that the report of an interrupted program names one by one; the others are counted.
const MAX_NAMED: usize = 16;

/// What ends the wait for the program.
pub enum Event {
    /// With its exit code.
    Ended(Result<i32, DeviceError>),
    Signal(i32),
    /// Nobody reads standard output any more.
    BrokenPipe,
    /// The program did what it must not, and cannot go on.
    Broken(String),
}

impl Event {
    /// Waits for the output of a program that has ended and returns what is to become of the command.
    pub fn of_end(device: &Device, result: Result<i32, DeviceError>) -> Self {
        match (device.builtins().stdio().flush(), result) {
            (Err(error), Ok(_)) => Self::Broken(format!("output of the program was lost: {error}")),
            (_, result) => Self::Ended(result),
        }
    }
}

/// Runs the program that the options name.
///
/// # Errors
/// A sentence, when it cannot be run.
pub fn run(options: RunOptions) -> Outcome {
    let (sender, events) = mpsc::channel();
    let beginning = Beginning::watch()?;
    let program = Program::find(&options.program[0])?;
    let device = match &options.device {
        Some(device) => device.clone(),
        None => program.device()?,
    };
    if let Some(refused) = unusable(&options, &program, &device) {
        complain(refused);
        return Ok(USAGE);
    }
    if let Some(trace) = &options.trace
        && program.is_file(trace)
    {
        return Err(
            format!("{} is the program itself: name another file for the trace", trace.display()).into()
        );
    }
    let tracing = Tracing::start(options.trace.as_deref(), options.stats)?;
    let device = open(&device, &program, &options, tracing.tracer(), sender.clone())?;
    let image = program.image_for(&device, &options.build)?;
    let started = match program {
        Program::Llvm(..) => llvm::start(&device, &image, &options, sender),
        Program::Package(_) | Program::Image(..) => {
            let kernel = device.load(image)?.kernel("main")?;
            start(&device, &kernel, &options, sender)
        }
    };
    let started = started?;
    drop(beginning);
    let code = wait(&device, &started, options.timeout, &events)?;
    end_at_signals(events, code, options.trace.is_some());
    // Its server may be about to record the last calls, whose lanes have their answers.
    drop(device);
    Ok(tracing.finish(code))
}

/// Has signals end the command that come when the program was waited for, while its trace is written: to somebody who reads
/// slowly, say.
fn end_at_signals(events: Receiver<Event>, code: i32, has_trace: bool) {
    let watch = move || {
        for event in events {
            let Event::Signal(signal) = event else { continue };
            if has_trace {
                complain(format!("the trace is still being written; the exit code is {code}"));
            }
            if signal != SIGQUIT {
                exit(BY_SIGNAL + signal);
            }
        }
    };
    // Where the system starts no thread, the trace is waited for.
    let _ = std::thread::Builder::new().name("hostcall-ending".into()).spawn(watch);
}

/// Returns why this program on this device can make nothing of an option that was given.
fn unusable(options: &RunOptions, program: &Program, device: &str) -> Option<String> {
    let is_llvm = matches!(program, Program::Llvm(..));
    let is_package = matches!(program, Program::Package(_));
    let is_software = device == SOFTWARE;
    let name = options.program[0].display();
    let given = |option: &'static str, is_given: bool, can_be_used: bool| {
        (is_given && !can_be_used).then_some(option)
    };

    let build = &options.build;
    let built = [
        given("--profile", build.profile.is_some(), is_package),
        given("--features", !build.features.is_empty(), is_package),
    ];
    let of_software = [
        given("--wave", options.software.wave.is_some(), is_software),
        given("--cpu-threads", options.software.cpu_threads.is_some(), is_software),
    ];
    let of_llvm = [
        given("--ports", options.llvm.ports.is_some(), is_llvm),
        given("--allow-system", options.llvm.allow_system, is_llvm),
    ];
    let of_own = [
        given("--prefix", options.prefix, !is_llvm),
        given("--lines-of-workgroup", options.lines_of_workgroup.is_some(), !is_llvm),
        given("--lines-of-lane", options.lines_of_lane.is_some(), !is_llvm),
    ];

    if let Some((all, one)) = options.said_twice() {
        return Some(format!("{all} and {one} say the same size twice: leave one of them away"));
    }
    const LEAST: usize = SoftwareDeviceConfig::MIN_STACK_BYTES;
    if let Some(bytes) = options.stack.filter(|bytes| is_software && *bytes < LEAST) {
        return Some(format!(
            "--stack {bytes} is too little for a lane of {device}: give at least {LEAST} bytes"
        ));
    }
    if let Some(option) = of_own.into_iter().flatten().next() {
        return Some(format!(
            "{option} is for hostcall's own programs, and calls of {name} do not say which lane makes them: leave it away"
        ));
    }
    let first = |options: [Option<&'static str>; 2]| options.into_iter().flatten().next();
    if let Some(option) = first(built) {
        return Some(format!("{name} is built already: leave {option} away, or name its package's folder"));
    }
    if let Some(option) = first(of_llvm) {
        return Some(format!(
            "{option} is for programs linked with LLVM's GPU libc, and {name} is none: leave it away"
        ));
    }
    if let Some(option) = first(of_software) {
        let or_else = if is_package { format!(", or take `--device {SOFTWARE}`") } else { String::new() };
        return Some(format!(
            "{option} is for the software device, and the program would run on {device}: leave it away{or_else}"
        ));
    }
    None
}

/// A program that runs.
pub struct Started {
    pub grid: Grid,
    /// Its calls can be cancelled, and the device tells what it waits for.
    pub can_cancel: bool,
    /// Most of its lanes that run at a time, where the device says it.
    pub resident_lanes: Option<u64>,
}

fn open(
    name: &str,
    program: &Program,
    options: &RunOptions,
    tracer: Option<&Tracer>,
    sender: Sender<Event>,
) -> Result<Device, Box<dyn Error>> {
    let builtins = options
        .variables()
        .fold(Builtins::builder(), |builtins, (name, value)| builtins.env(name, value))
        .dir(&options.dir)
        .args(&options.program)
        .lines(options.lines())
        .stdout(Stdout(sender))
        .stderr(output::Stderr)
        .build()?;
    let mut software = SoftwareDeviceConfig::default();
    if let Some(lanes) = options.software.wave {
        software.wave_size = lanes;
    }
    if let Some(threads) = options.software.cpu_threads {
        software.threads = threads as usize;
    }
    let mut device = Device::builder(name)
        .software(software)
        .builtins(builtins)
        // A program may wait for its input as long as it likes.
        .server(|server| server.stall_report(Duration::MAX, |_| ()));
    if let Some(bytes) = options.stack {
        device = device.stack_bytes(bytes);
    }
    if let Program::Llvm(..) = program {
        // It makes no calls by the device's own channel.
        device = device.slots(1);
    }
    if let Some(tracer) = tracer {
        device = device.trace(tracer);
    }
    Ok(device.open()?)
}

/// Says at SIGQUIT that the program has not begun, until this is dropped. The signal would end the command else.
struct Beginning(Handle);

impl Beginning {
    fn watch() -> io::Result<Self> {
        let mut signals = Signals::new([SIGQUIT]).map_err(no_watch)?;
        let handle = signals.handle();
        let watch = move || {
            for _ in signals.forever() {
                complain(
                    "the program has not begun: it is still being built or loaded, or its trace has no reader yet",
                );
            }
        };
        std::thread::Builder::new().name("hostcall-begin".into()).spawn(watch).map_err(no_watch)?;
        Ok(Self(handle))
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        self.0.close();
    }
}

pub fn no_watch(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot watch for signals: {error}"))
}

/// Has signals sent to the channel of `sender`.
pub fn watch_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT]).map_err(no_watch)?;
    std::thread::Builder::new()
        .name("hostcall-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                // The receiver is gone when the process is about to end.
                let _ = sender.send(Event::Signal(signal));
            }
        })
        .map_err(no_watch)?;
    Ok(())
}

/// Launches the program, and has its end and signals sent to the channel of `sender`.
fn start(
    device: &Device,
    kernel: &LoadedKernel,
    options: &RunOptions,
    sender: Sender<Event>,
) -> Result<Started, Box<dyn Error>> {
    let at_most = |size: u64| u32::try_from(size).unwrap_or(u32::MAX).max(1);
    let info = kernel.info();
    let mut grid = options.grid(at_most(info.default_workgroups), at_most(info.default_lanes));
    if info.default_workgroups == 0 && !options.names_workgroups() {
        grid.workgroups[0] = kernel.resident_workgroups(grid);
    }
    if options.print_resource_usage {
        let limits = kernel.limits();
        match limits.registers {
            Some(registers) => eprintln!(
                "{}",
                KernelResources {
                    kernel: kernel.name().to_owned(),
                    registers,
                    stack_bytes: limits.stack_bytes,
                    workgroup_bytes: limits.workgroup_bytes,
                }
            ),
            None => complain("the device does not say what kernels need of it"),
        }
    }
    watch_signals(sender.clone())?;
    let stream = device.stream()?;
    let launch = kernel.launch(&stream, grid)?;
    let is_software = device.name() == SOFTWARE;
    let device = device.clone();
    std::thread::spawn(move || {
        let result = stream.synchronize().and_then(|()| launch.wait());
        let result = result.map(|outcome| outcome.exit_code.unwrap_or(0));
        let _ = sender.send(Event::of_end(&device, result));
    });
    // It was made with as many as there are by default.
    let resident_lanes = is_software.then(|| SoftwareDeviceConfig::default().resident_lanes.into());
    Ok(Started { grid, can_cancel: true, resident_lanes })
}

fn wait(device: &Device, started: &Started, timeout: Option<Duration>, events: &Receiver<Event>) -> Outcome {
    // A time so late that the clock does not have it never comes.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (code, why) = loop {
        let event = match deadline {
            Some(deadline) => events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(Into::into),
        };
        match event {
            Ok(Event::Ended(result)) => return Ok(exit_code(result)),
            Ok(Event::Signal(SIGQUIT)) => {
                complain(format!("the program goes on: {}", report(device, started, usize::MAX)));
            }
            Ok(Event::Broken(why)) => break (1, Some(why)),
            Ok(Event::BrokenPipe) => break (BY_SIGNAL + SIGPIPE, None),
            Ok(Event::Signal(signal)) => {
                break (
                    BY_SIGNAL + signal,
                    Some(format!("interrupted: {}", report(device, started, MAX_NAMED))),
                );
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                let report = report(device, started, usize::MAX);
                break (TIMED_OUT, Some(format!("the program did not end within {seconds} s: {report}")));
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("the signals' thread keeps the channel open"),
        }
    };
    if started.can_cancel {
        why.into_iter().for_each(complain);
        device.cancel_all();
        // A second signal ends the wait too.
        let _ = events.recv_timeout(GRACE);
    } else {
        flush(device);
        why.into_iter().for_each(complain);
    }
    Ok(code)
}

/// Writes out what the program has printed, unless its reader takes too long.
fn flush(device: &Device) {
    let (done, flushed) = mpsc::channel();
    let device = device.clone();
    std::thread::spawn(move || {
        // What was lost is not the first thing to say here.
        let _ = device.builtins().stdio().flush();
        let _ = done.send(());
    });
    let _ = flushed.recv_timeout(GRACE);
}

fn exit_code(result: Result<i32, DeviceError>) -> i32 {
    result.unwrap_or_else(|error| {
        complain(&error);
        match error {
            DeviceError::Launch { failure: LaunchFailure::Panicked { .. }, .. } => PANICKED,
            _ => 1,
        }
    })
}

/// Says what the waves of the program wait for, of at most `most` of them one by one.
fn report(device: &Device, started: &Started, most: usize) -> String {
    let stalls = device.waiting();
    if stalls.is_empty() {
        let lanes: u64 = started
            .grid
            .workgroups
            .iter()
            .chain(&started.grid.workgroup_size)
            .map(|n| u64::from(*n))
            .product();
        return without_calls(lanes, started.can_cancel, started.resident_lanes);
    }
    let pages = stalls.iter().filter(|stall| stall.waits_for == WaitsFor::Page).count();
    let mut report = waits(stalls.len() - pages, pages);
    for stall in stalls.iter().take(most) {
        report += &format!("\n  {stall}");
    }
    if stalls.len() > most {
        report += &format!("\n  and {} more", stalls.len() - most);
    }
    report
}

/// Says how many calls wait, and how many waves wait for a page of a raw channel.
fn waits(calls: usize, pages: usize) -> String {
    let calls = match calls {
        0 => None,
        1 => Some("1 call waits for the host".to_owned()),
        calls => Some(format!("{calls} calls wait for the host")),
    };
    let pages = match pages {
        0 => None,
        1 => Some("1 wave waits for a page of a raw channel".to_owned()),
        pages => Some(format!("{pages} waves wait for pages of raw channels")),
    };
    calls.into_iter().chain(pages).collect::<Vec<_>>().join(", ")
}

/// Says of a program of so many lanes that none waits for a call, as far as that is known.
fn without_calls(lanes: u64, is_known: bool, resident: Option<u64>) -> String {
    match (lanes, is_known, resident) {
        (1, true, _) => "its lane waits for no call".into(),
        (_, true, Some(most)) if most < lanes => {
            format!("none of its lanes waits for a call; at most {most} of the {lanes} run at a time")
        }
        (_, true, _) => format!("none of its {lanes} lanes waits for a call"),
        (1, false, _) => "1 lane has not ended".into(),
        (_, false, _) => format!("not all of {lanes} lanes have ended"),
    }
}

/// The process's standard output, which tells when it takes nothing any more.
struct Stdout(Sender<Event>);

impl Stdout {
    fn told<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let event = match error.kind() {
                io::ErrorKind::Interrupted => return result,
                io::ErrorKind::BrokenPipe => Event::BrokenPipe,
                _ => Event::Broken(format!("cannot write to the standard output: {error}")),
            };
            let _ = self.0.send(event);
        }
        result
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.told(output::Stdout.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.told(output::Stdout.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_that_wait_for_pages_are_no_calls() {
        assert_eq!(waits(1, 0), "1 call waits for the host");
        assert_eq!(waits(0, 1), "1 wave waits for a page of a raw channel");
        assert_eq!(waits(2, 3), "2 calls wait for the host, 3 waves wait for pages of raw channels");
    }

    #[test]
    fn lanes_that_have_not_begun_are_not_said_to_run() {
        let text = without_calls(25_600, true, Some(8192));
        assert_eq!(text, "none of its lanes waits for a call; at most 8192 of the 25600 run at a time");
        assert_eq!(without_calls(64, true, Some(8192)), "none of its 64 lanes waits for a call");
        assert_eq!(without_calls(25_600, true, None), "none of its 25600 lanes waits for a call");
    }
}
