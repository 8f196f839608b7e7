//! The wait table: a wave that has polled for a while says in memory of the host what it waits for, and the host reads it.
//! [`hostcall_abi::waits`] has the layouts.
//!
//! ```text
//!  wave                                   memory of the device      memory of the host               reader, any process's thread
//!  ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  begin: takes an entry           ◄────► holder (compare-exchange)
//!         head = 0, fence, words, fence, head  ───────────────────► entry
//!  still: now and then             ───────────────────────────────► the time                  ────► head, words, head again
//!  end:   head = 0, fence          ───────────────────────────────► entry
//!         gives the entry back     ─────► holder
//! ```
//!
//! # Invariant
//! **WAIT-ENTRY**: an entry's words are stored by whoever has its holder's word, from the compare-exchange that took it until it is
//! given back. The host gives it back where the launch is over that took it: the wave was killed, or ended while it waited. All
//! accesses are atomic, so that a device which breaks this makes a wrong report and nothing else.
//!
//! # Orderings
//! | store | load | why it is enough |
//! |---|---|---|
//! | entry's words: relaxed, behind a release fence that is behind `head = 0` (device) | relaxed, then an acquire fence and `head` again (host) | who saw a word of a later use sees another head |
//! | `head`: relaxed, behind a release fence (device) | acquire (host) | who sees the head sees the words of its use |
//! | `head = 0`, a fence, then the holder's word (device) | the compare-exchange, then a fence (device) | heads of two uses come in their order |

use crate::primitive::{AtomicU64, Ordering, add_on_device, cas_on_device, fence, fence_on_device};
use crate::region::Words;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::waits::{
    ENTRY_WORDS, Entry, HEADER_WORDS, Head, Holder, TRIES, UNTOLD_WORD, USED_WORD, at, tried,
};
#[cfg(not(loom))]
use hostcall_abi::waits::{WAIT_PARAMS_BYTES, WaitParams, table_words};

/// A wave's side of the table.
#[derive(Clone, Copy)]
pub struct Waits<'m> {
    table: Words<'m>,
    holders: &'m [AtomicU64],
    untold: &'m AtomicU64,
}

/// An entry that a lane has, or another lane that waits with it: its number, plus one, below, and the use's lap above. 0 is none, and
/// a wait that has found none may have been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldWait(pub u64);

impl ToldWait {
    /// No entry.
    pub const NONE: Self = Self(0);

    /// Bit of an entry that another lane has.
    const OF_ANOTHER: u64 = 1 << 31;

    /// No entry, of a wait that was counted since it found none: another lane's, of which there is none.
    pub const COUNTED: Self = Self(Self::OF_ANOTHER);

    /// The same for the lanes that wait with the one that has the entry.
    #[inline(always)]
    pub fn of_another(self) -> Self {
        if self == Self::NONE { self } else { Self(self.0 | Self::OF_ANOTHER) }
    }

    /// Whether another lane has the entry.
    #[inline(always)]
    pub fn is_of_another(self) -> bool {
        self.0 & Self::OF_ANOTHER != 0
    }

    #[inline(always)]
    fn of(index: u32, lap: u32) -> Self {
        Self(u64::from(lap) << 32 | u64::from(index + 1))
    }

    /// The entry's number and the use's lap, if there is an entry.
    #[inline(always)]
    fn parts(self) -> Option<(u32, u32)> {
        let entry = (self.0 & !Self::OF_ANOTHER) as u32;
        Some((entry.checked_sub(1)?, (self.0 >> 32) as u32))
    }
}

/// The word of an entry.
#[inline(always)]
const fn word_of(index: u32, word: usize) -> u32 {
    (HEADER_WORDS + index as usize * ENTRY_WORDS + word) as u32
}

impl<'m> Waits<'m> {
    /// The table whose parameters lie at `address`.
    ///
    /// # Safety
    /// WAIT-ENTRY: a host has written the parameters there, and keeps as many holders behind them and entries where they say,
    /// for `'m`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn from_address(address: u64) -> Self {
        let params = address as usize as *const WaitParams;
        // SAFETY: the caller's promise; `untold` is accessed by atomics alone, the rest never changes, and entries are a power
        // of two that is small.
        unsafe {
            let (table, entries) = ((*params).table, (*params).entries);
            let untold = &*(&raw const (*params).untold).cast::<AtomicU64>();
            let holders = (address as usize + WAIT_PARAMS_BYTES) as *const AtomicU64;
            Self {
                table: Words::from_address(table, table_words(entries) as u32),
                holders: core::slice::from_raw_parts(holders, entries as usize),
                untold,
            }
        }
    }

    /// A table of memory that is there.
    #[cfg(test)]
    pub(crate) fn of(table: &'m [AtomicU64], holders: &'m [AtomicU64], untold: &'m AtomicU64) -> Self {
        Self { table: Words::of(table), holders, untold }
    }

    /// Says that a wave of a launch waits, as `entry` has it but for its lap. `hint` spreads waves over the table. Where no
    /// entry is free nearby, the wait is counted and [`ToldWait::COUNTED`] is returned; `before` says whether it was counted already.
    pub fn begin(
        &self,
        launch: LaunchId,
        hint: u32,
        head: Head,
        entry: &Entry,
        before: ToldWait,
    ) -> ToldWait {
        let mask = self.holders.len() as u32 - 1;
        for i in 0..TRIES.min(mask + 1) {
            let index = tried(hint, i) & mask;
            let Some(word) = self.holders.get(index as usize) else { continue };
            let known = word.load(Ordering::Relaxed);
            let holder = Holder::of_word(known);
            if holder.launch != LaunchId::NONE {
                continue;
            }
            let own = holder.taken_by(launch);
            if cas_on_device(word, known, own.to_word()).is_err() {
                continue;
            }
            // Behind the head that the last holder stored.
            fence_on_device(Ordering::Acquire);
            self.write(index, Head { lap: own.lap, ..head }, entry);
            return ToldWait::of(index, own.lap);
        }
        if before != ToldWait::COUNTED {
            let untold = add_on_device(self.untold, 1) + 1;
            self.table.word(UNTOLD_WORD as u32).store(untold, Ordering::Relaxed);
        }
        ToldWait::COUNTED
    }

    fn write(&self, index: u32, head: Head, entry: &Entry) {
        let word = |at| self.table.word(word_of(index, at));
        // Of a wave that was killed there is one.
        word(at::HEAD).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        word(at::PLACE).store(entry.place, Ordering::Relaxed);
        word(at::SINCE_NS).store(entry.since_ns, Ordering::Relaxed);
        word(at::SEEN_NS).store(entry.seen_ns, Ordering::Relaxed);
        word(at::ADDRESS).store(entry.address, Ordering::Relaxed);
        word(at::SEQUENCE).store(entry.sequence, Ordering::Relaxed);
        word(at::NAME).store(entry.name[0], Ordering::Relaxed);
        word(at::NAME + 1).store(entry.name[1], Ordering::Relaxed);
        self.table.word(USED_WORD as u32).store(1, Ordering::Relaxed);
        fence(Ordering::Release);
        word(at::HEAD).store(head.to_word(), Ordering::Relaxed);
    }

    /// The entry's holder, and its number, if the wave still has it.
    fn held(&self, launch: LaunchId, told: ToldWait) -> Option<(&'m AtomicU64, Holder, u32)> {
        let (index, lap) = told.parts()?;
        let word = self.holders.get(index as usize)?;
        let own = Holder { launch, lap };
        (word.load(Ordering::Relaxed) == own.to_word()).then_some((word, own, index))
    }

    /// Whether the wave still has the entry.
    pub fn is_told(&self, launch: LaunchId, told: ToldWait) -> bool {
        self.held(launch, told).is_some()
    }

    /// Says that the wave still waits.
    pub fn still(&self, launch: LaunchId, told: ToldWait, now_ns: u64) {
        if let Some((.., index)) = self.held(launch, told) {
            self.table.word(word_of(index, at::SEEN_NS)).store(now_ns, Ordering::Relaxed);
        }
    }

    /// Says that the lane waits no more, if the entry is its own.
    pub fn end(&self, launch: LaunchId, told: ToldWait) {
        if told.is_of_another() {
            return;
        }
        if let Some((word, own, index)) = self.held(launch, told) {
            self.table.word(word_of(index, at::HEAD)).store(0, Ordering::Relaxed);
            fence_on_device(Ordering::Release);
            word.store(own.freed().to_word(), Ordering::Relaxed);
        }
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use host::WaitTable;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod host {
    use super::*;

    /// Looks at an entry that changes while it is read.
    const LOOKS: u32 = 4;

    /// The host's side of the table.
    #[derive(Clone, Copy)]
    pub struct WaitTable<'m> {
        table: Words<'m>,
        entries: u32,
    }

    impl<'m> WaitTable<'m> {
        /// A view of the table at `address`, a multiple of 64.
        ///
        /// # Safety
        /// WAIT-ENTRY: so many entries' [`table_words`] are mapped there for `'m` and accessed atomically.
        #[cfg(not(loom))]
        pub unsafe fn from_address(address: u64, entries: u32) -> Self {
            // SAFETY: the caller's promise.
            Self { table: unsafe { Words::from_address(address, table_words(entries) as u32) }, entries }
        }

        /// A table of memory that is there.
        #[cfg(test)]
        pub(crate) fn of(table: &'m [AtomicU64], entries: u32) -> Self {
            Self { table: Words::of(table), entries }
        }

        /// Whether a wave has ever taken an entry.
        pub fn is_used(&self) -> bool {
            self.table.word(USED_WORD as u32).load(Ordering::Relaxed) != 0
        }

        /// Waits that found no entry when they began to be told, as far as waves have told.
        pub fn untold(&self) -> u64 {
            self.table.word(UNTOLD_WORD as u32).load(Ordering::Relaxed)
        }

        /// The waits that waves tell of: whatever a device has written there, so that nothing of it is believed.
        pub fn told(&self) -> impl Iterator<Item = (Head, Entry)> {
            let entries = if self.is_used() { self.entries } else { 0 };
            let this = *self;
            (0..entries).filter_map(move |index| this.read(index))
        }

        pub(crate) fn read(&self, index: u32) -> Option<(Head, Entry)> {
            let word = |at| self.table.word(word_of(index, at));
            for _ in 0..LOOKS {
                let head = word(at::HEAD).load(Ordering::Acquire);
                let read = Head::of_word(head)?;
                let load = |at| word(at).load(Ordering::Relaxed);
                let entry = Entry {
                    head,
                    place: load(at::PLACE),
                    since_ns: load(at::SINCE_NS),
                    seen_ns: load(at::SEEN_NS),
                    address: load(at::ADDRESS),
                    sequence: load(at::SEQUENCE),
                    name: [load(at::NAME), load(at::NAME + 1)],
                };
                fence(Ordering::Acquire);
                if load(at::HEAD) == head {
                    return Some((read, entry));
                }
            }
            None
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use hostcall_abi::waits::{NO_PEER, name_words};
    use std::vec::Vec;

    const LAUNCH: LaunchId = LaunchId::new(3, 1);

    struct Memory {
        table: Vec<AtomicU64>,
        holders: Vec<AtomicU64>,
        untold: AtomicU64,
    }

    impl Memory {
        fn new(entries: u32) -> Self {
            let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            let (table, holders) = (zeros(table_words(entries)), zeros(entries as usize));
            Self { table, holders, untold: AtomicU64::new(0) }
        }

        fn wave(&self) -> Waits<'_> {
            Waits::of(&self.table, &self.holders, &self.untold)
        }

        fn host(&self) -> WaitTable<'_> {
            WaitTable::of(&self.table, self.holders.len() as u32)
        }
    }

    fn waits_for(sequence: u64) -> (Head, Entry) {
        let head = Head { peer: NO_PEER, lanes: 1, wave: 0, kind: 1, lap: 0 };
        (head, Entry { sequence, since_ns: 5, seen_ns: 5, name: name_words("signal"), ..Entry::default() })
    }

    #[test]
    fn a_wait_is_told_until_it_ends() {
        let memory = Memory::new(8);
        assert!(!memory.host().is_used());
        let (head, entry) = waits_for(7);
        let told = memory.wave().begin(LAUNCH, 3, head, &entry, ToldWait::NONE);
        memory.wave().still(LAUNCH, told, 9);
        let read: Vec<_> = memory.host().told().collect();
        assert_eq!(read.len(), 1);
        let (read, entry) = read[0];
        assert_eq!(read, Head { lap: 1, ..head });
        assert_eq!((entry.sequence, entry.since_ns, entry.seen_ns), (7, 5, 9));
        memory.wave().end(LAUNCH, told);
        assert_eq!(memory.host().told().count(), 0);
        // Nobody has it any more: the second end is nobody's.
        let again = memory.wave().begin(LAUNCH, 3, head, &entry, ToldWait::NONE);
        memory.wave().end(LAUNCH, told);
        assert_eq!(memory.host().told().count(), 1);
        memory.wave().end(LAUNCH, again);
    }

    #[test]
    fn waits_that_find_no_entry_are_counted() {
        for entries in [1, 8, 64] {
            let memory = Memory::new(entries);
            let (head, entry) = waits_for(1);
            let begin = |hint, before| memory.wave().begin(LAUNCH, hint, head, &entry, before);
            let waits: Vec<_> = (0..100).map(|hint| begin(hint, ToldWait::NONE)).collect();
            let is_counted = |wait: &ToldWait| *wait == ToldWait::COUNTED;
            let (counted, told): (Vec<_>, Vec<_>) = waits.into_iter().partition(is_counted);
            assert_eq!(told.len(), entries as usize);
            assert_eq!(memory.host().told().count(), entries as usize);
            // Each is counted once, however often it looks for an entry.
            for _ in 0..3 {
                assert!(counted.iter().all(|wait| is_counted(&begin(7, *wait))));
            }
            assert_eq!(memory.host().untold(), 100 - u64::from(entries));
            // One that has none gives none back.
            counted.iter().for_each(|wait| memory.wave().end(LAUNCH, *wait));
            counted.iter().for_each(|wait| memory.wave().end(LAUNCH, wait.of_another()));
            assert!(!memory.wave().is_told(LAUNCH, ToldWait::COUNTED));
            assert_eq!(memory.host().told().count(), entries as usize);
            // It takes one once there is room.
            memory.wave().end(LAUNCH, told[0]);
            let late = (0..100).map(|hint| begin(hint, ToldWait::COUNTED)).find(|wait| !is_counted(wait));
            memory.wave().end(LAUNCH, late.expect("there is room"));
            told.into_iter().for_each(|told| memory.wave().end(LAUNCH, told));
            assert_eq!(memory.host().told().count(), 0);
        }
    }

    /// Any words that a device writes are read without harm.
    #[test]
    fn anything_may_lie_there() {
        let memory = Memory::new(4);
        for seed in 0..64u64 {
            for (at, word) in memory.table.iter().enumerate() {
                word.store((seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
            }
            assert!(memory.host().told().count() <= 4);
        }
    }
}
