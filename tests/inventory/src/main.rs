//! Stocks a SQLite database from the lanes of a device, and moves stock between its items.

#![forbid(unsafe_code)]

use clap::Parser;
use hostcall::services::Builtins;
use hostcall::{Device, DeviceBuffer, Grid, LaunchKernel};
use hostcall_build::{BuildError, Request, Target, build};
use hostcall_inventory::{MOST_OF_AN_ITEM, Store};
use inventory::outcome;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Looks up an item for each lane of a device in a SQLite database, adds those that are missing, and moves
/// stock from each to the next.
#[derive(Parser)]
struct Arguments {
    /// The database's file, made when it is not there
    database: PathBuf,
    /// Device to run on
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Lanes, each with a key; some keys come twice
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    lanes: u32,
    /// Amount of each item that is added
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=MOST_OF_AN_ITEM))]
    amount: u64,
    /// Amount to move from each item to the next
    #[arg(long, default_value_t = 4)]
    transfer: u64,
    /// Image of the kernels, built before for the device; without one they are built now
    #[arg(long)]
    image: Option<PathBuf>,
}

/// Builds the kernels, and gives their image.
fn built_for(device: &Device) -> Result<PathBuf, BuildError> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/inventory");
    let request = Request::new(package, Target::parse(&device.target())?);
    Ok(build(&request)?.path)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inventory: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { database, lanes, .. } = arguments;
    let store =
        Store::open(database).map_err(|error| format!("cannot open {}: {error}", database.display()))?;
    let device = Device::builder(&arguments.device)
        .builtins(Builtins::builder().build()?)
        .service(store.serve())
        .open()?;
    let image = match &arguments.image {
        Some(image) => device.load(image)?,
        None => device.load(built_for(&device)?)?,
    };
    let stock = image.typed(&inventory::stock)?;
    let transfer = image.typed(&inventory::transfer)?;

    let items = (u64::from(*lanes) * 3).div_ceil(4);
    let keys: Vec<u64> = (0..u64::from(*lanes)).map(|lane| 1 + lane % items).collect();
    let from: Vec<u64> = (1..=items).collect();
    // The last one's next does not exist.
    let to: Vec<u64> = (2..=items + 1).collect();
    let (keys, from, to) = (device.upload(&keys)?, device.upload(&from)?, device.upload(&to)?);
    let stocked = device.alloc_zeroed::<u32>(keys.len())?;
    let moved = device.alloc_zeroed::<u32>(from.len())?;

    let stream = device.stream()?;
    let (grid, amount) = (Grid::lanes(keys.len()), arguments.amount);
    stock.launch(&stream, grid, (&keys, amount, &stocked))?;
    let amount = arguments.transfer;
    transfer.launch(&stream, grid, (&from, &to, amount, &moved))?;
    stream.synchronize()?;

    report(&stocked, &[("found", outcome::FOUND), ("added", outcome::ADDED), ("late", outcome::DUPLICATE)])?;
    report(
        &moved,
        &[("moved", outcome::MOVED), ("too few", outcome::TOO_FEW), ("no such item", outcome::NO_SUCH_ITEM)],
    )
}

/// What is said of lanes whose calls failed: which of both it was, only their own kernel learned.
fn failure(lanes: usize) -> String {
    format!(
        "{lanes} lanes had no answer from the database, or moved more to an item than the {MOST_OF_AN_ITEM} \
         that there may be of one"
    )
}

/// Prints how often each outcome was.
fn report(outcomes: &DeviceBuffer<u32>, names: &[(&str, u32)]) -> Result<(), Box<dyn Error>> {
    let outcomes = outcomes.read()?;
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let counts: Vec<String> =
        names.iter().map(|(name, wanted)| format!("{name} {}", count(*wanted))).collect();
    println!("{} lanes: {}", outcomes.len(), counts.join(", "));
    match count(outcome::FAILED) {
        0 => Ok(()),
        failed => Err(failure(failed).into()),
    }
}
