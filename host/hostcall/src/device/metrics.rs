//! What a device counts, in numbers that have an end: by device, service and method, never by what comes and goes.
//!
//! Devices with one name are counted as one, and those that have ended go on counting: so numbers that only grow never fall.

use hostcall_locks::{Mutex, MutexGuard};
use hostcall_server::{Durations, MethodStatistics, Waiting, bucket_end_ns};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Names of devices that have ended which are kept apart: those of backends from outside may be any.
const MOST_NAMES: usize = 64;

/// How long something took, by buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// How many took a time of each bucket: see [`Latency::end_s`].
    pub counts: Vec<u64>,
    /// All their times, in nanoseconds.
    pub sum_ns: u64,
}

impl Latency {
    /// Returns the time in seconds below which the times of a bucket are: buckets end at 64 ns and then at each quarter of a
    /// power of two, at 2^37 ns the last, which has longer times, too.
    pub fn end_s(bucket: usize) -> f64 {
        bucket_end_ns(bucket as u32) as f64 * 1e-9
    }

    /// Returns how many times there are.
    pub fn total(&self) -> u64 {
        sum(self.counts.iter().copied())
    }

    /// Returns a time in seconds that this part of them, 0 to 1, did not exceed, to a quarter of it; none where there are none.
    pub fn quantile_s(&self, part: f64) -> Option<f64> {
        let total = self.total();
        let wanted = (total as f64 * part).ceil().max(1.0) as u64;
        let mut sum = 0u64;
        let bucket = self.counts.iter().position(|count| {
            sum = sum.saturating_add(*count);
            sum >= wanted
        });
        (total > 0).then(|| Self::end_s(bucket.unwrap_or(self.counts.len() - 1)))
    }

    /// Returns what came since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bucket: usize| before.counts.get(bucket).copied().unwrap_or(0);
        let counts = self.counts.iter().enumerate();
        Self {
            counts: counts.map(|(bucket, count)| count.saturating_sub(earlier(bucket))).collect(),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }

    fn add(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

impl From<Durations> for Latency {
    fn from(durations: Durations) -> Self {
        Self { counts: durations.counts, sum_ns: durations.sum_ns }
    }
}

/// What is counted of a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// Its service.
    pub service: String,
    /// Its name.
    pub method: String,
    /// How many lanes' calls ended in each way: `ok`, or an error's name in small letters.
    pub calls: BTreeMap<String, u64>,
    /// Posts that were taken.
    pub posts: u64,
    /// Calls that wait now.
    pub waiting: u64,
    /// The longest that one of them has waited, in seconds.
    pub oldest_wait_s: f64,
    /// How long batches of calls took on the thread that finds calls: of one of 64, which may have the calls of many waves.
    pub at_once: Latency,
    /// How long each call of a handler that may wait took, from when it was found until its answer.
    pub later: Latency,
}

impl MethodMetrics {
    /// Returns how many calls have ended.
    pub fn total(&self) -> u64 {
        sum(self.calls.values().copied())
    }

    /// Returns how many of them have ended with errors.
    pub fn errors(&self) -> u64 {
        sum(self.calls.iter().filter(|(status, _)| *status != "ok").map(|(_, count)| *count))
    }

    /// Returns how long handlers take, measured where most of it was.
    pub fn latency(&self) -> &Latency {
        if self.later.total() > 0 { &self.later } else { &self.at_once }
    }

    fn new(statistics: MethodStatistics) -> Self {
        let (service, method) = split(statistics.name);
        let calls = statistics.calls.into_iter().map(|(status, count)| (status.to_owned(), count));
        Self {
            service,
            method,
            calls: calls.collect(),
            posts: statistics.posts,
            at_once: statistics.at_once.into(),
            later: statistics.later.into(),
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        for (status, count) in &other.calls {
            let sum = self.calls.entry(status.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.posts = self.posts.saturating_add(other.posts);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.oldest_wait_s = self.oldest_wait_s.max(other.oldest_wait_s);
        self.at_once.add(&other.at_once);
        self.later.add(&other.later);
    }
}

/// Divides a method's full name.
fn split(name: &str) -> (String, String) {
    let (service, method) = name.rsplit_once("::").unwrap_or((name, ""));
    (service.to_owned(), method.to_owned())
}

macro_rules! device_metrics {
    (
        sums { $($(#[$doc:meta])* $sum:ident,)* }
        levels { $($(#[$level_doc:meta])* $level:ident,)* }
    ) => {
        /// What is counted of the devices with one name.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct DeviceMetrics {
            /// The name.
            pub name: String,
            /// How many of them are open.
            pub open: u64,
            /// The methods that were called or posted to.
            pub methods: Vec<MethodMetrics>,
            /// How many launches have ended in each way: `ok`, `panicked`, `exited`, `failed`, `timed_out` or `cancelled`.
            pub launches_ended: BTreeMap<String, u64>,
            /// The longest that a call or a wave has waited which waits now, in seconds.
            pub oldest_wait_s: f64,
            $($(#[$doc])* pub $sum: u64,)*
            $($(#[$level_doc])* pub $level: u64,)*
        }

        impl DeviceMetrics {
            /// Adds what other devices of the name count.
            pub fn add(&mut self, other: &Self) {
                self.open = self.open.saturating_add(other.open);
                self.oldest_wait_s = self.oldest_wait_s.max(other.oldest_wait_s);
                for (end, count) in &other.launches_ended {
                    let sum = self.launches_ended.entry(end.clone()).or_default();
                    *sum = sum.saturating_add(*count);
                }
                for method in &other.methods {
                    self.method(&method.service, &method.method).add(method);
                }
                $(self.$sum = self.$sum.saturating_add(other.$sum);)*
                $(self.$level = self.$level.saturating_add(other.$level);)*
            }

            /// Forgets what is of open devices alone: what is left only grows.
            #[must_use]
            pub fn ended(mut self) -> Self {
                (self.open, self.oldest_wait_s) = (0, 0.0);
                for method in &mut self.methods {
                    (method.waiting, method.oldest_wait_s) = (0, 0.0);
                }
                $(self.$level = 0;)*
                self
            }
        }
    };
}

device_metrics! {
    sums {
        /// Calls of waves that were taken: of one lane or several.
        packets,
        /// Posts that were taken.
        posts,
        /// Posts that reached no handler.
        refused_posts,
        /// How often posts were left in their ring, because their service had no room for more.
        declined_posts,
        /// Handlers that panicked.
        handler_panics,
        /// Slots given up and words skipped because the device wrote what makes no sense there, and calls by other protocols that
        /// could not go on.
        faults,
        /// Reports to callbacks that were dropped.
        lost_reports,
        /// Packets of ROCm's protocol.
        rocm_packets,
        /// Calls by LLVM's protocol, of programs and code objects.
        llvm_calls,
        /// Bytes that kernels printed.
        output_bytes,
        /// Bytes of these that were lost.
        lost_output_bytes,
        /// Calls, launches, posts and records of trace points that a trace has lost.
        lost_trace_records,
    }
    levels {
        /// Launches that have not ended.
        launches_running,
        /// Calls and waves that wait.
        waiting_calls,
        /// Handlers that wait for a thread.
        waiting_handlers,
        /// Threads for handlers.
        handler_threads,
        /// Bytes of messages and replies that are held.
        message_bytes,
        /// Bytes that kernels printed and nobody has written.
        unwritten_output_bytes,
    }
}

impl DeviceMetrics {
    /// Makes those of a device from its methods.
    pub(crate) fn new(name: &str, methods: Vec<MethodStatistics>) -> Self {
        let methods = methods.into_iter().map(MethodMetrics::new).collect();
        Self { name: name.to_owned(), open: 1, methods, ..Self::default() }
    }

    fn method(&mut self, service: &str, method: &str) -> &mut MethodMetrics {
        let is_it = |of: &MethodMetrics| of.service == service && of.method == method;
        let at = self.methods.iter().position(is_it).unwrap_or_else(|| {
            let (service, method) = (service.to_owned(), method.to_owned());
            self.methods.push(MethodMetrics { service, method, ..MethodMetrics::default() });
            self.methods.len() - 1
        });
        &mut self.methods[at]
    }

    /// Notes what waits now. What waits for no method that was called counts for the device alone: a name of it may be any.
    pub(crate) fn add_waiting(&mut self, waiting: &[Waiting], known: impl Fn(&str) -> bool) {
        let seconds = |waited: Duration| waited.as_secs_f64();
        for wait in waiting {
            self.waiting_calls += 1;
            self.oldest_wait_s = self.oldest_wait_s.max(seconds(wait.waited));
            if known(&wait.service) {
                let (service, method) = split(&wait.service);
                let of = self.method(&service, &method);
                of.waiting += 1;
                of.oldest_wait_s = of.oldest_wait_s.max(seconds(wait.waited));
            }
        }
    }
}

/// What devices have counted that have ended, by their names.
static ENDED: Mutex<BTreeMap<String, DeviceMetrics>> = Mutex::new(BTreeMap::new());

/// No device ends while what is returned lives. A child that the process makes forgets what is its parent's.
pub(crate) fn hold_ended() -> MutexGuard<'static, BTreeMap<String, DeviceMetrics>> {
    ENDED.lock()
}

/// Keeps what a device has counted that ends.
pub(crate) fn note_ended(ended: &mut BTreeMap<String, DeviceMetrics>, metrics: DeviceMetrics) {
    let mut metrics = metrics.ended();
    if ended.len() >= MOST_NAMES && !ended.contains_key(&metrics.name) {
        metrics.name = "(others)".to_owned();
    }
    let of = ended.entry(metrics.name.clone()).or_default();
    of.name.clone_from(&metrics.name);
    of.add(&metrics);
}

/// Adds what devices count to a list that has each name once.
pub(crate) fn add_all(all: &mut Vec<DeviceMetrics>, devices: impl IntoIterator<Item = DeviceMetrics>) {
    for device in devices {
        match all.iter_mut().find(|of| of.name == device.name) {
            Some(of) => of.add(&device),
            None => all.push(device),
        }
    }
}

/// Adds what open devices count to what was kept of those that have ended. None ends while they are asked: each counts once.
pub(crate) fn with_ended<I: IntoIterator<Item = DeviceMetrics>>(
    open: impl FnOnce() -> I,
) -> Vec<DeviceMetrics> {
    let ended = ENDED.lock();
    let mut all: Vec<_> = ended.values().cloned().collect();
    add_all(&mut all, open());
    all
}

/// Adds numbers that another process has said, which may be any.
pub(crate) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_counted_stays_when_they_end() {
        let of = |calls: u64, waiting: u64| {
            let calls = BTreeMap::from([("ok".to_owned(), calls)]);
            let method = MethodMetrics {
                service: "A".into(),
                method: "b".into(),
                calls,
                waiting,
                ..Default::default()
            };
            let (name, methods) = ("a test's".to_owned(), vec![method]);
            DeviceMetrics { name, methods, open: 1, packets: 5, handler_threads: 2, ..Default::default() }
        };
        note_ended(&mut hold_ended(), of(10, 3));
        let all = with_ended(|| [of(1, 1), of(2, 0)]);
        let device = all.iter().find(|device| device.name == "a test's").unwrap();
        assert_eq!((device.open, device.packets, device.handler_threads), (2, 15, 4));
        assert_eq!((device.methods[0].total(), device.methods[0].waiting), (13, 1));
    }

    #[test]
    fn quantiles_are_the_ends_of_buckets() {
        let latency = Latency { counts: vec![0, 98, 0, 1, 1], sum_ns: 9000 };
        let [half, most, all] = [0.5, 0.99, 1.0].map(|part| latency.quantile_s(part).unwrap());
        assert_eq!([half, most, all], [Latency::end_s(1), Latency::end_s(3), Latency::end_s(4)]);
        assert_eq!(Latency::default().quantile_s(0.5), None);
        assert_eq!(latency.since(&latency).total(), 0);
    }
}
