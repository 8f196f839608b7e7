//! Comparisons in lanes, and classes of floating-point numbers.

use std::cmp::Ordering;

use super::handlers;
use super::lanes::{Half, compare};

fn less_or_greater<T: PartialOrd>(a: T, b: T) -> bool {
    matches!(a.partial_cmp(&b), Some(Ordering::Less | Ordering::Greater))
}

/// Returns whether a number is less than another or one of them is no number.
fn less_or_unordered<T: PartialOrd>(a: T, b: T) -> bool {
    matches!(a.partial_cmp(&b), Some(Ordering::Less) | None)
}

fn less_equal_or_unordered<T: PartialOrd>(a: T, b: T) -> bool {
    a.partial_cmp(&b) != Some(Ordering::Greater)
}

fn greater_or_unordered<T: PartialOrd>(a: T, b: T) -> bool {
    less_or_unordered(b, a)
}

fn greater_equal_or_unordered<T: PartialOrd>(a: T, b: T) -> bool {
    less_equal_or_unordered(b, a)
}

fn ordered<T: PartialOrd>(a: T, b: T) -> bool {
    a.partial_cmp(&b).is_some()
}

/// Returns whether a number is of one of the classes in the mask.
fn class_64(bits: u64, quiet: u64, exponent: u64, mask: u32) -> bool {
    let width = 64 - exponent.leading_zeros() + 1;
    let negative = bits >> (width - 1) & 1 != 0;
    let fraction_bits = exponent.trailing_zeros();
    let fraction = bits & ((1 << fraction_bits) - 1);
    let class = match (bits & exponent, fraction) {
        (e, f) if e == exponent && f != 0 => return mask >> u32::from(f & quiet != 0) & 1 != 0,
        (e, _) if e == exponent => 0,
        (0, 0) => 3,
        (0, _) => 2,
        _ => 1,
    };
    // From bit 2 on: −∞, −normal, −denormal, −0, 0, denormal, normal, ∞.
    let bit = if negative { 2 + class } else { 9 - class };
    mask >> bit & 1 != 0
}

fn class_of_f32(value: u32, mask: u32) -> bool {
    class_64(u64::from(value), 1 << 22, 0x7f80_0000, mask)
}

fn class_of_f64(value: u64, mask: u32) -> bool {
    class_64(value, 1 << 51, 0x7ff0_0000_0000_0000, mask)
}

fn class_of_f16(value: u16, mask: u32) -> bool {
    class_64(u64::from(value), 1 << 9, 0x7c00, mask)
}

/// Applies the sign modifiers of source 0 to its bits.
fn modified(wave: &mut super::Wave, inst: &super::Inst, env: &mut super::Env<'_>, bits: u32) -> super::Flow {
    let (absolute, negated) = (inst.modifiers.abs & 1 != 0, inst.modifiers.neg & 1 != 0);
    let sign = move |value: u64| {
        let value = if absolute { value & !(1 << (bits - 1)) } else { value };
        if negated { value ^ 1 << (bits - 1) } else { value }
    };
    match bits {
        16 => compare(wave, inst, env, |a: u16, b: u32| class_of_f16(sign(u64::from(a)) as u16, b)),
        32 => compare(wave, inst, env, |a: u32, b: u32| class_of_f32(sign(u64::from(a)) as u32, b)),
        _ => compare(wave, inst, env, |a: u64, b: u32| class_of_f64(sign(a), b)),
    }
}

macro_rules! comparisons {
    ($($cmp:literal $cmpx:literal $type:ty, $f:expr;)*) => {
        handlers! {
            $(
                $cmp | $cmpx => compare(|a: $type, b: $type| $f(a, b)),
            )*
            "v_cmp_class_f16" | "v_cmpx_class_f16" => modified(16),
            "v_cmp_class_f32" | "v_cmpx_class_f32" => modified(32),
            "v_cmp_class_f64" | "v_cmpx_class_f64" => modified(64),
        }
    };
}

impl PartialOrd for Half {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.0.partial_cmp(&other.0)
    }
}

comparisons! {
    "v_cmp_f_i16" "v_cmpx_f_i16" i16, (|_, _| false);
    "v_cmp_lt_i16" "v_cmpx_lt_i16" i16, (|a, b| a < b);
    "v_cmp_eq_i16" "v_cmpx_eq_i16" i16, (|a, b| a == b);
    "v_cmp_le_i16" "v_cmpx_le_i16" i16, (|a, b| a <= b);
    "v_cmp_gt_i16" "v_cmpx_gt_i16" i16, (|a, b| a > b);
    "v_cmp_ne_i16" "v_cmpx_ne_i16" i16, (|a, b| a != b);
    "v_cmp_ge_i16" "v_cmpx_ge_i16" i16, (|a, b| a >= b);
    "v_cmp_t_i16" "v_cmpx_t_i16" i16, (|_, _| true);
    "v_cmp_f_u16" "v_cmpx_f_u16" u16, (|_, _| false);
    "v_cmp_lt_u16" "v_cmpx_lt_u16" u16, (|a, b| a < b);
    "v_cmp_eq_u16" "v_cmpx_eq_u16" u16, (|a, b| a == b);
    "v_cmp_le_u16" "v_cmpx_le_u16" u16, (|a, b| a <= b);
    "v_cmp_gt_u16" "v_cmpx_gt_u16" u16, (|a, b| a > b);
    "v_cmp_ne_u16" "v_cmpx_ne_u16" u16, (|a, b| a != b);
    "v_cmp_ge_u16" "v_cmpx_ge_u16" u16, (|a, b| a >= b);
    "v_cmp_t_u16" "v_cmpx_t_u16" u16, (|_, _| true);
    "v_cmp_f_i32" "v_cmpx_f_i32" i32, (|_, _| false);
    "v_cmp_lt_i32" "v_cmpx_lt_i32" i32, (|a, b| a < b);
    "v_cmp_eq_i32" "v_cmpx_eq_i32" i32, (|a, b| a == b);
    "v_cmp_le_i32" "v_cmpx_le_i32" i32, (|a, b| a <= b);
    "v_cmp_gt_i32" "v_cmpx_gt_i32" i32, (|a, b| a > b);
    "v_cmp_ne_i32" "v_cmpx_ne_i32" i32, (|a, b| a != b);
    "v_cmp_ge_i32" "v_cmpx_ge_i32" i32, (|a, b| a >= b);
    "v_cmp_t_i32" "v_cmpx_t_i32" i32, (|_, _| true);
    "v_cmp_f_u32" "v_cmpx_f_u32" u32, (|_, _| false);
    "v_cmp_lt_u32" "v_cmpx_lt_u32" u32, (|a, b| a < b);
    "v_cmp_eq_u32" "v_cmpx_eq_u32" u32, (|a, b| a == b);
    "v_cmp_le_u32" "v_cmpx_le_u32" u32, (|a, b| a <= b);
    "v_cmp_gt_u32" "v_cmpx_gt_u32" u32, (|a, b| a > b);
    "v_cmp_ne_u32" "v_cmpx_ne_u32" u32, (|a, b| a != b);
    "v_cmp_ge_u32" "v_cmpx_ge_u32" u32, (|a, b| a >= b);
    "v_cmp_t_u32" "v_cmpx_t_u32" u32, (|_, _| true);
    "v_cmp_f_i64" "v_cmpx_f_i64" i64, (|_, _| false);
    "v_cmp_lt_i64" "v_cmpx_lt_i64" i64, (|a, b| a < b);
    "v_cmp_eq_i64" "v_cmpx_eq_i64" i64, (|a, b| a == b);
    "v_cmp_le_i64" "v_cmpx_le_i64" i64, (|a, b| a <= b);
    "v_cmp_gt_i64" "v_cmpx_gt_i64" i64, (|a, b| a > b);
    "v_cmp_ne_i64" "v_cmpx_ne_i64" i64, (|a, b| a != b);
    "v_cmp_ge_i64" "v_cmpx_ge_i64" i64, (|a, b| a >= b);
    "v_cmp_t_i64" "v_cmpx_t_i64" i64, (|_, _| true);
    "v_cmp_f_u64" "v_cmpx_f_u64" u64, (|_, _| false);
    "v_cmp_lt_u64" "v_cmpx_lt_u64" u64, (|a, b| a < b);
    "v_cmp_eq_u64" "v_cmpx_eq_u64" u64, (|a, b| a == b);
    "v_cmp_le_u64" "v_cmpx_le_u64" u64, (|a, b| a <= b);
    "v_cmp_gt_u64" "v_cmpx_gt_u64" u64, (|a, b| a > b);
    "v_cmp_ne_u64" "v_cmpx_ne_u64" u64, (|a, b| a != b);
    "v_cmp_ge_u64" "v_cmpx_ge_u64" u64, (|a, b| a >= b);
    "v_cmp_t_u64" "v_cmpx_t_u64" u64, (|_, _| true);
    "v_cmp_f_f16" "v_cmpx_f_f16" Half, (|_, _| false);
    "v_cmp_lt_f16" "v_cmpx_lt_f16" Half, (|a, b| a < b);
    "v_cmp_eq_f16" "v_cmpx_eq_f16" Half, (|a, b| a == b);
    "v_cmp_le_f16" "v_cmpx_le_f16" Half, (|a, b| a <= b);
    "v_cmp_gt_f16" "v_cmpx_gt_f16" Half, (|a, b| a > b);
    "v_cmp_lg_f16" "v_cmpx_lg_f16" Half, less_or_greater;
    "v_cmp_ge_f16" "v_cmpx_ge_f16" Half, (|a, b| a >= b);
    "v_cmp_o_f16" "v_cmpx_o_f16" Half, ordered;
    "v_cmp_u_f16" "v_cmpx_u_f16" Half, (|a, b| !ordered(a, b));
    "v_cmp_nge_f16" "v_cmpx_nge_f16" Half, less_or_unordered;
    "v_cmp_nlg_f16" "v_cmpx_nlg_f16" Half, (|a, b| !less_or_greater(a, b));
    "v_cmp_ngt_f16" "v_cmpx_ngt_f16" Half, less_equal_or_unordered;
    "v_cmp_nle_f16" "v_cmpx_nle_f16" Half, greater_or_unordered;
    "v_cmp_neq_f16" "v_cmpx_neq_f16" Half, (|a, b| a != b);
    "v_cmp_nlt_f16" "v_cmpx_nlt_f16" Half, greater_equal_or_unordered;
    "v_cmp_tru_f16" "v_cmpx_tru_f16" Half, (|_, _| true);
    "v_cmp_f_f32" "v_cmpx_f_f32" f32, (|_, _| false);
    "v_cmp_lt_f32" "v_cmpx_lt_f32" f32, (|a, b| a < b);
    "v_cmp_eq_f32" "v_cmpx_eq_f32" f32, (|a, b| a == b);
    "v_cmp_le_f32" "v_cmpx_le_f32" f32, (|a, b| a <= b);
    "v_cmp_gt_f32" "v_cmpx_gt_f32" f32, (|a, b| a > b);
    "v_cmp_lg_f32" "v_cmpx_lg_f32" f32, less_or_greater;
    "v_cmp_ge_f32" "v_cmpx_ge_f32" f32, (|a, b| a >= b);
    "v_cmp_o_f32" "v_cmpx_o_f32" f32, ordered;
    "v_cmp_u_f32" "v_cmpx_u_f32" f32, (|a, b| !ordered(a, b));
    "v_cmp_nge_f32" "v_cmpx_nge_f32" f32, less_or_unordered;
    "v_cmp_nlg_f32" "v_cmpx_nlg_f32" f32, (|a, b| !less_or_greater(a, b));
    "v_cmp_ngt_f32" "v_cmpx_ngt_f32" f32, less_equal_or_unordered;
    "v_cmp_nle_f32" "v_cmpx_nle_f32" f32, greater_or_unordered;
    "v_cmp_neq_f32" "v_cmpx_neq_f32" f32, (|a, b| a != b);
    "v_cmp_nlt_f32" "v_cmpx_nlt_f32" f32, greater_equal_or_unordered;
    "v_cmp_tru_f32" "v_cmpx_tru_f32" f32, (|_, _| true);
    "v_cmp_f_f64" "v_cmpx_f_f64" f64, (|_, _| false);
    "v_cmp_lt_f64" "v_cmpx_lt_f64" f64, (|a, b| a < b);
    "v_cmp_eq_f64" "v_cmpx_eq_f64" f64, (|a, b| a == b);
    "v_cmp_le_f64" "v_cmpx_le_f64" f64, (|a, b| a <= b);
    "v_cmp_gt_f64" "v_cmpx_gt_f64" f64, (|a, b| a > b);
    "v_cmp_lg_f64" "v_cmpx_lg_f64" f64, less_or_greater;
    "v_cmp_ge_f64" "v_cmpx_ge_f64" f64, (|a, b| a >= b);
    "v_cmp_o_f64" "v_cmpx_o_f64" f64, ordered;
    "v_cmp_u_f64" "v_cmpx_u_f64" f64, (|a, b| !ordered(a, b));
    "v_cmp_nge_f64" "v_cmpx_nge_f64" f64, less_or_unordered;
    "v_cmp_nlg_f64" "v_cmpx_nlg_f64" f64, (|a, b| !less_or_greater(a, b));
    "v_cmp_ngt_f64" "v_cmpx_ngt_f64" f64, less_equal_or_unordered;
    "v_cmp_nle_f64" "v_cmpx_nle_f64" f64, greater_or_unordered;
    "v_cmp_neq_f64" "v_cmpx_neq_f64" f64, (|a, b| a != b);
    "v_cmp_nlt_f64" "v_cmpx_nlt_f64" f64, greater_equal_or_unordered;
    "v_cmp_tru_f64" "v_cmpx_tru_f64" f64, (|_, _| true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_bit() {
        let classes = [
            (f32::from_bits(0x7f80_0001), 0),
            (f32::from_bits(0x7fc0_0000), 1),
            (f32::NEG_INFINITY, 2),
            (-1.0, 3),
            (-1e-40, 4),
            (-0.0, 5),
            (0.0, 6),
            (1e-40, 7),
            (1.0, 8),
            (f32::INFINITY, 9),
        ];
        for (value, bit) in classes {
            for asked in 0..10 {
                assert_eq!(class_of_f32(value.to_bits(), 1 << asked), asked == bit, "{value} {asked}");
                let wide = f64::from_bits(match value.to_bits() {
                    0x7f80_0001 => 0x7ff0_0000_0000_0001,
                    _ if value.is_subnormal() => u64::from(value.is_sign_negative()) << 63 | 1,
                    _ => f64::from(value).to_bits(),
                });
                assert_eq!(class_of_f64(wide.to_bits(), 1 << asked), asked == bit, "{value} {asked}");
            }
        }
        assert!(class_of_f16(0x7c00, 1 << 9));
        assert!(class_of_f16(0x0001, 1 << 7));
        assert!(class_of_f16(0xfe00, 1 << 1));
    }
}
