//! The forms of vector instructions that use other lanes' values (DPP) or parts of registers (SDWA), each
//! against the plain form of the same instruction on sources that were moved or cut before.

use hostcall_softhsa::exec::wave::{LANES, scalar};
use hostcall_softhsa::exec::{Fault, handler};
use hostcall_softhsa::isa::table::{Flag, Row, TABLE};

use crate::bench::{Bench, assemble_all};

/// The first registers of the result and of sources 0 and 1.
const RESULT: u16 = 10;
const SOURCES: [u16; 2] = [2, 6];

/// Not all lanes, and more than those with which interpreters go lane by lane.
const EXEC: u64 = 0xf0f0_ffff_0000_1234;

/// Returns an instruction's name without the suffix of its encoding.
fn name(row: &Row) -> &'static str {
    row.mnemonic().strip_suffix("_e32").unwrap_or(row.mnemonic())
}

/// Returns the plain form of an instruction.
fn plain(row: &Row) -> Option<&'static Row> {
    let is_plain = |other: &&Row| {
        let short = [Flag::Vop1, Flag::Vop2, Flag::Vopc].iter().any(|&flag| other.has(flag));
        short && ![Flag::Sdwa, Flag::Dpp, Flag::Vop3].iter().any(|&flag| other.has(flag))
    };
    TABLE.rows().iter().find(|other| name(other) == name(row) && is_plain(other))
}

fn is_pair(row: &Row, operand: &str) -> bool {
    row.operand(operand).is_some_and(|index| row.operands[index].kind.class.ends_with("_64"))
}

/// Returns the text of an instruction in the encoding of that suffix, with the modifiers of the extension
/// behind it.
fn text(row: &Row, suffix: &str, extension: &str) -> String {
    let register = |operand: &str, first: u16| {
        if is_pair(row, operand) { format!("v[{first}:{}]", first + 1) } else { format!("v{first}") }
    };
    let mut operands = Vec::new();
    if row.has(Flag::Vopc) || row.operand("sdst").is_some() {
        operands.push("vcc".to_owned());
    }
    if row.operand("vdst").is_some() {
        operands.push(register("vdst", RESULT));
    }
    if row.asm.contains("$vdst, vcc") {
        operands.push("vcc".to_owned());
    }
    for (source, first) in ["src0", "src1"].into_iter().zip(SOURCES) {
        if row.operand(source).is_some() {
            operands.push(register(source, first));
        }
    }
    let carries = ["v_cndmask_b32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"];
    if carries.contains(&name(row)) {
        operands.push("vcc".to_owned());
    }
    format!("{}{suffix} {}{extension}", name(row), operands.join(", "))
}

/// Makes a wave whose registers hold whole numbers, bytes, halves and floating-point numbers.
fn bench() -> Bench {
    let mut bench = Bench::new();
    let mut state = 5u64;
    for register in 0..24 {
        for lane in 0..LANES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 28) as u32;
            let value = match state >> 62 {
                0 => bits,
                1 => bits & 0x00ff_00ff,
                2 => bits % 1000,
                // Of 16 bits, of 32 and as the upper half of 64.
                _ => bits & 0x0fff_0fff | 0x3000_3000,
            };
            bench.wave.write_lane(register, lane, value);
        }
    }
    bench.wave.set_pair(scalar::EXEC, EXEC);
    bench.wave.set_pair(scalar::VCC, 0x1234_5678_9abc_def0);
    bench
}

/// Checks that two waves that ran hold the same, in VCC in the lanes of the mask.
fn assert_same(found: &Bench, expected: &Bench, lanes: u64, text: &str) {
    for register in 0..16 {
        if !(SOURCES[0]..SOURCES[1] + 2).contains(&register) {
            assert_eq!(found.wave.row(register), expected.wave.row(register), "{text}: v{register}");
        }
    }
    let [found, expected] = [found, expected].map(|bench| bench.wave.pair(scalar::VCC) & lanes);
    assert_eq!(found, expected, "{text}: vcc");
}

/// Patterns of DPP, and the lane that a lane reads if there is one.
type Pattern = (&'static str, fn(usize) -> Option<usize>);

const PATTERNS: [Pattern; 3] = [
    ("row_newbcast:3", |lane| Some(lane & !15 | 3)),
    ("row_shr:1", |lane| (lane % 16 > 0).then(|| lane - 1)),
    ("quad_perm:[3,2,1,0]", |lane| Some(lane & !3 | (3 - lane % 4))),
];

#[test]
fn values_of_other_lanes() {
    let forms = TABLE.rows().iter().filter(|row| row.has(Flag::Dpp) && handler(row).is_some());
    let mut cases = Vec::new();
    for row in forms.filter(|row| name(row) != "v_nop") {
        let plain = plain(row).unwrap_or_else(|| panic!("{} has a plain form", row.name));
        for pattern in PATTERNS {
            // The other patterns are none for pairs.
            if pattern.0.starts_with("row_newbcast") || !row.has_pairs() {
                for bound in ["", " bound_ctrl:1"] {
                    let extension = format!(" {} row_mask:0xf bank_mask:0xf{bound}", pattern.0);
                    cases.push((text(row, "_dpp", &extension), text(plain, "_e32", ""), pattern.1, bound));
                }
            }
        }
    }
    assert!(cases.len() > 600, "{}", cases.len());
    let dpp = assemble_all(cases.iter().map(|(dpp, ..)| dpp.as_str()));
    let plain = assemble_all(cases.iter().map(|(_, plain, ..)| plain.as_str()));
    for ((case, dpp), plain) in cases.iter().zip(dpp).zip(plain) {
        let (text, _, from, bound) = case;
        let (mut found, mut expected) = (bench(), bench());
        assert_eq!(found.run_words(dpp), None, "{text}");
        let from = |lane: usize| from(lane).filter(|&from| EXEC >> from & 1 != 0);
        let read = (0..LANES).fold(0u64, |read, lane| read | u64::from(from(lane).is_some()) << lane);
        let lanes = if bound.is_empty() { EXEC & read } else { EXEC };
        for register in [SOURCES[0], SOURCES[0] + 1] {
            let old = *expected.wave.row(register);
            for lane in 0..LANES {
                expected.wave.write_lane(register, lane, from(lane).map_or(0, |from| old[from]));
            }
        }
        expected.wave.set_pair(scalar::EXEC, lanes);
        assert_eq!(expected.run_words(plain), None, "{text}");
        assert_same(&found, &expected, lanes, text);
    }
}

/// Patterns that are none, and those that pairs of registers have not.
#[test]
fn patterns_that_are_none_stop_a_wave() {
    let is_missing = |words: [u32; 2]| {
        matches!(bench().run_words([&words[..], &[0xbf81_0000]].concat()), Some(Fault::Missing { .. }))
    };
    // v_mov_b32_dpp v10, v2 and v_mov_b64_dpp v[10:11], v[2:3].
    let with = |first: u32, pattern: u32| is_missing([first, 0xff00_0002 | pattern << 8]);
    let of_pairs = assemble_all(["v_mov_b64_dpp v[10:11], v[2:3] row_newbcast:0 row_mask:0xf bank_mask:0xf"]);
    for pattern in 0..512 {
        let known = matches!(pattern, 0..=0xff | 0x130 | 0x134 | 0x138 | 0x13c | 0x140..=0x143 | 0x150..=0x15f)
            || matches!(pattern, 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f);
        assert_eq!(with(0x7e14_02fa, pattern), !known, "{pattern:#x}");
        assert_eq!(with(of_pairs[0][0], pattern), !(0x150..=0x15f).contains(&pattern), "pairs, {pattern:#x}");
    }
}

/// Parts of registers: the first place and the number of bits.
const PARTS: [(&str, u32, u32); 7] = [
    ("BYTE_0", 0, 8),
    ("BYTE_1", 8, 8),
    ("BYTE_2", 16, 8),
    ("BYTE_3", 24, 8),
    ("WORD_0", 0, 16),
    ("WORD_1", 16, 16),
    ("DWORD", 0, 32),
];

fn cut(value: u32, (_, first, bits): (&str, u32, u32)) -> u32 {
    value >> first & (u32::MAX >> (32 - bits))
}

/// Returns what a result in a part leaves in its register.
fn placed(value: u32, old: u32, part: (&str, u32, u32), unused: &str) -> u32 {
    let (_, first, bits) = part;
    let mask = u32::MAX >> (32 - bits) << first;
    let placed = value << first & mask;
    match unused {
        "UNUSED_PAD" => placed,
        "UNUSED_SEXT" => ((value << (32 - bits)) as i32 >> (32 - bits)).wrapping_shl(first) as u32,
        _ => placed | old & !mask,
    }
}

#[test]
fn parts_of_registers() {
    let forms = TABLE.rows().iter().filter(|row| row.has(Flag::Sdwa) && handler(row).is_some());
    let results = [(6, "UNUSED_PAD"), (1, "UNUSED_PAD"), (2, "UNUSED_SEXT"), (5, "UNUSED_PRESERVE")];
    let mut cases = Vec::new();
    for row in forms.filter(|row| name(row) != "v_nop") {
        let plain = plain(row).unwrap_or_else(|| panic!("{} has a plain form", row.name));
        let has_part = row.operand("dst_sel").is_some();
        for (number, first) in PARTS.into_iter().enumerate() {
            let second = PARTS[(number * 3 + 2) % PARTS.len()];
            let (result, unused) = results[if has_part { number % results.len() } else { 0 }];
            let mut extension = match has_part {
                true => format!(" dst_sel:{} dst_unused:{unused}", PARTS[result].0),
                false => String::new(),
            };
            extension += &format!(" src0_sel:{}", first.0);
            if row.operand("src1").is_some() {
                extension += &format!(" src1_sel:{}", second.0);
            }
            let texts = (text(row, "_sdwa", &extension), text(plain, "_e32", ""));
            cases.push((texts, [first, second], PARTS[result], unused));
        }
    }
    assert!(cases.len() > 1600, "{}", cases.len());
    let sdwa = assemble_all(cases.iter().map(|((sdwa, _), ..)| sdwa.as_str()));
    let plain = assemble_all(cases.iter().map(|((_, plain), ..)| plain.as_str()));
    for ((case, sdwa), plain) in cases.iter().zip(sdwa).zip(plain) {
        let ((text, _), parts, result, unused) = case;
        let (mut found, mut expected) = (bench(), bench());
        let old = *found.wave.row(RESULT);
        assert_eq!(found.run_words(sdwa), None, "{text}");
        for (register, part) in SOURCES.into_iter().zip(*parts) {
            for lane in 0..LANES {
                let value = cut(expected.v(register, lane), part);
                expected.wave.write_lane(register, lane, value);
            }
        }
        assert_eq!(expected.run_words(plain), None, "{text}");
        for lane in (0..LANES).filter(|lane| EXEC >> lane & 1 != 0) {
            let value = expected.v(RESULT, lane);
            expected.wave.write_lane(RESULT, lane, placed(value, old[lane], *result, unused));
        }
        assert_same(&found, &expected, !0, text);
    }
}
