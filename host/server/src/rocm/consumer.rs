//! A consumer: a thread that serves the buffers registered with it.

use super::buffer::{Buffer, Lanes, Taken};
use super::job::Job;
use super::options::{Fault, FaultKind, Options};
use super::services::{Entry, Mode, Services, handle};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::caught::catch;
use crate::engine::polling::{self, Attention, Endpoint, SLEEP_PART};
use crate::engine::trace::Recording;
use crate::engine::watchdog::Waiting;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_channel::rocm::{PacketMemory, SLOT_WORDS};
use hostcall_locks::{Mutex, RwLock};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::Level;

/// Longest sleep: nothing wakes the thread for a packet, which it finds within 1 ms. Half of it would take an idle thread
/// twice the processor time.
const LONGEST_SLEEP: Duration = Duration::from_micros(900);

/// Longest sleep while nobody can call.
const DEEP_SLEEP: Duration = Duration::from_secs(1);

/// Bytes of a lane's answer that its kernel reads.
const REPLY_BYTES: usize = 16;

/// Passes without work after which the thread pauses between passes.
const BUSY_PASSES: u32 = 4096;

/// Most copies' memory that is kept for the next packets: more is taken where more packets wait at once.
const MOST_SPARE: usize = 1024;

/// What a consumer's threads share.
pub(super) struct Shared {
    pub engine: Arc<Engine>,
    services: Services,
    options: Options,
    budget: Arc<Budget>,
    buffers: RwLock<Vec<Arc<Buffer>>>,
    attention: Attention,
    stopping: AtomicBool,
    /// How many [`CallsExpected`] there are, and one more where the consumer is not told of launches.
    callers: AtomicUsize,
    packets: AtomicU64,
    faults: AtomicU64,
}

impl Shared {
    /// Tells of a fault. It is counted before its packet is answered, so that who has the answer finds it in the counts.
    #[cold]
    pub fn tell(self: &Arc<Self>, buffer: &Buffer, kind: FaultKind) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        let kind = match kind {
            FaultKind::MessagesLost(count) => buffer.count_lost(count).map(FaultKind::MessagesLost),
            kind => buffer.count_fault().then_some(kind),
        };
        if let Some(kind) = kind {
            self.report(buffer, kind);
        }
    }

    #[cold]
    fn report(&self, buffer: &Buffer, kind: FaultKind) {
        let fault = Fault { buffer: buffer.address, kind };
        let (on_fault, told) = (self.options.on_fault.clone(), fault.clone());
        self.engine.log(Level::ERROR, move || tracing::error!(fault = %told, "a hostcall buffer"));
        self.engine.call_back(move || on_fault(&fault));
    }

    /// Begins the record of a packet's call, if there is a tracer.
    pub fn recording(&self, taken: &Taken) -> Option<Recording> {
        let trace = self.options.endpoint.trace.as_ref()?;
        let lanes = taken.header.mask.count_ones();
        let mut recording = Recording::start(trace, taken.packet, lanes);
        recording.add_bytes(lanes as usize * size_of::<[u64; SLOT_WORDS]>(), 0);
        Some(recording)
    }

    /// Serves no buffer any more.
    fn close(&self) {
        let buffers = std::mem::take(&mut *self.buffers.write());
        buffers.iter().for_each(|buffer| self.close_one(buffer));
    }

    /// Serves a buffer no more, and tells of lost messages that nobody was told of.
    fn close_one(&self, buffer: &Buffer) {
        buffer.close();
        if let Some(lost) = buffer.untold_lost() {
            self.report(buffer, FaultKind::MessagesLost(lost));
        }
    }
}

/// Notes that the handler of a packet ran, since then or since the packet was picked up.
#[cold]
pub(super) fn handled(
    mut recording: Recording,
    began_ns: Option<u64>,
    taken: &Taken,
    faults: &[FaultKind],
) -> Recording {
    recording.began(began_ns.unwrap_or(recording.picked_up_ns()));
    recording.ended(recording.now_ns());
    let lanes = taken.header.mask.count_ones();
    recording.add_bytes(0, lanes as usize * REPLY_BYTES);
    let status = match faults.first() {
        None | Some(FaultKind::MessagesLost(_)) => Status::Ok,
        Some(FaultKind::Panicked(_)) => Status::Error(CallError::Panicked),
        Some(_) => Status::Error(CallError::NoSuchService),
    };
    recording.lanes_ended(lanes, status);
    recording
}

/// Records a packet that no handler gets.
#[cold]
fn no_handler(mut recording: Recording, taken: &Taken) {
    recording.lanes_ended(taken.header.mask.count_ones(), Status::Error(CallError::NoSuchService));
    recording.answered("rocm::no_service", taken.header.service, LaunchId::NONE);
}

/// What a consumer has counted since it was launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that were found. Who has an answer finds its packet counted.
    pub packets: u64,
    /// What devices and handlers did that they must not.
    pub faults: u64,
}

/// Why a consumer was not launched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// It runs.
    #[error("the consumer runs already")]
    Active,
    /// The system starts no thread.
    #[error("no thread for the consumer: {0}")]
    Thread(#[from] io::Error),
}

/// Why a buffer was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// It is registered, with this consumer or another.
    #[error("a consumer serves the buffer already")]
    Registered,
}

/// Serves the buffers that are registered with it, once it is launched and until it is dropped.
///
/// Dropping it serves once more what was submitted before, as far as handlers run inline. All other packets that the
/// consumer has in hand are answered with zeros, and handlers that still run answer nobody. What is submitted later waits
/// for another consumer.
pub struct Consumer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
    /// The engine's, which is this consumer's alone. Until it is dropped.
    watchdog: Option<JoinHandle<()>>,
}

impl Consumer {
    /// Makes a consumer, with worker threads of its own.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn new(services: &Services, options: Options) -> io::Result<Self> {
        let stop = Stop::default();
        let mut settings = options.engine.clone();
        settings.use_endpoint(&options.endpoint);
        let (engine, watchdog) = Engine::start(settings, stop.callback())?;
        let callers = usize::from(!options.is_told_of_launches);
        let shared = Arc::new(Shared {
            engine,
            services: services.clone(),
            budget: options.endpoint.budget(),
            options,
            buffers: RwLock::default(),
            attention: Attention::default(),
            stopping: AtomicBool::new(false),
            callers: AtomicUsize::new(callers),
            packets: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        });
        let _ = stop.0.set(Arc::downgrade(&shared));
        Ok(Self { shared, thread: Mutex::default(), stop, watchdog: Some(watchdog) })
    }

    /// Starts the consumer's thread.
    ///
    /// # Errors
    /// [`LaunchError`] when it runs, or the system starts no thread.
    pub fn launch(&self) -> Result<(), LaunchError> {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return Err(LaunchError::Active);
        }
        let shared = self.shared.clone();
        let serve = move || {
            let mut serving = Serving::new(shared.clone());
            polling::run(&mut serving, &shared.attention);
        };
        *thread = Some(self.shared.engine.spawn("hostcall-rocm".into(), serve, self.stop.callback())?);
        Ok(())
    }

    /// Returns whether the consumer was launched.
    pub fn is_active(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// Returns whether the calling thread is the consumer's, which runs inline handlers.
    pub fn is_this_thread(&self) -> bool {
        self.shared.attention.is_of_this_thread()
    }

    /// Serves a buffer from now on, also when the consumer runs.
    ///
    /// # Errors
    /// [`RegisterError`] when a consumer serves it.
    pub fn register(&self, memory: &Arc<PacketMemory>) -> Result<(), RegisterError> {
        if !memory.begin_serving() {
            return Err(RegisterError::Registered);
        }
        self.shared.buffers.write().push(Arc::new(Buffer::new(memory, &self.shared.budget)));
        self.shared.attention.call();
        Ok(())
    }

    /// Serves a buffer no more: its memory is left alone once this returns. Packets that are in hand are answered with
    /// zeros, and handlers that have not begun get none of them; others wait for a consumer that the buffer is registered
    /// with later. Returns `false` when this consumer does not serve it. May be called by a handler; waits for none.
    pub fn deregister(&self, memory: &Arc<PacketMemory>) -> bool {
        let mut buffers = self.shared.buffers.write();
        let Some(index) = buffers.iter().position(|buffer| buffer.is_of(memory)) else { return false };
        let buffer = buffers.swap_remove(index);
        drop(buffers);
        self.shared.close_one(&buffer);
        self.shared.attention.call();
        true
    }

    /// Has a consumer that is told of launches ([`Options::told_of_launches`]) look for calls as long as the value lives.
    pub fn expect_calls(&self) -> CallsExpected {
        let shared = self.shared.clone();
        if shared.callers.fetch_add(1, Ordering::AcqRel) == 0 {
            shared.attention.call();
        }
        CallsExpected(shared)
    }

    /// Returns the packets that wait for their handlers now.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.shared.engine.watchdog.waiting()
    }

    /// Returns what the consumer has counted.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            packets: self.shared.packets.load(Ordering::Relaxed),
            faults: self.shared.faults.load(Ordering::Relaxed),
        }
    }
}

/// A launch that may call.
pub struct CallsExpected(Arc<Shared>);

impl Drop for CallsExpected {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let is_own = self.is_this_thread();
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.attention.call();
        if let Some(thread) = self.thread.get_mut().take()
            && !is_own
        {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.shared.close();
        self.shared.engine.stop();
        if let Some(watchdog) = self.watchdog.take()
            && !is_own
        {
            let _ = watchdog.join();
        }
    }
}

/// What stops a consumer whose thread, or whose engine's, has panicked.
#[derive(Clone, Default)]
struct Stop(Arc<OnceLock<Weak<Shared>>>);

impl Stop {
    /// Returns what stops the consumer: waves that wait are answered with zeros, and each buffer has a fault.
    fn callback(&self) -> impl FnOnce() + Send + 'static {
        let stop = self.clone();
        move || {
            let Some(shared) = stop.0.get().and_then(Weak::upgrade) else { return };
            shared.stopping.store(true, Ordering::Release);
            shared.attention.call();
            let buffers = shared.buffers.read().clone();
            shared.close();
            for buffer in buffers {
                let fault = Fault { buffer: buffer.address, kind: FaultKind::ServerFailed };
                // The engine may be gone with the thread.
                let _ = catch(|| (shared.options.on_fault)(&fault));
            }
        }
    }
}

/// The consumer's thread.
struct Serving {
    shared: Arc<Shared>,
    /// The registered buffers, as far as the thread knows.
    buffers: Vec<Arc<Buffer>>,
    taken: Vec<Taken>,
    /// Memory for copies.
    spare: Vec<Box<Lanes>>,
    /// The service that was called last and has a handler of its own.
    last: Option<(u32, Arc<Entry>)>,
    fruitless: u32,
}

impl Serving {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            buffers: Vec::new(),
            taken: Vec::new(),
            spare: Vec::new(),
            last: None,
            fruitless: BUSY_PASSES,
        }
    }

    /// Looks at all buffers, and with `all` at each place of theirs. Returns whether there was work.
    fn look(&mut self, all: bool) -> bool {
        let mut worked = false;
        for index in 0..self.buffers.len() {
            let buffer = &self.buffers[index];
            if let Err(broken) = buffer.take(all, &mut self.taken, &mut self.spare) {
                self.shared.tell(buffer, FaultKind::Broken(broken));
            }
            if !self.taken.is_empty() {
                worked = true;
                self.serve(index);
            }
        }
        self.fruitless = if worked { 0 } else { self.fruitless.saturating_add(1) };
        worked
    }

    /// Serves the packets that were taken from a buffer.
    fn serve(&mut self, index: usize) {
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.packets.fetch_add(taken.len() as u64, Ordering::Relaxed);
        for packet in taken.drain(..) {
            self.packet(index, packet);
        }
        self.taken = taken;
    }

    /// Keeps a copy's memory for the next packet.
    fn keep(&mut self, lanes: Box<Lanes>) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(lanes);
        }
    }

    fn packet(&mut self, index: usize, mut taken: Taken) {
        let buffer = &self.buffers[index];
        if buffer.is_closed() {
            self.keep(taken.lanes);
            return;
        }
        let service = taken.header.service;
        let known = self.last.take().filter(|(last, _)| *last == service);
        let (entry, is_own) = match known {
            Some((_, entry)) => (entry, true),
            None => match self.shared.services.find(service) {
                Some(found) => found,
                None => {
                    if let Some(recording) = self.shared.recording(&taken) {
                        no_handler(recording, &taken);
                    }
                    self.shared.tell(buffer, FaultKind::NoSuchService(service));
                    buffer.release(taken.packet);
                    self.keep(taken.lanes);
                    return;
                }
            },
        };
        let waits = match &entry.mode {
            Mode::Inline => false,
            Mode::Blocking => true,
            // Whoever cannot say would wait.
            Mode::InlineUnless(waits) => catch(|| waits()).unwrap_or(true),
        };
        let recording = self.shared.recording(&taken);
        let faults = if waits { Vec::new() } else { handle(&entry, buffer, &mut taken, false) };
        if waits || taken.left != 0 {
            faults.into_iter().for_each(|fault| self.shared.tell(buffer, fault));
            self.last = is_own.then(|| (service, entry.clone()));
            return Job::submit(&self.shared, buffer, entry, taken, recording);
        }
        let handled = recording.map(|recording| handled(recording, None, &taken, &faults));
        faults.into_iter().for_each(|fault| self.shared.tell(buffer, fault));
        buffer.answer(taken.packet, taken.header.mask, &taken.lanes);
        if let Some(mut recording) = handled {
            recording.answered(entry.name, service, LaunchId::NONE);
        }
        // A handler of its own stays; a default may have to make room for one.
        self.last = is_own.then_some((service, entry));
        // The next packet has copies for its own lanes, and no handler sees others.
        self.keep(taken.lanes);
    }
}

impl Endpoint for Serving {
    fn attend(&mut self) -> bool {
        self.buffers.clone_from(&self.shared.buffers.read());
        if self.shared.stopping.load(Ordering::Acquire) {
            self.look(true);
            return false;
        }
        true
    }

    fn pass(&mut self) -> bool {
        self.look(false)
    }

    fn sweep(&mut self, _again: bool) -> bool {
        self.look(true)
    }

    fn is_busy(&self) -> bool {
        self.fruitless < BUSY_PASSES
    }

    fn longest_sleep(&mut self, idle: Duration, _again: bool) -> Duration {
        if self.buffers.is_empty() || self.shared.callers.load(Ordering::Acquire) == 0 {
            return DEEP_SLEEP;
        }
        (idle / SLEEP_PART).min(LONGEST_SLEEP)
    }
}
