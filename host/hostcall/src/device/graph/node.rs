//! What a node of a graph is, and what it keeps.

use super::bodies::ConditionalNode;
use super::{Entry, Recorded};
use crate::device::arguments::Arguments;
use crate::device::buffer::{AllWanted, Wanted};
use crate::device::core::Core;
use crate::device::error::{Error, GraphError, Mark, NodeId, NodePath};
use crate::device::foreign::{ForeignKernel, OwnArguments};
use crate::device::grid::Grid;
use crate::device::images::LoadedKernel;
use crate::device::inner::Inner;
use crate::device::prepare::{self, LaunchMemory, OfStream};
use crate::device::stream::{Parameters, Parts};
use crate::device::transfer::{Checked, Transfer, TransferKind};
use crate::device::words::StreamWords;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::{LAUNCH_PARAMS_BYTES, LaunchId, NEVER_STOPS};
use hostcall_server::LaunchRecord;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What kind of work a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeKind {
    /// A launch of a kernel.
    Kernel,
    /// A copy of values that the graph keeps.
    Write,
    /// A copy within the device.
    Copy,
    /// A fill.
    Fill,
    /// A function of the host.
    Function,
    /// Another graph.
    Graph,
    /// A body that may be skipped, or one of two bodies.
    If,
    /// A body that is repeated.
    While,
    /// One of several bodies.
    Switch,
    /// Nothing: it has edges only.
    Empty,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Kernel => "kernel",
            NodeKind::Write => "write",
            NodeKind::Copy => "copy",
            NodeKind::Fill => "fill",
            NodeKind::Function => "function",
            NodeKind::Graph => "graph",
            NodeKind::If => "if",
            NodeKind::While => "while",
            NodeKind::Switch => "switch",
            NodeKind::Empty => "empty",
        })
    }
}

/// Memory that a node uses, which knows that it is used by graphs.
pub(crate) struct NodeMemory(Vec<Wanted>);

impl NodeMemory {
    pub fn new(wanted: impl IntoIterator<Item = Wanted>) -> Self {
        let wanted: Vec<_> = wanted.into_iter().collect();
        for one in &wanted {
            one.allocation.graph_uses.fetch_add(1, Ordering::Relaxed);
        }
        Self(wanted)
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        for one in &self.0 {
            one.allocation.graph_uses.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Deref for NodeMemory {
    type Target = [Wanted];

    fn deref(&self) -> &[Wanted] {
        &self.0
    }
}

/// A function that replays call.
pub(crate) type RepeatedFunction = Arc<dyn Fn() + Send + Sync>;

/// A node, which graphs, their instances and graphs around them share.
pub(crate) enum Node {
    Kernel(KernelNode),
    Foreign(Box<ForeignNode>),
    Transfer(TransferNode),
    Function(RepeatedFunction),
    Conditional(ConditionalNode),
    Graph(Arc<Recorded>),
    Empty,
}

impl Node {
    pub fn kind(&self) -> NodeKind {
        match self {
            Node::Kernel(_) | Node::Foreign(_) => NodeKind::Kernel,
            Node::Transfer(transfer) => transfer.kind,
            Node::Function(_) => NodeKind::Function,
            Node::Conditional(conditional) => conditional.kind,
            Node::Graph(_) => NodeKind::Graph,
            Node::Empty => NodeKind::Empty,
        }
    }

    /// Returns what the node is called: the kernel's name, or its kind.
    pub fn name(&self) -> Arc<str> {
        match self {
            Node::Kernel(kernel) => kernel.kernel.name.clone(),
            Node::Foreign(node) => node.kernel.name.clone(),
            other => other.kind().to_string().into(),
        }
    }

    /// Returns the grid of a kernel.
    pub fn grid(&self) -> Option<Grid> {
        match self {
            Node::Kernel(kernel) => Some(kernel.grid),
            Node::Foreign(node) => Some(node.grid),
            _ => None,
        }
    }

    /// Returns the graphs that lie in it.
    pub fn children(&self) -> &[Arc<Recorded>] {
        match self {
            Node::Graph(child) => std::slice::from_ref(child),
            Node::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    /// Says whether it is a launch of its stream, or is followed like one.
    pub fn has_sequence(&self) -> bool {
        matches!(self, Node::Kernel(_) | Node::Foreign(_) | Node::Function(_) | Node::Conditional(_))
    }

    /// Returns what memory it uses by itself.
    pub fn memory(&self) -> &[Wanted] {
        match self {
            Node::Kernel(kernel) => &kernel.memory,
            Node::Foreign(node) => &node.memory,
            Node::Transfer(transfer) => &transfer.memory,
            Node::Conditional(conditional) => conditional.condition.memory(),
            Node::Function(_) | Node::Graph(_) | Node::Empty => &[],
        }
    }
}

/// A copy or a fill that is made at each replay.
pub(crate) struct TransferNode {
    /// What was asked for, which `what` need not be: a fill with a long pattern is done as a write.
    pub kind: NodeKind,
    pub what: Transfer,
    pub memory: NodeMemory,
}

impl From<Checked> for TransferNode {
    fn from(checked: Checked) -> Self {
        let kind = match checked.kind {
            TransferKind::Write => NodeKind::Write,
            TransferKind::Copy => NodeKind::Copy,
            TransferKind::Fill => NodeKind::Fill,
        };
        Self { kind, what: checked.what, memory: NodeMemory::new(checked.wanted) }
    }
}

/// A kernel with its arguments, launched at each replay.
pub(crate) struct KernelNode {
    pub kernel: LoadedKernel,
    pub grid: Grid,
    /// Bytes of workgroup memory that the kernel may use.
    pub memory_bytes: u32,
    workgroups: [u32; 3],
    lanes: [u32; 3],
    workgroup_bytes: u32,
    by_address: bool,
    /// The argument block.
    block: Vec<u8>,
    memory: NodeMemory,
    /// What else its arguments refer to.
    _keep: Vec<Arc<dyn Any + Send + Sync>>,
}

impl KernelNode {
    /// Checks the launch and packs its arguments as for one that is made now.
    pub fn new<P>(
        core: &Arc<Core>,
        kernel: LoadedKernel,
        grid: Grid,
        arguments: &impl Arguments<P>,
    ) -> Result<Self, Error> {
        let mut parts = Parts { is_recorded: true, ..Parts::default() };
        let memory_bytes = prepare::prepare(core, &kernel, &grid, arguments, &mut parts)?;
        let Parts {
            workgroups, lanes, workgroup_bytes, by_address, parameters, wanted, memory, values, ..
        } = parts;
        Ok(Self {
            kernel,
            grid,
            memory_bytes,
            workgroups,
            lanes,
            workgroup_bytes,
            by_address,
            block: parameters.bytes.to_vec(),
            memory: NodeMemory::new(wanted),
            _keep: memory.into_iter().chain(values).collect(),
        })
    }

    /// Makes the parts of a launch. What they refer to is kept by the replay.
    pub fn fill(&self, parts: &mut Parts) {
        parts.kernel = Some(self.kernel.code.clone());
        (parts.workgroups, parts.lanes) = (self.workgroups, self.lanes);
        (parts.workgroup_bytes, parts.by_address) = (self.workgroup_bytes, self.by_address);
        parts.wanted = AllWanted::new();
        parts.parameters.push(&[0; LAUNCH_PARAMS_BYTES]);
        parts.parameters.push(&self.block);
    }

    /// Begins a launch.
    pub fn begin(
        &self,
        device: &Inner,
        parameters: &mut Parameters,
        sequence: u64,
        words: &StreamWords,
        wave_records: u64,
    ) -> Result<LaunchId, Error> {
        let memory = LaunchMemory { bytes: self.memory_bytes, wave_records };
        prepare::begin(device, self.kernel.name.clone(), &self.grid, memory, parameters, sequence, words)
    }

    /// Returns what the server has to know of its launches.
    pub fn record(&self) -> LaunchRecord {
        self.grid.record(self.kernel.name.clone())
    }

    /// Makes the parts of its launch as the one with this place in a list.
    pub fn fill_listed(&self, device: &Inner, parts: &mut Parts, place: u32, of_stream: OfStream) {
        self.fill(parts);
        let (id, memory) =
            (LaunchId::from_bits(place), LaunchMemory { bytes: self.memory_bytes, wave_records: 0 });
        let params = prepare::params(device, &self.grid, memory, place.into(), id, of_stream);
        parts.parameters.set_at(0, params.as_bytes());
    }

    /// Says whether no lane of it stops its stream, as far as the build knows.
    pub fn never_stops(&self) -> bool {
        self.kernel.info.found & NEVER_STOPS != 0
    }

    /// Returns how many percent it takes of what the device runs at once, more than 100 if it is larger.
    pub fn percent(&self) -> f64 {
        100.0 * self.grid.workgroup_count() as f64 / f64::from(self.kernel.resident_workgroups(self.grid))
    }

    /// Says whether another node launches the same kernel.
    pub fn is_of(&self, other: &LoadedKernel) -> bool {
        let key = |kernel: &LoadedKernel| (kernel.info.path, kernel.info.schema);
        key(&self.kernel) == key(other)
    }

    /// Returns what the node's kernel and another one are called, with the hashes that differ where names do not.
    pub fn told_apart(&self, other: &LoadedKernel) -> [String; 2] {
        let kernels = [&self.kernel, other];
        if self.kernel.name != other.name {
            return kernels.map(|kernel| kernel.name.to_string());
        }
        let have_one_path = self.kernel.info.path == other.info.path;
        kernels.map(|LoadedKernel { name, info, .. }| match have_one_path {
            true => format!("{name} (parameters {:016x})", info.schema),
            false => format!("{name} (path {:016x})", info.path),
        })
    }
}

/// A kernel that another compiler made with its arguments, launched at each replay: by itself, since its parameters say which launch
/// it is, and nothing in it asks whether its stream was stopped.
pub(crate) struct ForeignNode {
    kernel: ForeignKernel,
    grid: Grid,
    own: OwnArguments,
    parameters: Parameters,
    memory: NodeMemory,
    /// What else its arguments refer to.
    _keep: Vec<Arc<dyn Any + Send + Sync>>,
}

impl ForeignNode {
    /// Takes the arguments of a launch that was checked.
    pub fn new(kernel: ForeignKernel, grid: Grid, own: OwnArguments, parts: Parts) -> Self {
        let Parts { parameters, wanted, memory, .. } = parts;
        Self { kernel, grid, own, parameters, memory: NodeMemory::new(wanted), _keep: memory }
    }

    /// Makes the parts of a launch. What they refer to is kept by the replay.
    pub fn fill(&self, parts: &mut Parts) {
        parts.parameters.clone_from(&self.parameters);
        self.kernel.fill(self.grid, &self.own, parts);
    }

    /// Begins a launch.
    pub fn begin(
        &self,
        device: &Inner,
        parameters: &mut Parameters,
        sequence: u64,
        words: &StreamWords,
    ) -> Result<LaunchId, Error> {
        self.kernel.begin(device, self.grid, &self.own, parameters, sequence, words)
    }
}

/// The nodes that a graph had, with those of the graphs in each, where others have taken their places.
pub(crate) struct Marks(Vec<(Mark, Vec<Marks>)>);

impl Marks {
    pub fn of(recorded: &Recorded) -> Self {
        let inside = |entry: &Entry| entry.node.children().iter().map(|child| Self::of(child)).collect();
        Self(recorded.nodes.iter().map(|entry| (entry.mark, inside(entry))).collect())
    }

    fn is(&self, at: u32, mark: Mark) -> bool {
        self.0.get(at as usize).is_some_and(|(known, _)| *known == mark)
    }

    /// Returns those of a graph in a node.
    fn inside(&self, at: u32, child: u32) -> Option<&Self> {
        self.0.get(at as usize)?.1.get(child as usize)
    }
}

impl Recorded {
    /// Refuses a node that the graph does not have.
    pub fn check_node(&self, node: NodeId) -> Result<usize, GraphError> {
        let (at, nodes) = (node.at as usize, self.nodes.len());
        match self.nodes.get(at) {
            Some(entry) if entry.mark == node.mark => Ok(at),
            Some(_) => Err(GraphError::OtherGraph { node: node.into() }),
            None => Err(GraphError::NoSuchNode { node: node.into(), nodes, inside: None }),
        }
    }

    /// Makes the node at `path`, which is of this graph or of one in it, what `change` returns for it.
    /// `before` is what the graph's nodes were before they became these, by which they may be named as
    /// well.
    pub fn change(
        &mut self,
        path: &[u32],
        whole: &NodePath,
        before: Option<&Marks>,
        change: impl FnOnce(&Node) -> Result<Node, Error>,
    ) -> Result<(), Error> {
        let place = whole.numbers().len() - path.len();
        let nodes = self.nodes.len();
        let there = |inside| GraphError::NoSuchNode { node: whole.clone(), nodes, inside };
        let none = || there(None);
        let [first, inside @ ..] = path else { return Err(none().into()) };
        let entry = self.nodes.get_mut(*first as usize).ok_or_else(none)?;
        let is_other =
            |mark| mark != entry.mark && !before.is_some_and(|before: &Marks| before.is(*first, mark));
        if whole.mark(place).is_some_and(is_other) {
            return Err(GraphError::OtherGraph { node: whole.first(place + 1) }.into());
        }
        let before = |child| before.and_then(|before| before.inside(*first, child));
        if inside.is_empty() {
            entry.node = Arc::new(change(&entry.node)?);
            return Ok(());
        }
        // Other graphs have the node as it was.
        let new = match (&*entry.node, inside) {
            (Node::Graph(child), inside) => {
                let mut child = Recorded::clone(child);
                child.change(inside, whole, before(0), change)?;
                Node::Graph(Arc::new(child))
            }
            (Node::Conditional(_), [body]) => {
                let what =
                    format!("that is a body, and a node in it is named by `.body({body})` and `.node(..)`");
                return Err(there(Some(what)).into());
            }
            (Node::Conditional(conditional), [body, inside @ ..]) => {
                let ConditionalNode { kind, condition, bodies } = conditional;
                let (kind, condition, mut bodies) = (*kind, condition.clone(), bodies.clone());
                let (number, count) = (*body, bodies.len());
                let body = bodies.get_mut(number as usize).ok_or_else(|| GraphError::NoSuchBody {
                    node: whole.first(place + 1),
                    body: number,
                    bodies: count,
                })?;
                Arc::make_mut(body).change(inside, whole, before(number), change)?;
                Node::Conditional(ConditionalNode { kind, condition, bodies })
            }
            (other, _) => {
                let outer = whole.first(place + 1);
                let what = format!("node {outer} ({}) has no bodies and is no graph", other.name());
                return Err(there(Some(what)).into());
            }
        };
        entry.node = Arc::new(new);
        Ok(())
    }
}
