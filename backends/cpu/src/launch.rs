//! A launch: what it is given ([`Launch`]), what its launcher holds ([`LaunchHandle`]), and what its lanes
//! read ([`Run`]).
//!
//! A launch is done once: when its outcome is set, no lane of it runs and none will. What must outlive the
//! lanes ([`Launch::keep_alive`]) is dropped before that, or leaked if lanes were ended by force. Callbacks
//! are called after it, each once, under no lock.
//!
//! Lanes read the launch all the time, so what changes while they run lies on cache lines of its own: the
//! outcome, which seats add to under its lock when workgroups end. Abandoned slots are the outcome's from
//! then until they are taken, and the taker's until they are restored.

use crate::executor::Shared;
use crate::image::ImageCode;
use hostcall_abi::cpu::Entry;
use hostcall_abi::launch::LaunchParams;
use hostcall_locks::{Condvar, Mutex, MutexGuard};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A grid of lanes to run.
pub struct Launch {
    /// The kernel.
    pub entry: Entry,
    /// The kernel's argument block. Every lane gets the address of one copy, aligned to 16 bytes.
    pub arguments: Vec<u8>,
    /// The grid and the channel.
    pub params: LaunchParams,
    /// What must outlive the lanes (the kernel's library, buffers). Dropped before the launch is done, unless lanes were
    /// ended by force: then never.
    pub keep_alive: Box<dyn Any + Send>,
    /// Called from an executor thread when a lane notifies the host. Must be quick. A panic is caught and forgotten.
    pub notify: Arc<dyn Fn() + Send + Sync>,
    /// Called once, from an executor thread, when a lane's panic or fault ends the launch, before the other lanes
    /// have ended. Must be quick. A panic is caught and forgotten.
    pub on_failure: Arc<dyn Fn() + Send + Sync>,
}

/// What a launch did that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchReport {
    /// Workgroups that ran.
    pub workgroups: u64,
    /// Lanes that ran.
    pub lanes: u64,
    /// Those of the lanes that ended early because they asked to.
    pub exited_lanes: u64,
}

/// Why a launch did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// Lanes panicked; the others were cancelled.
    Panicked {
        /// How many panicked.
        lanes: u64,
    },
    /// A lane used up its stack; the others were cancelled.
    StackOverflow {
        /// Position of its workgroup.
        workgroup: [u32; 3],
        /// Its index in the workgroup, x fastest.
        lane: u32,
    },
    /// A lane's code was stopped by a signal; the other lanes were cancelled.
    Fault {
        /// SIGSEGV, SIGBUS, SIGFPE or SIGILL.
        signal: i32,
        /// The address that the signal came with.
        address: usize,
        /// Position of the lane's workgroup.
        workgroup: [u32; 3],
        /// The lane's index in the workgroup, x fastest.
        lane: u32,
    },
    /// All lanes of a workgroup wait for others of it: some at a barrier, the rest in an operation of a whole wave, to which
    /// those never come.
    Stuck {
        /// Position of the workgroup.
        workgroup: [u32; 3],
        /// Lanes that wait at a barrier.
        at_barrier: u32,
        /// Lanes that wait in an operation of their wave.
        exchanging: u32,
    },
    /// A wave died by an injected fault. The resident workgroups ran to their ends, no others started.
    WaveDied {
        /// Position of its workgroup.
        workgroup: [u32; 3],
        /// Its index in the workgroup.
        wave: u32,
    },
    /// [`LaunchHandle::cancel`] was called, or the executor dropped, before the launch had ended.
    Cancelled,
    /// The grid cannot run here; the sentence says why.
    BadGrid(String),
    /// There is no stack for a lane; the sentence says why.
    NoStack(String),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Panicked { lanes } => write!(f, "{lanes} lane(s) panicked"),
            LaunchError::StackOverflow { workgroup: [x, y, z], lane } => write!(
                f,
                "lane {lane} of workgroup ({x}, {y}, {z}) overflowed its stack; raise `stack_bytes` of the software device \
                 (`--stack` of `hostcall run`)"
            ),
            LaunchError::Fault { signal, address, workgroup: [x, y, z], lane } => {
                let name = match *signal {
                    libc::SIGSEGV => "SIGSEGV",
                    libc::SIGBUS => "SIGBUS",
                    libc::SIGFPE => "SIGFPE",
                    libc::SIGILL => "SIGILL",
                    _ => "a signal",
                };
                write!(
                    f,
                    "lane {lane} of workgroup ({x}, {y}, {z}) was stopped by {name} at address {address:#x}"
                )
            }
            LaunchError::Stuck { workgroup: [x, y, z], at_barrier, exchanging } => write!(
                f,
                "workgroup ({x}, {y}, {z}) cannot go on: {at_barrier} of its lanes wait at a barrier and {exchanging} in an \
                 operation of their whole wave; all lanes of a workgroup must come to its barriers, reductions and scans"
            ),
            LaunchError::WaveDied { workgroup: [x, y, z], wave } => {
                write!(f, "wave {wave} of workgroup ({x}, {y}, {z}) died by an injected fault")
            }
            LaunchError::Cancelled => f.write_str("the launch was cancelled"),
            LaunchError::BadGrid(sentence) | LaunchError::NoStack(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for LaunchError {}

/// How a launch ended.
pub type LaunchResult = Result<LaunchReport, LaunchError>;

/// A launch that was started. Clones stand for the same launch; dropping them all lets it run on.
#[derive(Clone)]
pub struct LaunchHandle {
    pub(crate) run: Arc<Run>,
    pub(crate) shared: Arc<Shared>,
}

impl LaunchHandle {
    /// Whether every lane has ended.
    pub fn is_done(&self) -> bool {
        self.run.is_done()
    }

    /// Waits until the launch is done, at most `timeout` when one is given; `None` when that passed first.
    /// Must not be called from a callback of the executor.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<LaunchResult> {
        self.run.wait(timeout)
    }

    /// Asks the launch to end. Lanes that converge, sleep or are at a barrier are let go, so that they find out; one that waits
    /// for a poll (a call's answer) goes on when that says so. Those that have not ended after
    /// [`Config::cancel_grace`](crate::Config::cancel_grace) are ended by force, without unwinding: what they own leaks
    /// (see the crate's documentation). Does nothing to a launch that is done.
    pub fn cancel(&self) {
        self.shared.stop(&self.run, LaunchError::Cancelled);
    }

    /// Calls `callback` once the launch is done: from an executor thread, or at once when it is done already. A panic of it stops
    /// nothing, in either case.
    pub fn on_done(&self, callback: impl FnOnce(&LaunchResult) + Send + 'static) {
        let mut outcome = self.run.outcome();
        match outcome.result.clone() {
            None => outcome.callbacks.push(Box::new(callback)),
            Some(result) => {
                drop(outcome);
                quietly(|| callback(&result));
            }
        }
    }

    /// Returns how many lanes were ended by force, in the middle of their code: locks that they held stay locked, what they
    /// owned leaks, and their stacks are never used again. Complete once the launch is done.
    pub fn forced_lanes(&self) -> u64 {
        self.run.outcome().tally.forced
    }

    /// Takes the slots whose waves did not come to their ends (a fault, a forced end, an injected death), so that they may be
    /// claimed and calls may be in flight on them. No other wave gets them before [`LaunchHandle::restore_slots`]. Complete
    /// once the launch is done.
    pub fn take_abandoned_slots(&self) -> Vec<u32> {
        let mut outcome = self.run.outcome();
        let taken = std::mem::take(&mut outcome.tally.abandoned_slots);
        outcome.taken_slots.extend(&taken);
        taken
    }

    /// Lets waves have slots again that were abandoned, once they are as if nobody had ever claimed them. Of
    /// `slots` only those count that [`LaunchHandle::take_abandoned_slots`] of this launch returned, each
    /// once: others may be those of waves that run.
    pub fn restore_slots(&self, slots: &[u32]) {
        let mut outcome = self.run.outcome();
        let mut restored = Vec::new();
        for slot in slots {
            if let Some(at) = outcome.taken_slots.iter().position(|taken| taken == slot) {
                restored.push(outcome.taken_slots.swap_remove(at));
            }
        }
        drop(outcome);
        self.shared.restore_slots(&restored);
    }
}

/// Bytes of workgroup memory: several times what any GPU has, and little enough for every resident workgroup.
const MOST_MEMORY: u32 = 1 << 20;

/// A grid that was found to fit.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Workgroups in x, y and z, and all of them.
    pub workgroups: [u32; 3],
    pub count: u64,
    /// Lanes of a workgroup.
    pub lanes: u32,
    /// Waves of a workgroup.
    pub waves: u32,
}

impl Grid {
    pub fn new(params: &LaunchParams, config: &crate::Config) -> Result<Grid, String> {
        let (workgroups, size) = (params.workgroups, params.workgroup_size.map(u32::from));
        let product = |sizes: [u32; 3]| sizes.iter().map(|&n| u128::from(n)).product::<u128>();
        let (count, lanes) = (product(workgroups), product(size));
        if count == 0 || lanes == 0 {
            return Err("a grid needs at least one workgroup and one lane in x, y and z".into());
        }
        if lanes > 1024 {
            return Err(format!("a workgroup has at most 1024 lanes, not {lanes}"));
        }
        if count * lanes > u128::from(u32::MAX) {
            return Err(format!("a grid has at most {} lanes, not {}", u32::MAX, count * lanes));
        }
        let lanes = lanes as u32;
        let waves = lanes.div_ceil(config.wave_size);
        if waves > config.resident_waves || lanes > config.resident_lanes {
            return Err(format!(
                "a workgroup of {lanes} lanes in {waves} waves is more than the device holds at once \
                 ({} lanes, {} waves)",
                config.resident_lanes, config.resident_waves
            ));
        }
        if params.workgroup_memory_bytes > MOST_MEMORY {
            return Err(format!(
                "a workgroup has at most {MOST_MEMORY} bytes of memory, not {}",
                params.workgroup_memory_bytes
            ));
        }
        Ok(Grid { workgroups, count: count as u64, lanes, waves })
    }
}

/// What threads write often, on cache lines of its own: two, as processors fetch lines in pairs.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub T);

/// A launch, as a seat's workgroups have it: they come and go on one thread, without a count that others change.
pub(crate) type SeatRun = Rc<Arc<Run>>;

/// A launch from its start to its end. Lanes read it all the time, so that what changes lies apart.
pub(crate) struct Run {
    /// Number of the launch on its executor, from 1.
    pub id: u64,
    pub entry: Entry,
    /// The argument block, in units that align it.
    pub arguments: Vec<u128>,
    pub params: LaunchParams,
    pub grid: Grid,
    pub notify: Arc<dyn Fn() + Send + Sync>,
    pub on_failure: Arc<dyn Fn() + Send + Sync>,
    /// The shared object of the kernel.
    pub image: Arc<ImageCode>,
    /// No more workgroups begin.
    pub closed: AtomicBool,
    /// Lanes shall end.
    pub cancelled: AtomicBool,
    /// The grace is over: lanes are ended by force.
    pub kill: AtomicBool,
    outcome: Apart<Mutex<Outcome>>,
    done: Condvar,
}

type Callback = Box<dyn FnOnce(&LaunchResult) + Send>;

pub(crate) struct Outcome {
    keep_alive: Option<Box<dyn Any + Send>>,
    pub tally: Tally,
    /// Abandoned slots that somebody has taken and not restored.
    taken_slots: Vec<u32>,
    /// The first thing that went wrong.
    pub error: Option<LaunchError>,
    pub result: Option<LaunchResult>,
    callbacks: Vec<Callback>,
}

/// What happened to lanes.
#[derive(Default)]
pub(crate) struct Tally {
    pub workgroups: u64,
    pub lanes: u64,
    pub exited: u64,
    pub panicked: u64,
    pub forced: u64,
    pub abandoned_slots: Vec<u32>,
}

impl Run {
    pub fn new(id: u64, launch: Launch, grid: Grid, image: Arc<ImageCode>) -> Run {
        let mut arguments = vec![0u128; launch.arguments.len().div_ceil(16).max(1)];
        for (unit, bytes) in arguments.iter_mut().zip(launch.arguments.chunks(16)) {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            *unit = u128::from_ne_bytes(padded);
        }
        Run {
            id,
            entry: launch.entry,
            arguments,
            params: launch.params,
            grid,
            notify: launch.notify,
            on_failure: launch.on_failure,
            image,
            closed: false.into(),
            cancelled: false.into(),
            kill: false.into(),
            outcome: Apart(Mutex::new(Outcome {
                keep_alive: Some(launch.keep_alive),
                tally: Tally::default(),
                taken_slots: Vec::new(),
                error: None,
                result: None,
                callbacks: Vec::new(),
            })),
            done: Condvar::new(),
        }
    }

    /// The outcome so far.
    pub fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.0.lock()
    }

    pub fn is_done(&self) -> bool {
        self.outcome().result.is_some()
    }

    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn wait(&self, timeout: Option<Duration>) -> Option<LaunchResult> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut outcome = self.outcome();
        while outcome.result.is_none() {
            outcome = match deadline {
                None => self.done.wait(outcome),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.done.wait_timeout(outcome, left).0
                }
            }
        }
        outcome.result.clone()
    }

    /// Every lane has ended and no more will start.
    pub fn finish(&self) {
        let (keep_alive, forced) = {
            let mut outcome = self.outcome();
            (outcome.keep_alive.take(), outcome.tally.forced)
        };
        match forced {
            0 => quietly(|| drop(keep_alive)),
            // Code of lanes that were ended may still run, on threads that they started (LEAKED, see `Lane`).
            _ => std::mem::forget(keep_alive),
        }
        let mut outcome = self.outcome();
        let Tally { workgroups, lanes, exited, panicked, .. } = outcome.tally;
        let result = match outcome.error.take() {
            None => Ok(LaunchReport { workgroups, lanes, exited_lanes: exited }),
            Some(LaunchError::Panicked { .. }) => Err(LaunchError::Panicked { lanes: panicked }),
            Some(error) => Err(error),
        };
        outcome.result = Some(result.clone());
        let callbacks = std::mem::take(&mut outcome.callbacks);
        drop(outcome);
        self.done.notify_all();
        for callback in callbacks {
            quietly(|| callback(&result));
        }
    }
}

/// Runs what is not the executor's own, so that a thread of the executor goes on even if it panics. The panic's payload
/// is forgotten, since its destructor may panic too.
pub(crate) fn quietly(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(payload);
    }
}
