//! What is counted of each method: how its calls ended, how long they took, and its posts.
//!
//! A consumer counts calls of inline handlers in numbers of its own, once a batch; it times one batch of
//! [`TIMED_EACH`], since a look at the clock takes half as long as a call. Calls of handlers that may wait are timed each, by the
//! thread that answers. Numbers go by the method's name, so that they go on when a service comes back.

use super::shared::Count;
use hostcall_abi::status::{CallError, Status};
use hostcall_channel::host::Batch;
use hostcall_locks::Mutex;
use hostcall_service::Replies;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Of so many batches of a consumer that inline handlers answer, one is timed.
pub(super) const TIMED_EACH: u64 = 64;

/// Methods that are told apart: names must not fill the memory. Later ones are counted as one method.
const MOST_METHODS: usize = 512;

/// The method that stands for them.
const OTHERS: &str = "(others)::any";

/// The method that stands for calls that no method is registered for.
pub(super) const UNKNOWN: &str = "(no service)::any";

/// Threads that answer share out so many numbers among them.
const SHARDS: usize = 8;

/// How calls end, in the order of the numbers of a [`MethodStatistics`].
pub(super) const STATUSES: [&str; 13] = [
    "ok",
    "no_such_service",
    "failed",
    "panicked",
    "cancelled",
    "too_large",
    "timed_out",
    "type_mismatch",
    "malformed",
    "busy",
    "unreachable",
    "may_have_run",
    "other",
];

fn index(status: Status) -> usize {
    match status {
        Status::Ok => 0,
        Status::Error(CallError::NoSuchService) => 1,
        Status::Error(CallError::Failed(_)) => 2,
        Status::Error(CallError::Panicked) => 3,
        Status::Error(CallError::Cancelled) => 4,
        Status::Error(CallError::TooLarge) => 5,
        Status::Error(CallError::TimedOut) => 6,
        Status::Error(CallError::TypeMismatch) => 7,
        Status::Error(CallError::Malformed) => 8,
        Status::Error(CallError::Busy) => 9,
        Status::Error(CallError::Unreachable) => 10,
        Status::Error(CallError::MayHaveRun) => 11,
        Status::Error(_) => 12,
    }
}

/// Times below this many nanoseconds, a power of two, have the first bucket.
const LEAST_LOG2: u32 = 6;

/// Buckets from one power of two to the next, as a power of two.
const PARTS_LOG2: u32 = 2;

/// Buckets: up to 2^37 ns, over two minutes. What takes longer has the last.
const BUCKETS: usize = 1 + ((37 - LEAST_LOG2) << PARTS_LOG2) as usize;

fn bucket(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2().and_then(|log2| log2.checked_sub(LEAST_LOG2)) else { return 0 };
    let part = ns >> (octave + LEAST_LOG2 - PARTS_LOG2) & ((1 << PARTS_LOG2) - 1);
    (1 + (octave << PARTS_LOG2) as usize + part as usize).min(BUCKETS - 1)
}

/// Returns the time in nanoseconds below which the times of a bucket are. The last bucket has longer ones, too.
pub fn bucket_end_ns(bucket: u32) -> u64 {
    let Some(above) = bucket.min(BUCKETS as u32 - 1).checked_sub(1) else { return 1 << LEAST_LOG2 };
    let (octave, part) = (above >> PARTS_LOG2, u64::from(above & ((1 << PARTS_LOG2) - 1)));
    ((1 << PARTS_LOG2) + part + 1) << (octave + LEAST_LOG2 - PARTS_LOG2)
}

/// How long calls took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// How many took a time of each bucket, up to the last that is not empty: see [`bucket_end_ns`].
    pub counts: Vec<u64>,
    /// All their times, in nanoseconds.
    pub sum_ns: u64,
}

impl Durations {
    fn add(&mut self, histogram: &Histogram) {
        for (bucket, count) in histogram.buckets.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                self.counts.resize(self.counts.len().max(bucket + 1), 0);
                self.counts[bucket] += count;
            }
        }
        self.sum_ns += histogram.sum_ns.load(Ordering::Relaxed);
    }
}

struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Histogram {
    fn boxed() -> Box<Self> {
        Box::new(Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) })
    }

    fn add(&self, time: Duration, count: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
    }
}

/// What a consumer counts of a method.
#[derive(Default)]
#[repr(align(128))]
struct OfConsumer {
    /// Lanes whose calls inline handlers have answered.
    calls: Count,
    posts: Count,
    /// Those of the calls that ended with errors, by [`index`].
    errors: OnceLock<Box<[Count; STATUSES.len()]>>,
    /// Those of the calls that were told of as fine: while a batch is counted there seem to be fewer.
    told_fine: AtomicU64,
    timed: OnceLock<Box<Histogram>>,
}

/// What the threads that answer count of a method.
#[repr(align(128))]
struct OfThreads {
    calls: [AtomicU64; STATUSES.len()],
    timed: Histogram,
}

/// What is counted of a method.
pub(crate) struct MethodCounts {
    consumers: Box<[OfConsumer]>,
    threads: OnceLock<Box<[OfThreads; SHARDS]>>,
}

/// Returns which numbers of those that are shared out are this thread's.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let own = SHARD.get();
    if own < SHARDS {
        return own;
    }
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    SHARD.set(own);
    own
}

impl MethodCounts {
    fn new(consumers: usize) -> Arc<Self> {
        let consumers = (0..consumers).map(|_| OfConsumer::default()).collect();
        Arc::new(Self { consumers, threads: OnceLock::new() })
    }

    /// Counts the lanes of a batch. The calling thread is that consumer's.
    #[inline(always)]
    pub fn add_calls(&self, consumer: usize, lanes: usize) {
        self.consumers[consumer].calls.add(lanes as u64);
    }

    /// Counts posts. The calling thread is that consumer's.
    #[inline(always)]
    pub fn add_posts(&self, consumer: usize, posts: usize) {
        self.consumers[consumer].posts.add(posts as u64);
    }

    /// Notes how a call ended that [`MethodCounts::add_calls`] has counted, if it was an error. The calling thread is that
    /// consumer's.
    pub fn note_end(&self, consumer: usize, status: Status) {
        if status != Status::Ok {
            let errors = self.consumers[consumer].errors.get_or_init(Box::default);
            errors[index(status)].add(1);
        }
    }

    /// Notes which calls of a batch ended with errors. The calling thread is that consumer's.
    #[cold]
    pub fn note_errors(&self, consumer: usize, batch: &Batch, replies: &Replies) {
        for [_, meta] in &replies.planes()[0][..batch.lines().lanes()] {
            self.note_end(consumer, Status::from_bits(*meta));
        }
    }

    /// Notes how long a batch took. The calling thread is that consumer's.
    #[cold]
    pub fn note_time(&self, consumer: usize, time: Duration) {
        self.consumers[consumer].timed.get_or_init(Histogram::boxed).add(time, 1);
    }

    /// Counts lanes that have their answers, and how long these took if somebody handled them. For any thread.
    pub fn add_answers(&self, lanes: u32, status: Status, time: Option<Duration>) {
        let threads = self.threads.get_or_init(|| {
            let of_threads = || OfThreads {
                calls: [const { AtomicU64::new(0) }; STATUSES.len()],
                timed: *Histogram::boxed(),
            };
            Box::new(std::array::from_fn(|_| of_threads()))
        });
        let own = &threads[shard()];
        own.calls[index(status)].fetch_add(lanes.into(), Ordering::Relaxed);
        if let Some(time) = time {
            own.timed.add(time, lanes.into());
        }
    }

    fn statistics(&self, name: &'static str) -> MethodStatistics {
        let (mut calls, mut posts) = ([0; STATUSES.len()], 0);
        let (mut at_once, mut later) = (Durations::default(), Durations::default());
        for own in &self.consumers {
            posts += own.posts.get();
            let mut fine = own.calls.get();
            for (sum, errors) in calls.iter_mut().zip(own.errors.get().into_iter().flat_map(|of| of.iter())) {
                *sum += errors.get();
                fine = fine.saturating_sub(errors.get());
            }
            calls[0] += own.told_fine.fetch_max(fine, Ordering::Relaxed).max(fine);
            own.timed.get().into_iter().for_each(|timed| at_once.add(timed));
        }
        for own in self.threads.get().into_iter().flat_map(|threads| threads.iter()) {
            for (sum, count) in calls.iter_mut().zip(&own.calls) {
                *sum += count.load(Ordering::Relaxed);
            }
            later.add(&own.timed);
        }
        let calls = STATUSES.into_iter().zip(calls).filter(|(_, count)| *count > 0).collect();
        MethodStatistics { name, calls, posts, at_once, later }
    }
}

/// What a server has counted of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodStatistics {
    /// The method, with its service.
    pub name: &'static str,
    /// How many lanes' calls ended in each way: `ok`, or the error's name in small letters.
    pub calls: Vec<(&'static str, u64)>,
    /// Posts that were taken.
    pub posts: u64,
    /// How long handlers took on the thread that finds calls: of one batch of 64, which may have calls of many waves.
    pub at_once: Durations,
    /// How long each call of a handler that may wait took, from when it was found until its answer.
    pub later: Durations,
}

/// The methods of a server, by their names.
pub(crate) struct AllCounts {
    consumers: usize,
    methods: Mutex<BTreeMap<&'static str, Arc<MethodCounts>>>,
}

impl AllCounts {
    pub fn new(consumers: usize) -> Self {
        Self { consumers, methods: Mutex::default() }
    }

    /// Returns where the method with this name is counted.
    pub fn of(&self, name: &'static str) -> Arc<MethodCounts> {
        let mut methods = self.methods.lock();
        let is_full = methods.len() >= MOST_METHODS && !methods.contains_key(name);
        let name = if is_full { OTHERS } else { name };
        methods.entry(name).or_insert_with(|| MethodCounts::new(self.consumers)).clone()
    }

    /// Says whether a method of this name was registered, and is told apart.
    pub fn has(&self, name: &str) -> bool {
        self.methods.lock().contains_key(name)
    }

    /// Returns what was counted of the methods that were called or posted to.
    pub fn statistics(&self) -> Vec<MethodStatistics> {
        let methods = self.methods.lock().clone();
        let all = methods.into_iter().map(|(name, counts)| counts.statistics(name));
        all.filter(|of| !of.calls.is_empty() || of.posts > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_the_bucket_that_ends_behind_it() {
        let mut before = 0;
        for bucket_of in 0..BUCKETS {
            let end = bucket_end_ns(bucket_of as u32);
            assert!(end > before);
            assert_eq!((bucket(before), bucket(end - 1)), (bucket_of, bucket_of));
            // A quarter of what it says at most.
            assert!(bucket_of == 0 || (end - before) * 4 <= before.max(1 << LEAST_LOG2));
            before = end;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_end_ns(BUCKETS as u32 - 1), 1 << 37);
    }

    #[test]
    fn all_ends_are_told_apart() {
        let counts = MethodCounts::new(2);
        counts.add_calls(0, 5);
        counts.add_calls(1, 3);
        counts.note_end(1, Status::Error(CallError::Failed(7)));
        counts.note_end(1, Status::Ok);
        counts.note_time(1, Duration::from_nanos(100));
        counts.add_answers(2, Status::Error(CallError::TimedOut), Some(Duration::from_millis(3)));
        counts.add_answers(1, Status::Ok, Some(Duration::from_millis(5)));
        counts.add_posts(1, 4);
        let all = counts.statistics("A::b");
        assert_eq!(all.calls, [("ok", 8), ("failed", 1), ("timed_out", 2)]);
        assert_eq!((all.posts, all.at_once.sum_ns, all.later.sum_ns), (4, 100, 11_000_000));
        assert_eq!(all.later.counts.iter().sum::<u64>(), 3);
    }

    #[test]
    fn names_have_an_end() {
        let all = AllCounts::new(1);
        for number in 0..2 * MOST_METHODS {
            let name = super::super::registry::static_name(&format!("Service::method_{number}"));
            all.of(name).add_posts(0, 1);
        }
        let statistics = all.statistics();
        assert_eq!(statistics.len(), MOST_METHODS + 1);
        assert_eq!(statistics.iter().map(|of| of.posts).sum::<u64>(), 2 * MOST_METHODS as u64);
        assert_eq!(all.statistics()[0].name, OTHERS);
    }
}
