//! How long calls take, by method.

use crate::escaped;
use crate::names::Names;
use crate::record::{Call, Posts, Status, UNKNOWN};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// Decimal digits of a latency that the histograms keep.
const DIGITS: u8 = 3;

/// Methods with a histogram of their own, of up to 300 KB; calls of later ones are counted as one method.
const MOST_METHODS: usize = 256;

/// The longest latency that is told apart from longer ones: a day.
const MOST_NS: u64 = 86_400_000_000_000;

/// Slowest calls that are kept of a method.
const SLOWEST: usize = 3;

/// The method that stands for those past [`MOST_METHODS`].
const OTHERS: u32 = u32::MAX;

/// What stands above a table.
const TITLE: &str = "calls' times, from where the host finds a call to its answer:";

/// A call that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// From pickup to answer.
    pub latency_ns: u64,
    /// The kernel that called, if it is known.
    pub kernel: Option<Arc<str>>,
    /// The launch's number; 0 when it is not known.
    pub launch: u64,
    /// The workgroup, or [`UNKNOWN`].
    pub workgroup: u32,
    /// The wave, or [`UNKNOWN`].
    pub wave: u32,
    /// The slot.
    pub slot: u32,
}

impl fmt::Display for SlowCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Some(kernel) if !kernel.is_empty() => write!(f, "{} ", escaped(kernel))?,
            _ => {}
        }
        match (self.workgroup, self.wave) {
            (UNKNOWN, _) => write!(f, "slot {}", self.slot)?,
            (workgroup, UNKNOWN) => write!(f, "workgroup {workgroup}")?,
            (workgroup, wave) => write!(f, "workgroup {workgroup} wave {wave}")?,
        }
        write!(f, " {}", Ns(self.latency_ns))
    }
}

/// The calls of one method.
#[derive(Clone)]
pub struct MethodLatencies {
    histogram: Histogram<u64>,
    time_ns: u64,
    lanes: u64,
    failed: u64,
    posts: u64,
    slowest: Vec<SlowCall>,
}

impl MethodLatencies {
    fn new() -> Self {
        let histogram = Histogram::new(DIGITS).expect("a histogram may have this many digits");
        Self { histogram, time_ns: 0, lanes: 0, failed: 0, posts: 0, slowest: Vec::new() }
    }

    /// Returns the latency that this part of the calls did not exceed, for people.
    fn quantile(&self, part: f64) -> String {
        if self.calls() == 0 { "-".into() } else { Ns(self.quantile_ns(part)).to_string() }
    }

    /// Returns how many calls there were.
    pub fn calls(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns how long the calls took, all together, in nanoseconds.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Returns how many lanes called.
    pub fn lanes(&self) -> u64 {
        self.lanes
    }

    /// Returns how many calls had lanes that got an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns how many posts there were.
    pub fn posts(&self) -> u64 {
        self.posts
    }

    /// Returns the latency in nanoseconds that this part of the calls, 0 to 1, did not exceed.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        self.histogram.value_at_quantile(part)
    }

    /// Returns the slowest calls, the slowest one first.
    pub fn slowest(&self) -> &[SlowCall] {
        &self.slowest
    }
}

/// Latencies by method, from pickup to answer.
#[derive(Clone, Default)]
pub struct Latencies {
    methods: HashMap<u32, MethodLatencies>,
}

impl fmt::Debug for MethodLatencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [0.5, 0.99].map(|part| self.quantile(part));
        write!(f, "{} calls, {} posts, p50 {p50}, p99 {p99}", self.calls(), self.posts)
    }
}

/// Shows a line a method, by the number that [`Names::method`] knows; [`Latencies::table`] has their names.
impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.methods.iter().collect::<BTreeMap<_, _>>()).finish()
    }
}

impl Latencies {
    fn of(&mut self, method: u32) -> &mut MethodLatencies {
        let is_full = self.methods.len() >= MOST_METHODS && !self.methods.contains_key(&method);
        let method = if is_full { OTHERS } else { method };
        self.methods.entry(method).or_insert_with(MethodLatencies::new)
    }

    /// Counts posts.
    pub fn add_posts(&mut self, posts: &Posts) {
        let of_method = self.of(posts.method);
        of_method.posts = of_method.posts.saturating_add(posts.count);
    }

    /// Counts a call.
    pub fn add(&mut self, names: &Names, call: &Call) {
        let of_method = self.of(call.method);
        let latency_ns = call.latency_ns();
        let counted = of_method.histogram.record(latency_ns.clamp(1, MOST_NS));
        counted.expect("a histogram grows up to this latency");
        of_method.time_ns = of_method.time_ns.saturating_add(latency_ns);
        of_method.lanes += u64::from(call.lanes);
        of_method.failed += u64::from(call.status != Status::OK);
        let slowest = &mut of_method.slowest;
        let at = slowest.partition_point(|slow| slow.latency_ns >= latency_ns);
        if at < SLOWEST {
            let kernel = names.launch(call.launch).map(|launch| launch.kernel.clone());
            let &Call { launch, workgroup, wave, slot, .. } = call;
            slowest.insert(at, SlowCall { latency_ns, kernel, launch, workgroup, wave, slot });
            slowest.truncate(SLOWEST);
        }
    }

    /// Returns the methods' numbers with what was counted.
    pub fn methods(&self) -> impl Iterator<Item = (u32, &MethodLatencies)> {
        self.methods.iter().map(|(method, latencies)| (*method, latencies))
    }

    /// Returns the latencies of a method.
    pub fn method(&self, method: u32) -> Option<&MethodLatencies> {
        self.methods.get(&method)
    }

    /// Returns a table for a terminal: what it has, and a line a method, sorted by service and method.
    pub fn table(&self, names: &Names) -> String {
        let mut rows: Vec<Vec<String>> = self.methods().map(|(method, of)| row(names, method, of)).collect();
        rows.sort();
        let head =
            ["service", "method", "count", "failed", "posts", "p50", "p99", "p99.9", "slowest callers"];
        rows.insert(0, head.map(String::from).to_vec());
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut table = format!("{TITLE}\n");
        for row in &rows {
            let mut line = String::new();
            for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 | 1 => format!("{text:<width$}  "),
                    2..8 => format!("{text:>width$}  "),
                    _ => text.clone(),
                };
            }
            table += line.trim_end();
            table.push('\n');
        }
        table
    }
}

/// The service by which kernels make their trace points known.
pub const TRACE_POINTS: &str = "TracePoints";

fn row(names: &Names, method: u32, of: &MethodLatencies) -> Vec<String> {
    let (service, method) = match names.method(method) {
        Some(name) => (escaped(name.service()).into_owned(), escaped(name.method()).into_owned()),
        None if method == OTHERS => ("(others)".into(), String::new()),
        None => (String::new(), format!("method {method}")),
    };
    // What the trace itself costs is not what is looked for.
    let is_own = service == TRACE_POINTS;
    let slowest: Vec<String> = of.slowest().iter().filter(|_| !is_own).map(SlowCall::to_string).collect();
    let [calls, failed, posts] = [of.calls(), of.failed(), of.posts()].map(|count| count.to_string());
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| of.quantile(part));
    vec![service, method, calls, failed, posts, p50, p99, p999, slowest.join(", ")]
}

/// Nanoseconds, for people.
struct Ns(u64);

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ns @ 0..1000 => return write!(f, "{ns} ns"),
            ns @ 1000..1_000_000 => (ns as f64 / 1e3, "µs"),
            ns @ 1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
            ns => (ns as f64 / 1e9, "s"),
        };
        let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
        write!(f, "{value:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Event;
    use hostcall_abi::launch::LaunchId;

    #[test]
    fn debug_is_short() {
        let mut latencies = Latencies::default();
        latencies.add(&Names::default(), &Call { method: 7, lanes: 1, replied_ns: 1501, ..Call::at(1) });
        assert_eq!(format!("{latencies:?}"), "{7: 1 calls, 0 posts, p50 1.50 µs, p99 1.50 µs}");
    }

    #[test]
    fn tables_have_a_line_a_method() {
        let mut names = Names::default();
        for (method, name) in [(1, "Inventory::lookup"), (2, "exit")] {
            names.note(&Event::Method { method, number: 300, name: name.into() });
        }
        names.note(&Event::LaunchBegan {
            launch: 1,
            source: 0,
            at_ns: 0,
            workgroups: [1; 3],
            kernel: "gather".into(),
            id: LaunchId::new(0, 1),
        });
        let mut latencies = Latencies::default();
        for latency in 1..=1000 {
            let call = Call { method: 1, launch: 1, workgroup: 4, wave: 2, lanes: 32, ..Call::at(5) };
            latencies.add(&names, &Call { replied_ns: 5 + latency * 1000, ..call });
        }
        latencies.add(&names, &Call { method: 2, slot: 9, status: Status(3), ..Call::at(7) });
        latencies.add_posts(&Posts { method: 1, count: 7, ..Posts::default() });
        names.note(&Event::Method { method: 3, number: 9, name: "TracePoints::register".into() });
        latencies.add(&names, &Call { method: 3, slot: 9, replied_ns: 9000, ..Call::at(0) });
        let table = latencies.table(&names);
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(lines.next().as_deref(), Some(TITLE));
        assert_eq!(lines.next().unwrap(), "service method count failed posts p50 p99 p99.9 slowest callers");
        assert_eq!(lines.next().unwrap(), "exit 1 1 0 1 ns 1 ns 1 ns slot 9 0 ns");
        let line = lines.next().unwrap();
        assert!(line.starts_with("Inventory lookup 1000 0 7 500 µs 990 µs 999 µs gather"), "{line}");
        let slowest = "gather workgroup 4 wave 2 1.00 ms, gather workgroup 4 wave 2 999 µs, ";
        assert!(line.contains(slowest), "{line}");
        let own = lines.next().unwrap();
        assert!(own.starts_with("TracePoints register 1 0 0 ") && own.ends_with(" µs"), "{own}");
        assert_eq!(latencies.method(1).unwrap().lanes(), 32_000);
    }

    #[test]
    fn any_latency_is_counted() {
        let mut latencies = Latencies::default();
        for replied_ns in [0, 1, u64::MAX / 2, u64::MAX] {
            latencies.add(&Names::default(), &Call { replied_ns, ..Call::at(0) });
        }
        assert_eq!(latencies.method(0).unwrap().calls(), 4);
    }
}
