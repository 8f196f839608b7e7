//! What follows from what has ended on the device.

use super::launched::LaunchOutcome;
use super::operation::{Dispatched, Kept};
use super::queue::{InFlight, StreamQueue, lock};
use crate::device::error::{Error, LaunchFailure};
use crate::device::seam::{DispatchFailure, Running};
use crate::device::waiting;
use hostcall_abi::launch::LaunchId;
use hostcall_server::CancelReason;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::Ordering;

impl StreamQueue {
    /// Does what follows from what has ended: takes posts, notes how launches ended, drops what they kept.
    ///
    /// Waits for handlers of posts if `patient`; else launches that posted stay unsettled until their posts are handled.
    pub(super) fn settle(&self, patient: bool) {
        if self.settled.load(Ordering::Acquire) >= self.reached().min(lock(&self.state).submitted) {
            return;
        }
        // A post that is handled inline may end up here.
        if waiting::is_in_handler() {
            return;
        }
        let mut garbage = Vec::new();
        let mut settling = lock(&self.settling);
        let reached = {
            let mut state = lock(&self.state);
            self.count(&mut state);
            self.reached().min(state.submitted)
        };
        if self.settled.load(Ordering::Acquire) >= reached {
            return;
        }
        // Read after `reached`, so that it has the posts of everything that has ended.
        let posted = self.words.last_posted();
        if posted != settling.posted {
            self.device.server.flush();
            settling.posted = posted;
        }
        let mut settled = 0;
        loop {
            let mut state = lock(&self.state);
            let Some(first) = state.in_flight.front().filter(|first| first.position <= reached) else {
                settled = reached;
                break;
            };
            let (position, launch) = (first.position, first.launch());
            let are_posts_handled = launch.is_none_or(|launch| self.device.server.is_settled(launch));
            if let (Some(launch), false) = (launch, are_posts_handled) {
                drop(state);
                if !patient {
                    break;
                }
                self.device.server.settle(launch);
                continue;
            }
            let Some(InFlight { kept, running, .. }) = state.in_flight.pop_front() else { break };
            drop(state);
            settled = position;
            if let Kept::Launch(launch) = &kept {
                self.retire(launch, running.as_deref());
            }
            garbage.push(kept);
        }
        self.settled.fetch_max(settled, Ordering::Release);
        drop(settling);
        for kept in garbage {
            // The last reference to a user's value may be here.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(kept))) {
                std::mem::forget(payload);
            }
        }
        {
            // What waited for this to be settled, such as a host function.
            let mut state = lock(&self.state);
            self.pump(&mut state);
        }
        *lock(&self.changes) += 1;
        self.changed.notify_all();
        let dependents = std::mem::take(&mut *lock(&self.dependents));
        for stream in dependents.iter().filter_map(Weak::upgrade) {
            stream.go_on();
        }
    }

    /// Notes how a launch ended.
    pub(super) fn retire(&self, launch: &Dispatched, running: Option<&dyn Running>) {
        let (device, state) = (&self.device, &launch.state);
        let (mut report, mut cancelled, mut fault) = (Default::default(), None, None);
        if state.id != LaunchId::NONE {
            device.forget_running(state.id);
            if let Some(running) = running {
                device.restore_lost_slots(running);
            }
            report = device.builtins.reports().take(state.id);
            cancelled = device.server.end(state.id).cancelled;
            fault = device.server.take_fault(state.id);
        }
        let failure = running.and_then(Running::outcome).and_then(|outcome| outcome.failure);
        let failure = fault.map(DispatchFailure::Fault).or(failure);
        let outcome = match (report.panic, report.exit_code, failure, cancelled) {
            (first @ Some(_), ..) => Err(LaunchFailure::Panicked { first, others: report.other_panics }),
            (None, _, Some(DispatchFailure::Panicked { lanes }), _) => {
                Err(LaunchFailure::Panicked { first: None, others: lanes.saturating_sub(1) })
            }
            (None, _, Some(DispatchFailure::Fault(why)), _) => Err(LaunchFailure::Fault(why)),
            // A program that exits ends its other lanes.
            (None, exit_code @ Some(_), ..) => Ok(LaunchOutcome { exit_code }),
            (None, None, _, Some(CancelReason::TimedOut)) => Err(LaunchFailure::TimedOut),
            (None, None, _, Some(CancelReason::BrokenSlot)) => {
                Err(LaunchFailure::Fault("it wrote into a slot what makes no sense".into()))
            }
            // To a device, lanes that learned of the cancellation from a call and returned have ended in order.
            (None, None, _, Some(_)) | (None, None, Some(DispatchFailure::Cancelled), None) => {
                Err(LaunchFailure::Cancelled)
            }
            (None, None, None, None) => match self.dead.get() {
                Some(error) => Err(LaunchFailure::Fault(error.to_string())),
                None => Ok(LaunchOutcome::default()),
            },
        };
        let mut queue = lock(&self.state);
        let is_stopped = queue.stop.is_some_and(|stop| state.sequence > stop);
        let has_exited = matches!(cancelled, Some(CancelReason::Exited(_)));
        let ends_stream = outcome.is_err() || has_exited;
        let outcome = match outcome {
            Ok(LaunchOutcome { exit_code: None }) if is_stopped => Err(LaunchFailure::Skipped),
            outcome => outcome,
        };
        let outcome = state.outcome.get_or_init(|| outcome).clone();
        if ends_stream {
            queue.stop = Some(queue.stop.unwrap_or(u64::MAX).min(state.sequence));
        }
        if let Err(failure) = outcome {
            let kernel = state.kernel.to_string();
            // Those that were skipped follow a launch whose end was told, or the device's end.
            queue.failed.get_or_insert(Error::Launch { kernel, failure });
        }
    }
}
