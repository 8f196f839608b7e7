//! Replays of graphs as work of a stream: one unit of operations in a row.

use super::launched::LaunchState;
use super::operation::{Dispatched, Listed, Operation, TransferOrigin, Transferring};
use super::queue::{LAUNCHES_A_SETTLE, StreamQueue, Waiting, lock};
use super::settle::Patience;
use super::step::Step;
use crate::device::Inner;
use crate::device::buffer::Wanted;
use crate::device::error::Error;
use crate::device::graph::{
    List, ListedRow, Node, NodeOrigin, OriginOf, Plan, ReplayHold, ReplayState, Row, StreamKey, run_step,
};
use crate::device::uses::{Point, Request};
use hostcall_abi::launch::{LaunchId, LaunchRun};
use std::sync::{Arc, OnceLock};

/// The ids of launches that have begun and are not on the stream yet. They end when this is dropped.
struct Begun<'a> {
    queue: &'a StreamQueue,
    launches: Vec<LaunchRun>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Inner { server, origins, .. } = &*self.queue.device;
        for launches in self.launches.drain(..) {
            server.end_all(launches.into());
            origins.leave(launches);
        }
    }
}

/// The operations of a replay, as they are made one after the other.
struct Unit<'a> {
    plan: &'a Arc<Plan>,
    replay: Arc<ReplayState>,
    operations: Vec<(u64, Operation)>,
    /// The last operation's.
    position: u64,
    /// The last launch's.
    sequence: u64,
    begun: Begun<'a>,
}

impl Unit<'_> {
    /// Appends the row of this number as one operation.
    fn push_list(&mut self, number: usize, launches: LaunchRun, list: Arc<List>) {
        let row = &self.plan.rows[number];
        self.position += row.operations();
        let (plan, replay, first_sequence) = (self.plan.clone(), self.replay.clone(), self.sequence + 1);
        let listed = ListedRow { plan, row: number, list, replay, first_sequence };
        let origin = listed.origin(0).expect("a row has a kernel");
        let first = LaunchState::of_node(origin, launches.first(), first_sequence, self.position);
        self.sequence += row.records.len() as u64;
        self.begun.queue.device.origins.enter(launches, OriginOf::Row(listed.clone()));
        let listed = Listed { row: listed, launches, first: Arc::new(first), had_ended: OnceLock::new() };
        self.operations.push((self.position, Operation::List(Box::new(listed))));
    }

    /// Appends the node at this place of the plan.
    fn push_node(&mut self, at: usize) -> Result<(), Error> {
        let (queue, plan) = (self.begun.queue, self.plan);
        let planned = &plan.nodes[at];
        self.position += 1;
        let position = self.position;
        let origin = NodeOrigin::new(&self.replay, planned, None);
        let state = |id, sequence| Arc::new(LaunchState::of_node(origin.clone(), id, sequence, position));
        let operation = match &*planned.node {
            Node::Kernel(kernel) => {
                self.sequence += 1;
                let mut parts = queue.blank();
                kernel.fill(&mut parts);
                let records = planned.wave_records();
                let parameters = &mut parts.parameters;
                let id = kernel.begin(&queue.device, parameters, self.sequence, &queue.words, records)?;
                queue.device.origins.enter(id, OriginOf::Node(origin.clone()));
                self.begun.launches.push(id.into());
                Operation::Launch(Dispatched { parts, state: state(id, self.sequence) })
            }
            Node::Transfer(transfer) => {
                let node = Some(TransferOrigin { origin, next: self.sequence + 1 });
                let transfer = Transferring { what: transfer.what.clone(), wanted: Vec::new(), node };
                Operation::Transfer(transfer.into())
            }
            // A plan has a graph's nodes in its place.
            Node::Empty | Node::Graph(_) => Operation::Wait,
            Node::Function(_) | Node::Conditional(_) => {
                self.sequence += 1;
                let inner = plan.inner.clone().filter(|_| matches!(*planned.node, Node::Conditional(_)));
                let (plan, stream) = (plan.clone(), queue.this.clone());
                let state = state(LaunchId::NONE, self.sequence);
                let run = move |control: &_| match stream.upgrade() {
                    Some(stream) => run_step(&plan, &plan.nodes[at], &origin, control, &stream),
                    None => Ok(()),
                };
                Operation::Step(Step { state, inner, run: Box::new(run) }.into())
            }
        };
        self.operations.push((position, operation));
        Ok(())
    }
}

impl StreamQueue {
    /// Begins the launches of those rows of a plan that the device takes as lists.
    fn lists(&self, plan: &Arc<Plan>) -> Vec<Option<(LaunchRun, Arc<List>)>> {
        let stream = StreamKey::of(&self.words);
        let list = |row: &Arc<Row>| {
            let list = row.list(&self.device, plan, stream)?;
            Some((self.device.server.begin_run(&row.records)?, list))
        };
        plan.rows.iter().map(list).collect()
    }

    /// Puts a replay on the stream, after `last`, the end of the instance's replay before it. Either all of it is put there
    /// or nothing.
    pub fn replay(
        &self,
        plan: &Arc<Plan>,
        graph: &Arc<str>,
        number: u64,
        last: Option<Point>,
    ) -> Result<Arc<ReplayState>, Error> {
        self.device.core.check_process()?;
        let mut pushing = lock(&self.pushing);
        self.check_open()?;
        let (first_position, first_sequence) = (pushing.position + 1, pushing.sequence + 1);
        let lists = self.lists(plan);
        let mut end = first_position + plan.nodes.len() as u64;
        let mut launches = plan.nodes.iter().filter(|planned| planned.node.has_sequence()).count() as u64;
        for (row, _) in plan.rows.iter().zip(&lists).filter(|(_, list)| list.is_some()) {
            let nodes = row.nodes.len() as u64;
            end = end - nodes + row.operations();
            launches = launches - nodes + row.records.len() as u64;
        }
        // An empty range, where there are no launches, contains nothing.
        let sequences = first_sequence..=pushing.sequence + launches;
        let replay = Arc::new(ReplayState::new(graph.clone(), number, sequences, end));

        let mut begun = Begun { queue: self, launches: Vec::new() };
        begun.launches.extend(lists.iter().flatten().map(|(launches, _)| *launches));
        let (position, sequence) = (pushing.position, pushing.sequence);
        let (of_unit, operations) = (replay.clone(), Vec::new());
        let mut unit = Unit { plan, replay: of_unit, operations, position, sequence, begun };
        let mut rows = plan.rows.iter().zip(lists).enumerate().peekable();
        let mut at = 0;
        while at < plan.nodes.len() {
            if let Some((number, (row, Some((launches, list))))) =
                rows.next_if(|(_, (row, _))| row.nodes.start == at)
            {
                unit.push_list(number, launches, list);
                at = row.nodes.end;
            } else {
                unit.push_node(at)?;
                at += 1;
            }
        }
        let Unit { mut operations, sequence, mut begun, .. } = unit;
        operations.push((end, Operation::ReplayEnd(ReplayHold::new(plan.clone(), replay.clone()))));

        // Nothing fails from here on: others may wait for the replay's end.
        let requests: Vec<Request<'_>> = plan.wanted.iter().map(Wanted::request).collect();
        let mut before = match requests.is_empty() {
            true => Vec::new(),
            false => self.device.core.order.enter(&self.point(end), &requests),
        };
        let own = self.point(end);
        before.extend(last.filter(|last| !last.is_of(&own.timeline)));
        begun.launches.clear();
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
            self.settle(u64::MAX, Patience::None);
        }
        Ok(replay)
    }
}
