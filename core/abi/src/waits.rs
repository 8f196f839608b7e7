//! The wait table: what waves say that have waited for a while, in memory of the host.
//!
//! A wave waits in loops that no server knows of: for a flag that another device sets, at a barrier of the author's, for a page.
//! Who has polled often enough takes an *entry* of the table and says where it is, what it waits for, and since when. An entry is 64
//! bytes in the host's memory, which the device alone writes, so that the host reads all without asking a driver.
//!
//! | memory of | what |
//! |---|---|
//! | the device | [`WaitParams`], then one [`Holder`] an entry: who has it. Waves take entries here, by compare-exchange |
//! | the host | [`HEADER_WORDS`], then one [`Entry`] each |
//!
//! An entry's first word is 0 while nobody waits there. It is stored last, and differs from use to use, so that an entry which
//! changes while it is read is not believed.

use crate::launch::LaunchId;

/// Version of the table as kernels of other compilers find it ([`crate::context::WAITS_SHIFT`]).
pub const WAITS_VERSION: u32 = 1;

/// Most entries of a table. Waits that find none are counted.
pub const MOST_ENTRIES: u32 = 4096;

/// Entries that a wave looks at, from one on that depends on where it runs, before its wait is one that is not told.
pub const TRIES: u32 = 16;

/// Which entry a wave looks at in its `i`-th try, from the first on: waves at like places of the device begin at the same one, and those
/// close by have the next ones.
#[inline(always)]
pub const fn tried(first: u32, i: u32) -> u32 {
    first.wrapping_add(TRY_STRIDE * (i * (i + 1) / 2))
}

/// Entries between the first two tries: more than lanes of a wave, and odd, so that all entries of a small table are tried.
pub const TRY_STRIDE: u32 = 65;

/// Polls after which a wait is told, as a power of two. From then on the wave says after twice as many polls each time that it
/// still waits.
pub const TELL_AFTER_LOG2: u32 = 10;

/// Most polls between two times that a wave says that it still waits, as a power of two.
pub const TELL_EVERY_LOG2: u32 = 13;

/// Words of the host's memory before the first entry.
pub const HEADER_WORDS: usize = 8;

/// Word of the header: how many waits found no entry, as far as waves have told.
pub const UNTOLD_WORD: usize = 0;

/// Word of the header: not 0 once a wave has taken an entry.
pub const USED_WORD: usize = 1;

/// Words of an entry.
pub const ENTRY_WORDS: usize = 8;

/// Bits of a lap ([`Holder::lap`]).
pub const LAP_BITS: u32 = 19;

/// Most bytes of a name: what is longer is cut.
pub const NAME_BYTES: usize = 16;

/// Where waves find the table: in memory of the device, and right behind it a [`Holder`] for each entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct WaitParams {
    /// The device's address of the table in the host's memory.
    pub table: u64,
    /// Entries: a power of two, at most [`MOST_ENTRIES`].
    pub entries: u32,
    /// 0.
    pub zero: u32,
    /// How many waits found no entry, ever. Waves count here, and store what they find to [`UNTOLD_WORD`].
    pub untold: u64,
    /// On the software device a function that returns the clock in ns and stores the calling thread's number (from 0 on) to the
    /// 32-bit word at its argument; else 0.
    pub here: u64,
    /// Zeros.
    pub reserved: [u64; 4],
}

/// Bytes of [`WaitParams`].
pub const WAIT_PARAMS_BYTES: usize = size_of::<WaitParams>();

const _: () = assert!(WAIT_PARAMS_BYTES == 64);

/// Words of the host's memory that a table of so many entries takes.
pub const fn table_words(entries: u32) -> usize {
    HEADER_WORDS + entries as usize * ENTRY_WORDS
}

/// Who has an entry. As a word: the launch below, the lap above, which counts the entry's uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// [`LaunchId::NONE`] if nobody has it.
    pub launch: LaunchId,
    /// Of the use that is or was last: [`LAP_BITS`].
    pub lap: u32,
}

impl Holder {
    /// The word's meaning.
    #[inline(always)]
    pub const fn of_word(word: u64) -> Self {
        Self { launch: LaunchId::from_bits(word as u32), lap: (word >> 32) as u32 }
    }

    /// As a word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.launch.to_bits() as u64 | (self.lap as u64) << 32
    }

    /// The next use, a launch's.
    #[inline(always)]
    pub const fn taken_by(self, launch: LaunchId) -> Self {
        Self { launch, lap: self.lap.wrapping_add(1) & ((1 << LAP_BITS) - 1) }
    }

    /// Nobody's, after this use.
    #[inline(always)]
    pub const fn freed(self) -> Self {
        Self { launch: LaunchId::NONE, lap: self.lap }
    }
}

/// What kind of thing a wave waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A word that somebody sets.
    Flag = 1,
    /// Others that come to the same place.
    Barrier = 2,
    /// A free call slot.
    Slot = 3,
    /// A free page of a raw channel.
    Page = 4,
}

impl Kind {
    /// The kind with this number.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Flag),
            2 => Some(Self::Barrier),
            3 => Some(Self::Slot),
            4 => Some(Self::Page),
            _ => None,
        }
    }
}

/// In place of a peer: none.
pub const NO_PEER: u32 = u32::MAX;

/// The first word of an entry: bits 0 to 31 the peer, then 7 bits of how many lanes wait, 10 of the wave in its workgroup, 4 of the
/// [`Kind`], 10 of the lap, and bit 63 set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The rank that is waited for, or [`NO_PEER`].
    pub peer: u32,
    /// Lanes that wait.
    pub lanes: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// A [`Kind`]'s number.
    pub kind: u8,
    /// The low bits of [`Holder::lap`].
    pub lap: u32,
}

impl Head {
    /// As a word, which is not 0.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.peer as u64
            | (self.lanes as u64 & 0x7f) << 32
            | (self.wave as u64 & 0x3ff) << 39
            | (self.kind as u64 & 0xf) << 49
            | (self.lap as u64 & 0x3ff) << 53
            | 1 << 63
    }

    /// The word's meaning; `None` of 0, and of what no wave writes.
    pub const fn of_word(word: u64) -> Option<Self> {
        if word >> 63 == 0 {
            return None;
        }
        Some(Self {
            peer: word as u32,
            lanes: (word >> 32) as u32 & 0x7f,
            wave: (word >> 39) as u32 & 0x3ff,
            kind: (word >> 49) as u8 & 0xf,
            lap: (word >> 53) as u32 & 0x3ff,
        })
    }
}

/// An entry, word by word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Entry {
    /// A [`Head`], or 0.
    pub head: u64,
    /// The launch below, the workgroup above.
    pub place: u64,
    /// When the wave took the entry, by the device's clock.
    pub since_ns: u64,
    /// When it said last that it still waits.
    pub seen_ns: u64,
    /// What it polls; 0 if that is not known.
    pub address: u64,
    /// Which of the events at that place it waits for.
    pub sequence: u64,
    /// Bytes of a name, and then zeros.
    pub name: [u64; NAME_BYTES / 8],
}

const _: () = assert!(size_of::<Entry>() == 8 * ENTRY_WORDS);

/// Places of an entry's words.
pub mod at {
    /// [`super::Entry::head`].
    pub const HEAD: usize = 0;
    /// [`super::Entry::place`].
    pub const PLACE: usize = 1;
    /// [`super::Entry::since_ns`].
    pub const SINCE_NS: usize = 2;
    /// [`super::Entry::seen_ns`].
    pub const SEEN_NS: usize = 3;
    /// [`super::Entry::address`].
    pub const ADDRESS: usize = 4;
    /// [`super::Entry::sequence`].
    pub const SEQUENCE: usize = 5;
    /// [`super::Entry::name`].
    pub const NAME: usize = 6;
}

/// A name as an entry has it: its first bytes, cut where a character ends.
pub const fn name_words(name: &str) -> [u64; NAME_BYTES / 8] {
    let bytes = name.as_bytes();
    let mut end = if bytes.len() < NAME_BYTES { bytes.len() } else { NAME_BYTES };
    while end < bytes.len() && end > 0 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    let (mut words, mut i) = ([0; NAME_BYTES / 8], 0);
    while i < end {
        words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
        i += 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let most = Head { peer: NO_PEER, lanes: 64, wave: 1023, kind: 4, lap: 1023 };
        let least = Head { peer: 0, lanes: 1, wave: 0, kind: 1, lap: 0 };
        for head in [most, least, Head { peer: 7, lanes: 33, wave: 9, kind: 2, lap: 5 }] {
            assert_eq!(Head::of_word(head.to_word()), Some(head));
        }
        assert_eq!(Head::of_word(0), None);
        for number in 0..=255 {
            assert_eq!(Kind::of(number).map(|kind| kind as u8), (1..=4).contains(&number).then_some(number));
        }
    }

    #[test]
    fn holders_count_their_uses() {
        let first = Holder::default().taken_by(LaunchId::new(3, 1));
        assert_eq!(Holder::of_word(first.to_word()), first);
        assert_eq!((first.lap, first.freed().launch), (1, LaunchId::NONE));
        let last = Holder { lap: (1 << LAP_BITS) - 1, ..first.freed() };
        assert_eq!(last.taken_by(LaunchId::new(3, 1)).lap, 0);
    }

    #[test]
    fn names_are_cut_where_a_character_ends() {
        let bytes = |name| name_words(name).map(u64::to_le_bytes).concat();
        assert_eq!(bytes("signal"), b"signal\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes("0123456789abcdefgh"), b"0123456789abcdef");
        assert_eq!(bytes("0123456789abcdé"), "0123456789abcdé".as_bytes());
        assert_eq!(bytes("0123456789abcde\u{e9}"), b"0123456789abcde\0");
    }
}
