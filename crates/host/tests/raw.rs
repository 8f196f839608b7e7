//! Raw channels as their users have them: recordings, several readers, and what a channel keeps.

use hostcall::raw::{Block, DropNewest, RawChannel, RawStream};
use hostcall::trace::{Event, Reader, StreamFile};
use hostcall::{Device, Grid, Lane, LaunchKernel, kernel};
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

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

fn device() -> Device {
    Device::open("cpu").unwrap()
}

#[test]
fn a_recording_has_all() {
    let device = device();
    let stream = device.stream().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.trace");
    let channel = RawChannel::<u64, Block>::new(&device, 16, 256).unwrap();
    let recording = channel.record(&path, "numbers").unwrap();
    count.launch(&stream, Grid::new(4, 8), (1000, &channel)).unwrap();
    stream.synchronize().unwrap();
    let statistics = recording.finish().unwrap();
    assert_eq!((statistics.bytes, statistics.dropped_records), (32 * 1000 * 8, 0));

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
    assert_eq!(next, [1000; 32]);
}

/// Takes so many bytes, as a disk that is full then.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_keeps_nobody_waiting() {
    let device = device();
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u64, Block>::new(&device, 16, 256).unwrap();
    let file = StreamFile::new(Disk(20_000)).unwrap();
    let recording = channel.record_to(file, "numbers").unwrap();
    count.launch(&stream, Grid::new(4, 8), (1000, &channel)).unwrap();
    stream.synchronize().unwrap();
    let error = recording.finish().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let sentence = error.to_string();
    let lost: u64 = sentence.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(lost > 230_000 && lost < 256_000, "{sentence}");
}

/// Each page goes to one of the readers, and pages that are lent do not come back before they are dropped.
#[test]
fn readers_share_the_work() {
    let device = device();
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u64, Block>::new(&device, 16, 128).unwrap();
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

#[test]
fn a_page_outlives_its_channel() {
    let device = device();
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u8, DropNewest>::new(&device, 16, 128).unwrap();
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
