//! Random work on several streams beside a model that says what of it must have ended. Kernels wait for gates of the host,
//! streams for each other's events, memory and graphs; gates open one by one, and in between launches are cancelled and limits
//! set. Whatever the model says has ended is waited for, and ends; what waits for a gate has not ended; and in the end memory
//! holds what the order of the work says.

use crate::{Context, Gates, Outcome, Session, echo, ensure, same};
use conformance::graphs::graph_add;
use conformance::mix;
use conformance::services::AsyncGate;
use conformance::streams::stream_pass;
use hostcall::device::{Launch, Readback};
use hostcall::graph::{CaptureMode, Instance, Replay};
use hostcall::{DeviceBuffer, Error, Event, Grid, LaunchFailure, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const STREAMS: usize = 3;
const BUFFERS: usize = 3;

/// What the buffers hold.
type Memory = [[u64; STREAMS]; BUFFERS];
const ONE: Grid = Grid::new(1, 1);

/// Rounds until the device is opened anew, with the next seed's set-up.
const ROUNDS_A_DEVICE: u64 = 500;

/// Longer than anything takes that waits for no gate.
const LONG: Duration = Duration::from_secs(60);

/// No single step takes so long.
const LATE: Duration = Duration::from_secs(20);

/// How long some rounds may take; if they take longer, something hangs.
const ROUND_LIMIT: Duration = Duration::from_secs(150);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub rounds: u64,
    pub operations: u64,
    /// Waits for what had ended while something of its stream had not.
    pub waits: u64,
    pub cancelled: u64,
    pub seconds: f64,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rounds, operations, waits, cancelled, seconds } = self;
        write!(
            f,
            "{rounds} rounds of random streams as the model says, in {seconds:.1} s: {operations} operations, "
        )?;
        write!(f, "{waits} waits beside work that had not ended, {cancelled} launches cancelled")
    }
}

/// Random numbers of a round.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 += 1;
        (mix(self.0) % end.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// What an operation does. Buffers have a word for each stream.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A kernel, or a replay of a graph with one, counts the stream's word of a buffer up.
    Add(usize),
    Replay(usize),
    /// A kernel waits for a gate.
    Pass(u64),
    Write(usize, u64),
    Fill(usize, u64),
    Copy {
        to: usize,
        from: usize,
    },
    Read(usize),
    Record,
    /// Waits for the event that this operation recorded.
    WaitFor(usize),
    Function,
}

/// What somebody holds of an operation.
enum Handle {
    Launch(Launch),
    Replay(Replay),
    Event(Event),
    Readback(Option<Readback<u64>>),
    None,
}

struct Operation {
    stream: usize,
    what: What,
    /// Operations that end before it begins.
    after: Vec<usize>,
    handle: Handle,
    /// It was seen to have ended.
    has_ended: bool,
}

impl Operation {
    /// How it uses a buffer: whether it writes all of it, or counts, or reads.
    fn uses(&self, buffer: usize) -> Option<Access> {
        match self.what {
            What::Add(of) | What::Replay(of) if of == buffer => Some(Access::Counts(self.stream)),
            What::Write(to, _) | What::Fill(to, _) if to == buffer => Some(Access::Writes),
            What::Copy { to, .. } if to == buffer => Some(Access::Writes),
            What::Copy { from, .. } if from == buffer => Some(Access::Reads),
            What::Read(of) if of == buffer => Some(Access::Reads),
            _ => None,
        }
    }

    /// Whether a cancelled launch before it keeps it from running.
    fn is_skipped_behind_cancelled(&self) -> bool {
        matches!(self.what, What::Add(_) | What::Replay(_) | What::Pass(_) | What::Function)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Reads,
    Writes,
    /// The word of this stream.
    Counts(usize),
}

impl Access {
    fn conflicts_with(self, other: Self) -> bool {
        match (self, other) {
            (Access::Reads, Access::Reads) => false,
            (Access::Counts(one), Access::Counts(other)) => one == other,
            _ => true,
        }
    }
}

/// A device with its streams, and what they use.
struct Bed {
    session: Session,
    gates: Gates,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<u64>>,
    /// The stream's word of each buffer.
    words: Vec<Vec<DeviceBuffer<u64>>>,
    /// Graphs that count a stream's word of a buffer up.
    graphs: Vec<Vec<Instance>>,
    /// What kernels that wait store to.
    passed: DeviceBuffer<u64>,
    next_gate: u64,
}

impl Bed {
    fn open(context: &Context) -> Result<Self, String> {
        let gates = Gates::default();
        let session = context.open(|device| {
            device.inline_service(echo()).async_service(AsyncGate::serve_async(gates.clone()))
        })?;
        let streams = (0..STREAMS).map(|_| session.stream()).collect::<Result<Vec<_>, _>>()?;
        let buffers = (0..BUFFERS).map(|_| session.out(ONE, STREAMS)).collect::<Result<Vec<_>, _>>()?;
        let words_of = |buffer: &DeviceBuffer<u64>| {
            (0..STREAMS).map(|at| buffer.part(at..at + 1)).collect::<Result<Vec<_>, _>>()
        };
        let words = buffers.iter().map(words_of).collect::<Result<Vec<_>, _>>().map_err(text)?;
        let capture = |word: &DeviceBuffer<u64>| {
            streams[0].begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
            session.launch(&streams[0], graph_add, ONE, (word,))?;
            streams[0].end_capture().map_err(text)?.instantiate().map_err(text)
        };
        let graphs =
            words.iter().map(|words| words.iter().map(capture).collect()).collect::<Result<_, _>>()?;
        let passed = session.out(ONE, 1)?;
        Ok(Self { session, gates, streams, buffers, words, graphs, passed, next_gate: 1 })
    }
}

/// A round's work.
struct Round<'a> {
    bed: &'a mut Bed,
    random: Random,
    operations: Vec<Operation>,
    closed: Vec<u64>,
    functions: Arc<AtomicU64>,
    /// Of each stream: the launch that was cancelled.
    cancelled: [Option<usize>; STREAMS],
    done: Done,
}

impl Round<'_> {
    /// Puts a random operation on a random stream.
    fn push(&mut self) -> Outcome {
        let (stream, at) = (self.random.below(STREAMS), self.operations.len());
        let buffer = self.random.below(BUFFERS);
        let value = self.random.below(1000) as u64;
        let events = self.operations.iter().enumerate();
        let events = events.filter(|(_, other)| matches!(other.handle, Handle::Event(_)));
        let events: Vec<usize> = events.map(|(at, _)| at).collect();
        let what = match self.random.below(20) {
            0..=4 => What::Add(buffer),
            5 | 6 => What::Replay(buffer),
            7..=9 => {
                self.bed.next_gate += 1;
                What::Pass(self.bed.next_gate)
            }
            10 => What::Write(buffer, value),
            11 => What::Fill(buffer, value),
            12 => What::Copy { to: buffer, from: (buffer + 1) % BUFFERS },
            13 => What::Read(buffer),
            14 | 15 => What::Record,
            16..=18 if !events.is_empty() => What::WaitFor(events[self.random.below(events.len())]),
            _ => What::Function,
        };
        let new = Operation { stream, what, after: Vec::new(), handle: Handle::None, has_ended: false };
        let is_before = |other: &Operation, at: usize| {
            let conflicts = |buffer| {
                let (own, theirs) = (new.uses(buffer), other.uses(buffer));
                own.zip(theirs).is_some_and(|(own, theirs)| own.conflicts_with(theirs))
            };
            let is_same_graph = match (new.what, other.what) {
                (What::Replay(one), What::Replay(two)) => one == two && other.stream == stream,
                _ => false,
            };
            other.stream == stream
                || (0..BUFFERS).any(conflicts)
                || is_same_graph
                || matches!(new.what, What::WaitFor(event) if event == at)
        };
        let after = self.operations.iter().enumerate().filter(|(at, other)| is_before(other, *at));
        let after = after.map(|(at, _)| at).collect();
        let begin = Instant::now();
        let handle = self.submit(stream, what)?;
        if begin.elapsed() > LATE {
            return Err(format!("the call for {what:?} of stream {stream} took {:?}", begin.elapsed()));
        }
        self.operations.push(Operation { after, handle, ..new });
        self.done.operations += 1;
        // Some are dropped at once, and some have a limit that does not pass.
        if self.random.one_in(4) {
            self.operations[at].handle = Handle::None;
        } else if let Handle::Launch(launch) = &self.operations[at].handle
            && self.random.one_in(4)
        {
            launch.cancel_after(LONG);
        }
        if self.random.one_in(3) {
            let (begin, pause) = (Instant::now(), Duration::from_micros(self.random.below(200) as u64));
            while begin.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn submit(&mut self, number: usize, what: What) -> Result<Handle, String> {
        let Bed { session, streams, buffers, words, graphs, passed, .. } = &*self.bed;
        let stream = &streams[number];
        let nothing = |done: Result<(), Error>| done.map(|()| Handle::None).map_err(text);
        Ok(match what {
            What::Add(of) => Handle::Launch(session.launch(stream, graph_add, ONE, (&words[of][number],))?),
            What::Replay(of) => Handle::Replay(graphs[of][number].launch(stream).map_err(text)?),
            What::Pass(gate) => {
                self.closed.push(gate);
                Handle::Launch(session.launch(stream, stream_pass, ONE, (gate, 1, passed))?)
            }
            What::Write(to, value) => nothing(stream.write(&buffers[to], &[value; STREAMS]))?,
            What::Fill(to, value) => nothing(stream.fill(&buffers[to], value))?,
            What::Copy { to, from } => nothing(stream.copy(&buffers[to], &buffers[from]))?,
            What::Read(of) => Handle::Readback(Some(stream.read(&buffers[of]).map_err(text)?)),
            What::Record => Handle::Event(stream.record().map_err(text)?),
            What::WaitFor(event) => match &self.operations[event].handle {
                Handle::Event(event) => nothing(stream.wait_for(event))?,
                _ => return Err("the event was dropped".into()),
            },
            What::Function => {
                let functions = self.functions.clone();
                nothing(stream.host_function(move || _ = functions.fetch_add(1, Ordering::SeqCst)))?
            }
        })
    }

    /// Which operations have not ended, since they, or what they follow, wait for a gate.
    fn blocked(&self) -> Vec<bool> {
        let mut blocked: Vec<bool> = Vec::with_capacity(self.operations.len());
        for (at, operation) in self.operations.iter().enumerate() {
            // One that is skipped waits for no gate.
            let is_closed = matches!(operation.what, What::Pass(gate) if self.closed.contains(&gate));
            let own = is_closed && !self.is_stopped(at);
            let is_blocked = own || operation.after.iter().any(|before| blocked[*before]);
            blocked.push(is_blocked);
        }
        blocked
    }

    /// Whether a cancelled launch keeps an operation from running, or it is that launch.
    fn is_stopped(&self, at: usize) -> bool {
        let Operation { stream, .. } = self.operations[at];
        self.cancelled[stream].is_some_and(|cancelled| {
            at == cancelled || at > cancelled && self.operations[at].is_skipped_behind_cancelled()
        })
    }

    /// Waits for what has ended, and looks at what has not.
    fn check(&mut self) -> Outcome {
        let blocked = self.blocked();
        let is_beside = blocked.iter().any(|blocked| *blocked);
        for (at, is_blocked) in blocked.into_iter().enumerate() {
            let (is_stopped, has_ended) = (self.is_stopped(at), self.operations[at].has_ended);
            let says = |what: &str| {
                format!(
                    "operation {at}, {:?} of stream {}, {what}",
                    self.operations[at].what, self.operations[at].stream
                )
            };
            let told = |outcome: Result<(), Error>| match (outcome, is_stopped) {
                (Ok(()), false) | (Err(Error::Launch { .. } | Error::Replay(_)), true) => Ok(()),
                (outcome, _) => Err(says(&format!("ended with {outcome:?} (stopped: {is_stopped})"))),
            };
            if is_blocked {
                let is_done = match &self.operations[at].handle {
                    Handle::Launch(launch) => launch.is_done(),
                    Handle::Replay(replay) => replay.is_done(),
                    Handle::Event(event) => event.is_done(),
                    Handle::Readback(Some(readback)) => readback.is_done(),
                    Handle::Readback(None) | Handle::None => false,
                };
                if is_done {
                    return Err(says("has ended although it waits for a gate"));
                }
                continue;
            }
            if has_ended {
                continue;
            }
            let begin = Instant::now();
            match &self.operations[at].handle {
                Handle::Launch(launch) => told(launch.wait_for(LONG).map(drop))?,
                Handle::Replay(replay) => told(replay.wait_for(LONG))?,
                Handle::Event(event) => event.wait_for(LONG).map_err(text)?,
                Handle::Readback(Some(readback)) => {
                    let begin = Instant::now();
                    while !readback.is_done() {
                        if begin.elapsed() > LONG {
                            return Err(says("is not done"));
                        }
                        std::thread::yield_now();
                    }
                }
                Handle::Readback(None) | Handle::None => {}
            }
            if begin.elapsed() > LATE {
                return Err(says(&format!("was seen to have ended only after {:?}", begin.elapsed())));
            }
            self.operations[at].has_ended = true;
            self.done.waits += u64::from(is_beside);
        }
        Ok(())
    }

    /// Cancels something: what has ended, which changes nothing, or a kernel that waits.
    fn cancel(&mut self) -> Outcome {
        let at = self.random.below(self.operations.len());
        let (has_ended, blocked) = (self.operations[at].has_ended, self.blocked());
        let Operation { stream, what, .. } = self.operations[at];
        let Handle::Launch(launch) = &self.operations[at].handle else { return Ok(()) };
        let with_limit = self.random.one_in(2);
        let cancel = || if with_limit { launch.cancel_after(Duration::ZERO) } else { launch.cancel() };
        if has_ended {
            cancel();
        } else if let What::Pass(gate) = what
            && self.closed.contains(&gate)
            && self.cancelled[stream].is_none()
            && !self.operations[at].after.iter().any(|before| blocked[*before])
        {
            cancel();
            let expected = if with_limit { LaunchFailure::TimedOut } else { LaunchFailure::Cancelled };
            match launch.wait_for(LONG) {
                Err(Error::Launch { failure, .. }) if failure == expected => {}
                other => return Err(format!("operation {at} was cancelled and ended with {other:?}")),
            }
            self.closed.retain(|closed| *closed != gate);
            self.cancelled[stream] = Some(at);
            self.done.cancelled += 1;
        }
        Ok(())
    }

    /// What memory holds when all has ended, and what each readback got.
    fn expected(&self, before: &Memory) -> (Memory, Vec<(usize, [u64; STREAMS])>, u64) {
        let (mut memory, mut reads, mut functions) = (*before, Vec::new(), 0);
        for (at, operation) in self.operations.iter().enumerate() {
            if self.is_stopped(at) {
                continue;
            }
            match operation.what {
                What::Add(of) | What::Replay(of) => memory[of][operation.stream] += 1,
                What::Write(to, value) | What::Fill(to, value) => memory[to] = [value; STREAMS],
                What::Copy { to, from } => memory[to] = memory[from],
                What::Read(of) => reads.push((at, memory[of])),
                What::Function => functions += 1,
                What::Pass(_) | What::Record | What::WaitFor(_) => {}
            }
        }
        (memory, reads, functions)
    }

    fn run(&mut self, memory: &mut Memory) -> Outcome {
        for _ in 0..6 + self.random.below(20) {
            self.push()?;
            if self.random.one_in(8) {
                self.check()?;
            }
        }
        loop {
            self.check()?;
            for _ in 0..self.random.below(3) {
                self.cancel()?;
            }
            let blocked = self.blocked();
            let of = self.random.below(STREAMS);
            let is_busy =
                self.operations.iter().zip(&blocked).any(|(one, blocked)| one.stream == of && *blocked);
            if is_busy && self.random.one_in(4) {
                let waited = self.bed.streams[of].synchronize_for(Duration::from_micros(300));
                ensure!(matches!(waited, Err(Error::TimedOut { .. })));
            }
            if self.closed.is_empty() {
                break;
            }
            let gate = self.closed.swap_remove(self.random.below(self.closed.len()));
            self.bed.gates.open(gate);
        }
        self.check()?;
        for (number, stream) in self.bed.streams.iter().enumerate() {
            match (stream.synchronize_for(LONG), self.cancelled[number]) {
                (Ok(()), None) | (Err(Error::Launch { .. }), Some(_)) => {}
                (other, cancelled) => {
                    return Err(format!("stream {number} ended with {other:?} (cancelled: {cancelled:?})"));
                }
            }
        }
        let (expected, reads, functions) = self.expected(memory);
        for (at, values) in reads {
            if let Handle::Readback(readback) = &mut self.operations[at].handle
                && let Some(readback) = readback.take()
            {
                same!((at, readback.wait().map_err(text)?), (at, values.to_vec()));
            }
        }
        for (buffer, expected) in self.bed.buffers.iter().zip(&expected) {
            same!(buffer.read().map_err(text)?, expected.to_vec());
        }
        same!(self.functions.load(Ordering::SeqCst), functions);
        *memory = expected;
        Ok(())
    }
}

/// Runs `rounds` rounds, of which each has the next seed.
///
/// # Errors
/// What differed from the model, with the operations of the round, or that something hangs.
pub fn run(context: &Context, seed: u64, rounds: u64) -> Result<Done, String> {
    let (context, start) = (context.clone(), Instant::now());
    let opens = context.clone();
    context.limited(ROUND_LIMIT, move |gets_on| {
        let mut total = Done::default();
        let mut at = seed;
        while total.rounds < rounds {
            let set_up = opens.of_seed(at);
            let mut bed = Bed::open(&set_up)?;
            let mut memory = [[0; STREAMS]; BUFFERS];
            for _ in 0..ROUNDS_A_DEVICE.min(rounds - total.rounds) {
                let (operations, closed, functions) = Default::default();
                let (random, cancelled, done) = (Random(mix(at)), [None; STREAMS], total);
                let mut round =
                    Round { bed: &mut bed, random, operations, closed, functions, cancelled, done };
                let outcome = round.run(&mut memory);
                if let Err(error) = outcome {
                    round.bed.gates.open_all();
                    let list = round.operations.iter().enumerate();
                    let list = list.map(|(at, Operation { stream, what, .. })| {
                        format!("\n  {at}: stream {stream}: {what:?}")
                    });
                    let (list, set_up) = (list.collect::<String>(), set_up.set_up());
                    // Whoever keeps only the last line has what differed.
                    return Err(format!(
                        "round {at} ({set_up}; again by `--streams 1 --seed {at}`):{list}\n  {error}"
                    ));
                }
                total = Done { rounds: total.rounds + 1, ..round.done };
                at += 1;
                gets_on();
            }
        }
        total.seconds = start.elapsed().as_secs_f64();
        Ok(total)
    })
}
