//! What waves leave behind whose launch has ended, or that were killed.

use super::{Chunk, Collector, Extent, News, RawRegion, count_dropped};
use crate::primitive::Ordering;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{
    Place, RAW_STATE_DROPPED_WORD, RAW_STATE_PLACE_WORD, RawRingWords, header, opened_by,
};

impl Collector {
    /// Closes the pages that waves have left open whose launch has ended, of which `is_over` decides. `state_word` reads a word
    /// of a home slot's state from the memory of the device. Adds what they have more to `chunks`, and other `news`, and
    /// returns whether there was anything new.
    pub fn sweep(
        &mut self,
        region: RawRegion<'_>,
        news: News,
        is_over: impl Fn(LaunchId) -> bool,
        state_word: impl Fn(u32, usize) -> Option<u64>,
        chunks: &mut VecDeque<Chunk>,
    ) -> bool {
        // Which launches are over comes first: what their waves have closed is found then.
        let left: Vec<(u64, u32)> = (0..self.layout.pages())
            .filter(|page| !self.pages[*page as usize].is_closed)
            .filter(|page| {
                let word = region.word(self.layout.header_at(*page) + header::OPENED);
                opened_by(word, self.pages[*page as usize].ticket).is_some_and(&is_over)
            })
            .map(|page| (self.pages[page as usize].ticket, page))
            .collect();
        let mut is_new = self.look(region, news, Extent::All, chunks);
        for (ticket, page) in left {
            if self.pages[page as usize].ticket != ticket || self.pages[page as usize].is_closed {
                continue;
            }
            let at = self.layout.header_at(page);
            let slot = region.word(at + header::SLOT) as u32;
            let of_state =
                (slot < self.dropped.len() as u32).then(|| state_word(slot, RAW_STATE_PLACE_WORD)).flatten();
            let left_by_next = region.word(at + header::LEFT);
            let told = region.words.word(self.layout.commit_at(page)).load(Ordering::Acquire);
            let found = self.pages[page as usize].found;
            let bytes = [of_state.unwrap_or(0), left_by_next, told]
                .into_iter()
                .filter_map(|word| self.checked(page, word, News::OfAll))
                .map(Place::bytes)
                .max()
                .unwrap_or(found);
            self.counts.swept += 1;
            self.add(region, page, Place::begin(ticket).after(bytes).closed(), chunks);
            is_new = true;
        }
        is_new
    }

    /// Gives out the pages that waves took and were killed before they wrote the header, and those that they were about to
    /// take, but not those that `stays_open` names. Nothing runs that could use the channel, and [`Collector::sweep`], where
    /// pages are a launch's, has found nothing.
    pub fn sweep_lost(
        &mut self,
        region: RawRegion<'_>,
        ring: RawRingWords,
        stays_open: impl Fn(u32) -> bool,
    ) {
        self.over_until = ring.head;
        for page in 0..self.layout.pages() {
            let known = &mut self.pages[page as usize];
            if known.ticket < ring.head && !known.is_closed && !stays_open(page) {
                self.counts.swept += 1;
                known.is_closed = true;
                if known.chunks == 0 {
                    self.give(region, page);
                }
            }
        }
        // A device that exaggerates gives its own waves positions at which they wait.
        let lost = ring.lost().min(self.given);
        if lost > self.lost {
            self.lost = lost;
            self.tell_given(region);
        }
    }

    /// Counts what waves have dropped that have opened no page since, by the words of the home slots' states.
    pub fn count_dropped(&mut self, state_word: impl Fn(u32, usize) -> Option<u64>) {
        for slot in 0..self.dropped.len() as u32 {
            if let Some(dropped) = state_word(slot, RAW_STATE_DROPPED_WORD) {
                count_dropped(&mut self.dropped, slot, dropped, &mut self.counts);
            }
        }
    }
}
