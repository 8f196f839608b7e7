//! Millions of calls of all kinds at once, some of whose launches are cancelled: each is handled exactly once
//! and answered with its own answer.

use crate::context::read;
use crate::{Context, Outcome, ensure};
use conformance::services::{Ledger, LedgerHandler, SlowLedger, SlowLedgerHandler};
use conformance::stress::{answer, stress, value};
use conformance::{bytes, mix};
use hostcall::{DeviceBuffer, Error, Grid, LaunchFailure, Stream};
use hostcall_abi::CallError;
use hostcall_service::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls to be made at least.
    pub calls: u64,
    /// Calls of each lane of a launch.
    pub rounds: u64,
    /// Workgroups of each launch, of one wave; four launches run at once.
    pub workgroups: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub calls: u64,
    pub launches: u64,
    pub cancelled: u64,
    pub seconds: f64,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { calls, launches, cancelled, seconds } = self;
        write!(
            f,
            "{calls} calls of {launches} launches, {cancelled} of them cancelled, each handled once, in {seconds:.1} s"
        )
    }
}

/// Lanes of the workgroups, by stream and turn.
const LANES: [u32; 6] = [1, 3, 8, 2, 5, 4];

/// The lanes of one launch.
struct Books {
    rounds: u64,
    /// How often each (lane, sequence) came.
    counts: Vec<AtomicU8>,
}

/// The books of the launches that run, one a stream; a lane's number names the stream in its high bits.
struct Shelf {
    books: [parking_lot::RwLock<Option<Books>>; STREAMS],
    wrong: AtomicBool,
    calls: AtomicU64,
}

const STREAMS: usize = 4;
const STREAM_SHIFT: u32 = 20;

impl Shelf {
    fn enter(&self, lane: u64, sequence: u64) {
        let books = self.books[(lane >> STREAM_SHIFT) as usize % STREAMS].read();
        let count = books.as_ref().and_then(|books| {
            let lane = lane & ((1 << STREAM_SHIFT) - 1);
            books.counts.get((lane * books.rounds + sequence) as usize)
        });
        self.calls.fetch_add(1, Ordering::Relaxed);
        if count.is_none_or(|count| count.fetch_add(1, Ordering::Relaxed) != 0) {
            self.wrong.store(true, Ordering::Relaxed);
        }
    }

    fn call(&self, lane: u64, sequence: u64, sent: u64) -> Result<u64, CallError> {
        self.enter(lane, sequence);
        if sent != value(lane, sequence) {
            self.wrong.store(true, Ordering::Relaxed);
        }
        Ok(answer(sent))
    }
}

#[derive(Clone)]
struct Keeper(Arc<Shelf>);

impl LedgerHandler for Keeper {
    fn call(&self, lane: u64, sequence: u64, value: u64) -> Result<u64, CallError> {
        self.0.call(lane, sequence, value)
    }
    fn note(&self, lane: u64, sequence: u64, value: u64) -> Result<(), CallError> {
        self.0.call(lane, sequence, value).map(drop)
    }
}

impl SlowLedgerHandler for Keeper {
    fn call(&self, lane: u64, sequence: u64, value: u64) -> Result<u64, CallError> {
        if value.is_multiple_of(64) {
            std::thread::sleep(Duration::from_millis(value >> 8 & 3));
        }
        self.0.call(lane, sequence, value)
    }
    fn bytes(&self, lane: u64, sequence: u64, data: &[u8], out: &mut Output<'_>) -> Result<u64, CallError> {
        self.0.enter(lane, sequence);
        let seed = value(lane, sequence);
        if !data.iter().enumerate().all(|(i, sent)| *sent == bytes::byte(seed, i)) {
            self.0.wrong.store(true, Ordering::Relaxed);
        }
        out.push(data)?;
        Ok(answer(data.len() as u64))
    }
}

/// A launch on its way.
struct Launched {
    stream: Stream,
    out: DeviceBuffer<u64>,
    cancelled: bool,
}

/// Runs launches until there were `load.calls` calls.
///
/// # Errors
/// The first call that was lost, came twice, or got another one's answer.
pub fn run(context: &Context, load: Load) -> Result<Done, String> {
    let shelf = Arc::new(Shelf { books: Default::default(), wrong: false.into(), calls: 0.into() });
    let keeper = Keeper(shelf.clone());
    let session =
        context.open_with_slots(4096, |device| device.inline_service(Ledger::serve(keeper.clone())))?;
    session.device.register(SlowLedger::serve(keeper)).map_err(|error| error.to_string())?;
    let (start, mut done) = (Instant::now(), Done::default());
    for turn in 0u64.. {
        if shelf.calls.load(Ordering::Relaxed) >= load.calls {
            break;
        }
        let cancel = turn % 4 == 3;
        let mut launches = Vec::new();
        for number in 0..STREAMS as u64 {
            let lanes = LANES[(turn + number) as usize % LANES.len()];
            let grid = Grid::new(load.workgroups, lanes);
            let (stream, out) = (session.stream()?, session.out(grid, 1)?);
            let counts = (0..out.len() as u64 * load.rounds).map(|_| AtomicU8::new(0)).collect();
            *shelf.books[number as usize].write() = Some(Books { rounds: load.rounds, counts });
            let first = number << STREAM_SHIFT;
            session.launch(&stream, stress, grid, (first, load.rounds, mix(turn << 8 | number), &out))?;
            launches.push(Launched { stream, out, cancelled: cancel });
        }
        if cancel {
            std::thread::sleep(Duration::from_millis(mix(turn) % 60));
            session.device.cancel_all();
        }
        for (number, launched) in launches.iter().enumerate() {
            done.launches += 1;
            done.cancelled += u64::from(ended(launched)?);
            check(launched, shelf.books[number].read().as_ref().ok_or("the books are gone")?)?;
        }
        ensure!(!shelf.wrong.load(Ordering::Relaxed));
    }
    done.calls = shelf.calls.load(Ordering::Relaxed);
    done.seconds = start.elapsed().as_secs_f64();
    Ok(done)
}

/// Waits for the launch's end; whether it was cancelled.
fn ended(launched: &Launched) -> Result<bool, String> {
    match launched.stream.synchronize() {
        Ok(()) => Ok(false),
        Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) if launched.cancelled => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

/// Compares what lanes got with what the host did. A lane's call that was cancelled may have been handled;
/// none was handled twice, and none was answered that was not handled.
fn check(launched: &Launched, books: &Books) -> Outcome {
    for (lane, answered) in read(&launched.out)?.into_iter().enumerate() {
        if !launched.cancelled && answered != books.rounds {
            return Err(format!("lane {lane} ended after {answered} of {} calls", books.rounds));
        }
        let counts = &books.counts[lane * books.rounds as usize..][..books.rounds as usize];
        for (sequence, count) in counts.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            // A post is no call that is answered: those of a cancelled launch may be lost.
            let expected = if launched.cancelled { 0..=1 } else { 1..=1 };
            if !expected.contains(&count) {
                return Err(format!("call {sequence} of lane {lane} was handled {count} times"));
            }
        }
    }
    Ok(())
}
