//! What outlives an open device: its backend, and what its memory and work have in common.

use super::error::Error;
use super::reaper::Reaper;
use super::staging::{Staging, StagingPool};
use super::uses::Order;
use hostcall_locks::Mutex;
use hostcall_seam::{Backend, BackendError, ImageSource, Module};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Memory that kernels may reach.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// The part of a device that its buffers, images and events keep.
pub(crate) struct Core {
    /// Which device it is; no two of the process have the same number, in turn or at once.
    id: u64,
    /// The name that the device was opened with.
    pub name: String,
    pub backend: Arc<dyn Backend>,
    pub order: Order,
    pub reaper: Arc<Reaper>,
    /// What waves wait for that no server knows of.
    pub holders: Holders,
    /// The device was closed, or nobody has it any more: nothing is launched.
    pub closed: AtomicBool,
    /// This process is a child that `fork` made since the device was opened. Set with `closed`.
    pub forked: AtomicBool,
    staging: Arc<StagingPool>,
    /// Bytes of stack that lanes of loaded code get at least.
    stack_bytes: Option<usize>,
}

impl Core {
    pub fn new(
        name: String,
        backend: Arc<dyn Backend>,
        reaper: Arc<Reaper>,
        stack_bytes: Option<usize>,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (staging, order, holders) = (Arc::default(), Order::default(), Holders::default());
        let (closed, forked) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { id, name, backend, order, reaper, holders, closed, forked, staging, stack_bytes })
    }

    /// Loads an image, whose lanes get as much stack as the device was opened with. May wait for running kernels.
    pub fn load(&self, image: ImageSource<'_>) -> Result<Arc<dyn Module>, BackendError> {
        self.backend.load(image, self.stack_bytes)
    }

    /// Takes pinned memory of the host for a copy in a stream's order.
    pub fn staging(&self, bytes: usize) -> Result<Staging, BackendError> {
        self.staging.take(&*self.backend, bytes)
    }

    /// Refuses what is asked of a device that is closed.
    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) {
            self.check_process()?;
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Refuses what is asked of a device in a child that `fork` made. To be asked before a lock is taken.
    pub fn check_process(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked { device: self.name.clone() }) } else { Ok(()) }
    }

    /// Says whether this process is a child that `fork` made since the device was opened: nothing of the device is given back.
    pub fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Returns the device's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Says whether both are the same open device.
    pub fn is(&self, other: &Core) -> bool {
        self.id == other.id
    }

    /// Refuses what belongs to another device.
    pub fn check_own(&self, other: &Core, what: impl fmt::Display) -> Result<(), Error> {
        if self.is(other) {
            return Ok(());
        }
        let (what, device) = (what.to_string(), self.name.clone());
        Err(Error::OtherDevice { what, device, closed: other.closed.load(Ordering::SeqCst) })
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Something for which waves wait that no server knows of: a raw channel, a post queue.
pub(crate) trait HoldsWaves: Send + Sync {
    /// Ends the waits, if the device's end does: it was closed.
    fn close(&self) {}
}

/// One of them.
struct Holder {
    holder: Weak<dyn HoldsWaves>,
    /// What waves name it by in the wait table, and its name.
    name: Option<(u64, Arc<str>)>,
}

/// What waves of a device may wait for so.
#[derive(Default)]
pub(crate) struct Holders {
    made: AtomicU64,
    list: Mutex<Vec<Holder>>,
}

impl Holders {
    /// Returns the number of the one that is made next.
    pub fn next_number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes one, and what waves name it by when they wait for it.
    pub fn note(&self, holder: Weak<dyn HoldsWaves>, name: Option<(u64, String)>) {
        let name = name.map(|(address, name)| (address, name.into()));
        let mut list = self.list.lock();
        list.retain(|known| known.holder.strong_count() > 0);
        list.push(Holder { holder, name });
    }

    /// Returns the name of what waves name so.
    pub fn name_at(&self, address: u64) -> Option<Arc<str>> {
        let list = self.list.lock();
        let names = list.iter().filter_map(|known| known.name.as_ref());
        names.filter(|(of, _)| *of == address).map(|(_, name)| name.clone()).next_back()
    }

    /// Ends what waves wait for that ends with the device.
    pub fn close(&self) {
        self.holders().iter().for_each(|holder| holder.close());
    }

    fn holders(&self) -> Vec<Arc<dyn HoldsWaves>> {
        // Not used under the lock: the last reference to one may be dropped.
        self.list.lock().iter().filter_map(|known| known.holder.upgrade()).collect()
    }
}
