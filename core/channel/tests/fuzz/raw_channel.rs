//! The body of the fuzz target `raw_channel`: bytes become a sequence of steps of waves, of a collector and of readers. As long
//! as waves keep the rules, what was written is read in order, and the rest is counted. From the first word on that a hostile
//! device writes, to pages, headers, the ring or what the host reads of the device's own memory, the host reads within pages,
//! counts what it found, takes each chunk back once, and comes to an end. Staged pages are copied by whoever plays the engine.

use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{
    Place, RAW_GIVEN_WORD, RawLayout, RawParams, RawRingWords, RawStateWords, RawWriter, free_entry, header,
    opened,
};
use hostcall_channel::raw::{Chunk, Collector, Copies, News, Opening, RawRegion, Run as CopyRun, Writer};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Home slots.
const SLOTS: u32 = 3;
/// Launches that a device alleges.
const LAUNCHES: u32 = 8;
/// Looks of the host while another thread writes garbage.
const LOOKS: usize = 40;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (memory, is_raced) = (Memory::new(&mut input), input.byte() & 1 != 0);
    let mut run = Run::new(&memory);
    let all = input.0;
    while !input.0.is_empty() {
        run.step(&mut input);
    }
    if is_raced {
        run.race(all);
    }
    run.finish();
}

/// What is left of the input; zeroes follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u64 {
        u16::from_le_bytes([self.byte(), self.byte()]).into()
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// A channel's memory: what is shared, and what is the device's own.
struct Memory {
    layout: RawLayout,
    /// The control words, and the pages that the host reads. In lines, so that records are aligned.
    lines: Vec<[[AtomicU64; 8]; 2]>,
    pages: Vec<[[AtomicU64; 8]; 2]>,
    /// The pages that waves write, if they are staged.
    staged: Option<Vec<[[AtomicU64; 8]; 2]>>,
    block_pages: u32,
    ring: UnsafeCell<RawRingWords>,
    states: [UnsafeCell<RawStateWords>; SLOTS as usize],
    unit: u32,
}

// SAFETY: threads other than the one that made it use atomics alone.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(input: &mut Input<'_>) -> Self {
        let byte = input.byte();
        let layout = RawLayout::new(16, 128 << (byte & 1)).expect("the sizes are good");
        let lines = |words: u32| (0..words.div_ceil(16)).map(|_| Default::default()).collect();
        let unit = [8, 16, 24, 32][usize::from(byte >> 1 & 3)];
        Self {
            layout,
            lines: lines(layout.words()),
            pages: lines(layout.data_words()),
            staged: (byte & 8 != 0).then(|| lines(layout.data_words())),
            block_pages: [1, 1, 2, 4][usize::from(byte >> 4 & 3)],
            ring: Default::default(),
            states: Default::default(),
            unit,
        }
    }

    fn words(&self) -> &[AtomicU64] {
        &self.lines.as_flattened().as_flattened()[..self.layout.words() as usize]
    }

    fn pages(&self) -> &[AtomicU64] {
        self.pages.as_flattened().as_flattened()
    }

    /// The pages that waves write.
    fn data(&self) -> &[AtomicU64] {
        self.staged.as_ref().map_or(self.pages(), |staged| staged.as_flattened().as_flattened())
    }

    fn region(&self) -> RawRegion<'_> {
        let (words, pages) = (self.words().as_ptr() as u64, self.pages().as_ptr() as u64);
        // SAFETY: REGION: so many words lie there, at the begin of vectors of whole lines, and are accessed atomically only.
        unsafe { RawRegion::from_addresses(words, pages, self.layout) }
    }

    /// Copies as an engine does, within the pages.
    fn copy(&self, runs: &[CopyRun]) {
        for CopyRun { from, bytes } in runs {
            let words = (from / 8) as usize..((from + bytes) / 8) as usize;
            for (to, from) in self.pages()[words.clone()].iter().zip(&self.data()[words]) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn writer(&self, slot: u32) -> Writer<'_> {
        let params = RawParams {
            states: self.states.as_ptr() as u64,
            ring: self.ring.get() as u64,
            shared: self.words().as_ptr() as u64,
            data: self.data().as_ptr() as u64,
            free: self.words()[self.layout.free_at(0) as usize..].as_ptr() as u64,
            layout: self.layout,
        };
        // SAFETY: RAW-STATE: one thread uses writers, and there are so many states.
        unsafe { Writer::of_slot(&params, slot) }
    }

    fn state_word(&self, slot: u32, word: usize) -> Option<u64> {
        let state = self.states.get(slot as usize)?.get();
        assert!(word < size_of::<RawStateWords>() / 8);
        // SAFETY: the state has so many words, and this thread alone uses it.
        Some(unsafe { state.cast::<u64>().add(word).read() })
    }
}

/// A word that a hostile device writes.
#[derive(Clone, Copy)]
struct Garbage {
    at: u32,
    word: u64,
}

impl Garbage {
    /// Words that are nearly right find more than others do.
    fn of(input: &mut Input<'_>, layout: RawLayout) -> Self {
        let (kind, which) = (input.byte(), input.byte());
        let page = u32::from(which) % layout.pages();
        // Often one that the page may have.
        let ticket =
            if kind & 0x80 == 0 { u64::from(page) + u64::from(which & 0x30) } else { input.byte().into() };
        let at_header = layout.header_at(page);
        let bytes = |byte: u8| if byte < 0xe0 { 8 * u32::from(byte % 40) } else { byte.into() };
        let (at, word) = match kind % 12 {
            0 => (input.short() as u32 % layout.words(), input.word()),
            1 | 2 => {
                let place = Place::begin(ticket).after(bytes(input.byte()));
                (layout.commit_at(page), if kind & 16 == 0 { place.0 } else { place.closed().0 })
            }
            3 => (at_header + header::LEFT, Place::begin(ticket).after(bytes(input.byte())).closed().0),
            4 | 5 => (at_header + header::OPENED, opened(ticket, launch(input.byte().into()))),
            6 => (at_header + header::SLOT, input.byte().into()),
            7 => (at_header + header::DROPPED, input.word()),
            8 => (layout.free_at(ticket), free_entry(ticket, page)),
            9 => (RAW_GIVEN_WORD, input.short()),
            10 => (layout.commit_at(page), input.word()),
            _ => (at_header + u32::from(input.byte() % 8), input.word()),
        };
        Self { at, word }
    }

    /// Stores it, and something into a page.
    fn store(self, memory: &Memory) {
        memory.words()[self.at as usize].store(self.word, Ordering::Relaxed);
        let data = memory.data();
        data[self.at as usize % data.len()].store(self.word, Ordering::Relaxed);
    }
}

fn launch(number: u32) -> LaunchId {
    LaunchId::new(1 + number % LAUNCHES, 1)
}

struct Run<'m> {
    memory: &'m Memory,
    collector: Collector,
    /// What was found and nobody reads yet, and what readers have.
    chunks: VecDeque<Chunk>,
    lent: Vec<Chunk>,
    /// What is found of staged pages and not copied.
    copies: Option<Copies>,
    is_hostile: bool,
    /// What a hostile device has for its ring and its states, if the host asks.
    alleged: (RawRingWords, u64),
    /// Launches that run.
    runs: [bool; LAUNCHES as usize],
    next_record: u64,
    /// By slot: words that waves wrote, and those that were read.
    written: [Vec<u64>; SLOTS as usize],
    read: [Vec<u64>; SLOTS as usize],
    read_bytes: u64,
    dropped: u64,
    told_dropped: u64,
    /// By ticket: up to where chunks were found.
    found: BTreeMap<u64, u32>,
}

impl<'m> Run<'m> {
    fn new(memory: &'m Memory) -> Self {
        Self {
            memory,
            collector: Collector::new(memory.region(), SLOTS, memory.unit, memory.block_pages),
            chunks: VecDeque::new(),
            lent: Vec::new(),
            copies: memory.staged.is_some().then(|| Copies::new(memory.layout)),
            is_hostile: false,
            alleged: Default::default(),
            runs: [true; LAUNCHES as usize],
            next_record: 0,
            written: Default::default(),
            read: Default::default(),
            read_bytes: 0,
            dropped: 0,
            told_dropped: 0,
            found: BTreeMap::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let action = input.byte();
        let slot = u32::from(action >> 4) % SLOTS;
        match action & 15 {
            0..5 if !self.is_hostile => self.write(slot),
            // SAFETY: RAW-STATE: one thread.
            5 if !self.is_hostile => unsafe { self.memory.writer(slot).publish(None) },
            // SAFETY: as above.
            6 if !self.is_hostile => unsafe { self.memory.writer(slot).close(None) },
            7 => self.end(slot, input.byte()),
            8 => {
                self.collect();
                self.read(usize::MAX);
            }
            9 => {
                self.collect();
                self.read(1 + usize::from(action >> 4));
            }
            10 => self.take_back(input.byte()),
            11 => self.overwrite(action >> 4),
            12 => self.sweep(),
            13 => self.sweep_lost(),
            14 if action & 128 != 0 => self.count_dropped(),
            14 => {
                let news = if action & 16 == 0 { News::OfClosed } else { News::OfAll };
                self.collect_of(news);
                self.copy(usize::from(action >> 6 & 1), 100 << (action >> 5 & 1));
                self.collector.give_parts(self.memory.region(), action & 16 == 0);
            }
            _ => self.garble(input),
        }
    }

    /// A wave writes a record, or drops it if it finds no page.
    fn write(&mut self, slot: u32) {
        let (memory, unit) = (self.memory, self.memory.unit);
        let writer = memory.writer(slot);
        // SAFETY: RAW-STATE: one thread.
        unsafe {
            let place = writer.take(unit, 1).or_else(|| {
                writer.close(None);
                let of_wave = RawWriter { launch: launch(slot), slot, workgroup: 8, wave: 9 };
                let opening = Opening { writer: of_wave, now_ns: 1 };
                if writer.open(opening, writer.may_look()) { writer.take(unit, 1) } else { None }
            });
            match place {
                Some((at, _)) => {
                    for word in 0..unit / 8 {
                        writer.data().put_word(at + word, self.next_record);
                        self.written[slot as usize].push(self.next_record);
                        self.next_record += 1;
                    }
                }
                None => {
                    writer.count_dropped(1);
                    self.dropped += 1;
                }
            }
        }
    }

    /// A launch ends or another one begins. Waves that keep the rules are killed with theirs, in the middle of a page, and what
    /// the slot's next one finds is stored into the page's header.
    fn end(&mut self, slot: u32, number: u8) {
        if self.is_hostile {
            let runs = &mut self.runs[usize::from(number) % LAUNCHES as usize];
            *runs = !*runs;
            return;
        }
        self.runs[slot as usize] = false;
        if number & 1 != 0 {
            self.sweep();
        }
        let state = self.memory.states[slot as usize].get();
        // SAFETY: RAW-STATE: one thread.
        let state = unsafe { &mut *state };
        if let Some(page) = state.page.checked_sub(1) {
            let at = self.memory.layout.header_at(page) + header::LEFT;
            self.memory.words()[at as usize].store(state.place, Ordering::Relaxed);
            state.page = 0;
        }
        self.sweep();
        self.runs[slot as usize] = true;
    }

    fn collect(&mut self) {
        self.collect_of(News::OfAll);
        self.copy(usize::MAX, u64::MAX);
    }

    fn collect_of(&mut self, news: News) {
        let found = self.copies.as_mut().map_or(&mut self.chunks, Copies::found);
        let before = found.len();
        self.collector.collect(self.memory.region(), news, found);
        self.note(before);
    }

    /// So many batches of so many bytes are asked for and copied.
    fn copy(&mut self, batches: usize, bytes: u64) {
        let Some(copies) = &mut self.copies else { return };
        let mut runs = Vec::new();
        for _ in 0..batches {
            if copies.ask(bytes, 1 + bytes as usize % 4, &mut runs).is_none() {
                break;
            }
            self.memory.copy(&runs);
        }
        copies.end(copies.last_asked(), &mut self.chunks);
    }

    /// Notes the chunks that were found behind so many.
    fn note(&mut self, before: usize) {
        let found = self.copies.as_mut().map_or(&mut self.chunks, Copies::found);
        for chunk in found.range(before..) {
            let found = self.found.entry(chunk.ticket).or_default();
            assert_eq!(chunk.from, *found, "a page's chunks follow each other");
            *found = chunk.to;
            assert!(chunk.from <= chunk.to && chunk.to <= self.memory.layout.page_bytes());
            assert!(chunk.to.is_multiple_of(self.memory.unit) && chunk.page() < self.memory.layout.pages());
        }
    }

    /// A reader takes so many chunks, and reads them.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Some(mut chunk) = self.chunks.pop_front() else { return };
            self.collector.hand_out(&mut chunk);
            let words = self.memory.region().words_of(&chunk);
            let mut bytes = Vec::new();
            self.memory.region().append_to(&chunk, &mut bytes);
            assert!(bytes.len() == chunk.bytes() as usize && words.len() == bytes.len() / 8);
            self.read_bytes += u64::from(chunk.bytes());
            self.told_dropped = self.told_dropped.saturating_add(chunk.dropped);
            if !self.is_hostile {
                let words = words.iter().map(|word| word.load(Ordering::Relaxed));
                self.read[chunk.writer.slot as usize].extend(words);
            }
            self.lent.push(chunk);
        }
    }

    /// Readers give back what they have, or one chunk of it.
    fn take_back(&mut self, which: u8) {
        let all = which & 1 == 0;
        while !self.lent.is_empty() {
            let chunk = self.lent.swap_remove(usize::from(which) % self.lent.len());
            self.collector.take_back(self.memory.region(), &chunk);
            if !all {
                return;
            }
        }
    }

    fn overwrite(&mut self, pages: u8) {
        let counted = self.collector.counts().overwritten_bytes;
        let bytes =
            |chunks: &VecDeque<Chunk>| chunks.iter().map(|chunk| u64::from(chunk.bytes())).sum::<u64>();
        let mut overwritten = bytes(&self.chunks);
        let missing = self.collector.overwrite(self.memory.region(), pages.into(), &mut self.chunks);
        overwritten -= bytes(&self.chunks);
        if let Some(copies) = &mut self.copies {
            overwritten += bytes(copies.found());
            self.collector.overwrite(self.memory.region(), missing, copies.found());
            overwritten -= bytes(copies.found());
        }
        assert_eq!(self.collector.counts().overwritten_bytes - counted, overwritten);
    }

    fn sweep(&mut self) {
        let (memory, runs) = (self.memory, self.runs);
        let found = self.copies.as_mut().map_or(&mut self.chunks, Copies::found);
        let before = found.len();
        let is_over = |launch: LaunchId| {
            (1..=LAUNCHES).any(|number| launch == LaunchId::new(number, 1) && !runs[number as usize - 1])
        };
        let alleged = self.is_hostile.then_some(self.alleged.1);
        let word = |slot, word| if alleged.is_some() { alleged } else { memory.state_word(slot, word) };
        self.collector.sweep(memory.region(), News::OfClosed, is_over, word, found);
        self.note(before);
    }

    /// Nothing runs any more: what waves took and did not open is given out again.
    fn sweep_lost(&mut self) {
        let runs = std::mem::replace(&mut self.runs, [false; LAUNCHES as usize]);
        self.sweep();
        for slot in 0..SLOTS {
            // SAFETY: RAW-STATE: one thread. The slot's next wave finds no page.
            unsafe { (*self.memory.states[slot as usize].get()).page = 0 };
        }
        // SAFETY: as above.
        let ring = if self.is_hostile { self.alleged.0 } else { unsafe { *self.memory.ring.get() } };
        self.collector.sweep_lost(self.memory.region(), ring, |_| false);
        self.runs = runs;
    }

    fn count_dropped(&mut self) {
        let (memory, before) = (self.memory, self.collector.counts().dropped);
        let alleged = self.is_hostile.then_some(self.alleged.1);
        let word = |slot, word| if alleged.is_some() { alleged } else { memory.state_word(slot, word) };
        self.collector.count_dropped(word);
        assert!(self.collector.counts().dropped >= before);
    }

    fn garble(&mut self, input: &mut Input<'_>) {
        self.is_hostile = true;
        match input.byte() {
            0..0xd0 => Garbage::of(input, self.memory.layout).store(self.memory),
            0xd0..0xe8 => {
                self.alleged.1 = Place::begin(input.byte().into()).after(8 * u32::from(input.byte() % 40)).0
            }
            0xe8..0xf0 => self.alleged.1 = input.word(),
            0xf0..0xf8 => self.alleged.0 = RawRingWords { head: input.short(), known: input.word() },
            _ => self.alleged.0 = RawRingWords { head: input.word(), known: input.word() },
        }
    }

    /// Another thread writes garbage all the time while this one does all that a host does.
    fn race(&mut self, data: &[u8]) {
        self.is_hostile = true;
        let mut input = Input(data);
        let garbage: Vec<_> =
            std::iter::from_fn(|| (!input.0.is_empty()).then(|| Garbage::of(&mut input, self.memory.layout)))
                .collect();
        let (is_over, memory) = (AtomicBool::new(false), self.memory);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    garbage.iter().for_each(|garbage| garbage.store(memory));
                }
            });
            for look in 0..LOOKS {
                self.runs[look % LAUNCHES as usize] = look % 3 == 0;
                self.collect();
                self.read(1 + look % 5);
                self.sweep();
                self.take_back(look as u8);
                self.overwrite((look % 4) as u8);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    fn finish(mut self) {
        self.collect();
        self.read(usize::MAX);
        self.runs = [false; LAUNCHES as usize];
        self.sweep();
        self.copy(usize::MAX, u64::MAX);
        self.read(usize::MAX);
        let counts = self.collector.counts();
        assert_eq!(
            counts.bytes,
            self.read_bytes + counts.overwritten_bytes,
            "what was found is read or counted"
        );
        let most = self.found.values().map(|bytes| u64::from(*bytes)).sum::<u64>();
        assert_eq!(counts.bytes, most);
        self.take_back(0);
        self.collector.give_all_parts(self.memory.region());
        if self.is_hostile {
            // Whatever it did, what runs next has all pages, once nothing runs that could use them.
            for page in 0..self.memory.layout.pages() {
                let layout = self.memory.layout;
                for at in [layout.header_at(page) + header::OPENED, layout.commit_at(page)] {
                    self.memory.words()[at as usize].store(0, Ordering::Relaxed);
                }
            }
            self.collector.sweep_lost(
                self.memory.region(),
                RawRingWords { head: u64::MAX, known: 0 },
                |_| false,
            );
            self.collector.give_all_parts(self.memory.region());
            // What was held back goes into the ring at the next look.
            self.collect();
            assert_eq!(self.collector.free_pages(self.memory.region()), self.memory.layout.pages());
            return;
        }
        assert_eq!(counts.malformed, 0);
        self.count_dropped();
        assert_eq!(self.collector.counts().dropped, self.dropped);
        assert!(self.told_dropped <= self.dropped);
        let written: u64 = self.written.iter().map(|words| 8 * words.len() as u64).sum();
        assert_eq!(written, counts.bytes, "all that was written was found");
        for (written, read) in self.written.iter().zip(&self.read) {
            let mut rest = written.iter();
            assert!(read.iter().all(|word| rest.any(|next| next == word)), "words come in their order");
            assert!(counts.overwritten_bytes > 0 || read == written);
        }
        assert_eq!(self.collector.free_pages(self.memory.region()), self.memory.layout.pages());
    }
}
