//! OpenTelemetry's protocol, OTLP over HTTP: numbers since the start of each process, as protobuf.

mod messages;

use crate::series::{DEVICES, Kind, METHODS, Series, TIMES, buckets};
use hostcall::watch::{DeviceMetrics, Identity, Latency, MethodMetrics, Metrics};
use messages::{
    AnyValue, Data, ExportMetricsRequest, Gauge, Histogram, HistogramPoint, KeyValue, Metric, NumberPoint,
    Resource, ResourceMetrics, Scope, ScopeMetrics, Sum,
};
use prost::Message as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a collector may take.
const LONGEST_PUSH: Duration = Duration::from_secs(10);

/// OpenTelemetry's number for sums since the start.
const CUMULATIVE: i32 = 2;

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue::text(value.into())) }
}

fn number(key: &str, value: u64) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue::number(value as i64)) }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Returns who counts, in the names of OpenTelemetry's conventions.
fn resource(who: &Identity) -> Resource {
    let service = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "hostcall".to_owned());
    let mut attributes = vec![
        text("service.name", service),
        text("service.instance.id", format!("{}:{}:{}", who.host, who.pid, nanoseconds(who.since))),
        text("host.name", &*who.host),
        number("process.pid", who.pid.into()),
        text("hostcall.job", &*who.job),
    ];
    attributes.extend(who.rank.map(|rank| number("hostcall.rank", rank)));
    Resource { attributes }
}

/// The time over which points are counted.
#[derive(Clone, Copy)]
struct Times {
    began_ns: u64,
    now_ns: u64,
}

impl Times {
    fn point(self, attributes: Vec<KeyValue>, value: f64) -> NumberPoint {
        NumberPoint {
            attributes,
            start_time_unix_nano: self.began_ns,
            time_unix_nano: self.now_ns,
            value: Some(value),
        }
    }

    fn histogram(self, attributes: Vec<KeyValue>, latency: &Latency) -> HistogramPoint {
        let (explicit_bounds, bucket_counts) = buckets(latency);
        HistogramPoint {
            attributes,
            start_time_unix_nano: self.began_ns,
            time_unix_nano: self.now_ns,
            count: latency.total(),
            sum: Some(latency.sum_ns as f64 * 1e-9),
            bucket_counts,
            explicit_bounds,
        }
    }
}

/// All of one thing's attributes with the thing.
type Described<'a, T> = Vec<(Vec<KeyValue>, &'a T)>;

fn metric(name: &str, unit: &str, help: &str, data: Data) -> Metric {
    Metric { name: name.to_owned(), description: help.to_owned(), unit: unit.to_owned(), data: Some(data) }
}

fn sum(data_points: Vec<NumberPoint>) -> Data {
    Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
}

fn of_series<T>(series: &Series<T>, of: &Described<'_, T>, times: Times) -> Metric {
    let points =
        of.iter().map(|(attributes, of)| times.point(attributes.clone(), (series.value)(of))).collect();
    let data = match series.kind {
        Kind::Sum => sum(points),
        Kind::Level => Data::Gauge(Gauge { data_points: points }),
    };
    metric(&format!("hostcall.{}", series.name), series.unit, series.help, data)
}

fn of_process(process: &Metrics, now_ns: u64) -> ResourceMetrics {
    let times = Times { began_ns: nanoseconds(process.who.since), now_ns };
    let mut devices: Described<'_, DeviceMetrics> = Vec::new();
    let mut methods: Described<'_, MethodMetrics> = Vec::new();
    for device in &process.devices {
        let of_device = vec![text("hostcall.device", &*device.name)];
        for method in &device.methods {
            let name = format!("{}/{}", method.service, method.method);
            let own = [text("rpc.system.name", "hostcall"), text("rpc.method", name)];
            methods.push(([&of_device[..], &own].concat(), method));
        }
        devices.push((of_device, device));
    }
    let mut metrics: Vec<Metric> = DEVICES.iter().map(|series| of_series(series, &devices, times)).collect();
    metrics.extend(METHODS.iter().map(|series| of_series(series, &methods, times)));
    let with = |attributes: &[KeyValue], key, value: &str| [attributes, &[text(key, value)]].concat();
    let ends = devices.iter().flat_map(|(attributes, device)| {
        device
            .launches_ended
            .iter()
            .map(|(end, count)| times.point(with(attributes, "hostcall.result", end), *count as f64))
    });
    metrics.push(metric(
        "hostcall.launches",
        "{launch}",
        "Launches that have ended, by how they did.",
        sum(ends.collect()),
    ));
    let calls = methods.iter().flat_map(|(attributes, method)| {
        let of = |(status, count): (&String, &u64)| {
            let key = if status == "ok" { "hostcall.status" } else { "error.type" };
            times.point(with(attributes, key, status), *count as f64)
        };
        method.calls.iter().map(of).collect::<Vec<_>>()
    });
    metrics.push(metric(
        "hostcall.calls",
        "{call}",
        "Calls of lanes that have ended, by how they did.",
        sum(calls.collect()),
    ));
    for of in &TIMES {
        let timed = methods.iter().filter(|(_, method)| (of.value)(method).total() > 0);
        let data_points = timed
            .map(|(attributes, method)| times.histogram(attributes.clone(), (of.value)(method)))
            .collect();
        let data = Data::Histogram(Histogram { data_points, aggregation_temporality: CUMULATIVE });
        metrics.push(metric(of.names[1], "s", of.help, data));
    }
    let scope = Scope { name: "hostcall".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
    ResourceMetrics { resource: Some(resource(&process.who)), scope_metrics }
}

/// Returns what processes have counted as a request to a collector, `ExportMetricsServiceRequest`.
pub fn request(processes: &[Metrics]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let resource_metrics =
        processes.iter().map(|process| of_process(process, now.as_nanos() as u64)).collect();
    ExportMetricsRequest { resource_metrics }.encode_to_vec()
}

/// Why a collector has not got the numbers.
#[derive(Debug)]
pub struct PushError(String);

impl std::fmt::Display for PushError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PushError {}

/// Says where a collector takes metrics. Its endpoint is what `OTEL_EXPORTER_OTLP_ENDPOINT` is: without the path.
///
/// # Errors
/// When it is no address of HTTP.
pub fn url(endpoint: &str) -> Result<String, PushError> {
    let is_tls = endpoint.starts_with("https://");
    if !is_tls && !endpoint.starts_with("http://") {
        return Err(PushError(format!(
            "the collector {endpoint:?} has to begin with http://, as http://localhost:4318 does"
        )));
    }
    if is_tls && !cfg!(feature = "otlp-tls") {
        return Err(PushError(format!(
            "this program was built without TLS, which {endpoint} needs: push to a collector on this machine, or build \
             hostcall-metrics with the feature `otlp-tls`"
        )));
    }
    Ok(format!("{}/v1/metrics", endpoint.trim_end_matches('/')))
}

/// Pushes what processes have counted to a collector once, at an address of [`url`].
///
/// # Errors
/// When the collector does not take it within ten seconds.
pub fn push(url: &str, processes: &[Metrics]) -> Result<(), PushError> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(LONGEST_PUSH)).build().new_agent();
    let sent = agent.post(url).content_type("application/x-protobuf").send(&request(processes)[..]);
    sent.map(drop)
        .map_err(|error| PushError(format!("the collector at {url} does not take metrics: {error}")))
}

/// Pushes what this process has counted to a collector again and again, from a thread of its own, and once more when it is dropped.
pub struct Push {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Push {
    /// Begins. `on_error` is told of a push that fails, whose numbers come with the next one.
    ///
    /// # Errors
    /// When the endpoint is no address of HTTP, or the system starts no thread.
    pub fn start(
        endpoint: &str,
        every: Duration,
        on_error: impl Fn(PushError) + Send + 'static,
    ) -> Result<Self, PushError> {
        let url = url(endpoint)?;
        let (stop, stopped) = channel();
        let run = move || loop {
            let is_over = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
            if let Err(error) = push(&url, &[hostcall::metrics()]) {
                on_error(error);
            }
            if is_over {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("hostcall-otlp".into()).spawn(run);
        let thread = thread.map_err(|error| {
            PushError(format!("the system starts no thread that pushes metrics: {error}"))
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It pushes once more, for ten seconds at most.
            let _ = thread.join();
        }
    }
}
