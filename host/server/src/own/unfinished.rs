//! Calls that rang and cannot be taken yet: not all of their words have come, or posts are in front of them.

use crate::engine::watchdog::WaitsFor;
use std::time::Instant;

/// A call that rang and cannot be taken yet.
pub(super) struct Unfinished {
    pub slot: u32,
    pub waits_for: WaitsFor,
    /// When a look at the clock found it first: mostly there is none before the call is taken.
    pub since: Option<Instant>,
    /// The watchdog has told of it.
    pub is_reported: bool,
}

/// Such calls of a consumer's slots. A call of many words is mostly among them for a moment, since its doorbell comes
/// first, so that noting and removing one take a few instructions.
pub(super) struct UnfinishedCalls {
    first_slot: u32,
    list: Vec<Unfinished>,
    /// By slot, from `first_slot` on: the call's place in the list plus one, or 0.
    places: Box<[u32]>,
}

impl UnfinishedCalls {
    pub fn new(slots: &std::ops::Range<u32>) -> Self {
        Self {
            first_slot: slots.start,
            // Nothing is allocated while calls are served, unless more than so many cannot be taken at a time.
            list: Vec::with_capacity(64),
            places: vec![0; slots.len()].into_boxed_slice(),
        }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes what the call of one of the slots waits for. Returns whether it was noted before.
    #[inline]
    pub fn note(&mut self, slot: u32, waits_for: WaitsFor) -> bool {
        let place = &mut self.places[(slot - self.first_slot) as usize];
        match self.list.get_mut((*place).wrapping_sub(1) as usize) {
            Some(call) => {
                call.waits_for = waits_for;
                true
            }
            None => {
                self.list.push(Unfinished { slot, waits_for, since: None, is_reported: false });
                *place = self.list.len() as u32;
                false
            }
        }
    }

    /// Forgets a slot's call, if it was noted.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot.wrapping_sub(self.first_slot) as usize) else { return };
        let Some(at) = std::mem::take(place).checked_sub(1) else { return };
        self.list.swap_remove(at as usize);
        if let Some(moved) = self.list.get(at as usize) {
            self.places[(moved.slot - self.first_slot) as usize] = at + 1;
        }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Unfinished> {
        self.list.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_noted_once_and_removed_from_anywhere() {
        let mut calls = UnfinishedCalls::new(&(16..24));
        for slot in 16..24 {
            assert!(!calls.note(slot, WaitsFor::Words));
            assert!(calls.note(slot, WaitsFor::Posts));
        }
        for slot in [16, 23, 19, 19, 17, 99, 0] {
            calls.remove(slot);
        }
        assert!(!calls.note(19, WaitsFor::Words) && calls.note(18, WaitsFor::Words));
        let mut slots: Vec<_> = calls.iter_mut().map(|call| call.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [18, 19, 20, 21, 22]);
        slots.iter().for_each(|slot| calls.remove(*slot));
        assert!(calls.is_empty());
    }
}
