//! Raw channels: streams of records or bytes out of running kernels. The page of `hostcall_channel::raw` has
//! the rules.

mod copier;
mod found;
mod memory;
mod of_others;
mod pace;
mod points;
mod reader;
mod recording;

use super::arguments::{IntoArg, Packer, Sealed};
use super::core::Core;
use super::error::Error;
use super::inner::Device;
use found::{Found, Inner, Looks};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{ForeignRawParams, RawLayout, RawParams};
use hostcall_device::kernel::Plain;
use hostcall_device::raw::RawStream;
pub use hostcall_device::raw::{Block, DropNewest, OverwriteOldest, Policy};
use hostcall_locks::Mutex;
pub(super) use memory::Memory;
pub(crate) use of_others::WrittenByOthers;

use pace::Pace;
pub(crate) use points::PointsChannel;
pub(super) use points::{PointNames, PointService};
pub use reader::{Messages, RawPage, RawReader, Records};
pub use recording::Recording;
use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where the pages of a raw channel are filled. Kernels and readers do not differ.
///
/// | | [`Direct`](Placement::Direct) | [`Staged`](Placement::Staged) |
/// |---|---|---|
/// | waves store | over the link, at its rate | to memory of the device, at its rate until all pages are full |
/// | the host gets them | as they are stored | by copies of a copy engine, while kernels run |
/// | a record is seen | about 1 µs after the host was told of it | about 10 µs after |
/// | memory | pages of the host | as many pages of the host, and of the device |
///
/// Take staged pages for bursts that end before all pages are full: the waves do not wait for the link. Take direct ones for
/// streams that go on, which a reader gets faster so (docs/history), where each record is to be seen at once, and
/// where memory of the device is short.
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
///
/// # Messages
/// With records of 16 bytes a channel is a queue of messages from any lane to the host: a wave's messages are whole lines, and
/// no lane waits for an answer. What one lane sends comes in that order; what lanes of a wave send together comes in the order
/// of the lanes, and before what any of them sends later. Nothing is promised between waves: a message of one may come before
/// one that another sent earlier. That is so with one reader; several share the pages, and each sees an order of its own.
///
/// A wave tells the host of its messages every 131 µs at the latest while it sends, when its page is full, and when it ends;
/// one that must be seen at once is followed by [`RawStream::flush`].
///
/// ```
/// use hostcall::raw::{Block, RawChannel, RawStream};
/// use hostcall::{Device, Grid, Lane, LaunchKernel, Plain, kernel};
/// use std::time::Duration;
///
/// #[derive(Clone, Copy, Plain)]
/// #[repr(C)]
/// struct Found {
///     lane: u64,
///     factor: u64,
/// }
///
/// #[kernel]
/// fn search(lane: &Lane, number: u64, found: RawStream<'_, Found, Block>) {
///     let factor = lane.global_id() as u64 + 2;
///     if number.is_multiple_of(factor) {
///         found.write(lane, &Found { lane: lane.global_id() as u64, factor });
///         found.flush(lane);
///     }
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let channel = RawChannel::<Found, Block>::new(&device, 64, 4096)?;
/// let reader = channel.reader();
/// search.launch(&stream, Grid::new(4, 32), (91, &channel))?;
/// // Each is there while the kernel runs on.
/// for Found { lane, factor } in reader.messages(Duration::from_secs(5)).take(3) {
///     println!("lane {lane} found {factor}");
///     assert!([7, 13, 91].contains(&factor));
/// }
/// stream.synchronize()?;
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
    /// Pages that were closed for waves which had been killed, or, of kernels that other compilers made, did not close them.
    pub swept_pages: u64,
    /// Words of the device that made no sense and were left alone.
    pub malformed_words: u64,
    /// What it took to bring staged pages to the host. Zeros where pages are direct.
    pub staging: RawStaging,
}

/// Where the time goes between a staged page's end and its reader, ever, in the threads that read the channel or, with
/// [`OverwriteOldest`], keep pages free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawStaging {
    /// How often all pages were looked at for news.
    pub searches: u64,
    /// How long that took.
    pub search_ns: u64,
    /// Batches of copies that a copy engine was asked for.
    pub batches: u64,
    /// Copies in these batches, each of pages that lie side by side.
    pub copies: u64,
    /// How long it took to ask for them.
    pub ask_ns: u64,
    /// How long readers waited for copies while there was nothing else to read.
    pub wait_ns: u64,
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
    /// When the sizes are none of these or too large together, there is no room, a stream captures that this breaks, or the
    /// system has no thread.
    pub fn new(device: &Device, pages: u32, page_bytes: u32) -> Result<Self, Error> {
        Self::made(device, Placement::Direct, pages, page_bytes, "RawChannel::new")
    }

    /// Makes a channel as [`RawChannel::new`] does, with pages at this place.
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
        Self::made(device, placement, pages, page_bytes, "RawChannel::placed")
    }

    fn made(
        device: &Device,
        placement: Placement,
        pages: u32,
        page_bytes: u32,
        call: &'static str,
    ) -> Result<Self, Error> {
        let layout = RawLayout::new(pages, page_bytes).ok_or(Error::RawSizes { pages, page_bytes })?;
        let home_slots = device.inner.channel_params.sizes.layout.home_slots;
        let memory = Arc::new(Memory::new(&device.inner.core, layout, home_slots, placement, call)?);
        let unit = if size_of::<T>().is_multiple_of(8) { size_of::<T>() as u32 } else { 8 };
        let found = Mutex::new(Found::new(&device.inner.core, &memory, home_slots, unit, false)?);
        let (core, server) = (device.inner.core.clone(), device.inner.server.clone());
        let (device, overwrites, users) = (Some(device.clone()), P::OVERWRITES, AtomicUsize::new(1));
        let number = core.holders.next_number();
        let waits_with = P::WAITS.then(std::any::type_name::<T>);
        let (others, contexts) = (None, Mutex::default());
        let inner = Arc::new(Inner {
            core,
            server,
            device,
            memory,
            overwrites,
            number,
            waits_with,
            found,
            others,
            users,
            contexts,
        });
        if let Some(values) = inner.waits_with {
            let holder: Weak<Inner> = Arc::downgrade(&inner);
            let name = format!("raw channel {} of {values}", inner.number);
            inner.core.holders.note(holder, Some((inner.memory.params().ring, name)));
        }
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

    /// Returns the channel's number on its device: the first one made has 1. Reports of waves that wait for
    /// a page name it.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Returns what was written and read so far: of pages and bytes, what was there when a reader looked last; of what waves
    /// dropped, all that happened before this was called in launches that have ended.
    pub fn statistics(&self) -> RawStatistics {
        self.inner.statistics()
    }
}

impl<T: Plain, P: Policy> RawChannel<T, P> {
    /// The channel for a kernel that another compiler made: whose it is, what keeps its memory, and the parameters without
    /// what is a launch's own.
    pub(super) fn foreign(&self) -> (Arc<Core>, Arc<Memory>, ForeignRawParams) {
        let Inner { core, memory, .. } = &*self.inner;
        (core.clone(), memory.clone(), memory.foreign_params(P::WAITS))
    }

    /// Notes that kernels may write that call in this launch's name, a context's.
    pub(super) fn note_context(&self, launch: LaunchId) {
        let mut contexts = self.inner.contexts.lock();
        if !contexts.contains(&launch) {
            contexts.push(launch);
        }
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
        packer.keep_memory(self.inner.memory.clone());
        Ok(self.inner.memory.params())
    }
}
