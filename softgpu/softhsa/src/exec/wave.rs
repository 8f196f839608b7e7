//! The state of a wave and the environment that it runs in.

use std::time::Instant;

use super::fault::Fault;
use super::inst::Src;
use crate::isa::Special;
use crate::memory::View;

/// Lanes of a wave.
pub const LANES: usize = 64;

/// One register's values in all lanes.
pub type Row = [u32; LANES];

/// Numbers of scalar registers, which are those of the instruction encoding.
pub mod scalar {
    /// The low half of VCC.
    pub const VCC: u8 = 106;
    /// M0.
    pub const M0: u8 = 124;
    /// The null register: reads 0, and what is written to it is dropped.
    pub const NULL: u8 = 125;
    /// The low half of EXEC.
    pub const EXEC: u8 = 126;
}

/// Where flat addresses of local memory begin.
pub const SHARED_BASE: u64 = 1 << 48;
/// Where flat addresses of scratch memory begin.
pub const PRIVATE_BASE: u64 = 2 << 48;
/// Bytes of each of the two address ranges.
pub const APERTURE: u64 = 1 << 32;

/// Bits of the MODE register.
pub mod mode {
    /// Rounding of 32-bit floating-point operations: 0 is to the nearest even number.
    pub const ROUND_32: u32 = 3;
    /// Rounding of 16-bit and 64-bit operations.
    pub const ROUND_16_64: u32 = 3 << 2;
    /// Denormals of 32 bits are kept: [`SOURCES`] and [`RESULTS`].
    pub const DENORM_32: u32 = 3 << 4;
    /// Denormals of 16 and 64 bits are kept: [`SOURCES`] and [`RESULTS`].
    pub const DENORM_16_64: u32 = 3 << 6;
    /// The bits of the fields of denormals that keep those of sources.
    pub const SOURCES: u32 = 1 << 4 | 1 << 6;
    /// The bits of the fields of denormals that keep those of results.
    pub const RESULTS: u32 = 2 << 4 | 2 << 6;
    /// A clamped NaN becomes 0.
    pub const DX10_CLAMP: u32 = 1 << 8;
    /// Minimum and maximum make signalling NaNs quiet.
    pub const IEEE: u32 = 1 << 9;
    /// M0 indexes vector registers: see [`Wave::indexed_operands`](super::Wave::indexed_operands).
    pub const INDEX: u32 = 1 << 27;
    /// What a wave may ask for that the interpreter does not have: traps of floating-point exceptions (bits 12 to
    /// 20), 16-bit results that do not overflow (23), and vector instructions that are skipped (28).
    pub const UNKNOWN: u32 = 0x1ff << 12 | 1 << 23 | 1 << 28;

    /// Returns 32-bit floating-point bits with a denormal made 0 if MODE says so for sources or for results, as
    /// `which` says ([`SOURCES`], [`RESULTS`]).
    #[inline(always)]
    pub fn flush_32(mode: u32, bits: u32, which: u32) -> u32 {
        if bits & 0x7f80_0000 == 0 && mode & DENORM_32 & which == 0 { bits & 0x8000_0000 } else { bits }
    }

    /// Returns 16-bit floating-point bits with a denormal made 0 if MODE says so.
    #[inline(always)]
    pub fn flush_16(mode: u32, bits: u16, which: u32) -> u16 {
        if bits & 0x7c00 == 0 && mode & DENORM_16_64 & which == 0 { bits & 0x8000 } else { bits }
    }

    /// Returns 64-bit floating-point bits with a denormal made 0 if MODE says so.
    #[inline(always)]
    pub fn flush_64(mode: u32, bits: u64, which: u32) -> u64 {
        let denormal = bits & 0x7ff0_0000_0000_0000 == 0;
        if denormal && mode & DENORM_16_64 & which == 0 { bits & 1 << 63 } else { bits }
    }
}

/// A wave.
#[derive(Debug)]
pub struct Wave {
    /// The address of the next instruction.
    pub pc: u64,
    /// Scalar registers by the numbers of the instruction encoding: VCC, trap registers, M0 and EXEC among them.
    pub s: [u32; 128],
    /// The scalar condition code.
    pub scc: bool,
    /// The MODE register.
    pub mode: u32,
    /// Vector registers, then accumulation registers.
    pub v: Vec<Row>,
    /// The number of the first accumulation register in `v`.
    pub accumulation: usize,
    /// Scratch memory: that of lane 0, then that of lane 1, and so on.
    pub scratch: Vec<u8>,
    /// Bytes of scratch memory of a lane.
    pub scratch_bytes: usize,
    /// The wave's number in its workgroup.
    pub number: u32,
    /// How many instructions the wave has executed.
    pub executed: u64,
    /// Why the wave stopped, if it did before its end.
    pub fault: Option<Fault>,
}

/// What a wave uses of the device while it runs.
#[derive(Debug)]
pub struct Env<'a> {
    /// Device memory.
    pub memory: View<'a>,
    /// The workgroup's local memory.
    pub lds: &'a mut [u8],
    /// When the device's clock began.
    pub epoch: Instant,
    /// The hardware identity that the wave reports: its compute unit.
    pub compute_unit: u32,
}

static ZERO: Row = [0; LANES];

impl Wave {
    /// Makes a wave whose registers are 0, with so many vector registers, of which those from number `accumulation`
    /// on are accumulation registers, and so many bytes of scratch memory a lane.
    pub fn new(vector_registers: usize, accumulation: usize, scratch_bytes: usize) -> Wave {
        Wave {
            pc: 0,
            s: [0; 128],
            scc: false,
            mode: mode::DENORM_32 | mode::DENORM_16_64 | mode::DX10_CLAMP | mode::IEEE,
            v: vec![ZERO; vector_registers.max(1)],
            accumulation,
            scratch: vec![0; scratch_bytes * LANES],
            scratch_bytes,
            number: 0,
            executed: 0,
            fault: None,
        }
    }

    /// Returns the operands that M0 indexes, a bit each: sources 0, 1, 2 and the result. M0 says which, if
    /// MODE has it index at all.
    #[inline]
    pub fn indexed_operands(&self) -> u8 {
        let operands = self.s[usize::from(scalar::M0)] >> 12 & 15;
        if self.mode & mode::INDEX != 0 { operands as u8 } else { 0 }
    }

    /// Returns EXEC.
    #[inline]
    pub fn exec(&self) -> u64 {
        self.pair(scalar::EXEC)
    }

    /// Returns two scalar registers as a number of 64 bits.
    #[inline]
    pub fn pair(&self, first: u8) -> u64 {
        let first = usize::from(first & 127);
        u64::from(self.s[first]) | u64::from(self.s[(first + 1) & 127]) << 32
    }

    /// Sets two scalar registers.
    #[inline]
    pub fn set_pair(&mut self, first: u8, value: u64) {
        self.set_scalar(first, value as u32);
        self.set_scalar(first.wrapping_add(1) & 127, (value >> 32) as u32);
    }

    /// Sets a scalar register.
    #[inline]
    pub fn set_scalar(&mut self, register: u8, value: u32) {
        if register != scalar::NULL {
            self.s[usize::from(register & 127)] = value;
        }
    }

    /// Returns a vector register's values. A register that the wave does not have reads as register 0.
    #[inline]
    pub fn row(&self, register: u16) -> &Row {
        self.v.get(usize::from(register)).unwrap_or(&self.v[0])
    }

    /// Returns the place of a vector register's values, or `None` if the wave does not have the register.
    #[inline]
    pub fn row_mut(&mut self, register: u16) -> Option<&mut Row> {
        self.v.get_mut(usize::from(register))
    }

    /// Writes a vector register in the lanes of the mask.
    #[inline]
    pub fn write_row(&mut self, register: u16, values: &Row, mask: u64) {
        let Some(row) = self.row_mut(register) else { return };
        if mask == !0 {
            *row = *values;
        } else {
            let chosen = expand(mask);
            for lane in 0..LANES {
                row[lane] = row[lane] & !chosen[lane] | values[lane] & chosen[lane];
            }
        }
    }

    /// Writes a vector register in one lane.
    #[inline]
    pub fn write_lane(&mut self, register: u16, lane: usize, value: u32) {
        if let Some(row) = self.row_mut(register) {
            row[lane] = value;
        }
    }

    /// Returns a source's 32 bits in a lane. Scalar sources are the same in all lanes.
    #[inline]
    pub fn read(&self, src: Src, lane: usize) -> u32 {
        match src {
            Src::Vector(register) => self.row(register)[lane],
            _ => self.read_scalar(src),
        }
    }

    /// Returns a source's 64 bits in a lane.
    #[inline]
    pub fn read64(&self, src: Src, lane: usize) -> u64 {
        match src {
            Src::Vector(register) => {
                u64::from(self.row(register)[lane]) | u64::from(self.row(register + 1)[lane]) << 32
            }
            _ => self.read_scalar64(src),
        }
    }

    /// Returns a scalar source's 32 bits.
    #[inline]
    pub fn read_scalar(&self, src: Src) -> u32 {
        match src {
            Src::Scalar(register) => self.s[usize::from(register & 127)],
            Src::Constant(value) => value as u32,
            Src::Vector(register) => self.row(register)[0],
            Src::Special(special) => self.special(special) as u32,
        }
    }

    /// Returns a scalar source's 64 bits.
    #[inline]
    pub fn read_scalar64(&self, src: Src) -> u64 {
        match src {
            Src::Scalar(register) => self.pair(register),
            Src::Constant(value) => value,
            Src::Vector(_) => self.read64(src, 0),
            Src::Special(special) => self.special(special),
        }
    }

    fn special(&self, special: Special) -> u64 {
        match special {
            Special::SharedBase => SHARED_BASE,
            Special::SharedLimit => SHARED_BASE + APERTURE - 1,
            Special::PrivateBase => PRIVATE_BASE,
            Special::PrivateLimit => PRIVATE_BASE + APERTURE - 1,
            Special::Vccz => u64::from(self.pair(scalar::VCC) == 0),
            Special::Execz => u64::from(self.exec() == 0),
            Special::Scc => u64::from(self.scc),
            _ => 0,
        }
    }

    /// Returns 32-bit floating-point bits with a denormal made 0 if MODE says so.
    #[inline(always)]
    pub fn flush_32(&self, bits: u32, which: u32) -> u32 {
        mode::flush_32(self.mode, bits, which)
    }

    /// Returns 16-bit floating-point bits with a denormal made 0 if MODE says so.
    #[inline(always)]
    pub fn flush_16(&self, bits: u16, which: u32) -> u16 {
        mode::flush_16(self.mode, bits, which)
    }

    /// Returns 64-bit floating-point bits with a denormal made 0 if MODE says so.
    #[inline(always)]
    pub fn flush_64(&self, bits: u64, which: u32) -> u64 {
        mode::flush_64(self.mode, bits, which)
    }
}

/// For each byte of a mask the lanes of its bits, with all bits of a lane set.
static CHOSEN: [[u32; 8]; 256] = {
    let mut chosen = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            chosen[byte][bit] = if byte >> bit & 1 != 0 { u32::MAX } else { 0 };
            bit += 1;
        }
        byte += 1;
    }
    chosen
};

/// Returns a mask with all bits of a lane where the given one has one bit.
#[inline(always)]
pub fn expand(mask: u64) -> Row {
    let mut lanes = [0; LANES];
    let (eights, _) = lanes.as_chunks_mut();
    for (eight, byte) in eights.iter_mut().zip(mask.to_le_bytes()) {
        *eight = CHOSEN[usize::from(byte)];
    }
    lanes
}

/// Returns the numbers of the set bits.
#[inline]
pub fn lanes_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}
