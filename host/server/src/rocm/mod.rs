//! The server of ROCm's hostcall protocol: what kernels of HIP and OpenCL call.
//!
//! Such kernels, linked with ROCm's device libraries, call through a *hostcall buffer*: as many packets as
//! waves can be resident on a queue. `core/channel/src/rocm` has both layouts and their orderings.
//!
//! ```text
//!  wave                     hostcall buffer                    this module
//!  ──────────────────────────────────────────────────────────────────────────────────────────────────
//!  claims a packet
//!  writes lanes, submits ─► header, payload, ready ───────────► buffer.rs    takes it in hand, copies it
//!                                                               services.rs  which handler
//!                                                               consumer.rs  runs it, or
//!                                                               job.rs       has a worker thread run it
//!  polls, reads two words ◄ payload, control or phase ◄──────── buffer.rs    answers it
//!  gives the packet back
//! ```
//!
//! - *Layouts.* Until 2026 two stacks of tagged pointers, of free and of ready packets; since then two phases
//!   a packet, which differ while it waits. Nothing in a buffer tells them apart: who makes it says which
//!   ([`Version`]). What a call costs does not grow with the packets: the ready stack is taken at once,
//!   phases are looked at 16 at a time.
//! - *What a device may not do.* The host follows no address from the buffer. It masks and checks indices and
//!   knows by itself which packets it has in hand, so a chain has an end and a packet one answer. Messages
//!   are bounded, each and together; beyond that a buffer's oldest are given up. Functions are called by
//!   registered numbers.
//! - *Answers.* The protocol has no status. A packet whose service has no handler, or whose handler panicked
//!   or is given up, is answered with zeros, with a report ([`Options::on_fault`]).
//! - *Buffers come and go.* A consumer touches a buffer's memory under the buffer's lock only, and runs no
//!   handler under it. So deregistering waits for no handler and may happen in one; when it returns the
//!   memory is left alone. Packets in hand are answered with zeros before. A buffer has one consumer at a
//!   time. A consumer that ends serves what was submitted before.
//! - *Sleeps.* A device rings a signal, at which no consumer looks: it polls, and sleeps at most 0.9 ms, or 1
//!   s while it has no buffer or is told that no launch may call.
//!
//! ```
//! use hostcall_channel::rocm::client;
//! use hostcall_server::rocm::{Consumer, Layout, Mode, Options, PacketMemory, Services, Version};
//! use std::sync::Arc;
//!
//! let services = Services::new();
//! services.register(700, "increment", Mode::Inline, |packet| {
//!     packet.lanes().for_each(|(_, words)| words[0] += 1);
//! })?;
//! let consumer = Consumer::new(&services, Options::default())?;
//! let buffer = Arc::new(PacketMemory::allocate(Layout::new(Version::Stacks, 42)?));
//! consumer.register(&buffer)?;
//! consumer.launch()?;
//!
//! // A wave calls for its lane 0.
//! let mut lanes = [[42, 0, 0, 0, 0, 0, 0, 0]];
//! client::call(buffer.packets(), 700, 1, &mut lanes, std::thread::yield_now);
//! assert_eq!(lanes[0][0], 43);
//! assert!(consumer.deregister(&buffer));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod builtin;
mod consumer;
mod job;
mod messages;
mod options;
mod print;
mod rpc;
mod services;

pub use builtin::SanitizerReport;
pub use consumer::{CallsExpected, Consumer, LaunchError, RegisterError, Statistics};
pub use hostcall_channel::rocm::host::Broken;
pub use hostcall_channel::rocm::{
    ALIGN, Layout, LayoutError, MAX_PACKETS, PacketMemory, SLOT_WORDS, Version,
};
pub use options::{Fault, FaultKind, Options};
pub(crate) use rpc::RpcServices;
pub use services::{Mode, Packet, ServiceTaken, Services, number};
