//! Graphs: work that is recorded once and replayed many times, with calls to the host from every kernel of every replay.
//!
//! ```
//! use hostcall::graph::CaptureMode;
//! use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel};
//!
//! #[kernel]
//! fn add_one(lane: &Lane, values: &[Global<u32>]) {
//!     let value = &values[lane.global_id()];
//!     value.set(value.get() + 1);
//! }
//!
//! # fn main() -> Result<(), hostcall::Error> {
//! let device = Device::open("cpu")?;
//! let stream = device.stream()?;
//! let values = device.alloc_zeroed::<u32>(64)?;
//! let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
//!     for _ in 0..3 {
//!         add_one.launch(stream, Grid::new(1, 64), (&values,))?;
//!     }
//!     Ok(())
//! })?;
//! let instance = graph.instantiate()?;
//! for _ in 0..10 {
//!     instance.launch(&stream)?;
//! }
//! stream.synchronize()?;
//! assert_eq!(values.read()?, [30; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! | for | there is |
//! |---|---|
//! | recording what a stream is given | [`Stream::capture`](crate::Stream::capture), [`captured`] |
//! | nodes and edges by hand | [`Graph`] |
//! | replaying | [`Instance`], [`Replay`] |
//! | bodies that are skipped, chosen or repeated | [`Condition`], [`Graph::add_if`], [`Graph::add_while`], [`Graph::add_switch`] |
//! | memory that captured work allocates | [`AllocCache`] |
//! | which node a call comes from | [`origin`], [`Device::origin`](crate::Device::origin) |
//! | what went wrong | [`GraphError`], [`ReplayFailure`] |

mod bodies;
mod cache;
mod capture;
mod captured;
mod dot;
mod instance;
mod list;
mod node;
mod plan;
mod push;
mod replay;

pub use super::error::{GraphError, NodeFailure, NodeId, NodePath, ReplayFailure};
pub use bodies::Condition;
pub use cache::AllocCache;
pub use capture::CaptureMode;
pub use captured::captured;
pub use instance::Instance;
pub use node::NodeKind;
pub use replay::{Origin, Replay, origin};

pub(crate) use cache::{Asked, take_cached};
pub(crate) use capture::{
    Capture, CapturedPoint, capture_event, capture_of, capture_wait, check_allocation, hold_captures,
    leave_capture, owner_of_allocation, refuse_captured,
};
pub(crate) use node::{ForeignNode, KernelNode, Node};

use super::arguments::Arguments;
use super::buffer::DeviceBuffer;
use super::core::Core;
use super::error::{Error, Mark};
use super::grid::Grid;
use super::images::LoadedKernel;
use super::inner::Device;
use super::transfer;
use bodies::ConditionalNode;
use hostcall_device::kernel::Plain;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kernel that nodes launch: of the program, or of an image. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no kernel that a graph launches",
    label = "no kernel with the parameters `{P}`",
    note = "a kernel is the constant that `#[kernel]` makes, or of an image's `typed`; `assume_safe` makes one of an `unsafe` \
            kernel"
)]
pub trait GraphKernel<P>: sealed::Sealed<P> {
    /// Finds the kernel's code for a device.
    #[doc(hidden)]
    fn resolve(&self, device: &Device) -> Result<LoadedKernel, Error>;
}

pub(crate) mod sealed {
    /// Kernels are the only things that can be launched.
    pub trait Sealed<P> {}
}

/// How deep graphs may lie in each other. What walks or drops them needs a stack as deep.
const DEEPEST: usize = 32;

/// Nodes and edges. Clones share the nodes.
#[derive(Clone, Default)]
pub(crate) struct Recorded {
    pub nodes: Vec<Entry>,
    /// The name that the graph in another one was given, for pictures; else empty.
    pub name: Arc<str>,
    /// How deep graphs lie in it; 0 without any.
    depth: usize,
}

impl Recorded {
    /// Adds a node that waits for these.
    fn push(&mut self, node: Node, after: Vec<u32>) -> NodeId {
        let (at, mark) = (self.nodes.len() as u32, Mark::new());
        let depth = node.children().iter().map(|child| child.depth + 1).max();
        self.depth = self.depth.max(depth.unwrap_or(0));
        self.nodes.push(Entry { node: Arc::new(node), mark, after });
        NodeId { at, mark }
    }
}

/// A node of a graph, and which nodes it waits for.
#[derive(Clone)]
pub(crate) struct Entry {
    pub node: Arc<Node>,
    /// Stays when the node is set: it is the same one, with other arguments.
    pub mark: Mark,
    pub after: Vec<u32>,
}

/// Recorded work of a device: nodes, and edges that say which waits for which. It keeps what its nodes use. Clones share
/// the nodes that they have.
#[derive(Clone)]
pub struct Graph {
    name: Arc<str>,
    device: Device,
    recorded: Recorded,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("name", &self.name).field("nodes", &self.len()).finish_non_exhaustive()
    }
}

/// How the names begin of graphs that were given none.
const UNNAMED: &str = "graph ";

/// Returns a name for a graph that was given none.
fn new_name() -> Arc<str> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{UNNAMED}{}", NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Returns what errors call a graph of this name.
fn graph_called(name: &str) -> impl fmt::Display {
    let kind = if name.starts_with(UNNAMED) { "" } else { "graph " };
    fmt::from_fn(move |f| write!(f, "{kind}{name}"))
}

impl Graph {
    /// Makes a graph without nodes.
    pub fn new(device: &Device) -> Self {
        Self { name: new_name(), device: device.clone(), recorded: Recorded::default() }
    }

    /// Gives the graph a name, which its replays' failures and [`Origin`]s have.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many nodes it has; a graph in it is one.
    pub fn len(&self) -> usize {
        self.recorded.nodes.len()
    }

    /// Says whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.recorded.nodes.is_empty()
    }

    /// Returns its nodes, with what each is and what it is called: a kernel's name, or its kind.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, NodeKind, Arc<str>)> {
        let nodes = (0u32..).zip(&self.recorded.nodes);
        nodes.map(|(at, entry)| (NodeId { at, mark: entry.mark }, entry.node.kind(), entry.node.name()))
    }

    /// Returns the first node that launches the kernel of this name.
    pub fn find(&self, kernel: &str) -> Option<NodeId> {
        let is_meant =
            |(_, kind, name): &(_, NodeKind, Arc<str>)| *kind == NodeKind::Kernel && **name == *kernel;
        self.nodes().find(is_meant).map(|(node, ..)| node)
    }

    /// Makes an instance, which can be launched. It has the nodes as they are now.
    ///
    /// # Errors
    /// When edges go in a circle, there are too many nodes, or the device has no room.
    pub fn instantiate(&self) -> Result<Instance, Error> {
        Instance::new(self)
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.recorded.push(node, Vec::new())
    }

    /// Has `then` wait for `first`.
    ///
    /// # Errors
    /// When the graph has no such nodes, or they are another graph's.
    pub fn edge(&mut self, first: NodeId, then: NodeId) -> Result<(), Error> {
        self.recorded.check_node(first)?;
        let then = self.recorded.check_node(then)?;
        let then = &mut self.recorded.nodes[then];
        if !then.after.contains(&first.at) {
            then.after.push(first.at);
        }
        Ok(())
    }

    /// Adds a launch.
    ///
    /// # Errors
    /// As for [`LaunchKernel::launch`](crate::LaunchKernel::launch), and when an argument is a closure that takes no more
    /// than one call.
    pub fn add_kernel<P>(
        &mut self,
        kernel: &impl GraphKernel<P>,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<NodeId, Error> {
        let kernel = kernel.resolve(&self.device)?;
        let node = KernelNode::new(&self.device.inner.core, kernel, grid, &arguments)?;
        Ok(self.add(Node::Kernel(node)))
    }

    /// Adds a copy of these values, which the graph keeps, to a buffer.
    ///
    /// # Errors
    /// As for [`Stream::write`](crate::Stream::write).
    pub fn add_write<T: Plain>(&mut self, to: &DeviceBuffer<T>, values: &[T]) -> Result<NodeId, Error> {
        let node = transfer::check_write(&self.device.inner.core, to, values)?.into();
        Ok(self.add(Node::Transfer(node)))
    }

    /// Adds a copy of the values of `from` to `to`. The target comes first, as for [`Stream::copy`](crate::Stream::copy).
    ///
    /// # Errors
    /// As for [`Stream::copy`](crate::Stream::copy).
    pub fn add_copy<T: Plain>(
        &mut self,
        to: &DeviceBuffer<T>,
        from: &DeviceBuffer<T>,
    ) -> Result<NodeId, Error> {
        let node = transfer::check_copy(&self.device.inner.core, to, from)?.into();
        Ok(self.add(Node::Transfer(node)))
    }

    /// Adds a fill.
    ///
    /// # Errors
    /// As for [`Stream::fill`](crate::Stream::fill).
    pub fn add_fill<T: Plain>(&mut self, buffer: &DeviceBuffer<T>, value: T) -> Result<NodeId, Error> {
        let node = transfer::check_fill(&self.device.inner.core, buffer, value)?.into();
        Ok(self.add(Node::Transfer(node)))
    }

    /// Adds a function that each replay calls on a thread of hostcall's. It may use the device, but not wait for the
    /// replay's stream. Its panic ends the replay.
    pub fn add_function(&mut self, function: impl Fn() + Send + Sync + 'static) -> NodeId {
        self.add(Node::Function(Arc::new(function)))
    }

    /// Adds a node that does nothing, for edges.
    pub fn add_empty(&mut self) -> NodeId {
        self.add(Node::Empty)
    }

    /// Adds a graph, as it is now, as one node.
    ///
    /// # Errors
    /// When it is another device's, or graphs lie in it too deep.
    pub fn add_graph(&mut self, graph: &Graph) -> Result<NodeId, Error> {
        let child = graph.child_of(&self.device.inner.core)?;
        Ok(self.add(Node::Graph(child)))
    }

    /// Adds a body that is done if the condition is not 0.
    ///
    /// # Errors
    /// When a graph or the condition's buffer is another device's, or graphs lie in a graph too deep.
    pub fn add_if(&mut self, condition: &Condition, then: &Graph) -> Result<NodeId, Error> {
        self.add_conditional(NodeKind::If, condition, &[then])
    }

    /// Adds two bodies: the first is done if the condition is not 0, else the second.
    ///
    /// # Errors
    /// As for [`Graph::add_if`].
    pub fn add_if_else(
        &mut self,
        condition: &Condition,
        then: &Graph,
        otherwise: &Graph,
    ) -> Result<NodeId, Error> {
        self.add_conditional(NodeKind::If, condition, &[then, otherwise])
    }

    /// Adds a body that is done again and again, as long as the condition is not 0: it is looked at before each turn.
    ///
    /// # Errors
    /// As for [`Graph::add_if`].
    pub fn add_while(&mut self, condition: &Condition, body: &Graph) -> Result<NodeId, Error> {
        self.add_conditional(NodeKind::While, condition, &[body])
    }

    /// Adds bodies of which the one is done whose number the condition is, from 0; none if there is no such body.
    ///
    /// # Errors
    /// As for [`Graph::add_if`].
    pub fn add_switch(&mut self, condition: &Condition, bodies: &[&Graph]) -> Result<NodeId, Error> {
        self.add_conditional(NodeKind::Switch, condition, bodies)
    }

    fn add_conditional(
        &mut self,
        kind: NodeKind,
        condition: &Condition,
        bodies: &[&Graph],
    ) -> Result<NodeId, Error> {
        let core = &self.device.inner.core;
        condition
            .memory()
            .iter()
            .try_for_each(|wanted| core.check_own(&wanted.allocation.core, "the condition"))?;
        let bodies = bodies.iter().map(|body| body.child_of(core)).collect::<Result<_, _>>()?;
        Ok(self.add(Node::Conditional(ConditionalNode { kind, condition: condition.clone(), bodies })))
    }

    /// Returns what a graph of this device has that this one lies in.
    fn child_of(&self, core: &Core) -> Result<Arc<Recorded>, Error> {
        core.check_own(&self.device.inner.core, graph_called(&self.name))?;
        if self.recorded.depth >= DEEPEST {
            return Err(GraphError::TooDeep { limit: DEEPEST }.into());
        }
        let name = if self.name.starts_with(UNNAMED) { Arc::default() } else { self.name.clone() };
        Ok(Arc::new(Recorded { name, ..self.recorded.clone() }))
    }
}
