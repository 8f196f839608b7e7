//! What waves wait for that no server knows of, as they say in the device's wait table ([`hostcall_abi::waits`]): flags, barriers of
//! the author's, free call slots, pages of raw channels. The table lies in memory of the host, so that a look asks no driver and
//! waits for nothing.
//!
//! A wave that ends while it waits, since its launch is cancelled or it panics, leaves its entry. Nobody is told of it, as its launch is
//! over; it is free again once the launch is settled ([`WaitTable::free`]).
#![allow(unsafe_code, reason = "the table and its holders are accessed by address")]

use super::core::Holders;
use super::error::Error;
use super::here::here;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::Layout;
use hostcall_abi::waits::{
    Entry, Head, Holder, Kind, MOST_ENTRIES, NO_PEER, TRIES, WAIT_PARAMS_BYTES, WaitParams, table_words,
};
use hostcall_abi::word::Owner;
use hostcall_channel::waits::WaitTable as Told;
use hostcall_seam::{Backend, DeviceAddress, DeviceKind, Memory, Pinned};
use hostcall_server::{Polled, Server, Waiting, WaitsFor};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Entries for each wave: its lanes may wait for different things.
const ENTRIES_A_WAVE: u32 = 4;

/// Fewest entries.
const LEAST_ENTRIES: u32 = 256;

/// A device's wait table.
pub(crate) struct WaitTable {
    table: Arc<dyn Pinned>,
    /// Parameters and holders.
    block: Arc<dyn Memory>,
    entries: u32,
    /// The device's clock is the host's.
    has_hosts_clock: bool,
    /// What [`WaitTable::was_full`] has seen.
    untold_before: AtomicU64,
}

/// Lanes of a wave that wait for the same thing.
#[derive(PartialEq, Eq, Hash)]
struct Same {
    place: u64,
    head: u64,
    address: u64,
    sequence: u64,
    name: [u64; 2],
}

impl WaitTable {
    /// Makes the table of a device with a channel of this layout.
    pub fn new(backend: &dyn Backend, layout: Layout) -> Result<Self, Error> {
        let entries = layout.home_slots.saturating_mul(ENTRIES_A_WAVE).clamp(LEAST_ENTRIES, MOST_ENTRIES);
        let entries = entries.next_power_of_two().min(MOST_ENTRIES);
        let table = backend.pin(table_words(entries) * 8)?;
        let block = backend.allocate(WAIT_PARAMS_BYTES + entries as usize * 8)?;
        let is_software = backend.properties().kind == DeviceKind::Software;
        let params = WaitParams {
            table: table.address().get(),
            entries,
            here: if is_software { here as *const () as u64 } else { 0 },
            ..WaitParams::default()
        };
        let mut bytes = params.as_bytes().to_vec();
        bytes.resize(block.len(), 0);
        // SAFETY: the memory is new, and as long.
        unsafe { backend.write_now(block.address(), &bytes) }?;
        Ok(Self { table, block, entries, has_hosts_clock: is_software, untold_before: AtomicU64::new(0) })
    }

    /// Returns the address of the parameters, for kernels.
    pub fn address(&self) -> DeviceAddress {
        self.block.address()
    }

    fn told(&self) -> Told<'_> {
        let address = self.table.host_address().expose_provenance().get() as u64;
        // SAFETY: WAIT-ENTRY: as many words lie there as long as `table`, zeroed at first, and waves store to them atomically.
        unsafe { Told::from_address(address, self.entries) }
    }

    /// Returns how many bytes of memory it takes, of the host and of the device.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.table.len() + self.block.len()
    }

    /// Returns how many waits found no entry.
    pub fn untold(&self) -> u64 {
        self.told().untold()
    }

    /// Returns whether waits may go on that are told nowhere. A wave without an entry looks for one again and again, so that there is
    /// none unless as many entries are taken as it looks at.
    pub fn may_wait_untold(&self) -> bool {
        self.untold() > 0 && self.told().told().nth(TRIES as usize - 1).is_some()
    }

    /// Returns what waves wait for of launches that `server` knows, the longest waits first.
    pub fn waiting(&self, server: &Server, holders: &Holders) -> Vec<Waiting> {
        let now_ns = self.has_hosts_clock.then(hostcall_softdev::now_ns);
        let mut waits = HashMap::<Same, (u32, u64, u64)>::new();
        for (head, entry) in self.told().told() {
            let since_ns = now_ns.unwrap_or(entry.seen_ns).saturating_sub(entry.since_ns);
            let Entry { place, address, sequence, name, .. } = entry;
            let head_of_all = Head { lanes: 0, lap: 0, ..head }.to_word();
            let (lanes, waited, said) =
                waits.entry(Same { place, head: head_of_all, address, sequence, name }).or_default();
            *lanes += head.lanes;
            *waited = since_ns.max(*waited);
            *said = entry.seen_ns.saturating_sub(entry.since_ns).max(*said);
        }
        let waits = waits.into_iter().filter_map(|(same, (lanes, waited_ns, said_ns))| {
            let head = Head::of_word(same.head)?;
            let (launch, workgroup) = (LaunchId::from_bits(same.place as u32), (same.place >> 32) as u32);
            let peer = (head.peer != NO_PEER).then_some(head.peer);
            let polled = Polled::new(same.address, peer, same.sequence, Duration::from_nanos(said_ns));
            let waits_for = match Kind::of(head.kind)? {
                Kind::Flag => WaitsFor::Flag(polled),
                Kind::Barrier => WaitsFor::Barrier(polled),
                Kind::Slot => WaitsFor::Slot,
                Kind::Page => WaitsFor::Page,
            };
            let owner = Owner { launch, home: None, wave: head.wave, workgroup };
            let name = match waits_for {
                WaitsFor::Page => holders
                    .name_at(same.address)
                    .map_or_else(|| "a raw channel".into(), |name| name.to_string()),
                _ => name_of(same.name),
            };
            server.wait_of(owner, lanes, name, Duration::from_nanos(waited_ns), waits_for)
        });
        let mut waits: Vec<Waiting> = waits.collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.waited), wait.launch));
        waits
    }

    /// Returns whether a wave has found no entry since this was asked last: entries may be taken that nobody gives back, by kernels
    /// that left a wait without saying so.
    pub fn was_full(&self) -> bool {
        let untold = self.told().untold();
        let is_new = untold != self.untold_before.load(Ordering::Relaxed);
        if is_new {
            self.untold_before.store(untold, Ordering::Relaxed);
        }
        is_new
    }

    /// Frees the entries of launches that are over, whose waves left some. Nothing is done where none ever waited.
    pub fn free(&self, backend: &dyn Backend, is_over: impl Fn(LaunchId) -> bool) {
        if !self.told().is_used() {
            return;
        }
        let holders = self.address().offset(WAIT_PARAMS_BYTES as u64);
        let load = || {
            let mut bytes = vec![0; self.entries as usize * 8];
            // SAFETY: so many words lie there, which waves access atomically. Of a device that fails none is needed any more.
            unsafe { backend.load_words(holders, &mut bytes, 8) }.ok()?;
            Some(bytes)
        };
        let Some(before) = load() else { return };
        let holder = |word: &[u8; 8]| Holder::of_word(u64::from_le_bytes(*word));
        let is_left = |word: &[u8; 8]| {
            let launch = holder(word).launch;
            launch != LaunchId::NONE && is_over(launch)
        };
        let words = before.as_chunks().0.iter().enumerate();
        let left: Vec<_> = words.filter(|(_, word)| is_left(word)).collect();
        if left.is_empty() {
            return;
        }
        // A launch may have ended in between, so that its waves gave entries back, which others have taken since. What is a launch's
        // after it was over stays so: none of its waves is left, and others take what nobody has.
        let Some(now) = load() else { return };
        for (index, word) in left {
            if now.as_chunks().0.get(index) == Some(word) {
                let at = holders.offset(8 * index as u64);
                let freed = holder(word).freed().to_word().to_le_bytes();
                // SAFETY: as above. WAIT-ENTRY: a wave of the launch that is left, such as a context's, finds the entry another's.
                let _ = unsafe { backend.store_words(at, &freed, 8) };
            }
        }
    }
}

/// The text of a name: whatever the device says.
fn name_of(words: [u64; 2]) -> String {
    let bytes = words.map(u64::to_le_bytes).concat();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_abi::waits::name_words;

    #[test]
    fn names_are_texts_whatever_lies_there() {
        assert_eq!(name_of(name_words("signal")), "signal");
        assert_eq!(name_of([0; 2]), "");
        assert_eq!(name_of(name_words("a\nb")), "a\\nb");
        assert_eq!(name_of([u64::from_le_bytes(*b"\xffok\0x\0\0\0"), 1]), "\u{fffd}ok");
    }
}
