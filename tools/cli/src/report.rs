//! `hostcall run --report json`: one JSON object in place of what the program and the command print, for harnesses that run
//! kernels and for programs that write them.

use crate::{Outcome, complain};
use hostcall::server::{Waiting, WaitsFor};
use hostcall::{Device, LaunchFailure, device};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Most bytes that are kept of each of the program's streams; the others are counted.
const MOST_BYTES: usize = 1 << 20;
/// Most calls that are named one by one.
const MOST_WAITING: usize = 256;

/// What is gathered while the command runs, if it is to be reported.
static REPORT: OnceLock<Mutex<Gathered>> = OnceLock::new();

struct Gathered {
    began: Instant,
    streams: [Stream; 2],
    /// Sentences of the command.
    said: Vec<String>,
    how: &'static str,
    panic: Value,
    waiting: Value,
    refused_posts: u64,
}

#[derive(Default)]
struct Stream {
    text: Vec<u8>,
    cut: u64,
}

/// Has a report made: from now on what is printed is kept.
pub fn begin() {
    let gathered = Gathered {
        began: Instant::now(),
        streams: Default::default(),
        said: Vec::new(),
        how: "not started",
        panic: Value::Null,
        waiting: json!([]),
        refused_posts: 0,
    };
    let _ = REPORT.set(Mutex::new(gathered));
}

fn gathered() -> Option<MutexGuard<'static, Gathered>> {
    REPORT.get().map(|report| report.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps a sentence of the command. Returns whether it is kept, and not to be printed.
pub fn keep(sentence: &str) -> bool {
    gathered().map(|mut report| report.said.push(sentence.to_owned())).is_some()
}

/// Notes how the program ended.
pub fn ended(result: Result<i32, &device::Error>) {
    let Some(mut report) = gathered() else { return };
    report.how = match result {
        Ok(_) => "exited",
        Err(device::Error::Launch { failure: LaunchFailure::Panicked { .. }, .. }) => "panicked",
        Err(_) => "failed",
    };
    if let Err(device::Error::Launch { kernel, failure: LaunchFailure::Panicked { first, others }, .. }) =
        result
    {
        report.panic = json!({ "kernel": kernel, "others": others });
        if let (Some(panic), Some(told)) = (first, report.panic.as_object_mut()) {
            told.insert("message".into(), panic.message.clone().into());
            told.insert("file".into(), panic.file.clone().into());
            told.insert("line".into(), panic.line.into());
            told.insert("column".into(), panic.column.into());
            told.insert("workgroup".into(), panic.workgroup.to_vec().into());
            told.insert("lane".into(), panic.lane.into());
        }
    }
}

/// Notes what ended the program, and what it waited for then.
pub fn stopped(how: &'static str, device: &Device) {
    let Some(mut report) = gathered() else { return };
    report.how = how;
    let waiting = device.waiting();
    report.waiting = waiting.iter().take(MOST_WAITING).map(of_waiting).collect();
}

fn of_waiting(waiting: &Waiting) -> Value {
    let place = waiting.place.as_ref();
    let polled = match waiting.waits_for {
        WaitsFor::Flag(polled) | WaitsFor::Barrier(polled) => Some(polled),
        _ => None,
    };
    json!({
        "service": waiting.service,
        "kernel": &*waiting.kernel,
        "workgroup": place.map(|place| place.workgroup),
        "wave": place.map(|place| place.wave),
        "lanes": waiting.lanes,
        "seconds": waiting.waited.as_secs_f64(),
        "polled": polled.map(|polled| {
            json!({ "address": polled.address, "peer": polled.peer, "sequence": polled.sequence })
        }),
        "text": waiting.to_string(),
    })
}

/// Notes what was lost, when the program has ended.
pub fn lost(device: &Device) {
    if let Some(mut report) = gathered() {
        report.refused_posts = device.statistics().refused_posts;
    }
}

/// Prints the report, if there is to be one. Returns the exit code.
pub fn print(outcome: Outcome) -> Outcome {
    if REPORT.get().is_none() {
        return outcome;
    }
    let code = outcome.unwrap_or_else(|error| {
        complain(error);
        1
    });
    let Some(report) = gathered() else { return Ok(code) };
    let [stdout, stderr] = report.streams.each_ref().map(|stream| String::from_utf8_lossy(&stream.text));
    let object = json!({
        "exit_code": code,
        "ended": report.how,
        "seconds": report.began.elapsed().as_secs_f64(),
        "panic": report.panic,
        "waiting": report.waiting,
        "lost": {
            "posts": report.refused_posts,
            "stdout_bytes": report.streams[0].cut,
            "stderr_bytes": report.streams[1].cut,
        },
        "stdout": stdout,
        "stderr": stderr,
        "said": report.said,
    });
    let mut out = crate::output::Stdout;
    if let Err(error) = writeln!(out, "{object}").and_then(|()| out.flush()) {
        // Not kept for the report, as other sentences are.
        let _ = writeln!(io::stderr(), "hostcall: cannot write the report to the standard output: {error}");
        return Ok(1);
    }
    Ok(code)
}

/// Keeps what the program writes to its standard output or error.
pub struct Kept {
    stream: usize,
}

impl Kept {
    pub const STDOUT: Self = Self { stream: 0 };
    pub const STDERR: Self = Self { stream: 1 };
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut report) = gathered() {
            let stream = &mut report.streams[self.stream];
            let room = bytes.len().min(MOST_BYTES - stream.text.len());
            stream.text.extend_from_slice(&bytes[..room]);
            stream.cut += (bytes.len() - room) as u64;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
