//! Replays: as whoever launched them holds them, and as their launches know them.
//!
//! ```text
//!  stream.capture(mode, work)          graph.instantiate()              instance.launch(&stream)
//!  ──────────────────────────────────────────────────────────────────────────────────────────────
//!  launch, write, copy, fill,    ┐     checks: no circle, bounds        begins a launch id a kernel
//!  repeated_function, add_graph, ├──►  Graph ──► Plan: nodes in one ──► enters all buffers once
//!  record + wait_for (fork, join)┘     by hand:  order, children        pushes operations in a row:
//!                                      add_*,    in their places,       kkk c H kk … end
//!                                      edge      rows found             └── of the stream's own queue
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
//! - The device's table of origins (`origins` of the device) has graph, node and replay of each launch id
//!   that a replay has begun and that has not ended: `graph::origin()` asks it.
//!
//! | what | owner | until |
//! |---|---|---|
//! | a node's kernel, buffers, closures, staged bytes, function | the node, which graphs, plans and children share | nobody has it any more |
//! | a plan | the instance, and each replay of it | `set` or `update` made another one, and the replay's last operation is settled |
//! | a list, its words, its kernels' modules | the row, and each operation that has it | the row gave it up, and those operations are settled |
//! | a list's ids | the operation | it is settled |
//! | the inner queue | the instance, and the step that runs | both are gone; a step leaves it idle |
//! | memory that a capture allocated | the capture, then the nodes that use it | the capture was broken and its buffers are dropped, or no graph has the nodes |
//! | a cached allocation | the `AllocCache`, and the nodes that use it | `clear`, which is refused while a node uses it |

use super::failure::{NodeFailure, ReplayFailure};
use super::node::NodePath;
use super::plan::{Plan, Planned};
use super::row::List;
use crate::device::stream::StreamQueue;
use crate::device::{Device, Error};
use hostcall_abi::launch::{LaunchId, LaunchRun};
use hostcall_server::{CancelReason, handling};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

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
    is_kept: AtomicBool,
}

impl ReplayState {
    pub fn new(graph: Arc<str>, number: u64, sequences: RangeInclusive<u64>, position: u64) -> Self {
        let (failure, is_over, is_kept) = (OnceLock::new(), AtomicBool::new(false), AtomicBool::new(false));
        Self { graph, number, sequences, position, failure, is_over, is_kept }
    }

    /// Keeps for good what the replay uses, from its end on.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Says whether it has ended and is settled.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
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

    /// Notes that the replay is over. Returns the plan when nobody else has it, which keeps values of the user's.
    pub fn release(mut self) -> Option<Plan> {
        Arc::into_inner(self.take_plan()?)
    }

    /// Takes the plan, unless it stays for good.
    fn take_plan(&mut self) -> Option<Arc<Plan>> {
        let plan = self.plan.take()?;
        if self.replay.is_kept.load(Ordering::Relaxed) {
            std::mem::forget(plan);
            return None;
        }
        Some(plan)
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
    Device(Arc<List>, u64),
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
        list: &Arc<List>,
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

    /// Notes what happened to the node, unless another one has failed before. Returns the replay's failure.
    pub fn fail(&self, cause: NodeFailure) -> Error {
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

    fn origin(self) -> Origin {
        let turn = self.turn();
        let Self { replay, path, what, .. } = self;
        Origin { graph: replay.graph.clone(), replay: replay.number, node: path, kernel: what, turn }
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

/// What launches of a device are.
pub(crate) enum OriginOf {
    Node(NodeOrigin),
    Row(ListedRow),
}

/// A row of a plan as a list that is launched.
#[derive(Clone)]
pub(crate) struct ListedRow {
    pub plan: Arc<Plan>,
    /// Number of the row among the plan's.
    pub row: usize,
    pub list: Arc<List>,
    pub replay: Arc<ReplayState>,
    /// The sequence of its first launch.
    pub first_sequence: u64,
}

impl ListedRow {
    /// Returns the origin of the launch with this place.
    pub fn origin(&self, place: u32) -> Option<NodeOrigin> {
        let planned = self.plan.rows.get(self.row)?.planned(&self.plan, place)?;
        Some(NodeOrigin::listed(&self.replay, planned, &self.list, self.first_sequence))
    }
}

impl OriginOf {
    fn node(&self, place: u32) -> Option<NodeOrigin> {
        match self {
            OriginOf::Node(node) => Some(node.clone()),
            OriginOf::Row(row) => row.origin(place),
        }
    }
}

/// The launches of a device that are nodes of graphs, and have not ended: by the bits of the first's id.
#[derive(Default)]
pub(crate) struct Origins(Mutex<BTreeMap<u32, (LaunchRun, OriginOf)>>);

impl Origins {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u32, (LaunchRun, OriginOf)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, launch: LaunchId) -> Option<Origin> {
        let node = {
            let table = self.table();
            let (_, (launches, origin)) = table.range(..=launch.to_bits()).next_back()?;
            origin.node(launches.place_of(launch)?)
        };
        // Not under the lock: the device may be asked for the turn.
        Some(node?.origin())
    }

    pub fn enter(&self, launches: impl Into<LaunchRun>, origin: OriginOf) {
        let launches = launches.into();
        self.table().insert(launches.first().to_bits(), (launches, origin));
    }

    pub fn leave(&self, launches: impl Into<LaunchRun>) {
        let left = self.table().remove(&launches.into().first().to_bits());
        drop(left);
    }
}

/// The open devices by their numbers: a handler knows its server, and not its device.
static DEVICES: Mutex<Vec<(u64, Weak<Origins>)>> = Mutex::new(Vec::new());

/// Lets handlers of a device find its launches.
pub(crate) fn note_device(id: u64, origins: &Arc<Origins>) {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    devices.retain(|(_, origins)| origins.strong_count() > 0);
    devices.push((id, Arc::downgrade(origins)));
}

/// Returns the node of a graph whose call or post the calling handler handles. `None` outside of handlers, and when the
/// kernel was launched by itself.
///
/// In an async handler it is to be asked between two `await`s, not on threads that the handler starts. In a body that a GPU
/// repeats by itself, each question takes a copy from the GPU.
pub fn origin() -> Option<Origin> {
    let handling = handling()?;
    let origins = {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|(id, _)| *id == handling.server).and_then(|(_, origins)| origins.upgrade())
    };
    origins?.get(handling.launch)
}

impl Device {
    /// Returns the node of a graph that a launch is, if a replay launched it and it has not ended.
    pub fn origin(&self, launch: LaunchId) -> Option<Origin> {
        self.inner.origins.get(launch)
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
        let _waits = self.queue.may_wait(self.state.position, "a replay's `wait`", None)?;
        self.queue.wait_until_settled(self.state.position);
        self.outcome()
    }

    /// Waits for its end, at most `limit`.
    ///
    /// # Errors
    /// As for [`Replay::wait`], and [`Error::TimedOut`].
    pub fn wait_for(&self, limit: Duration) -> Result<(), Error> {
        if !self.queue.wait_for(self.state.position, "a replay's `wait_for`", limit)? {
            return Err(self.queue.device.timed_out("the replay", limit));
        }
        self.outcome()
    }

    /// Ends the replay as [`Launch::cancel`](crate::device::Launch::cancel) ends a launch: the node that runs is cancelled,
    /// those after it are skipped, and so is what follows in the stream, until its `synchronize` has told of it. A body
    /// that is repeated is not begun again.
    pub fn cancel(&self) {
        self.queue.cancel_replay(&self.state, CancelReason::Asked);
    }

    /// Cancels the replay if it has not ended when `limit` has passed from now on; it then fails with
    /// [`LaunchFailure::TimedOut`](crate::LaunchFailure::TimedOut).
    pub fn cancel_after(&self, limit: Duration) {
        if let Some(deadline) = Instant::now().checked_add(limit) {
            self.queue.limit_replay(&self.state, deadline);
        }
    }

    fn outcome(&self) -> Result<(), Error> {
        match self.state.failure.get() {
            Some(failure) => Err(Error::Replay(Box::new(failure.clone()))),
            None => self.queue.check_done(self.state.position),
        }
    }
}
