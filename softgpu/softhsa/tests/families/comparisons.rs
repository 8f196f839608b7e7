//! Vector comparisons of all types, also those that write EXEC.

use crate::bench::{Bench, assemble_all};
use crate::{EDGES, signed};
use hostcall_softhsa::exec::wave::scalar;
use std::cmp::Ordering;

/// Lanes that compare.
const ACTIVE: u64 = 0xf0ff_ffff_7fff_fffe;

const WHOLE: [&str; 8] = ["f", "lt", "eq", "le", "gt", "ne", "ge", "t"];
const FLOAT: [&str; 16] =
    ["f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru"];

/// Returns what a comparison says of two numbers in this order; `None` is that of a NaN.
fn model(name: &str, order: Option<Ordering>) -> bool {
    use Ordering::{Equal, Greater, Less};
    let is = |orders: &[Ordering]| order.is_some_and(|order| orders.contains(&order));
    match name {
        "f" => false,
        "t" | "tru" => true,
        "lt" => is(&[Less]),
        "eq" => is(&[Equal]),
        "le" => is(&[Less, Equal]),
        "gt" => is(&[Greater]),
        "ge" => is(&[Greater, Equal]),
        "lg" => is(&[Less, Greater]),
        "ne" => !is(&[Equal]),
        "o" => order.is_some(),
        "u" => order.is_none(),
        // The others say the contrary of what follows their first letter.
        _ => !model(&name[1..], order),
    }
}

/// Returns the number that 16, 32 or 64 bits are.
fn float(bits: u32, value: u64) -> f64 {
    match bits {
        16 => {
            let (exponent, fraction) = ((value >> 10 & 31) as i32, (value & 0x3ff) as f64);
            let size = match exponent {
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                0 => fraction * 2f64.powi(-24),
                _ => (fraction + 1024.0) * 2f64.powi(exponent - 25),
            };
            if value & 0x8000 != 0 { -size } else { size }
        }
        32 => f32::from_bits(value as u32).into(),
        _ => f64::from_bits(value),
    }
}

/// Returns eight numbers: zeros, ones, an infinity, a denormal and NaNs of both kinds.
fn floats(bits: u32) -> [u64; 8] {
    match bits {
        16 => [0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 1, 0x7e00, 0xfd00],
        32 => [0, 1 << 31, 0x3f80_0000, 0xbf80_0000, 0x7f80_0000, 1, 0x7fc0_0000, 0xffa0_0000],
        _ => {
            let ones = 0x3ff0_0000_0000_0000;
            let infinity = 0x7ff0_0000_0000_0000;
            [0, 1 << 63, ones, ones | 1 << 63, infinity, 1, infinity | 1 << 51, infinity | 1 | 1 << 63]
        }
    }
}

/// Returns the classes that a number belongs to, of which a mask of `v_cmp_class` has a bit each.
fn class(bits: u32, value: u64) -> u64 {
    let (exponent_bits, fraction_bits) = match bits {
        16 => (5, 10),
        32 => (8, 23),
        _ => (11, 52),
    };
    let fraction = value & ((1 << fraction_bits) - 1);
    let exponent = value >> fraction_bits & ((1 << exponent_bits) - 1);
    let negative = value >> (bits - 1) & 1 != 0;
    let of_sign = |below: u32, above: u32| 1 << if negative { below } else { above };
    match (exponent, fraction) {
        (0, 0) => of_sign(5, 6),
        (0, _) => of_sign(4, 7),
        (exponent, 0) if exponent == (1 << exponent_bits) - 1 => of_sign(2, 9),
        (exponent, fraction) if exponent == (1 << exponent_bits) - 1 => {
            if fraction >> (fraction_bits - 1) != 0 { 2 } else { 1 }
        }
        _ => of_sign(3, 8),
    }
}

/// What an instruction says of two numbers.
type Expected = Box<dyn Fn(u64, u64) -> bool>;

/// An instruction and what it says of each lane's two numbers.
struct Case {
    text: String,
    values: ([u64; 8], [u64; 8]),
    expected: Expected,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, bits: u32, values, expected: &dyn Fn() -> Expected| {
        let (a, b) = if bits == 64 { ("v[2:3]", "v[4:5]") } else { ("v2", "v4") };
        let b = if name.starts_with("class") { "v4" } else { b };
        for (exec, form, result) in
            [("", "e64", "s[8:9]"), ("", "e32", "vcc"), ("x", "e64", "s[8:9]"), ("x", "e32", "vcc")]
        {
            let text = format!("v_cmp{exec}_{name}_{form} {result}, {a}, {b}");
            cases.push(Case { text, values, expected: expected() });
        }
    };
    for bits in [16, 32, 64] {
        for (kind, is_signed) in [("i", true), ("u", false)] {
            for name in WHOLE {
                let number = move |value: u64| match is_signed {
                    true => signed(value, bits),
                    false => i128::from(crate::low(value, bits)),
                };
                add(&format!("{name}_{kind}{bits}"), bits, (EDGES, EDGES), &|| {
                    Box::new(move |a, b| model(name, Some(number(a).cmp(&number(b)))))
                });
            }
        }
        for name in FLOAT {
            add(&format!("{name}_f{bits}"), bits, (floats(bits), floats(bits)), &|| {
                Box::new(move |a, b| model(name, float(bits, a).partial_cmp(&float(bits, b))))
            });
        }
        let masks = [0, 0x3ff, 1, 2, 0x60, 0x90, 0x108, 0x204];
        add(&format!("class_f{bits}"), bits, (floats(bits), masks), &|| {
            Box::new(move |a, mask| class(bits, a) & mask != 0)
        });
    }
    cases
}

#[test]
fn comparisons_of_all_types() {
    let cases = cases();
    let words = assemble_all(cases.iter().map(|case| case.text.as_str()));
    for (Case { text, values, expected }, words) in cases.iter().zip(words) {
        let mut bench = Bench::new();
        bench.wave.set_pair(scalar::EXEC, ACTIVE);
        bench.wave.set_pair(8, !0);
        bench.wave.set_pair(scalar::VCC, !0);
        let mut result = 0;
        for lane in 0..64 {
            let (a, b) = (values.0[lane % 8], values.1[lane / 8]);
            result |= u64::from(expected(a, b)) << lane & ACTIVE;
            for (register, value) in [(2, a), (4, b)] {
                bench.wave.write_lane(register, lane, value as u32);
                bench.wave.write_lane(register + 1, lane, (value >> 32) as u32);
            }
        }
        assert_eq!(bench.run_words(words), None, "{text}");
        let place = if text.contains("vcc") { scalar::VCC } else { 8 };
        assert_eq!(bench.wave.pair(place), result, "{text}");
        let exec = if text.starts_with("v_cmpx") { result } else { ACTIVE };
        assert_eq!(bench.wave.exec(), exec, "{text}");
    }
}
