//! The server of ROCm's hostcall protocol: what kernels of HIP and OpenCL call.
//!
//! The path of a call: `consumer` looks at the buffers that are registered with it, `buffer` takes packets in hand and
//! copies their words, [`Services`] has the handler of each service, and the answer goes back through `buffer`. A handler
//! that may wait runs as a `job` on a worker thread; its packet waits, and no other.
//!
//! What a device writes decides nothing but its own answers: words are copied once and then checked, messages are bounded,
//! and functions are called by numbers that were registered.
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
mod services;

pub use builtin::SanitizerReport;
pub use consumer::{CallsExpected, Consumer, LaunchError, RegisterError, Statistics};
pub use hostcall_channel::rocm::host::Broken;
pub use hostcall_channel::rocm::{
    ALIGN, DeviceMemory, Layout, LayoutError, MAX_PACKETS, PacketMemory, SLOT_WORDS, Version,
};
pub use options::{Fault, FaultKind, Options};
pub use services::{Mode, Packet, ServiceTaken, Services, number};
