//! The watchdog of a device's calls to Python. It ends calls at their deadlines, and names both sides where nobody gets the GIL:
//! a thread that holds it waits for a kernel, say, whose lanes wait for a function of Python. It never takes the GIL.

use crate::queue::Queue;
use hostcall::server::OpenCalls;
use hostcall_locks::{Condvar, Mutex};
use pyo3::prelude::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks while calls wait: it bounds how late a deadline is noticed.
const PAUSE: Duration = Duration::from_millis(50);
/// For so long calls may wait before somebody tries to take the GIL.
const PROBE_AFTER: Duration = Duration::from_millis(200);
/// For so long the GIL may be asked for until it is reported: together with the others less than a second.
const REPORT_AFTER: Duration = Duration::from_millis(500);

/// A thread that takes the GIL and gives it back, so that another one sees whether anybody can.
#[derive(Default)]
struct Probe {
    state: Mutex<ProbeState>,
    changed: Condvar,
}

#[derive(Default)]
struct ProbeState {
    asked: Option<Instant>,
    is_over: bool,
}

impl Probe {
    fn run(&self) {
        loop {
            let is_idle = |state: &mut ProbeState| state.asked.is_none() && !state.is_over;
            let state = self.changed.wait_while(self.state.lock(), is_idle);
            if state.is_over {
                return;
            }
            drop(state);
            let _ = Python::try_attach(|_| ());
            self.state.lock().asked = None;
        }
    }

    /// Asks for the GIL, if that is not asked. Returns for how long it was.
    fn ask(&self) -> Duration {
        let mut state = self.state.lock();
        let since = *state.asked.get_or_insert_with(Instant::now);
        self.changed.notify_one();
        since.elapsed()
    }

    /// Returns for how long the GIL was asked for, if it is.
    fn asked(&self) -> Duration {
        self.state.lock().asked.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_one();
    }
}

/// Starts the threads; they end when the queue is closed. `dump` prints the stacks of Python's threads without the GIL.
pub fn start(queue: Arc<Queue>, device: String, dump: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let probe = Arc::<Probe>::default();
    let probes = probe.clone();
    thread::Builder::new().name("hostcall-probe".into()).spawn(move || probes.run())?;
    let ended = probe.clone();
    let watch = move || {
        let mut reported = None;
        while let Some(open) = queue.look(PAUSE) {
            let now = Instant::now();
            let late: Vec<_> = open.iter().filter(|(_, since)| now - *since > PROBE_AFTER).collect();
            let asked = if late.is_empty() { probe.asked() } else { probe.ask() };
            // Of what waits for one holder of the GIL it is told once: as long as a call waits that was told of.
            let is_told = reported.is_some_and(|at| late.iter().any(|(_, since)| *since <= at));
            if asked >= REPORT_AFTER && !late.is_empty() && !is_told {
                reported = Some(now);
                // Whether it is written or not: nobody else could be told.
                let _ = std::io::stderr().write_all(report(&device, asked, &late).as_bytes());
                dump();
            }
        }
        probe.end();
    };
    let started = thread::Builder::new().name("hostcall-watch".into()).spawn(watch);
    started.map(drop).inspect_err(|_| ended.end())
}

/// Says which calls wait.
fn report(device: &str, asked: Duration, late: &[&(OpenCalls, Instant)]) -> String {
    const MOST_LINES: usize = 16;
    let mut text = format!(
        "hostcall: no thread has got the GIL for {:.1} s, and kernels of {device} wait for functions of Python. The thread that \
         holds it may wait for these kernels: have it give the GIL up (`ctypes.CDLL`, not `PyDLL`; `with nogil`). Calls that \
         have a deadline end then. What waits:\n",
        asked.as_secs_f64()
    );
    for (calls, _) in &late[..late.len().min(MOST_LINES)] {
        let waiting = calls.waiting();
        let place = waiting.place.map_or_else(String::new, |place| {
            let [x, y, z] = place.workgroup;
            format!(", block ({x}, {y}, {z}), wave {}", place.wave)
        });
        let (lanes, seconds) = (waiting.lanes, waiting.waited.as_secs_f64());
        let lanes = if lanes == 1 { "1 lane".into() } else { format!("{lanes} lanes") };
        let (service, kernel) = (waiting.service, waiting.kernel);
        let _ = writeln!(text, "  {service}: {lanes} of `{kernel}`{place}, for {seconds:.1} s");
    }
    if late.len() > MOST_LINES {
        let _ = writeln!(text, "  and {} more packets", late.len() - MOST_LINES);
    }
    text.push_str("The stacks of Python's threads:\n");
    text
}
