//! An iterative solver whose host hears of every step and decides when it is enough: the same steps as launches, as a
//! replayed graph, and as a loop in a graph.
//!
//! `cargo run --release -p hostcall --example solver -- [DEVICE]`
//!
//! The equation is -u'' = 1 on a line whose ends are 0, by Jacobi's method. A step is two sweeps, a measure of how much
//! the second changed, and a call that reports it. Nobody synchronises between steps.

use hostcall::graph::{CaptureMode, Condition, Graph};
use hostcall::{
    CallError, Device, DeviceBuffer, Error, Global, Grid, Lane, LaunchKernel, Stream, kernel, service,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What the solver tells the host.
#[service]
trait Progress {
    /// Takes the largest change of a step, and says whether to go on.
    fn report(change: f32) -> bool;
}

/// One sweep of Jacobi's method over the inner points.
#[kernel]
fn sweep(lane: &Lane, from: &[f32], to: &[Global<f32>]) {
    let i = lane.global_id();
    if i > 0 && i + 1 < from.len() {
        let h = 1.0 / (from.len() - 1) as f32;
        to[i].set(0.5 * (from[i - 1] + from[i + 1] + h * h));
    }
}

/// Keeps the largest difference: the bits of floats that are not negative are ordered as the floats are.
#[kernel]
fn measure(lane: &Lane, a: &[f32], b: &[f32], largest: &AtomicU32) {
    let i = lane.global_id();
    if i < a.len() {
        let change = (a[i] - b[i]).max(b[i] - a[i]);
        largest.fetch_max(change.to_bits(), Ordering::Relaxed);
    }
}

/// Reports the largest change to the host, and keeps the answer.
#[kernel]
fn report(_: &Lane, largest: &AtomicU32, go_on: &Global<u32>) {
    let change = f32::from_bits(largest.swap(0, Ordering::Relaxed));
    go_on.set(u32::from(Progress::report(change).unwrap()));
}

/// The host's side.
#[derive(Clone)]
struct Watch(Arc<Watched>);

struct Watched {
    steps: AtomicU64,
    is_enough: AtomicU64,
    last: Mutex<f32>,
}

/// A change below which the solver is stopped.
const ENOUGH: f32 = 1e-6;

impl ProgressHandler for Watch {
    fn report(&self, change: f32) -> Result<bool, CallError> {
        let step = self.0.steps.fetch_add(1, Ordering::Relaxed) + 1;
        *self.0.last.lock().unwrap() = change;
        if change < ENOUGH {
            let _ = self.0.is_enough.compare_exchange(0, step, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(change >= ENOUGH)
    }
}

const POINTS: usize = 64;

/// Steps that may be on their way before the host looks whether it was enough.
const AHEAD: usize = 16;

struct Solver {
    a: DeviceBuffer<f32>,
    b: DeviceBuffer<f32>,
    largest: DeviceBuffer<u32>,
    go_on: DeviceBuffer<u32>,
}

impl Solver {
    fn new(device: &Device) -> Result<Self, Error> {
        let (a, b) = (device.alloc_zeroed(POINTS)?, device.alloc_zeroed(POINTS)?);
        Ok(Self { a, b, largest: device.alloc_zeroed(1)?, go_on: device.upload(&[1])? })
    }

    /// Puts one step on a stream: on one that captures, it is recorded.
    fn step(&self, stream: &Stream) -> Result<(), Error> {
        let grid = Grid::lanes(POINTS as u32);
        sweep.launch(stream, grid, (&self.a, &self.b))?;
        sweep.launch(stream, grid, (&self.b, &self.a))?;
        measure.launch(stream, grid, (&self.a, &self.b, &self.largest))?;
        report.launch(stream, Grid::new(1, 1), (&self.largest, &self.go_on))?;
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    for way in ["launches", "replays", "a loop in the graph"] {
        let watched = Watched { steps: 0.into(), is_enough: 0.into(), last: Mutex::new(f32::INFINITY) };
        let watch = Watch(Arc::new(watched));
        let device = Device::builder(&name).service(Progress::serve(watch.clone())).open()?;
        let stream = device.stream()?;
        let solver = Solver::new(&device)?;
        let begin = Instant::now();
        let is_enough = || watch.0.is_enough.load(Ordering::Relaxed) > 0;
        match way {
            "launches" => {
                let mut ahead = VecDeque::new();
                while !is_enough() {
                    solver.step(&stream)?;
                    ahead.push_back(stream.record()?);
                    if ahead.len() > AHEAD {
                        ahead.pop_front().expect("there are some").wait()?;
                    }
                }
            }
            "replays" => {
                let step = stream.capture(CaptureMode::ThreadLocal, |stream| solver.step(stream))?;
                let step = step.named("step").instantiate()?;
                step.upload(&stream)?;
                let mut ahead = VecDeque::new();
                while !is_enough() {
                    ahead.push_back(step.launch(&stream)?);
                    if ahead.len() > AHEAD {
                        ahead.pop_front().expect("there are some").wait()?;
                    }
                }
            }
            _ => {
                let step = stream.capture(CaptureMode::ThreadLocal, |stream| solver.step(stream))?;
                let mut graph = Graph::new(&device).named("solve");
                graph.add_while(&Condition::word(&solver.go_on)?, &step)?;
                let solve = graph.instantiate()?;
                solve.upload(&stream)?;
                solve.launch(&stream)?;
            }
        }
        stream.synchronize()?;
        let time = begin.elapsed();
        let values = solver.a.read()?;
        let middle = values[POINTS / 2];
        assert!((middle - 0.125).abs() < 0.01, "{middle} is not the solution");
        let steps = watch.0.steps.load(Ordering::Relaxed);
        println!(
            "{way}: enough after {} steps of {steps}, {:.1} µs a step, u(1/2) = {middle:.4}",
            watch.0.is_enough.load(Ordering::Relaxed),
            time.as_secs_f64() * 1e6 / steps as f64,
        );
    }
    Ok(())
}
