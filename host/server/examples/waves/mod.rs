//! Threads that play the waves of a GPU on hostcall's own channel.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::SLOT_GROUP;
use hostcall_abi::word::{Doorbell, Kind, LAP, Owner, PostHead, RequestTag, with_lap};
use hostcall_channel::SharedMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A call of method 300 with neither arguments nor result, by one lane.
pub const NULL: Doorbell = Doorbell {
    service: 300,
    lanes: 1,
    first_lane: 0,
    argument_words: 0,
    result_words: 0,
    check: 0,
    kind: Kind::Words,
    after_posts: false,
    lines: false,
};

/// Waves that all do the same at the same time.
pub struct Waves {
    memory: Arc<SharedMemory>,
    slots: Vec<u32>,
    /// Calls that each wave has made, those of them that its first lane has made alone, and ring entries that each has written.
    calls: u64,
    alone: u64,
    entries: u32,
}

impl Waves {
    /// So many waves, the same number on each of 132 multiprocessors, each of which counts its waves by itself.
    pub fn new(memory: Arc<SharedMemory>, count: u32) -> Self {
        let slots = (0..count).map(|i| i % 132 * SLOT_GROUP + i / 132).collect();
        Self { memory, slots, calls: 0, alone: 0, entries: 0 }
    }

    fn word(&self, at: u32) -> &AtomicU64 {
        assert!((at as usize) < self.memory.region().layout().words());
        // SAFETY: REGION: so many words lie there, which everybody accesses as atomics.
        unsafe { &*(self.memory.address() as *const AtomicU64).add(at as usize) }
    }

    fn set(&self, at: u32, word: u64) {
        self.word(at).store(word, Ordering::Relaxed);
    }

    pub fn own(&self, launch: LaunchId) {
        for &slot in &self.slots {
            let at = self.memory.region().places().owner(slot);
            let pair = Owner { launch, ..Owner::default() }.to_pair();
            self.set(at, with_lap(pair[0], true));
            self.set(at + 1, with_lap(pair[1], true));
        }
    }

    /// Has each wave call, by its first lane or all of its lanes. What the first lane calls alone has no arguments.
    pub fn ring(&mut self, bell: &Doorbell) {
        assert!(bell.lanes > 1 || !bell.lines);
        let places = self.memory.region().places();
        let bell_lap = self.calls.is_multiple_of(2);
        let lap = (self.calls - self.alone).is_multiple_of(2);
        self.calls += 1;
        self.alone += u64::from(bell.lanes == 1);
        for &slot in &self.slots {
            for rank in 0..u32::from(bell.lanes) {
                let meta = RequestTag { lane: rank as u8, ..RequestTag::default() }.to_bits();
                for pair in 0..bell.request_pairs() as u32 {
                    let at = places.request(slot) + pair * places.plane + 2 * rank;
                    self.set(at, with_lap(u64::from(rank), lap));
                    self.set(at + 1, with_lap(if pair == 0 { meta } else { 5 }, lap));
                }
            }
            self.set(places.doorbell(slot), bell.to_word(bell_lap) | 1);
        }
    }

    /// Whether each wave has its reply. Reads them all.
    pub fn are_answered(&self, bell: &Doorbell) -> bool {
        let places = self.memory.region().places();
        self.slots.iter().all(|&slot| {
            (0..2 * u32::from(bell.lanes)).all(|word| {
                let used = if word < 2 { self.calls } else { self.calls - self.alone };
                let lap = if used.is_multiple_of(2) { 0 } else { LAP };
                self.word(places.reply(slot) + word).load(Ordering::Relaxed) & LAP == lap
            })
        })
    }

    /// Has each wave post `count` times.
    pub fn post(&mut self, launch: LaunchId, count: u32) {
        let region = self.memory.region();
        let mut entries: Vec<[u64; 2]> = vec![];
        if self.entries == 0 {
            entries.push(Owner { launch, ..Owner::default() }.to_entry());
        }
        let head = PostHead { service: 302, lane: 3, words: 1, extra: 0 };
        entries.resize(entries.len() + count as usize, [1, head.to_word(&[1])]);
        for &slot in &self.slots {
            let ring = region.layout().ring_entries.of(slot);
            for (position, entry) in (self.entries..).zip(&entries) {
                let at = region.sizes().ring(slot) + 2 * (position & (ring - 1));
                let lap = position & ring == 0;
                self.set(at, with_lap(entry[0], lap));
                self.set(at + 1, with_lap(entry[1], lap));
            }
        }
        self.entries += entries.len() as u32;
        for &slot in &self.slots {
            self.set(region.places().post_bell(slot), u64::from(self.entries));
        }
    }

    /// Whether all posts were taken.
    pub fn are_taken(&self) -> bool {
        let places = self.memory.region().places();
        let taken = u64::from(self.entries);
        self.slots.iter().all(|&slot| self.word(places.ring_tail(slot)).load(Ordering::Relaxed) == taken)
    }
}
