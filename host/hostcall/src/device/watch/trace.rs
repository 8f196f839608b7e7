//! Recording the trace points of a process that runs, because another process asks for it.

use super::{TraceAsked, TraceBegun, TraceEnded};
use crate::device::inner::{Device, Inner};
use crate::device::open_devices;
use crate::device::recording::{PointFilter, PointRecording};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::{Condvar, Mutex};
use hostcall_trace::Tracer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a trace waits for its file.
const LONGEST_FINISH: Duration = Duration::from_secs(2);

/// Longest time that a trace may be asked for.
const LONGEST_TRACE: Duration = Duration::from_secs(7 * 86_400);

/// A trace that others have asked for.
struct Trace {
    file: PathBuf,
    tracer: Tracer,
    recordings: Vec<PointRecording>,
}

impl Trace {
    fn end(self) -> TraceEnded {
        drop(self.recordings);
        let summary = self.tracer.finish(LONGEST_FINISH);
        TraceEnded { file: self.file, lost: summary.lost() }
    }
}

/// The trace, if there is one, and how the last one ended by itself.
#[derive(Default)]
struct State {
    number: u64,
    trace: Option<Trace>,
    ended: Option<TraceEnded>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
/// The state has changed.
static CHANGED: Condvar = Condvar::new();

/// Begins a trace.
pub(super) fn begin(asked: TraceAsked) -> Result<TraceBegun, String> {
    let limit = match asked.for_s {
        None => None,
        Some(seconds) => Some(
            Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|limit| *limit <= LONGEST_TRACE)
                .ok_or("a trace lasts for a week at most")?,
        ),
    };
    let filter = filter(&asked)?;
    let mut state = STATE.lock();
    let state = state.get_or_insert_default();
    if let Some(trace) = &state.trace {
        return Err(format!("it is traced already, to {}: end that trace first", trace.file.display()));
    }
    let devices: Vec<Device> = open();
    if devices.is_empty() {
        return Err("it has no device open".into());
    }
    let tracer = Tracer::builder().file(&asked.file).and_then(|builder| builder.start());
    let tracer = tracer.map_err(|error| error.to_string())?;
    let mut trace = Trace { file: asked.file, tracer, recordings: Vec::new() };
    let (mut names, mut refused) = (Vec::new(), Vec::new());
    for device in devices {
        match device.record_points(&trace.tracer, filter.clone()) {
            Ok(recording) => {
                trace.recordings.push(recording);
                names.push(device.inner.core.name.clone());
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    if names.is_empty() {
        let _ = trace.tracer.finish(LONGEST_FINISH);
        return Err(refused.join("; "));
    }
    state.number += 1;
    (state.trace, state.ended) = (Some(trace), None);
    if let Some(limit) = limit {
        let number = state.number;
        let thread = std::thread::Builder::new().name("hostcall-look".into());
        if let Err(error) = thread.spawn(move || end_after(number, limit)) {
            let _ = state.trace.take().map(Trace::end);
            return Err(format!("the system starts no thread that would end the trace: {error}"));
        }
    }
    Ok(TraceBegun { devices: names, refused })
}

fn filter(asked: &TraceAsked) -> Result<PointFilter, String> {
    let mut filter = PointFilter::default();
    for name in &asked.points {
        filter = filter.name(name);
    }
    for kernel in &asked.kernels {
        filter = filter.kernel(kernel);
    }
    if let Some(launch) = &asked.launch {
        let id = launch.split_once('.').and_then(|(index, generation)| {
            Some(LaunchId::new(index.parse().ok()?, generation.parse().ok()?))
        });
        let id = id.filter(|id| id.to_string() == *launch);
        filter = filter.launch(id.ok_or_else(|| format!("no launch has the id {launch}: ids are like 17.3"))?);
    }
    Ok(filter)
}

/// The open devices. Whoever has them last closes them, here too.
fn open() -> Vec<Device> {
    let open: Vec<_> = open_devices::lock().iter().filter_map(|(_, open)| open.device.upgrade()).collect();
    open.into_iter().filter_map(|device| Some(Device { inner: device.downcast::<Inner>().ok()? })).collect()
}

/// Ends a trace after this time, if nobody has done so before.
fn end_after(number: u64, limit: Duration) {
    let until = Instant::now() + limit;
    let mut state = STATE.lock();
    while let Some(running) = state.as_mut().filter(|state| state.number == number && state.trace.is_some()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            running.ended = running.trace.take().map(Trace::end);
            return;
        }
        state = CHANGED.wait_timeout(state, left).0;
    }
}

/// Ends the trace, or says how it has ended.
pub(super) fn end() -> Result<TraceEnded, String> {
    let mut state = STATE.lock();
    let running = state.get_or_insert_default();
    let ended = match running.trace.take() {
        Some(trace) => Some(trace.end()),
        None => running.ended.take(),
    };
    CHANGED.notify_all();
    ended.ok_or_else(|| "it is not traced".into())
}
