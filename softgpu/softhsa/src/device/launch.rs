//! A launch: its grid, its kernel, and how it ended.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::code::Code;
use crate::exec::wave::LANES;
use crate::exec::{Fault, Wave};
use crate::load::Descriptor;

/// What to launch.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// The kernel's name, for messages.
    pub name: String,
    /// The kernel's descriptor.
    pub descriptor: Descriptor,
    /// The address of the first instruction.
    pub entry: u64,
    /// The address of the kernel arguments.
    pub kernarg: u64,
    /// Lanes of the grid in each dimension.
    pub grid: [u32; 3],
    /// Lanes of a workgroup in each dimension.
    pub workgroup: [u32; 3],
    /// Bytes of local memory of a workgroup.
    pub group_bytes: u32,
    /// Bytes of scratch memory of a lane.
    pub private_bytes: u32,
    /// The address of the dispatch packet.
    pub packet: u64,
    /// The address of the queue.
    pub queue: u64,
    /// The packet's number in the queue.
    pub packet_id: u64,
}

/// Why a launch ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kernel.
    pub kernel: String,
    /// What happened.
    pub fault: Fault,
    /// The address of the instruction.
    pub pc: u64,
    /// Its text and words, unless there is none or the fault has them.
    pub instruction: Option<String>,
    /// The distance from the kernel's first instruction.
    pub offset: i64,
    /// The workgroup and the wave in it.
    pub place: ([u32; 3], u32),
}

impl Failure {
    pub(super) fn lost() -> Failure {
        let fault = Fault::Missing { text: "anything more: the device has stopped".to_owned() };
        Failure { kernel: String::new(), fault, pc: 0, instruction: None, offset: 0, place: ([0; 3], 0) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], wave) = self.place;
        write!(f, "kernel {}, workgroup {x},{y},{z}, wave {wave}, ", self.kernel)?;
        let sign = if self.offset < 0 { '-' } else { '+' };
        write!(f, "at {:#x} (entry {sign}{:#x})", self.pc, self.offset.unsigned_abs())?;
        if let Some(instruction) = &self.instruction {
            write!(f, ", {instruction}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::error::Error for Failure {}

type Ended = Box<dyn FnOnce(Option<Failure>) + Send>;

/// A launch that runs.
pub struct Launch {
    /// The launch's number on its device.
    pub number: u64,
    /// What was launched.
    pub spec: LaunchSpec,
    /// Workgroups in each dimension.
    counts: [u32; 3],
    next: AtomicU64,
    retired: AtomicU64,
    stopped: AtomicBool,
    outcome: Mutex<(Option<Failure>, Option<Ended>)>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("number", &self.number)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Launch {
    pub(super) fn new(number: u64, spec: LaunchSpec, ended: Ended) -> Launch {
        let counts = [0, 1, 2].map(|axis| spec.grid[axis].div_ceil(spec.workgroup[axis].max(1)));
        Launch {
            number,
            spec,
            counts,
            next: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            outcome: Mutex::new((None, Some(ended))),
        }
    }

    /// Returns how many workgroups there are.
    pub fn workgroups(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).product()
    }

    /// Returns how many waves a whole workgroup has.
    pub fn waves_in_workgroup(&self) -> usize {
        let lanes: usize = self.spec.workgroup.iter().map(|&lanes| lanes.max(1) as usize).product();
        lanes.div_ceil(LANES)
    }

    /// Returns the number of a workgroup that has not started, or `None` if all have.
    pub(super) fn take_workgroup(&self) -> Option<u64> {
        let take = |next: u64| (next < self.workgroups()).then_some(next + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
    }

    /// Counts the workgroups that have not started, and will not, of a launch that was stopped. Called without the lock of the
    /// device's run queue, as this may report the launch's end.
    pub(super) fn retire_rest(&self) {
        let all = self.workgroups();
        let left = all.saturating_sub(self.next.swap(all, Ordering::Relaxed));
        if left > 0 && self.retired.fetch_add(left, Ordering::AcqRel) + left == all {
            self.finish();
        }
    }

    /// Returns where a workgroup is in the grid of workgroups.
    pub(super) fn place(&self, number: u64) -> [u32; 3] {
        let [x, y, _] = self.counts.map(u64::from);
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }

    /// Stops all waves of the launch at their next slice.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns whether the launch's waves are to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Notes a wave's fault, of which the first is reported, and stops the others. `code` is what the wave ran.
    pub(super) fn fail(&self, place: [u32; 3], wave: &Wave, code: Option<&Code>) {
        let fault = wave.fault.clone().unwrap_or(Fault::Fetch);
        let offset = wave.pc.wrapping_sub(self.spec.entry) as i64;
        let kernel = self.spec.name.clone();
        let says_which = matches!(fault, Fault::Illegal { .. } | Fault::Missing { .. });
        let instruction = code.filter(|_| !says_which).and_then(|code| code.text(wave.pc));
        let failure =
            Failure { kernel, fault, pc: wave.pc, instruction, offset, place: (place, wave.number) };
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.0.get_or_insert(failure);
        drop(outcome);
        self.stop();
    }

    /// Counts a workgroup that ended. The last one reports the launch's end.
    pub(super) fn retire_workgroup(&self) {
        if self.retired.fetch_add(1, Ordering::AcqRel) + 1 == self.workgroups() {
            self.finish();
        }
    }

    pub(super) fn finish(&self) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let (failure, ended) = (outcome.0.take(), outcome.1.take());
        drop(outcome);
        if let Some(ended) = ended {
            ended(failure);
        }
    }
}
