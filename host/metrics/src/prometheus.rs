//! Prometheus's text format, version 0.0.4.

use crate::series::{DEVICES, Kind, METHODS, Series, TIMES, buckets};
use hostcall::watch::{DeviceMetrics, MethodMetrics, Metrics};
use std::fmt::{self, Display, Write as _};

/// The text's type, as a header says it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A label's value, of which others may have said any text.
struct Value<'a>(&'a str);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// A label's name and its value.
pub type Label = (&'static str, String);

/// A number of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The series' name, such as `hostcall_calls_total`.
    pub name: String,
    /// Which of the series' numbers it is.
    pub labels: Vec<Label>,
    /// The number.
    pub value: f64,
}

impl Sample {
    /// Returns the labels as the text has them: `device="cpu",service="Shop"`.
    pub fn labels_text(&self) -> String {
        let label = |(name, value): &Label| format!("{name}=\"{}\"", Value(value));
        self.labels.iter().map(label).collect::<Vec<_>>().join(",")
    }
}

/// Series that have one help text.
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
    samples: Vec<Sample>,
}

impl Family {
    fn new(name: &str, kind: &'static str, help: &'static str) -> Self {
        Self { name: format!("hostcall_{name}"), kind, help, samples: Vec::new() }
    }

    /// Adds a number; the name of its series may be longer.
    fn add(&mut self, end: &str, labels: &[Label], more: Option<Label>, value: f64) {
        let labels = labels.iter().cloned().chain(more).collect();
        self.samples.push(Sample { name: format!("{}{end}", self.name), labels, value });
    }

    fn of_series<T>(series: &Series<T>, of: &Labelled<'_, T>) -> Self {
        let (kind, end) = match series.kind {
            Kind::Sum => ("counter", "_total"),
            Kind::Level => ("gauge", ""),
        };
        let mut family = Self::new(&format!("{}{end}", series.name), kind, series.help);
        of.iter().for_each(|(labels, of)| family.add("", labels, None, (series.value)(of)));
        family
    }
}

/// All of one thing's labels with the thing.
type Labelled<'a, T> = Vec<(Vec<Label>, &'a T)>;

fn families(processes: &[Metrics]) -> Vec<Family> {
    let mut devices: Labelled<'_, DeviceMetrics> = Vec::new();
    let mut methods: Labelled<'_, MethodMetrics> = Vec::new();
    for process in processes {
        for device in &process.devices {
            let rank = process.who.rank.map(|rank| ("rank", rank.to_string()));
            let labels: Vec<Label> = [("device", device.name.clone())].into_iter().chain(rank).collect();
            for method in &device.methods {
                let of = [("service", method.service.clone()), ("method", method.method.clone())];
                methods.push((labels.iter().cloned().chain(of).collect(), method));
            }
            devices.push((labels, device));
        }
    }
    let mut all: Vec<Family> = DEVICES.iter().map(|series| Family::of_series(series, &devices)).collect();
    all.extend(METHODS.iter().map(|series| Family::of_series(series, &methods)));
    let mut launches = Family::new("launches_total", "counter", "Launches that have ended, by how they did.");
    for (labels, device) in &devices {
        for (end, count) in &device.launches_ended {
            launches.add("", labels, Some(("result", end.clone())), *count as f64);
        }
    }
    let mut calls = Family::new("calls_total", "counter", "Calls of lanes that have ended, by how they did.");
    for (labels, method) in &methods {
        for (status, count) in &method.calls {
            calls.add("", labels, Some(("status", status.clone())), *count as f64);
        }
    }
    all.extend([launches, calls]);
    for times in &TIMES {
        let mut family = Family::new(times.names[0], "histogram", times.help);
        for (labels, method) in &methods {
            let latency = (times.value)(method);
            if latency.total() == 0 {
                continue;
            }
            let (ends, counts) = buckets(latency);
            let mut sum = 0;
            for (end, count) in ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(counts) {
                sum = u64::saturating_add(sum, count);
                family.add("_bucket", labels, Some(("le", end)), sum as f64);
            }
            family.add("_sum", labels, None, latency.sum_ns as f64 * 1e-9);
            family.add("_count", labels, None, sum as f64);
        }
        all.push(family);
    }
    all
}

/// Returns what processes have counted as numbers: all that [`text`] has.
pub fn samples(processes: &[Metrics]) -> Vec<Sample> {
    families(processes).into_iter().flat_map(|family| family.samples).collect()
}

/// Returns what processes have counted as a text, as Prometheus scrapes it. Of several, each has a rank of its own, or one has
/// none: see [`Processes`](crate::processes::Processes).
pub fn text(processes: &[Metrics]) -> String {
    let mut text = String::new();
    for Family { name, kind, help, samples } in families(processes) {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for sample in samples {
            let _ = writeln!(text, "{}{{{}}} {}", sample.name, sample.labels_text(), sample.value);
        }
    }
    text
}

/// Has Prometheus scrape this process at `http://ADDRESS/metrics`, from a thread of its own until the process ends. Returns the
/// address, whose port the system chooses where it is 0.
///
/// # Errors
/// When the system does not let the process listen there, or starts no thread.
#[cfg(feature = "serve")]
pub fn serve(address: impl std::net::ToSocketAddrs) -> std::io::Result<std::net::SocketAddr> {
    use crate::http::{Reply, Server};
    let server = Server::bind(address)?;
    let bound = server.address();
    let answer = |request: &crate::http::Request<'_>| match request.path {
        "/metrics" => Reply::new(CONTENT_TYPE, text(&[hostcall::metrics()])),
        _ => Reply::not_found("/metrics"),
    };
    std::thread::Builder::new().name("hostcall-metrics".into()).spawn(move || server.run(answer))?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_may_be_a_label() {
        assert_eq!(Value("a \"b\"\\\nc{}").to_string(), "a \\\"b\\\"\\\\\\nc{}");
    }
}
