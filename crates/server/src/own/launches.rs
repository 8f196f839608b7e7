//! The launches that have begun and not ended: a table by index and generation.
//!
//! A device says of each call whose it is, by the launch's id. The table says whether such a launch runs: one relaxed load a
//! call. What is known of a launch besides is behind a lock, which only its begin, cancellation and end take.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::LAUNCHES;
use hostcall_channel::SharedMemory;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the server has to know of a launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchRecord {
    /// The kernel's name.
    pub kernel: Arc<str>,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
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
    id: LaunchId,
    record: LaunchRecord,
    cancelled: Option<CancelReason>,
}

struct Table {
    /// Indices that launches have had, the one that was free first first.
    free: VecDeque<u32>,
    /// By index, as far as indices were ever used.
    entries: Vec<Option<Entry>>,
}

impl Table {
    fn get(&self, id: LaunchId) -> Option<&Entry> {
        self.entries.get(id.index() as usize)?.as_ref().filter(|entry| entry.id == id)
    }
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
    /// Launches that have begun and not ended. Changes under the table's lock.
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
            table: Mutex::new(Table { free: VecDeque::new(), entries: Vec::new() }),
            live: AtomicU32::new(0),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a launch, before its kernel starts. Returns also whether it is the only one.
    ///
    /// # Errors
    /// When too many have not ended.
    pub fn begin(&self, record: LaunchRecord) -> Result<(LaunchId, bool), TooManyLaunches> {
        let mut table = self.table();
        let fresh = table.entries.len() as u32;
        let index = if fresh < LAUNCHES && table.free.len() < RESTING {
            table.entries.push(None);
            fresh
        } else {
            table.free.pop_front().ok_or(TooManyLaunches)?
        };
        let word = &self.words[index as usize];
        let generation = (word.load(Ordering::Relaxed) >> GENERATION) % LaunchId::LAST_GENERATION + 1;
        let id = LaunchId::new(index, generation);
        table.entries[index as usize] = Some(Entry { id, record, cancelled: None });
        word.store(live(id), Ordering::Release);
        let before = self.live.load(Ordering::Relaxed);
        self.live.store(before + 1, Ordering::Release);
        Ok((id, before == 0))
    }

    /// Notes that a launch is cancelled; its device learns of it. Returns whether it runs and was not cancelled before.
    pub(crate) fn cancel(&self, id: LaunchId, why: CancelReason) -> bool {
        let mut table = self.table();
        let entry = table.entries.get_mut(id.index() as usize).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.id == id && entry.cancelled.is_none()) else {
            return false;
        };
        entry.cancelled = Some(why);
        self.words[id.index() as usize].store(live(id) | CANCELLED, Ordering::SeqCst);
        self.memory.region().set_cancelled(id, true);
        true
    }

    /// Ends a launch whose kernel has ended; nobody knows its id any more.
    pub(crate) fn end(&self, id: LaunchId) -> LaunchReport {
        let mut table = self.table();
        let entry = table.entries.get_mut(id.index() as usize);
        let entry = entry.and_then(|entry| entry.take_if(|entry| entry.id == id));
        let Some(entry) = entry else { return LaunchReport::default() };
        self.words[id.index() as usize].store(id.generation() << GENERATION, Ordering::Release);
        if entry.cancelled.is_some() {
            self.memory.region().set_cancelled(id, false);
        }
        table.free.push_back(id.index());
        self.live.store(self.live.load(Ordering::Relaxed) - 1, Ordering::Release);
        LaunchReport { cancelled: entry.cancelled }
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
        self.table().get(id).is_some_and(|entry| entry.cancelled.is_none())
    }

    /// Whether a launch has begun and not ended.
    #[inline]
    pub fn is_known(&self, id: LaunchId) -> bool {
        let word = self.words[id.index() as usize].load(Ordering::Relaxed) & !CANCELLED;
        word == live(id) || self.table().get(id).is_some()
    }

    /// Whether a launch runs that was cancelled, and why.
    pub fn cancelled(&self, id: LaunchId) -> Option<CancelReason> {
        self.table().get(id).and_then(|entry| entry.cancelled)
    }

    /// What a launch that has begun and not ended is.
    pub fn record(&self, id: LaunchId) -> Option<LaunchRecord> {
        self.table().get(id).map(|entry| entry.record.clone())
    }

    /// Launches that have begun and not ended.
    pub fn count(&self) -> u32 {
        self.live.load(Ordering::SeqCst)
    }

    /// The ids of the launches that have begun and not ended.
    pub fn ids(&self) -> Vec<LaunchId> {
        self.table().entries.iter().flatten().map(|entry| entry.id).collect()
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
            let (id, is_only) = launches.begin(LaunchRecord::default()).unwrap();
            assert!(is_only && launches.is_live(id) && launches.is_known(id) && seen.insert(id));
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
        let [first, second] = [0, 1].map(|_| launches.begin(LaunchRecord::default()).unwrap().0);
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
        let ids: Vec<_> = (0..LAUNCHES).map(|_| launches.begin(LaunchRecord::default()).unwrap().0).collect();
        assert_eq!(launches.begin(LaunchRecord::default()), Err(TooManyLaunches));
        launches.end(ids[77]);
        let (again, _) = launches.begin(LaunchRecord::default()).unwrap();
        assert_eq!((again.index(), again.generation()), (ids[77].index(), ids[77].generation() + 1));
    }
}
