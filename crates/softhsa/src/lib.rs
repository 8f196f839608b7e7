//! A software HSA runtime: loads AMD code objects and executes gfx942 machine code on the CPU.
//!
//! As a shared library with HSA's C interface it is the package `hostcall-softhsa-library`.
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

pub mod api;
pub mod changes;
pub mod code;
pub mod device;
pub mod exec;
pub mod isa;
pub mod load;
pub mod memory;
