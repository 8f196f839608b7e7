//! Threads of the host as waves, and the host's side of the channel without a device.

use crate::waves::{HOME_SLOTS, Memory, Work};
use hostcall_abi::raw::{ForeignRawParams, RawLayout};
use hostcall_channel::raw::{Chunk, Collector, News};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_reader_gets_what_threads_write_byte_for_byte() {
    const WAVES_OF_ALL: u32 = 6;
    for (work, unit) in [(Work::Records, 24), (Work::Texts, 8)] {
        let memory = Memory::new(RawLayout::new(16, 256).unwrap());
        let stream = memory.stream(true);
        let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, unit, 1);
        let mut found = BTreeMap::<(u32, u32), Vec<u8>>::new();
        let mut chunks = VecDeque::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WAVES_OF_ALL)
                .map(|wave| scope.spawn(move || work.run(&stream, wave % 2, wave, 1000, true)))
                .collect();
            loop {
                let is_last = threads.iter().all(|thread| thread.is_finished());
                collector.collect(memory.region(), News::OfAll, &mut chunks);
                while let Some(chunk) = chunks.pop_front() {
                    assert_eq!((chunk.writer.launch, chunk.writer.slot), (stream.launch, HOME_SLOTS));
                    assert_eq!(chunk.opened_ns, 4711);
                    let bytes = found.entry((chunk.writer.workgroup, chunk.writer.wave)).or_default();
                    memory.region().append_to(&chunk, bytes);
                    collector.take_back(memory.region(), &chunk);
                }
                if is_last {
                    break;
                }
            }
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 1000));
        });
        let counts = collector.counts();
        assert_eq!((counts.dropped, counts.swept, counts.malformed), (0, 0, 0));
        for wave in 0..WAVES_OF_ALL {
            assert!(found[&(wave % 2, wave)] == work.expected(wave % 2, wave, 1000), "{work:?} {wave}");
        }
        // Nothing runs, and nothing was left.
        assert!(!memory.sweep(&mut collector, &mut chunks));
    }
}

#[test]
fn what_finds_no_page_is_dropped_and_told_of() {
    let memory = Memory::new(RawLayout::new(16, 128).unwrap());
    let stream = memory.stream(false);
    let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24, 1);
    let mut chunks = VecDeque::new();
    // Five records a page.
    assert_eq!(Work::Records.run(&stream, 0, 1, 100, true), 80);
    collector.collect(memory.region(), News::OfAll, &mut chunks);
    assert_eq!(chunks.iter().map(Chunk::bytes).sum::<u32>(), 80 * 24);
    collector.count_dropped(|slot, word| memory.state_word(slot, word));
    assert_eq!(collector.counts().dropped, 20);
    // Another one drops as well, until pages come back.
    assert_eq!(Work::Records.run(&stream, 0, 2, 3, true), 0);
    for chunk in chunks.drain(..) {
        collector.take_back(memory.region(), &chunk);
    }
    assert_eq!(Work::Records.run(&stream, 0, 3, 1, true), 1);
    collector.collect(memory.region(), News::OfAll, &mut chunks);
    assert_eq!(chunks.iter().map(|chunk| chunk.dropped).collect::<Vec<_>>(), [3]);
    assert_eq!(collector.counts().dropped, 23);
}

#[test]
fn records_that_fit_no_page_are_dropped_and_open_none() {
    let memory = Memory::new(RawLayout::new(16, 128).unwrap());
    let stream = memory.stream(false);
    let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, 8, 1);
    let mut chunks = VecDeque::new();
    assert_eq!(Work::Misfits.run(&stream, 0, 1, 100, true), 0);
    collector.collect(memory.region(), News::OfAll, &mut chunks);
    assert!(chunks.is_empty());
    collector.count_dropped(|slot, word| memory.state_word(slot, word));
    assert_eq!((collector.counts().dropped, collector.counts().pages), (100, 0));
}

#[test]
fn who_waits_where_nobody_reads_any_more_drops() {
    let memory = Memory::new(RawLayout::new(16, 128).unwrap());
    let stream = memory.stream(true);
    let collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24, 1);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| Work::Records.run(&stream, 0, 1, 100, true));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!thread.is_finished());
        memory.region().close();
        assert_eq!(thread.join().unwrap(), 80);
    });
    // The same when the launch is to end: it has the sequence 5.
    let memory = Memory::new(RawLayout::new(16, 128).unwrap());
    let stopped = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
    let stop_at = stopped.as_ptr() as u64;
    let stream = ForeignRawParams { stop_at, sequence: 5, ..memory.stream(true) };
    drop(collector);
    let _collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24, 1);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| Work::Records.run(&stream, 0, 1, 100, true));
        for (at, value) in [(0, 6), (1, 5)] {
            std::thread::sleep(Duration::from_millis(20));
            assert!(!thread.is_finished());
            stopped[at].store(value, Ordering::Relaxed);
        }
        assert_eq!(thread.join().unwrap(), 80);
    });
}

#[test]
fn a_page_that_was_left_open_is_closed_with_what_was_told_of() {
    let memory = Memory::new(RawLayout::new(16, 128).unwrap());
    let stream = memory.stream(true);
    let mut collector = Collector::new(memory.region(), HOME_SLOTS + 1, 24, 1);
    assert_eq!(Work::Records.run(&stream, 0, 1, 7, false), 7);
    let mut chunks = VecDeque::new();
    assert!(memory.sweep(&mut collector, &mut chunks));
    assert_eq!(chunks.iter().map(Chunk::bytes).sum::<u32>(), 7 * 24);
    assert_eq!((collector.counts().pages, collector.counts().swept), (2, 1));
}
