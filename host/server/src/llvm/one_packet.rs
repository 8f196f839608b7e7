//! Operations of one packet, which are answered where it came, at once.

use super::executor::Thread;
use super::handlers::{HandlerFailed, Packet};
use super::opcode::OnePacket;
use super::port::lanes_of;
use crate::services::HeapOwner;

/// Alignment of what `malloc` gives, in bytes.
const MALLOC_ALIGN: u64 = 16;

/// Answers the lanes of a port.
#[inline]
pub(super) fn answer(thread: &Thread, port: u32, mask: u64, what: OnePacket) {
    let (heap, owner) = (&thread.shared().heap, HeapOwner::Program(thread.shared().program));
    match what {
        OnePacket::Noop => {}
        OnePacket::Increment => change(thread, port, mask, |number| number.wrapping_add(1)),
        OnePacket::Malloc => {
            change(thread, port, mask, |bytes| heap.allocate_for(owner, bytes, MALLOC_ALIGN));
        }
        OnePacket::Free => {
            let mut address = [0];
            for lane in lanes_of(mask) {
                thread.ports().read(port, lane, &mut address);
                if address[0] != 0 {
                    // The heap counts what is not the program's; C's function has no result.
                    heap.free_of(owner, address[0]);
                }
            }
        }
    }
    thread.hand_over(port);
}

/// Answers the lanes of a port with a handler of the embedding program.
pub(super) fn answer_with(
    thread: &Thread,
    port: u32,
    mask: u64,
    opcode: u32,
    answer: &dyn Fn(&mut Packet<'_>) -> Result<(), HandlerFailed>,
) -> Result<(), HandlerFailed> {
    let (ports, mut scratch) = (thread.ports(), thread.scratch());
    for lane in lanes_of(mask) {
        ports.read(port, lane, &mut scratch.words[lane as usize]);
    }
    answer(&mut Packet { opcode, mask, buffers: &mut scratch.words })?;
    for lane in lanes_of(mask) {
        ports.write(port, lane, &scratch.words[lane as usize]);
    }
    thread.keep(scratch);
    thread.hand_over(port);
    Ok(())
}

/// Changes each lane's first word.
#[inline]
fn change(thread: &Thread, port: u32, mask: u64, change: impl Fn(u64) -> u64) {
    let ports = thread.ports();
    let mut word = [0];
    for lane in lanes_of(mask) {
        ports.read(port, lane, &mut word);
        ports.write(port, lane, &[change(word[0])]);
    }
}
