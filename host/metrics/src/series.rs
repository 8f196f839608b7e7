//! The series, once for all exporters.

use hostcall::watch::{DeviceMetrics, Latency, MethodMetrics};

/// What a number is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Sum,
    /// It is what it is now.
    Level,
}

/// Numbers of a device, or of a method.
pub struct Series<T> {
    /// The name, in Prometheus's way without `hostcall_`; of a sum without `_total`.
    pub name: &'static str,
    /// OpenTelemetry's unit.
    #[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "Prometheus's names have it"))]
    pub unit: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub value: fn(&T) -> f64,
}

const fn sum<T>(
    name: &'static str,
    unit: &'static str,
    value: fn(&T) -> f64,
    help: &'static str,
) -> Series<T> {
    Series { name, unit, kind: Kind::Sum, help, value }
}

const fn level<T>(
    name: &'static str,
    unit: &'static str,
    value: fn(&T) -> f64,
    help: &'static str,
) -> Series<T> {
    Series { name, unit, kind: Kind::Level, help, value }
}

/// Those of devices.
pub const DEVICES: [Series<DeviceMetrics>; 20] = [
    sum(
        "packets",
        "{packet}",
        |of| of.packets as f64,
        "Calls of waves that were taken: of one lane or several.",
    ),
    sum("taken_posts", "{post}", |of| of.posts as f64, "Posts that were taken."),
    sum("refused_posts", "{post}", |of| of.refused_posts as f64, "Posts that reached no handler."),
    sum(
        "declined_posts",
        "{time}",
        |of| of.declined_posts as f64,
        "How often posts were left in their ring for want of room.",
    ),
    sum("handler_panics", "{panic}", |of| of.handler_panics as f64, "Handlers that panicked."),
    sum("faults", "{fault}", |of| of.faults as f64, "Places where the device wrote what makes no sense."),
    sum("lost_reports", "{report}", |of| of.lost_reports as f64, "Reports to callbacks that were dropped."),
    sum("rocm_packets", "{packet}", |of| of.rocm_packets as f64, "Packets of ROCm's protocol."),
    sum("llvm_calls", "{call}", |of| of.llvm_calls as f64, "Calls by LLVM's protocol."),
    sum("output_bytes", "By", |of| of.output_bytes as f64, "Bytes that kernels printed."),
    sum(
        "lost_output_bytes",
        "By",
        |of| of.lost_output_bytes as f64,
        "Bytes that kernels printed and that were lost.",
    ),
    sum(
        "lost_trace_records",
        "{record}",
        |of| of.lost_trace_records as f64,
        "Records that a trace has lost.",
    ),
    level("devices_open", "{device}", |of| of.open as f64, "Devices of this name that are open."),
    level("launches_running", "{launch}", |of| of.launches_running as f64, "Launches that have not ended."),
    level("waiting", "{wave}", |of| of.waiting_calls as f64, "Calls and waves that wait."),
    level(
        "oldest_wait_seconds",
        "s",
        |of| of.oldest_wait_s,
        "How long the one of them has waited that has waited longest.",
    ),
    level(
        "waiting_handlers",
        "{handler}",
        |of| of.waiting_handlers as f64,
        "Handlers that wait for a thread.",
    ),
    level("handler_threads", "{thread}", |of| of.handler_threads as f64, "Threads for handlers."),
    level(
        "message_bytes",
        "By",
        |of| of.message_bytes as f64,
        "Bytes of messages and replies that are held.",
    ),
    level(
        "unwritten_output_bytes",
        "By",
        |of| of.unwritten_output_bytes as f64,
        "Bytes that kernels printed and nobody has written.",
    ),
];

/// Those of methods.
pub const METHODS: [Series<MethodMetrics>; 3] = [
    sum("posts", "{post}", |of| of.posts as f64, "Posts that were taken, by method."),
    level("waiting_calls", "{call}", |of| of.waiting as f64, "Calls that wait, by method."),
    level(
        "oldest_call_seconds",
        "s",
        |of| of.oldest_wait_s,
        "How long the one of them has waited that has waited longest.",
    ),
];

/// Times of methods.
pub struct Times {
    /// The name in Prometheus's way, and in OpenTelemetry's.
    pub names: [&'static str; 2],
    pub help: &'static str,
    pub value: fn(&MethodMetrics) -> &Latency,
}

pub const TIMES: [Times; 2] = [
    Times {
        names: ["call_duration_seconds", "rpc.server.call.duration"],
        help: "How long calls of handlers that may wait took, from when they were found until their answers.",
        value: |of| &of.later,
    },
    Times {
        names: ["inline_batch_duration_seconds", "hostcall.inline.batch.duration"],
        help: "How long batches of calls of inline handlers took: of one batch of 64.",
        value: |of| &of.at_once,
    },
];

/// Powers of two between which times are told apart, in nanoseconds: from 64 ns to 69 s.
const BOUNDS_LOG2: std::ops::RangeInclusive<u32> = 6..=36;

/// Returns the ends of the buckets in seconds, and how many times each has; the last count is of longer ones.
pub fn buckets(latency: &Latency) -> (Vec<f64>, Vec<u64>) {
    let ends: Vec<f64> = BOUNDS_LOG2.map(|log2| (1u64 << log2) as f64 * 1e-9).collect();
    let mut counts = vec![0; ends.len() + 1];
    for (bucket, count) in latency.counts.iter().enumerate() {
        // Both ends are computed in the same way from the same whole number of nanoseconds.
        let at = ends.iter().position(|end| Latency::end_s(bucket) <= *end).unwrap_or(ends.len());
        counts[at] = u64::saturating_add(counts[at], *count);
    }
    (ends, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_in_a_bucket_that_ends_before_it() {
        let mut latency = Latency::default();
        latency.counts = vec![1; 125];
        let (ends, counts) = buckets(&latency);
        assert_eq!((ends.len(), counts.len(), counts.iter().sum::<u64>()), (31, 32, 125));
        assert_eq!((counts[0], counts[1], counts[30], counts[31]), (1, 4, 4, 4));
    }
}
