//! Copies and fills: what a stream does at once or records, and what nodes made by hand are.
#![allow(unsafe_code, reason = "fills pinned memory")]

use super::node::{NodeKind, NodeMemory, TransferNode};
use crate::device::buffer::{Wanted, bytes_of};
use crate::device::core::Core;
use crate::device::error::BoundsError;
use crate::device::stream::Transfer;
use crate::device::uses::Access;
use crate::device::{DeviceBuffer, Error};
use hostcall_device::kernel::Plain;
use std::sync::Arc;

/// A copy or a fill that was checked, with the memory that it uses.
pub(crate) struct Checked {
    pub kind: NodeKind,
    pub what: Transfer,
    pub wanted: Vec<Wanted>,
}

impl From<Checked> for TransferNode {
    fn from(checked: Checked) -> Self {
        Self { kind: checked.kind, what: checked.what, memory: NodeMemory::new(checked.wanted) }
    }
}

/// A copy of values, which are taken at once, to a buffer.
pub(crate) fn check_write<T: Plain + Copy>(
    core: &Core,
    to: &DeviceBuffer<T>,
    values: &[T],
) -> Result<Checked, Error> {
    core.check_own(&to.allocation.core, "the buffer")?;
    to.check_len(values.len())?;
    let bytes = bytes_of(values);
    let from = core.staging(bytes.len())?;
    // SAFETY: as many bytes lie there, which nobody else has.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), from.host_address().as_ptr(), bytes.len()) };
    let what = Transfer::Write { to: to.address(), from: Arc::new(from), bytes: bytes.len() };
    Ok(Checked { kind: NodeKind::Write, what, wanted: vec![to.wanted(Access::Write)] })
}

/// A copy within the device.
pub(crate) fn check_copy<T: Plain>(
    core: &Core,
    to: &DeviceBuffer<T>,
    from: &DeviceBuffer<T>,
) -> Result<Checked, Error> {
    core.check_own(&to.allocation.core, "the buffer that is written")?;
    core.check_own(&from.allocation.core, "the buffer that is read")?;
    to.check_len(from.len())?;
    let wanted = vec![from.wanted(Access::Read), to.wanted(Access::Write)];
    if wanted[0].conflicts_with(&wanted[1]) {
        return Err(BoundsError::Overlap.into());
    }
    let what = Transfer::Copy { to: to.address(), from: from.address(), bytes: from.bytes().len() };
    Ok(Checked { kind: NodeKind::Copy, what, wanted })
}

/// A fill.
pub(crate) fn check_fill<T: Plain + Copy>(
    core: &Core,
    buffer: &DeviceBuffer<T>,
    value: T,
) -> Result<Checked, Error> {
    core.check_own(&buffer.allocation.core, "the buffer")?;
    let pattern = shortest_pattern(bytes_of(std::slice::from_ref(&value)));
    if pattern.len() > 4 {
        let written = check_write(core, buffer, &vec![value; buffer.len()])?;
        return Ok(Checked { kind: NodeKind::Fill, ..written });
    }
    let count = buffer.bytes().len() / pattern.len().max(1);
    let what = Transfer::Fill { to: buffer.address(), pattern: pattern.to_vec(), count };
    Ok(Checked { kind: NodeKind::Fill, what, wanted: vec![buffer.wanted(Access::Write)] })
}

/// The shortest pattern of 1, 2 or 4 bytes that repeated gives `bytes`, or `bytes` themselves.
fn shortest_pattern(bytes: &[u8]) -> &[u8] {
    for len in [1, 2, 4] {
        if bytes.len().is_multiple_of(len) && bytes.chunks(len).all(|chunk| *chunk == bytes[..len]) {
            return bytes.get(..len).unwrap_or(bytes);
        }
    }
    bytes
}

/// A fill of a whole allocation with zeros.
pub(crate) fn zeros<T: Plain>(buffer: &DeviceBuffer<T>) -> TransferNode {
    let what = Transfer::Fill { to: buffer.address(), pattern: vec![0], count: buffer.bytes().len() };
    Checked { kind: NodeKind::Fill, what, wanted: vec![buffer.wanted(Access::Write)] }.into()
}

pub(crate) fn write<T: Plain + Copy>(
    core: &Core,
    to: &DeviceBuffer<T>,
    values: &[T],
) -> Result<TransferNode, Error> {
    check_write(core, to, values).map(TransferNode::from)
}

pub(super) fn copy<T: Plain>(
    core: &Core,
    to: &DeviceBuffer<T>,
    from: &DeviceBuffer<T>,
) -> Result<TransferNode, Error> {
    check_copy(core, to, from).map(TransferNode::from)
}

pub(super) fn fill<T: Plain + Copy>(
    core: &Core,
    buffer: &DeviceBuffer<T>,
    value: T,
) -> Result<TransferNode, Error> {
    check_fill(core, buffer, value).map(TransferNode::from)
}
