//! Scores requests on the device by features that another process has: an answerer, which this program starts, or which runs
//! elsewhere.
//!
//! `features` runs both. `features --answer tcp/127.0.0.1:7450` answers, and `features cuda:0 --ask tcp/127.0.0.1:7450` asks.

use clap::Parser;
use hostcall::{Gather, Gathered, Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::features::{Features, FeaturesGatheredHandler, UNKNOWN, score};
use hostcall_remote::{Session, export_gathered, import};
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Scores requests by features that another process has
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many requests
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    requests: u32,
    /// Asks again and again for so many seconds, and in any case once
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Answers at this address, until the standard input ends; runs nothing on the device
    #[arg(long, value_name = "ADDRESS", conflicts_with = "ask")]
    answer: Option<String>,
    /// Lets the address be one that other machines reach, which may then ask whatever they like
    #[arg(long)]
    beyond_this_machine: bool,
    /// Asks whoever answers at this address; without it, a process that is started for this run
    #[arg(long, value_name = "ADDRESS")]
    ask: Option<String>,
}

/// Users that the store knows: most of these.
const USERS: u64 = 5000;

/// How much each feature counts.
const WEIGHTS: [f32; 4] = [0.5, 0.25, 2.0, 1.0];

fn features_of(user: u64) -> Option<[f32; 4]> {
    (user % 13 != 5).then(|| [1, 3, 5, 7].map(|prime| (user * prime % 101) as f32))
}

// ANCHOR: handler
/// The store. Its handler gets the calls of all waves that wait, and looks all of them up at once.
struct Store(HashMap<u64, [f32; 4]>);

impl FeaturesGatheredHandler for Store {
    async fn of(&self, calls: Gathered<u64, Option<[f32; 4]>>) {
        let found: Vec<_> = calls.arguments().iter().map(|user| Ok(self.0.get(user).copied())).collect();
        calls.answer_all(found);
    }
}
// ANCHOR_END: handler

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(address) = &arguments.answer {
        return answer(address, arguments.beyond_this_machine);
    }
    let mut started = None;
    let address = match &arguments.ask {
        Some(address) => address.clone(),
        None => {
            let place = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let address = format!("tcp/{place}");
            started = Some(Answerer::start(&address)?);
            address
        }
    };
    let users: Vec<u64> = (0..u64::from(arguments.requests)).map(|request| request * 7919 % USERS).collect();

    // ANCHOR: ask
    let session = Session::builder().connect(address).open()?;
    let features = import(&session, "features", Features::METHODS)?;
    let device =
        hostcall_examples::device(&arguments.device).gathered_service(features, Gather::default()).open()?;
    // ANCHOR_END: ask
    let stream = device.stream()?;
    let (on_device, scores) = (device.upload(&users)?, device.alloc_zeroed::<f32>(users.len())?);
    let (begun, mut rounds, mut failed) = (Instant::now(), 0, 0);
    let mut last = Ok(());
    while rounds + failed == 0 || begun.elapsed().as_secs() < arguments.seconds {
        score.launch(&stream, Grid::lanes(users.len()), (&on_device, WEIGHTS, &scores))?;
        last = stream.synchronize();
        if let Err(error) = &last {
            failed += 1;
            println!("{error}");
            // Where nobody answers, lanes are told at once.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        check(&users, &scores.read()?)?;
        rounds += 1;
    }
    let counted = session.counts();
    println!(
        "{} requests asked another process in {} messages; {} rounds, {failed} failed, {} calls not sent, {} without an answer",
        users.len() * rounds,
        counted.questions,
        rounds + failed,
        counted.unreachable,
        counted.may_have_run
    );
    drop(started);
    // Of rounds that failed, the last one counts: those before were made up for.
    Ok(last?)
}

/// Checks the scores of users.
fn check(users: &[u64], scores: &[f32]) -> Result<(), String> {
    for (user, found) in users.iter().zip(scores) {
        let of = features_of(*user);
        let expected = of.map_or(UNKNOWN, |of| of.iter().zip(WEIGHTS).map(|(a, b)| a * b).sum());
        if (found - expected).abs() > 0.01 {
            return Err(format!("user {user} scores {expected}, not {found}"));
        }
    }
    Ok(())
}

/// Answers until the standard input ends.
fn answer(address: &str, beyond_this_machine: bool) -> Result<(), Box<dyn Error>> {
    let users = (0..USERS).filter_map(|user| Some((user, features_of(user)?)));
    // ANCHOR: answer
    let store = Store(users.collect());
    let mut session = Session::builder().listen(address);
    if beyond_this_machine {
        session = session.beyond_this_machine();
    }
    let session = session.open()?;
    let _export = export_gathered(&session, "features", Features::serve_gathered(store))?;
    // ANCHOR_END: answer
    println!("answers at {address}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// This program as the process that answers. It is ended when this is dropped.
struct Answerer(Child);

impl Answerer {
    fn start(address: &str) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["--answer", address]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let says = child.stdout.take();
        let answerer = Self(child);
        // It says a line when it answers.
        BufReader::new(says.ok_or("the process has no output")?).read_line(&mut String::new())?;
        Ok(answerer)
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        // The end of its standard input ends it.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
