//! Rates with several consumer threads, beside the rate of one in the same run.

use crate::latency::{Loop, run};
use crate::median;
use crate::run::{Answer, Bed, Options, Result, Row};
use hostcall::{Device, Grid};
use hostcall_bench_kernels::{self as kernels, Bench, BenchHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// More than the threads that ever serve in a process of the benchmarks.
const THREADS: usize = 1024;

/// A sum in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Sum(AtomicU64);

/// A sum of many threads, each of which adds to a place of its own.
#[derive(Clone)]
struct Sums(Arc<[Sum]>);

impl Sums {
    fn new() -> Self {
        Self((0..THREADS).map(|_| Sum::default()).collect())
    }

    fn add(&self, value: u64) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % THREADS);
        let sum = &self.0[PLACE.with(|place| *place)].0;
        // Only this thread adds here, so a load and a store do.
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0.iter().fold(0, |total, sum| total.wrapping_add(sum.0.load(Ordering::Relaxed)))
    }
}

impl BenchHandler for Sums {
    fn null(&self) -> Answer<()> {
        Ok(())
    }

    fn sum(&self, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> Answer<u64> {
        Ok([a, b, c, d, e, f, g].into_iter().fold(0, u64::wrapping_add))
    }

    fn event(&self, value: u64) -> Answer<()> {
        self.add(value + 1);
        Ok(())
    }
}

/// A figure's name with 1, 2, 4 and 8 consumers.
type Names = [&'static str; 4];

const CONSUMERS: [usize; 4] = [1, 2, 4, 8];

/// What lanes do, and what is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// A wave's lanes call together, which counts once.
    Calls,
    Posts,
    Lines,
}

/// What is measured: a kernel whose lanes call, post or print `count` times each.
struct Load {
    names: Names,
    what: What,
    kernel: &'static Loop,
    workgroups: u32,
    /// Whether workgroups are waves or single lanes.
    whole_waves: bool,
    count: u64,
}

/// One-lane calls, full waves of 64 B a lane, posts and lines a second with 1, 2, 4 and 8 consumers; the floor of each is
/// what one consumer does.
pub fn consumers(options: &Options, add: &mut dyn FnMut(Row)) -> Result<()> {
    let small = if options.is_software() { 16 } else { 1 };
    let loads = [
        Load {
            names: [
                "wave_calls_per_s_1_consumer",
                "wave_calls_per_s_2_consumers",
                "wave_calls_per_s_4_consumers",
                "wave_calls_per_s_8_consumers",
            ],
            what: What::Calls,
            kernel: &kernels::null_calls,
            workgroups: 4224 / small,
            whole_waves: false,
            count: 2_000,
        },
        Load {
            names: [
                "wide_wave_calls_per_s_1_consumer",
                "wide_wave_calls_per_s_2_consumers",
                "wide_wave_calls_per_s_4_consumers",
                "wide_wave_calls_per_s_8_consumers",
            ],
            what: What::Calls,
            kernel: &kernels::wide_calls,
            workgroups: 1056 / small,
            whole_waves: true,
            count: 500,
        },
        Load {
            names: [
                "posts_per_s_1_consumer",
                "posts_per_s_2_consumers",
                "posts_per_s_4_consumers",
                "posts_per_s_8_consumers",
            ],
            what: What::Posts,
            kernel: &kernels::posts,
            workgroups: 1056 / small,
            whole_waves: true,
            count: 4_000,
        },
        Load {
            names: [
                "print_lines_per_s_1_consumer",
                "print_lines_per_s_2_consumers",
                "print_lines_per_s_4_consumers",
                "print_lines_per_s_8_consumers",
            ],
            what: What::Lines,
            kernel: &kernels::lines,
            workgroups: 64 / small,
            whole_waves: true,
            count: 5_000,
        },
    ];
    for load in &loads {
        let mut beds = Vec::new();
        for consumers in CONSUMERS {
            let sums = Sums::new();
            let builder = Device::builder(&options.device)
                .inline_service(Bench::serve(sums.clone()))
                .server(move |server| server.consumers(consumers))
                .builtins(hostcall::services::Builtins::builder().stdout(std::io::sink()).build()?);
            beds.push((Bed::of(options, builder)?, sums));
        }
        let mut rates = vec![Vec::new(); CONSUMERS.len()];
        // The first round is a warm-up.
        for round in 0..=options.repeats {
            for ((bed, sums), rates) in beds.iter().zip(&mut rates) {
                let rate = load.rate(bed, sums)?;
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let rates: Vec<f64> = rates.into_iter().map(median).collect();
        let unit = match load.what {
            What::Calls => "calls/s",
            What::Posts => "posts/s",
            What::Lines => "lines/s",
        };
        let row = |(name, rate): (&&'static str, &f64)| Row::rate(name, unit, *rate, Some(rates[0]));
        load.names.iter().zip(&rates).map(row).for_each(&mut *add);
    }
    Ok(())
}

impl Load {
    /// Runs the kernel once.
    fn rate(&self, bed: &Bed, sums: &Sums) -> Result<f64> {
        let lanes = if self.whole_waves { bed.device.wave_size() } else { 1 };
        let (before, start) = (sums.total(), Instant::now());
        run(bed, self.kernel, Grid::new(self.workgroups, lanes), self.count)?;
        let time = start.elapsed().as_secs_f64();
        let all = u64::from(self.workgroups * lanes);
        let added = sums.total().wrapping_sub(before);
        if self.what == What::Posts && added != all * (self.count * (self.count + 1) / 2) {
            return Err("posts were lost or changed".into());
        }
        let each = if self.what == What::Calls { self.workgroups.into() } else { all };
        Ok((each * self.count) as f64 / time)
    }
}
