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
use hostcall_abi::raw::RawStateWords;
use hostcall_server::Waiting;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The raw channels of a device that users have.
#[derive(Default)]
pub(crate) struct RawChannels {
    made: AtomicU64,
    /// Those of them where waves wait for pages.
    waiting: Mutex<Vec<Weak<Inner>>>,
}

impl RawChannels {
    /// Returns the number of the channel that is made next.
    pub(super) fn next_number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes a channel.
    pub(super) fn note(&self, channel: &Arc<Inner>) {
        if channel.waits_with.is_some() {
            let mut waiting = self.waiting.lock();
            waiting.retain(|channel| channel.strong_count() > 0);
            waiting.push(Arc::downgrade(channel));
        }
    }

    /// Returns which waves wait for a page, as far as they have said it in memory of the device.
    pub fn waiting(&self) -> Vec<Waiting> {
        // Not under the lock: the last reference to a channel may be dropped here.
        self.channels().iter().flat_map(|channel| channel.waiting_waves(usize::MAX)).collect()
    }

    /// Returns one wave that waits for a page. No channel is looked at after the one that it waits for.
    pub fn first_waiting(&self) -> Option<Waiting> {
        self.channels().iter().find_map(|channel| channel.waiting_waves(1).pop())
    }

    /// Returns the channels where waves wait for pages.
    fn channels(&self) -> Vec<Arc<Inner>> {
        // Not used under the lock: the last reference to a channel may be dropped.
        self.waiting.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Inner {
    /// Returns `most` of the waves that wait for a page. Those of kernels that other compilers made have no
    /// states of their own.
    fn waiting_waves(&self, most: usize) -> Vec<Waiting> {
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

    /// Whether waves drop what finds no page instead of waiting, since nobody could bring one.
    fn is_closed(&self, found: &Found) -> bool {
        self.users.load(Ordering::Acquire) == 0 || found.copier.as_ref().is_some_and(Copier::has_failed)
    }
}
