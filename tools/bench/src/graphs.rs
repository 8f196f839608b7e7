//! Replays of graphs, beside the same work launched kernel by kernel, and beside the driver's own graphs in the same run, whose
//! kernels do nothing too or ask with one word each way.

use crate::launches::{driver_gpu, driver_kernel};
use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::graph::{CaptureMode, Condition, Graph, Instance};
use hostcall::{Grid, LaunchKernel, Stream};
use hostcall_bench_kernels::{ask_host, call_once, empty};
use hostcall_cuda::BareAsks;
use std::time::Instant;

/// Kernels of a graph.
const KERNELS: u32 = 100;

/// Turns of a loop in a graph.
const TURNS: u32 = 1000;

const ONE: Grid = Grid::new(1, 1);

/// Names of a graph's figures, each for one kernel: replays back to back, the host's part of these, replays that are each
/// waited for, and the same launches back to back without a graph.
struct Names {
    replayed: &'static str,
    pushed: &'static str,
    waited: &'static str,
    launched: &'static str,
}

const EMPTY: Names = Names {
    replayed: "graph_100_empty_us",
    pushed: "graph_100_empty_pushed_us",
    waited: "graph_100_empty_waited_us",
    launched: "loop_100_empty_us",
};

const CALLS: Names = Names {
    replayed: "graph_100_calls_us",
    pushed: "graph_100_calls_pushed_us",
    waited: "graph_100_calls_waited_us",
    launched: "loop_100_calls_us",
};

/// Times of one kernel, in microseconds.
#[derive(Default)]
struct Times {
    replayed: Vec<f64>,
    pushed: Vec<f64>,
    waited: Vec<f64>,
    launched: Vec<f64>,
}

/// Microseconds for each of some kernels.
fn each_us(start: Instant, replays: u32) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / f64::from(replays * KERNELS)
}

impl Times {
    fn measure(
        &mut self,
        stream: &Stream,
        instance: &Instance,
        replays: u32,
        launch: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let start = Instant::now();
        for _ in 0..replays {
            instance.launch(stream)?;
        }
        self.pushed.push(each_us(start, replays));
        stream.synchronize()?;
        self.replayed.push(each_us(start, replays));
        let start = Instant::now();
        for _ in 0..replays {
            instance.launch(stream)?;
            stream.synchronize()?;
        }
        self.waited.push(each_us(start, replays));
        let start = Instant::now();
        for _ in 0..replays * KERNELS {
            launch()?;
        }
        stream.synchronize()?;
        self.launched.push(each_us(start, replays));
        Ok(())
    }

    fn rows(self, names: &Names, bare: [Option<f64>; 2]) -> [Row; 4] {
        let [replayed, waited] = bare;
        [
            Row::time(names.replayed, "us", median(self.replayed), replayed),
            Row::time(names.pushed, "us", median(self.pushed), None),
            Row::time(names.waited, "us", median(self.waited), waited),
            Row::time(names.launched, "us", median(self.launched), None),
        ]
    }
}

/// Times graphs of kernels that do nothing and that call once, and loops that ask the host after each turn.
pub fn graphs(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let stream = bed.device.stream()?;
    let replays = if options.is_software() { 20 } else { 500 };
    let row = |work: &dyn Fn() -> Result<()>| -> Result<Instance> {
        stream.begin_capture(CaptureMode::ThreadLocal)?;
        for _ in 0..KERNELS {
            work()?;
        }
        let instance = stream.end_capture()?.instantiate()?;
        instance.upload(&stream)?;
        instance.launch(&stream)?.wait()?;
        Ok(instance)
    };
    let failed = bed.device.alloc_zeroed::<u64>(1)?;
    let launch_empty = || -> Result<()> { Ok(empty.launch(&stream, ONE, ()).map(drop)?) };
    let launch_call = || -> Result<()> { Ok(call_once.launch(&stream, ONE, (&failed,)).map(drop)?) };
    let (empties, calls) = (row(&launch_empty)?, row(&launch_call)?);
    let rival = driver_kernel(options)?;
    let list = rival.as_ref().map(|rival| rival.list(KERNELS, 1)).transpose()?;
    let mut asks = driver_gpu(options)?.map(|gpu| BareAsks::in_row(&gpu, KERNELS)).transpose()?;
    let (mut of_empties, mut of_calls) = (Times::default(), Times::default());
    let (mut driver_replayed, mut driver_waited) = (Vec::new(), Vec::new());
    let (mut asks_replayed, mut asks_waited) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats.max(1) {
        of_empties.measure(&stream, &empties, replays, launch_empty)?;
        of_calls.measure(&stream, &calls, replays, launch_call)?;
        if let (Some(rival), Some(list)) = (&rival, &list) {
            for (each_waits, times) in [(false, &mut driver_replayed), (true, &mut driver_waited)] {
                let start = Instant::now();
                for _ in 0..replays {
                    rival.launch_list(list)?;
                    if each_waits {
                        rival.synchronize()?;
                    }
                }
                rival.synchronize()?;
                times.push(each_us(start, replays));
            }
        }
        if let Some(asks) = &mut asks {
            for (each_waits, times) in [(false, &mut asks_replayed), (true, &mut asks_waited)] {
                let took = asks.run(replays, each_waits)?;
                times.push(took.as_secs_f64() * 1e6 / f64::from(replays * KERNELS));
            }
        }
    }
    if failed.read()? != [0] {
        return Err("calls of a graph's kernels failed".into());
    }
    let driver = [driver_replayed, driver_waited].map(|times| list.as_ref().map(|_| median(times)));
    let bare = [asks_replayed, asks_waited].map(|times| asks.as_ref().map(|_| median(times)));
    let mut rows: Vec<_> = of_empties.rows(&EMPTY, driver).into();
    rows.extend(of_calls.rows(&CALLS, bare));
    rows.extend(turns(options, &bed, &stream)?);
    Ok(rows)
}

/// How a loop takes its turns.
#[derive(Clone, Copy)]
enum Way {
    /// A replay of a graph whose body the device repeats, where it can.
    Device,
    /// A replay of a graph whose body the host repeats.
    Host,
    /// Launches that are waited for.
    Launches,
}

/// A loop whose kernel asks the host after each turn whether to go on: in a graph, and launched and waited for; beside the
/// driver's own loop with one word each way.
fn turns(options: &Options, bed: &Bed, stream: &Stream) -> Result<[Row; 3]> {
    let (left, go_on) = (bed.device.alloc_zeroed::<u64>(1)?, bed.device.alloc_zeroed::<u32>(1)?);
    let body = stream.capture(CaptureMode::ThreadLocal, |stream| {
        ask_host.launch(stream, ONE, (&left, &go_on)).map(drop)
    })?;
    let looping = |condition: &Condition| -> Result<Instance> {
        let mut graph = Graph::new(&bed.device);
        graph.add_while(condition, &body)?;
        let instance = graph.instantiate()?;
        instance.upload(stream)?;
        Ok(instance)
    };
    let by_device = looping(&Condition::word(&go_on)?)?;
    let looked_at = go_on.clone();
    let by_host = looping(&Condition::function(move || {
        // The body has ended, and nobody writes the word.
        looked_at.read_now().ok().flatten().map_or(0, |word| word[0])
    }))?;
    let mut bare = driver_gpu(options)?.map(|gpu| BareAsks::in_loop(&gpu)).transpose()?.flatten();
    let mut times: [Vec<f64>; 4] = Default::default();
    let turn_us = |start: Instant| start.elapsed().as_secs_f64() * 1e6 / f64::from(TURNS);
    for _ in 0..options.repeats.max(1) {
        for way in [Way::Device, Way::Host, Way::Launches] {
            left.write(&[TURNS.into()])?;
            go_on.write(&[1])?;
            let start = Instant::now();
            match way {
                Way::Device => by_device.launch(stream)?.wait()?,
                Way::Host => by_host.launch(stream)?.wait()?,
                Way::Launches => {
                    while go_on.read()? != [0] {
                        ask_host.launch(stream, ONE, (&left, &go_on))?;
                        stream.synchronize()?;
                    }
                }
            }
            times[way as usize].push(turn_us(start));
            if left.read()? != [0] {
                return Err("a loop in a graph did not take its turns".into());
            }
        }
        if let Some(bare) = &mut bare {
            times[3].push(bare.run(TURNS, true)?.as_secs_f64() * 1e6 / f64::from(TURNS));
        }
    }
    let [by_device, by_host, launched, driver] = times;
    let driver = bare.map(|_| median(driver));
    Ok([
        Row::time("graph_while_turn_us", "us", median(by_device), driver),
        Row::time("graph_while_turn_by_host_us", "us", median(by_host), None),
        Row::time("loop_while_turn_us", "us", median(launched), None),
    ])
}
