//! What every protocol's endpoint uses: threads that find work, worker threads, an executor for futures, and the watchdog.
//!
//! Nothing of a user's runs on these threads but through [`caught`], and reports go through [`report`], so that they
//! neither panic nor wait for it. A thread that dies all the same stops the server with an error, see [`Engine::spawn`].

pub(crate) mod answers;
mod attention;
pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod caught;
pub(crate) mod endpoint;
pub(crate) mod executor;
pub(crate) mod functions;
pub(crate) mod handling;
mod launch_set;
pub(crate) mod loans;
pub(crate) mod panics;
pub(crate) mod polling;
pub(crate) mod rare;
pub(crate) mod report;
pub(crate) mod runtime;
pub(crate) mod trace;
pub(crate) mod watchdog;
pub(crate) mod workers;

use caught::{catch, drop_caught};
use endpoint::EndpointSettings;
use executor::Futures;
use handling::ThreadSetup;
use hostcall_locks::Mutex;
use hostcall_trace::Source;
pub use launch_set::LaunchSet;
use panics::{HandlerPanic, Panics};
use rare::Rare;
use runtime::Runtime;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use watchdog::{Waiting, WaitsFor, Watchdog};
use workers::{Limits, Load, Pool, Work};

/// Most calls of a user's callbacks that wait for their thread. Later ones are dropped and counted.
const MOST_CALLBACKS: usize = 1024;

/// Threads of calls that append to outputs: calls to one output wait for the same room, one after the other.
const OUTPUT_THREADS: usize = 64;

/// Threads that look names of the network up. The system's resolver may wait for minutes; later names wait then.
const NAME_THREADS: usize = 8;

/// Most threads of async handlers.
const ASYNC_THREADS: usize = 2;

/// Whose threads run a handler that may wait. Handlers of one kind never take those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Users' handlers.
    Users,
    /// Those that come with hostcall, but for the following ones.
    Builtins,
    /// Readers of the standard input, which wait for each other and for somebody who types: one thread.
    Input,
    /// Writers of the outputs, which wait while nobody reads these: at most [`OUTPUT_THREADS`].
    Output,
    /// Those who look up names of the network: at most [`NAME_THREADS`].
    Names,
}

thread_local! {
    /// The thread is one of an engine, on which nothing of a user's may take its time.
    static IS_ENGINES: Cell<bool> = const { Cell::new(false) };
}

/// Settings of an engine.
#[derive(Clone)]
pub(crate) struct Settings {
    /// What reports call the device; empty where they name none.
    pub device: Arc<str>,
    /// Of the threads of users' handlers.
    pub handlers: Limits,
    /// Of the threads of the handlers that come with hostcall.
    pub builtins: Limits,
    /// What runs async handlers in place of these threads.
    pub runtime: Option<Runtime>,
    /// What each thread does first.
    pub setup: ThreadSetup,
    /// After how long a call that waits is reported.
    pub stall_after: Duration,
    /// Reports it, on a thread of its own.
    pub on_stall: Arc<dyn Fn(&Waiting) + Send + Sync>,
    /// Reports a handler's panic, on the same thread.
    pub on_handler_panic: Arc<dyn Fn(&HandlerPanic) + Send + Sync>,
    /// Who is told again and again of calls that wait.
    pub trace: Option<Source>,
}

impl Settings {
    /// Takes what an endpoint was told: its threads' setup, its trace, and the device's name if it was given one.
    pub fn use_endpoint(&mut self, endpoint: &EndpointSettings) {
        (self.setup, self.trace) = (endpoint.setup.clone(), endpoint.trace.clone());
        if let Some(device) = &endpoint.device {
            self.device = device.clone();
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: Arc::default(),
            handlers: Limits::default(),
            builtins: Limits::default(),
            runtime: None,
            setup: ThreadSetup::default(),
            stall_after: Duration::from_secs(5),
            on_stall: Arc::new(|waiting| report::line(waiting)),
            on_handler_panic: Arc::new(|panic| report::line(panic)),
            trace: None,
        }
    }
}

/// The threads of one device's server.
pub(crate) struct Engine {
    pub watchdog: Arc<Watchdog>,
    /// Where handlers run that may wait, by [`Threads`].
    pools: [Arc<Pool>; 5],
    pub futures: Futures,
    /// Where users' callbacks run, one after the other.
    callbacks: Arc<Pool>,
    lost_callbacks: AtomicU64,
    pub panics: Panics,
    settings: Settings,
    stopping: AtomicBool,
    failure: Rare<Option<String>>,
}

impl Engine {
    /// Makes an engine and starts its watchdog.
    pub fn start(
        settings: Settings,
        on_failure: impl FnOnce() + Send + 'static,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let watchdog =
            Arc::new(Watchdog::new(settings.stall_after, settings.device.clone(), settings.trace.clone()));
        let pool = |name, limits| {
            let hungry = Arc::downgrade(&watchdog);
            Pool::new(name, settings.setup.clone(), limits, move || {
                if let Some(watchdog) = hungry.upgrade() {
                    watchdog.look_at_pools();
                }
            })
        };
        let of = |threads| Limits { threads, ..settings.builtins };
        // Files: they are in the system's memory mostly.
        let of_files = Limits { busy: true, ..settings.builtins };
        let hungry = Arc::downgrade(&watchdog);
        let engine = Arc::new(Self {
            pools: [
                pool("hostcall-handler", settings.handlers),
                pool("hostcall-builtin", of_files),
                pool("hostcall-input", of(1)),
                pool("hostcall-prints", of(OUTPUT_THREADS)),
                pool("hostcall-names", of(NAME_THREADS)),
            ],
            callbacks: pool("hostcall-callback", of(1)),
            futures: Futures::new(
                ASYNC_THREADS,
                settings.setup.clone(),
                settings.runtime.clone(),
                move || {
                    if let Some(watchdog) = hungry.upgrade() {
                        watchdog.look_at_pools();
                    }
                },
            ),
            watchdog,
            lost_callbacks: AtomicU64::new(0),
            panics: Panics::default(),
            settings,
            stopping: AtomicBool::new(false),
            failure: Rare::default(),
        });
        let watched = engine.clone();
        let thread =
            engine.spawn("hostcall-watchdog".into(), move || watched.watchdog.run(&watched), on_failure)?;
        Ok((engine, thread))
    }

    /// Returns what it was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts a thread of the engine's. When it panics, which none does that is known of, the engine has [failed](
    /// Engine::failure), and `on_failure` is to stop the rest.
    pub fn spawn(
        self: &Arc<Self>,
        name: String,
        run: impl FnOnce() + Send + 'static,
        on_failure: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            IS_ENGINES.set(true);
            engine.settings.setup.enter();
            if catch(run).is_ok() {
                return;
            }
            let failure = format!("the server's thread {name} panicked, which is a bug in hostcall");
            report::line(format_args!("{failure}; the server stops"));
            engine.failure.change(|first| _ = first.get_or_insert(failure));
            if catch(on_failure).is_err() {
                report::line("the server could not be stopped in order");
            }
            let _ = catch(|| tracing::error!(thread = name, "a thread of the server panicked"));
        })
    }

    /// Returns why the server stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.change_some(|failure| failure.clone()).flatten()
    }

    /// Returns the pool of these threads.
    pub fn pool(&self, threads: Threads) -> &Pool {
        &self.pools[threads as usize]
    }

    /// Returns all pools.
    fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().chain([&self.callbacks]).map(|pool| &**pool)
    }

    /// Starts threads for what waits for one. Returns when to look again, if something still waits.
    fn grow(&self, now: Instant) -> Option<Instant> {
        self.pools().filter_map(|pool| pool.grow(now)).chain(self.futures.grow(now)).min()
    }

    /// Runs a callback of a user's on the thread for these. When too many wait for it, the callback is dropped and counted.
    pub fn call_back(&self, callback: impl FnOnce() + Send + 'static) {
        struct Once<F>(Mutex<Option<F>>);

        impl<F: FnOnce() + Send> Work for Once<F> {
            fn run_next(self: Arc<Self>) {
                let callback = self.0.lock().take();
                if callback.is_some_and(|callback| catch(callback).is_err()) {
                    report::line("a callback panicked");
                }
            }

            fn is_wanted(&self) -> bool {
                true
            }
        }

        if self.callbacks.load().waiting >= MOST_CALLBACKS {
            self.lost_callbacks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.callbacks.submit(Arc::new(Once(Mutex::new(Some(callback)))), 1);
    }

    /// Returns how many callbacks were dropped because too many waited.
    pub fn lost_callbacks(&self) -> u64 {
        self.lost_callbacks.load(Ordering::Relaxed)
    }

    /// Tells `tracing` of something if there may be a subscriber for this level: as a callback, since a subscriber is a
    /// user's, which may panic and take its time.
    pub fn log(&self, level: Level, log: impl FnOnce() + Send + 'static) {
        if level <= LevelFilter::current() {
            self.call_back(log);
        }
    }

    /// Tells of a call that has waited for long.
    pub fn stalled(&self, waiting: Waiting) {
        let (report, told) = (self.settings.on_stall.clone(), waiting.clone());
        self.call_back(move || report(&told));
        self.log(Level::WARN, move || {
            tracing::warn!(
                device = &*waiting.device,
                launch = %waiting.launch,
                slot = waiting.slot,
                service = waiting.service,
                waited_ms = waiting.waited.as_millis() as u64,
                waits_for = ?waiting.waits_for,
                "a call does not move"
            );
        });
    }

    /// Returns how many threads for handlers there are, and how many handlers wait for one.
    pub fn load(&self) -> Load {
        let mut sum = Load { waiting: self.futures.waiting(), ..Load::default() };
        for load in self.pools.iter().map(|pool| pool.load()) {
            sum.threads += load.threads;
            sum.waiting += load.waiting;
        }
        sum
    }

    /// Stops the pools, the executor and the watchdog; calls that wait get [`Cancelled`](
    /// hostcall_abi::CallError::Cancelled). Handlers that run go on, and answer nobody.
    pub fn stop(&self) {
        if !self.stopping.swap(true, Ordering::AcqRel) {
            self.watchdog.stop();
            for pool in self.pools() {
                pool.stop();
            }
            self.futures.stop();
        }
    }
}

/// Returns whether the calling thread is one of an engine's, on which nothing may take its time.
pub(crate) fn is_engines() -> bool {
    IS_ENGINES.get()
}

/// Drops a value of a user's, whose `Drop` may panic and take its time: not on a thread of an engine's.
pub(crate) fn drop_elsewhere(value: impl Send + 'static) {
    if IS_ENGINES.get() {
        let place = Arc::new(Mutex::new(Some(value)));
        let taken = place.clone();
        let dropper = std::thread::Builder::new().name("hostcall-drop".into());
        if dropper.spawn(move || drop_caught(taken.lock().take())).is_ok() {
            return;
        }
        drop_caught(place.lock().take());
    } else {
        drop_caught(value);
    }
}
