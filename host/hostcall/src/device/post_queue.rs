//! Post queues: posts of kernels for a thread of the user's, which polls and gets the posts themselves.
//!
//! What proxies of communication libraries do (MSCCL++, expert parallelism): a kernel posts what is to be sent, a thread polls,
//! acts, and stores a word for which the kernel waits. A queue has a channel of its own, with the rings, slots and context of
//! any other, so that kernels post to it by the same functions of `hostcall_device.h`; nobody but its owner looks at it
//! (`hostcall_server::PostReader`).
//!
//! | | what a kernel's posts do | what a poll does |
//! |---|---|---|
//! | nobody polls | lie in their wave's ring; once that is full, the wave waits | |
//! | [cancelled](PostQueue::cancel) | 0 for who waits for room; else 1, as long as there is room | drops them and counts them |
//! | [renewed](PostQueue::renew) | go on. Those through a slot that was held across it are of before | drops those of before |
//! | dropped, the device closed | as after a cancellation, for good | fails, where there is still a queue |
#![allow(unsafe_code, reason = "kernels reach the channel by its address")]

use super::context::keep;
use super::core::{Core, HoldsWaves, Kept};
use super::error::Error;
use super::inner::Device;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::context::{CONTEXT_BYTES, ContextParams, LAUNCH_AT, MAGIC, MAJOR, MESSAGES, MINOR};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::{HOME_SLOT_BYTES, HomeSlotWords, Layout, Sizes};
use hostcall_channel::SharedMemory;
use hostcall_locks::Mutex;
use hostcall_seam::{DeviceAddress, Memory, Pinned};
use hostcall_server::{PostBatch, PostQueueStatistics, PostReader};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Sizes of a [`PostQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostQueueSizes {
    /// Waves that post at the same time, or hold a `hostcall_scope`: more of them wait for each other. 1 to 65,536.
    pub waves: u32,
    /// Entries of 16 bytes of each wave's ring, in memory of the host. A post of `n` words takes `1 + n / 2` of them. A power of
    /// two, at least 16 for each lane of a wave and at most 65,536.
    pub ring_entries: u32,
}

impl Default for PostQueueSizes {
    /// 256 waves, rings of 2,048 entries: 10 MiB of pinned memory.
    fn default() -> Self {
        Self { waves: 256, ring_entries: 2048 }
    }
}

/// What kernels reach.
struct Reach {
    block: Arc<dyn Memory>,
    _homes: Arc<dyn Memory>,
    region: Arc<SharedMemory>,
}

/// The part of a queue that its device may cancel.
struct State {
    reach: Arc<Reach>,
    is_cancelled: AtomicBool,
    /// The launch whose posts are handed over. Its id is this queue's, and means nothing to the device.
    launch: AtomicU32,
}

impl State {
    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.reach.region.region().stop();
    }

    fn is_live(&self, launch: LaunchId) -> bool {
        launch.to_bits() == self.launch.load(Ordering::Acquire) && !self.is_cancelled.load(Ordering::Acquire)
    }
}

impl HoldsWaves for State {
    fn close(&self) {
        self.cancel();
    }
}

/// Posts of 0 to 16 words (128 bytes) from kernels in CUDA C++, HIP or C to a thread of the user's, which [polls](PostQueue::poll).
///
/// Kernels take [its address](PostQueue::address) in the place of a context's and post by `hostcall_post_message`,
/// `hostcall_scope_post_message` or `hostcall_post` (up to 16 words), or as to a service, with up to five. Posts through one held
/// slot (`hostcall_scope`) come in their order. Whoever posts more than a ring holds waits until it was polled.
///
/// ```
/// use hostcall::Device;
/// use hostcall::device::PostQueueSizes;
///
/// let device = Device::open("cpu")?;
/// let queue = device.post_queue("sends", PostQueueSizes { waves: 8, ring_entries: 512 })?;
/// // An argument of a kernel that a framework launches.
/// let argument: u64 = queue.address().get();
/// # assert_ne!(argument, 0);
/// // The proxy's loop, on a thread of its own.
/// let taken = queue.poll(usize::MAX, |batch| {
///     for post in batch.posts() {
///         println!("{:x}: {post:x?}", batch.tag());
///     }
/// })?;
/// assert_eq!(taken, 0);
/// # Ok::<(), hostcall::Error>(())
/// ```
pub struct PostQueue {
    core: Arc<Core>,
    name: Arc<str>,
    state: Arc<State>,
    /// Who polls has it, also while he gets posts.
    reader: Mutex<PostReader>,
    /// As of the last poll that ended: who asks waits for no poll.
    counts: Counts,
    /// Who renews has it.
    renewing: Mutex<()>,
}

/// [`PostQueueStatistics`] that threads share.
#[derive(Default)]
struct Counts([AtomicU64; 4]);

impl Counts {
    fn set(&self, of: PostQueueStatistics) {
        let PostQueueStatistics { posts, dropped, refused_calls, garbage } = of;
        for (to, count) in self.0.iter().zip([posts, dropped, refused_calls, garbage]) {
            to.store(count, Ordering::Relaxed);
        }
    }

    fn get(&self) -> PostQueueStatistics {
        let [posts, dropped, refused_calls, garbage] = self.0.each_ref().map(|of| of.load(Ordering::Relaxed));
        PostQueueStatistics { posts, dropped, refused_calls, garbage }
    }
}

impl Device {
    /// Makes a post queue. `name` is what errors call it. Its memory stays until the process ends, since nobody knows whether a
    /// captured graph still has its address: make one for each purpose, not one for each launch.
    ///
    /// # Errors
    /// When the sizes cannot be, there is no memory, or the device was closed.
    pub fn post_queue(&self, name: &str, sizes: PostQueueSizes) -> Result<PostQueue, Error> {
        let core = self.inner.core.clone();
        core.check_open()?;
        let backend = &*core.backend;
        let lanes = backend.properties().wave_size;
        let PostQueueSizes { waves, ring_entries } = sizes;
        let layout = Layout::small(waves, lanes, ring_entries, 64 * lanes.next_power_of_two()).check()?;
        // A wave's posts of 16 words fit the ring at once, with the entry that says whose they are.
        if ring_entries < 16 * lanes {
            return Err(hostcall_abi::layout::LayoutError::MessageRing.into());
        }
        let pinned: Arc<dyn Pinned> = backend.pin(layout.words() * 8)?;
        let words = pinned.host_address().cast();
        // SAFETY: as many zeroed words, aligned to more than a cache line, which `pinned` keeps and only the channel gets. The
        // layout was checked.
        let region = Arc::new(unsafe { SharedMemory::from_parts(words, layout, Box::new(pinned)) });
        let (homes, block) =
            (backend.allocate(waves as usize * HOME_SLOT_BYTES)?, backend.allocate(CONTEXT_BYTES)?);
        let sizes = Sizes::from(layout);
        let mut slots = Vec::with_capacity(homes.len());
        for slot in 0..waves {
            slots.extend_from_slice(HomeSlotWords::new(&sizes, slot, region.address()).as_bytes());
        }
        let launch = LaunchId::new(0, 1);
        let params = ContextParams {
            magic: MAGIC,
            major: MAJOR,
            minor: MINOR,
            region: region.address(),
            homes: homes.address().get(),
            home_slots: waves,
            lanes,
            launch,
            flags: MESSAGES,
            channel: 0,
            wake: [0; 2],
            points: 0,
            waits: 0,
            reserved: [0; 6],
        };
        // SAFETY: both are new, and as long.
        unsafe {
            backend.write_now(homes.address(), &slots)?;
            backend.write_now(block.address(), params.as_bytes())?;
        }
        let state = Arc::new(State {
            reach: Arc::new(Reach { block, _homes: homes, region: region.clone() }),
            is_cancelled: AtomicBool::new(false),
            launch: AtomicU32::new(launch.to_bits()),
        });
        let held: Arc<dyn HoldsWaves> = state.clone();
        core.holders.note(Arc::downgrade(&held), None);
        // The device may have been closed meanwhile.
        core.check_open()?;
        let (name, reader) = (name.into(), Mutex::new(PostReader::new(region)));
        Ok(PostQueue { core, name, state, reader, counts: Counts::default(), renewing: Mutex::default() })
    }
}

impl PostQueue {
    /// Returns the address that kernels take, as a 64-bit argument or in a variable of their module. It stays the same.
    pub fn address(&self) -> DeviceAddress {
        self.state.reach.block.address()
    }

    /// Returns the device, and what keeps the memory that the address leads to.
    pub(super) fn reach(&self) -> (&Arc<Core>, Kept) {
        (&self.core, self.state.reach.clone())
    }

    /// Looks once for posts and gives those that are there to `take`, `most` at most, in batches of one wave, one tag and one number
    /// of words. Returns how many these were. It waits for nothing: whoever wants the next post calls it again. What a kernel wrote
    /// before a post, and fenced (`hostcall_fence_system`), is there when `take` gets the post.
    ///
    /// One thread polls at a time. A post is taken before `take` gets it: where that panics, it does not come again.
    ///
    /// # Errors
    /// When another thread polls now, or `take` calls it; when the device was closed.
    pub fn poll(&self, most: usize, take: impl FnMut(PostBatch<'_>)) -> Result<usize, Error> {
        self.core.check_open()?;
        let mut reader = self.reader()?;
        let taken = reader.poll(most, |launch| self.state.is_live(launch), take);
        self.counts.set(reader.statistics());
        Ok(taken)
    }

    /// Returns whether posts lie there, or were announced, that no poll has taken. Of kernels that have ended it knows all posts:
    /// poll while there are some. It looks at every wave's bell, which takes longer than a poll.
    ///
    /// # Errors
    /// When another thread polls now.
    pub fn has_posts(&self) -> Result<bool, Error> {
        Ok(self.reader()?.expects_posts())
    }

    fn reader(&self) -> Result<std::sync::MutexGuard<'_, PostReader>, Error> {
        self.core.check_process()?;
        let busy = || Error::PostQueueBusy { name: self.name.to_string() };
        self.reader.try_lock().ok_or_else(busy)
    }

    /// Ends waits for room in its rings: such posts return 0. Polls drop what lies there and what comes, until it is
    /// [renewed](PostQueue::renew). `hostcall_wait_word` of a kernel returns 0.
    ///
    /// # Errors
    /// In a child that `fork` made.
    pub fn cancel(&self) -> Result<(), Error> {
        self.core.check_process()?;
        self.state.cancel();
        Ok(())
    }

    /// Has posts handed over again after [`PostQueue::cancel`]: those of kernels that begin from now on, and those that claim a slot
    /// for each post. Polls drop what was posted before.
    ///
    /// # Errors
    /// When the device was closed or fails.
    pub fn renew(&self) -> Result<(), Error> {
        self.core.check_open()?;
        let _renewing = self.renewing.lock();
        let (state, last) = (&self.state, LaunchId::from_bits(self.state.launch.load(Ordering::Acquire)));
        let next = LaunchId::new(0, last.generation() % LaunchId::LAST_GENERATION + 1);
        // First, so that no poll drops what is posted as soon as kernels see the new id.
        state.launch.store(next.to_bits(), Ordering::Release);
        let at = self.address().offset(LAUNCH_AT as u64);
        // Also the flags, since copies are of whole words: they stay the same.
        let word = u64::from(next.to_bits()) | u64::from(MESSAGES) << 32;
        // SAFETY: the block lies there, and kernels access the word atomically.
        if let Err(error) = unsafe { self.core.backend.store_words(at, &word.to_le_bytes(), 8) } {
            state.launch.store(last.to_bits(), Ordering::Release);
            return Err(error.into());
        }
        state.is_cancelled.store(false, Ordering::Release);
        state.reach.region.region().resume();
        // A device that is closed meanwhile stays so.
        if self.core.check_open().is_err() {
            self.state.cancel();
        }
        self.core.check_open()
    }

    /// Returns what became of the posts until the last poll that ended.
    pub fn statistics(&self) -> PostQueueStatistics {
        self.counts.get()
    }

    /// Cancels the queue for good and takes what lies in its rings. Returns the statistics, in which posts that nobody had read are
    /// among the dropped ones. Dropping the queue does the same without telling.
    pub fn close(self) -> PostQueueStatistics {
        self.state.cancel();
        let mut reader = self.reader.lock();
        if !self.core.is_forked() {
            reader.drop_all();
        }
        self.counts.set(reader.statistics());
        self.counts.get()
    }
}

impl Drop for PostQueue {
    fn drop(&mut self) {
        // A child that `fork` made takes no lock of its parent's, and has none of its kernels.
        if self.core.is_forked() {
            return;
        }
        self.state.cancel();
        keep(self.state.reach.clone());
    }
}

impl fmt::Debug for PostQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address) = (&self.name, self.address());
        f.debug_struct("PostQueue").field("name", name).field("address", &address).finish_non_exhaustive()
    }
}
