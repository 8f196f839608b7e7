//! Processes that send words to each other, from kernels that wait for signals; with `--leave-out` one of the signals is left out at
//! random, and the program finds by what waves say whose, as `hostcall waits` does.

use clap::Parser;
use hostcall::services::Builtins;
use hostcall::watch::{self, Explanation, Process, Why};
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::all_to_all::{FILE, Plan, exchange, words};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Sends words from each process to each, and finds the one that leaves a signal out
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// Processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    ranks: u32,
    /// Words that each sends to each
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Leaves one signal out, at random, and finds it
    #[arg(long)]
    leave_out: bool,
    /// Does so this many times, with other numbers
    #[arg(long, default_value_t = 1)]
    trials: u64,
    /// Leaves the processes as they are, for others to look into, until this one is interrupted
    #[arg(long, requires = "leave_out")]
    stay: bool,
    /// Waits without saying what for
    #[arg(long, conflicts_with = "leave_out")]
    unmarked: bool,
    /// Where the ranks exchange words; the program starts itself with it
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
    /// Which signal is left out: of this rank, to that, in this round
    #[arg(long, hide = true, num_args = 3)]
    signal: Vec<u64>,
}

/// How long a trial may take to find what it looks for.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks, of which the second has to find what the first did.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    hostcall_examples::main(|arguments: &Arguments| match &arguments.folder {
        Some(folder) => run_rank(arguments, folder),
        None => run_all(arguments),
    })
}

/// What a process of the job does.
fn run_rank(arguments: &Arguments, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rank: u32 = std::env::var("HOSTCALL_RANK")?.parse()?;
    // Whoever started it may end first.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1)
    });
    let (left_out_round, left_out_to) = match arguments.signal[..] {
        [from, to, round] if from == u64::from(rank) => (round, to as u32),
        _ => (0, 0),
    };
    let Arguments { ranks, rounds, .. } = *arguments;
    let marked = u32::from(!arguments.unmarked);
    let plan = Plan { rank, ranks, rounds, left_out_round, left_out_to, marked };
    let builtins = Builtins::builder().dir(folder).build()?;
    let device = hostcall_examples::device(&arguments.device).builtins(builtins).open()?;
    let stream = device.stream()?;
    let begin = Instant::now();
    exchange.launch(&stream, Grid::new(1, ranks), (plan,))?;
    stream.synchronize()?;
    if rank == 0 {
        println!("rank 0: {rounds} rounds in {:.6} s", begin.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The processes of a job, which end with this.
struct Job {
    ranks: Vec<Child>,
    name: String,
    folder: tempfile::TempDir,
}

impl Job {
    /// Starts them. `signal` is left out: of a rank, to another, in a round.
    fn start(arguments: &Arguments, number: u64, signal: Option<[u64; 3]>) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        File::create(folder.path().join(FILE))?.set_len(8 * words(arguments.ranks))?;
        let name = format!("all-to-all-{}-{number}", std::process::id());
        let mut job = Self { ranks: Vec::new(), name, folder };
        for rank in 0..arguments.ranks {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(&arguments.device).arg("--folder").arg(job.folder.path());
            command.args([
                "--ranks",
                &arguments.ranks.to_string(),
                "--rounds",
                &arguments.rounds.to_string(),
            ]);
            if arguments.unmarked {
                command.arg("--unmarked");
            }
            if let Some(signal) = signal {
                command.arg("--signal").args(signal.map(|number| number.to_string()));
            }
            command.env("HOSTCALL_RANK", rank.to_string()).env("HOSTCALL_SIZE", arguments.ranks.to_string());
            command.env("HOSTCALL_JOB", &job.name).stdin(Stdio::piped());
            job.ranks.push(command.spawn()?);
        }
        Ok(job)
    }

    /// Waits until all have ended well.
    fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            // Its end would end the process.
            let input = process.stdin.take();
            let ended = process.wait()?;
            drop(input);
            if !ended.success() {
                return Err(format!("rank {rank} has ended with {ended}").into());
            }
        }
        Ok(())
    }

    /// Asks those that are there what they do.
    fn look(&self) -> Vec<Process> {
        let states = self.ranks.iter().filter_map(|process| watch::state(process.id()).ok());
        states.filter(|process| process.who.job == self.name).collect()
    }

    /// Waits until a signal was left out, and then looks until something is named. Returns how long that took.
    fn find(&self) -> Result<(Explanation, Duration), Box<dyn Error>> {
        let (boxes, begin) = (File::open(self.folder.path().join(FILE))?, Instant::now());
        let mut left_out = [0; 8];
        while left_out == [0; 8] {
            boxes.read_exact_at(&mut left_out, 0)?;
            if begin.elapsed() > LONGEST {
                return Err("no signal was left out in time".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let begin = Instant::now();
        loop {
            let before = self.look();
            std::thread::sleep(BETWEEN_LOOKS);
            let mut explained = watch::explain(&before, &self.look(), 0);
            // Who runs and says nothing may be about to wait.
            explained.culprits.retain(|culprit| !matches!(culprit.why, Why::Runs | Why::Untold));
            if !explained.culprits.is_empty() {
                return Ok((explained, begin.elapsed()));
            }
            if begin.elapsed() > LONGEST {
                return Err("nothing was named in time".into());
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in &mut self.ranks {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A number that looks random, made from `seed`: splitmix64.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn run_all(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let ranks = u64::from(arguments.ranks);
    if !arguments.leave_out {
        let begin = Instant::now();
        for trial in 0..arguments.trials {
            Job::start(arguments, trial, None)?.wait()?;
        }
        let words = arguments.rounds * ranks * (ranks - 1) * arguments.trials;
        println!("{words} words have come, in {:.3} s", begin.elapsed().as_secs_f64());
        return Ok(());
    }
    let mut longest = Duration::ZERO;
    for trial in 0..arguments.trials {
        let random = mix(u64::from(std::process::id()) << 32 | trial);
        let from = random % ranks;
        let to = (from + 1 + (random >> 16) % (ranks - 1)) % ranks;
        let round = 1 + (random >> 32) % arguments.rounds.max(1);
        let job = Job::start(arguments, trial, Some([from, to, round]))?;
        let (explained, took) = job.find()?;
        let culprit = &explained.culprits[0];
        println!("{took:.3?}: {culprit}");
        let is_it = culprit.of.rank == Some(from)
            && culprit.waits.rank == Some(to)
            && culprit.sequence == round
            && matches!(culprit.why, Why::Past { .. } | Why::RunsNothing | Why::NotThere);
        if !is_it || explained.culprits.len() != 1 {
            return Err(format!("rank {from} has left out signal {round} to rank {to}: {explained:?}").into());
        }
        longest = longest.max(took);
        if arguments.stay {
            println!("look with: hostcall waits {}", job.ranks[0].id());
            loop {
                std::thread::park();
            }
        }
    }
    println!("named in {0} of {0}, after {longest:.3?} at the longest", arguments.trials);
    Ok(())
}
