//! Where each slot's words are.

use super::{DOORBELLS_AT, Layout, SLOT_GROUP};

/// The numbers that a slot's places are computed with, so that nobody derives them from the [`Layout`] again. All in
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Places {
    /// The first slot's post bell; those of the other home slots follow, one word each.
    pub post_bells: u32,
    /// The tail of the first slot's post ring; those of the other home slots follow, one word each.
    pub ring_tails: u32,
    /// The first slot's owner pair; the others follow.
    pub owners: u32,
    /// The first slot's reply pairs.
    pub replies: u32,
    /// The first slot's request pairs.
    pub requests: u32,
    /// From one slot's pairs to the next slot's.
    pub line_stride: u32,
    /// From one plane of pairs to the next.
    pub plane: u32,
    /// The first slot's byte area.
    pub areas: u32,
    /// From one slot's byte area to the next.
    pub area_stride: u32,
    /// The first large byte area.
    pub large_areas: u32,
    /// From one large byte area to the next.
    pub large_area_stride: u32,
    /// The first slot's post ring.
    pub rings: u32,
    /// From the rings of one [`SLOT_GROUP`] to those of the next.
    pub ring_group_stride: u32,
    /// The whole region.
    pub words: u32,
    /// Zero.
    pub reserved: u32,
}

/// A layout with the places that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// The sizes that were chosen.
    pub layout: Layout,
    /// Their [`Layout::places`].
    pub places: Places,
}

impl From<Layout> for Sizes {
    fn from(layout: Layout) -> Self {
        Self { layout, places: layout.places() }
    }
}

const _: () = assert!(size_of::<Layout>() == 9 * 4 && size_of::<Places>() == 15 * 4);

impl Places {
    /// Word of a slot's doorbell.
    #[inline(always)]
    pub const fn doorbell(&self, slot: u32) -> u32 {
        DOORBELLS_AT as u32 + slot
    }

    /// The slot that the word at `at` would be the doorbell of.
    #[inline(always)]
    pub const fn slot_of(&self, at: u32) -> Option<u32> {
        at.checked_sub(DOORBELLS_AT as u32)
    }

    /// Word of a home slot's post bell.
    #[inline(always)]
    pub const fn post_bell(&self, slot: u32) -> u32 {
        self.post_bells + slot
    }

    /// Word of the tail of a home slot's post ring: how many entries the host has taken, ever.
    #[inline(always)]
    pub const fn ring_tail(&self, slot: u32) -> u32 {
        self.ring_tails + slot
    }

    /// First word of a slot's owner pair.
    #[inline(always)]
    pub const fn owner(&self, slot: u32) -> u32 {
        self.owners + 2 * slot
    }

    /// First word of a slot's reply pairs, see [`super::Spread`].
    #[inline(always)]
    pub const fn reply(&self, slot: u32) -> u32 {
        self.replies + slot * self.line_stride
    }

    /// First word of a slot's request pairs, see [`super::Spread`].
    #[inline(always)]
    pub const fn request(&self, slot: u32) -> u32 {
        self.requests + slot * self.line_stride
    }

    /// First word of a slot's byte area.
    #[inline(always)]
    pub const fn area(&self, slot: u32) -> u32 {
        self.areas + slot * self.area_stride
    }

    /// First word of a large byte area.
    #[inline(always)]
    pub const fn large_area(&self, area: u32) -> u32 {
        self.large_areas + area * self.large_area_stride
    }
}

impl Sizes {
    /// First word of a home slot's post ring.
    #[inline(always)]
    pub const fn ring(&self, slot: u32) -> u32 {
        self.places.rings
            + slot / SLOT_GROUP * self.places.ring_group_stride
            + self.layout.ring_entries.words_before(slot % SLOT_GROUP)
    }

    /// The places of a slot. An extra slot has no ring: its ring has no entries.
    pub const fn slot(&self, slot: u32) -> SlotPlaces {
        let places = &self.places;
        let is_home = slot < self.layout.home_slots;
        let ring_of = if is_home { slot } else { 0 };
        SlotPlaces {
            doorbell: places.doorbell(slot),
            request: places.request(slot),
            reply: places.reply(slot),
            plane: places.plane,
            area: places.area(slot),
            area_bytes: self.layout.area_bytes,
            ring: self.ring(ring_of),
            ring_entries: if is_home { self.layout.ring_entries.of(slot) } else { 0 },
            post_bell: places.post_bell(ring_of),
            ring_tail: places.ring_tail(ring_of),
            owner: places.owner(slot),
            lanes: self.layout.lanes,
        }
    }
}

/// Where one slot's words are. All in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct SlotPlaces {
    /// The doorbell.
    pub doorbell: u32,
    /// The request pairs.
    pub request: u32,
    /// The reply pairs.
    pub reply: u32,
    /// From one plane of pairs to the next.
    pub plane: u32,
    /// The byte area.
    pub area: u32,
    /// Its bytes.
    pub area_bytes: u32,
    /// The post ring.
    pub ring: u32,
    /// Its entries, a power of two; 0 for an extra slot.
    pub ring_entries: u32,
    /// The post bell.
    pub post_bell: u32,
    /// The ring's tail.
    pub ring_tail: u32,
    /// The owner pair.
    pub owner: u32,
    /// Lanes of a wave.
    pub lanes: u32,
}
