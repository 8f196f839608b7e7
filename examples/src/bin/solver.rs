//! An iterative solver whose host hears of every step and decides when it is enough: the same steps as launches, as a
//! replayed graph, and as a loop in a graph. Nobody synchronises between steps.

use clap::Parser;
use hostcall::graph::{CaptureMode, Condition, Graph};
use hostcall::{CallError, Device, DeviceBuffer, Error, Grid, LaunchKernel, Stream};
use hostcall_examples::println;
use hostcall_examples_kernels::solver::{Progress, ProgressHandler, measure, report, sweep};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Solves an equation until the host says that it is enough
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
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

/// Points of the line.
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

    // ANCHOR: step
    /// Puts one step on a stream: on one that captures, it is recorded.
    fn step(&self, stream: &Stream) -> Result<(), Error> {
        let grid = Grid::lanes(POINTS);
        sweep.launch(stream, grid, (&self.a, &self.b))?;
        sweep.launch(stream, grid, (&self.b, &self.a))?;
        measure.launch(stream, grid, (&self.a, &self.b, &self.largest))?;
        report.launch(stream, Grid::new(1, 1), (&self.largest, &self.go_on))?;
        Ok(())
    }
    // ANCHOR_END: step

    /// Puts steps on the stream until the host says that it is enough.
    fn by_launches(&self, stream: &Stream, is_enough: impl Fn() -> bool) -> Result<(), Error> {
        let mut ahead = VecDeque::new();
        while !is_enough() {
            self.step(stream)?;
            ahead.push_back(stream.record()?);
            if ahead.len() > AHEAD {
                ahead.pop_front().expect("there are some").wait()?;
            }
        }
        Ok(())
    }

    // ANCHOR: replays
    /// The same, by a graph that is launched again and again.
    fn by_replays(&self, stream: &Stream, is_enough: impl Fn() -> bool) -> Result<(), Error> {
        let step = stream.capture(CaptureMode::ThreadLocal, |stream| self.step(stream))?;
        let step = step.named("step").instantiate()?;
        step.upload(stream)?;
        let mut ahead = VecDeque::new();
        while !is_enough() {
            ahead.push_back(step.launch(stream)?);
            if ahead.len() > AHEAD {
                ahead.pop_front().expect("there are some").wait()?;
            }
        }
        Ok(())
    }
    // ANCHOR_END: replays

    // ANCHOR: loop
    /// The same, by one launch of a graph that repeats itself.
    fn by_a_loop(&self, device: &Device, stream: &Stream) -> Result<(), Error> {
        let step = stream.capture(CaptureMode::ThreadLocal, |stream| self.step(stream))?;
        let mut graph = Graph::new(device).named("solve");
        graph.add_while(&Condition::word(&self.go_on)?, &step)?;
        let solve = graph.instantiate()?;
        solve.upload(stream)?;
        solve.launch(stream).map(drop)
    }
    // ANCHOR_END: loop
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    for way in ["launches", "replays", "a loop in the graph"] {
        let watched = Watched { steps: 0.into(), is_enough: 0.into(), last: Mutex::new(f32::INFINITY) };
        let watch = Watch(Arc::new(watched));
        let device =
            hostcall_examples::device(&arguments.device).service(Progress::serve(watch.clone())).open()?;
        let stream = device.stream()?;
        let solver = Solver::new(&device)?;
        let begin = Instant::now();
        let is_enough = || watch.0.is_enough.load(Ordering::Relaxed) > 0;
        match way {
            "launches" => solver.by_launches(&stream, is_enough)?,
            "replays" => solver.by_replays(&stream, is_enough)?,
            _ => solver.by_a_loop(&device, &stream)?,
        }
        stream.synchronize()?;
        let time = begin.elapsed();
        let apart = |(i, value): (usize, &f32)| {
            let x = i as f32 / (POINTS - 1) as f32;
            (value - x * (1.0 - x) / 2.0).abs()
        };
        let apart = solver.a.read()?.iter().enumerate().map(apart).fold(0.0, f32::max);
        if apart > 0.005 {
            return Err(format!("{way}: the solution is {apart} from the equation's").into());
        }
        let steps = watch.0.steps.load(Ordering::Relaxed);
        println!(
            "{way}: enough after {} steps of {steps}, {:.1} µs a step, {apart:.4} from the equation's solution",
            watch.0.is_enough.load(Ordering::Relaxed),
            time.as_secs_f64() * 1e6 / steps as f64,
        );
    }
    Ok(())
}
