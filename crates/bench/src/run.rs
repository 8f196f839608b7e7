//! Which benchmarks there are, and their report.

use crate::{latency, rate};
use hostcall::device::{Arguments, Image, SoftwareDeviceConfig};
use hostcall::hostcall_device::CallError;
use hostcall::hostcall_device::kernel::Kernel;
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchKernel};
use hostcall_bench_kernels::{Bench, BenchHandler};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// How far the figure is from the floor: the time over the floor's time. 1 is the best.
    pub ratio: Option<f64>,
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
}

impl Options {
    /// Whether kernels run on this process's threads, some at a time.
    pub(crate) fn is_software(&self) -> bool {
        self.device == "cpu"
    }
}

/// The host's side of the benchmarks' calls: no handler waits.
pub(crate) struct Handler(pub Arc<AtomicU64>);

type Answer<T> = std::result::Result<T, CallError>;

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
    image: Option<Image>,
    pub events: Arc<AtomicU64>,
}

impl Bed {
    /// Opens the device with `slots` call slots or its default, and with stdout going to `output` if given.
    pub fn open(options: &Options, slots: Option<u32>, output: Option<std::fs::File>) -> Result<Self> {
        let events = Arc::new(AtomicU64::new(0));
        let mut builder = Device::builder(&options.device)
            .software(SoftwareDeviceConfig { threads: 1, ..SoftwareDeviceConfig::default() })
            .inline_service(Bench::serve(Handler(events.clone())));
        if let Some(slots) = slots {
            builder = builder.slots(slots);
        }
        if let Some(output) = output {
            builder = builder.builtins(Builtins::builder().stdout(output).build()?);
        }
        let device = builder.open()?;
        let image = options.image.as_ref().map(|path| device.load(path)).transpose()?;
        Ok(Self { stream: device.stream()?, device, image, events })
    }

    /// Puts a kernel on the bed's stream.
    pub fn launch<P>(&self, kernel: &Kernel<P>, grid: Grid, arguments: impl Arguments<P>) -> Result<()> {
        match &self.image {
            Some(image) => image.typed(kernel)?.launch_as(kernel, &self.stream, grid, arguments)?,
            None => kernel.launch(&self.stream, grid, arguments)?,
        }
        Ok(())
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
    let mut results = Vec::new();
    let mut add = |rows: Vec<Row>| {
        for row in rows {
            progress(&row);
            results.push(row);
        }
    };
    add(latency::one_lane(options)?);
    add(latency::whole_wave(options)?);
    add(rate::wave_calls(options)?);
    add(rate::posts(options)?);
    add(rate::lines(options)?);
    Ok(Report { device: options.device.clone(), results })
}
