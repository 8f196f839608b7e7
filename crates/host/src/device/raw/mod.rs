//! Raw channels: streams of records or bytes out of running kernels. ARCHITECTURE.md ("Raw channels") has the rules.

mod copier;
mod memory;
mod pace;
mod points;
mod reader;
mod recording;

use super::arguments::{IntoArg, Packer, Sealed};
use super::core::Core;
use super::{Device, Error};
use copier::Copier;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{RawLayout, RawParams};
use hostcall_channel::raw::{Chunk, Collector, News, RawRegion};
use hostcall_device::kernel::Plain;
use hostcall_device::raw::RawStream;
pub use hostcall_device::raw::{Block, DropNewest, OverwriteOldest, Policy};
use hostcall_server::Server;
pub(super) use memory::Memory;
use pace::Pace;
use parking_lot::Mutex;
pub(crate) use points::TracedPoints;
pub(super) use points::{PointNumbers, memory as points_memory};
pub use reader::{RawPage, RawReader, Records};
pub use recording::Recording;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Of the pages, the part that is kept free where the oldest are overwritten: a wave that finds none waits for the host.
const KEPT_FREE: u32 = 4;

/// Where the pages of a raw channel are filled. Kernels and readers do not differ.
///
/// | | [`Direct`](Placement::Direct) | [`Staged`](Placement::Staged) |
/// |---|---|---|
/// | waves store | over the link, at its rate | to memory of the device, at its rate until all pages are full |
/// | the host gets them | as they are stored | by copies of a copy engine, while kernels run |
/// | a record is seen | about 1 µs after the host was told of it | about 10 µs after |
/// | memory | pages of the host | as many pages of the host, and of the device |
///
/// Take staged pages for bursts and for kernels that stream as much as the link carries: a copy engine moves more than stores
/// do, and the waves go on meanwhile. Take direct ones where each record is to be seen at once, or memory of the device is
/// short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In memory of the host.
    #[default]
    Direct,
    /// In memory of the device, from where a copy engine brings them to the host: when a reader looks, and then as fast as it
    /// reads. What lies in half-filled pages is brought too, but while there are full ones only now and then, so that most of
    /// the link's time is theirs.
    Staged,
}

/// Memory through which kernels stream values of type `T`, or bytes if that is `u8`, while they run. Kernels have a parameter
/// [`RawStream`] for it; on the host a [`RawReader`] reads it. `P` says what happens when waves write faster than somebody reads:
/// [`Block`], [`DropNewest`] or [`OverwriteOldest`].
///
/// It takes pages of memory that host and device share. Plenty of pages, more than waves that write at the same time, let none
/// wait. Launches of any number of streams may use a channel at once, graphs too; they keep its memory. When the channel and its
/// readers are gone, waves drop what finds no page. A channel keeps its device open.
///
/// ```
/// use hostcall::raw::{Block, RawChannel, RawStream};
/// use hostcall::{Device, Grid, Lane, LaunchKernel, kernel};
///
/// #[kernel]
/// fn squares(lane: &Lane, out: RawStream<'_, u64, Block>) {
///     let i = lane.global_id() as u64;
///     out.write(lane, &(i * i));
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let channel = RawChannel::<u64, Block>::new(&device, 64, 4096)?;
/// let reader = channel.reader();
/// squares.launch(&stream, Grid::new(2, 32), (&channel,))?;
/// stream.synchronize()?;
/// let mut seen: Vec<u64> = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
/// seen.sort();
/// assert_eq!(seen, (0..64).map(|i| i * i).collect::<Vec<u64>>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawChannel<T, P> {
    inner: Arc<Inner>,
    types: PhantomData<fn(T) -> P>,
}

/// What was written and read of a raw channel, ever, as far as the host knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawStatistics {
    /// Pages that were closed.
    pub pages: u64,
    /// Bytes that waves said they had written.
    pub bytes: u64,
    /// Records (words, of bytes) that waves dropped because no page was free.
    pub dropped_records: u64,
    /// Bytes that were overwritten before anybody read them.
    pub overwritten_bytes: u64,
    /// Bytes of staged pages that could not be copied to the host because the device failed.
    pub lost_bytes: u64,
    /// Pages that were closed for waves which had been killed.
    pub swept_pages: u64,
    /// Words of the device that made no sense and were left alone.
    pub malformed_words: u64,
}

/// What a channel, its readers and their pages share.
struct Inner {
    core: Arc<Core>,
    server: Arc<Server>,
    /// Of a channel of the user's: it keeps the device open.
    device: Option<Device>,
    memory: Arc<Memory>,
    overwrites: bool,
    found: Mutex<Found>,
    /// Channels and readers that somebody has.
    users: AtomicUsize,
}

/// What the host has found and nobody has read.
struct Found {
    collector: Collector,
    /// What brings staged pages here.
    copier: Option<Copier>,
    /// Chunks that readers may have.
    chunks: VecDeque<Chunk>,
    /// Chunks that readers have.
    lent: usize,
    /// Overwritten bytes that a page has told of.
    overwritten_told: u64,
    /// Whether waves may have been killed since nothing was found lost.
    may_be_lost: bool,
}

impl Found {
    /// Nothing is found yet, of records of so many bytes each.
    ///
    /// # Errors
    /// When the driver has no queue left.
    fn new(core: &Core, memory: &Arc<Memory>, home_slots: u32, unit: u32) -> Result<Self, Error> {
        let copier = memory.is_staged().then(|| Copier::new(core, memory.clone())).transpose()?;
        let block_pages = if copier.is_some() { copier::block_pages(&memory.layout) } else { 1 };
        Ok(Self {
            collector: Collector::new(memory.region(), home_slots, unit, block_pages),
            copier,
            chunks: VecDeque::new(),
            lent: 0,
            overwritten_told: 0,
            may_be_lost: true,
        })
    }

    /// Whether copies are on their way.
    fn is_copying(&self) -> bool {
        self.copier.as_ref().is_some_and(|copier| copier.copies.in_flight() > 0)
    }

    /// Takes a chunk back from a reader.
    fn take_back(&mut self, region: RawRegion<'_>, chunk: &Chunk) {
        self.collector.take_back(region, chunk);
        self.lent -= 1;
        if self.lent == 0
            && self.chunks.is_empty()
            && self.copier.as_ref().is_some_and(|copier| copier.copies.is_empty())
        {
            // Nobody may look for long, and waves have all pages then.
            self.collector.give_all_parts(region);
        }
    }
}

/// Who looks for news.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// A reader, which gets staged pages copied.
    Reader,
    /// The thread that keeps pages free.
    Keeper,
}

impl Inner {
    fn region(&self) -> RawRegion<'_> {
        self.memory.region()
    }

    /// Looks for news, and gives out again what nobody has read if that is asked for. Returns whether there were any.
    fn collect(&self, found: &mut Found, looks: Looks) -> bool {
        let is_new = match found.copier {
            None => self.find(found, News::OfAll),
            Some(_) => self.find_staged(found, looks),
        };
        if self.overwrites {
            self.overwrite(found);
        }
        is_new
    }

    /// Adds news to the chunks that readers may have, or to those that are to be copied.
    fn find(&self, found: &mut Found, news: News) -> bool {
        let Found { collector, chunks, copier, may_be_lost, .. } = found;
        let chunks = match copier {
            None => chunks,
            Some(copier) => copier.copies.found(),
        };
        let region = self.region();
        let launches = self.server.launches();
        let sweep = |collector: &mut Collector, chunks: &mut VecDeque<Chunk>| {
            let is_over = |launch: LaunchId| !launches.is_known(launch);
            collector.sweep(region, news, is_over, |slot, word| self.state_word(slot, word), chunks)
        };
        let mut is_new = collector.collect(region, news, chunks) || sweep(collector, chunks);
        *may_be_lost |= is_new;
        if !is_new && *may_be_lost && launches.count() == 0 {
            // What was taken up to here is swept or lost, if nothing runs afterwards either.
            let ring = self.memory.ring(&*self.core.backend);
            if launches.count() == 0 {
                is_new = sweep(collector, chunks);
                if !is_new && let Some(ring) = ring {
                    collector.sweep_lost(region, ring);
                    *may_be_lost = false;
                }
            }
        }
        is_new
    }

    /// Takes what was copied, looks for news where the copier has not enough to do, and has them copied if a reader looks.
    fn find_staged(&self, found: &mut Found, looks: Looks) -> bool {
        let Found { chunks, copier, .. } = found;
        let Some(copier) = copier else { return false };
        let mut is_new = copier.land(chunks);
        // While a reader has chunks to read, the news are looked at once for each batch that was copied.
        if looks == Looks::Reader && (copier.is_full() || !is_new && !chunks.is_empty()) {
            return is_new;
        }
        if looks == Looks::Keeper || !copier.has_enough() {
            let before = copier.copies.found().len();
            let news = if copier.takes_halves() { News::OfAll } else { News::OfClosed };
            is_new |= self.find(found, news);
            if let Some(copier) = &mut found.copier {
                copier.note_halves(before);
            }
        }
        let Found { collector, copier, .. } = found;
        let Some(copier) = copier else { return is_new };
        if looks == Looks::Reader && !copier.has_failed() && copier.ask().is_err() || copier.has_failed() {
            self.lose(found);
        } else {
            collector.give_parts(self.region(), !copier.copies.is_empty());
        }
        is_new
    }

    /// Counts what cannot be copied any more. Waves wait for nobody then.
    fn lose(&self, found: &mut Found) {
        let Found { collector, copier, .. } = found;
        let Some(copier) = copier else { return };
        self.region().close();
        for chunk in copier.copies.take() {
            collector.lose(self.region(), &chunk);
        }
    }

    /// Takes the oldest pages that nobody has read, if too few are free.
    fn overwrite(&self, found: &mut Found) {
        let Found { collector, copier, chunks, .. } = found;
        let region = self.region();
        let least_free = self.memory.layout.pages() / KEPT_FREE;
        let missing = least_free.saturating_sub(collector.free_pages(region));
        let missing = collector.overwrite(region, missing, chunks);
        if let Some(copier) = copier {
            // What is on its way is older than what was found, and is here soon.
            if copier.copies.in_flight() == 0 {
                collector.overwrite(region, missing, copier.copies.found());
            }
            collector.give_parts(region, false);
        }
    }

    /// Looks whether a copy that somebody waits for will not come.
    fn check_copies(&self, found: &mut Found) {
        if let Some(copier) = &mut found.copier
            && copier.check().is_err()
        {
            self.lose(found);
        }
    }

    fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        self.memory.state_word(&*self.core.backend, slot, word)
    }

    fn statistics(&self) -> RawStatistics {
        let mut found = self.found.lock();
        let states = self.memory.states(&*self.core.backend);
        found.collector.count_dropped(|slot, word| states.as_ref()?.get(slot as usize)?.get(word).copied());
        let counts = found.collector.counts();
        RawStatistics {
            pages: counts.pages,
            bytes: counts.bytes,
            dropped_records: counts.dropped,
            overwritten_bytes: counts.overwritten_bytes,
            lost_bytes: counts.lost_bytes,
            swept_pages: counts.swept,
            malformed_words: counts.malformed,
        }
    }

    /// Notes that a channel or a reader is gone. Without any, waves wait for nobody.
    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.region().close();
        }
    }

    fn enter(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs until the channel is gone: where the oldest pages are overwritten, somebody must do so while nobody reads.
fn keep_free(channel: &Weak<Inner>) {
    let mut pace = Pace::new();
    while let Some(inner) = channel.upgrade() {
        let is_new = inner.collect(&mut inner.found.lock(), Looks::Keeper);
        drop(inner);
        if is_new {
            pace.found();
        }
        pace.wait(Duration::MAX);
    }
}

impl<T: Plain, P: Policy> RawChannel<T, P> {
    /// Makes a channel of so many pages of so many bytes, both powers of two: 16 to 65,536 pages of 128 bytes to 16 MiB. Pages of
    /// 4 to 64 KiB are good ones. They are [`Placement::Direct`].
    ///
    /// # Errors
    /// When the sizes are none of these or too large together, there is no room, or the system has no thread.
    pub fn new(device: &Device, pages: u32, page_bytes: u32) -> Result<Self, Error> {
        Self::placed(device, Placement::Direct, pages, page_bytes)
    }

    /// The same with pages at this place.
    ///
    /// ```
    /// # use hostcall::Device;
    /// use hostcall::raw::{Block, Placement, RawChannel};
    ///
    /// # let device = Device::open("cpu")?;
    /// // 64 MiB of the device's memory, which kernels fill at the memory's rate.
    /// let channel = RawChannel::<[u64; 2], Block>::placed(&device, Placement::Staged, 1024, 64 << 10)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`RawChannel::new`], and when the driver has no queue left.
    pub fn placed(device: &Device, placement: Placement, pages: u32, page_bytes: u32) -> Result<Self, Error> {
        let layout = RawLayout::new(pages, page_bytes).ok_or(Error::RawSizes { pages, page_bytes })?;
        let home_slots = device.inner.channel_params.sizes.layout.home_slots;
        let memory = Arc::new(Memory::new(&device.inner.core, layout, home_slots, placement)?);
        let unit = if size_of::<T>().is_multiple_of(8) { size_of::<T>() as u32 } else { 8 };
        let found = Mutex::new(Found::new(&device.inner.core, &memory, home_slots, unit)?);
        let (core, server) = (device.inner.core.clone(), device.inner.server.clone());
        let (device, overwrites, users) = (Some(device.clone()), P::OVERWRITES, AtomicUsize::new(1));
        let inner = Arc::new(Inner { core, server, device, memory, overwrites, found, users });
        if P::OVERWRITES {
            let channel = Arc::downgrade(&inner);
            let entered = inner.core.backend.clone();
            std::thread::Builder::new()
                .name("hostcall-raw".into())
                .spawn(move || {
                    entered.enter_thread();
                    keep_free(&channel);
                })
                .map_err(|error| Error::NoThread { what: "a raw channel", error })?;
        }
        Ok(Self { inner, types: PhantomData })
    }

    /// Makes a reader. Each page goes to one of a channel's readers; several of them share the work.
    pub fn reader(&self) -> RawReader<T> {
        RawReader::new(&self.inner)
    }

    /// Returns the device whose kernels write to the channel.
    pub fn device(&self) -> &Device {
        self.inner.device.as_ref().expect("a channel of a device that a user has")
    }

    /// Returns what was written and read so far. Of what waves dropped, all that happened before this was called in launches
    /// that have ended.
    pub fn statistics(&self) -> RawStatistics {
        self.inner.statistics()
    }
}

impl<T, P> Drop for RawChannel<T, P> {
    fn drop(&mut self) {
        self.inner.leave();
    }
}

impl<T: Plain, P: Policy> Sealed<RawStream<'static, T, P>> for &RawChannel<T, P> {}

impl<T: Plain, P: Policy> IntoArg<RawStream<'static, T, P>> for &RawChannel<T, P> {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<RawParams, Error> {
        packer.check_device(&self.inner.core)?;
        packer.keep(self.inner.memory.clone());
        Ok(self.inner.memory.params())
    }
}
