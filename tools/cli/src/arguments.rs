//! The command line.

use crate::top::LEAST_EVERY;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hostcall::Grid;
use hostcall::device::SoftwareDeviceConfig;
use hostcall::services::{Lines, NetRule};
use hostcall_build::{Request, Target};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// The help's last part.
const EXIT_CODES: &str = "\
Exit codes:
  0    all went well; `hostcall run` ends with the program's own code
  1    it could not be done, or the program was ended for what it did; standard error says why
  2    the command line is wrong
  101  a lane of the program panicked
  124  the program did not end within its --timeout
  134  a program linked with LLVM's GPU libc aborted
  141  nobody reads the standard output any more
  128 and a signal's number: the command was ended by that signal, such as 130 by an interrupt";

/// Longest time that can be waited for: more fits no [`Duration`].
const MOST_SECONDS: f64 = 1e18;

/// What a user can do while a program runs.
const SIGNALS: &str = "\
SIGQUIT (control and \\) prints what the program waits for and lets it go on; a terminal's ends cargo too, where that still builds the \
program. SIGINT and SIGTERM print it too and end the \
program; a second one does not wait for it.";

/// Where memory comes from.
const MEMORY: &str = "\
What a program's kernels allocate is memory of this process on the software device: an allocation that \
fails ends the process (SIGABRT), and nothing bounds them. On a GPU it is the device's, 16 GiB at most, and a \
lane that finds none panics.";

/// Runs programs on a GPU, or on a software device that stands in for one, which call the CPU while they run.
#[derive(Parser)]
#[command(name = "hostcall", version, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Builds a program when needed and runs it
    #[command(after_help = format!("{SIGNALS}\n\n{MEMORY}\n\n{EXIT_CODES}"))]
    Run(Box<RunOptions>),
    /// Builds a program and prints the path of its image
    Build {
        /// Device to build for: cpu, cuda (all NVIDIA GPUs), an NVIDIA architecture such as sm_90 (sm_90-cubin: without
        /// work for the driver, by NVIDIA's assembler), or an AMD one such as gfx942
        #[arg(long, default_value = "cpu", value_parser = Target::parse)]
        target: Target,
        /// Prints after the path what each kernel needs of the GPU that --target names: registers, stack, workgroup memory, and how many of its waves a
        /// multiprocessor holds; and warns of what slows it down. For NVIDIA, the numbers are those of NVIDIA's assembler
        #[arg(long)]
        report: bool,
        #[command(flatten)]
        build: BuildOptions,
        /// Folder of the program's package
        program: PathBuf,
    },
    /// Makes a program for a GPU of C, C++ or Fortran, with a `main`, by clang and LLVM's libc for GPUs; `hostcall run` runs it
    #[command(after_help = crate::cc::HELP)]
    Cc {
        /// Sources, objects and options, as clang takes them: `main.c -o prog`
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, num_args = 1..)]
        arguments: Vec<OsString>,
    },
    /// Prints a C header of services, by which kernels in C, C++, CUDA and HIP call them with their types
    Bind {
        /// Rust with the services' traits, and the structs and enums that they name; or a description, a file `.toml`
        file: PathBuf,
        /// Prints a module for hosts in Python instead: classes with the services' annotated methods
        #[arg(long)]
        python: bool,
        /// This service alone
        #[arg(long, value_name = "NAME")]
        service: Option<String>,
    },
    /// Makes a package to start a program from
    New {
        /// Makes a host program with a package of kernels, which runs on every device
        #[arg(long)]
        app: bool,
        /// Folder to make; its name is the package's
        name: PathBuf,
    },
    /// Reads traces: files of `hostcall run --trace`, and of raw channels that record
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Shows what processes of yours do that have devices open, while they run: calls a second, how long these take, who waits,
    /// losses. They need no preparation, and are not held up
    Top {
        /// Processes; all of this user's without one
        pids: Vec<u32>,
        /// Seconds between two screens, or between what is printed where the standard output is no terminal;
        /// at least 0.05
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = every, allow_negative_numbers = true)]
        every: Duration,
    },
    /// Shows the same and more as a page for browsers, and has metrics for Prometheus and OpenTelemetry. Prints the page's
    /// address with the token that it needs, which is HOSTCALL_TOKEN of the environment or a random one
    Serve(crate::serve::Options),
    /// Says what waves of running processes wait for, also while these hang, and because of whom
    Waits {
        /// Prints one JSON object
        #[arg(long)]
        json: bool,
        /// Processes, whose jobs are looked at; without one, all of the user's
        pids: Vec<u32>,
    },
    /// Collects what the ranks of a job print, how they fail, who of them dies and what they wait for, on one machine or many.
    /// It is the program `hostcall-collect`, which is installed by itself
    #[command(disable_help_flag = true)]
    Collect {
        /// Its own options: `hostcall collect --help` prints them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        arguments: Vec<OsString>,
    },
    /// Lists the devices, and why those that are not there are not
    Devices {
        /// Opens each device and says also what to build for it, and how much of it there is
        #[arg(long, short)]
        verbose: bool,
    },
    /// Measures a device, each figure beside its floor in the same run
    Bench {
        /// Device to measure
        #[arg(long, default_value = "cpu")]
        device: String,
        /// Image of programs/bench, for devices that run images only
        #[arg(long)]
        image: Option<PathBuf>,
        /// Prints one JSON object
        #[arg(long)]
        json: bool,
        #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = crate::bench::group)]
        #[arg(help = format!("Measures only these: {}", crate::bench::group_names()))]
        only: Vec<hostcall_bench::Group>,
        /// Only prints by the printf of NVIDIA's driver, and how many lines a second on standard error; the
        /// benchmarks run it so, because that printf writes to the process's own standard output
        #[arg(long, hide = true)]
        device_printf: bool,
    },
}

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Says what a trace has: devices, launches, and how long calls took from where the host finds them to
    /// their answers
    Info {
        /// The trace
        file: PathBuf,
    },
    /// Prints a line for each call, launch and count of posts, and for each record of a stream, in the order
    /// of the file
    Dump {
        /// The trace
        file: PathBuf,
    },
    /// Shows what a run does by the trace that it writes, while it writes it: rates, losses, slow methods,
    /// who waits. Ends with the trace; of one that was cut off it waits for more
    Top {
        /// The trace, also one that a run is about to begin
        file: PathBuf,
        /// Seconds between two screens, or between what is printed where the standard output is no terminal;
        /// at least 0.05
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = every, allow_negative_numbers = true)]
        every: Duration,
    },
    /// Begins to record trace points of a program that runs, into a file
    On {
        /// The process, or several
        #[arg(required = true)]
        pid: Vec<u32>,
        /// The file; of several processes each writes one with its number before the ending
        #[arg(long, value_name = "FILE", default_value = "hostcall.trace")]
        to: PathBuf,
        /// Only points whose name (an event's format) is so; `*` and `?` stand for any characters. May be given several times
        #[arg(long, value_name = "NAME")]
        points: Vec<String>,
        /// Only points of kernels whose name is so. May be given several times
        #[arg(long, value_name = "NAME")]
        kernels: Vec<String>,
        /// Only points of this launch, as `17.3`
        #[arg(long, value_name = "ID")]
        launch: Option<String>,
        /// Ends the trace after so many seconds, and waits for that
        #[arg(long, value_name = "SECONDS", value_parser = every, allow_negative_numbers = true)]
        r#for: Option<Duration>,
    },
    /// Ends what `on` has begun
    Off {
        /// The process, or several
        #[arg(required = true)]
        pid: Vec<u32>,
    },
    /// Writes a trace in the format that the output's ending names: .pftrace (https://ui.perfetto.dev), .arrow, .parquet, .csv
    Export {
        /// The trace
        file: PathBuf,
        /// The file to write
        out: PathBuf,
        /// A table of the records of this stream, which kernels wrote to a raw channel, instead of one of calls, launches
        /// and posts; not for .pftrace. A trace that begins with pages has its first stream's without this
        #[arg(long, value_name = "NAME")]
        stream: Option<String>,
    },
}

/// How a report is written.
#[derive(Clone, Copy, ValueEnum)]
pub enum ReportFormat {
    /// One object
    Json,
}

#[derive(Args)]
pub struct RunOptions {
    /// Device to run on, as `hostcall devices` names it; if absent, one that runs the image, and `cpu` for a package
    #[arg(long)]
    pub device: Option<String>,
    /// Lanes of each workgroup: N or X,Y,Z; the program's own default if absent. Of an ordinary program: how many threads it can
    /// have at once beside the main one; 64 if absent
    #[arg(long, alias = "threads-x", value_parser = extent)]
    pub threads: Option<Extent>,
    /// Lanes of each workgroup in y
    #[arg(long, value_name = "N", value_parser = count)]
    pub threads_y: Option<u32>,
    /// Lanes of each workgroup in z
    #[arg(long, value_name = "N", value_parser = count)]
    pub threads_z: Option<u32>,
    /// Workgroups: N or X,Y,Z; the program's own default if absent
    #[arg(long, alias = "blocks-x", value_parser = extent)]
    pub blocks: Option<Extent>,
    /// Workgroups in y
    #[arg(long, value_name = "N", value_parser = count)]
    pub blocks_y: Option<u32>,
    /// Workgroups in z
    #[arg(long, value_name = "N", value_parser = count)]
    pub blocks_z: Option<u32>,
    /// Ends the program after so many seconds, with exit code 124 and a report of what it waited for
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
    /// Sets an environment variable of the program, which sees no others
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(variable))]
    pub env: Vec<(OsString, OsString)>,
    /// Gives the program this process's environment variables too
    #[arg(long)]
    pub inherit_env: bool,
    /// Folder whose files the program can reach; `/` opens all
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub dir: PathBuf,
    /// Lets a program with `std` connect and send to a host, by name or address, at a port or at all: `example.com:443`, `10.0.0.7`,
    /// `[::1]:8080`; `*` is any host. May be given several times; without it the program reaches none
    #[arg(long, value_name = "HOST[:PORT]")]
    pub net: Vec<NetRule>,
    /// Lets a program with `std` listen at an address of this machine, at a port or at all: `127.0.0.1:8080`; `*` is any address. May be
    /// given several times
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Vec<NetRule>,
    /// Puts in front of each line that the program prints the device, launch, workgroup and lane which it comes from
    #[arg(long)]
    pub prefix: bool,
    /// Prints the lines of this workgroup alone: N or X,Y,Z
    #[arg(long, value_name = "POSITION", value_parser = position)]
    pub lines_of_workgroup: Option<[u32; 3]>,
    /// Prints the lines of lanes alone that have this index in their workgroup, x fastest
    #[arg(long, value_name = "N", value_parser = lane)]
    pub lines_of_lane: Option<u32>,
    /// Writes a trace of the program's calls to this file, for `hostcall trace`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Prints at the end, to standard error, how long the program's calls took, by service and method: from
    /// where the host finds a call to its answer, without the ways there and back
    #[arg(long)]
    pub stats: bool,
    /// Prints one JSON object in place of all that the program and the command print: exit code, how it ended, the panic with its
    /// place, calls that waited when it was ended, what was lost, and the texts
    #[arg(long, value_name = "FORMAT")]
    pub report: Option<ReportFormat>,
    /// Prints what the program's kernels need of the device to standard error: registers, stack, shared memory
    #[arg(long)]
    pub print_resource_usage: bool,
    /// Bytes of stack of each lane: on the software device 64 KiB if absent, or 1 MiB for a program with `std`; on a GPU at least so many, and if absent as many as the compiler
    /// worked out, or where it cannot know 16 KiB on AMD's and 8 KiB on NVIDIA's
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub stack: Option<usize>,
    // Before the options with headings, of which the last one would be its heading too.
    /// Folder of the program's package, or an image built before; then the program's own arguments
    // One argument: after its first value clap looks at nothing more.
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGUMENTS"], num_args = 1..)]
    pub program: Vec<OsString>,
    #[command(flatten)]
    pub build: BuildOptions,
    #[command(flatten)]
    pub software: SoftwareOptions,
    #[command(flatten)]
    pub llvm: LlvmOptions,
}

/// How a package is built.
#[derive(Args)]
#[command(next_help_heading = "Building a package")]
pub struct BuildOptions {
    /// Shows nothing of cargo's output but what does not compile
    #[arg(long, short)]
    pub quiet: bool,
    /// Profile of the package; release if absent
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Features of the package to turn on, divided by commas
    #[arg(long, value_name = "FEATURES")]
    pub features: Vec<String>,
}

impl BuildOptions {
    /// Returns what to build with these options.
    pub fn request(&self, package: PathBuf, target: Target) -> Request {
        let request = Request::new(package, target).features(&self.features);
        let request = match &self.profile {
            Some(profile) => request.profile(profile),
            None => request,
        };
        if self.quiet { request.quiet() } else { request }
    }
}

/// What only the software device looks at.
#[derive(Args)]
#[command(next_help_heading = "The software device")]
pub struct SoftwareOptions {
    /// Lanes of a wave: 32 or 64; 32 if absent
    #[arg(long, value_parser = wave)]
    pub wave: Option<u32>,
    /// Threads that run lanes, at most 4096; one less than the machine has processors if absent
    #[arg(long, value_name = "N", value_parser = cpu_threads)]
    pub cpu_threads: Option<u32>,
}

/// What only programs that were linked with LLVM's GPU libc look at.
#[derive(Args)]
#[command(next_help_heading = "Programs linked with LLVM's GPU libc")]
pub struct LlvmOptions {
    /// Calls that can be on their way at once; 4096 if absent
    #[arg(long, value_name = "N", value_parser = count)]
    pub ports: Option<u32>,
    /// Lets `system` run commands
    #[arg(long)]
    pub allow_system: bool,
}

impl RunOptions {
    /// Workgroups and lanes, with the program's own where the user names none.
    pub fn grid(&self, default_workgroups: u32, default_lanes: u32) -> Grid {
        let sizes = |all: Option<Extent>, default: u32, y: Option<u32>, z: Option<u32>| {
            let [default_x, default_y, default_z] = all.map_or([default, 1, 1], |all| all.sizes);
            [default_x, y.unwrap_or(default_y), z.unwrap_or(default_z)]
        };
        Grid::new_3d(
            sizes(self.blocks, default_workgroups, self.blocks_y, self.blocks_z),
            sizes(self.threads, default_lanes, self.threads_y, self.threads_z),
        )
    }

    /// Returns two options that say the same size.
    pub fn said_twice(&self) -> Option<(&'static str, &'static str)> {
        let numbers = |all: Option<Extent>| all.map_or(0, |all| all.numbers);
        let (blocks, threads) = (numbers(self.blocks), numbers(self.threads));
        [
            (blocks > 1 && self.blocks_y.is_some(), ("--blocks", "--blocks-y")),
            (blocks > 2 && self.blocks_z.is_some(), ("--blocks", "--blocks-z")),
            (threads > 1 && self.threads_y.is_some(), ("--threads", "--threads-y")),
            (threads > 2 && self.threads_z.is_some(), ("--threads", "--threads-z")),
        ]
        .into_iter()
        .find_map(|(is_twice, options)| is_twice.then_some(options))
    }

    /// Which lines are printed, and how.
    pub fn lines(&self) -> Lines {
        let lines = if self.prefix { Lines::new().prefix() } else { Lines::new() };
        let lines = self.lines_of_workgroup.map_or(lines.clone(), |position| lines.of_workgroup(position));
        self.lines_of_lane.map_or(lines.clone(), |index| lines.of_lane(index))
    }

    /// How many threads an ordinary program has waves for, if the user says it.
    ///
    /// # Errors
    /// An option that says another thing of the grid.
    pub fn threads_of_std(&self) -> Result<Option<u32>, &'static str> {
        if self.names_workgroups() {
            return Err("--blocks");
        }
        match self.threads {
            None if self.threads_y.is_none() && self.threads_z.is_none() => Ok(None),
            Some(Extent { sizes: [threads, ..], numbers: 1 })
                if self.threads_y.is_none() && self.threads_z.is_none() =>
            {
                Ok(Some(threads))
            }
            _ => Err("all but one number of --threads"),
        }
    }

    /// Whether the user says how many workgroups there are.
    pub fn names_workgroups(&self) -> bool {
        self.blocks.is_some() || self.blocks_y.is_some() || self.blocks_z.is_some()
    }

    /// The program's environment variables: a later one of the same name counts.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.inherit_env.then(std::env::vars_os).into_iter().flatten().chain(self.env.iter().cloned())
    }
}

/// Sizes in x, y and z, of which so many were given as numbers; the others are 1.
#[derive(Clone, Copy)]
pub struct Extent {
    sizes: [u32; 3],
    numbers: usize,
}

fn extent(text: &str) -> Result<Extent, String> {
    let mut sizes = [1; 3];
    let numbers: Vec<&str> = text.split(',').collect();
    if numbers.len() > sizes.len() {
        return Err("give at most three numbers, X,Y,Z".into());
    }
    for (to, number) in sizes.iter_mut().zip(&numbers) {
        *to = match number.parse::<u128>() {
            Ok(0) => return Err("it must be at least 1".into()),
            Ok(number) => u32::try_from(number).map_err(|_| format!("it must be at most {}", u32::MAX))?,
            Err(_) => return Err("give a number or three, X,Y,Z".into()),
        };
    }
    Ok(Extent { sizes, numbers: numbers.len() })
}

fn wave(text: &str) -> Result<u32, &'static str> {
    match text {
        "32" => Ok(32),
        "64" => Ok(64),
        _ => Err("a wave has 32 or 64 lanes"),
    }
}

/// A position in the grid, of which y and z may be left away.
fn position(text: &str) -> Result<[u32; 3], &'static str> {
    let mut position = [0; 3];
    let mut parts = text.split(',');
    for (place, part) in position.iter_mut().zip(&mut parts) {
        *place = part.parse().map_err(|_| "give a number, or three: X,Y,Z")?;
    }
    if parts.next().is_some() { Err("a position has three numbers at most: X,Y,Z") } else { Ok(position) }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > MOST_SECONDS => Err("give a number of seconds of at most 1e18"),
        Ok(seconds) if seconds > 0.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a number of seconds above 0"),
    }
}

/// A count, of which there may be no more than fit.
fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("give a number that is at least 1")
}

fn cpu_threads(text: &str) -> Result<u32, String> {
    let most = SoftwareDeviceConfig::MOST_THREADS as u32;
    let threads = text.parse().ok().filter(|threads| (1..=most).contains(threads));
    threads.ok_or_else(|| format!("give a number from 1 to {most}"))
}

fn lane(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "give a lane's number in its workgroup, from 0 on")
}

pub fn every(text: &str) -> Result<Duration, &'static str> {
    match seconds(text) {
        Ok(every) if every >= LEAST_EVERY => Ok(every),
        Err(too_long) if text.parse().is_ok_and(|seconds: f64| seconds > MOST_SECONDS) => Err(too_long),
        _ => Err("give a number of seconds that is at least 0.05"),
    }
}

fn bytes(text: &str) -> Result<usize, &'static str> {
    let (number, shift) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 10),
        None => text.strip_suffix(['m', 'M']).map_or((text, 0), |number| (number, 20)),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    // More than that for each of thousands of lanes is more than any machine has.
    bytes
        .filter(|bytes| (1..=1 << 30).contains(bytes))
        .ok_or("give a number of bytes from 1 to 1024M, such as 65536, 64K or 1M")
}

fn variable(text: OsString) -> Result<(OsString, OsString), &'static str> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at @ 1..) => {
            let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Ok((part(&bytes[..at]), part(&bytes[at + 1..])))
        }
        _ => Err("write NAME=VALUE"),
    }
}
