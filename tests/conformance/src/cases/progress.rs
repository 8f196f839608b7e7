//! What has ended is known whatever follows it: each case puts work on a stream, behind it a kernel that waits for the host
//! until the case is over, and asks about the work in every way that there is.

use crate::context::read;
use crate::{Context, Gates, Outcome, Session, echo, ensure, same};
use conformance::graphs::graph_add;
use conformance::services::AsyncGate;
use conformance::streams::stream_pass;
use hostcall::device::Launch;
use hostcall::graph::{CaptureMode, Instance};
use hostcall::server::Waiting;
use hostcall::{DeviceBuffer, Error, Grid, Stream};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ONE: Grid = Grid::new(1, 1);

/// The gate of the kernel that waits.
const KEY: u64 = 1;

/// Longer than anything takes that does not wait for the gate.
const LONG: Duration = Duration::from_secs(60);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Streams, and memory that their work uses.
struct Bed {
    session: Session,
    stream: Stream,
    other: Stream,
    /// What kernels count up.
    out: DeviceBuffer<u64>,
    copy: DeviceBuffer<u64>,
    /// What the kernel that waits stores to.
    passed: DeviceBuffer<u64>,
    gates: Gates,
}

impl Bed {
    fn open(context: &Context) -> Result<Self, String> {
        let gates = Gates::default();
        let session = context.open(|device| {
            device.inline_service(echo()).async_service(AsyncGate::serve_async(gates.clone()))
        })?;
        let [out, copy, passed] = [session.out(ONE, 1)?, session.out(ONE, 1)?, session.out(ONE, 1)?];
        let (stream, other) = (session.stream()?, session.stream()?);
        Ok(Self { session, stream, other, out, copy, passed, gates })
    }

    /// Counts `out` up.
    fn add(&self, stream: &Stream) -> Result<Launch, String> {
        self.session.launch(stream, graph_add, ONE, (&self.out,))
    }

    /// A graph that counts `out` up.
    fn add_as_graph(&self) -> Result<Instance, String> {
        self.other.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
        self.add(&self.other)?;
        self.other.end_capture().map_err(text)?.instantiate().map_err(text)
    }

    /// Launches the kernel that waits.
    fn block(&self) -> Result<Launch, String> {
        self.session.launch(&self.stream, stream_pass, ONE, (KEY, 1, &self.passed))
    }
}

/// Runs `ask`, which launches the kernel that waits, and lets that kernel end afterwards. If `ask` gets stuck, the case does,
/// and says what is waited for.
fn while_blocked(context: &Context, ask: impl FnOnce(&Bed) -> Outcome) -> Outcome {
    let bed = Bed::open(context)?;
    let asked = ask(&bed);
    bed.gates.open_all();
    asked?;
    bed.stream.synchronize().map_err(text)?;
    bed.other.synchronize().map_err(text)?;
    same!(read(&bed.passed)?, vec![KEY]);
    Ok(())
}

/// Waits until something is so that needs nothing of the gate.
fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Outcome {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > LONG {
            return Err(format!("{what}: not within {LONG:?}, although it has ended"));
        }
        sleep(Duration::from_micros(200));
    }
    Ok(())
}

pub fn launches(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let [waited, limited, polled, last] =
            [bed.add(&bed.stream)?, bed.add(&bed.stream)?, bed.add(&bed.stream)?, bed.add(&bed.stream)?];
        let blocked = bed.block()?;
        last.wait().map_err(text)?;
        waited.wait().map_err(text)?;
        limited.wait_for(LONG).map_err(text)?;
        until("`Launch::is_done`", || polled.is_done())?;
        ensure!(!blocked.is_done());
        ensure!(matches!(blocked.wait_for(Duration::from_millis(20)), Err(Error::TimedOut { .. })));
        Ok(())
    })
}

/// What has ended is not ended by its limit, nor by who cancels it, and takes nothing with it.
pub fn limits_and_cancellations(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let [limited, cancelled, dropped] =
            [bed.add(&bed.stream)?, bed.add(&bed.stream)?, bed.add(&bed.stream)?];
        let replay = bed.add_as_graph()?.launch(&bed.stream).map_err(text)?;
        let limit = Duration::from_millis(300);
        limited.cancel_after(limit);
        dropped.cancel_after(limit);
        drop(dropped);
        replay.cancel_after(limit);
        let blocked = bed.block()?;
        let behind = bed.add(&bed.stream)?;
        bed.gates.wait_for_arrivals(1)?;
        sleep(2 * limit);
        cancelled.cancel();
        limited.cancel_after(Duration::ZERO);
        replay.cancel();
        limited.wait().map_err(text)?;
        cancelled.wait().map_err(text)?;
        replay.wait().map_err(text)?;
        ensure!(!blocked.is_done());
        bed.gates.open_all();
        behind.wait().map_err(text)?;
        same!(read(&bed.out)?, vec![5]);
        Ok(())
    })
}

/// Who ends a replay learns which node ran then, also where the device tells of several nodes at once; those before it have ended
/// well, and those behind it do not begin.
pub fn cancelled_nodes(context: &Context) -> Outcome {
    let bed = Bed::open(context)?;
    let outcome = cancel_nodes(&bed);
    // Where something differed, a node waits still, and the drop of its stream for that.
    bed.gates.open_all();
    outcome
}

fn cancel_nodes(bed: &Bed) -> Outcome {
    let Bed { session, stream, out, copy, .. } = bed;
    stream.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
    for _ in 0..2 {
        bed.add(stream)?;
        stream.fill(copy, 7).map_err(text)?;
    }
    bed.block()?;
    stream.fill(copy, 8).map_err(text)?;
    bed.add(stream)?;
    let instance = stream.end_capture().map_err(text)?.instantiate().map_err(text)?;
    for round in 1..=4 {
        let replay = instance.launch(stream).map_err(text)?;
        // The nodes before it wait for their answers for a moment, too.
        let is_it = |waiting: &Waiting| &*waiting.kernel == "stream_pass";
        until("the node that waits", || session.device.waiting().iter().any(is_it))?;
        same!(out.read_now().map_err(text)?, Some(vec![2 * round]));
        match round % 2 {
            0 => replay.cancel(),
            _ => replay.cancel_after(Duration::from_millis(5)),
        }
        let Err(Error::Replay(failure)) = stream.synchronize() else {
            return Err("a replay that was cancelled has no failure".into());
        };
        same!((failure.node.numbers(), &*failure.what), (&[4][..], "stream_pass"));
    }
    same!(read(out)?, vec![8]);
    Ok(())
}

pub fn events(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let first = bed.stream.record().map_err(text)?;
        bed.add(&bed.stream)?;
        let second = bed.stream.record().map_err(text)?;
        let blocked = bed.block()?;
        let behind = bed.stream.record().map_err(text)?;
        second.wait().map_err(text)?;
        first.wait_for(LONG).map_err(text)?;
        until("`Event::is_done`", || first.is_done() && second.is_done())?;
        until("`Event::elapsed_since`", || second.elapsed_since(&first).is_ok_and(|time| time.is_some()))?;
        ensure!(!behind.is_done() && !blocked.is_done());
        same!(behind.elapsed_since(&first).map_err(text)?, None);
        Ok(())
    })
}

/// Copies, fills and reads of a stream, and the host's own copies of memory that the stream's earlier work used.
pub fn copies(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        bed.stream.write(&bed.out, &[5]).map_err(text)?;
        bed.add(&bed.stream)?;
        bed.stream.copy(&bed.copy, &bed.out).map_err(text)?;
        let (waited, polled) =
            (bed.stream.read(&bed.copy).map_err(text)?, bed.stream.read(&bed.out).map_err(text)?);
        bed.stream.fill(&bed.out, 9).map_err(text)?;
        let blocked = bed.block()?;
        same!(waited.wait().map_err(text)?, vec![6]);
        until("`Readback::is_done`", || polled.is_done())?;
        same!(polled.wait().map_err(text)?, vec![6]);
        same!(bed.out.read().map_err(text)?, vec![9]);
        bed.copy.write(&[7]).map_err(text)?;
        same!(bed.copy.read().map_err(text)?, vec![7]);
        ensure!(!blocked.is_done());
        Ok(())
    })
}

/// A kernel alone before the one that waits, at once: there is no time for anybody to look between them.
pub fn reads(context: &Context) -> Outcome {
    let rounds = if context.is_software() { 20 } else { 3 };
    (1..=rounds).try_for_each(|_| {
        while_blocked(context, |bed| {
            bed.add(&bed.stream)?;
            bed.block()?;
            same!(bed.out.read().map_err(text)?, vec![1]);
            Ok(())
        })
    })
}

pub fn host_functions(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let launch = bed.add(&bed.stream)?;
        let (called, calls) = mpsc::channel();
        bed.stream.host_function(move || _ = called.send(())).map_err(text)?;
        let event = bed.stream.record().map_err(text)?;
        let blocked = bed.block()?;
        calls.recv_timeout(LONG).map_err(text)?;
        launch.wait().map_err(text)?;
        event.wait().map_err(text)?;
        ensure!(!blocked.is_done());
        Ok(())
    })
}

/// Other streams wait for the work before the kernel that waits: by an event, by memory, by a graph.
pub fn other_streams(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let instance = bed.add_as_graph()?;
        bed.stream.fill(&bed.copy, 3).map_err(text)?;
        bed.add(&bed.stream)?;
        let event = bed.stream.record().map_err(text)?;
        bed.stream.write(&bed.out, &[10]).map_err(text)?;
        let blocked = bed.block()?;
        bed.other.wait_for(&event).map_err(text)?;
        bed.other.record().map_err(text)?.wait().map_err(text)?;
        // By memory: a kernel, a copy and a graph.
        bed.add(&bed.other)?.wait().map_err(text)?;
        instance.launch(&bed.other).map_err(text)?.wait().map_err(text)?;
        bed.other.copy(&bed.copy, &bed.out).map_err(text)?;
        same!(bed.other.read(&bed.copy).map_err(text)?.wait().map_err(text)?, vec![12]);
        bed.other.synchronize().map_err(text)?;
        ensure!(!blocked.is_done());
        Ok(())
    })
}

/// Another stream's kernel opens the gate of this one's, after work of this one that comes before.
pub fn opened_from_another_stream(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        bed.stream.write(&bed.out, &[10]).map_err(text)?;
        let blocked = bed.block()?;
        let gates = bed.gates.clone();
        bed.add(&bed.other)?;
        bed.other.host_function(move || gates.open(KEY)).map_err(text)?;
        blocked.wait_for(LONG).map_err(text)?;
        Ok(())
    })
}

pub fn replays(context: &Context) -> Outcome {
    while_blocked(context, |bed| {
        let instance = bed.add_as_graph()?;
        let launch = |stream| instance.launch(stream).map_err(text);
        let (waited, polled) = (launch(&bed.stream)?, launch(&bed.stream)?);
        let blocked = bed.block()?;
        waited.wait().map_err(text)?;
        until("`Replay::is_done`", || polled.is_done())?;
        polled.wait_for(LONG).map_err(text)?;
        // The instance's next replay waits for the last one only.
        launch(&bed.other)?.wait().map_err(text)?;
        same!(bed.out.read().map_err(text)?, vec![3]);
        ensure!(!blocked.is_done());
        Ok(())
    })
}

/// Who waits for the whole stream waits for what it had when that began. A thread that begins late is tried again.
pub fn synchronize(context: &Context) -> Outcome {
    const SHORT: Duration = Duration::from_millis(20);
    for _ in 0..10 {
        let mut was_done = false;
        while_blocked(context, |bed| {
            let (sent, begun) = mpsc::channel();
            let waits = std::thread::scope(|scope| {
                (0..30).try_for_each(|_| bed.add(&bed.stream).map(drop))?;
                let waits = scope.spawn(move || {
                    let _ = sent.send(());
                    bed.stream.synchronize_for(Duration::from_secs(2))
                });
                begun.recv().map_err(text)?;
                sleep(Duration::from_millis(2));
                let blocked = bed.block()?;
                ensure!(matches!(bed.stream.synchronize_for(SHORT), Err(Error::TimedOut { .. })));
                ensure!(!blocked.is_done() && !bed.stream.is_done());
                waits.join().map_err(|_| "the thread panicked".to_owned())
            });
            was_done = waits?.is_ok();
            Ok(())
        })?;
        if was_done {
            return Ok(());
        }
    }
    Err("`synchronize_for` waited ten times for a kernel that was launched later".into())
}
