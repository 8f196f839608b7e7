//! Deadlines, and reports of calls that do not move. A thread of its own, asleep while no call waits.

use super::job::Ticket;
use hostcall_abi::status::CallError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The watchdog looks at most this often: the resolution of deadlines.
const TICK: Duration = Duration::from_millis(5);

/// Calls noted since the last look after which those that were answered are forgotten.
const FORGET_AFTER: usize = 1024;

/// A call that has not moved for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The channel's slot.
    pub slot: u32,
    /// Number of the launch that has the slot.
    pub launch: u64,
    /// The method called, or its number when nothing is registered for it.
    pub service: String,
    /// How long it has waited.
    pub waited: Duration,
    /// What it waits for.
    pub state: StallState,
}

/// What a stalled call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallState {
    /// Its handler has not returned.
    Handler,
    /// The wave rang, but has not written all of its words.
    Words,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slot, launch, service, waited, state } = self;
        let what = match state {
            StallState::Handler => "has waited for the handler of",
            StallState::Words => "has begun and not finished a call of",
        };
        write!(f, "launch {launch}, wave in slot {slot}: {what} {service} for {:.1} s", waited.as_secs_f64())
    }
}

struct Watched {
    /// With whether the call was reported.
    tickets: Vec<(Weak<Ticket>, bool)>,
    /// When the watchdog looks next; `None` when it does not know of anything.
    next: Option<Instant>,
    /// Tickets after the last look, or after answered ones were forgotten.
    kept: usize,
    stopped: bool,
}

fn open_ticket(weak: &Weak<Ticket>) -> Option<Arc<Ticket>> {
    weak.upgrade().filter(|ticket| ticket.is_open())
}

pub(crate) struct Watchdog {
    watched: Mutex<Watched>,
    changed: Condvar,
    stall_after: Duration,
    report: Box<dyn Fn(&Stall) + Send + Sync>,
}

fn stall_of(ticket: &Ticket) -> Stall {
    Stall {
        slot: ticket.slot,
        launch: ticket.launch,
        service: ticket.entry.method.name.to_string(),
        waited: ticket.started.elapsed(),
        state: StallState::Handler,
    }
}

impl Watchdog {
    pub fn new(stall_after: Duration, report: Box<dyn Fn(&Stall) + Send + Sync>) -> Self {
        let watched = Watched { tickets: Vec::new(), next: None, kept: 0, stopped: false };
        Self { watched: Mutex::new(watched), changed: Condvar::new(), stall_after, report }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stall_after(&self) -> Duration {
        self.stall_after
    }

    pub fn report(&self, stall: &Stall) {
        (self.report)(stall);
    }

    pub fn watch(&self, ticket: &Arc<Ticket>) {
        let mut watched = self.lock();
        if watched.stopped {
            drop(watched);
            return ticket.give_up(CallError::Cancelled);
        }
        watched.tickets.push((Arc::downgrade(ticket), false));
        if watched.tickets.len() > 2 * watched.kept + FORGET_AFTER {
            watched.tickets.retain(|(weak, _)| open_ticket(weak).is_some());
            watched.kept = watched.tickets.len();
        }
        let due = self.due(ticket, false);
        if watched.next.is_none_or(|next| due.is_some_and(|due| due < next)) {
            watched.next = due;
            self.changed.notify_one();
        }
    }

    /// When the watchdog has to look at a call.
    fn due(&self, ticket: &Ticket, reported: bool) -> Option<Instant> {
        // A span that reaches beyond what the clock can say is no end at all.
        let stalls = if reported { None } else { ticket.started.checked_add(self.stall_after) };
        ticket.deadline.into_iter().chain(stalls).min()
    }

    fn open(&self) -> Vec<Arc<Ticket>> {
        self.lock().tickets.iter().filter_map(|(weak, _)| open_ticket(weak)).collect()
    }

    /// The calls that wait for their handlers now.
    pub fn waiting(&self) -> Vec<Stall> {
        self.open().iter().map(|ticket| stall_of(ticket)).collect()
    }

    /// Gives the waiting calls of a launch, or of all, this error.
    pub fn give_up(&self, launch: Option<u64>, error: CallError) {
        for ticket in self.open() {
            if launch.is_none_or(|launch| launch == ticket.launch) {
                ticket.give_up(error);
            }
        }
    }

    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
        self.give_up(None, CallError::Cancelled);
    }

    /// The watchdog thread's loop.
    pub fn run(&self) {
        loop {
            let mut watched = self.lock();
            loop {
                if watched.stopped {
                    return;
                }
                let now = Instant::now();
                watched = match watched.next {
                    None => self.changed.wait(watched).unwrap_or_else(PoisonError::into_inner),
                    Some(next) if next <= now => break,
                    Some(next) => {
                        let waited = self.changed.wait_timeout(watched, next - now);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            let now = Instant::now();
            let mut late = Vec::new();
            let mut stalled = Vec::new();
            let mut next = None;
            watched.tickets.retain_mut(|(weak, reported)| {
                let Some(ticket) = open_ticket(weak) else { return false };
                if !*reported && now.duration_since(ticket.started) >= self.stall_after {
                    *reported = true;
                    stalled.push(stall_of(&ticket));
                }
                if ticket.deadline.is_some_and(|deadline| now >= deadline) {
                    late.push(ticket);
                    return false;
                }
                next = next.into_iter().chain(self.due(&ticket, *reported)).min();
                true
            });
            watched.kept = watched.tickets.len();
            watched.next = next.map(|next: Instant| next.max(now + TICK));
            drop(watched);
            for ticket in late {
                ticket.give_up(CallError::TimedOut);
            }
            for stall in &stalled {
                self.report(stall);
            }
        }
    }
}
