//! Floors: what the link allows with nothing of hostcall in the way.

use crate::run::{Bed, Options, Result, until};
use hostcall::device::PinnedBuffer;
use hostcall::hostcall_device::Global;
use hostcall::{DeviceBuffer, Grid};
use hostcall_bench_kernels::floors;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The bit of a word that says which turn it is of.
pub const LAP: u64 = 1 << 63;

/// The lap of place `at` of a ring, whose `entries` are a power of two.
#[inline(always)]
pub fn lap_of(at: u64, entries: u64) -> u64 {
    if at & entries == 0 { LAP } else { 0 }
}

/// Nanoseconds of a round trip between a lane and a host thread that flip flags, each on a page of its own.
pub fn ping_pong_ns(bed: &Bed, count: u64) -> Result<f64> {
    flags(bed, count, |request, reply, ns| {
        bed.launch(&floors::flag_ping_pong, Grid::new(1, 1), (request, reply, ns, count))
    })
}

/// Nanoseconds of a round trip as in the function above, where several looks of the lane are on their way at a time.
pub fn overlapped_ping_pong_ns(bed: &Bed, count: u64) -> Result<f64> {
    // A quarter of the time that a look takes, in cycles of 2 GHz.
    const APART: u64 = 550;
    flags(bed, count, |request, reply, ns| {
        bed.launch(&floors::overlapped_ping_pong, Grid::new(1, 1), (request, reply, ns, count, APART))
    })
}

fn flags(
    bed: &Bed,
    count: u64,
    launch: impl FnOnce(&PinnedBuffer<u64>, &PinnedBuffer<u64>, &DeviceBuffer<u64>) -> Result<()>,
) -> Result<f64> {
    const PAGE: usize = 4096 / 8;
    let (requests, replies) = (bed.device.pinned::<u64>(PAGE)?, bed.device.pinned::<u64>(PAGE)?);
    let ns = bed.device.alloc_zeroed::<u64>(1)?;
    launch(&requests, &replies, &ns)?;
    let (request, reply) = (&requests[0], &replies[0]);
    for i in 1..=count {
        until(|| request.get() == i)?;
        reply.set(i);
    }
    bed.synchronize()?;
    Ok(ns.read()?[0] as f64 / count as f64)
}

/// Nanoseconds of a round trip of 16 bytes a lane out and back, each word with its flag, between a wave and a
/// host thread. On the software device two plain threads take the wave's place: its lanes run one after the
/// other and cannot wait for each other without asking it.
pub fn wave_ping_pong_ns(options: &Options, bed: &Bed, count: u64) -> Result<f64> {
    let lanes = bed.device.wave_size() as usize;
    if options.is_software() {
        return Ok(thread_wave_ping_pong_ns(lanes, count));
    }
    let (requests, replies) = (bed.device.pinned::<u64>(2 * lanes)?, bed.device.pinned::<u64>(2 * lanes)?);
    let ns = bed.device.alloc_zeroed::<u64>(lanes)?;
    bed.launch(&floors::pair_ping_pong, Grid::new(1, lanes as u32), (&requests, &replies, &ns, count))?;
    let (requests, replies): (&[Global<u64>], &[Global<u64>]) = (&requests, &replies);
    for i in 1..=count {
        for word in requests {
            until(|| word.get() == i)?;
        }
        for word in replies {
            word.set(i);
        }
    }
    bed.synchronize()?;
    Ok(ns.read()?.into_iter().max().unwrap_or(0) as f64 / count as f64)
}

#[repr(align(16))]
#[derive(Default)]
struct Pair([AtomicU64; 2]);

fn thread_wave_ping_pong_ns(lanes: usize, count: u64) -> f64 {
    let request: Vec<Pair> = (0..lanes).map(|_| Pair::default()).collect();
    let reply: Vec<Pair> = (0..lanes).map(|_| Pair::default()).collect();
    let store = |pairs: &[Pair], i| {
        for word in pairs.iter().flat_map(|pair| &pair.0) {
            word.store(i, Ordering::Relaxed);
        }
    };
    let wait = |pairs: &[Pair], i| {
        for word in pairs.iter().flat_map(|pair| &pair.0) {
            while word.load(Ordering::Relaxed) != i {
                std::hint::spin_loop();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=count {
                wait(&request, i);
                store(&reply, i);
            }
        });
        let start = Instant::now();
        for i in 1..=count {
            store(&request, i);
            wait(&reply, i);
        }
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

/// Waves of a grid of one dimension.
fn waves(bed: &Bed, grid: Grid) -> usize {
    (grid.workgroups[0] * grid.workgroup_size[0].div_ceil(bed.device.wave_size())) as usize
}

/// Wave calls a second, `count` of each wave, with nothing but a doorbell, `words` (1 or 8) words a lane out and
/// 16 bytes back: this thread scans all doorbells, reads the words, and answers.
pub fn bare_calls_per_s(bed: &Bed, grid: Grid, words: u32, count: u64) -> Result<f64> {
    let (waves, size) = (waves(bed, grid), bed.device.wave_size() as usize);
    let lanes = size.min(grid.workgroup_size[0] as usize);
    let bells = bed.device.pinned::<u32>(waves)?;
    let requests = bed.device.pinned::<u64>(8 * size * waves)?;
    let replies = bed.device.pinned::<u64>(2 * size * waves)?;
    let ns = bed.device.alloc_zeroed::<u64>((grid.workgroups[0] * grid.workgroup_size[0]) as usize)?;
    let mut seen = vec![0; waves];
    let mut left = waves as u64 * count;
    let start = Instant::now();
    bed.launch(&floors::bare_calls, grid, (&bells, &requests, &replies, &ns, words, count))?;
    {
        let bells: &[Global<u32>] = &bells;
        let (requests, replies): (&[Global<u64>], &[Global<u64>]) = (&requests, &replies);
        let wave_lines = requests.chunks_exact(8 * size).zip(replies.chunks_exact(2 * size));
        until(|| {
            for ((bell, seen), (request, reply)) in bells.iter().zip(&mut seen).zip(wave_lines.clone()) {
                let rung = bell.get();
                if rung != *seen {
                    *seen = rung;
                    left -= 1;
                    answer(&request[..8 * lanes], reply, words as usize, u64::from(rung) << 63);
                }
            }
            left == 0
        })?;
    }
    bed.synchronize()?;
    Ok(waves as f64 * count as f64 / start.elapsed().as_secs_f64())
}

/// Waits for the words of each lane, adds them up, and answers.
#[inline(always)]
fn answer(request: &[Global<u64>], reply: &[Global<u64>], words: usize, lap: u64) {
    for (line, reply) in request.as_chunks::<8>().0.iter().zip(reply.as_chunks::<2>().0) {
        let word = |at: usize| {
            loop {
                let word = line[at].get();
                if word & LAP == lap {
                    return word & !LAP;
                }
            }
        };
        let first = word(0);
        if words > 1 {
            black_box((1..8).fold(0, |sum: u64, at| sum.wrapping_add(word(at))));
        }
        reply[0].set(lap | (first + 1));
        reply[1].set(lap | 7);
    }
}

/// Entries of the rings of [`bare_posts_per_s`] for so many waves: as many as most of hostcall's have on NVIDIA.
fn ring_entries(waves: usize) -> usize {
    match waves {
        0..=256 => 2048,
        257..=2048 => 512,
        _ => 256,
    }
}

/// Posts a second of 16 bytes, `count` of each lane, through a ring for each wave: this thread visits the rings
/// in turn and adds up the words.
pub fn bare_posts_per_s(bed: &Bed, grid: Grid, count: u64) -> Result<f64> {
    /// Entries read at a visit.
    const MOST: u64 = 256;
    let (waves, lanes) = (waves(bed, grid), u64::from(grid.workgroups[0] * grid.workgroup_size[0]));
    let entries = ring_entries(waves);
    let rings = bed.device.pinned::<u64>(2 * entries * waves)?;
    let tails = bed.device.pinned::<u64>(8 * waves)?;
    let ns = bed.device.alloc_zeroed::<u64>(lanes as usize)?;
    let mut positions = vec![0; waves];
    let (mut left, mut sum) = (lanes * count, 0u64);
    let start = Instant::now();
    bed.launch(&floors::bare_posts, grid, (&rings, &tails, &ns, entries as u32, count))?;
    {
        let (rings, tails): (&[Global<u64>], &[Global<u64>]) = (&rings, &tails);
        let rings = rings.as_chunks::<2>().0;
        until(|| {
            for ((ring, tail), position) in
                rings.chunks_exact(entries).zip(tails.as_chunks::<8>().0).zip(&mut positions)
            {
                let begin = *position;
                let mut at = begin;
                while at < begin + MOST {
                    let entry = &ring[at as usize & (entries - 1)];
                    let lap = lap_of(at, entries as u64);
                    let (first, second) = (entry[0].get(), entry[1].get());
                    if first & LAP != lap || second & LAP != lap {
                        break;
                    }
                    sum = sum.wrapping_add(first & !LAP);
                    black_box(second);
                    at += 1;
                }
                if at != begin {
                    left -= at - begin;
                    *position = at;
                    tail[0].set(at);
                }
            }
            left == 0
        })?;
    }
    bed.synchronize()?;
    if sum != lanes * (count * (count - 1) / 2) {
        return Err("posts of the floor were lost or changed".into());
    }
    Ok(lanes as f64 * count as f64 / start.elapsed().as_secs_f64())
}

/// Bytes a second that a kernel of the whole GPU stores to the host's memory.
pub fn stored_bytes_per_s(bed: &Bed) -> Result<f64> {
    const WORDS: usize = 1 << 25;
    const COUNT: u64 = 8;
    let words = bed.device.pinned::<u64>(WORDS)?;
    let grid = Grid::new(132, 512);
    let ns = bed.device.alloc_zeroed::<u64>(132 * 512)?;
    let mut rate = 0.0;
    for count in [1, COUNT] {
        let start = Instant::now();
        bed.launch(&floors::stores, grid, (&words, &ns, count))?;
        bed.synchronize()?;
        rate = (8 * WORDS) as f64 * count as f64 / start.elapsed().as_secs_f64();
    }
    Ok(rate)
}

/// Bytes a second that a copy engine brings from memory of the device to pinned memory, as the device's clock has it.
pub fn copied_to_host_bytes_per_s(bed: &Bed) -> Result<f64> {
    const BYTES: usize = 64 << 20;
    const COUNT: usize = 8;
    let bytes = bed.device.alloc_zeroed::<u8>(BYTES)?;
    let mut best = 0.0f64;
    // The first copy pins memory, which the others use again.
    for _ in 0..COUNT {
        let begin = bed.stream().record()?;
        let copied = bed.stream().read(&bytes)?;
        let end = bed.stream().record()?;
        black_box(copied.wait()?);
        bed.synchronize()?;
        let elapsed = end.elapsed_since(&begin)?.ok_or("the events have no time")?;
        best = best.max(BYTES as f64 / elapsed.as_secs_f64());
    }
    Ok(best)
}

/// Bytes a second that a kernel stores to memory of the device, by plain stores of 16 bytes, as the device's clock has it.
pub fn filled_bytes_per_s(bed: &Bed, grid: Grid, bytes: usize) -> Result<f64> {
    let pairs = bed.device.alloc_zeroed::<[u64; 2]>(bytes / 16)?;
    let mut best = 0.0f64;
    for turn in 0..4u64 {
        let elapsed = bed.kernel_time(|| bed.launch(&floors::fills, grid, (turn, &pairs)))?;
        best = best.max(bytes as f64 / elapsed.as_secs_f64());
    }
    Ok(best)
}

/// Messages of 16 bytes a second from one thread to another, through a ring of which both tell each other now and then.
pub fn thread_messages_per_s(count: u64) -> f64 {
    const ENTRIES: u64 = 1 << 15;
    const EACH: u64 = 256;
    let ring: Vec<Pair> = (0..ENTRIES).map(|_| Pair::default()).collect();
    let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = count.next_multiple_of(EACH);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for begin in (0..count).step_by(EACH as usize) {
                while begin + EACH > read.load(Ordering::Acquire) + ENTRIES {
                    std::thread::yield_now();
                }
                for i in begin..begin + EACH {
                    let Pair([first, second]) = &ring[(i % ENTRIES) as usize];
                    first.store(i, Ordering::Relaxed);
                    second.store(7, Ordering::Relaxed);
                }
                written.store(begin + EACH, Ordering::Release);
            }
        });
        let (start, mut at, mut sum) = (Instant::now(), 0, 0u64);
        while at < count {
            let until = written.load(Ordering::Acquire);
            if at == until {
                std::thread::yield_now();
            }
            for i in at..until {
                let Pair([first, second]) = &ring[(i % ENTRIES) as usize];
                sum = sum.wrapping_add(first.load(Ordering::Relaxed) ^ second.load(Ordering::Relaxed));
            }
            at = until;
            read.store(at, Ordering::Release);
        }
        black_box(sum);
        count as f64 / start.elapsed().as_secs_f64()
    })
}
