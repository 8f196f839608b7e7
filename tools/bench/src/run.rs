//! Which benchmarks there are, and their report.

use crate::{
    bytes, compute, consumers, contexts, costs, graphs, latency, launches, parallel, points, queues, rate,
    rival, traces,
};
use hostcall::device::{Arguments, DeviceBuilder, SoftwareDeviceConfig};
use hostcall::hostcall_device::CallError;
use hostcall::hostcall_device::kernel::Kernel;
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchKernel};
use hostcall_bench_kernels::{Bench, BenchHandler};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What the link allows, measured in the same run, in the same unit; `null` where there is no such figure.
    pub floor: Option<f64>,
    /// How far the figure is from the floor: its time over the floor's, or the floor's rate over its. 1 is the best.
    pub ratio: Option<f64>,
}

impl Row {
    /// A rate beside the highest that there can be.
    pub(crate) fn rate(name: &'static str, unit: &'static str, value: f64, floor: Option<f64>) -> Self {
        Self { name, value, unit, floor, ratio: floor.map(|floor| floor / value) }
    }

    /// A time beside the shortest that there can be.
    pub(crate) fn time(name: &'static str, unit: &'static str, value: f64, floor: Option<f64>) -> Self {
        Self { name, value, unit, floor, ratio: floor.map(|floor| value / floor) }
    }
}

/// All figures of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// The figures.
    pub results: Vec<Row>,
}

/// Errors come from the device.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device to open.
    pub device: String,
    /// The kernels' image (`programs/bench`), for devices that run images only.
    pub image: Option<PathBuf>,
    /// Measures of each figure; the median counts.
    pub repeats: usize,
    /// The groups to measure; all when there are none.
    pub only: Vec<Group>,
}

/// Figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// How long one call takes.
    Latency,
    /// Calls a second of many waves.
    Calls,
    /// A large grid of which each lane calls once.
    Grid,
    /// Posts a second.
    Posts,
    /// Printed lines: how many a second, and how soon one is seen.
    Lines,
    /// What kernels can store to the host's memory.
    Stores,
    /// What others do.
    Rivals,
    /// Opening a device, and launching a kernel.
    Start,
    /// Kernels that compute, beside CUDA C++, or beside threads of the host.
    Compute,
    /// Launches of a kernel that does nothing, beside the driver's own.
    Launches,
    /// Replays of graphs, beside plain launches and the driver's own graphs.
    Graphs,
    /// Bytes of messages, replies and files a second.
    Bytes,
    /// Calls, posts and lines with several consumer threads.
    Consumers,
    /// Streams out of kernels, by raw channels.
    Traces,
    /// What each thing costs that a kernel can do.
    Costs,
    /// Kernels that compute with trace points, beside the same without.
    Points,
    /// Calls and posts of kernels that others launch, beside those of Rust's.
    Contexts,
}

impl Group {
    /// All groups, in the order in which they are measured.
    pub const ALL: [Self; 17] = [
        Self::Latency,
        Self::Calls,
        Self::Grid,
        Self::Posts,
        Self::Lines,
        Self::Stores,
        Self::Rivals,
        Self::Start,
        Self::Compute,
        Self::Launches,
        Self::Graphs,
        Self::Bytes,
        Self::Consumers,
        Self::Traces,
        Self::Costs,
        Self::Points,
        Self::Contexts,
    ];

    /// The group's name.
    pub fn name(self) -> &'static str {
        [
            "latency",
            "calls",
            "grid",
            "posts",
            "lines",
            "stores",
            "rivals",
            "start",
            "compute",
            "launches",
            "graphs",
            "bytes",
            "consumers",
            "traces",
            "costs",
            "points",
            "contexts",
        ][self as usize]
    }
}

impl Options {
    /// Whether the device is NVIDIA's, with a `printf` of the driver's.
    pub(crate) fn is_nvidia(&self) -> bool {
        self.device.starts_with("cuda")
    }

    /// Whether kernels run on this process's threads, some at a time.
    pub(crate) fn is_software(&self) -> bool {
        self.device == "cpu"
    }
}

/// The host's side of the benchmarks' calls: no handler waits.
pub(crate) struct Handler(pub Arc<AtomicU64>);

pub(crate) type Answer<T> = std::result::Result<T, CallError>;

impl BenchHandler for Handler {
    fn null(&self) -> Answer<()> {
        Ok(())
    }

    fn sum(&self, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> Answer<u64> {
        Ok([a, b, c, d, e, f, g].into_iter().fold(0, u64::wrapping_add))
    }

    fn event(&self, value: u64) -> Answer<()> {
        // Only the consumer thread counts, so a load and a store do.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(value + 1), Ordering::Relaxed);
        Ok(())
    }
}

/// A device with the benchmarks' service.
pub(crate) struct Bed {
    pub device: Device,
    stream: hostcall::Stream,
    pub events: Arc<AtomicU64>,
}

/// Where the device's standard output goes.
pub(crate) type Output = Box<dyn Write + Send>;

/// How long a kernel may take to do what the host waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again until it is so, as fast as it can.
///
/// # Errors
/// When it has not come after a long time: the kernel has ended by a fault, or never began.
#[inline(always)]
pub(crate) fn until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let mut start = None;
    loop {
        for _ in 0..1 << 14 {
            if is_so() {
                return Ok(());
            }
        }
        if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(format!("the kernel did not answer within {} s", PATIENCE.as_secs()).into());
        }
    }
}

impl Bed {
    /// Opens the device with `slots` call slots or its default, and with stdout going to `output` if given.
    pub fn open(options: &Options, slots: Option<u32>, output: Option<Output>) -> Result<Self> {
        let mut builder = Device::builder(&options.device)
            .software(SoftwareDeviceConfig { threads: 1, ..SoftwareDeviceConfig::default() });
        if let Some(slots) = slots {
            builder = builder.slots(slots);
        }
        if let Some(output) = output {
            builder = builder.builtins(Builtins::builder().stdout(output).build()?);
        }
        let events = Arc::new(AtomicU64::new(0));
        let builder = builder.inline_service(Bench::serve(Handler(events.clone())));
        Ok(Self { events, ..Self::of(options, builder)? })
    }

    /// Opens the device of a builder, which serves [`Bench`] if kernels call that.
    pub fn of(options: &Options, builder: DeviceBuilder) -> Result<Self> {
        let device = builder.open()?;
        match &options.image {
            Some(image) => {
                let name = image.display();
                let bytes =
                    std::fs::read(image).map_err(|error| format!("cannot read the image {name}: {error}"))?;
                device.add_image(&bytes).map_err(|error| format!("{name}: {error}"))?;
            }
            None if options.is_software() => {}
            None => {
                let (name, target) = (device.name(), device.target());
                return Err(format!(
                    "{name} runs kernels of images only: name the one that `hostcall build --target {target} \
                     programs/bench` makes, by --image"
                )
                .into());
            }
        }
        Ok(Self { stream: device.stream()?, device, events: Arc::default() })
    }

    /// Puts a kernel on the bed's stream.
    pub fn launch<P>(&self, kernel: &Kernel<P>, grid: Grid, arguments: impl Arguments<P>) -> Result<()> {
        kernel.launch(&self.stream, grid, arguments)?;
        Ok(())
    }

    /// The bed's stream.
    pub fn stream(&self) -> &hostcall::Stream {
        &self.stream
    }

    /// Returns how long what `launch` puts on the bed's stream takes, as the device's clock has it.
    pub fn kernel_time(&self, launch: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let begin = self.stream.record()?;
        launch()?;
        let end = self.stream.record()?;
        self.synchronize()?;
        Ok(end.elapsed_since(&begin)?.ok_or("the events have no time")?)
    }

    /// Waits for what was launched.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }
}

/// Runs the benchmarks.
///
/// # Errors
/// When the device cannot be opened, a kernel fails, or something is lost or wrong.
pub fn bench(options: &Options, mut progress: impl FnMut(&Row)) -> Result<Report> {
    let is_of_gpus = |group: &Group| matches!(group, Group::Stores | Group::Rivals | Group::Contexts);
    if options.is_software() && !options.only.is_empty() && options.only.iter().all(is_of_gpus) {
        let names: Vec<_> = options.only.iter().map(|group| group.name()).collect();
        let text = "measured on GPUs only, since the software device's memory is the host's: name another group or device";
        return Err(format!("{}: {text}", names.join(", ")).into());
    }
    let mut results = Vec::new();
    let mut add_one = |row: Row| {
        progress(&row);
        results.push(row);
    };
    for group in Group::ALL {
        if !options.only.is_empty() && !options.only.contains(&group) {
            continue;
        }
        let mut add = |rows: Vec<Row>| rows.into_iter().for_each(&mut add_one);
        match group {
            Group::Latency => {
                add(latency::one_lane(options)?);
                add(latency::whole_wave(options)?);
            }
            Group::Calls => add(rate::wave_calls(options)?),
            Group::Grid => add(vec![latency::grid(options)?]),
            Group::Posts => add(rate::posts(options)?),
            Group::Lines => {
                add(rate::lines(options)?);
                add(vec![latency::visible_line(options)?]);
            }
            // The software device's memory is the host's.
            Group::Stores | Group::Rivals | Group::Contexts if options.is_software() => {}
            Group::Stores => add(vec![rate::stores(options)?]),
            Group::Rivals => {
                add(rival::fifo(options)?);
                if options.is_nvidia() {
                    add(vec![rival::device_printf_row(options)?]);
                }
            }
            Group::Start => add(latency::start(options)?),
            Group::Compute if options.is_software() => add(parallel::parallel(options)?),
            Group::Compute => add(compute::compute(options)?),
            Group::Launches => add(launches::launches(options)?),
            Group::Graphs => add(graphs::graphs(options)?),
            Group::Bytes => bytes::bytes(options, &mut add_one)?,
            Group::Consumers => consumers::consumers(options, &mut add_one)?,
            Group::Traces => traces::traces(options, &mut add_one)?,
            Group::Costs => costs::costs(options, &mut add_one)?,
            Group::Points => points::points(options, &mut add_one)?,
            Group::Contexts => {
                add(contexts::contexts(options)?);
                add(queues::queues(options)?);
            }
        }
    }
    Ok(Report { device: options.device.clone(), results })
}
