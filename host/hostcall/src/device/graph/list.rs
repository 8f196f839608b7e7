//! Lists: kernels of an instance that follow each other, or the kernels of a node's bodies, which a device
//! takes at once.
//!
//! What the device takes is made by `Backend::list`: on NVIDIA a graph of the driver's, built by hand
//! (`backends/cuda`, `list.rs`), on the software device dispatches under one lock. Copies, fills and steps of
//! the host lie between lists. A list that the device has not (none was made, a stream too many, an AMD GPU) is
//! given kernel by kernel.
//!
//! # What changes from replay to replay
//! A list's kernels keep their parameters. Two numbers are new in each replay: the sequence and the id of the
//! list's first launch. They are the list's two *words* in device memory, which the stream's queue writes in
//! order before it starts the list. Each kernel's parameters hold its place in the list; a wave adds that
//! place to the words when it begins.
//!
//! The addresses of the stream's stop word and post word are parameters too. So a list is made for each stream
//! ([`StreamList`]), for at most [`MOST_STREAMS`] streams; the stream for which it was made first gives way.
//!
//! Making a list may wait for kernels that run, so a launch makes none: `Instance::upload` does. The software
//! device waits for nothing, and makes its lists at the first replay on a stream. `set` and `update` make a
//! new plan, which takes over the lists whose nodes are the same.
//!
//! # Ids
//! The launches of a list have ids in a row (`LaunchIds`). They begin and end together: one entry in the
//! server's table, one in the table of origins, one operation to settle. Calls, posts, prints and panics name
//! a launch by its own id, as always. At most half of a device's ids are for lists; a replay that gets none
//! is given kernel by kernel.
//!
//! # A kernel may begin early
//! On NVIDIA from sm_90 on, a kernel of a list may begin while the one before it runs. It makes its waves'
//! records and then waits (`griddepcontrol.wait`) until that kernel has ended and its writes can be seen.
//! Until then it reads only the stream's stop words and the list's own words.
//!
//! A kernel that waits so occupies multiprocessors. [`Early`] lets at most a quarter of the GPU be occupied
//! this way. Otherwise this deadlock is possible: kernel 2 waits for kernel 1, kernel 1 for a handler, the
//! handler for a kernel of another stream, and that kernel for the multiprocessors that kernel 2 holds.
//!
//! A kernel whose predecessor never stops its stream (it neither calls nor panics) may ask at once whether
//! the stream was stopped, and may let its own successor begin. The lowest bit of the list's address in its
//! parameters says so (`FOLLOWS_ONE_THAT_NEVER_STOPS`). Behind any other kernel it must first wait, since
//! that one may still stop the stream.
//!
//! # Bodies that the device repeats
//! A node with bodies is a list if its bodies contain only kernels, a word decides about it, and the device
//! takes conditional lists (`Backend::conditional_list`: NVIDIA from CUDA 12.3 on). Every other node with
//! bodies is a step of the host (`bodies.rs`). A *turn* of the body begins when the one before has ended on
//! the device, so a kernel keeps its launch id and its sequence in all turns: its calls, posts and panics are
//! those of one launch.
//!
//! ```text
//!           ┌──────────────────────────── WHILE ────────────────────────────┐
//!  decide ─►│ kernels ─► go on ─► kernels ─► go on ─► … ─► kernels ─► decide │─► what follows in the stream
//!           └───────────────────────────── again ◄──────────────────────────┘
//! ```
//!
//! *Decide* and *go on* (`backends/cuda`, `conditional.rs`) begin another turn if the condition's word is in
//! the body's range and both stop words lie beyond the list's last sequence: so a lane that panics ends the
//! loop, and so does whoever cancels. They count turns in the list's memory ([`StreamList::turn`]), for which
//! `graph::origin()` asks. A loop that was stopped counts no further, so that a failure names the turn in
//! which it happened.
#![allow(unsafe_code, reason = "makes lists of kernels with raw parameters")]

use super::bodies::ConditionalNode;
use super::node::{KernelNode, Node, NodeKind};
use super::plan::{Plan, Planned};
use crate::device::core::Core;
use crate::device::error::Error;
use crate::device::inner::Inner;
use crate::device::prepare::OfStream;
use crate::device::stream::Parts;
use crate::device::words::StreamWords;
use hostcall_abi::launch::FOLLOWS_ONE_THAT_NEVER_STOPS;
use hostcall_locks::Mutex;
use hostcall_seam::{
    BackendError, ConditionalList, DeviceAddress, DeviceKind, Dispatch, KernelList, KernelMemory,
    LIST_TURN_AT, LIST_TURN_OF_AT, LIST_WORDS_BYTES, ListBody,
};
use hostcall_server::LaunchRecord;
use std::ops::Range;
use std::sync::Arc;

/// Most kernels of a list. What takes long as one operation is late to be seen to end.
const MOST_KERNELS: usize = 1024;

/// Streams for which a list is kept; the one that has had its own for longest gives way.
const MOST_STREAMS: usize = 8;

/// Kernels of a list that weigh as much as one operation of a queue: see
/// [`OPERATIONS_A_QUEUE`](hostcall_seam::OPERATIONS_A_QUEUE).
const KERNELS_AN_OPERATION: u64 = 4;

/// Kernels that follow each other in a plan, or those of a node's bodies.
pub(crate) struct List {
    /// Their places among the plan's nodes, or that of the node with the bodies.
    pub nodes: Range<usize>,
    /// What the server has to know of their launches.
    pub records: Arc<[LaunchRecord]>,
    /// As it was made for streams; `None` for one that the device does not take.
    made: Mutex<Vec<(StreamKey, Option<Arc<StreamList>>)>>,
}

/// Percent of a GPU that kernels may take which wait for those before them, and that a kernel takes at least.
const WAITING_PERCENT: f64 = 25.0;
const LEAST_PERCENT: f64 = 0.1;

/// Goes along a list of kernels, and finds those that may come before the one before them has ended.
///
/// A kernel is early if the one before it never stops its stream, and its percent of the GPU with those of the ones before it
/// back to the last that is not early, that one included, are at most [`WAITING_PERCENT`]: those may all wait on the GPU at
/// once for what comes before them, and leave the rest of it to that. A kernel counts for at least [`LEAST_PERCENT`].
#[derive(Default)]
struct Early {
    /// Percent of the GPU that kernels take which may wait at the same time.
    waiting: f64,
    /// Whether the last kernel never stops its stream.
    follows: bool,
}

impl Early {
    /// Whether the next kernel, which takes so many percent of the GPU, is one.
    fn takes(&mut self, never_stops: bool, percent: f64) -> bool {
        let percent = percent.max(LEAST_PERCENT);
        let is_early =
            std::mem::replace(&mut self.follows, never_stops) && self.waiting + percent <= WAITING_PERCENT;
        // Any other lets none come before it is alone.
        self.waiting = if is_early { self.waiting + percent } else { percent };
        is_early
    }
}

/// What tells a stream from others: addresses that are in the parameters of its launches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamKey {
    stop_at: u64,
    last_post: u64,
}

impl StreamKey {
    pub fn of(words: &StreamWords) -> Self {
        Self { stop_at: words.stop_at().get(), last_post: words.last_post().get() }
    }
}

/// A list as it was made for one stream.
pub(crate) struct StreamList {
    pub kernels: Arc<dyn KernelList>,
    memory: Mutex<KernelMemory>,
    /// Reads what counts turns, if the list repeats.
    turns: Option<Arc<Core>>,
}

impl StreamList {
    fn new(kernels: Arc<dyn KernelList>, memory: KernelMemory, turns: Option<Arc<Core>>) -> Arc<Self> {
        Arc::new(Self { kernels, memory: Mutex::new(memory), turns })
    }

    /// Where the list's words lie: what differs from replay to replay, and behind it what counts turns.
    pub fn words(&self) -> DeviceAddress {
        self.memory.lock().address
    }

    /// Returns which turn the list is at, in the replay whose first launch has this sequence; `None` when it is at another
    /// replay, or does not repeat. It takes copies from the device.
    pub fn turn(&self, first_sequence: u64) -> Option<u64> {
        let core = self.turns.as_ref()?;
        let load = |at: u64| {
            let mut bytes = [0; 8];
            // SAFETY: the list keeps its words, and this one, at a multiple of 8, is accessed as a whole `u64` by everybody:
            // by what counts turns, and here.
            let loaded = unsafe { core.backend.load_words(self.words().offset(at), &mut bytes, 8) };
            loaded.ok().map(|()| u64::from_le_bytes(bytes))
        };
        // One after the other, and the other way round than they are stored: where a later replay has stored its turn, it is
        // seen to be its own.
        let turn = load(LIST_TURN_AT)?;
        (load(LIST_TURN_OF_AT)? == first_sequence).then_some(turn)
    }
}

impl List {
    /// Returns the lists of a plan's nodes, and takes them from `old` where these are the same nodes.
    pub fn all(nodes: &[Planned], old: Option<&Plan>) -> Vec<Arc<Self>> {
        let mut lists = Vec::new();
        let mut at = 0;
        while at < nodes.len() {
            let is_conditional = may_be_decided(&nodes[at]);
            let count = match is_conditional {
                true => 1,
                false => {
                    nodes[at..].iter().take(MOST_KERNELS).take_while(|planned| is_kernel(planned)).count()
                }
            };
            if is_conditional || count > 1 {
                let range = at..at + count;
                let same = old.and_then(|old| {
                    let list = old.lists.iter().find(|list| list.nodes == range)?;
                    let mut pairs = old.nodes[range.clone()].iter().zip(&nodes[range.clone()]);
                    pairs.all(|(old, new)| Arc::ptr_eq(&old.node, &new.node)).then(|| list.clone())
                });
                lists.push(same.unwrap_or_else(|| Arc::new(Self::new(range, nodes))));
            }
            at += count.max(1);
        }
        lists
    }

    fn new(range: Range<usize>, nodes: &[Planned]) -> Self {
        let records = kernels(&nodes[range.clone()]).map(|(_, kernel)| kernel.record()).collect();
        Self { nodes: range, records, made: Mutex::default() }
    }

    /// Returns the node of a plan whose launch has this place.
    pub fn planned<'a>(&self, plan: &'a Plan, place: u32) -> Option<&'a Planned> {
        let nodes = plan.nodes.get(self.nodes.clone())?;
        match nodes.first().filter(|planned| is_kernel(planned)) {
            Some(_) => nodes.get(place as usize),
            None => kernels(nodes).nth(place as usize).map(|(planned, _)| planned),
        }
    }

    /// Returns the node with bodies whose kernels these are, if they are that.
    fn conditional<'a>(&self, plan: &'a Plan) -> Option<(&'a Planned, &'a ConditionalNode)> {
        let planned = &plan.nodes[self.nodes.start];
        match &*planned.node {
            Node::Conditional(conditional) => Some((planned, conditional)),
            _ => None,
        }
    }

    /// How many operations of a queue it is taken for, as a list.
    pub fn operations(&self) -> u64 {
        1 + self.records.len() as u64 / KERNELS_AN_OPERATION
    }

    /// Returns the list as it was made for a stream. Without that its kernels are launched one by one. The software device, which waits
    /// for nothing, makes it now.
    pub fn of_stream(&self, device: &Inner, plan: &Plan, stream: StreamKey) -> Option<Arc<StreamList>> {
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
    fn tried(&self, stream: StreamKey) -> Option<Option<Arc<StreamList>>> {
        self.made.lock().iter().find(|(of, _)| *of == stream).map(|(_, list)| list.clone())
    }

    /// Notes what became of a list. The stream that had one first gives way, if there are too many.
    fn put(&self, stream: StreamKey, list: Option<Arc<StreamList>>) {
        let mut made = self.made.lock();
        let same = made.iter().position(|(of, _)| *of == stream);
        let gives_way = same.or_else(|| (made.len() == MOST_STREAMS).then_some(0));
        let old = gives_way.map(|at| made.remove(at));
        made.push((stream, list));
        drop(made);
        // After the lock: that may be a call of a driver.
        drop(old);
    }

    /// Makes the list for a stream. May wait for running kernels.
    fn make(&self, device: &Inner, plan: &Plan, stream: StreamKey) -> Result<Option<Arc<StreamList>>, Error> {
        let backend = &device.core.backend;
        if device.properties().kind == DeviceKind::Amd {
            return Ok(None);
        }
        let no_memory = || BackendError::NoMemory {
            what: "device memory",
            bytes: LIST_WORDS_BYTES as usize,
            reason: "a graph's list of kernels needs them".into(),
        };
        let memory = backend.allocate_list_words(LIST_WORDS_BYTES).ok_or_else(no_memory)?;
        // SAFETY: the words lie there, and nobody uses them yet. No launch has the sequence 0.
        unsafe { backend.write_now(memory.address, &[0; LIST_WORDS_BYTES as usize]) }?;
        let StreamKey { stop_at, last_post } = stream;
        let nodes = &plan.nodes[self.nodes.clone()];
        let mut early = Early::default();
        let parts: Vec<Parts> = (0u32..)
            .zip(kernels(nodes))
            .map(|(place, (_, kernel))| {
                // Of a node's bodies, the one before in the list need not be the one that ran before.
                let is_early = is_kernel(&nodes[0]) && early.takes(kernel.never_stops(), kernel.percent());
                let bit = if is_early { FOLLOWS_ONE_THAT_NEVER_STOPS } else { 0 };
                let of_stream = OfStream { stop_at, last_post, list: memory.address.get() | bit };
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
        let Some((planned, conditional)) = self.conditional(plan) else {
            // SAFETY: the nodes were checked as launches are; what their parameters refer to is kept by the plan, and that by
            // whoever pushes the list (PLAN).
            let kernels = unsafe { backend.list(&dispatches) }?;
            return Ok(kernels.map(|kernels| StreamList::new(kernels, memory, None)));
        };
        let Some(word) = conditional.condition.address() else { return Ok(None) };
        let mut left = &dispatches[..];
        let body = |(number, body): (u32, &Vec<Planned>)| {
            let (kernels, later) = left.split_at(kernels(body).count());
            left = later;
            ListBody { kernels, when: conditional.when(number) }
        };
        let bodies = (0..).zip(&*planned.bodies).map(body).collect();
        let (repeats, last) = (conditional.kind == NodeKind::While, self.records.len() as u64 - 1);
        let (stop_at, words) = (DeviceAddress::new(stop_at), memory.address);
        let list = ConditionalList { bodies, repeats, word, stop_at, last, words };
        // SAFETY: as above. The condition keeps its word, and the words of streams and lists stay where they are.
        let kernels = unsafe { backend.conditional_list(&list) }?;
        let turns = repeats.then(|| device.core.clone());
        Ok(kernels.map(|kernels| StreamList::new(kernels, memory, turns)))
    }
}

fn is_kernel(planned: &Planned) -> bool {
    matches!(&*planned.node, Node::Kernel(_))
}

/// Says whether the device may decide about a node's bodies: they have kernels only, and a word decides.
fn may_be_decided(planned: &Planned) -> bool {
    let Node::Conditional(conditional) = &*planned.node else { return false };
    let mut bodies = planned.bodies.iter().flatten();
    let kernels = kernels(std::slice::from_ref(planned)).count();
    conditional.condition.address().is_some()
        && (1..=MOST_KERNELS).contains(&kernels)
        && bodies.all(|planned| matches!(&*planned.node, Node::Kernel(_) | Node::Empty))
}

/// Returns the kernels of nodes and of their bodies, in order.
fn kernels(nodes: &[Planned]) -> impl Iterator<Item = (&Planned, &KernelNode)> {
    let all =
        nodes.iter().flat_map(|planned| std::iter::once(planned).chain(planned.bodies.iter().flatten()));
    all.filter_map(|planned| match &*planned.node {
        Node::Kernel(kernel) => Some((planned, kernel)),
        _ => None,
    })
}

/// Makes all lists of a plan for a stream that has none yet.
pub(super) fn make_lists(device: &Inner, plan: &Plan, stream: StreamKey) -> Result<(), Error> {
    for list in plan.lists.iter().filter(|list| list.tried(stream).flatten().is_none()) {
        list.put(stream, list.make(device, plan, stream)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_wait_take_no_more_than_a_quarter() {
        let mut early = Early::default();
        let takes: Vec<bool> =
            [(true, 10.0), (true, 10.0), (true, 4.9), (true, 0.2), (false, 5.0), (true, 1.0), (true, 1.0)]
                .map(|(never_stops, percent)| early.takes(never_stops, percent))
                .into();
        assert_eq!(takes, [false, true, true, false, true, false, true]);
        assert!(
            !Early::default().takes(true, 1.0)
                && !Early { follows: true, ..Early::default() }.takes(true, 26.0)
        );
        let mut early = Early::default();
        let many = (0..1000).filter(|_| early.takes(true, 0.0)).count();
        assert!((980..1000).contains(&many), "{many} of 1000 kernels that take next to nothing");
    }
}
