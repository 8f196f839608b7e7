//! What waits for the interpreter: calls and posts that the server's threads put there, and that the interpreter's thread takes,
//! all at once. No thread that uses it needs the GIL for that.

use crate::device::Lost;
use crate::handling::ContextOf;
use crate::service::Served;
use hostcall::CallError;
use hostcall::server::{DeferredCalls, DeferredPosts, OpenCalls};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most lanes whose calls wait: as many as a GPU has at once. More come only from lanes whose calls have timed out.
const MOST_LANES: usize = 1 << 18;

/// Most launches, methods and reasons of which lost calls are counted.
const MOST_LOST: usize = 1024;

/// Most coroutines of a service's posts at a time. Nobody waits for a post, so nothing else bounds them.
const MOST_POST_TASKS: usize = 1024;

#[expect(
    clippy::large_enum_variant,
    reason = "most are calls, and a box for each would take longer than a move"
)]
pub enum Item {
    Calls(Arc<Served>, DeferredCalls),
    Posts(Arc<Served>, DeferredPosts),
}

/// A packet some of whose lanes wait.
pub struct Open {
    pub calls: OpenCalls,
    pub since: Instant,
    deadline: Option<Instant>,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    /// Posts of services that have as many coroutines of such as they may. They are items again once half of these have ended.
    /// The services do not have them: they would own themselves.
    parked: Vec<(Arc<Served>, DeferredPosts)>,
    /// Lanes of the calls among them.
    lanes: usize,
    open: Vec<Open>,
    /// Length of `open` after answered ones were forgotten.
    kept: usize,
    is_closed: bool,
    /// The watchdog sleeps until there is something to watch.
    watch_sleeps: bool,
    has_ended: bool,
    refused_calls: u64,
    timed_out_calls: u64,
    /// Calls of launches that got no answer, by the method's number, until somebody asks: why, the method's name, and how many.
    lost: HashMap<(LaunchId, u16, &'static str), (&'static str, u64)>,
}

pub struct Queue {
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
    ended: Condvar,
    context_of: ContextOf,
}

impl Queue {
    pub fn new(context_of: ContextOf) -> Self {
        let [work, watch, ended] = [(); 3].map(|()| Condvar::default());
        Self { state: Mutex::default(), work, watch, ended, context_of }
    }

    /// Adds calls, which end with `TimedOut` after `timeout`. A full queue answers them with `Busy`.
    pub fn push_calls(&self, served: Arc<Served>, calls: DeferredCalls, timeout: Option<Duration>) {
        let (since, open) = (Instant::now(), calls.open());
        let mut state = self.state.lock();
        if state.lanes + calls.count() > MOST_LANES && !state.is_closed {
            let is_open = |item: &mut Item| match item {
                Item::Calls(_, calls) => calls.open().is_open(),
                Item::Posts(..) => true,
            };
            let over: Vec<_> = state.items.extract_if(.., |item| !is_open(item)).collect();
            state.lanes = state.items.iter().map(Item::lanes).sum();
            drop(over);
        }
        if state.is_closed || state.lanes + calls.count() > MOST_LANES {
            state.refused_calls += calls.count() as u64;
            let error = if state.is_closed { CallError::NoSuchService } else { CallError::Busy };
            if error == CallError::Busy {
                state.lose(&open, (self.context_of)(open.launch()), "busy", calls.count() as u64);
            }
            drop(state);
            return calls.fail(error);
        }
        state.lanes += calls.count();
        if state.open.len() > 2 * state.kept + 64 {
            state.forget();
        }
        state.open.push(Open {
            calls: open,
            since,
            deadline: timeout.and_then(|limit| since.checked_add(limit)),
        });
        self.push(state, Item::Calls(served, calls));
    }

    pub fn push_posts(&self, served: Arc<Served>, posts: DeferredPosts) {
        let state = self.state.lock();
        if state.is_closed {
            drop(state);
            return drop(posts);
        }
        self.push(state, Item::Posts(served, posts));
    }

    /// Returns whether a service's posts have to wait for coroutines of others.
    pub fn is_full_of_posts(&self, served: &Served) -> bool {
        served.post_tasks.load(Ordering::Relaxed) >= MOST_POST_TASKS
    }

    /// Has posts wait until half of the service's coroutines of posts have ended.
    pub fn park_posts(&self, served: Arc<Served>, posts: DeferredPosts) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            return drop(posts);
        }
        // Under the lock, as what counts down: the last ones may have ended meanwhile.
        if served.post_tasks.load(Ordering::Relaxed) <= MOST_POST_TASKS / 2 {
            return self.push(state, Item::Posts(served, posts));
        }
        state.parked.push((served, posts));
    }

    /// Counts a coroutine of a service's posts.
    pub fn begin_post_task(&self, served: &Served) {
        served.post_tasks.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one has ended: parked posts may go on.
    pub fn end_post_task(&self, served: &Arc<Served>) {
        let mut state = self.state.lock();
        if served.post_tasks.fetch_sub(1, Ordering::Relaxed) - 1 > MOST_POST_TASKS / 2 {
            return;
        }
        // There is one value of a service's posts at a time.
        let Some(place) = state.parked.iter().position(|(of, _)| Arc::ptr_eq(of, served)) else { return };
        let (served, posts) = state.parked.swap_remove(place);
        self.push(state, Item::Posts(served, posts));
    }

    fn push(&self, mut state: hostcall_locks::MutexGuard<'_, State>, item: Item) {
        state.items.push(item);
        let wakes_watch = std::mem::take(&mut state.watch_sleeps);
        let is_first = state.items.len() == 1;
        drop(state);
        if is_first {
            self.work.notify_one();
        }
        if wakes_watch {
            self.watch.notify_one();
        }
    }

    /// Waits for work and takes all there is. `None` once the queue is closed.
    pub fn take(&self) -> Option<Vec<Item>> {
        let is_idle = |state: &mut State| state.items.is_empty() && !state.is_closed;
        let mut state = self.work.wait_while(self.state.lock(), is_idle);
        if state.is_closed {
            return None;
        }
        state.lanes = 0;
        Some(std::mem::take(&mut state.items))
    }

    /// Ends what waits, and all that comes.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let (items, open) = (std::mem::take(&mut state.items), std::mem::take(&mut state.open));
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        self.work.notify_all();
        self.watch.notify_all();
        drop((items, parked, open));
    }

    /// Says that the interpreter's thread has ended.
    pub fn end(&self) {
        self.close();
        self.state.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Waits until the interpreter's thread has ended, at most so long. Returns whether it has.
    pub fn wait_for_end(&self, limit: Duration) -> bool {
        let (state, _) = self.ended.wait_timeout_while(self.state.lock(), limit, |state| !state.has_ended);
        state.has_ended
    }

    /// Waits for `pause`, or until there is something to watch. Ends calls whose time is over, and returns those that wait still;
    /// `None` once the queue is closed.
    pub fn look(&self, pause: Duration) -> Option<Vec<(OpenCalls, Instant)>> {
        let mut state = self.state.lock();
        state.forget();
        if state.open.is_empty() && !state.is_closed {
            state.watch_sleeps = true;
            state = self.watch.wait_while(state, |state| state.watch_sleeps && !state.is_closed);
        }
        let (mut state, _) = self.watch.wait_timeout_while(state, pause, |state| !state.is_closed);
        if state.is_closed {
            return None;
        }
        state.forget();
        let now = Instant::now();
        let late: Vec<_> =
            state.open.extract_if(.., |open| open.deadline.is_some_and(|deadline| deadline <= now)).collect();
        let open = state.open.iter().map(|open| (open.calls.clone(), open.since)).collect();
        for Open { calls, .. } in &late {
            // Under the lock, under which they are asked for: who waits for the kernel finds them counted.
            let lanes = calls.time_out() as u64;
            state.timed_out_calls += lanes;
            state.lose(calls, (self.context_of)(calls.launch()), "timed out", lanes);
        }
        drop((state, late));
        Some(open)
    }

    /// Takes what was counted of a launch's calls that the queue refused or ended at their deadline.
    pub fn take_lost(&self, launch: LaunchId) -> Vec<Lost> {
        let mut state = self.state.lock();
        let found = state.lost.extract_if(|(of, ..), _| *of == launch);
        let mut lost: Vec<_> =
            found.map(|((_, number, why), (name, calls))| (why, number, name.into(), calls, 0)).collect();
        lost.sort_unstable();
        lost
    }

    /// Returns how many calls the queue refused, and how many it ended at their deadline.
    pub fn lost(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.refused_calls, state.timed_out_calls)
    }
}

impl State {
    /// Counts calls that got no answer.
    fn lose(&mut self, calls: &OpenCalls, told_to: LaunchId, why: &'static str, lanes: u64) {
        let (number, name) = calls.called();
        let key = (told_to, number, why);
        if lanes > 0 && (self.lost.len() < MOST_LOST || self.lost.contains_key(&key)) {
            self.lost.entry(key).or_insert((name, 0)).1 += lanes;
        }
    }

    /// Forgets packets whose lanes all have their answers.
    fn forget(&mut self) {
        self.open.retain(|open| open.calls.is_open());
        self.kept = self.open.len();
    }
}

impl Item {
    fn lanes(&self) -> usize {
        match self {
            Self::Calls(_, calls) => calls.count(),
            Self::Posts(..) => 0,
        }
    }
}
