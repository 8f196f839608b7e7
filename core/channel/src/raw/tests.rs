use super::{
    AtEnd, Chunk, Collector, Copies, News, OpenPage, Opening, RawRegion, RawRing, RawState, Run, Writer,
};
use crate::primitive::{AtomicU64, Ordering};
use crate::region::Words;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{
    Place, RAW_STATE_PLACE_WORD, RawLayout, RawRingWords, RawWriter, free_entry, header, opened,
};
use proptest::prelude::*;
use std::collections::VecDeque;

const LAUNCH: LaunchId = LaunchId::new(3, 1);

/// A channel in memory of this process.
struct Channel {
    layout: RawLayout,
    words: Vec<AtomicU64>,
    pages: Vec<AtomicU64>,
    /// The device's pages, of staged ones.
    staged: Option<Vec<AtomicU64>>,
    ring: RawRing,
    states: Vec<RawState>,
}

impl Channel {
    fn new(pages: u32, page_bytes: u32, slots: usize) -> Self {
        let layout = RawLayout::new(pages, page_bytes).unwrap();
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let states = (0..slots).map(|_| RawState::new()).collect();
        let (words, pages) = (words(layout.words()), words(layout.data_words()));
        Self { layout, words, pages, staged: None, ring: RawRing::new(), states }
    }

    fn staged(self) -> Self {
        let staged = (0..self.layout.data_words()).map(|_| AtomicU64::new(0)).collect();
        Self { staged: Some(staged), ..self }
    }

    fn region(&self) -> RawRegion<'_> {
        RawRegion::of([&self.words, &self.pages], self.layout)
    }

    fn writer(&self, slot: u32) -> Writer<'_> {
        let data = self.staged.as_ref().unwrap_or(&self.pages);
        let free = &self.words[self.layout.free_at(0) as usize..][..self.layout.pages() as usize];
        let words = [&self.words, data, free].map(Words::of);
        Writer::of_state(words, self.layout, &self.ring, &self.states[slot as usize])
    }

    /// Copies as an engine does.
    fn copy(&self, runs: &[Run]) {
        let Some(staged) = &self.staged else { return };
        for Run { from, bytes } in runs {
            for at in from / 8..(from + bytes) / 8 {
                self.pages[at as usize].store(staged[at as usize].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn opening(slot: u32) -> Opening {
        Opening { writer: RawWriter { launch: LAUNCH, slot, workgroup: 8, wave: 9 }, now_ns: 1 }
    }

    /// Writes a word, as a wave that drops what finds no page and tells the host of none in the first period. Returns whether it was
    /// kept.
    fn write(&self, slot: u32, word: u64) -> bool {
        let writer = self.writer(slot);
        // SAFETY: RAW-STATE: one thread.
        unsafe {
            if !writer.has_begun(LAUNCH.to_bits()) {
                writer.begin_unlinked(LAUNCH.to_bits(), AtEnd::Closes);
            }
            // Both ways to a place in the open page.
            let open_page = OpenPage::new();
            writer.lend(&open_page);
            let room = open_page.room(8, Some(0));
            let at_once = word % 2 == 1 && room.is_there;
            if at_once {
                let (words, at) = open_page.take(room, 8);
                words.put_word(at, word);
            }
            open_page.give_back();
            if at_once {
                return true;
            }
            let place = writer.take(8, 1).or_else(|| {
                assert!(!room.is_there, "a page that has room");
                writer.close(None);
                if writer.open(Self::opening(slot), writer.may_look()) { writer.take(8, 1) } else { None }
            });
            match place {
                Some((at, _)) => writer.data().put_word(at, word),
                None => writer.count_dropped(1),
            }
            place.is_some()
        }
    }

    fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        // SAFETY: the state is so many words; one thread.
        Some(unsafe { (&raw const self.states[slot as usize]).cast::<u64>().add(word).read() })
    }

    fn words_of(&self, chunk: &Chunk) -> Vec<u64> {
        self.region().words_of(chunk).iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

/// Writers that write, publish and close at any time, and a reader that reads and gives back when it likes, lose nothing that
/// was not counted, and each writer's words come in order, after any number of pages that were `given` before.
fn exchange(steps: &[(u8, u8)], is_staged: bool, block_pages: u32, given: u64) -> Result<(), TestCaseError> {
    const SLOTS: u32 = 3;
    let channel = Channel { ring: RawRing::after(given), ..Channel::new(16, 128, SLOTS as usize) };
    let channel = if is_staged { channel.staged() } else { channel };
    let mut copies = is_staged.then(|| Copies::new(channel.layout));
    let mut runs = Vec::new();
    let mut collector = Collector::after(channel.region(), SLOTS, 8, block_pages, given);
    let (mut chunks, mut lent) = (VecDeque::new(), Vec::new());
    let mut written = [const { Vec::new() }; SLOTS as usize];
    let mut read = [const { Vec::new() }; SLOTS as usize];
    let mut dropped = 0;
    let mut read_all = |chunks: &mut VecDeque<Chunk>, lent: &mut Vec<Chunk>| {
        for chunk in chunks.drain(..) {
            read[chunk.writer.slot as usize].extend(channel.words_of(&chunk));
            lent.push(chunk);
        }
    };
    for (step, (what, number)) in steps.iter().enumerate() {
        let slot = u32::from(*number) % SLOTS;
        match what % 9 {
            0..4 => match channel.write(slot, step as u64) {
                true => written[slot as usize].push(step as u64),
                false => dropped += 1,
            },
            // SAFETY: RAW-STATE: one thread.
            4 => unsafe { channel.writer(slot).publish(None) },
            // SAFETY: as above.
            5 => unsafe { channel.writer(slot).close(None) },
            6 => {
                let news = if number & 4 == 0 { News::OfAll } else { News::OfClosed };
                match &mut copies {
                    None => _ = collector.collect(channel.region(), news, &mut chunks),
                    Some(copies) => {
                        collector.collect(channel.region(), news, copies.found());
                        if copies
                            .ask(u64::from(*number) << 4, 1 + usize::from(number >> 5), &mut runs)
                            .is_some()
                        {
                            prop_assert!(runs.len() <= 1 + usize::from(number >> 5));
                            channel.copy(&runs);
                        }
                    }
                }
                read_all(&mut chunks, &mut lent);
            }
            7 => {
                // The batch before the last one, or the last one too.
                if let Some(copies) = &mut copies {
                    let batch = copies.last_asked() - u64::from(number & 1).min(copies.last_asked());
                    copies.end(batch, &mut chunks);
                    read_all(&mut chunks, &mut lent);
                }
                collector.give_parts(channel.region(), number & 8 == 0);
            }
            _ => lent.drain(..).for_each(|chunk| collector.take_back(channel.region(), &chunk)),
        }
    }
    let found = match &mut copies {
        Some(copies) => copies.found(),
        None => &mut chunks,
    };
    collector.sweep(
        channel.region(),
        News::OfClosed,
        |launch| launch == LAUNCH,
        |slot, word| channel.state_word(slot, word),
        found,
    );
    if let Some(copies) = &mut copies {
        while copies.ask(200, 3, &mut runs).is_some() {
            channel.copy(&runs);
        }
        copies.end(copies.last_asked(), &mut chunks);
    }
    read_all(&mut chunks, &mut lent);
    collector.count_dropped(|slot, word| channel.state_word(slot, word));
    prop_assert_eq!(read, written);
    prop_assert_eq!(collector.counts().dropped, dropped);
    prop_assert_eq!(collector.counts().malformed, 0);
    lent.drain(..).for_each(|chunk| collector.take_back(channel.region(), &chunk));
    prop_assert_eq!(collector.free_pages(channel.region()) + collector.waiting_pages(), 16);
    Ok(())
}

proptest! {
    #[test]
    fn nothing_is_lost_uncounted(
        steps in proptest::collection::vec(any::<(u8, u8)>(), 0..600),
        is_staged: bool,
        block_log2 in 0..3u32,
        // Tickets are known by 31 bits of them, and by 32.
        given in prop_oneof![Just(0), Just((1 << 31) - 40), Just((1 << 32) - 40)],
    ) {
        exchange(&steps, is_staged, 1 << block_log2, given)?;
    }

    /// Whatever a device writes into any word, the host reads within pages and gives each page back.
    #[test]
    fn garbage_stays_garbage(
        writes in proptest::collection::vec((any::<u16>(), any::<u64>(), 0..6u8), 1..200),
    ) {
        let channel = Channel::new(16, 128, 2);
        let mut collector = Collector::new(channel.region(), 2, 8, 1);
        let mut chunks = VecDeque::new();
        for (at, word, kind) in writes {
            let page = u32::from(at) % 16;
            // Words that are nearly right find more than random ones.
            let small = word % 40;
            let near = (small + 1) << 33 | (word >> 60 & 1) << 32 | ((word >> 32) % 160);
            let (at, word) = match kind {
                0 => (u32::from(at) % channel.layout.words(), word),
                1 | 2 => (channel.layout.commit_at(page), near),
                3 => (channel.layout.header_at(page) + header::LEFT, near),
                4 => (channel.layout.header_at(page) + header::OPENED, small << 32 | (word >> 50 & 3)),
                _ => (channel.layout.free_at(small), free_entry(small, page)),
            };
            channel.words[at as usize].store(word, Ordering::Relaxed);
            collector.collect(channel.region(), News::OfAll, &mut chunks);
            collector.sweep(channel.region(), News::OfAll, |launch| launch.to_bits() % 2 == 0, |_, _| Some(word), &mut chunks);
            for chunk in chunks.drain(..) {
                prop_assert!(chunk.from <= chunk.to && chunk.to <= 128);
                prop_assert_eq!(channel.words_of(&chunk).len(), chunk.bytes() as usize / 8);
                collector.take_back(channel.region(), &chunk);
            }
        }
        collector.sweep_lost(channel.region(), RawRingWords { head: u64::MAX, known: 7 << 32 | 3 }, |_| false);
        for page in 0..16 {
            // A word that says that a page was opened is believed until its launch has ended.
            channel.words[(channel.layout.header_at(page) + header::OPENED) as usize].store(0, Ordering::Relaxed);
        }
        prop_assert_eq!(collector.free_pages(channel.region()), 16);
    }
}

/// The host tells how far a wave has written whose end nobody tells: no less than the wave has told, and of no earlier use of the
/// page.
#[test]
fn places_are_told_in_the_name_of_a_wave() {
    let channel = Channel::new(16, 128, 1);
    let commit = &channel.words[channel.layout.commit_at(3) as usize];
    let tell = |place: Place| {
        channel.region().tell_place(3, place);
        Place(commit.load(Ordering::Relaxed))
    };
    let first = Place::begin(3);
    assert_eq!(tell(first.after(32)), first.after(32));
    assert_eq!(tell(first.after(16)), first.after(32));
    assert_eq!(tell(first.after(64)), first.after(64));
    commit.store(first.after(96).closed().0, Ordering::Relaxed);
    assert_eq!(tell(first.after(128)), first.after(96).closed());
    let next = Place::begin(19);
    assert_eq!(tell(next.after(16)), next.after(16));
    assert_eq!(tell(first.after(128)), next.after(16));
    // What makes no sense is left out.
    assert_eq!(tell(next.after(136)), next.after(16));
    channel.region().tell_place(16, next);
}

#[test]
fn the_oldest_are_overwritten() {
    let channel = Channel::new(16, 128, 1);
    let mut collector = Collector::new(channel.region(), 1, 8, 1);
    let mut chunks = VecDeque::new();
    for word in 0..1000 {
        if !channel.write(0, word) {
            panic!("the host gives pages out again in time");
        }
        collector.collect(channel.region(), News::OfAll, &mut chunks);
        if collector.free_pages(channel.region()) < 4 {
            collector.overwrite(channel.region(), 4, &mut chunks);
        }
    }
    let read: Vec<u64> = chunks.iter().flat_map(|chunk| channel.words_of(chunk)).collect();
    let first = 1000 - read.len() as u64 - 1000 % 16;
    assert_eq!(read, (first..first + read.len() as u64).collect::<Vec<_>>());
    assert_eq!(collector.counts().overwritten_bytes, 8 * first);
}

#[test]
fn what_was_dropped_before_an_overwritten_page_is_told_with_the_next() {
    let channel = Channel::new(16, 128, 1);
    let mut collector = Collector::new(channel.region(), 1, 8, 1);
    let mut chunks = VecDeque::new();
    let kept = (0..16 * 16 + 10).filter(|word| channel.write(0, *word)).count();
    assert_eq!(kept, 16 * 16, "all pages are full");
    collector.collect(channel.region(), News::OfAll, &mut chunks);
    collector.overwrite(channel.region(), 4, &mut chunks);
    // Three more pages, of which the first says what was dropped.
    let mut dropped = 10;
    let mut written = 0;
    while written < 3 * 16 {
        match channel.write(0, written) {
            true => written += 1,
            false => dropped += 1,
        }
    }
    collector.collect(channel.region(), News::OfAll, &mut chunks);
    assert_eq!(chunks[12].dropped, dropped);
    collector.overwrite(channel.region(), 13, &mut chunks);
    let told: Vec<u64> = std::iter::from_fn(|| chunks.pop_front())
        .map(|mut chunk| {
            collector.hand_out(&mut chunk);
            chunk.dropped
        })
        .collect();
    assert_eq!((told[0], told[1..].iter().sum::<u64>()), (dropped, 0));
    assert_eq!(collector.counts().dropped, dropped);
}

#[test]
fn pages_that_killed_waves_took_come_back() {
    let channel = Channel::new(16, 128, 2);
    let mut collector = Collector::new(channel.region(), 2, 8, 1);
    let mut chunks = VecDeque::new();
    assert!(channel.write(0, 1) && channel.write(0, 2));
    // A wave was killed before it wrote the header of the page that it had taken, and one before it took one.
    channel.ring.lose_one();
    channel.ring.take_page();
    let place = channel.state_word(0, RAW_STATE_PLACE_WORD);
    assert!(
        !collector.sweep(channel.region(), News::OfAll, |_| false, |_, _| place, &mut chunks),
        "its launch runs"
    );
    assert!(collector.sweep(channel.region(), News::OfAll, |_| true, |_, _| place, &mut chunks));
    assert_eq!(channel.words_of(&chunks[0]), [1, 2]);
    collector.sweep_lost(channel.region(), channel.ring.words(), |_| false);
    assert_eq!((collector.counts().swept, collector.free_pages(channel.region())), (2, 15));
    collector.take_back(channel.region(), &chunks[0]);
    assert_eq!(collector.free_pages(channel.region()), 16);
    // All pages can be taken again.
    // SAFETY: RAW-STATE: one thread.
    let taken = unsafe {
        channel.writer(1).begin_unlinked(LAUNCH.to_bits(), AtEnd::Closes);
        (0..20).take_while(|_| channel.writer(1).open(Channel::opening(1), true)).count()
    };
    assert_eq!(taken, 16);
}

/// Pages that stay open for their slots' next waves are not given out with those that killed waves took.
#[test]
fn pages_that_stay_open_are_kept() {
    let channel = Channel::new(16, 128, 2);
    let mut collector = Collector::new(channel.region(), 2, 8, 1);
    let mut chunks = VecDeque::new();
    assert!(channel.write(0, 1));
    let open = (channel.state_word(0, 0).unwrap() >> 32) as u32 - 1;
    channel.ring.take_page();
    collector.collect(channel.region(), News::OfAll, &mut chunks);
    collector.sweep_lost(channel.region(), channel.ring.words(), |page| page == open);
    assert_eq!((collector.counts().swept, collector.free_pages(channel.region())), (1, 15));
    assert!(channel.write(0, 2), "its page has room");
}

/// A wave takes a position and is slow to read the entry there, while another takes and returns all other pages again and again.
#[test]
fn an_entry_stays_until_it_was_read() {
    let channel = Channel::new(16, 128, 2);
    let region = channel.region();
    let mut collector = Collector::new(region, 2, 8, 1);
    let mut chunks = VecDeque::new();
    let entry =
        |position: u64| channel.words[channel.layout.free_at(position) as usize].load(Ordering::Relaxed);
    assert!(channel.write(0, 0));
    let slow = entry(1);
    channel.ring.take_page();
    // Each page has room for 16 words.
    let kept = (1..16 * 50).filter(|word| {
        let is_kept = channel.write(0, *word);
        collector.collect(region, News::OfAll, &mut chunks);
        chunks.drain(..).for_each(|chunk| collector.take_back(region, &chunk));
        is_kept
    });
    assert_eq!(
        kept.count(),
        16 * 16 - 1,
        "the other 15 pages, and one that came back before the entry's place was due"
    );
    assert_eq!(entry(1), slow);
    // It reads it, and opens the page.
    let at = channel.layout.header_at(slow as u32 & 15) + header::OPENED;
    channel.words[at as usize].store(opened(1, LAUNCH), Ordering::Relaxed);
    collector.collect(region, News::OfAll, &mut chunks);
    assert_eq!(collector.free_pages(region), 15);
    assert_ne!(entry(1), slow);
}

/// Meanwhile the ring goes round, and the page's place in it has other pages' entries.
#[test]
fn a_page_that_stays_open_is_found() {
    let channel = Channel::new(16, 128, 2);
    let region = channel.region();
    let mut collector = Collector::new(region, 2, 8, 1);
    let mut chunks = VecDeque::new();
    assert!(channel.write(1, 7));
    for word in 0..16 * 100 {
        assert!(channel.write(0, word));
        collector.collect(region, News::OfAll, &mut chunks);
        chunks.drain(..).for_each(|chunk| collector.take_back(region, &chunk));
    }
    assert!(channel.write(1, 8));
    // SAFETY: RAW-STATE: one thread.
    unsafe { channel.writer(1).publish(None) };
    assert!(channel.write(0, 9));
    collector.collect(region, News::OfAll, &mut chunks);
    let found: Vec<_> = chunks.iter().map(|chunk| (chunk.writer.slot, channel.words_of(chunk))).collect();
    assert_eq!(found[0], (1, vec![7, 8]));
}

/// Behind pages that say nothing, too.
#[test]
fn a_page_that_says_something_in_each_look_keeps_nobody_waiting() {
    let channel = Channel::new(16, 4096, 8);
    let region = channel.region();
    let mut collector = Collector::new(region, 8, 8, 1);
    let (mut chunks, mut slots) = (VecDeque::new(), Vec::new());
    for slot in 0..8 {
        assert!(channel.write(slot, 1));
    }
    // SAFETY: RAW-STATE: one thread.
    unsafe { channel.writer(7).publish(None) };
    for _ in 0..20 {
        assert!(channel.write(0, 2));
        // SAFETY: as above.
        unsafe { channel.writer(0).publish(None) };
        assert!(collector.collect(region, News::OfAll, &mut chunks));
        slots.extend(chunks.drain(..).map(|chunk| chunk.writer.slot));
    }
    assert!(slots.contains(&7), "{slots:?}");
}

/// A part of a wave that was killed while it wrote keeps nobody of a later launch waiting.
#[test]
fn a_lock_of_an_ended_launch_is_none() {
    let channel = Channel::new(16, 128, 1);
    let writer = channel.writer(0);
    assert!(writer.try_lock(5) && !writer.try_lock(5));
    assert!(writer.try_lock(6) && !writer.try_lock(6));
    writer.unlock();
    assert!(writer.try_lock(5));
}

/// Pages come back in blocks, and alone where waves need them.
#[test]
fn blocks_come_back_together() {
    let channel = Channel::new(16, 128, 1);
    let region = channel.region();
    let mut collector = Collector::new(region, 1, 8, 4);
    let mut chunks = VecDeque::new();
    let page_words = 16;
    let given = || channel.words[hostcall_abi::raw::RAW_GIVEN_WORD as usize].load(Ordering::Relaxed);
    for word in 0..7 * page_words {
        assert!(channel.write(0, word));
    }
    // SAFETY: RAW-STATE: one thread.
    unsafe { channel.writer(0).close(None) };
    collector.collect(region, News::OfClosed, &mut chunks);
    assert_eq!(chunks.len(), 7);
    for (at, chunk) in chunks.drain(..).enumerate() {
        collector.take_back(region, &chunk);
        assert_eq!(given(), if at < 3 { 16 } else { 20 }, "after {at}");
    }
    // Three of the second block wait for the fourth while enough pages are free, or others come back.
    collector.give_parts(region, false);
    assert_eq!(given(), 20);
    for word in 0..10 * page_words {
        assert!(channel.write(0, word));
    }
    collector.give_parts(region, true);
    assert_eq!(given(), 20);
    collector.give_parts(region, false);
    assert_eq!((given(), collector.free_pages(region)), (23, 6));
}

/// Copies go over pages that lie side by side, and leave long gaps and other pages out.
#[test]
fn chunks_side_by_side_are_one_copy() {
    let layout = RawLayout::new(16, 1 << 17).unwrap();
    let chunk = |page: u32, from: u32, to: u32| Chunk {
        page,
        ticket: page.into(),
        from,
        to,
        is_last: true,
        writer: RawWriter::default(),
        opened_ns: 0,
        dropped: 0,
    };
    let of = |page: u64, from: u64, to: u64, end: u64| Run {
        from: page << 17 | from,
        bytes: (to << 17 | end) - (page << 17 | from),
    };
    let mut copies = Copies::new(layout);
    let mut runs = Vec::new();
    let full = 1 << 17;
    // Two full pages and one with a short end; then one whose end is far from the next, and one that has no neighbour.
    for (page, from, to) in
        [(5, 0, full), (3, 0, full), (4, 64, full - 1024), (6, 0, 8), (7, 0, 800), (9, 0, full), (2, 8, 8)]
    {
        copies.found().push_back(chunk(page, from, to));
    }
    assert!(copies.has_found(3 << 17) && !copies.has_found(4 << 17));
    assert_eq!(copies.ask(u64::MAX, 60, &mut runs), Some(1));
    assert_eq!(runs, [of(3, 0, 6, 8), of(7, 0, 7, 800), of(9, 0, 10, 0)]);
    let mut chunks = VecDeque::new();
    assert!(!copies.end(0, &mut chunks) && copies.in_flight() == 1);
    assert!(copies.end(1, &mut chunks) && copies.in_flight() == 0);
    let pages: Vec<u32> = chunks.iter().map(Chunk::page).collect();
    assert_eq!(pages, [5, 3, 4, 6, 7, 9, 2], "in the order in which they were found");
    // Few bytes, and few copies.
    copies.found().extend([1, 3, 5, 7, 9].map(|page| chunk(page, 0, full)));
    assert_eq!(copies.ask(2 << 17, 60, &mut runs), Some(2));
    assert_eq!(runs, [of(1, 0, 2, 0), of(3, 0, 4, 0)]);
    assert_eq!(copies.ask(u64::MAX, 2, &mut runs), Some(3));
    assert_eq!(runs, [of(5, 0, 6, 0)]);
    assert_eq!(copies.take().len(), 5);
    assert_eq!(copies.ask(1, 1, &mut runs), None);
}
