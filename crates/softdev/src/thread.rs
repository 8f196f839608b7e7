use crate::executor::Shared;
use crate::group::Group;
use crate::launch::{LaunchError, Tally};
use corosensei::stack::DefaultStack;
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Without progress for this long, a thread begins to yield the processor,
const YIELD_AFTER: Duration = Duration::from_micros(20);
/// and then to sleep, a quarter of the time it has waited and at most [`LONGEST_SLEEP`].
const SLEEP_AFTER: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// Rounds in which a thread leaves workgroups to threads that have fewer lanes. Those may be stuck in one.
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

/// What the workgroups of one thread share.
pub(crate) struct Local {
    pub shared: Arc<Shared>,
    /// Index of the thread.
    pub index: usize,
    /// [`Shared::events`] as last seen.
    seen: Cell<u64>,
    /// Lanes of the thread that have not ended.
    pub live_lanes: Cell<u32>,
    /// Operations that lanes may do without giving way.
    budget: Cell<u32>,
    /// In this round a lane got on, or one paused.
    pub progress: Cell<bool>,
    pub paused: Cell<bool>,
    /// What ended lanes and workgroups leave for the next.
    stacks: RefCell<Vec<DefaultStack>>,
    pub memories: RefCell<Vec<Vec<Line>>>,
}

impl Local {
    /// Takes one off the budget; false when the lane should give way.
    pub fn charge(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(if left == 0 { 255 } else { left - 1 });
        left != 0
    }

    /// Whether something was announced that this thread has not looked at.
    pub fn called(&self) -> bool {
        self.shared.events.load(Ordering::Relaxed) != self.seen.get()
    }

    pub fn stack(&self) -> io::Result<DefaultStack> {
        let used = self.stacks.borrow_mut().pop();
        used.map_or_else(|| DefaultStack::new(self.shared.config.stack_bytes), Ok)
    }

    pub fn keep_stack(&self, stack: DefaultStack) {
        // One thread's share, so that kept and used stacks together stay below the system's limit of mappings.
        let share = self.shared.config.resident_lanes as usize / self.shared.config.threads;
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() < share.max(64) {
            stacks.push(stack);
        }
    }
}

/// A thread of the executor.
pub(crate) struct Thread {
    local: Rc<Local>,
    groups: Vec<Rc<Group>>,
}

impl Thread {
    pub fn new(shared: Arc<Shared>, index: usize) -> Thread {
        let local = Local {
            shared,
            index,
            seen: Cell::new(0),
            live_lanes: Cell::new(0),
            budget: Cell::new(0),
            progress: Cell::new(false),
            paused: Cell::new(false),
            stacks: RefCell::default(),
            memories: RefCell::default(),
        };
        Thread { local: Rc::new(local), groups: Vec::new() }
    }

    /// Runs workgroups until the executor shuts down.
    pub fn run(mut self) {
        // SAFETY: sets how exactly this thread's sleeps end, in nanoseconds; the result does not matter.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000usize) };
        let local = Rc::clone(&self.local);
        let shared = &*local.shared;
        // SAFETY: has no preconditions.
        let pthread = unsafe { libc::pthread_self() };
        shared.queue().pthreads[local.index] = Some(pthread);

        let mut hungry = true;
        let mut refusals = 0;
        let mut running = 0;
        let mut idle = Idle::default();
        loop {
            let events = shared.events.load(Ordering::Acquire);
            if events != local.seen.replace(events) {
                hungry = true;
            }
            local.progress.set(false);
            local.paused.set(false);
            if hungry || (shared.unstarted.load(Ordering::Relaxed) > 0 && idle.rounds.is_multiple_of(16)) {
                hungry = self.admit(idle.long || refusals > MOST_REFUSALS);
                refusals = if hungry { 0 } else { refusals + 1 };
                if !hungry && self.groups.is_empty() && shared.queue().shutdown {
                    break;
                }
            }
            for group in &self.groups {
                if running != group.run().id {
                    running = group.run().id;
                    shared.running[local.index].store(running, Ordering::Relaxed);
                }
                group.turn();
            }
            let before = self.groups.len();
            self.groups.retain(|group| !group.retire());
            hungry |= self.groups.len() < before;

            if hungry || local.progress.get() {
                idle = Idle::default();
            } else {
                let sleep = idle.round();
                if let (Some(sleep), false) = (sleep, local.paused.get()) {
                    shared.sleep(events, (!self.groups.is_empty()).then_some(sleep));
                }
            }
        }
        shared.queue().pthreads[local.index] = None;
    }

    /// Takes on a workgroup if there is one for this thread.
    fn admit(&mut self, idle: bool) -> bool {
        let Some(admitted) = self.local.shared.admit(self.local.index, idle) else { return false };
        let run = Arc::clone(&admitted.run);
        match Group::new(&self.local, admitted) {
            Ok(group) => self.groups.push(group),
            Err(error) => {
                let shared = &self.local.shared;
                let sentence = format!("no memory for a lane's stack: {error}; lower `resident_lanes`");
                shared.stop(&run, LaunchError::NoStack(sentence));
                shared.retire(self.local.index, &run, &[], Tally::default());
            }
        }
        true
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
        self.long.then(|| (waited / 4).min(LONGEST_SLEEP))
    }
}
