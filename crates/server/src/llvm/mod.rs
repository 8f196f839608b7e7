//! The server of LLVM's RPC protocol: what programs linked with LLVM's GPU libc call.
//!
//! The path of a call: `executor` finds the ports that the server owns and goes on with each port's
//! conversation, a future; `conversation` has what is said for each opcode, in terms of `port`'s sends and
//! receives; `files`, `standard`, `print` and `functions` do it. What needs one packet and never waits is no
//! conversation: `one_packet` answers it at once. A conversation that waits, for its client or
//! for a worker thread, delays no other.

mod conversation;
mod executor;
mod files;
mod functions;
mod one_packet;
mod opcode;
mod options;
mod port;
mod print;
mod server;
mod standard;
mod stream;

pub use hostcall_channel::llvm::{Layout, LayoutError, PortMemory, Version};
pub use options::{End, Fault, FaultKind, Options};
pub use server::{LlvmServer, Statistics};
