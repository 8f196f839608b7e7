//! What can go wrong with graphs.

use super::{HostcallState, LaunchFailure, NodePath};
use hostcall_seam::BackendError;
use std::fmt;

/// Why a graph, a capture or an instance was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The capture was broken by waiting for a stream that captures.
    #[error(
        "`{call}` waits for a stream that captures, whose work is recorded and not done: wait after the capture's end"
    )]
    Synchronized {
        /// What was called.
        call: &'static str,
    },
    /// The capture was broken by a copy to the host.
    #[error(
        "`read` gives one copy of the values, and a graph makes one at each replay: copy to a buffer, and read that \
         after the replay"
    )]
    Read,
    /// The host would read or write memory that a capture has allocated.
    #[error(
        "`{call}` is of a buffer that was allocated in a capture, and has values in replays only: use the stream's \
         `write`, `copy` or `fill`"
    )]
    CapturedMemory {
        /// What was called.
        call: &'static str,
    },
    /// The capture was broken by an allocation that no cache keeps, and that was not dropped before its end.
    #[error(
        "`{call}` allocates while a stream captures, and what it allocates is used after the capture: drop the buffer \
         before the capture's end, or allocate before the capture, or under an `AllocCache`; in the mode `Relaxed` the \
         graph keeps what it uses of such memory"
    )]
    Allocated {
        /// What was called.
        call: &'static str,
    },
    /// The capture was broken by another thread.
    #[error(
        "`{call}` was called by another thread than the one that captures: use the mode `Global` or `Relaxed`, or one \
         thread"
    )]
    OtherThread {
        /// What was called.
        call: &'static str,
    },
    /// The capture was broken by the begin of another.
    #[error("the stream captures already: end the capture before beginning another")]
    SecondCapture,
    /// The capture was broken by a call before.
    #[error(
        "the capture is broken since a call before, and takes nothing more: end it. That call was told: {why}"
    )]
    Broken {
        /// What broke it, which the capture's end returns.
        why: Box<GraphError>,
    },
    /// A kernel was given a closure that takes no more than one call.
    #[error(
        "argument {argument} is a closure in the state {state:?}, and each replay calls it: make it with \
         `Hostcall::continuous`"
    )]
    OneShotClosure {
        /// Place among the arguments, from 0.
        argument: usize,
        /// The closure's state.
        state: HostcallState,
    },
    /// The capture was broken by a function that runs once.
    #[error(
        "`host_function` takes a function that runs once, and each replay calls it: use `repeated_function`"
    )]
    OneShotFunction,
    /// The capture was broken by waiting for an event of no captured work.
    #[error(
        "the event is of work outside of the capture, which no replay does again: wait for it before the capture"
    )]
    ForeignEvent,
    /// The capture was broken by the launch of an instance.
    #[error("an instance is launched on streams that do not capture: add its graph with `add_graph`")]
    InstanceLaunched,
    /// The capture was broken by the drop of one of its streams.
    #[error("a stream of the capture was dropped")]
    StreamDropped,
    /// The capture was broken by the end of its device.
    #[error("the device was closed while a stream captured")]
    Closed,
    /// The capture was ended on a stream that it was not begun on.
    #[error("the capture was begun on another stream: end it there")]
    EndedElsewhere,
    /// The capture has work of a stream that it does not wait for.
    #[error(
        "{streams} stream{} forked and not joined: record an event on each, and have the first stream wait for it",
        if *streams == 1 { " was" } else { "s were" }
    )]
    NotJoined {
        /// How many.
        streams: usize,
    },
    /// The stream does not capture.
    #[error("`{call}` is for streams that capture, which this one does not")]
    NotCapturing {
        /// What was called.
        call: &'static str,
    },
    /// What was captured is waited for.
    #[error("{what} was captured, and is not done before its graph is replayed: wait for the replay")]
    Captured {
        /// What it is, such as "an event".
        what: &'static str,
    },
    /// Nodes wait for each other.
    #[error("node {node} waits for itself: its edges go in a circle")]
    Circle {
        /// One of them, with the graphs that it is in.
        node: NodePath,
    },
    /// The graph has no such node.
    #[error("there is no node {node}: {}", inside.clone().unwrap_or_else(|| format!("its graph has {nodes}")))]
    NoSuchNode {
        /// Where it would be.
        node: NodePath,
        /// How many nodes the innermost graph has that is there.
        nodes: usize,
        /// What is there where the path goes on as if it were a graph, or ends as if it were a node.
        inside: Option<String>,
    },
    /// The graph has another node with this number than the one that was meant.
    #[error(
        "node {node} is meant of another graph: name nodes by what the graph itself returned when they were added or found"
    )]
    OtherGraph {
        /// The node, with the graphs that it was to be in.
        node: NodePath,
    },
    /// The node has no such body.
    #[error("node {node} has no body {body}: it has {bodies}, from number 0 on")]
    NoSuchBody {
        /// The node.
        node: NodePath,
        /// The number of the body.
        body: u32,
        /// How many bodies the node has.
        bodies: usize,
    },
    /// The node is no launch of this kernel.
    #[error("node {node} is {what}, no launch of {kernel}")]
    OtherKernel {
        /// The node.
        node: NodePath,
        /// What it is instead: another kernel's name, or its kind.
        what: String,
        /// The kernel that was given.
        kernel: String,
    },
    /// The graph has more nodes than an instance can have.
    #[error("an instance has at most {limit} nodes, with those of the graphs in it")]
    TooManyNodes {
        /// How many it can have.
        limit: usize,
    },
    /// Graphs lie in each other more deeply than they may.
    #[error("graphs lie in each other at most {limit} deep")]
    TooDeep {
        /// How deep they may.
        limit: usize,
    },
    /// The instance cannot become the graph.
    #[error("the instance cannot be updated: node {node}: {why}")]
    Update {
        /// The first node that differs.
        node: NodePath,
        /// How.
        why: String,
    },
    /// The condition's buffer has not one value.
    #[error("a condition is a buffer of one value, not of {len}: take the part")]
    Condition {
        /// How many it has.
        len: usize,
    },
    /// The condition's buffer has not the bytes of one number, or begins where no number can.
    #[error("a condition is four bytes that begin at a multiple of four, not a buffer of {bytes} bytes")]
    ConditionBytes {
        /// How many it has.
        bytes: usize,
    },
    /// Graphs use the cache's memory.
    #[error(
        "{allocations} allocations of the cache are used by graphs: drop these, with their instances, before"
    )]
    CacheInUse {
        /// How many.
        allocations: usize,
    },
}

impl GraphError {
    /// Says whether work that is done once without being captured may not do this again.
    pub(crate) fn may_be_over(&self) -> bool {
        matches!(self, GraphError::Synchronized { .. } | GraphError::Read | GraphError::Allocated { .. })
    }
}

/// Why a replay did not end well: the first node that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayFailure {
    /// The graph's name.
    pub graph: String,
    /// Which replay of the instance it is, from 1.
    pub replay: u64,
    /// The node.
    pub node: NodePath,
    /// The kernel's name, or the node's kind.
    pub what: String,
    /// In a repeated body: which turn, from 0.
    pub turn: Option<u64>,
    /// What happened.
    pub cause: NodeFailure,
}

impl fmt::Display for ReplayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graph, replay, node, what, turn, cause } = self;
        write!(f, "{graph}, replay {replay}, node {node} ({what})")?;
        if let Some(turn) = turn {
            write!(f, ", turn {turn}")?;
        }
        write!(f, ": {cause}")
    }
}

impl std::error::Error for ReplayFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// What happened to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFailure {
    /// Its launch did not end well, or it was ended or skipped as a launch is.
    #[error(transparent)]
    Launch(LaunchFailure),
    /// Its launch, in a body, was refused.
    #[error("{0}")]
    Refused(String),
    /// Its function, or that of its condition, panicked.
    #[error("the function panicked: {message}")]
    Function {
        /// The panic's message.
        message: String,
    },
    /// The device refused it.
    #[error(transparent)]
    Device(BackendError),
}
