//! Ending launches early: `cancel` ends one, `cancel_unit` and `cancel_all` call it for several. ARCHITECTURE.md, "A
//! cancellation", has what follows.

use super::launched::LaunchState;
use super::operation::Operation;
use super::queue::{InFlight, StreamQueue, Waiting};
use crate::device::error::LaunchFailure;
use crate::device::reaper::Tended as _;
use hostcall_abi::launch::LaunchId;
use hostcall_seam::{DeviceKind, Running};
use hostcall_server::CancelReason;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a launch that is to be ended is looked at first. A device that has to be asked needs some microseconds, and no
/// caller feels more.
const LONGEST_LOOK: Duration = Duration::from_micros(30);

/// Whether a launch has run to its end.
fn has_ended_well(running: &Arc<dyn Running>) -> bool {
    running.outcome().is_some_and(|end| end.failure.is_none())
}

impl StreamQueue {
    /// Ends a launch, and lets no later one of the stream begin. One that has ended is left alone, and so is the stream.
    pub fn cancel(&self, launch: &LaunchState, why: CancelReason) {
        if launch.outcome.get().is_some() || self.settled.load(Ordering::Acquire) >= launch.position {
            return;
        }
        if self.device.core.is_forked() {
            return;
        }
        self.look_whether_ended(launch.position);
        let mut state = self.state.lock();
        if let Some(step) = state.step.clone().filter(|step| step.sequence == launch.sequence) {
            drop(state);
            step.cancel(why);
            return;
        }
        if state.submitted >= launch.position {
            let flying = state.in_flight.iter().find(|flying| flying.position == launch.position);
            // One that is not there has ended, and is noted with how it ended.
            let Some(flying) = flying else { return };
            if self.has_ended(flying, self.reached()) {
                return;
            }
            let (launches, running) = (flying.launches(), flying.running.clone());
            if matches!(&flying.operation, Operation::Launch(dispatched) if dispatched.parts.runs_to_end) {
                let _ = launch.cancelled.set(why);
            }
            // Before anybody is told of the cancellation: lanes may end as soon as they learn of it. The first one counts.
            if let Operation::List(list) = &flying.operation
                && !running.is_empty()
            {
                let ended = running.iter().take_while(|running| has_ended_well(running)).count();
                let _ = list.had_ended.set(ended as u32);
            }
            // With the words, so that the stream starts again whatever the launch's end is.
            state.stops.add(launch.sequence);
            drop(state);
            // Where that waits for no driver, the words come first: the next launch begins as soon as the lanes have ended.
            if self.device.properties().kind == DeviceKind::Software {
                self.words.stop_from(launch.sequence);
            }
            // Not under `state`: to store the words may wait for the driver. A list ends as a whole. Those of a list that have
            // not begun do not, since the words say so.
            if let Some(launches) = launches {
                self.device.server.cancel(launches, why);
            }
            self.words.stop_from(launch.sequence);
            for running in running {
                running.cancel();
            }
            return;
        }
        // It is still here, and is skipped when its turn comes, as are those after it.
        let failure = match why {
            CancelReason::TimedOut => LaunchFailure::TimedOut,
            _ => LaunchFailure::Cancelled,
        };
        launch.outcome.fail(failure);
        state.stops.add(launch.sequence);
        let is_list = |waiting: &Waiting| {
            waiting.position == launch.position && matches!(waiting.operation, Operation::List(_))
        };
        let is_of_list = state.waiting.iter().any(is_list);
        self.pump(&mut state);
        drop(state);
        // None of a list's launches has begun: its end is that of the first.
        if !is_of_list {
            self.device.cancel(launch.id, why);
        }
        self.progressed();
    }

    /// Cancels everything that has not ended.
    pub fn cancel_all(&self, why: CancelReason) {
        self.cancel_unit(u64::MAX, 0..=u64::MAX, why);
    }

    /// Cancels a unit whose end has this position, unless it has ended: those launches that have not ended
    /// whose sequences these are, and so all after the first of them.
    pub fn cancel_unit(&self, end: u64, sequences: RangeInclusive<u64>, why: CancelReason) {
        if self.settled.load(Ordering::Acquire) >= end {
            return;
        }
        let last = self.state.lock().submitted;
        self.look_whether_ended(last);
        let (launches, step): (Vec<Arc<LaunchState>>, _) = {
            let state = self.state.lock();
            let reached = self.reached();
            // All are looked at before any is cancelled: what ends after that may have ended because of it.
            let in_flight = state.in_flight.iter().skip_while(|flying| self.has_ended(flying, reached));
            let in_flight = in_flight.filter_map(|flying| match &flying.operation {
                Operation::Launch(launch) => Some(&launch.state),
                Operation::List(list) => Some(&list.first),
                _ => None,
            });
            // Those after it do not begin once the first of those that wait is cancelled.
            let is_meant = |launch: &&Arc<LaunchState>| sequences.contains(&launch.sequence);
            let waiting = state.waiting.iter().filter_map(|waiting| waiting.operation.launch());
            let waiting = waiting.filter(is_meant).take(1);
            let launches = in_flight.filter(is_meant).chain(waiting).cloned().collect();
            (launches, state.step.clone().filter(|step| sequences.contains(&step.sequence)))
        };
        if let Some(step) = step {
            step.cancel(why);
        }
        for launch in launches {
            self.cancel(&launch, why);
        }
    }

    /// Looks whether a position has ended, for somebody who is about to end it. A device that has to be asked answers within
    /// microseconds.
    fn look_whether_ended(&self, position: u64) {
        let begin = Instant::now();
        self.want(position);
        while !self.calls_progress() && self.reached() < position && begin.elapsed() < LONGEST_LOOK {
            self.device_queue.poll(position);
        }
    }

    /// Whether all launches of an operation have ended, as far as the device says, and nothing that they said is left to handle.
    fn has_ended(&self, flying: &InFlight, reached: u64) -> bool {
        let has_ended = flying.position <= reached
            || !flying.running.is_empty() && flying.running.iter().all(has_ended_well);
        has_ended && flying.launches().is_none_or(|launches| self.device.server.has_handled_posts(launches))
    }

    /// Has `end` end something of the stream when `limit` has passed from now on. It does nothing where that
    /// `is_over`.
    pub fn limit<T: Send + Sync + 'static>(
        &self,
        limit: Duration,
        what: &Arc<T>,
        is_over: fn(&T) -> bool,
        end: fn(&Self, &T),
    ) {
        let Some(deadline) = Instant::now().checked_add(limit) else { return };
        let (stream, ended, limited) = (self.this.clone(), what.clone(), what.clone());
        let end = move || {
            if let Some(stream) = stream.upgrade() {
                end(&stream, &limited);
            }
        };
        self.reaper().limit(deadline, move || is_over(&ended), end);
    }

    /// Says which launch the stream is at: the first with the device that has not ended.
    pub fn under_way(&self) -> Option<String> {
        let state = self.state.lock();
        let launch = state.in_flight.iter().find_map(|flying| match &flying.operation {
            Operation::Launch(launch) => Some(&launch.state),
            Operation::List(list) => Some(&list.first),
            _ => None,
        })?;
        let (id, kernel) = (launch.id, &launch.kernel);
        Some(if id == LaunchId::NONE { format!("{kernel}") } else { format!("launch {id} of {kernel}") })
    }
}
