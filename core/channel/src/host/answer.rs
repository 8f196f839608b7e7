//! Answering: each packet exactly once, each lane with a status, from whichever thread handled it.

use super::batch::Laps;
use crate::primitive::{AtomicU8, Ordering, fence, store_pair};
use crate::region::{Region, SharedMemory};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::layout::{Spread, area_share};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Line, Rung, pairs_for, with_lap};

/// The slots of one line whose call another thread answers.
pub(super) struct Busy(AtomicU8);

impl Busy {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    pub(super) fn load(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, bit: u8) {
        self.0.fetch_or(bit, Ordering::Relaxed);
    }

    fn clear(&self, bit: u8) {
        self.0.fetch_and(!bit, Ordering::Release);
    }
}

/// The right and the duty to answer one packet.
#[must_use = "the wave waits for its answer"]
pub struct Answer {
    slot: u32,
    rung: Rung,
    spread: Spread,
    /// Laps of the reply pairs' last use.
    used: Laps,
}

impl Answer {
    #[inline(always)]
    pub(super) fn new(slot: u32, rung: Rung, spread: Spread, used: Laps) -> Self {
        Self { slot, rung, spread, used }
    }

    /// The slot that waits.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Lanes that wait.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        self.rung.lanes()
    }

    /// Result words that each lane waits for.
    pub fn result_words(&self) -> usize {
        self.rung.result_words()
    }

    /// Answers the lane of rank `rank`. Words beyond those that the lane waits for are left out, missing
    /// ones are zero. Each lane is answered once.
    pub fn lane(&self, region: Region<'_>, rank: u32, status: Status, words: &[u64]) {
        let mut line = Line { words: [0; MAX_WORDS], tag: status.to_bits() };
        let count = self.result_words().min(words.len());
        line.words[..count].copy_from_slice(&words[..count]);
        let places = region.places();
        let base = places.reply(self.slot) + 2 * rank;
        let step = self.spread.step(places.plane);
        // The highest pair first: when the device sees the first, the others are most likely there.
        for pair in (0..pairs_for(self.result_words())).rev() {
            let bit = self.spread.lap(pair as u32, rank);
            let lap = self.used[(bit / 64) as usize] >> (bit % 64) & 1 == 0;
            let [a, b] = line.pair(pair, self.result_words());
            store_pair(region.pair(base + pair as u32 * step), [with_lap(a, lap), with_lap(b, lap)]);
        }
    }

    /// Answers all lanes alike, without results.
    pub fn all(&self, region: Region<'_>, status: Status) {
        for rank in 0..self.lanes() {
            self.lane(region, rank, status, &[]);
        }
    }

    /// Where the byte area of the packet is, and each lane's bytes of it. `large` names one of the large areas in place of
    /// the slot's own. `None` when there is no such area.
    fn area(&self, region: Region<'_>, large: Option<u32>) -> Option<(u32, usize)> {
        let (places, layout) = (region.places(), region.layout());
        let (at, bytes) = match large {
            None => (places.area(self.slot), layout.area_bytes),
            Some(area) if area < layout.large_areas => (places.large_area(area), layout.large_area_bytes),
            Some(_) => return None,
        };
        Some((at, area_share(bytes, self.lanes())))
    }

    /// Bytes of the byte area that each lane has. `None` when there is no such large area.
    pub fn area_share(&self, region: Region<'_>, large: Option<u32>) -> Option<usize> {
        self.area(region, large).map(|(_, share)| share)
    }

    /// Appends `bytes` bytes of the byte area's part that belongs to the lane of rank `rank`, from byte
    /// `from` (a multiple of 8) on, to `to`. They lie within the lane's share of an area that there is.
    pub fn append_bytes(
        &self,
        region: Region<'_>,
        large: Option<u32>,
        rank: u32,
        from: usize,
        bytes: usize,
        to: &mut Vec<u8>,
    ) {
        let Some((at, share)) = self.area(region, large) else { return };
        debug_assert!(from + bytes <= share);
        region.append_bytes(at + ((rank as usize * share + from) / 8) as u32, bytes, to);
        // Before the answer: the device overwrites the area once it sees that.
        fence(Ordering::Release);
    }

    /// Puts reply bytes into the lane's part of the byte area, from byte `from` (a multiple of 8) on, before
    /// the lane is answered. They lie within the lane's share of an area that there is.
    pub fn write_bytes(&self, region: Region<'_>, large: Option<u32>, rank: u32, from: usize, bytes: &[u8]) {
        let Some((at, share)) = self.area(region, large) else { return };
        debug_assert!(from + bytes.len() <= share);
        region.write_bytes(at + ((rank as usize * share + from) / 8) as u32, bytes);
        fence(Ordering::Release);
    }
}

/// An answer given by a thread that is not the slot's consumer. When it is dropped without one, the lanes get
/// [`CallError::Cancelled`].
pub struct DetachedAnswer {
    answer: Answer,
    memory: Arc<SharedMemory>,
    busy: Arc<[Busy]>,
    line: usize,
    bit: u8,
    answered: u64,
}

impl DetachedAnswer {
    pub(super) fn new(
        answer: Answer,
        memory: Arc<SharedMemory>,
        busy: Arc<[Busy]>,
        line: usize,
        bit: u8,
    ) -> Self {
        Self { answer, memory, busy, line, bit, answered: 0 }
    }

    /// The packet's slot and lanes.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The channel's memory.
    pub fn region(&self) -> Region<'_> {
        self.memory.region()
    }

    /// Answers the lane of rank `rank`; only its first answer counts.
    pub fn lane(&mut self, rank: u32, status: Status, words: &[u64]) {
        let bit = 1u64 << rank;
        if self.answered & bit == 0 {
            self.answered |= bit;
            self.answer.lane(self.memory.region(), rank, status, words);
        }
    }

    /// Answers every lane that has no answer yet.
    pub fn rest(&mut self, status: Status) {
        for rank in 0..self.answer.lanes() {
            self.lane(rank, status, &[]);
        }
    }
}

impl Drop for DetachedAnswer {
    fn drop(&mut self) {
        self.rest(Status::Error(CallError::Cancelled));
        self.busy[self.line].clear(self.bit);
    }
}
