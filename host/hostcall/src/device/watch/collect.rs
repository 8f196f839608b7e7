//! Collects what is told of the process.

use super::groups::{groups, told};
use super::socket::who;
use super::state::{
    DeviceState, HandledCall, LaunchOf, LaunchState, Metrics, OutputState, Polled, Process, ThreadState, Wait,
};
use crate::device::look::{Look, Parts};
use crate::device::metrics::with_ended;
use crate::device::open_devices;
use crate::device::waiting::{WaitingThread, waiting_threads};
use hostcall_abi::launch::LaunchId;
use hostcall_seam::DeviceKind;
use hostcall_server::{OpenLaunch, Waiting, WaitsFor};
use std::sync::Arc;

/// Devices, and launches of each, that are told one by one.
const MOST_DEVICES: usize = 64;
const MOST_LAUNCHES: usize = 64;

const MOST_THREADS: usize = 64;

/// Longest name that is told: those of C++ have no end.
const MOST_CHARACTERS: usize = 512;

pub(super) fn short(text: &str) -> String {
    text.chars().take(MOST_CHARACTERS).collect()
}

/// Returns the devices that are open, as they can be looked at.
pub(super) fn looks() -> Vec<Arc<Look>> {
    open_devices::lock().iter().filter_map(|(_, open)| open.look.clone().downcast().ok()).collect()
}

/// Returns what the process does now.
pub(super) fn process() -> Process {
    let states = looks().into_iter().filter_map(|device| device.at(state));
    let threads = waiting_threads().into_iter().take(MOST_THREADS).map(thread).collect();
    Process { who: who(), devices: states.take(MOST_DEVICES).collect(), threads }
}

/// Returns what the process has counted.
pub(super) fn metrics() -> Metrics {
    let of = |parts: &Parts| parts.metrics(&parts.waiting());
    let devices = looks();
    let open = || devices.iter().filter_map(|device| device.at(of));
    Metrics { who: who(), devices: with_ended(open) }
}

fn state(device: &Parts) -> DeviceState {
    let Parts { core, server, stdio, .. } = device;
    let properties = core.backend.properties();
    let launches = server.launches();
    let waiting = device.waiting();
    let metrics = device.metrics(&waiting);
    let (groups, ungrouped) = groups(&waiting);
    let (waiting, kinds_untold) = told(waiting);
    DeviceState {
        number: core.id(),
        name: core.name.clone(),
        kind: kind(properties.kind).to_owned(),
        product: short(&properties.product),
        closed: core.closed.load(std::sync::atomic::Ordering::Relaxed),
        launches: launches.oldest(MOST_LAUNCHES).into_iter().map(launch).collect(),
        waits_untold: device.waits.untold(),
        may_wait_untold: device.waits.may_wait_untold(),
        metrics,
        waiting: waiting.into_iter().map(wait).collect(),
        kinds_untold,
        groups,
        ungrouped,
        output: OutputState { tail: String::from_utf8_lossy(&stdio.sink().tail()).into_owned() },
    }
}

fn thread(thread: WaitingThread) -> ThreadState {
    let WaitingThread { does, operation, waited, handles, launches } = thread;
    let launch_of = |device, launch: LaunchId| LaunchOf { device, launch: launch.to_string() };
    let handles = handles
        .map(|call| HandledCall { of: launch_of(call.server, call.launch), service: short(call.service) });
    ThreadState {
        does: does.iter().map(|what| short(what)).collect(),
        waits_in: operation.to_owned(),
        waited_s: waited.as_secs_f64(),
        handles,
        waits_for: launches.into_iter().map(|(device, launch)| launch_of(device, launch)).collect(),
    }
}

fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Software => "software",
        DeviceKind::Nvidia => "nvidia",
        DeviceKind::Amd => "amd",
        _ => "other",
    }
}

fn launch(launch: OpenLaunch) -> LaunchState {
    LaunchState {
        id: launch.id.to_string(),
        kernel: short(&launch.record.kernel),
        workgroups: launch.record.workgroups,
        lanes: launch.record.lanes,
        age_s: launch.age.as_secs_f64(),
        cancelled: launch.cancelled.map(|why| format!("{why:?}")),
        is_context: launch.is_context,
    }
}

fn polled(waits_for: WaitsFor) -> Option<Polled> {
    let (WaitsFor::Flag(polled) | WaitsFor::Barrier(polled)) = waits_for else { return None };
    let hostcall_server::Polled { address, peer, sequence, said, .. } = polled;
    let said_ns = u64::try_from(said.as_nanos()).unwrap_or(u64::MAX);
    Some(Polled { address, peer, sequence, said_ns })
}

/// Returns what is waited for in one word: a name alone, also of what says more.
pub(super) fn word_of(waits_for: &WaitsFor) -> String {
    let waits_for = format!("{waits_for:?}");
    waits_for.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

pub(super) fn wait(waiting: Waiting) -> Wait {
    Wait {
        launch: waiting.launch.to_string(),
        kernel: short(&waiting.kernel),
        place: waiting.place.map(Into::into),
        slot: waiting.slot,
        lanes: waiting.lanes,
        service: short(&waiting.service),
        waited_s: waiting.waited.as_secs_f64(),
        waits_for: word_of(&waiting.waits_for),
        polled: polled(waiting.waits_for),
        text: short(&waiting.to_string()),
    }
}
