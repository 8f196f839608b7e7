//! The instruction set: LLVM's table of gfx942, the decoder, and the text of instructions.

pub mod decode;
pub mod operand;
pub mod register;
pub mod table;
pub mod text;

pub use decode::{Decoded, Undecodable, decode};
pub use register::{File, Register, Special};
