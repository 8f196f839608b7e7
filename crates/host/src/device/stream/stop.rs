//! Ending launches early.

use super::launched::LaunchState;
use super::operation::{Kept, Operation};
use super::queue::{StreamQueue, Waiting, lock};
use super::reaper::Limited;
use crate::device::DeviceKind;
use crate::device::error::LaunchFailure;
use crate::device::graph::ReplayState;
use crate::device::seam::Running;
use crate::device::uses::Point;
use hostcall_abi::launch::LaunchId;
use hostcall_server::CancelReason;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl StreamQueue {
    /// Ends a launch, and lets no later one of the stream begin.
    pub fn cancel(&self, launch: &LaunchState, why: CancelReason) {
        if launch.outcome.get().is_some() || self.settled.load(Ordering::Acquire) >= launch.position {
            return;
        }
        let mut state = lock(&self.state);
        if let Some(step) = state.step.clone().filter(|step| step.sequence == launch.sequence) {
            drop(state);
            step.cancel(why);
            return;
        }
        if state.submitted >= launch.position {
            let flying = state.in_flight.iter().find(|flying| flying.position == launch.position);
            // One that is not there has ended, and is noted with how it ended.
            let Some(flying) = flying else { return };
            let (launches, running) = (flying.launches(), flying.running.clone());
            if matches!(&flying.kept, Kept::Launch(dispatched) if dispatched.parts.runs_to_end) {
                let _ = launch.cancelled.set(why);
            }
            // Before anybody is told of the cancellation: lanes may end as soon as they learn of it.
            let has_ended =
                |running: &&Arc<dyn Running>| running.outcome().is_some_and(|end| end.failure.is_none());
            let ended = match &flying.kept {
                _ if !running.is_empty() => Some(running.iter().take_while(has_ended).count() as u32),
                Kept::Launch(_) => Some(u32::from(flying.position <= self.reached())),
                _ => None,
            };
            if let Some(ended) = ended {
                // The first cancellation counts: what ends after it may have ended because of it.
                let _ = launch.had_ended.set(ended);
            }
            // With the words, so that the stream starts again whatever the launch's end is.
            state.stop_from(launch.sequence);
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
        let _ = launch.outcome.set(Err(failure));
        state.stop_from(launch.sequence);
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
        self.cancel_between(0..=u64::MAX, why);
    }

    /// Cancels those launches that have not ended whose sequences these are, and so all after the first of them.
    pub fn cancel_between(&self, sequences: RangeInclusive<u64>, why: CancelReason) {
        let (launches, step): (Vec<Arc<LaunchState>>, _) = {
            let state = lock(&self.state);
            let in_flight = state.in_flight.iter().filter_map(|flying| match &flying.kept {
                Kept::Launch(launch) => Some(launch.state.clone()),
                Kept::List(list) => Some(list.first.clone()),
                _ => None,
            });
            // Those after it do not begin once the first of those that wait is cancelled.
            let is_meant = |launch: &Arc<LaunchState>| sequences.contains(&launch.sequence);
            let waiting = state.waiting.iter().filter_map(|waiting| waiting.operation.launch().cloned());
            let launches = in_flight.filter(is_meant).chain(waiting.filter(is_meant).take(1)).collect();
            (launches, state.step.clone().filter(|step| sequences.contains(&step.sequence)))
        };
        if let Some(step) = step {
            step.cancel(why);
        }
        for launch in launches {
            self.cancel(&launch, why);
        }
    }

    /// Cancels a replay, unless it has ended.
    pub fn cancel_replay(&self, replay: &ReplayState, why: CancelReason) {
        if self.settled.load(Ordering::Acquire) < replay.position {
            self.cancel_between(replay.sequences.clone(), why);
        }
    }

    /// Cancels a replay when a time has come.
    pub fn limit_replay(&self, replay: &Arc<ReplayState>, deadline: Instant) {
        let stream = self.this.upgrade().expect("it is borrowed");
        self.reaper().limit(deadline, &stream, Limited::Replay(replay.clone()));
    }

    /// Cancels a launch when a time has come.
    pub fn limit(&self, launch: &Arc<LaunchState>, deadline: Instant) {
        let stream = self.this.upgrade().expect("it is borrowed");
        self.reaper().limit(deadline, &stream, Limited::Launch(launch.clone()));
    }

    /// Lets no launch from `sequence` on begin on the device.
    pub fn stop_from(&self, sequence: u64) {
        self.words.stop_from(sequence);
    }

    /// Returns the kernel and the point of a launch that is with the device, if it is this stream's.
    pub fn find(&self, id: LaunchId) -> Option<(String, Point)> {
        let state = lock(&self.state);
        let found = state.in_flight.iter().find_map(|flying| match &flying.kept {
            Kept::Launch(launch) if launch.state.id == id => {
                Some((launch.state.kernel.to_string(), flying.position))
            }
            Kept::List(list) => {
                let place = list.launches.place_of(id)?;
                Some((list.launch(place).kernel.to_string(), flying.position))
            }
            _ => None,
        });
        drop(state);
        let (kernel, position) = found?;
        Some((kernel, self.point(position)))
    }

    /// Says which launch the stream is at: the first with the device that has not ended.
    pub fn under_way(&self) -> Option<String> {
        let state = lock(&self.state);
        let launch = state.in_flight.iter().find_map(|flying| match &flying.kept {
            Kept::Launch(launch) => Some(&launch.state),
            Kept::List(list) => Some(&list.first),
            _ => None,
        })?;
        let (id, kernel) = (launch.id, &launch.kernel);
        Some(if id == LaunchId::NONE { format!("{kernel}") } else { format!("launch {id} of {kernel}") })
    }
}
