//! One packet: from the lanes of a group, through the wave's slot, and back.

use crate::group::Group;
use crate::target;
use hostcall_abi::layout::SLOT_STATE_WORDS;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, RequestTag};
use hostcall_channel::Region;
use hostcall_channel::device::{Laps, Slot, SlotState};

/// Polls between looks at whether the host still serves: one read over the link each.
const POLLS_A_LOOK: u32 = 256;

/// Polls between two rings of the same doorbell, in case the host lost the first.
const POLLS_A_RING: u32 = 1 << 16;

/// The channel's memory.
#[inline(always)]
pub(crate) fn region() -> Region<'static> {
    let params = target::params();
    // SAFETY: REGION: the host keeps the channel mapped while a launch runs, and checked its layout.
    unsafe { Region::from_address(params.region, params.layout) }
}

/// A slot of the channel.
///
/// # Safety
/// SLOT-OWNER, as for [`Slot::new`].
#[inline(always)]
pub(crate) unsafe fn slot(number: u32) -> Slot<'static> {
    let state = target::params().states as usize + number as usize * SLOT_STATE_WORDS * 8;
    // SAFETY: the host gives a state to each of the layout's slots; the caller promises the rest.
    unsafe { Slot::new(region(), number, &*(state as *const SlotState)) }
}

/// The slot that the calling lane's wave holds.
#[inline(always)]
pub(crate) fn current() -> Slot<'static> {
    // SAFETY: SLOT-OWNER: the host gives each resident wave a slot of its own, `Group` synchronises the lanes
    // of one packet, and `held` keeps the parts of a diverged wave apart.
    unsafe { slot(target::slot()) }
}

/// Runs `body` while the group has the wave's slot for itself.
#[inline(always)]
pub(crate) fn held<R>(group: Group, body: impl FnOnce(Slot<'static>) -> R) -> R {
    let slot = current();
    let is_part = !group.is_whole();
    if is_part {
        lock(slot, group);
    }
    let result = body(slot);
    if is_part {
        group.sync();
        if group.is_leader() {
            slot.unlock();
        }
    }
    result
}

#[cold]
#[inline(never)]
fn lock(slot: Slot<'static>, group: Group) {
    if group.is_leader() {
        target::wait(|| slot.try_lock());
    }
    group.sync();
}

/// What a packet carries for each lane besides its line.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub service: u16,
    pub check: u32,
    pub kind: Kind,
    pub argument_words: u8,
    pub result_words: u8,
    pub timeout_us: u32,
}

/// Wakes a host that sleeps. Devices across a link cannot; they are polled.
#[inline(always)]
pub(crate) fn hint(region: Region<'_>) {
    if !cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) && region.consumers_sleep() {
        target::notify();
    }
}

/// A packet on its way.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    doorbell: Doorbell,
    laps: Laps,
}

/// Sends a packet of the group's lanes through a slot that the group has for itself.
#[inline(always)]
pub(crate) fn send(slot: Slot<'static>, group: Group, head: Head, mut line: Line) -> InFlight {
    let after_posts = slot.has_untold_posts();
    let doorbell = Doorbell {
        service: head.service,
        lanes: group.count as u8,
        first_lane: group.leader() as u8,
        argument_words: head.argument_words,
        result_words: head.result_words,
        check: head.check,
        kind: head.kind,
        after_posts,
        lines: head.argument_words > 0 || group.count > 1 || after_posts || head.timeout_us > 0,
    };
    let laps = slot.laps(&doorbell, group.rank);
    if doorbell.lines {
        line.tag = RequestTag {
            lane: target::lane_index() as u8,
            timeout_us: head.timeout_us,
            post_position: slot.post_position() as u32,
        }
        .to_bits();
    }
    group.sync();
    if group.is_leader() {
        slot.ring(&doorbell, laps);
    }
    slot.write_line(&doorbell, laps, group.rank, &line);
    if group.is_leader() {
        hint(slot.region());
    }
    InFlight { doorbell, laps }
}

/// Looks for the lane's reply once.
#[inline(always)]
pub(crate) fn poll(slot: Slot<'static>, rank: u32, packet: &InFlight) -> Option<Line> {
    slot.poll_reply(&packet.doorbell, packet.laps, rank)
}

/// Waits for the lane's reply.
#[inline(always)]
pub(crate) fn receive(slot: Slot<'static>, rank: u32, packet: &InFlight) -> Result<Line, CallError> {
    let mut reply = None;
    let mut polls = 0u32;
    target::wait(|| {
        reply = poll(slot, rank, packet);
        if reply.is_some() {
            return true;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_A_LOOK) {
            if slot.region().stopped() {
                return true;
            }
            if rank == 0 && polls.is_multiple_of(POLLS_A_RING) {
                slot.ring_again(&packet.doorbell, packet.laps);
            }
        }
        false
    });
    match reply {
        Some(line) if line.tag == Status::Ok.to_bits() => Ok(line),
        reply => Err(failed(slot, reply)),
    }
}

/// Why there is no result: the reply's status, or nobody serves any more.
#[cold]
#[inline(never)]
fn failed(slot: Slot<'static>, reply: Option<Line>) -> CallError {
    let status = reply.map_or(Err(CallError::Cancelled), |line| Status::from_bits(line.tag).into_result());
    let error = status.err().unwrap_or(CallError::Malformed);
    let launch = target::params().launch;
    if error == CallError::Cancelled && (slot.region().stopped() || slot.region().cancelled(launch)) {
        current().set_cancelled(launch);
    }
    error
}

/// Sends a packet and waits for the reply.
#[inline(always)]
pub(crate) fn exchange(slot: Slot<'static>, group: Group, head: Head, line: Line) -> Result<Line, CallError> {
    let packet = send(slot, group, head, line);
    let reply = receive(slot, group.rank, &packet);
    // The slot's lines are used again only after every lane has its reply.
    group.sync();
    reply
}
