//! Files of streams with so many pages that a thread writes them.

use hostcall_trace::{Event, Follower, Page, Reader, StreamFile, StreamTotals, Unwritten};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = 10_000;

/// Bytes that wait in memory at most, by what [`StreamFile::add_page`] promises.
const SOME_MIB: usize = (5 << 20) + PAGE_BYTES;

/// A file that has room for so many bytes, and writes nothing while it is closed.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Arc<AtomicUsize>,
    is_closed: Arc<AtomicBool>,
}

impl Disk {
    fn of(room: usize) -> Self {
        Self { bytes: Arc::default(), room: Arc::new(room.into()), is_closed: Arc::default() }
    }

    fn written(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.is_closed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut there = self.bytes.lock().unwrap();
        let count = bytes.len().min(self.room.load(Ordering::Acquire) - there.len());
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        there.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn file(disk: impl Write + Send + 'static) -> StreamFile {
    let mut file = StreamFile::new(disk).unwrap();
    assert_eq!(file.stream("words", 8, 1, "block", None).unwrap(), 0);
    file
}

fn bytes_of(sequence: u64) -> impl Iterator<Item = u8> {
    (0..PAGE_BYTES as u64).map(move |i| ((i * (sequence + 1)) >> 3) as u8)
}

fn add(file: &mut StreamFile, sequence: u64) -> Result<(), Unwritten> {
    let page = Page {
        stream: 0,
        sequence,
        offset_bytes: 0,
        is_last: true,
        launch: 7,
        slot: 5,
        workgroup: 3,
        wave: 2,
        opened_ns: 1,
        dropped_before: 0,
        overwritten_before: 0,
        bytes: Box::default(),
    };
    file.add_page(&page, PAGE_BYTES, |bytes| bytes.extend(bytes_of(sequence)))
}

/// Returns how many pages there are, which are the first ones, each whole; and the reader.
fn pages<R: Read>(input: R) -> (u64, Reader<R>) {
    let (mut reader, mut count) = (Reader::new(input).unwrap(), 0);
    for event in reader.by_ref() {
        match event.unwrap() {
            Event::Page(page) => {
                assert!(page.sequence == count && page.bytes.iter().copied().eq(bytes_of(count)));
                count += 1;
            }
            Event::Stream { .. } | Event::StreamEnded { .. } | Event::Ended(_) => {}
            event => panic!("{event:?}"),
        }
    }
    (count, reader)
}

#[test]
fn pages_come_back_in_order_wherever_the_file_is_cut() {
    let disk = Disk::of(usize::MAX);
    let mut file = file(disk.clone());
    for sequence in 0..1000 {
        add(&mut file, sequence).unwrap();
        if sequence % 150 == 149 {
            file.hand_on().unwrap();
        }
    }
    file.end_stream(0, &StreamTotals::default()).unwrap();
    file.finish().unwrap();
    let whole = disk.written();
    let (count, reader) = pages(&*whole);
    assert_eq!((count, reader.is_complete()), (1000, true));
    // In the middle of each MiB and where it begins, about which one write ends and the next one begins.
    for cut in (1 << 20..whole.len()).step_by(1 << 19).flat_map(|cut| [cut - 1, cut, cut + 9000]) {
        let Some(part) = whole.get(..cut) else { continue };
        let (count, reader) = pages(part);
        assert!(!reader.is_complete());
        assert!((cut / (PAGE_BYTES + 104)).abs_diff(count as usize) <= 1, "{count} pages of {cut} bytes");
    }
}

/// Each byte of a page is in the file, or an error has counted it, whoever is told of the error: who adds
/// pages, offers them or waits for them. Nothing comes behind a torn block, and nobody waits for ever.
#[test]
fn a_full_disk_loses_what_is_counted() {
    for room in [200_000, 1_500_000, 3_000_001, 9_000_000] {
        for offers in [false, true] {
            let disk = Disk::of(room);
            let (mut file, mut failure) = (file(disk.clone()), None);
            let mut added = 0;
            while failure.is_none() && added < 2000 {
                failure = add(&mut file, added).err();
                added += 1;
                if offers && failure.is_none() {
                    failure = file.hand_on().err();
                }
            }
            let failure = failure.or_else(|| file.flush().err()).expect("20 MB do not fit");
            assert_eq!(failure.error.kind(), io::ErrorKind::StorageFull);
            let lost = failure.bytes as usize;
            assert!(lost <= SOME_MIB, "{lost} bytes waited");
            let there = pages(&*disk.written()).0;
            assert_eq!(there as usize * PAGE_BYTES + lost, added as usize * PAGE_BYTES);
            // What comes after that is lost too, also where there is room again: it would lie behind a torn
            // block. Nothing that was told of is counted again.
            disk.room.store(usize::MAX, Ordering::Release);
            let later: u64 = (0..200).filter_map(|_| Some(add(&mut file, 0).err()?.bytes)).sum();
            let rest = file.flush().unwrap_err();
            assert_eq!(later + rest.bytes, 200 * PAGE_BYTES as u64);
            assert!(file.end_stream(0, &StreamTotals::default()).is_err() && file.finish().is_err());
            assert_eq!(disk.written().len(), room);
        }
    }
}

/// Little waits for a file that is slow, whoever offers pages does not wait, and what waits is in the file
/// in the end.
#[test]
fn a_slow_file_holds_up_who_adds_pages() {
    let disk = Disk::of(usize::MAX);
    let mut file = file(disk.clone());
    let added = Arc::<AtomicUsize>::default();
    disk.is_closed.store(true, Ordering::Release);
    let counted = added.clone();
    let thread = std::thread::spawn(move || {
        for sequence in 0..2000 {
            // More than a MiB is there, and a thread writes.
            if (110..120).contains(&sequence) {
                file.hand_on().unwrap();
            }
            add(&mut file, sequence).unwrap();
            counted.fetch_add(PAGE_BYTES, Ordering::AcqRel);
        }
        // Without an end, as when a program drops it.
    });
    let began = Instant::now();
    let (mut before, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        let now = added.load(Ordering::Acquire);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        assert!(began.elapsed() < Duration::from_secs(60) && now <= SOME_MIB, "{now} bytes wait");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(before > 2 << 20, "{before} bytes wait");
    disk.is_closed.store(false, Ordering::Release);
    thread.join().unwrap();
    // Those that were gathered last were not handed on.
    let written = disk.written();
    let (count, reader) = pages(&*written);
    assert!((1800..2000).contains(&count) && !reader.is_complete(), "{count}");
}

/// Another process reads what was handed on while the file grows.
#[test]
fn who_follows_sees_what_was_handed_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut file = file(std::fs::File::create(&path).unwrap());
    let mut follower = Follower::new(Reader::new(std::fs::File::open(&path).unwrap()).unwrap());
    let mut seen = 0;
    let mut see = |most: Duration, until: u64| {
        while seen < until {
            match follower.next_within(most).unwrap() {
                Some(Event::Page(page)) => {
                    assert!(page.sequence == seen && page.bytes.iter().copied().eq(bytes_of(seen)));
                    seen += 1;
                }
                Some(Event::Stream { .. }) => {}
                None => break,
                event => panic!("{event:?}"),
            }
        }
        seen
    };
    for sequence in 0..1000 {
        add(&mut file, sequence).unwrap();
        if sequence % 7 == 0 {
            see(Duration::ZERO, sequence);
        }
    }
    let began = Instant::now();
    loop {
        file.hand_on().unwrap();
        if see(Duration::from_millis(1), 1000) == 1000 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "what was handed on was not written");
    }
    file.finish().unwrap();
}

/// Panics when it gets more than the beginning.
struct Panics(usize);

impl Write for Panics {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(bytes.len() < self.0, "no more than that");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text of a panic.
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err().expect("the writer panics");
    panic
        .downcast_ref::<&str>()
        .map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), |text| text.to_string())
}

#[test]
fn a_writer_that_panics_is_told_of() {
    // Little, which is written at once; then nothing follows it.
    let mut little = file(Panics(1 << 10));
    add(&mut little, 0).unwrap();
    assert_eq!(panic_of(|| little.flush()), "no more than that");
    assert!(little.hand_on().is_err());
    // Much, where a thread writes.
    let mut much = file(Panics(1 << 19));
    let more = |file: &mut StreamFile| (0..2000).for_each(|sequence| add(file, sequence).unwrap());
    assert_eq!(panic_of(|| more(&mut much)), "no more than that");
    assert_eq!(panic_of(|| much.flush()), "the file's writer has panicked");
}
