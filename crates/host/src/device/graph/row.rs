//! Rows: kernels of an instance that follow each other, as lists that the device takes at once.
//!
//! A list's kernels have their parameters for good. What differs from replay to replay, the first launch's sequence and id,
//! they add from two words of the list, which are written in the stream's order. What differs from stream to stream is in
//! the parameters: a row has a list for each stream.
#![allow(unsafe_code, reason = "makes lists of kernels with raw parameters")]

use super::node::{KernelNode, Node};
use super::plan::{Plan, Planned};
use crate::device::launch::OfStream;
use crate::device::seam::{BackendError, DeviceAddress, DeviceKind, Dispatch, KernelList, KernelMemory};
use crate::device::stream::Parts;
use crate::device::words::StreamWord;
use crate::device::{Error, Inner};
use hostcall_server::LaunchRecord;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most kernels of a list. What takes long as one operation is late to be seen to end.
const MOST_KERNELS: usize = 1024;

/// Streams that a row keeps lists for; the one that has had its own for longest gives way.
const MOST_STREAMS: usize = 8;

/// Kernels of a list that weigh as much as one operation of a queue: see
/// [`OPERATIONS_A_QUEUE`](crate::device::seam::OPERATIONS_A_QUEUE).
const KERNELS_AN_OPERATION: u64 = 4;

/// Kernels that follow each other in a plan.
pub(crate) struct Row {
    /// Their places among the plan's nodes.
    pub nodes: Range<usize>,
    /// What the server has to know of their launches.
    pub records: Arc<[LaunchRecord]>,
    /// `None` for a stream whose list the device does not take.
    lists: Mutex<Vec<(StreamKey, Option<Arc<List>>)>>,
}

/// What tells a stream from others: addresses that are in the parameters of its launches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamKey {
    stop_at: u64,
    last_post: u64,
}

impl StreamKey {
    pub fn of(words: &StreamWord) -> Self {
        Self { stop_at: words.stop_at().get(), last_post: words.last_post().get() }
    }
}

/// A list for one stream.
pub(crate) struct List {
    pub kernels: Arc<dyn KernelList>,
    memory: Mutex<KernelMemory>,
}

impl List {
    /// Where its kernels find what differs from replay to replay.
    pub fn words(&self) -> DeviceAddress {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).address
    }
}

impl Row {
    /// Returns the rows of a plan's nodes, and takes them from `old` where these are the same nodes.
    pub fn all(nodes: &[Planned], old: Option<&Plan>) -> Vec<Arc<Self>> {
        let mut rows = Vec::new();
        let mut at = 0;
        while at < nodes.len() {
            let is_kernel = |planned: &&Planned| matches!(&*planned.node, Node::Kernel(_));
            let count = nodes[at..].iter().take(MOST_KERNELS).take_while(is_kernel).count();
            if count > 1 {
                let range = at..at + count;
                let same = old.and_then(|old| {
                    let row = old.rows.iter().find(|row| row.nodes == range)?;
                    let mut pairs = old.nodes[range.clone()].iter().zip(&nodes[range.clone()]);
                    pairs.all(|(old, new)| Arc::ptr_eq(&old.node, &new.node)).then(|| row.clone())
                });
                rows.push(same.unwrap_or_else(|| Arc::new(Self::new(range, nodes))));
            }
            at += count.max(1);
        }
        rows
    }

    fn new(range: Range<usize>, nodes: &[Planned]) -> Self {
        let records = kernels(&nodes[range.clone()]).map(KernelNode::record).collect();
        Self { nodes: range, records, lists: Mutex::default() }
    }

    /// How many operations of a queue it is taken for, as a list.
    pub fn operations(&self) -> u64 {
        1 + self.records.len() as u64 / KERNELS_AN_OPERATION
    }

    fn lists(&self) -> MutexGuard<'_, Vec<(StreamKey, Option<Arc<List>>)>> {
        // Nothing panics halfway through a change.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the row's list for a stream. Without one its kernels are launched one by one. The software device, which waits
    /// for nothing, makes it now.
    pub fn list(&self, device: &Inner, plan: &Plan, stream: StreamKey) -> Option<Arc<List>> {
        if let Some(tried) = self.tried(stream) {
            return tried;
        }
        if device.properties().kind != DeviceKind::Software {
            return None;
        }
        let list = self.make(device, plan, stream).ok().flatten();
        self.put(stream, list.clone());
        list
    }

    /// Returns the list that was made for a stream, or tried in vain.
    fn tried(&self, stream: StreamKey) -> Option<Option<Arc<List>>> {
        self.lists().iter().find(|(of, _)| *of == stream).map(|(_, list)| list.clone())
    }

    /// Notes what became of a list. The stream that had one first gives way, if there are too many.
    fn put(&self, stream: StreamKey, list: Option<Arc<List>>) {
        let mut lists = self.lists();
        let same = lists.iter().position(|(of, _)| *of == stream);
        let gives_way = same.or_else(|| (lists.len() == MOST_STREAMS).then_some(0));
        let old = gives_way.map(|at| lists.remove(at));
        lists.push((stream, list));
        drop(lists);
        // After the lock: that may be a call of a driver.
        drop(old);
    }

    /// Makes the row's list for a stream. May wait for running kernels.
    fn make(&self, device: &Inner, plan: &Plan, stream: StreamKey) -> Result<Option<Arc<List>>, Error> {
        let backend = &device.core.backend;
        if device.properties().kind == DeviceKind::Amd {
            return Ok(None);
        }
        let memory = backend.allocate_list_words().ok_or_else(|| BackendError::NoMemory {
            what: "device memory",
            bytes: 16,
            reason: "a graph's list of kernels needs them".into(),
        })?;
        let StreamKey { stop_at, last_post } = stream;
        let of_stream = OfStream { stop_at, last_post, list: memory.address.get() };
        let parts: Vec<Parts> = (0u32..)
            .zip(kernels(&plan.nodes[self.nodes.clone()]))
            .map(|(place, kernel)| {
                let mut parts = Parts::default();
                kernel.fill_listed(device, &mut parts, place, of_stream);
                parts
            })
            .collect();
        let parameters: Vec<_> = parts.iter().map(|parts| parts.parameters.slices()).collect();
        let dispatches: Vec<Dispatch<'_>> = parts
            .iter()
            .zip(&parameters)
            .zip(&*self.records)
            .map(|((parts, parameters), record)| Dispatch {
                kernel: parts.kernel.as_ref().expect("a node has its kernel"),
                name: &record.kernel,
                workgroups: parts.workgroups,
                lanes: parts.lanes,
                workgroup_bytes: parts.workgroup_bytes,
                parameters,
                by_address: parts.by_address,
                hidden: parts.hidden,
                token: 0,
                hooks: &device.hooks,
            })
            .collect();
        // SAFETY: the nodes were checked as launches are; what their parameters refer to is kept by the plan, which each
        // operation that has the list keeps too.
        let kernels = unsafe { backend.list(&dispatches) }?;
        Ok(kernels.map(|kernels| Arc::new(List { kernels, memory: Mutex::new(memory) })))
    }
}

fn kernels(nodes: &[Planned]) -> impl Iterator<Item = &KernelNode> {
    nodes.iter().filter_map(|planned| match &*planned.node {
        Node::Kernel(kernel) => Some(kernel),
        _ => None,
    })
}

/// Makes the lists of all rows for a stream that has none yet.
pub(super) fn make_lists(device: &Inner, plan: &Plan, stream: StreamKey) -> Result<(), Error> {
    for row in plan.rows.iter().filter(|row| row.tried(stream).flatten().is_none()) {
        row.put(stream, row.make(device, plan, stream)?);
    }
    Ok(())
}
