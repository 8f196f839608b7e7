//! What a stream does, one after the other.

use super::launched::LaunchState;
use super::step::Step;
use crate::device::buffer::{AllWanted, Wanted};
use crate::device::owners::{ListOwner, Owner, UnitHold};
use crate::device::transfer::Transfer;
use crate::device::uses::Point;
use hostcall_abi::launch::LaunchIds;
use hostcall_seam::{DeviceAddress, HiddenParameters, Kernel, KernelList, Mark};
use smallvec::SmallVec;
use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// A kernel with its parameters, ready to be dispatched. Its memory serves one launch after the other: a launch is made on
/// one thread and dropped on another, which allocators are slow at.
#[derive(Default)]
pub(crate) struct Parts {
    pub kernel: Option<Arc<dyn Kernel>>,
    pub workgroups: [u32; 3],
    pub lanes: [u32; 3],
    pub workgroup_bytes: u32,
    pub parameters: Parameters,
    /// Whether the kernel takes the parameters' addresses.
    pub by_address: bool,
    /// What the kernel finds in hidden parameters.
    pub hidden: HiddenParameters,
    /// Nothing ends the kernel once the device has it: another compiler made it.
    pub runs_to_end: bool,
    /// The kernel calls by the stream's [context](crate::device::words::StreamWords::context), in the launch's name.
    pub has_context: bool,
    /// It is made to be launched again and again.
    pub is_recorded: bool,
    /// Memory of the device that it uses.
    pub wanted: AllWanted,
    /// Memory besides buffers, hostcall's own, that must live until it has ended.
    pub memory: Vec<Arc<dyn Any + Send + Sync>>,
    /// Values of the user's, whose code runs when they are dropped, that must live until it has ended.
    pub values: Vec<Arc<dyn Any + Send + Sync>>,
    /// Memory of a launch that is over, for the next one's.
    pub spare_state: Option<Arc<LaunchState>>,
}

impl Parts {
    /// Keeps for good what the launch uses: code of lanes that were ended by force may use it still, on threads that they started.
    pub fn leak(self) {
        let Self { wanted, memory, values, .. } = self;
        wanted.iter().for_each(|wanted| std::mem::forget(wanted.allocation.memory.clone()));
        std::mem::forget((memory, values));
    }

    /// Forgets the launch, and gives back what memory it took besides this and its state's.
    pub fn clear(&mut self, mut state: Arc<LaunchState>) {
        let Self { kernel, parameters, wanted, memory, values, by_address, hidden, .. } = self;
        if let Some(LaunchState { owner, outcome, .. }) = Arc::get_mut(&mut state) {
            (*owner, *outcome) = Default::default();
            self.spare_state = Some(state);
        }
        (self.runs_to_end, self.has_context) = (false, false);
        *kernel = None;
        *by_address = false;
        *hidden = HiddenParameters::default();
        parameters.bytes.clear();
        parameters.bytes.shrink_to_fit();
        parameters.ends.clear();
        parameters.ends.shrink_to_fit();
        wanted.clear();
        wanted.shrink_to_fit();
        *memory = Vec::new();
        *values = Vec::new();
    }
}

/// As many parameters as most kernels have, and two to spare.
const FEW_PARAMETERS: usize = 4;

/// A kernel's parameters as their bytes. As many as most launches have need no memory of their own.
#[derive(Clone, Default)]
pub(crate) struct Parameters {
    pub bytes: SmallVec<[u8; 256]>,
    ends: SmallVec<[usize; FEW_PARAMETERS]>,
}

impl Parameters {
    /// Adds a parameter behind the others.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// Writes a parameter again that begins at this byte.
    pub fn set_at(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Ends the parameter whose bytes were added.
    pub fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// Returns each parameter's bytes.
    pub fn slices(&self) -> SmallVec<[&[u8]; FEW_PARAMETERS]> {
        let (mut start, count) = (0, self.ends.len());
        let slices = self.ends.iter().map(|&end| &self.bytes[std::mem::replace(&mut start, end)..end]);
        if count > FEW_PARAMETERS {
            return slices.collect();
        }
        let mut few = [[].as_slice(); FEW_PARAMETERS];
        few.iter_mut().zip(slices).for_each(|(place, slice)| *place = slice);
        SmallVec::from_buf_and_len(few, count)
    }
}

/// A launch that was put on a stream.
pub(crate) struct Dispatched {
    pub parts: Box<Parts>,
    pub state: Arc<LaunchState>,
}

/// Kernels that the device takes at once.
pub(crate) struct Listed {
    pub list: Arc<dyn KernelList>,
    /// Where the list's words lie.
    pub words: DeviceAddress,
    pub owner: Arc<dyn ListOwner>,
    /// Their launches.
    pub launches: LaunchIds,
    /// The first launch; the sequences of the others follow its own.
    pub first: Arc<LaunchState>,
    /// Once it was cancelled: how many of its launches had ended before, where the device says it. The one behind them is what was
    /// interrupted.
    pub had_ended: OnceLock<u32>,
}

impl Listed {
    /// The sequences of its launches.
    pub fn sequences(&self) -> RangeInclusive<u64> {
        self.first.sequence..=self.first.sequence + u64::from(self.launches.count() - 1)
    }

    /// Returns what is known of the launch with this place.
    pub fn launch(&self, place: u32) -> Arc<LaunchState> {
        if place == 0 {
            return self.first.clone();
        }
        let (id, sequence) = (self.launches.get(place), self.first.sequence + u64::from(place));
        let (kernel, owner) = self.owner.owner(place).expect("a list has as many launches");
        Arc::new(LaunchState {
            owner: Some(owner),
            ..LaunchState::new(kernel, id, sequence, self.first.position)
        })
    }
}

/// An operation of a stream. All but launches are behind pointers, so that a launch moves no more than its own.
pub(crate) enum Operation {
    Launch(Dispatched),
    List(Box<Listed>),
    Transfer(Box<Transferring>),
    /// A host function that was not called.
    HostFunction(Box<dyn FnOnce() + Send>),
    /// What the host does in the middle of a unit, or has done.
    Step(Box<Step>),
    /// The end of a unit: nothing but what it keeps.
    UnitEnd(Box<dyn UnitHold>),
    /// An event, which others may ask about.
    Record(Arc<OnceLock<Arc<dyn Mark>>>),
    /// Nothing but what it waits for; or a host function that was called.
    Wait,
}

impl Operation {
    /// Returns the launch that it is: a kernel's, or a step, which later launches of the stream follow in the
    /// same way; the first of a list.
    pub fn launch(&self) -> Option<&Arc<LaunchState>> {
        match self {
            Operation::Launch(launch) => Some(&launch.state),
            Operation::List(list) => Some(&list.first),
            Operation::Step(step) => Some(&step.state),
            _ => None,
        }
    }

    /// Returns the sequence of its last launch.
    pub fn last_sequence(&self) -> Option<u64> {
        match self {
            Operation::List(list) => Some(*list.sequences().end()),
            other => other.launch().map(|launch| launch.sequence),
        }
    }

    /// Says whether the host does it itself, once everything before it is settled.
    pub fn is_of_host(&self) -> bool {
        matches!(self, Operation::HostFunction(_) | Operation::Step(_))
    }

    pub fn wanted(&self) -> &[Wanted] {
        match self {
            Operation::Launch(launch) => &launch.parts.wanted,
            Operation::Transfer(transfer) => &transfer.wanted,
            // What a unit uses is entered for all of it at once.
            Operation::List(_)
            | Operation::HostFunction(_)
            | Operation::Step(_)
            | Operation::UnitEnd(_)
            | Operation::Record(_)
            | Operation::Wait => &[],
        }
    }
}

/// A copy or a fill that was put on a stream.
pub(crate) struct Transferring {
    pub what: Transfer,
    pub wanted: Vec<Wanted>,
    pub owner: Option<TransferOwner>,
}

/// Who gave the stream a copy or a fill of a unit.
pub(crate) struct TransferOwner {
    pub owner: Arc<dyn Owner>,
    /// The sequence of the unit's next launch, which does not begin if this fails.
    pub next: u64,
}

/// What an operation waits for besides the stream's order.
pub(super) enum Before {
    /// The device waits by itself for a point of another stream, which is signalled.
    Signal(Point),
    /// The operation stays with the host until a point of another stream is reached.
    Gate(Point),
}
