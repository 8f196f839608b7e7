//! Kernels that ask answerers in other languages: `remote_asks ADDRESS...` reads lines `METHOD WAVES
//! TIMEOUT_US ROUNDS` and writes one for each, of how the last calls of all lanes ended. `remote_asks
//! --answer ADDRESS` is an answerer in Rust, until its input ends. The tests of the Python package run both.

use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::{Device, Gather, Grid, LaunchKernel};
use hostcall_remote::{Session, export, import};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::time::Duration;

/// What answerers in other languages have by these names and types.
#[service]
trait Store {
    /// One more, and the number of the process that says so.
    fn next(key: u64) -> (u64, u32);
    /// The key times the factor, and the negative key if it is asked for.
    fn scaled(key: u32, by: f32, is_negative: bool) -> (f32, i64);
    /// Fails for odd keys.
    fn fails(key: u64) -> u64;
    /// Never returns.
    fn waits(key: u64) -> u64;
    /// No answerer in another language has it.
    fn missing(key: u64) -> u64;
}

// ANCHOR: profiles
/// What `bindings/python/examples/feature_store.py` answers.
#[service]
trait Profiles {
    /// A user's age and score.
    fn of(user: u64) -> (f32, f32);
    fn is_known(user: u64) -> bool;
}
// ANCHOR_END: profiles

struct Answers;

impl StoreHandler for Answers {
    fn next(&self, key: u64) -> Result<(u64, u32), CallError> {
        Ok((key + 1, std::process::id()))
    }
    fn scaled(&self, key: u32, by: f32, is_negative: bool) -> Result<(f32, i64), CallError> {
        Ok((key as f32 * by, if is_negative { -i64::from(key) } else { key.into() }))
    }
    fn fails(&self, key: u64) -> Result<u64, CallError> {
        if key % 2 == 1 { Err(CallError::Failed(7)) } else { Ok(key) }
    }
    fn waits(&self, _key: u64) -> Result<u64, CallError> {
        loop {
            std::thread::park();
        }
    }
    fn missing(&self, key: u64) -> Result<u64, CallError> {
        Ok(key)
    }
}

const METHODS: [&str; 6] = ["next", "scaled", "fails", "waits", "profiles", "missing"];

/// Bits above a number that the answer has, and that say that it is right.
const RIGHT: u64 = 1 << 60;
const WRONG: u64 = 2 << 60;

fn code(error: CallError) -> u64 {
    let known = [
        CallError::Unreachable,
        CallError::MayHaveRun,
        CallError::TimedOut,
        CallError::TypeMismatch,
        CallError::NoSuchService,
        CallError::Panicked,
        CallError::Busy,
        CallError::Cancelled,
        CallError::Malformed,
        CallError::TooLarge,
        CallError::Failed(7),
    ];
    known.iter().position(|of| *of == error).unwrap_or(known.len()) as u64
}

const NAMES: [&str; 12] = [
    "Unreachable",
    "MayHaveRun",
    "TimedOut",
    "TypeMismatch",
    "NoSuchService",
    "Panicked",
    "Busy",
    "Cancelled",
    "Malformed",
    "TooLarge",
    "Failed(7)",
    "another error",
];

fn right(is_right: bool) -> u64 {
    if is_right { RIGHT } else { WRONG }
}

#[kernel]
fn asks(lane: &Lane, method: u32, timeout_us: u32, rounds: u32, out: &[Global<u64>]) {
    let key = lane.global_id() as u64;
    let store = Store::within_us(timeout_us);
    for _ in 0..rounds {
        let got = match method {
            0 => store.next(key).map(|(next, by)| right(next == key + 1) + u64::from(by)),
            1 => {
                let is_negative = key % 2 == 1;
                let expected = (key as f32 * 1.5, if is_negative { -(key as i64) } else { key as i64 });
                store.scaled(key as u32, 1.5, is_negative).map(|got| right(got == expected))
            }
            2 => store.fails(key).map(|got| right(got == key)),
            3 => store.waits(key).map(|got| right(got == key)),
            4 => {
                let expected = ((key % 1000 % 90) as f32, (key % 1000) as f32 / 1000.0);
                let is_known = Profiles::within_us(timeout_us).is_known(key) == Ok(key < 1000);
                Profiles::within_us(timeout_us).of(key).map(|got| right(is_known && got == expected))
            }
            _ => store.missing(key).map(|got| right(got == key)),
        };
        out[key as usize].set(got.unwrap_or_else(code));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [first, address] = &arguments[..]
        && first == "--answer"
    {
        let session = Session::builder().listen(address).open()?;
        let _export = export(&session, "store", Store::serve(Answers))?;
        println!("READY");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    let session =
        arguments.iter().fold(Session::builder().longest(Duration::from_secs(3)), |session, address| {
            session.connect(address)
        });
    let session = session.open()?;
    let store = import(&session, "store", Store::METHODS)?;
    let profiles = import(&session, "profiles", Profiles::METHODS)?;
    let device = Device::builder("cpu").gathered_service(store, Gather::default());
    let device = device.gathered_service(profiles, Gather::default()).open()?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let [method, waves, timeout_us, rounds] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err("expected METHOD WAVES TIMEOUT_US ROUNDS".into());
        };
        let method = METHODS.iter().position(|name| *name == method).ok_or("there is no such method")?;
        let (waves, timeout_us, rounds): (u32, u32, u32) =
            (waves.parse()?, timeout_us.parse()?, rounds.parse()?);
        let (stream, out) = (device.stream()?, device.alloc_zeroed::<u64>(32 * waves as usize)?);
        let launch = asks.launch(&stream, Grid::new(waves, 32), (method as u32, timeout_us, rounds, &out))?;
        launch.wait_for(Duration::from_secs(120))?;
        let mut ends = BTreeMap::<String, usize>::new();
        for got in out.read()? {
            let end = match got {
                RIGHT.. if got < WRONG => format!("right by {}", got - RIGHT),
                WRONG.. => "wrong".to_owned(),
                _ => NAMES[got as usize].to_owned(),
            };
            *ends.entry(end).or_default() += 1;
        }
        let ends: Vec<_> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
        println!("{}", ends.join(", "));
    }
    Ok(())
}
