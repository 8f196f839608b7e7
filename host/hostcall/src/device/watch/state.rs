//! What a process says of itself, as both sides have it.

use crate::device::metrics::{DeviceMetrics, add_all};
use hostcall_server::WavePlace;
use serde::{Deserialize, Serialize};

/// Which process it is. A job's process that is started again has the same rank and another number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub program: String,
    /// The machine's name.
    pub host: String,
    /// The job that it belongs to, as its launcher says or else `HOSTCALL_JOB`: processes that were started together.
    pub job: String,
    /// A launcher, or `HOSTCALL_JOB`, has named the job; else its name is the number of the process that started it.
    #[serde(default)]
    pub is_job_named: bool,
    /// Its number in the job, if it has one: of `HOSTCALL_RANK`, torchrun, Open MPI, PMIx, MPICH or Slurm.
    pub rank: Option<u64>,
    /// How many processes the job has, if that is known.
    pub size: Option<u64>,
    /// When its first device was opened, in seconds since 1970.
    pub since: f64,
    /// hostcall's version.
    pub version: String,
}

/// A process's machine and number.
pub(super) type Place<'a> = (&'a str, u32);

impl Identity {
    /// Returns what no other process has at the time.
    pub(super) fn place(&self) -> Place<'_> {
        (&self.host, self.pid)
    }
}

/// A process with its devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Process {
    /// Which process it is.
    pub who: Identity,
    /// Its open devices.
    pub devices: Vec<DeviceState>,
    /// Its threads that kernels or streams wait for and that wait themselves: the longest waits first.
    #[serde(default)]
    pub threads: Vec<ThreadState>,
}

/// A thread that runs a handler or a host function, and waits in it for a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadState {
    /// What it does that is waited for, each in words.
    pub does: Vec<String>,
    /// The function that it waits in.
    pub waits_in: String,
    /// For how many seconds.
    pub waited_s: f64,
    /// The call that its handler answers, if it runs one.
    #[serde(default)]
    pub handles: Option<HandledCall>,
    /// Launches that have to end before it goes on: the oldest of them.
    #[serde(default)]
    pub waits_for: Vec<LaunchOf>,
}

/// A call of which a handler runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandledCall {
    /// The launch that calls.
    pub of: LaunchOf,
    /// The method.
    pub service: String,
}

/// A launch of one of a process's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaunchOf {
    /// The device's number ([`DeviceState::number`]).
    pub device: u64,
    /// Its number on the device.
    pub launch: String,
}

/// What the devices of a process have counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Which process it is.
    pub who: Identity,
    /// Its devices by their names, also those that have ended.
    pub devices: Vec<DeviceMetrics>,
}

impl Metrics {
    /// Makes those of a process.
    pub fn new(who: Identity, devices: Vec<DeviceMetrics>) -> Self {
        Self { who, devices }
    }

    /// Adds what another process has counted, which is of the same rank. The process is then that one.
    pub fn add(&mut self, other: Self) {
        self.who = other.who;
        add_all(&mut self.devices, other.devices);
    }
}

/// What an open device does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceState {
    /// Its number: no two devices of a process have the same.
    #[serde(default)]
    pub number: u64,
    /// The name that it was opened with.
    pub name: String,
    /// Its kind: `software`, `nvidia`, `amd`.
    pub kind: String,
    /// Its product.
    pub product: String,
    /// It was closed, and somebody still has it.
    pub closed: bool,
    /// The oldest launches that have not ended, with contexts.
    pub launches: Vec<LaunchState>,
    /// What waves wait for: of each kind of wait (for what, of which rank, which event) the longest, then others that have waited
    /// long. They are in the order of their times, and 256 at most.
    pub waiting: Vec<Wait>,
    /// Kinds of waits for ranks of which `waiting` has none, since there are more kinds than it has room for.
    #[serde(default)]
    pub kinds_untold: u64,
    /// All waits, those that are alike together: 256 groups at most.
    #[serde(default)]
    pub groups: Vec<WaitGroup>,
    /// Waits that are in none of the groups, since there are more groups.
    #[serde(default)]
    pub ungrouped: u64,
    /// How many waits of waves found no entry in the device's wait table when they began to be told, ever. Those are not told as
    /// long as there is none.
    #[serde(default)]
    pub waits_untold: u64,
    /// Some of these may go on without an entry: so many others are taken that a wave may find none.
    #[serde(default)]
    pub may_wait_untold: bool,
    /// What kernels print.
    pub output: OutputState,
    /// What it has counted.
    pub metrics: DeviceMetrics,
}

/// A launch that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaunchState {
    /// Its number on the device.
    pub id: String,
    /// Its kernel.
    pub kernel: String,
    /// Its workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup.
    pub lanes: u64,
    /// How many seconds ago it was given to its stream.
    pub age_s: f64,
    /// Why it was cancelled, if it was.
    pub cancelled: Option<String>,
    /// It is a context, with which others launch kernels.
    pub is_context: bool,
}

/// Where in its launch's grid a wave is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Workgroup {
    /// The workgroup in x, y and z.
    pub at: [u32; 3],
    /// The wave's number in it.
    pub wave: u32,
}

impl From<WavePlace> for Workgroup {
    fn from(place: WavePlace) -> Self {
        Self { at: place.workgroup, wave: place.wave }
    }
}

/// A call or a wave that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// Its launch's number on the device.
    pub launch: String,
    /// The launch's kernel, if it is known.
    pub kernel: String,
    /// Where the wave is, if that is known.
    pub place: Option<Workgroup>,
    /// The channel's slot; the greatest number where none is known.
    pub slot: u32,
    /// Lanes that wait.
    pub lanes: u32,
    /// The method that they call, or what else they wait for.
    pub service: String,
    /// For how many seconds, at most.
    pub waited_s: f64,
    /// What it waits for, in one word: a name of [`WaitsFor`](hostcall_server::WaitsFor).
    pub waits_for: String,
    /// What is polled, of flags and barriers.
    #[serde(default)]
    pub polled: Option<Polled>,
    /// All of it in one sentence.
    pub text: String,
}

/// Waits that are alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitGroup {
    /// Their kernel, if it is known.
    pub kernel: String,
    /// Their launch; none where they are grouped by less, since there are many.
    pub launch: Option<String>,
    /// The method that they call, or what else they wait for.
    pub service: String,
    /// What they wait for, in one word, as in [`Wait::waits_for`].
    pub waits_for: String,
    /// The rank that they wait for; none where they are grouped by still less.
    pub peer: Option<u32>,
    /// The first and the last of the events that flags and barriers wait for.
    pub sequences: Option<(u64, u64)>,
    /// How many they are.
    pub waits: u64,
    /// Their lanes.
    pub lanes: u64,
    /// The longest that one of them has waited, in seconds.
    pub longest_s: f64,
}

/// What a wave polls, as the device says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Polled {
    /// Its address; 0 if that is not known.
    pub address: u64,
    /// The rank that is waited for.
    pub peer: Option<u32>,
    /// Which of the events there is waited for.
    pub sequence: u64,
    /// How long the wave had waited, in ns, when it said last that it still does: that goes up while it polls.
    #[serde(default)]
    pub said_ns: u64,
}

/// What a device's kernels print.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputState {
    /// The last of it, a few KiB of both streams.
    pub tail: String,
}
