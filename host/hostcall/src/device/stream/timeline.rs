//! A stream as other streams, buffers and the reaper see it.

use super::operation::Operation;
use super::queue::StreamQueue;
use super::settle::Patience;
use crate::device::reaper::{Left, Tended};
use crate::device::uses::{Dependent, Point, Timeline};
use hostcall_abi::launch::LaunchId;
use hostcall_seam::{BackendError, Queue};
use std::sync::Weak;
use std::sync::atomic::Ordering;

impl Dependent for StreamQueue {
    fn go_on(&self) {
        self.progressed();
    }
}

impl Timeline for StreamQueue {
    fn device(&self) -> u64 {
        self.device.core.id()
    }

    fn has_reached(&self, position: u64) -> bool {
        self.reached() >= position
    }

    fn wait_until(&self, position: u64) {
        self.wait_limited(position, None);
    }

    fn ask(&self, position: u64) {
        self.wanted.fetch_max(position, Ordering::SeqCst);
    }

    fn is_signalled(&self, position: u64) -> bool {
        let mut state = self.state.lock();
        if state.submitted < position || self.dead.get().is_some() {
            return false;
        }
        if state.submitted == position {
            self.signal(&mut state);
        }
        match state.in_flight.binary_search_by_key(&position, |flying| flying.position) {
            Ok(at) => state.in_flight[at].is_signalled,
            // It was settled.
            Err(_) => true,
        }
    }

    fn hold_back(&self, queue: &dyn Queue, position: u64) -> Result<(), BackendError> {
        queue.wait(&*self.device_queue, position)
    }

    fn tell(&self, position: u64, whom: &Weak<dyn Dependent>) -> bool {
        if self.reached() >= position {
            return true;
        }
        self.wanted.fetch_max(position, Ordering::SeqCst);
        {
            let mut dependents = self.dependents.lock();
            if !dependents.iter().any(|known| known.ptr_eq(whom)) {
                dependents.push(whom.clone());
            }
        }
        // It asks for the signal, and settles what has ended, which tells `whom`.
        self.reaper().wake();
        self.reached() >= position
    }

    fn depends_on(&self, position: u64, other: &Point, seen: &mut Vec<(usize, u64)>) -> bool {
        let this: *const Self = self;
        if seen.iter().any(|(stream, upto)| *stream == this.addr() && *upto >= position) {
            return false;
        }
        seen.push((this.addr(), position));
        let points: Vec<Point> = {
            let mut depends_on = self.depends_on.lock();
            self.forget_ended(&mut depends_on);
            let before = depends_on.iter().take_while(|(at, _)| *at <= position);
            before.flat_map(|(_, points)| points.iter().cloned()).collect()
        };
        points.iter().any(|point| !point.is_reached() && point.depends_on(other, seen))
    }
}

impl Tended for StreamQueue {
    fn tend(&self) -> Left {
        let mut state = self.state.lock();
        self.pump(&mut state);
        self.signal(&mut state);
        let waiting = !state.waiting.is_empty() || state.in_host_function;
        let (in_flight, counted) = (!state.in_flight.is_empty(), state.counted);
        drop(state);
        if in_flight {
            self.device_queue.poll(counted + 1);
        }
        self.settle(u64::MAX, Patience::Short);
        Left { waiting, in_flight }
    }

    fn calls_progress(&self) -> bool {
        self.device_queue.calls_progress()
    }

    fn check(&self) {
        if let Err(error) = self.device_queue.check() {
            self.note_error(error);
            self.progressed();
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.in_flight.is_empty() && !state.in_host_function
    }

    fn find(&self, id: LaunchId) -> Option<(String, Point)> {
        let state = self.state.lock();
        let found = state.in_flight.iter().find_map(|flying| match &flying.operation {
            Operation::Launch(launch) if launch.state.id == id => {
                Some((launch.state.kernel.to_string(), flying.position))
            }
            Operation::List(list) => {
                let place = list.launches.place_of(id)?;
                Some((list.launch(place).kernel.to_string(), flying.position))
            }
            _ => None,
        });
        drop(state);
        let (kernel, position) = found?;
        Some((kernel, self.point(position)))
    }

    fn launches_before(&self, points: &[Point], most: usize) -> Vec<LaunchId> {
        let is_before = |position: u64| {
            let own = self.point(position);
            points.iter().any(|point| point.depends_on(&own, &mut Vec::new()))
        };
        if !is_before(0) {
            return Vec::new();
        }
        let reached = self.reached();
        let launches: Vec<(u64, LaunchId)> = {
            let state = self.state.lock();
            let with_device = state.in_flight.iter().filter_map(|flying| match &flying.operation {
                Operation::Launch(launch) => Some((flying.position, launch.state.id)),
                Operation::List(list) => Some((flying.position, list.first.id)),
                _ => None,
            });
            let waiting = state.waiting.iter();
            let waiting = waiting.filter_map(|of| Some((of.position, of.operation.launch()?.id)));
            let left = with_device.chain(waiting).filter(|(position, _)| *position > reached);
            left.take(most).collect()
        };
        launches.into_iter().filter(|(position, _)| is_before(*position)).map(|(_, launch)| launch).collect()
    }
}
