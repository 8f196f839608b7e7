//! The executor: which workgroups are resident, on which seats, and how launches end.
//!
//! Workgroups of a launch become resident in order; launches take turns, and one that runs leaves an eighth
//! of the room to those that have none. A launch ends in one place: with its last resident workgroup, once no
//! more will begin ([`Run::finish`]). One that is told to end ([`Shared::stop`]) begins no more workgroups,
//! and its lanes end by force after the grace.
//!
//! Lanes' room and waves' slots are the queue's, under its lock, until [`Shared::admit`] gives them to a
//! seat, whose they are until [`Shared::retire`]. Slots of waves that were ended in the middle go to the
//! launch instead, until somebody restores them. No callback is called under the lock.

use crate::config::Config;
use crate::image::Images;
use crate::launch::{Apart, Grid, Launch, LaunchError, LaunchHandle, Run, SeatRun, Tally, quietly};
use crate::leaked;
use crate::lent::LentMemory;
use crate::seat::Seat;
use crate::thread::{Worker, hire};
use crate::{trap, watch};
use hostcall_locks::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

/// One part in so many of the resident lanes and waves is left to launches that have none.
const SPARED: u32 = 8;

/// A seat gets at most its even share of the workgroups that are left, divided by this, so that the seats end at about the
/// same time.
const SHARE_PARTS: u64 = 2;

/// Threads that run the lanes of launches. Dropping it cancels what still runs and waits for the threads.
pub struct Executor {
    shared: Arc<Shared>,
}

/// Says what the system refused.
fn no_thread(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the software device gets no thread from the system: {error}"))
}

impl Executor {
    /// Starts the threads. The first executor of a process installs handlers for SIGSEGV, SIGBUS, SIGFPE,
    /// SIGILL and SIGURG, which pass on what no lane caused to the handlers that were there.
    ///
    /// # Errors
    /// `InvalidInput` when the configuration makes no sense; whatever the system answers when it has no threads.
    pub fn new(config: Config) -> io::Result<Executor> {
        config.check()?;
        trap::install()?;
        let threads = config.threads;
        let queue = Queue {
            active: Vec::new(),
            launches: 0,
            free_slots: (0..config.resident_waves).rev().collect(),
            resident_lanes: vec![0; threads],
            turn: 0,
            refused: false,
            shutdown: false,
            workers: Vec::new(),
            vacancies: Vec::new(),
            open_seats: threads,
            unseated: 0,
            hired: 0,
            threads: Vec::new(),
            stopped: Vec::new(),
        };
        let shared = Arc::new(Shared {
            config,
            events: AtomicU64::new(0),
            wake_ups: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            unstarted: AtomicU64::new(0),
            queue: Apart(Mutex::new(queue)),
            lent: Arc::default(),
            lends: AtomicBool::new(false),
            images: Images::default(),
            wake: Condvar::new(),
            vacancy: Condvar::new(),
        });
        let seats: Vec<_> =
            (0..threads).map(|index| Arc::new(Seat::new(Arc::clone(&shared), index))).collect();
        let executor = Executor { shared };
        let mut queue = executor.shared.queue();
        queue.vacancies.extend(seats.iter().rev().cloned());
        for _ in 0..threads {
            hire(&executor.shared, &mut queue).map_err(no_thread)?;
        }
        let shared = Arc::clone(&executor.shared);
        let watch = thread::Builder::new().name("softdev-watch".into());
        queue.threads.push(watch.spawn(move || watch::run(&shared, &seats)).map_err(no_thread)?);
        drop(queue);
        Ok(executor)
    }

    /// Starts a grid at once, beside whatever else runs. Its workgroups become resident, in order, as the
    /// limits of the configuration allow.
    ///
    /// # Errors
    /// [`LaunchError::BadGrid`]. [`LaunchError::NoStack`] once 16,384 lanes of the process were ended by force.
    ///
    /// # Safety
    /// The entry must be sound to run on every lane of the grid with these arguments and parameters, as long as
    /// `keep_alive` lives, also when lanes are ended without unwinding (see the crate's documentation).
    pub unsafe fn launch(&self, launch: Launch) -> Result<LaunchHandle, LaunchError> {
        let grid = Grid::new(&launch.params, &self.shared.config).map_err(LaunchError::BadGrid)?;
        leaked::check()?;
        let mut queue = self.shared.queue();
        queue.launches += 1;
        let image = self.shared.images.around(launch.entry as usize);
        let run = Arc::new(Run::new(queue.launches, launch, grid, image));
        queue.active.push(Active { run: Arc::clone(&run), next: 0, resident: 0 });
        self.shared.unstarted.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        self.shared.announce();
        Ok(LaunchHandle { run, shared: Arc::clone(&self.shared) })
    }

    /// Something to wake lanes with that wait for what the executor does not know of.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// What lanes lend to the host while they wait for its answer. Lanes lend nothing before this was called: what nobody
    /// could read would be lost, and without it messages travel in packets.
    pub fn lent_memory(&self) -> Arc<LentMemory> {
        self.shared.lends.store(true, Ordering::Relaxed);
        Arc::clone(&self.shared.lent)
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }
}

/// Wakes threads whose lanes wait for what happens outside the executor.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Makes threads that sleep call the polls of their lanes at once. Without it, they do so after a quarter of the
    /// time that they have waited, at most 20 ms.
    pub fn wake(&self) {
        let shared = &*self.0;
        // A thread counts itself and then looks at the wake-ups: either it sees this one, or is seen here.
        shared.wake_ups.fetch_add(1, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(shared.queue());
            shared.wake.notify_all();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.shutdown = true;
        let left: Vec<_> = queue.active.iter().map(|active| Arc::clone(&active.run)).collect();
        drop(queue);
        for run in left {
            self.shared.stop(&run, LaunchError::Cancelled);
        }
        self.shared.announce();
        self.shared.vacancy.notify_all();
        let here = thread::current().id();
        let mut queue = self.shared.queue();
        // A callback or a lane may hold the last reference to the executor: its thread cannot wait for itself, and the
        // others may wait for it.
        if trap::is_in_lane() || queue.threads.iter().any(|thread| thread.thread().id() == here) {
            return;
        }
        while let Some(thread) = queue.threads.pop() {
            drop(queue);
            // A thread of the executor catches panics.
            let _ = thread.join();
            queue = self.shared.queue();
        }
        // Left when not every thread could be started.
        queue.vacancies.clear();
    }
}

/// What the threads of an executor, its handles and its cancellers share.
pub(crate) struct Shared {
    pub config: Config,
    /// Goes up when threads should look at the queue or at their launches' flags.
    pub events: AtomicU64,
    /// Goes up when what lanes wait for may have happened.
    pub wake_ups: AtomicU64,
    /// Threads that sleep.
    sleepers: AtomicU32,
    /// Launches with workgroups that are not resident yet.
    pub unstarted: AtomicU64,
    /// What lanes lend to the host.
    pub lent: Arc<LentMemory>,
    /// Whether somebody has what lanes lend.
    pub lends: AtomicBool,
    queue: Apart<Mutex<Queue>>,
    images: Images,
    wake: Condvar,
    /// Notified when there is a seat for a thread that has none, or such threads shall end.
    pub vacancy: Condvar,
}

/// What the executor's threads share under one lock: the launches that seats take workgroups from, the room
/// for these, and the threads. (The device's queues are in `queue.rs`.)
pub(crate) struct Queue {
    active: Vec<Active>,
    launches: u64,
    /// The slots that resident waves may claim, but for those that resident waves have and those of waves that did not come to
    /// their ends.
    free_slots: Vec<u32>,
    /// Of each seat.
    resident_lanes: Vec<u32>,
    /// Where the next look for a workgroup begins, so that every launch gets its turn.
    turn: usize,
    /// A seat got no workgroup though there were some, since room was last given back.
    refused: bool,
    pub shutdown: bool,
    /// The threads that run. A thread takes itself out before it ends, so these can be signalled.
    pub workers: Vec<Worker>,
    /// Seats that wait for a thread.
    pub vacancies: Vec<Arc<Seat>>,
    /// Seats that are not closed.
    pub open_seats: usize,
    /// Threads that wait for a seat, or are about to.
    pub unseated: usize,
    /// Threads started, ever.
    pub hired: usize,
    pub threads: Vec<JoinHandle<()>>,
    /// Launches that were told to end, and when their grace is over, if ever. Those that have ended are taken out by the watch.
    stopped: Vec<(Arc<Run>, Option<Instant>)>,
}

impl Queue {
    /// The calling thread.
    pub fn worker(&mut self, pthread: libc::pthread_t) -> &mut Worker {
        let worker = self.workers.iter_mut().find(|worker| worker.pthread == pthread);
        worker.expect("a thread is in the list until it ends")
    }

    /// Whether the executor shuts down and nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.shutdown && self.open_seats == 0
    }
}

/// A launch that has not ended.
struct Active {
    run: Arc<Run>,
    /// Number of the next workgroup to become resident.
    next: u64,
    /// Resident workgroups.
    resident: u32,
}

impl Active {
    fn over(&self) -> bool {
        self.resident == 0 && self.next == self.run.grid.count
    }
}

/// Workgroups that follow each other in a grid, for which a seat has the room.
pub(crate) struct Admitted {
    pub run: SeatRun,
    /// Their numbers in the grid, x fastest.
    pub numbers: Range<u64>,
    /// One for each wave.
    pub slots: Vec<u32>,
}

/// Workgroups of one launch that have ended on a seat.
pub(crate) struct Retired {
    pub run: SeatRun,
    pub workgroups: u32,
    /// Those of their slots that other waves may claim.
    pub good_slots: Vec<u32>,
    pub tally: Tally,
}

impl Retired {
    pub fn of(run: &SeatRun) -> Retired {
        Retired { run: Rc::clone(run), workgroups: 0, good_slots: Vec::new(), tally: Tally::default() }
    }
}

impl Shared {
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics halfway through a change of the queue.
        self.queue.0.lock()
    }

    /// Wakes every thread and makes it look round.
    pub fn announce(&self) {
        self.events.fetch_add(1, Ordering::Release);
        // Under the lock, or a thread between its last look and its sleep would miss this.
        drop(self.queue());
        self.wake.notify_all();
    }

    /// Sleeps until something is announced after `events` or somebody wakes lanes after `wake_ups`, at most
    /// `limit`.
    pub fn sleep(&self, events: u64, wake_ups: u64, limit: Option<Duration>) {
        let queue = self.queue();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let unseen = |_: &mut Queue| {
            self.events.load(Ordering::Acquire) == events
                && (limit.is_none() || self.wake_ups.load(Ordering::SeqCst) == wake_ups)
        };
        match limit {
            None => drop(self.wake.wait_while(queue, unseen)),
            Some(limit) => drop(self.wake.wait_timeout_while(queue, limit, unseen)),
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a seat the next workgroups that fit, `most` at most. A seat which has more lanes than another leaves them to
    /// that one, unless it is `idle`.
    pub fn admit(&self, seat: usize, idle: bool, most: u32) -> Option<Admitted> {
        let mut guard = self.queue();
        let queue = &mut *guard;
        let admitted = self.next_fitting(queue, seat, idle, most);
        queue.refused |= admitted.is_none() && self.unstarted.load(Ordering::Relaxed) > 0;
        admitted
    }

    fn next_fitting(&self, queue: &mut Queue, seat: usize, idle: bool, most: u32) -> Option<Admitted> {
        if !idle && queue.resident_lanes.iter().any(|&lanes| lanes < queue.resident_lanes[seat]) {
            return None;
        }
        let lanes_left = self.config.resident_lanes - queue.resident_lanes.iter().sum::<u32>();
        let waves_left = queue.free_slots.len() as u32;
        // A launch that runs leaves some room, so that others can begin beside it: it may wait for them.
        let config = &self.config;
        let (lanes_spared, waves_spared) = (config.resident_lanes / SPARED, config.resident_waves / SPARED);
        for offset in 0..queue.active.len() {
            let index = (queue.turn + offset) % queue.active.len();
            let active = &mut queue.active[index];
            let Grid { count, lanes, waves, .. } = active.run.grid;
            let lanes_fit = lanes_left.saturating_sub(lanes_spared) / lanes;
            let fit = lanes_fit.min(waves_left.saturating_sub(waves_spared) / waves);
            let is_first = active.resident == 0 && lanes <= lanes_left && waves <= waves_left;
            if active.next == count || fit == 0 && !is_first {
                continue;
            }
            let seats = config.threads as u64;
            let part = (count - active.next) / (SHARE_PARTS * seats);
            let workgroups = u64::from(fit).div_ceil(seats).min(part).min(most.into()).max(1) as u32;
            let slots = queue.free_slots.split_off((waves_left - workgroups * waves) as usize);
            let numbers = active.next..active.next + u64::from(workgroups);
            let admitted = Admitted { run: Rc::new(Arc::clone(&active.run)), numbers, slots };
            active.next += u64::from(workgroups);
            active.resident += workgroups;
            if active.next == count {
                self.unstarted.fetch_sub(1, Ordering::Relaxed);
            }
            queue.resident_lanes[seat] += workgroups * lanes;
            queue.turn = index + 1;
            return Some(admitted);
        }
        None
    }

    /// Takes back what workgroups of a seat had, once all their lanes have ended.
    pub fn retire(&self, seat: usize, retired: Retired) {
        let Retired { run, workgroups, good_slots, mut tally } = retired;
        let mut outcome = run.outcome();
        let total = &mut outcome.tally;
        total.workgroups += tally.workgroups;
        total.lanes += tally.lanes;
        total.exited += tally.exited;
        total.panicked += tally.panicked;
        total.forced += tally.forced;
        total.abandoned_slots.append(&mut tally.abandoned_slots);
        drop(outcome);

        let mut queue = self.queue();
        queue.resident_lanes[seat] -= workgroups * run.grid.lanes;
        queue.free_slots.extend(good_slots);
        let over =
            queue.active.iter().position(|active| Arc::ptr_eq(&active.run, &run)).is_some_and(|index| {
                let active = &mut queue.active[index];
                active.resident -= workgroups;
                let over = active.over();
                if over {
                    queue.active.remove(index);
                }
                over
            });
        let refused = std::mem::take(&mut queue.refused);
        drop(queue);
        if over {
            run.finish();
        }
        if refused {
            self.announce();
        }
    }

    /// Takes slots back that were lost with their waves, and that nobody uses any more.
    pub fn restore_slots(&self, slots: &[u32]) {
        self.queue().free_slots.extend(slots);
        self.announce();
    }

    /// Starts no more workgroups of a launch.
    pub fn close(&self, run: &Arc<Run>) {
        run.closed.store(true, Ordering::Relaxed);
        let mut queue = self.queue();
        let Some(index) = queue.active.iter().position(|active| Arc::ptr_eq(&active.run, run)) else {
            return;
        };
        let active = &mut queue.active[index];
        if active.next < run.grid.count {
            active.next = run.grid.count;
            self.unstarted.fetch_sub(1, Ordering::Relaxed);
        }
        if active.over() {
            queue.active.remove(index);
            drop(queue);
            run.finish();
        }
    }

    /// Ends a launch for `reason`: cancels its lanes now, and ends by force those left after the grace.
    pub fn stop(self: &Arc<Shared>, run: &Arc<Run>, reason: LaunchError) {
        let mut outcome = run.outcome();
        if outcome.result.is_some() {
            return;
        }
        let failed = reason != LaunchError::Cancelled;
        outcome.error.get_or_insert(reason);
        drop(outcome);
        if run.cancelled.swap(true, Ordering::Relaxed) {
            return;
        }
        if failed {
            quietly(|| (run.on_failure)());
        }
        let grace_ends = Instant::now().checked_add(self.config.cancel_grace);
        self.queue().stopped.push((Arc::clone(run), grace_ends));
        self.close(run);
        self.announce();
    }

    /// Ends the lanes of launches whose grace is over. Returns whether some launch that was told to end has not.
    pub fn end_by_force(&self) -> bool {
        // Out of the lock: the last reference to a launch may be the last one to the executor, too.
        let mut stopped = std::mem::take(&mut self.queue().stopped);
        if stopped.is_empty() {
            return false;
        }
        stopped.retain(|(run, _)| !run.is_done());
        let now = Instant::now();
        let late = stopped.iter().filter(|(_, grace_ends)| grace_ends.is_some_and(|end| now >= end));
        let late: Vec<_> = late.map(|(run, _)| Arc::clone(run)).collect();
        for run in &late {
            run.kill.store(true, Ordering::Relaxed);
        }
        if !late.is_empty() {
            self.announce();
        }
        for run in &late {
            self.signal_threads_of(run);
        }
        let some = !stopped.is_empty();
        self.queue().stopped.append(&mut stopped);
        some
    }

    /// Notes what a lane of the launch met with, and ends the launch or starts no more workgroups of it.
    pub fn report(self: &Arc<Shared>, run: &Arc<Run>, error: LaunchError) {
        if let LaunchError::WaveDied { .. } = error {
            run.outcome().error.get_or_insert(error);
            self.close(run);
        } else {
            self.stop(run, error);
        }
    }

    /// Interrupts the threads that are in a lane of the launch: one that never comes back is ended there.
    fn signal_threads_of(&self, run: &Run) {
        let queue = self.queue();
        for worker in &queue.workers {
            if worker.running.launch() == run.id {
                worker.running.hold.open();
                trap::interrupt(worker.pthread);
            }
        }
    }

    /// Sleeps while no launch runs, then for `tick`; false once the executor has shut down.
    pub fn watch(&self, tick: Duration) -> bool {
        let idle =
            |queue: &mut Queue| queue.active.is_empty() && queue.stopped.is_empty() && !queue.is_over();
        let queue = self.wake.wait_while(self.queue(), idle);
        let over = queue.is_over();
        drop(queue);
        if !over {
            thread::sleep(tick);
        }
        !over
    }
}
