//! What each type of packet does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{PACKET, Queue};
use crate::api::agents::MOST_LANES;
use crate::api::runtime::{Runtime, lock};
use crate::api::signals::{Condition, Signal};
use crate::api::{Status, status};
use crate::changes::Pause;
use crate::device::LaunchSpec;

/// Types of packets.
const VENDOR: u32 = 0;
pub const INVALID: u32 = 1;
const DISPATCH: u32 = 2;
const BARRIER_AND: u32 = 3;
const BARRIER_OR: u32 = 5;

/// The header's bit that lets the packet wait for all before it.
pub const BARRIER_BIT: u32 = 1 << 8;

/// The format of AMD's packet that waits for a signal's value (`HSA_AMD_PACKET_TYPE_BARRIER_VALUE`).
const BARRIER_VALUE: u32 = 2;

/// Returns the type in a packet's first word.
pub fn kind(header: u32) -> u32 {
    header & 255
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet(pub [u8; PACKET as usize]);

impl Default for Packet {
    fn default() -> Packet {
        Packet([0; PACKET as usize])
    }
}

impl Packet {
    fn half(&self, at: usize) -> u32 {
        u32::from(self.0[at]) | u32::from(self.0[at + 1]) << 8
    }

    fn word(&self, at: usize) -> u32 {
        self.half(at) | self.half(at + 2) << 16
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// Returns the signal that the packet completes, if it has one.
    fn completion(&self, runtime: &Runtime) -> Result<Option<Signal>, Refused> {
        named_signal(runtime, "completion_signal", self.long(56))
    }
}

/// Why a packet is not processed.
#[derive(Debug)]
pub struct Refused {
    pub status: Status,
    pub text: String,
}

fn refuse<T>(status: Status, text: String) -> Result<T, Refused> {
    Err(Refused { status, text })
}

/// Returns the signal that a field of a packet names, if it names one.
fn named_signal(runtime: &Runtime, field: &str, handle: u64) -> Result<Option<Signal>, Refused> {
    if handle == 0 {
        return Ok(None);
    }
    let text = || format!("{field} is {handle:#x}, which is no signal");
    runtime.signals.find(handle).map(Some).map_err(|status| Refused { status, text: text() })
}

/// Checks the sizes of a dispatch packet. Returns which field cannot be.
///
/// Sizes count in all three dimensions, whatever number of them `setup` gives: packet processors do not compare them, and
/// clients (LLVM's loader) set one dimension for grids of three.
fn check_sizes(dimensions: u32, grid: [u32; 3], workgroup: [u32; 3]) -> Result<(), String> {
    if dimensions == 0 {
        return Err("setup says that the grid has no dimensions; it has 1, 2 or 3".to_owned());
    }
    for (name, sizes) in [("workgroup", workgroup), ("grid", grid)] {
        if let Some(axis) = sizes.iter().position(|size| *size == 0) {
            return Err(format!("{name}_size_{} is 0; 1 is the least", ["x", "y", "z"][axis]));
        }
    }
    let lanes: u64 = workgroup.iter().map(|&lanes| u64::from(lanes)).product();
    if lanes > u64::from(MOST_LANES) {
        return Err(format!(
            "workgroup_size_x, y and z are {workgroup:?}, {lanes} lanes together; {MOST_LANES} are the most"
        ));
    }
    if grid.iter().try_fold(1u64, |product, &lanes| product.checked_mul(lanes.into())).is_none() {
        return Err(format!("grid_size_x, y and z are {grid:?}: more lanes than can be counted"));
    }
    Ok(())
}

impl Queue {
    /// Starts a packet.
    pub(super) fn start(
        self: &Arc<Queue>,
        runtime: &Arc<Runtime>,
        number: u64,
        address: u64,
        packet: &Packet,
    ) -> Result<(), Refused> {
        match (kind(packet.word(0)), packet.half(2) & 255) {
            (DISPATCH, _) => self.dispatch(runtime, number, address, packet),
            (kind @ (BARRIER_AND | BARRIER_OR), _) => self.barrier(runtime, number, packet, kind),
            (VENDOR, BARRIER_VALUE) => self.barrier_value(runtime, number, packet),
            (VENDOR, format) => refuse(
                status::INVALID_PACKET_FORMAT,
                format!(
                    "AmdFormat is {format}; of AMD's packets there is only {BARRIER_VALUE}, barrier value"
                ),
            ),
            (kind, _) => refuse(
                status::INVALID_PACKET_FORMAT,
                format!("its header has the type {kind}: none that this runtime knows"),
            ),
        }
    }

    fn dispatch(
        self: &Arc<Queue>,
        runtime: &Arc<Runtime>,
        number: u64,
        address: u64,
        packet: &Packet,
    ) -> Result<(), Refused> {
        let workgroup = [4, 6, 8].map(|at| packet.half(at));
        let grid = [12, 16, 20].map(|at| packet.word(at));
        let (private_bytes, group_bytes, object) = (packet.word(24), packet.word(28), packet.long(32));
        let done = packet.completion(runtime)?;
        if let Err(text) = check_sizes(packet.half(2) & 3, grid, workgroup) {
            return refuse(status::INVALID_ARGUMENT, text);
        }
        let Some((loaded, kernel)) = runtime.code.kernel(object) else {
            return refuse(
                status::INVALID_CODE_OBJECT,
                format!("kernel_object is {object:#x}, where no loaded kernel's descriptor is"),
            );
        };
        let name = &kernel.symbol;
        let device =
            runtime.gpu(self.agent).map_err(|status| Refused { status, text: "no such agent".to_owned() })?;
        if !loaded.is_on(device) {
            return refuse(
                status::INVALID_CODE_OBJECT,
                format!("kernel_object is the kernel {name}, which is loaded on another agent"),
            );
        }
        let (group_bytes, private_bytes) = match kernel.descriptor.memory(group_bytes, private_bytes) {
            Ok(memory) => memory,
            Err(text) => return refuse(status::INVALID_ALLOCATION, format!("the kernel {name}: {text}")),
        };
        let spec = LaunchSpec {
            group_bytes,
            private_bytes,
            packet: address,
            queue: self.place.record,
            packet_id: number,
            ..loaded.launch_spec(&kernel, packet.long(40), grid, workgroup)
        };
        self.running.fetch_add(1, Ordering::SeqCst);
        let (queue, began) = (Arc::clone(self), runtime.now());
        let launch = device.launch(spec, move |failure| {
            queue.ended(number, began, done.as_ref(), failure);
            // The code stays loaded until here, even if the client has destroyed its executable.
            drop(loaded);
        });
        let mut launches = lock(&self.launches);
        launches.retain(|launch| launch.strong_count() > 0);
        launches.push(Arc::downgrade(&launch));
        Ok(())
    }

    /// Waits for a barrier packet's signals: for all or one of them to be 0.
    fn barrier(
        &self,
        runtime: &Arc<Runtime>,
        number: u64,
        packet: &Packet,
        kind: u32,
    ) -> Result<(), Refused> {
        let signal =
            |index: usize| named_signal(runtime, &format!("dep_signal[{index}]"), packet.long(8 + 8 * index));
        let signals: Vec<Signal> =
            (0..5).filter_map(|index| signal(index).transpose()).collect::<Result<_, _>>()?;
        self.wait_until(runtime, number, packet, || {
            let mut zeros = signals.iter().map(|signal| signal.value().load(Ordering::SeqCst) == 0);
            signals.is_empty() || if kind == BARRIER_AND { zeros.all(|z| z) } else { zeros.any(|z| z) }
        })
    }

    /// Waits until those bits of a signal's value that the packet's mask has satisfy its condition.
    fn barrier_value(&self, runtime: &Arc<Runtime>, number: u64, packet: &Packet) -> Result<(), Refused> {
        let (compare, mask, condition) = (packet.long(16) as i64, packet.long(24) as i64, packet.word(32));
        let signal = named_signal(runtime, "signal", packet.long(8))?;
        if condition > 3 {
            return refuse(status::INVALID_ARGUMENT, format!("cond is {condition}; conditions are 0 to 3"));
        }
        let condition = signal.map(|signal| Condition { signal, condition, compare });
        self.wait_until(runtime, number, packet, || {
            condition.as_ref().is_none_or(|condition| {
                condition.holds(condition.signal.value().load(Ordering::SeqCst) & mask)
            })
        })
    }

    /// Ends a packet when `is_open` holds. The packets behind it wait, too.
    fn wait_until(
        &self,
        runtime: &Arc<Runtime>,
        number: u64,
        packet: &Packet,
        is_open: impl Fn() -> bool,
    ) -> Result<(), Refused> {
        let (began, done) = (runtime.now(), packet.completion(runtime)?);
        let mut pause = Pause::default();
        while !self.stopped.load(Ordering::SeqCst) {
            let seen = runtime.memory.changes.count();
            if is_open() {
                self.finish_packet(runtime, number, began, done.as_ref());
                break;
            }
            runtime.memory.changes.wait_or_look(seen, &mut pause);
        }
        Ok(())
    }
}
