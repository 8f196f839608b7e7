//! Copies and fills that were checked: what a stream does at once or records, and what nodes of graphs are.
#![allow(unsafe_code, reason = "fills pinned memory")]

use super::buffer::{DeviceBuffer, Wanted, bytes_of};
use super::core::Core;
use super::error::{BoundsError, Error};
use super::staging::Staging;
use super::uses::Access;
use hostcall_device::kernel::Plain;
use hostcall_seam::{Backend, BackendError, DeviceAddress};
use std::sync::{Arc, OnceLock};

/// Where a copy to the host goes.
pub(crate) struct Readable {
    pub staging: Staging,
    /// Why the copy was not made, if the device refused it.
    pub refused: OnceLock<BackendError>,
}

/// A copy or a fill.
#[derive(Clone)]
pub(crate) enum Transfer {
    Write {
        to: DeviceAddress,
        from: Arc<Staging>,
        bytes: usize,
    },
    Read {
        to: Arc<Readable>,
        from: DeviceAddress,
        bytes: usize,
    },
    /// From memory of `of`, if that is another device.
    Copy {
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: usize,
        of: Option<Arc<dyn Backend>>,
    },
    Fill {
        to: DeviceAddress,
        pattern: Vec<u8>,
        count: usize,
    },
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

/// What was asked for.
#[derive(Clone, Copy)]
pub(crate) enum TransferKind {
    Write,
    Copy,
    Fill,
}

/// A copy or a fill, with the memory that it uses.
pub(crate) struct Checked {
    /// What was asked for: `what` may be another kind, since a fill with a long pattern is done as a write.
    pub kind: TransferKind,
    pub what: Transfer,
    pub wanted: Vec<Wanted>,
}

/// A copy of values, which are taken at once, to a buffer.
pub(super) fn check_write<T: Plain>(
    core: &Core,
    to: &DeviceBuffer<T>,
    values: &[T],
) -> Result<Checked, Error> {
    core.check_own(&to.allocation.core, "the buffer")?;
    to.check_len(values.len())?;
    let what = write(core, to, &bytes_of(values))?;
    Ok(Checked { kind: TransferKind::Write, what, wanted: vec![to.wanted(Access::Write)] })
}

/// A copy of bytes, as many as the buffer has, which are taken at once.
fn write<T: Plain>(core: &Core, to: &DeviceBuffer<T>, bytes: &[u8]) -> Result<Transfer, Error> {
    let from = core.staging(bytes.len())?;
    // SAFETY: as many bytes lie there, which nobody else has.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), from.host_address().as_ptr(), bytes.len()) };
    Ok(Transfer::Write { to: to.address(), from: Arc::new(from), bytes: bytes.len() })
}

/// A copy within the device.
pub(super) fn check_copy<T: Plain>(
    core: &Core,
    to: &DeviceBuffer<T>,
    from: &DeviceBuffer<T>,
) -> Result<Checked, Error> {
    core.check_own(&from.allocation.core, "the buffer that is read")?;
    check_copy_from(core, to, from)
}

/// A copy to the device's memory, from there or from that of another device that it reaches.
pub(super) fn check_copy_from<T: Plain>(
    core: &Core,
    to: &DeviceBuffer<T>,
    from: &DeviceBuffer<T>,
) -> Result<Checked, Error> {
    core.check_own(&to.allocation.core, "the buffer that is written")?;
    let source = &from.allocation.core;
    let of = (!core.is(source)).then(|| source.backend.clone());
    if of.as_ref().is_some_and(|of| !core.backend.reaches(&**of)) {
        core.check_own(source, "the buffer that is read")?;
    }
    to.check_len(from.len())?;
    let wanted = vec![from.wanted(Access::Read), to.wanted(Access::Write)];
    if wanted[0].conflicts_with(&wanted[1]) {
        return Err(BoundsError::Overlap.into());
    }
    let what = Transfer::Copy { to: to.address(), from: from.address(), bytes: from.bytes().len(), of };
    Ok(Checked { kind: TransferKind::Copy, what, wanted })
}

/// A fill.
pub(super) fn check_fill<T: Plain>(
    core: &Core,
    buffer: &DeviceBuffer<T>,
    value: T,
) -> Result<Checked, Error> {
    check_fill_bytes(core, buffer, &bytes_of(std::slice::from_ref(&value)))
}

/// A fill with the bytes of a value, of which the buffer holds a whole number.
pub(super) fn check_fill_bytes<T: Plain>(
    core: &Core,
    buffer: &DeviceBuffer<T>,
    value: &[u8],
) -> Result<Checked, Error> {
    core.check_own(&buffer.allocation.core, "the buffer")?;
    let (pattern, bytes) = (shortest_pattern(value), buffer.bytes().len());
    let count = bytes / pattern.len().max(1);
    if count * pattern.len() != bytes {
        return Err(BoundsError::Fill { value: value.len(), bytes }.into());
    }
    let what = match pattern.len() {
        // What devices fill with.
        ..=4 => Transfer::Fill { to: buffer.address(), pattern: pattern.to_vec(), count },
        _ => write(core, buffer, &pattern.repeat(count))?,
    };
    Ok(Checked { kind: TransferKind::Fill, what, wanted: vec![buffer.wanted(Access::Write)] })
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

/// A fill of a buffer with zeros.
pub(super) fn zeros<T: Plain>(buffer: &DeviceBuffer<T>) -> Checked {
    let what = Transfer::Fill { to: buffer.address(), pattern: vec![0], count: buffer.bytes().len() };
    Checked { kind: TransferKind::Fill, what, wanted: vec![buffer.wanted(Access::Write)] }
}
