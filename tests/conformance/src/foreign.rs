//! Very many replays of a graph of foreign kernels, which call and post from a context and write to a raw channel, while handlers
//! fail and panic, wait, are cancelled and go away, replays are cancelled, and instances are dropped before they are done. Each
//! call ends once, as what was done to it says. At the end each slot can be held and each page filled, as at the start, and the
//! host's memory has not grown.
//!
//! On the device `cpu` lanes are threads of C, each of which does a turn for a replay; nothing but the context can be cancelled
//! there, and there is no raw channel.
#![allow(unsafe_code, reason = "runs kernels whose arguments nobody can check")]

use crate::replays::{HOST_LIMIT_BYTES, host_bytes};
use crate::{Context, Gates, Messages, Outcome, Session, ensure, same};
use conformance::services::{AsyncGate, Bytes, Gate, GateHandler};
use hostcall::graph::{CaptureMode, Graph, Instance, NodeFailure, Replay};
use hostcall::raw::{DropNewest, RawChannel, RawReader};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::server::Registration;
use hostcall::{
    CallError, Context as CallContext, DeviceBuffer, Error, Grid, LaunchFailure, Stream, service,
};
use hostcall_abi::service::Method;
use hostcall_abi::word::check_of;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Kernels in C and C++, for NVIDIA's GPUs and for gfx942: those that write to raw channels, and those of the turns.
#[cfg(foreign_kernels)]
pub const KERNELS: Option<[[&[u8]; 2]; 2]> = Some([
    [
        include_bytes!(concat!(env!("OUT_DIR"), "/foreign.ptx")),
        include_bytes!(concat!(env!("OUT_DIR"), "/foreign.co")),
    ],
    [
        include_bytes!(concat!(env!("OUT_DIR"), "/turns.ptx")),
        include_bytes!(concat!(env!("OUT_DIR"), "/turns.co")),
    ],
]);
#[cfg(not(foreign_kernels))]
pub const KERNELS: Option<[[&[u8]; 2]; 2]> = None;

/// Loads one of [`KERNELS`]. `None` for a GPU for which there are none.
///
/// # Errors
/// When the suite was built without them, or they cannot be loaded.
pub fn load(device: &hostcall::Device, which: usize) -> Result<Option<CodeObject>, String> {
    let Some(kernels) = KERNELS else {
        return Err("the suite was built without clang-22 (.ci/install-device-toolchain)".into());
    };
    let [nvidia, gfx942] = kernels[which];
    let image = match device.target() {
        target if target.starts_with("sm_") => nvidia,
        target if target == "gfx942" => gfx942,
        _ => return Ok(None),
    };
    device.load_code_object_bytes(image, Version::Stacks).map(Some).map_err(text)
}

/// The same kernels for threads of the host.
mod threads {
    #[cfg(foreign_kernels)]
    unsafe extern "C" {
        #[link_name = "hostcall_test_turn"]
        pub fn turn(lane: u32, context: u64, methods: *const u64, told: *mut u64, lanes: u32);
        #[link_name = "hostcall_test_meet"]
        pub fn meet(context: u64, methods: *const u64, key: u64);
    }
    #[cfg(not(foreign_kernels))]
    pub unsafe fn turn(_: u32, _: u64, _: *const u64, _: *mut u64, _: u32) {}
    #[cfg(not(foreign_kernels))]
    pub unsafe fn meet(_: u64, _: *const u64, _: u64) {}
}

/// Two waves with lanes that come to a call together.
const GRID: Grid = Grid::new(2, 3);
const LANES: usize = 6;

/// Slots that contexts have: those of the software device's contexts, and as few as a GPU can have.
const SLOTS: u32 = 64;

/// Replays of a round, in which one thing is done to them.
const REPLAYS_A_ROUND: u64 = 24;

/// How long a round may take; one that takes longer hangs.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

/// Pages of the raw channel, and records in each.
const PAGES: u32 = 64;
const RECORDS: usize = 8;

/// Words of what a lane tells, as `bindings/c/tests/c/turn_kernels.hip` has them.
const TOLD: usize = 16;

/// Statuses of calls, some by name.
const STATUSES: usize = 10;
const OK: usize = 0;
const NO_SUCH_SERVICE: usize = 1;
const FAILED: usize = 2;
const PANICKED: usize = 3;
const CANCELLED: usize = 4;
const TIMED_OUT: usize = 6;

/// Calls of a turn that nobody asks for, and those of them that have a result where nothing is done to them.
const CALLS: u64 = 4;
const RESULTS: u64 = 3;

fn text(error: Error) -> String {
    error.to_string()
}

/// What the lanes' calls go by.
#[service(number = 750)]
trait Turns {
    /// Gives three times the number plus one, and what the lane is asked for.
    fn answer(id: u64) -> (u64, u64);
    /// Fails.
    fn raise(id: u64) -> u64;
    fn note(id: u64);
}

/// A service that comes and goes.
#[service(number = 760)]
trait Gone {
    /// Gives the number's complement.
    fn there(id: u64) -> u64;
}

/// What has come to the handlers. Clones share it.
#[derive(Clone, Default)]
struct Handled(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// The numbers that came in this round, by method.
    seen: [Mutex<HashSet<u64>>; 4],
    /// In which turn of each lane the round began.
    first: [AtomicU64; LANES],
    /// Numbers that came again.
    twice: AtomicU64,
    /// What lane 0 is asked for in each eighth turn.
    asked: AtomicU64,
}

#[derive(Clone, Copy)]
enum Which {
    Answer,
    Raise,
    Note,
    There,
}

impl Handled {
    fn note(&self, which: Which, id: u64) {
        let Counts { seen, twice, .. } = &*self.0;
        if !seen[which as usize].lock().insert(id) {
            twice.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many calls have come in this round, by method. A handler of a round before, whose lane was told of a
    /// cancellation meanwhile, may come late, and is none of them.
    fn calls(&self) -> [u64; 4] {
        let first = |id: u64| self.0.first[(id & 0xFF) as usize % LANES].load(Ordering::Relaxed);
        let is_new = |id: &&u64| **id >> 8 >= first(**id);
        self.0.seen.each_ref().map(|seen| seen.lock().iter().filter(is_new).count() as u64)
    }
}

impl TurnsHandler for Handled {
    fn answer(&self, id: u64) -> Result<(u64, u64), CallError> {
        self.note(Which::Answer, id);
        let is_asked = id & 0xFF == 0 && (id >> 8).is_multiple_of(8);
        Ok((3 * id + 1, if is_asked { self.0.asked.load(Ordering::Relaxed) } else { 0 }))
    }

    fn raise(&self, id: u64) -> Result<u64, CallError> {
        self.note(Which::Raise, id);
        if (id >> 8).is_multiple_of(2) {
            return Err(CallError::Failed(7));
        }
        // Unwinds past the panic hook, whose output nobody wants here.
        std::panic::resume_unwind(Box::new(id))
    }

    fn note(&self, id: u64) -> Result<(), CallError> {
        self.note(Which::Note, id);
        Ok(())
    }
}

impl GoneHandler for Handled {
    fn there(&self, id: u64) -> Result<u64, CallError> {
        self.note(Which::There, id);
        Ok(!id)
    }
}

/// Calls that wait with a key, until that or a later one is opened. Clones share it.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<Keys>, Condvar)>);

#[derive(Default)]
struct Keys {
    came: u64,
    open: u64,
}

impl Door {
    fn open(&self, key: u64) {
        self.0.0.lock().open = key;
        self.0.1.notify_all();
    }

    fn wait_for_arrival(&self, key: u64) {
        let mut keys = self.0.0.lock();
        while keys.came < key {
            self.0.1.wait(&mut keys);
        }
    }
}

impl GateHandler for Door {
    fn pass(&self, key: u64) -> Result<u64, CallError> {
        let mut keys = self.0.0.lock();
        keys.came = keys.came.max(key);
        self.0.1.notify_all();
        while keys.open < key {
            self.0.1.wait(&mut keys);
        }
        Ok(key)
    }
}

/// What is done to the replays of a round while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    /// A service is removed, and registered again.
    Unregister,
    /// Calls with a limit wait for what comes after the round.
    Slow,
    /// Calls wait for what comes after the round, until the context is cancelled.
    Kill,
    /// The context is cancelled at any moment.
    Cancel,
    /// The last replay is cancelled.
    CancelReplay,
    /// The instance is dropped.
    DropInstance,
}

const DEEDS: [Deed; 7] = [
    Deed::Nothing,
    Deed::Unregister,
    Deed::Slow,
    Deed::Kill,
    Deed::Cancel,
    Deed::CancelReplay,
    Deed::DropInstance,
];

/// Sums of what lanes told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    turns: u64,
    turns_of: [u64; LANES],
    ended: [u64; STATUSES],
    wrong: u64,
    posts: u64,
    asked: u64,
}

impl Told {
    fn of(words: &[u64]) -> Self {
        let mut sum = Self::default();
        for (lane, turns) in words.chunks_exact(TOLD).zip(&mut sum.turns_of) {
            *turns = lane[0];
            sum.turns += lane[0];
            sum.ended.iter_mut().zip(&lane[1..]).for_each(|(sum, ended)| *sum += ended);
            sum.wrong += lane[11];
            sum.posts += lane[12];
            sum.asked += lane[13];
        }
        sum
    }

    fn since(self, before: Self) -> Self {
        Self {
            turns: self.turns - before.turns,
            turns_of: self.turns_of,
            ended: std::array::from_fn(|status| self.ended[status] - before.ended[status]),
            wrong: self.wrong - before.wrong,
            posts: self.posts - before.posts,
            asked: self.asked - before.asked,
        }
    }
}

/// What runs the kernels.
enum Lanes {
    /// Threads of the host with memory of theirs, which is kept for good.
    Threads {
        told: usize,
        methods: usize,
        running: Vec<JoinHandle<()>>,
    },
    Graph(Box<OnGpu>),
}

struct OnGpu {
    stream: Stream,
    graph: Graph,
    instance: Instance,
    last: Option<Replay>,
    code: CodeObject,
    records: CodeObject,
    told: DeviceBuffer<u64>,
    methods: DeviceBuffer<u64>,
    channel: RawChannel<[u64; 2], DropNewest>,
    reader: RawReader<[u64; 2]>,
}

impl OnGpu {
    fn launch(&self, code: &CodeObject, kernel: &str, grid: Grid, arguments: &[KernelArgument]) -> Outcome {
        let kernel = code.kernel(kernel).map_err(text)?;
        // SAFETY: callers give what the kernels of `turn_kernels.hip` and `raw_kernels.c` take, whose lanes write in their own
        // parts of the buffers.
        unsafe { kernel.launch(&self.stream, grid, arguments) }.map(drop).map_err(text)
    }

    /// Captures the graph of a replay: a turn, and a record of each lane.
    fn capture(&mut self, context: &CallContext) -> Outcome {
        self.stream.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
        let turn = [
            KernelArgument::context(context),
            KernelArgument::input(&self.methods),
            KernelArgument::buffer(&self.told),
            KernelArgument::value(LANES as u32),
        ];
        let done = self.launch(&self.code, "turn", GRID, &turn);
        let record = [KernelArgument::raw_channel(&self.channel), KernelArgument::value(1u64)];
        let done = done.and(self.launch(&self.records, "records", Grid::new(1, LANES as u32), &record));
        self.graph = self.stream.end_capture().map_err(text)?;
        self.instance = self.graph.instantiate().map_err(text)?;
        done
    }
}

/// The device and all that calls on it.
struct Stage {
    session: Session,
    context: CallContext,
    handled: Handled,
    door: Door,
    /// For slots that are held at the same time.
    meeting: Gates,
    gone: Option<Registration>,
    lanes: Lanes,
    /// The next round's.
    key: u64,
    meetings: u64,
}

impl Stage {
    fn new(context: &Context, code: Option<&[u8]>) -> Result<Option<Self>, String> {
        let (handled, door, meeting) = (Handled::default(), Door::default(), Gates::default());
        let session = context.open(|device| {
            let device = if context.is_software() { device } else { device.slots(SLOTS) };
            let device = device.service(Turns::serve(handled.clone())).inline_service(Bytes::serve(Messages));
            // Each panic would be a line of the standard error.
            let device = device.server(|server| server.handler_panic_report(|_| ()));
            let device = device.service(Gate::serve(door.clone()));
            device.async_service(AsyncGate::serve_async(meeting.clone()))
        })?;
        let device = &session.device;
        let calls = device.context("foreign replays").map_err(text)?;
        let [answer, raise, note] = Turns::METHODS;
        let methods = [
            answer,
            raise,
            note,
            &Gone::METHODS[0],
            &Bytes::METHODS[0],
            &Gate::METHODS[0],
            &AsyncGate::METHODS[0],
        ];
        let word = |method: &Method| u64::from(method.number()) | u64::from(check_of(method.schema())) << 16;
        let methods: Vec<u64> = methods.into_iter().map(word).collect();
        let lanes = if context.is_software() {
            ensure!(KERNELS.is_some());
            let told: &'static mut [u64] = vec![0; LANES * TOLD].leak();
            let methods: &'static [u64] = methods.leak();
            let (told, methods) =
                (told.as_mut_ptr().expose_provenance(), methods.as_ptr().expose_provenance());
            Lanes::Threads { told, methods, running: Vec::new() }
        } else {
            let turns = match code {
                Some(code) => Some(device.load_code_object_bytes(code, Version::Stacks).map_err(text)?),
                None => load(device, 1)?,
            };
            let Some((code, records)) = turns.zip(load(device, 0)?) else { return Ok(None) };
            let (stream, graph) = (session.stream()?, Graph::new(device));
            let instance = graph.instantiate().map_err(text)?;
            let told = device.alloc_zeroed(LANES * TOLD).map_err(text)?;
            let methods = device.upload(&methods).map_err(text)?;
            let channel = RawChannel::new(device, PAGES, 16 * RECORDS as u32).map_err(text)?;
            let (reader, last) = (channel.reader(), None);
            let mut gpu =
                OnGpu { stream, graph, instance, last, code, records, told, methods, channel, reader };
            gpu.capture(&calls)?;
            Lanes::Graph(Box::new(gpu))
        };
        let gone = Some(device.register(Gone::serve(handled.clone())).map_err(|error| error.to_string())?);
        let (context, key, meetings) = (calls, 1, 0);
        Ok(Some(Self { session, context, handled, door, meeting, gone, lanes, key, meetings }))
    }

    fn start(&mut self, replays: u64) -> Outcome {
        match &mut self.lanes {
            Lanes::Threads { told, methods, running } => {
                let (context, told, methods) = (self.context.address().get(), *told, *methods);
                running.extend((0..LANES as u32).map(|lane| {
                    std::thread::spawn(move || {
                        let (told, methods) = (told as *mut u64, methods as *const u64);
                        for _ in 0..replays {
                            // SAFETY: the memory is kept for good; each lane writes to its own part, which is read when all
                            // threads have ended.
                            unsafe { threads::turn(lane, context, methods, told, LANES as u32) };
                        }
                    })
                }));
            }
            Lanes::Graph(gpu) => {
                for _ in 0..replays {
                    gpu.last = Some(gpu.instance.launch(&gpu.stream).map_err(text)?);
                }
            }
        }
        Ok(())
    }

    /// Waits for the replays. `may_fail`: one was cancelled.
    fn finish(&mut self, may_fail: bool) -> Result<Told, String> {
        match &mut self.lanes {
            Lanes::Threads { told, running, .. } => {
                for thread in running.drain(..) {
                    thread.join().map_err(|_| "a thread panicked")?;
                }
                // SAFETY: the memory is kept for good, and the threads that wrote to it have ended.
                let told = unsafe { std::slice::from_raw_parts(*told as *const u64, LANES * TOLD) };
                Ok(Told::of(told))
            }
            Lanes::Graph(gpu) => {
                match gpu.stream.synchronize() {
                    Ok(()) => {}
                    Err(Error::Replay(failure)) if may_fail => {
                        let told = NodeFailure::Launch(LaunchFailure::RanToEnd);
                        let is_told =
                            [told, NodeFailure::Launch(LaunchFailure::Cancelled)].contains(&failure.cause);
                        ensure!(is_told && failure.graph == gpu.instance.name());
                    }
                    Err(error) => return Err(error.to_string()),
                }
                gpu.reader.rest().for_each(drop);
                Ok(Told::of(&gpu.told.read().map_err(text)?))
            }
        }
    }

    /// Replays so many times and does something meanwhile.
    fn round(&mut self, deed: Deed, replays: u64, before: Told) -> Result<Told, String> {
        let (key, notes) = (self.key, Which::Note as usize);
        self.key += 1;
        let asked = match deed {
            Deed::Slow => key << 2 | 1,
            Deed::Kill => key << 2 | 2,
            _ => 0,
        };
        self.handled.0.asked.store(asked, Ordering::Relaxed);
        for (first, turn) in self.handled.0.first.iter().zip(before.turns_of) {
            first.store(turn, Ordering::Relaxed);
        }
        self.start(replays)?;
        let is_gpu = matches!(self.lanes, Lanes::Graph(_));
        match deed {
            Deed::Nothing | Deed::Slow => {}
            Deed::Unregister => {
                self.gone.take().into_iter().for_each(Registration::remove);
                // Until some turns have found none, if there are as many left.
                let came = || self.handled.calls()[Which::Answer as usize];
                let enough = (came() + 3 * LANES as u64).min(LANES as u64 * replays);
                while came() < enough {
                    std::thread::yield_now();
                }
                let service = Gone::serve(self.handled.clone());
                let device = &self.session.device;
                // In each of the ways that handlers run.
                let registered = match key.is_multiple_of(2) {
                    true => device.register(service),
                    false => device.register_inline(service),
                };
                self.gone = Some(registered.map_err(|error| error.to_string())?);
            }
            Deed::Kill => {
                self.door.wait_for_arrival(key);
                self.context.cancel().map_err(text)?;
            }
            Deed::Cancel => self.context.cancel().map_err(text)?,
            Deed::CancelReplay | Deed::DropInstance => {
                if let Lanes::Graph(gpu) = &mut self.lanes {
                    match deed {
                        Deed::CancelReplay => gpu.last.take().iter().for_each(|replay| replay.cancel()),
                        _ => gpu.instance = gpu.graph.instantiate().map_err(text)?,
                    }
                }
            }
        }
        let is_replay_cancelled = is_gpu && deed == Deed::CancelReplay;
        let told = self.finish(is_replay_cancelled)?;
        // Handlers that wait do so until here: what they kept from ending would not have ended.
        self.door.open(key);
        self.context.flush().map_err(text)?;
        let new = told.since(before);
        let lanes = LANES as u64;
        let turns = lanes * replays;
        let is_cancelled = matches!(deed, Deed::Kill | Deed::Cancel);
        ensure!(new.turns == turns || is_replay_cancelled && new.turns + lanes >= turns);
        same!((new.wrong, self.handled.0.twice.load(Ordering::Relaxed)), (0, 0));
        // Each call has ended, and as what was done says.
        same!(new.ended.iter().sum::<u64>(), CALLS * new.turns + new.asked);
        same!(new.posts, new.turns);
        let mut expected = [0; STATUSES];
        expected[OK] = RESULTS * new.turns;
        (expected[FAILED], expected[PANICKED]) = (new.ended[FAILED], new.ended[PANICKED]);
        let raised = new.ended[FAILED] + new.ended[PANICKED];
        match deed {
            Deed::Unregister => {
                expected[NO_SUCH_SERVICE] = new.ended[NO_SUCH_SERVICE];
                expected[OK] -= expected[NO_SUCH_SERVICE];
            }
            Deed::Slow => {
                ensure!(new.asked > 0);
                expected[TIMED_OUT] = new.asked;
            }
            Deed::Kill | Deed::Cancel => {
                (expected[OK], expected[CANCELLED]) = (new.ended[OK], new.ended[CANCELLED]);
                ensure!(deed == Deed::Cancel || new.ended[CANCELLED] > 0);
            }
            // Its calls, and no other replay's.
            Deed::CancelReplay if is_gpu => {
                (expected[OK], expected[CANCELLED]) = (new.ended[OK], new.ended[CANCELLED]);
                ensure!(new.ended[CANCELLED] <= CALLS * lanes);
            }
            _ => {}
        }
        same!((deed, new.ended), (deed, expected));
        let came = self.handled.calls();
        self.handled.0.seen.iter().for_each(|seen| seen.lock().clear());
        match is_cancelled || is_replay_cancelled {
            false => {
                same!(raised, new.turns);
                let there = new.turns - new.ended[NO_SUCH_SERVICE];
                same!((deed, came), (deed, [new.turns, new.turns, new.posts, there]));
            }
            true => {
                ensure!(came[notes] <= new.posts && came[Which::Raise as usize] >= raised);
                if is_cancelled {
                    self.context.renew().map_err(text)?;
                }
            }
        }
        Ok(told)
    }

    /// Has a lane in each slot at the same time, and fills each page: the rest of them would wait for ever, or be dropped.
    fn all_at_once(&mut self) -> Outcome {
        self.meetings += 1;
        let (key, count) = (self.meetings, SLOTS);
        let threads: Vec<_> = match &self.lanes {
            Lanes::Threads { methods, .. } => {
                let (context, methods) = (self.context.address().get(), *methods);
                // SAFETY: the methods are kept for good, and nobody writes to them.
                let meet = move || unsafe { threads::meet(context, methods as *const u64, key) };
                (0..count).map(|_| std::thread::spawn(meet)).collect()
            }
            Lanes::Graph(gpu) => {
                let context = KernelArgument::context(&self.context);
                let methods = KernelArgument::input(&gpu.methods);
                let arguments = [context, methods, KernelArgument::value(key), KernelArgument::value(count)];
                gpu.launch(&gpu.code, "meet", Grid::new(count, 1), &arguments)?;
                Vec::new()
            }
        };
        self.meeting.wait_for_arrivals((key * u64::from(count)) as usize)?;
        self.meeting.open(key);
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked"))?;
        if let Lanes::Graph(gpu) = &self.lanes {
            let lanes = Grid::new(1, RECORDS as u32 + 1);
            let arguments =
                [KernelArgument::raw_channel(&gpu.channel), KernelArgument::value(u64::from(PAGES))];
            gpu.launch(&gpu.records, "records", lanes, &arguments)?;
            gpu.stream.synchronize().map_err(text)?;
            let pages: Vec<usize> = gpu.reader.rest().map(|page| page.records().count()).collect();
            same!(pages, vec![RECORDS; PAGES as usize]);
        }
        let waiting: Vec<String> = self.session.device.waiting().iter().map(ToString::to_string).collect();
        same!(waiting, Vec::<String>::new());
        same!(self.session.device.server().launches().count(), 0);
        Ok(())
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub replays: u64,
    pub posts: u64,
    /// How calls ended.
    pub ended: [u64; STATUSES],
    pub seconds: f64,
    /// Host memory after the first tenth of the replays and after all, in bytes.
    pub host_bytes: [u64; 2],
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { replays, posts, ended, seconds, host_bytes } = self;
        let [before, after] = host_bytes.map(|bytes| bytes >> 20);
        write!(
            f,
            "{replays} replays of foreign kernels in {seconds:.1} s, {posts} posts; each call ended once:"
        )?;
        write!(f, " {} with a result, {} failed,", ended[OK], ended[FAILED])?;
        write!(f, " {} panicked, {} timed out,", ended[PANICKED], ended[TIMED_OUT])?;
        write!(f, " {} cancelled, {} without a service;", ended[CANCELLED], ended[NO_SUCH_SERVICE])?;
        write!(
            f,
            " each slot and page is free; host memory {before} MiB after a tenth, {after} MiB after all"
        )
    }
}

/// With fewer replays nothing is said of the process's memory, which other cases may use beside it.
const LEAST_OF_MEMORY: u64 = 10_000;

/// Replays `count` times. `code` is kernels that another compiler made of `bindings/c/tests/c/turn_kernels.hip`, in place of those
/// that the suite has.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn run(context: &Context, count: u64, code: Option<Vec<u8>>) -> Result<Done, String> {
    let inner = context.clone();
    context.limited(ROUND_LIMIT, move |got_on| {
        let start = Instant::now();
        let stage = Stage::new(&inner, code.as_deref())?;
        let mut stage = stage.ok_or("there are no foreign kernels for this device")?;
        stage.all_at_once()?;
        let (mut told, mut done, mut host_before) = (Told::default(), 0, 0);
        for deed in DEEDS.into_iter().cycle() {
            if done >= count {
                break;
            }
            inner.open.note(format!("{deed:?} after {done} replays"));
            told = stage.round(deed, REPLAYS_A_ROUND, told)?;
            done += REPLAYS_A_ROUND;
            if host_before == 0 && done >= count / 10 {
                host_before = host_bytes()?;
            }
            got_on();
        }
        stage.all_at_once()?;
        let host_bytes = [host_before, host_bytes()?];
        if count >= LEAST_OF_MEMORY && host_bytes[1] > host_before + HOST_LIMIT_BYTES {
            return Err(format!("the host's memory grew: {host_bytes:?} bytes"));
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Done { replays: done, posts: told.posts, ended: told.ended, seconds, host_bytes })
    })
}
