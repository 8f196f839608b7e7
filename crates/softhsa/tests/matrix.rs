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
