//! A seat: a share of the resident workgroups, which one thread at a time works on.

use crate::executor::Shared;
use crate::fiber::Fiber;
use crate::group::Group;
use crate::lane::{Ending, Lane};
use crate::operations;
use crate::stack::LaneStack;
use crate::thread::Running;
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::io;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without progress for this long, a thread begins to yield the processor,
const YIELD_AFTER: Duration = Duration::from_micros(20);
/// and then to sleep, a quarter of the time it has waited and at most [`LONGEST_SLEEP`].
const SLEEP_AFTER: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// The same while a launch is cancelled, when lanes look at what nobody wakes them for.
const LONGEST_SLEEP_AT_END: Duration = Duration::from_micros(200);

/// Rounds in which a seat leaves workgroups to seats that have fewer lanes. Those may be stuck in one.
const MOST_REFUSALS: u32 = 1000;

/// Memory of a workgroup comes in lines, which align it.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Line {
    _bytes: [u8; 64],
}

impl Line {
    pub const ZERO: Line = Line { _bytes: [0; 64] };
}

/// A lane that comes back to its seat from the thread that it took away, at its end or in an operation.
pub(crate) struct Returned {
    pub lane: *const Lane,
    pub ending: Option<Ending>,
}

/// A share of the resident workgroups.
///
/// Invariant SEAT: one thread at a time *sits* on it, and only that thread touches the cells below and those of
/// the seat's workgroups. A thread gives its seat up by storing `vacant`, in a signal handler while it is in a
/// lane ([`Seat::lose`]), or by returning from [`Seat::sit`] once the seat is closed; the next one got it through
/// the queue's lock after `vacant` was seen. A thread that lost its seat touches nothing of it but its lane,
/// the atomics and `returned`.
pub(crate) struct Seat {
    pub shared: Arc<Shared>,
    pub index: usize,
    /// Counts lanes gone on with, and lanes that gave way: odd while the seat's thread is in a lane.
    pub turns: AtomicU64,
    /// The turn in which a signal shall take the seat from its thread.
    pub suspect: AtomicU64,
    /// The lane that took the last thread away, until the next one has noted it.
    departed: AtomicPtr<Lane>,
    /// No thread sits here.
    pub vacant: AtomicBool,
    returned: Mutex<Vec<Returned>>,
    /// Lanes of the seat that have not ended.
    pub live_lanes: AtomicU32,
    /// Those of them that took a thread away.
    pub away_lanes: AtomicU32,
    /// [`Shared::events`] as last seen.
    seen: Cell<u64>,
    /// Operations that lanes may do without giving way.
    budget: Cell<u32>,
    /// In this round a lane got on, or one paused.
    pub progress: Cell<bool>,
    pub paused: Cell<bool>,
    /// The earliest deadline of lanes that sleep, as found in this round; `u64::MAX` without any.
    wake_at_ns: Cell<u64>,
    groups: RefCell<Vec<Rc<Group>>>,
    /// What ended lanes and workgroups leave for the next.
    #[expect(clippy::vec_box, reason = "signal handlers read a fiber where it is")]
    fibers: RefCell<Vec<Box<Fiber>>>,
    pub memories: RefCell<Vec<Vec<Line>>>,
}

// SAFETY: SEAT.
unsafe impl Send for Seat {}
// SAFETY: SEAT.
unsafe impl Sync for Seat {}

/// Why a thread got up from a seat.
pub(crate) enum Left {
    /// The executor shuts down and the seat has no workgroup left.
    Closed,
    /// A lane kept the thread for so long that another one sits there now.
    Lost,
}

impl Seat {
    pub fn new(shared: Arc<Shared>, index: usize) -> Seat {
        Seat {
            shared,
            index,
            turns: 0.into(),
            suspect: 0.into(),
            departed: AtomicPtr::default(),
            vacant: false.into(),
            returned: Mutex::default(),
            live_lanes: 0.into(),
            away_lanes: 0.into(),
            seen: Cell::new(0),
            budget: Cell::new(0),
            progress: Cell::new(false),
            paused: Cell::new(false),
            wake_at_ns: Cell::new(u64::MAX),
            groups: RefCell::default(),
            fibers: RefCell::default(),
            memories: RefCell::default(),
        }
    }

    /// Takes one off the budget; false when the lane should give way.
    pub fn charge(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(if left == 0 { 255 } else { left - 1 });
        left != 0
    }

    /// Whether something was announced that this seat has not looked at.
    pub fn called(&self) -> bool {
        self.shared.events.load(Ordering::Relaxed) != self.seen.get()
    }

    /// Gives a lane what it runs on: what the lane before has left, if that has ended.
    ///
    /// # Errors
    /// The system has no memory for a stack.
    pub fn fiber(&self) -> io::Result<Box<Fiber>> {
        let used = self.fibers.borrow_mut().pop();
        used.map_or_else(|| LaneStack::new(self.shared.config.stack_bytes).map(Fiber::new), Ok)
    }

    pub fn keep_fiber(&self, fiber: Box<Fiber>) {
        // One seat's share, so that kept and used stacks together stay below the system's limit of mappings.
        let share = self.shared.config.resident_lanes as usize / self.shared.config.threads;
        let mut fibers = self.fibers.borrow_mut();
        if fibers.len() < share.max(64) {
            fibers.push(fiber);
        }
    }

    /// Adds to a count that only the seat's thread changes.
    pub fn count(counter: &AtomicU32, change: i32) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Notes that the seat's thread goes into a lane, or comes out of it.
    pub fn next_turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Gives the seat up for `lane`, in which the thread is: everything that the thread did before is seen by the
    /// next one. Called in a signal handler.
    pub fn lose(&self, lane: &Lane) {
        self.departed.store(ptr::from_ref(lane).cast_mut(), Ordering::Relaxed);
        self.vacant.store(true, Ordering::Release);
    }

    /// Works until the seat is closed, or a lane takes this thread away from it.
    pub fn sit(&self, running: &Running) -> Left {
        self.note_departed();
        let shared = &*self.shared;
        let mut hungry = true;
        let mut refusals = 0;
        let mut idle = Idle::default();
        loop {
            let events = shared.events.load(Ordering::Acquire);
            let hints = shared.hints.load(Ordering::Acquire);
            if events != self.seen.replace(events) {
                hungry = true;
                self.take_returned();
            }
            self.progress.set(false);
            self.paused.set(false);
            self.wake_at_ns.set(u64::MAX);
            if hungry || (shared.unstarted.load(Ordering::Relaxed) > 0 && idle.rounds.is_multiple_of(16)) {
                hungry = self.admit(idle.long || refusals > MOST_REFUSALS);
                refusals = if hungry { 0 } else { refusals + 1 };
                if !hungry && self.groups.borrow().is_empty() && shared.queue().shutdown {
                    return Left::Closed;
                }
            }
            let before = self.groups.borrow().len();
            for index in 0..before {
                let group = Rc::as_ptr(&self.groups.borrow()[index]);
                // SAFETY: SEAT; only `retire` below takes workgroups out, once their lanes have all ended. While a
                // lane has this thread away from the seat, that lane has not.
                let group = unsafe { &*group };
                running.enter(group.run().id);
                if let Some(returned) = group.turn() {
                    running.enter(0);
                    self.come_back(returned);
                    return Left::Lost;
                }
            }
            self.groups.borrow_mut().retain(|group| !group.retire());
            hungry |= self.groups.borrow().len() < before;

            if hungry || self.progress.get() || shared.help() {
                idle = Idle::default();
            } else {
                let sleep = idle.round();
                if let (Some(sleep), false) = (sleep, self.paused.get()) {
                    shared.sleep(events, hints, self.limit(sleep));
                }
            }
        }
    }

    /// How long the thread may sleep that would do so for `sleep`; `None` without end.
    fn limit(&self, sleep: Duration) -> Option<Duration> {
        let groups = self.groups.borrow();
        let ending = groups.iter().any(|group| group.run().cancelled());
        let longest = if ending { LONGEST_SLEEP_AT_END } else { LONGEST_SLEEP };
        let sleepers = Duration::from_nanos(self.wake_at_ns.get().saturating_sub(operations::now_ns()));
        (!groups.is_empty()).then_some(sleep.min(longest).min(sleepers))
    }

    /// Notes that a lane sleeps until then.
    pub fn wake_by(&self, deadline_ns: u64) {
        self.wake_at_ns.set(self.wake_at_ns.get().min(deadline_ns));
    }

    /// Takes on a workgroup if there is one for this seat.
    fn admit(&self, idle: bool) -> bool {
        let Some(admitted) = self.shared.admit(self.index, idle) else { return false };
        self.groups.borrow_mut().push(Group::new(self, admitted));
        true
    }

    /// Takes the lane that took the last thread away out of those that can run.
    fn note_departed(&self) {
        let lane = self.departed.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: SEAT; the lane has not ended, since only this seat's thread, by `take_returned`, notes its end.
        let Some(lane) = (unsafe { lane.as_ref() }) else { return };
        let (wave, bit) = lane.group().wave_of(lane);
        wave.depart(bit);
        Seat::count(&self.away_lanes, 1);
        // The last thread did not come out of the lane.
        self.next_turn();
    }

    /// Leaves a lane to the thread that sits here now.
    fn come_back(&self, returned: Returned) {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).push(returned);
        self.shared.announce();
    }

    /// Takes back lanes that had taken threads away.
    fn take_returned(&self) {
        let returned = std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner));
        for Returned { lane, ending } in returned {
            // SAFETY: SEAT; a lane that was away lives until this seat's thread notes its end.
            let lane = unsafe { &*lane };
            lane.group().take_back(lane, ending);
            Seat::count(&self.away_lanes, -1);
        }
    }
}

/// How long a thread has made no progress.
#[derive(Default)]
struct Idle {
    rounds: u32,
    since: Option<Instant>,
    /// Past [`SLEEP_AFTER`].
    long: bool,
}

impl Idle {
    /// One more round without progress: spins or yields, or says how long to sleep.
    fn round(&mut self) -> Option<Duration> {
        self.rounds = self.rounds.wrapping_add(1);
        // A look at the clock costs as much as several polls.
        if !self.rounds.is_multiple_of(8) && !self.long {
            spin_loop();
            return None;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        self.long = waited >= SLEEP_AFTER;
        if waited >= YIELD_AFTER {
            std::thread::yield_now();
        }
        self.long.then_some(waited / 4)
    }
}
