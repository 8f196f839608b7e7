//! The command `hostcall collect`, which runs this program.

#![forbid(unsafe_code)]

use clap::Parser;
use hostcall::watch::report;
use hostcall_collect::collector::{self, Ends};
use hostcall_collect::local::{Local, Scope};
use hostcall_collect::wire::host_name;
use hostcall_collect::{Outcome, agent, complain, connecting, listening, raise_limits, top, traces, waits};
use hostcall_remote::Session;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Collects what the ranks of a job print, how they fail, who of them dies, and what they wait for.
///
/// Without --listen and --connect it collects on this machine. With --connect it passes on what happens here
/// to one that listens; one such runs on each machine.
#[derive(Parser)]
#[command(name = "hostcall collect", version)]
struct Arguments {
    /// Listens for other machines' at an address, such as tcp/127.0.0.1:7447
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Passes on what happens here to the one that listens there; it is waited for. With --waits it asks that
    /// one's machines
    #[arg(long, value_name = "ADDRESS", conflicts_with = "listen")]
    connect: Vec<String>,
    /// Lets --listen have an address that other machines reach. Who reaches it may read and say all of this
    #[arg(long)]
    beyond_this_machine: bool,
    /// The job whose ranks are collected, as torchrun, Slurm or HOSTCALL_JOB name it; all of the user's
    /// without one
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Settings of zenoh's, such as certificates, in a file of its own kind
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Names this machine so; as it names itself without
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Ends when all ranks have ended that were seen, with exit code 1 if one has failed or died
    #[arg(long, conflicts_with = "connect")]
    until_end: bool,
    /// Says once what the waves of all ranks wait for, and because of whom
    #[arg(long)]
    waits: bool,
    /// Records the traces of all ranks for a time, with the points of their kernels, and writes them into one
    /// file for Perfetto, on one time line
    #[arg(long, value_name = "FILE.pftrace", requires = "connect", conflicts_with = "waits")]
    trace: Option<PathBuf>,
    /// Shows what each rank does, again and again: calls, errors and posts a second, what waits, what is
    /// lost. With --connect the ranks of all machines
    #[arg(long, conflicts_with_all = ["waits", "trace", "listen", "until_end"])]
    top: bool,
    /// Seconds between two looks of --top
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, requires = "top")]
    every: f64,
    /// For how long, in seconds: --trace 5 without it, --top until it is interrupted
    #[arg(long = "for", value_name = "SECONDS")]
    for_s: Option<f64>,
    /// Prints one JSON object, with --top one for each look
    #[arg(long)]
    json: bool,
    /// Processes of this machine; all of the user's without one
    pids: Vec<u32>,
}

impl Arguments {
    /// Says whether it asks agents, and is none.
    fn asks(&self) -> bool {
        self.waits || self.top || self.trace.is_some()
    }

    /// Says whether others connect to it. Where neither address is said, a file of zenoh's has one.
    fn listens(&self) -> bool {
        !self.listen.is_empty() || (self.connect.is_empty() && !self.asks())
    }
}

/// Longest time in which links are made before all are asked, and in which one answers.
const LINKED: Duration = Duration::from_secs(5);

fn main() {
    let arguments = Arguments::parse();
    let code = run(arguments).unwrap_or_else(|error| {
        complain(error.to_string());
        1
    });
    // Not by returning: threads follow ranks still.
    std::process::exit(code)
}

fn session(arguments: &Arguments) -> Result<Session, hostcall_remote::RemoteError> {
    let job = arguments.job.as_deref().unwrap_or("default");
    let mut builder = if arguments.listens() { listening(job) } else { connecting(job) };
    for address in &arguments.listen {
        builder = builder.listen(address);
    }
    for address in &arguments.connect {
        builder = builder.connect(address);
    }
    if arguments.asks() {
        // Whoever asks once does not wait for somebody who may listen later.
        let limit = LINKED.as_millis().to_string();
        builder = builder.setting("connect/timeout_ms", &limit).setting("connect/exit_on_failure", "true");
    }
    if arguments.beyond_this_machine {
        builder = builder.beyond_this_machine();
    }
    if let Some(file) = &arguments.config {
        builder = builder.file(file);
    }
    builder.open()
}

/// Reads a number of seconds.
fn seconds(given: f64, option: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(given).map_err(|_| format!("{option} takes seconds, such as 5"))
}

fn run(arguments: Arguments) -> Outcome {
    if arguments.for_s.is_some() && !arguments.top && arguments.trace.is_none() {
        return Err("--for goes with --trace or --top".into());
    }
    if arguments.json && !arguments.top && !arguments.waits {
        return Err("--json goes with --waits or --top".into());
    }
    raise_limits();
    let is_agent = !arguments.connect.is_empty() && !arguments.asks();
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let host = match is_agent {
        true => Some(host_name(&arguments.host.clone().unwrap_or_else(host))),
        false => arguments.host.clone(),
    };
    let scope = Scope { pids: arguments.pids.clone(), job: arguments.job.clone(), host: host.clone() };
    let local = Local::new(scope);
    let interrupted = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process, whatever it waits for.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    let ends = Ends { with_ranks: arguments.until_end, interrupted };
    if arguments.listen.is_empty() && arguments.connect.is_empty() && arguments.config.is_none() {
        return match arguments.waits {
            true => {
                Err("name with --connect where one listens; `hostcall waits` says it of this machine".into())
            }
            false if arguments.top => {
                let of_thread = local.clone();
                let follow = move || of_thread.follow(&|_| true);
                std::thread::Builder::new().name("hostcall-find".into()).spawn(follow)?;
                ends_by_signal(&ends)?;
                top::run(&top::Source::Here(&local), top_options(&arguments)?)
            }
            false => collector::run_here(&local, &ends),
        };
    }
    if !arguments.listens() {
        // Before the link is made, which an agent waits for.
        ends_by_signal(&ends)?;
    }
    let session = session(&arguments)?;
    if arguments.waits {
        return say_waits(&session, &arguments);
    }
    if arguments.top {
        return top::run(&top::Source::Agents(&session), top_options(&arguments)?);
    }
    if let Some(file) = &arguments.trace {
        return record(&session, file, arguments.for_s.unwrap_or(5.0));
    }
    if arguments.connect.is_empty() {
        return collector::run(&session, &ends);
    }
    agent::run(&session, &local, &host.unwrap_or_default())
}

/// Has a signal end the process from now on.
fn ends_by_signal(ends: &Ends) -> std::io::Result<()> {
    let stop = ends.interrupted.clone();
    let watch = move || {
        while !stop.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::process::exit(0)
    };
    std::thread::Builder::new().name("hostcall-signals".into()).spawn(watch).map(drop)
}

fn top_options(arguments: &Arguments) -> Result<top::Options, String> {
    Ok(top::Options {
        every: seconds(arguments.every, "--every")?,
        for_s: arguments.for_s.map(|for_s| seconds(for_s, "--for")).transpose()?,
        wait_first: LINKED,
        json: arguments.json,
    })
}

fn record(session: &Session, file: &Path, for_s: f64) -> Outcome {
    if !(0.0..=traces::MOST_SECONDS).contains(&for_s) {
        return Err(format!("--for takes seconds, {} at most", traces::MOST_SECONDS).into());
    }
    traces::record(session, file, Duration::from_secs_f64(for_s))?.into_iter().for_each(complain);
    Ok(0)
}

fn say_waits(session: &Session, arguments: &Arguments) -> Outcome {
    let job = arguments.job.as_deref().unwrap_or("default");
    let begun = std::time::Instant::now();
    let (said, explained) = loop {
        let (said, explained) = waits::joined(session, job)?;
        if !said.processes.is_empty() {
            break (said, explained);
        }
        if begun.elapsed() > LINKED {
            return Err(
                "no rank answers: does a collector listen there, and do agents run with its --job?".into()
            );
        }
    };
    let text = match arguments.json {
        true => format!("{}\n", json!({ "processes": said.processes, "explained": explained })),
        false => report(&said.processes, &explained),
    };
    let lines = text
        .split_inclusive('\n')
        .map(|line| hostcall::trace::escaped(line.trim_end_matches('\n')).into_owned());
    let text: String = lines.map(|line| line + "\n").collect();
    std::io::stdout().write_all(text.as_bytes())?;
    if said.refused > 0 {
        complain(format!("{} answers are refused, since they are none or too long", said.refused));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_connects_also_where_a_file_says_whither() {
        for (arguments, listens) in [
            ("--config c.json5", true),
            ("--listen tcp/127.0.0.1:0", true),
            ("--listen tcp/127.0.0.1:0 --waits", true),
            ("--config c.json5 --top", false),
            ("--config c.json5 --waits", false),
            ("--connect tcp/127.0.0.1:1", false),
            ("--connect tcp/127.0.0.1:1 --top", false),
        ] {
            let parsed = Arguments::try_parse_from(["collect"].into_iter().chain(arguments.split(' ')));
            assert_eq!(parsed.unwrap().listens(), listens, "{arguments}");
        }
    }
}
