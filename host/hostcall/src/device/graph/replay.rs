//! Replays: as whoever launched them holds them, and as their launches know them.
//!
//! ```text
//!  stream.capture(mode, work)          graph.instantiate()              instance.launch(&stream)
//!  ──────────────────────────────────────────────────────────────────────────────────────────────
//!  launch, write, copy, fill,    ┐     checks: no circle, bounds        begins a launch id a kernel
//!  repeated_function, add_graph, ├──►  Graph ──► Plan: nodes in one ──► enters all buffers once
//!  record + wait_for (fork, join)┘     by hand:  order, children        pushes operations in a row:
//!                                      add_*,    in their places,       kkk c H kk … end
//!                                      edge      lists found             └── of the stream's own queue
//! ```
//!
//! The recording is hostcall's own: a capturing stream writes down what it is given, and the driver learns
//! nothing of it. So nothing that other threads do with the driver can break a capture.
//!
//! - A replay is ordinary work of its stream. Each kernel is a launch with an id of its own, so calls, posts,
//!   panics, faults, cancellation and time limits are those of any launch. Nodes run in one order, the lowest
//!   number first among those whose edges allow it: branches of a fork do not run side by side.
//! - All nodes' buffers are entered into the device's order at once, at the replay's last position, before
//!   its first node is pushed. So work of other streams waits for the whole replay, and the replay for
//!   theirs. Replays of one instance follow each other on whatever streams they are launched.
//! - A kernel that panics stops its stream, as any launch does: the replay's later kernels, functions and
//!   bodies are skipped, copies and fills are done all the same, and so it goes on until `synchronize` has
//!   told the failure. The error names graph, node, kernel and the replay's number. Then the instance can be
//!   launched again.
//! - The device's table of origins (`owners.rs`) has graph, node and replay of each launch id
//!   that a replay has begun and that has not ended: `graph::origin()` asks it.
//!
//! | what | owner | until |
//! |---|---|---|
//! | a node's kernel, buffers, closures, staged bytes, function | the node, which graphs, plans and children share | nobody has it any more |
//! | a plan | the instance, and each replay of it | `set` or `update` made another one, and the replay's last operation is settled |
//! | a list, its words, its kernels' modules | the plan's list, and each operation that has it | the plan's list gave it up, and those operations are settled |
//! | a list's ids | the operation | it is settled |
//! | the inner queue | the instance, and the step that runs | both are gone; a step leaves it idle |
//! | memory that a capture allocated | the capture, then the nodes that use it | the capture was broken and its buffers are dropped, or no graph has the nodes |
//! | a cached allocation | the `AllocCache`, and the nodes that use it | `clear`, which is refused while a node uses it |

use super::list::StreamList;
use super::plan::{Plan, Planned};
use crate::device::error::{Error, NodeFailure, NodePath, ReplayFailure};
use crate::device::inner::Device;
use crate::device::open_devices::owners_of;
use crate::device::owners::{ListOwner, Owner, Owners, UnitHold};
use crate::device::stream::StreamQueue;
use hostcall_abi::launch::LaunchId;
use hostcall_server::{CancelReason, handling};
use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is known of a replay until nobody asks any more.
pub(crate) struct ReplayState {
    graph: Arc<str>,
    number: u64,
    /// The sequences of its launches and steps on its stream.
    pub sequences: RangeInclusive<u64>,
    /// The position of its end on its stream.
    pub position: u64,
    failure: OnceLock<ReplayFailure>,
    is_over: AtomicBool,
    /// What the replay uses is kept for good: lanes of it were ended by force.
    is_leaked: AtomicBool,
}

impl ReplayState {
    pub fn new(graph: Arc<str>, number: u64, sequences: RangeInclusive<u64>, position: u64) -> Self {
        let (failure, is_over, is_leaked) = (OnceLock::new(), AtomicBool::new(false), AtomicBool::new(false));
        Self { graph, number, sequences, position, failure, is_over, is_leaked }
    }

    /// Says whether it has ended and is settled.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends it, on the stream on which it was launched, unless it has ended.
    fn cancel(&self, queue: &StreamQueue, why: CancelReason) {
        queue.cancel_unit(self.position, self.sequences.clone(), why);
    }
}

/// Keeps what a replay uses until it is settled.
pub(crate) struct ReplayHold {
    /// Taken when it is released.
    plan: Option<Arc<Plan>>,
    replay: Arc<ReplayState>,
}

impl ReplayHold {
    pub fn new(plan: Arc<Plan>, replay: Arc<ReplayState>) -> Self {
        Self { plan: Some(plan), replay }
    }

    /// Takes the plan, unless it stays for good.
    fn take_plan(&mut self) -> Option<Arc<Plan>> {
        let plan = self.plan.take()?;
        if self.replay.is_leaked.load(Ordering::Relaxed) {
            std::mem::forget(plan);
            return None;
        }
        Some(plan)
    }
}

impl UnitHold for ReplayHold {
    fn release(mut self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(Arc::into_inner(self.take_plan()?)?))
    }
}

impl Drop for ReplayHold {
    fn drop(&mut self) {
        // Of one that nobody settled.
        drop(self.take_plan());
        self.replay.is_over.store(true, Ordering::Release);
    }
}

/// Where in a replay a launch is.
#[derive(Clone)]
pub(crate) struct NodeOrigin {
    pub replay: Arc<ReplayState>,
    path: NodePath,
    what: Arc<str>,
    turn: Turn,
}

/// Which turn of a repeated body it is.
#[derive(Clone)]
enum Turn {
    /// As the host counts, if it is in one.
    Host(Option<u64>),
    /// As the device counts, in the replay whose first launch of the list has this sequence.
    Device(Arc<StreamList>, u64),
}

impl NodeOrigin {
    pub fn new(replay: &Arc<ReplayState>, planned: &Planned, turn: Option<u64>) -> Self {
        let Planned { path, what, .. } = planned;
        Self { replay: replay.clone(), path: path.clone(), what: what.clone(), turn: Turn::Host(turn) }
    }

    /// A launch of a list whose first has this sequence.
    pub fn listed(
        replay: &Arc<ReplayState>,
        planned: &Planned,
        list: &Arc<StreamList>,
        first_sequence: u64,
    ) -> Self {
        Self { turn: Turn::Device(list.clone(), first_sequence), ..Self::new(replay, planned, None) }
    }

    /// Returns the kernel's name, or the node's kind.
    pub fn what(&self) -> &Arc<str> {
        &self.what
    }

    /// Returns the turn. May take a copy from the device.
    pub fn turn(&self) -> Option<u64> {
        match &self.turn {
            Turn::Host(turn) => *turn,
            Turn::Device(list, first_sequence) => list.turn(*first_sequence),
        }
    }

    fn origin(&self) -> Origin {
        let turn = self.turn();
        let Self { replay, path, what, .. } = self;
        let (node, kernel) = (path.clone(), what.clone());
        Origin { graph: replay.graph.clone(), replay: replay.number, node, kernel, turn }
    }
}

impl Owner for NodeOrigin {
    /// Notes what happened to the node, unless another one has failed before. Returns the replay's failure.
    fn fail(&self, cause: NodeFailure) -> Error {
        let failure = self.replay.failure.get_or_init(|| ReplayFailure {
            graph: self.replay.graph.to_string(),
            replay: self.replay.number,
            node: self.path.clone(),
            what: self.what.to_string(),
            turn: self.turn(),
            cause,
        });
        Error::Replay(Box::new(failure.clone()))
    }

    fn leak(&self) {
        self.replay.is_leaked.store(true, Ordering::Relaxed);
    }
}

/// The node of a graph that a launch is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The graph's name.
    pub graph: Arc<str>,
    /// Which replay of its instance it is, from 1.
    pub replay: u64,
    /// The node.
    pub node: NodePath,
    /// The kernel.
    pub kernel: Arc<str>,
    /// In a repeated body: which turn, from 0. Where the device repeats the body by itself, the handler of a post may find a
    /// later turn here, or none when the replay is over.
    pub turn: Option<u64>,
}

/// A list of a plan in a replay.
pub(crate) struct ReplayedList {
    pub plan: Arc<Plan>,
    /// Number of the list among the plan's.
    pub number: usize,
    pub list: Arc<StreamList>,
    pub replay: Arc<ReplayState>,
    /// The sequence of its first launch.
    pub first_sequence: u64,
}

impl ListOwner for ReplayedList {
    fn owner(&self, place: u32) -> Option<(Arc<str>, Arc<dyn Owner>)> {
        let planned = self.plan.lists.get(self.number)?.planned(&self.plan, place)?;
        let origin = NodeOrigin::listed(&self.replay, planned, &self.list, self.first_sequence);
        Some((origin.what.clone(), Arc::new(origin)))
    }

    fn release(self: Arc<Self>) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(Arc::into_inner(Arc::into_inner(self)?.plan)?))
    }
}

/// Returns the node of a graph that a launch is.
fn origin_of(owners: &Owners, launch: LaunchId) -> Option<Origin> {
    // Not under the table's lock: the device may be asked for the turn.
    let owner: Arc<dyn Owner> = owners.get(launch)?;
    let owner: &dyn Any = &*owner;
    owner.downcast_ref::<NodeOrigin>().map(NodeOrigin::origin)
}

/// Returns the node of a graph whose call or post the calling handler handles. `None` outside of handlers, and when the
/// kernel was launched by itself.
///
/// In an async handler it is to be asked between two `await`s, not on threads that the handler starts. In a body that a GPU
/// repeats by itself, each question takes a copy from the GPU.
pub fn origin() -> Option<Origin> {
    let handling = handling()?;
    origin_of(&*owners_of(handling.server)?, handling.launch)
}

impl Device {
    /// Returns the node of a graph that a launch is, if a replay launched it and it has not ended.
    pub fn origin(&self, launch: LaunchId) -> Option<Origin> {
        origin_of(&self.inner.owners, launch)
    }
}

/// A replay of an instance. Dropping it lets the replay go on; clones are the same replay.
#[derive(Clone)]
pub struct Replay {
    pub(super) queue: Arc<StreamQueue>,
    pub(super) state: Arc<ReplayState>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("graph", &self.state.graph)
            .field("number", &self.state.number)
            .field("failure", &self.state.failure.get())
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// Returns which replay of its instance it is, from 1.
    pub fn number(&self) -> u64 {
        self.state.number
    }

    /// Says whether it has ended.
    pub fn is_done(&self) -> bool {
        self.queue.is_settled(self.state.position)
    }

    /// Waits for its end. The stream's [`synchronize`](crate::Stream::synchronize) tells of a failure all the same.
    ///
    /// # Errors
    /// Its first node's failure. Also when the device was closed before it was done, and when a handler or host function
    /// calls this for which the replay waits.
    pub fn wait(&self) -> Result<(), Error> {
        self.queue.wait_for(self.state.position, "a replay's `wait`", None)?;
        self.outcome()
    }

    /// Waits for its end, at most `limit`.
    ///
    /// # Errors
    /// As for [`Replay::wait`], and [`Error::TimedOut`].
    pub fn wait_for(&self, limit: Duration) -> Result<(), Error> {
        if !self.queue.wait_for(self.state.position, "a replay's `wait_for`", Some(limit))? {
            return Err(self.queue.timed_out("the replay", self.state.position, limit));
        }
        self.outcome()
    }

    /// Ends the replay as [`Launch::cancel`](crate::device::Launch::cancel) ends a launch: the node that runs is cancelled,
    /// those after it are skipped, and so is what follows in the stream, until its `synchronize` has told of it. A body
    /// that is repeated is not begun again.
    pub fn cancel(&self) {
        self.state.cancel(&self.queue, CancelReason::Asked);
    }

    /// Cancels the replay if it has not ended when `limit` has passed from now on; it then fails with
    /// [`LaunchFailure::TimedOut`](crate::LaunchFailure::TimedOut).
    pub fn cancel_after(&self, limit: Duration) {
        let end = |queue: &StreamQueue, replay: &ReplayState| replay.cancel(queue, CancelReason::TimedOut);
        self.queue.limit(limit, &self.state, ReplayState::is_over, end);
    }

    fn outcome(&self) -> Result<(), Error> {
        match self.state.failure.get() {
            Some(failure) => Err(Error::Replay(Box::new(failure.clone()))),
            None => self.queue.check_done(self.state.position),
        }
    }
}
