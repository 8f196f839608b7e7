//! Threads that must not wait: those that run a handler for a kernel, or a host function of a stream, which what they
//! would wait for waits for. Such threads are known while they wait, so that none of them closes a circle.

use super::core::Core;
use super::error::Error;
use super::open_devices::{self, core_of};
use super::uses::Point;
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_server::{Handling, handling};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The host functions that the thread runs, the innermost last.
    static FUNCTIONS: RefCell<Vec<Point>> = const { RefCell::new(Vec::new()) };
    /// The thread runs handlers of ROCm's protocol and nothing else.
    static IS_ROCMS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the thread runs handlers of ROCm's protocol from now on, whose calls do not say which launch waits.
pub(crate) fn enter_rocm_thread() {
    IS_ROCMS.set(true);
}

/// The thread runs a host function while this lives.
pub(crate) struct InHostFunction(());

/// Notes that the thread runs the host function at this point.
pub(crate) fn enter_host_function(point: &Point) -> InHostFunction {
    FUNCTIONS.with_borrow_mut(|functions| functions.push(point.clone()));
    InHostFunction(())
}

impl Drop for InHostFunction {
    fn drop(&mut self) {
        FUNCTIONS.with_borrow_mut(Vec::pop);
    }
}

/// Says whether the thread runs a handler.
pub(crate) fn is_in_handler() -> bool {
    IS_ROCMS.get() || handling().is_some()
}

/// What the thread does that is waited for.
struct Held {
    /// What waits for it.
    point: Point,
    /// What it does, in words.
    what: String,
}

/// Launches that are told of what a thread waits for: what is behind them has not begun, mostly.
const MOST_LAUNCHES: usize = 16;

/// Returns the launches, each with the number of its device, that have to end before one of these points is reached.
fn launches_before(points: &[Point]) -> Vec<(u64, LaunchId)> {
    let of_core = |core: Arc<Core>| {
        let streams = core.reaper.streams().into_iter();
        let launches = streams.flat_map(|stream| stream.launches_before(points, MOST_LAUNCHES));
        launches.map(|launch| (core.id(), launch)).collect::<Vec<_>>()
    };
    open_devices::cores().into_iter().flat_map(of_core).take(MOST_LAUNCHES).collect()
}

/// Returns all that is waited for of the thread: host functions, and the handler that it runs for a kernel of any device.
fn held() -> Vec<Held> {
    let mut held = FUNCTIONS.with_borrow(|functions| {
        let of_function = |point: &Point| {
            let what = "a host function of the stream, which the stream waits for".into();
            Held { point: point.clone(), what }
        };
        functions.iter().map(of_function).collect::<Vec<_>>()
    });
    if let Some(handling) = handling()
        && let Some(core) = core_of(handling.server)
        && let Some((kernel, point)) = core.reaper.find(handling.launch)
    {
        let what =
            format!("a handler of {} for kernel {kernel}, which waits for its answer", handling.service);
        held.push(Held { point, what });
    }
    held
}

/// A thread that waits, and of which something is waited for.
struct Waiter {
    /// What waits for the thread.
    holds: Vec<Point>,
    /// What the thread does that is waited for, in words, and in what it waits, since when.
    does: Vec<String>,
    operation: &'static str,
    since: Instant,
    /// The handler that it runs.
    handles: Option<Handling>,
    /// What the thread waits for, and the launches of that, each with the number of its device.
    waits_for: Vec<Point>,
    launches: Vec<(u64, LaunchId)>,
    /// When it goes on whatever happens.
    deadline: Option<Instant>,
}

/// The threads that wait, of all devices, in the order in which they began to.
static WAITERS: Mutex<Vec<Arc<Waiter>>> = Mutex::new(Vec::new());

/// A thread that waits, and what waits for it.
pub(crate) struct WaitingThread {
    /// What it does that is waited for, in words.
    pub does: Vec<String>,
    /// The function that it waits in.
    pub operation: &'static str,
    pub waited: Duration,
    /// The handler that it runs, whose server has the number of its device.
    pub handles: Option<Handling>,
    /// Launches that it waits for, each with the number of its device.
    pub launches: Vec<(u64, LaunchId)>,
}

/// Returns the threads of handlers and host functions that wait, of all devices, in the order in which they began to.
pub(crate) fn waiting_threads() -> Vec<WaitingThread> {
    let of = |waiter: &Arc<Waiter>| WaitingThread {
        does: waiter.does.clone(),
        operation: waiter.operation,
        waited: waiter.since.elapsed(),
        handles: waiter.handles,
        launches: waiter.launches.clone(),
    };
    WAITERS.lock().iter().map(of).collect()
}

/// Nobody else looks at the threads that wait while what is returned lives.
pub(super) fn hold_waiters() -> impl Sized {
    WAITERS.lock()
}

/// Other threads know what the thread waits for while this lives.
#[must_use = "others know of the wait as long as this lives"]
pub(crate) struct Waits(Option<Arc<Waiter>>);

impl Waits {
    /// For what is over, or of which nothing else can wait.
    pub const NONE: Self = Self(None);
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            WAITERS.lock().retain(|waiter| !Arc::ptr_eq(waiter, own));
        }
    }
}

impl Waiter {
    /// Says whether this wait counts in the search for a circle that a later one would close. Circles are refused
    /// only if no wait in them ends soon by itself. So a wait with a deadline is ignored if the later one has at
    /// least twice as much time left, or no limit. Of two with the same limit the later one fails at once, not the
    /// one that has waited. A wait without time left, such as a look, holds up nobody.
    fn holds_up(&self, later: &Self, now: Instant) -> bool {
        match (self.deadline, later.deadline) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(later)) => {
                own.saturating_duration_since(now) > later.saturating_duration_since(now) / 2
            }
        }
    }

    /// Returns the place of what the thread does that is waited for by what it waits for, directly or through these others,
    /// and whether it is through others. `None` if nothing is.
    ///
    /// What waits for what is settled when a position is given out. So of threads that wait in a circle, the one that was noted
    /// last finds it, if it looks at all that were noted before.
    fn circle(&self, mut others: Vec<Arc<Waiter>>) -> Option<(usize, bool)> {
        let mut found = self.waits_for.clone();
        let mut is_through_others = false;
        loop {
            let is_waited_for =
                |held: &Point| found.iter().any(|point| point.depends_on(held, &mut Vec::new()));
            if let Some(at) = self.holds.iter().position(is_waited_for) {
                return Some((at, is_through_others));
            }
            let (waited_for, left): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|other| other.holds.iter().any(is_waited_for));
            if waited_for.is_empty() {
                return None;
            }
            found = waited_for.iter().flat_map(|other| other.waits_for.iter().cloned()).collect();
            (others, is_through_others) = (left, true);
        }
    }
}

/// Refuses to wait for points on a thread for which one of them waits, also through other threads that wait
/// and do not go on by themselves before. The thread waits as long as what is returned lives, but no longer
/// than until the deadline.
pub(crate) fn may_wait(
    core: &Core,
    waits_for: Vec<Point>,
    operation: &'static str,
    deadline: Option<Instant>,
) -> Result<Waits, Error> {
    let held = held();
    if held.is_empty() || waits_for.is_empty() {
        return Ok(Waits::NONE);
    }
    let holds = held.iter().map(|held| held.point.clone()).collect();
    let does = held.iter().map(|held| held.what.clone()).collect();
    let (handles, launches) = (handling(), launches_before(&waits_for));
    let since = Instant::now();
    let waiter = Waiter { holds, does, operation, since, handles, waits_for, launches, deadline };
    let waiter = Arc::new(waiter);
    let mut others = {
        let mut waiters = WAITERS.lock();
        let others = waiters.clone();
        waiters.push(waiter.clone());
        others
    };
    let now = Instant::now();
    others.retain(|other| other.holds_up(&waiter, now));
    let waits = Waits(Some(waiter.clone()));
    match waiter.circle(others) {
        None => Ok(waits),
        Some((at, is_through_others)) => {
            let mut waiting = held[at].what.clone();
            if is_through_others {
                waiting.push_str(", and for which others wait that hold up what it waits for");
            }
            let has_limit = deadline.is_some();
            Err(Error::WouldDeadlock { operation, device: core.name.clone(), waiting, has_limit })
        }
    }
}

/// Says whether a point waits for what the thread does.
pub(crate) fn is_held_here(point: &Point) -> bool {
    held().iter().any(|held| point.depends_on(&held.point, &mut Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_more_than_half_of_the_time_holds_up() {
        let now = Instant::now() + Duration::from_secs(60);
        let holds_up = |own: Option<Instant>, later: Option<Instant>| {
            let waiter = |deadline| Waiter {
                holds: Vec::new(),
                does: Vec::new(),
                operation: "",
                since: now,
                handles: None,
                waits_for: Vec::new(),
                launches: Vec::new(),
                deadline,
            };
            waiter(own).holds_up(&waiter(later), now)
        };
        let after = |nanos| Some(now + Duration::from_nanos(nanos));
        let ago = |nanos| Some(now - Duration::from_nanos(nanos));
        for (own, later, expected) in [
            (None, None, true),
            (None, after(0), true),
            (after(9), None, false),
            (after(5), after(9), true),
            (after(5), after(10), false),
            (after(5), after(11), false),
            // A look ends at once, and so does one whose time is over.
            (after(0), after(0), false),
            (after(0), after(1), false),
            (ago(5), ago(5), false),
            (ago(5), after(0), false),
        ] {
            assert_eq!(holds_up(own, later), expected, "{own:?} {later:?}");
        }
    }
}
