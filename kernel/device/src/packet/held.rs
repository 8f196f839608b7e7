//! The slot that a group has for one call.

use super::{channel, claim, current, homes, owner};
use crate::group::Group;
use crate::target::{self, Here};
use hostcall_channel::device::{Glance, Slot};

/// In place of an extra slot's index: the group has the wave's home slot.
pub(super) const HOME: u32 = u32::MAX;

/// In place of an extra slot's index: no slot was free until the launch ended.
const LAUNCH_IS_OVER: u32 = u32::MAX - 1;

/// A slot that a group has for itself, until [`release`]: the wave's home slot or an extra one.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// The wave's home slot, also where the group has an extra one.
    pub home_slot: Slot<'static>,
    /// A look at the home slot's state.
    pub glance: Glance,
    /// Index of the extra slot that the group has, or [`HOME`].
    extra: u32,
}

impl Held {
    /// Returns the index of the extra slot that the group has, if it has one.
    #[inline(always)]
    pub fn extra(&self) -> Option<u32> {
        if self.extra == HOME { None } else { Some(self.extra) }
    }
}

/// Takes a slot for the group. Where that is an extra one, the packet goes by [`super::exchange_rarely`], or through
/// [`extra_slot`].
#[inline(always)]
pub(crate) fn hold(group: Group) -> Held {
    let slot = current(group.here);
    let glance = slot.glance();
    if !glance.is_unready() {
        // A whole wave excludes any other part.
        if group.is_whole() {
            return Held { home_slot: slot, glance, extra: HOME };
        }
        // Mostly the part is one lane. `glance` was read before this lane had the lock and may be of another part's call,
        // so it is read again.
        if group.count == 1 && group.here.record().slot().is_some() && slot.try_lock() {
            let slot = current(group.here);
            return Held { home_slot: slot, glance: slot.glance(), extra: HOME };
        }
    }
    let extra = prepare(group);
    let slot = current(group.here);
    Held { home_slot: slot, glance: slot.glance(), extra }
}

// What is rare takes its slot again rather than by reference: a value whose address is taken lies in memory.

/// Claims a home slot for the wave, if it has none, and says whose it is; takes it for the group, if that is not the whole
/// wave, or an extra one if another part has it. Returns the extra slot's index, or [`HOME`].
#[cold]
#[inline(never)]
fn prepare(group: Group) -> u32 {
    // Every lane of a whole wave has seen that the slot is not ready before the leader makes it so.
    group.sync();
    let extra = if group.is_leader() { prepare_for(group) } else { HOME };
    let extra = group.of_leader(extra.into()) as u32;
    if extra == LAUNCH_IS_OVER {
        target::exit_lane();
    }
    group.sync();
    extra
}

/// What a group has that [`hold`] or [`hold_alone`] gave it, with this extra slot.
#[inline(always)]
pub(crate) fn held_by(group: Group, extra: Option<u32>) -> Held {
    let slot = current(group.here);
    Held { home_slot: slot, glance: slot.glance(), extra: extra.unwrap_or(HOME) }
}

/// [`hold`] for a lane that is alone: most of what a group has to see to is not there, and a call has half the instructions before
/// its doorbell, of which each waits for the one before.
#[inline(always)]
pub(crate) fn hold_alone(group: Group) -> Held {
    let (here, is_whole) = (group.here, group.is_whole());
    let has_slot = here.record().slot().is_some();
    let is_home = if has_slot {
        is_whole || current(here).try_lock()
    } else {
        core::hint::cold_path();
        claim_alone(here, is_whole)
    };
    let extra = if is_home { HOME } else { prepare_for(group) };
    if extra == LAUNCH_IS_OVER {
        target::exit_lane();
    }
    let slot = current(here);
    let mut glance = slot.glance();
    if glance.is_unready() && extra == HOME {
        publish_late(here);
        glance = slot.glance();
    }
    Held { home_slot: slot, glance, extra }
}

/// Says whose the calls of a wave are that has claimed its slot for posts.
#[cold]
#[inline(never)]
fn publish_late(here: Here) {
    current(here).publish_owner(owner(here, None));
}

/// Claims a slot for a wave that has none, if one is free at once, for a lane that is alone. Part of the call: as a function of its
/// own it saved and restored 23 registers of a GPU's lane, and a first call took 0.1 us longer.
#[inline(always)]
fn claim_alone(here: Here, is_whole: bool) -> bool {
    here.record().claim_to_call(homes(here), here.proposed_slot(), is_whole, owner(here, None))
}

/// The leader's part of [`prepare`], and what a lane alone does where somebody else has what it asks for. A function of its own,
/// because it is rare; on AMD, where it has one caller, the call would take more stack.
#[cfg_attr(target_arch = "amdgpu", inline(always))]
#[cfg_attr(not(target_arch = "amdgpu"), cold, inline(never))]
fn prepare_for(group: Group) -> u32 {
    let here = group.here;
    let Some(home) = claim(here) else { return LAUNCH_IS_OVER };
    if !group.is_whole() && !current(here).try_lock() {
        let extra = extra_or_turn(here, home);
        if extra != HOME {
            return extra;
        }
    }
    let slot = current(here);
    if slot.glance().is_unready() {
        slot.publish_owner(owner(here, None));
    }
    HOME
}

/// For a part of a wave whose home slot another part has: an extra slot, or [`HOME`] once it has the home slot.
#[cold]
#[inline(never)]
fn extra_or_turn(here: Here, home: u32) -> u32 {
    let extra = claim_extra(here, home);
    if extra == HOME {
        let slot = current(here);
        let turn = slot.line_up();
        here.wait_with_pauses(|| slot.has_turn(turn));
    }
    extra
}

/// Claims an extra slot and says whose it is. [`HOME`] when none is free.
pub(super) fn claim_extra(here: Here, home: u32) -> u32 {
    let channel = channel(here);
    let Some(extra) = channel.extras().claim(home) else { return HOME };
    // SAFETY: SLOT-OWNER: this lane has just claimed it.
    let slot = unsafe { channel.extra(extra) };
    slot.set_holder(home, 0);
    slot.publish_owner(owner(here, Some(home)));
    current(here).announce_posts();
    extra
}

/// The extra slot that a group holds.
#[inline]
pub(crate) fn extra_slot(here: Here, extra: u32) -> Slot<'static> {
    // SAFETY: SLOT-OWNER: the extra slots' bitmap gives each to one lane at a time.
    unsafe { channel(here).extra(extra) }
}

/// Has the group do something that only whoever has the wave's home slot may do, without a call: where [`hold`] might publish
/// whose the slot is, a call must follow. Does nothing where the wave has no slot, or another part of it has that.
pub(crate) fn with_home(group: Group, body: impl FnOnce()) {
    let here = group.here;
    let is_whole = group.is_whole();
    let is_held =
        group.is_leader() && here.record().slot().is_some() && (is_whole || current(here).try_lock());
    if group.of_leader(is_held.into()) == 0 {
        return;
    }
    body();
    group.sync();
    if !is_whole && group.is_leader() {
        current(here).end_turn();
    }
}

/// Gives the slot to the wave's other parts, or the extra slot to anybody.
#[inline(always)]
pub(crate) fn release(group: Group, held: Held) {
    if group.is_whole() {
        return;
    }
    if group.count == 1 && held.extra == HOME {
        held.home_slot.end_turn();
    } else {
        unlock(group, held.extra);
    }
}

#[cold]
#[inline(never)]
fn unlock(group: Group, extra: u32) {
    group.sync();
    if !group.is_leader() {
    } else if extra == HOME {
        current(group.here).end_turn();
    } else {
        release_extra(group.here, extra);
    }
}

pub(super) fn release_extra(here: Here, extra: u32) {
    let slot = extra_slot(here, extra);
    slot.clear_holder();
    if !slot.is_lost() {
        channel(here).extras().release(extra);
    }
}

/// The slot that the group holds, whichever that is.
pub(crate) fn held_slot(here: Here, held: Held) -> Slot<'static> {
    held.extra().map_or(held.home_slot, |extra| extra_slot(here, extra))
}
