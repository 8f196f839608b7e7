//! The server of LLVM's RPC protocol: what programs linked with LLVM's GPU libc call.
//!
//! ```text
//!  libc on the device       shared memory                    this module
//!  ─────────────────────────────────────────────────────────────────────────────────────────────────
//!  open: lock a port
//!  send ───────────────────► header, buffers, secondary ───► executor.rs      finds the port
//!                                                            opcode.rs        which service, for which LLVM
//!                                                            one_packet.rs    answers at once, or
//!                                                            conversation.rs  what both sides say
//!  receive ◄──────────────── buffers, primary ◄───────────── port.rs          its sends and receives
//!  close                                                     files.rs, standard.rs, print.rs, functions.rs
//!                                                            handlers.rs      the embedding program's handlers
//!                                                            call.rs          a handler talks over a port
//!                                                            dispatch.rs, emissary.rs
//! ```
//!
//! - *Finding ports.* One look at 16 mailbox words compares their lowest bits with the bits that the server
//!   keeps of its own words. Lines where a client wrote lately are looked at in every pass, of the others one
//!   a pass: so what a call costs does not grow with the ports. Neither the client's words nor the server's
//!   own in shared memory are believed.
//! - *Conversations.* An opcode that takes several packets or may wait is a future that mirrors the client's
//!   sends and receives. It is polled when its port was found again, so a port in the middle of a stream
//!   delays no other: programs call `malloc` between two pieces. The futures live in seats that are used
//!   again, so a call of one packet allocates nothing.
//! - *What may wait* (opening files, input, full output, `system`, host functions) runs on worker threads;
//!   the port is set aside meanwhile. A read that the file's buffer can serve, and a write that it can take,
//!   are done at once.
//! - *Handlers of the embedding program.* Those of ranges of opcodes are looked up first, so that they may come in libc's
//!   place. One that answers a packet in its place may run on the thread that found it. One that talks with its client runs
//!   on a worker thread; each receive and send goes to the port's own thread and back. A server can be without threads
//!   that serve, and is polled then ([`LlvmServer::by_hand`]).
//! - *What a client may not do.* `FILE*`s are handles with a generation, checked against a table; host calls
//!   reach registered functions only; messages are limited, each and together. A bad header, an unknown
//!   opcode, a message over the limit or a handler's panic ends the service of that port, with a report
//!   ([`Options::on_fault`]). A bad stream, path or format is C's error.
//! - *Clients that nobody can end* get zeros after a fault ([`Options::answer_faults`]). The server does not know how a call
//!   goes on that it does not know: it answers every packet, until the header says that the client has opened the port for
//!   another call. To tell that, the server overwrites the opcode in the header of each call that it has begun with.
//! - *Memory.* What a program allocates is its own: `free` frees nothing of launches or other programs. What
//!   it leaves is freed with its ports' memory, which everything that runs its kernels keeps until they have
//!   ended.
//! - *Versions* are told apart by the client's symbol and its size: LLVM 19 and before, 20 to 22, and 23 and later, with a
//!   doorbell, which stays zero: the host polls. How lanes lock a port, which changed since, is the client's own affair.
//!
//! `core/channel/src/llvm` has the layouts, a client's side of a port and the server's, with their
//! orderings and loom models; `kernel/device/src/llvm.rs` a client for kernels; `tests/crosscheck` runs one
//! client against LLVM's own server and this one.

mod call;
mod conversation;
mod dispatch;
mod emissary;
mod executor;
mod files;
mod functions;
mod handlers;
mod one_packet;
mod opcode;
mod options;
mod port;
mod print;
mod server;
mod standard;
mod stream;

pub use call::{Call, CallEnded};
pub use dispatch::{Argument, Parameter};
pub use emissary::{EmissaryCall, EmissaryValue};
pub use handlers::{HandlerFailed, OpcodeHandler, Packet, Taken};
pub use hostcall_channel::llvm::{Layout, LayoutError, PortMemory, Version};
pub use options::{End, Fault, FaultKind, Options};
pub use server::{Counted, LlvmServer, Poller, Statistics};
