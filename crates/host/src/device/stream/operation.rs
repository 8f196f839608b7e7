//! What a stream does, one after the other.

use super::launched::LaunchState;
use crate::device::buffer::Wanted;
use crate::device::seam::{DeviceAddress, Kernel, Mark};
use crate::device::staging::Staging;
use crate::device::uses::Point;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A kernel with its parameters, ready to be dispatched.
pub(crate) struct Dispatched {
    pub kernel: Arc<dyn Kernel>,
    pub workgroups: [u32; 3],
    pub lanes: [u32; 3],
    pub workgroup_bytes: u32,
    /// The parameters, as their bytes.
    pub parameters: Vec<Vec<u8>>,
    /// Memory of the device that it uses.
    pub wanted: Vec<Wanted>,
    /// What else must live until it has ended.
    pub _keep: Vec<Arc<dyn Any + Send + Sync>>,
    pub state: Arc<LaunchState>,
}

/// A copy or a fill.
pub(crate) enum Transfer {
    Write { to: DeviceAddress, from: Staging, bytes: usize },
    Read { to: Arc<Staging>, from: DeviceAddress, bytes: usize },
    Copy { to: DeviceAddress, from: DeviceAddress, bytes: usize },
    Fill { to: DeviceAddress, pattern: Vec<u8>, count: usize },
}

impl Transfer {
    /// Returns how many bytes are written.
    pub fn bytes(&self) -> usize {
        match self {
            Transfer::Write { bytes, .. } | Transfer::Read { bytes, .. } | Transfer::Copy { bytes, .. } => {
                *bytes
            }
            Transfer::Fill { pattern, count, .. } => pattern.len() * count,
        }
    }
}

/// An operation of a stream.
pub(crate) enum Operation {
    Launch(Box<Dispatched>),
    Transfer(Transfer, Vec<Wanted>),
    HostFunction(Box<dyn FnOnce() + Send>),
    Record(Arc<OnceLock<Arc<dyn Mark>>>),
    /// Nothing but what it waits for.
    Wait,
}

impl Operation {
    pub fn wanted(&self) -> &[Wanted] {
        match self {
            Operation::Launch(launch) => &launch.wanted,
            Operation::Transfer(_, wanted) => wanted,
            Operation::HostFunction(_) | Operation::Record(_) | Operation::Wait => &[],
        }
    }
}

/// What an operation waits for besides the stream's order.
pub(super) enum Before {
    /// The device waits for a point of another stream by itself.
    Mark(Arc<dyn Mark>),
    /// The operation stays with the host until a point of another stream is reached.
    Gate(Point),
}

/// What is kept of an operation until it has ended.
pub(super) enum Kept {
    Launch(Box<Dispatched>),
    Transfer {
        _memory: Transfer,
        _wanted: Vec<Wanted>,
    },
    /// A host function that was not called.
    Function {
        _function: Box<dyn FnOnce() + Send>,
    },
    Nothing,
}
