//! Launches that are cancelled at random moments, while their lanes wait in every way that lanes can wait. Nothing is ended
//! by force: each launch ends because each of its calls is answered.

use crate::{Context, Messages, OpenDevices, Outcome, Session, echo};
use conformance::cancels::{WAYS, cancel_wait};
use conformance::mix;
use conformance::services::{
    Arrivals, ArrivalsHandler, AsyncGate, AsyncGateAsyncHandler, Bytes, Gate, GateHandler, Meter,
    MeterHandler,
};
use hostcall::{DeviceBuffer, Error, Grid, Hostcall, LaunchFailure, Stream};
use hostcall_abi::CallError;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Launches that run at once, and are cancelled together.
const STREAMS: usize = 4;

/// Cancelled launches until the device is opened anew, with the next seed's set-up.
const LAUNCHES_A_DEVICE: u64 = 4000;

/// Lanes of the launches' workgroups. Most are small, so that there are many cancellations.
const LANES: [u32; 8] = [1, 1, 2, 2, 3, 5, 7, 70];

/// How long a round may take; one that takes longer hangs.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cancels {
    /// Cancelled launches by way of waiting, as [`WAYS`] names them.
    pub launches: [u64; WAYS.len()],
    /// Calls of handlers that wait, each of which has returned.
    pub waits: u64,
    /// Lanes that learned of the cancellation from a call; the others ended between calls.
    pub told_lanes: u64,
    pub lanes: u64,
    pub seconds: f64,
}

impl Cancels {
    pub fn total(&self) -> u64 {
        self.launches.iter().sum()
    }
}

impl Cancels {
    fn add(&mut self, more: &Self) {
        for (sum, count) in self.launches.iter_mut().zip(more.launches) {
            *sum += count;
        }
        self.waits += more.waits;
        self.told_lanes += more.told_lanes;
        self.lanes += more.lanes;
    }
}

impl std::fmt::Display for Cancels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { launches, waits, told_lanes, lanes, seconds } = self;
        write!(f, "{} launches cancelled in {seconds:.1} s, all ended:", self.total())?;
        for (way, count) in WAYS.iter().zip(launches) {
            write!(f, " {way} {count}")?;
        }
        write!(f, "; {waits} waiting calls returned; {told_lanes} of {lanes} lanes were told by a call")
    }
}

/// Handlers that do not answer while their key is held. Clones share it.
#[derive(Clone, Default)]
struct Holds(Arc<(Mutex<Held>, Condvar)>);

#[derive(Default)]
struct Held {
    /// Keys that are held, with how many lanes of each have arrived.
    arrived: HashMap<u64, u32>,
    /// Calls that wait now, and that have waited.
    waiting: u64,
    waited: u64,
}

/// Two keys belong to a launch, so that some of its calls wait for another reason than others.
fn launch_of(key: u64) -> u64 {
    key & !1
}

impl Holds {
    fn is_held(&self, key: u64) -> bool {
        self.0.0.lock().arrived.contains_key(&launch_of(key))
    }

    fn hold(&self, key: u64) {
        self.0.0.lock().arrived.insert(key, 0);
    }

    fn release(&self, key: u64) {
        self.0.0.lock().arrived.remove(&key);
        self.0.1.notify_all();
    }

    /// Waits until a lane of the launch has arrived.
    fn wait_for_arrival(&self, key: u64) -> Outcome {
        let mut held = self.0.0.lock();
        while held.arrived.get(&key).is_some_and(|count| *count == 0) {
            if self.0.1.wait_for(&mut held, ROUND_LIMIT / 2).timed_out() {
                return Err("no lane of a launch has called".into());
            }
        }
        Ok(())
    }

    /// Waits until no call waits any more; returns how many have waited.
    fn drain(&self) -> Result<u64, String> {
        let mut held = self.0.0.lock();
        while held.waiting > 0 {
            if self.0.1.wait_for(&mut held, ROUND_LIMIT / 2).timed_out() {
                return Err(format!("{} handlers have not returned", held.waiting));
            }
        }
        Ok(held.waited)
    }

    fn begin(&self) -> Waiting {
        let mut held = self.0.0.lock();
        held.waiting += 1;
        held.waited += 1;
        Waiting(self.clone())
    }
}

/// A handler that waits, until it returns or its future is dropped.
struct Waiting(Holds);

impl Drop for Waiting {
    fn drop(&mut self) {
        let Holds(shared) = &self.0;
        shared.0.lock().waiting -= 1;
        shared.1.notify_all();
    }
}

impl ArrivalsHandler for Holds {
    fn arrive(&self, key: u64) -> Result<(), CallError> {
        if let Some(count) = self.0.0.lock().arrived.get_mut(&key) {
            *count += 1;
        }
        self.0.1.notify_all();
        Ok(())
    }
}

impl GateHandler for Holds {
    fn pass(&self, key: u64) -> Result<u64, CallError> {
        let _waiting = self.begin();
        let mut held = self.0.0.lock();
        while held.arrived.contains_key(&launch_of(key)) {
            self.0.1.wait(&mut held);
        }
        drop(held);
        Ok(key)
    }
}

impl AsyncGateAsyncHandler for Holds {
    async fn pass(&self, key: u64) -> Result<u64, CallError> {
        let _waiting = self.begin();
        while self.is_held(key) {
            smol::Timer::after(Duration::from_millis(1)).await;
        }
        Ok(key)
    }
}

/// Takes its time for each post, so that rings fill.
impl MeterHandler for Holds {
    fn note(&self, _key: u64, _value: u64) -> Result<(), CallError> {
        for _ in 0..200 {
            std::hint::spin_loop();
        }
        Ok(())
    }
    fn next(&self, _key: u64) -> Result<u64, CallError> {
        Ok(0)
    }
    fn noted(&self, _key: u64) -> Result<u64, CallError> {
        Ok(0)
    }
    fn note0(&self) -> Result<(), CallError> {
        Ok(())
    }
    fn note1(&self, _a: u64) -> Result<(), CallError> {
        Ok(())
    }
    fn note3(&self, _values: [u64; 3]) -> Result<(), CallError> {
        Ok(())
    }
    fn note4(&self, _values: [u64; 4]) -> Result<(), CallError> {
        Ok(())
    }
    fn note5(&self, _values: [u64; 5]) -> Result<(), CallError> {
        Ok(())
    }
    fn note6(&self, _values: [u64; 6]) -> Result<(), CallError> {
        Ok(())
    }
    fn note20(&self, _values: [u64; 20]) -> Result<(), CallError> {
        Ok(())
    }
}

/// A device with what it takes to cancel launches on it.
struct Stage {
    session: Session,
    holds: Holds,
    streams: Vec<Stream>,
    remote: Hostcall<u64, u64>,
    open: OpenDevices,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Stage {
    fn new(context: &Context) -> Result<Self, String> {
        let holds = Holds::default();
        let session = context.open(|device| {
            device
                .inline_service(echo())
                .inline_service(Arrivals::serve(holds.clone()))
                .inline_service(Meter::serve(holds.clone()))
                .service(Gate::serve(holds.clone()))
                .service(Bytes::serve(Messages))
                .async_service(AsyncGate::serve_async(holds.clone()))
        })?;
        let streams = (0..STREAMS).map(|_| session.stream()).collect::<Result<_, _>>()?;
        let remote = Hostcall::continuous(&session.device, |value: u64| value).map_err(text)?;
        Ok(Self { session, holds, streams, remote, open: context.open.clone() })
    }

    /// Runs one round, whose launches are what `seed` says; adds what was done to `done`.
    fn round(&self, seed: u64, done: &mut Cancels) -> Outcome {
        let mut launches: Vec<(usize, u64, DeviceBuffer<u64>)> = Vec::new();
        for (number, stream) in self.streams.iter().enumerate() {
            let draw = mix(mix(seed) ^ number as u64);
            let (way, key) = (draw as usize % WAYS.len(), (seed * STREAMS as u64 + number as u64) << 1);
            let grid = Grid::new(1 + (draw >> 8 & 1) as u32, LANES[(draw >> 16) as usize % LANES.len()]);
            let out = self.session.out(grid, 1)?;
            self.holds.hold(key);
            let arguments = (way as u32, key, &self.remote, &out);
            self.session.launch(stream, cancel_wait, grid, arguments)?;
            launches.push((way, key, out));
        }
        let ways: Vec<_> = launches.iter().map(|(way, ..)| WAYS[*way]).collect();
        self.open.note(format!("round {}, whose launches wait by {}", seed & 0xFFFF, ways.join(", ")));
        for (_, key, _) in &launches {
            self.holds.wait_for_arrival(*key)?;
        }
        pass_time(mix(!seed));
        self.session.device.cancel_all();
        let mut outcome = Ok(());
        for (stream, (way, key, out)) in self.streams.iter().zip(launches) {
            let ended = stream.synchronize();
            self.holds.release(key);
            match ended {
                Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => {}
                other => {
                    let way = WAYS[way];
                    outcome = outcome
                        .and(Err(format!("a launch whose lanes wait by `{way}` ended with {other:?}")));
                }
            }
            let told = out.read().map_err(text)?;
            done.launches[way] += 1;
            done.lanes += told.len() as u64;
            done.told_lanes += told.iter().sum::<u64>();
        }
        outcome
    }
}

/// Lets a random time pass: often none, at most half a millisecond.
fn pass_time(draw: u64) {
    let most_ns = 1u64 << (draw % 20);
    let (start, time) = (Instant::now(), Duration::from_nanos((draw >> 8) % most_ns));
    while start.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Cancels so many launches, with set-ups from `seed` on.
///
/// # Errors
/// A report of the first launch that did not end, or ended otherwise than cancelled.
pub fn run(context: &Context, seed: u64, launches: u64) -> Result<Cancels, String> {
    let (start, mut done) = (Instant::now(), Cancels::default());
    for set_up_seed in seed.. {
        let left = launches.saturating_sub(done.total());
        if left == 0 {
            break;
        }
        let context = context.of_seed(set_up_seed);
        let more = on_a_device(&context, set_up_seed, left.min(LAUNCHES_A_DEVICE)).map_err(|error| {
            let set_up = context.set_up();
            format!("seed {set_up_seed} ({set_up}; again by `--cancels {LAUNCHES_A_DEVICE} --seed {set_up_seed}`): {error}")
        })?;
        done.add(&more);
        done.seconds = start.elapsed().as_secs_f64();
        if (set_up_seed - seed) % 10 == 9 {
            println!("{done}");
        }
    }
    Ok(done)
}

/// Cancels so many launches on one device.
///
/// # Errors
/// As [`run`].
pub fn on_a_device(context: &Context, seed: u64, launches: u64) -> Result<Cancels, String> {
    // By force, a launch would end without its calls' answers.
    let cancel_grace = Duration::from_secs(86_400);
    let context = Context { cancel_grace, open: OpenDevices::default(), ..context.clone() };
    let inner = context.clone();
    context.limited(ROUND_LIMIT, move |got_on| {
        let (stage, mut done) = (Stage::new(&inner)?, Cancels::default());
        for round in (0..).take_while(|round| round * (STREAMS as u64) < launches) {
            let draw = mix(seed) >> 24 << 16 | round;
            stage.round(draw, &mut done).map_err(|error| format!("round {round}: {error}"))?;
            got_on();
        }
        done.waits = stage.holds.drain()?;
        let waiting = stage.session.device.waiting();
        match waiting.first() {
            None => Ok(done),
            Some(stall) => {
                Err(format!("{} calls are said to wait when all launches have ended: {stall}", waiting.len()))
            }
        }
    })
}
