//! Waiting for a stream.

use super::operation::Operation;
use super::queue::StreamQueue;
use super::settle::Patience;
use super::stops::Told;
use crate::device::error::Error;
use crate::device::reaper::Tended as _;
use crate::device::waiting::{self, Waits};
use hostcall_seam::Running;
use hostcall_server::LaunchRecord;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a waiting thread polls without a pause. A pause makes it late by some ten microseconds.
const SPIN: Duration = Duration::from_millis(5);

/// The pause between polls afterwards. It does not grow, so that an end is noticed as soon after an hour as after a
/// second.
const PAUSE: Duration = Duration::from_micros(20);

/// Longest sleep of a thread that a device wakes. It bounds nothing but how late a mistake of a device's is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The pauses between looks at what has ended on the device and is not settled yet: the first, which doubles, and the longest.
const LOOK_AFTER: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// How often a device is asked whether it failed, while a signal is long in coming.
const CHECK_EVERY: Duration = Duration::from_millis(20);

impl StreamQueue {
    /// Says whether a position was settled and what was printed until then is written. It waits for no kernel
    /// and no handler, but for another thread that settles, and up to [`Patience::Short`] for the server to
    /// take the posts of what has ended.
    pub fn is_settled(&self, position: u64) -> bool {
        if self.settled.load(Ordering::Acquire) < position {
            self.want(position);
            self.settle(position, Patience::Short);
        }
        let sink = self.device.builtins.stdio().sink();
        self.settled.load(Ordering::Acquire) >= position && sink.has_written(self.prints.up_to(position))
    }

    /// Waits until what the stream's kernels printed up to a settled position is written, unless a handler would wait. Returns
    /// whether it is.
    fn write_prints(&self, position: u64, deadline: Option<Instant>) -> bool {
        let (sink, printed) = (self.device.builtins.stdio().sink(), self.prints.up_to(position));
        // Whoever reads the output asks for its failures.
        waiting::is_in_handler() || sink.wait_written(printed, deadline).unwrap_or(true)
    }

    /// Refuses to wait for a position on a thread for which that position waits. The thread waits while
    /// what is returned lives, until the deadline at most.
    pub fn may_wait(
        &self,
        position: u64,
        operation: &'static str,
        deadline: Option<Instant>,
    ) -> Result<Waits, Error> {
        self.device.core.check_process()?;
        if self.settled.load(Ordering::Acquire) >= position {
            return Ok(Waits::NONE);
        }
        waiting::may_wait(&self.device.core, vec![self.point(position)], operation, deadline)
    }

    /// Waits until a position is settled and what was printed up to there is written, at most `limit` if
    /// there is one. Returns whether it is so.
    ///
    /// # Errors
    /// When the position waits for what the thread does.
    pub fn wait_for(
        &self,
        position: u64,
        operation: &'static str,
        limit: Option<Duration>,
    ) -> Result<bool, Error> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let _waits = self.may_wait(position, operation, deadline)?;
        Ok(self.wait_limited(position, deadline))
    }

    /// Returns the error of a wait for a position that has not ended within a limit.
    pub fn timed_out(&self, what: &'static str, position: u64, limit: Duration) -> Error {
        self.device.timed_out(what, limit, || self.running(position))
    }

    /// Returns the launch that the device runs, or is to run next, of the operations up to a position. What is behind it has not
    /// begun, and so keeps nothing from ending.
    fn running(&self, position: u64) -> Option<LaunchRecord> {
        let reached = self.reached();
        // A driver may be waited for under it.
        let state = self.state.try_lock()?;
        let has_ended = |running: &Arc<dyn Running>| running.outcome().is_some();
        let first = state.in_flight.iter().find(|operation| {
            let all = &operation.running;
            operation.position > reached && (all.is_empty() || !all.iter().all(has_ended))
        });
        let first = first.filter(|first| first.position <= position)?;
        let id = match &first.operation {
            Operation::Launch(launch) => launch.state.id,
            Operation::List(list) => {
                let at = first.running.iter().position(|running| !has_ended(running))?;
                list.launches.ids().nth(at)?
            }
            _ => return None,
        };
        drop(state);
        self.device.server.launches().record(id)
    }

    /// Waits until a position is settled and what was printed up to there is written, at most until the deadline. Returns
    /// whether it is so.
    pub fn wait_limited(&self, position: u64, deadline: Option<Instant>) -> bool {
        self.settle_limited(position, deadline) && self.write_prints(position, deadline)
    }

    /// Waits until a position is settled, but not until what was printed is written.
    fn settle_limited(&self, position: u64, deadline: Option<Instant>) -> bool {
        let begin = Instant::now();
        let (mut checked, mut polls, mut look_after) = (begin, 0u32, LOOK_AFTER[0]);
        loop {
            let changes = *self.changes.lock();
            let mut looks = self.want(position);
            let posting = self.settle(position, Patience::Short);
            if self.settled.load(Ordering::Acquire) >= position {
                return true;
            }
            let has_ended = self.reached() >= position;
            if has_ended {
                // In a handler it is the reaper that settles.
                self.reaper().wake();
            }
            if let (Some(launches), None) = (posting, deadline) {
                self.device.server.wait_for_posts(launches);
                continue;
            }
            if self.device_queue.calls_progress() || has_ended {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return false;
                }
                let mut most = LONGEST_SLEEP;
                if has_ended {
                    most = look_after;
                    look_after = (2 * look_after).min(LOOK_AFTER[1]);
                }
                let pause = left.unwrap_or(most).min(most);
                let unseen = |now: &mut u64| *now == changes;
                drop(self.changed.wait_timeout_while(self.changes.lock(), pause, unseen));
                continue;
            }
            // Polls memory, without a lock, for as long as nothing has happened, and the driver only if nothing else tells.
            let reached = self.reached();
            while self.reached() == reached && self.settled.load(Ordering::Relaxed) < position {
                polls = polls.wrapping_add(1);
                std::hint::spin_loop();
                if !polls.is_multiple_of(256) {
                    continue;
                }
                looks = looks && self.device_queue.poll(position);
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return false;
                }
                if now - begin > SPIN {
                    std::thread::sleep(PAUSE);
                }
                if now - checked > CHECK_EVERY {
                    checked = now;
                    self.check();
                }
            }
        }
    }

    /// Waits until a position is settled and what was printed up to there is written. Calls `tell` when it is
    /// not after `limit`, and waits on.
    pub fn wait_or_tell(&self, position: u64, limit: Duration, tell: impl FnOnce()) {
        if !self.settle_limited(position, Instant::now().checked_add(limit)) {
            tell();
        }
        self.wait_limited(position, None);
    }

    /// Waits for everything so far, and tells the first failure. Then the stream goes on: what was pushed up to now does not begin
    /// any more, what is pushed later does.
    pub fn synchronize(&self, deadline: Option<Instant>) -> Result<(), Option<Error>> {
        self.device.core.check_process().map_err(Some)?;
        let last = self.last_asked();
        let _waits = self.may_wait(last, "`synchronize`", deadline).map_err(Some)?;
        if !self.wait_limited(last, deadline) {
            return Err(None);
        }
        self.tell_failure().map_err(Some)
    }

    /// Tells the first failure, after which the stream goes on with what is pushed from now on.
    fn tell_failure(&self) -> Result<(), Error> {
        // With `pushing`, so that no launch is skipped that nobody is told of.
        let pushing = self.pushing.lock();
        let mut state = self.state.lock();
        let ended = state.ended;
        state.stops.tell(ended, Told { sequence: pushing.sequence, position: pushing.position });
        state.failed.take().map_or_else(|| self.check_kept(pushing.position), Err)
    }

    /// Notes that what is at a position has printed.
    pub(super) fn note_printed(&self, position: u64, appended: u64) {
        let sink = self.device.builtins.stdio().sink();
        self.prints.note(position, appended, |amount| sink.has_written(amount));
    }

    /// For the step of a replay, which alone uses this queue: waits until all of a body is settled, and tells the first
    /// failure. What was printed is waited for with `stream`, the replay's.
    pub fn finish_body(&self, stream: &StreamQueue) -> Result<(), Error> {
        self.settle_limited(self.last(), None);
        let (step, printed) = (stream.settled.load(Ordering::Acquire) + 1, self.prints.up_to(u64::MAX));
        if printed > 0 {
            stream.note_printed(step, printed);
        }
        self.tell_failure()
    }

    /// Takes the failure that nobody was told of.
    pub fn take_failure(&self) -> Option<Error> {
        self.state.lock().failed.take()
    }

    /// Fails when what was at a position may not have been done: the device failed, or was closed before.
    pub fn check_done(&self, position: u64) -> Result<(), Error> {
        if let Some(error) = self.dead.get() {
            return Err(error.clone().into());
        }
        self.check_kept(position)
    }

    /// Fails when what was at a position, or before it, was dropped since the device was closed.
    pub fn check_kept(&self, position: u64) -> Result<(), Error> {
        match self.dropped_from.load(Ordering::SeqCst) <= position {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }
}
