//! Starting and stopping a server, and what its threads share.

use super::executor::{self, Bell};
use super::files::Files;
use super::functions::HostFunctions;
use super::options::{End, Options};
use super::standard::Standard;
use crate::services::{Builtins, Heap};
use hostcall_channel::llvm::PortMemory;
use hostcall_channel::llvm::server::LINE_PORTS;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// What the server's threads and their workers share.
pub(super) struct Shared {
    pub memory: Arc<PortMemory>,
    pub options: Options,
    pub standard: Standard,
    pub files: Files,
    pub heap: Heap,
    pub functions: HostFunctions,
    pub stopping: AtomicBool,
    pub calls: AtomicU64,
    pub faults: AtomicU64,
    /// Bytes of the messages on their way that are counted.
    pub messages_bytes: AtomicUsize,
    end: Mutex<Option<End>>,
}

impl Shared {
    /// Writes out what files and streams hold back.
    pub fn flush(&self) {
        self.files.flush_all();
        self.standard.flush();
    }

    /// Notes how the program ended itself; the first end counts.
    pub fn ended(&self, end: End) {
        let mut first = false;
        self.end.lock().get_or_insert_with(|| {
            first = true;
            end
        });
        if first {
            (self.options.on_end)(end);
        }
    }
}

/// What a server has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Ports opened by waves. A call is counted up to a millisecond after it.
    pub calls: u64,
    /// Ports that are served no more.
    pub faults: u64,
}

/// Serves the ports of one memory until it is dropped.
pub struct LlvmServer {
    shared: Arc<Shared>,
    bells: Vec<Arc<Bell>>,
    threads: Vec<JoinHandle<()>>,
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
        let shared = Arc::new(Shared {
            memory,
            options,
            standard: Standard::new(builtins.stdio_shared()),
            files: Files::new(builtins.files_shared()),
            heap: builtins.heap().clone(),
            functions: HostFunctions::default(),
            stopping: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            messages_bytes: AtomicUsize::new(0),
            end: Mutex::new(None),
        });
        let mut server = Self { shared, bells: Vec::new(), threads: Vec::new() };
        for (index, ports) in share_out(ports, threads).enumerate() {
            let (shared, bell) = (server.shared.clone(), Arc::<Bell>::default());
            server.bells.push(bell.clone());
            let serve = move || executor::run(shared, ports, bell);
            server
                .threads
                .push(std::thread::Builder::new().name(format!("hostcall-llvm-{index}")).spawn(serve)?);
        }
        Ok(server)
    }

    /// Registers a function for host calls and gives what clients call it by, in place of its address. It runs
    /// on a worker thread with a copy of the caller's bytes; its result goes back where the client's LLVM
    /// takes one.
    pub fn register(&self, function: impl Fn(&mut [u8]) -> u64 + Send + Sync + 'static) -> u64 {
        self.shared.functions.add(function)
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
        Statistics {
            calls: self.shared.calls.load(Ordering::Relaxed),
            faults: self.shared.faults.load(Ordering::Relaxed),
        }
    }
}

/// Cuts the ports into ranges of whole lines, one a thread.
fn share_out(ports: u32, threads: u32) -> impl Iterator<Item = Range<u32>> {
    let lines = ports.div_ceil(LINE_PORTS);
    let bound = move |i: u32| (lines * i / threads * LINE_PORTS).min(ports);
    (0..threads).map(move |i| bound(i)..bound(i + 1))
}

/// Clients that wait get no answer any more. Files are written out.
impl Drop for LlvmServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for bell in &self.bells {
            bell.ring();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
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
