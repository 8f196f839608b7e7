//! Lines of integers against the general way to render them.

use hostcall_format::{Format, IntegerLine, Lines, RenderError, tags};
use proptest::prelude::*;

/// What becomes of each line, and the text of all, both ways.
fn both(format: &Format, tags: u64, lines: &[Vec<u64>]) -> [(Vec<Result<(), RenderError>>, String); 2] {
    let (mut out, mut expected) = (Vec::new(), Vec::new());
    let line = IntegerLine::new(format, tags).expect("a line of integers");
    let mut fast = Lines::new(&line, |text| out.extend_from_slice(text));
    let results = lines.iter().map(|words| fast.push(words)).collect();
    fast.finish();
    let all = lines.iter().map(|words| format.render_words(tags, words, &mut expected)).collect();
    let text = |bytes| String::from_utf8(bytes).expect("lines are text");
    [(results, text(out)), (all, text(expected))]
}

fn word() -> impl Strategy<Value = u64> {
    let sized = (any::<u64>(), 0..64u32).prop_map(|(word, bits)| word >> bits);
    let signed = (any::<i64>(), 0..64u32).prop_map(|(word, bits)| (word >> bits) as u64);
    let power = (0..20u32, -1..2i64).prop_map(|(digits, off)| 10u64.pow(digits).wrapping_add_signed(off));
    prop_oneof![sized, signed, power]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ é\n]?", "[a-z]{0,40}"]
}

const INTEGERS: [u8; 5] = [tags::UNSIGNED, tags::I8, tags::I16, tags::I32, tags::I64];

proptest! {
    #[test]
    fn integers_are_rendered_like_any_values(
        kinds in prop::collection::vec(prop::sample::select(&INTEGERS[..]), 1..6),
        pieces in prop::collection::vec((text(), any::<prop::sample::Index>()), 0..4),
        end in text(),
        words in prop::collection::vec(prop::collection::vec(word(), 5), 0..200),
        one_less in any::<prop::sample::Index>(),
    ) {
        let piece = |(text, shown): &(String, prop::sample::Index)| {
            format!("{text}{{{}}}", shown.index(kinds.len()))
        };
        let format = Format::parse(&(pieces.iter().map(piece).collect::<String>() + &end)).unwrap();
        let mut lines: Vec<_> = words.iter().map(|words| words[..kinds.len()].to_vec()).collect();
        if !lines.is_empty() {
            let at = one_less.index(lines.len());
            lines[at].pop();
        }
        let [fast, all] = both(&format, tags::of(&kinds), &lines);
        prop_assert_eq!(fast, all);
    }
}

#[test]
fn the_longest_integers_fill_the_buffer() {
    for (text, kind, word) in [("{}", tags::UNSIGNED, u64::MAX), ("{}{0}x", tags::I64, 1 << 63)] {
        let [fast, all] = both(&Format::parse(text).unwrap(), tags::of(&[kind]), &vec![vec![word]; 1000]);
        assert_eq!(fast, all);
    }
}

#[test]
fn other_lines_are_left_to_the_general_way() {
    let is_taken =
        |text: &str, kinds: &[u8]| IntegerLine::new(&Format::parse(text).unwrap(), tags::of(kinds)).is_some();
    assert!(is_taken("{{}}", &[]));
    assert!(is_taken("{1}", &[tags::STR, tags::I8]));
    assert!(!is_taken("{:x}", &[tags::I8]));
    assert!(!is_taken("{}", &[tags::F32]));
    assert!(!is_taken("{} {}", &[tags::I8]));
    assert!(!is_taken(&"x".repeat(600), &[]));
}
