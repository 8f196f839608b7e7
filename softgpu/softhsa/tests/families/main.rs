//! Whole families of instructions against models that share nothing with the interpreter: llvm-mc assembles each
//! instruction, a wave runs it on edge cases.

#[path = "../bench/mod.rs"]
mod bench;

mod approximations;
mod atomics;
mod comparisons;
mod extensions;
mod floats;
mod halves;
mod loads;
mod scalars;
mod vectors;

/// Numbers at which operations of 32 and 64 bits change what they do.
const EDGES: [u64; 8] = [0, 1, 5, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 63, u64::MAX];

/// Returns the low bits of a number.
fn low(value: u64, bits: u32) -> u64 {
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

/// Returns the number that the low bits are in two's complement.
fn signed(value: u64, bits: u32) -> i128 {
    let value = i128::from(low(value, bits));
    if value >> (bits - 1) != 0 { value - (1 << bits) } else { value }
}
