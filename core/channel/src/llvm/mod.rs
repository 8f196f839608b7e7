//! LLVM's RPC protocol, which programs linked with LLVM's GPU libc speak: its memory, a client's side of a port
//! and the server's.
//!
//! A *port* is two mailbox words, a header and a buffer of 64 bytes for each lane. The client owns a port's
//! buffers while the two words are equal, else the server does; each side changes its own word only, once when
//! it hands the buffers over. The client begins with a send, and whatever one side sends the other receives.
//!
//! # Invariants
//!
//! - **PORTS**: a [`Ports`] covers memory of its layout that stays mapped for its lifetime and is only accessed
//!   atomically.
//! - **PORT-OWNER**: a correct side touches a port's header and buffers only while it owns them. The host does
//!   not rely on it for more than its answers' content: all that it reads are atomic words, checked after
//!   they were copied.
//!
//! # Orderings
//!
//! | store | load | why it is enough |
//! |---|---|---|
//! | header, buffers: relaxed; release fence; outbox: relaxed | inbox: relaxed; acquire fence; buffers: relaxed | the fences order the buffers with the word that hands them over, both ways |
//! | a header's opcode, by the server, before its release fence | by the server, at the next acquire fence | the client writes it only where it opens the port, which it owns then, and never reads it |
//! | lock bit (client only): fetch-and after a release fence | fetch-or before an acquire fence | hands a port's outbox from client to client |

pub mod client;
mod layout;
mod ports;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod server;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use layout::{BUFFER_BYTES, BUFFER_WORDS, FIRST_PIECE_BYTES, Layout, LayoutError, Version};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use ports::PortMemory;
pub use ports::Ports;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
