//! Posts of more than [`MAX_POST_WORDS`] words: those of a context whose posts its owner takes itself
//! ([`MESSAGES`](crate::context::MESSAGES)).

use super::MAX_POST_WORDS;

/// Most payload words of a message: 128 bytes.
pub const MAX_MESSAGE_WORDS: usize = 16;

/// What a message has in the place of a post's number of words.
const MESSAGE: u64 = 6;

/// The second word of the first entry of a message: a post of 6 to 16 words.
///
/// A message is 4 to 9 entries of 16 bytes, whose words lie as a [post's](super::PostHead).
///
/// | bits | field |
/// |---|---|
/// | 63 | lap |
/// | 58–62 | displaced top bits of words 0–4 |
/// | 55–57 | 6 |
/// | 54 | zero |
/// | 38–53 | bits 0–15 of the tag |
/// | 32–37 | index of the lane in its wave |
/// | 31 | zero |
/// | 20–30 | displaced top bits of words 5–15 |
/// | 16–19 | payload words, less one |
/// | 0–15 | bits 16–31 of the tag |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// What the kernel calls the message.
    pub tag: u32,
    /// Index of the lane in its wave.
    pub lane: u8,
    /// Payload words, 6 to 16.
    pub words: u8,
}

impl MessageHead {
    /// Bits of the head in which messages agree that are handed over together: tag and number of words.
    pub const ALIKE: u64 = 0xffff << 38 | 15 << 54 | 1 << 31 | 0xf_ffff;

    /// The head word, without its lap, for these payload words.
    pub fn to_word(self, words: &[u64]) -> u64 {
        let mut word = MESSAGE << 55
            | u64::from(self.tag & 0xffff) << 38
            | u64::from(self.lane & 63) << 32
            | ((u64::from(self.words) - 1) & 15) << 16
            | u64::from(self.tag >> 16);
        for (i, payload) in words.iter().enumerate() {
            word |= (payload >> 63) << if i < MAX_POST_WORDS { 58 + i } else { 15 + i };
        }
        word
    }

    /// Reads a head word and the displaced top bits that it carries, bit `i` of word `i`. `None` when a device wrote what is no
    /// head of a message.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<(Self, u16)> {
        let words = (word >> 16 & 15) as u8 + 1;
        if word >> 55 & 7 != MESSAGE || word & (1 << 54 | 1 << 31) != 0 || words as usize <= MAX_POST_WORDS {
            return None;
        }
        let tag = (word >> 38) as u32 & 0xffff | (word as u32) << 16;
        let tops = (word >> 58 & 31) as u16 | ((word >> 20 & 0x7ff) as u16) << MAX_POST_WORDS;
        Some((Self { tag, lane: (word >> 32) as u8 & 63, words }, tops))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LAP, Owner, PostHead, lap_of, with_lap};
    use super::*;

    #[test]
    fn a_head_of_a_message_survives_the_link() {
        for count in 6..=MAX_MESSAGE_WORDS {
            for set in 0..count {
                let head = MessageHead { tag: 0xdead_beef, lane: 63, words: count as u8 };
                let words: Vec<u64> = (0..count).map(|i| if i == set { u64::MAX } else { 1 }).collect();
                let word = head.to_word(&words);
                assert!(!lap_of(word));
                assert_eq!(MessageHead::from_word(with_lap(word, true)), Some((head, 1 << set)));
                assert_eq!(PostHead::from_word(word), None);
                assert_eq!(Owner::from_entry([0, word]), None);
            }
        }
        let head = MessageHead { tag: u32::MAX, lane: 0, words: 6 }.to_word(&[0; 6]);
        assert_eq!(MessageHead::from_word(head | 1 << 31), None);
        assert_eq!(MessageHead::from_word(head | 1 << 54), None);
        assert_eq!(MessageHead::from_word(head & !(15 << 16) | 4 << 16), None);
        let tops = LAP | 31 << 58 | 0x7ff << 20 | 63 << 32;
        assert_eq!(MessageHead::ALIKE & tops, 0);
    }
}
