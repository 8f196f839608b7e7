//! What follows from what has ended on the device.

use super::launched::{LaunchOutcome, LaunchState};
use super::operation::{Dispatched, Kept};
use super::queue::{InFlight, Settling, State, StreamQueue, lock};
use crate::device::error::{Error, LaunchFailure};
use crate::device::graph::NodeFailure;
use crate::device::seam::{DeviceFault, DeviceFaultKind, DispatchFailure, Running};
use crate::device::waiting;
use hostcall_abi::launch::LaunchId;
use hostcall_server::CancelReason;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{TryLockError, Weak};
use std::time::{Duration, Instant};

/// How long [`Patience::Short`] is.
const SHORT_FLUSH: Duration = Duration::from_micros(200);

/// Most launches whose memory a stream keeps for later ones: those that end while a busy stream is looked at once.
const MOST_SPARE: usize = 1024;

/// How long whoever settles waits for the posts of what has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all. Nor does it drop a value of the user's, whose code may want a lock that the caller holds.
    None,
    /// For the server to take them, as long as that takes some passes of a consumer: launches that posted may stay unsettled.
    Short,
    /// For their handlers.
    Endless,
}

impl StreamQueue {
    /// Does what follows from what has ended: takes posts, notes how launches ended, drops what they kept.
    pub(super) fn settle(&self, patience: Patience) {
        if self.settled.load(Ordering::Acquire) >= self.reached().min(lock(&self.state).submitted) {
            return;
        }
        // A handler must not wait for posts of its own kernel; the reaper settles.
        if waiting::is_in_handler() {
            return;
        }
        let mut garbage = Vec::new();
        let mut settling = match self.settling.try_lock() {
            Ok(settling) => settling,
            Err(TryLockError::Poisoned(settling)) => settling.into_inner(),
            // Whoever settles may wait for users' handlers of posts.
            Err(TryLockError::WouldBlock) if patience == Patience::Endless => lock(&self.settling),
            Err(TryLockError::WouldBlock) => return,
        };
        let Some(reached) = self.take_posts(&mut settling, patience) else { return };
        let mut have_printed = false;
        let mut settled = 0;
        loop {
            let is_over = |flying: &&InFlight| {
                flying.position <= reached
                    && (patience != Patience::None || !flying.has_values())
                    && flying.launch().is_none_or(|launch| self.device.server.is_settled(launch))
            };
            // Many at a time, since whoever pushes needs the lock too.
            let mut state = lock(&self.state);
            let count = state.in_flight.iter().take_while(is_over).count();
            if count == 0 {
                let first = state.in_flight.front().filter(|first| first.position <= reached);
                let posting = first.and_then(InFlight::launch);
                let is_last = first.is_none();
                drop(state);
                match posting {
                    Some(launch) if patience == Patience::Endless => self.device.server.settle(launch),
                    Some(_) => break,
                    None if !is_last => break,
                    None => {
                        settled = reached;
                        break;
                    }
                }
                continue;
            }
            let ended: Vec<InFlight> = state.in_flight.drain(..count).collect();
            drop(state);
            settled = ended.last().map_or(settled, |last| last.position);
            let ends: Vec<_> = ended.iter().filter_map(|flying| self.end_of(flying)).collect();
            let mut state = lock(&self.state);
            for end in ends {
                settling.sequence = end.launch.sequence;
                self.note_end(&mut state, end);
            }
            drop(state);
            for flying in &ended {
                have_printed |= self.has_printed(flying);
            }
            garbage.extend(ended);
        }
        if have_printed {
            self.printed.fetch_max(self.device.builtins.stdio().sink().appended(), Ordering::Release);
        }
        self.settled.fetch_max(settled, Ordering::Release);
        drop(settling);
        let mut spare = Vec::with_capacity(garbage.len().min(MOST_SPARE));
        for flying in garbage {
            // The last reference to a user's value may be here.
            let clear = || match flying.kept {
                Kept::Launch(Dispatched { mut parts, .. }) if spare.len() < MOST_SPARE => {
                    parts.clear();
                    spare.push(parts);
                }
                kept => drop(kept),
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(clear)) {
                std::mem::forget(payload);
            }
        }
        {
            let mut spares = lock(&self.spare);
            let room = MOST_SPARE.saturating_sub(spares.len());
            spares.extend(spare.drain(..room.min(spare.len())));
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

    /// Has the server take the posts of what has ended, and returns up to where it has. `None` when nothing new has ended, or
    /// when there is no room for the posts and the caller does not wait.
    fn take_posts(&self, settling: &mut Settling, patience: Patience) -> Option<u64> {
        let begin = Instant::now();
        loop {
            let reached = {
                let mut state = lock(&self.state);
                self.count(&mut state);
                self.reached().min(state.submitted)
            };
            let settled = self.settled.load(Ordering::Acquire);
            if let Some((flush, upto)) = settling.flush.take() {
                if patience == Patience::Endless {
                    flush.wait();
                } else {
                    while !flush.is_done() {
                        if patience == Patience::None || begin.elapsed() > SHORT_FLUSH {
                            settling.flush = Some((flush, upto));
                            return None;
                        }
                        std::thread::yield_now();
                    }
                }
                if upto > settled {
                    return Some(upto);
                }
                continue;
            }
            if reached <= settled {
                return None;
            }
            // Read after `reached`, so that it counts the posts of everything that has ended. A launch that was settled posts
            // no more, and each that posts after it stores a larger sequence.
            let last_posted = self.words.last_posted();
            if last_posted <= settling.sequence {
                return Some(reached);
            }
            let posting = {
                let state = lock(&self.state);
                let ended = state.in_flight.iter().take_while(|flying| flying.position <= reached);
                let launches = ended.filter_map(|flying| match &flying.kept {
                    Kept::Launch(launch) if launch.state.sequence <= last_posted => flying.launch(),
                    _ => None,
                });
                launches.collect()
            };
            settling.flush = Some((self.device.server.begin_flush_of(posting), reached));
        }
    }

    /// Returns whether a launch that has ended has printed. What a program prints by another protocol is not known by launches.
    fn has_printed(&self, flying: &InFlight) -> bool {
        let Kept::Launch(launch) = &flying.kept else { return false };
        let id = launch.state.id;
        id == LaunchId::NONE || self.device.builtins.stdio().take_printing(id)
    }

    /// Says how a launch ended, and lets server and device forget it.
    fn end_of<'a>(&self, flying: &'a InFlight) -> Option<End<'a>> {
        if let Kept::Step { state, .. } = &flying.kept {
            return Some(End { launch: state, outcome: Ok(LaunchOutcome::default()), has_exited: false });
        }
        let Kept::Launch(launch) = &flying.kept else { return None };
        let (device, launch, running) = (&self.device, &*launch.state, flying.running.as_deref());
        let (mut report, mut cancelled, mut fault) = (Default::default(), None, None);
        if launch.id != LaunchId::NONE {
            if let Some(running) = running {
                device.forget_running(launch.id);
                device.restore_lost_slots(running);
            }
            report = device.builtins.reports().take(launch.id);
            cancelled = device.server.end(launch.id).cancelled;
            if launch.node.is_some() {
                device.origins.leave(launch.id);
            }
            let of_kind = |kind| move |reason| DeviceFault { kind, reason };
            fault = device.server.take_fault(launch.id).map(of_kind(DeviceFaultKind::Channel));
            fault = fault.or_else(|| device.server.failure().map(of_kind(DeviceFaultKind::Server)));
        }
        let failure = running.and_then(Running::outcome).and_then(|outcome| outcome.failure);
        let failure = fault.map(DispatchFailure::Fault).or(failure);
        let outcome = match (report.panic, report.exit_code, failure, cancelled) {
            (first @ Some(_), ..) => Err(LaunchFailure::Panicked { first, others: report.other_panics }),
            // Lanes may also panic because of what their calls return once the launch is cancelled.
            (
                None,
                None,
                Some(DispatchFailure::Panicked { lanes }),
                None | Some(CancelReason::Failed | CancelReason::Panicked),
            ) => Err(LaunchFailure::Panicked { first: None, others: lanes.saturating_sub(1) }),
            (None, _, Some(DispatchFailure::Fault(fault)), _) => Err(LaunchFailure::Fault(fault)),
            // A program that exits ends its other lanes.
            (None, exit_code @ Some(_), ..) => Ok(LaunchOutcome { exit_code }),
            (None, None, _, Some(CancelReason::TimedOut)) => Err(LaunchFailure::TimedOut),
            (None, None, _, Some(CancelReason::BrokenSlot)) => {
                let reason = "it wrote into a slot what makes no sense".into();
                Err(LaunchFailure::Fault(DeviceFault { kind: DeviceFaultKind::Channel, reason }))
            }
            // A device says nothing of a launch whose lanes learned of the cancellation from their calls and returned.
            (None, None, _, Some(_)) | (None, None, Some(DispatchFailure::Cancelled), None) => {
                Err(LaunchFailure::Cancelled)
            }
            (None, None, None, None) => match self.dead.get() {
                Some(error) => Err(LaunchFailure::Fault(error.clone().into())),
                None => Ok(LaunchOutcome::default()),
            },
        };
        // No lane is left that would close them; what a launch that ended well left open may be in a static.
        if launch.id != LaunchId::NONE && (outcome.is_err() || cancelled.is_some()) {
            device.builtins.files().close_of(launch.id);
        }
        if launch.id != LaunchId::NONE {
            device.builtins.files().unmap_of(launch.id);
        }
        let has_exited = matches!(cancelled, Some(CancelReason::Exited(_)));
        Some(End { launch, outcome, has_exited })
    }

    /// Notes how a launch ended.
    fn note_end(&self, queue: &mut State, end: End<'_>) {
        let End { launch, outcome, has_exited } = end;
        let is_stopped = queue.stop.is_some_and(|stop| launch.sequence > stop);
        let ends_stream = outcome.is_err() || has_exited;
        let outcome = match outcome {
            Ok(LaunchOutcome { exit_code: None }) if is_stopped => Err(LaunchFailure::Skipped),
            outcome => outcome,
        };
        let outcome = launch.outcome.get_or_init(|| outcome);
        if ends_stream {
            queue.stop = Some(queue.stop.unwrap_or(u64::MAX).min(launch.sequence));
        }
        if let Err(failure) = outcome {
            let error = match &launch.node {
                Some(node) => node.fail(NodeFailure::Launch(failure.clone())),
                None => Error::Launch { kernel: launch.kernel.to_string(), failure: failure.clone() },
            };
            // Those that were skipped follow a launch whose end was told, or the device's end.
            queue.failed.get_or_insert(error);
        }
    }
}

/// How a launch ended.
struct End<'a> {
    launch: &'a LaunchState,
    outcome: Result<LaunchOutcome, LaunchFailure>,
    /// A lane ended the program, so that what follows in the stream does not begin.
    has_exited: bool,
}
