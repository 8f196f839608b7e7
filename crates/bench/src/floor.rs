//! Floors: what the link allows with nothing of hostcall in the way.

use crate::run::{Bed, Options, Result};
use hostcall::Grid;
use hostcall_bench_kernels as kernels;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds of a round trip between a lane and a host thread that flip flags on a cache line each.
pub fn ping_pong_ns(bed: &Bed, count: u64) -> Result<f64> {
    let (request, reply) = (bed.device.pinned::<u64>(8)?, bed.device.pinned::<u64>(8)?);
    let ns = bed.device.alloc_zeroed::<u64>(1)?;
    bed.launch(&kernels::flag_ping_pong, Grid::new(1, 1), (&request, &reply, &ns, count))?;
    for i in 1..=count {
        while request[0].get() != i {}
        reply[0].set(i);
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
    let (request, reply) = (bed.device.pinned::<u64>(2 * lanes)?, bed.device.pinned::<u64>(2 * lanes)?);
    let ns = bed.device.alloc_zeroed::<u64>(lanes)?;
    bed.launch(&kernels::pair_ping_pong, Grid::new(1, lanes as u32), (&request, &reply, &ns, count))?;
    for i in 1..=count {
        for word in request.iter() {
            while word.get() != i {}
        }
        for word in reply.iter() {
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
