//! Pages whose records say by themselves that they are there, as kernels of others write them
//! (`bindings/c/include/hostcall_device.h`): in any order, since nothing orders their stores.

use super::{Chunk, Collector, News, RawRegion};
use crate::primitive::{AtomicU64, Ordering};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::raw::{LEAST_RAW_PAGES, Place, RawLayout, free_page, header, opened};
use hostcall_abi::trace::{MOST_RECORD_BYTES, OF_OTHERS, PointHead, PointKind};
use std::collections::VecDeque;

/// Words of a record with one value.
const RECORD: u32 = 4;

/// A page that a place has open.
#[derive(Clone, Copy)]
struct Open {
    page: u32,
    /// Words that were given out.
    taken: u32,
}

struct Others {
    layout: RawLayout,
    words: Vec<AtomicU64>,
    pages: Vec<AtomicU64>,
}

impl Others {
    /// Pages of three records of 32 bytes.
    fn new() -> (Self, Collector) {
        let layout = RawLayout::new(LEAST_RAW_PAGES, 128).unwrap();
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let others = Self { layout, words: words(layout.words()), pages: words(layout.data_words()) };
        let collector = Collector::new(others.region(), 1, 16, 1).of_points();
        (others, collector)
    }

    fn region(&self) -> RawRegion<'_> {
        RawRegion::of([&self.words, &self.pages], self.layout)
    }

    /// Opens the page at this position of the ring for a place, if the host has given it.
    fn open(&self, ticket: u64, order: u32) -> Option<Open> {
        let entry = self.words[self.layout.free_at(ticket) as usize].load(Ordering::Acquire);
        let page = free_page(entry, ticket)?;
        let header = (self.layout.header_at(page) + header::OPENED) as usize;
        self.words[header].store(opened(ticket, LaunchId::NONE), Ordering::Relaxed);
        let place = Place::begin(ticket).0 | Place::BY_RECORDS | u64::from(order);
        self.words[self.layout.commit_at(page) as usize].store(place, Ordering::Release);
        Some(Open { page, taken: 0 })
    }

    /// The words of a record at the next place of a page, if that has room.
    fn record(&self, open: &mut Open, value: u64) -> Option<[(usize, u64); RECORD as usize]> {
        if 8 * open.taken + MOST_RECORD_BYTES > self.layout.page_bytes() {
            return None;
        }
        let at = (self.layout.data_at(open.page) + open.taken) as usize;
        open.taken += RECORD;
        let head = PointHead { kind: PointKind::Counter, point: 1, words: 1, lanes: 1, first_lane: 0 };
        Some([(at, 1), (at + 1, head.to_word() | OF_OTHERS), (at + 2, 1), (at + 3, value)])
    }

    fn store(&self, (at, word): (usize, u64)) {
        self.pages[at].store(word, Ordering::Relaxed);
    }

    fn store_all(&self, words: [(usize, u64); RECORD as usize]) {
        words.into_iter().for_each(|word| self.store(word));
    }

    /// The values of a chunk's records.
    fn values(&self, chunk: &Chunk) -> impl Iterator<Item = u64> {
        let from = self.layout.data_at(chunk.page()) + chunk.from / 8;
        let records = from..self.layout.data_at(chunk.page()) + chunk.to / 8;
        records.step_by(RECORD as usize).map(|at| self.pages[at as usize + 3].load(Ordering::Relaxed))
    }
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use crate::raw::host::MOST_HELD_UP;
    use proptest::prelude::*;

    /// Places whose waves write records, words of which come in any order, and a reader.
    fn exchange(steps: &[(u8, u8)]) -> Result<(), TestCaseError> {
        const PLACES: u32 = 3;
        let (others, mut collector) = Others::new();
        let (mut ticket, mut pending, mut chunks) = (0, Vec::new(), VecDeque::new());
        let mut open = [None; PLACES as usize];
        let mut written = [const { Vec::new() }; PLACES as usize];
        let mut read = [const { Vec::new() }; PLACES as usize];
        let mut take = |collector: &mut Collector, chunks: &mut VecDeque<Chunk>| {
            while collector.collect(others.region(), News::OfAll, chunks) {
                for chunk in chunks.drain(..) {
                    for value in others.values(&chunk) {
                        read[value as usize % PLACES as usize].push(value);
                    }
                    collector.take_back(others.region(), &chunk);
                }
            }
        };
        for (step, (what, number)) in (1..).zip(steps) {
            let place = u32::from(*number) % PLACES;
            let value = step * u64::from(PLACES) + u64::from(place);
            match what % 4 {
                0 | 1 => {
                    let own = &mut open[place as usize];
                    let is_full = own.is_none_or(|own: Open| 8 * own.taken + MOST_RECORD_BYTES > 128);
                    if is_full && let Some(new) = others.open(ticket, place) {
                        (*own, ticket) = (Some(new), ticket + 1);
                    }
                    if let Some(words) = own.as_mut().and_then(|own| others.record(own, value)) {
                        written[place as usize].push(value);
                        pending.extend(words);
                    }
                }
                2 => {
                    for _ in 0..number % 16 {
                        if !pending.is_empty() {
                            let at = usize::from(*number) * 7 % pending.len();
                            others.store(pending.swap_remove(at));
                        }
                    }
                }
                _ => take(&mut collector, &mut chunks),
            }
        }
        pending.drain(..).for_each(|word| others.store(word));
        take(&mut collector, &mut chunks);
        prop_assert_eq!(read, written);
        prop_assert_eq!((collector.counts().dropped, collector.counts().malformed), (0, 0));
        prop_assert_eq!(collector.behind_gaps(others.region()), 0);
        Ok(())
    }

    proptest! {
        #[test]
        fn records_come_once_and_in_order(steps in proptest::collection::vec(any::<(u8, u8)>(), 0..400)) {
            exchange(&steps)?;
        }
    }

    /// A wave was killed after it had taken room: what is behind the gap is counted, and the place goes on. Nobody gets the page again
    /// before the record has come, since it still may.
    #[test]
    fn a_gap_holds_up_a_place_for_a_while() {
        let (others, mut collector) = Others::new();
        let region = others.region();
        let mut chunks = VecDeque::new();
        let mut first = others.open(0, 2).unwrap();
        let mut next_value = 10;
        let mut record = |open: &mut Open| {
            next_value += 1;
            others.record(open, next_value).unwrap()
        };
        others.store_all(record(&mut first));
        let missing = record(&mut first);
        others.store_all(record(&mut first));
        let mut second = others.open(1, 2).unwrap();
        others.store_all(record(&mut second));
        // However many wait, it is held up for as long.
        let third = others.open(3, 2).unwrap();
        others.open(4, 2).unwrap();
        // Another place does not wait for it.
        let mut other = others.open(2, 1).unwrap();
        others.store_all(record(&mut other));
        assert!(collector.collect(region, News::OfAll, &mut chunks));
        let seen = |chunks: &mut VecDeque<Chunk>, collector: &mut Collector| {
            let seen = |chunk: Chunk| {
                let values: Vec<_> = others.values(&chunk).collect();
                collector.take_back(region, &chunk);
                (values, chunk.dropped, chunk.is_last)
            };
            chunks.drain(..).map(seen).collect::<Vec<_>>()
        };
        assert_eq!(seen(&mut chunks, &mut collector), [(vec![11], 0, false), (vec![15], 0, false)]);
        assert_eq!(collector.behind_gaps(region), 2);
        let looks = (0..).take_while(|_| !collector.collect(region, News::OfAll, &mut chunks)).count();
        assert!((MOST_HELD_UP as usize / 2..=MOST_HELD_UP as usize).contains(&looks), "{looks} looks");
        assert!(collector.collect(region, News::OfAll, &mut chunks) || chunks.len() == 2);
        assert_eq!(seen(&mut chunks, &mut collector), [(vec![], 2, true), (vec![14], 0, false)]);
        assert_eq!((collector.counts().dropped, collector.behind_gaps(region)), (2, 0));
        assert_eq!(collector.given(), u64::from(LEAST_RAW_PAGES));
        others.store_all(missing);
        collector.collect(region, News::OfAll, &mut chunks);
        assert_eq!((collector.given(), chunks.len()), (u64::from(LEAST_RAW_PAGES) + 1, 0));
        // A page that is full comes back, as zeros.
        others.store_all(record(&mut second));
        others.store_all(record(&mut second));
        while collector.collect(region, News::OfAll, &mut chunks) {}
        seen(&mut chunks, &mut collector);
        assert_eq!(collector.given(), u64::from(LEAST_RAW_PAGES) + 2);
        assert!(collector.counts().dropped == 2 && third.taken == 0);
        let again = others.layout.data_at(second.page) as usize;
        assert!(others.pages[again..again + 16].iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    /// What is no record, and an order that there is not, are believed as far as they go.
    #[test]
    fn garbage_ends_a_page() {
        let (others, mut collector) = Others::new();
        let mut chunks = VecDeque::new();
        let open = others.open(0, 0).unwrap();
        others.store((others.layout.data_at(open.page) as usize, 5));
        others.store((others.layout.data_at(open.page) as usize + 1, u64::MAX));
        others.open(1, u32::MAX).unwrap();
        while collector.collect(others.region(), News::OfAll, &mut chunks) {}
        let chunk = chunks.pop_front().unwrap();
        assert_eq!((chunk.bytes(), chunk.is_last, chunks.len()), (128, true, 0));
        assert_eq!(collector.counts().malformed, 1);
    }
}

#[cfg(loom)]
mod under_loom {
    use super::*;

    /// The host sees records whole and in their order over two pages, whichever of their last words comes first.
    #[test]
    fn records_are_whole_and_in_order() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(|| {
            let (others, mut collector) = Others::new();
            let mut first = others.open(0, 0).unwrap();
            let mut last_words = Vec::new();
            // Of the last one in the page, and of the one in the next, which is the ring's.
            for (value, page) in [(1, 0), (2, 0), (3, 0), (4, 1)] {
                let page = if page == 0 { &mut first } else { &mut Open { page, taken: 0 } };
                let words = others.record(page, value).unwrap();
                let now = if value < 3 { 4 } else { 3 };
                words[..now].iter().for_each(|word| others.store(*word));
                last_words.extend(&words[now..]);
            }
            let others = std::sync::Arc::new(others);
            let wave = {
                let others = others.clone();
                loom::thread::spawn(move || {
                    others.store(last_words[0]);
                    assert_eq!(others.open(1, 0).unwrap().page, 1);
                    others.store(last_words[1]);
                })
            };
            let (mut seen, mut chunks) = (Vec::new(), VecDeque::new());
            while seen.len() < 4 {
                if !collector.collect(others.region(), News::OfAll, &mut chunks) {
                    loom::thread::yield_now();
                }
                for chunk in chunks.drain(..) {
                    seen.extend(others.values(&chunk));
                    collector.take_back(others.region(), &chunk);
                }
            }
            wave.join().unwrap();
            assert_eq!(seen, [1, 2, 3, 4]);
        });
    }
}
