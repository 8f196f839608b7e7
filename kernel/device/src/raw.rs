//! Raw channels: streams of records or bytes to the host, out of kernels that run on.

use crate::group::Group;
use crate::kernel::{KernelArg, Plain};
use crate::lane::Lane;
use crate::packet;
use crate::target::{self, Here, Mask};
use crate::waits::HostWait;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use hostcall_abi::raw::{RawParams, RawWriter};
use hostcall_abi::schema;
use hostcall_channel::Words;
use hostcall_channel::raw::{AtEnd, Opening, Writer};

/// What a wave does that finds no free page: [`Block`], [`DropNewest`] or [`OverwriteOldest`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what a wave does that finds no free page",
    label = "no policy of a raw channel",
    note = "write `RawStream<'_, T, Block>`, `DropNewest` or `OverwriteOldest`"
)]
pub trait Policy: sealed::Sealed + 'static {
    /// Whether a wave waits for a page.
    #[doc(hidden)]
    const WAITS: bool;
    /// Whether the host gives out pages again that nobody has read.
    #[doc(hidden)]
    const OVERWRITES: bool;
    /// Whether these are trace points, whose pages waves have one after the other.
    #[doc(hidden)]
    const OF_POINTS: bool = false;
    /// The policy's name.
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

/// A wave waits until a reader has given a page back: nothing is lost while somebody reads.
#[derive(Clone, Copy, Debug)]
pub struct Block;

/// A wave drops what finds no page, and counts it.
#[derive(Clone, Copy, Debug)]
pub struct DropNewest;

/// The host gives the oldest page that nobody has read to the wave, which waits for that, but for no reader. Who reads once
/// nothing runs on the device gets the newest pages without gaps: none is overwritten then before the next launch.
#[derive(Clone, Copy, Debug)]
pub struct OverwriteOldest;

macro_rules! policies {
    ($($policy:ident $waits:literal $overwrites:literal $name:literal;)*) => {$(
        impl sealed::Sealed for $policy {}
        impl Policy for $policy {
            const WAITS: bool = $waits;
            const OVERWRITES: bool = $overwrites;
            const NAME: &'static str = $name;
        }
    )*};
}

/// How trace points write: as [`DropNewest`], to pages that stay open when the wave ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPoints;

impl sealed::Sealed for OfPoints {}

impl Policy for OfPoints {
    const WAITS: bool = false;
    const OVERWRITES: bool = false;
    const OF_POINTS: bool = true;
    const NAME: &'static str = "trace points";
}

policies! {
    Block true false "block";
    DropNewest false false "drop newest";
    OverwriteOldest true true "overwrite oldest";
}

/// A host's `RawChannel<T, P>`, as a kernel gets it for a parameter: where lanes write values of type `T`, or bytes if that is
/// `u8`. `P` says what happens when no page is free.
///
/// A wave has a page for itself, writes side by side what its lanes write together, and tells the host of it when the page is
/// full, when some 100 µs have passed since it last did, in [`RawStream::flush`], and when it ends. On the software device it
/// does so with each write. Values that a wave writes reach the host in that order.
///
/// A lane whose launch is cancelled while it waits for a page ends there.
///
/// A wave needs a page as long as it runs: with fewer pages than waves that write, waves wait for each other (or drop).
///
/// ```
/// use hostcall_device::raw::{Block, RawStream};
/// use hostcall_device::{Lane, Plain, kernel};
///
/// #[derive(Clone, Copy, Plain)]
/// #[repr(C)]
/// pub struct Access {
///     pub address: u64,
///     pub lane: u64,
/// }
///
/// #[kernel]
/// fn touch(lane: &Lane, data: &[u64], accesses: RawStream<'_, Access, Block>) {
///     let i = lane.global_id() * 7 % data.len();
///     accesses.write(lane, &Access { address: &raw const data[i] as u64, lane: lane.global_id() as u64 });
/// }
/// ```
pub struct RawStream<'launch, T, P> {
    params: RawParams,
    // The host keeps the channel for the launch.
    launch: PhantomData<&'launch ()>,
    types: PhantomData<fn(T) -> P>,
}

impl<T, P> Clone for RawStream<'_, T, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, P> Copy for RawStream<'_, T, P> {}

// SAFETY: the parameters are `repr(C)` of `u64`s and `u32`s, without padding.
unsafe impl<T: Plain, P: Policy> KernelArg for RawStream<'_, T, P> {
    type Raw = RawParams;
    type Value<'launch> = RawStream<'launch, T, P>;
    const SCHEMA: u64 =
        schema::add(schema::add_hash(schema::of("raw stream"), T::SCHEMA), P::NAME.as_bytes());
    #[inline(always)]
    unsafe fn from_raw<'launch>(raw: RawParams) -> Self::Value<'launch> {
        RawStream { params: raw, launch: PhantomData, types: PhantomData }
    }
    fn write(raw: RawParams, bytes: &mut [u8]) {
        // SAFETY: as above.
        unsafe { crate::kernel::write_whole(&raw, bytes) }
    }
}

/// Polls between looks at whether anybody reads, and whether the launch was cancelled.
const POLLS_A_LOOK: u32 = 64;

/// A wave tells the host of half-filled pages at most once in two to the power of so many periods of the post bell: it waits
/// then until what it has written is on its way, which the next page would have it do soon enough.
const PERIODS_LOG2: u32 = 4;

fn period() -> Option<u32> {
    target::bell_period().map(|period| period >> PERIODS_LOG2)
}

/// The same, where the device's clock shows `now_ns`.
#[inline(always)]
fn period_at(now_ns: u64) -> Option<u32> {
    target::bell_period_at(now_ns).map(|period| period >> PERIODS_LOG2)
}

/// Writes one record of `bytes` bytes to the page that the wave's record knows, for a wave whose lanes have all come here, if it has
/// room, there is nothing else to do, and all lanes are `ready`. The first lane stores it: `store(words, at)`, from word `at` on.
/// Returns whether it did. Every lane looks for itself, so that none waits for another one's look.
#[inline(always)]
pub(crate) fn append_to_lent_page(
    here: Here,
    wave: Mask,
    bytes: u32,
    now_ns: u64,
    ready: bool,
    store: impl FnOnce(Words<'_>, u32),
) -> bool {
    let record = here.record();
    // SAFETY: RAW-STATE: without a slot nobody makes anything of it; else the wave holds it, and a whole wave excludes any other
    // part. The first lane writes once every lane has looked.
    let room = unsafe { record.open_page().room(bytes, period_at(now_ns)) };
    let is_ready = ready & room.is_there & record.slot().is_some();
    let are_ready = if wave.is_power_of_two() { is_ready } else { here.all(wave, is_ready) };
    if !are_ready {
        return false;
    }
    if here.lane_index() == 0 {
        // SAFETY: as above; the host keeps the channel of trace points while a launch runs.
        let (words, at) = unsafe { record.open_page().take(room, bytes) };
        store(words, at);
    }
    here.sync(wave);
    true
}

/// Places in a page that a leader took, as one word for its group: the first word, how many, and whether the host is to be told.
#[derive(Clone, Copy)]
struct Taken(u64);

impl Taken {
    const NONE: Self = Self(0);
    /// None, and the launch is over.
    const OVER: Self = Self(1);

    #[inline(always)]
    fn new(at: u32, count: u32, is_due: bool) -> Self {
        Self(u64::from(at) << 32 | u64::from(count) << 1 | u64::from(is_due))
    }

    #[inline(always)]
    fn at(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    fn count(self) -> u32 {
        (self.0 as u32) >> 1
    }

    #[inline(always)]
    fn is_due(self) -> bool {
        self.0 & 1 != 0
    }
}

impl<T, P: Policy> RawStream<'_, T, P> {
    /// Whether the wave's record has the page between two uses. Where lanes do not run in step, no way of theirs looks there.
    const LENDS_PAGE: bool = P::OF_POINTS && target::IN_STEP;

    /// The stream into a channel of the host's.
    ///
    /// # Safety
    /// The parameters are those of a raw channel with a state for each home slot, which the host keeps for `'launch`.
    #[inline(always)]
    pub(crate) unsafe fn of_params(params: RawParams) -> Self {
        Self { params, launch: PhantomData, types: PhantomData }
    }

    /// The writer of the calling lane's wave, which has a slot.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    unsafe fn writer(&self, slot: u32) -> Writer<'static> {
        // SAFETY: the host gave the parameters of a channel that it keeps until the launch has ended, with a state for each
        // home slot; the rest is the caller's promise.
        unsafe { Writer::of_slot(&self.params, slot) }
    }

    /// Writes `count` records of `bytes` bytes each, a multiple of 8. `store(records, at)` is called with ranges of them that
    /// lie side by side from word `at` on, each time by all lanes of the group. Returns whether all were kept. Ends the lanes
    /// if their launch ends while they wait.
    #[inline(always)]
    pub(crate) fn append(
        &self,
        group: Group,
        count: u32,
        bytes: u32,
        mut store: impl FnMut(Words<'_>, core::ops::Range<u32>, u32),
    ) -> bool {
        let is_leader = group.is_leader();
        let (mut done, mut is_over) = (0, false);
        // The leader's slot; the others use the channel's memory alone.
        let slot = if is_leader { self.enter(group) } else { None };
        // SAFETY: RAW-STATE: only the leader, which is in, uses the state; others take the channel's memory from it.
        let writer = unsafe { self.writer(slot.unwrap_or(0)) };
        if Self::LENDS_PAGE && slot.is_some() {
            // SAFETY: RAW-STATE: the leader is in.
            unsafe { group.here.record().open_page().give_back() };
        }
        while done < count {
            let taken = match slot {
                Some(slot) => self.take(writer, group, slot, bytes, count - done),
                // Of the leader: no slot was free until the launch ended. The others' does not matter.
                None => Taken::OVER,
            };
            let taken = Taken(group.of_leader(taken.0));
            // A leader whose record panicked has ended, and what a lane gets of it is anything.
            let end = u64::from(taken.at()) + u64::from(taken.count()) * u64::from(bytes / 8);
            if end > self.params.layout.data_words().into() {
                is_over = true;
                break;
            }
            if taken.count() == 0 {
                is_over = taken.is_due();
                break;
            }
            store(writer.data(), done..done + taken.count(), taken.at());
            done += taken.count();
            // What was stored is there before anybody acts on the state again.
            group.sync();
            if taken.is_due() {
                if is_leader {
                    // SAFETY: RAW-STATE: this lane is in for its group, whose lanes have met it since they stored.
                    unsafe { writer.publish(period()) };
                }
                // With the last records, the lanes meet below.
                if done < count {
                    group.sync();
                }
            }
        }
        if is_leader && slot.is_some() {
            if !group.is_whole() {
                writer.unlock();
            } else if Self::LENDS_PAGE {
                // SAFETY: RAW-STATE: the leader acts for the whole wave, and has given back what the record had.
                unsafe { writer.lend(group.here.record().open_page()) };
            }
        }
        // So that the lanes go on together: apart, each part would be a group of its own the next time.
        group.sync();
        if is_over {
            target::exit_lane();
        }
        done == count
    }

    /// Takes the wave's state for the leader's group. `None` when the launch ended before there was a slot.
    #[inline(always)]
    fn enter(&self, group: Group) -> Option<u32> {
        let slot = group.here.record().slot();
        if let Some(slot) = slot
            && group.is_whole()
        {
            // SAFETY: RAW-STATE: the wave holds the slot, and a whole wave excludes any other part.
            let writer = unsafe { self.writer(slot) };
            // SAFETY: as above.
            if unsafe { writer.has_begun(group.here.params().launch.to_bits()) } {
                return Some(slot);
            }
        }
        self.enter_slowly(group)
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self, group: Group) -> Option<u32> {
        let here = group.here;
        let slot = packet::claim(here)?;
        // SAFETY: RAW-STATE: the wave holds the slot; what is done before the lock is taken is only taking it.
        let writer = unsafe { self.writer(slot) };
        let launch = here.params().launch.to_bits();
        if !group.is_whole() && !writer.try_lock(launch) {
            let (mut has_lock, mut polls) = (false, 0u32);
            here.wait_with_pauses(|| {
                has_lock = writer.try_lock(launch);
                polls = polls.wrapping_add(1);
                // A part that was ended may have kept it.
                has_lock || polls.is_multiple_of(POLLS_A_LOOK) && packet::is_over(here)
            });
            if !has_lock {
                return None;
            }
        }
        // SAFETY: RAW-STATE: as above, with the lock.
        unsafe {
            if !writer.has_begun(launch) {
                let at_end = if P::OF_POINTS { AtEnd::LeavesOpen } else { AtEnd::Closes };
                writer.begin(launch, packet::current(here), at_end);
            }
        }
        Some(slot)
    }

    /// Takes places for the leader's group. Of those that find no page, counts what is dropped.
    #[inline(always)]
    fn take(&self, writer: Writer<'static>, group: Group, slot: u32, bytes: u32, count: u32) -> Taken {
        // SAFETY: RAW-STATE: the leader is in.
        match unsafe { writer.take(bytes, count) } {
            // SAFETY: as above.
            Some((at, count)) => Taken::new(at, count, unsafe { writer.is_due(period()) }),
            None => self.take_of_next(writer, group, slot, bytes, count),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_of_next(
        &self,
        writer: Writer<'static>,
        group: Group,
        slot: u32,
        bytes: u32,
        count: u32,
    ) -> Taken {
        let here = group.here;
        let of_wave = || RawWriter {
            launch: here.params().launch,
            slot,
            workgroup: here.workgroup_index(),
            wave: here.wave_in_workgroup(),
        };
        let writer_of_page =
            if P::OF_POINTS { RawWriter { slot, ..RawWriter::default() } } else { of_wave() };
        let opening = Opening { writer: writer_of_page, now_ns: here.clock_ns() };
        // SAFETY: RAW-STATE: the leader is in, here and below; the lanes that wrote have met it since.
        unsafe { writer.close(period()) };
        let is_due = || here.look_clock_ns().is_none_or(|now_ns| writer.is_look_due(now_ns));
        // SAFETY: as above.
        let looks = if P::WAITS { is_due() } else { unsafe { writer.may_look() } };
        // SAFETY: as above.
        let mut is_open = unsafe { writer.open(opening, looks) };
        let mut is_over = false;
        if !is_open && P::WAITS && !writer.is_closed(looks) && !here.unwinding() {
            let (mut polls, mut wait) = (0u32, HostWait::for_page(here, self.params.ring, group.count));
            // On the CPU the executor calls this while other lanes run: it asks nothing of its own lane.
            here.wait_with_pauses(|| {
                let looks = is_due();
                // SAFETY: as above; no other lane has the state while this one waits.
                is_open = unsafe { writer.open(opening, looks) };
                polls = polls.wrapping_add(1);
                is_over = polls.is_multiple_of(POLLS_A_LOOK) && packet::is_over(here);
                wait.poll(here);
                is_open || is_over || writer.is_closed(looks)
            });
            wait.end(here);
        }
        // SAFETY: as above.
        unsafe {
            if is_open && let Some((at, count)) = writer.take(bytes, count) {
                return Taken::new(at, count, writer.is_due(period()));
            }
            writer.count_dropped(count);
        }
        if is_over { Taken::OVER } else { Taken::NONE }
    }

    /// Tells the host at once of what the lanes that come here together have written.
    #[track_caller]
    pub fn flush(&self, lane: &Lane) {
        let group = lane.group();
        group.sync();
        if group.is_leader()
            && group.here.record().slot().is_some()
            && let Some(slot) = self.enter(group)
        {
            // SAFETY: RAW-STATE: the leader is in; the lanes have met it since they wrote.
            let writer = unsafe { self.writer(slot) };
            // SAFETY: as above.
            unsafe { writer.publish(period()) };
            if !group.is_whole() {
                writer.unlock();
            }
        }
        group.sync();
    }
}

impl<T: Plain + Copy, P: Policy> RawStream<'_, T, P> {
    const RECORD_BYTES: u32 = {
        let bytes = size_of::<T>();
        assert!(
            bytes > 0 && bytes.is_multiple_of(8),
            "a record has a multiple of 8 bytes: add a field that fills it up"
        );
        assert!(bytes <= hostcall_abi::raw::LEAST_RAW_PAGE_BYTES as usize, "a record has 128 bytes at most");
        bytes as u32
    };

    /// Writes one record of each lane that comes here, in the order of the lanes. Returns whether the wave's records were all
    /// kept; those that were not are counted.
    ///
    /// Lanes that are together share a page and lie side by side in it; records of 8 or 16 bytes travel as whole lines.
    #[track_caller]
    #[inline]
    pub fn write(&self, lane: &Lane, record: &T) -> bool {
        let group = lane.group();
        self.append(group, group.count, Self::RECORD_BYTES, |words, records, at| {
            if records.contains(&group.rank) {
                // SAFETY: RAW-PAGE: the lane's place of those that the group was given.
                unsafe { store(words, at + (group.rank - records.start) * (Self::RECORD_BYTES / 8), record) };
            }
        })
    }

    /// Writes `count` records, of which the lanes that come here make one after the other: the first lane of them the first,
    /// and so on in turns. `count` is that of the first lane. Returns whether all were kept. Parts of a wave that have come apart
    /// write `count` records each.
    ///
    /// This is what fills pages fastest: one look at the page for as many records as it has room. `record` runs while the wave
    /// has the page for it: it computes, and neither writes to the same channel nor waits for other lanes.
    #[track_caller]
    #[inline]
    pub fn write_all(&self, lane: &Lane, count: u32, mut record: impl FnMut(u32) -> T) -> bool {
        let group = lane.group();
        let count = group.of_leader(count.into()) as u32;
        self.append(group, count, Self::RECORD_BYTES, |words, records, at| {
            // The lane's first record of these.
            let turn = (group.rank + group.count - records.start % group.count) % group.count;
            let mut i = records.start + turn;
            while i < records.end {
                let record = record(i);
                // SAFETY: RAW-PAGE: one of the places that the group was given, which no other lane takes.
                unsafe { store(words, at + (i - records.start) * (Self::RECORD_BYTES / 8), &record) };
                i += group.count;
            }
        })
    }
}

impl<P: Policy> RawStream<'_, u8, P> {
    /// Writes the bytes of each lane that comes here, one lane's after the other's, each filled up with zeros to a multiple of
    /// 8. Returns whether all were kept. A lane's bytes may go on in the wave's next page.
    ///
    /// # Panics
    /// When the lanes together have 8 GiB or more.
    #[track_caller]
    pub fn write_bytes(&self, lane: &Lane, bytes: &[u8]) -> bool {
        let group = lane.group();
        let own_words = bytes.len().div_ceil(8) as u64;
        let (mut first, mut all) = (0, 0);
        let mut lanes = target::bits(group.mask);
        if group.count == 1 {
            all = own_words;
            lanes = 0;
        }
        while lanes != 0 {
            let words = group.here.broadcast(group.mask, own_words, lanes.trailing_zeros());
            if lanes.trailing_zeros() < group.here.lane_index() {
                first += words;
            }
            all += words;
            lanes &= lanes - 1;
        }
        assert!(all < 1 << 30, "lanes write less than 8 GiB at a time");
        let (first, last) = (first as u32, (first + own_words) as u32);
        self.append(group, all as u32, 8, |words, places, at| {
            let (from, to) = (first.max(places.start), last.min(places.end));
            if from < to {
                let end = (8 * (to - first) as usize).min(bytes.len());
                let bytes = &bytes[8 * (from - first) as usize..end];
                // SAFETY: RAW-PAGE: of the words from `at` on, which the group was given, these are this lane's.
                unsafe { words.put_bytes(at + (from - places.start), bytes) };
            }
        })
    }
}

/// Stores a record from word `at` on.
///
/// # Safety
/// RAW-PAGE: the writer gave the caller the record's words from `at` on.
#[inline(always)]
unsafe fn store<T: Plain + Copy>(words: Words<'_>, at: u32, record: &T) {
    let from = core::ptr::from_ref(record).cast::<MaybeUninit<u64>>();
    // SAFETY: the record has so many whole words, all initialised since it is `Plain`; they need not be aligned.
    let word = |i: usize| unsafe { from.add(i).read_unaligned().assume_init() };
    let count = const { size_of::<T>() / 8 };
    if const { size_of::<T>().is_multiple_of(16) } {
        // Pages begin lines, and all records of a page have this size, so that pairs lie at even words.
        for i in 0..count / 2 {
            // SAFETY: the caller's promise.
            unsafe { words.put_pair(at + 2 * i as u32, [word(2 * i), word(2 * i + 1)]) };
        }
    } else {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { words.put_word(at + i as u32, word(i)) };
        }
    }
}
