//! The launches that have begun and not ended: a table by index and generation.
//!
//! A device says of each call whose it is, by the launch's id. The table says whether such a launch runs: one relaxed load a
//! call. What is known of a launch besides is behind a lock, which only its begin, cancellation and end take.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::LAUNCHES;
use hostcall_channel::SharedMemory;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the server has to know of a launch.
#[derive(Default)]
pub struct LaunchRecord {
    /// The kernel's name.
    pub kernel: String,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup in x, y and z.
    pub workgroup_size: [u32; 3],
    /// The stream, as whoever launches counts streams.
    pub stream: u64,
    /// The launch's place in its stream.
    pub sequence: u64,
    /// What lives until the launch ends.
    pub keep_alive: Vec<Arc<dyn Any + Send + Sync>>,
}

/// As many launches have begun and not ended as a device can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LAUNCHES} launches have not ended; synchronize a stream before launching more")]
pub struct TooManyLaunches;

/// Why a launch was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// Somebody asked for it.
    Asked,
    /// A lane panicked.
    Panicked,
    /// A lane ended the program with this code.
    Exited(i32),
    /// A lane did what the device does not allow.
    Failed,
    /// The device wrote into a slot what makes no sense.
    BrokenSlot,
    /// The device was closed.
    Closed,
    /// Its time was up.
    TimedOut,
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchReport {
    /// Why it was cancelled, if it was: the first reason.
    pub cancelled: Option<CancelReason>,
}

struct Entry {
    record: LaunchRecord,
    cancelled: Option<CancelReason>,
}

struct Table {
    /// Indices that launches have had, the one that was free first first.
    free: VecDeque<u32>,
    /// Indices from here on were never used.
    fresh: u32,
    entries: HashMap<LaunchId, Entry>,
}

/// Of an index's word: the generation in the upper bits, and these two.
const LIVE: u32 = 1;
const CANCELLED: u32 = 2;
const GENERATION: u32 = 2;

/// Indices that rest before they are used again, so that an id that is still somewhere is not soon another launch's.
const RESTING: usize = 1024;

/// The launches of a device.
pub struct Launches {
    memory: Arc<SharedMemory>,
    words: Box<[AtomicU32]>,
    table: Mutex<Table>,
    /// Launches that have begun and not ended.
    live: AtomicU32,
}

fn live(id: LaunchId) -> u32 {
    id.generation() << GENERATION | LIVE
}

impl Launches {
    pub(crate) fn new(memory: Arc<SharedMemory>) -> Self {
        Self {
            memory,
            words: (0..LAUNCHES).map(|_| AtomicU32::new(0)).collect(),
            table: Mutex::new(Table { free: VecDeque::new(), fresh: 0, entries: HashMap::new() }),
            live: AtomicU32::new(0),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a launch, before its kernel starts.
    ///
    /// # Errors
    /// When too many have not ended.
    pub fn begin(&self, record: LaunchRecord) -> Result<LaunchId, TooManyLaunches> {
        let mut table = self.table();
        let index = if table.fresh < LAUNCHES && table.free.len() < RESTING {
            table.fresh += 1;
            table.fresh - 1
        } else {
            table.free.pop_front().ok_or(TooManyLaunches)?
        };
        let word = &self.words[index as usize];
        let generation = (word.load(Ordering::Relaxed) >> GENERATION) % LaunchId::LAST_GENERATION + 1;
        let id = LaunchId::new(index, generation);
        table.entries.insert(id, Entry { record, cancelled: None });
        self.memory.region().set_cancelled(id, false);
        word.store(live(id), Ordering::SeqCst);
        self.live.fetch_add(1, Ordering::SeqCst);
        Ok(id)
    }

    /// Notes that a launch is cancelled; its device learns of it. Returns whether it runs and was not cancelled before.
    pub(crate) fn cancel(&self, id: LaunchId, why: CancelReason) -> bool {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(&id) else { return false };
        if entry.cancelled.is_some() {
            return false;
        }
        entry.cancelled = Some(why);
        self.words[id.index() as usize].store(live(id) | CANCELLED, Ordering::SeqCst);
        self.memory.region().set_cancelled(id, true);
        true
    }

    /// Ends a launch whose kernel has ended; nobody knows its id any more.
    pub(crate) fn end(&self, id: LaunchId) -> LaunchReport {
        let mut table = self.table();
        let Some(entry) = table.entries.remove(&id) else { return LaunchReport::default() };
        self.words[id.index() as usize].store(id.generation() << GENERATION, Ordering::SeqCst);
        self.memory.region().set_cancelled(id, false);
        table.free.push_back(id.index());
        self.live.fetch_sub(1, Ordering::SeqCst);
        drop(table);
        let Entry { record, cancelled } = entry;
        // What it kept alive may do anything when it goes.
        drop(record);
        LaunchReport { cancelled }
    }

    /// Whether a launch runs and was not cancelled.
    #[inline(always)]
    pub fn is_live(&self, id: LaunchId) -> bool {
        self.words[id.index() as usize].load(Ordering::Relaxed) == live(id) || self.is_live_for_sure(id)
    }

    /// The same under the lock: the call may have come before the word was seen.
    #[cold]
    #[inline(never)]
    fn is_live_for_sure(&self, id: LaunchId) -> bool {
        self.table().entries.get(&id).is_some_and(|entry| entry.cancelled.is_none())
    }

    /// Whether a launch has begun and not ended.
    #[inline]
    pub fn is_known(&self, id: LaunchId) -> bool {
        let word = self.words[id.index() as usize].load(Ordering::Relaxed) & !CANCELLED;
        word == live(id) || self.table().entries.contains_key(&id)
    }

    /// Whether a launch runs that was cancelled, and why.
    pub fn cancelled(&self, id: LaunchId) -> Option<CancelReason> {
        self.table().entries.get(&id).and_then(|entry| entry.cancelled)
    }

    /// The name of a launch's kernel.
    pub fn kernel(&self, id: LaunchId) -> Option<String> {
        self.table().entries.get(&id).map(|entry| entry.record.kernel.clone())
    }

    /// Launches that have begun and not ended.
    pub fn count(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// The ids of the launches that have begun and not ended.
    pub fn ids(&self) -> Vec<LaunchId> {
        self.table().entries.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::layout::Layout;

    fn launches() -> Launches {
        Launches::new(Arc::new(SharedMemory::allocate(Layout::small(1, 1, 4, 64).check().unwrap())))
    }

    #[test]
    fn ids_are_not_used_again_soon() {
        let launches = launches();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5000 {
            let id = launches.begin(LaunchRecord::default()).unwrap();
            assert!(launches.is_live(id) && launches.is_known(id) && seen.insert(id));
            assert_eq!(launches.end(id), LaunchReport { cancelled: None });
            assert!(!launches.is_live(id) && !launches.is_known(id));
        }
        assert!(!launches.is_live(LaunchId::NONE) && !launches.is_known(LaunchId::NONE));
        let indices: std::collections::HashSet<_> = seen.iter().map(|id| id.index()).collect();
        assert_eq!(indices.len(), RESTING);
    }

    #[test]
    fn a_cancellation_is_one_launchs() {
        let launches = launches();
        let [first, second] = [0, 1].map(|_| launches.begin(LaunchRecord::default()).unwrap());
        assert!(launches.cancel(first, CancelReason::Asked) && !launches.cancel(first, CancelReason::Closed));
        assert!(!launches.is_live(first) && launches.is_known(first) && launches.is_live(second));
        let words = launches.memory.region().words();
        assert!(words.cancelled(first) && !words.cancelled(second));
        assert_eq!(launches.end(first), LaunchReport { cancelled: Some(CancelReason::Asked) });
        assert!(!launches.memory.region().cancelled(first) && !launches.cancel(first, CancelReason::Asked));
        assert_eq!(launches.count(), 1);
    }

    #[test]
    fn there_are_as_many_as_a_device_can_tell_apart() {
        let launches = launches();
        let ids: Vec<_> = (0..LAUNCHES).map(|_| launches.begin(LaunchRecord::default()).unwrap()).collect();
        assert_eq!(launches.begin(LaunchRecord::default()), Err(TooManyLaunches));
        launches.end(ids[77]);
        let again = launches.begin(LaunchRecord::default()).unwrap();
        assert_eq!((again.index(), again.generation()), (ids[77].index(), ids[77].generation() + 1));
    }
}
