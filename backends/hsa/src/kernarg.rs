//! The kernel argument segment of a dispatch: the kernel's own arguments, hidden ones, and what arguments refer to.

use crate::gpu::Gpu;
use crate::memory::Block;
use crate::metadata::{Argument, Kind};
use crate::module::Function;
use crate::runtime::Error;
use hostcall_locks::Mutex;
use hostcall_seam::Dispatch;
use std::ptr::NonNull;

/// Bytes of a segment that is taken from a slab; larger ones are allocated by themselves.
const SLOT_BYTES: usize = 1024;

/// Bytes of a slab.
const SLAB_BYTES: usize = 256 << 10;

/// What arguments that are passed by address are aligned to at least, and at most.
const ALIGN: usize = 16;
const MOST_ALIGN: usize = 256;

/// Returns where an argument that is passed by address begins behind so many bytes. Its type is not known here; but its size is
/// a multiple of what it is aligned to.
fn begin_behind(end: usize, argument: &[u8]) -> usize {
    let align = 1 << argument.len().trailing_zeros().clamp(ALIGN.ilog2(), MOST_ALIGN.ilog2());
    end.next_multiple_of(align)
}

/// Memory for the segments of a GPU's dispatches.
#[derive(Default)]
pub(crate) struct Segments(Mutex<Slabs>);

#[derive(Default)]
struct Slabs {
    slabs: Vec<Block>,
    free: Vec<NonNull<u8>>,
}

// SAFETY: addresses of memory that belongs to no thread.
unsafe impl Send for Slabs {}

/// A segment, which its operation has alone until it is given back.
pub(crate) enum Segment {
    Slot(NonNull<u8>),
    Own(Block),
}

// SAFETY: as for `Slabs`.
unsafe impl Send for Segment {}

impl Segment {
    pub fn start(&self) -> NonNull<u8> {
        match self {
            Segment::Slot(start) => *start,
            Segment::Own(block) => block.start(),
        }
    }
}

impl Segments {
    fn take(&self, gpu: &Gpu, bytes: usize) -> Result<Segment, Error> {
        const WHAT: &str = "memory for kernel arguments";
        if bytes > SLOT_BYTES {
            return Block::allocate(gpu, gpu.kernarg_pool(), bytes, WHAT).map(Segment::Own);
        }
        let mut slabs = self.0.lock();
        if slabs.free.is_empty() {
            let slab = Block::allocate(gpu, gpu.kernarg_pool(), SLAB_BYTES, WHAT)?;
            // SAFETY: each slot lies in the slab.
            let slots = (0..SLAB_BYTES / SLOT_BYTES).map(|at| unsafe { slab.start().add(at * SLOT_BYTES) });
            slabs.free.extend(slots);
            slabs.slabs.push(slab);
        }
        Ok(Segment::Slot(slabs.free.pop().expect("there are some now")))
    }

    /// Takes back a segment whose dispatch has ended.
    pub fn give_back(&self, gpu: &Gpu, segment: Segment) {
        match segment {
            Segment::Slot(start) => self.0.lock().free.push(start),
            Segment::Own(block) => block.free(gpu),
        }
    }

    /// Frees the memory; no segment is used any more.
    pub fn free(&self, gpu: &Gpu) {
        let slabs = std::mem::take(&mut *self.0.lock());
        for slab in slabs.slabs {
            slab.free(gpu);
        }
    }
}

/// Dimensions of a launch's grid: those behind the last one that has more than one lane are none.
pub(crate) fn dimensions(launch: &Dispatch<'_>) -> u16 {
    let large = |axis: &usize| launch.workgroups[*axis] > 1 || launch.lanes[*axis] > 1;
    [2, 1].iter().find(|axis| large(axis)).map_or(1, |axis| *axis as u16 + 1)
}

/// Makes the segment of a launch by a queue at this address.
pub(crate) fn fill(
    gpu: &Gpu,
    function: &Function,
    launch: &Dispatch<'_>,
    queue: u64,
) -> Result<Segment, Error> {
    let own = function.own_arguments().count();
    if launch.parameters.len() < own {
        let text = format!("it takes {own} arguments, not {}", launch.parameters.len());
        return Err(Error::own(format!("launching the kernel {}", function.name()), text));
    }
    let by_address = if launch.by_address { launch.parameters } else { &[] };
    let behind = (function.kernarg_bytes() as usize).next_multiple_of(ALIGN);
    let bytes = by_address.iter().fold(behind, |end, argument| begin_behind(end, argument) + argument.len());
    let segment = gpu.segments.take(gpu, bytes.max(ALIGN))?;
    let mut contents = vec![0u8; bytes];
    let mut at = behind;
    for (argument, given) in function.own_arguments().zip(launch.parameters) {
        if launch.by_address {
            at = begin_behind(at, given);
            let address = segment.start().addr().get() as u64 + at as u64;
            put(&mut contents, argument, &address.to_le_bytes());
            contents[at..at + given.len()].copy_from_slice(given);
            at += given.len();
        } else {
            put(&mut contents, argument, given);
        }
    }
    for argument in function.hidden_arguments() {
        let value = hidden(argument.kind, launch, queue);
        put(&mut contents, argument, &value.to_le_bytes());
    }
    // SAFETY: the segment has as many bytes, which nobody else uses.
    unsafe { segment.start().as_ptr().copy_from_nonoverlapping(contents.as_ptr(), bytes) };
    Ok(segment)
}

/// Writes a value to an argument's place: the low bytes of one that is longer, and zeros behind one that is shorter.
fn put(contents: &mut [u8], argument: &Argument, value: &[u8]) {
    let place = contents.get_mut(argument.offset as usize..(argument.offset + argument.bytes) as usize);
    let place = place.expect("the metadata was checked: arguments lie in the segment");
    let bytes = place.len().min(value.len());
    place[..bytes].copy_from_slice(&value[..bytes]);
}

/// The value of a hidden argument, of which those that this crate gives nothing for are 0.
fn hidden(kind: Kind, launch: &Dispatch<'_>, queue: u64) -> u64 {
    match kind {
        Kind::BlockCount(axis) => launch.workgroups[axis].into(),
        Kind::GroupSize(axis) => launch.lanes[axis].into(),
        Kind::GridDims => dimensions(launch).into(),
        Kind::DynamicLdsBytes => launch.workgroup_bytes.into(),
        Kind::QueuePointer => queue,
        Kind::HostcallBuffer => launch.hidden.hostcall_buffer.get(),
        Kind::Heap => launch.hidden.heap.get(),
        Kind::Own | Kind::Special(_) | Kind::PrintfBuffer | Kind::Nothing => 0,
    }
}
