//! Threads of the executor: each sits on a seat, is away in a lane, or waits for a seat.

use crate::executor::{Queue, Shared};
use crate::hold::Hold;
use crate::seat::{Left, Seat};
use crate::trap::{self, Signals};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

/// A thread without a seat ends when it has not got one for this long.
const SPARE_LIFE: Duration = Duration::from_secs(1);

/// A thread that has not ended. In [`Queue::workers`], so it can be signalled under the queue's lock.
pub(crate) struct Worker {
    pub pthread: libc::pthread_t,
    /// Index of the seat that it sits on. Changed under the queue's lock.
    pub seat: Option<usize>,
    pub running: Arc<ThreadState>,
}

impl Worker {
    /// Whether the thread is in a lane that took it away from its seat.
    pub fn is_away(&self) -> bool {
        self.seat.is_none() && self.running.launch() != 0
    }
}

/// What a thread does just now.
#[derive(Default)]
pub(crate) struct ThreadState {
    launch: AtomicU64,
    pub hold: Hold,
    /// Of the thread's own signal handlers.
    pub signals: Signals,
}

// SAFETY: but for `signals`, which the thread alone uses, these are atomics.
unsafe impl Sync for ThreadState {}
// SAFETY: as above.
unsafe impl Send for ThreadState {}

impl ThreadState {
    /// The launch whose lanes it runs, or 0. A hint for whom to signal.
    pub fn launch(&self) -> u64 {
        self.launch.load(Ordering::Relaxed)
    }

    /// Notes that lanes of this launch run next.
    pub fn enter(&self, launch: u64) {
        if self.launch() != launch {
            self.launch.store(launch, Ordering::Relaxed);
        }
    }
}

/// Starts a thread that takes seats.
pub(crate) fn hire(shared: &Arc<Shared>, queue: &mut Queue) -> io::Result<()> {
    queue.hired += 1;
    let name = format!("softdev-{}", queue.hired - 1);
    let theirs = Arc::clone(shared);
    let work = move || {
        let running = Arc::new(ThreadState::default());
        trap::with_signals(&running, || work(&theirs, &running));
    };
    let thread = thread::Builder::new().name(name).spawn(work)?;
    // Those that ended are forgotten here, the others joined when the executor is dropped.
    queue.threads.retain(|thread| !thread.is_finished());
    queue.threads.push(thread);
    queue.unseated += 1;
    Ok(())
}

/// A thread, from its start to its end.
fn work(shared: &Arc<Shared>, running: &Arc<ThreadState>) {
    // SAFETY: sets how exactly this thread's sleeps end, in nanoseconds; the result does not matter.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000usize) };
    // SAFETY: has no preconditions.
    let pthread = unsafe { libc::pthread_self() };
    shared.queue().workers.push(Worker { pthread, seat: None, running: Arc::clone(running) });
    while let Some(seat) = take_seat(shared, pthread) {
        let left = seat.sit(running);
        running.hold.open();
        let mut queue = shared.queue();
        queue.unseated += 1;
        if let Left::Closed = left {
            queue.open_seats -= 1;
            queue.worker(pthread).seat = None;
            drop(queue);
            shared.announce();
            shared.vacancy.notify_all();
        }
    }
}

/// Offers a seat that lost its thread to another one, if nobody has done so.
pub(crate) fn fill(shared: &Shared, seat: &Arc<Seat>) {
    let mut queue = shared.queue();
    if !seat.vacant.swap(false, Ordering::Acquire) {
        return;
    }
    for worker in &mut queue.workers {
        worker.seat = worker.seat.filter(|&index| index != seat.index);
    }
    queue.vacancies.push(Arc::clone(seat));
    drop(queue);
    shared.vacancy.notify_one();
}

/// Starts a thread for a vacant seat when no thread waits for it.
pub(crate) fn staff(shared: &Arc<Shared>) {
    let mut queue = shared.queue();
    if queue.unseated < queue.vacancies.len() {
        // The watch's next look tries again.
        let _ = hire(shared, &mut queue);
    }
}

/// Waits for a seat; `None` when the thread shall end.
fn take_seat(shared: &Shared, pthread: libc::pthread_t) -> Option<Arc<Seat>> {
    let mut queue = shared.queue();
    loop {
        if let Some(seat) = queue.vacancies.pop() {
            queue.unseated -= 1;
            queue.worker(pthread).seat = Some(seat.index);
            return Some(seat);
        }
        let waiting = |queue: &mut Queue| queue.vacancies.is_empty() && !queue.is_over();
        let waited = shared.vacancy.wait_timeout_while(queue, SPARE_LIFE, waiting);
        queue = waited.0;
        if queue.vacancies.is_empty() {
            queue.unseated -= 1;
            queue.workers.retain(|worker| worker.pthread != pthread);
            return None;
        }
    }
}
