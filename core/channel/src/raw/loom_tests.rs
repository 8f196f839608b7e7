//! Raw channels under loom: see `crate::loom_tests`.

use super::{AtEnd, Collector, Copies, News, Opening, RawRegion, RawRing, RawState, Run, Writer};
use crate::primitive::{AtomicU64, Ordering, fence};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{LEAST_RAW_PAGE_BYTES, LEAST_RAW_PAGES, RawLayout, RawWriter};
use loom::sync::Mutex;
use loom::thread;
use std::collections::VecDeque;
use std::sync::Arc;

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 20_000;
    builder.check(run);
}

struct Channel {
    layout: RawLayout,
    words: Vec<AtomicU64>,
    pages: Vec<AtomicU64>,
    /// The device's pages, of staged ones.
    staged: Option<Vec<AtomicU64>>,
    /// The device's copy of the ring of free pages, where pages are staged.
    free: Option<Vec<AtomicU64>>,
    ring: RawRing,
    states: [RawState; 2],
}

impl Channel {
    fn new() -> (Arc<Self>, Collector) {
        Self::of(false)
    }

    fn of(is_staged: bool) -> (Arc<Self>, Collector) {
        let layout = RawLayout::new(LEAST_RAW_PAGES, LEAST_RAW_PAGE_BYTES).unwrap();
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let staged = is_staged.then(|| words(layout.data_words()));
        let free = is_staged.then(|| words(layout.pages()));
        let (words, pages) = (words(layout.words()), words(layout.data_words()));
        let states = std::array::from_fn(|_| RawState::new());
        let channel = Arc::new(Self { layout, words, pages, staged, free, ring: RawRing::new(), states });
        let collector = Collector::new(channel.region(), 2, 8, 1);
        channel.tell();
        (channel, collector)
    }

    fn region(&self) -> RawRegion<'_> {
        RawRegion::of([&self.words, &self.pages], self.layout)
    }

    fn writer(&self, slot: usize) -> Writer<'_> {
        let free = self.free.as_deref().unwrap_or(self.free_words());
        let words = [&self.words, self.staged.as_ref().unwrap_or(&self.pages), free];
        let words = words.map(crate::region::Words::of);
        Writer::of_state(words, self.layout, &self.ring, &self.states[slot])
    }

    fn free_words(&self) -> &[AtomicU64] {
        &self.words[self.layout.free_at(0) as usize..][..self.layout.pages() as usize]
    }

    /// Copies the ring of free pages to the device, as a queue does that the host has asked for it.
    fn tell(&self) {
        fence(Ordering::Release);
        for (to, from) in self.free.iter().flatten().zip(self.free_words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Copies as an engine does: the words are ordered by nothing but what asks for the copy, and what says that it has ended.
    fn copy(&self, runs: &[Run]) {
        let staged = self.staged.as_ref().expect("staged pages");
        for Run { from, bytes } in runs {
            for at in (from / 8) as usize..((from + bytes) / 8) as usize {
                self.pages[at].store(staged[at].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Opens a page, if one is free.
    fn try_open(&self, slot: u32) -> bool {
        let launch = LaunchId::new(slot, 1);
        let writer = RawWriter { launch, slot, ..RawWriter::default() };
        // SAFETY: RAW-STATE, or loom reports a race.
        unsafe { self.writer(slot as usize).open(Opening { writer, now_ns: 7 }, true) }
    }

    /// Opens a page, which one is free for.
    fn open(&self, slot: u32) {
        while !self.try_open(slot) {
            thread::yield_now();
        }
    }

    /// Writes a word to the open page.
    fn write(&self, slot: usize, word: u64) {
        let writer = self.writer(slot);
        // SAFETY: as above.
        let (at, count) = unsafe { writer.take(8, 1) }.expect("the page has room");
        assert_eq!(count, 1);
        // SAFETY: RAW-PAGE: the writer gave the word.
        unsafe { writer.data().put_word(at, word) };
    }

    fn word(&self, page_word: u32, chunk: &super::Chunk) -> u64 {
        let at = self.layout.data_at(chunk.page()) + chunk.from / 8 + page_word;
        self.pages[at as usize].load(Ordering::Relaxed)
    }
}

/// What the host was told of is there, in the order of the writer, over two pages and a half-filled one.
#[test]
fn what_was_told_is_there() {
    model(2, || {
        let (channel, mut collector) = Channel::new();
        let wave = {
            let channel = channel.clone();
            thread::spawn(move || {
                let writer = channel.writer(0);
                channel.open(0);
                channel.write(0, 1);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { writer.publish(None) };
                channel.write(0, 2);
                // SAFETY: as above.
                unsafe { writer.close(None) };
                channel.open(0);
                channel.write(0, 3);
                // SAFETY: as above.
                unsafe { writer.close(None) };
            })
        };
        let (mut next, mut chunks) = (1, VecDeque::new());
        while next <= 3 {
            if !collector.collect(channel.region(), News::OfAll, &mut chunks) {
                thread::yield_now();
            }
            for chunk in chunks.drain(..) {
                assert_eq!((chunk.writer.launch, chunk.opened_ns), (LaunchId::new(0, 1), 7));
                for word in 0..chunk.bytes() / 8 {
                    assert_eq!(channel.word(word, &chunk), next);
                    next += 1;
                }
                collector.take_back(channel.region(), &chunk);
            }
        }
        wave.join().unwrap();
        assert_eq!((collector.counts().pages, collector.counts().bytes), (2, 24));
    });
}

/// Two waves never take one page, and each that looks finds one at once: another tells of it at the same time.
#[test]
fn two_waves_take_two_pages() {
    model(3, || {
        let (channel, mut collector) = Channel::new();
        let wave = |slot: usize| {
            let channel = channel.clone();
            move || {
                assert!(channel.try_open(slot as u32), "pages are free");
                channel.write(slot, 10 + slot as u64);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { channel.writer(slot).close(None) };
            }
        };
        let other = thread::spawn(wave(1));
        wave(0)();
        other.join().unwrap();
        let mut chunks = VecDeque::new();
        collector.collect(channel.region(), News::OfAll, &mut chunks);
        let seen: Vec<_> = chunks.iter().map(|chunk| channel.word(0, chunk)).collect();
        assert!(seen == [10, 11] || seen == [11, 10], "{seen:?}");
    });
}

/// A page is read before whoever gets it next writes it.
#[test]
fn a_page_is_read_before_it_is_written_again() {
    model(2, || {
        let (channel, mut collector) = Channel::new();
        for word in 0..u64::from(LEAST_RAW_PAGES) {
            channel.open(0);
            channel.write(0, word);
            // SAFETY: RAW-STATE: one thread so far.
            unsafe { channel.writer(0).close(None) };
        }
        let mut chunks = VecDeque::new();
        collector.collect(channel.region(), News::OfAll, &mut chunks);
        let collector = Arc::new(Mutex::new(collector));
        let wave = {
            let channel = channel.clone();
            thread::spawn(move || {
                channel.open(0);
                channel.write(0, 100);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { channel.writer(0).close(None) };
            })
        };
        let chunk = chunks.pop_front().unwrap();
        assert_eq!(channel.word(0, &chunk), 0);
        collector.lock().unwrap().take_back(channel.region(), &chunk);
        wave.join().unwrap();
        collector.lock().unwrap().collect(channel.region(), News::OfAll, &mut chunks);
        assert_eq!(channel.word(0, chunks.back().unwrap()), 100);
    });
}

/// A page that a killed wave has left open is closed by the sweep, with what the state says, while the slot's next wave begins.
#[test]
fn what_was_left_open_is_swept() {
    model(2, || {
        let (channel, mut collector) = Channel::new();
        // SAFETY: RAW-STATE: one thread so far.
        unsafe { channel.writer(0).begin_unlinked(LaunchId::new(0, 1).to_bits(), AtEnd::Closes) };
        channel.open(0);
        channel.write(0, 5);
        let next = {
            let channel = channel.clone();
            thread::spawn(move || {
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { channel.writer(0).begin_unlinked(LaunchId::new(1, 1).to_bits(), AtEnd::Closes) };
                channel.open(0);
                channel.write(0, 6);
                // SAFETY: as above.
                unsafe { channel.writer(0).close(None) };
            })
        };
        let mut chunks = VecDeque::new();
        let is_over = |launch: LaunchId| launch == LaunchId::new(0, 1);
        // Without the state's word, which the next wave may have: by the word that it leaves.
        while !chunks.iter().any(|chunk: &super::Chunk| chunk.ticket == 1 && chunk.is_last) {
            collector.collect(channel.region(), News::OfAll, &mut chunks);
            thread::yield_now();
        }
        next.join().unwrap();
        collector.sweep(channel.region(), News::OfAll, is_over, |_, _| None, &mut chunks);
        let words: Vec<_> = chunks.iter().map(|chunk| channel.word(0, chunk)).collect();
        assert_eq!(words, [6, 5]);
        assert_eq!(collector.counts().swept, 1);
    });
}

/// A page is not swept while a wave takes it, though the header has words of the page's last use, whose launch has ended.
#[test]
fn a_page_that_is_taken_is_not_swept() {
    model(2, || {
        let (channel, mut collector) = Channel::new();
        let mut chunks = VecDeque::new();
        for word in 0..u64::from(LEAST_RAW_PAGES) {
            channel.open(0);
            channel.write(0, word);
            // SAFETY: RAW-STATE: one thread so far.
            unsafe { channel.writer(0).close(None) };
        }
        collector.collect(channel.region(), News::OfAll, &mut chunks);
        chunks.drain(..).for_each(|chunk| collector.take_back(channel.region(), &chunk));
        let wave = {
            let channel = channel.clone();
            thread::spawn(move || {
                channel.open(1);
                channel.write(1, 9);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { channel.writer(1).close(None) };
            })
        };
        let is_over = |launch: LaunchId| launch == LaunchId::new(0, 1);
        collector.sweep(channel.region(), News::OfAll, is_over, |_, _| None, &mut chunks);
        wave.join().unwrap();
        collector.collect(channel.region(), News::OfAll, &mut chunks);
        let words: Vec<_> = chunks.iter().map(|chunk| channel.word(0, chunk)).collect();
        assert_eq!((words, collector.counts().swept), (vec![9], 0));
    });
}

/// What a wave told of a staged page is copied, by an engine that the host asks and that tells of the end, before readers get
/// it.
#[test]
fn what_was_told_is_copied() {
    model(2, || {
        let (channel, mut collector) = Channel::of(true);
        let wave = {
            let channel = channel.clone();
            thread::spawn(move || {
                let writer = channel.writer(0);
                channel.open(0);
                channel.write(0, 1);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { writer.publish(None) };
                channel.write(0, 2);
                // SAFETY: as above.
                unsafe { writer.close(None) };
            })
        };
        let mut copies = Copies::new(channel.layout);
        let (mut runs, mut chunks, mut next) = (Vec::new(), VecDeque::new(), 1);
        while next <= 2 {
            if !collector.collect(channel.region(), News::OfAll, copies.found()) {
                thread::yield_now();
                continue;
            }
            let batch = copies.ask(1 << 20, 60, &mut runs).unwrap();
            let ended = Arc::new(AtomicU64::new(0));
            let engine = {
                let (channel, runs, ended) = (channel.clone(), runs.clone(), ended.clone());
                thread::spawn(move || {
                    channel.copy(&runs);
                    ended.store(batch, Ordering::Release);
                })
            };
            while !copies.end(ended.load(Ordering::Acquire), &mut chunks) {
                thread::yield_now();
            }
            for chunk in chunks.drain(..) {
                for word in 0..chunk.bytes() / 8 {
                    assert_eq!(channel.word(word, &chunk), next);
                    next += 1;
                }
                collector.take_back(channel.region(), &chunk);
            }
            engine.join().unwrap();
        }
        wave.join().unwrap();
    });
}

/// A staged page is copied before whoever gets it next writes it.
#[test]
fn a_page_is_copied_before_it_is_written_again() {
    model(2, || {
        let (channel, mut collector) = Channel::of(true);
        for word in 0..u64::from(LEAST_RAW_PAGES) {
            channel.open(0);
            channel.write(0, word);
            // SAFETY: RAW-STATE: one thread so far.
            unsafe { channel.writer(0).close(None) };
        }
        let mut copies = Copies::new(channel.layout);
        let (mut runs, mut chunks) = (Vec::new(), VecDeque::new());
        collector.collect(channel.region(), News::OfClosed, copies.found());
        let wave = {
            let channel = channel.clone();
            thread::spawn(move || {
                channel.open(0);
                channel.write(0, 100);
                // SAFETY: RAW-STATE, or loom reports a race.
                unsafe { channel.writer(0).close(None) };
            })
        };
        // One page.
        let batch = copies.ask(8, 1, &mut runs).unwrap();
        let ended = Arc::new(AtomicU64::new(0));
        let engine = {
            let (channel, ended) = (channel.clone(), ended.clone());
            thread::spawn(move || {
                channel.copy(&runs);
                ended.store(batch, Ordering::Release);
            })
        };
        while !copies.end(ended.load(Ordering::Acquire), &mut chunks) {
            thread::yield_now();
        }
        let chunk = chunks.pop_front().unwrap();
        collector.take_back(channel.region(), &chunk);
        channel.tell();
        wave.join().unwrap();
        engine.join().unwrap();
        assert_eq!(channel.word(0, &chunk), 0);
    });
}
