//! The decoder against LLVM's own decoder tests.

use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;
use hostcall_softhsa::isa::{decode, table::TABLE};

fn words(hex: &str) -> Vec<u32> {
    let byte =
        |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("the corpus holds hexadecimal bytes");
    (0..hex.len())
        .step_by(8)
        .map(|at| u32::from_le_bytes([0, 2, 4, 6].map(|byte_at| byte(at + byte_at))))
        .collect()
}

#[test]
fn every_encoding_of_llvm_s_tests_reads_as_llvm_reads_it() {
    let mut corpus = String::new();
    let packed = &include_bytes!("corpus/gfx942.tsv.gz")[..];
    GzDecoder::new(packed).read_to_string(&mut corpus).expect("the corpus unpacks");
    let (mut decoded, mut refused, mut wrong) = (0, 0, String::new());
    for line in corpus.lines() {
        let (hex, expected) = line.split_once('\t').expect("a line has two columns");
        let text = decode(&words(hex)).map(|instruction| instruction.to_string()).unwrap_or_default();
        if text != expected {
            writeln!(wrong, "{hex}: {text:?} instead of {expected:?}").expect("strings grow");
        }
        *if expected.is_empty() { &mut refused } else { &mut decoded } += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!((decoded, refused), (42_297, 1_798));
}

#[test]
fn refused_words_are_named() {
    let refused = decode(&[0xf800_0000, 0x1234_5678]).expect_err("gfx942 cannot export");
    assert_eq!(refused.to_string(), "0xf8000000 0x12345678 is not an instruction of gfx942");
    assert!(decode(&[]).is_err());
}

#[test]
fn code_that_ends_inside_an_instruction_is_refused() {
    let add_with_literal = [0x8000_ff00, 0x1234_5678];
    assert_eq!(decode(&add_with_literal).expect("it is whole").size, 8);
    assert!(decode(&add_with_literal[..1]).is_err());
    let vop3 = [0xd101_0005, 0x0002_0501];
    assert!(decode(&vop3).is_ok());
    assert!(decode(&vop3[..1]).is_err());
}

#[test]
fn any_words_decode_or_are_refused() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if let Ok(instruction) = decode(&[(state >> 32) as u32, (state >> 11) as u32]) {
            assert!(!instruction.to_string().contains("$"), "{instruction}");
        }
    }
}

#[test]
fn the_table_is_whole() {
    assert!(TABLE.rows().len() > 2_900);
    for row in TABLE.rows() {
        let first_modifier = row.operand("src0_modifiers");
        assert!(first_modifier.is_none_or(|index| row.operands[index + 1].name == "src0"), "{}", row.name);
    }
}
