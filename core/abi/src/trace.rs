//! Trace points: what `span!`, `counter!` and `event!` in kernels write to the raw channel of a device that is traced, and the
//! word by which the host switches them on and off ([`PointSwitch`]).
//!
//! A record is of whole pairs of words:
//!
//! | word | of all | end of a span | counter | event |
//! |---|---|---|---|---|
//! | 0 | the device's clock in ns | | | |
//! | 1 | [`PointHead`], with [`PointHead::of_wave`] | | | |
//! | 2 | the launch, and in the upper half the workgroup: [`owner`] | | | |
//! | 3 | | the clock when the span began | the value | its arguments, up to five |
//! | behind | a word that fills a pair | | | |
//!
//! A page has records of the waves that held its slot one after the other, or of kernels that others launch ([`OF_OTHERS`]) of those
//! that came to its place.
//!
//! No word of a record of theirs is 0, and their pages are zeros when they are given out: so the host sees by the words alone how far
//! a page is written ([`OwnRecords`]). A value that is 0 is stored as another one, and [`IS_ZERO_SHIFT`] says so.

/// Bits of a trace point's id.
pub const POINT_ID_BITS: u32 = 24;

/// What the host gives in place of an id for a point that it does not want to hear of: lanes do not ask again before the switch
/// has another number.
pub const UNWANTED: u32 = (1 << POINT_ID_BITS) - 1;

/// Whether trace points write, and where: a word in memory of the device, which the host changes while kernels run, and kernels
/// read at each trace point. The default is off.
///
/// | bits | |
/// |---|---|
/// | 0 | whether points write |
/// | 1–4 and 48–63 | the switch's number |
/// | 5–47 | the address of the channel's [`RawParams`](crate::raw::RawParams) |
///
/// The number is another one each time that something else is wanted: what a point remembers of one number does not hold for others.
/// The address stays when points are switched off, for spans that end then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointSwitch(u64);

impl PointSwitch {
    /// Bits of the number.
    pub const NUMBER_BITS: u32 = 20;
    const LOW_BITS: u32 = 4;
    /// What addresses are multiples of, at least.
    const ALIGN: u64 = 1 << (Self::LOW_BITS + 1);
    const ADDRESS: u64 = (1 << 48) - Self::ALIGN;

    /// The switch for a channel whose parameters lie there; `None` where the word has no room for the address.
    pub const fn new(params: u64, number: u32, is_on: bool) -> Option<Self> {
        if params & !Self::ADDRESS != 0 || params == 0 {
            return None;
        }
        let (low, high) = (number as u64 & 0xf, (number as u64 >> Self::LOW_BITS) & 0xffff);
        Some(Self(is_on as u64 | low << 1 | params | high << 48))
    }

    /// The switch with this word.
    #[inline(always)]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// The word.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Whether points write.
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        self.0 & 1 != 0
    }

    /// Its number, of [`PointSwitch::NUMBER_BITS`] bits.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        ((self.0 >> 1) & 0xf | (self.0 >> 48) << Self::LOW_BITS) as u32
    }

    /// The address of the channel's parameters; 0 before points were on.
    #[inline(always)]
    pub const fn params(self) -> u64 {
        self.0 & Self::ADDRESS
    }
}

/// Most arguments of an event.
pub const MAX_POINT_WORDS: usize = crate::word::MAX_POST_WORDS;

/// What a trace point says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PointKind {
    /// A span begins.
    #[default]
    Begin = 1,
    /// A span ends.
    End = 2,
    /// A counter has a value.
    Counter = 3,
    /// Something happened.
    Event = 4,
}

impl PointKind {
    /// The kind with this code.
    pub const fn of(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Begin),
            2 => Some(Self::End),
            3 => Some(Self::Counter),
            4 => Some(Self::Event),
            _ => None,
        }
    }
}

/// The second word of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointHead {
    /// What it says.
    pub kind: PointKind,
    /// Which point of the program says it, by the id that the host gave it: 1 to 2²⁴ − 2.
    pub point: u32,
    /// Words behind the owner that mean something.
    pub words: u32,
    /// Lanes that came there together, up to 64.
    pub lanes: u32,
    /// The first of them: its index in the wave. Of a span's end, that lane of its begin.
    pub first_lane: u32,
}

impl PointHead {
    /// The word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        let low = self.point & ((1 << POINT_ID_BITS) - 1)
            | (self.kind as u32) << POINT_ID_BITS
            | self.words << (POINT_ID_BITS + 3);
        low as u64 | (self.lanes as u64) << 32 | (self.first_lane as u64) << 40
    }

    /// The word for a record of the wave at this place in its workgroup.
    #[inline(always)]
    pub const fn of_wave(self, wave: u32) -> u64 {
        self.to_word() | (wave as u64 & 0x3ff) << WAVE_SHIFT
    }

    /// What a word says, if it is a head.
    pub const fn of_word(word: u64) -> Option<Self> {
        let low = word as u32;
        let Some(kind) = PointKind::of(low >> POINT_ID_BITS & 7) else { return None };
        let head = Self {
            kind,
            point: low & ((1 << POINT_ID_BITS) - 1),
            words: low >> (POINT_ID_BITS + 3),
            lanes: (word >> 32) as u32 & 0xff,
            first_lane: (word >> 40) as u32 & 0x3f,
        };
        let fits = match kind {
            PointKind::Begin => head.words == 0,
            PointKind::End | PointKind::Counter => head.words == 1,
            PointKind::Event => head.words as usize <= MAX_POINT_WORDS,
        };
        if fits && head.point != 0 { Some(head) } else { None }
    }

    /// Bytes of the record: whole pairs.
    #[inline(always)]
    pub const fn record_bytes(self) -> u32 {
        record_bytes(self.words)
    }
}

/// Bit of a head: the record is of a kernel that others launched, whose waves hold no slot.
pub const OF_OTHERS: u64 = 1 << 63;

/// First of the bits of such a head that say which of the record's values are 0.
pub const IS_ZERO_SHIFT: u32 = 56;

/// Bytes of the longest record. A page of records of others is full where it has no more than would be too few for it.
pub const MOST_RECORD_BYTES: u32 = record_bytes(MAX_POINT_WORDS as u32);

/// How far a page is written whose records are [`OF_OTHERS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnRecords {
    /// Bytes of whole records from the page's begin on.
    pub bytes: u32,
    /// Whether the page gets no more: it is full, or what comes next is no record.
    pub is_full: bool,
}

impl OwnRecords {
    /// Reads words of a page of so many bytes from byte `from` on, where a record begins.
    pub fn read(from: u32, page_bytes: u32, word: impl Fn(u32) -> u64) -> Self {
        let mut bytes = from;
        while bytes + MOST_RECORD_BYTES <= page_bytes {
            let first = bytes / 8;
            let (time, head) = (word(first), word(first + 1));
            if time == 0 || head == 0 {
                return Self { bytes, is_full: false };
            }
            let Some(head) = PointHead::of_word(head).filter(|_| head & OF_OTHERS != 0) else {
                // No wave of ours writes that. The reader finds that it is no record.
                return Self { bytes: page_bytes, is_full: true };
            };
            let behind = bytes + head.record_bytes();
            if (first + 2..behind / 8).any(|at| word(at) == 0) {
                return Self { bytes, is_full: false };
            }
            bytes = behind;
        }
        Self { bytes, is_full: true }
    }

    /// How many records there are from byte `from` on, whatever lies between them: a wave that was killed has left a gap. Values may
    /// look like heads, so that there may seem to be more.
    pub fn count(from: u32, page_bytes: u32, word: impl Fn(u32) -> u64) -> u64 {
        let (mut count, mut at) = (0, from);
        while at + MOST_RECORD_BYTES <= page_bytes {
            let head = word(at / 8 + 1);
            let head = PointHead::of_word(head).filter(|_| head & OF_OTHERS != 0);
            count += u64::from(head.is_some());
            at += head.map_or(16, PointHead::record_bytes);
        }
        count
    }
}

/// The third word of a record: the launch's bits, and the workgroup.
#[inline(always)]
pub const fn owner(launch: u32, workgroup: u32) -> u64 {
    launch as u64 | (workgroup as u64) << 32
}

/// Where a head has [`wave_of`].
const WAVE_SHIFT: u32 = 46;

/// Bits of a head that say what [`PointHead`] does.
const HEAD_BITS: u64 = (1 << WAVE_SHIFT) - 1;

/// The wave's place in its workgroup, by the head of a record.
pub const fn wave_of(word: u64) -> u32 {
    (word >> WAVE_SHIFT) as u32 & 0x3ff
}

/// The same head without what says which wave's it is.
pub const fn without_wave(word: u64) -> u64 {
    word & HEAD_BITS
}

/// Bytes of a record with so many words behind its owner.
#[inline(always)]
pub const fn record_bytes(words: u32) -> u32 {
    16 + (words + 1).div_ceil(2) * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_words() {
        let params = 0x7fff_1234_5640;
        for number in [1, 15, 16, (1 << PointSwitch::NUMBER_BITS) - 1] {
            for is_on in [false, true] {
                let switch = PointSwitch::new(params, number, is_on).unwrap();
                let read = PointSwitch::of_word(switch.to_word());
                assert_eq!((read.params(), read.number(), read.is_on()), (params, number, is_on));
            }
        }
        assert_eq!(PointSwitch::new(params + 16, 1, true), None);
        assert_eq!(PointSwitch::new(1 << 48, 1, true), None);
        assert!(!PointSwitch::default().is_on());
    }

    #[test]
    fn heads_are_words() {
        for (kind, words) in [(PointKind::Begin, 0), (PointKind::End, 1), (PointKind::Counter, 1)] {
            let head = PointHead { kind, point: (1 << POINT_ID_BITS) - 1, words, lanes: 64, first_lane: 63 };
            assert_eq!(PointHead::of_word(head.to_word()), Some(head));
            let other = PointHead { words: words + 1, ..head };
            assert_eq!(PointHead::of_word(other.to_word()), None, "another number of words");
        }
        for words in 0..=7 {
            let head = PointHead { kind: PointKind::Event, point: 1, words, lanes: 1, first_lane: 0 };
            let is_one = words <= MAX_POINT_WORDS as u32;
            assert_eq!(PointHead::of_word(head.to_word()), is_one.then_some(head));
            assert!(head.record_bytes() >= 24 + 8 * words && head.record_bytes().is_multiple_of(16));
        }
        for none in [0, 1, 5 << POINT_ID_BITS | 1, 1 << POINT_ID_BITS] {
            assert_eq!(PointHead::of_word(none), None);
        }
    }

    #[test]
    fn records_say_by_themselves_that_they_are_there() {
        const PAGE: u32 = 256;
        let of = |kind, words| {
            let head = PointHead { kind, point: 1, words, lanes: 1, first_lane: 0 }.to_word() | OF_OTHERS;
            [[7, head, 7, 7], [7; 4]].concat()[..record_bytes(words) as usize / 8].to_vec()
        };
        let [counter, event] = [of(PointKind::Counter, 1), of(PointKind::Event, 5)];
        let whole = [&counter[..], &event, &counter, &counter, &[0; 8]].concat();
        let read = |words: &[u64], from| OwnRecords::read(from, PAGE, |at| words[at as usize]);
        let at = |bytes, is_full| OwnRecords { bytes, is_full };
        assert_eq!(read(&whole, 0), at(160, false));
        for missing in 0..20 {
            let mut words = whole.clone();
            words[missing] = 0;
            let begin = [0, 32, 32, 96, 128][missing / 4];
            assert_eq!(read(&words, 0), at(begin, false), "{missing}");
        }
        // Without the head of the event, two of four are recognised behind it.
        let mut words = whole.clone();
        words[5] = 0;
        assert_eq!(OwnRecords::count(32, PAGE, |at| words[at as usize]), 2);
        // What has no room for the longest record stays as it is.
        let full = [&whole[..20], &event, &[0; 4]].concat();
        assert_eq!((read(&full, 32), read(&full, 224)), (at(224, true), at(224, true)));
        words[5] = 5;
        assert_eq!(read(&words, 0), at(PAGE, true), "no head");
    }
}
