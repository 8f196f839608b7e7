//! Starting, steering and stopping a server, and what its threads share.

use super::bytes::Pieces;
use super::consumer::Consumer;
use super::registry::{Entry, Handler, Mode, RegisterError, Registry};
use super::watchdog::{Stall, Watchdog};
use hostcall_abi::layout::{LINE_WORDS, Layout};
use hostcall_abi::service::{AsyncService, Caller, OwnedRequest, Service};
use hostcall_abi::status::CallError;
use hostcall_channel::SharedMemory;
use hostcall_channel::host::Scanner;
use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No consumer threads, or more than lines of slots.
    #[error("a server needs 1 to {0} consumer threads for its slots")]
    Consumers(usize),
    /// A thread could not be started.
    #[error("the server could not start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// A service was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// What a server has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets answered: calls of waves.
    pub packets: u64,
    /// Posts taken.
    pub posts: u64,
    /// Posts that reached no handler: no such service, other types, or a handler that panicked.
    pub refused_posts: u64,
    /// Words where a post should have begun and did not.
    pub garbage_posts: u64,
    /// Slots given up because the device wrote what is no doorbell.
    pub broken_slots: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub packets: AtomicU64,
    pub posts: AtomicU64,
    refused_posts: AtomicU64,
    pub garbage_posts: AtomicU64,
    pub broken_slots: AtomicU64,
}

impl Counters {
    pub fn count_refused_posts(&self, count: usize) {
        self.refused_posts.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Whose a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub launch: u64,
    pub cancelled: bool,
}

const CANCELLED: u64 = 1 << 63;

/// What a consumer is asked to do besides serving.
pub(crate) enum Command {
    /// Take the posts of the slots' waves, then answer whether nothing is left to do for the slots.
    Flush(Range<u32>, Sender<bool>),
    /// Forget the slots' state, then answer.
    Reset(Range<u32>, Sender<bool>),
    /// Let the slots' rings have so many entries, then answer.
    ResizeRings(Range<u32>, u32, Sender<bool>),
}

type Work = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// A post for a handler that may wait.
struct PostLater {
    entry: Arc<Entry>,
    extra: u32,
    request: OwnedRequest,
}

/// What the server's threads share.
pub(crate) struct Shared {
    pub memory: Arc<SharedMemory>,
    pub message_limit: usize,
    pub spin: Duration,
    /// Whoever rings while the header says that consumers sleep calls [`Server::wake`].
    pub reliable_hints: bool,
    pub statistics: Counters,
    pub watchdog: Watchdog,
    /// Told of a slot, and the launch that has it, whose device wrote what is no doorbell.
    pub on_broken: Box<dyn Fn(u32, u64) + Send + Sync>,
    /// Told when a thread other than a consumer has answered.
    pub on_answer: Box<dyn Fn() + Send + Sync>,
    /// Goes up when consumers have to look at `registry`, `commands` or `stopping`.
    pub attention: AtomicU64,
    pub stopping: AtomicBool,
    registry: Mutex<Arc<Registry>>,
    commands: Box<[Mutex<Vec<Command>>]>,
    /// Slots below this may be in use.
    pub slots_in_use: AtomicU32,
    /// Held while `slots_in_use` and `attached` change together.
    attaching: Mutex<()>,
    /// Launches that have slots.
    pub attached: AtomicU32,
    owners: Box<[AtomicU64]>,
    pieces: Mutex<HashMap<(u32, u8), Pieces>>,
    posts: Mutex<Option<Sender<PostLater>>>,
    /// Per consumer: parked, so that a hint has to wake it.
    pub parked: Box<[AtomicBool]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    #[inline]
    pub fn owner(&self, slot: u32) -> Owner {
        let word = self.owners[slot as usize].load(Ordering::Relaxed);
        Owner { launch: word & !CANCELLED, cancelled: word & CANCELLED != 0 }
    }

    pub fn registry(&self) -> Arc<Registry> {
        lock(&self.registry).clone()
    }

    pub fn commands(&self, consumer: usize) -> Vec<Command> {
        std::mem::take(&mut *lock(&self.commands[consumer]))
    }

    /// Works on what is kept of a lane's byte message.
    pub fn pieces<T>(
        &self,
        key: (u32, u8),
        work: impl FnOnce(&mut Pieces) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        work(lock(&self.pieces).entry(key).or_default())
    }

    /// Queues a post for the thread that runs handlers which may wait, in order.
    pub fn post_later(&self, entry: &Arc<Entry>, extra: u32, words: &[u64], caller: Caller) {
        let request = OwnedRequest { words: words.to_vec(), bytes: Vec::new(), reply_capacity: 0, caller };
        let post = PostLater { entry: entry.clone(), extra, request };
        if lock(&self.posts).as_ref().is_none_or(|posts| posts.send(post).is_err()) {
            self.statistics.count_refused_posts(1);
        }
    }
}

/// Runs posts to handlers that may wait, one after the other.
fn run_posts(shared: &Shared, posts: &mpsc::Receiver<PostLater>) {
    for PostLater { entry, extra, request } in posts {
        let run = || match &entry.handler {
            Handler::Sync(service, _) => service.post(entry.index, extra, request.as_request()),
            Handler::Async(service) => {
                let _ = futures_lite::future::block_on(service.call(entry.index, request));
            }
        };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            shared.statistics.count_refused_posts(1);
        }
    }
}

/// Builds a [`Server`].
pub struct ServerBuilder {
    memory: Arc<SharedMemory>,
    registry: Registry,
    refused: Option<RegisterError>,
    consumers: usize,
    message_limit: usize,
    spin: Duration,
    reliable_hints: bool,
    stall_after: Duration,
    on_stall: Box<dyn Fn(&Stall) + Send + Sync>,
    on_broken: Box<dyn Fn(u32, u64) + Send + Sync>,
    on_answer: Box<dyn Fn() + Send + Sync>,
}

impl ServerBuilder {
    fn add(mut self, handler: Handler) -> Self {
        if let Err(error) = self.registry.add(&handler) {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Registers a service whose handlers may wait: they run on worker threads.
    pub fn service(self, service: impl Service) -> Self {
        self.add(Handler::Sync(Arc::new(service), Mode::Blocking))
    }

    /// Registers a service whose handlers never wait: they run on the consumer thread, at once.
    pub fn inline_service(self, service: impl Service) -> Self {
        self.add(Handler::Sync(Arc::new(service), Mode::Inline))
    }

    /// Registers a service whose handlers are futures.
    pub fn async_service(self, service: impl AsyncService) -> Self {
        self.add(Handler::Async(Arc::new(service)))
    }

    /// Registers a handler.
    pub fn handler(self, handler: Handler) -> Self {
        self.add(handler)
    }

    /// Sends calls to unknown numbers to this handler, with method 0, instead of refusing them.
    pub fn default_service(mut self, handler: Handler) -> Self {
        self.registry.set_default(Some(handler));
        self
    }

    /// Consumer threads, which share the slots out among them. Default 1.
    pub fn consumers(mut self, consumers: usize) -> Self {
        self.consumers = consumers;
        self
    }

    /// Most bytes of a message or a reply. Default 64 MiB.
    pub fn message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes;
        self
    }

    /// How long a consumer without work looks on before it sleeps, at most 1 ms at a time while launches run,
    /// or 100 ms where hints are reliable. Default 50 µs.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Whether whoever rings, while the channel's header says that consumers sleep, always calls [`Server::wake`]
    /// then. Otherwise, as on a device that cannot, consumers look every millisecond. Default: not.
    pub fn reliable_hints(mut self, reliable: bool) -> Self {
        self.reliable_hints = reliable;
        self
    }

    /// Calls `report` once for each call that has waited this long. Default: 5 s, and a line on stderr.
    pub fn stall_report(mut self, after: Duration, report: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.stall_after = after;
        self.on_stall = Box::new(report);
        self
    }

    /// Calls `broken` with slot and launch number when a device wrote what is no doorbell: its slot is ignored
    /// from then on, so the launch should be cancelled. Default: a line on stderr.
    pub fn on_broken(mut self, broken: impl Fn(u32, u64) + Send + Sync + 'static) -> Self {
        self.on_broken = Box::new(broken);
        self
    }

    /// Calls `answered` after each answer that did not come at once: a wave that waits for long need not look for
    /// it all the time. Must be quick. Default: nothing.
    pub fn on_answer(mut self, answered: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_answer = Box::new(answered);
        self
    }

    /// Starts the server's threads.
    ///
    /// # Errors
    /// When a service was refused, or a thread cannot be started.
    pub fn start(self) -> Result<Server, ServerError> {
        if let Some(error) = self.refused {
            return Err(error.into());
        }
        let layout = *self.memory.region().layout();
        let lines = layout.doorbell_lines();
        if self.consumers == 0 || self.consumers > lines {
            return Err(ServerError::Consumers(lines));
        }
        let (posts, later) = mpsc::channel();
        let shared = Arc::new(Shared {
            message_limit: self.message_limit,
            spin: self.spin,
            reliable_hints: self.reliable_hints,
            statistics: Counters::default(),
            watchdog: Watchdog::new(self.stall_after, self.on_stall),
            on_broken: self.on_broken,
            on_answer: self.on_answer,
            attention: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            registry: Mutex::new(Arc::new(self.registry)),
            commands: (0..self.consumers).map(|_| Mutex::default()).collect(),
            slots_in_use: AtomicU32::new(0),
            attaching: Mutex::new(()),
            attached: AtomicU32::new(0),
            owners: (0..layout.slots).map(|_| AtomicU64::new(0)).collect(),
            pieces: Mutex::default(),
            posts: Mutex::new(Some(posts)),
            parked: (0..self.consumers).map(|_| AtomicBool::new(false)).collect(),
            memory: self.memory,
        });
        let mut server = Server {
            shared: shared.clone(),
            layout,
            ring_entries: Mutex::new(vec![layout.ring_entries; layout.slots as usize].into()),
            threads: Vec::new(),
            consumers: Vec::new(),
        };
        let spawn = |name: String, work: Work| {
            let shared = shared.clone();
            std::thread::Builder::new().name(name).spawn(move || work(&shared))
        };
        for (index, slots) in share_out(layout.slots, self.consumers).into_iter().enumerate() {
            let thread = spawn(
                format!("hostcall-{index}"),
                Box::new(move |shared| Consumer::new(shared, index, Scanner::new(slots)).run()),
            )?;
            server.consumers.push(thread.thread().clone());
            server.threads.push(thread);
        }
        server
            .threads
            .push(spawn("hostcall-posts".into(), Box::new(move |shared| run_posts(shared, &later)))?);
        server.threads.push(spawn("hostcall-dog".into(), Box::new(|shared| shared.watchdog.run()))?);
        Ok(server)
    }
}

/// Cuts the slots into ranges of whole lines, one a consumer.
fn share_out(slots: u32, consumers: usize) -> Vec<Range<u32>> {
    let lines = slots.div_ceil(LINE_WORDS as u32);
    let bound = |i: usize| (lines * i as u32 / consumers as u32 * LINE_WORDS as u32).min(slots);
    (0..consumers).map(|i| bound(i)..bound(i + 1)).collect()
}

/// Serves one channel until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    layout: Layout,
    /// Entries of each slot's ring.
    ring_entries: Mutex<Box<[u32]>>,
    threads: Vec<JoinHandle<()>>,
    consumers: Vec<Thread>,
}

impl Server {
    /// A builder of a server for a channel's memory.
    pub fn builder(memory: Arc<SharedMemory>) -> ServerBuilder {
        ServerBuilder {
            memory,
            registry: Registry::new(),
            refused: None,
            consumers: 1,
            message_limit: 64 << 20,
            spin: Duration::from_micros(50),
            reliable_hints: false,
            stall_after: Duration::from_secs(5),
            on_stall: Box::new(|stall| eprintln!("hostcall: {stall}")),
            on_broken: Box::new(|slot, launch| {
                eprintln!(
                    "hostcall: launch {launch}, slot {slot}: the device wrote what is no call; slot ignored"
                );
            }),
            on_answer: Box::new(|| ()),
        }
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<(), RegisterError>,
    ) -> Result<(), RegisterError> {
        let mut current = lock(&self.shared.registry);
        let mut registry = Registry::clone(&current);
        change(&mut registry)?;
        *current = Arc::new(registry);
        drop(current);
        self.call_attention();
        Ok(())
    }

    /// Registers a handler while kernels run.
    ///
    /// # Errors
    /// When one of its numbers is taken.
    pub fn register(&self, handler: &Handler) -> Result<(), RegisterError> {
        self.change(|registry| registry.add(handler))
    }

    /// Removes the service whose first method has this number; returns whether there was one. Handlers that
    /// run already finish; when this returns, no more are called, unless it is called from a handler that runs on a
    /// consumer.
    pub fn unregister(&self, number: u16) -> bool {
        let mut removed = false;
        let _ = self.change(|registry| {
            removed = registry.remove(number);
            Ok(())
        });
        // A consumer cannot wait for itself, nor for another one that may wait for it.
        let here = std::thread::current().id();
        if removed && self.consumers.iter().all(|consumer| consumer.id() != here) {
            self.settle();
        }
        removed
    }

    /// Waits until every consumer has done what it had begun, and looked at the registry.
    fn settle(&self) {
        let (done, wait) = mpsc::channel();
        for commands in &self.shared.commands {
            // Commands come after the registry. This one has nothing to do.
            lock(commands).push(Command::Flush(0..0, done.clone()));
        }
        drop(done);
        self.call_attention();
        while wait.recv().is_ok() {}
    }

    fn call_attention(&self) {
        self.shared.attention.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Wakes parked consumers: a hint that there may be work.
    #[inline]
    pub fn wake(&self) {
        // A consumer notes that it is parked and then looks; the caller rang, and then it is looked whether that
        // one is parked: one of them sees what the other did.
        fence(Ordering::SeqCst);
        for (parked, thread) in self.shared.parked.iter().zip(&self.consumers) {
            if parked.load(Ordering::Relaxed) && parked.swap(false, Ordering::AcqRel) {
                thread.unpark();
            }
        }
    }

    /// Lets the rings of these slots, which no launch has, have `entries` entries: a power of two from four a lane to what
    /// the layout says.
    ///
    /// # Panics
    /// When that is no such number, or there are no such slots.
    pub fn resize_rings(&self, slots: Range<u32>, entries: u32) {
        let possible = 4 * self.layout.lanes..=self.layout.ring_entries;
        assert!(entries.is_power_of_two() && possible.contains(&entries), "no ring has {entries} entries");
        let mut all = lock(&self.ring_entries);
        let current = &mut all[slots.start as usize..slots.end as usize];
        if current.iter().any(|current| *current != entries) {
            current.fill(entries);
            drop(all);
            self.command(slots, |slots, done| Command::ResizeRings(slots, entries, done));
        }
    }

    /// Gives slots to a launch, before it starts.
    pub fn attach(&self, slots: Range<u32>, launch: u64) {
        for slot in slots.clone() {
            self.shared.owners[slot as usize].store(launch, Ordering::Relaxed);
        }
        let attaching = lock(&self.shared.attaching);
        self.shared.slots_in_use.fetch_max(slots.end, Ordering::Relaxed);
        self.shared.attached.fetch_add(1, Ordering::Relaxed);
        drop(attaching);
        self.wake();
    }

    /// Takes all posts of the slots' waves: after a launch's end, its last posts are handled when this returns. Whether
    /// nothing is left to do for the slots; otherwise a launch has ended without waiting for all of its calls, and has not
    /// left the slots [clean](Server::detach).
    pub fn flush(&self, slots: Range<u32>) -> bool {
        self.command(slots, Command::Flush)
    }

    /// Whether the launch that has these slots was cancelled.
    pub(crate) fn is_cancelled(&self, slots: &Range<u32>) -> bool {
        self.shared.owner(slots.start).cancelled
    }

    /// Takes slots back after their launch ended. `clean` when every wave ended in order. When one did not, or
    /// the launch was cancelled, the slots' words and all that the host knows of them are cleared, and this
    /// returns `false`: the device's slot states must be cleared too.
    pub fn detach(&self, slots: Range<u32>, clean: bool) -> bool {
        let owner = self.shared.owner(slots.start);
        let clean = clean && !owner.cancelled;
        if !clean {
            for slot in slots.clone() {
                self.shared.owners[slot as usize].store(owner.launch | CANCELLED, Ordering::Relaxed);
            }
            // A call that a consumer took before it saw this is with the watchdog then; later ones are refused.
            self.settle();
            self.shared.watchdog.give_up(Some(owner.launch), CallError::Cancelled);
            self.command(slots.clone(), Command::Reset);
        }
        lock(&self.shared.pieces).retain(|(slot, _), _| !slots.contains(slot));
        for slot in slots {
            self.shared.owners[slot as usize].store(0, Ordering::Relaxed);
        }
        let _attaching = lock(&self.shared.attaching);
        if self.shared.attached.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.slots_in_use.store(0, Ordering::Relaxed);
        }
        clean
    }

    /// Has the consumers obey, and waits for it. Whether all answers are yes.
    fn command(&self, slots: Range<u32>, command: impl Fn(Range<u32>, Sender<bool>) -> Command) -> bool {
        let (done, wait) = mpsc::channel();
        for (commands, own) in
            self.shared.commands.iter().zip(share_out(self.layout.slots, self.consumers.len()))
        {
            let part = slots.start.max(own.start)..slots.end.min(own.end);
            if !part.is_empty() {
                lock(commands).push(command(part, done.clone()));
            }
        }
        drop(done);
        self.call_attention();
        // Ends when the last consumer has answered or dropped its command.
        wait.iter().fold(true, |all, answer| all & answer)
    }

    /// Cancels a launch: its waiting calls and all further ones end with [`CallError::Cancelled`].
    pub fn cancel(&self, launch: u64) {
        self.shared.memory.region().cancel(launch);
        for owner in &self.shared.owners {
            let _ = owner.compare_exchange(launch, launch | CANCELLED, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.shared.watchdog.give_up(Some(launch), CallError::Cancelled);
        self.wake();
    }

    /// The calls whose handlers have not returned.
    pub fn waiting(&self) -> Vec<Stall> {
        self.shared.watchdog.waiting()
    }

    /// What the server has counted.
    pub fn statistics(&self) -> Statistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.shared.statistics;
        Statistics {
            packets: load(&counters.packets),
            posts: load(&counters.posts),
            refused_posts: load(&counters.refused_posts),
            garbage_posts: load(&counters.garbage_posts),
            broken_slots: load(&counters.broken_slots),
        }
    }
}

/// Every waiting call gets [`CallError::Cancelled`], and the device learns that nobody serves any more.
impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.watchdog.stop();
        *lock(&self.shared.posts) = None;
        self.call_attention();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
        self.shared.memory.region().stop();
    }
}
