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

/// The labels of a device.
fn of_device(metrics: &Metrics, device: &DeviceMetrics) -> String {
    let rank = metrics.who.rank.map_or_else(String::new, |rank| format!(",rank=\"{rank}\""));
    format!("device=\"{}\"{rank}", Value(&device.name))
}

fn of_method(device: &str, method: &MethodMetrics) -> String {
    format!("{device},service=\"{}\",method=\"{}\"", Value(&method.service), Value(&method.method))
}

/// All of one thing's labels with the thing.
type Labelled<'a, T> = Vec<(String, &'a T)>;

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP hostcall_{name} {help}\n# TYPE hostcall_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "hostcall_{name}{{{labels}}} {value}");
    }

    fn series<T>(&mut self, series: &Series<T>, of: &Labelled<'_, T>) {
        let (kind, end) = match series.kind {
            Kind::Sum => ("counter", "_total"),
            Kind::Level => ("gauge", ""),
        };
        let name = format!("{}{end}", series.name);
        self.family(&name, kind, series.help);
        of.iter().for_each(|(labels, of)| self.sample(&name, labels, (series.value)(of)));
    }
}

/// Returns what processes have counted as a text, as Prometheus scrapes it. Of several, each has a rank of its own, or one has
/// none: see [`Processes`](crate::processes::Processes).
pub fn text(processes: &[Metrics]) -> String {
    let mut devices: Labelled<'_, DeviceMetrics> = Vec::new();
    let mut methods: Labelled<'_, MethodMetrics> = Vec::new();
    for process in processes {
        for device in &process.devices {
            let labels = of_device(process, device);
            methods.extend(device.methods.iter().map(|method| (of_method(&labels, method), method)));
            devices.push((labels, device));
        }
    }
    let mut text = Text(String::new());
    DEVICES.iter().for_each(|series| text.series(series, &devices));
    METHODS.iter().for_each(|series| text.series(series, &methods));
    text.family("launches_total", "counter", "Launches that have ended, by how they did.");
    for (labels, device) in &devices {
        for (end, count) in &device.launches_ended {
            text.sample("launches_total", &format!("{labels},result=\"{}\"", Value(end)), count);
        }
    }
    text.family("calls_total", "counter", "Calls of lanes that have ended, by how they did.");
    for (labels, method) in &methods {
        for (status, count) in &method.calls {
            text.sample("calls_total", &format!("{labels},status=\"{}\"", Value(status)), count);
        }
    }
    for times in &TIMES {
        let name = times.names[0];
        text.family(name, "histogram", times.help);
        for (labels, method) in &methods {
            let latency = (times.value)(method);
            if latency.total() == 0 {
                continue;
            }
            let (ends, counts) = buckets(latency);
            let mut sum = 0;
            for (end, count) in ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(counts) {
                sum += count;
                text.sample(&format!("{name}_bucket"), &format!("{labels},le=\"{end}\""), sum);
            }
            text.sample(&format!("{name}_sum"), labels, latency.sum_ns as f64 * 1e-9);
            text.sample(&format!("{name}_count"), labels, sum);
        }
    }
    text.0
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
