//! The threads of a device's host functions, which also drop users' values: as many as functions run at once, up to a bound.

use crate::primitive::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most threads of host functions; more of them than that wait for each other, as do values that are dropped.
pub(crate) const HOST_FUNCTION_THREADS: usize = 64;

/// How long a thread of host functions waits for another one.
const IDLE_THREAD: Duration = Duration::from_secs(5);

/// How long a function may wait for one of the most threads before that is told.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Until a thread is tried again after the system refused one.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What the user gave, which catches its panics.
pub(crate) type Function = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Function>,
    idle: usize,
    threads: usize,
    stopping: bool,
    /// Functions wait for one of the most threads, and none has begun since.
    full: Option<Full>,
    /// When the system refused a thread last, while functions wait for one.
    refused: Option<Instant>,
    /// That was told, and no thread has begun since.
    is_refusal_told: bool,
}

struct Full {
    since: Instant,
    is_told: bool,
}

impl State {
    fn note_full(&mut self) {
        let is_full = self.threads == HOST_FUNCTION_THREADS && self.waiting.len() > self.idle;
        self.full = is_full.then(|| Full { since: Instant::now(), is_told: false });
    }
}

/// Functions that wait for a thread, and the threads.
#[derive(Default)]
pub(crate) struct HostFunctions {
    state: Mutex<State>,
    /// Notified when a function was added, and when the threads are to end.
    changed: Condvar,
}

impl HostFunctions {
    /// Adds a function. Returns whether it needs one thread more: the caller then starts it, to do [`HostFunctions::work`], or
    /// says that there is none by [`HostFunctions::has_not_started`].
    #[must_use]
    pub fn add(&self, function: Function) -> bool {
        let mut state = self.state.lock();
        state.waiting.push_back(function);
        let needs_thread = state.idle < state.waiting.len() && state.threads < HOST_FUNCTION_THREADS;
        match needs_thread {
            true => state.threads += 1,
            false => self.changed.notify_one(),
        }
        if state.full.is_none() {
            state.note_full();
        }
        needs_thread
    }

    /// Says whether functions wait for one of the most threads, or for one that the system refused.
    pub fn are_held_up(&self) -> bool {
        let state = self.state.lock();
        state.full.is_some() || state.refused.is_some()
    }

    /// Returns how many functions have waited for a second in which none of the most threads became free, once for each such time.
    pub fn take_stall(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let full = state.full.as_mut().filter(|full| !full.is_told && full.since.elapsed() >= TELL_AFTER)?;
        full.is_told = true;
        Some(state.waiting.len())
    }

    /// The system had no thread: what waits is done by another one, by whoever calls [`HostFunctions::take_without_threads`]
    /// when there is none, or by the thread that [`HostFunctions::needs_thread_still`] asks for. Returns how many threads go on,
    /// if nobody was told since one began.
    #[must_use]
    pub fn has_not_started(&self) -> Option<usize> {
        let mut state = self.state.lock();
        state.threads -= 1;
        state.refused = Some(Instant::now());
        (!std::mem::replace(&mut state.is_refusal_told, true)).then_some(state.threads)
    }

    /// Returns whether functions wait at `now` for a thread that the system refused a while before: the caller then does what
    /// the caller of [`HostFunctions::add`] does.
    #[must_use]
    pub fn needs_thread_still(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if state.refused.is_none_or(|refused| now < refused + RETRY_AFTER) {
            return false;
        }
        // It asks again as long as functions wait: one thread may not be enough.
        let needs_thread = state.idle < state.waiting.len() && state.threads < HOST_FUNCTION_THREADS;
        match needs_thread {
            true => state.threads += 1,
            false => state.refused = None,
        }
        needs_thread
    }

    /// Takes a function that waits although there is no thread.
    pub fn take_without_threads(&self) -> Option<Function> {
        let mut state = self.state.lock();
        if state.threads == 0 { state.waiting.pop_front() } else { None }
    }

    /// Runs functions until there was none for long, or the threads are to end and none waits.
    pub fn work(&self) {
        let mut state = self.state.lock();
        state.is_refusal_told = false;
        loop {
            if let Some(function) = state.waiting.pop_front() {
                state.note_full();
                drop(state);
                function();
                state = self.state.lock();
                continue;
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            let has_timed_out;
            (state, has_timed_out) = self.changed.wait_timeout(state, IDLE_THREAD);
            state.idle -= 1;
            if has_timed_out && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Lets the threads end once nothing waits.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }
}
