//! The command line.

use clap::{Args, Parser, Subcommand};
use hostcall::Grid;
use hostcall_build::Target;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Runs programs on a GPU, or on a software device that stands in for one, which call the CPU while they run.
#[derive(Parser)]
#[command(name = "hostcall", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Builds a program when needed and runs it
    Run(RunOptions),
    /// Builds a program and prints the path of its image
    Build {
        /// Device to build for: cpu, an NVIDIA architecture such as sm_70, or an AMD one such as gfx942
        #[arg(long, default_value = "cpu", value_parser = Target::parse)]
        target: Target,
        /// Folder of the program's package
        program: PathBuf,
    },
    /// Makes a package to start a program from
    New {
        /// Folder to make; its name is the package's
        name: PathBuf,
    },
    /// Lists the devices, and why those that are not there are not
    Devices,
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
        /// Measures only these: latency, calls, posts, lines, stores, rivals, start
        #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = crate::bench::group)]
        only: Vec<hostcall_bench::Group>,
        /// Only prints by the printf of NVIDIA's driver, and how many lines a second on standard error; the
        /// benchmarks run it so, because that printf writes to the process's own standard output
        #[arg(long, hide = true)]
        device_printf: bool,
    },
}

#[derive(Args)]
pub struct RunOptions {
    /// Device to run on, as `hostcall devices` names it; if absent, one that runs the image, and `cpu` for a package
    #[arg(long)]
    pub device: Option<String>,
    /// Lanes of each workgroup: N or X,Y,Z; the program's own default if absent
    #[arg(long, alias = "threads-x", value_parser = extent)]
    pub threads: Option<[u32; 3]>,
    /// Lanes of each workgroup in y
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads_y: Option<u32>,
    /// Lanes of each workgroup in z
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads_z: Option<u32>,
    /// Workgroups: N or X,Y,Z; the program's own default if absent
    #[arg(long, alias = "blocks-x", value_parser = extent)]
    pub blocks: Option<[u32; 3]>,
    /// Workgroups in y
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks_y: Option<u32>,
    /// Workgroups in z
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks_z: Option<u32>,
    /// Lanes of a wave on the software device: 32 or 64
    #[arg(long, default_value = "32", value_parser = wave)]
    pub wave: u32,
    /// Ends the program after so many seconds, with exit code 124 and a report of what it waited for
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Sets an environment variable of the program, which sees no others
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Gives the program this process's environment variables too
    #[arg(long)]
    pub inherit_env: bool,
    /// Folder whose files the program can reach; `/` opens all
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub dir: PathBuf,
    /// Prints what the program's kernels need of the device to standard error: registers, stack, shared memory
    #[arg(long)]
    pub print_resource_usage: bool,
    #[command(flatten)]
    pub llvm: LlvmOptions,
    /// Folder of the program's package, or an image built before; then the program's own arguments
    // One argument: after its first value clap looks at nothing more.
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGUMENTS"], num_args = 1..)]
    pub program: Vec<String>,
}

/// What only programs that were linked with LLVM's GPU libc look at.
#[derive(Args)]
#[command(next_help_heading = "Programs linked with LLVM's GPU libc")]
pub struct LlvmOptions {
    /// Calls that can be on their way at once
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..))]
    pub ports: u32,
    /// Bytes of stack of each lane
    #[arg(long, value_name = "BYTES")]
    pub stack: Option<usize>,
    /// Lets `system` run commands
    #[arg(long)]
    pub allow_system: bool,
}

impl RunOptions {
    /// Workgroups and lanes, with the program's own where the user names none.
    pub fn grid(&self, default_workgroups: u32, default_lanes: u32) -> Grid {
        let sizes = |all: Option<[u32; 3]>, default: u32, y: Option<u32>, z: Option<u32>| {
            let [default_x, default_y, default_z] = all.unwrap_or([default, 1, 1]);
            [default_x, y.unwrap_or(default_y), z.unwrap_or(default_z)]
        };
        Grid::new_3d(
            sizes(self.blocks, default_workgroups, self.blocks_y, self.blocks_z),
            sizes(self.threads, default_lanes, self.threads_y, self.threads_z),
        )
    }

    /// The program's environment variables: a later one of the same name counts.
    pub fn variables(&self) -> Vec<(String, String)> {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let inherited = self.inherit_env.then(std::env::vars_os).into_iter().flatten();
        inherited.map(|(name, value)| (text(name), text(value))).chain(self.env.iter().cloned()).collect()
    }
}

fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut extent = [1; 3];
    let numbers: Vec<&str> = text.split(',').collect();
    if numbers.len() > extent.len() {
        return Err("give at most three numbers, X,Y,Z".into());
    }
    for (to, number) in extent.iter_mut().zip(numbers) {
        *to = match number.parse::<u128>() {
            Ok(0) => return Err("it must be at least 1".into()),
            Ok(number) => u32::try_from(number).map_err(|_| format!("it must be at most {}", u32::MAX))?,
            Err(_) => return Err("give a number or three, X,Y,Z".into()),
        };
    }
    Ok(extent)
}

fn wave(text: &str) -> Result<u32, &'static str> {
    match text {
        "32" => Ok(32),
        "64" => Ok(64),
        _ => Err("a wave has 32 or 64 lanes"),
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or("give a number of seconds above 0")
}

fn variable(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE"),
    }
}
