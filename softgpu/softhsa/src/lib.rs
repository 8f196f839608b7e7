//! A software HSA runtime: loads AMD code objects and executes gfx942 machine code on the CPU. It knows nothing of
//! hostcall.
//!
//! It promises a client of HSA what ROCm's runtime promises: all functions of the headers under the same symbol
//! versions, memory that host and device address alike, queues, signals, faults. The table of functions
//! (`api/symbols.rs`) says which are refused and why: images, HSAIL, shared virtual memory, performance counters, what
//! is shared with graphics or other processes. Whatever a client or a code object does, it is refused with a reason, or
//! stops its launch with one. ROCm's HIP (5.7 and later know gfx942) and LLVM's loader run on it.
//!
//! As a shared library with HSA's C interface it is the package `hostcall-softhsa-library`. Begin there for a
//! program that was linked with ROCm's, at [`device`] for the path of a launch, at [`exec`] for an instruction.
//!
//! As a Rust library it is a device in the own process. This runs four words of machine code on two lanes:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use hostcall_softhsa::code::{self, CodeMap};
//! use hostcall_softhsa::exec::{Env, Flow, Wave, wave::scalar};
//! use hostcall_softhsa::memory::Memory;
//!
//! let (memory, map) = (Memory::new(), CodeMap::default());
//! // v_add_u32_e32 v1, 40, v0; s_endpgm
//! map.add(0x1000, vec![0x6802_00a8, 0xbf81_0000]);
//! // Eight vector registers of which none are accumulation registers, and no scratch memory.
//! let mut wave = Wave::new(8, 8, 0);
//! wave.pc = 0x1000;
//! wave.set_pair(scalar::EXEC, 0b11);
//! wave.write_lane(0, 1, 2);
//! let mut env = Env { memory: memory.view(), lds: &mut [], epoch: Instant::now(), compute_unit: 0 };
//! let mut piece = map.find(wave.pc, wave.accumulation).expect("it was added");
//! assert_eq!(code::run(&mut wave, &mut env, &mut piece, &map, 100), Flow::End);
//! assert_eq!((wave.row(1)[0], wave.row(1)[1], wave.row(1)[2]), (40, 42, 0));
//! ```
//!
//! Whole code objects go through [`load::CodeObject`], [`load::Loaded`] and [`device::Device::run`]; the
//! example `run_kernel` shows it. The path of a launch is a module each:
//!
//! | module | what |
//! |---|---|
//! | [`api`] | HSA's functions: agents, pools, signals, queues and their packets, executables |
//! | [`load`] | code objects: ELF, metadata, kernel descriptors; what is malformed is refused with a reason |
//! | [`device`] | threads that take turns with the waves of launches |
//! | [`code`] | loaded code, decoded once, and the loop over a wave's instructions |
//! | [`isa`] | the table of instructions, the decoder and the text of instructions |
//! | [`exec`] | what each instruction does to a wave |
//! | [`changes`] | waits for signals, doorbells and launches |
//! | [`memory`] | the map of allocations, and checked access to them |
//!
//! An access outside of every allocation, a trap, a wave that halts, an unknown or missing instruction stops its launch with a
//! [`device::Failure`] that names kernel, workgroup, wave, place, instruction and reason. Results are rounded as
//! MODE says.
//!
//! # How it behaves
//! - *Turns.* Threads take workgroups from one run queue, run each wave for 2000 instructions at most, and
//!   put the workgroup back at the end. A wave that spins costs the others its share of time; `s_sleep` and
//!   barriers end its turn at once. 2048 waves are resident, the rest begin when others end.
//! - *Waits.* Changes of signals by the host, and interrupt messages by which device code says that it
//!   changed one, wake who waits. What changes without a word (a plain store by a kernel, a packet behind its
//!   doorbell) is looked for in pauses that grow with the wait, to 10 ms.
//! - *Memory.* Pools share the memory that the host has, which is taken where it is touched. Device loads,
//!   stores and atomics are atomic instructions of the CPU at the same address, as over a coherent link.
//!   Waits and cache operations are fences.
//! - *Instructions.* Rows of a table that was made from LLVM's description say which bits are which operand.
//!   An instruction is decoded when a wave first reaches it, and kept beside the code. One function says what
//!   a mnemonic does; drivers apply it to all 64 lanes in loops that the compiler makes vector code of, or to
//!   single lanes if few are active: so both round alike. While MODE asks for another rounding than to the
//!   nearest even number, exact functions on whole numbers are used.
//! - *Faults.* The first fault of a launch is reported: a memory fault to the system event handler, every
//!   other one, and those that no handler wants, to the queue's callback. The queue then starts no more
//!   packets, and the failed launch's signal stays as it is; `softhsa_last_failure` has the sentence. So it
//!   is for a packet that cannot be, whose field the sentence names. Where the queue has no callback, the
//!   process ends with the sentence, since its client would wait for ever.
//! - *Ends.* A queue that is destroyed stops its launches, whose signals stay as they are, and returns when
//!   none runs and no callback is called any more. The last `hsa_shut_down` does so with everything. In a
//!   forked process, which has none of the runtime's threads, every function that returns a status says so.
//!
//! | what | owner | until |
//! |---|---|---|
//! | an allocation | the map of allocations ([`memory`]); a `View` of it holds the map's read lock | the client frees it and no view is open |
//! | pinned memory | the client | each pin of it is undone; pins may lie in each other |
//! | a signal's record | a page that is kept until the runtime's end | the last packet, copy or handler that knows the signal lets go of it |
//! | loaded code | its executable, and each launch of its kernels | the executable is destroyed and its launches have ended |
//! | a wave's registers, a workgroup's local memory | the thread that has the workgroup in hand | the workgroup's end |
//!
//! | thread | how many | what it does |
//! |---|---|---|
//! | `compute unit N` | `SOFTHSA_THREADS` for each GPU | runs waves |
//! | `queue` | one a queue | starts packets, and waits in barrier packets |
//! | `signal waits` | two | calls handlers; makes copies that wait for signals |
//! | `doorbells` | one | looks at queues that have slept for long |
//! | `events`, `queue errors` | one a report | calls the client's function |
//!
//! Copies that wait for nothing are made by the thread that asks for them. The map of allocations is locked
//! last: under a device's run queue, a queue's pending packets, the list of queues, or the pins. Who has a
//! `View` of it takes none of them.
//!
//! `instructions.md` says of each instruction whether it is exact, and whether a test executes
//! it.

pub mod api;
pub mod changes;
pub mod code;
pub mod device;
pub mod exec;
pub mod isa;
pub mod load;
pub mod memory;
