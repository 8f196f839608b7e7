//! `hostcall top`: what processes do that run, as they say themselves.

use super::counts::{MethodShown, Shown};
use super::{Source, time};
use crate::sum;
use hostcall::watch::{self, DeviceMetrics, Latency, MethodMetrics, Process, Request, WatchError};
use hostcall_trace::escaped;
use std::collections::HashMap;
use std::ops::Add;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waiting calls that are shown one by one.
const MOST_WAITS: usize = 64;

/// Between two looks at whether the processes are there still.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Which method of which device of which process.
type Key = (u32, usize, String, String);

pub(super) struct Processes {
    pids: Vec<u32>,
    /// What was counted at the last look.
    before: HashMap<Key, MethodMetrics>,
    /// What they said last.
    now: Vec<Process>,
}

impl Processes {
    /// Looks at these, or at all.
    pub fn open(pids: Vec<u32>) -> Result<Self, String> {
        let mut processes = Self { pids, before: HashMap::new(), now: Vec::new() };
        processes.look()?;
        if processes.now.is_empty() {
            return Err("no process of yours has a device of hostcall's open; name one to be told why".into());
        }
        // What came before is no part of what is shown first.
        processes.take(Duration::from_secs(1));
        Ok(processes)
    }

    /// Asks them. A process that is not there any more is not shown.
    fn look(&mut self) -> Result<(), String> {
        let answers = watch::ask_all(&self.pids, &Request::State)
            .map_err(|error| format!("the system does not say which processes there are: {error}"))?;
        let mut now = Vec::new();
        for (pid, answer) in answers.answers {
            match answer {
                Ok(process) => now.push(process),
                // Those that were seen have ended.
                Err(WatchError::NotThere(_)) if self.now.iter().any(|seen| seen.who.pid == pid) => {}
                Err(error)
                    if !self.pids.is_empty()
                        && !matches!(error, WatchError::Silent(_) | WatchError::Cut(_)) =>
                {
                    return Err(error.to_string());
                }
                // Of several one may be of another version, or have too much to do.
                Err(_) => now.extend(self.now.iter().find(|seen| seen.who.pid == pid).cloned()),
            }
        }
        self.now = now;
        Ok(())
    }
}

/// Returns who a process is, in a few words.
fn name(process: &Process) -> String {
    let who = &process.who;
    let rank = who.rank.map_or_else(String::new, |rank| format!(" rank {rank}"));
    let devices: Vec<_> = process.devices.iter().map(|device| escaped(&device.name)).collect();
    let program: String = who.program.chars().take(40).collect();
    format!("{}{rank} {}: {}", who.pid, escaped(&program), devices.join(" "))
}

/// A number of a device, and what it counts.
type Counter = (fn(&DeviceMetrics) -> u64, &'static str);

/// What devices have lost.
const LOSSES: [Counter; 4] = [
    (|of| of.refused_posts, "posts reached no handler"),
    (|of| of.lost_output_bytes, "bytes that kernels printed"),
    (|of| of.lost_trace_records, "records of traces"),
    (|of| of.lost_reports, "reports to callbacks"),
];

/// Calls that are counted by no method.
const OTHERS: [Counter; 2] =
    [(|of| of.llvm_calls, "calls by LLVM's protocol"), (|of| of.rocm_packets, "packets of ROCm's protocol")];

/// Says how many that are of devices together, of those that are any.
fn in_words(counters: &[Counter], devices: &[&DeviceMetrics]) -> Vec<String> {
    let counted = counters.iter().map(|(of, what)| (sum(devices.iter().map(|device| of(device))), what));
    counted.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}

fn nanoseconds(seconds: Option<f64>) -> u64 {
    (seconds.unwrap_or(0.0) * 1e9) as u64
}

fn shown(name: String, now: &MethodMetrics, before: &MethodMetrics, over_s: f64) -> MethodShown {
    let of = |latency: fn(&MethodMetrics) -> &Latency| latency(now).since(latency(before));
    let latency = if now.later.total() > 0 { of(|of| &of.later) } else { of(|of| &of.at_once) };
    // Some are timed of those of inline handlers: where none was lately, all that were.
    let latency = if latency.total() > 0 { latency } else { now.latency().clone() };
    let rate = |of: fn(&MethodMetrics) -> u64| of(now).saturating_sub(of(before)) as f64 / over_s;
    MethodShown {
        name,
        calls_a_second: rate(MethodMetrics::total),
        posts_a_second: rate(|of| of.posts),
        waiting: now.waiting as f64,
        p50_ns: nanoseconds(latency.quantile_s(0.5)),
        p99_ns: nanoseconds(latency.quantile_s(0.99)),
        most_ns: nanoseconds(latency.quantile_s(1.0)),
        failed: now.errors(),
    }
}

impl Source for Processes {
    /// The processes are asked at the end of the time.
    fn read_until(&mut self, until: Instant) -> Result<bool, String> {
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
        if Instant::now() < until {
            return Ok(false);
        }
        self.look()?;
        Ok(self.now.is_empty() && !self.pids.is_empty())
    }

    fn take(&mut self, elapsed: Duration) -> Shown {
        let over_s = elapsed.as_secs_f64().max(1e-3);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let began = self.now.iter().map(|process| process.who.since).fold(now, f64::min);
        let devices: Vec<&DeviceMetrics> = self
            .now
            .iter()
            .flat_map(|process| process.devices.iter().map(|device| &device.metrics))
            .collect();
        let (mut methods, mut counted, mut waits) = (Vec::new(), HashMap::new(), Vec::new());
        for process in &self.now {
            for (at, device) in process.devices.iter().enumerate() {
                for method in &device.metrics.methods {
                    let key = (process.who.pid, at, method.service.clone(), method.method.clone());
                    let none = MethodMetrics::default();
                    let before = self.before.get(&key).unwrap_or(&none);
                    let of = if devices.len() > 1 {
                        format!("{} {} ", process.who.pid, device.name)
                    } else {
                        String::new()
                    };
                    let parts = if method.method.is_empty() { "" } else { "::" };
                    let name = format!("{of}{}{parts}{}", method.service, method.method);
                    methods.push(shown(escaped(&name).into_owned(), method, before, over_s));
                    counted.insert(key, method.clone());
                }
                waits.extend(device.waiting.iter().map(|wait| (wait.waited_s, wait)));
            }
        }
        methods
            .sort_by(|a, b| b.calls_a_second.total_cmp(&a.calls_a_second).then_with(|| a.name.cmp(&b.name)));
        waits.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.before = counted;
        let of_methods = || devices.iter().flat_map(|device| &device.methods);
        Shown {
            at_s: now - began,
            over_s,
            has_ended: self.now.is_empty(),
            devices: self.now.iter().map(name).collect(),
            calls: sum(of_methods().map(MethodMetrics::total)),
            calls_a_second: methods.iter().map(|method| method.calls_a_second).fold(0.0, f64::add),
            failed_calls: sum(of_methods().map(MethodMetrics::errors)),
            posts: sum(devices.iter().map(|device| device.posts)),
            posts_a_second: methods.iter().map(|method| method.posts_a_second).fold(0.0, f64::add),
            launches_begun: sum(devices
                .iter()
                .flat_map(|of| of.launches_ended.values().copied().chain([of.launches_running]))),
            launches_open: sum(devices.iter().map(|device| device.launches_running)) as usize,
            others: in_words(&OTHERS, &devices),
            lost: in_words(&LOSSES, &devices),
            methods,
            waits: waits
                .into_iter()
                .take(MOST_WAITS)
                .map(|(waited_s, wait)| format!("{}: {}", time((waited_s * 1e9) as u64), escaped(&wait.text)))
                .collect(),
            ..Shown::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::watch::DeviceState;

    /// Numbers of other processes may be any.
    #[test]
    fn numbers_of_others_do_not_overflow() {
        let mut method = MethodMetrics::default();
        method.calls = [("ok".into(), u64::MAX), ("cancelled".into(), 1), ("closed".into(), u64::MAX)].into();
        method.at_once.counts = vec![u64::MAX; 2];
        method.later.counts = vec![u64::MAX; 2];
        let mut device = DeviceState::default();
        device.metrics.methods = vec![method];
        device.metrics.launches_running = u64::MAX;
        device.metrics.launches_ended = [("ok".into(), 1)].into();
        (device.metrics.posts, device.metrics.lost_reports) = (u64::MAX, u64::MAX);
        let mut process = Process::default();
        process.devices = vec![device.clone(), device];
        let mut processes = Processes { pids: vec![1], before: HashMap::new(), now: vec![process] };
        let shown = processes.take(Duration::from_secs(1));
        assert_eq!((shown.calls, shown.failed_calls, shown.posts), (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!((shown.launches_begun, shown.launches_open), (u64::MAX, usize::MAX));
    }
}
