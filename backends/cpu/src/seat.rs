//! A seat: a share of the resident workgroups, which one thread at a time works on.

use crate::executor::{Admitted, Retired, Shared};
use crate::lane::{Ending, Lane};
use crate::launch::SeatRun;
use crate::operations;
use crate::stack::LaneStack;
use crate::thread::ThreadState;
use crate::workgroup::Workgroup;
use hostcall_locks::Mutex;
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::io;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Without progress for this long, a thread begins to yield the processor.
const YIELD_AFTER: Duration = Duration::from_micros(5);

/// Without progress for this long, a thread begins to sleep: a quarter of the time it has waited, and at most
/// [`LONGEST_SLEEP`].
const SLEEP_AFTER: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Longest sleep while a launch is cancelled, when lanes look at what nobody wakes them for.
const LONGEST_SLEEP_AT_END: Duration = Duration::from_micros(200);

/// Workgroups that a seat asks for at a time, at most. To ask takes as long as some ten lanes that do nothing.
const MOST_AT_A_TIME: u32 = 64;

/// Nanoseconds within which those that a seat got are few, and from which on they are many.
const QUICK_BATCH_NS: u64 = 50_000;
const SLOW_BATCH_NS: u64 = 200_000;

/// Stacks that a seat makes at a time, at most. A busy machine takes as long for one as for many.
const MOST_STACKS_AT_A_TIME: usize = 128;

/// Rounds in which a seat leaves workgroups to seats that have fewer lanes. Those may be stuck in one.
const MOST_REFUSALS: u32 = 1000;

/// Memory of a workgroup comes in lines, which align it.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(crate) struct CacheLine {
    _bytes: [u8; 64],
}

impl CacheLine {
    pub const ZERO: CacheLine = CacheLine { _bytes: [0; 64] };
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
#[repr(align(128))] // apart from other seats
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
    workgroups: RefCell<Vec<Rc<Workgroup>>>,
    /// Workgroups that are resident here, but have not begun.
    admitted: RefCell<Option<Admitted>>,
    /// How many workgroups the seat asks for at a time, and when it last got some, in ns.
    batch: Cell<u32>,
    got_at_ns: Cell<u64>,
    /// Workgroups that have ended, whose room was not given back.
    retired: RefCell<Option<Retired>>,
    /// What ended lanes and workgroups leave for the next.
    #[expect(clippy::vec_box, reason = "lanes are pointed to")]
    ended: RefCell<Vec<Box<Lane>>>,
    /// How many stacks are made when there is none the next time: more each time, as lanes that wait come in numbers.
    stacks: Cell<usize>,
    pub memories: RefCell<Vec<Vec<CacheLine>>>,
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
            workgroups: RefCell::default(),
            admitted: RefCell::default(),
            batch: Cell::new(1),
            got_at_ns: Cell::new(0),
            retired: RefCell::default(),
            ended: RefCell::default(),
            stacks: Cell::new(1),
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

    /// Gives lanes what they can begin on: what those before have left, if there are such.
    pub fn lane(&self) -> io::Result<Box<Lane>> {
        let mut ended = self.ended.borrow_mut();
        if ended.is_empty() {
            let count = self.stacks.get();
            self.stacks.set((2 * count).min(MOST_STACKS_AT_A_TIME));
            ended.extend(LaneStack::some(self.shared.config.stack_bytes, count)?.into_iter().map(Lane::new));
        }
        Ok(ended.pop().expect("there is one at least"))
    }

    /// Keeps an ended lane for others.
    pub fn keep(&self, lane: Box<Lane>) {
        // One seat's share, so that kept and used stacks together stay below the system's limit of mappings.
        let share = self.shared.config.resident_lanes as usize / self.shared.config.threads;
        let mut ended = self.ended.borrow_mut();
        if ended.len() < share.max(64) {
            ended.push(lane);
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

    /// Has the watch take the turn for a new one. Called in a signal handler while the seat's thread is in a lane.
    pub fn restart_turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 2, Ordering::Relaxed);
    }

    /// Gives the seat up for `lane`, in which the thread is: everything that the thread did before is seen by the
    /// next one. Called in a signal handler.
    pub fn lose(&self, lane: &Lane) {
        self.departed.store(ptr::from_ref(lane).cast_mut(), Ordering::Relaxed);
        self.vacant.store(true, Ordering::Release);
    }

    /// Works until the seat is closed, or a lane takes this thread away from it.
    pub fn sit(&self, running: &ThreadState) -> Left {
        self.note_departed();
        let shared = &*self.shared;
        let mut hungry = true;
        let mut refusals = 0;
        let mut idle = Idle::default();
        loop {
            let events = shared.events.load(Ordering::Acquire);
            let wake_ups = shared.wake_ups.load(Ordering::Acquire);
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
                if !hungry && self.workgroups.borrow().is_empty() && shared.queue().shutdown {
                    return Left::Closed;
                }
            }
            let before = self.workgroups.borrow().len();
            for index in 0..before {
                let workgroup = Rc::as_ptr(&self.workgroups.borrow()[index]);
                // SAFETY: SEAT; only `retire` below takes workgroups out, once their lanes have all ended. While a
                // lane has this thread away from the seat, that lane has not.
                let workgroup = unsafe { &*workgroup };
                running.enter(workgroup.run().id);
                if let Some(returned) = workgroup.turn() {
                    running.enter(0);
                    self.come_back(returned);
                    return Left::Lost;
                }
            }
            self.retire();
            hungry |= self.workgroups.borrow().len() < before;

            if hungry || self.progress.get() {
                idle = Idle::default();
            } else {
                let sleep = idle.round();
                if let (Some(sleep), false) = (sleep, self.paused.get()) {
                    shared.sleep(events, wake_ups, self.limit(sleep));
                }
            }
        }
    }

    /// How long the thread may sleep that would do so for `sleep`; `None` without end.
    fn limit(&self, sleep: Duration) -> Option<Duration> {
        let workgroups = self.workgroups.borrow();
        let ending = workgroups.iter().any(|workgroup| workgroup.run().cancelled());
        let longest = if ending { LONGEST_SLEEP_AT_END } else { LONGEST_SLEEP };
        let sleepers = Duration::from_nanos(self.wake_at_ns.get().saturating_sub(operations::now_ns()));
        (!workgroups.is_empty()).then_some(sleep.min(longest).min(sleepers))
    }

    /// Notes that a lane sleeps until then.
    pub fn wake_by(&self, deadline_ns: u64) {
        self.wake_at_ns.set(self.wake_at_ns.get().min(deadline_ns));
    }

    /// Begins a workgroup if there is one for this seat.
    fn admit(&self, idle: bool) -> bool {
        let mut admitted = self.admitted.borrow_mut();
        if let Some(closed) = admitted.take_if(|admitted| admitted.run.closed.load(Ordering::Relaxed)) {
            let workgroups = (closed.numbers.end - closed.numbers.start) as u32;
            Seat::count(&self.live_lanes, -(workgroups * closed.run.grid.lanes).cast_signed());
            let unused = Retired { workgroups, good_slots: closed.slots, ..Retired::of(&closed.run) };
            self.shared.retire(self.index, unused);
        }
        let next = match &mut *admitted {
            Some(next) => next,
            none => {
                let Some(next) = self.shared.admit(self.index, idle, self.batch.get()) else { return false };
                self.pace();
                // Those that have not begun could, too.
                let workgroups = (next.numbers.end - next.numbers.start) as u32;
                Seat::count(&self.live_lanes, (workgroups * next.run.grid.lanes).cast_signed());
                none.insert(next)
            }
        };
        let (number, run) = (next.numbers.start, Rc::clone(&next.run));
        next.numbers.start += 1;
        let rest = next.slots.len() - run.grid.waves as usize;
        let workgroup = Workgroup::new(self, run, number, next.slots.drain(rest..));
        self.workgroups.borrow_mut().push(workgroup);
        if next.numbers.is_empty() {
            *admitted = None;
        }
        true
    }

    /// Has the seat ask for twice as many workgroups the next time if the last ones ended, or began to wait, in next to no
    /// time, and for half as many if they took long: others may have to wait for them.
    fn pace(&self) {
        let now_ns = operations::now_ns();
        let batch = self.batch.get();
        match now_ns - self.got_at_ns.replace(now_ns) {
            ..QUICK_BATCH_NS => self.batch.set((batch * 2).min(MOST_AT_A_TIME)),
            SLOW_BATCH_NS.. => self.batch.set((batch / 2).max(1)),
            _ => {}
        }
    }

    /// Takes out the workgroups whose lanes have all ended. Their room is given back before the seat asks for more, and when
    /// all of a launch have begun that the seat has.
    fn retire(&self) {
        let mut retired = self.retired.borrow_mut();
        self.workgroups.borrow_mut().retain(|workgroup| {
            if !workgroup.is_over() {
                return true;
            }
            if let Some(others) = retired.take_if(|retired| !Rc::ptr_eq(&retired.run, workgroup.run())) {
                self.shared.retire(self.index, others);
            }
            workgroup.retire(retired.get_or_insert_with(|| Retired::of(workgroup.run())));
            if workgroup.is_leaked() {
                std::mem::forget(Rc::clone(workgroup));
            }
            false
        });
        let admitted = self.admitted.borrow();
        let goes_on =
            |run: &SeatRun| admitted.as_ref().is_some_and(|admitted| Rc::ptr_eq(&admitted.run, run));
        if let Some(all) = retired.take_if(|retired| !goes_on(&retired.run)) {
            self.shared.retire(self.index, all);
        }
    }

    /// Takes the lane that took the last thread away out of those that can run.
    fn note_departed(&self) {
        let lane = self.departed.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: SEAT; the lane has not ended, since only this seat's thread, by `take_returned`, notes its end.
        let Some(lane) = (unsafe { lane.as_ref() }) else { return };
        lane.workgroup().depart(lane);
        Seat::count(&self.away_lanes, 1);
        // The last thread did not come out of the lane.
        self.next_turn();
    }

    /// Leaves a lane to the thread that sits here now.
    fn come_back(&self, returned: Returned) {
        self.returned.lock().push(returned);
        self.shared.announce();
    }

    /// Takes back lanes that had taken threads away.
    fn take_returned(&self) {
        let returned = std::mem::take(&mut *self.returned.lock());
        for Returned { lane, ending } in returned {
            // SAFETY: SEAT; a lane that was away lives until this seat's thread notes its end.
            let lane = unsafe { &*lane };
            lane.workgroup().take_back(lane, ending);
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
