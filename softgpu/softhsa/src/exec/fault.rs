//! Why a wave stopped before its end.

use std::fmt;

/// An event that ends a wave, and with it the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An access outside of every allocation.
    Memory {
        /// The device address.
        address: u64,
        /// Whether the access was a write.
        write: bool,
    },
    /// An access outside of the wave's own scratch memory or the workgroup's local memory.
    Aperture {
        /// `"local"` or `"scratch"`.
        space: &'static str,
        /// The offset in that memory.
        offset: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// An address that is no multiple of what the operation needs.
    Misaligned {
        /// `"device"`, `"local"` or `"scratch"`.
        space: &'static str,
        /// The address in that memory.
        address: u64,
        /// Bytes that it must be a multiple of.
        alignment: u64,
    },
    /// The program counter left the loaded code.
    Fetch,
    /// Words that are no instruction.
    Illegal {
        /// The words.
        words: [u32; 2],
    },
    /// An instruction that the interpreter lacks, or a use of one that it lacks.
    Missing {
        /// The instruction's text and what is missing.
        text: String,
    },
    /// `s_sethalt`: a debugger alone makes such a wave go on.
    Halt,
    /// `s_trap`, other than that of `llvm.debugtrap`.
    Trap {
        /// The trap's number: 2 is `llvm.trap`.
        number: u8,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Memory { address, write } => {
                let what = if *write { "a write to" } else { "a read from" };
                write!(f, "{what} {address:#x}, which no allocation holds")
            }
            Fault::Aperture { space, offset, bytes } => {
                let owner = if *space == "local" { "the workgroup" } else { "a lane, as its stack," };
                write!(f, "an access at byte {offset} of {space} memory, of which {owner} has {bytes}")
            }
            Fault::Misaligned { space, address, alignment } => {
                write!(
                    f,
                    "an atomic operation at {address:#x} of {space} memory, which must be a multiple of {alignment}"
                )
            }
            Fault::Fetch => f.write_str("the program counter left the loaded code"),
            Fault::Illegal { words: [first, second] } => {
                write!(f, "the words {first:#010x} {second:#010x} are no instruction of gfx942")
            }
            Fault::Missing { text } => write!(f, "the interpreter cannot execute {text}"),
            Fault::Halt => f.write_str("the wave halts, and there is no debugger that makes it go on"),
            Fault::Trap { number } => write!(f, "trap {number}"),
        }
    }
}

impl std::error::Error for Fault {}
