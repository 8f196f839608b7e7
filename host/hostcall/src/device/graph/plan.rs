//! Plans: the nodes of an instance in the order in which replays do them.

use super::Recorded;
use super::list::List;
use super::node::Node;
use crate::device::buffer::Wanted;
use crate::device::error::{Error, GraphError, NodePath};
use crate::device::inner::Inner;
use crate::device::prepare;
use crate::device::stream::{Parameters, Parts, StreamQueue};
use crate::device::uses::Access;
use crate::device::words::StreamWords;
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_seam::{DeviceKind, KernelMemory};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// Most nodes of an instance, with those of the graphs in it: half of the launches that a device can tell apart.
pub(super) const MOST_NODES: usize = 65_536;

/// What replays do.
pub(crate) struct Plan {
    pub nodes: Vec<Planned>,
    /// All the memory of the device that the nodes use.
    pub wanted: Arc<[Wanted]>,
    /// Where bodies run.
    pub inner: Option<Arc<StreamQueue>>,
    /// Kernels that the device may take at once.
    pub lists: Vec<Arc<List>>,
}

/// A node in its place. Clones are the same.
#[derive(Clone)]
pub(crate) struct Planned {
    pub path: NodePath,
    /// The kernel's name, or the node's kind.
    pub what: Arc<str>,
    pub node: Arc<Node>,
    pub bodies: Arc<[Vec<Planned>]>,
    /// AMD: the records of the launch's waves. Replays of an instance do not overlap.
    records: Option<Records>,
}

/// Memory of the device.
#[derive(Clone)]
struct Records {
    address: u64,
    _owner: Arc<Mutex<KernelMemory>>,
}

impl Planned {
    /// Makes the parts of a launch of a kernel. What they refer to is kept by the replay.
    pub fn fill(&self, parts: &mut Parts) {
        match &*self.node {
            Node::Kernel(kernel) => kernel.fill(parts),
            Node::Foreign(kernel) => kernel.fill(parts),
            _ => unreachable!("it is a kernel"),
        }
    }

    /// Begins a launch of a kernel.
    pub fn begin(
        &self,
        device: &Inner,
        parameters: &mut Parameters,
        sequence: u64,
        words: &StreamWords,
    ) -> Result<LaunchId, Error> {
        match &*self.node {
            Node::Kernel(kernel) => {
                let records = self.records.as_ref().map_or(0, |records| records.address);
                kernel.begin(device, parameters, sequence, words, records)
            }
            Node::Foreign(kernel) => kernel.begin(device, parameters, sequence, words),
            _ => unreachable!("it is a kernel"),
        }
    }
}

impl Plan {
    /// Puts the nodes in order. `old` is the instance's plan so far: it has the inner queue, and lists of the same kernels.
    pub fn new(device: &Arc<Inner>, recorded: &Recorded, old: Option<&Self>) -> Result<Self, Error> {
        let mut planning = Planning { device, nodes: 0, has_bodies: false, wanted: Union::default() };
        let mut nodes = Vec::new();
        planning.add(recorded, &NodePath::root(), &mut nodes)?;
        let inner = match old.and_then(|old| old.inner.clone()) {
            None if planning.has_bodies => Some(StreamQueue::inner(device)?),
            inner => inner,
        };
        let lists = List::all(&nodes, old);
        Ok(Self { nodes, wanted: planning.wanted.into_list(), inner, lists })
    }
}

struct Planning<'a> {
    device: &'a Arc<Inner>,
    nodes: usize,
    has_bodies: bool,
    wanted: Union,
}

impl Planning<'_> {
    fn add(&mut self, recorded: &Recorded, path: &NodePath, to: &mut Vec<Planned>) -> Result<(), Error> {
        for at in order(recorded).map_err(|at| GraphError::Circle { node: path.child(at) })? {
            let (node, path) = (&recorded.nodes[at as usize].node, path.child(at));
            self.nodes += 1;
            if self.nodes > MOST_NODES {
                return Err(GraphError::TooManyNodes { limit: MOST_NODES }.into());
            }
            node.memory().iter().for_each(|wanted| self.wanted.add(wanted));
            let mut bodies = Vec::new();
            match &**node {
                Node::Graph(child) => {
                    self.add(child, &path, to)?;
                    continue;
                }
                Node::Conditional(conditional) => {
                    self.has_bodies = true;
                    for (number, body) in (0u32..).zip(&conditional.bodies) {
                        let mut nodes = Vec::new();
                        self.add(body, &path.child(number), &mut nodes)?;
                        bodies.push(nodes);
                    }
                }
                _ => {}
            }
            let records = self.records(node)?;
            let (what, node, bodies) = (node.name(), node.clone(), bodies.into());
            to.push(Planned { path, what, node, bodies, records });
        }
        Ok(())
    }

    /// Allocates what launches of the node would.
    fn records(&self, node: &Node) -> Result<Option<Records>, Error> {
        match node {
            Node::Kernel(kernel) if self.device.properties().kind == DeviceKind::Amd => {
                let memory = prepare::memory_of_records(&self.device.core, &kernel.grid)?;
                let address = memory.address.get();
                Ok(Some(Records { address, _owner: Arc::new(Mutex::new(memory)) }))
            }
            _ => Ok(None),
        }
    }
}

/// Memory of many nodes. What is used in one way, and lies together, is listed once.
#[derive(Default)]
struct Union(BTreeMap<Place, Wanted>);

/// Where used memory begins: its allocation by address, how it is used, and the first byte.
type Place = (usize, Access, usize);

impl Union {
    fn add(&mut self, new: &Wanted) {
        let (address, access, mut bytes) =
            (Arc::as_ptr(&new.allocation).addr(), new.access, new.bytes.clone());
        // What is listed lies apart: of all that touches the new bytes, the last ends last.
        while let Some((&place, old)) = self.0.range(..=(address, access, bytes.end)).next_back()
            && (place.0, place.1) == (address, access)
            && old.bytes.end >= bytes.start
        {
            bytes = old.bytes.start.min(bytes.start)..old.bytes.end.max(bytes.end);
            self.0.remove(&place);
        }
        let allocation = new.allocation.clone();
        self.0.insert((address, access, bytes.start), Wanted { allocation, access, bytes });
    }

    fn into_list(self) -> Arc<[Wanted]> {
        self.0.into_values().collect()
    }
}

/// Returns the nodes' numbers in an order that fits the edges: of those that may be next, the lowest first.
/// Where edges go in a circle, it fails with the number of a node that lies in one.
fn order(recorded: &Recorded) -> Result<Vec<u32>, u32> {
    let nodes = &recorded.nodes;
    let mut missing: Vec<usize> = nodes.iter().map(|entry| entry.after.len()).collect();
    let mut followers = vec![Vec::new(); nodes.len()];
    for (at, entry) in (0u32..).zip(nodes) {
        for before in &entry.after {
            followers[*before as usize].push(at);
        }
    }
    let is_free = |at: &u32| missing[*at as usize] == 0;
    let mut free: BinaryHeap<Reverse<u32>> = (0..nodes.len() as u32).filter(is_free).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(at)) = free.pop() {
        order.push(at);
        for follower in &followers[at as usize] {
            missing[*follower as usize] -= 1;
            if missing[*follower as usize] == 0 {
                free.push(Reverse(*follower));
            }
        }
    }
    let Some(left) = missing.iter().position(|missing| *missing > 0) else { return Ok(order) };
    // That one may only wait for a circle. Each that is left waits for one that is left, so that who goes
    // from one to the next comes to a circle, and then to a node where they were before.
    let (mut at, mut was_here) = (left as u32, vec![false; nodes.len()]);
    while !std::mem::replace(&mut was_here[at as usize], true) {
        let is_left = |before: &&u32| missing[**before as usize] > 0;
        at = *nodes[at as usize].after.iter().find(is_left).expect("it waits for one that is left");
    }
    Err(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::buffer::DeviceBuffer;
    use crate::device::inner::Device;
    use std::ops::Range;

    #[test]
    fn memory_that_is_used_in_one_way_is_listed_once() {
        let device = Device::open("cpu").unwrap();
        let [one, other] = [64, 64].map(|bytes| device.alloc_zeroed::<u8>(bytes).unwrap());
        let part = |buffer: &DeviceBuffer<u8>, access, bytes: Range<usize>| Wanted {
            bytes,
            ..buffer.wanted(access)
        };
        let mut union = Union::default();
        for bytes in [0..8, 16..24, 32..40, 60..64, 8..32, 0..4] {
            union.add(&part(&one, Access::Read, bytes));
        }
        union.add(&part(&one, Access::Write, 30..34));
        union.add(&part(&other, Access::Read, 40..60));
        let list = union.into_list();
        let of = |buffer: &DeviceBuffer<u8>, access| -> Vec<Range<usize>> {
            let allocation = buffer.wanted(access).allocation;
            let mine =
                |wanted: &&Wanted| Arc::ptr_eq(&wanted.allocation, &allocation) && wanted.access == access;
            list.iter().filter(mine).map(|wanted| wanted.bytes.clone()).collect()
        };
        assert_eq!(of(&one, Access::Read), [0..40, 60..64]);
        assert_eq!(of(&one, Access::Write).first(), Some(&(30..34)));
        assert_eq!(of(&other, Access::Read).first(), Some(&(40..60)));
        assert_eq!(list.len(), 4);
    }
}
