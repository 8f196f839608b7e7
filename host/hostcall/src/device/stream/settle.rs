//! What follows from what has ended on the device.

use super::launched::{LaunchOutcome, LaunchState};
use super::operation::{Dispatched, Listed, Operation};
use super::queue::{InFlight, Settling, State, StreamQueue};
use crate::device::error::{LaunchFailure, NodeFailure};
use crate::device::waiting;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_seam::{DeviceFault, DeviceFaultKind, DispatchFailure, Running};
use hostcall_server::services::Report;
use hostcall_server::{CancelReason, LaunchSet};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::LazyCell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long [`Patience::Short`] is.
const SHORT_FLUSH: Duration = Duration::from_micros(200);

/// Most launches whose memory a stream keeps for later ones: those that end while a busy stream is looked at once.
const MOST_SPARE: usize = 1024;

/// How long whoever settles waits for the posts of what has ended. Nobody waits for a handler here, which may never return:
/// whoever waits for a position waits for its handlers under no lock, and for no later one's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// For the server to take them, as long as that takes some passes of a consumer: launches that posted may stay unsettled.
    Short,
}

/// Is told of each launch that fails: the device, the kernel and the error. Set by who passes that on, which is above streams.
pub(crate) static ON_FAILURE: OnceLock<fn(&str, &str, &str)> = OnceLock::new();

impl StreamQueue {
    /// Does what follows from what has ended up to a position: takes posts, notes how launches ended, drops what they kept.
    /// Returns launches whose posts handlers have still, if the position is not settled for that alone.
    pub(super) fn settle(&self, upto: u64, patience: Patience) -> Option<LaunchIds> {
        if self.settled.load(Ordering::Acquire) >= self.reached().min(self.state.lock().submitted).min(upto) {
            return None;
        }
        // A handler must not wait for posts of its own kernel; the reaper settles.
        if waiting::is_in_handler() {
            return None;
        }
        let mut settling = match self.settling.try_lock() {
            Some(settling) => settling,
            None if patience == Patience::Short => self.settling.lock(),
            None => return None,
        };
        let reached = self.take_posts(&mut settling, upto, patience)?;
        let (ended, posting) = self.take_ended(&mut settling, reached);
        drop(settling);
        self.clear(ended.into_iter().flatten());
        {
            // What waited for this to be settled, such as a host function.
            let mut state = self.state.lock();
            self.pump(&mut state);
        }
        *self.changes.lock() += 1;
        self.changed.notify_all();
        let dependents = std::mem::take(&mut *self.dependents.lock());
        for stream in dependents.iter().filter_map(Weak::upgrade) {
            stream.go_on();
        }
        posting
    }

    /// Takes off what has ended up to `reached` and is over, and notes how it ended. Returns it, and the launches whose posts
    /// keep the rest from being over.
    fn take_ended(&self, settling: &mut Settling, reached: u64) -> (Vec<Vec<InFlight>>, Option<LaunchIds>) {
        let mut all = Vec::new();
        loop {
            let is_over = |flying: &&InFlight| {
                flying.position <= reached
                    && flying.launches().is_none_or(|launches| self.device.server.has_handled_posts(launches))
            };
            // Many at a time, since whoever pushes needs the lock too.
            let mut state = self.state.lock();
            let count = state.in_flight.iter().take_while(is_over).count();
            if count == 0 {
                let Some(first) = state.in_flight.front().filter(|first| first.position <= reached) else {
                    // Nothing up to `reached` is left; positions that no operation had are settled with the others.
                    self.settled.fetch_max(reached, Ordering::Release);
                    return (all, None);
                };
                // Its posts are with handlers still.
                return (all, first.launches());
            }
            let last_ended = match state.stops.is_empty() {
                true => 0,
                false => {
                    last_sequence(state.in_flight.iter().take_while(|flying| flying.position <= reached))
                }
            };
            let ended: Vec<InFlight> = state.in_flight.drain(..count).collect();
            drop(state);
            let ends = self.ends_of(&ended, last_ended);
            let mut state = self.state.lock();
            for end in ends {
                settling.sequence = end.launch.sequence;
                self.note_end(&mut state, end);
            }
            drop(state);
            for flying in ended.iter().filter(|flying| self.has_printed(flying)) {
                self.note_printed(flying.position, self.device.builtins.stdio().sink().appended());
            }
            let last = ended.last().map_or(0, |last| last.position);
            self.settled.fetch_max(last, Ordering::Release);
            all.push(ended);
        }
    }

    /// Drops what had been kept for these, and keeps the memory of launches for later ones. Users' values are dropped on a thread
    /// of host functions: their code may do anything, such as wait for a launch that nobody but this thread ends.
    fn clear(&self, ended: impl IntoIterator<Item = InFlight>) {
        let (mut spare, mut values) = (Vec::new(), Vec::<Box<dyn Any + Send>>::new());
        for flying in ended {
            match flying.operation {
                // What lanes could refer to that were ended by force stays for good.
                Operation::Launch(Dispatched { parts, state })
                    if state.forced_lanes.load(Ordering::Relaxed) > 0 =>
                {
                    parts.leak();
                }
                Operation::Launch(Dispatched { mut parts, state }) => {
                    if !parts.values.is_empty() {
                        values.push(Box::new(std::mem::take(&mut parts.values)));
                    }
                    parts.clear(state);
                    spare.push(parts);
                }
                // Whoever has a plan last drops what it keeps of the user's.
                Operation::List(list) => values.extend(list.owner.release()),
                Operation::UnitEnd(hold) => values.extend(hold.release()),
                Operation::HostFunction(function) => values.push(Box::new(function)),
                Operation::Step(step) => {
                    values.extend(step.run.map(|run| Box::new(run) as Box<dyn Any + Send>))
                }
                Operation::Transfer(_) | Operation::Record(_) | Operation::Wait => {}
            }
        }
        if !values.is_empty() {
            let drop_all = || values.into_iter().for_each(|value| contained(|| drop(value)));
            self.reaper().run(Box::new(drop_all));
        }
        let mut spares = self.spare.lock();
        let room = MOST_SPARE.saturating_sub(spares.len());
        spares.extend(spare.drain(..room.min(spare.len())));
    }

    /// Has the server take the posts of what has ended up to `upto`, and returns up to where it has. `None` when nothing new has
    /// ended, or when the server has not taken the posts after as long as the caller waits for that.
    fn take_posts(&self, settling: &mut Settling, upto: u64, patience: Patience) -> Option<u64> {
        let begin = Instant::now();
        loop {
            let reached = {
                let mut state = self.state.lock();
                self.count(&mut state);
                self.reached().min(state.submitted).min(upto)
            };
            let settled = self.settled.load(Ordering::Acquire);
            if reached <= settled {
                return None;
            }
            // One that is for more may wait for a handler of what lies behind.
            if let Some((flush, flushed)) = settling.flush.take_if(|(_, flushed)| *flushed <= reached) {
                while !flush.is_done() {
                    if patience == Patience::None || begin.elapsed() > SHORT_FLUSH {
                        settling.flush = Some((flush, flushed));
                        return None;
                    }
                    std::thread::yield_now();
                }
                if flushed > settled {
                    return Some(flushed);
                }
                continue;
            }
            // Read after `reached`, so that it counts the posts of everything that has ended. A launch that was settled posts
            // no more, and each that posts after it stores a larger sequence.
            let last_posted = self.words.last_posted();
            let have_posted = last_posted > settling.sequence;
            if !have_posted && self.last_with_context.load(Ordering::SeqCst) <= settling.sequence {
                return Some(reached);
            }
            let posting: Vec<LaunchId> = {
                let state = self.state.lock();
                let ended = state.in_flight.iter().take_while(|flying| flying.position <= reached);
                let launches = ended.filter_map(|flying| match &flying.operation {
                    Operation::Launch(launch)
                        if launch.state.sequence <= last_posted || launch.state.has_context =>
                    {
                        flying.launches()
                    }
                    Operation::List(list) if list.first.sequence <= last_posted => flying.launches(),
                    _ => None,
                });
                launches.flat_map(LaunchIds::ids).collect()
            };
            if posting.is_empty() && !have_posted {
                return Some(reached);
            }
            settling.flush = Some((self.device.server.begin_flush(posting), reached));
        }
    }

    /// Returns whether a launch that has ended has printed. What is printed by another protocol is not known by launches.
    fn has_printed(&self, flying: &InFlight) -> bool {
        let have_printed =
            flying.launches().map(|launches| self.device.builtins.stdio().take_printing(launches));
        have_printed == Some(true)
            || matches!(&flying.operation, Operation::Launch(launch) if !launch.state.looks_whether_stopped())
    }

    /// Says how launches ended, in their order, and lets server and device forget them. The server forgets all that began alone
    /// at once: many end between two looks at a stream. `last_ended` is the last launch that has ended, if the stream was stopped.
    fn ends_of(&self, ended: &[InFlight], last_ended: u64) -> Vec<End> {
        let device = &self.device;
        // Who ends a stream's work cancels all that it does not know to have ended, and a device may tell that of several
        // launches at once. It is the last one that had begun which was interrupted.
        let interrupted = LazyCell::new(|| self.words.last_of_lanes().min(last_ended));
        let singles = ended.iter().filter_map(|flying| match &flying.operation {
            Operation::Launch(launch) => Some((&launch.state, flying.running.first())),
            _ => None,
        });
        for (launch, running) in singles.clone() {
            if let Some(running) = running.filter(|_| launch.is_served()) {
                device.forget_endable(launch.id);
                device.restore_lost_slots(running);
            }
        }
        // What reads the raw channels of those that the server does not serve learns here too that they are over.
        let known = singles.filter(|(launch, _)| launch.id != LaunchId::NONE);
        let launches: LaunchSet = known.map(|(launch, _)| launch.id.into()).collect();
        let cancelled = device.server.end_all(launches.clone());
        self.free_waits(&cancelled);
        let mut ends = Vec::with_capacity(ended.len());
        for flying in ended {
            match &flying.operation {
                Operation::Launch(launch) => {
                    let running = flying.running.first();
                    ends.push(self.end_of(&launch.state, &cancelled, running, &interrupted));
                }
                Operation::List(list) => ends.extend(self.ends_of_list(list, &flying.running, &interrupted)),
                Operation::Step(step) => ends.push(End::well(step.state.clone())),
                _ => {}
            }
        }
        device.builtins.files().unmap_of(&launches);
        device.builtins.sockets().close_of(&launches);
        ends
    }

    /// Frees what waves of cancelled launches have left in the wait table. Of others they may have left something where a kernel
    /// leaves a wait without saying so, which is looked for once the table is full.
    fn free_waits(&self, cancelled: &[(LaunchId, CancelReason)]) {
        let (waits, backend) = (&self.device.waits, &*self.device.core.backend);
        if waits.was_full() {
            waits.free(backend, |launch| !self.device.server.launches().is_known(launch));
        } else if !cancelled.is_empty() {
            waits.free(backend, |launch| cancelled.iter().any(|(of, _)| *of == launch));
        }
    }

    /// Says how a launch ended that began alone, and which the server has forgotten. `cancelled` has those that were cancelled, in
    /// the order of their ids.
    fn end_of(
        &self,
        launch: &Arc<LaunchState>,
        cancelled: &[(LaunchId, CancelReason)],
        running: Option<&Arc<dyn Running>>,
        interrupted: &dyn Deref<Target = u64>,
    ) -> End {
        let (device, id) = (&self.device, launch.id);
        if launch.owner.is_some() {
            device.owners.leave(id);
        }
        if !launch.is_served() {
            // When the device has failed, that is what there is to tell.
            let cancelled = launch.cancelled.get().copied().filter(|_| self.dead.get().is_none());
            return self.judge(launch.clone(), Report::default(), cancelled, running);
        }
        let report = device.builtins.reports().take(id);
        let cancelled = cancelled.binary_search_by_key(&id, |(of, _)| *of).ok().map(|at| cancelled[at].1);
        if launch.is_foreign {
            // Of a context that is gone.
            drop(device.builtins.checks().take(id));
            // The host may have cancelled its context alone, with its calls: nobody asked for the launch's end then.
            let cancelled = cancelled.filter(|why| !why.is_of_host());
            let cancelled =
                launch.cancelled.get().copied().or(cancelled).filter(|_| self.dead.get().is_none());
            return self.judge(launch.clone(), report, cancelled, running);
        }
        let has_run = running.is_none()
            && cancelled.is_some_and(CancelReason::is_of_host)
            && launch.sequence < **interrupted;
        let cancelled = cancelled.filter(|_| !has_run);
        End { has_run, ..self.judge(launch.clone(), report, cancelled, running) }
    }

    /// Says how launches ended that began together, and lets server and device forget them. Of those that ended well it says the
    /// first's and the last's at most.
    fn ends_of_list(
        &self,
        list: &Listed,
        running: &[Arc<dyn Running>],
        interrupted: &dyn Deref<Target = u64>,
    ) -> SmallVec<[End; 2]> {
        let (device, launches) = (&self.device, list.launches);
        for (id, running) in launches.ids().zip(running) {
            device.forget_endable(id);
            device.restore_lost_slots(running);
        }
        let mut of_note = device.builtins.reports().reporting(launches);
        of_note.extend(device.server.faulted(launches));
        let mut cancelled = device.server.end_all(launches.into());
        device.builtins.reports().forget(launches);
        self.free_waits(&cancelled);
        device.owners.leave(launches);
        let has_run = running.is_empty()
            && cancelled.iter().any(|(_, why)| why.is_of_host())
            && *list.sequences().end() < **interrupted;
        if has_run {
            cancelled.clear();
        }
        // Who ends a list cancels all of its launches: also those that had ended, and those that did not begin. So when all were
        // cancelled, what lanes reported says which launches to name; without a report it is the one that ran. When only some
        // were, these are named.
        match cancelled.len() == launches.count() as usize {
            true if !of_note.is_empty() => {}
            true => of_note.push(launches.get(self.interrupted(list, running, **interrupted))),
            false => of_note.extend(cancelled.iter().map(|(id, _)| *id)),
        }
        let has_failed = |running: &Arc<dyn Running>| {
            let failure = running.outcome().and_then(|outcome| outcome.failure);
            failure.is_some_and(|failure| failure != DispatchFailure::Cancelled)
        };
        of_note
            .extend(launches.ids().zip(running).filter(|(_, running)| has_failed(running)).map(|(id, _)| id));
        if of_note.is_empty() {
            of_note.extend([launches.first(), launches.get(launches.count() - 1)]);
        }
        of_note.sort_unstable();
        of_note.dedup();
        let ends = of_note.into_iter().filter_map(|id| {
            let place = launches.place_of(id)?;
            let report = device.builtins.reports().take(id);
            let cancelled = cancelled.iter().find(|(of, _)| *of == id).map(|(_, why)| *why);
            let end = self.judge(list.launch(place), report, cancelled, running.get(place as usize));
            Some(End { has_run, ..end })
        });
        let mut ends: SmallVec<_> = ends.collect();
        let all = launches.into();
        device.builtins.files().unmap_of(&all);
        device.builtins.sockets().close_of(&all);
        // The stream has got so far.
        let last = list.launch(launches.count() - 1);
        if ends.last().is_none_or(|end: &End| end.launch.sequence < last.sequence) {
            ends.push(End { has_run, ..End::well(last) });
        }
        ends
    }

    /// Returns the place of the launch that ran when a list was cancelled, as device and lanes say.
    fn interrupted(&self, list: &Listed, running: &[Arc<dyn Running>], of_lanes: u64) -> u32 {
        let is_cancelled = |running: &Arc<dyn Running>| {
            running.outcome().is_some_and(|end| end.failure == Some(DispatchFailure::Cancelled))
        };
        let last = list.launches.count() - 1;
        if let Some(ended) = list.had_ended.get() {
            return (*ended).min(last);
        }
        let of_device = running.iter().position(is_cancelled).map_or(last, |place| place as u32);
        // Lanes whose calls told them of the cancellation say so in the stream's words and return. The device need not know,
        // and may have begun the next launch, whose lanes do nothing then.
        let of_lanes = of_lanes.saturating_sub(list.first.sequence);
        u32::try_from(of_lanes).unwrap_or(last).min(of_device)
    }

    /// Says how a launch ended that the server has forgotten.
    fn judge(
        &self,
        launch: Arc<LaunchState>,
        report: Report,
        cancelled: Option<CancelReason>,
        running: Option<&Arc<dyn Running>>,
    ) -> End {
        let (device, mut fault) = (&self.device, None);
        if launch.is_served() {
            let of_kind = |kind| move |reason| DeviceFault { kind, reason };
            fault = device.server.take_fault(launch.id).map(of_kind(DeviceFaultKind::Channel));
            fault = fault.or_else(|| device.server.failure().map(of_kind(DeviceFaultKind::Server)));
        }
        let ended = running.and_then(|running| running.outcome()).unwrap_or_default();
        if ended.forced_lanes > 0 {
            launch.forced_lanes.store(ended.forced_lanes, Ordering::Relaxed);
            if let Some(owner) = &launch.owner {
                owner.leak();
            }
        }
        let failure = ended.failure;
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
            (None, None, None, Some(_)) if !launch.looks_whether_stopped() => Err(LaunchFailure::RanToEnd),
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
        if launch.is_served() && (outcome.is_err() || cancelled.is_some()) {
            device.builtins.files().close_of(launch.id);
        }
        let port = launch.is_foreign.then(|| device.llvm_calls.take(launch.id)).flatten();
        let outcome = match port {
            Some(fault) if !matches!(outcome, Err(LaunchFailure::Fault(_))) => {
                Err(LaunchFailure::Port(fault))
            }
            _ => outcome,
        };
        let has_exited = matches!(cancelled, Some(CancelReason::Exited(_)));
        End { launch, outcome: outcome.map_err(Box::new), has_exited, has_run: false }
    }

    /// Notes how a launch ended.
    fn note_end(&self, queue: &mut State, end: End) {
        let End { launch, outcome, has_exited, has_run } = end;
        queue.ended = queue.ended.max(launch.sequence);
        // Code that is not hostcall's does not look at the stop word: what was with the device has run.
        let has_run = has_run || !launch.looks_whether_stopped();
        let is_stopped = !has_run && queue.stops.has_behind_first(launch.sequence);
        let ends_stream = outcome.is_err() || has_exited;
        let outcome = match outcome {
            Ok(LaunchOutcome { exit_code: None }) if is_stopped => Err(LaunchFailure::Skipped.into()),
            outcome => outcome,
        };
        let outcome = launch.outcome.get_or_set(outcome);
        if ends_stream {
            queue.stops.add(launch.sequence);
        }
        if let Err(failure) = outcome {
            if !matches!(failure, LaunchFailure::Skipped | LaunchFailure::Cancelled) {
                let error = launch.error(failure).to_string();
                if let Some(tell) = ON_FAILURE.get() {
                    tell(&self.device.core.name, &launch.kernel, &error);
                }
            }
            let error = match &launch.owner {
                Some(owner) => owner.fail(NodeFailure::Launch(failure.clone())),
                None => launch.error(failure),
            };
            // Who was told why the stream stopped knows of those that were skipped therefore.
            if !(matches!(failure, LaunchFailure::Skipped) && queue.stops.was_told(launch.sequence)) {
                queue.failed.get_or_insert(error);
            }
        }
    }
}

/// Does what runs a user's code. The payload of a panic is not dropped, which could panic again.
fn contained(work: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        std::mem::forget(payload);
    }
}

/// How a launch ended.
struct End {
    launch: Arc<LaunchState>,
    outcome: Result<LaunchOutcome, Box<LaunchFailure>>,
    /// A lane ended the program, so that what follows in the stream does not begin.
    has_exited: bool,
    /// It had run to its end before the stream was stopped.
    has_run: bool,
}

/// The sequence of the last launch among these that the device was given; 0 without one.
fn last_sequence<'a>(flying: impl Iterator<Item = &'a InFlight>) -> u64 {
    let was_given = |launch: &LaunchState| launch.outcome.get().is_none();
    let sequences = flying.filter_map(|flying| match &flying.operation {
        Operation::Launch(launch) if was_given(&launch.state) => Some(launch.state.sequence),
        Operation::List(list) if was_given(&list.first) => Some(*list.sequences().end()),
        _ => None,
    });
    sequences.last().unwrap_or(0)
}

impl End {
    fn well(launch: Arc<LaunchState>) -> Self {
        Self { launch, outcome: Ok(LaunchOutcome::default()), has_exited: false, has_run: false }
    }
}
