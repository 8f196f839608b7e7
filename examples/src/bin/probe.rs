//! Looks keys up in a store that takes its time for each answer: one after the other, then many at a time.

use clap::Parser;
use hostcall::{CallError, Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::probe::{Store, StoreHandler, probe};
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Looks keys up in a store that takes its time, one after the other and many at a time
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many keys
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    keys: u32,
    /// How many lookups are on their way at a time, of each lane
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    open: u32,
    /// Lanes that look up
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    lanes: u32,
    /// What the store takes for an answer, in microseconds
    #[arg(long, default_value_t = 2_000)]
    answer_us: u64,
}

/// The host's side: a table, and the time that it would take to ask another machine.
struct Table {
    values: HashMap<u64, u64>,
    takes: Duration,
}

impl StoreHandler for Table {
    fn get(&self, key: u64) -> Result<Option<u64>, CallError> {
        std::thread::sleep(self.takes);
        Ok(self.values.get(&key).copied())
    }
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let keys: Vec<u64> = (0..u64::from(arguments.keys)).map(|i| i * 7919 % 100_003).collect();
    let values: HashMap<u64, u64> =
        keys.iter().filter(|key| *key % 3 != 0).map(|key| (*key, key + 1)).collect();
    let expected: Vec<u64> = keys.iter().map(|key| values.get(key).copied().unwrap_or(0)).collect();
    let takes = Duration::from_micros(arguments.answer_us);
    let device =
        hostcall_examples::device(&arguments.device).service(Store::serve(Table { values, takes })).open()?;
    let stream = device.stream()?;
    let keys = device.upload(&keys)?;
    let mut rates = Vec::new();
    for open in [1, arguments.open as usize] {
        let found = device.alloc_zeroed::<u64>(expected.len())?;
        let start = Instant::now();
        probe.launch(&stream, Grid::new(1, arguments.lanes), (&keys, open, &found))?;
        stream.synchronize()?;
        rates.push(expected.len() as f64 / start.elapsed().as_secs_f64());
        if found.read()? != expected {
            return Err("the lanes have found other values than the store has".into());
        }
        println!("{open:3} at a time: {:8.0} lookups a second", rates[rates.len() - 1]);
    }
    println!("{} keys, {:.1} times as many lookups a second", expected.len(), rates[1] / rates[0]);
    Ok(())
}
