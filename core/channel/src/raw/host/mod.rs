//! The host's side of a raw channel. Words of the device are copied once and believed only as far as they fit what the host
//! knows by itself: which ticket each page was given out with, and how much of it was read.

mod blocks;
mod chunk;
mod sweep;

pub use chunk::{Chunk, Counts, News, RawRegion};

use crate::primitive::Ordering;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use blocks::Blocks;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{Place, RAW_GIVEN_WORD, RawLayout, RawWriter, free_entry, header, opened_by};
use hostcall_abi::trace::{MOST_RECORD_BYTES, OwnRecords};

/// What the host knows of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// The position in the ring at which it was given out.
    ticket: u64,
    /// Bytes that chunks have.
    found: u32,
    /// Chunks that somebody has, or that wait for a reader.
    chunks: u32,
    is_closed: bool,
    /// A place that made no sense and was counted.
    malformed: u64,
    /// Rounds that found a later page in the same order while this one was not full, since something came; and the last of them.
    held_up: u32,
    held_up_in: u32,
}

impl Page {
    const fn of(ticket: u64, is_closed: bool) -> Self {
        Self { ticket, found: 0, chunks: 0, is_closed, malformed: 0, held_up: 0, held_up_in: 0 }
    }

    /// Whether nobody waits any more for what is missing in it. Whoever took that room may still store there.
    fn is_given_up(&self) -> bool {
        self.held_up == MOST_HELD_UP
    }
}

/// Rounds in which a gap in a page holds up the pages behind it, after which its records behind the gap are lost: whoever took the
/// room was killed. A look has one or two rounds.
pub(in crate::raw) const MOST_HELD_UP: u32 = 4096;

/// Finds what waves have written, in the order of each writer, and gives pages out again.
pub struct Collector {
    layout: RawLayout,
    /// Bytes of which waves write multiples.
    unit: u32,
    pages: Vec<Page>,
    /// Records that each home slot said it had dropped.
    dropped: Vec<u64>,
    /// Of these, what chunks said that were overwritten: the slot's next chunk tells it.
    untold: Vec<u64>,
    /// Entries put into the ring, ever.
    given: u64,
    /// The page of each place in the ring, by the last entry there.
    ring: Vec<u32>,
    /// Pages that came back and are not in the ring again: the entry in whose place the next one goes was not read yet.
    held_back: VecDeque<u32>,
    /// Pages that came back and wait for the others of their block.
    blocks: Blocks,
    /// No wave reads entries before this position any more.
    over_until: u64,
    /// Rights to a page that were lost with waves that were killed, ever.
    lost: u64,
    counts: Counts,
    /// Pages with tickets before this one are closed or in `old`.
    oldest: u64,
    /// Tickets and pages that are not closed and whose places in the ring have other entries, by ticket.
    old: Vec<(u64, u32)>,
    /// Looks for news, ever.
    looks: u64,
    /// Pages with news, by ticket.
    news: Vec<(u32, Place)>,
    /// By order of pages ([`Place::in_order_of`]): in which round one of them was found that is not full, and which. Of no channel but
    /// that of trace points.
    orders: Vec<(u32, u32)>,
    /// Times that all places were read, ever.
    round: u32,
    /// Pages that are given up.
    given_up: Vec<u32>,
}

/// How far a look goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Most likely as far as waves have taken pages: until a [`SILENT_PART`] of all pages said nothing one after the other. Waves
    /// take pages in the order of their tickets, so that most of those that nobody has are not looked at.
    Taken,
    All,
}

/// See [`Extent::Taken`].
const SILENT_PART: u32 = 8;

/// So many looks are at what was taken, then one is at all: pages that say something in each look keep nobody waiting for long.
const LOOKS_AT_TAKEN: u64 = 16;

impl Collector {
    /// Gives all pages out. The memory is zeroed, and no kernel has it yet. There are so many `states`, of the home slots
    /// and behind them. Waves write multiples of `unit` bytes, a multiple
    /// of 8. Pages are given out again in blocks of `block_pages` that lie side by side, as far as that keeps nobody waiting:
    /// see [`Collector::give_parts`].
    ///
    /// # Panics
    /// When `block_pages` is no power of two up to a quarter of the pages.
    pub fn new(region: RawRegion<'_>, states: u32, unit: u32, block_pages: u32) -> Self {
        Self::after(region, states, unit, block_pages, 0)
    }

    /// As [`Collector::new`], as if so many entries had been given and read.
    pub(crate) fn after(region: RawRegion<'_>, states: u32, unit: u32, block_pages: u32, given: u64) -> Self {
        let layout = region.layout;
        assert!(block_pages.is_power_of_two() && block_pages <= layout.pages() / 4, "at least four blocks");
        let page = Page::of(0, true);
        let mut collector = Self {
            layout,
            unit: unit.max(8),
            pages: alloc::vec![page; layout.pages() as usize],
            dropped: alloc::vec![0; states as usize],
            untold: alloc::vec![0; states as usize],
            given,
            ring: alloc::vec![0; layout.pages() as usize],
            held_back: (0..layout.pages()).collect(),
            blocks: Blocks::new(&layout, block_pages),
            over_until: 0,
            lost: 0,
            counts: Counts::default(),
            oldest: given,
            old: Vec::new(),
            looks: 0,
            news: Vec::new(),
            orders: Vec::new(),
            round: 0,
            given_up: Vec::new(),
        };
        collector.fill_ring(region);
        collector
    }

    /// As it is for a channel of trace points: pages may have records that say by themselves that they are there.
    pub fn of_points(self) -> Self {
        Self { orders: alloc::vec![(0, 0); self.layout.pages() as usize], ..self }
    }

    /// Returns how many entries were put into the ring of free pages, ever: at the positions before this one.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Returns what was found, ever.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Puts a page into the ring, or the last one of a block with all others of it, as soon as there are places for the
    /// entries.
    fn give(&mut self, region: RawRegion<'_>, page: u32) {
        if self.blocks.pages == 1 {
            self.held_back.push_back(page);
        } else if let Some(block) = self.blocks.add(page) {
            self.blocks.take(block, &mut self.held_back);
        } else {
            return;
        }
        self.fill_ring(region);
    }

    /// Puts pages into the ring whose blocks have not come back as a whole, if waves may need them: they are more than a
    /// quarter of all pages, or no page `comes` back soon and less than a quarter of the pages is free.
    pub fn give_parts(&mut self, region: RawRegion<'_>, comes: bool) {
        let quarter = self.layout.pages() / 4;
        let is_due = self.blocks.all_back > quarter
            || self.blocks.all_back > 0 && !comes && self.free_pages(region) < quarter;
        if is_due {
            self.give_all_parts(region);
        }
    }

    /// Puts all pages into the ring whose blocks have not come back as a whole.
    pub fn give_all_parts(&mut self, region: RawRegion<'_>) {
        if self.blocks.all_back > 0 {
            for block in 0..self.blocks.back.len() as u32 {
                self.blocks.take(block, &mut self.held_back);
            }
            self.fill_ring(region);
        }
    }

    /// Puts pages that came back into the ring. A wave that took a position may be slow to read the entry there, while others
    /// take and return all other pages: the entry stays until the wave has opened its page.
    fn fill_ring(&mut self, region: RawRegion<'_>) {
        let before = self.given;
        while !self.held_back.is_empty() && self.is_last_entry_read(region) {
            let Some(page) = self.held_back.pop_front() else { break };
            let ticket = self.given;
            self.given += 1;
            let place = self.layout.place_in_ring(ticket);
            self.keep_old(ticket, place);
            self.ring[place as usize] = page;
            if !self.orders.is_empty() {
                region.clear(page);
            }
            self.pages[page as usize] = Page::of(ticket, false);
            // Release: whoever takes the page overwrites what was read before, or what it was cleared of.
            region.words.word(self.layout.free_at(ticket)).store(free_entry(ticket, page), Ordering::Release);
        }
        if self.given != before {
            self.tell_given(region);
        }
    }

    /// Notes the page whose entry was in the place that the next ticket's has, if it is not closed.
    fn keep_old(&mut self, ticket: u64, place: u32) {
        let Some(before) = ticket.checked_sub(self.layout.pages().into()) else { return };
        if self.oldest > before {
            return;
        }
        let page = self.ring[place as usize];
        if self.is_open(before, page) {
            self.old.push((before, page));
        }
        self.oldest = before + 1;
    }

    /// Whether a page has this ticket and is not closed.
    fn is_open(&self, ticket: u64, page: u32) -> bool {
        let known = &self.pages[page as usize];
        known.ticket == ticket && !known.is_closed
    }

    /// Says whether a wave has read the entry that was last where the next one goes, or none will.
    fn is_last_entry_read(&self, region: RawRegion<'_>) -> bool {
        let pages = u64::from(self.layout.pages());
        let Some(ticket) = self.given.checked_sub(pages) else { return true };
        let page = self.ring[(ticket % pages) as usize];
        let known = &self.pages[page as usize];
        // A wave reads the entry before it writes the page's header.
        ticket < self.over_until
            || known.ticket != ticket
            || opened_by(region.word(self.layout.header_at(page) + header::OPENED), ticket).is_some()
    }

    /// Returns how many pages waves may take, ever, as they are told: those that were lost count besides.
    fn told(&self) -> u64 {
        self.given + self.lost
    }

    /// Tells waves how many pages they may take, ever.
    fn tell_given(&self, region: RawRegion<'_>) {
        region.words.word(RAW_GIVEN_WORD).store(self.told(), Ordering::Release);
    }

    /// The order in which a page with this word is, whose records say how far it is written.
    fn order(&self, page: u32, word: u64) -> Option<usize> {
        let order = Place(word).in_order_of()? as usize;
        let is_own = order < self.orders.len() && Place(word).is_of(self.pages[page as usize].ticket);
        is_own.then_some(order)
    }

    /// The place of a page with this word. `None` if a page that comes before it in its order is not full: records of such pages come
    /// in no order by themselves.
    fn place(&mut self, region: RawRegion<'_>, page: u32, word: u64) -> Option<Place> {
        let Some(order) = self.order(page, word) else { return Some(Place(word)) };
        let (round, before) = self.orders[order];
        if round == self.round {
            let before = &mut self.pages[before as usize];
            if before.held_up_in != round && !before.is_given_up() {
                (before.held_up, before.held_up_in) = (before.held_up + 1, round);
            }
            return None;
        }
        let known = &self.pages[page as usize];
        let read = OwnRecords::read(known.found, self.layout.page_bytes(), |at| region.data_word(page, at));
        let place = Place::begin(known.ticket).after(read.bytes);
        if read.is_full || known.is_given_up() {
            return Some(place.closed());
        }
        self.orders[order] = (self.round, page);
        Some(place)
    }

    /// Returns a place of the page that the host can believe, as far as it goes, if it is among the news that are asked for.
    fn checked(&mut self, page: u32, word: u64, news: News) -> Option<Place> {
        let (place, known) = (Place(word), &mut self.pages[page as usize]);
        if known.is_closed || !place.is_of(known.ticket) || news == News::OfClosed && !place.is_closed() {
            return None;
        }
        let bytes = place.bytes();
        if bytes < known.found || bytes > self.layout.page_bytes() || !bytes.is_multiple_of(self.unit) {
            if known.malformed != word {
                known.malformed = word;
                self.counts.malformed += 1;
            }
            return None;
        }
        (bytes > known.found || place.is_closed()).then_some(place)
    }

    /// Adds what is new to `chunks`: in the order of the pages' tickets, which is that in which a wave opens its pages. Returns
    /// whether there was anything new.
    pub fn collect(&mut self, region: RawRegion<'_>, news: News, chunks: &mut VecDeque<Chunk>) -> bool {
        self.looks += 1;
        !self.looks.is_multiple_of(LOOKS_AT_TAKEN) && self.look(region, news, Extent::Taken, chunks)
            || self.look(region, news, Extent::All, chunks)
    }

    fn look(
        &mut self,
        region: RawRegion<'_>,
        news: News,
        extent: Extent,
        chunks: &mut VecDeque<Chunk>,
    ) -> bool {
        self.fill_ring(region);
        self.forget_closed();
        let most_silent = match extent {
            Extent::Taken => self.layout.pages() / SILENT_PART,
            Extent::All => u32::MAX,
        };
        if extent == Extent::All {
            self.take_filled(region);
        }
        self.round = self.round.wrapping_add(1);
        let (mut last, mut silent) = (None, 0);
        for at in 0..self.unclosed() {
            let Some((ticket, page)) = self.unclosed_at(at) else { continue };
            // Acquire, here and below: what the place says was written is seen.
            let word = region.words.word(self.layout.commit_at(page)).load(Ordering::Acquire);
            let place = self.place(region, page, word);
            if place.is_some_and(|place| self.checked(page, place.0, news).is_some()) {
                last = Some(at);
            }
            silent = if Place(word).is_of(ticket) { 0 } else { silent + 1 };
            if silent > most_silent {
                break;
            }
        }
        let Some(last) = last else { return false };
        // A page that was looked at too early may have been closed before a later one of the same wave, whose news were seen:
        // its place is seen now. What came after the last of the news may lack one before it.
        let mut found = core::mem::take(&mut self.news);
        self.round = self.round.wrapping_add(1);
        for at in 0..=last {
            let Some((_, page)) = self.unclosed_at(at) else { continue };
            let word = region.words.word(self.layout.commit_at(page)).load(Ordering::Acquire);
            let place = self.place(region, page, word);
            found
                .extend(place.and_then(|place| self.checked(page, place.0, news)).map(|place| (page, place)));
        }
        let is_new = !found.is_empty();
        for (page, place) in found.drain(..) {
            self.add(region, page, place, chunks);
        }
        self.news = found;
        is_new
    }

    /// Gives out again what was given up and is full by now.
    fn take_filled(&mut self, region: RawRegion<'_>) {
        let mut given_up = core::mem::take(&mut self.given_up);
        given_up.retain(|page| {
            let read = OwnRecords::read(0, self.layout.page_bytes(), |at| region.data_word(*page, at));
            if read.is_full {
                self.pages[*page as usize].held_up = 0;
                self.give_unused(region, *page);
            }
            !read.is_full
        });
        self.given_up = given_up;
    }

    /// Returns how many records there are that nobody was given, since room before them was taken and is not filled.
    pub fn behind_gaps(&self, region: RawRegion<'_>) -> u64 {
        let of_page = |at| {
            let (_, page) = self.unclosed_at(at)?;
            self.order(page, region.word(self.layout.commit_at(page)))?;
            Some(self.records_from(region, page, self.pages[page as usize].found))
        };
        (0..self.unclosed()).filter_map(of_page).sum()
    }

    /// Records of a page from a byte on, as far as they can be told.
    fn records_from(&self, region: RawRegion<'_>, page: u32, from: u32) -> u64 {
        OwnRecords::count(from, self.layout.page_bytes(), |at| region.data_word(page, at))
    }

    /// At most so many pages are not closed: the old ones, and those of the entries from the oldest other on.
    fn unclosed(&self) -> usize {
        self.old.len() + (self.given - self.oldest) as usize
    }

    /// The ticket and the page of one of them, in the order of their tickets, if it is not closed.
    fn unclosed_at(&self, at: usize) -> Option<(u64, u32)> {
        let (ticket, page) = self.old.get(at).copied().unwrap_or_else(|| {
            let ticket = self.oldest + (at - self.old.len()) as u64;
            (ticket, self.ring[self.layout.place_in_ring(ticket) as usize])
        });
        self.is_open(ticket, page).then_some((ticket, page))
    }

    /// Passes over what is closed by now.
    fn forget_closed(&mut self) {
        let mut old = core::mem::take(&mut self.old);
        old.retain(|(ticket, page)| self.is_open(*ticket, *page));
        self.old = old;
        while self.oldest < self.given
            && !self.is_open(self.oldest, self.ring[self.layout.place_in_ring(self.oldest) as usize])
        {
            self.oldest += 1;
        }
    }

    /// Adds what a checked place has more.
    fn add(&mut self, region: RawRegion<'_>, page: u32, place: Place, chunks: &mut VecDeque<Chunk>) {
        let at = self.layout.header_at(page);
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let launch = region.word(at + header::OPENED) as u32;
        let slot = region.word(at + header::SLOT) as u32;
        let (workgroup, wave) = halves(region.word(at + header::WAVE));
        let known = self.pages[page as usize];
        let dropped = if known.found == 0 { region.word(at + header::DROPPED) } else { 0 };
        let mut dropped = count_dropped(&mut self.dropped, slot, dropped, &mut self.counts);
        let is_full = place.bytes() + MOST_RECORD_BYTES > self.layout.page_bytes();
        let gives_up = known.is_given_up() && place.is_closed() && !is_full;
        if gives_up {
            self.given_up.push(page);
            let lost = 1 + self.records_from(region, page, place.bytes());
            (dropped, self.counts.dropped) =
                (dropped.saturating_add(lost), self.counts.dropped.saturating_add(lost));
        }
        let chunk = Chunk {
            page,
            ticket: known.ticket,
            from: known.found,
            to: place.bytes(),
            is_last: place.is_closed(),
            writer: RawWriter { launch: LaunchId::from_bits(launch), slot, workgroup, wave },
            opened_ns: region.word(at + header::OPENED_NS),
            dropped,
        };
        let known = &mut self.pages[page as usize];
        known.found = chunk.to;
        known.is_closed = chunk.is_last;
        if !gives_up {
            known.held_up = 0;
        }
        self.counts.bytes += u64::from(chunk.bytes());
        self.counts.pages += u64::from(chunk.is_last);
        if chunk.bytes() > 0 || chunk.dropped > 0 {
            known.chunks += 1;
            chunks.push_back(chunk);
        } else {
            self.give_unused(region, page);
        }
    }

    /// Gives a page out again that is closed and of which nobody has a chunk.
    fn give_unused(&mut self, region: RawRegion<'_>, page: u32) {
        let known = &self.pages[page as usize];
        if known.is_closed && known.chunks == 0 && !known.is_given_up() {
            self.give(region, page);
        }
    }

    /// Takes a chunk back that nobody reads any more, and gives its page out again with the page's last one.
    ///
    /// # Panics
    /// When the chunk is none that this collector gave, or was taken back before.
    pub fn take_back(&mut self, region: RawRegion<'_>, chunk: &Chunk) {
        let known = &mut self.pages[chunk.page as usize];
        assert!(known.ticket == chunk.ticket && known.chunks > 0, "a chunk is taken back once");
        known.chunks -= 1;
        self.give_unused(region, chunk.page);
    }

    /// Notes that a chunk goes to a reader. It tells what chunks of its slot that were overwritten would have
    /// told.
    pub fn hand_out(&mut self, chunk: &mut Chunk) {
        if let Some(untold) = self.untold.get_mut(chunk.writer.slot as usize) {
            chunk.dropped = chunk.dropped.saturating_add(core::mem::take(untold));
        }
    }

    /// Takes the oldest chunks of closed pages from the queue of those that wait for a reader, as if they had been read, until
    /// so many pages came back. Returns how many did not.
    pub fn overwrite(&mut self, region: RawRegion<'_>, pages: u32, chunks: &mut VecDeque<Chunk>) -> u32 {
        let until = self.returned() + u64::from(pages);
        while self.returned() < until
            && let Some(chunk) = chunks.pop_front()
        {
            self.counts.overwritten_bytes += u64::from(chunk.bytes());
            self.discard(region, &chunk);
        }
        until.saturating_sub(self.returned()) as u32
    }

    /// Takes a chunk back whose bytes could not be copied to the host, and counts them.
    pub fn lose(&mut self, region: RawRegion<'_>, chunk: &Chunk) {
        self.counts.lost_bytes += u64::from(chunk.bytes());
        self.discard(region, chunk);
    }

    /// Takes a chunk back that no reader gets. What it would have told of drops, the slot's next one tells.
    fn discard(&mut self, region: RawRegion<'_>, chunk: &Chunk) {
        if let Some(untold) = self.untold.get_mut(chunk.writer.slot as usize) {
            *untold = untold.saturating_add(chunk.dropped);
        }
        self.take_back(region, chunk);
    }

    /// Pages that came back, ever, and those that were there at first.
    fn returned(&self) -> u64 {
        self.given + self.held_back.len() as u64 + u64::from(self.blocks.all_back)
    }

    /// Pages that nobody has and that wait for others of their block.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiting_pages(&self) -> u32 {
        self.blocks.all_back
    }

    /// Pages in the ring that no wave has taken, as far as their headers say.
    pub fn free_pages(&self, region: RawRegion<'_>) -> u32 {
        let is_free = |(page, known): &(u32, &Page)| {
            let word = region.word(self.layout.header_at(*page) + header::OPENED);
            !known.is_closed && opened_by(word, known.ticket).is_none()
        };
        (0..).zip(&self.pages).filter(is_free).count() as u32
    }
}

/// Notes how many records a home slot has dropped, ever, as the device alleges. Returns how many more than before.
fn count_dropped(known: &mut [u64], slot: u32, dropped: u64, counts: &mut Counts) -> u64 {
    let Some(known) = known.get_mut(slot as usize) else { return 0 };
    let more = dropped.saturating_sub(*known);
    *known = dropped.max(*known);
    counts.dropped = counts.dropped.saturating_add(more);
    more
}
