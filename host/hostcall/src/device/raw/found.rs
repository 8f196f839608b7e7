//! What the host finds of a raw channel, until readers have it.

use super::copier::{self, Copier};
use super::memory::STATE_WORDS;
use super::{Memory, RawStatistics, WrittenByOthers};
use crate::device::core::{Core, HoldsWaves};
use crate::device::error::Error;
use crate::device::inner::Device;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{FOREIGN_STATES, Place, RAW_STATE_PLACE_WORD};
use hostcall_channel::raw::{Chunk, Collector, News, RawRegion};
use hostcall_locks::Mutex;
use hostcall_server::Server;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Of the pages, the part that is kept free where the oldest are overwritten: a wave that finds none waits for the host.
const KEPT_FREE: u32 = 4;

/// What a channel, its readers and their pages share.
pub(super) struct Inner {
    /// Dropped first: copies that are on their way are waited for while the device is open.
    pub found: Mutex<Found>,
    pub core: Arc<Core>,
    pub server: Arc<Server>,
    /// Of a channel of the user's: it keeps the device open.
    pub device: Option<Device>,
    pub memory: Arc<Memory>,
    pub overwrites: bool,
    /// The channel's number on its device; 0 of one that is no user's.
    pub number: u64,
    /// The type of its values, by name, if waves wait for pages.
    pub waits_with: Option<&'static str>,
    /// Of a device's trace points: what kernels of others write there.
    pub others: Option<Arc<WrittenByOthers>>,
    /// Channels and readers that somebody has.
    pub users: AtomicUsize,
    /// Contexts whose kernels may write, as long as these are known: nobody says when their kernels run.
    pub contexts: Mutex<Vec<LaunchId>>,
}

/// Its readers may outlive the device, which ends no waits for it.
impl HoldsWaves for Inner {}

/// What the host has found and nobody has read.
pub(super) struct Found {
    pub collector: Collector,
    /// What brings staged pages here.
    pub copier: Option<Copier>,
    /// Chunks that readers may have.
    pub chunks: VecDeque<Chunk>,
    /// Chunks that readers have.
    pub lent: usize,
    /// Overwritten bytes that a page has told of.
    pub overwritten_told: u64,
    /// Whether a reader has had a chunk since something ran: nothing is overwritten until something runs again.
    pub is_left_alone: bool,
    /// Whether waves may have been killed since nothing was found lost; of trace points, whether some were ended by force.
    may_be_lost: bool,
    /// How many launches had ended when their pages were swept last. None of them has left a page since.
    swept_after: u64,
}

impl Found {
    /// Nothing is found yet, of records of so many bytes each, which are trace points or a user's.
    pub fn new(
        core: &Core,
        memory: &Arc<Memory>,
        home_slots: u32,
        unit: u32,
        is_of_points: bool,
    ) -> Result<Self, Error> {
        let copier = memory.is_staged().then(|| Copier::new(core, memory.clone())).transpose()?;
        let block_pages = if copier.is_some() { copier::block_pages(&memory.layout) } else { 1 };
        let collector = Collector::new(memory.region(), home_slots + FOREIGN_STATES, unit, block_pages);
        let mut found = Self {
            collector: if is_of_points { collector.of_points() } else { collector },
            copier,
            chunks: VecDeque::new(),
            lent: 0,
            overwritten_told: 0,
            is_left_alone: false,
            may_be_lost: !is_of_points,
            swept_after: 0,
        };
        found.tell();
        Ok(found)
    }

    /// Whether copies are on their way.
    pub fn is_copying(&self) -> bool {
        self.copier.as_ref().is_some_and(|copier| copier.copies.in_flight() > 0)
    }

    /// Takes a chunk back from a reader.
    pub fn take_back(&mut self, region: RawRegion<'_>, chunk: &Chunk) {
        self.collector.take_back(region, chunk);
        self.lent -= 1;
        if self.lent == 0
            && self.chunks.is_empty()
            && self.copier.as_ref().is_some_and(|copier| copier.copies.is_empty())
        {
            // Nobody may look for long, and waves have all pages then.
            self.collector.give_all_parts(region);
        }
        self.tell();
    }

    /// Tells the device of free pages, if waves read of them there. What fails is found at the next look.
    fn tell(&mut self) {
        let given = self.collector.given();
        if let Some(copier) = &mut self.copier
            && !copier.has_failed()
        {
            let _ = copier.tell(given);
        }
    }
}

/// Who looks for news.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// A reader, which gets staged pages copied.
    Reader,
    /// The thread that keeps pages free.
    Keeper,
}

impl Inner {
    pub fn region(&self) -> RawRegion<'_> {
        self.memory.region()
    }

    /// Returns whether a launch runs, or kernels with a context may write.
    fn may_be_written(&self) -> bool {
        let launches = self.server.launches();
        launches.count() > 0 || {
            let mut contexts = self.contexts.lock();
            contexts.retain(|launch| launches.is_known(*launch));
            !contexts.is_empty()
        }
    }

    /// Looks for news, and gives out again what nobody has read if that is asked for. Returns whether there were any.
    pub fn collect(&self, found: &mut Found, looks: Looks) -> bool {
        let is_new = match found.copier {
            None => self.find(found, News::OfAll),
            Some(_) => self.find_staged(found, looks),
        };
        if self.overwrites {
            // A reader that has begun once nothing runs gets all that is left, without gaps.
            found.is_left_alone &= !self.may_be_written();
            if !found.is_left_alone {
                self.overwrite(found);
            }
        }
        found.tell();
        is_new
    }

    /// Adds news to the chunks that readers may have, or to those that are to be copied.
    fn find(&self, found: &mut Found, news: News) -> bool {
        let Found { collector, chunks, copier, may_be_lost, swept_after, .. } = found;
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
        let mut is_new = collector.collect(region, news, chunks);
        if let Some(others) = &self.others {
            // Pages of trace points are of no launch, and stay open. Lost are those that a wave took which was ended by force.
            if !is_new && *may_be_lost && !others.may_write() && !self.may_be_written() {
                let backend = &*self.core.backend;
                let (ring, states) = (self.memory.ring(backend), self.memory.states(backend));
                if !self.may_be_written()
                    && let (Some(ring), Some(states)) = (ring, states)
                {
                    let open: HashSet<u32> = states.iter().filter_map(open_page).collect();
                    collector.sweep_lost(region, ring, |page| open.contains(&page));
                    *may_be_lost = false;
                }
            }
            return is_new;
        }
        // Before the sweep: what ends meanwhile is for the next one.
        let ended = launches.ended();
        if !is_new && ended != *swept_after {
            is_new = sweep(collector, chunks);
            *swept_after = ended;
        }
        *may_be_lost |= is_new;
        if !is_new && *may_be_lost && !self.may_be_written() {
            // What was taken up to here is swept or lost, if nothing runs afterwards either.
            let ring = self.memory.ring(&*self.core.backend);
            if !self.may_be_written() {
                is_new = sweep(collector, chunks);
                if !is_new && let Some(ring) = ring {
                    collector.sweep_lost(region, ring, |_| false);
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
            let (began, before) = (Instant::now(), copier.copies.found().len());
            let news = if copier.takes_halves() { News::OfAll } else { News::OfClosed };
            is_new |= self.find(found, news);
            if let Some(copier) = &mut found.copier {
                copier.note_search(began, before);
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
        if copier.is_some() {
            collector.give_parts(region, false);
        }
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
    pub fn check_copies(&self, found: &mut Found) {
        if let Some(copier) = &mut found.copier
            && copier.check().is_err()
        {
            self.lose(found);
        }
    }

    fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        self.memory.state_word(&*self.core.backend, slot, word)
    }

    /// Tells how far pages are written that stay open, by the states of the slots: waves that were killed have not said so. Does nothing
    /// while launches run, whose waves may be about to write.
    pub fn tell_places(&self) {
        if self.may_be_written() {
            return;
        }
        let Some(states) = self.memory.states(&*self.core.backend) else { return };
        // One that began meanwhile may have changed them.
        if self.may_be_written() {
            return;
        }
        let region = self.region();
        for state in &states {
            tell_place(region, state);
        }
    }

    /// Closes what waves that were ended by force have left of trace points in the states of these home slots, which nobody has. What
    /// they wrote last, in their records, is gone.
    pub fn restore(&self, homes: &[u32]) {
        let backend = &*self.core.backend;
        let Some(states) = self.memory.states(backend) else { return };
        for home in homes {
            if let Some(state) = states.get(*home as usize) {
                tell_place(self.region(), state);
                self.memory.forget_page(backend, *home);
            }
        }
        self.found.lock().may_be_lost = true;
    }

    pub fn statistics(&self) -> RawStatistics {
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
            staging: found.copier.as_ref().map(Copier::counts).unwrap_or_default(),
        }
    }

    /// Notes that a channel or a reader is gone. Without any, waves wait for nobody.
    pub fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.region().close();
        }
    }

    pub fn enter(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }
}

/// The page that is open for a slot, by its state.
fn open_page(state: &[u64; STATE_WORDS]) -> Option<u32> {
    ((state[0] >> 32) as u32).checked_sub(1)
}

/// Tells how far the page is written that is open for a slot, if there is one.
fn tell_place(region: RawRegion<'_>, state: &[u64; STATE_WORDS]) {
    if let Some(page) = open_page(state) {
        region.tell_place(page, Place(state[RAW_STATE_PLACE_WORD]));
    }
}
