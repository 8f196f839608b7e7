//! Names of registers.

use std::fmt;

/// A file of numbered registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// Scalar registers, one for each wave.
    Scalar,
    /// Vector registers, one for each lane.
    Vector,
    /// Accumulation registers, one for each lane.
    Accumulation,
    /// Scalar registers of the trap handler.
    Trap,
}

/// Registers that have names instead of numbers, and values that read as registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the manual's")]
pub enum Special {
    FlatScratch,
    XnackMask,
    Vcc,
    Tba,
    Tma,
    M0,
    Null,
    Exec,
    FlatScratchBase,
    SharedBase,
    SharedLimit,
    PrivateBase,
    PrivateLimit,
    PopsExitingWaveId,
    Vccz,
    Execz,
    Scc,
    LdsDirect,
}

impl Special {
    /// Returns whether the processor has it. LLVM's disassembler names some that only other processors
    /// have.
    pub fn is_there(self) -> bool {
        !matches!(self, Special::Null | Special::FlatScratchBase | Special::LdsDirect)
    }

    /// Returns whether the name is that of the base or limit of an address range.
    pub fn is_aperture(self) -> bool {
        matches!(
            self,
            Special::SharedBase | Special::SharedLimit | Special::PrivateBase | Special::PrivateLimit
        )
    }
}

/// A register or a run of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Register {
    /// `dwords` registers of a file from number `first` on.
    Numbered {
        /// The file.
        file: File,
        /// The first register's number.
        first: u16,
        /// How many registers of 32 bits.
        dwords: u16,
    },
    /// A named register: a half of it if `half` is 0 or 1.
    Special {
        /// Which register.
        name: Special,
        /// The half, or `None` for all of its 64 bits or for registers of 32 bits.
        half: Option<u8>,
    },
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Register::Numbered { file, first, dwords } => {
                f.write_str(match file {
                    File::Scalar => "s",
                    File::Vector => "v",
                    File::Accumulation => "a",
                    File::Trap => "ttmp",
                })?;
                match dwords {
                    1 => write!(f, "{first}"),
                    _ => write!(f, "[{first}:{}]", first + dwords - 1),
                }
            }
            Register::Special { name, half } => {
                f.write_str(match name {
                    Special::FlatScratch => "flat_scratch",
                    Special::XnackMask => "xnack_mask",
                    Special::Vcc => "vcc",
                    Special::Tba => "tba",
                    Special::Tma => "tma",
                    Special::M0 => "m0",
                    Special::Null => "null",
                    Special::Exec => "exec",
                    Special::FlatScratchBase => "src_flat_scratch_base",
                    Special::SharedBase => "src_shared_base",
                    Special::SharedLimit => "src_shared_limit",
                    Special::PrivateBase => "src_private_base",
                    Special::PrivateLimit => "src_private_limit",
                    Special::PopsExitingWaveId => "src_pops_exiting_wave_id",
                    Special::Vccz => "src_vccz",
                    Special::Execz => "src_execz",
                    Special::Scc => "src_scc",
                    Special::LdsDirect => "src_lds_direct",
                })?;
                match half {
                    // Of 64-bit constants the name means the lower half, too.
                    _ if name.is_aperture() => Ok(()),
                    None if name == Special::FlatScratchBase => f.write_str("_lo"),
                    Some(0) => f.write_str("_lo"),
                    Some(_) => f.write_str("_hi"),
                    None => Ok(()),
                }
            }
        }
    }
}
