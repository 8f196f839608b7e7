//! A thread that watches the others: a lane that keeps one to itself loses it the seat, and another thread
//! goes on with the seat's other lanes. Lanes that are away take turns, so that they do not take the
//! processors from the seats.
//!
//! A lane that never asks the executor for anything (`loop {}`, or spinning on memory) so starves nobody. The
//! watch signals the thread of a lane, or of a run of lanes, that has kept the others of its seat waiting for
//! too long:
//!
//! | the lane | time |
//! |---|---|
//! | computes | 5 ms of processor time ([`PATIENCE`]) |
//! | computes, and a seat was lost in one of the last 20 looks | 0.5 ms of processor time ([`BUSY_PATIENCE`]) |
//! | waits in the system | 1 s ([`BLOCKED`]) |
//!
//! The handler, on that thread, may find the run at another lane than at the last look: then that lane gets
//! as much time for itself. Else, if the thread is in the kernel's own code, it marks the lane *away* and the
//! seat vacant, and returns into the lane. Another thread takes the seat. Nothing is saved or switched at the
//! interrupted place, so it does not matter what the lane was doing there (holding an allocator's lock, say).
//!
//! The lane's next operation marks the lane inside the executor and then looks whether it is away. Handler
//! and operation run on one thread, so compiler fences order them; the seat's state passes on by the release
//! store of `vacant` and the queue's lock.

use crate::executor::Shared;
use crate::seat::Seat;
use crate::{thread, trap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the watch looks, and how much processor time a lane may take until it is suspect.
const TICK: Duration = Duration::from_millis(10);
/// How often while all lanes wait.
const QUIET_TICK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_millis(5);

/// How often the watch looks, how much processor time makes a lane suspect, and for how many looks, when a seat was lost
/// lately: the next lane may well do what the last one did.
const BUSY_TICK: Duration = Duration::from_millis(1);
const BUSY_PATIENCE: Duration = Duration::from_micros(500);
const BUSY_LOOKS: u32 = 20;

/// How long lanes that are away run until it is the turn of others.
const SLICE: Duration = Duration::from_millis(10);

/// A lane that takes no processor time, but waits in the operating system, is suspect after this long.
const BLOCKED: Duration = Duration::from_secs(1);

/// What was seen of a seat.
struct Look {
    turns: u64,
    cpu_time: Duration,
    since: Instant,
}

/// Watches until the executor shuts down.
pub(crate) fn run(shared: &Arc<Shared>, seats: &[Arc<Seat>]) {
    let mut looks: Vec<Option<Look>> = seats.iter().map(|_| None).collect();
    let mut busy = 0u32;
    let mut turns = Turns { last: 0, since: Instant::now() };
    let mut tick = TICK;
    while shared.watch(tick) {
        busy = busy.saturating_sub(1);
        let mut asked = 0;
        for (seat, look) in seats.iter().zip(&mut looks) {
            if seat.vacant.load(Ordering::Acquire) {
                thread::fill(shared, seat);
                *look = None;
                busy = BUSY_LOOKS;
            } else if let Some(turn) =
                suspect(shared, seat, look, if busy > 0 { BUSY_PATIENCE } else { PATIENCE })
            {
                asked += usize::from(take_away(shared, seat, turn, asked));
            }
        }
        thread::staff(shared);
        let ending = shared.end_by_force();
        let idle = |seat: &&Arc<Seat>| seat.turns.load(Ordering::Relaxed).is_multiple_of(2);
        let idle = seats.iter().filter(idle).count();
        if turns.change(shared, 1 + idle) {
            busy = BUSY_LOOKS;
        }
        tick = match busy {
            // Whether the lane lets the seat go shows soon.
            0 if asked > 0 => BUSY_TICK,
            0 if idle == seats.len() && !ending => QUIET_TICK,
            0 => TICK,
            _ => BUSY_TICK,
        };
    }
}

/// Whose turn it is among the threads whose lanes are away.
struct Turns {
    /// The thread that was let go on last.
    last: libc::pthread_t,
    since: Instant,
}

impl Turns {
    /// Lets so many threads go on, and holds up those that had their turn. Whether some wait.
    fn change(&mut self, shared: &Shared, most: usize) -> bool {
        let queue = shared.queue();
        let away: Vec<_> = queue.workers.iter().filter(|worker| worker.is_away()).collect();
        let running = away.iter().filter(|worker| worker.running.hold.is_open()).count();
        let over = self.since.elapsed() >= SLICE && away.len() > most;
        let free = if over { most } else { most.saturating_sub(running) };
        let after = away.iter().position(|worker| worker.pthread == self.last).map_or(0, |at| at + 1);
        let waiting = (0..away.len())
            .map(|at| away[(after + at) % away.len()])
            .filter(|worker| !worker.running.hold.is_open());
        let next: Vec<_> = waiting.take(free).collect();
        if let Some(last) = next.last() {
            self.last = last.pthread;
            self.since = Instant::now();
        }
        if over {
            // As many of those that ran as others wait for.
            let had_theirs = away.iter().filter(|worker| worker.running.hold.is_open());
            for worker in had_theirs.take((running + next.len()).saturating_sub(most)) {
                worker.running.hold.close();
                trap::interrupt(worker.pthread);
            }
        }
        for worker in next {
            worker.running.hold.open();
        }
        away.len() > most
    }
}

/// The turn in which a lane has kept the seat's thread for long, while others could go on there.
fn suspect(shared: &Shared, seat: &Seat, look: &mut Option<Look>, patience: Duration) -> Option<u64> {
    let turns = seat.turns.load(Ordering::Relaxed);
    let others = seat.live_lanes.load(Ordering::Relaxed) > seat.away_lanes.load(Ordering::Relaxed) + 1;
    let in_lane = !turns.is_multiple_of(2);
    if !in_lane || !(others || shared.unstarted.load(Ordering::Relaxed) > 0) {
        *look = None;
        return None;
    }
    let queue = shared.queue();
    let worker = queue.workers.iter().find(|worker| worker.seat == Some(seat.index))?;
    let cpu_time = trap::cpu_time(worker.pthread);
    drop(queue);
    match look {
        Some(look) if look.turns == turns => {
            let long = cpu_time.saturating_sub(look.cpu_time) >= patience || look.since.elapsed() >= BLOCKED;
            long.then_some(turns)
        }
        _ => {
            *look = Some(Look { turns, cpu_time, since: Instant::now() });
            None
        }
    }
}

/// Asks the seat's thread, by a signal, to give the seat up, when there is a thread to take it besides those that
/// take the seats of `asked` others. Whether it did.
fn take_away(shared: &Arc<Shared>, seat: &Seat, turn: u64, asked: usize) -> bool {
    let mut queue = shared.queue();
    if queue.unseated <= queue.vacancies.len() + asked {
        let most = shared.config.threads + shared.config.spare_threads;
        if queue.workers.len() >= most || thread::hire(shared, &mut queue).is_err() {
            return false;
        }
    }
    seat.suspect.store(turn, Ordering::Relaxed);
    if let Some(worker) = queue.workers.iter().find(|worker| worker.seat == Some(seat.index)) {
        trap::interrupt(worker.pthread);
    }
    true
}
