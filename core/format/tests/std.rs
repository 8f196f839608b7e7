//! Every combination of options, for every type, against `std::format!`.

use hostcall_format::{Format, MAX_ARGUMENTS, MAX_LINE_BYTES, RenderError, Value};
use proptest::prelude::*;

fn render(text: &str, values: &[Value<'_>]) -> String {
    let mut out = Vec::new();
    Format::parse(text).unwrap().render(values, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// In a function, because what `assert_eq!` makes in its place would be compiled some thousands of times.
fn compare(text: &str, values: &[Value<'_>], expected: std::fmt::Arguments<'_>) {
    assert_eq!(render(text, values), expected.to_string(), "{text} of {:?}", values[0]);
}

/// Compares one placeholder; width and precision are arguments 1 and 2.
macro_rules! one {
    ($align:literal $plus:literal $alternate:literal $zero:literal $width:literal $precision:literal
     ($value:ident $v:ident $w:ident $p:ident) $($ty:literal)*) => {$({
        // std refuses unused arguments, so width and precision are printed too.
        macro_rules! text {
            () => {
                concat!("{0:", $align, $plus, $alternate, $zero, $width, $precision, $ty, "}|{1}|{2}")
            };
        }
        let values = [$value, Value::Unsigned($w as u64), Value::Unsigned($p as u64)];
        compare(text!(), &values, format_args!(text!(), $v, $w, $p));
    })*};
}

macro_rules! precision {
    ($a:literal $b:literal $c:literal $d:literal $e:literal $($rest:tt)*) => {
        one!($a $b $c $d $e "" $($rest)*);
        one!($a $b $c $d $e ".2$" $($rest)*);
    };
}

macro_rules! width {
    ($a:literal $b:literal $c:literal $d:literal $($rest:tt)*) => {
        precision!($a $b $c $d "" $($rest)*);
        precision!($a $b $c $d "1$" $($rest)*);
    };
}

macro_rules! zero {
    ($a:literal $b:literal $c:literal $($rest:tt)*) => {
        width!($a $b $c "" $($rest)*);
        width!($a $b $c "0" $($rest)*);
    };
}

macro_rules! flags {
    ($a:literal $($rest:tt)*) => {
        zero!($a "" "" $($rest)*);
        zero!($a "+" "" $($rest)*);
        zero!($a "" "#" $($rest)*);
        zero!($a "+" "#" $($rest)*);
    };
}

macro_rules! all {
    ($($t:tt)*) => {
        flags!("" $($t)*);
        flags!("<" $($t)*);
        flags!("é^" $($t)*);
        flags!("}>" $($t)*);
    };
}

macro_rules! like_std {
    ($($test:ident($ty:ty, $strategy:expr, |$v:ident| $value:expr) $($traits:literal)*;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test($v in $strategy, w in 0usize..40, p in 0usize..20) {
                    let value = $value;
                    let $v: $ty = $v;
                    all!((value $v w p) $($traits)*);
                }
            )*
        }
    };
}

fn floats() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, 1.0, -1.5, 1e16, 1e-7, 9.995, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![any::<f64>(), -1e4..1e4, prop::sample::select(special.to_vec())]
}

like_std! {
    unsigned_like_std(u64, prop_oneof![any::<u64>(), 0u64..1000], |v| Value::Unsigned(v))
        "" "?" "x?" "X?" "x" "X" "o" "b" "e" "E";
    i8_like_std(i8, any::<i8>(), |v| Value::I8(v)) "x?" "o";
    i32_like_std(i32, any::<i32>(), |v| Value::I32(v)) "" "X?" "b";
    i64_like_std(i64, any::<i64>(), |v| Value::I64(v)) "x" "e";
    f32_like_std(f32, floats().prop_map(|v| v as f32), |v| Value::F32(v)) "" "?" "e";
    f64_like_std(f64, floats(), |v| Value::F64(v)) "" "?" "E";
    bool_like_std(bool, any::<bool>(), |v| Value::Bool(v)) "" "?";
    char_like_std(char, any::<char>(), |v| Value::Char(v)) "" "?";
    pointer_like_std(*const u8, any::<usize>().prop_map(|v| v as *const u8), |v| Value::Pointer(v as u64))
        "p" "?";
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn str_like_std(text in any::<String>(), w in 0usize..40, p in 0usize..20) {
        let v = text.as_str();
        let value = Value::Str(v);
        all!((value v w p) "" "?");
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[{}:.*$<^>+#0-9a-f?é ]{0,20}", count in 0usize..4) {
        if let Ok(format) = Format::parse(&text) {
            let mut out = b"before".to_vec();
            if format.render(&[Value::Unsigned(7); 3][..count.min(3)], &mut out).is_err() {
                prop_assert_eq!(out, b"before");
            }
        }
    }
}

#[test]
fn arguments_are_found_like_in_std() {
    let values = [Value::Unsigned(3), Value::F64(1.23456), Value::Unsigned(9)];
    let (a, b, c) = (3usize, 1.23456, 9usize);
    macro_rules! check {
        ($($text:literal)*) => {$(
            assert_eq!(render($text, &values), format!($text, a, b, c), "{}", $text);
        )*};
    }
    check! {
        "{} {} {}" "{2}{1}{0}{}" "{:.*}{}" "{1:.0$}{2}" "{1:2$.0$}" "{:02$}{}" "{0:00$}{1}{2}" "{{{}}}{}{}"
        "{:-}{}{}" "{0 }{1: }{2:5 }" "{1:.*}{2}" "{}{}{:}"
    }
    let mut resolve = |name: &str, range: std::ops::Range<usize>| {
        assert_eq!(range.len(), name.len());
        ["a", "b", "width"].iter().position(|known| *known == name)
    };
    let format = Format::parse_with("{b:>width$.a$}{a}", &mut resolve).unwrap();
    let mut out = Vec::new();
    format.render(&values, &mut out).unwrap();
    assert_eq!(out, b"    1.2353");
    assert!(Format::parse_with("{x}", &mut resolve).is_err());
}

#[test]
fn wrong_texts_and_values_are_errors() {
    for text in [
        "{",
        "}",
        "{}}",
        "{0",
        "{:",
        "{:.}",
        "{:q}",
        "{x}",
        "{:x$}",
        "{12}",
        "{99999999}",
        "{:70000}",
        "{ 0}",
    ] {
        assert!(Format::parse(text).is_err(), "{text}");
    }
    assert!(Format::parse(&"{}".repeat(MAX_ARGUMENTS)).is_ok());
    assert!(Format::parse(&"{}".repeat(MAX_ARGUMENTS + 1)).is_err());
    let error = |text, values: &[Value<'_>]| {
        let mut out = Vec::new();
        let error = Format::parse(text).unwrap().render(values, &mut out).unwrap_err();
        assert!(out.is_empty());
        error
    };
    assert_eq!(error("a{}{}", &[Value::I8(1)]), RenderError::Missing(1));
    assert_eq!(error("a{}", &[Value::Pointer(1)]), RenderError::Type(0));
    assert_eq!(error("a{:x}", &[Value::Str("")]), RenderError::Type(0));
    assert_eq!(error("a{:1$}", &[Value::I8(1), Value::Unsigned(65536)]), RenderError::Count(1));
    assert_eq!(error("a{:1$}", &[Value::I8(1), Value::I32(5)]), RenderError::Count(1));
}

/// Floats as they are shown mostly, each with and without width and by both traits.
fn check_float(wide: f64, narrow: f32, w: usize, p: usize) {
    for (value, v) in [(Value::F64(wide), wide), (Value::F64(narrow.into()), narrow.into())] {
        let values = [value, Value::Unsigned(w as u64), Value::Unsigned(p as u64)];
        assert_eq!(render("{}", &values), format!("{v}"));
        assert_eq!(render("{:?}", &values), format!("{v:?}"));
        assert_eq!(render("{:1$}", &values), format!("{v:w$}"));
        assert_eq!(render("{:.2$}", &values), format!("{v:.p$}"), "{v:e} {p}");
        assert_eq!(render("{:<1$.2$?}", &values), format!("{v:<w$.p$?}"));
    }
    let values = [Value::F32(narrow), Value::Unsigned(w as u64), Value::Unsigned(p as u64)];
    assert_eq!(render("{}", &values), format!("{narrow}"));
    assert_eq!(render("{:1$.2$}", &values), format!("{narrow:w$.p$}"));
}

#[test]
fn floats_of_all_kinds_are_as_in_std() {
    let mut bits = 1u64;
    let mut random = || {
        bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bits ^ bits >> 29
    };
    for power in -1080..1030 {
        // Powers of two, whose neighbours are not equally far, and their neighbours.
        let number = 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
        for number in [number, number.next_up(), number.next_down(), -number] {
            check_float(number, number as f32, random() as usize % 30, random() as usize % 20);
        }
    }
    for _ in 0..10_000 {
        let number = random();
        let p = number as usize >> 7 & 15;
        let (whole, divisor) = ((number >> 20) as f64, 10f64.powi(number as i32 & 15));
        // Any bits; few decimal digits; ties, which are few binary digits; and numbers beside all of them.
        for v in [
            f64::from_bits(number),
            (whole % 1e6) / divisor,
            whole / divisor,
            (whole % 1e5) / 1024.0,
            whole / 2f64.powi(number as i32 & 63),
            ((number >> 40) as f64) / 2f64.powi(number as i32 & 31),
            (whole % 1e5) / 2f64.powi(number as i32 & 31),
            f64::from(f32::from_bits(number as u32)),
        ] {
            check_float(v, v as f32, 9, p);
            check_float(v.next_up(), (v as f32).next_down(), 3, p);
        }
    }
    for v in [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::MAX,
        0.5,
        1.5,
        2.5,
        0.05,
        9.995,
        999.9999,
        4503599627370495.5,
    ] {
        (0..20).for_each(|p| check_float(v, v as f32, 8, p));
    }
}

/// A few bytes of a format do not fill the memory.
#[test]
fn lines_have_an_end() {
    let format = Format::parse(&"{0:65535}".repeat(300)).unwrap();
    let mut line = b"before".to_vec();
    let rendered = format.render(&[Value::Unsigned(1)], &mut line);
    assert_eq!((rendered, &*line), (Err(RenderError::TooLong), &b"before"[..]));
    let text = "x".repeat(MAX_LINE_BYTES);
    let rendered = Format::parse("{0}{0}").unwrap().render(&[Value::Str(&text)], &mut line);
    assert_eq!((rendered, line.len()), (Ok(()), 6 + 2 * MAX_LINE_BYTES));
    line.truncate(6);
    let rendered = Format::parse("{0}{0}{0}").unwrap().render(&[Value::Str(&text)], &mut line);
    assert_eq!((rendered, &*line), (Err(RenderError::TooLong), &b"before"[..]));
}
