//! Raw channels: memory through which kernels stream bytes in pages. Layouts, and the words that both sides read.
//!
//! Control words lie in memory that host and device share:
//!
//! | words from its start | what | written by |
//! |---|---|---|
//! | 0 | not 0 once nobody reads any more | host |
//! | [`RAW_GIVEN_WORD`] | pages that waves may have taken and may take, ever | host |
//! | [`RawLayout::free_at`] | the ring of free pages: [`free_entry`]s, at their positions modulo the number of pages | host |
//! | [`RawLayout::commit_at`] | a [`Place`] for each page: which bytes are whole | device |
//! | [`RawLayout::header_at`] | a line for each page, [`header`] says of what | device |
//!
//! The pages are a memory of their own, [`RawLayout::data_at`] says where in it each one lies: of the host's, which waves write
//! over the link, or of the device's, from where a copy engine brings them to the host's.

use crate::launch::LaunchId;

/// Words before the ring of free pages.
const START_WORDS: u32 = 16;

/// Word that says how many pages waves may take, from the channel's making on.
pub const RAW_GIVEN_WORD: u32 = 1;

/// Words of a page's header.
pub const RAW_HEADER_WORDS: u32 = 8;

/// Least pages of a channel: so many free entries fill whole lines.
pub const LEAST_RAW_PAGES: u32 = 16;

/// Most pages of a channel: a free entry has 16 bits for the page.
pub const MOST_RAW_PAGES: u32 = 1 << 16;

/// Least bytes of a page: two lines.
pub const LEAST_RAW_PAGE_BYTES: u32 = 128;

/// Most bytes of a page.
pub const MOST_RAW_PAGE_BYTES: u32 = 1 << 24;

/// Sizes of a raw channel. The default is that of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawLayout {
    /// Logarithm of the number of pages.
    pub(crate) pages_log2: u32,
    /// Logarithm of a page's bytes.
    pub(crate) page_bytes_log2: u32,
}

impl RawLayout {
    /// The layout of so many pages of so many bytes, both powers of two within the bounds; `None` if they are not, or the
    /// pages had 2³² words or more.
    pub const fn new(pages: u32, page_bytes: u32) -> Option<Self> {
        let are_powers = pages.is_power_of_two() && page_bytes.is_power_of_two();
        let are_bounded = pages >= LEAST_RAW_PAGES
            && pages <= MOST_RAW_PAGES
            && page_bytes >= LEAST_RAW_PAGE_BYTES
            && page_bytes <= MOST_RAW_PAGE_BYTES;
        if !are_powers || !are_bounded {
            return None;
        }
        if pages as u64 * (page_bytes / 8) as u64 > u32::MAX as u64 {
            return None;
        }
        Some(Self { pages_log2: pages.ilog2(), page_bytes_log2: page_bytes.ilog2() })
    }

    /// Pages of the channel.
    #[inline(always)]
    pub const fn pages(&self) -> u32 {
        1 << self.pages_log2
    }

    /// Bytes of a page.
    #[inline(always)]
    pub const fn page_bytes(&self) -> u32 {
        1 << self.page_bytes_log2
    }

    /// Control words, in memory that host and device share.
    pub const fn words(&self) -> u32 {
        self.header_at(self.pages())
    }

    /// Words of all pages.
    #[inline(always)]
    pub const fn data_words(&self) -> u32 {
        self.data_at(self.pages())
    }

    /// Word of the free entry at this position.
    #[inline(always)]
    pub const fn free_at(&self, position: u64) -> u32 {
        START_WORDS + self.place_in_ring(position)
    }

    /// Place of the free entry at this position in the ring.
    #[inline(always)]
    pub const fn place_in_ring(&self, position: u64) -> u32 {
        position as u32 & (self.pages() - 1)
    }

    /// Word of a page's [`Place`].
    #[inline(always)]
    pub const fn commit_at(&self, page: u32) -> u32 {
        START_WORDS + self.pages() + page
    }

    /// First word of a page's header.
    #[inline(always)]
    pub const fn header_at(&self, page: u32) -> u32 {
        START_WORDS + 2 * self.pages() + RAW_HEADER_WORDS * page
    }

    /// First word of a page, from the first page's on.
    #[inline(always)]
    pub const fn data_at(&self, page: u32) -> u32 {
        page << (self.page_bytes_log2 - 3)
    }
}

/// Words of a page's header.
pub mod header {
    /// The launch in the lower half, and in the upper one the lower bits of the page's ticket, plus one: the position in the
    /// ring at which it was taken. One word, so that the ticket is never seen with the launch of the page's last use.
    pub const OPENED: u32 = 0;
    /// The writer's home slot.
    pub const SLOT: u32 = 1;
    /// The workgroup in the lower half, the wave in it in the upper one.
    pub const WAVE: u32 = 2;
    /// The device's clock when the page was opened, in ns.
    pub const OPENED_NS: u32 = 3;
    /// Records that writers of this home slot have dropped since the channel was made, up to the page's opening.
    pub const DROPPED: u32 = 4;
    /// The [`super::Place`] of a page that its wave has left open because it was killed: stored by the home slot's next wave.
    pub const LEFT: u32 = 5;
}

/// The word [`header::OPENED`] of a page that a wave of this launch took at this position.
#[inline(always)]
pub const fn opened(position: u64, launch: LaunchId) -> u64 {
    (position + 1) << 32 | launch.to_bits() as u64
}

/// The launch whose wave has taken the page with this ticket, if this word of its header says that one has.
#[inline(always)]
pub const fn opened_by(word: u64, ticket: u64) -> Option<LaunchId> {
    if word >> 32 == opened(ticket, LaunchId::NONE) >> 32 {
        Some(LaunchId::from_bits(word as u32))
    } else {
        None
    }
}

/// The entry of the ring of free pages at a position: no entry of another position is equal, nor is 0.
#[inline(always)]
pub const fn free_entry(position: u64, page: u32) -> u64 {
    (position + 1) << 16 | page as u64
}

/// The page of a free entry if it is the one at this position.
#[inline(always)]
pub const fn free_page(entry: u64, position: u64) -> Option<u32> {
    // The upper 16 bits of the position are lost, on both sides.
    if entry >> 16 == (position + 1) << 16 >> 16 { Some(entry as u32 & (MOST_RAW_PAGES - 1)) } else { None }
}

/// How far a page was written: bytes in the lower half, then a bit that says that the page is closed, then the lower bits of
/// its ticket, so that one word says of which use of the page it is. Of a page whose records say by themselves that they are there
/// ([`crate::trace::OwnRecords`]), [`Place::in_order_of`] stands there in place of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Place(pub u64);

impl Place {
    const CLOSED: u64 = 1 << 32;
    const TICKET_SHIFT: u32 = 33;

    /// With the number of an order in the bits below: see [`Place::in_order_of`].
    pub const BY_RECORDS: u64 = 1 << 31;

    /// Which pages are written one after the other, of a page whose records say how far it is written.
    #[inline(always)]
    pub const fn in_order_of(self) -> Option<u32> {
        if self.0 & Self::BY_RECORDS == 0 { None } else { Some(self.0 as u32 & !(Self::BY_RECORDS as u32)) }
    }

    /// Nothing is written yet of the page with this ticket.
    #[inline(always)]
    pub const fn begin(ticket: u64) -> Self {
        Self((ticket + 1) << Self::TICKET_SHIFT)
    }

    /// Whether it is of an earlier use of the page than `other`, as far as the lower bits of the tickets say.
    pub const fn is_of_use_before(self, other: Self) -> bool {
        let [own, of_other] = [self.0 >> Self::TICKET_SHIFT, other.0 >> Self::TICKET_SHIFT];
        // The upper bit of 32 is no part of a ticket.
        ((of_other as u32).wrapping_sub(own as u32) << 1) as i32 > 0
    }

    /// Whether it is of the same use of the page as `other`, whose wave has written more since, and the page was not closed.
    pub const fn has_less_than(self, other: Self) -> bool {
        !self.is_closed()
            && self.0 >> Self::TICKET_SHIFT == other.0 >> Self::TICKET_SHIFT
            && self.bytes() < other.bytes()
    }

    /// Bytes that are written.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// The place so many bytes further on.
    #[inline(always)]
    pub const fn after(self, bytes: u32) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// Returns this place of a page that nobody writes any more.
    #[inline(always)]
    pub const fn closed(self) -> Self {
        Self(self.0 | Self::CLOSED)
    }

    /// Whether nobody writes the page any more.
    #[inline(always)]
    pub const fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }

    /// Whether it is a place of the page with this ticket, as far as its lower bits say.
    #[inline(always)]
    pub const fn is_of(self, ticket: u64) -> bool {
        self.0 >> Self::TICKET_SHIFT == Self::begin(ticket).0 >> Self::TICKET_SHIFT
    }
}

/// What a wave remembers of a raw channel, in memory of the device: one for each home slot, and [`FOREIGN_STATES`] behind these.
/// Zero at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct RawStateWords {
    /// The launch whose wave had it last.
    pub launch: u32,
    /// The open page, plus one; 0 for none.
    pub page: u32,
    /// Bytes of the open page that the host was told of.
    pub published: u32,
    /// The period of the device's clock in which it was told last.
    pub period: u32,
    /// Looks for a free page that are left out, after one that found none.
    pub looks_left_out: u32,
    /// The launch of the diverged wave of which a part writes, or 0.
    pub lock: u32,
    /// What the wave's end does with the page: 0 nothing, 1 closes it, 2 tells how far it is written, and leaves it to the slot's next
    /// wave.
    pub linked: u32,
    /// Zero.
    pub reserved: u32,
    /// The open page's [`Place`].
    pub place: u64,
    /// Address of the open page's word for the host.
    pub commit: u64,
    /// Records dropped, ever.
    pub dropped: u64,
    /// Address of the next state that the wave's end looks at, or 0.
    pub next: u64,
}

/// Bytes of a [`RawStateWords`].
pub const RAW_STATE_BYTES: usize = 64;

/// Word of [`RawStateWords::place`].
pub const RAW_STATE_PLACE_WORD: usize = 4;

/// Word of [`RawStateWords::dropped`].
pub const RAW_STATE_DROPPED_WORD: usize = 6;

const _: () = {
    assert!(size_of::<RawStateWords>() == RAW_STATE_BYTES);
    assert!(core::mem::offset_of!(RawStateWords, launch) == 0);
    assert!(core::mem::offset_of!(RawStateWords, page) == 4);
    assert!(core::mem::offset_of!(RawStateWords, linked) == 8 * 3);
    assert!(core::mem::offset_of!(RawStateWords, place) == 8 * RAW_STATE_PLACE_WORD);
    assert!(core::mem::offset_of!(RawStateWords, dropped) == 8 * RAW_STATE_DROPPED_WORD);
};

/// How waves share the free pages of a raw channel, in memory of the device, as far as the host reads it. Zero at first, with the
/// rest of its [`RAW_RING_BYTES`], which is the waves' own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct RawRingWords {
    /// The position in the ring of the next page that is taken.
    pub head: u64,
    /// What waves know of the free pages, a [`KnownPages`], in one word: who tells of new ones and who takes one see both.
    pub known: u64,
}

/// What waves know of a raw channel's free pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownPages {
    /// Pages that may be taken without a look at the host's word. Below 0 for the moment in which a wave took one from it that
    /// was not there.
    pub free: i32,
    /// The low half of the host's word [`RAW_GIVEN_WORD`], as a wave has seen it last.
    pub seen: u32,
}

impl KnownPages {
    /// One free page: added to the word or taken from it, it leaves `seen` alone.
    pub const ONE: u64 = 1 << 32;

    /// The word.
    pub const fn to_word(self) -> u64 {
        (self.free as u32 as u64) << 32 | self.seen as u64
    }

    /// What a word says.
    pub const fn of_word(word: u64) -> Self {
        Self { free: (word >> 32) as u32 as i32, seen: word as u32 }
    }

    /// Pages that the host has given out since, by its word. None when the word is older than what was seen.
    pub const fn new_pages(self, given: u64) -> u32 {
        let new = (given as u32).wrapping_sub(self.seen);
        if (new as i32) < 0 { 0 } else { new }
    }
}

/// Bytes of a [`RawRingWords`].
pub const RAW_RING_BYTES: usize = 64;

const _: () = assert!(size_of::<RawRingWords>() == RAW_RING_BYTES);

impl RawRingWords {
    /// Pages that waves gave themselves the right to and never took because they were killed in between, ever. No wave runs.
    pub const fn lost(&self) -> u64 {
        let known = KnownPages::of_word(self.known);
        known.seen.wrapping_sub(self.head as u32).wrapping_sub(known.free as u32) as u64
    }
}

/// A raw channel as a kernel gets it: what lies in the argument block. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawParams {
    /// [`RawStateWords`] of all home slots, in memory of the device.
    pub states: u64,
    /// [`RawRingWords`] in memory of the device.
    pub ring: u64,
    /// The control words, [`RawLayout::words`] of them.
    pub shared: u64,
    /// The pages that waves write, [`RawLayout::data_words`] words at a multiple of 128 bytes.
    pub data: u64,
    /// The ring of free pages that waves read, a word for each page: that of the control words, or a copy of it in memory of
    /// the device, in which an entry may come later than the host's word that says it may be taken.
    pub free: u64,
    /// The layout of all.
    pub layout: RawLayout,
}

/// States behind those of the home slots: of all waves together whose kernels other compilers made. Such a wave has no home
/// slot, and keeps in registers what it remembers; of the state it uses [`RawStateWords::dropped`] alone, to which it adds.
/// [`RawWriter::slot`] of its pages is the state's place.
pub const FOREIGN_STATES: u32 = 1;

/// A raw channel as a kernel gets it that another compiler made: `struct hostcall_raw_stream` of `hostcall_device.h`, by value.
/// Addresses are those that kernels use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ForeignRawParams {
    /// The control words.
    pub shared: u64,
    /// The first page.
    pub data: u64,
    /// [`RawRingWords`] in memory of the device.
    pub ring: u64,
    /// A count in memory of the device: the records that such waves have dropped, ever.
    pub dropped: u64,
    /// Two words in memory of the device, of the stream that the launch is on: a wave of it does not wait for a page once one
    /// of them is at most `sequence`.
    pub stop_at: u64,
    /// The launch's place among those of its stream.
    pub sequence: u64,
    /// The channel's layout.
    pub layout: RawLayout,
    /// The launch.
    pub launch: LaunchId,
    /// What pages have for the writer's home slot.
    pub slot: u32,
    /// Not 0 where a wave waits that finds no free page.
    pub waits: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of a [`ForeignRawParams`].
pub const FOREIGN_RAW_BYTES: usize = 72;

const _: () = assert!(size_of::<ForeignRawParams>() == FOREIGN_RAW_BYTES);

impl RawParams {
    /// The parameters for kernels that other compilers made, of a channel with so many home slots. What is the launch's own is
    /// not there.
    pub const fn foreign(&self, home_slots: u32, waits: bool) -> ForeignRawParams {
        let state = self.states + RAW_STATE_BYTES as u64 * home_slots as u64;
        ForeignRawParams {
            shared: self.shared,
            data: self.data,
            ring: self.ring,
            dropped: state + 8 * RAW_STATE_DROPPED_WORD as u64,
            stop_at: 0,
            sequence: 0,
            layout: self.layout,
            launch: LaunchId::NONE,
            slot: home_slots,
            waits: waits as u32,
            reserved: 0,
        }
    }
}

/// Two halves as a word.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl ForeignRawParams {
    /// The parameters as they lie in memory.
    pub const fn to_words(&self) -> [u64; FOREIGN_RAW_BYTES / 8] {
        [
            self.shared,
            self.data,
            self.ring,
            self.dropped,
            self.stop_at,
            self.sequence,
            pair(self.layout.pages_log2, self.layout.page_bytes_log2),
            pair(self.launch.to_bits(), self.slot),
            pair(self.waits, self.reserved),
        ]
    }
}

/// Whose a page is, as its header alleges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawWriter {
    /// The launch.
    pub launch: LaunchId,
    /// The writer: the home slot of the wave. A slot's waves follow each other. Those of kernels that other compilers made have
    /// the number behind the last home slot, all the same one.
    pub slot: u32,
    /// Linear index of the workgroup.
    pub workgroup: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(RawLayout::new(15, 4096), None);
        assert_eq!(RawLayout::new(16, 64), None);
        assert_eq!(RawLayout::new(24, 4096), None);
        assert_eq!(RawLayout::new(1 << 17, 4096), None);
        assert_eq!(RawLayout::new(1 << 16, 1 << 24), None, "2³⁷ words");
        let layout = RawLayout::new(16, 128).unwrap();
        assert_eq!((layout.free_at(17), layout.commit_at(0), layout.header_at(1)), (17, 32, 56));
        assert_eq!((layout.words(), layout.data_at(1), layout.data_words()), (176, 16, 256));
    }

    #[test]
    fn words_say_of_which_use_they_are() {
        for position in [0, 1, 77, u64::from(u32::MAX)] {
            assert_eq!(free_page(free_entry(position, 65_535), position), Some(65_535));
            assert_eq!(free_page(free_entry(position, 5), position + 16), None);
            assert_eq!(free_page(0, position), None);
            let place = Place::begin(position).after(24);
            assert_eq!((place.bytes(), place.is_closed(), place.closed().is_closed()), (24, false, true));
            assert!(place.is_of(position) && place.closed().is_of(position) && !place.is_of(position + 16));
            // The word of a page that nobody has had yet, whose ticket is one of the first.
            assert!(position >= MOST_RAW_PAGES.into() || !Place(0).is_of(position));
            let later = Place::begin(position + 16);
            assert!(place.is_of_use_before(later) && !later.is_of_use_before(place));
            assert!(!place.is_of_use_before(place) && !place.has_less_than(later.after(32)));
            assert!(place.has_less_than(place.after(8)) && !place.has_less_than(place));
            assert!(!place.closed().has_less_than(place.after(8)));
        }
    }
}
