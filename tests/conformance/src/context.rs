//! What cases run on.

use crate::Outcome;
use hostcall::device::seam::Backend;
use hostcall::device::{Arguments, DeviceBuffer, DeviceBuilder, Faults, Image, Launch, SoftwareDeviceConfig};
use hostcall::hostcall_device::kernel::Kernel;
use hostcall::server::Waiting;
use hostcall::services::{Builtins, BuiltinsBuilder};
use hostcall::trace::Tracer;
use hostcall::{Device, Error, Grid, LaunchKernel, Stream};
use parking_lot::Mutex;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// The device that a run of the suite tests, and how.
#[derive(Clone, Debug)]
pub struct Context {
    /// The name that [`Device::builder`] takes.
    pub device: String,
    /// The program's image; without one, kernels run that are part of this process.
    pub image: Option<PathBuf>,
    /// Lanes of the software device's waves.
    pub wave_size: u32,
    /// What goes wrong on the software device.
    pub faults: Faults,
    /// Time that lanes of a cancelled launch get on the software device until they are ended by force.
    pub cancel_grace: Duration,
    /// Whether all that kernels and the host do is traced.
    pub is_traced: bool,
    /// What makes the device's backend; without it the device of that name is opened.
    pub backend: Option<MakeBackend>,
    /// Devices that are open.
    pub open: OpenDevices,
}

/// Makes a backend from elsewhere, with the settings that the software device would get.
#[derive(Clone)]
pub struct MakeBackend(pub Arc<MakeBackendFn>);

/// See [`MakeBackend`].
pub type MakeBackendFn = dyn Fn(SoftwareDeviceConfig) -> Result<Arc<dyn Backend>, String> + Send + Sync;

impl std::fmt::Debug for MakeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MakeBackend").finish_non_exhaustive()
    }
}

/// The devices that a run has opened and not closed, and what it does with them. Clones are the same.
#[derive(Clone, Default)]
pub struct OpenDevices(Arc<Mutex<(Vec<Weak<Device>>, String)>>);

impl std::fmt::Debug for OpenDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} open devices", self.devices().len())
    }
}

impl OpenDevices {
    fn add(&self, device: &Arc<Device>) {
        let devices = &mut self.0.lock().0;
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(device));
    }

    /// Notes what is done now, for a report.
    pub fn note(&self, what: String) {
        self.0.lock().1 = what;
    }

    /// Calls and posts that the open devices have served.
    fn served(&self) -> Vec<[u64; 2]> {
        let served = |device: Arc<Device>| {
            let statistics = device.server().statistics();
            [statistics.packets, statistics.posts]
        };
        self.devices().into_iter().map(served).collect()
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.0.lock().0.iter().filter_map(Weak::upgrade).collect()
    }

    /// What is done, which launches of the open devices have not ended, and what they wait for: one line a wave.
    pub fn waiting(&self) -> Vec<String> {
        let doing = self.0.lock().1.clone();
        let of = |(number, device): (usize, Arc<Device>)| {
            let server = device.server();
            let launches = server.launches();
            let launch = |id| {
                let kernel = launches.record(id).map(|record| record.kernel).unwrap_or_default();
                format!("launch {id} of {kernel} has not ended")
            };
            let mut lines = vec![format!("{:?}", server.statistics())];
            lines.extend(launches.ids().into_iter().map(launch));
            lines.extend(device.waiting().iter().map(ToString::to_string));
            lines.extend(server.ready_posts().iter().map(ToString::to_string));
            lines.into_iter().map(move |line| format!("device {number}: {line}"))
        };
        std::iter::once(doing).chain(self.devices().into_iter().enumerate().flat_map(of)).collect()
    }
}

impl Default for Context {
    /// The software device with waves of 32.
    fn default() -> Self {
        Self {
            device: "cpu".into(),
            image: None,
            wave_size: 32,
            faults: Faults::default(),
            cancel_grace: Duration::from_secs(5),
            is_traced: false,
            backend: None,
            open: OpenDevices::default(),
        }
    }
}

/// How long a case may take in which no call or post is served; one that takes longer hangs.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// How many such spans a case may take in all, where the system leaves it little of its processors.
const MOST_LIMITS: u32 = 10;

impl Context {
    /// Runs a case on a thread of its own, so that one that hangs ends the case and not the run. The failure of one that
    /// hangs says what its launches wait for.
    pub fn run(&self, case: fn(&Context) -> Outcome) -> Outcome {
        // A list of its own: cases may run side by side.
        let context = Self { open: OpenDevices::default(), ..self.clone() };
        let inner = context.clone();
        context.limited(CASE_LIMIT, move |_| case(&inner))
    }

    /// Runs `work`, which opens devices with this context, on a thread of its own. It gets a function to call when it gets
    /// on, which it must do at least every `limit`, or some times that while its devices serve calls or posts.
    ///
    /// # Errors
    /// What the work says, or that it has panicked or got stuck.
    pub fn limited<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&dyn Fn()) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (progress, life) = mpsc::sync_channel(1);
        // The channel closes when the work has ended.
        let thread = std::thread::Builder::new().spawn(move || work(&|| _ = progress.try_send(())));
        let thread = thread.map_err(|error| format!("the system starts no thread: {error}"))?;
        let (mut begun, mut served) = (Instant::now(), Vec::new());
        let mut moved = begun;
        let end = loop {
            match life.recv_timeout(limit / 8) {
                Ok(()) => (begun, moved) = (Instant::now(), Instant::now()),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let now = self.open.served();
                    if now != served {
                        (moved, served) = (Instant::now(), now);
                    }
                    if moved.elapsed() >= limit || begun.elapsed() >= MOST_LIMITS * limit {
                        break mpsc::RecvTimeoutError::Timeout;
                    }
                }
                Err(end) => break end,
            }
        };
        match end {
            mpsc::RecvTimeoutError::Timeout => {
                let waiting = self.open.waiting().join("\n  ");
                Err(format!("has not got on for {limit:?}; what is waited for:\n  {waiting}"))
            }
            mpsc::RecvTimeoutError::Disconnected => thread.join().unwrap_or_else(|payload| {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                Err(format!("panicked: {}", text.or(payload.downcast_ref().copied()).unwrap_or("?")))
            }),
        }
    }

    /// Whether faults of kernels leave the device as it was, and its settings can be chosen.
    pub fn is_software(&self) -> bool {
        self.device == "cpu"
    }

    /// The software device's settings: more threads than cores, so that every interleaving has a chance.
    pub fn software(&self) -> SoftwareDeviceConfig {
        SoftwareDeviceConfig {
            threads: 3,
            wave_size: self.wave_size,
            cancel_grace: self.cancel_grace,
            faults: self.faults,
            ..SoftwareDeviceConfig::default()
        }
    }

    /// Opens a device with these services besides the built-in ones.
    pub fn open(&self, setup: impl FnOnce(DeviceBuilder) -> DeviceBuilder) -> Result<Session, String> {
        self.open_with(|builtins| builtins, setup)
    }

    /// Opens a device with so many slots, and a software device that runs no more waves at once.
    pub fn open_with_slots(
        &self,
        slots: u32,
        setup: impl FnOnce(DeviceBuilder) -> DeviceBuilder,
    ) -> Result<Session, String> {
        self.open_on(
            few_waves(self.software(), slots),
            |builtins| builtins,
            |device| setup(device.slots(slots)),
        )
    }

    /// Opens a device whose built-in services have these settings.
    pub fn open_with(
        &self,
        builtins: impl FnOnce(BuiltinsBuilder) -> BuiltinsBuilder,
        setup: impl FnOnce(DeviceBuilder) -> DeviceBuilder,
    ) -> Result<Session, String> {
        self.open_on(self.software(), builtins, setup)
    }

    fn open_on(
        &self,
        software: SoftwareDeviceConfig,
        builtins: impl FnOnce(BuiltinsBuilder) -> BuiltinsBuilder,
        setup: impl FnOnce(DeviceBuilder) -> DeviceBuilder,
    ) -> Result<Session, String> {
        let (stdout, stderr) = (Capture::default(), Capture::default());
        let outputs = Builtins::builder().stdin(io::empty()).stdout(stdout.clone()).stderr(stderr.clone());
        let builtins = builtins(outputs).build().map_err(|error| error.to_string())?;
        // Cases that are about something else wait for longer than the default.
        let quiet = |stall: &Waiting| eprintln!("{stall}");
        let builder = Device::builder(&self.device)
            .software(software.clone())
            .builtins(builtins)
            .server(move |server| server.stall_report(CASE_LIMIT / 2, quiet));
        let builder = match &self.backend {
            None => builder,
            Some(MakeBackend(make)) => builder.backend(make(software)?),
        };
        let builder = match self.is_traced {
            false => builder,
            true => {
                let tracer = Tracer::builder().writer(io::sink()).start();
                builder.trace(&tracer.map_err(|error| error.to_string())?)
            }
        };
        let device = setup(builder).open().map_err(|error| error.to_string())?;
        let image = self.image.as_ref().map(|image| device.load(image)).transpose();
        let image = image.map_err(|error| error.to_string())?;
        let watched = Arc::new(device.clone());
        self.open.add(&watched);
        Ok(Session { device, image, stdout, stderr, _watched: watched })
    }
}

/// A backend from outside is opened with as many slots at least as it runs waves.
fn few_waves(software: SoftwareDeviceConfig, slots: u32) -> SoftwareDeviceConfig {
    SoftwareDeviceConfig { resident_waves: software.resident_waves.min(slots), ..software }
}

/// An open device.
#[derive(Clone)]
pub struct Session {
    pub device: Device,
    image: Option<Image>,
    /// What kernels printed.
    pub stdout: Capture,
    pub stderr: Capture,
    /// Lives as long as the session; [`OpenDevices`] knows it.
    _watched: Arc<Device>,
}

fn text(error: Error) -> String {
    error.to_string()
}

impl Session {
    pub fn stream(&self) -> Result<Stream, String> {
        self.device.stream().map_err(text)
    }

    /// A buffer of zeros for one value a lane of `grid`, times `each`.
    pub fn out(&self, grid: Grid, each: usize) -> Result<DeviceBuffer<u64>, String> {
        let lanes: u32 = grid.workgroups.iter().chain(&grid.workgroup_size).product();
        self.device.alloc_zeroed(lanes as usize * each).map_err(text)
    }

    /// Puts a launch on a stream.
    pub fn launch<P>(
        &self,
        stream: &Stream,
        kernel: Kernel<P>,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<Launch, String> {
        match &self.image {
            None => kernel.launch(stream, grid, arguments).map_err(text),
            Some(image) => {
                let typed = image.typed(&kernel).map_err(text)?;
                typed.launch(stream, grid, arguments).map_err(text)
            }
        }
    }

    /// How many workgroups of the size of `grid`'s the device runs at once.
    pub fn resident_workgroups<P>(&self, kernel: Kernel<P>, grid: Grid) -> Result<u32, String> {
        match &self.image {
            // As `LoadedKernel` says of the software device, which alone runs without an image.
            None => Ok(8 * self.device.properties().multiprocessors),
            Some(image) => Ok(image.typed(&kernel).map_err(text)?.untyped().resident_workgroups(grid)),
        }
    }

    /// Runs a kernel to its end on a stream of its own, and gives the failure as it is.
    pub fn try_run<P>(
        &self,
        kernel: Kernel<P>,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<Result<(), Error>, String> {
        let stream = self.stream()?;
        self.launch(&stream, kernel, grid, arguments)?;
        Ok(stream.synchronize())
    }

    /// Runs a kernel to its end on a stream of its own, and returns the exit code that a lane gave.
    pub fn exit_code<P>(
        &self,
        kernel: Kernel<P>,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<Option<i32>, String> {
        let stream = self.stream()?;
        let launch = self.launch(&stream, kernel, grid, arguments)?;
        stream.synchronize().map_err(text)?;
        Ok(launch.wait().map_err(text)?.exit_code)
    }

    /// Runs a kernel to its end on a stream of its own.
    pub fn run<P>(&self, kernel: Kernel<P>, grid: Grid, arguments: impl Arguments<P>) -> Outcome {
        self.try_run(kernel, grid, arguments)?.map_err(text)
    }

    /// Runs a kernel that takes one value a lane to write to, and returns these.
    pub fn values<P>(&self, kernel: Kernel<P>, grid: Grid) -> Result<Vec<u64>, String>
    where
        for<'b> (&'b DeviceBuffer<u64>,): Arguments<P>,
    {
        let out = self.out(grid, 1)?;
        self.run(kernel, grid, (&out,))?;
        read(&out)
    }

    /// As [`Session::values`], for a kernel whose every lane writes its number plus one at its end.
    pub fn all_done<P>(&self, kernel: Kernel<P>, grid: Grid) -> Outcome
    where
        for<'b> (&'b DeviceBuffer<u64>,): Arguments<P>,
    {
        done(&self.values(kernel, grid)?)
    }
}

/// What a launch wrote.
pub fn read(out: &DeviceBuffer<u64>) -> Result<Vec<u64>, String> {
    out.read().map_err(text)
}

/// Checks that every lane wrote its number plus one.
pub fn done(values: &[u64]) -> Outcome {
    match values.iter().zip(1..).find(|(value, expected)| *value != expected) {
        None => Ok(()),
        Some((value, lane)) => Err(format!("lane {} wrote {value}: it did not come to its end", lane - 1)),
    }
}

/// A writer whose text can be looked at.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    pub fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
