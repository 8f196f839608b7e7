//! Streams out of kernels by raw channels, beside what a kernel can store to the host's memory, or a thread copy or write.

use crate::run::{Bed, Options, Result, Row};
use crate::{bytes, floor, median};
use hostcall::raw::{Block, Placement, RawChannel, RawReader, RawStatistics};
use hostcall::{Grid, Plain};
use hostcall_bench_kernels::traces::{self as kernels, Pair};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes that the software device's lanes write at a time.
const PIECE: usize = 16 << 10;

/// How long a reader waits for a page.
const LONGEST: Duration = Duration::from_secs(20);

/// Bytes a second with one reader, records one at a time, how soon a record is seen, and into a file; then staged pages, and
/// messages.
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
    for placement in PLACEMENTS {
        add(seen(options, &bed, placement)?);
    }
    staged(options, &bed, add)?;
    for placement in PLACEMENTS {
        add(messages(options, &bed, placement)?);
    }
    Ok(())
}

const PLACEMENTS: [Placement; 2] = [Placement::Direct, Placement::Staged];

/// Bytes a second out of staged pages, beside a copy engine's, and into them until all are full, beside a kernel's plain
/// stores to memory of the device.
fn staged(options: &Options, bed: &Bed, add: &mut dyn FnMut(Row)) -> Result<()> {
    let floor = || floor::copied_to_host_bytes_per_s(bed);
    if options.is_software() {
        let channel = RawChannel::<u8, Block>::placed(&bed.device, Placement::Staged, 256, 64 << 10)?;
        let data = bed.device.upload(&vec![1u8; PIECE])?;
        let copies = |count: u64| bed.launch(&kernels::copies, Grid::new(1, 1), (&data, count, &channel));
        let bytes = |count: u64| count * PIECE as u64;
        let reader = channel.reader();
        let take = |run: &dyn Fn() -> Result<()>, count| read(&reader, run, count);
        add(rate(options, "trace_staged_gb_per_s", 20_000, &copies, &bytes, &take, &floor)?);
        let floor = || floor::filled_bytes_per_s(bed, Grid::new(1, 1), bytes(1000) as usize);
        add(burst(options, bed, &reader, &|| copies(1000), bytes(1000), &floor)?);
        return Ok(());
    }
    for (name, pages, page_bytes, parts) in [
        (
            "trace_staged_gb_per_s_16k",
            1 << 14,
            16u32 << 10,
            ["trace_staged_search_ns_16k", "trace_staged_ask_ns_16k", "trace_staged_wait_ns_16k"],
        ),
        (
            "trace_staged_gb_per_s_64k",
            1 << 13,
            64 << 10,
            ["trace_staged_search_ns_64k", "trace_staged_ask_ns_64k", "trace_staged_wait_ns_64k"],
        ),
    ] {
        let channel = RawChannel::<Pair, Block>::placed(&bed.device, Placement::Staged, pages, page_bytes)?;
        let (grid, records) = (Grid::new(132, 256), u64::from(page_bytes / 16));
        let waves = u64::from(132 * 256 / bed.device.wave_size());
        let batches = |count: u64| bed.launch(&kernels::batches, grid, (records, count, &channel));
        let bytes = |count: u64| waves * count * records * 16;
        let reader = channel.reader();
        let take = |run: &dyn Fn() -> Result<()>, count| read(&reader, run, count);
        // 8 GiB.
        let count = (8 << 30) / bytes(1);
        add(rate(options, name, count, &batches, &bytes, &take, &floor)?);
        // Of that: what the reader spends for a page.
        let RawStatistics { pages: read, staging, .. } = channel.statistics();
        for (name, ns) in parts.into_iter().zip([staging.search_ns, staging.ask_ns, staging.wait_ns]) {
            add(Row::time(name, "ns", ns as f64 / read as f64, None));
        }
        if page_bytes == 64 << 10 {
            // As many whole batches of all waves as there are pages for.
            let count = u64::from(pages) / waves;
            let floor = || floor::filled_bytes_per_s(bed, grid, bytes(count) as usize);
            add(burst(options, bed, &reader, &|| batches(count), bytes(count), &floor)?);
        }
    }
    let channel = RawChannel::<Pair, Block>::placed(&bed.device, Placement::Staged, 1 << 14, 16 << 10)?;
    let single = |count: u64| bed.launch(&kernels::single, Grid::new(132, 256), (count, &channel));
    let bytes = |count: u64| 132 * 256 * 16 * count;
    let reader = channel.reader();
    let take = |run: &dyn Fn() -> Result<()>, count| read(&reader, run, count);
    add(rate(options, "trace_staged_gb_per_s_single_records", 8000, &single, &bytes, &take, &floor)?);
    Ok(())
}

/// Bytes a second of a kernel that fills pages while nobody reads: of the kernel alone. Then all is read.
fn burst<T>(
    options: &Options,
    bed: &Bed,
    reader: &RawReader<T>,
    launch: &dyn Fn() -> Result<()>,
    bytes: u64,
    floor: &dyn Fn() -> Result<f64>,
) -> Result<Row> {
    let (mut rates, mut floors) = (vec![], vec![]);
    for turn in 0..=options.repeats {
        let elapsed = bed.kernel_time(launch)?;
        read(reader, &|| Ok(()), bytes)?;
        // The first launch loads the kernel.
        if turn > 0 {
            rates.push(bytes as f64 / 1e9 / elapsed.as_secs_f64());
            floors.push(floor()? / 1e9);
        }
    }
    Ok(Row::rate("trace_burst_gb_per_s", "GB/s", median(rates), Some(median(floors))))
}

/// Messages of 16 bytes a second, each added up by one reader, beside a thread that reads a ring of each wave's, or another
/// thread's.
fn messages(options: &Options, bed: &Bed, placement: Placement) -> Result<Row> {
    let name = ["messages_per_s", "messages_per_s_staged"][placement as usize];
    let (grid, count) = match options.is_software() {
        true => (Grid::new(1, bed.device.wave_size()), 30_000u64),
        false => (Grid::new(132, 256), 4000),
    };
    let pages = if options.is_software() { 256 } else { 1 << 13 };
    let channel = RawChannel::<Pair, Block>::placed(&bed.device, placement, pages, 16 << 10)?;
    let reader = channel.reader();
    let lanes = u64::from(grid.workgroups[0] * grid.workgroup_size[0]);
    let (mut rates, mut floors) = (vec![], vec![]);
    for _ in 0..options.repeats {
        let (start, mut left, mut sum) = (Instant::now(), lanes * count, 0u64);
        bed.launch(&kernels::single, grid, (count, &channel))?;
        while left > 0 {
            let page = reader.next_within(LONGEST).ok_or("a message did not come")?;
            let records = page.records();
            left = left.checked_sub(records.len() as u64).ok_or("more messages came than were sent")?;
            sum = records.fold(sum, |sum, [i, lane]| sum.wrapping_add(i ^ (lane << 32)));
        }
        rates.push((lanes * count) as f64 / start.elapsed().as_secs_f64());
        bed.synchronize()?;
        // No bit of a step is one of a lane.
        if sum != (count * (count - 1) / 2 * lanes).wrapping_add((lanes * (lanes - 1) / 2 * count) << 32) {
            return Err("messages were lost or changed".into());
        }
        floors.push(match options.is_software() {
            true => floor::thread_messages_per_s(lanes * count),
            false => floor::bare_posts_per_s(bed, grid, count)?,
        });
    }
    Ok(Row::rate(name, "messages/s", median(rates), Some(median(floors))))
}

/// A run of a kernel, and how many bytes are to be read. Returns what is to be removed once the time was
/// taken.
type Taker<'a> = &'a dyn Fn(&dyn Fn() -> Result<()>, u64) -> Result<Option<TempDir>>;

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
        let left = take(&|| launch(count), bytes(count))?;
        rates.push(bytes(count) as f64 / 1e9 / start.elapsed().as_secs_f64());
        drop(left);
        floors.push(floor()? / 1e9);
    }
    Ok(Row::rate(name, "GB/s", median(rates), Some(median(floors))))
}

/// Launches, and reads so many bytes: the first word of each page, as a reader does that hands pages on.
/// Leaves nothing.
fn read<T>(reader: &RawReader<T>, launch: &dyn Fn() -> Result<()>, bytes: u64) -> Result<Option<TempDir>> {
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
    Ok(None)
}

/// Launches, and has all written to a file in memory, where there is one. Leaves the file: what is in
/// memory takes long to remove, which is no part of writing it.
fn record<T: Plain>(
    bed: &Bed,
    channel: &RawChannel<T, Block>,
    launch: &dyn Fn() -> Result<()>,
) -> Result<Option<TempDir>> {
    let dir = memory()?;
    let recording = channel.record(dir.path().join("trace"), "bench")?;
    launch()?;
    bed.synchronize()?;
    recording.finish()?;
    Ok(Some(dir))
}

/// A folder in memory, where there is one.
fn memory() -> Result<TempDir> {
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
fn seen(options: &Options, bed: &Bed, placement: Placement) -> Result<Row> {
    const COUNT: u64 = 20_000;
    let channel = RawChannel::<Pair, Block>::placed(&bed.device, placement, 64, 4 << 10)?;
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
    let name = ["trace_seen_ns", "trace_seen_staged_ns"][placement as usize];
    Ok(Row::time(name, "ns", median(times), Some(median(floors))))
}
