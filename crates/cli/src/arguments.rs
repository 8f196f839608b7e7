//! The command line.

use clap::{Args, Parser, Subcommand};
use hostcall_build::Target;
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
    },
}

#[derive(Args)]
pub struct RunOptions {
    /// Device to run on, as `hostcall devices` names it
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Lanes of each workgroup: N or X,Y,Z; the program's own default if absent
    #[arg(long, value_parser = extent)]
    pub threads: Option<[u32; 3]>,
    /// Workgroups: N or X,Y,Z; the program's own default if absent
    #[arg(long, value_parser = extent)]
    pub blocks: Option<[u32; 3]>,
    /// Lanes of a wave on the software device: 32 or 64
    #[arg(long, default_value = "32", value_parser = wave)]
    pub wave: u32,
    /// Ends the program after so many seconds, with exit code 124 and a report of what it waited for
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Sets an environment variable of the program, which sees no others
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Folder whose files the program can reach; `/` opens all
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub dir: PathBuf,
    /// Folder of the program's package, or an image built before; then the program's own arguments
    // One argument: after its first value clap looks at nothing more.
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGUMENTS"], num_args = 1..)]
    pub program: Vec<String>,
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
