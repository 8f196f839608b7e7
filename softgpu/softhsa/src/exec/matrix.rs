//! Matrix products of a whole wave, dense (`v_mfma`) and with two of four elements of A stored (`v_smfmac`).
//!
//! EXEC is ignored. Where an element lies in registers and lanes follows AMD's matrix instruction calculator.
//! Sums of 32-bit floating-point results are made with 64 bits in the order of k and rounded once, to the nearest
//! number whatever MODE says; the processor's own order and roundings in between are not documented.

use super::float::f64_of_half;
use super::handlers;
use super::inst::{Flow, Inst, Src};
use super::valu_convert::of_byte;
use super::wave::mode::SOURCES;
use super::wave::{Env, LANES, Wave};

/// The size of a product: D (m × n) = A (m × k) · B (k × n) + C in each of `blocks` blocks.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
}

const fn shape(m: usize, n: usize, k: usize, blocks: usize) -> Shape {
    Shape { m, n, k, blocks }
}

/// The type of elements of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    /// Signed bytes.
    I8,
    /// Bytes with four exponent bits.
    Fp8,
    /// Bytes with five exponent bits.
    Bf8,
    F16,
    Bf16,
    F32,
    /// 32 bits of which the lower 13 of the fraction are rounded off.
    Xf32,
    F64,
}

impl Element {
    fn bits(self) -> usize {
        match self {
            Element::I8 | Element::Fp8 | Element::Bf8 => 8,
            Element::F16 | Element::Bf16 => 16,
            Element::F32 | Element::Xf32 => 32,
            Element::F64 => 64,
        }
    }

    /// Returns an element's value. Every element's is a number of 64 bits.
    fn value(self, bits: u64) -> f64 {
        match self {
            Element::I8 => f64::from(bits as i8),
            Element::Fp8 => f64::from(of_byte(bits as u8, 4)),
            Element::Bf8 => f64::from(of_byte(bits as u8, 5)),
            Element::F16 => f64_of_half(bits as u16),
            Element::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            Element::F32 => f64::from(f32::from_bits(bits as u32)),
            Element::Xf32 => f64::from(rounded_to_xf32(f32::from_bits(bits as u32))),
            Element::F64 => f64::from_bits(bits),
        }
    }

    /// Reads element number `item` of a lane's registers.
    fn read(self, wave: &Wave, src: Src, lane: usize, item: usize) -> f64 {
        let bit = item * self.bits();
        let register = src.plus((bit / 32) as u16);
        let bits = match self.bits() {
            64 => wave.read64(register, lane),
            width => u64::from(wave.read(register, lane)) >> (bit % 32) & ((1 << width) - 1),
        };
        match self {
            // Products of 32 bits alone heed MODE's bits of denormals, and of A and B alone: those of Xf32 and of
            // 64 bits do not, and neither C nor D loses any (AMD's manual of CDNA 3, 7.3).
            Element::F32 => self.value(u64::from(wave.flush_32(bits as u32, SOURCES))),
            _ => self.value(bits),
        }
    }
}

fn rounded_to_xf32(value: f32) -> f32 {
    let bits = value.to_bits();
    if !value.is_finite() {
        return value;
    }
    f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff)
}

impl Shape {
    /// Returns the lane and the number among its elements of an element of A, or of B with its columns as
    /// rows. `k` is how many elements a row has.
    fn input(self, rows: usize, k: usize, row: usize, column: usize, block: usize) -> (usize, usize) {
        let in_lane = (k * rows * self.blocks / LANES).max(1);
        (row + rows * (block + self.blocks * (column / in_lane)), column % in_lane)
    }

    /// Returns the lane and the number among its elements of an element of C or D.
    fn output(self, height: usize, row: usize, column: usize, block: usize) -> (usize, usize) {
        let rows_in_register = LANES / self.n;
        let blocks_in_register = LANES.div_ceil(self.n * self.m / height);
        let lane = column
            + self.n * (block % blocks_in_register)
            + self.n * blocks_in_register * (row / height % rows_in_register);
        let item =
            block * (self.m * self.n / LANES) + row / (height * rows_in_register) * height + row % height;
        (lane, item)
    }
}

/// Returns the lane whose elements of B a lane uses instead of its own.
fn lane_of_pattern(lane: usize, pattern: u8) -> usize {
    match pattern {
        1 => lane % 32,
        2 => lane % 32 + 32,
        3 => (lane + 16) % LANES,
        4..=7 => lane % 16 + usize::from(pattern - 4) * 16,
        _ => lane,
    }
}

/// A result: 64 registers of 32 bits at most.
type Results = Vec<(usize, u16, u32)>;

fn write(wave: &mut Wave, inst: &Inst, results: Results) -> Flow {
    for (lane, register, bits) in results {
        wave.write_lane(inst.dst + register, lane, bits);
    }
    Flow::Next
}

/// Adds up the products of an element of D, whose element of C is `start`. `pairs` are the elements of A and
/// B.
fn sum_up(element: Element, start: u32, pairs: impl Iterator<Item = (f64, f64)>) -> u32 {
    match element {
        Element::I8 => pairs.fold(start, |sum, (a, b)| sum.wrapping_add((a * b) as i32 as u32)),
        _ => (pairs.fold(f64::from(f32::from_bits(start)), |sum, (a, b)| a.mul_add(b, sum)) as f32).to_bits(),
    }
}

/// Multiplies matrices with 32-bit results.
fn dense(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, shape: Shape, of_a: Element, of_b: Element) -> Flow {
    let (a, b) = read_inputs(wave, inst, shape, of_a, of_b);
    let mut results = Results::new();
    for block in 0..shape.blocks {
        for row in 0..shape.m {
            for column in 0..shape.n {
                let (lane, item) = shape.output(4, row, column, block);
                let start = wave.read(inst.src[2].plus(item as u16), lane);
                let row_of_a = &a[(block * shape.m + row) * shape.k..][..shape.k];
                let column_of_b = &b[(block * shape.n + column) * shape.k..][..shape.k];
                let pairs = row_of_a.iter().copied().zip(column_of_b.iter().copied());
                results.push((lane, item as u16, sum_up(of_a, start, pairs)));
            }
        }
    }
    write(wave, inst, results)
}

/// Returns the elements of A by block and row, and those of B by block and column.
fn read_inputs(wave: &Wave, inst: &Inst, shape: Shape, of_a: Element, of_b: Element) -> (Vec<f64>, Vec<f64>) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for block in 0..shape.blocks {
        // CBSZ lets so many blocks, a power of two, use the block of A among them that ABID names.
        let group = 1 << (inst.imm & 7);
        let block_of_a = block / group * group + inst.imm2 as usize % group.min(shape.blocks);
        for row in 0..shape.m {
            for k in 0..shape.k {
                let (lane, item) = shape.input(shape.m, shape.k, row, k, block_of_a);
                a.push(of_a.read(wave, inst.src[0], lane % LANES, item));
            }
        }
        for column in 0..shape.n {
            for k in 0..shape.k {
                let (lane, item) = shape.input(shape.n, shape.k, column, k, block);
                b.push(of_b.read(wave, inst.src[1], lane_of_pattern(lane, inst.pattern), item));
            }
        }
    }
    (a, b)
}

/// Multiplies matrices of 64-bit numbers, whose pattern bits negate A, B and C.
fn dense_f64(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, shape: Shape) -> Flow {
    let sign = |source: u8, value: f64| if inst.pattern >> source & 1 != 0 { -value } else { value };
    let mut results = Results::new();
    for block in 0..shape.blocks {
        for row in 0..shape.m {
            for column in 0..shape.n {
                let (lane, item) = shape.output(1, row, column, block);
                let start = Element::F64.read(wave, inst.src[2], lane, item);
                let sum = (0..shape.k).fold(sign(2, start), |sum, k| {
                    let (lane_of_a, _) = shape.input(shape.m, shape.k, row, k, block);
                    let (lane_of_b, _) = shape.input(shape.n, shape.k, column, k, block);
                    let a = sign(0, Element::F64.read(wave, inst.src[0], lane_of_a, 0));
                    a.mul_add(sign(1, Element::F64.read(wave, inst.src[1], lane_of_b, 0)), sum)
                });
                let bits = sum.to_bits();
                results.push((lane, item as u16 * 2, bits as u32));
                results.push((lane, item as u16 * 2 + 1, (bits >> 32) as u32));
            }
        }
    }
    write(wave, inst, results)
}

/// Multiplies matrices of which A has two of four elements of each row; two bits for each in the index
/// register say which.
fn sparse(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, shape: Shape, of_a: Element, of_b: Element) -> Flow {
    let stored = shape.k / 2;
    // The index register has several sets of indices, unless CBSZ says that the first one is meant.
    let set = if inst.imm & 7 == 0 { inst.imm2 as usize * 128 / of_a.bits() } else { 0 };
    let index_register = inst.base.unwrap_or(Src::Constant(0));
    let mut results = Results::new();
    for row in 0..shape.m {
        for column in 0..shape.n {
            let (lane, item) = shape.output(4, row, column, 0);
            let start = wave.read(Src::Vector(inst.dst + item as u16), lane);
            let pairs = (0..stored).map(|number| {
                let (lane, item) = shape.input(shape.m, stored, row, number, 0);
                let a = of_a.read(wave, inst.src[0], lane, item);
                let indices =
                    wave.read(index_register, lane).checked_shr((set + 2 * item) as u32).unwrap_or(0);
                let k = number / 2 * 4 + (indices & 3) as usize;
                let (lane, item) = shape.input(shape.n, shape.k, column, k, 0);
                (a, of_b.read(wave, inst.src[1], lane, item))
            });
            results.push((lane, item as u16, sum_up(of_a, start, pairs)));
        }
    }
    write(wave, inst, results)
}

handlers! {
    "v_mfma_f32_32x32x1_2b_f32" => dense(shape(32, 32, 1, 2), Element::F32, Element::F32),
    "v_mfma_f32_16x16x1_4b_f32" => dense(shape(16, 16, 1, 4), Element::F32, Element::F32),
    "v_mfma_f32_4x4x1_16b_f32" => dense(shape(4, 4, 1, 16), Element::F32, Element::F32),
    "v_mfma_f32_32x32x2_f32" => dense(shape(32, 32, 2, 1), Element::F32, Element::F32),
    "v_mfma_f32_16x16x4_f32" => dense(shape(16, 16, 4, 1), Element::F32, Element::F32),
    "v_mfma_f32_32x32x4_2b_f16" => dense(shape(32, 32, 4, 2), Element::F16, Element::F16),
    "v_mfma_f32_16x16x4_4b_f16" => dense(shape(16, 16, 4, 4), Element::F16, Element::F16),
    "v_mfma_f32_4x4x4_16b_f16" => dense(shape(4, 4, 4, 16), Element::F16, Element::F16),
    "v_mfma_f32_32x32x8_f16" => dense(shape(32, 32, 8, 1), Element::F16, Element::F16),
    "v_mfma_f32_16x16x16_f16" => dense(shape(16, 16, 16, 1), Element::F16, Element::F16),
    "v_mfma_f32_32x32x4_2b_bf16" => dense(shape(32, 32, 4, 2), Element::Bf16, Element::Bf16),
    "v_mfma_f32_16x16x4_4b_bf16" => dense(shape(16, 16, 4, 4), Element::Bf16, Element::Bf16),
    "v_mfma_f32_4x4x4_16b_bf16" => dense(shape(4, 4, 4, 16), Element::Bf16, Element::Bf16),
    "v_mfma_f32_32x32x8_bf16" => dense(shape(32, 32, 8, 1), Element::Bf16, Element::Bf16),
    "v_mfma_f32_16x16x16_bf16" => dense(shape(16, 16, 16, 1), Element::Bf16, Element::Bf16),
    "v_mfma_i32_32x32x4_2b_i8" => dense(shape(32, 32, 4, 2), Element::I8, Element::I8),
    "v_mfma_i32_16x16x4_4b_i8" => dense(shape(16, 16, 4, 4), Element::I8, Element::I8),
    "v_mfma_i32_4x4x4_16b_i8" => dense(shape(4, 4, 4, 16), Element::I8, Element::I8),
    "v_mfma_i32_32x32x16_i8" => dense(shape(32, 32, 16, 1), Element::I8, Element::I8),
    "v_mfma_i32_16x16x32_i8" => dense(shape(16, 16, 32, 1), Element::I8, Element::I8),
    "v_mfma_f32_16x16x8_xf32" => dense(shape(16, 16, 8, 1), Element::Xf32, Element::Xf32),
    "v_mfma_f32_32x32x4_xf32" => dense(shape(32, 32, 4, 1), Element::Xf32, Element::Xf32),
    "v_mfma_f32_16x16x32_bf8_bf8" => dense(shape(16, 16, 32, 1), Element::Bf8, Element::Bf8),
    "v_mfma_f32_16x16x32_bf8_fp8" => dense(shape(16, 16, 32, 1), Element::Bf8, Element::Fp8),
    "v_mfma_f32_16x16x32_fp8_bf8" => dense(shape(16, 16, 32, 1), Element::Fp8, Element::Bf8),
    "v_mfma_f32_16x16x32_fp8_fp8" => dense(shape(16, 16, 32, 1), Element::Fp8, Element::Fp8),
    "v_mfma_f32_32x32x16_bf8_bf8" => dense(shape(32, 32, 16, 1), Element::Bf8, Element::Bf8),
    "v_mfma_f32_32x32x16_bf8_fp8" => dense(shape(32, 32, 16, 1), Element::Bf8, Element::Fp8),
    "v_mfma_f32_32x32x16_fp8_bf8" => dense(shape(32, 32, 16, 1), Element::Fp8, Element::Bf8),
    "v_mfma_f32_32x32x16_fp8_fp8" => dense(shape(32, 32, 16, 1), Element::Fp8, Element::Fp8),
    "v_mfma_f64_16x16x4_f64" => dense_f64(shape(16, 16, 4, 1)),
    "v_mfma_f64_4x4x4_4b_f64" => dense_f64(shape(4, 4, 4, 4)),
    "v_smfmac_f32_16x16x32_f16" => sparse(shape(16, 16, 32, 1), Element::F16, Element::F16),
    "v_smfmac_f32_32x32x16_f16" => sparse(shape(32, 32, 16, 1), Element::F16, Element::F16),
    "v_smfmac_f32_16x16x32_bf16" => sparse(shape(16, 16, 32, 1), Element::Bf16, Element::Bf16),
    "v_smfmac_f32_32x32x16_bf16" => sparse(shape(32, 32, 16, 1), Element::Bf16, Element::Bf16),
    "v_smfmac_i32_16x16x64_i8" => sparse(shape(16, 16, 64, 1), Element::I8, Element::I8),
    "v_smfmac_i32_32x32x32_i8" => sparse(shape(32, 32, 32, 1), Element::I8, Element::I8),
    "v_smfmac_f32_16x16x64_bf8_bf8" => sparse(shape(16, 16, 64, 1), Element::Bf8, Element::Bf8),
    "v_smfmac_f32_16x16x64_bf8_fp8" => sparse(shape(16, 16, 64, 1), Element::Bf8, Element::Fp8),
    "v_smfmac_f32_16x16x64_fp8_bf8" => sparse(shape(16, 16, 64, 1), Element::Fp8, Element::Bf8),
    "v_smfmac_f32_16x16x64_fp8_fp8" => sparse(shape(16, 16, 64, 1), Element::Fp8, Element::Fp8),
    "v_smfmac_f32_32x32x32_bf8_bf8" => sparse(shape(32, 32, 32, 1), Element::Bf8, Element::Bf8),
    "v_smfmac_f32_32x32x32_bf8_fp8" => sparse(shape(32, 32, 32, 1), Element::Bf8, Element::Fp8),
    "v_smfmac_f32_32x32x32_fp8_bf8" => sparse(shape(32, 32, 32, 1), Element::Fp8, Element::Bf8),
    "v_smfmac_f32_32x32x32_fp8_fp8" => sparse(shape(32, 32, 32, 1), Element::Fp8, Element::Fp8),
}
