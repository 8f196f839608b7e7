//! Replays of graphs as work of a stream: one unit of operations in a row.

use super::launched::LaunchState;
use super::operation::{Dispatched, Operation, TransferNode};
use super::queue::{LAUNCHES_A_SETTLE, StreamQueue, Waiting, lock};
use super::settle::Patience;
use super::step::Step;
use crate::device::buffer::Wanted;
use crate::device::error::Error;
use crate::device::graph::{Node, NodeOrigin, Plan, ReplayHold, ReplayState, run_step};
use crate::device::uses::{Point, Request};
use hostcall_abi::launch::LaunchId;
use std::sync::{Arc, OnceLock};

/// The ids of launches that have begun and are not on the stream yet. They end when this is dropped.
struct Begun<'a> {
    queue: &'a StreamQueue,
    ids: Vec<LaunchId>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            self.queue.device.server.end(id);
            self.queue.device.origins.leave(id);
        }
    }
}

impl StreamQueue {
    /// Puts a replay on the stream, after `last`, the end of the instance's replay before it. Either all of it is put there
    /// or nothing.
    pub fn replay(
        &self,
        plan: &Arc<Plan>,
        graph: &Arc<str>,
        number: u64,
        last: Option<Point>,
    ) -> Result<Arc<ReplayState>, Error> {
        let mut pushing = lock(&self.pushing);
        self.check_open()?;
        let (first_position, first_sequence) = (pushing.position + 1, pushing.sequence + 1);
        let launches = plan.nodes.iter().filter(|planned| planned.node.has_sequence()).count() as u64;
        let end = first_position + plan.nodes.len() as u64;
        // An empty range, where there are no launches, contains nothing.
        let sequences = first_sequence..=pushing.sequence + launches;
        let replay = Arc::new(ReplayState::new(graph.clone(), number, sequences, end));

        let mut begun = Begun { queue: self, ids: Vec::with_capacity(plan.nodes.len()) };
        let mut operations = Vec::with_capacity(plan.nodes.len() + 1);
        let (mut position, mut sequence) = (pushing.position, pushing.sequence);
        for (at, planned) in plan.nodes.iter().enumerate() {
            position += 1;
            let origin = NodeOrigin::new(&replay, planned, None);
            let state = |id, sequence| {
                let (kernel, outcome) = (planned.what.clone(), OnceLock::new());
                let node = Some(origin.clone());
                Arc::new(LaunchState { kernel, id, sequence, position, outcome, node, is_captured: false })
            };
            let operation = match &*planned.node {
                Node::Kernel(kernel) => {
                    sequence += 1;
                    let mut parts = self.blank();
                    kernel.fill(&mut parts);
                    let records = planned.wave_records();
                    let id =
                        kernel.begin(&self.device, &mut parts.parameters, sequence, &self.words, records)?;
                    self.device.origins.enter(id, &origin);
                    begun.ids.push(id);
                    Operation::Launch(Dispatched { parts, state: state(id, sequence) })
                }
                Node::Transfer(transfer) => {
                    let node = TransferNode { origin, next: sequence + 1 };
                    Operation::Transfer(transfer.what.clone(), Vec::new(), Some(Box::new(node)))
                }
                // A plan has a graph's nodes in its place.
                Node::Empty | Node::Graph(_) => Operation::Wait,
                Node::Function(_) | Node::Conditional(_) => {
                    sequence += 1;
                    let inner = plan.inner.clone().filter(|_| matches!(*planned.node, Node::Conditional(_)));
                    let (plan, stream) = (plan.clone(), self.this.clone());
                    let state = state(LaunchId::NONE, sequence);
                    let run = move |control: &_| match stream.upgrade() {
                        Some(stream) => run_step(&plan, &plan.nodes[at], &origin, control, &stream),
                        None => Ok(()),
                    };
                    Operation::Step(Step { state, inner, run: Box::new(run) })
                }
            };
            operations.push((position, operation));
        }
        operations.push((end, Operation::ReplayEnd(ReplayHold::new(plan.clone(), replay.clone()))));

        // Nothing fails from here on: others may wait for the replay's end.
        let requests: Vec<Request<'_>> = plan.wanted.iter().map(Wanted::request).collect();
        let mut before = match requests.is_empty() {
            true => Vec::new(),
            false => self.device.core.order.enter(&self.point(end), &requests),
        };
        let own = self.point(end);
        before.extend(last.filter(|last| !last.is_of(&own.timeline)));
        begun.ids.clear();
        (pushing.position, pushing.sequence) = (end, sequence);
        let mut waits = before;
        let operations: Vec<Waiting> = operations
            .into_iter()
            .map(|(position, operation)| {
                let points = std::mem::take(&mut waits);
                let before = self.not_awaited(&mut pushing, position, points, operation.is_of_host());
                Waiting { position, before, operation }
            })
            .collect();
        if let Some(inner) = &plan.inner {
            // A thread that a body's kernel waits for must not wait for the stream.
            let steps = operations.iter().filter(|waiting| waiting.operation.is_of_host());
            let mut depends_on = lock(&self.depends_on);
            depends_on.extend(steps.map(|waiting| (waiting.position, vec![inner.point(u64::MAX)])));
        }
        self.give(operations);
        drop(pushing);
        if end / LAUNCHES_A_SETTLE > first_position / LAUNCHES_A_SETTLE {
            self.settle(Patience::None);
        }
        Ok(replay)
    }
}
