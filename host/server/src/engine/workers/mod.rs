//! Worker threads: where handlers run that may wait.
//!
//! Handlers may wait for anything, also for each other, so a pool has a thread for each handler that waits,
//! up to a limit. Handlers that return soon share a few threads. Nobody says beforehand which of the two a
//! handler is; the pool finds out by watching whether work gets done ([`Pool::grow`]):
//!
//! | what the pool sees | what it does |
//! |---|---|
//! | three of four handlers return within [`QUICK_NS`], and work gets done | lets as many threads run as there are processors, but for one |
//! | more handlers take longer (the pool is *eager*) | wakes a thread for each piece of work; starts more, doubling each [`QUICK_LOOK_AFTER`], up to [`QUICK_THREADS`] |
//! | no handler returned since the last look, and work waits | doubles its threads from look to look, each [`LOOK_AFTER`], up to [`Limits::threads`]: the handlers wait, perhaps for each other |
//! | [`QUICK_THREADS`] and more, and handlers return | grows by an eighth a look, up to [`MOVING_THREADS`] |
//!
//! To wake a thread takes longer than most handlers do, while a running one takes the next piece by itself.
//! So a few threads without work (half of the processors, but for one) look for some for [`LOOKS_FOR`] before
//! they sleep. A pool whose handlers use a processor all the time (`Limits::busy`: files) is never eager.
//!
//! At the limit, or when the system starts no more threads, work waits for a handler to return.

mod later;
#[cfg(test)]
mod tests;

use super::caught::catch;
use super::handling::ThreadSetup;
use super::report;
use hostcall_locks::{Condvar, Mutex};
use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A pool with fewer threads is looked at each [`QUICK_LOOK_AFTER`] while work waits, and has twice as many
/// after each such look that starts some.
const QUICK_THREADS: usize = 64;

/// Threads up to which a pool grows although its handlers return.
const MOVING_THREADS: usize = 256;

/// Between two looks at a pool that has few threads.
const QUICK_LOOK_AFTER: Duration = Duration::from_micros(100);

/// Between two looks at a pool. Handlers that do not return within this time wait for something.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// Until threads are tried again after the system refused one.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Handlers that a thread of a pool which is not eager runs between two looks, if they return soon.
const SOON: u64 = 4;

/// Handlers that return within so many nanoseconds do not wait, or for so short a time that no other thread is worth it.
const QUICK_NS: u128 = 20_000;

/// Each handler that returns takes the place of a 2⁻⁴ of what is known of those before it.
const SLOWNESS_SHIFT: u32 = 4;

/// [`State::slowness`] if no handler returns within [`QUICK_NS`].
const ALL_SLOW: u32 = 1 << 16;

/// [`State::slowness`] from which a pool is eager: one handler of four is not quick.
const EAGER_FROM: u32 = ALL_SLOW / 4;

/// How long a thread looks for work before it sleeps: as long as it takes to wake one.
const LOOKS_FOR: Duration = Duration::from_micros(50);

/// Looks between two looks at the clock.
const CLOCK_LOOKS: u32 = 64;

/// Of so many processors, one may be used by a thread of each pool that looks for work; one of those is left to the consumers.
const PROCESSORS_A_LOOKER: usize = 2;

/// Entries after which those that are of no use any more are removed, beside twice those that were kept.
const PURGE_AFTER: usize = 1024;

/// How large a pool gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Most threads.
    pub threads: usize,
    /// Bytes of each thread's stack. The system takes memory for what is used of it only.
    pub stack_bytes: usize,
    /// A thread that has had no work for so long ends.
    pub idle: Duration,
    /// Whether the handlers use a processor until they return, however long that takes: such a pool is never eager.
    pub busy: bool,
    /// Processors of the machine.
    pub processors: usize,
}

impl Limits {
    /// Threads of a pool that is not eager which run at once, as long as their handlers do not wait: one processor is left
    /// to the consumers, without which no lane has its answer.
    fn most_awake(&self) -> usize {
        self.processors.saturating_sub(1).max(1)
    }

    /// Threads that may look for work at a time.
    fn most_looking(&self) -> usize {
        (self.processors / PROCESSORS_A_LOOKER).saturating_sub(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { threads: 16_384, stack_bytes: 1 << 20, idle: Duration::from_secs(5), busy: false, processors }
    }
}

/// Work in pieces, each of which a thread runs.
pub(crate) trait Work: Send + Sync {
    /// Runs the next piece. Called once for each piece, by different threads.
    fn run_next(self: Arc<Self>);
    /// Returns whether running its pieces is of any use still.
    fn is_wanted(&self) -> bool;
}

struct Entry {
    work: Arc<dyn Work>,
    /// Pieces that no thread has taken.
    pieces: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Entry>,
    /// Pieces in the queue.
    waiting: usize,
    threads: usize,
    /// Threads that wait for work; also those that were woken, until they run.
    idle: usize,
    woken: usize,
    /// Threads that look for work. Each takes a piece before it sleeps, if there is one.
    looking: usize,
    /// Pieces that returned, ever.
    done: u64,
    /// How many of those that returned lately were not quick, of [`ALL_SLOW`].
    slowness: u32,
    /// `done` when [`Pool::grow`] looked last while work waited.
    done_before: Option<u64>,
    /// Entries after the last purge.
    kept: usize,
    stopping: bool,
    /// Why the system started no more threads, when it did not.
    refused: Option<String>,
}

impl State {
    /// Threads that run, or were woken.
    fn awake(&self) -> usize {
        self.threads - (self.idle - self.woken)
    }

    /// Notes that a piece returned.
    fn note_done(&mut self, ns: u128) {
        self.done += 1;
        self.slowness -= self.slowness >> SLOWNESS_SHIFT;
        if ns > QUICK_NS {
            self.slowness += ALL_SLOW >> SLOWNESS_SHIFT;
        }
    }

    /// Pieces that wait for a thread to be woken.
    fn unattended(&self) -> usize {
        self.waiting.saturating_sub(self.looking)
    }
}

/// A pool of worker threads.
pub(crate) struct Pool {
    name: &'static str,
    setup: ThreadSetup,
    limits: Limits,
    state: Mutex<State>,
    /// Whether work waits, or the pool stops: for threads that look.
    has_work: AtomicBool,
    /// Signals idle threads.
    work: Condvar,
    /// Called when [`Pool::grow`] should be: there is more work than threads.
    on_hungry: Box<dyn Fn() + Send + Sync>,
    this: Weak<Self>,
}

/// How busy a pool is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Threads, also those that run handlers.
    pub threads: usize,
    /// Pieces that wait for a thread.
    pub waiting: usize,
    /// Why there are no more threads, when the system refuses them.
    pub refused: Option<String>,
}

/// What is said when the system starts no thread of a pool of this name, beside those that run.
fn refused(error: &std::io::Error, running: usize, name: &str) -> String {
    match running {
        0 => format!("the system starts no thread {name} ({error}): handlers wait until it does"),
        1 => format!(
            "the system starts no more threads ({error}): 1 thread {name} goes on, and handlers wait for it"
        ),
        _ => format!(
            "the system starts no more threads ({error}): {running} threads {name} go on, and handlers wait for one of them"
        ),
    }
}

impl Pool {
    /// Makes a pool without threads. Its threads have `name`; `on_hungry` is called when [`Pool::grow`] should be.
    pub fn new(
        name: &'static str,
        setup: ThreadSetup,
        limits: Limits,
        on_hungry: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            name,
            setup,
            limits: Limits { threads: limits.threads.max(1), ..limits },
            state: Mutex::default(),
            has_work: AtomicBool::new(false),
            work: Condvar::new(),
            on_hungry: Box::new(on_hungry),
            this: this.clone(),
        })
    }

    /// Has the pieces of some work run, after those that wait already. Starts no thread itself, so that it does not take
    /// the time of that.
    pub fn submit(&self, work: Arc<dyn Work>, pieces: usize) {
        if pieces == 0 {
            return;
        }
        let mut state = self.state.lock();
        if state.stopping {
            return;
        }
        state.queue.push_back(Entry { work, pieces });
        state.waiting += pieces;
        self.has_work.store(true, Ordering::Relaxed);
        let mut unwanted = VecDeque::new();
        if state.queue.len() > 2 * state.kept + PURGE_AFTER {
            (state.queue, unwanted) = state.queue.drain(..).partition(|entry| entry.work.is_wanted());
            state.kept = state.queue.len();
            state.waiting = state.queue.iter().map(|entry| entry.pieces).sum();
        }
        let most = match self.is_eager(&state) {
            true => usize::MAX,
            false => self.limits.most_awake().saturating_sub(state.awake()),
        };
        let wake = most.min(pieces).min(state.idle - state.woken).min(state.unattended());
        state.woken += wake;
        // Those that run may wait for something.
        let hungry = state.woken < state.unattended();
        drop(state);
        // Not under the lock: the last reference to a service of a user's may be among it.
        drop(unwanted);
        for _ in 0..wake {
            self.work.notify_one();
        }
        if hungry {
            (self.on_hungry)();
        }
    }

    /// Whether each piece gets a thread at once.
    fn is_eager(&self, state: &State) -> bool {
        !self.limits.busy && state.slowness >= EAGER_FROM
    }

    /// Starts threads if work waits for some. Returns when to look again, if work still waits.
    pub fn grow(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let waiting = state.waiting;
        if waiting <= state.looking + state.woken || state.stopping {
            state.done_before = None;
            return None;
        }
        let (threads, most) = (state.threads, self.limits.threads);
        let done = state.done;
        let done_before = state.done_before.replace(done);
        let is_quick = !self.limits.busy && threads < QUICK_THREADS.min(most);
        let later = Some(now + if is_quick { QUICK_LOOK_AFTER } else { LOOK_AFTER });
        let (awake, eager) = (state.awake(), self.is_eager(&state));
        let soon = done_before.is_none_or(|before| done - before >= SOON * awake as u64);
        if !eager && soon && awake >= self.limits.most_awake() {
            return if done_before.is_none() { later } else { Some(now + LOOK_AFTER) };
        }
        let asleep = (state.idle - state.woken).min(waiting);
        let all = eager || done_before == Some(done);
        let wake = if all { asleep } else { asleep.min(awake.max(1)) };
        if wake > 0 {
            state.woken += wake;
            drop(state);
            (0..wake).for_each(|_| self.work.notify_one());
            return later;
        }
        // A thread ends only when no work waits.
        if threads >= most {
            return None;
        }
        let more = if threads < QUICK_THREADS {
            threads.max(1)
        } else if done_before == Some(done) {
            // Nothing moved since the last look.
            threads
        } else if done_before.is_some() && threads < MOVING_THREADS {
            threads / 8
        } else {
            0
        };
        let more = more.min(waiting).min(most.saturating_sub(threads));
        state.threads += more;
        drop(state);
        let started = (0..more).take_while(|started| self.start_thread(threads + started)).count();
        let mut state = self.state.lock();
        state.threads -= more - started;
        if started < more {
            return Some(now + RETRY_AFTER);
        }
        later
    }

    /// Starts a thread that is counted already, beside those that run. Returns whether it did.
    fn start_thread(&self, running: usize) -> bool {
        let Some(pool) = self.this.upgrade() else { return false };
        let thread = std::thread::Builder::new().name(self.name.into()).stack_size(self.limits.stack_bytes);
        match thread.spawn(move || pool.run_thread()) {
            Ok(_) => true,
            Err(error) => {
                let mut state = self.state.lock();
                if state.refused.is_none() {
                    report::line(format_args!("{}", refused(&error, running, self.name)));
                }
                state.refused = Some(error.to_string());
                false
            }
        }
    }

    /// A thread's loop.
    fn run_thread(&self) {
        self.setup.enter();
        let mut has_looked = false;
        let mut state = self.state.lock();
        while !state.stopping {
            let Some(entry) = state.queue.front_mut() else {
                if !has_looked && state.looking < self.limits.most_looking() {
                    has_looked = true;
                    state.looking += 1;
                    self.has_work.store(false, Ordering::Relaxed);
                    drop(state);
                    self.look_for_work();
                    state = self.state.lock();
                    state.looking -= 1;
                    continue;
                }
                has_looked = false;
                state.idle += 1;
                let timeout;
                (state, timeout) = self.work.wait_timeout(state, self.limits.idle);
                state.idle -= 1;
                // A thread whose time was over may have missed that it was woken.
                state.woken = state.woken.saturating_sub(1);
                if timeout && state.queue.is_empty() {
                    break;
                }
                continue;
            };
            entry.pieces -= 1;
            let work = if entry.pieces == 0 {
                state.queue.pop_front().expect("there is a front").work
            } else {
                entry.work.clone()
            };
            state.waiting -= 1;
            drop(state);
            let begun = Instant::now();
            // What is run contains its own panics; this is for what was overlooked.
            if catch(|| work.run_next()).is_err() {
                let _ = catch(|| tracing::error!("a handler's panic was not contained where it ran"));
            }
            has_looked = false;
            let ns = begun.elapsed().as_nanos();
            state = self.state.lock();
            state.note_done(ns);
        }
        state.threads -= 1;
    }

    /// Looks until there is work, for a while.
    fn look_for_work(&self) {
        let start = Instant::now();
        let mut looks = 0u32;
        while !self.has_work.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            looks += 1;
            if looks.is_multiple_of(CLOCK_LOOKS) && start.elapsed() >= LOOKS_FOR {
                return;
            }
        }
    }

    /// Returns how busy the pool is.
    pub fn load(&self) -> Load {
        let state = self.state.lock();
        Load { threads: state.threads, waiting: state.waiting, refused: state.refused.clone() }
    }

    /// Ends the threads, each after the handler that it runs. Does not wait for them: a handler may never return.
    /// Work that waits is dropped.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        let queue = std::mem::take(&mut state.queue);
        state.waiting = 0;
        self.has_work.store(true, Ordering::Relaxed);
        drop(state);
        self.work.notify_all();
        drop(queue);
    }
}
