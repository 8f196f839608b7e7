//! The words of calls with bytes: what heads a message, and where a reply is.

use super::PAYLOAD;
use crate::MAX_WORDS;

/// The argument words of a packet of kind [`Kind::Bytes`](super::Kind::Bytes) or [`Kind::BytesMore`](super::Kind::BytesMore).
///
/// A byte message is a run of 8-byte argument words and then the bytes of the call's slices; it lies in the
/// slot's byte area, in pieces if it is longer. The reply is result words and then bytes. A short one comes with the
/// answer ([`bytes_result_words`]); of another the bytes lie in the same area or, if they do not fit there, in a loan:
/// memory of the host that the lane reads in place.
///
/// Where a copy of the host's reaches the device's memory, a lane may leave its slices where they are and say so, and
/// it may say where it wants the reply's bytes. It lends that memory until it has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesHead {
    /// Whether the message begins with this packet. What the host has of an earlier message of the lane, which was
    /// interrupted, is forgotten then.
    pub begins: bool,
    /// Bytes of the message in this packet.
    pub piece_bytes: u32,
    /// The large area that has them and gets the reply's, if it is not the slot's own. Less than 2³¹ − 1.
    pub area: Option<u32>,
    /// Bytes of the whole message, but for what is in the line.
    pub total_bytes: u64,
    /// The message's argument words: in the line, behind the head, if they are [`BytesHead::LINE_WORDS`] at most; else where the
    /// message begins.
    pub argument_words: u16,
    /// Most bytes of reply that the caller takes after the result words. At most 2⁴⁸ − 1.
    pub reply_capacity: u64,
    /// Where the message's bytes after the argument words are, in memory of the device; 0 if they come in packets. Those are
    /// not among [`BytesHead::piece_bytes`].
    pub bytes_at: u64,
    /// Where the caller wants the reply's bytes, and whether it takes them out of a loan by itself.
    pub reply_at: ReplyAt,
}

impl BytesHead {
    /// Words of the line that carry the head.
    pub const WORDS: usize = 5;

    /// Words of the line that carry the head on devices whose memory no copy of the host's reaches: it lacks the last two.
    pub const SHORT_WORDS: usize = 3;

    /// Words of the line behind the head.
    pub const LINE_WORDS: usize = 2;

    /// Bytes of argument words where the message begins.
    #[inline(always)]
    pub const fn words_end(self) -> usize {
        if self.argument_words as usize <= Self::LINE_WORDS { 0 } else { self.argument_words as usize * 8 }
    }

    /// The head as words of a line.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        let capacity = self.reply_capacity & ((1 << 48) - 1);
        let area = match self.area {
            Some(area) => area as u64 + 1,
            None => 0,
        };
        [
            self.piece_bytes as u64 | area << 32 & PAYLOAD | (self.begins as u64) << 63,
            self.total_bytes,
            ((self.argument_words as u64) << 48) | capacity,
            self.bytes_at,
            self.reply_at.0,
        ]
    }

    /// The head in these words of a line.
    #[inline(always)]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self {
            begins: words[0] >> 63 != 0,
            piece_bytes: words[0] as u32,
            area: ((words[0] >> 32) as u32 & (u32::MAX >> 1)).checked_sub(1),
            total_bytes: words[1],
            argument_words: (words[2] >> 48) as u16,
            reply_capacity: words[2] & ((1 << 48) - 1),
            bytes_at: words[3],
            reply_at: ReplyAt(words[4]),
        }
    }
}

/// Result words of the answer to a call with bytes, of a method that has `result_words` itself. Each look at what lies elsewhere
/// takes a GPU as long as a call, and so does each two pairs of the answer: hence no more words than mostly serve.
///
/// | word | what |
/// |---|---|
/// | 0 | bytes of the whole reply; [`REPLY_IS_THERE`] added if those after its result words are at [`BytesHead::reply_at`] |
/// | 1 on | a reply that fits in these words and is not there, whole; of any other: |
/// | 1 | where its bytes are: 0 in the byte area, or the address of a loan |
/// | 2 on | its result words, if they fit |
///
/// What comes here lies nowhere else. In the byte area bytes begin at [`reply_bytes_at`].
#[inline(always)]
pub const fn bytes_result_words(result_words: usize) -> usize {
    if result_words <= 1 { 3 } else { MAX_WORDS }
}

/// Where in a lane's share of the byte area the bytes of a reply begin that has so many result words: after the room of these,
/// at a multiple of 16.
#[inline(always)]
pub const fn reply_bytes_at(result_words: usize) -> usize {
    (8 * result_words).next_multiple_of(16)
}

/// Where a caller wants the bytes of a reply, in memory of its device, and whether it *pulls*: takes them out of a loan as fast as
/// the host copies them.
///
/// | bits | what |
/// |---|---|
/// | 0–60 | the address; 0 if there is no such place |
/// | 61–63 | 0 if the lane does not pull; else `n`, if it pulls up to 2¹²⁺ⁿ bytes sooner than the host has copied them that copies for nobody else |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyAt(u64);

/// Most bytes that a lane is to pull while the host copies for others, if it would not pull more then in any case.
pub const MOST_REPLY_TO_PULL: usize = 256 << 10;

impl ReplyAt {
    /// Bits of the address.
    pub const ADDRESS_BITS: u32 = 61;

    /// The logarithm to base 2 of the most bytes, where `n` is 0.
    const LEAST_LOG: u32 = 12;

    /// So many bytes a lane that pulls has pulled sooner than the host has copied them, whoever it is.
    pub const LEAST_TO_PULL_ALONE: usize = 2 << Self::LEAST_LOG;

    /// No place.
    pub const NONE: Self = Self(0);

    /// A place at an address, whose lane pulls up to `most` bytes, rounded to a power of two from 2¹³ to 2¹⁹, if that is not 0.
    #[inline(always)]
    pub const fn new(address: u64, most: u32) -> Self {
        let n = match most.checked_ilog2() {
            None => 0,
            Some(log) if log <= Self::LEAST_LOG => 1,
            Some(log) if log > Self::LEAST_LOG + 7 => 7,
            Some(log) => log - Self::LEAST_LOG,
        };
        Self(address | (n as u64) << Self::ADDRESS_BITS)
    }

    /// The address; 0 if there is no place.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.0 & ((1 << Self::ADDRESS_BITS) - 1)
    }

    /// Whether the lane pulls.
    #[inline(always)]
    pub const fn pulls(self) -> bool {
        self.0 >> Self::ADDRESS_BITS != 0
    }

    /// Most bytes that the lane pulls while the host copies for nobody else; 0 if it does not pull.
    #[inline(always)]
    pub const fn most_to_pull_alone(self) -> usize {
        match self.0 >> Self::ADDRESS_BITS {
            0 => 0,
            n => 1 << (Self::LEAST_LOG as u64 + n),
        }
    }
}

/// See [`bytes_result_words`]. No reply is so long.
pub const REPLY_IS_THERE: u64 = 1 << 63;

/// Bytes of a message from which a lane leaves them where they are. It writes some 1600 bytes into packets in the time that it
/// takes the host to fetch them.
pub const LEAST_MESSAGE_TO_FETCH: usize = 4096;

/// Bytes of a reply from which a lane says where it wants it. To have it put there takes the host some 10 µs, and a GPU's
/// lane reads 280 bytes of the host's memory meanwhile.
pub const LEAST_REPLY_TO_PUT: usize = 512;

/// Bytes that a lane pulls sooner than it loads them: that takes 3 µs for any few of them, as six loads of 16 bytes do.
pub const LEAST_REPLY_TO_PULL: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_says_where_it_wants_its_reply_and_how_much_it_pulls() {
        let address = (1 << ReplyAt::ADDRESS_BITS) - 1;
        let most = [0, 1, 4096, 8191, 8192, 16_383, 1 << 19, u32::MAX].map(|most| {
            let at = ReplyAt::new(address, most);
            assert_eq!((at.address(), at.pulls()), (address, most > 0));
            at.most_to_pull_alone()
        });
        assert_eq!(most, [0, 8192, 8192, 8192, 8192, 8192, 1 << 19, 1 << 19]);
        assert_eq!(ReplyAt::default(), ReplyAt::NONE);
    }

    #[test]
    fn a_head_survives_the_link() {
        let head = BytesHead {
            begins: true,
            piece_bytes: u32::MAX,
            area: Some(4095),
            total_bytes: u64::MAX,
            argument_words: 0xffff,
            reply_capacity: (1 << 48) - 1,
            bytes_at: u64::MAX,
            reply_at: ReplyAt(u64::MAX - 1),
        };
        assert_eq!(BytesHead::from_words(head.to_words()), head);
    }
}
