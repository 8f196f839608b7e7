//! Matrix products against plain sums, with elements where AMD's matrix instruction calculator has them.

mod bench;

use bench::Bench;

/// A small whole number that depends on where it stands.
fn element(seed: usize, row: usize, column: usize, block: usize) -> i32 {
    ((row * 7 + column * 13 + block * 5 + seed * 11) % 9) as i32 - 4
}

fn a(row: usize, k: usize, block: usize) -> i32 {
    element(1, row, k, block)
}

fn b(k: usize, column: usize, block: usize) -> i32 {
    element(2, column, k, block)
}

fn product(terms: usize, row: usize, column: usize, block: usize) -> i32 {
    (0..terms).map(|k| a(row, k, block) * b(k, column, block)).sum()
}

fn float(value: i32) -> u32 {
    (value as f32).to_bits()
}

#[test]
fn blocks_of_four_by_four() {
    let mut bench = Bench::new();
    for lane in 0..64 {
        bench.wave.write_lane(2, lane, float(a(lane % 4, 0, lane / 4)));
        bench.wave.write_lane(3, lane, float(b(0, lane % 4, lane / 4)));
    }
    // No lane is active, which matrix products do not mind.
    bench.wave.set_pair(hostcall_softhsa::exec::wave::scalar::EXEC, 0);
    assert_eq!(bench.run("v_mfma_f32_4x4x1_16b_f32 v[4:7], v2, v3, 1.0"), None);
    for lane in 0..64 {
        for row in 0..4 {
            let expected = 1 + product(1, row, lane % 4, lane / 4);
            assert_eq!(bench.v(4 + row as u16, lane), float(expected), "row {row} lane {lane}");
        }
    }
    // CBSZ 2 and ABID 1: each four blocks use the second one's A.
    assert_eq!(bench.run("v_mfma_f32_4x4x1_16b_f32 v[4:7], v2, v3, 0 cbsz:2 abid:1"), None);
    for lane in 0..64 {
        let block = lane / 4;
        let expected = a(2, 0, block / 4 * 4 + 1) * b(0, lane % 4, block);
        assert_eq!(bench.v(6, lane), float(expected), "lane {lane}");
    }
    // BLGP 6: all lanes use B of lanes 32 to 47.
    assert_eq!(bench.run("v_mfma_f32_4x4x1_16b_f32 v[4:7], v2, v3, 0 blgp:6"), None);
    for lane in 0..64 {
        let from = lane % 16 + 32;
        let expected = a(3, 0, lane / 4) * b(0, from % 4, from / 4);
        assert_eq!(bench.v(7, lane), float(expected), "lane {lane}");
    }
}

#[test]
fn one_block_of_32_by_32() {
    let mut bench = Bench::new();
    for lane in 0..64 {
        bench.wave.write_lane(2, lane, float(a(lane % 32, lane / 32, 0)));
        bench.wave.write_lane(3, lane, float(b(lane / 32, lane % 32, 0)));
        for register in 0..16 {
            bench.wave.write_lane(4 + register, lane, float(100));
        }
    }
    assert_eq!(bench.run("v_mfma_f32_32x32x2_f32 v[4:19], v2, v3, v[4:19]"), None);
    for lane in 0..64 {
        for register in 0..16 {
            let row = register / 4 * 8 + lane / 32 * 4 + register % 4;
            let expected = 100 + product(2, row, lane % 32, 0);
            assert_eq!(bench.v(4 + register as u16, lane), float(expected), "{register} {lane}");
        }
    }
}

#[test]
fn bytes_and_halves() {
    let mut bench = Bench::new();
    for lane in 0..64 {
        // Of 16×16×32, a lane holds eight elements of one row.
        for part in 0..2 {
            let bytes = |f: &dyn Fn(usize) -> i32| u32::from_le_bytes([0, 1, 2, 3].map(|i| f(i) as u8));
            let first = lane / 16 * 8 + part * 4;
            bench.wave.write_lane(2 + part as u16, lane, bytes(&|i| a(lane % 16, first + i, 0)));
            bench.wave.write_lane(4 + part as u16, lane, bytes(&|i| b(first + i, lane % 16, 0)));
            let halves = |f: &dyn Fn(usize) -> i32| {
                let half = |i| {
                    u32::from(
                        [0xc400u16, 0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200, 0x4400]
                            [(f(i) + 4) as usize],
                    )
                };
                half(0) | half(1) << 16
            };
            let first = lane / 16 * 4 + part * 2;
            bench.wave.write_lane(12 + part as u16, lane, halves(&|i| a(lane % 16, first + i, 0)));
            bench.wave.write_lane(14 + part as u16, lane, halves(&|i| b(first + i, lane % 16, 0)));
        }
    }
    let text = "v_mfma_i32_16x16x32_i8 v[6:9], v[2:3], v[4:5], 3
        v_mfma_f32_16x16x16_f16 v[16:19], v[12:13], v[14:15], 0";
    assert_eq!(bench.run(text), None);
    for lane in 0..64 {
        for register in 0..4u16 {
            let row = lane / 16 * 4 + usize::from(register);
            assert_eq!(bench.v(6 + register, lane) as i32, 3 + product(32, row, lane % 16, 0));
            assert_eq!(bench.v(16 + register, lane), float(product(16, row, lane % 16, 0)));
        }
    }
}

#[test]
fn numbers_of_64_bits() {
    let mut bench = Bench::new();
    for lane in 0..64 {
        let values = [(2, a(lane % 16, lane / 16, 0)), (4, b(lane / 16, lane % 16, 0))];
        for (register, value) in values {
            let bits = f64::from(value).to_bits();
            bench.wave.write_lane(register, lane, bits as u32);
            bench.wave.write_lane(register + 1, lane, (bits >> 32) as u32);
        }
    }
    assert_eq!(bench.run("v_mfma_f64_16x16x4_f64 v[6:13], v[2:3], v[4:5], 1.0 neg:[0,1,0]"), None);
    for lane in 0..64 {
        for pair in 0..4u16 {
            let bits = u64::from(bench.v(6 + pair * 2, lane)) | u64::from(bench.v(7 + pair * 2, lane)) << 32;
            let expected = 1 - product(4, usize::from(pair) * 4 + lane / 16, lane % 16, 0);
            assert_eq!(f64::from_bits(bits), f64::from(expected), "{pair} {lane}");
        }
    }
}

#[test]
fn sparse_rows() {
    let mut bench = Bench::new();
    // Each lane stores four bytes times two of its row; of each four elements the second and the last are
    // stored.
    for lane in 0..64 {
        for part in 0..2 {
            let stored = |i: usize| {
                let number = lane / 16 * 8 + part * 4 + i;
                a(lane % 16, number / 2 * 4 + [1, 3][number % 2], 0) as u8
            };
            bench.wave.write_lane(2 + part as u16, lane, u32::from_le_bytes([0, 1, 2, 3].map(stored)));
        }
        for part in 0..4 {
            let first = lane / 16 * 16 + part * 4;
            let bytes = [0, 1, 2, 3].map(|i| b(first + i, lane % 16, 0) as u8);
            bench.wave.write_lane(4 + part as u16, lane, u32::from_le_bytes(bytes));
        }
        for register in 0..4 {
            bench.wave.write_lane(8 + register, lane, 1000);
        }
        // The second set of indices: 1 and 3 for each pair.
        bench.wave.write_lane(12, lane, 0xdddd_0000);
    }
    assert_eq!(bench.run("v_smfmac_i32_16x16x64_i8 v[8:11], v[2:3], v[4:7], v12 abid:1"), None);
    for lane in 0..64 {
        for register in 0..4u16 {
            let row = lane / 16 * 4 + usize::from(register);
            let terms = (0..64).filter(|k| k % 2 == 1).map(|k| a(row, k, 0) * b(k, lane % 16, 0));
            assert_eq!(bench.v(8 + register, lane) as i32, 1000 + terms.sum::<i32>(), "{row} {lane}");
        }
    }
}

/// The type of elements of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    I8,
    Fp8,
    Bf8,
    F16,
    Bf16,
    F32,
}

use Type::{Bf8, Bf16, F16, F32, Fp8, I8};

impl Type {
    fn bits(self) -> usize {
        match self {
            I8 | Fp8 | Bf8 => 8,
            F16 | Bf16 => 16,
            F32 => 32,
        }
    }

    /// Returns a whole number from -4 to 4.
    fn encode(self, value: i32) -> u32 {
        // Of 0 to 4.
        let magnitudes: [u32; 5] = match self {
            I8 => return u32::from(value as i8 as u8),
            Fp8 => [0, 0x40, 0x48, 0x4c, 0x50],
            Bf8 => [0, 0x40, 0x44, 0x46, 0x48],
            F16 => [0, 0x3c00, 0x4000, 0x4200, 0x4400],
            Bf16 => [0, 0x3f80, 0x4000, 0x4040, 0x4080],
            F32 => return float(value),
        };
        magnitudes[value.unsigned_abs() as usize] | u32::from(value < 0) << (self.bits() - 1)
    }
}

/// Writes elements to the registers from `first` on, each of so many bits.
fn write(bench: &mut Bench, first: u16, lane: usize, bits: usize, elements: impl Iterator<Item = u32>) {
    let mut registers = [0u32; 8];
    for (at, element) in elements.enumerate() {
        registers[at * bits / 32] |= element << (at * bits % 32);
    }
    for (register, value) in (first..).zip(registers) {
        bench.wave.write_lane(register, lane, value);
    }
}

/// Returns row, column and block of a lane's result with that number.
fn place(m: usize, blocks: usize, lane: usize, item: usize) -> (usize, usize, usize) {
    match (m, blocks) {
        (32, _) => (item % 16 / 4 * 8 + lane / 32 * 4 + item % 4, lane % 32, item / 16),
        (16, _) => (lane / 16 * 4 + item % 4, lane % 16, item / 4),
        _ => (item, lane % 4, lane / 4),
    }
}

/// Rows and columns, elements of a row of A, blocks, types.
const DENSE: [(&str, usize, usize, usize, Type, Type); 30] = [
    ("f32_32x32x1_2b_f32", 32, 1, 2, F32, F32),
    ("f32_16x16x1_4b_f32", 16, 1, 4, F32, F32),
    ("f32_4x4x1_16b_f32", 4, 1, 16, F32, F32),
    ("f32_32x32x2_f32", 32, 2, 1, F32, F32),
    ("f32_16x16x4_f32", 16, 4, 1, F32, F32),
    ("f32_32x32x4_2b_f16", 32, 4, 2, F16, F16),
    ("f32_16x16x4_4b_f16", 16, 4, 4, F16, F16),
    ("f32_4x4x4_16b_f16", 4, 4, 16, F16, F16),
    ("f32_32x32x8_f16", 32, 8, 1, F16, F16),
    ("f32_16x16x16_f16", 16, 16, 1, F16, F16),
    ("f32_32x32x4_2b_bf16", 32, 4, 2, Bf16, Bf16),
    ("f32_16x16x4_4b_bf16", 16, 4, 4, Bf16, Bf16),
    ("f32_4x4x4_16b_bf16", 4, 4, 16, Bf16, Bf16),
    ("f32_32x32x8_bf16", 32, 8, 1, Bf16, Bf16),
    ("f32_16x16x16_bf16", 16, 16, 1, Bf16, Bf16),
    ("i32_32x32x4_2b_i8", 32, 4, 2, I8, I8),
    ("i32_16x16x4_4b_i8", 16, 4, 4, I8, I8),
    ("i32_4x4x4_16b_i8", 4, 4, 16, I8, I8),
    ("i32_32x32x16_i8", 32, 16, 1, I8, I8),
    ("i32_16x16x32_i8", 16, 32, 1, I8, I8),
    ("f32_16x16x8_xf32", 16, 8, 1, F32, F32),
    ("f32_32x32x4_xf32", 32, 4, 1, F32, F32),
    ("f32_16x16x32_bf8_bf8", 16, 32, 1, Bf8, Bf8),
    ("f32_16x16x32_bf8_fp8", 16, 32, 1, Bf8, Fp8),
    ("f32_16x16x32_fp8_bf8", 16, 32, 1, Fp8, Bf8),
    ("f32_16x16x32_fp8_fp8", 16, 32, 1, Fp8, Fp8),
    ("f32_32x32x16_bf8_bf8", 32, 16, 1, Bf8, Bf8),
    ("f32_32x32x16_bf8_fp8", 32, 16, 1, Bf8, Fp8),
    ("f32_32x32x16_fp8_bf8", 32, 16, 1, Fp8, Bf8),
    ("f32_32x32x16_fp8_fp8", 32, 16, 1, Fp8, Fp8),
];

/// The same of products with two of each four elements of A.
const SPARSE: [(&str, usize, usize, Type, Type); 14] = [
    ("f32_16x16x32_f16", 16, 32, F16, F16),
    ("f32_32x32x16_f16", 32, 16, F16, F16),
    ("f32_16x16x32_bf16", 16, 32, Bf16, Bf16),
    ("f32_32x32x16_bf16", 32, 16, Bf16, Bf16),
    ("i32_16x16x64_i8", 16, 64, I8, I8),
    ("i32_32x32x32_i8", 32, 32, I8, I8),
    ("f32_16x16x64_bf8_bf8", 16, 64, Bf8, Bf8),
    ("f32_16x16x64_bf8_fp8", 16, 64, Bf8, Fp8),
    ("f32_16x16x64_fp8_bf8", 16, 64, Fp8, Bf8),
    ("f32_16x16x64_fp8_fp8", 16, 64, Fp8, Fp8),
    ("f32_32x32x32_bf8_bf8", 32, 32, Bf8, Bf8),
    ("f32_32x32x32_bf8_fp8", 32, 32, Bf8, Fp8),
    ("f32_32x32x32_fp8_bf8", 32, 32, Fp8, Bf8),
    ("f32_32x32x32_fp8_fp8", 32, 32, Fp8, Fp8),
];

/// Checks the results from v32 on.
fn check(
    bench: &Bench,
    name: &str,
    (m, blocks): (usize, usize),
    expected: impl Fn(usize, usize, usize) -> i32,
) {
    for lane in 0..64 {
        for item in 0..m * m * blocks / 64 {
            let (row, column, block) = place(m, blocks, lane, item);
            let expected = expected(row, column, block);
            let bits = if name.starts_with("i32") { expected as u32 } else { float(expected) };
            assert_eq!(
                bench.v(32 + item as u16, lane),
                bits,
                "{name}: row {row}, column {column}, block {block}"
            );
        }
    }
}

/// Returns the operand of so many bits from a register on.
fn operand(first: usize, bits: usize) -> String {
    match bits / 32 {
        1 => format!("v{first}"),
        count => format!("v[{first}:{}]", first + count - 1),
    }
}

#[test]
fn dense_products_of_all_shapes() {
    let texts = DENSE.map(|(name, m, k, blocks, of_a, _)| {
        let inputs = k * m * blocks / 64 * of_a.bits();
        let (a, b, results) = (operand(2, inputs), operand(10, inputs), operand(32, m * m * blocks / 2));
        let start = if name.starts_with("i32") { "2" } else { "2.0" };
        format!("v_mfma_{name} {results}, {a}, {b}, {start}")
    });
    let words = bench::assemble_all(texts.iter().map(String::as_str));
    for ((name, m, k, blocks, of_a, of_b), words) in DENSE.into_iter().zip(words) {
        let mut bench = Bench::new();
        let in_lane = k * m * blocks / 64;
        for lane in 0..64 {
            // One block has its k spread over the lanes.
            let (row, block, first) = match blocks {
                1 => (lane % m, 0, lane / m * in_lane),
                _ => (lane % m, lane / m, 0),
            };
            write(
                &mut bench,
                2,
                lane,
                of_a.bits(),
                (first..first + in_lane).map(|k| of_a.encode(a(row, k, block))),
            );
            write(
                &mut bench,
                10,
                lane,
                of_b.bits(),
                (first..first + in_lane).map(|k| of_b.encode(b(k, row, block))),
            );
        }
        assert_eq!(bench.run_words(words), None, "{name}");
        check(&bench, name, (m, blocks), |row, column, block| 2 + product(k, row, column, block));
    }
}

#[test]
fn sparse_products_of_all_shapes() {
    let texts = SPARSE.map(|(name, m, k, of_a, of_b)| {
        let (of_a, of_b) = (k * m / 128 * of_a.bits(), k * m / 64 * of_b.bits());
        format!("v_smfmac_{name} {}, {}, {}, v1", operand(32, m * m / 2), operand(2, of_a), operand(10, of_b))
    });
    let words = bench::assemble_all(texts.iter().map(String::as_str));
    for ((name, m, k, of_a, of_b), words) in SPARSE.into_iter().zip(words) {
        let mut bench = Bench::new();
        // Of each four elements those are stored: another two for each row.
        let stored = |row: usize| [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][row % 6];
        let in_lane = k * m / 64;
        for lane in 0..64 {
            let (row, first) = (lane % m, lane / m * in_lane);
            let kept = (first..first + in_lane).filter(|k| stored(row).contains(&(k % 4)));
            write(&mut bench, 2, lane, of_a.bits(), kept.map(|k| of_a.encode(a(row, k, 0))));
            write(
                &mut bench,
                10,
                lane,
                of_b.bits(),
                (first..first + in_lane).map(|k| of_b.encode(b(k, row, 0))),
            );
            let [low, high] = stored(row).map(|index| index as u32);
            bench.wave.write_lane(1, lane, (low | high << 2) * 0x1111_1111);
            for item in 0..m * m / 64 {
                let start = if name.starts_with("i32") { 5 } else { float(5) };
                bench.wave.write_lane(32 + item as u16, lane, start);
            }
        }
        assert_eq!(bench.run_words(words), None, "{name}");
        check(&bench, name, (m, 1), |row, column, _| {
            let terms = (0..k).filter(|k| stored(row).contains(&(k % 4)));
            5 + terms.map(|k| a(row, k, 0) * b(k, column, 0)).sum::<i32>()
        });
    }
}

#[test]
fn blocks_of_64_bits() {
    let mut bench = Bench::new();
    for lane in 0..64 {
        let (place, block, k) = (lane % 4, lane / 4 % 4, lane / 16);
        for (register, value) in [(2, a(place, k, block)), (4, b(k, place, block))] {
            let bits = f64::from(value).to_bits();
            bench.wave.write_lane(register, lane, bits as u32);
            bench.wave.write_lane(register + 1, lane, (bits >> 32) as u32);
        }
    }
    assert_eq!(bench.run("v_mfma_f64_4x4x4_4b_f64 v[6:7], v[2:3], v[4:5], 1.0"), None);
    for lane in 0..64 {
        let bits = u64::from(bench.v(6, lane)) | u64::from(bench.v(7, lane)) << 32;
        let expected = 1 + product(4, lane / 16, lane % 4, lane / 4 % 4);
        assert_eq!(f64::from_bits(bits), f64::from(expected), "lane {lane}");
    }
}

/// Sums are the nearest numbers whatever MODE says, and of its denormals only A and B of 32 bits lose any.
#[test]
fn products_in_every_mode() {
    let denormal = 1u32;
    for mode in [0, 1, 2, 3, 0xf0, 0xff] {
        let with_mode =
            |text: &str| format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), {mode:#x}\n{text}");
        let run = |text: &str, a: u32, b: u32, c: u32| {
            let mut bench = Bench::new();
            for (register, value) in [(2, a), (3, 0), (4, b), (5, 0), (8, c), (9, c), (10, c), (11, c)] {
                bench.set_v(register, value);
            }
            assert_eq!(bench.run(&with_mode(text)), None, "{text} in {mode:#x}");
            bench.v(8, 0)
        };
        let single = "v_mfma_f32_4x4x1_16b_f32 v[8:11], v2, v4, v[8:11]";
        // 1 + 2⁻²⁴ and 1 + 2⁻²³ + 2⁻²⁴, which are in the middle of two numbers.
        assert_eq!(run(single, 0x3f80_0000, 0x3380_0000, 0x3f80_0000), 0x3f80_0000, "{mode:#x}");
        assert_eq!(run(single, 0x3f80_0000, 0x3380_0000, 0x3f80_0001), 0x3f80_0002, "{mode:#x}");
        let kept = if mode & 0x10 != 0 { denormal } else { 0 };
        assert_eq!(run(single, denormal, 0x3f80_0000, 0), kept, "{mode:#x}");
        assert_eq!(run(single, 0, 0, denormal), denormal, "{mode:#x}");
        // 2⁻¹⁰⁰ · 2⁻⁴⁹
        assert_eq!(run(single, 0x0d80_0000, 0x2700_0000, 0), denormal, "{mode:#x}");
        // The least denormal half squared.
        let halves = "v_mfma_f32_4x4x4_16b_f16 v[8:11], v[2:3], v[4:5], v[8:11]";
        assert_eq!(run(halves, denormal, denormal, 0), 2f32.powi(-48).to_bits(), "{mode:#x}");
        // 1 + 4 · 2⁻⁵⁶ is nearest to 1, in whatever order the sum is made.
        let wide = "v_mov_b32 v3, 0x3ff00000\nv_mov_b32 v2, 0\nv_mov_b32 v5, 0x3c700000\n\
                    v_mfma_f64_4x4x4_4b_f64 v[8:9], v[2:3], v[4:5], 1.0";
        assert_eq!(run(wide, 0, 0, 1), 0, "{mode:#x}");
    }
}
