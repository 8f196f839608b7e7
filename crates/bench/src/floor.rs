//! Floors: what the link allows with nothing of hostcall in the way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds of a round trip between two threads that flip flags on a cache line each.
pub fn thread_ping_pong_ns(count: u64) -> f64 {
    let (request, reply) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=count {
                while request.0.load(Ordering::Relaxed) != i {
                    std::hint::spin_loop();
                }
                reply.0.store(i, Ordering::Relaxed);
            }
        });
        let start = Instant::now();
        for i in 1..=count {
            request.0.store(i, Ordering::Relaxed);
            while reply.0.load(Ordering::Relaxed) != i {
                std::hint::spin_loop();
            }
        }
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

#[repr(align(16))]
#[derive(Default)]
struct Pair([AtomicU64; 2]);

/// Nanoseconds of a round trip of `lanes` × 64 bytes out and `lanes` × 16 bytes back between two threads, each
/// 8-byte word with its flag.
pub fn thread_wave_ping_pong_ns(lanes: usize, count: u64) -> f64 {
    let request: Vec<Pair> = (0..4 * lanes).map(|_| Pair::default()).collect();
    let reply: Vec<Pair> = (0..lanes).map(|_| Pair::default()).collect();
    let store = |pairs: &[Pair], i| pairs.iter().flat_map(|pair| &pair.0).for_each(|w| w.store(i, Ordering::Relaxed));
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
