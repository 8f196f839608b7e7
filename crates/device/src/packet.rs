//! One packet: from the lanes of a group, through the wave's slot, and back.

use crate::group::Group;
use crate::target::{self, Here};
use hostcall_abi::layout::SLOT_STATE_BYTES;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, RequestTag};
use hostcall_channel::Region;
use hostcall_channel::device::{Glance, Laps, Slot, SlotState};

/// Polls between looks at whether the host still serves: one read over the link each.
const POLLS_A_LOOK: u32 = 256;

/// Polls between two rings of the same doorbell, in case the host lost the first.
const POLLS_A_RING: u32 = 1 << 16;

/// The channel's memory.
#[inline(always)]
pub(crate) fn region(here: Here) -> Region<'static> {
    let params = here.params();
    // SAFETY: REGION: the host keeps the channel mapped while a launch runs, and checked its layout.
    unsafe { Region::from_address(target::global(params.region) as u64, target::sizes(params)) }
}

/// A slot of the channel.
///
/// # Safety
/// SLOT-OWNER, as for [`Slot::new`].
#[inline(always)]
pub(crate) unsafe fn slot(here: Here, number: u32) -> Slot<'static> {
    let states = target::global(here.params().states);
    // SAFETY: the host gives a state to each of the layout's slots; the caller promises the rest.
    unsafe {
        let state = states.add(number as usize * SLOT_STATE_BYTES).cast::<SlotState>();
        Slot::new(region(here), number, &*state)
    }
}

/// The slot that the calling lane's wave holds.
#[inline(always)]
pub(crate) fn current(here: Here) -> Slot<'static> {
    // SAFETY: SLOT-OWNER: the host gives each resident wave a slot of its own, `Group` synchronises the lanes
    // of one packet, and `hold` keeps the parts of a diverged wave apart. The target says where the state is.
    unsafe { Slot::new(region(here), here.slot(), &*here.state().cast::<SlotState>()) }
}

/// Takes the wave's slot for the group, until [`release`].
#[inline(always)]
pub(crate) fn hold(group: Group) -> Slot<'static> {
    if !group.is_whole() {
        // A whole wave excludes any other part.
        lock(group);
    }
    current(group.here)
}

/// Gives the wave's slot to its other parts.
#[inline(always)]
pub(crate) fn release(group: Group) {
    if !group.is_whole() {
        unlock(group);
    }
}

// What is rare takes its slot again rather than by reference: a value whose address is taken lies in memory.

#[cold]
#[inline(never)]
fn lock(group: Group) {
    if group.is_leader() {
        let slot = current(group.here);
        let turn = slot.line_up();
        group.here.wait_for_part(|| slot.has_turn(turn));
    }
    group.sync();
}

#[cold]
#[inline(never)]
fn unlock(group: Group) {
    group.sync();
    if group.is_leader() {
        current(group.here).end_turn();
    }
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
pub(crate) fn hint(here: Here, region: Region<'_>) {
    if !cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) && region.consumers_sleep() {
        here.notify();
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
pub(crate) fn send(
    slot: Slot<'static>,
    glance: Glance,
    group: Group,
    head: Head,
    mut line: Line,
) -> InFlight {
    let after_posts = slot.has_untold_posts(glance);
    let lane = group.here.lane_index() as u8;
    let doorbell = Doorbell {
        service: head.service,
        lanes: group.count as u8,
        // The leader rings.
        first_lane: lane,
        argument_words: head.argument_words,
        result_words: head.result_words,
        check: head.check,
        kind: head.kind,
        after_posts,
        lines: head.argument_words > 0 || group.count > 1 || after_posts || head.timeout_us > 0,
    };
    let laps = slot.laps(glance, &doorbell, group.rank);
    group.sync();
    slot.ring(&doorbell, laps, group.rank);
    if doorbell.lines {
        let post_position = glance.post_position;
        line.tag = RequestTag { lane, timeout_us: head.timeout_us, post_position }.to_bits();
        slot.write_line(&doorbell, laps, group.rank, &line);
    }
    if group.is_leader() {
        hint(group.here, slot.region());
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
pub(crate) fn receive(slot: Slot<'static>, group: Group, packet: InFlight) -> Result<Line, CallError> {
    let mut reply = None;
    let mut polls = 0u32;
    if group.count > 1 {
        group.here.pass(packet.doorbell.request_pairs() as u32);
    }
    group.here.wait(|| {
        reply = poll(slot, group.rank, &packet);
        if reply.is_some() {
            return true;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_A_LOOK) {
            if slot.region().stopped() {
                return true;
            }
            if group.rank == 0 && polls.is_multiple_of(POLLS_A_RING) {
                slot.ring_again(&packet.doorbell, packet.laps);
            }
        }
        false
    });
    match reply {
        Some(line) if line.tag == Status::Ok.to_bits() => Ok(line),
        Some(line) => Err(failed(group.here, line.tag)),
        None => Err(failed(group.here, Status::Error(CallError::Cancelled).to_bits())),
    }
}

/// What a reply's status means, and whether the wave's launch is over.
#[cold]
#[inline(never)]
fn failed(here: Here, status: u64) -> CallError {
    let error = Status::from_bits(status).into_result().err().unwrap_or(CallError::Malformed);
    let region = region(here);
    if error == CallError::Cancelled && (region.stopped() || region.cancelled(here.params().launch)) {
        current(here).set_cancelled();
    }
    error
}

/// Sends a packet and waits for the reply.
#[inline(always)]
pub(crate) fn exchange(
    slot: Slot<'static>,
    glance: Glance,
    group: Group,
    head: Head,
    line: Line,
) -> Result<Line, CallError> {
    let packet = send(slot, glance, group, head, line);
    let reply = receive(slot, group, packet);
    // The slot's lines are used again only after every lane has its reply.
    group.sync();
    reply
}
