//! Launches as those who made them hold them.

use super::queue::StreamQueue;
use crate::device::error::{Error, GraphError, LaunchFailure};
use crate::device::owners::Owner;
use hostcall_abi::launch::LaunchId;
use hostcall_server::CancelReason;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a launch ended that nothing went wrong with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchOutcome {
    /// The exit code that a lane gave first, by `process::exit` or by returning it from `main`.
    pub exit_code: Option<i32>,
}

/// How a launch ended, told once. It is set under the `state` of the launch's stream.
#[derive(Default)]
pub(crate) struct Outcome {
    /// It ended well without an exit code, as most do: that costs a store.
    is_well: AtomicBool,
    other: OnceLock<Result<LaunchOutcome, Box<LaunchFailure>>>,
}

impl Outcome {
    /// Returns how the launch ended, if it was told.
    pub fn get(&self) -> Option<Result<LaunchOutcome, &LaunchFailure>> {
        if self.is_well.load(Ordering::Acquire) {
            return Some(Ok(LaunchOutcome::default()));
        }
        self.other.get().map(|outcome| outcome.as_ref().map(|outcome| *outcome).map_err(|failure| &**failure))
    }

    /// Says how the launch ended, unless that was told. Returns what was told first.
    pub fn get_or_set(
        &self,
        outcome: Result<LaunchOutcome, Box<LaunchFailure>>,
    ) -> Result<LaunchOutcome, &LaunchFailure> {
        if let Some(told) = self.get() {
            return told;
        }
        match outcome {
            Ok(LaunchOutcome { exit_code: None }) => self.is_well.store(true, Ordering::Release),
            other => _ = self.other.set(other),
        }
        self.get().expect("it was told")
    }

    /// Says that the launch failed, unless how it ended was told.
    pub fn fail(&self, failure: LaunchFailure) {
        let _ = self.get_or_set(Err(failure.into()));
    }
}

/// What is known of a launch from the call that makes it until nobody asks any more.
pub(crate) struct LaunchState {
    pub kernel: Arc<str>,
    /// Its id for the device; none for programs that call by LLVM's protocol.
    pub id: LaunchId,
    /// The kernel is another compiler's: it does not look at the stream's stop word before it begins, nothing ends it, and it
    /// does not say that it has posted. The server knows the id, but gets calls by it only with a context.
    pub is_foreign: bool,
    /// Such a kernel calls in the launch's name.
    pub has_context: bool,
    /// Its place among the stream's launches, from 1.
    pub sequence: u64,
    /// Its place among the stream's operations.
    pub position: u64,
    pub outcome: Outcome,
    /// Lanes of it that were ended by force.
    pub forced_lanes: AtomicU64,
    /// Why it was to be ended when the device had it, where the server does not know it and nothing ends it.
    pub cancelled: OnceLock<CancelReason>,
    /// Who gave the stream the launch as a part of something larger.
    pub owner: Option<Arc<dyn Owner>>,
    /// A capturing stream was given it: there is no launch.
    pub is_captured: bool,
}

impl LaunchState {
    /// For a launch of one of hostcall's kernels, or a step that is followed like one, by itself.
    pub fn new(kernel: Arc<str>, id: LaunchId, sequence: u64, position: u64) -> Self {
        let (outcome, cancelled) = (Outcome::default(), OnceLock::new());
        let (is_foreign, has_context, owner, is_captured) = (false, false, None, false);
        let forced_lanes = AtomicU64::new(0);
        Self {
            kernel,
            id,
            is_foreign,
            has_context,
            sequence,
            position,
            outcome,
            forced_lanes,
            cancelled,
            owner,
            is_captured,
        }
    }

    /// Shares it, in the memory of one that nobody else has any more, if there is one.
    pub fn shared(self, spare: Option<Arc<Self>>) -> Arc<Self> {
        let Some(mut spare) = spare else { return Arc::new(self) };
        let Some(place) = Arc::get_mut(&mut spare) else { return Arc::new(self) };
        *place = self;
        spare
    }

    /// Returns the error that tells of its failure.
    pub fn error(&self, failure: &LaunchFailure) -> Error {
        let (kernel, failure) = (self.kernel.to_string(), failure.clone());
        Error::Launch { kernel, failure, forced_lanes: self.forced_lanes.load(Ordering::Relaxed) }
    }

    /// Says whether the server gets calls in the launch's name.
    pub fn is_served(&self) -> bool {
        self.id != LaunchId::NONE && (!self.is_foreign || self.has_context)
    }

    /// Says whether the kernel looks at the stream's stop word before it begins: hostcall's own do.
    pub fn looks_whether_stopped(&self) -> bool {
        self.id != LaunchId::NONE && !self.is_foreign
    }

    /// For a kernel that was captured.
    pub fn captured(kernel: Arc<str>) -> Self {
        Self { is_captured: true, ..Self::new(kernel, LaunchId::NONE, 0, 0) }
    }
}

/// A launch. Dropping it lets the launch run on; clones are the same launch.
///
/// ```
/// use hostcall::device::LaunchFailure;
/// use hostcall::{Device, Error, Global, Grid, Lane, LaunchKernel, kernel};
/// use std::time::Duration;
///
/// #[kernel]
/// fn wait_for(lane: &Lane, go_on: &Global<u32>) {
///     while go_on.get() == 0 {
///         lane.pause(); // lets other lanes run, and ends the lane once it is cancelled
///     }
/// }
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let go_on = device.upload(&[1u32])?;
/// let launch = wait_for.launch(&stream, Grid::new(1, 1), (&go_on,))?;
/// assert_eq!(launch.wait()?.exit_code, None);
///
/// let never = device.upload(&[0u32])?;
/// let launch = wait_for.launch(&stream, Grid::new(1, 1), (&never,))?;
/// launch.cancel_after(Duration::from_millis(10));
/// let Err(Error::Launch { failure, .. }) = launch.wait() else { panic!("it was cancelled") };
/// assert!(matches!(failure, LaunchFailure::TimedOut));
/// assert!(stream.synchronize().is_err()); // tells of it too, and then the stream goes on
/// # Ok::<(), hostcall::Error>(())
/// ```
#[derive(Clone)]
pub struct Launch {
    pub(super) queue: Arc<StreamQueue>,
    pub(super) state: Arc<LaunchState>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("kernel", &self.state.kernel)
            .field("id", &self.state.id)
            .field("outcome", &self.state.outcome.get())
            .finish_non_exhaustive()
    }
}

impl Launch {
    /// A launch that a capturing stream was given.
    pub(in crate::device) fn captured(queue: &Arc<StreamQueue>, kernel: Arc<str>) -> Self {
        Self { queue: queue.clone(), state: Arc::new(LaunchState::captured(kernel)) }
    }

    /// Returns the kernel's name.
    pub fn kernel(&self) -> &str {
        &self.state.kernel
    }

    /// Returns the launch's id, by which reports of the server name it.
    pub fn id(&self) -> LaunchId {
        self.state.id
    }

    /// Says whether it has ended.
    pub fn is_done(&self) -> bool {
        !self.state.is_captured && self.queue.is_settled(self.state.position)
    }

    /// Asks the launch to end: its waiting calls end with `Cancelled`, a wave's calls after that end their lanes, and what has
    /// not begun does not, as do later launches of its stream until [`super::super::Stream::synchronize`] has told of it. A GPU's lanes
    /// that neither call nor look run on. A kernel of a code object that another compiler made runs to its end once the device
    /// has it, also when its calls (by a [context](crate::rocm::KernelArgument::context)) end with `Cancelled`, and its launch then
    /// fails with [`LaunchFailure::RanToEnd`](super::super::LaunchFailure::RanToEnd).
    ///
    /// The software device ends such lanes by force when its grace is over, in code of another shared object only after they
    /// have left it. An allocator that is linked into the program (`#[global_allocator]`) it cannot tell from the kernel,
    /// unless that is [`Shielded`](super::super::Shielded): a lane that is ended inside of it leaves its lock held.
    pub fn cancel(&self) {
        if !self.state.is_captured {
            self.queue.cancel(&self.state, CancelReason::Asked);
        }
    }

    /// Cancels the launch if it has not ended when `limit` has passed from now on; it then fails with
    /// [`LaunchFailure::TimedOut`].
    pub fn cancel_after(&self, limit: Duration) {
        if !self.state.is_captured {
            let is_over = |launch: &LaunchState| launch.outcome.get().is_some();
            self.queue.limit(limit, &self.state, is_over, |queue, launch| {
                queue.cancel(launch, CancelReason::TimedOut);
            });
        }
    }

    /// Waits for its end. The stream's [`synchronize`](super::super::Stream::synchronize) tells of a failure all the same.
    ///
    /// # Errors
    /// Its failure. Also when a handler calls this for a kernel that the launch waits for.
    pub fn wait(&self) -> Result<LaunchOutcome, Error> {
        self.check_launched()?;
        self.queue.wait_for(self.state.position, "a launch's `wait`", None)?;
        self.outcome()
    }

    /// Waits for its end, at most `limit`.
    ///
    /// # Errors
    /// As for [`Launch::wait`], and [`Error::TimedOut`].
    pub fn wait_for(&self, limit: Duration) -> Result<LaunchOutcome, Error> {
        self.check_launched()?;
        if !self.queue.wait_for(self.state.position, "a launch's `wait_for`", Some(limit))? {
            return Err(self.queue.timed_out("the launch", self.state.position, limit));
        }
        self.outcome()
    }

    /// Refuses to wait for what was captured.
    fn check_launched(&self) -> Result<(), Error> {
        if self.state.is_captured { Err(GraphError::Captured { what: "a launch" }.into()) } else { Ok(()) }
    }

    fn outcome(&self) -> Result<LaunchOutcome, Error> {
        let outcome = self.state.outcome.get().expect("a launch that has ended has an outcome");
        outcome.map_err(|failure| self.state.error(failure))
    }
}
