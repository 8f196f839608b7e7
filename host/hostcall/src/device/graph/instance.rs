//! Instances: what is launched of a graph.

use super::capture::refuse_captured;
use super::list::{StreamKey, make_lists};
use super::node::{KernelNode, Marks, Node};
use super::plan::Plan;
use super::push::push;
use super::replay::Replay;
use super::{Graph, GraphKernel, Recorded, graph_called};
use crate::device::arguments::Arguments;
use crate::device::error::{Error, GraphError, NodePath};
use crate::device::grid::Grid;
use crate::device::inner::Device;
use crate::device::stream::Stream;
use crate::device::uses::Point;
use hostcall_locks::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A graph that can be launched. It keeps all that its nodes use: kernels, buffers, closures, functions.
///
/// Replays of an instance follow each other, on whatever streams they are launched; instances of one graph do not. Clones
/// are the same instance.
#[derive(Clone)]
pub struct Instance {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    device: Device,
    state: Mutex<State>,
}

struct State {
    recorded: Recorded,
    /// The nodes of the graph that the instance was made of, if it has become another one since.
    before: Option<Marks>,
    plan: Arc<Plan>,
    launched: u64,
    /// The end of the last replay.
    last: Option<Point>,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("graph", &self.shared.name).finish_non_exhaustive()
    }
}

impl Instance {
    pub(super) fn new(graph: &Graph) -> Result<Self, Error> {
        let plan = Arc::new(Plan::new(&graph.device.inner, &graph.recorded, None)?);
        let state = State { recorded: graph.recorded.clone(), before: None, plan, launched: 0, last: None };
        let (name, device) = (graph.name.clone(), graph.device.clone());
        Ok(Self { shared: Arc::new(Shared { name, device, state: Mutex::new(state) }) })
    }

    /// Returns the graph's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Puts a replay on a stream: all of its nodes, in order. It begins when the stream's work so far, the instance's replay
    /// before it and conflicting work of other streams are done.
    ///
    /// A node that fails ends the replay: later kernels, functions and bodies are skipped, copies and fills are done all the
    /// same. The stream then does what it does when a launch fails, and the instance can be launched again.
    ///
    /// # Errors
    /// When the stream is another device's or captures, the device was closed, or it has no number for as many launches
    /// more. Nothing is launched then.
    pub fn launch(&self, stream: &Stream) -> Result<Replay, Error> {
        self.check_stream(stream)?;
        refuse_captured(stream, || GraphError::InstanceLaunched, "launch")?;
        let queue = stream.queue();
        let mut state = self.shared.state.lock();
        let number = state.launched + 1;
        let replay = push(queue, &state.plan, &self.shared.name, number, state.last.clone())?;
        state.launched = number;
        state.last = Some(queue.point(replay.position));
        drop(state);
        Ok(Replay { queue: queue.clone(), state: replay })
    }

    /// Prepares replays on a stream: makes lists of the kernels that follow each other, and of the bodies that the device
    /// decides about by itself, each of which it takes at once. Without this a GPU is given kernels one by one, and the host
    /// repeats bodies: to make lists may wait for kernels that run, which a launch does not. The software device makes
    /// lists by itself, and the host repeats its bodies.
    ///
    /// A device decides by itself about bodies that have kernels only, up to 1024, and that lie in no other body, if a word
    /// decides ([`Condition::word`](super::Condition::word)): NVIDIA's with drivers from CUDA 12.3 on. `set` and `update` keep the lists
    /// of nodes that they leave alone; for the others call this again.
    ///
    /// # Errors
    /// When the stream is another device's, or the device has no room for the lists. The instance can be launched all the
    /// same.
    pub fn upload(&self, stream: &Stream) -> Result<(), Error> {
        self.check_stream(stream)?;
        let plan = self.shared.state.lock().plan.clone();
        make_lists(&self.shared.device.inner, &plan, StreamKey::of(stream.queue().words()))
    }

    fn check_stream(&self, stream: &Stream) -> Result<(), Error> {
        let own = &self.shared.device.inner;
        if !stream.core().is(&own.core) && own.core.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        stream.core().check_own(&own.core, graph_called(&self.shared.name))
    }

    /// Gives a kernel of the graph, or of a graph in it, another grid and other arguments, for later replays. They are checked
    /// as for a launch. Of a graph that is in it twice only the node at this path changes. The nodes are
    /// those of the graph that the instance was made of, or of the one that it has become last
    /// ([`Instance::update`]).
    ///
    /// # Errors
    /// When the node is another graph's or no launch of this kernel, a launch like this would be refused,
    /// or there is no room for what it needs. Nothing changes then.
    pub fn set<P>(
        &self,
        node: impl Into<NodePath>,
        kernel: &impl GraphKernel<P>,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<(), Error> {
        let device = &self.shared.device.inner;
        let (node, kernel) = (node.into(), kernel.resolve(&self.shared.device)?);
        // What is replaced, or could not be put in its place, may be the last of a user's values.
        let (result, _old) = {
            let mut state = self.shared.state.lock();
            let mut recorded = state.recorded.clone();
            let before = state.before.as_ref();
            recorded.change(node.numbers(), &node, before, |old| match old {
                Node::Kernel(known) if known.is_of(&kernel) => {
                    Ok(Node::Kernel(KernelNode::new(&device.core, kernel, grid, &arguments)?))
                }
                other => {
                    let [what, kernel] = match other {
                        Node::Kernel(known) => known.told_apart(&kernel),
                        other => [other.name().to_string(), kernel.name.to_string()],
                    };
                    Err(GraphError::OtherKernel { node: node.clone(), what, kernel }.into())
                }
            })?;
            match Plan::new(device, &recorded, Some(&state.plan)) {
                Ok(plan) => {
                    let plan = std::mem::replace(&mut state.plan, Arc::new(plan));
                    (Ok(()), (Some(plan), std::mem::replace(&mut state.recorded, recorded)))
                }
                Err(error) => (Err(error), (None, recorded)),
            }
        };
        result
    }

    /// Makes later replays those of another graph, if that differs from this one in grids, arguments, functions and memory
    /// only. Returns whether it did; [`Instance::try_update`] says at which node it was not.
    ///
    /// # Errors
    /// When the graph is another device's, or there is no room for what its launches need. Nothing changes then.
    pub fn update(&self, graph: &Graph) -> Result<bool, Error> {
        match self.try_update(graph) {
            Ok(()) => Ok(true),
            Err(Error::Graph(GraphError::Update { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Does what [`Instance::update`] does.
    ///
    /// # Errors
    /// [`GraphError::Update`] with the first node that differs in what it is, in its edges, or in the kernel, by its path and
    /// its parameters; and as for [`Instance::update`]. Nothing changes then.
    pub fn try_update(&self, graph: &Graph) -> Result<(), Error> {
        let device = &self.shared.device.inner;
        device.core.check_own(&graph.device.inner.core, graph_called(&graph.name))?;
        let _old = {
            let mut state = self.shared.state.lock();
            same_shape(&state.recorded, &graph.recorded, &NodePath::root())?;
            let plan = Plan::new(device, &graph.recorded, Some(&state.plan))?;
            if state.before.is_none() {
                state.before = Some(Marks::of(&state.recorded));
            }
            let plan = std::mem::replace(&mut state.plan, Arc::new(plan));
            (plan, std::mem::replace(&mut state.recorded, graph.recorded.clone()))
        };
        Ok(())
    }
}

/// Refuses a graph whose nodes, edges or kernels differ.
fn same_shape(old: &Recorded, new: &Recorded, path: &NodePath) -> Result<(), GraphError> {
    let refused = |at: usize, why: String| GraphError::Update { node: path.child(at as u32), why };
    for (at, (old, new)) in old.nodes.iter().zip(&new.nodes).enumerate() {
        let (kind, other) = (old.node.kind(), new.node.kind());
        if kind != other {
            return Err(refused(
                at,
                format!("it is of kind `{kind}`, and of kind `{other}` in the new graph"),
            ));
        }
        let name = |node: &Node| match node {
            Node::Foreign(_) => format!("{} of a code object", node.name()),
            node => node.name().to_string(),
        };
        let others = match (&*old.node, &*new.node) {
            (Node::Kernel(old), Node::Kernel(new)) => {
                (!old.is_of(&new.kernel)).then(|| old.told_apart(&new.kernel))
            }
            (old, new) => Some([old, new].map(name)).filter(|[old, new]| old != new),
        };
        if let Some([kernel, other]) = others {
            return Err(refused(at, format!("it launches {kernel}, and {other} in the new graph")));
        }
        if old.after != new.after {
            return Err(refused(at, "its edges are others in the new graph".into()));
        }
        let path = path.child(at as u32);
        match (&*old.node, &*new.node) {
            (Node::Graph(old), Node::Graph(new)) => same_shape(old, new, &path)?,
            (Node::Conditional(old), Node::Conditional(new)) => {
                if old.bodies.len() != new.bodies.len() {
                    let why = format!(
                        "it has {} bodies, and {} in the new graph",
                        old.bodies.len(),
                        new.bodies.len()
                    );
                    return Err(GraphError::Update { node: path, why });
                }
                for (number, (old, new)) in (0..).zip(old.bodies.iter().zip(&new.bodies)) {
                    same_shape(old, new, &path.child(number))?;
                }
            }
            _ => {}
        }
    }
    let (len, other) = (old.nodes.len(), new.nodes.len());
    match len == other {
        true => Ok(()),
        false => {
            let (verb, plural) = if len == 1 { ("is", "") } else { ("are", "s") };
            let why = format!("there {verb} {len} node{plural}, and {other} in the new graph");
            Err(refused(len.min(other), why))
        }
    }
}
