//! What waves wait for that write to raw channels: nobody handles that, so no server knows of it.
//!
//! A wave that waits for a free page calls nobody. But its state in device memory says that it has no page,
//! and the words that waves share say that none is free. The host reads both when somebody asks what waits
//! (`Device::waiting`), at no cost for the device. Nothing says since when the wave waits. An error of a
//! limited wait names such a wave only where no call waits and the limit is at least 100 ms, since it takes a
//! read of the device's memory. Waves of kernels that other compilers made keep in registers what they
//! remember, and are not told.

use super::copier::Copier;
use super::found::{Found, Inner};
use crate::device::core::HoldsWaves;
use hostcall_abi::raw::RawStateWords;
use hostcall_server::Waiting;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

impl HoldsWaves for Inner {
    /// Those of kernels that other compilers made have no states of their own.
    fn waiting(&self, most: usize) -> Vec<Waiting> {
        let backend = &*self.core.backend;
        let (told, waited) = {
            let found = self.found.lock();
            if self.is_closed(&found) {
                return Vec::new();
            }
            (found.collector.told(), found.gave_none_for())
        };
        let (Some(values), Some(ring)) = (self.waits_with, self.memory.ring(backend)) else {
            return Vec::new();
        };
        if !ring.has_no_page(told) {
            return Vec::new();
        }
        let name = format!("raw channel {} of {values}", self.number);
        let launches = self.server.launches();
        let states = self.memory.states(backend).unwrap_or_default();
        let without_page = (0..self.memory.home_slots()).zip(&states).filter_map(|(slot, state)| {
            // A wave that was killed leaves its state as it is.
            let launch = RawStateWords::without_page(state).filter(|launch| launches.is_known(*launch))?;
            Some((slot, launch))
        });
        let mut without_page = without_page.peekable();
        if without_page.peek().is_none() {
            return Vec::new();
        }
        // A wave that waits for an answer waits for no page; of one whose lanes went apart the call is told alone. Nobody waits
        // for posts.
        let calls = self.server.waiting();
        let calls: HashSet<u32> = calls.iter().filter(|call| call.lanes > 0).map(|call| call.slot).collect();
        let waves = without_page.filter(|(slot, _)| !calls.contains(slot)).take(most);
        waves.map(|(slot, launch)| self.server.waits_for_page(launch, slot, &name, waited)).collect()
    }
}

impl Inner {
    /// Whether waves drop what finds no page instead of waiting, since nobody could bring one.
    fn is_closed(&self, found: &Found) -> bool {
        self.users.load(Ordering::Acquire) == 0 || found.copier.as_ref().is_some_and(Copier::has_failed)
    }
}
