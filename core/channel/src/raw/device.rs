//! A wave's side of a raw channel.

use crate::device::{LOOK_PERIOD_NS, Slot};
use crate::primitive::{
    AtomicU32, AtomicU64, Ordering, Owned, acquire_in_wave, add_on_device, cas_on_device, fence,
    fence_on_device, spin, store_in_wave,
};
use crate::region::Words;
#[cfg(not(loom))]
use hostcall_abi::raw::RawParams;
use hostcall_abi::raw::{KnownPages, Place, RAW_GIVEN_WORD, RawLayout, RawWriter, free_page, header, opened};

/// What a wave remembers of a raw channel: [`hostcall_abi::raw::RawStateWords`], field for field.
#[repr(C, align(64))]
pub struct RawState {
    launch: Owned<u32>,
    page: Owned<u32>,
    published: Owned<u32>,
    period: Owned<u32>,
    looks_left_out: Owned<u32>,
    lock: AtomicU32,
    linked: Owned<u32>,
    reserved: u32,
    place: Owned<u64>,
    commit: Owned<u64>,
    dropped: Owned<u64>,
    next: Owned<u64>,
}

/// How waves share the free pages. The first two fields are those of [`hostcall_abi::raw::RawRingWords`].
///
/// Whoever takes a free page of `known` that was there has the right to one position, which it takes from `head`. So any
/// number of waves take pages at the same time, and only one that finds none looks at the host's word, over the link.
#[repr(C, align(64))]
pub struct RawRing {
    head: AtomicU64,
    known: AtomicU64,
    /// From when on, by the device's clock, a wave that waits for a page may look at the host's words, or [`CLOSED`]. The
    /// waves' own.
    look_from_ns: AtomicU64,
}

/// A wave saw that nobody reads the channel any more: nobody needs to look again.
const CLOSED: u64 = u64::MAX;

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    use hostcall_abi::raw::{RAW_RING_BYTES, RAW_STATE_BYTES, RawRingWords, RawStateWords};
    assert!(size_of::<RawRing>() == RAW_RING_BYTES);
    assert!(offset_of!(RawRing, head) == offset_of!(RawRingWords, head));
    assert!(offset_of!(RawRing, known) == offset_of!(RawRingWords, known));
    assert!(size_of::<RawState>() == RAW_STATE_BYTES);
    assert!(offset_of!(RawState, lock) == offset_of!(RawStateWords, lock));
    assert!(offset_of!(RawState, place) == offset_of!(RawStateWords, place));
    assert!(offset_of!(RawState, dropped) == offset_of!(RawStateWords, dropped));
    assert!(offset_of!(RawState, next) == offset_of!(RawStateWords, next));
};

#[cfg(test)]
impl RawRing {
    pub(crate) fn new() -> Self {
        Self::after(0)
    }

    /// After so many pages were given and taken.
    pub(crate) fn after(given: u64) -> Self {
        let known = KnownPages { free: 0, seen: given as u32 }.to_word();
        Self { head: AtomicU64::new(given), known: AtomicU64::new(known), look_from_ns: AtomicU64::new(0) }
    }

    #[cfg(not(loom))]
    pub(crate) fn words(&self) -> hostcall_abi::raw::RawRingWords {
        let [head, known] = [&self.head, &self.known].map(|word| word.load(Ordering::Relaxed));
        hostcall_abi::raw::RawRingWords { head, known }
    }

    /// Leaves the ring as a wave does that is killed after it took a free page.
    #[cfg(not(loom))]
    pub(crate) fn lose_one(&self) {
        assert!(self.take_free());
    }

    /// Leaves the ring as a wave does that took a position: it is killed then, or slow to go on.
    #[cfg(not(loom))]
    pub(crate) fn take_page(&self) {
        self.lose_one();
        add_on_device(&self.head, 1);
    }
}

impl RawRing {
    /// Takes the right to a position, if waves know of a free page.
    #[inline]
    fn take_free(&self) -> bool {
        let is_there = |word: u64| KnownPages::of_word(word).free > 0;
        if !is_there(self.known.load(Ordering::Relaxed)) {
            return false;
        }
        let had_one = is_there(add_on_device(&self.known, KnownPages::ONE.wrapping_neg()));
        if !had_one {
            add_on_device(&self.known, KnownPages::ONE);
        }
        had_one
    }

    /// Tells waves how many pages the host has given, ever, and takes the right to a position if there is one: of the new
    /// pages, or of those that another wave was quicker to tell of.
    #[inline]
    fn tell(&self, given: u64) -> bool {
        let mut word = self.known.load(Ordering::Relaxed);
        loop {
            let known = KnownPages::of_word(word);
            let new = known.new_pages(given);
            if new == 0 {
                return self.take_free();
            }
            // A wave that was killed may have left `free` too small by one, which these pay for.
            let free = known.free.wrapping_add_unsigned(new);
            let takes = free > 0;
            let told = KnownPages { free: free.wrapping_sub(takes.into()), seen: given as u32 };
            match cas_on_device(&self.known, word, told.to_word()) {
                Ok(_) => return takes,
                Err(now) => word = now,
            }
        }
    }
}

impl RawState {
    /// Says how much of the open page is written.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    pub(super) unsafe fn set_place(&self, place: Place) {
        // SAFETY: the caller's promise.
        unsafe { self.place.set(place.0) };
    }

    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            launch: Owned::new(0),
            page: Owned::new(0),
            published: Owned::new(0),
            period: Owned::new(0),
            looks_left_out: Owned::new(0),
            lock: AtomicU32::new(0),
            linked: Owned::new(0),
            reserved: 0,
            place: Owned::new(0),
            commit: Owned::new(0),
            dropped: Owned::new(0),
            next: Owned::new(0),
        }
    }
}

/// What a wave's end does with the page that it has open: the value of a state's `linked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It closes it.
    Closes = 1,
    /// It tells the host how far it is written. The slot's next wave goes on there, of whichever launch it is.
    LeavesOpen = 2,
}

/// What a page's header says of its opening.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Who opens it.
    pub writer: RawWriter,
    /// The device's clock.
    pub now_ns: u64,
}

/// Looks that are left out after one that found no free page: each is a read over the link.
const LOOKS_LEFT_OUT: u32 = 15;

/// Polls of an entry in the device's copy of the ring before one of the host's.
const POLLS_A_COPY: u32 = 64;

/// A wave's way into a raw channel, through the state of its home slot.
#[derive(Clone, Copy)]
pub struct Writer<'m> {
    words: Words<'m>,
    data: Words<'m>,
    free: Words<'m>,
    layout: RawLayout,
    ring: &'m RawRing,
    state: &'m RawState,
}

impl<'m> Writer<'m> {
    /// The writer of the wave that holds this home slot.
    ///
    /// # Safety
    /// RAW-STATE; the parameters are those that the host gave for a channel with as many states as home slots, whose memory
    /// is mapped for `'m`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn of_slot(params: &RawParams, slot: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                words: Words::from_address(params.shared, params.layout.words()),
                data: Words::from_address(params.data, params.layout.data_words()),
                free: Words::from_address(params.free, params.layout.pages()),
                layout: params.layout,
                ring: &*(params.ring as usize as *const RawRing),
                state: &*(params.states as usize as *const RawState).add(slot as usize),
            }
        }
    }

    /// The writer of a state, with the control words, the pages that waves write, and the ring of free pages that they read.
    #[cfg(test)]
    pub(crate) fn of_state(
        [words, data, free]: [Words<'m>; 3],
        layout: RawLayout,
        ring: &'m RawRing,
        state: &'m RawState,
    ) -> Self {
        Self { words, data, free, layout, ring, state }
    }

    /// The pages that waves write, in which [`Writer::take`] gives places.
    #[inline(always)]
    pub fn data(&self) -> Words<'m> {
        self.data
    }

    /// Takes the state for a part of a diverged wave of this launch, if no other part has it. A wave of another launch had the slot
    /// before: a part of it that was killed may have kept the state.
    #[inline]
    pub fn try_lock(&self, launch: u32) -> bool {
        match acquire_in_wave(&self.state.lock, 0, launch) {
            Ok(_) => true,
            Err(holder) => holder != launch && acquire_in_wave(&self.state.lock, holder, launch).is_ok(),
        }
    }

    /// Gives the state to other parts.
    #[inline]
    pub fn unlock(&self) {
        store_in_wave(&self.state.lock, 0);
    }

    /// Whether the wave has used the state since it claimed its slot.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    pub unsafe fn has_begun(&self, launch: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.state.linked.get() != 0 && self.state.launch.get() == launch }
    }

    /// Makes the state that of a wave of this launch, and has the wave's end do this with the page that it will have open. A page that
    /// is closed at the end, but the slot's last wave has left open, stays the host's to close: that wave's launch has ended, so that
    /// the host may have done so. All waves of a channel end in the same way.
    ///
    /// # Safety
    /// RAW-STATE, and `slot` is the one that the wave holds.
    pub unsafe fn begin(&self, launch: u32, slot: Slot<'_>, at_end: AtEnd) {
        // What the state's last wave wrote comes with the slot, whose claim alone does not acquire it on NVIDIA. What is looked at
        // before, whether the state is the wave's, its multiprocessor has never seen so of another wave that had ended.
        fence_on_device(Ordering::Acquire);
        // SAFETY: the caller's promise.
        unsafe {
            self.begin_unlinked(launch, at_end);
            #[cfg(not(loom))]
            slot.link_raw(self.state_address(), &self.state.next);
            #[cfg(loom)]
            let _ = slot;
        }
    }

    /// # Safety
    /// RAW-STATE.
    pub(crate) unsafe fn begin_unlinked(&self, launch: u32, at_end: AtEnd) {
        let Self { words, layout, state, .. } = self;
        // SAFETY: the caller's promise.
        unsafe {
            if at_end == AtEnd::Closes
                && let Some(left) = state.page.get().checked_sub(1)
            {
                words.word(layout.header_at(left) + header::LEFT).store(state.place.get(), Ordering::Relaxed);
                state.page.set(0);
            }
            state.launch.set(launch);
            state.looks_left_out.set(0);
            state.linked.set(at_end as u32);
        }
    }

    /// Takes places for some of `count` records of `bytes` bytes, a multiple of 8, in the open page. Returns the first word
    /// and how many; `None` when there is no open page or it has no room.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    pub unsafe fn take(&self, bytes: u32, count: u32) -> Option<(u32, u32)> {
        // SAFETY: the caller's promise.
        unsafe {
            let page = self.state.page.get().checked_sub(1)?;
            let place = Place(self.state.place.get());
            let room = self.layout.page_bytes().saturating_sub(place.bytes()).checked_div(bytes)?;
            if room == 0 {
                return None;
            }
            let taken = if count < room { count } else { room };
            self.state.place.set(place.after(taken * bytes).0);
            Some((self.layout.data_at(page) + place.bytes() / 8, taken))
        }
    }

    /// Of the open page, if there is one: where its records begin, how much is written, its bytes, and in which period the host was
    /// told last.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    pub(super) unsafe fn open_page(&self) -> Option<(u64, Place, u32, u32)> {
        // SAFETY: the caller's promise.
        unsafe {
            let page = self.state.page.get().checked_sub(1)?;
            let data = core::ptr::from_ref(self.data.word(self.layout.data_at(page))) as usize as u64;
            Some((data, Place(self.state.place.get()), self.layout.page_bytes(), self.state.period.get()))
        }
    }

    /// The state's address.
    #[inline(always)]
    pub(super) fn state_address(&self) -> u64 {
        core::ptr::from_ref(self.state) as usize as u64
    }

    /// Opens a page, after [`Writer::close`]. Returns `false` when none is free: then ask again. Only who `looks` asks the
    /// host, if waves know of no free page.
    ///
    /// # Safety
    /// RAW-STATE.
    pub unsafe fn open(&self, opening: Opening, looks: bool) -> bool {
        let Self { words, free, layout, ring, state, .. } = self;
        let may_take =
            ring.take_free() || looks && ring.tell(words.word(RAW_GIVEN_WORD).load(Ordering::Relaxed));
        if !may_take {
            return false;
        }
        let position = add_on_device(&ring.head, 1);
        let mut polls = 0u32;
        let page = loop {
            // The host stored it before it said that the page may be taken; another wave may have seen that, and a copy of
            // the ring may be on its way. If that is long in coming, the host's own entry is looked at.
            polls = polls.wrapping_add(1);
            let entry = match polls % POLLS_A_COPY {
                0 => words.word(layout.free_at(position)),
                _ => free.word(layout.place_in_ring(position)),
            };
            if let Some(page) = free_page(entry.load(Ordering::Relaxed), position) {
                break page & (layout.pages() - 1);
            }
            spin();
        };
        // The host has read the page before it put it into the ring.
        fence(Ordering::Acquire);
        let RawWriter { launch, slot, workgroup, wave } = opening.writer;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let at = layout.header_at(page);
        // SAFETY: the caller's promise.
        unsafe {
            for (word, value) in [
                (header::OPENED, opened(position, launch)),
                (header::SLOT, slot.into()),
                (header::WAVE, pair(workgroup, wave)),
                (header::OPENED_NS, opening.now_ns),
                (header::DROPPED, state.dropped.get()),
            ] {
                words.word(at + word).store(value, Ordering::Relaxed);
            }
            let commit = words.word(layout.commit_at(page));
            state.commit.set(core::ptr::from_ref(commit) as usize as u64);
            state.place.set(Place::begin(position).0);
            state.published.set(0);
            state.page.set(page + 1);
        }
        true
    }

    /// Whether to look for a free page now. Of those who do not wait for one, only some do.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline]
    pub unsafe fn may_look(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let left = self.state.looks_left_out.get().saturating_sub(1);
            self.state.looks_left_out.set(left);
            left == 0
        }
    }

    /// Whether a wave that waits for a page is to look for one now. All waves together look once in 4 µs: what one finds, it
    /// tells the others of, and the link is left to what moves bytes.
    #[inline]
    pub fn is_look_due(&self, now_ns: u64) -> bool {
        let from = self.ring.look_from_ns.load(Ordering::Relaxed);
        // A clock that went back is no reason not to look.
        let is_early = now_ns < from && from - now_ns <= LOOK_PERIOD_NS;
        from != CLOSED
            && !is_early
            && cas_on_device(&self.ring.look_from_ns, from, now_ns + LOOK_PERIOD_NS).is_ok()
    }

    /// Counts records that found no page.
    ///
    /// # Safety
    /// RAW-STATE.
    pub unsafe fn count_dropped(&self, records: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            self.state.dropped.set(self.state.dropped.get() + u64::from(records));
            if self.state.looks_left_out.get() == 0 {
                // The one that counts down to 0 looks.
                self.state.looks_left_out.set(LOOKS_LEFT_OUT + 1);
            }
        }
    }

    /// Whether to tell the host of what was written since it was told last, now that the device's clock is in this period.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline(always)]
    pub unsafe fn is_due(&self, period: Option<u32>) -> bool {
        // SAFETY: the caller's promise.
        period.is_none_or(|period| unsafe { self.state.period.get() } != period)
    }

    /// Tells the host of what was written. Every lane that wrote has met the calling one since.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline]
    pub unsafe fn publish(&self, period: Option<u32>) {
        // SAFETY: the caller's promise.
        unsafe {
            let place = Place(self.state.place.get());
            if let Some(page) = self.state.page.get().checked_sub(1)
                && place.bytes() != self.state.published.get()
            {
                self.state.published.set(place.bytes());
                tell(self.words.word(self.layout.commit_at(page)), place);
            }
            if let Some(period) = period {
                self.state.period.set(period);
            }
        }
    }

    /// Closes the open page, if there is one. Every lane that wrote has met the calling one since.
    ///
    /// # Safety
    /// RAW-STATE.
    #[inline]
    pub unsafe fn close(&self, period: Option<u32>) {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(page) = self.state.page.get().checked_sub(1) else { return };
            close_page(self.state, self.words.word(self.layout.commit_at(page)));
            if let Some(period) = period {
                self.state.period.set(period);
            }
        }
    }

    /// Whether nobody reads the channel any more, by a look at the host's word if the calling wave `looks`, or as one that
    /// looked saw it.
    #[inline]
    pub fn is_closed(&self, looks: bool) -> bool {
        if !looks {
            return self.ring.look_from_ns.load(Ordering::Relaxed) == CLOSED;
        }
        let is_closed = self.words.word(0).load(Ordering::Relaxed) != 0;
        if is_closed {
            self.ring.look_from_ns.store(CLOSED, Ordering::Relaxed);
        }
        is_closed
    }
}

/// # Safety
/// RAW-STATE; the state has an open page, whose word for the host is `commit`.
unsafe fn close_page(state: &RawState, commit: &AtomicU64) {
    // SAFETY: the caller's promise.
    unsafe {
        tell(commit, Place(state.place.get()).closed());
        state.page.set(0);
    }
}

/// Tells the host, by a page's word for it, how far the page is written.
#[inline]
fn tell(commit: &AtomicU64, place: Place) {
    fence(Ordering::Release);
    commit.store(place.0, Ordering::Relaxed);
}

/// Closes the pages of the states that a wave has linked, of which this is the first one's address, or tells the host of those that
/// stay open. All of the wave's lanes have ended.
///
/// # Safety
/// RAW-STATE of each; the channels' memory is mapped.
#[cfg(not(loom))]
#[cold]
#[inline(never)]
pub(crate) unsafe fn close_all(mut address: u64) {
    while address != 0 {
        // SAFETY: the caller's promise: the wave has linked states by their addresses, and pages are closed at the address
        // that was noted when they were opened.
        unsafe {
            let state = &*(address as usize as *const RawState);
            if state.page.get() != 0 {
                let (commit, place) =
                    (&*(state.commit.get() as usize as *const AtomicU64), Place(state.place.get()));
                if state.linked.get() == AtEnd::Closes as u32 {
                    close_page(state, commit);
                } else if state.published.get() != place.bytes() {
                    state.published.set(place.bytes());
                    tell(commit, place);
                }
            }
            state.linked.set(0);
            address = state.next.get();
        }
    }
}

/// Stores of records and bytes, at places that [`Writer::take`] gave. A GPU does not check places.
impl Words<'_> {
    /// Stores a pair at an even word.
    ///
    /// # Safety
    /// RAW-PAGE: [`Writer::take`] gave the caller both words.
    #[inline(always)]
    pub unsafe fn put_pair(&self, at: u32, pair: [u64; 2]) {
        crate::primitive::store_pair(self.pair(at), pair);
    }

    /// Stores a word.
    ///
    /// # Safety
    /// RAW-PAGE: [`Writer::take`] gave the caller the word.
    #[inline(always)]
    pub unsafe fn put_word(&self, at: u32, word: u64) {
        self.word(at).store(word, Ordering::Relaxed);
    }

    /// Stores bytes, and zeros up to the next whole word.
    ///
    /// # Safety
    /// RAW-PAGE: [`Writer::take`] gave the caller all of these words.
    #[inline]
    pub unsafe fn put_bytes(&self, at: u32, bytes: &[u8]) {
        self.write_bytes(at, bytes);
    }
}
