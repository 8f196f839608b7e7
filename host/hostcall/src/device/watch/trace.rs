//! Recording the trace points of a process that runs, because another process asks for it.

use crate::device::error::Error;
use crate::device::inner::{Device, Inner};
use crate::device::open_devices;
use crate::device::point_filter::PointFilter;
use crate::device::recording::PointRecording;
use hostcall_abi::launch::LaunchId;
use hostcall_locks::{Condvar, Mutex, MutexGuard};
use hostcall_trace::Tracer;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the end of a trace waits for its file.
const LONGEST_FINISH: Duration = Duration::from_secs(2);

/// How long who ends a trace waits for another one that begins or ends just now. Meanwhile it has one of the connections of which
/// there are few, and a driver in which a beginning hangs may never return.
const LONGEST_BUSY: Duration = Duration::from_secs(3);

/// Longest time that a trace may be asked for.
const LONGEST_TRACE: Duration = Duration::from_secs(7 * 86_400);

/// What another process wants recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceAsked {
    /// The file, by its whole path, which the process writes.
    pub file: PathBuf,
    /// Points whose names match one of these ([`crate::PointFilter`]); all if there is none.
    pub points: Vec<String>,
    /// Kernels whose names match one of these; all if there is none.
    pub kernels: Vec<String>,
    /// One launch alone, as `17.3`.
    pub launch: Option<String>,
    /// The process ends the trace after so many seconds.
    pub for_s: Option<f64>,
}

/// What is recorded from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceBegun {
    /// Which of the process's traces it is, from 1 on: for [`Request::TraceOff`](super::Request::TraceOff).
    #[serde(default)]
    pub number: u64,
    /// The devices.
    pub devices: Vec<String>,
    /// Why others are not recorded.
    pub refused: Vec<String>,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnded {
    /// The file.
    pub file: PathBuf,
    /// What it lacks, in a sentence.
    pub lost: Option<String>,
}

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
    /// Of the last trace that was begun.
    number: u64,
    trace: Option<Trace>,
    /// A trace is begun, or ends by itself, just now.
    is_busy: bool,
    ended: Option<TraceEnded>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
/// The state has changed.
static CHANGED: Condvar = Condvar::new();

/// Nobody begins or ends a trace while what is returned lives.
pub(crate) fn hold() -> impl Sized {
    let state: MutexGuard<'static, _> = STATE.lock();
    state
}

/// Forgets a trace of the parent's in its child, which has not the threads that write it.
pub(crate) fn forget() {
    std::mem::forget(STATE.lock().take());
}

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
    // Who opens a pipe waits for its reader.
    if asked.file.metadata().is_ok_and(|file| !file.is_file()) {
        return Err(format!("{} is no file: name one, or none that is there", asked.file.display()));
    }
    let busy = Busy::enter()?;
    // Without the lock: a driver may hang.
    let begun = record(asked.file, &filter);
    let (trace, names, refused) = begun?;
    let number = {
        let mut state = STATE.lock();
        let state = state.get_or_insert_default();
        state.number += 1;
        (state.trace, state.ended) = (Some(trace), None);
        state.number
    };
    drop(busy);
    if let Some(limit) = limit {
        let thread = std::thread::Builder::new().name("hostcall-look".into());
        if let Err(error) = thread.spawn(move || end_after(number, limit)) {
            let _ = end(Some(number));
            return Err(format!("the system starts no thread that would end the trace: {error}"));
        }
    }
    Ok(TraceBegun { number, devices: names, refused })
}

/// A trace is begun or ended just now.
struct Busy(());

impl Busy {
    /// Refuses to begin another trace.
    fn enter() -> Result<Self, String> {
        let mut state = STATE.lock();
        let state = state.get_or_insert_default();
        // One whose devices have all ended has all that they wrote.
        state.trace.take_if(|trace| trace.recordings.iter().all(PointRecording::is_over));
        if let Some(trace) = &state.trace {
            return Err(format!("it is traced already, to {}: end that trace first", trace.file.display()));
        }
        if std::mem::replace(&mut state.is_busy, true) {
            return Err("another trace begins or ends just now: ask again".into());
        }
        Ok(Self(()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(state) = STATE.lock().as_mut() {
            state.is_busy = false;
        }
        CHANGED.notify_all();
    }
}

/// Begins to record the devices that are open. Returns the trace with their names, and why others are not recorded.
fn record(file: PathBuf, filter: &PointFilter) -> Result<(Trace, Vec<String>, Vec<String>), String> {
    let (devices, recorded): (Vec<Device>, _) =
        open().into_iter().partition(|device| !device.inner.points.is_recorded());
    let name = |device: &Device| device.inner.core.name.clone();
    let mut refused: Vec<_> =
        recorded.iter().map(|device| Error::PointsRecorded { device: name(device) }.to_string()).collect();
    // The file is made, or emptied, where something can be recorded.
    if devices.is_empty() {
        return Err(if refused.is_empty() { "it has no device open".into() } else { refused.join("; ") });
    }
    let tracer = Tracer::builder().file(&file).and_then(|builder| builder.start());
    let tracer = tracer.map_err(|error| error.to_string())?;
    let mut trace = Trace { file, tracer, recordings: Vec::new() };
    let mut names = Vec::new();
    for device in devices {
        match device.record_points(&trace.tracer, filter.clone()) {
            Ok(recording) => {
                trace.recordings.push(recording);
                names.push(name(&device));
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    if names.is_empty() {
        let _ = trace.end();
        return Err(refused.join("; "));
    }
    Ok((trace, names, refused))
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
        filter =
            filter.launch(id.ok_or_else(|| format!("no launch has the id {launch}: ids are like 17.3"))?);
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
            let trace = running.trace.take();
            running.is_busy = true;
            drop(state);
            let busy = Busy(());
            let ended = trace.map(Trace::end);
            if let Some(state) = STATE.lock().as_mut() {
                state.ended = ended;
            }
            drop(busy);
            return;
        }
        state = CHANGED.wait_timeout(state, left).0;
    }
}

/// Ends the trace, or says how it has ended: the one with this number, if there is one.
pub(super) fn end(number: Option<u64>) -> Result<TraceEnded, String> {
    let (trace, ended) = {
        let is_busy = |state: &mut Option<State>| state.as_ref().is_some_and(|state| state.is_busy);
        let (mut state, is_busy) = CHANGED.wait_timeout_while(STATE.lock(), LONGEST_BUSY, is_busy);
        if is_busy {
            return Err("another trace begins or ends just now, and takes long: ask again".into());
        }
        let state = state.get_or_insert_default();
        if number.is_some_and(|number| number != state.number) {
            return Err("that trace has ended before, and another one has begun since".into());
        }
        (state.trace.take(), state.ended.take())
    };
    CHANGED.notify_all();
    let sentence = match number {
        None => "it is not traced",
        Some(_) => "that trace has been ended before, by somebody else",
    };
    trace.map(Trace::end).or(ended).ok_or_else(|| sentence.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace begins, and its driver never returns.
    #[test]
    fn who_ends_a_trace_does_not_wait_for_ever() {
        let busy = Busy::enter().unwrap();
        let error = end(None).unwrap_err();
        assert!(error.contains("takes long: ask again"), "{error}");
        drop(busy);
        assert_eq!(end(None).unwrap_err(), "it is not traced");
    }
}
