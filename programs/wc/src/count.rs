//! Counting in a part of a text, and joining the counts of parts.

use crate::columns::Columns;
use crate::unprintable::is_unprintable;

/// What is counted besides lines and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub words: bool,
    pub characters: bool,
    /// How long lines are.
    pub columns: bool,
}

/// What a text has, seen from whether a word goes on from before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub lines: u64,
    /// Words, if no word goes on from before.
    pub words: u64,
    pub bytes: u64,
    pub characters: u64,
    pub columns: Columns,
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

/// Most bytes of what is counted as a character, less one: so far past its part must a counter see.
pub const LOOK_AHEAD: usize = 5;

/// The character past ASCII that starts at the first byte.
pub fn character(text: &[u8]) -> Option<char> {
    let len = match text[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    text.get(..len).and_then(|text| core::str::from_utf8(text).ok())?.chars().next()
}

/// Whether a character starts at the first byte. For glibc also those past Unicode's last are characters, as UTF-8
/// had them once, of up to 31 bits; surrogates are none.
fn starts_character(text: &[u8]) -> bool {
    let (len, second) = match text[0] {
        0..=0x7f => return true,
        0xc2..=0xdf => (2, 0x80..=0xbf),
        // What could be shorter is no character.
        0xe0 => (3, 0xa0..=0xbf),
        0xed => (3, 0x80..=0x9f),
        0xe1..=0xef => (3, 0x80..=0xbf),
        0xf0 => (4, 0x90..=0xbf),
        0xf1..=0xf7 => (4, 0x80..=0xbf),
        0xf8 => (5, 0x88..=0xbf),
        0xf9..=0xfb => (5, 0x80..=0xbf),
        0xfc => (6, 0x84..=0xbf),
        0xfd => (6, 0x80..=0xbf),
        _ => return false,
    };
    text.get(1..len)
        .is_some_and(|rest| second.contains(&rest[0]) && rest.iter().all(|byte| (0x80..0xc0).contains(byte)))
}

/// The effect of the character that starts at the first byte. A byte in the middle of one has none, so that
/// each byte can be judged with no view of those before it.
fn effect(text: &[u8]) -> Effect {
    if text[0] < 128 {
        return ASCII[text[0] as usize];
    }
    match character(text) {
        None => Effect::None,
        Some(c) if is_unprintable(c) => Effect::None,
        Some(c) if c.is_whitespace() || c == '\u{2060}' => Effect::Space,
        Some(_) => Effect::Word,
    }
}

/// Bytes that are counted with one look at what they are. The loops over so many have no exits and count in a
/// byte, so that compilers make vector instructions of them.
const BLOCK: usize = 192;

/// How many bytes of a block hold.
fn count_where(block: &[u8; BLOCK], holds: impl Fn(u8) -> bool) -> u64 {
    block.iter().fold(0u8, |count, byte| count.wrapping_add(holds(*byte).into())).into()
}

/// The line ends in a text.
fn lines(text: &[u8]) -> u64 {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let is_end = |byte| byte == b'\n';
    let in_blocks: u64 = blocks.iter().map(|block| count_where(block, is_end)).sum();
    in_blocks + rest.iter().filter(|byte| is_end(**byte)).count() as u64
}

/// Whether an ASCII character is part of a word.
fn is_word(byte: u8) -> bool {
    byte.wrapping_sub(0x21) < 0x5e
}

/// Whether each byte of a block is an ASCII character of a word or a space.
fn is_plain(block: &[u8; BLOCK]) -> bool {
    let is_other = |byte: u8| !is_word(byte) && byte != b' ' && byte.wrapping_sub(b'\t') >= 5;
    !block.iter().fold(false, |others, byte| others | is_other(*byte))
}

/// The words that begin in a plain block, after a character that was in a word or not.
fn words_in_plain(block: &[u8; BLOCK], in_word: bool) -> u64 {
    let begins = |before: &u8, now: &u8| is_word(*now) & !is_word(*before);
    let pairs = block[..BLOCK - 1].iter().zip(&block[1..]);
    let later = pairs.fold(0u8, |count, (before, now)| count.wrapping_add(begins(before, now).into()));
    u64::from(later) + u64::from(is_word(block[0]) && !in_word)
}

impl Counts {
    /// Goes on with the first `len` bytes of `text`, which has [`LOOK_AHEAD`] more unless it ends.
    pub fn add(&mut self, text: &[u8], len: usize, wanted: Wanted) {
        self.bytes += len as u64;
        self.lines += lines(&text[..len]);
        if wanted.columns {
            self.columns.add(text, len);
        }
        if !wanted.words && !wanted.characters {
            return;
        }
        let mut at = 0;
        while at < len {
            if let Some(block) = text[at..len].first_chunk::<BLOCK>()
                && self.starts_in_word.is_some()
                && is_plain(block)
            {
                self.words += words_in_plain(block, self.ends_in_word);
                self.characters += BLOCK as u64;
                self.ends_in_word = is_word(block[BLOCK - 1]);
                at += BLOCK;
            } else {
                let end = len.min(at + BLOCK);
                self.add_one_by_one(&text[at..], end - at, wanted);
                at = end;
            }
        }
    }

    /// Counts words and, if they are wanted, characters in the first `len` bytes of `text`.
    fn add_one_by_one(&mut self, text: &[u8], len: usize, wanted: Wanted) {
        if wanted.characters {
            self.characters += (0..len).filter(|at| starts_character(&text[*at..])).count() as u64;
        }
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
            characters: self.characters + next.characters,
            columns: self.columns.join(next.columns),
            starts_in_word: self.starts_in_word.or(next.starts_in_word),
            ends_in_word: if next.starts_in_word.is_some() { next.ends_in_word } else { self.ends_in_word },
        }
    }
}
