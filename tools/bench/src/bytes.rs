//! Bytes a second: replies, messages and files, beside what as many threads of the host do without a device.

use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::hostcall_device::CallError;
use hostcall::hostcall_device::Global;
use hostcall::hostcall_device::kernel::{Kernel, Slice};
use hostcall::services::Builtins;
use hostcall::{Device, DeviceBuffer, Grid, Output};
use hostcall_bench_kernels::bytes::{self as kernels, Bytes, BytesHandler};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

/// Bytes that a lane asks for at a time where the row's name does not say it.
const PIECE: usize = 64 << 10;

/// Waves that move bytes together.
fn waves(options: &Options) -> u32 {
    if options.is_software() { 16 } else { 132 }
}

/// Bytes of the files.
fn file_bytes(options: &Options) -> u64 {
    if options.is_software() { 1 << 30 } else { 4 << 30 }
}

/// Threads of the host that the floors have: as many as the machine runs at once.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// What replies are filled from.
struct Source(Vec<u8>);

type Answer<T> = std::result::Result<T, CallError>;

impl BytesHandler for Source {
    fn fill(&self, out: &mut Output<'_>) -> Answer<()> {
        out.push(&self.0[..out.capacity().min(self.0.len())])
    }

    fn sum(&self, data: &[u8]) -> Answer<u64> {
        Ok(sum(data))
    }
}

/// The sum of some bytes, eight of them at a time, as fast as one thread gets them.
fn sum(data: &[u8]) -> u64 {
    /// Each second byte of a word.
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    /// Words whose four sums of 16 bits do not overflow.
    const WORDS: usize = 128;
    let (words, rest) = data.as_chunks::<8>();
    let of_words = words.chunks(WORDS).map(|words| {
        let sums = words.iter().fold(0, |sums, word| {
            let word = u64::from_le_bytes(*word);
            sums + (word & EVEN) + (word >> 8 & EVEN)
        });
        (0..4).map(|at| sums >> (16 * at) & 0xffff).sum::<u64>()
    });
    of_words.sum::<u64>() + rest.iter().map(|byte| u64::from(*byte)).sum::<u64>()
}

/// Replies, messages and files. One lane's handlers run at once, on the thread that finds its calls; those of
/// many waves on as many threads as there are processors.
pub fn bytes(options: &Options, add: &mut dyn FnMut(Row)) -> Result<()> {
    let service = || Bytes::serve(Source(vec![1; 1 << 20]));
    let bed = Bed::of(options, Device::builder(&options.device).inline_service(service()))?;
    for (name, bytes) in [
        ("reply_us_1_lane_16", 16),
        ("reply_us_1_lane_256", 256),
        ("reply_us_1_lane_500", 500),
        ("reply_us_1_lane_1k", 1 << 10),
    ] {
        let Row { value, .. } = messages(options, &bed, name, &kernels::replies, 1, bytes, 20_000, &copied)?;
        add(Row::time(name, "us", bytes as f64 / value / 1e3, None));
    }
    for (name, bytes, count) in [
        ("reply_gb_per_s_1_lane_4k", 4 << 10, 20_000),
        ("reply_gb_per_s_1_lane_64k", 64 << 10, 4000),
        ("reply_gb_per_s_1_lane_1m", 1 << 20, 400),
    ] {
        add(messages(options, &bed, name, &kernels::replies, 1, bytes, count, &copied)?);
    }
    let requests = &kernels::requests;
    add(messages(options, &bed, "request_gb_per_s_1_lane", requests, 1, 1 << 20, 400, &summed)?);
    drop(bed);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bytes");
    let len = file_bytes(options);
    let mut file = File::create_new(&path)?;
    let block = vec![1; 1 << 20];
    for _ in 0..len >> 20 {
        file.write_all(&block)?;
    }
    drop(file);
    let builtins = Builtins::builder().dir(dir.path()).build()?;
    let bed = Bed::of(options, Device::builder(&options.device).builtins(builtins).service(service()))?;
    let waves = waves(options);
    let many = |name, kernel, floor: &(dyn Fn(usize, u64) -> f64 + Sync)| {
        messages(options, &bed, name, kernel, waves, 1 << 20, 50, &|bytes, count| {
            on_threads(|| floor(bytes, count))
        })
    };
    add(many("reply_gb_per_s", &kernels::replies, &copied)?);
    add(many("request_gb_per_s", requests, &summed)?);
    let file = File::options().read(true).write(true).open(&path)?;
    let read = |at, buffer: &mut [u8]| file.read_exact_at(buffer, at);
    let write = |at, buffer: &mut [u8]| file.write_all_at(buffer, at);
    let one_lane_each = Grid::new(waves, 1);
    let launch = |failed: &DeviceBuffer<u64>| {
        bed.launch(&kernels::file_reads, one_lane_each, (failed, len, PIECE as u64))
    };
    add(files(options, &bed, "file_read_gb_per_s", one_lane_each, len, &launch, &Ok, &read)?);
    let ns = bed.device.alloc_zeroed::<u64>(waves as usize)?;
    let map = |failed: &DeviceBuffer<u64>| {
        bed.launch(&kernels::file_maps, one_lane_each, (&ns, failed, len, PIECE as u64))
    };
    // The lanes wait together for the mapping; a GPU's clock tells what came after it.
    let after_mapping = |whole: f64| match options.is_software() {
        true => Ok(whole),
        false => Ok(ns.read()?.into_iter().max().unwrap_or(0) as f64 / 1e9),
    };
    add(files(options, &bed, "file_map_gb_per_s", one_lane_each, len, &map, &after_mapping, &read)?);
    let launch = |failed: &DeviceBuffer<u64>| {
        bed.launch(&kernels::file_writes, one_lane_each, (failed, len, PIECE as u64))
    };
    add(files(options, &bed, "file_write_gb_per_s", one_lane_each, len, &launch, &Ok, &write)?);
    Ok(())
}

/// Runs something on as many threads as the machine runs at once, and returns the sum of their rates.
fn on_threads(rate: impl Fn() -> f64 + Sync) -> f64 {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(&rate)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

/// Bytes a second that one thread copies.
pub(crate) fn copied(bytes: usize, count: u64) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0; bytes]);
    let start = Instant::now();
    for _ in 0..count {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    bytes as f64 * count as f64 / start.elapsed().as_secs_f64()
}

/// Bytes a second that one thread adds up.
fn summed(bytes: usize, count: u64) -> f64 {
    let data = vec![1u8; bytes];
    let start = Instant::now();
    for _ in 0..count {
        black_box(sum(black_box(&data)));
    }
    bytes as f64 * count as f64 / start.elapsed().as_secs_f64()
}

type Messages = Kernel<(Slice<Global<u64>>, Slice<Global<u64>>, u64, u64)>;

/// Bytes a second of `count` messages or replies of one lane of each wave.
#[allow(clippy::too_many_arguments, reason = "a row of a table")]
fn messages(
    options: &Options,
    bed: &Bed,
    name: &'static str,
    kernel: &Messages,
    waves: u32,
    bytes: usize,
    count: u64,
    floor: &dyn Fn(usize, u64) -> f64,
) -> Result<Row> {
    let ns = bed.device.alloc_zeroed::<u64>(waves as usize)?;
    let failed = bed.device.alloc_zeroed::<u64>(waves as usize)?;
    let run = |count: u64| -> Result<f64> {
        let start = Instant::now();
        bed.launch(kernel, Grid::new(waves, 1), (&ns, &failed, bytes as u64, count))?;
        bed.synchronize()?;
        if failed.read()?.iter().any(|failed| *failed != 0) {
            return Err(format!("{name}: a message or a reply was lost or changed").into());
        }
        // One lane's own time leaves the launch out.
        let seconds = match waves {
            1 => ns.read()?[0] as f64 / 1e9,
            _ => start.elapsed().as_secs_f64(),
        };
        Ok(f64::from(waves) * bytes as f64 * count as f64 / seconds)
    };
    run(count / 10 + 1)?;
    let (mut rates, mut floors) = (vec![], vec![]);
    for _ in 0..options.repeats {
        rates.push(run(count)? / 1e9);
        floors.push(floor(bytes, count) / 1e9);
    }
    Ok(Row::rate(name, "GB/s", median(rates), Some(median(floors))))
}

/// Where the pieces of a file begin that one of some threads has. All have all of them, and each as many as
/// the others, or one more.
fn pieces_of(thread: u64, threads: u64, len: u64) -> impl Iterator<Item = u64> {
    let pieces = len / PIECE as u64;
    (thread * pieces / threads..(thread + 1) * pieces / threads).map(|piece| piece * PIECE as u64)
}

/// Bytes a second of a file in the page cache, by all lanes that `launch` launches, beside threads of the host. `seconds` says
/// how many of a run's seconds count.
#[allow(clippy::too_many_arguments, reason = "a row of a table")]
fn files(
    options: &Options,
    bed: &Bed,
    name: &'static str,
    grid: Grid,
    len: u64,
    launch: &dyn Fn(&DeviceBuffer<u64>) -> Result<()>,
    seconds: &dyn Fn(f64) -> Result<f64>,
    piece: &(dyn Fn(u64, &mut [u8]) -> std::io::Result<()> + Sync),
) -> Result<Row> {
    let lanes = grid.workgroups[0] * grid.workgroup_size[0];
    let failed = bed.device.alloc_zeroed::<u64>(lanes as usize)?;
    let (mut rates, mut floors) = (vec![], vec![]);
    for _ in 0..=options.repeats {
        let start = Instant::now();
        launch(&failed)?;
        bed.synchronize()?;
        rates.push(len as f64 / 1e9 / seconds(start.elapsed().as_secs_f64())?);
        if failed.read()?.iter().any(|failed| *failed != 0) {
            return Err(format!("{name}: a lane's file failed").into());
        }
        let (threads, start) = (threads() as u64, Instant::now());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut buffer = vec![1; PIECE];
                        pieces_of(thread, threads, len).try_for_each(|at| piece(at, &mut buffer))
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
        })?;
        floors.push(len as f64 / 1e9 / start.elapsed().as_secs_f64());
    }
    // The first run of each warms up.
    Ok(Row::rate(name, "GB/s", median(rates.split_off(1)), Some(median(floors.split_off(1)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_all_pieces_of_a_file_and_nothing_behind_it() {
        const LEN: u64 = 1 << 30;
        for threads in [1, 2, 3, 6, 7, 12, 48, 192] {
            let all: Vec<_> = (0..threads).flat_map(|thread| pieces_of(thread, threads, LEN)).collect();
            assert!(all.iter().copied().eq((0..LEN).step_by(PIECE)), "{threads} threads");
        }
    }
}
