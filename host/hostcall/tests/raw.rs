//! Raw channels as their users have them: recordings, several readers, and what a channel keeps.

use hostcall::raw::{Block, DropNewest, OverwriteOldest, Placement, RawChannel, RawStream};
use hostcall::server::WaitsFor;
use hostcall::trace::{Event, Reader, StreamFile, Tracer};
use hostcall::{Device, Grid, Lane, LaunchKernel, kernel};
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

#[kernel]
fn count(lane: &Lane, count: u32, out: RawStream<'_, u64, Block>) {
    for i in 0..count {
        out.write(lane, &((lane.global_id() as u64) << 32 | u64::from(i)));
    }
}

#[kernel]
fn text(lane: &Lane, text: &[u8], out: RawStream<'_, u8, DropNewest>) {
    out.write_bytes(lane, text);
}

/// Tests run for each.
const PLACEMENTS: [Placement; 2] = [Placement::Direct, Placement::Staged];

fn device() -> Device {
    Device::open("cpu").unwrap()
}

/// Also of more than is copied while the file is written.
#[test]
fn a_recording_has_all() {
    for (placement, steps) in PLACEMENTS.into_iter().flat_map(|at| [(at, 1000), (at, 40_000)]) {
        let device = device();
        let stream = device.stream().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers.trace");
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 16, 256).unwrap();
        let recording = channel.record(&path, "numbers").unwrap();
        count.launch(&stream, Grid::new(4, 8), (steps, &channel)).unwrap();
        stream.synchronize().unwrap();
        let statistics = recording.finish().unwrap();
        assert_eq!((statistics.bytes, statistics.dropped_records), (32 * 8 * u64::from(steps), 0));

        let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
        let mut next = [0u64; 32];
        for event in reader.by_ref() {
            let Event::Page(page) = event.unwrap() else { continue };
            for word in page.bytes.as_chunks().0 {
                let word = u64::from_le_bytes(*word);
                let lane = (word >> 32) as usize;
                assert_eq!(word & 0xffff_ffff, next[lane]);
                next[lane] += 1;
            }
        }
        assert!(reader.is_complete());
        assert_eq!(next, [u64::from(steps); 32]);
    }
}

#[test]
fn errors_of_files_name_the_file() {
    let device = device();
    let channel = RawChannel::<u64, Block>::new(&device, 16, 256).unwrap();
    for path in ["/dev/full", "/no/such/file"] {
        let sentences = [
            channel.record(path, "numbers").err().unwrap().to_string(),
            Tracer::builder().file(path).and_then(|builder| builder.start()).err().unwrap().to_string(),
        ];
        for sentence in sentences {
            assert!(sentence.starts_with(&format!("cannot write the trace {path}: ")), "{sentence}");
        }
    }
}

/// Set for the process that drops a recording.
const CHILD: &str = "HOSTCALL_TEST_DROPS_A_RECORDING";

/// As by `let _ = channel.record(..)?`, which records nothing.
#[test]
fn a_recording_that_is_dropped_says_what_its_file_lacks() {
    if let Some(path) = std::env::var_os(CHILD) {
        let device = device();
        let stream = device.stream().unwrap();
        let channel = RawChannel::<u64, Block>::new(&device, 16, 256).unwrap();
        let _ = channel.record(path, "numbers").unwrap();
        count.launch(&stream, Grid::new(1, 1), (1, &channel)).unwrap();
        return stream.synchronize().unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.trace");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_recording_that_is_dropped_says_what_its_file_lacks", "--nocapture"]);
    let said = String::from_utf8(child.env(CHILD, &path).output().unwrap().stderr).unwrap();
    let sentence = format!(
        "hostcall: a recording was dropped without `finish`: {} lacks its end, and what kernels write from now on\n",
        path.display()
    );
    assert!(said.contains(&sentence), "{said}");
}

/// Takes so many bytes, as a disk that is full then: of what comes last a part.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        if taken == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Also where so much was written before that a thread writes while pages are copied.
#[test]
fn a_full_disk_keeps_nobody_waiting() {
    let sizes = [(20_000, 1000), (3_000_000, 20_000)];
    for (placement, (room, steps)) in PLACEMENTS.into_iter().flat_map(|at| sizes.map(|size| (at, size))) {
        let device = device();
        let stream = device.stream().unwrap();
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 16, 256).unwrap();
        let file = StreamFile::new(Disk(room)).unwrap();
        let recording = channel.record_to(file, "numbers").unwrap();
        count.launch(&stream, Grid::new(4, 8), (steps, &channel)).unwrap();
        stream.synchronize().unwrap();
        let error = recording.finish().unwrap_err();
        assert!(
            matches!(&error, hostcall::Error::Recording(error) if error.kind() == io::ErrorKind::StorageFull)
        );
        let sentence = error.to_string();
        let lost: u64 = sentence.split(' ').find_map(|word| word.parse().ok()).unwrap();
        let all = 32 * 8 * u64::from(steps);
        assert!(lost > all - room as u64 && lost < all, "{sentence}");
    }
}

/// Each page goes to one of the readers, and pages that are lent do not come back before they are dropped.
#[test]
fn readers_share_the_work() {
    for placement in PLACEMENTS {
        let device = device();
        let stream = device.stream().unwrap();
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 16, 128).unwrap();
        let launch = count.launch(&stream, Grid::new(8, 4), (500, &channel)).unwrap();
        let seen: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (reader, launch) = (channel.reader(), &launch);
                    scope.spawn(move || {
                        let (mut seen, mut lent) = (0, Vec::new());
                        loop {
                            let is_last = launch.is_done();
                            while let Some(page) = reader.next_within(Duration::from_micros(100)) {
                                seen += page.records().len();
                                lent.push(page);
                                if lent.len() == 4 {
                                    lent.clear();
                                }
                            }
                            if is_last {
                                return seen;
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        stream.synchronize().unwrap();
        let rest: usize = channel.reader().rest().map(|page| page.records().len()).sum();
        assert_eq!(seen + rest, 32 * 500);
    }
}

/// Nobody handles what waves wait for that find no page, and reports name the channel all the same.
#[test]
fn waves_that_wait_for_a_page_are_told() {
    for placement in PLACEMENTS {
        let device = device();
        let stream = device.stream().unwrap();
        let other = RawChannel::<u8, DropNewest>::placed(&device, placement, 16, 128).unwrap();
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 16, 128).unwrap();
        assert_eq!((other.number(), channel.number()), (1, 2));
        // Of one wave, which has more than all pages hold.
        let launch = count.launch(&stream, Grid::new(1, 4), (500, &channel)).unwrap();
        let started = Instant::now();
        let waiting = loop {
            let waiting = device.waiting();
            if !waiting.is_empty() {
                break waiting;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no wave waits");
        };
        let [waiting] = &waiting[..] else { panic!("{waiting:?}") };
        assert_eq!((waiting.waits_for, &*waiting.kernel), (WaitsFor::Page, "count"));
        assert!(waiting.place.is_some() && waiting.lanes > 0, "{waiting:?}");
        let said = waiting.to_string();
        let of_channel = ": has waited for a free page of raw channel 2 of u64 for ";
        assert!(said.contains(of_channel) && said.ends_with(" s: read it"), "{said}");
        let late = launch.wait_for(Duration::from_millis(100)).unwrap_err().to_string();
        assert!(late.contains(of_channel), "{late}");
        let reader = channel.reader();
        let mut seen = 0;
        while seen < 4 * 500 {
            seen += reader.next_within(Duration::from_secs(60)).expect("all come").records().len();
        }
        stream.synchronize().unwrap();
        assert!(device.waiting().is_empty());
    }
}

#[kernel]
fn count_in_both(lane: &Lane, first: RawStream<'_, u64, Block>, second: RawStream<'_, u64, Block>) {
    (0..500u64).for_each(|i| _ = first.write(lane, &i));
    (0..500u64).for_each(|i| _ = second.write(lane, &i));
}

/// Waves drop what finds no page of a channel that nobody can read any more, and wait for another one.
#[test]
fn waves_do_not_wait_for_a_channel_that_is_gone() {
    for placement in PLACEMENTS {
        let device = device();
        let stream = device.stream().unwrap();
        let [first, second] =
            [(); 2].map(|()| RawChannel::<u64, Block>::placed(&device, placement, 16, 128).unwrap());
        let reader = first.reader();
        count_in_both.launch(&stream, Grid::new(1, 4), (&first, &second)).unwrap();
        let page = reader.next_within(Duration::from_secs(60)).expect("the wave writes");
        drop((first, reader));
        let wait_until = |number: u64| {
            let (started, name) = (Instant::now(), format!("raw channel {number} of u64"));
            while device.waiting().iter().all(|waiting| waiting.service != name) {
                assert!(started.elapsed() < Duration::from_secs(60), "no wave waits for {name}");
            }
        };
        wait_until(2);
        let waiting = device.waiting();
        assert!(matches!(&waiting[..], [one] if one.service == "raw channel 2 of u64"), "{waiting:?}");
        drop((second, page));
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_page_outlives_its_channel() {
    for placement in PLACEMENTS {
        let device = device();
        let stream = device.stream().unwrap();
        let channel = RawChannel::<u8, DropNewest>::placed(&device, placement, 16, 128).unwrap();
        let message = device.upload(b"hello, host").unwrap();
        text.launch(&stream, Grid::new(1, 2), (&message, &channel)).unwrap();
        stream.synchronize().unwrap();
        let reader = channel.reader();
        let pages: Vec<_> = reader.rest().collect();
        drop((channel, reader, device, stream, message));
        let mut bytes = Vec::new();
        pages.iter().for_each(|page| page.append_to(&mut bytes));
        assert_eq!(bytes, b"hello, host\0\0\0\0\0hello, host\0\0\0\0\0");
    }
}

#[kernel]
fn numbers(lane: &Lane, count: u32, out: RawStream<'_, [u64; 2], OverwriteOldest>) {
    for i in 0..count {
        out.write(lane, &[lane.global_id() as u64, i.into()]);
    }
}

/// Staged pages come back in blocks, and a kernel that waits for pages gets all that nobody has: it fills as many as there are
/// while nobody looks, whatever was filled before.
#[test]
fn all_pages_are_there_when_nobody_looks() {
    let device = device();
    let stream = device.stream().unwrap();
    for placement in PLACEMENTS {
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 64, 128).unwrap();
        let reader = channel.reader();
        for pages in [64, 7, 1, 64, 13, 50, 62, 64] {
            // A page has 16 words.
            count.launch(&stream, Grid::new(1, 1), (16 * pages, &channel)).unwrap();
            stream.synchronize().unwrap();
            let words: Vec<_> = reader.rest().flat_map(|page| page.records().collect::<Vec<_>>()).collect();
            assert!(words.into_iter().eq(0..u64::from(16 * pages)), "{placement:?}, {pages} pages");
        }
    }
}

/// A reader that comes and goes while the oldest pages are overwritten gets each lane's numbers in order, and is told of all
/// that it did not get.
#[test]
fn what_a_slow_reader_misses_is_counted() {
    const COUNT: u32 = 20_000;
    let device = device();
    let stream = device.stream().unwrap();
    for placement in PLACEMENTS {
        let channel = RawChannel::<[u64; 2], OverwriteOldest>::placed(&device, placement, 64, 128).unwrap();
        let reader = channel.reader();
        let launch = numbers.launch(&stream, Grid::new(4, 2), (COUNT, &channel)).unwrap();
        let (mut next, mut seen, mut missed) = ([0; 8], 0, 0);
        let mut is_last = false;
        while !is_last {
            is_last = launch.is_done();
            for page in reader.rest().take(if is_last { usize::MAX } else { 5 }) {
                missed += page.overwritten_before();
                for [lane, i] in page.records() {
                    assert!(i >= next[lane as usize], "{placement:?}");
                    next[lane as usize] = i + 1;
                    seen += 16;
                }
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        stream.synchronize().unwrap();
        for page in reader.rest() {
            missed += page.overwritten_before();
            seen += u64::from(page.len_bytes());
        }
        assert_eq!(seen + missed, 8 * 16 * u64::from(COUNT), "{placement:?}");
        assert_eq!(channel.statistics().overwritten_bytes, missed);
    }
}

/// Channels and readers that are dropped while kernels write and copies are on their way leave nothing behind that is written.
#[test]
fn channels_are_dropped_at_any_time() {
    let device = device();
    let stream = device.stream().unwrap();
    for round in 0..40 {
        let placement = PLACEMENTS[round % 2];
        let channel = RawChannel::<u64, DropNewest>::placed(&device, placement, 64, 128).unwrap();
        let reader = channel.reader();
        let launch = drops.launch(&stream, Grid::new(2, 4), (2000, &channel)).unwrap();
        let page = reader.next_within(Duration::from_secs(20)).expect("the kernel writes");
        let more = reader.try_next();
        drop((channel, reader));
        assert!(page.records().len() > 0 && more.is_none_or(|page| page.records().len() > 0));
        drop(page);
        stream.synchronize().unwrap();
        assert!(launch.is_done());
    }
}

#[kernel]
fn drops(lane: &Lane, count: u32, out: RawStream<'_, u64, DropNewest>) {
    for i in 0..count {
        out.write(lane, &u64::from(i));
    }
}

#[inline(never)]
fn overflow(depth: u32) -> u32 {
    let room = std::hint::black_box([depth; 64]);
    if room[0] == u32::MAX { 0 } else { overflow(depth + 1) + room[1] }
}

#[kernel]
fn is_killed(lane: &Lane, out: RawStream<'_, u64, Block>) {
    for i in 0..3 {
        out.write(lane, &i);
    }
    overflow(0);
}

#[kernel]
fn runs_on(lane: &Lane) {
    loop {
        lane.pause();
    }
}

/// A killed wave's page is swept also while another launch runs, and with a reader that looked before.
#[test]
fn what_a_killed_wave_left_comes_while_others_run() {
    for placement in PLACEMENTS {
        let device = device();
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let channel = RawChannel::<u64, Block>::placed(&device, placement, 16, 256).unwrap();
        let reader = channel.reader();
        let running = runs_on.launch(&other, Grid::new(1, 1), ()).unwrap();
        for turn in 1..=3 {
            // Nothing is there: the sweep is up to date.
            assert!(reader.try_next().is_none());
            is_killed.launch(&stream, Grid::new(1, 1), (&channel,)).unwrap();
            assert!(stream.synchronize().is_err());
            let (mut seen, mut swept) = (Vec::new(), 0);
            for _ in 0..200 {
                while let Some(page) = reader.try_next() {
                    seen.extend(page.records());
                }
                swept = channel.statistics().swept_pages;
                if seen.len() == 3 && swept == turn {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!((seen, swept), (vec![0, 1, 2], turn));
        }
        running.cancel();
        assert!(other.synchronize().is_err());
    }
}
