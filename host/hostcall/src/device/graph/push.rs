//! Pushing replays: the nodes of a plan as a unit of operations.

use super::bodies::run_step;
use super::list::{List, StreamKey, StreamList};
use super::node::Node;
use super::plan::Plan;
use super::replay::{NodeOrigin, ReplayHold, ReplayState, ReplayedList};
use crate::device::error::Error;
use crate::device::inner::Inner;
use crate::device::owners::{ListOwner, Owner};
use crate::device::stream::{
    Dispatched, LaunchState, Listed, Operation, Step, StreamQueue, TransferOwner, Transferring, Unit,
};
use crate::device::uses::Point;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use std::sync::{Arc, OnceLock};

/// The ids of launches that have begun and are not on the stream yet. They end when this is dropped.
struct Begun<'a> {
    queue: &'a StreamQueue,
    launches: Vec<LaunchIds>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Inner { server, owners, .. } = &*self.queue.device;
        for launches in self.launches.drain(..) {
            server.end_all(launches.into());
            owners.leave(launches);
        }
    }
}

/// The operations of a replay, as they are made one after the other.
struct Making<'a> {
    plan: &'a Arc<Plan>,
    replay: Arc<ReplayState>,
    operations: Vec<(u64, Operation)>,
    /// The last operation's.
    position: u64,
    /// The last launch's.
    sequence: u64,
    begun: Begun<'a>,
}

impl Making<'_> {
    /// Appends the list of this number as one operation.
    fn push_list(&mut self, number: usize, launches: LaunchIds, list: Arc<StreamList>) {
        let planned = &self.plan.lists[number];
        self.position += planned.operations();
        let (plan, replay, first_sequence) = (self.plan.clone(), self.replay.clone(), self.sequence + 1);
        let (kernels, words) = (list.kernels.clone(), list.words());
        let owner = Arc::new(ReplayedList { plan, number, list, replay, first_sequence });
        let (kernel, first) = owner.owner(0).expect("a list has a kernel");
        let new = LaunchState::new(kernel, launches.first(), first_sequence, self.position);
        let first = Arc::new(LaunchState { owner: Some(first), ..new });
        self.sequence += planned.records.len() as u64;
        self.begun.queue.device.owners.enter_list(launches, owner.clone());
        let listed = Listed { list: kernels, words, owner, launches, first, had_ended: OnceLock::new() };
        self.operations.push((self.position, Operation::List(Box::new(listed))));
    }

    /// Appends the node at this place of the plan.
    fn push_node(&mut self, at: usize) -> Result<(), Error> {
        let (queue, plan) = (self.begun.queue, self.plan);
        let planned = &plan.nodes[at];
        self.position += 1;
        let position = self.position;
        let origin = Arc::new(NodeOrigin::new(&self.replay, planned, None));
        let owner: Arc<dyn Owner> = origin.clone();
        let is_foreign = matches!(*planned.node, Node::Foreign(_));
        let state = |id, sequence, has_context, owner| {
            let new = LaunchState::new(origin.what().clone(), id, sequence, position);
            Arc::new(LaunchState { owner: Some(owner), is_foreign, has_context, ..new })
        };
        let operation = match &*planned.node {
            Node::Kernel(_) | Node::Foreign(_) => {
                self.sequence += 1;
                let mut parts = queue.blank();
                planned.fill(&mut parts);
                let id = planned.begin(&queue.device, &mut parts.parameters, self.sequence, queue.words())?;
                queue.device.owners.enter(id, owner.clone());
                self.begun.launches.push(id.into());
                let state = state(id, self.sequence, parts.has_context, owner);
                Operation::Launch(Dispatched { parts, state })
            }
            Node::Transfer(transfer) => {
                let owner = Some(TransferOwner { owner, next: self.sequence + 1 });
                let transfer = Transferring { what: transfer.what.clone(), wanted: Vec::new(), owner };
                Operation::Transfer(transfer.into())
            }
            // A plan has a graph's nodes in its place.
            Node::Empty | Node::Graph(_) => Operation::Wait,
            Node::Function(_) | Node::Conditional(_) => {
                self.sequence += 1;
                let inner = plan.inner.clone().filter(|_| matches!(*planned.node, Node::Conditional(_)));
                let (plan, stream) = (plan.clone(), queue.this());
                let state = state(LaunchId::NONE, self.sequence, false, owner);
                let run = move |control: &_| match stream.upgrade() {
                    Some(stream) => run_step(&plan, &plan.nodes[at], &origin, control, &stream),
                    None => Ok(()),
                };
                Operation::Step(Step { state, inner, run: Some(Box::new(run)) }.into())
            }
        };
        self.operations.push((position, operation));
        Ok(())
    }
}

/// Begins the launches of those lists of a plan that the device takes as such.
fn begin_lists(queue: &StreamQueue, plan: &Arc<Plan>) -> Vec<Option<(LaunchIds, Arc<StreamList>)>> {
    let stream = StreamKey::of(queue.words());
    let begin = |list: &Arc<List>| {
        let made = list.of_stream(&queue.device, plan, stream)?;
        Some((queue.device.server.begin_list(&list.records)?, made))
    };
    plan.lists.iter().map(begin).collect()
}

/// Puts a replay on a stream, after `last`, the end of the instance's replay before it. Either all of it is put there or
/// nothing.
pub(super) fn push(
    queue: &StreamQueue,
    plan: &Arc<Plan>,
    graph: &Arc<str>,
    number: u64,
    last: Option<Point>,
) -> Result<Arc<ReplayState>, Error> {
    queue.push_unit(|position, sequence| {
        let lists = begin_lists(queue, plan);
        let mut end = position + 1 + plan.nodes.len() as u64;
        let mut launches = plan.nodes.iter().filter(|planned| planned.node.has_sequence()).count() as u64;
        for (list, _) in plan.lists.iter().zip(&lists).filter(|(_, made)| made.is_some()) {
            let nodes = list.nodes.len() as u64;
            end = end - nodes + list.operations();
            launches = launches - nodes + list.records.len() as u64;
        }
        // An empty range, where there are no launches, contains nothing.
        let sequences = sequence + 1..=sequence + launches;
        let replay = Arc::new(ReplayState::new(graph.clone(), number, sequences, end));
        let mut begun = Begun { queue, launches: Vec::new() };
        begun.launches.extend(lists.iter().flatten().map(|(launches, _)| *launches));
        let (of_unit, operations) = (replay.clone(), Vec::new());
        let mut making = Making { plan, replay: of_unit, operations, position, sequence, begun };
        let mut lists = plan.lists.iter().zip(lists).enumerate().peekable();
        let mut at = 0;
        while at < plan.nodes.len() {
            if let Some((number, (list, Some((launches, made))))) =
                lists.next_if(|(_, (list, _))| list.nodes.start == at)
            {
                making.push_list(number, launches, made);
                at = list.nodes.end;
            } else {
                making.push_node(at)?;
                at += 1;
            }
        }
        let Making { operations, sequence, mut begun, .. } = making;
        begun.launches.clear();
        let hold = Box::new(ReplayHold::new(plan.clone(), replay.clone()));
        let (wanted, inner) = (plan.wanted.clone(), plan.inner.clone());
        Ok((Unit { operations, sequence, hold, wanted, after: last, inner }, replay))
    })
}
