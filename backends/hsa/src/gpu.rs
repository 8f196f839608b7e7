//! An open GPU, with what its queues share.

use crate::agent::GpuInfo;
use crate::copies::Staging;
use crate::faults::Faults;
use crate::kernarg::Segments;
use crate::memory::PinnedMemory;
use crate::queue::QueueState;
use crate::ring::Ring;
use crate::runtime::{Error, FaultKind, Runtime};
use crate::signal::{Signal, Watched};
use crate::sys::{hsa_agent_t, hsa_amd_memory_pool_t};
use hostcall_locks::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Builder;
use std::time::Duration;

/// Rings that no queue has. Packets may be in flight in them.
#[derive(Default)]
struct UnusedRings {
    rings: Vec<Arc<Ring>>,
    /// Whether a thread waits for the packets' ends: what they keep holds the GPU, which holds the rings.
    are_watched: bool,
}

/// An open GPU.
pub struct Gpu {
    runtime: &'static Runtime,
    info: GpuInfo,
    pub(crate) faults: Arc<Faults>,
    /// The failure after which nothing is asked of the GPU.
    failure: OnceLock<Error>,
    /// Signals that nobody has.
    signals: Mutex<Vec<Signal>>,
    rings: Mutex<UnusedRings>,
    /// Queues that somebody has, for the names of what runs.
    queues: Mutex<Vec<Weak<QueueState>>>,
    pub(crate) segments: Segments,
    pub(crate) staging: OnceLock<Staging>,
}

impl Gpu {
    pub(crate) fn open(runtime: &'static Runtime, info: GpuInfo) -> Result<Arc<Self>, Error> {
        let faults = Faults::new(runtime, info.agent);
        let gpu = Arc::new(Self {
            runtime,
            info,
            faults,
            failure: OnceLock::new(),
            signals: Mutex::default(),
            rings: Mutex::default(),
            queues: Mutex::default(),
            segments: Segments::default(),
            staging: OnceLock::new(),
        });
        let _ = gpu.staging.set(Staging::new(&gpu)?);
        Ok(gpu)
    }

    /// What the GPU is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    pub(crate) fn runtime(&self) -> &'static Runtime {
        self.runtime
    }

    pub(crate) fn agent(&self) -> hsa_agent_t {
        hsa_agent_t { handle: self.info.agent }
    }

    pub(crate) fn host_agent(&self) -> hsa_agent_t {
        hsa_agent_t { handle: self.info.host }
    }

    pub(crate) fn device_pool(&self) -> hsa_amd_memory_pool_t {
        hsa_amd_memory_pool_t { handle: self.info.pools.device }
    }

    pub(crate) fn host_pool(&self) -> hsa_amd_memory_pool_t {
        hsa_amd_memory_pool_t { handle: self.info.pools.host }
    }

    pub(crate) fn kernarg_pool(&self) -> hsa_amd_memory_pool_t {
        hsa_amd_memory_pool_t { handle: self.info.pools.kernarg }
    }

    /// Takes a signal with this value.
    pub(crate) fn take_signal(&self, watched: Watched, value: i64) -> Result<Signal, Error> {
        let mut free = self.signals.lock();
        let known = free.iter().rposition(|signal| signal.watched == watched);
        let taken = known.map(|at| free.swap_remove(at));
        drop(free);
        match taken {
            Some(signal) => {
                signal.store(self, value);
                Ok(signal)
            }
            None => Signal::create(self, watched, value),
        }
    }

    /// Takes back signals that nobody will change or look at any more.
    pub(crate) fn give_back_signals(&self, signals: impl IntoIterator<Item = Signal>) {
        self.signals.lock().extend(signals);
    }

    /// Takes a ring in which nothing is in flight.
    pub(crate) fn take_ring(self: &Arc<Self>) -> Result<Arc<Ring>, Error> {
        let mut unused = self.rings.lock();
        let idle = unused.rings.iter().position(|ring| ring.is_idle(self));
        let idle = idle.map(|at| unused.rings.swap_remove(at));
        drop(unused);
        idle.map_or_else(|| Ring::create(self).map(Arc::new), Ok)
    }

    /// Takes back the ring of a queue that has gone, and waits on a thread for what is in flight.
    pub(crate) fn give_back_ring(self: &Arc<Self>, ring: Arc<Ring>) {
        let is_idle = ring.has_nothing_in_flight();
        let mut unused = self.rings.lock();
        unused.rings.push(ring);
        if is_idle || unused.are_watched {
            return;
        }
        let gpu = self.clone();
        let watch = Builder::new().name("hsa ring".to_owned()).spawn(move || gpu.watch_unused_rings());
        // Without a thread the next queue looks at the rings.
        unused.are_watched = watch.is_ok();
    }

    fn watch_unused_rings(&self) {
        /// What waits for the memory of a kernel that nobody waits for can wait so long.
        const LOOK: Duration = Duration::from_millis(5);
        loop {
            // Ends the rings after a failure, and so what is in flight.
            let _ = self.check();
            let mut unused = self.rings.lock();
            let freed: Vec<_> =
                unused.rings.iter().map(|ring| ring.reclaim(self, &mut ring.lock())).collect();
            unused.are_watched = unused.rings.iter().any(|ring| !ring.has_nothing_in_flight());
            let goes_on = unused.are_watched;
            drop(unused);
            drop(freed);
            if !goes_on {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(crate) fn add_queue(&self, queue: &Arc<QueueState>) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    /// Returns the error that the GPU has failed with. The first call after a fault ends what runs.
    ///
    /// # Errors
    /// What went wrong, and in which kernel.
    pub fn check(&self) -> Result<(), Error> {
        let Some((kind, fault)) = self.faults.first() else { return Ok(()) };
        Err(self.failure.get_or_init(|| self.end(*kind, fault)).clone())
    }

    /// Ends all rings, so that no kernel uses memory any more which is freed because of the failure.
    fn end(&self, kind: FaultKind, fault: &str) -> Error {
        let queues: Vec<_> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        let rings = self.rings.lock().rings.clone();
        let rings: Vec<_> = queues.iter().filter_map(|queue| queue.ring().cloned()).chain(rings).collect();
        let mut running: Vec<String> = rings.iter().filter_map(|ring| ring.running_kernel()).collect();
        running.sort();
        running.dedup();
        rings.iter().for_each(|ring| ring.end(self));
        let doing = match &running[..] {
            [] => "running a kernel".to_owned(),
            [kernel] => format!("running the kernel {kernel}"),
            kernels => format!("running one of the kernels {}", kernels.join(", ")),
        };
        let text = format!("{fault}; the open GPU cannot be used any more");
        Error { doing, status: 0, text, fault: Some(kind) }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        for ring in std::mem::take(&mut self.rings.lock().rings) {
            ring.end(self);
            self.signals.lock().push(ring.done());
        }
        for signal in std::mem::take(&mut *self.signals.lock()) {
            // SAFETY: every user of the signal held the GPU, and its rings have ended.
            unsafe { signal.destroy(self) };
        }
        self.segments.free(self);
        if let Some(staging) = self.staging.take() {
            staging.free(self);
        }
    }
}

impl Gpu {
    /// Allocates zeroed pinned memory, at a multiple of 4096 and at the same address on host and GPU.
    ///
    /// # Errors
    /// When there is no room.
    pub fn pin(self: &Arc<Self>, bytes: usize) -> Result<PinnedMemory, Error> {
        PinnedMemory::new(self, bytes)
    }
}
