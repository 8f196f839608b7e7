//! AQL packets (HSA Platform System Architecture 1.2, section 2.9).

use crate::signal::Signal;
use crate::sys::{self, hsa_barrier_and_packet_t, hsa_kernel_dispatch_packet_t, hsa_signal_t};

/// Bytes of a packet.
pub(crate) const PACKET_BYTES: usize = 64;

/// A packet as its words, of which the first 32 bits are the header and the setup: they are stored last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet(pub [u64; PACKET_BYTES / 8]);

/// A packet's header: it waits for all before it in its ring, sees what they and the host wrote, and lets others see what
/// it wrote.
const fn header(kind: u32) -> u16 {
    let system = sys::HSA_FENCE_SCOPE_SYSTEM;
    let header = kind << sys::HSA_PACKET_HEADER_TYPE
        | 1 << sys::HSA_PACKET_HEADER_BARRIER
        | system << sys::HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE
        | system << sys::HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
    header as u16
}

const NO_SIGNAL: hsa_signal_t = hsa_signal_t { handle: 0 };

/// Most signals that one barrier packet waits for.
pub(crate) const SIGNALS_A_BARRIER: usize = 5;

impl Packet {
    /// A packet that waits until all of the signals, at most five, are 0, and then counts `done` down.
    pub fn barrier(signals: &[Signal], done: Option<Signal>) -> Self {
        let mut dep_signal = [NO_SIGNAL; SIGNALS_A_BARRIER];
        for (to, signal) in dep_signal.iter_mut().zip(signals) {
            *to = signal.handle;
        }
        let packet = hsa_barrier_and_packet_t {
            header: header(sys::HSA_PACKET_TYPE_BARRIER_AND),
            reserved0: 0,
            reserved1: 0,
            dep_signal,
            reserved2: 0,
            completion_signal: done.map_or(NO_SIGNAL, |done| done.handle),
        };
        // SAFETY: both are 64 bytes without padding.
        Self(unsafe { std::mem::transmute::<hsa_barrier_and_packet_t, [u64; 8]>(packet) })
    }

    /// A packet that dispatches a kernel.
    pub fn dispatch(dispatch: hsa_kernel_dispatch_packet_t) -> Self {
        let packet =
            hsa_kernel_dispatch_packet_t { header: header(sys::HSA_PACKET_TYPE_KERNEL_DISPATCH), ..dispatch };
        // SAFETY: both are 64 bytes without padding.
        Self(unsafe { std::mem::transmute::<hsa_kernel_dispatch_packet_t, [u64; 8]>(packet) })
    }
}
