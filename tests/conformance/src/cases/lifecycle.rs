//! Devices and servers that come, go, and stand beside each other.

use crate::context::{done, read};
use crate::{Context, Gates, Outcome, Session, echo, ensure, same};
use conformance::calls::call_in_turn;
use conformance::services::{AsyncGate, Gate};
use conformance::statuses::status_wait;
use hostcall::device::{DeviceFaultKind, DeviceInfo, devices};
use hostcall::{DeviceBuffer, Error, Grid, LaunchFailure, Stream};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::{collections::HashMap, ffi::OsString, fs::DirEntry};

const GRID: Grid = Grid::new(3, 40);
const LANES: usize = 120;

/// The way of `status_wait`'s lanes that panic when their call is cancelled.
const PANICS: u32 = 5;

fn open(context: &Context, gates: &Gates) -> Result<Session, String> {
    context.open(|device| {
        let device = device.inline_service(echo()).service(Gate::serve(gates.clone()));
        device.async_service(AsyncGate::serve_async(gates.clone()))
    })
}

/// Launches a kernel whose lanes wait, and returns once calls of them are with the host. Not those of all
/// lanes: the parts of a wave that came apart call one after the other.
fn waiting(session: &Session, gates: &Gates, kind: u32) -> Result<(Stream, DeviceBuffer<u64>), String> {
    let (stream, out) = (session.stream()?, session.out(GRID, 1)?);
    session.launch(&stream, status_wait, GRID, (kind, &out))?;
    if kind == 3 {
        let packets = || session.device.statistics().packets;
        while packets() < 1000 {
            std::thread::sleep(Duration::from_millis(1));
        }
    } else {
        gates.wait_for_arrivals(3)?;
    }
    Ok((stream, out))
}

fn ended_as_cancelled(stream: &Stream, out: &DeviceBuffer<u64>) -> Outcome {
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => {}
        other => return Err(format!("the launch ended with {other:?}")),
    }
    // Lanes learn of it, or are ended by the device between two calls.
    ensure!(read(out)?.iter().all(|value| *value <= 1));
    Ok(())
}

pub fn cancelled_while_waiting(context: &Context) -> Outcome {
    for kind in [0, 1, PANICS] {
        let gates = Gates::default();
        let session = open(context, &gates)?;
        let (stream, out) = waiting(&session, &gates, kind)?;
        ensure!(!session.device.waiting().is_empty());
        session.device.cancel_all();
        let outcome = ended_as_cancelled(&stream, &out);
        gates.open_all();
        outcome?;
        // Lanes whose calls were with a handler got the status.
        ensure!(kind == PANICS || read(&out)?.contains(&1));
        others_are_served(&session)?;
    }
    Ok(())
}

/// Doorbells are overwritten with what is none, as a kernel's errors in memory do: the launch ends and says so, and its
/// slots serve others.
pub fn broken_slots(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = open(context, &gates)?;
    let (stream, _out) = waiting(&session, &gates, 3)?;
    let server = session.device.server();
    while !stream.is_done() {
        server.break_slots();
        std::thread::sleep(Duration::from_millis(1));
    }
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Fault(why), .. }) => {
            ensure!(why.kind == DeviceFaultKind::Channel && why.reason.contains("what is no call"))
        }
        other => return Err(format!("the launch ended with {other:?}")),
    }
    ensure!(session.device.statistics().broken_slots > 0);
    others_are_served(&session)
}

/// The host loses a call: once its launch is cancelled, its wave ends without an answer.
pub fn lost_call(context: &Context) -> Outcome {
    let gates = Gates::default();
    let session = open(context, &gates)?;
    let (stream, _out) = waiting(&session, &gates, 4)?;
    let slot = session.device.waiting()[0].slot;
    session.device.server().ignore(&[slot].into());
    // The answers to these calls come; those of the slot's next call do not.
    gates.open_all();
    let packets = || session.device.statistics().packets;
    let before = packets();
    while packets() < before + 1000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    session.device.cancel_all();
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => {}
        other => return Err(format!("the launch ended with {other:?}")),
    }
    others_are_served(&session)
}

/// Other launches' calls are answered, also through the slots of waves that have ended.
fn others_are_served(session: &Session) -> Outcome {
    for _ in 0..3 {
        let out = session.out(GRID, 1)?;
        session.run(call_in_turn, GRID, (3u32, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

pub fn cancelled_between_calls(context: &Context) -> Outcome {
    for kind in [2, 3] {
        let gates = Gates::default();
        let session = open(context, &gates)?;
        let (stream, out) = waiting(&session, &gates, kind)?;
        session.device.cancel_all();
        let outcome = ended_as_cancelled(&stream, &out);
        gates.open_all();
        outcome?;
        others_are_served(&session)?;
    }
    Ok(())
}

pub fn closed_with_calls_in_flight(context: &Context) -> Outcome {
    for kind in [0, 1, 3, PANICS] {
        let gates = Gates::default();
        let session = open(context, &gates)?;
        let (stream, out) = waiting(&session, &gates, kind)?;
        session.device.close();
        let outcome = ended_as_cancelled(&stream, &out);
        gates.open_all();
        outcome?;
        // What is asked for now is refused, and does not hang.
        ensure!(session.stream().is_err());
        let out = session.out(GRID, 1)?;
        ensure!(session.launch(&stream, call_in_turn, GRID, (3u32, &out)).is_err());
        stream.synchronize().map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub fn two_devices(context: &Context) -> Outcome {
    let (gates, others) = (Gates::default(), Gates::default());
    let (first, second) = (open(context, &gates)?, open(context, &others)?);
    let (stream, out) = waiting(&first, &gates, 0)?;
    // The second device works, and its server's end is not the first one's.
    let values = second.out(GRID, 1)?;
    second.run(call_in_turn, GRID, (50u32, &values))?;
    done(&read(&values)?)?;
    drop(second);
    gates.open_all();
    stream.synchronize().map_err(|error| error.to_string())?;
    same!(read(&out)?, vec![2; LANES]);
    Ok(())
}

/// Two GPUs of one process work at the same time, where there are two.
pub fn two_gpus(context: &Context) -> Outcome {
    let is_other = |device: &DeviceInfo| {
        let kind = |name: &str| name.split(':').next().map(str::to_owned);
        let is_same = device.name == context.device;
        !is_same && kind(&device.name) == kind(&context.device) && device.unavailable.is_none()
    };
    let Some(other) = devices().into_iter().find(is_other) else { return Ok(()) };
    let second = Context { device: other.name, ..context.clone() };
    let (gates, others) = (Gates::default(), Gates::default());
    let sessions = [open(context, &gates)?, open(&second, &others)?];
    // Both have a launch whose lanes wait, and run another beside it.
    let first = waiting(&sessions[0], &gates, 0)?;
    let second = waiting(&sessions[1], &others, 0)?;
    for session in &sessions {
        let out = session.out(GRID, 1)?;
        session.run(call_in_turn, GRID, (50u32, &out))?;
        done(&read(&out)?)?;
    }
    gates.open_all();
    others.open_all();
    for (stream, out) in [first, second] {
        stream.synchronize().map_err(|error| error.to_string())?;
        same!(read(&out)?, vec![2; LANES]);
    }
    Ok(())
}

pub fn several_consumers(context: &Context) -> Outcome {
    for consumers in [2, 3, 7] {
        let session = context
            .open(|device| device.inline_service(echo()).server(move |server| server.consumers(consumers)))?;
        let grid = Grid::new(40, 100);
        let out = session.out(grid, 1)?;
        session.run(call_in_turn, grid, (10u32, &out))?;
        done(&read(&out)?)?;
    }
    Ok(())
}

/// The first consumer threads of this process's servers, and the CPU time of each as the kernel accounts it.
#[cfg(target_os = "linux")]
fn consumers() -> Result<HashMap<OsString, Duration>, String> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(|error| error.to_string())?;
    let consumer = |task: DirEntry| {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let nanoseconds = read("schedstat").split(' ').next().and_then(|text| text.parse().ok());
        let time = Duration::from_nanos(nanoseconds.unwrap_or(0));
        read("comm").starts_with("hostcall-0").then(|| (task.file_name(), time))
    };
    Ok(tasks.flatten().filter_map(consumer).collect())
}

/// A server whose kernel waits for a handler takes next to no time.
#[cfg(target_os = "linux")]
pub fn idle(context: &Context) -> Outcome {
    const SPAN: Duration = Duration::from_millis(400);
    let before = consumers()?;
    let gates = Gates::default();
    let session = open(context, &gates)?;
    let (stream, _out) = waiting(&session, &gates, 0)?;
    std::thread::sleep(Duration::from_millis(50));
    // Other cases may have opened servers beside this one, which are not idle: the idlest one in the idlest of some spans is
    // meant.
    let mut least = SPAN;
    for _ in 0..5 {
        let begin = consumers()?;
        std::thread::sleep(SPAN);
        let end = consumers()?;
        let new = begin.iter().filter(|(thread, _)| !before.contains_key(*thread));
        let spent = new.filter_map(|(thread, begin)| Some(end.get(thread)?.saturating_sub(*begin)));
        least = least.min(spent.min().ok_or("the server has no thread")?);
    }
    gates.open_all();
    stream.synchronize().map_err(|error| error.to_string())?;
    let share = least.as_secs_f64() / SPAN.as_secs_f64();
    println!("an idle server takes {:.2} % of a core", 100.0 * share);
    ensure!(share < 0.05);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub fn idle(_context: &Context) -> Outcome {
    Ok(())
}
