//! Sending a packet through a slot, and receiving its reply.

use super::held::{HOME, claim_extra, extra_slot, release_extra};
use super::patience::{Patience, Vain};
use super::{channel, claim, current, stop_stream};
use crate::group::Group;
use crate::target::{self, Here};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, RequestTag};
use hostcall_channel::Words;
use hostcall_channel::device::{Glance, Laps, Over, Slot};

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

/// Which posts of the wave come before a packet.
#[derive(Clone, Copy)]
pub(crate) struct PostsBefore {
    /// Whether the packet says so.
    are_told: bool,
    position: u32,
}

impl PostsBefore {
    /// Before a packet through the home slot: those that no doorbell has told the host of.
    #[inline(always)]
    fn of_home(slot: Slot<'_>, glance: Glance) -> Self {
        Self { are_told: slot.has_untold_posts(glance), position: glance.post_position }
    }

    /// Before a packet through an extra slot: all, since the host may look at that slot first.
    pub fn of_extra(here: Here) -> Self {
        let home = current(here);
        Self { are_told: home.has_posted(), position: home.glance().post_position }
    }
}

/// Wakes a host that sleeps. Devices across a link cannot; they are polled.
#[inline(always)]
pub(crate) fn wake_host(here: Here, words: Words<'_>) {
    if !cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) && words.consumers_sleep() {
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
    posts: PostsBefore,
    group: Group,
    head: Head,
    mut line: Line,
) -> InFlight {
    let after_posts = posts.are_told;
    let lane = group.here.lane_index() as u8;
    let doorbell = Doorbell {
        service: head.service,
        lanes: group.count as u8,
        // Each lane has its own index here. Only the leader's doorbell is stored.
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
    if group.is_leader() && !matches!(head.kind, Kind::Words) {
        slot.set_needs_fence();
    }
    slot.ring(&doorbell, laps, group.rank);
    if doorbell.lines {
        let post_position = posts.position;
        line.tag = RequestTag { lane, timeout_us: head.timeout_us, post_position }.to_bits();
        slot.write_line(&doorbell, laps, group.rank, &line);
    }
    slot.flip_laps(&doorbell, group.rank);
    if group.is_leader() {
        wake_host(group.here, slot.words());
    }
    InFlight { doorbell, laps }
}

/// Looks for the lane's reply once.
#[inline(always)]
pub(crate) fn poll(slot: Slot<'static>, rank: u32, packet: &InFlight) -> Option<Line> {
    slot.poll_reply(&packet.doorbell, packet.laps, rank)
}

/// How a lane looks for its answer.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// As often as it can.
    AllTheTime,
    /// Less and less often. Looks travel over the link that the host's copies need: while 132 lanes of an H200 look all the
    /// time, a copy takes twenty times as long (docs/history).
    WithPauses {
        /// Whether the lane then sees the bytes that the answer tells of. Each look empties a GPU's first-level cache for that.
        sees_bytes: bool,
        /// Whether the reply has more room than the byte area, so that the host lends it.
        #[cfg_attr(not(target_arch = "nvptx64"), expect(dead_code, reason = "others let no time pass"))]
        is_lent: bool,
    },
}

/// Waits for the lane's reply. A slot whose call the host has lost is never used again.
#[inline(always)]
pub(crate) fn receive(
    slot: Slot<'static>,
    group: Group,
    packet: InFlight,
    look: Look,
) -> Result<Line, CallError> {
    let (mut reply, mut patience) = (None, Patience::default());
    let came = || {
        reply = match look {
            Look::WithPauses { sees_bytes: true, .. } => {
                slot.poll_reply_with_bytes(&packet.doorbell, packet.laps, group.rank)
            }
            _ => poll(slot, group.rank, &packet),
        };
        if reply.is_some() {
            return true;
        }
        let ring = || {
            if group.rank == 0 {
                slot.ring_again(&packet.doorbell, packet.laps);
                slot.set_needs_fence();
            }
        };
        let vain = patience.end(group.here, ring);
        if vain == Some(Vain::Lost) {
            slot.set_lost();
        }
        vain.is_some()
    };
    match look {
        Look::AllTheTime => group.here.wait(came),
        Look::WithPauses { .. } => group.here.wait_with_pauses(came),
    }
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
    let slot = current(here);
    if error == CallError::Cancelled && Over::look(slot.words(), here.params().launch).is_over() {
        slot.set_cancelled();
        stop_stream(here);
    }
    error
}

/// Sends a packet through the home slot and waits for the reply.
#[inline(always)]
pub(crate) fn exchange(
    slot: Slot<'static>,
    glance: Glance,
    group: Group,
    head: Head,
    line: Line,
) -> Result<Line, CallError> {
    exchange_by(slot, glance, PostsBefore::of_home(slot, glance), group, head, line, Look::AllTheTime)
}

/// Sends a packet and waits for the reply.
#[inline(always)]
fn exchange_by(
    slot: Slot<'static>,
    glance: Glance,
    posts: PostsBefore,
    group: Group,
    head: Head,
    line: Line,
    look: Look,
) -> Result<Line, CallError> {
    let packet = send(slot, glance, posts, group, head, line);
    group.here.pass(group.count, packet.doorbell.request_pairs() as u32, look);
    let reply = receive(slot, group, packet, look);
    // The slot's lines are used again only after every lane has its reply.
    group.sync();
    reply
}

/// Sends a packet through the slot that the group holds, whichever that is, and waits for the reply. `slot` is the held slot,
/// perhaps with another byte area.
#[inline(always)]
pub(crate) fn exchange_by_any(
    extra: Option<u32>,
    slot: Slot<'static>,
    group: Group,
    head: Head,
    line: Line,
    look: Look,
) -> Result<Line, CallError> {
    let glance = slot.glance();
    let posts = match extra {
        Some(_) => PostsBefore::of_extra(group.here),
        None => PostsBefore::of_home(slot, glance),
    };
    exchange_by(slot, glance, posts, group, head, line, look)
}

/// Sends a packet through the slot that the group holds and waits for the reply, which takes the line's place. One function for
/// all sizes of lines, for what is rare: calls through extra slots, and those that a lane makes once.
#[cold]
#[inline(never)]
pub(crate) fn exchange_rarely(
    extra: Option<u32>,
    group: Group,
    head: Head,
    line: &mut Line,
) -> Result<(), CallError> {
    let slot = extra.map_or_else(|| current(group.here), |extra| extra_slot(group.here, extra));
    *line = exchange_by_any(extra, slot, group, head, *line, Look::AllTheTime)?;
    Ok(())
}

/// A call that one lane waits for later, through an extra slot that it holds.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    extra: u32,
    packet: InFlight,
}

/// Claims an extra slot and sends a packet of the calling lane. `None` when no extra slot is free.
pub(crate) fn start(here: Here, head: Head, line: &Line) -> Option<Started> {
    let Some(home) = claim(here) else { target::exit_lane() };
    if current(here).is_cancelled() {
        target::exit_lane();
    }
    let mut extra = claim_extra(here, home);
    if extra == HOME {
        // SAFETY: SLOT-OWNER: the lane's wave has claimed the slot in this channel.
        unsafe { here.record().collect_forgotten(channel(here), home) };
        extra = claim_extra(here, home);
        if extra == HOME {
            return None;
        }
    }
    here.record().begin_pending();
    let slot = extra_slot(here, extra);
    slot.set_holder(home, hostcall_abi::word::pairs_for(head.result_words.into()) as u32);
    let posts = PostsBefore::of_extra(here);
    let packet = send(slot, slot.glance(), posts, Group::alone(), head, *line);
    Some(Started { extra, packet })
}

impl Started {
    /// Whether the reply is there.
    pub fn is_ready(&self, here: Here) -> bool {
        poll(extra_slot(here, self.extra), 0, &self.packet).is_some()
    }

    /// Waits for the reply and gives the slot back. A slot whose call the host never answered stays taken.
    pub fn finish(&self, here: Here) -> Result<Line, CallError> {
        let slot = extra_slot(here, self.extra);
        let reply = receive(slot, Group::alone(), self.packet, Look::AllTheTime);
        self.give_back(here);
        reply
    }

    /// Waits no longer. The slot is given back at once if the reply is there, and by the wave later if not.
    pub fn forget(&self, here: Here) {
        if !self.give_back(here) {
            here.record().forget_pending(extra_slot(here, self.extra));
        }
    }

    /// Gives the slot back if the reply is there, and returns whether it is.
    fn give_back(&self, here: Here) -> bool {
        let is_ready = self.is_ready(here);
        if is_ready {
            release_extra(here, self.extra);
            here.record().end_pending();
        }
        is_ready
    }
}
