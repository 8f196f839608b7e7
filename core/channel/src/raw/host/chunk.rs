//! The memory of a raw channel, and what is found there.

#[cfg(any(test, not(loom)))]
use crate::primitive::AtomicU64;
use crate::primitive::Ordering;
use crate::region::Words;
#[cfg(not(loom))]
use alloc::vec::Vec;
use hostcall_abi::raw::{Place, RawLayout, RawWriter};

/// The memory of a raw channel, as the host has it: the control words, and the pages that readers read.
#[derive(Clone, Copy)]
pub struct RawRegion<'m> {
    pub(super) words: Words<'m>,
    data: Words<'m>,
    pub(super) layout: RawLayout,
}

impl<'m> RawRegion<'m> {
    /// A view of the control words and of the pages at these addresses, multiples of 128.
    ///
    /// # Safety
    /// [`RawLayout::words`] and [`RawLayout::data_words`] words are mapped there for `'m` and only accessed atomically.
    #[cfg(not(loom))]
    pub unsafe fn from_addresses(words: u64, data: u64, layout: RawLayout) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let words = Words::from_address(words, layout.words());
            Self { words, data: Words::from_address(data, layout.data_words()), layout }
        }
    }

    #[cfg(test)]
    pub(crate) fn of([words, data]: [&'m [AtomicU64]; 2], layout: RawLayout) -> Self {
        Self { words: Words::of(words), data: Words::of(data), layout }
    }

    /// Tells waves that nobody reads any more, so that they drop what finds no page.
    pub fn close(&self) {
        self.words.word(0).store(1, Ordering::Release);
    }

    /// Tells how far a wave has written a page, in the wave's name, unless more was told of this use of the page or a later one. Does
    /// nothing for a page that there is not.
    pub fn tell_place(&self, page: u32, place: Place) {
        if page >= self.layout.pages() || place.bytes() > self.layout.page_bytes() {
            return;
        }
        let word = self.words.word(self.layout.commit_at(page));
        let mut told = word.load(Ordering::Relaxed);
        let is_behind = |told: Place| told.is_of_use_before(place) || told.has_less_than(place);
        // The wave may tell of more meanwhile, or close the page.
        while is_behind(Place(told)) {
            match word.compare_exchange(told, place.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => told = now,
            }
        }
    }

    /// The words of a chunk.
    #[cfg(not(loom))]
    pub fn words_of(&self, chunk: &Chunk) -> &'m [AtomicU64] {
        let at = self.layout.data_at(chunk.page % self.layout.pages()) + chunk.from / 8;
        self.data.slice(at, chunk.bytes() as usize / 8)
    }

    /// Appends a copy of a chunk's bytes.
    #[cfg(not(loom))]
    pub fn append_to(&self, chunk: &Chunk, bytes: &mut Vec<u8>) {
        let at = self.layout.data_at(chunk.page % self.layout.pages()) + chunk.from / 8;
        self.data.append_bytes(at, chunk.bytes() as usize, bytes);
    }

    pub(super) fn word(&self, at: u32) -> u64 {
        self.words.word(at).load(Ordering::Relaxed)
    }

    /// A word of a page.
    pub(super) fn data_word(&self, page: u32, at: u32) -> u64 {
        self.data.word(self.layout.data_at(page) + at).load(Ordering::Relaxed)
    }

    /// Fills a page with zeros, which nobody has.
    pub(super) fn clear(&self, page: u32) {
        for at in self.layout.data_at(page)..self.layout.data_at(page + 1) {
            self.data.word(at).store(0, Ordering::Relaxed);
        }
    }
}

/// Bytes of a page that the device says are whole, and that nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub(in crate::raw) page: u32,
    /// Which page it is, in the order of their opening.
    pub ticket: u64,
    /// The first byte in the page.
    pub from: u32,
    /// The byte after the last.
    pub to: u32,
    /// Whether the page has no more.
    pub is_last: bool,
    /// Who wrote it, as the device alleges.
    pub writer: RawWriter,
    /// The device's clock when the page was opened, in ns.
    pub opened_ns: u64,
    /// Records that the writer's home slot has dropped between its page before and this one. With a page's first chunk.
    pub dropped: u64,
}

impl Chunk {
    /// The page.
    pub fn page(&self) -> u32 {
        self.page
    }

    /// Bytes of the chunk.
    pub fn bytes(&self) -> u32 {
        self.to - self.from
    }
}

/// What was found, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that were closed, by their waves or by the host.
    pub pages: u64,
    /// Bytes of chunks.
    pub bytes: u64,
    /// Records that waves have dropped, as far as the host was told.
    pub dropped: u64,
    /// Bytes that were overwritten before anybody read them.
    pub overwritten_bytes: u64,
    /// Bytes that could not be copied to the host.
    pub lost_bytes: u64,
    /// Pages that their waves had left open when their launch ended.
    pub swept: u64,
    /// Words of the device that made no sense.
    pub malformed: u64,
}

/// Which pages' news the host takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Those of pages that are closed.
    OfClosed,
    /// Those of half-filled pages too.
    OfAll,
}
