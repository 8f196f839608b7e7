//! A software HSA runtime: loads AMD code objects and executes gfx942 machine code on the CPU.

pub mod api;
pub mod code;
pub mod device;
pub mod exec;
pub mod isa;
pub mod load;
pub mod memory;
