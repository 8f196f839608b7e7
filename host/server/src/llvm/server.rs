//! Starting and stopping a server, and what its threads share.

use super::emissary::{EmissaryCall, EmissaryHandler};
use super::executor::{self, Bell};
use super::files::Files;
use super::functions::HostFunctions;
use super::handlers::{Answer, HandlerFailed, Handlers, OpcodeHandler, Taken};
use super::options::{End, Fault, FaultKind, Options};
use super::standard::Standard;
use crate::engine::budget::Budget;
use crate::engine::caught::catch;
use crate::engine::{Engine, Settings};
use crate::rocm::{RpcServices, Services};
use crate::services::{Builtins, Heap, ProgramMemory};
use hostcall_channel::llvm::PortMemory;
use hostcall_channel::llvm::server::LINE_PORTS;
use hostcall_locks::Mutex;
use std::io;
use std::ops::{Add, Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use tracing::Level;

/// What the server's threads and their workers share.
pub(super) struct Shared {
    pub memory: Arc<PortMemory>,
    pub options: Options,
    pub standard: Standard,
    pub files: Files,
    pub heap: Heap,
    pub functions: HostFunctions,
    pub handlers: Handlers,
    pub engine: Arc<Engine>,
    /// Which program's memory is whose on the heap.
    pub program: u64,
    pub stopping: AtomicBool,
    pub counted: Arc<Counted>,
    /// For the messages on their way.
    pub budget: Arc<Budget>,
    end: Mutex<Option<End>>,
}

impl Shared {
    /// Writes out what files and streams hold back.
    pub fn flush(&self) {
        self.files.flush_all();
        self.standard.flush();
    }

    /// Counts a fault and tells of it.
    pub fn fault(self: &Arc<Self>, fault: Fault) {
        self.counted.faults.fetch_add(1, Ordering::Relaxed);
        let (shared, told) = (self.clone(), fault.clone());
        self.engine.log(Level::ERROR, move || tracing::error!(fault = %told, "a client of LLVM's protocol"));
        self.engine.call_back(move || shared.options.tell(&fault, shared.memory.device_address()));
    }

    /// Notes how the program ended itself; the first end counts.
    pub fn ended(self: &Arc<Self>, end: End) {
        let mut first = false;
        self.end.lock().get_or_insert_with(|| {
            first = true;
            end
        });
        if first {
            tracing::debug!(?end, "a program has ended itself");
            // Whoever is called may wait for the program's end, which this thread takes part in.
            let shared = self.clone();
            self.engine.call_back(move || (shared.options.on_end)(end));
        }
    }
}

/// What a server has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Ports opened by waves. A call is counted up to a millisecond after it.
    pub calls: u64,
    /// Calls that could not go on.
    pub faults: u64,
}

impl Add for Statistics {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, faults: self.faults + other.faults }
    }
}

/// What counts for a server.
#[derive(Debug, Default)]
pub struct Counted {
    pub(super) calls: AtomicU64,
    faults: AtomicU64,
}

impl Counted {
    /// Returns what was counted so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { calls: self.calls.load(Ordering::Relaxed), faults: self.faults.load(Ordering::Relaxed) }
    }
}

/// Serves the ports of one memory until it is dropped. What the program allocated and did not free is freed with that memory,
/// which whoever launches the program's kernels keeps until they have ended.
pub struct LlvmServer {
    shared: Arc<Shared>,
    bells: Vec<Arc<Bell>>,
    threads: Vec<JoinHandle<()>>,
    /// The engine's.
    watchdog: Option<JoinHandle<()>>,
}

impl LlvmServer {
    /// Starts the server's threads, before the first client. Streams, files, their directory and the heap are
    /// those of `builtins`.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn start(memory: Arc<PortMemory>, builtins: &Builtins, options: Options) -> io::Result<Self> {
        let ports = memory.layout().ports();
        let threads = options.threads.clamp(1, ports.div_ceil(LINE_PORTS));
        Self::start_with(memory, builtins, options, threads)
    }

    /// The same, for a program that serves with a thread of its own: by calling the [`Poller`], where the threads of
    /// [`Options::threads`] would. Handlers that may wait run on worker threads as ever.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub fn by_hand(
        memory: Arc<PortMemory>,
        builtins: &Builtins,
        options: Options,
    ) -> io::Result<(Self, Poller)> {
        let server = Self::start_with(memory, builtins, options, 0)?;
        let (shared, bell) = (server.shared.clone(), server.bells[0].clone());
        let ports = 0..shared.memory.layout().ports();
        Ok((server, Poller(executor::by_hand(shared, ports, bell))))
    }

    fn start_with(
        memory: Arc<PortMemory>,
        builtins: &Builtins,
        options: Options,
        threads: u32,
    ) -> io::Result<Self> {
        let stop = Stop::default();
        let mut settings = Settings::default();
        settings.use_endpoint(&options.endpoint);
        let (engine, watchdog) = Engine::start(settings, stop.callback())?;
        let ports = memory.layout().ports();
        let budget = options.endpoint.budget();
        let of_program = ProgramMemory::new(builtins.heap());
        let (heap, program) = (of_program.heap.clone(), of_program.program);
        memory.keep(of_program);
        let shared = Arc::new(Shared {
            memory,
            options,
            standard: Standard::new(builtins.stdio_shared()),
            files: Files::new(builtins.files_shared()),
            heap,
            functions: HostFunctions::default(),
            handlers: Handlers::default(),
            engine: engine.clone(),
            program,
            stopping: AtomicBool::new(false),
            counted: Arc::default(),
            budget,
            end: Mutex::new(None),
        });
        let bells: Vec<Arc<Bell>> = (0..threads.max(1)).map(|_| Arc::default()).collect();
        let _ = stop.0.set(Serving { shared: Arc::downgrade(&shared), bells: bells.clone() });
        let mut server = Self { shared, bells, threads: Vec::new(), watchdog: Some(watchdog) };
        for (index, ports) in share_out(ports, threads).enumerate() {
            let (shared, bell) = (server.shared.clone(), server.bells[index].clone());
            let serve = move || executor::run(shared, ports, bell);
            server.threads.push(engine.spawn(format!("hostcall-llvm-{index}"), serve, stop.callback())?);
        }
        Ok(server)
    }

    /// Registers a function for host calls and gives what clients call it by, in place of its address. It runs
    /// on a worker thread with a copy of the caller's bytes; its result goes back where the client's LLVM
    /// takes one.
    pub fn register(&self, function: impl Fn(&mut [u8]) -> u64 + Send + Sync + 'static) -> u64 {
        self.shared.functions.add(Arc::new(function))
    }

    /// Registers a handler of these opcodes, before a client uses them. A handler of libc's opcodes comes in the place of the
    /// server's own.
    ///
    /// # Errors
    /// When one of them has a handler.
    pub fn handle(&self, opcodes: RangeInclusive<u32>, handler: OpcodeHandler) -> Result<(), Taken> {
        self.shared.handlers.add(opcodes, handler)
    }

    /// Registers the handler of opcodes that neither the server knows nor another handler is for. Without one they are a
    /// [`FaultKind::Opcode`].
    ///
    /// # Errors
    /// When there is one.
    pub fn handle_unknown(&self, handler: OpcodeHandler) -> Result<(), Taken> {
        self.shared.handlers.add_unknown(handler)
    }

    /// Registers the functions of one of Emissary's APIs by the API's number: `answer` runs on a worker thread, once for each
    /// lane that calls, and its result is the call's. Without a handler of the application programs' own `printf` and
    /// `fprintf` (API 2) print to the server's streams.
    ///
    /// # Errors
    /// When the API has a handler.
    pub fn handle_emissary(
        &self,
        api: u16,
        answer: impl Fn(&mut EmissaryCall) -> Result<u64, HandlerFailed> + Send + Sync + 'static,
    ) -> Result<(), Taken> {
        let handler: Arc<EmissaryHandler> = Arc::new(answer);
        self.shared.handlers.add_emissary(api, handler)
    }

    /// Serves ROCm's services too, for kernels of HIP that call by LLVM's protocol in the place of hostcall buffers: the opcodes
    /// from `'r' << 24` on get the handlers of `services`. Where there is none, or it panics, the lanes get zeros and there is a
    /// [`FaultKind::OfRocm`].
    ///
    /// # Errors
    /// When one of these opcodes has a handler.
    pub fn handle_rocm(&self, services: &Services) -> Result<(), Taken> {
        let address = self.shared.memory.device_address();
        let services = Arc::new(RpcServices::new(services, &self.shared.budget, address));
        self.handle(RpcServices::OPCODES, OpcodeHandler(Answer::Rocm(services)))
    }

    /// Ends the service: no port is answered any more, and what handlers receive and send fails. Handlers that run are not
    /// waited for. Threads that serve may look at the memory once more; they end when this is dropped.
    pub fn cancel(&self) {
        stop_serving(&self.shared, &self.bells);
    }

    /// The client object that the device finds the ports by.
    pub fn client_object(&self) -> Vec<u8> {
        self.shared.memory.client_object()
    }

    /// How the program ended itself, if it did.
    pub fn end(&self) -> Option<End> {
        *self.shared.end.lock()
    }

    /// Writes out what files and streams hold back.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// What the server has counted.
    pub fn statistics(&self) -> Statistics {
        self.shared.counted.statistics()
    }

    /// Returns what counts for the server, which can be read once the server is gone. The server and what runs for it have it, too.
    pub fn counted(&self) -> &Arc<Counted> {
        &self.shared.counted
    }
}

/// Serves a server's ports when it is called; see [`LlvmServer::by_hand`].
pub struct Poller(Box<dyn FnMut() -> usize>);

impl Poller {
    /// Goes on with all calls that wait for the host. Returns how many that were; 0 once the server was cancelled or dropped.
    pub fn poll(&mut self) -> usize {
        (self.0)()
    }
}

/// Cuts the ports into ranges of whole lines, one a thread.
fn share_out(ports: u32, threads: u32) -> impl Iterator<Item = Range<u32>> {
    let lines = ports.div_ceil(LINE_PORTS);
    let bound = move |i: u32| (lines * i / threads * LINE_PORTS).min(ports);
    (0..threads).map(move |i| bound(i)..bound(i + 1))
}

/// What stops a server whose thread has panicked.
#[derive(Clone, Default)]
struct Stop(Arc<OnceLock<Serving>>);

struct Serving {
    shared: Weak<Shared>,
    bells: Vec<Arc<Bell>>,
}

impl Stop {
    /// Returns what stops the server: its clients get no answer any more, and the program has a fault.
    fn callback(&self) -> impl FnOnce() + Send + 'static {
        let stop = self.clone();
        move || {
            let Some(Serving { shared, bells }) = stop.0.get() else { return };
            let Some(shared) = shared.upgrade() else { return };
            stop_serving(&shared, bells);
            let fault = Fault { port: 0, kind: FaultKind::ServerFailed };
            shared.counted.faults.fetch_add(1, Ordering::Relaxed);
            // The engine may be gone with the thread.
            let _ = catch(|| shared.options.tell(&fault, shared.memory.device_address()));
        }
    }
}

fn stop_serving(shared: &Shared, bells: &[Arc<Bell>]) {
    shared.stopping.store(true, Ordering::Release);
    bells.iter().for_each(|bell| bell.attention.call());
}

/// Clients that wait get no answer any more. Files are written out.
impl Drop for LlvmServer {
    fn drop(&mut self) {
        stop_serving(&self.shared, &self.bells);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        if let Some(watchdog) = self.watchdog.take() {
            self.shared.engine.stop();
            let _ = watchdog.join();
        }
        self.shared.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_get_whole_lines() {
        for (ports, threads) in [(1, 1), (64, 3), (100, 7), (16384, 5)] {
            let ranges: Vec<_> = share_out(ports, threads).collect();
            assert_eq!((ranges[0].start, ranges.last().unwrap().end), (0, ports));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(ranges.iter().all(|range| range.start.is_multiple_of(LINE_PORTS) && !range.is_empty()));
        }
    }
}
