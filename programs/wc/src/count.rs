//! Counting in a part of a text, and joining the counts of parts.

use crate::unprintable::is_unprintable;

/// What a text has, seen from whether a word goes on from before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub lines: u64,
    /// Words, if no word goes on from before.
    pub words: u64,
    pub bytes: u64,
    /// The first character that is either is part of a word, not space. `None`: there is no such character.
    pub starts_in_word: Option<bool>,
    /// The same of the last one.
    pub ends_in_word: bool,
}

/// What a character does to words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Control characters and bytes that are no character neither begin nor end a word.
    None,
    Word,
    Space,
}

/// The effect of each ASCII character; of a byte past ASCII none.
const ASCII: [Effect; 256] = {
    let mut table = [Effect::None; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'\t'..=b'\r' | b' ' => Effect::Space,
            0x21..=0x7e => Effect::Word,
            _ => Effect::None,
        };
        byte += 1;
    }
    table
};

/// Most bytes of a character, less one: so far past its part must a counter see.
pub const LOOK_AHEAD: usize = 3;

/// The effect of the character that starts at the first byte. A byte in the middle of one has none, so that
/// each byte can be judged with no view of those before it.
fn effect(text: &[u8]) -> Effect {
    let len = match text[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        ascii => return ASCII[ascii as usize],
    };
    let character = text.get(..len).and_then(|text| core::str::from_utf8(text).ok());
    match character.and_then(|text| text.chars().next()) {
        None => Effect::None,
        Some(c) if is_unprintable(c) => Effect::None,
        Some(c) if c.is_whitespace() || c == '\u{2060}' => Effect::Space,
        Some(_) => Effect::Word,
    }
}

impl Counts {
    /// Goes on with the first `len` bytes of `text`, which has [`LOOK_AHEAD`] more unless it ends.
    pub fn add(&mut self, text: &[u8], len: usize) {
        self.bytes += len as u64;
        self.lines += text[..len].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
        let mut words = 0;
        let mut at = 0;
        // Until the first character that counts; then the loop has less to do.
        while at < len && self.starts_in_word.is_none() {
            let effect = effect(&text[at..]);
            if effect != Effect::None {
                self.starts_in_word = Some(effect == Effect::Word);
                break;
            }
            at += 1;
        }
        let mut in_word = self.ends_in_word;
        while at < len {
            let effect = if text[at] < 128 { ASCII[text[at] as usize] } else { effect(&text[at..]) };
            words += u64::from(effect == Effect::Word && !in_word);
            in_word = (in_word || effect == Effect::Word) && effect != Effect::Space;
            at += 1;
        }
        self.words += words;
        self.ends_in_word = in_word;
    }

    /// What the text of `self` and that of `next` have together.
    pub fn join(self, next: Self) -> Self {
        let split_word = self.ends_in_word && next.starts_in_word == Some(true);
        Self {
            lines: self.lines + next.lines,
            words: self.words + next.words - u64::from(split_word),
            bytes: self.bytes + next.bytes,
            starts_in_word: self.starts_in_word.or(next.starts_in_word),
            ends_in_word: if next.starts_in_word.is_some() { next.ends_in_word } else { self.ends_in_word },
        }
    }
}
