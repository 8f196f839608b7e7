//! `hostcall run`: one program from start to end.

use crate::arguments::RunOptions;
use crate::image::{Program, SOFTWARE};
use crate::report::Kept;
use crate::trace::Tracing;
use crate::wait::{BY_SIGNAL, Event, Started, wait};
use crate::{Outcome, USAGE, complain, llvm, output, spawn};
use hostcall::Device;
use hostcall::device::{Grid, KernelResources, LoadedKernel, SoftwareDeviceConfig};
use hostcall::services::{Builtins, BuiltinsBuilder};
use hostcall::trace::Tracer;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::exit;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Runs the program that the options name.
///
/// # Errors
/// A sentence, when it cannot be run.
pub fn run(mut options: RunOptions) -> Outcome {
    // As cargo takes it; another one is the program's.
    if options.program.get(1).is_some_and(|argument| argument == "--") {
        options.program.remove(1);
    }
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
            let has_std = program.has_std()?;
            let starts_threads = has_std && hostcall_build::starts_threads(&std::fs::read(&image)?);
            let kernel = with_notice(device.name(), || device.load(image))?.kernel("main")?;
            let grid = if has_std {
                of_std(&kernel, &options, device.name() == SOFTWARE, starts_threads)?
            } else {
                grid(&kernel, &options)
            };
            start(&device, &kernel, grid, &options, sender)
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

/// Loads code, and tells who sits at a terminal why it takes long, if it does: a driver that compiles it says nothing.
fn with_notice<R>(device: &str, load: impl FnOnce() -> R) -> R {
    if !io::stderr().is_terminal() {
        return load();
    }
    let (loaded, is_loaded) = mpsc::channel::<()>();
    let notice =
        format!("compiling the program for {device}, whose driver keeps what it makes for the next time");
    let tell = move || {
        if is_loaded.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            complain(notice);
        }
    };
    // Where the system starts no thread, nothing is said.
    let _ = spawn("hostcall-loading", tell);
    let result = load();
    drop(loaded);
    result
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
    let _ = spawn("hostcall-ending", watch);
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
        .dir(&options.dir);
    let builtins = options.net.iter().cloned().fold(builtins, BuiltinsBuilder::net);
    let builtins = options
        .listen
        .iter()
        .cloned()
        .fold(builtins, BuiltinsBuilder::listen)
        .args(&options.program)
        .lines(options.lines());
    let builtins = match options.report {
        Some(_) => builtins.stdout(Kept::STDOUT).stderr(Kept::STDERR),
        None => builtins.stdout(Stdout(sender)).stderr(output::Stderr),
    };
    let builtins = builtins.build()?;
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
    let stack = match options.stack {
        None if program.has_std()? => stack_of_std(name),
        given => given,
    };
    if let Some(bytes) = stack {
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

/// Bytes of private stack for a lane that runs an ordinary program, where nobody says how many. On the software device it is all that
/// a thread has; on AMD, registers that are kept lie there; a GPU of NVIDIA's takes as much for all of its lanes.
fn stack_of_std(device: &str) -> Option<usize> {
    match device.split(':').next() {
        Some(SOFTWARE) => Some(1 << 20),
        Some("cuda") => None,
        _ => Some(64 << 10),
    }
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
        spawn("hostcall-begin", watch)?;
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
    spawn("hostcall-signals", move || {
        for signal in signals.forever() {
            // The receiver is gone when the process is about to end.
            let _ = sender.send(Event::Signal(signal));
        }
    })
}

/// The grid of a program of kernels.
fn grid(kernel: &LoadedKernel, options: &RunOptions) -> Grid {
    let at_most = |size: u64| u32::try_from(size).unwrap_or(u32::MAX).max(1);
    let info = kernel.info();
    let mut grid = options.grid(at_most(info.default_workgroups), at_most(info.default_lanes));
    if info.default_workgroups == 0 && !options.names_workgroups() {
        grid.workgroups[0] = kernel.resident_workgroups(grid);
    }
    grid
}

/// Threads that an ordinary program has waves for beside the main one, where nobody says how many.
const THREADS_OF_STD: u32 = 64;

/// As many as the device crate has places for.
const MOST_THREADS_OF_STD: u32 = 4095;

/// The grid of an ordinary program, which must be on the device as a whole: a wave for each thread that may wait for another one.
fn of_std(
    kernel: &LoadedKernel,
    options: &RunOptions,
    is_software: bool,
    starts_threads: bool,
) -> Result<Grid, String> {
    let named = options.threads_of_std().map_err(|option| {
        format!("the program's threads are waves, which `--threads N` counts: leave {option} away")
    })?;
    let one = Grid::new_3d([1; 3], [1; 3]);
    let resident = match is_software {
        // What one launch gets of the lanes that the device holds at once.
        true => SoftwareDeviceConfig::default().resident_lanes / 8 * 7,
        false => kernel.resident_workgroups(one),
    };
    let most = resident.min(MOST_THREADS_OF_STD + 1) - 1;
    if let Some(threads) = named.filter(|threads| *threads > most) {
        return Err(format!(
            "the device runs {most} threads of this program beside the main one, and not {threads}: give --threads {most}"
        ));
    }
    let threads = if starts_threads { named.unwrap_or(THREADS_OF_STD.min(most)) } else { 0 };
    Ok(Grid { workgroups: [threads + 1, 1, 1], ..one })
}

/// Launches the program, and has its end and signals sent to the channel of `sender`.
fn start(
    device: &Device,
    kernel: &LoadedKernel,
    grid: Grid,
    options: &RunOptions,
    sender: Sender<Event>,
) -> Result<Started, Box<dyn Error>> {
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
    spawn("hostcall-wait", move || {
        let mut result = stream.synchronize().and_then(|()| launch.wait());
        if let Err(hostcall::Error::Launch { forced_lanes, .. }) = &mut result {
            // Nothing is left of what they held: the process ends. Those that wait for work as threads do are ended so.
            *forced_lanes = 0;
        }
        let result = result.map(|outcome| outcome.exit_code.unwrap_or(0));
        Event::tell_end(&sender, &device, result);
    })?;
    // It was made with as many as there are by default.
    let resident_lanes = is_software.then(|| SoftwareDeviceConfig::default().resident_lanes.into());
    Ok(Started { grid, can_cancel: true, resident_lanes })
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
