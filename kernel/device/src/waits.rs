//! Waits that the host sees: [`Lane::wait_for`].
//!
//! A kernel that polls a flag of another device's, or waits at a barrier of its own, hangs in silence when the other side does not
//! come. One line says what is waited for:
//!
//! ```
//! use core::sync::atomic::{AtomicU64, Ordering};
//! use hostcall_device::waits::flag;
//! use hostcall_device::{Lane, kernel};
//!
//! /// Waits until rank `peer` has sent its signal number `round`.
//! #[kernel]
//! fn receive(lane: &Lane, signal: &AtomicU64, peer: u32, round: u64) {
//!     let what = flag("signal").at(signal).peer(peer).sequence(round);
//!     lane.wait_for(what, || signal.load(Ordering::Acquire) >= round);
//! }
//! ```
//!
//! A wait of less than 1024 polls counts them and does nothing else. A longer one takes an entry of the device's *wait table*, in
//! memory of the host, which `Device::waiting`, the command's SIGQUIT and `hostcall waits` read without asking a driver, also
//! while the device hangs. Lanes of a GPU's wave that wait for the same thing together take one entry; where none is free, the wait
//! is counted, and looks for one again. Waits for a free call slot and for a page of a raw channel are told so by themselves.
//!
//! A launch that is cancelled ends its lanes there, as [`Lane::pause`] does.

use crate::group::Group;
use crate::lane::Lane;
use crate::target::{self, Here};
use hostcall_abi::waits::{
    Entry, Head, Kind, NAME_BYTES, NO_PEER, TELL_AFTER_LOG2, TELL_EVERY_LOG2, name_words,
};
use hostcall_channel::waits::{ToldWait, Waits};

/// What a lane waits for, as reports have it.
#[derive(Clone, Copy, Debug)]
pub struct WaitFor {
    name: [u64; NAME_BYTES / 8],
    address: u64,
    sequence: u64,
    peer: u32,
    kind: Kind,
}

/// A word that somebody sets. Of the name reports have the first 16 bytes.
#[inline(always)]
pub const fn flag(name: &str) -> WaitFor {
    WaitFor::new(name, Kind::Flag)
}

/// A place to which others come, such as a barrier of a grid or of several devices. Of the name reports have the first 16 bytes.
#[inline(always)]
pub const fn barrier(name: &str) -> WaitFor {
    WaitFor::new(name, Kind::Barrier)
}

impl WaitFor {
    #[inline(always)]
    const fn new(name: &str, kind: Kind) -> Self {
        Self { name: name_words(name), address: 0, sequence: 0, peer: NO_PEER, kind }
    }

    /// What is polled.
    #[inline(always)]
    pub fn at<T>(self, polled: &T) -> Self {
        Self { address: core::ptr::from_ref(polled) as usize as u64, ..self }
    }

    /// The rank that is waited for, as its launcher numbers it (`RANK` and the like).
    #[inline(always)]
    pub const fn peer(self, rank: u32) -> Self {
        Self { peer: rank, ..self }
    }

    /// Which of the peer's events is waited for: they are counted up, so that who waits for a later one has had this one.
    #[inline(always)]
    pub const fn sequence(self, number: u64) -> Self {
        Self { sequence: number, ..self }
    }
}

impl Lane {
    /// Polls until `condition` holds, and says what the lane waits for once it has waited for a while: see [`crate::waits`].
    #[inline]
    pub fn wait_for(&self, what: WaitFor, mut condition: impl FnMut() -> bool) {
        let mut wait = Wait::new();
        while !condition() {
            wait.poll(|told| tell_together(what, told));
            self.pause();
        }
        wait.end(target::here());
    }
}

/// A wait, by its polls.
pub(crate) struct Wait {
    polls: u32,
    /// The poll after which the wait is told the next time.
    next: u32,
    told: ToldWait,
}

impl Wait {
    #[inline(always)]
    pub fn new() -> Self {
        Self { polls: 0, next: 1 << TELL_AFTER_LOG2, told: ToldWait::NONE }
    }

    /// Counts a poll. Now and then `tell` says that the wait goes on, with the entry that it has and gets back.
    #[inline(always)]
    pub fn poll(&mut self, tell: impl FnOnce(ToldWait) -> ToldWait) {
        self.polls = self.polls.wrapping_add(1);
        if self.polls == self.next {
            core::hint::cold_path();
            self.told = tell(self.told);
            // A poll of the software device takes longer, and costs no link.
            let most = 1 << if target::IN_STEP { TELL_EVERY_LOG2 } else { TELL_AFTER_LOG2 };
            self.next = self.polls.wrapping_add(self.polls.clamp(1, most));
        }
    }

    /// Says that the wait is over, if it was told.
    #[inline(always)]
    pub fn end(&self, here: Here) {
        if self.told != ToldWait::NONE {
            end(here, self.told);
        }
    }
}

/// A wait for what the host gives, by a lane that asks nothing of its executor meanwhile.
pub(crate) struct HostWait {
    wait: Wait,
    what: WaitFor,
    lanes: u32,
    since_ns: u64,
}

impl HostWait {
    /// The lane begins to wait for a free call slot.
    pub fn for_slot(here: Here) -> Self {
        Self::new(here, Kind::Slot, 0, 1)
    }

    /// So many lanes begin to wait for a free page of the channel whose pages are shared by the words at `ring`.
    pub fn for_page(here: Here, ring: u64, lanes: u32) -> Self {
        Self::new(here, Kind::Page, ring, lanes)
    }

    fn new(here: Here, kind: Kind, address: u64, lanes: u32) -> Self {
        let what = WaitFor { address, ..WaitFor::new("", kind) };
        // The software device polls when something may have come.
        let after = if target::IN_STEP { 1 << TELL_AFTER_LOG2 } else { 1 };
        Self { wait: Wait { next: after, ..Wait::new() }, what, lanes, since_ns: here.clock_ns() }
    }

    /// Counts a poll.
    pub fn poll(&mut self, here: Here) {
        let Self { wait, what, lanes, since_ns } = self;
        wait.poll(|told| {
            let now_ns = if target::IN_STEP { here.clock_ns() } else { *since_ns };
            tell(here, what, *lanes, *since_ns, now_ns, told)
        });
    }

    /// Says that the wait is over.
    pub fn end(&self, here: Here) {
        self.wait.end(here);
    }
}

/// The device's wait table, if there is one.
fn table(here: Here) -> Option<Waits<'static>> {
    let address = here.channel().waits;
    // SAFETY: WAIT-ENTRY: the host keeps the table that it names as long as the channel.
    (address != 0).then(|| unsafe { Waits::from_address(address) })
}

#[cold]
#[inline(never)]
fn end(here: Here, told: ToldWait) {
    if let Some(waits) = table(here) {
        waits.end(here.params().launch, told);
    }
}

/// Says of the lanes that come here together and wait for the same thing that they do: the first of them has the entry.
#[inline(always)]
fn tell_together(what: WaitFor, told: ToldWait) -> ToldWait {
    let WaitFor { name, address, sequence, peer, kind } = what;
    tell_of(name[0], name[1], address, sequence, peer, kind, told)
}

// By words: a value whose address is taken lies in memory, also where nobody waits for long.
#[cold]
#[inline(never)]
fn tell_of(
    name: u64,
    rest: u64,
    address: u64,
    sequence: u64,
    peer: u32,
    kind: Kind,
    told: ToldWait,
) -> ToldWait {
    let what = WaitFor { name: [name, rest], address, sequence, peer, kind };
    let here = target::here();
    let now_ns = here.clock_ns();
    // Lanes of the software device go on by themselves: the host counts those that say the same.
    if !target::IN_STEP {
        return tell(here, &what, 1, now_ns, now_ns, told);
    }
    if told.is_of_another() {
        // Who has the entry may have waited for something else at last, and waits no more.
        if table(here).is_some_and(|waits| waits.is_told(here.params().launch, told)) {
            return told;
        }
    } else if told != ToldWait::NONE {
        return tell(here, &what, 1, now_ns, now_ns, told);
    }
    // Each lane is in one entry's count, whichever lanes come here together the next time.
    let together = Group::converge(0);
    let key = address ^ sequence.rotate_left(24) ^ u64::from(peer).rotate_left(48) ^ name;
    let same = Group::of(here, here.matching(together.mask, key));
    // One of another that waits no more is none; one that was counted stays so.
    let mut told = if told == ToldWait::COUNTED { told } else { ToldWait::NONE };
    if same.is_leader() {
        told = tell(here, &what, same.count, now_ns, now_ns, told);
    }
    let told_of_all = ToldWait(same.of_leader(told.0));
    if same.is_leader() { told } else { told_of_all.of_another() }
}

/// Says that lanes of the wave wait, or still do.
#[cold]
#[inline(never)]
fn tell(here: Here, what: &WaitFor, lanes: u32, since_ns: u64, now_ns: u64, told: ToldWait) -> ToldWait {
    let Some(waits) = table(here) else { return told };
    let launch = here.params().launch;
    if told != ToldWait::NONE && told != ToldWait::COUNTED {
        waits.still(launch, told, now_ns);
        return told;
    }
    let head = Head { peer: what.peer, lanes, wave: here.wave_in_workgroup(), kind: what.kind as u8, lap: 0 };
    let place = u64::from(launch.to_bits()) | u64::from(here.workgroup_index()) << 32;
    let entry = Entry {
        head: 0,
        place,
        since_ns,
        seen_ns: now_ns,
        address: what.address,
        sequence: what.sequence,
        name: what.name,
    };
    let hint = here.hardware_place().wrapping_mul(here.wave_size()).wrapping_add(here.lane_index());
    waits.begin(launch, hint, head, &entry, told)
}
