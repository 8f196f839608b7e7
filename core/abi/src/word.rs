//! The 64-bit words that cross the link.
//!
//! Every word shows by itself that it is valid: its top bit is a *lap* bit that differs from the word's
//! previous use. So no fence orders the words of a call, and a store that tears between words (PTX lets
//! vector stores tear into 64-bit scalars) is seen as "not all there yet", never as a wrong value. The
//! payload bits that a lap bit displaces travel in the *meta* word of the same line.
//!
//! # One call, word by word
//! Lane 3 of wave 1 of workgroup 7 calls method 700 with one word, 42, waits for one word at most 1 ms, and gets 420
//! with the top bit set. Each word's lap was 0 before:
//!
//! ```
//! use hostcall_abi::launch::LaunchId;
//! use hostcall_abi::word::{Doorbell, Kind, Line, Owner, RequestTag, with_lap};
//! use hostcall_abi::Status;
//!
//! let lapped = |pair: [u64; 2]| pair.map(|word| with_lap(word, true));
//! let line = |word, tag| lapped(Line { words: [word, 0, 0, 0, 0, 0, 0], tag }.pair(0, 1));
//!
//! // Before the first call of the wave's claim: launch, wave and workgroup.
//! let owner = Owner { launch: LaunchId::new(5, 2), home: None, wave: 1, workgroup: 7 };
//! assert_eq!(lapped(owner.to_pair()), [0x8004_0000_0004_0005, 0x8000_0000_0000_0007]);
//!
//! // The doorbell: lap, method 700, one lane, that is lane 3, one word each way, a part of the schema's hash, lines;
//! // and in the lowest bit that the owner pair has changed.
//! let bell = Doorbell {
//!     service: 700,
//!     lanes: 1,
//!     first_lane: 3,
//!     argument_words: 1,
//!     result_words: 1,
//!     check: 0x1_2345,
//!     kind: Kind::Words,
//!     after_posts: false,
//!     lines: true,
//! };
//! assert_eq!(bell.to_word(true) | 1, 0x815e_0019_2246_8a11);
//!
//! // The request pair: the word, and a meta word with the lane's index and its deadline.
//! let tag = RequestTag { lane: 3, timeout_us: 1000, post_position: 0 };
//! assert_eq!(line(42, tag.to_bits()), [0x8000_0000_0000_002a, 0x800c_0000_0fa0_0000]);
//!
//! // The reply pair: the word, whose top bit the lap displaces into bit 56 of the meta word, and the status.
//! let reply = line(1 << 63 | 420, Status::Ok.to_bits());
//! assert_eq!(reply, [0x8000_0000_0000_01a4, 0x8100_0000_0000_0000]);
//! ```

mod bytes;
mod message;

pub use bytes::*;
pub use message::*;

use crate::MAX_WORDS;
use crate::launch::LaunchId;

/// The lap bit of a word.
pub const LAP: u64 = 1 << 63;

/// All bits of a word but the lap.
pub const PAYLOAD: u64 = !LAP;

/// `word`'s payload bits with the given lap.
#[inline(always)]
pub const fn with_lap(word: u64, lap: bool) -> u64 {
    (word & PAYLOAD) | ((lap as u64) << 63)
}

/// The lap of a word.
#[inline(always)]
pub const fn lap_of(word: u64) -> bool {
    word >> 63 != 0
}

/// What a doorbell word says the slot's packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A call whose arguments are the words of the slot's lines.
    Words = 0,
    /// The last (or only) piece of a byte message: run the handler. See [`BytesHead`].
    Bytes = 1,
    /// An earlier piece of a byte message: append it, answer [`crate::Status::Ok`].
    BytesMore = 2,
}

/// The doorbell: one word per slot in one dense array. Storing it with the other lap *is* the call; a null
/// call of one lane needs no other word.
///
/// | bits | field |
/// |---|---|
/// | 63 | lap |
/// | 47–62 | service number |
/// | 41–46 | lanes in the packet, less one |
/// | 35–40 | index in the wave of the packet's first lane |
/// | 32–34 | argument words a lane |
/// | 29–31 | result words a lane |
/// | 9–28 | low 20 bits of the service's schema hash |
/// | 6–8 | [`Kind`] |
/// | 5 | posts of this slot come first: the meta word says how many |
/// | 4 | the lines are present although there are no argument words |
/// | 1–3 | zero |
/// | 0 | parity of the slot's owner pair: when it changed, the pair names another owner, see [`Owner`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Number of the service called.
    pub service: u16,
    /// Lanes in the packet, 1 to 64.
    pub lanes: u8,
    /// Index in the wave of the packet's first lane.
    pub first_lane: u8,
    /// Argument words a lane, 0 to 7.
    pub argument_words: u8,
    /// Result words a lane, 0 to 7.
    pub result_words: u8,
    /// Low [`CHECK_BITS`] bits of the service's schema hash.
    pub check: u32,
    /// What the packet is.
    pub kind: Kind,
    /// The host must take the slot's posts up to the position in the meta word before this call.
    pub after_posts: bool,
    /// The packet has lines, so that each lane's meta word travels.
    pub lines: bool,
}

/// Bits of the schema hash that travel with every call. The whole hash is compared when an image is loaded.
pub const CHECK_BITS: u32 = 20;

/// The bits of a schema hash that travel in a doorbell.
pub const fn check_of(schema: u64) -> u32 {
    (schema & ((1 << CHECK_BITS) - 1)) as u32
}

impl Doorbell {
    /// The word with the given lap. Whoever rings adds the owner pair's parity as the lowest bit.
    #[inline(always)]
    pub const fn to_word(self, lap: bool) -> u64 {
        ((lap as u64) << 63)
            | ((self.service as u64) << 47)
            | (((self.lanes as u64 - 1) & 63) << 41)
            | ((self.first_lane as u64 & 63) << 35)
            | ((self.argument_words as u64 & 7) << 32)
            | ((self.result_words as u64 & 7) << 29)
            | ((self.check as u64 & ((1 << CHECK_BITS) - 1)) << 9)
            | ((self.kind as u64) << 6)
            | ((self.after_posts as u64) << 5)
            | ((self.lines as u64) << 4)
    }

    /// Pairs of words a lane's request takes.
    #[inline(always)]
    pub const fn request_pairs(self) -> usize {
        if self.lines { pairs_for(self.argument_words as usize) } else { 0 }
    }

    /// Pairs of words a lane's reply takes.
    #[inline(always)]
    pub const fn reply_pairs(self) -> usize {
        pairs_for(self.result_words as usize)
    }
}

/// A doorbell that the host read and checked. One word, from which each field is taken when it is needed: a struct of
/// small fields that is built, copied and read at once makes the processor wait for its own stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung(u64);

impl Rung {
    /// Reads a word that a device wrote. `None` when it is no doorbell: an unknown kind, a reserved bit, more
    /// lanes than `wave_lanes`, or words without lines.
    #[inline(always)]
    pub const fn from_word(word: u64, wave_lanes: u32) -> Option<Self> {
        let rung = Self(word & PAYLOAD);
        let is_doorbell = word & (14 | 4 << 6) == 0
            && word >> 6 & 3 != 3
            && rung.lanes() <= wave_lanes
            && (rung.first_lane() as u32) < wave_lanes
            // Argument words, more than one lane, and a place among the posts need lines.
            && (rung.has_lines() || word & (7 << 32 | 63 << 41 | 1 << 5) == 0);
        if is_doorbell { Some(rung) } else { None }
    }

    /// [`Doorbell::service`].
    #[inline(always)]
    pub const fn service(self) -> u16 {
        (self.0 >> 47) as u16
    }

    /// [`Doorbell::lanes`].
    #[inline(always)]
    pub const fn lanes(self) -> u32 {
        (self.0 >> 41) as u32 % 64 + 1
    }

    /// [`Doorbell::first_lane`].
    #[inline(always)]
    pub const fn first_lane(self) -> u8 {
        (self.0 >> 35) as u8 % 64
    }

    /// Returns what packets have in common that are handled together: the doorbell without its lane and its owner.
    #[inline(always)]
    pub const fn from_any_lane(self) -> Self {
        Self(self.0 & !(63 << 35 | 1))
    }

    /// [`Doorbell::first_lane`] of a word that a device wrote, if it is the same packet as this, which is [from any lane](
    /// Rung::from_any_lane), with this lap and parity. There may be no such lane.
    #[inline(always)]
    pub const fn lane_of(self, word: u64, lap: bool, parity: bool) -> Option<u8> {
        if word & !(63 << 35) == self.0 | (lap as u64) << 63 | parity as u64 {
            Some((word >> 35) as u8 % 64)
        } else {
            None
        }
    }

    /// Parity of the slot's owner pair.
    #[inline(always)]
    pub const fn parity(self) -> bool {
        self.0 & 1 != 0
    }

    /// [`Doorbell::argument_words`].
    #[inline(always)]
    pub const fn argument_words(self) -> usize {
        (self.0 >> 32) as usize % 8
    }

    /// [`Doorbell::result_words`].
    #[inline(always)]
    pub const fn result_words(self) -> usize {
        (self.0 >> 29) as usize % 8
    }

    /// [`Doorbell::check`].
    #[inline(always)]
    pub const fn check(self) -> u32 {
        (self.0 >> 9) as u32 & ((1 << CHECK_BITS) - 1)
    }

    /// [`Doorbell::kind`].
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 >> 6 & 3 {
            0 => Kind::Words,
            1 => Kind::Bytes,
            // `from_word` lets no other pass.
            _ => Kind::BytesMore,
        }
    }

    /// [`Doorbell::after_posts`].
    #[inline(always)]
    pub const fn is_after_posts(self) -> bool {
        self.0 & 32 != 0
    }

    /// [`Doorbell::lines`].
    #[inline(always)]
    pub const fn has_lines(self) -> bool {
        self.0 & 16 != 0
    }

    /// Pairs of words a lane's request takes.
    #[inline(always)]
    pub const fn request_pairs(self) -> usize {
        if self.has_lines() { pairs_for(self.argument_words()) } else { 0 }
    }

    /// Pairs of words a lane's reply takes.
    #[inline(always)]
    pub const fn reply_pairs(self) -> usize {
        pairs_for(self.result_words())
    }
}

/// Pairs of 64-bit words that carry `words` payload words and their meta word.
#[inline(always)]
pub const fn pairs_for(words: usize) -> usize {
    words / 2 + 1
}

/// Most pairs a lane's request or reply takes.
pub const MAX_PAIRS: usize = pairs_for(MAX_WORDS);

/// A line: the payload words of one lane in one direction with their meta word. Pair 0 is (word 0, meta),
/// pair `j` is (word `2j − 1`, word `2j`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Payload words.
    pub words: [u64; MAX_WORDS],
    /// 56 bits that travel in the meta word beside the seven displaced top bits.
    pub tag: u64,
}

/// Bits of [`Line::tag`].
pub const TAG_BITS: u32 = 56;

impl Line {
    /// The meta word without its lap: displaced top bits in bits 56–62, the tag below.
    #[inline(always)]
    fn meta(&self, words: usize) -> u64 {
        let mut meta = self.tag & ((1 << TAG_BITS) - 1);
        let mut i = 0;
        while i < words {
            meta |= (self.words[i] >> 63) << (TAG_BITS + i as u32);
            i += 1;
        }
        meta
    }

    /// The two words of pair `pair` (of a line of `words` payload words), without laps.
    #[inline(always)]
    pub fn pair(&self, pair: usize, words: usize) -> [u64; 2] {
        if pair == 0 {
            return [self.words[0] & PAYLOAD, self.meta(words)];
        }
        let second = if 2 * pair < MAX_WORDS { self.words[2 * pair] } else { 0 };
        [self.words[2 * pair - 1] & PAYLOAD, second & PAYLOAD]
    }

    /// Takes the two words of pair `pair`, laps ignored. Top bits are restored by [`Line::restore`].
    #[inline(always)]
    pub fn set_pair(&mut self, pair: usize, value: [u64; 2]) {
        if pair == 0 {
            self.words[0] = value[0] & PAYLOAD;
            self.tag = value[1] & PAYLOAD;
        } else {
            self.words[2 * pair - 1] = value[0] & PAYLOAD;
            if 2 * pair < MAX_WORDS {
                self.words[2 * pair] = value[1] & PAYLOAD;
            }
        }
    }

    /// Puts the displaced top bits back once all pairs are taken, and clears what is no payload.
    #[inline(always)]
    pub fn restore(&mut self, words: usize) {
        let tops = self.tag >> TAG_BITS;
        self.tag &= (1 << TAG_BITS) - 1;
        let mut i = 0;
        while i < MAX_WORDS {
            if i < words {
                self.words[i] |= ((tops >> i) & 1) << 63;
            } else {
                self.words[i] = 0;
            }
            i += 1;
        }
    }
}

/// The tag of a request line.
///
/// | bits | field |
/// |---|---|
/// | 50–55 | index of the lane in its wave |
/// | 18–49 | deadline in µs after the host saw the call, 0 for none |
/// | 0–17 | low bits of the slot's post position (for a doorbell with `after_posts`) |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTag {
    /// Index of the lane in its wave.
    pub lane: u8,
    /// Deadline in µs after the host saw the call; 0 for none.
    pub timeout_us: u32,
    /// Low [`POST_POSITION_BITS`] bits of the slot's post position.
    pub post_position: u32,
}

/// Bits of the post position in a [`RequestTag`]; a ring has fewer entries than this counts.
pub const POST_POSITION_BITS: u32 = 18;

impl RequestTag {
    /// The tag's bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        ((self.lane as u64 & 63) << 50)
            | ((self.timeout_us as u64) << 18)
            | (self.post_position as u64 & ((1 << POST_POSITION_BITS) - 1))
    }

    /// The tag of these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            lane: ((bits >> 50) & 63) as u8,
            timeout_us: (bits >> 18) as u32,
            post_position: (bits & ((1 << POST_POSITION_BITS) - 1)) as u32,
        }
    }
}

/// Whose a slot's calls or posts are. A wave publishes it as the slot's owner pair before the first call of a claim, and as
/// an entry of the slot's ring before the first post of a claim.
///
/// | word | bits | field |
/// |---|---|---|
/// | 0 | 63 | lap: the claim's parity in a pair, that of the ring's pass in an entry |
/// | 0 | 50–56 | index of the wave in its workgroup |
/// | 0 | 32–49 | home slot of the wave plus one if the slot is an extra one, else 0 |
/// | 0 | 0–31 | launch |
/// | 1 | 63 | lap |
/// | 1 | 54 | one in an entry, where a post's head has zero |
/// | 1 | 0–31 | linear index of the workgroup |
///
/// All other bits are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The launch.
    pub launch: LaunchId,
    /// Home slot of the wave, if the slot is an extra one.
    pub home: Option<u32>,
    /// Index of the wave in its workgroup, less than 128.
    pub wave: u32,
    /// Linear index of the workgroup, x fastest.
    pub workgroup: u32,
}

/// Bit of a ring entry's second word that says that the entry is an [`Owner`].
const OWNER_ENTRY: u64 = 1 << 54;

impl Owner {
    /// The words of the slot's owner pair, without their laps.
    #[inline(always)]
    pub const fn to_pair(self) -> [u64; 2] {
        let home = match self.home {
            Some(home) => home as u64 + 1,
            None => 0,
        };
        [self.launch.to_bits() as u64 | home << 32 | ((self.wave & 127) as u64) << 50, self.workgroup as u64]
    }

    /// The words of an entry of the slot's ring, without their laps.
    #[inline(always)]
    pub const fn to_entry(self) -> [u64; 2] {
        let [first, second] = self.to_pair();
        [first, second | OWNER_ENTRY]
    }

    /// Reads a pair that a device wrote; laps do not matter. `None` when it is none.
    #[inline(always)]
    pub const fn from_pair([first, second]: [u64; 2]) -> Option<Self> {
        if first & PAYLOAD >> 57 << 57 != 0 || second & PAYLOAD >> 32 << 32 != 0 {
            return None;
        }
        Some(Self {
            launch: LaunchId::from_bits(first as u32),
            home: ((first >> 32) as u32 & 0x3_ffff).checked_sub(1),
            wave: (first >> 50) as u32 & 127,
            workgroup: second as u32,
        })
    }

    /// Reads an entry of a ring; laps do not matter. `None` when it is a post, or nothing at all.
    #[inline(always)]
    pub const fn from_entry([first, second]: [u64; 2]) -> Option<Self> {
        if second & OWNER_ENTRY == 0 { None } else { Self::from_pair([first, second & !OWNER_ENTRY]) }
    }
}

/// Most payload words of a post.
pub const MAX_POST_WORDS: usize = 5;

/// Most argument or result words of a method, bytes aside. More than [`MAX_WORDS`] travel as bytes.
pub const MAX_TYPED_WORDS: usize = 64;

/// The second word of the first entry of a post.
///
/// A post is 1 to 3 entries of 16 bytes in the slot's ring: (word 0, head), then (word 1, word 2) and
/// (word 3, word 4) as needed. Every word carries the lap of its pass round the ring.
///
/// | bits | field |
/// |---|---|
/// | 63 | lap |
/// | 58–62 | displaced top bits of words 0–4 |
/// | 55–57 | payload words |
/// | 54 | zero |
/// | 38–53 | service number |
/// | 32–37 | index of the lane in its wave |
/// | 0–31 | 32 more payload bits |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostHead {
    /// Number of the service.
    pub service: u16,
    /// Index of the lane in its wave.
    pub lane: u8,
    /// Payload words, 0 to 5.
    pub words: u8,
    /// 32 payload bits beside the words; a typed post puts the schema check there.
    pub extra: u32,
}

impl PostHead {
    /// Entries that a post of `words` words takes.
    #[inline(always)]
    pub const fn entries_for(words: usize) -> usize {
        1 + words / 2
    }

    /// The head word, without its lap, for these payload words.
    #[inline(always)]
    pub fn to_word(self, words: &[u64]) -> u64 {
        let mut word = ((self.words as u64 & 7) << 55)
            | ((self.service as u64) << 38)
            | ((self.lane as u64 & 63) << 32)
            | self.extra as u64;
        let mut i = 0;
        while i < words.len() && i < MAX_POST_WORDS {
            word |= (words[i] >> 63) << (58 + i);
            i += 1;
        }
        word
    }

    /// Reads a head word and the displaced top bits that it carries. `None` when a device wrote what is no
    /// head.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<(Self, u8)> {
        let words = ((word >> 55) & 7) as u8;
        if words as usize > MAX_POST_WORDS || word & (1 << 54) != 0 {
            return None;
        }
        let head =
            Self { service: (word >> 38) as u16, lane: ((word >> 32) & 63) as u8, words, extra: word as u32 };
        Some((head, ((word >> 58) & 31) as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_the_link() {
        let tag = RequestTag { lane: 63, timeout_us: u32::MAX, post_position: 0x3_ffff };
        assert!(tag.to_bits() < 1 << TAG_BITS);
        assert_eq!(RequestTag::from_bits(tag.to_bits()), tag);
    }

    #[test]
    fn a_doorbell_survives_the_link() {
        let doorbell = Doorbell {
            service: 0xabcd,
            lanes: 64,
            first_lane: 63,
            argument_words: 7,
            result_words: 5,
            check: 0xf_1234,
            kind: Kind::BytesMore,
            after_posts: true,
            lines: true,
        };
        for lap in [false, true] {
            let word = doorbell.to_word(lap) | u64::from(!lap);
            assert_eq!(lap_of(word), lap);
            let rung = Rung::from_word(word, 64).unwrap();
            assert_eq!((rung.service(), rung.lanes(), rung.first_lane()), (0xabcd, 64, 63));
            assert_eq!((rung.argument_words(), rung.result_words(), rung.check()), (7, 5, 0xf_1234));
            assert_eq!((rung.kind(), rung.is_after_posts(), rung.has_lines()), (Kind::BytesMore, true, true));
            assert_eq!(rung.parity(), !lap);
            assert_eq!(
                Some(rung.from_any_lane()),
                Rung::from_word(Doorbell { first_lane: 0, ..doorbell }.to_word(lap), 64)
            );
            assert_eq!(Rung::from_word(word, 32), None);
            assert_eq!(Rung::from_word(word | 2, 64), None);
            assert_eq!(Rung::from_word(word | 1 << 8, 64), None);
            assert_eq!(Rung::from_word(word | 3 << 6, 64), None);
        }
        let null = Doorbell { lanes: 1, argument_words: 0, after_posts: false, lines: false, ..doorbell };
        assert!(Rung::from_word(null.to_word(true), 64).is_some());
        for wrong in [
            Doorbell { lanes: 2, ..null },
            Doorbell { argument_words: 1, ..null },
            Doorbell { after_posts: true, ..null },
        ] {
            assert_eq!(Rung::from_word(wrong.to_word(true), 64), None);
        }
    }

    #[test]
    fn a_line_survives_the_link() {
        for words in 0..=MAX_WORDS {
            let mut line = Line { tag: (1 << TAG_BITS) - 1, ..Line::default() };
            for (i, word) in line.words.iter_mut().enumerate().take(words) {
                *word = if i % 2 == 0 { u64::MAX - i as u64 } else { i as u64 };
            }
            let mut back = Line { words: [u64::MAX; MAX_WORDS], tag: 0 };
            for pair in 0..pairs_for(words) {
                let [a, b] = line.pair(pair, words);
                assert!(!lap_of(a) && !lap_of(b));
                back.set_pair(pair, [with_lap(a, true), with_lap(b, true)]);
            }
            back.restore(words);
            assert_eq!(back, line, "{words} words");
        }
    }

    #[test]
    fn a_post_head_survives_the_link() {
        let head = PostHead { service: 0xffff, lane: 63, words: 5, extra: u32::MAX };
        let words = [u64::MAX, 0, u64::MAX, 0, u64::MAX];
        let word = head.to_word(&words);
        assert!(!lap_of(word));
        assert_eq!(PostHead::from_word(with_lap(word, true)), Some((head, 0b10101)));
        assert_eq!(PostHead::from_word(6 << 55), None);
        assert_eq!([0, 1, 2, 3, 4, 5].map(PostHead::entries_for), [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn owners_survive_the_link() {
        for home in [None, Some(0), Some(65_535)] {
            let launch = LaunchId::new(131_071, LaunchId::LAST_GENERATION);
            let owner = Owner { launch, home, wave: 127, workgroup: u32::MAX };
            let laps = |words: [u64; 2]| words.map(|word| with_lap(word, true));
            assert!(owner.to_pair().iter().chain(&owner.to_entry()).all(|word| !lap_of(*word)));
            assert_eq!(Owner::from_pair(laps(owner.to_pair())), Some(owner));
            assert_eq!(Owner::from_entry(laps(owner.to_entry())), Some(owner));
            assert_eq!(Owner::from_entry(owner.to_pair()), None);
            assert_eq!(Owner::from_pair(owner.to_entry()), None);
            assert_eq!(PostHead::from_word(owner.to_entry()[1]), None);
        }
        assert_eq!(Owner::from_pair([1 << 57, 0]), None);
        assert_eq!(Owner::from_pair([0, 1 << 32]), None);
    }
}
