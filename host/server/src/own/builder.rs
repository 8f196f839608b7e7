//! Settings of a server, and its start.

use super::consumer::Consumer;
use super::control::{Server, share_out};
use super::inline::Inline;
use super::launch_watch::LaunchWatches;
use super::launches::Launches;
use super::messages::Messages;
use super::posts::PostCounts;
use super::registry::{Handler, RegisterError, Registry};
use super::shared::{Counters, OnFault, Shared};
use super::turns::Turns;
use super::unserved::UnservedCounts;
use crate::engine::endpoint::{EndpointSettings, endpoint_settings};
use crate::engine::loans::LoanPool;
use crate::engine::panics::HandlerPanic;
use crate::engine::polling::{Attention, Endpoint};
use crate::engine::rare::Rare;
use crate::engine::watchdog::Waiting;
use crate::engine::{Engine, Settings};
use hostcall_abi::launch::LaunchId;
use hostcall_channel::SharedMemory;
use hostcall_channel::host::{LoanMemory, ProcessLoans, Scanner, Taken};
use hostcall_locks::Mutex;
use hostcall_service::{AsyncService, Gather, GatheredService, Service};
use hostcall_trace::Source;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

/// Builds a [`Server`].
pub struct ServerBuilder {
    memory: Arc<SharedMemory>,
    handlers: Vec<Handler>,
    default: Option<Handler>,
    consumers: usize,
    loans: Box<dyn LoanMemory>,
    endpoint: EndpointSettings,
    reliable_hints: bool,
    settings: Settings,
    on_fault: Vec<OnFault>,
    on_answer: Box<dyn Fn() + Send + Sync>,
}

impl ServerBuilder {
    pub(super) fn new(memory: Arc<SharedMemory>) -> Self {
        Self {
            memory,
            handlers: Vec::new(),
            default: None,
            consumers: 1,
            loans: Box::new(ProcessLoans),
            endpoint: EndpointSettings::new(64 << 20, 1 << 30),
            reliable_hints: false,
            settings: Settings::default(),
            on_fault: Vec::new(),
            on_answer: Box::new(|| ()),
        }
    }

    endpoint_settings!("64 MiB", "1 GiB");

    /// Registers a service whose handlers may wait: they run on worker threads, one for each call that waits.
    pub fn service(self, service: impl Service) -> Self {
        self.handler(Handler::blocking(service))
    }

    /// Registers a service whose handlers never wait: they run on the consumer thread, at once.
    pub fn inline_service(self, service: impl Service) -> Self {
        self.handler(Handler::inline(service))
    }

    /// Registers a service whose handlers are futures.
    pub fn async_service(self, service: impl AsyncService) -> Self {
        self.handler(Handler::futures(service))
    }

    /// Registers a service whose handlers get the calls of all waves that wait for a method.
    pub fn gathered_service(self, service: impl GatheredService, bounds: Gather) -> Self {
        self.handler(Handler::gathered(service, bounds))
    }

    /// Registers a service with where its handlers run.
    pub fn handler(mut self, handler: Handler) -> Self {
        self.handlers.push(handler);
        self
    }

    /// Sends calls to unknown numbers to this service, as its method 0, instead of refusing them.
    pub fn default_service(mut self, handler: Handler) -> Self {
        self.default = Some(handler);
        self
    }

    /// A number by which [`crate::handling`] tells this server's handlers from those of others. Default 0.
    pub fn token(mut self, token: u64) -> Self {
        self.endpoint.setup.token = token;
        self
    }

    /// Consumer threads, which share the slots out among them. Default 1.
    pub fn consumers(mut self, consumers: usize) -> Self {
        self.consumers = consumers;
        self
    }

    /// Most threads that run handlers of users' services which may wait. There is one for each handler that waits, and when
    /// there are so many, calls wait for a handler to return. At least one; default 16,384.
    pub fn handler_threads(mut self, threads: usize) -> Self {
        self.settings.handlers.threads = threads;
        self
    }

    /// Most threads that run handlers of the services that come with hostcall, such as files and standard input. At least one; default 16,384.
    pub fn builtin_threads(mut self, threads: usize) -> Self {
        self.settings.builtins.threads = threads;
        self
    }

    /// Bytes of the stack of each thread that runs handlers; memory is taken for what they use of it. Default 1 MiB.
    pub fn handler_stack_bytes(mut self, bytes: usize) -> Self {
        self.settings.handlers.stack_bytes = bytes;
        self
    }

    /// Runs async handlers on this runtime in place of threads of the server's: what they wait for (timers, sockets) has its
    /// reactor there, and they may spawn tasks. It must run: a runtime that nobody drives answers no call. Where it ends, the
    /// calls of its handlers get [`CallError::Cancelled`](hostcall_abi::CallError::Cancelled), and later ones
    /// [`CallError::Busy`](hostcall_abi::CallError::Busy).
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.settings.runtime = Some(runtime);
        self
    }

    /// Takes the memory in which lanes read long replies from `memory`, which the device must reach. Default:
    /// memory of the process, which is the software device's.
    pub fn loans(mut self, memory: impl LoanMemory) -> Self {
        self.loans = Box::new(memory);
        self
    }

    /// Whether whoever rings, while the channel's header says that consumers sleep, always calls [`Server::wake`]
    /// then. Otherwise, as on a device that cannot, consumers find a call when their sleep ends: of 0.7 ms at most
    /// while launches run, after 100 ms without work 2.2 ms. Default: not.
    pub fn reliable_hints(mut self, reliable: bool) -> Self {
        self.reliable_hints = reliable;
        self
    }

    /// Calls `report` once for each call that has waited this long, on a thread for such reports; at most 1024 wait for it.
    /// Default: 5 s, and a line on stderr.
    pub fn stall_report(
        mut self,
        after: Duration,
        report: impl Fn(&Waiting) + Send + Sync + 'static,
    ) -> Self {
        self.settings.stall_after = after;
        self.settings.on_stall = Arc::new(report);
        self
    }

    /// Calls `report` when a handler panics, for the first panic of each launch in each method, on the thread for reports.
    /// [`Statistics::handler_panics`](super::Statistics::handler_panics) counts all. The message and the place are what the
    /// process's panic hook gets. Default: a line on stderr.
    pub fn handler_panic_report(mut self, report: impl Fn(&HandlerPanic) + Send + Sync + 'static) -> Self {
        self.settings.on_handler_panic = Arc::new(report);
        self
    }

    /// Calls `fault` with a launch and a sentence when the launch cannot go on, because a device wrote what is no
    /// doorbell. The server has cancelled it then; [`Server::take_fault`] has the sentence too. It is called on a consumer's
    /// thread, and returns soon. Each function that was given is called.
    pub fn on_fault(mut self, fault: impl Fn(LaunchId, &str) + Send + Sync + 'static) -> Self {
        self.on_fault.push(Box::new(fault));
        self
    }

    /// Calls `answered` after each answer that did not come at once: a wave that waits for long need not look for
    /// it all the time. Must be quick. Each function that was given is called. Default: nothing.
    pub fn on_answer(mut self, answered: impl Fn() + Send + Sync + 'static) -> Self {
        let before = self.on_answer;
        self.on_answer = Box::new(move || {
            before();
            answered();
        });
        self
    }

    /// Starts the server's threads.
    ///
    /// # Errors
    /// When a service was refused, or a thread cannot be started.
    pub fn start(self) -> Result<Server, ServerError> {
        let (mut server, scanners) = self.prepare()?;
        let shared = server.shared().clone();
        for (index, scanner) in scanners.into_iter().enumerate() {
            let (serves, stops) = (shared.clone(), Arc::downgrade(&shared));
            let run = move || Consumer::new(&serves, index, scanner).run();
            let stop_broken = move || _ = stops.upgrade().inspect(|shared| shared.stop_broken());
            server.add_thread(shared.engine.spawn(format!("hostcall-{index}"), run, stop_broken)?);
        }
        Ok(server)
    }

    /// Serves on the calling thread, which looks for work whenever `run` tells it to, and until `run` returns. For
    /// benchmarks, which play the device and time the looks.
    ///
    /// # Errors
    /// When a service was refused, or there is more than one consumer.
    pub fn by_hand<T>(self, run: impl FnOnce(&Server, &mut ByHand<'_>) -> T) -> Result<T, ServerError> {
        let (server, scanners) = self.prepare()?;
        let Ok([scanner]) = <[Scanner; 1]>::try_from(scanners) else {
            return Err(ServerError::Consumers(1));
        };
        Ok(run(&server, &mut ByHand(Consumer::new(server.shared(), 0, scanner))))
    }

    /// Starts all threads but those of the consumers, whose scanners it returns.
    fn prepare(mut self) -> Result<(Server, Vec<Scanner>), ServerError> {
        let mut registry = Registry::new(self.consumers);
        for handler in self.handlers {
            registry.add(handler)?;
        }
        if let Some(handler) = self.default {
            registry.set_default(handler);
        }
        let layout = *self.memory.region().layout();
        let lines = layout.doorbell_lines();
        if self.consumers == 0 || self.consumers > lines {
            return Err(ServerError::Consumers(lines));
        }
        self.settings.use_endpoint(&self.endpoint);
        let stops = Arc::<OnceLock<Weak<Shared>>>::default();
        let stopped = stops.clone();
        let (engine, watchdog) = Engine::start(self.settings, move || {
            _ = stopped.get().and_then(Weak::upgrade).inspect(|shared| shared.stop_broken());
        })?;
        let shared = Arc::new(Shared {
            engine,
            trace: self.endpoint.trace.clone(),
            launch_watch: LaunchWatches::default(),
            turns: Turns::default(),
            wakes_reliably: self.reliable_hints,
            statistics: Counters::new(self.consumers),
            messages: Messages::new(self.endpoint.budget(), LoanPool::new(self.loans), layout.slots()),
            post_counts: PostCounts::default(),
            on_fault: self.on_fault,
            on_answer: self.on_answer,
            stopping: AtomicBool::new(false),
            counts: registry.counts.clone(),
            registry: Mutex::new(Arc::new(registry)),
            commands: (0..self.consumers).map(|_| Mutex::new(Some(Vec::new()))).collect(),
            launches: Launches::new(self.memory.clone()),
            faults: Rare::default(),
            unserved: UnservedCounts::default(),
            consumers: (0..self.consumers).map(|_| Attention::default()).collect(),
            inline: (0..self.consumers).map(Inline::new).collect(),
            watched_inline: Mutex::new((0..self.consumers).map(|_| None).collect()),
            has_declined: AtomicBool::new(false),
            memory: self.memory,
        });
        let _ = stops.set(Arc::downgrade(&shared));
        let looked_at = Arc::downgrade(&shared);
        shared.engine.watchdog.set_look(move || {
            let Some(shared) = looked_at.upgrade() else { return false };
            shared.watch_inline();
            shared.launches.may_call()
        });
        let taken = Taken::new(layout.home_slots);
        let scanners = share_out(layout.slots(), self.consumers);
        let scanners = scanners.into_iter().map(|slots| Scanner::new(slots, taken.clone())).collect();
        tracing::debug!(slots = layout.slots(), consumers = self.consumers, "a server started");
        Ok((Server::new(shared, watchdog), scanners))
    }
}

/// A consumer without a thread of its own, see [`ServerBuilder::by_hand`].
pub struct ByHand<'s>(Consumer<'s>);

impl ByHand<'_> {
    /// Looks at hot places and at some others. Returns whether there was work.
    #[inline(never)]
    pub fn pass(&mut self) -> bool {
        self.0.pass()
    }

    /// Looks at what a consumer looks at when it has slept, `again` if it has slept before and found no work. Returns whether
    /// there was work.
    pub fn wake_up(&mut self, again: bool) -> bool {
        self.0.pass() | self.0.sweep(again)
    }
}
