//! Streams out of kernels by raw channels, beside what a kernel can store to the host's memory, or a thread copy or write.

use crate::run::{Bed, Options, Result, Row};
use crate::{bytes, floor, median};
use hostcall::raw::{Block, RawChannel, RawReader};
use hostcall::{Grid, Plain};
use hostcall_bench_kernels::traces::{self as kernels, Pair};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that the software device's lanes write at a time.
const PIECE: usize = 16 << 10;

/// How long a reader waits for a page.
const LONGEST: Duration = Duration::from_secs(20);

/// Bytes a second with one reader, records one at a time, how soon a record is seen, and into a file.
pub fn traces(options: &Options, add: &mut dyn FnMut(Row)) -> Result<()> {
    let bed = Bed::open(options, None, None)?;
    let floor = || match options.is_software() {
        true => Ok(bytes::copied(PIECE, 20_000)),
        false => floor::stored_bytes_per_s(&bed),
    };
    if options.is_software() {
        let channel = RawChannel::<u8, Block>::new(&bed.device, 256, 64 << 10)?;
        let data = bed.device.upload(&vec![1u8; PIECE])?;
        let copies = |count: u64| bed.launch(&kernels::copies, Grid::new(1, 1), (&data, count, &channel));
        let bytes = |count: u64| count * PIECE as u64;
        let reader = channel.reader();
        add(rate(
            options,
            "trace_gb_per_s",
            20_000,
            &copies,
            &bytes,
            &|run, count| read(&reader, run, count),
            &floor,
        )?);
        let record = |run: &dyn Fn() -> Result<()>, _| record(&bed, &channel, run);
        add(rate(options, "trace_file_gb_per_s", 20_000, &copies, &bytes, &record, &written_bytes_per_s)?);
        drop(reader);
    } else {
        for (name, workgroups, pages, page_bytes) in [
            ("trace_gb_per_s_16k", 132u32, 1 << 13, 16u32 << 10),
            ("trace_gb_per_s_64k", 132, 1 << 12, 64 << 10),
            ("trace_gb_per_s_64k_8_workgroups", 8, 1 << 12, 64 << 10),
        ] {
            let channel = RawChannel::<Pair, Block>::new(&bed.device, pages, page_bytes)?;
            let (grid, records) = (Grid::new(workgroups, 256), u64::from(page_bytes / 16));
            let waves = u64::from(workgroups * 256 / bed.device.wave_size());
            let batches = |count: u64| bed.launch(&kernels::batches, grid, (records, count, &channel));
            let bytes = |count: u64| waves * count * records * 16;
            let reader = channel.reader();
            // 8 GiB.
            let count = (8 << 30) / bytes(1);
            add(rate(
                options,
                name,
                count,
                &batches,
                &bytes,
                &|run, count| read(&reader, run, count),
                &floor,
            )?);
        }
        let channel = RawChannel::<Pair, Block>::new(&bed.device, 1 << 13, 16 << 10)?;
        let grid = Grid::new(132, 256);
        let single = |count: u64| bed.launch(&kernels::single, grid, (count, &channel));
        let bytes = |count: u64| 132 * 256 * 16 * count;
        let reader = channel.reader();
        let read = |run: &dyn Fn() -> Result<()>, count| read(&reader, run, count);
        add(rate(options, "trace_gb_per_s_single_records", 8000, &single, &bytes, &read, &floor)?);
        drop(reader);
        let record = |run: &dyn Fn() -> Result<()>, _| record(&bed, &channel, run);
        add(rate(options, "trace_file_gb_per_s", 2000, &single, &bytes, &record, &written_bytes_per_s)?);
    }
    add(seen(options, &bed)?);
    Ok(())
}

/// A run of a kernel, and how many bytes are to be read.
type Taker<'a> = &'a dyn Fn(&dyn Fn() -> Result<()>, u64) -> Result<()>;

/// Bytes a second from the launch to the last byte's reading.
fn rate(
    options: &Options,
    name: &'static str,
    count: u64,
    launch: &dyn Fn(u64) -> Result<()>,
    bytes: &dyn Fn(u64) -> u64,
    take: Taker<'_>,
    floor: &dyn Fn() -> Result<f64>,
) -> Result<Row> {
    take(&|| launch(count / 10 + 1), bytes(count / 10 + 1))?;
    let (mut rates, mut floors) = (vec![], vec![]);
    for _ in 0..options.repeats {
        let start = Instant::now();
        take(&|| launch(count), bytes(count))?;
        rates.push(bytes(count) as f64 / 1e9 / start.elapsed().as_secs_f64());
        floors.push(floor()? / 1e9);
    }
    Ok(Row::rate(name, "GB/s", median(rates), Some(median(floors))))
}

/// Launches, and reads so many bytes: the first word of each page, as a reader does that hands pages on.
fn read<T>(reader: &RawReader<T>, launch: &dyn Fn() -> Result<()>, bytes: u64) -> Result<()> {
    launch()?;
    let mut left = bytes;
    while left > 0 {
        let Some(page) = reader.next_within(LONGEST) else {
            return Err(format!("{left} of {bytes} bytes did not come").into());
        };
        std::hint::black_box(page.words().first().map(|word| word.load(Ordering::Relaxed)));
        // A kernel that writes more would wait for a reader for ever, and what is launched next for it.
        left = left.checked_sub(page.len_bytes().into()).ok_or("more bytes came than were asked for")?;
    }
    Ok(())
}

/// Launches, and has all written to a file in memory, where there is one.
fn record<T: Plain>(
    bed: &Bed,
    channel: &RawChannel<T, Block>,
    launch: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let dir = memory()?;
    let recording = channel.record(dir.path().join("trace"), "bench")?;
    launch()?;
    bed.synchronize()?;
    recording.finish()?;
    Ok(())
}

/// A folder in memory, where there is one.
fn memory() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? })
}

/// Bytes a second that a thread writes to a new file there.
fn written_bytes_per_s() -> Result<f64> {
    const PIECES: usize = 512;
    let (dir, piece) = (memory()?, vec![1u8; 1 << 20]);
    let start = Instant::now();
    let mut file = File::create(dir.path().join("floor"))?;
    for _ in 0..PIECES {
        file.write_all(&piece)?;
    }
    Ok((PIECES * piece.len()) as f64 / start.elapsed().as_secs_f64())
}

/// From a record to its reader and back to the wave, beside a flag there and back.
fn seen(options: &Options, bed: &Bed) -> Result<Row> {
    const COUNT: u64 = 20_000;
    let channel = RawChannel::<Pair, Block>::new(&bed.device, 64, 4 << 10)?;
    let (seen, ns) = (bed.device.pinned::<u64>(1)?, bed.device.alloc_zeroed::<u64>(1)?);
    let reader = channel.reader();
    let (mut times, mut floors) = (vec![], vec![]);
    for _ in 0..options.repeats {
        bed.launch(&kernels::seen, Grid::new(1, 1), (&seen, &ns, COUNT, &channel))?;
        while seen[0].get() < COUNT {
            let page = reader.next_within(LONGEST).ok_or("a record did not come")?;
            if let Some([i, _]) = page.records().last() {
                seen[0].set(i);
            }
        }
        bed.synchronize()?;
        seen[0].set(0);
        times.push(ns.read()?[0] as f64 / COUNT as f64);
        floors.push(floor::ping_pong_ns(bed, COUNT)?);
    }
    Ok(Row::time("trace_seen_ns", "ns", median(times), Some(median(floors))))
}
