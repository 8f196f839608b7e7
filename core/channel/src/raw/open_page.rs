//! What a wave's record says of the page that the wave has open for trace points.

use super::RawState;
use super::device::Writer;
use crate::primitive::{Owned, load_two_in_wave};
#[cfg(not(loom))]
use crate::region::Words;
use hostcall_abi::raw::Place;

/// A page that a wave has open for trace points: [`hostcall_abi::layout::OpenPageWords`], field for field. Its wave's next record
/// is a look here and stores. What the state says lies in memory of the device, where a wave that has just stored it waits for the
/// GPU's second-level cache to read it.
///
/// While it has a page, that page is the state's, whose place is behind this one: [`Writer::lend`] takes it from the state, and
/// [`OpenPage::give_back`] gives it back before anything else is done to the state.
#[repr(C, align(16))]
pub struct OpenPage {
    /// Where records begin, and the place.
    written: [Owned<u64>; 2],
    /// The state's address, and of the page its bytes and in its upper half the period in which the host was told last. No bytes if
    /// there is no page.
    of: [Owned<u64>; 2],
}

/// A place that [`OpenPage::room`] has found.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Whether there is one.
    pub is_there: bool,
    #[cfg_attr(loom, expect(dead_code, reason = "loom's memory has no addresses"))]
    data: u64,
    #[cfg_attr(loom, expect(dead_code, reason = "as above"))]
    place: Place,
}

impl OpenPage {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self { written: [Owned::new(0), Owned::new(0)], of: [Owned::new(0), Owned::new(0)] }
    }

    /// Says that there is no page, of a wave that has its slot since now.
    ///
    /// # Safety
    /// SLOT-OWNER.
    #[inline(always)]
    pub(crate) unsafe fn begin(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.of[1].set(0) };
    }

    /// Looks for a place for a record of so many bytes that needs nothing but stores: there is a page with room, and the host need
    /// not be told in this period.
    ///
    /// # Safety
    /// RAW-STATE; or nobody makes anything of what is found.
    #[inline(always)]
    pub unsafe fn room(&self, bytes: u32, period: Option<u32>) -> Room {
        // SAFETY: the caller's promise.
        let ([data, place], [_, of]) =
            unsafe { (load_two_in_wave(&self.written), load_two_in_wave(&self.of)) };
        let (page_bytes, place) = (of as u32, Place(place));
        let has_room = place.bytes().wrapping_add(bytes) <= page_bytes;
        Room { is_there: has_room & (period == Some((of >> 32) as u32)) & (page_bytes != 0), data, place }
    }

    /// Takes a place that is there, and returns the page's words and the place's first. Nothing was taken since it was looked for.
    ///
    /// # Safety
    /// RAW-STATE; the channel's memory is mapped for `'m`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn take<'m>(&self, room: Room, bytes: u32) -> (Words<'m>, u32) {
        let Room { data, place, .. } = room;
        // SAFETY: the caller's promise: `lend` wrote where the page's data is, which has so many words at least.
        unsafe {
            self.written[1].set(place.after(bytes).0);
            (Words::from_address(data, (place.bytes() + bytes) / 8), place.bytes() / 8)
        }
    }

    /// Gives the page back to its state, if there is one.
    ///
    /// # Safety
    /// RAW-STATE; the state's memory is mapped.
    #[inline(always)]
    pub unsafe fn give_back(&self) {
        // SAFETY: the caller's promise: only `lend` has written an address, which is the state's.
        unsafe {
            if self.of[1].get() as u32 != 0 {
                let state = &*(self.of[0].get() as usize as *const RawState);
                state.set_place(Place(self.written[1].get()));
                self.of[1].set(0);
            }
        }
    }
}

impl Writer<'_> {
    /// Lends the open page, if there is one, to the wave's record.
    ///
    /// # Safety
    /// RAW-STATE: the calling lane acts for the whole wave, whose record it is, and which has the home slot; it has no page there.
    #[inline(always)]
    pub unsafe fn lend(&self, to: &OpenPage) {
        // SAFETY: the caller's promise.
        unsafe {
            let Some((data, place, bytes, period)) = self.open_page() else { return };
            to.written[0].set(data);
            to.written[1].set(place.0);
            to.of[0].set(self.state_address());
            to.of[1].set(u64::from(bytes) | u64::from(period) << 32);
        }
    }
}
