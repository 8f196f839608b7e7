//! Files of streams: what comes back, wherever they are cut or damaged.

use hostcall_trace::{Event, Page, Reader, StreamFile, StreamTotals};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn page(sequence: u64, bytes: usize) -> Page {
    Page {
        stream: 0,
        sequence,
        offset_bytes: 16,
        is_last: true,
        launch: 7,
        slot: 5,
        workgroup: 3,
        wave: 2,
        opened_ns: 123_456,
        dropped_before: 4 * sequence,
        overwritten_before: sequence,
        bytes: (0..bytes).map(|i| (i as u64 + sequence) as u8).collect(),
    }
}

fn written(pages: &[Page]) -> Vec<u8> {
    let file = File::default();
    let mut streams = StreamFile::new(file.clone()).unwrap();
    assert_eq!(streams.stream("accesses", 16, 99, "block", None).unwrap(), 0);
    pages.iter().for_each(|page| streams.page(page).unwrap());
    streams.end_stream(0, &StreamTotals { pages: 3, ..StreamTotals::default() }).unwrap();
    streams.finish().unwrap();
    file.0.lock().unwrap().clone()
}

fn read(bytes: &[u8]) -> (Vec<Event>, bool) {
    let mut reader = Reader::new(bytes).unwrap();
    let events = reader.by_ref().map(Result::unwrap).collect();
    (events, reader.is_complete())
}

#[test]
fn pages_come_back() {
    let pages = [page(0, 64), page(1, 0), page(2, 2_500_000)];
    let (events, is_complete) = read(&written(&pages));
    assert!(is_complete);
    assert!(matches!(&events[0], Event::Stream { stream: 0, record_bytes: 16, schema: 99, name, policy, .. }
        if &**name == "accesses" && &**policy == "block"));
    assert_eq!(events[1], Event::Page(pages[0].clone()));
    assert_eq!(events[2], Event::Page(pages[1].clone()));
    // A large one comes in parts, of which the first says what was lost.
    let mut bytes = Vec::new();
    for (i, event) in events[3..6].iter().enumerate() {
        let Event::Page(part) = event else { panic!("{event:?}") };
        assert_eq!(part.offset_bytes as usize, 16 + bytes.len());
        assert_eq!((part.is_last, part.dropped_before), (i == 2, if i == 0 { 8 } else { 0 }));
        bytes.extend_from_slice(&part.bytes);
    }
    assert_eq!(*bytes, *pages[2].bytes);
    assert!(matches!(events[6], Event::StreamEnded { stream: 0, totals: StreamTotals { pages: 3, .. } }));
    assert!(matches!(events[7], Event::Ended(_)));
}

#[test]
fn a_cut_file_has_what_is_before_the_cut() {
    let pages = [page(0, 8), page(1, 24), page(2, 40)];
    let whole = written(&pages);
    let mut before = 0;
    for cut in 0..whole.len() {
        let Ok(mut reader) = Reader::new(&whole[..cut]) else { continue };
        let pages_there = reader
            .by_ref()
            .filter(|event| matches!(event, Ok(Event::Page(page)) if pages.contains(page)))
            .count();
        assert!(pages_there >= before && !reader.is_complete());
        before = pages_there;
    }
    assert_eq!(before, 3);
}

/// Behind a damaged block the others are found.
#[test]
fn damage_costs_a_page() {
    let pages = [page(0, 8), page(1, 24), page(2, 40)];
    let mut bytes = written(&pages);
    let at = bytes.windows(24).position(|window| *window == *pages[1].bytes).unwrap();
    bytes[at] ^= 1;
    let (events, is_complete) = read(&bytes);
    let there: Vec<_> = events
        .iter()
        .filter_map(|event| if let Event::Page(page) = event { Some(page.sequence) } else { None })
        .collect();
    assert_eq!((there, is_complete), (vec![0, 2], true));
    assert!(events.iter().any(|event| matches!(event, Event::Damaged(_))));
    assert!(events.iter().any(|event| matches!(event, Event::Missing(1))));
}
