//! C's formats, compared with those of the C library that this machine has, and by examples.

use hostcall_format::c::{Format, Layout, MAX_LINE_BYTES, RenderError};
use proptest::prelude::*;

/// A block of arguments.
#[derive(Clone, Debug, Default)]
struct Block {
    layout: Option<Layout>,
    bytes: Vec<u8>,
}

impl Block {
    fn new(layout: Layout) -> Self {
        Self { layout: Some(layout), bytes: Vec::new() }
    }

    fn push(mut self, value: &[u8]) -> Self {
        if self.layout == Some(Layout::Natural) {
            self.bytes.resize(self.bytes.len().next_multiple_of(value.len()), 0xee);
        }
        self.bytes.extend(value);
        self
    }

    fn int(self, value: i32) -> Self {
        self.push(&value.to_le_bytes())
    }

    fn word(self, value: u64) -> Self {
        self.push(&value.to_le_bytes())
    }

    fn double(self, value: f64) -> Self {
        self.word(value.to_bits())
    }
}

/// The same line from both layouts.
fn line(
    format: &str,
    fill: impl Fn(Block) -> Block,
    strings: &[Option<&str>],
) -> Result<String, RenderError> {
    let format = Format::parse(format.as_bytes()).unwrap();
    let lines = [Layout::Natural, Layout::Packed].map(|layout| {
        let block = fill(Block::new(layout)).bytes;
        assert_eq!(block.len(), format.block_bytes(layout));
        let mut out = b"before".to_vec();
        let result = format.render(layout, &block, strings, &mut out);
        let line = String::from_utf8(out.split_off(6)).unwrap();
        assert_eq!(out, b"before");
        match result {
            Ok(len) => assert_eq!(len, line.len()),
            Err(_) => assert_eq!(line, ""),
        }
        result.map(|_| line)
    });
    assert_eq!(lines[0], lines[1]);
    lines.into_iter().next().unwrap()
}

#[test]
fn arguments_lie_as_the_layout_says() {
    let format = Format::parse(b"%c %hd %ld %s %d %f %Lf %zu").unwrap();
    let sizes = [4, 4, 8, 8, 4, 8, 8, 8];
    assert_eq!(format.block_bytes(Layout::Packed), sizes.iter().sum::<usize>());
    assert_eq!(format.block_bytes(Layout::Natural), 56);
    let fill = |block: Block| {
        let block = block.int('x' as i32).int(70_000).word(1 << 40).word(0x1000).int(-5);
        block.double(1.5).double(-2.5).word(u64::MAX)
    };
    for layout in [Layout::Natural, Layout::Packed] {
        assert_eq!(format.strings(layout, &fill(Block::new(layout)).bytes), Ok(vec![0x1000]));
    }
    assert_eq!(
        line("%c %hd %ld %s %d %f %Lf %zu", fill, &[Some("text")]).unwrap(),
        "x 4464 1099511627776 text -5 1.500000 -2.500000 18446744073709551615"
    );
}

#[test]
fn strings_end_at_a_zero_and_may_be_null() {
    let fill = |block: Block| block.word(1).word(0).word(2);
    assert_eq!(line("%s%s%.2s", fill, &[Some("a\0b"), None, Some("xyz")]).unwrap(), "a(null)xy");
    assert_eq!(line("%s", |block| block.word(0), &[]), Err(RenderError::Strings(0)));
    assert_eq!(line("%.5s|", |block| block.word(0), &[None]).unwrap(), "|");
}

#[test]
fn positions() {
    let fill = |block: Block| block.int(5).double(2.0).word(9);
    assert_eq!(line("%2$.*1$f %3$s %3$s", fill, &[Some("x"), Some("y")]).unwrap(), "2.00000 x y");
    for (bad, offset) in [("%1$d %3$d", 9), ("%1$d %1$f", 8), ("%1$d %d", 6), ("%0$d", 2), ("%5000$d", 5)] {
        let error = Format::parse(bad.as_bytes()).unwrap_err();
        assert_eq!(error.offset, offset, "{bad}: {error}");
    }
}

#[test]
fn what_is_no_conversion_is_text() {
    for text in ["100%", "%y", "%-5.3q!", "%w7d", "% ", "%."] {
        assert_eq!(line(text, |block| block, &[]).unwrap(), text);
    }
    assert_eq!(line("%%%5%|", |block| block, &[]).unwrap(), "%%|");
    // Their arguments are passed all the same.
    assert_eq!(line("%*y%d", |block| block.int(3).int(4), &[]).unwrap(), "%*y4");
    let format = Format::parse(b"cut\0%s").unwrap();
    assert_eq!(format.block_bytes(Layout::Packed), 0);
}

#[test]
fn refusals() {
    for bad in ["%n", "%5hhn", "%ls", "%2147483647d", "%.99999999999d"] {
        assert!(Format::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let format = Format::parse(b"%d%f").unwrap();
    let short = [0; 15];
    let mut out = Vec::new();
    let error = format.render::<&str>(Layout::Natural, &short, &[], &mut out).unwrap_err();
    assert_eq!(error, RenderError::Block { expected: 16, given: 15 });
    assert_eq!(format.strings(Layout::Natural, &short), Err(error));
    let wide = |width| move |block: Block| block.int(width).int(width).double(1.0);
    for width in [MAX_LINE_BYTES as i32, i32::MAX, i32::MIN] {
        assert_eq!(line("%*.*f!", wide(width), &[]), Err(RenderError::TooLong));
        assert_eq!(line("!%*.*a", wide(width), &[]), Err(RenderError::TooLong));
    }
    assert_eq!(line("%lc", |block| block.int(0xd800), &[]), Err(RenderError::Character(0xd800)));
    assert_eq!(line("%lc", |block| block.int(0x20ac), &[]).unwrap(), "€");
}

#[test]
fn general_conversions_that_keep_zeros() {
    let g = |format, value: f64| line(format, |block| block.double(value), &[]).unwrap();
    assert_eq!(g("%#g", 999_999.5), "1.00000e+06");
    assert_eq!(g("%#g", 0.0), "0.00000");
    assert_eq!(g("%#.3g", 1234.0), "1.23e+03");
    assert_eq!(g("%#.0g", 5.0), "5.");
    assert_eq!(g("%#.1200g", 1.0).len(), 1201);
}

#[test]
fn null_pointers_have_a_name() {
    let format = Format::parse(b"%12p|").unwrap();
    for (format, expected) in
        [(format.clone(), "       (nil)|"), (format.null_pointer("(nullptr)"), "   (nullptr)|")]
    {
        let mut out = Vec::new();
        format.render::<&str>(Layout::Packed, &[0; 8], &[], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn widths_of_c23() {
    let fill = |block: Block| block.int(0x1ff).int(-1).word(u64::MAX).word(5);
    assert_eq!(line("%w8d %w32u %wf16d %w64x", fill, &[]).unwrap(), "-1 4294967295 -1 5");
}

/// The words of a text with the zero byte that ends it.
fn text_words(text: &[u8]) -> Vec<u64> {
    let mut bytes = text.to_vec();
    bytes.resize(text.len() / 8 * 8 + 8, 0);
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn words_have_strings_in_place() {
    let render = |format: &[u8], words: &[u64]| {
        let mut out = b"before ".to_vec();
        let result = Format::parse(format).unwrap().render_words(words, &mut out);
        assert_eq!(result.is_err(), out == b"before ");
        result.map(|bytes| {
            assert_eq!(bytes + 7, out.len());
            String::from_utf8(out[7..].to_vec()).unwrap()
        })
    };
    let words = [&[-1i32 as u32 as u64], &*text_words(b"12345678"), &text_words(b"abc"), &[7]].concat();
    assert_eq!(render(b"%d|%s|%.2s|%ld.", &words).unwrap(), "-1|12345678|ab|7.");
    assert_eq!(render(b"%*d|%g", &[5, 3, 2.5f64.to_bits()]).unwrap(), "    3|2.5");
    assert_eq!(render(b"%2$s %1$x", &[&[255], &*text_words(b"x")].concat()).unwrap(), "x ff");
    assert_eq!(render(b"%%", &[]).unwrap(), "%");
    // A string that no zero ends stops with the words.
    assert_eq!(render(b"%s", &[u64::from_le_bytes(*b"abcdefgh")]).unwrap(), "abcdefgh");
    assert!(render(b"%s %d", &text_words(b"only")).is_err());
    assert!(render(b"%d", &[]).is_err());
}

/// Formats that are full of conversions, and some of any bytes.
fn format_bytes() -> impl Strategy<Value = Vec<u8>> {
    let conversions = proptest::collection::vec(
        proptest::sample::select(b"%%%*.$-+ #0'1239hlLjztwfdiuoxXcsfFeEgGaApnbBq".to_vec()),
        0..40,
    );
    prop_oneof![3 => conversions, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    /// Whatever a device sends is a line or an error, and what it says of the block's length holds.
    #[test]
    fn any_bytes_are_a_line_or_an_error(
        text in format_bytes(),
        block in proptest::collection::vec(any::<u8>(), 0..200),
        packed in any::<bool>(),
    ) {
        let layout = if packed { Layout::Packed } else { Layout::Natural };
        if let Ok(format) = Format::parse(&text) {
            let strings = format.strings(layout, &block);
            prop_assert_eq!(strings.is_ok(), block.len() >= format.block_bytes(layout));
            let strings: Vec<Option<&[u8]>> =
                strings.unwrap_or_default().iter().map(|address| (*address != 0).then_some(&b"text"[..])).collect();
            let mut out = Vec::new();
            match format.render(layout, &block, &strings, &mut out) {
                Ok(len) => prop_assert!(len == out.len() && len <= MAX_LINE_BYTES),
                Err(_) => prop_assert!(out.is_empty()),
            }
        }
    }
}

/// Against the C library, where it is glibc: its `printf` is what the documentation promises.
#[cfg(target_env = "gnu")]
mod glibc {
    use super::*;
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn compile() -> std::path::PathBuf {
        let helper = Path::new(env!("CARGO_TARGET_TMPDIR")).join("glibc-printf");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/glibc.c");
        let status = Command::new("cc").arg("-w").arg(source).arg("-o").arg(&helper).status();
        assert!(status.expect("a C compiler, which Rust links with").success());
        helper
    }

    /// One conversion with its arguments, as the helper reads it and as a block.
    struct Case {
        input: String,
        format: String,
        block: Block,
        string: Option<Option<String>>,
    }

    /// Numbers that look random, the same at every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        }

        fn below(&mut self, end: u64) -> u64 {
            self.next() % end
        }

        fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
            values[self.below(values.len() as u64) as usize]
        }

        fn integer(&mut self) -> u64 {
            match self.below(4) {
                0 => self.below(20),
                1 => self.next() >> self.below(64),
                2 => !(self.next() >> self.below(64)),
                _ => self.one_of(&[0, 1, 0x7f, 0x80, 0x7fff, 0x8000, 0x7fff_ffff, 0x8000_0000, 1 << 63]),
            }
        }

        fn double(&mut self) -> f64 {
            let digits = self.below(100_000) as f64;
            match self.below(6) {
                0 => f64::from_bits(self.next()),
                1 => digits / 8.0,
                2 => digits * 10f64.powi(self.below(40) as i32 - 20),
                // Halves, which are rounded to the even digit.
                3 => (self.below(200) as f64 + 0.5) * self.one_of(&[1.0, 0.25, -0.125, 10.0]),
                4 => f64::from_bits(self.next() >> self.below(64)),
                _ => self.one_of(&[
                    0.0,
                    -0.0,
                    1.0,
                    9.5,
                    0.5,
                    1.5,
                    99.95,
                    999_999.5,
                    1e5,
                    1e6,
                    1e-4,
                    1e-5,
                    f64::MAX,
                    f64::MIN_POSITIVE,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    f64::NAN,
                    -f64::NAN,
                    1.999_999_999_999_999_8,
                ]),
            }
        }

        fn case(&mut self, layout: Layout) -> Case {
            let mut format = String::from(self.one_of(&["", "x=", "%%"]));
            format.push('%');
            for flag in ['-', '+', ' ', '#', '0', '\''] {
                if self.below(4) == 0 {
                    format.push(flag);
                }
            }
            let (mut block, mut stars) = (Block::new(layout), Vec::new());
            let mut count = |numbers: &mut Self, format: &mut String| match numbers.below(3) {
                0 => *format += &numbers.below(30).to_string(),
                1 => {
                    let star = numbers.below(60) as i32 - 20;
                    format.push('*');
                    block = block.clone().int(star);
                    stars.push(star);
                }
                _ => {}
            };
            count(self, &mut format);
            if self.below(2) == 0 {
                format.push('.');
                count(self, &mut format);
            }
            let conversion = self.one_of(b"diuoxXbBcspfFeEgGaA") as char;
            if matches!(conversion, 'g' | 'G') {
                // glibc loses zeros of `%#g` when rounding carries, as of 999999.5.
                format = format.replace('#', "");
            }
            let length = match conversion {
                'd' | 'i' | 'u' | 'o' | 'x' | 'X' | 'b' | 'B' => {
                    self.one_of(&["", "hh", "h", "l", "ll", "j", "z", "t"])
                }
                'c' | 's' | 'p' => "",
                _ => self.one_of(&["", "l"]),
            };
            format = format + length + &conversion.to_string() + self.one_of(&["", "|", "%%"]);
            let mut string = None;
            let (kind, value) = match conversion {
                's' => {
                    let text = ["a", "hello", "a longer text than the others are", "äöü"];
                    let text = (self.below(5) > 0).then(|| self.one_of(&text).to_string());
                    block = block.word(1);
                    string = Some(text.clone());
                    text.map_or(('0', "0".into()), |text| ('s', text))
                }
                'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => {
                    let value = self.double();
                    block = block.double(value);
                    ('d', format!("{:x}", value.to_bits()))
                }
                _ => {
                    let long = conversion == 'p' || matches!(length, "l" | "ll" | "j" | "z" | "t");
                    let value = match self.integer() {
                        value if conversion == 'c' => value % 95 + 32,
                        value => value,
                    };
                    block = if long { block.word(value) } else { block.int(value as i32) };
                    (
                        if conversion == 'p' {
                            'p'
                        } else if long {
                            'l'
                        } else {
                            'i'
                        },
                        format!("{value:x}"),
                    )
                }
            };
            let star_text: String = stars.iter().map(|star| format!("\t{star}")).collect();
            let input = format!("{format}\t{}\t{kind}{star_text}\t{value}\n", stars.len());
            Case { input, format, block, string }
        }
    }

    #[test]
    fn prints_the_same() {
        let helper = compile();
        let mut numbers = Numbers(1);
        let layouts = [Layout::Natural, Layout::Packed];
        let cases: Vec<Case> = (0..60_000).map(|i| numbers.case(layouts[i % 2])).collect();
        let input: String = cases.iter().map(|case| case.input.as_str()).collect();
        let mut child = Command::new(helper)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("just compiled");
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());

        let mut rest = &output.stdout[..];
        for case in cases {
            let space = rest.iter().position(|byte| *byte == b' ').unwrap();
            let len: usize = std::str::from_utf8(&rest[..space]).unwrap().parse().unwrap();
            let (expected, after) = rest[space + 1..].split_at(len);
            rest = after;
            let strings: Vec<Option<String>> = case.string.into_iter().collect();
            let format = Format::parse(case.format.as_bytes()).unwrap();
            let mut out = Vec::new();
            format.render(case.block.layout.unwrap(), &case.block.bytes, &strings, &mut out).unwrap();
            let show = String::from_utf8_lossy;
            assert_eq!(show(&out), show(expected), "of {:?}", case.input);
        }
        assert!(rest.is_empty());
    }
}
