//! Opening a device.

use super::context::CONTEXT_SLOTS;
use super::core::Core;
use super::error::Error;
use super::forked;
use super::hostcalls::Hostcalls;
use super::images::{EmbeddedImage, Images};
use super::inner::{Device, DeviceHooks, DevicePoints, Inner, Traced};
use super::llvm_calls::LlvmCalls;
use super::look::{Look, Parts};
use super::open_devices::{self, OpenDevice};
use super::point_filter::PointFilter;
use super::raw::{PointNames, PointService, PointsChannel};
use super::reaper::ReaperThread;
use super::wait_table::WaitTable;
use super::watch;
use super::words::StreamWordTable;
use hostcall_abi::ABI_VERSION;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::{ChannelParams, HOME_SLOTS_AT, POINT_SWITCH_AT};
use hostcall_abi::layout::{
    HOME_SLOT_BYTES, HomeSlotWords, LOAN_HEADER_BYTES, Layout, LayoutError, RingEntries, SLOT_GROUP,
    SLOT_STATE_BYTES, Sizes,
};
use hostcall_channel::host::{Loan, LoanMemory};
use hostcall_channel::{Block, FileMapper, SharedMemory};
use hostcall_cuda::Cuda;
use hostcall_device::services::TracePoints;
#[cfg(feature = "gfx942")]
use hostcall_hsa::Runtime;
use hostcall_hsa::{Hsa, Vendor};
use hostcall_locks::Mutex;
use hostcall_seam::{
    Backend, BackendError, DeviceAddress, DeviceInfo, DeviceKind, Memory, Pinned, Properties,
};
use hostcall_server::services::{Builtins, EarlyEnd, HeapMemory};
use hostcall_server::{CancelReason, Handler, Server, ServerBuilder};
use hostcall_service::{AsyncService, Gather, GatheredService, Service};
use hostcall_softdev::{Config as SoftwareDeviceConfig, Cpu};
use hostcall_trace::{Source, Tracer};
use std::any::Any;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The GPUs in software: of the runtime that the feature `gfx942` adds.
const SOFTWARE_GPU: Vendor = Vendor::Software {
    kind: "gfx942",
    // SAFETY: `symbol` returns the function of the name, whose type is that of the headers, of a runtime whose memory is new
    // pages of the system's and whose queues are told of the faults that no handler of events wants.
    #[cfg(feature = "gfx942")]
    #[allow(unsafe_code, reason = "names the runtime's functions")]
    runtime: || unsafe { Runtime::contained(hostcall_softhsa::api::symbol) },
    #[cfg(not(feature = "gfx942"))]
    runtime: || {
        let what = "this program was built without AMD GPUs in software: build it with the feature `gfx942` of the crate \
                    `hostcall` (`--features hostcall/gfx942`)";
        Err(what.into())
    },
};

/// The kinds of devices, as their names begin.
const KINDS: [&str; 4] = ["cpu", "cuda", "amdgpu", "gfx942"];

/// Lists the devices of this machine, and the kinds of which there is none.
pub fn devices() -> Vec<DeviceInfo> {
    KINDS.into_iter().flat_map(devices_of).collect()
}

/// Lists the devices of a kind, or why there is none; nothing if there is no such kind.
pub(super) fn devices_of(kind: &str) -> Vec<DeviceInfo> {
    match kind {
        "cpu" => vec![hostcall_softdev::device_info()],
        "cuda" => hostcall_cuda::devices(),
        "amdgpu" => hostcall_hsa::devices(Vendor::Rocm),
        "gfx942" => hostcall_hsa::devices(SOFTWARE_GPU),
        _ => Vec::new(),
    }
}

type ServerSetup = Box<dyn FnOnce(ServerBuilder) -> ServerBuilder>;

/// Builds a [`Device`].
pub struct DeviceBuilder {
    name: String,
    software: SoftwareDeviceConfig,
    stack_bytes: Option<usize>,
    slots: Option<u32>,
    ring_entries: Option<u32>,
    area_bytes: Option<u32>,
    builtins: Option<Builtins>,
    server: Vec<ServerSetup>,
    images: Vec<&'static [EmbeddedImage]>,
    backend: Option<Arc<dyn Backend>>,
    tracer: Option<Tracer>,
    rocm: hostcall_server::rocm::Options,
}

impl DeviceBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            software: SoftwareDeviceConfig::default(),
            stack_bytes: None,
            slots: None,
            ring_entries: None,
            area_bytes: None,
            builtins: None,
            server: Vec::new(),
            images: Vec::new(),
            backend: None,
            tracer: None,
            rocm: hostcall_server::rocm::Options::default(),
        }
    }

    /// How the software device is made; other devices do not look at it.
    pub fn software(mut self, config: SoftwareDeviceConfig) -> Self {
        self.software = config;
        self
    }

    /// Lanes of the software device's waves: 32 or 64.
    pub fn wave_size(mut self, lanes: u32) -> Self {
        self.software.wave_size = lanes;
        self
    }

    /// Bytes of stack of each lane. On the software device it has so many, whatever its configuration says. On a GPU it has at
    /// least so many where it has a stack at all: by itself as many as the build or the compiler worked out, and where that cannot
    /// know (recursion, calls through pointers) 16 KiB on AMD's GPUs and 8 KiB on NVIDIA's. An NVIDIA GPU takes memory for all
    /// lanes that it can hold, 264 MiB on an H200 for each KiB above the first.
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Call slots, at most 65,536 together with some extra ones; rounded up to a multiple of 64. The software device runs at
    /// most as many waves at once as it has slots. A [backend](DeviceBuilder::backend) of its kind runs as many as its own
    /// configuration says, which are no more than there are slots, or the device is not opened. A GPU has one for each wave
    /// that it can run; with fewer, waves wait for one at their first call until another wave ends.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Entries of each slot's ring of posts: a power of two, at least four a lane.
    pub fn ring_entries(mut self, entries: u32) -> Self {
        self.ring_entries = Some(entries);
        self
    }

    /// Bytes of each slot's byte area: a power of two, at least 64 a lane. Longer messages travel in pieces, or borrow a large
    /// area.
    pub fn bulk_bytes(mut self, bytes: u32) -> Self {
        self.area_bytes = Some(bytes);
        self
    }

    /// The built-in services' settings: files, arguments, environment, standard streams.
    pub fn builtins(mut self, builtins: Builtins) -> Self {
        self.builtins = Some(builtins);
        self
    }

    /// Registers a service whose handlers may wait.
    pub fn service(self, service: impl Service) -> Self {
        self.server(|server| server.service(service))
    }

    /// Registers a service whose handlers never wait and take microseconds: they run at once.
    pub fn inline_service(self, service: impl Service) -> Self {
        self.server(|server| server.inline_service(service))
    }

    /// Registers a service whose handlers are futures.
    pub fn async_service(self, service: impl AsyncService) -> Self {
        self.server(|server| server.async_service(service))
    }

    /// Registers a service whose handlers get the calls of all waves that wait for a method, within these bounds. See
    /// [`crate::service::gather`].
    pub fn gathered_service(self, service: impl GatheredService, bounds: Gather) -> Self {
        self.server(move |server| server.gathered_service(service, bounds))
    }

    /// Runs async handlers on this runtime, see [`ServerBuilder::tokio`].
    #[cfg(feature = "tokio")]
    pub fn tokio(self, runtime: tokio::runtime::Handle) -> Self {
        self.server(|server| server.tokio(runtime))
    }

    /// Changes the server's settings.
    pub fn server(mut self, setup: impl FnOnce(ServerBuilder) -> ServerBuilder + 'static) -> Self {
        self.server.push(Box::new(setup));
        self
    }

    /// Adds images of the program's kernels, for devices that do not run the program's own code: those of
    /// [`crate::embedded_images`]. May be called several times, such as for a library's images and the program's.
    pub fn images(mut self, images: &'static [EmbeddedImage]) -> Self {
        self.images.push(images);
        self
    }

    /// Records calls, posts and launches there, of LLVM programs too. Without a tracer a call costs no more than before.
    /// One that was [finished](Tracer::finish) records nothing, also of a device that is opened later.
    /// If the tracer has a file, kernels' trace points ([`hostcall_device::trace`]) are recorded too: through a raw channel of
    /// up to 64 MiB.
    pub fn trace(mut self, tracer: &Tracer) -> Self {
        self.tracer = Some(tracer.clone());
        self
    }

    /// Settings of what answers kernels that speak ROCm's protocol; threads and trace are the device's.
    pub fn rocm(mut self, options: hostcall_server::rocm::Options) -> Self {
        self.rocm = options;
        self
    }

    /// Opens the device over a backend from elsewhere, under the name that the builder was made with. Settings of the software
    /// device are not looked at: [`software_backend`](super::software_backend) takes them.
    pub fn backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backend = Some(backend);
        self
    }

    fn open_backend(&mut self) -> Result<Arc<dyn Backend>, Error> {
        if let Some(backend) = self.backend.take() {
            return Ok(backend);
        }
        let name = self.name.as_str();
        let unavailable = |reason: String| Error::Unavailable { name: name.to_owned(), reason };
        let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
        match (kind, index.parse()) {
            ("cpu", _) if name == "cpu" => {
                let mut software = self.software.clone();
                software.stack_bytes = self.stack_bytes.unwrap_or(software.stack_bytes);
                let cpu = Cpu::open(software).map_err(|error| unavailable(error.to_string()))?;
                Ok(Arc::new(cpu))
            }
            ("cuda", Ok(index)) => Ok(Arc::new(Cuda::open(index).map_err(unavailable)?)),
            ("amdgpu", Ok(index)) => Ok(Arc::new(Hsa::open(Vendor::Rocm, index).map_err(unavailable)?)),
            ("gfx942", Ok(index)) => Ok(Arc::new(Hsa::open(SOFTWARE_GPU, index).map_err(unavailable)?)),
            _ => {
                let listed = devices().into_iter().find(|device| device.name == name);
                Err(match listed.and_then(|device| device.unavailable) {
                    Some(why) => unavailable(why),
                    None => Error::NoSuchDevice { name: name.to_owned() },
                })
            }
        }
    }

    /// Opens the device and starts its server.
    ///
    /// # Errors
    /// When there is no such device, sizes do not fit, a software backend runs more waves at once than there are slots, or a
    /// service was refused.
    pub fn open(mut self) -> Result<Device, Error> {
        let slots = self.take_slots()?;
        let backend = self.open_backend()?;
        let layout = self.layout(backend.properties(), slots)?;
        let builtins = match self.builtins.take() {
            Some(builtins) => builtins,
            None => Builtins::builder().build().map_err(Error::Builtins)?,
        };
        let (reaper, reaper_thread) = ReaperThread::start(self.name.clone(), backend.clone())?;
        let core = Core::new(std::mem::take(&mut self.name), backend.clone(), reaper, self.stack_bytes);
        builtins.heap().provide(Arc::new(DeviceHeap(core.clone())));
        let waits = Arc::new(WaitTable::new(&*backend, layout)?);
        let ChannelMemory { region, params, channel, extras } =
            ChannelMemory::new(&*backend, layout, waits.address())?;
        let stream_words = StreamWordTable::new(&core)?;
        let images = Images::default();
        for embedded in std::mem::take(&mut self.images) {
            images.add(&core, embedded)?;
        }
        let traced = self.tracer.take().map(|tracer| Traced { name: tracer.name_device(&core.name), tracer });
        let source = traced.as_ref().map(|traced| traced.source("hostcall"));
        let names = Arc::new(PointNames::new(builtins.reports().clone()));
        let switch = channel.address().offset(POINT_SWITCH_AT as u64);
        let points = Arc::new(PointsChannel::new(&core, switch, &layout, names.clone()));
        let opened = Arc::<OnceLock<Weak<Inner>>>::default();
        let server = self.server_of(&core, region.clone(), &builtins, source.clone(), names, opened.clone());
        let server = Arc::new(server.start()?);
        if let (Some(Traced { tracer, .. }), Some(source)) = (&traced, source)
            && tracer.has_file()
        {
            points.begin(&server, tracer, source, true, PointFilter::default())?;
        }
        let wave_size = core.backend.properties().wave_size;
        builtins.stdio().set_origin(&core.name, wave_size, server.knows_origin());
        builtins.files().set_launches(server.knows_launch());
        let context_of = server.knows_context();
        builtins.files().set_owners(move |launch| context_of(launch).0);
        builtins.checks().set_contexts(server.knows_context());
        builtins.files().set_mapper(DeviceMapper(backend.clone()));
        let hostcalls = Arc::new(Hostcalls::new(self.rocm));
        let llvm_calls = Arc::<LlvmCalls>::default();
        let look = Look::new(Parts {
            core: core.clone(),
            server: server.clone(),
            hostcalls: hostcalls.clone(),
            llvm_calls: llvm_calls.clone(),
            waits: waits.clone(),
            stdio: builtins.stdio_shared(),
            tracer: traced.as_ref().map(|traced| traced.tracer.clone()),
            _listens: Box::new(watch::listen()),
        });
        let inner = Arc::new_cyclic(|device| Inner {
            core,
            images,
            hooks: Arc::new(DeviceHooks { server: server.clone(), device: device.clone() }),
            server,
            channel_params: params,
            region,
            channel,
            extras,
            waits,
            stream_words,
            owners: Arc::default(),
            hostcalls,
            llvm_calls,
            look,
            closures: Mutex::default(),
            endable: Mutex::default(),
            builtins,
            traced,
            points,
            _reaper: reaper_thread,
        });
        let _ = opened.set(Arc::downgrade(&inner));
        forked::watch();
        let (core, owners) = (Arc::downgrade(&inner.core), Arc::downgrade(&inner.owners));
        let device: Weak<dyn Any + Send + Sync> = Arc::downgrade(&inner) as _;
        let look = inner.look.clone();
        open_devices::note(inner.core.id(), OpenDevice { device, core, owners, look });
        end_launches_that_report(&inner);
        Ok(Device { inner })
    }

    /// Returns how many slots there are to be, and has the software device run no more waves.
    fn take_slots(&mut self) -> Result<Option<u32>, LayoutError> {
        let Some(wanted) = self.slots else { return Ok(None) };
        let wanted = wanted.max(1).checked_next_multiple_of(SLOT_GROUP).ok_or(LayoutError::Slots)?;
        if wanted > Layout::MAX_SLOTS {
            return Err(LayoutError::Slots);
        }
        self.software.resident_waves = self.software.resident_waves.min(wanted);
        Ok(Some(wanted))
    }

    /// Returns the channel's sizes, which were checked.
    fn layout(&self, properties: &Properties, slots: Option<u32>) -> Result<Layout, Error> {
        let default = default_layout(properties);
        let area_bytes = self.area_bytes.unwrap_or(default.area_bytes);
        // Threads that are no waves of the software device's claim none of its waves' slots (SLOT-BY-NUMBER).
        let waves = slots.unwrap_or(default.home_slots);
        let left = Layout::MAX_SLOTS.saturating_sub(default.extra_slots).saturating_sub(waves);
        let others = if properties.kind == DeviceKind::Software { CONTEXT_SLOTS.min(left) } else { 0 };
        let layout = Layout {
            home_slots: waves + others,
            area_bytes,
            large_area_bytes: area_bytes.max(default.large_area_bytes),
            ring_entries: self.ring_entries.map_or(default.ring_entries, RingEntries::all),
            ..default
        };
        let layout = layout.check()?;
        check_home_slots(&self.name, properties, layout.home_slots - others)?;
        Ok(layout)
    }

    /// Returns the server with all that it serves, not started. `opened` will have the device.
    fn server_of(
        &mut self,
        core: &Arc<Core>,
        region: Arc<SharedMemory>,
        builtins: &Builtins,
        source: Option<Source>,
        names: Arc<PointNames>,
        opened: Arc<OnceLock<Weak<Inner>>>,
    ) -> ServerBuilder {
        let backend = &core.backend;
        let entered = backend.clone();
        let mut server = Server::builder(region)
            .loans(PinnedLoans::new(core))
            .device(&core.name)
            .token(core.id())
            .on_thread(move || entered.enter_thread())
            .reliable_hints(backend.has_reliable_hints())
            .on_fault(move |launch, _| {
                // A launch that cannot go on is ended on the device too.
                if let Some(device) = opened.get().and_then(Weak::upgrade) {
                    let reaper = device.core.reaper.clone();
                    reaper.run_soon(move || device.cancel(launch, CancelReason::BrokenSlot));
                }
            });
        if let Some(waker) = backend.waker() {
            server = server.on_answer(waker);
        }
        if let Some(source) = source {
            server = server.trace(source);
        }
        server = server.handler(Handler::inline(TracePoints::serve(PointService(names))));
        for handler in builtins.services() {
            server = server.handler(handler);
        }
        for setup in std::mem::take(&mut self.server) {
            server = setup(server);
        }
        server
    }
}

/// Has launches ended that panic or exit.
fn end_launches_that_report(inner: &Arc<Inner>) {
    let device = Arc::downgrade(inner);
    inner.builtins.reports().on_end(move |launch, end: EarlyEnd| {
        let why = match end {
            EarlyEnd::Panicked => CancelReason::Panicked,
            EarlyEnd::Exited(code) => CancelReason::Exited(code),
        };
        if let Some(device) = device.upgrade() {
            // Calls are cancelled at once. To end lanes may take its time, and this is a thread that finds calls.
            let server = device.server.clone();
            server.cancel(launch, why);
            device.core.reaper.clone().run_soon(move || device.cancel(launch, why));
        }
    });
}

/// What a channel lies in, as kernels find it.
struct ChannelMemory {
    /// What host and device share.
    region: Arc<SharedMemory>,
    params: ChannelParams,
    /// The parameters and the records of home slots, in memory of the device.
    channel: Arc<dyn Memory>,
    /// States of extra slots, and bitmaps of these and of large areas.
    extras: [Arc<dyn Memory>; 3],
}

impl ChannelMemory {
    /// Allocates a channel and writes what kernels read of it; `waits` is where the wait table is found.
    fn new(backend: &dyn Backend, layout: Layout, waits: DeviceAddress) -> Result<Self, Error> {
        static EPOCH: AtomicU32 = AtomicU32::new(1);
        let region = Arc::new(shared_memory(backend, layout)?);
        let bitmap = |bits: u32| backend.allocate(bits.div_ceil(64) as usize * 8);
        let extra_states = backend.allocate(layout.extra_slots as usize * SLOT_STATE_BYTES)?;
        let channel = backend.allocate(HOME_SLOTS_AT + layout.home_slots as usize * HOME_SLOT_BYTES)?;
        let (extras, areas) = (bitmap(layout.extra_slots)?, bitmap(layout.large_areas)?);
        let params = ChannelParams {
            abi_version: ABI_VERSION,
            epoch: EPOCH.fetch_add(1, Ordering::Relaxed),
            region: region.address(),
            homes: channel.address().get() + HOME_SLOTS_AT as u64,
            extra_states: extra_states.address().get(),
            extras: extras.address().get(),
            areas: areas.address().get(),
            waits: waits.get(),
            sizes: Sizes::from(layout),
            reserved: 0,
        };
        let mut bytes = params.as_bytes().to_vec();
        // The switch of trace points: off.
        bytes.resize(HOME_SLOTS_AT, 0);
        for slot in 0..layout.home_slots {
            bytes.extend_from_slice(HomeSlotWords::new(&params.sizes, slot, params.region).as_bytes());
        }
        write_new(backend, &*channel, &bytes)?;
        Ok(Self { region, params, channel, extras: [extra_states, extras, areas] })
    }
}

/// Refuses fewer home slots than waves on a device whose waves claim the slots of their numbers (SLOT-BY-NUMBER).
fn check_home_slots(name: &str, properties: &Properties, slots: u32) -> Result<(), Error> {
    let waves = properties.resident_waves;
    if properties.kind != DeviceKind::Software || waves <= slots {
        return Ok(());
    }
    let reason = format!(
        "its backend runs {waves} waves at once, each of which needs a call slot of its own, and it was to have {slots}: ask \
         for {waves} slots, or have `resident_waves` of the backend's configuration be {slots}"
    );
    Err(Error::Unavailable { name: name.to_owned(), reason })
}

/// The channel's sizes when the user names none.
fn default_layout(properties: &Properties) -> Layout {
    let lanes = properties.wave_size;
    match properties.kind {
        // Pages that nobody touches take no memory.
        DeviceKind::Software => {
            let small = Layout::small(properties.resident_waves, lanes, 512, 64 << 10);
            Layout { extra_slots: 512, large_areas: 64, large_area_bytes: 1 << 20, ..small }
        }
        // A group of slots a multiprocessor, since no multiprocessor holds more waves.
        _ => Layout {
            home_slots: properties.multiprocessors.max(1).saturating_mul(SLOT_GROUP),
            extra_slots: 1024,
            lanes,
            area_bytes: 64 * lanes,
            large_areas: 256,
            large_area_bytes: 64 << 10,
            ring_entries: RingEntries { first: 2048, early: 512, other: 256 },
        },
    }
}

/// Writes to memory that nobody has yet.
#[allow(unsafe_code, reason = "memory is written and shared by address")]
fn write_new(backend: &dyn Backend, memory: &dyn Memory, bytes: &[u8]) -> Result<(), BackendError> {
    assert!(bytes.len() <= memory.len(), "the memory was made for the bytes");
    // SAFETY: as many bytes lie there, and no kernel has run.
    unsafe { backend.write_now(memory.address(), bytes) }
}

/// Memory of the host that the device reaches, in which its lanes read long replies. It is pinned as it is
/// needed: that waits for no kernel, and the server keeps what comes back.
struct PinnedLoans {
    backend: Arc<dyn Backend>,
    device: String,
    /// Whether the backend was asked for what a lane lends.
    has_fetched: AtomicBool,
    report: fn(String),
}

/// Bytes that are pinned at once for loans. A GPU looks up the place of each page of the host's memory, and few pieces of
/// memory have fewer pages to look up than many.
const LOANS_PINNED_AT_ONCE: usize = 4 << 20;

impl PinnedLoans {
    fn new(core: &Core) -> Self {
        let (backend, device) = (core.backend.clone(), core.name.clone());
        Self { backend, device, has_fetched: false.into(), report: hostcall_server::report_line }
    }
}

impl LoanMemory for PinnedLoans {
    #[allow(unsafe_code, reason = "memory is shared by address")]
    fn allocate(&self, bytes: usize) -> Vec<Loan> {
        let Some(size) = bytes.checked_add(LOAN_HEADER_BYTES) else { return Vec::new() };
        let size = size.next_multiple_of(LOAN_HEADER_BYTES);
        let count = (LOANS_PINNED_AT_ONCE / size).max(1);
        // `size` alone is less than this by a header at most.
        let Ok(memory) = self.backend.pin(size * count).or_else(|_| self.backend.pin(size)) else {
            return Vec::new();
        };
        let (start, address) = (memory.host_address(), memory.address().get());
        let pieces = (0..memory.len() / size).map(|piece| piece * size);
        // SAFETY: LOAN: the memory was all zeros, is aligned to more than a cache line, and is nobody else's; `memory` keeps
        // it, and the pieces lie side by side in it.
        let loan =
            |at| unsafe { Loan::new(start.add(at), address + at as u64, bytes, Box::new(memory.clone())) };
        pieces.map(loan).collect()
    }

    /// Pinned memory is freed once no kernel runs, which may be never. So what was pinned at the worst moment stays: of each
    /// size of loans as much as the budget lets lanes have at once.
    fn most_kept_bytes(&self) -> usize {
        usize::MAX
    }

    fn copy_from_lane(&self, address: u64, bytes: &mut [u8]) -> bool {
        let is_read = self.backend.copy_from_lane(DeviceAddress::new(address), bytes);
        // Later ones may be of lanes that were ended meanwhile. A backend that reads nothing fails at the first.
        if !self.has_fetched.load(Ordering::Relaxed)
            && !self.has_fetched.swap(true, Ordering::Relaxed)
            && !is_read
        {
            (self.report)(format!(
                "the backend of {} does not read the {} bytes of a message that a lane lends at {address:#x}, so the call \
                 fails as malformed: `Backend::copy_from_lane` has to read what lanes lend",
                self.device,
                bytes.len()
            ));
        }
        is_read
    }

    fn copy_to_lane(&self, bytes: &[u8], address: u64) -> bool {
        self.backend.copy_to_lane(DeviceAddress::new(address), bytes)
    }
}

/// The heap of a device's kernels gets its memory from the device.
struct DeviceHeap(Arc<Core>);

#[allow(unsafe_code, reason = "kernels reach memory by its address")]
// SAFETY: backends promise it of what they allocate for kernels.
unsafe impl HeapMemory for DeviceHeap {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        let memory = self.0.backend.allocate_for_kernels(bytes, align)?;
        Some(Block { address: memory.address.get(), memory: memory.owner })
    }
}

/// Maps files where the device reaches them.
struct DeviceMapper(Arc<dyn Backend>);

#[allow(unsafe_code, reason = "kernels reach the mapping by its address")]
// SAFETY: backends promise it of `map_file`.
unsafe impl FileMapper for DeviceMapper {
    fn map(&self, file: &File, len: u64, writable: bool) -> Option<Block> {
        let memory = self.0.map_file(file, len, writable)?;
        Some(Block { address: memory.address.get(), memory: memory.owner })
    }
}

/// Zeroed memory that host and device share.
#[allow(unsafe_code, reason = "memory is written and shared by address")]
fn shared_memory(backend: &dyn Backend, layout: Layout) -> Result<SharedMemory, BackendError> {
    let memory: Arc<dyn Pinned> = backend.pin(layout.words() * 8)?;
    let words = memory.host_address().cast();
    // SAFETY: as many zeroed words, aligned to more than a cache line, which `memory` keeps and only the channel gets. Every
    // layout comes here checked.
    Ok(unsafe { SharedMemory::from_parts(words, layout, Box::new(memory)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No wave of a GPU that is full waits for a slot.
    #[test]
    fn every_wave_of_a_gpu_has_a_slot() {
        for (kind, wave_size, multiprocessors, waves) in [
            (DeviceKind::Nvidia, 32, 1, 48),
            (DeviceKind::Nvidia, 32, 132, 64),
            (DeviceKind::Nvidia, 32, 148, 64),
            (DeviceKind::Amd, 64, 304, 32),
        ] {
            let properties = Properties {
                kind,
                product: "a GPU".into(),
                target: "any".into(),
                wave_size,
                multiprocessors,
                resident_waves: multiprocessors * waves,
                max_workgroup_lanes: 1024,
                max_workgroup_bytes: 48 << 10,
                memory_bytes: 1 << 30,
                clock_hz: 1_000_000_000,
                independent_lanes: true,
            };
            let layout = default_layout(&properties).check().unwrap();
            assert!(layout.home_slots >= properties.resident_waves, "{properties:?}");
            assert_eq!(layout.lanes, wave_size);
        }
    }
}
