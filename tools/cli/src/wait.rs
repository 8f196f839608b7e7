//! Waiting for a program that runs: for its end and its output, and what is said where a limit or a signal comes first.

use crate::{Outcome, complain, report};
use hostcall::device::Error as DeviceError;
use hostcall::server::WaitsFor;
use hostcall::{Device, Grid, LaunchFailure};
use signal_hook::consts::{SIGPIPE, SIGQUIT};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Exit code of a program that panicked, as of a Rust process.
const PANICKED: i32 = 101;

/// Exit code of a timeout, as of `timeout` of coreutils.
const TIMED_OUT: i32 = 124;

/// What the exit code of a process that a signal ends is above.
pub const BY_SIGNAL: i32 = 128;

/// How long a cancelled program may take to end. The software device ends lanes by force after a second.
const GRACE: Duration = Duration::from_secs(2);

/// How long it is waited for output to be written before it is looked for a second signal.
const LOOK: Duration = Duration::from_millis(20);

/// A reader that has taken nothing for so long is one that the program waits for.
const SLOW: Duration = Duration::from_millis(100);

/// Calls that the report of an interrupted program names one by one; the others are counted.
const MAX_NAMED: usize = 16;

/// What ends the wait for the program.
pub enum Event {
    /// Its lanes have ended, with its exit code.
    Ended(Result<i32, DeviceError>),
    /// After its end: what it has printed is written, or cannot be.
    Written(io::Result<()>),
    Signal(i32),
    /// Nobody reads standard output any more.
    BrokenPipe,
    /// The program did what it must not, and cannot go on.
    Broken(String),
}

impl Event {
    /// Tells of the end of a program, waits for its output and tells of that.
    pub fn tell_end(sender: &Sender<Self>, device: &Device, result: Result<i32, DeviceError>) {
        // The receiver is gone when the process is about to end.
        let _ = sender.send(Self::Ended(result));
        let _ = sender.send(Self::Written(device.builtins().stdio().flush()));
    }
}

/// A program that runs.
pub struct Started {
    pub grid: Grid,
    /// Its calls can be cancelled, and the device tells what it waits for.
    pub can_cancel: bool,
    /// Most of its lanes that run at a time, where the device says it.
    pub resident_lanes: Option<u64>,
}

/// Waits until the program has ended and its output is written, or something else ends it. Returns the command's exit code.
///
/// # Errors
/// None but those that are to be told as a sentence.
pub fn wait(
    device: &Device,
    started: &Started,
    timeout: Option<Duration>,
    events: &Receiver<Event>,
) -> Outcome {
    // A time so late that the clock does not have it never comes.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut ended = None;
    let (code, why) = loop {
        let event = match deadline {
            Some(deadline) => events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(Into::into),
        };
        let says = |most| match ended {
            None => report_of(device, started, most),
            Some(_) => unwritten(device),
        };
        match event {
            Ok(Event::Ended(result)) => {
                report::ended(result.as_ref().copied());
                ended = Some(result);
            }
            Ok(Event::Written(written)) => match (written, ended) {
                (Err(error), Some(Ok(_))) => {
                    complain(format!("output of the program was lost: {error}"));
                    return Ok(1);
                }
                (_, ended) => {
                    report::lost(device);
                    return Ok(ended.map_or(1, exit_code));
                }
            },
            Ok(Event::Signal(SIGQUIT)) => {
                let state = if ended.is_some() { "has ended" } else { "goes on" };
                complain(format!("the program {state}: {}", says(usize::MAX)));
            }
            Ok(Event::Broken(why)) => break (1, Some(why)),
            Ok(Event::BrokenPipe) => break (BY_SIGNAL + SIGPIPE, None),
            Ok(Event::Signal(signal)) => {
                report::stopped("interrupted", device);
                break (BY_SIGNAL + signal, Some(format!("interrupted: {}", says(MAX_NAMED))));
            }
            Err(RecvTimeoutError::Timeout) => {
                report::stopped("timed out", device);
                let seconds = timeout.unwrap_or_default().as_secs_f64();
                let what = if ended.is_some() { "the program's output was" } else { "the program did" };
                let what = format!(
                    "{what} not {} within {seconds} s",
                    if ended.is_some() { "written" } else { "end" }
                );
                break (TIMED_OUT, Some(format!("{what}: {}", says(usize::MAX))));
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("the signals' thread keeps the channel open"),
        }
    };
    why.into_iter().for_each(complain);
    if let Some(Err(error)) = &ended {
        complain(error);
    }
    if ended.is_none() && started.can_cancel {
        device.cancel_all();
        let deadline = Instant::now() + GRACE;
        while let Ok(Event::Broken(_) | Event::BrokenPipe | Event::Signal(SIGQUIT)) =
            events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {}
    }
    write_rest(device, events);
    report::lost(device);
    Ok(code)
}

/// Has what the program printed written, until its reader has taken too long or there is another signal. Says what is not
/// written then.
fn write_rest(device: &Device, events: &Receiver<Event>) {
    let (stdio, deadline) = (device.builtins().stdio(), Instant::now() + GRACE);
    let mut is_over = false;
    // An error was told when it came, or nobody reads any more.
    while let Ok(false) = stdio.flush_until((Instant::now() + LOOK).min(deadline)) {
        if is_over {
            if let Some(unwritten) = stdio.unwritten() {
                complain(format!("{unwritten}: they are lost"));
            }
            break;
        }
        is_over = Instant::now() >= deadline
            || events.try_iter().any(|event| matches!(event, Event::Signal(signal) if signal != SIGQUIT));
    }
    match device.statistics().refused_posts {
        0 => {}
        1 => complain("1 line that the program posted was dropped, since it was ended"),
        posts => complain(format!("{posts} lines that the program posted were dropped, since it was ended")),
    }
}

/// Says how much of the output is not written, and who has not taken it.
fn unwritten(device: &Device) -> String {
    match device.builtins().stdio().unwritten() {
        Some(unwritten) => unwritten.to_string(),
        None => "its output is written".into(),
    }
}

fn exit_code(result: Result<i32, DeviceError>) -> i32 {
    result.unwrap_or_else(|error| {
        complain(&error);
        match error {
            DeviceError::Launch { failure: LaunchFailure::Panicked { .. }, .. } => PANICKED,
            _ => 1,
        }
    })
}

/// Says what the waves of the program wait for, of at most `most` of them one by one.
fn report_of(device: &Device, started: &Started, most: usize) -> String {
    let stalls = device.waiting();
    let slow = device.builtins().stdio().unwritten().filter(|unwritten| unwritten.waited >= SLOW);
    let output = slow.map(|unwritten| unwritten.to_string());
    if let (Some(output), true) = (&output, stalls.is_empty()) {
        return output.clone();
    }
    if stalls.is_empty() {
        let lanes: u64 = started
            .grid
            .workgroups
            .iter()
            .chain(&started.grid.workgroup_size)
            .map(|n| u64::from(*n))
            .product();
        return without_calls(lanes, started.can_cancel, started.resident_lanes);
    }
    let count = |of: fn(&WaitsFor) -> bool| stalls.iter().filter(|stall| of(&stall.waits_for)).count();
    let pages = count(|of| *of == WaitsFor::Page);
    let others = count(|of| matches!(of, WaitsFor::Flag(_) | WaitsFor::Barrier(_) | WaitsFor::Slot));
    let mut report = output.map_or_else(String::new, |output| output + "; ");
    report += &waits(stalls.len() - pages - others, pages, others);
    for stall in stalls.iter().take(most) {
        report += &format!("\n  {stall}");
    }
    if stalls.len() > most {
        report += &format!("\n  and {} more", stalls.len() - most);
    }
    report
}

/// Says how many calls wait, how many waves wait for a page of a raw channel, and how many for something else.
fn waits(calls: usize, pages: usize, others: usize) -> String {
    let calls = match calls {
        0 => None,
        1 => Some("1 call waits for the host".to_owned()),
        calls => Some(format!("{calls} calls wait for the host")),
    };
    let pages = match pages {
        0 => None,
        1 => Some("1 wave waits for a page of a raw channel".to_owned()),
        pages => Some(format!("{pages} waves wait for pages of raw channels")),
    };
    let others = match others {
        0 => None,
        1 => Some("1 wave waits for another".to_owned()),
        others => Some(format!("{others} waves wait for others")),
    };
    calls.into_iter().chain(pages).chain(others).collect::<Vec<_>>().join(", ")
}

/// Says of a program of so many lanes that none waits for a call, as far as that is known.
fn without_calls(lanes: u64, is_known: bool, resident: Option<u64>) -> String {
    match (lanes, is_known, resident) {
        (1, true, _) => "its lane waits for no call".into(),
        (_, true, Some(most)) if most < lanes => {
            format!("none of its lanes waits for a call; at most {most} of the {lanes} run at a time")
        }
        (_, true, _) => format!("none of its {lanes} lanes waits for a call"),
        (1, false, _) => "1 lane has not ended".into(),
        (_, false, _) => format!("not all of {lanes} lanes have ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_that_wait_for_pages_are_no_calls() {
        assert_eq!(waits(1, 0, 0), "1 call waits for the host");
        assert_eq!(waits(0, 1, 1), "1 wave waits for a page of a raw channel, 1 wave waits for another");
        assert_eq!(waits(2, 3, 0), "2 calls wait for the host, 3 waves wait for pages of raw channels");
        assert_eq!(waits(0, 0, 2), "2 waves wait for others");
    }

    #[test]
    fn lanes_that_have_not_begun_are_not_said_to_run() {
        let text = without_calls(25_600, true, Some(8192));
        assert_eq!(text, "none of its lanes waits for a call; at most 8192 of the 25600 run at a time");
        assert_eq!(without_calls(64, true, Some(8192)), "none of its 64 lanes waits for a call");
        assert_eq!(without_calls(25_600, true, None), "none of its 25600 lanes waits for a call");
    }
}
