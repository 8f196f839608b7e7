//! Taking posts: of hot rings in each pass, of a ring before a call, and of all rings for a flush.

use super::Consumer;
use super::hot::HotRing;
use crate::own::dispatch;
use crate::own::shared::Wanted;
use hostcall_service::Caller;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Passes with hot rings between two looks at the clock.
const RING_CLOCK_PASSES: u64 = 16;

/// Posts that are to be taken.
pub(super) struct Flush {
    /// Of this home slot and those after it.
    pub slot: u32,
    pub launches: Wanted,
    /// Tells who waits for it.
    pub done: Sender<()>,
}

/// What a visit to a ring of posts found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// No posts.
    Nothing,
    /// Posts, which were taken.
    Taken,
    /// Posts for which there was no room.
    Declined,
}

impl Consumer<'_> {
    /// Looks at the hot rings. Whether there were posts.
    #[inline(never)]
    pub(super) fn hot_rings(&mut self) -> bool {
        let now = self.passes.is_multiple_of(RING_CLOCK_PASSES).then(Instant::now);
        let mut worked = false;
        let mut at = 0;
        while let Some(&HotRing { ring, .. }) = self.rings.hot.get(at) {
            let visit = self.take_posts(ring);
            worked |= visit == Visit::Taken;
            let slot = self.scanner.slots().start + ring;
            let stays = visit != Visit::Nothing || self.scanner.expects_posts(slot);
            at += usize::from(self.rings.judge(at, stays, now));
        }
        worked
    }

    /// Takes posts of a slot's ring.
    #[inline]
    pub(super) fn take_posts(&mut self, ring: u32) -> Visit {
        self.visit(ring, false)
    }

    /// Takes posts of a slot's ring; all of them if it is the `last` visit before they are lost.
    #[inline(always)]
    fn visit(&mut self, ring: u32, last: bool) -> Visit {
        let (shared, inline, registry) = (self.shared, self.inline, &self.registry);
        let slot = self.scanner.slots().start + ring;
        let region = shared.memory.region();
        let batch = self.scanner.take_posts(region, slot, &mut self.buffer, |wave, head, posts| {
            let caller = Caller { launch: wave.launch, slot, lane: 0 };
            let posts = posts.of(caller, wave);
            dispatch::posts(
                shared,
                inline,
                registry,
                caller,
                head,
                if last { posts.of_cleared_ring() } else { posts },
            )
        });
        self.counts.posts.add(batch.posts.into());
        if batch.garbage > 0 {
            shared.statistics.garbage_posts.fetch_add(batch.garbage.into(), Ordering::Relaxed);
        }
        match batch.posts + batch.owners + batch.garbage {
            0 if batch.declined => Visit::Declined,
            0 => Visit::Nothing,
            _ => Visit::Taken,
        }
    }

    /// Takes the posts that are to be flushed, as far as there is room for them. Returns whether it took some.
    pub(super) fn flush(&mut self) -> bool {
        let mut worked = false;
        let slots = self.scanner.slots();
        let end = slots.end.min(self.shared.memory.region().layout().home_slots);
        for mut flush in std::mem::take(&mut self.flushing) {
            while flush.slot < end {
                if !self.scanner.expects_posts(flush.slot) {
                    flush.slot += 1;
                    continue;
                }
                match self.take_posts(flush.slot - slots.start) {
                    Visit::Taken => worked = true,
                    Visit::Declined if self.is_wanted(&flush) => break,
                    Visit::Nothing | Visit::Declined => flush.slot += 1,
                }
            }
            if flush.slot < end {
                self.flushing.push(flush);
            } else {
                let _ = flush.done.send(());
            }
        }
        worked
    }

    /// Makes a slot as if nobody had ever used it. The posts in its ring are taken before, also where there is no room for
    /// them: the wave that was killed may have had its slot from one that ended well and has posted.
    pub(super) fn reset(&mut self, slot: u32) {
        let (region, first) = (self.shared.memory.region(), self.scanner.slots().start);
        if slot < region.layout().home_slots {
            while self.visit(slot - first, true) == Visit::Taken {}
        }
        self.scanner.reset(region, slot);
    }

    /// Returns whether posts that a flush is for lie ready in the ring of its slot.
    fn is_wanted(&mut self, flush: &Flush) -> bool {
        let launches = &flush.launches;
        // Nobody waits for what a cancelled launch said.
        let live = &self.shared.launches;
        let is_one = |launch| launches.binary_search(&launch).is_ok() && live.is_live(launch);
        self.scanner.holds_posts_of(self.shared.memory.region(), flush.slot, &mut self.buffer, is_one)
    }
}
