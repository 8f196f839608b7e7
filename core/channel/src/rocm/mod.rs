//! ROCm's hostcall protocol, which HIP's and OpenCL's device libraries speak: its memory, the device's side of a packet
//! and the host's.
//!
//! A *packet* is a header and a payload of eight words for each of a wave's 64 lanes. A wave claims a free packet, fills
//! it and submits it; the host serves each lane of its mask and answers; the wave reads two words a lane and gives the
//! packet back. How packets are claimed and submitted depends on the [`Version`].
//!
//! # Invariants
//!
//! - **PACKETS**: a [`Packets`] covers memory of its layout that stays mapped for its lifetime and is only accessed
//!   atomically.
//! - **PACKET-OWNER**: a correct wave touches a packet's header and payload only from claiming to submitting it and
//!   again once it is answered. The host does not rely on it for more than its answers' content: all that it reads are
//!   atomic words, checked after they were copied, and which packets it has in hand it knows by itself.
//!
//! # Orderings
//!
//! | store | load | why it is enough |
//! |---|---|---|
//! | header, payload: relaxed; ready stack: release CAS (device) | ready stack: acquire swap; the rest relaxed (host) | the stack's word is changed by read-modify-writes only, so that the swap sees what each push published |
//! | payload: relaxed; control: release (host) | control: acquire; payload relaxed (device) | the wave polls the word that the answer is published with |
//! | free stack: release CAS | acquire CAS | hands a packet from wave to wave; a tag in each pointer tells a packet's uses apart |
//! | header, payload: relaxed; device's phase: release store | relaxed, acquire fence; the rest relaxed (host) | each packet has a word of its own |
//! | payload: relaxed; release fence; host's phase: relaxed (host) | acquire (device) | the same, the other way |
//! | occupied bit (device only): fetch-and after a release fence | fetch-or before an acquire fence | hands a packet from wave to wave |

pub mod client;
pub mod host;
mod layout;
mod memory;
mod packets;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use layout::{ALIGN, LANES, Layout, LayoutError, MAX_PACKETS, SLOT_WORDS, Version};
pub use memory::PacketMemory;
pub use packets::Packets;
