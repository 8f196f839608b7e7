//! One packet: from the lanes of a group, through a slot, and back.
//!
//! A wave has a home slot from its first call or post on. A group that is the whole wave has it for itself; a part of a
//! diverged wave takes it if no other part does, else an extra slot for the one call.

use crate::group::Group;
use crate::target::{self, Here, Mask};
use hostcall_abi::launch::CHANNEL_PARAMS_BYTES;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::{Doorbell, Kind, Line, Owner, RequestTag};
use hostcall_channel::Words;
use hostcall_channel::device::{
    Channel, Glance, Homes, Laps, Looks, Over, Slot, WaveRecord, note_posts, stop_from,
};

/// Polls between looks at whether the host still serves.
const POLLS_A_LOOK: u32 = 256;

/// Rings after which a lane whose launch is over waits no longer, some four seconds on a GPU. The host answers the calls of a launch
/// that it cancels, so that it has lost this one.
const RINGS_OF_LOST_CALL: u32 = 32;

/// The channel of the lane's launch.
#[inline]
pub(crate) fn channel(here: Here) -> Channel<'static> {
    // SAFETY: REGION: the host keeps the channel mapped while a launch runs, checked its layout, and gives parameters that
    // describe it.
    unsafe { Channel::from_params(here.channel()) }
}

/// The home slots of the lane's channel.
#[inline(always)]
fn homes(here: Here) -> Homes<'static> {
    let params = here.params();
    // SAFETY: SLOT-OWNER: the host keeps as many records behind the channel's parameters, where only channels access them.
    unsafe { Homes::from_address(params.channel + CHANNEL_PARAMS_BYTES as u64, params.home_slots) }
}

/// The slot that the calling lane's wave holds; one without room and without an owner if it holds none.
#[inline(always)]
pub(crate) fn current(here: Here) -> Slot<'static> {
    // SAFETY: SLOT-OWNER: the wave claimed the slot, `Group` synchronises the lanes of one packet, and the slot's locks keep
    // the parts of a diverged wave apart.
    unsafe { here.record().held() }
}

/// What the launches' waves saw last of whether they are over.
static LOOKS: Looks = Looks::new();

/// Whether the calling lane's launch was cancelled, or nobody serves any more, as its waves know: for who asks again and again.
pub(crate) fn over(here: Here) -> Over {
    let (words, launch) = (channel(here).words(), here.params().launch);
    match here.look_clock_ns() {
        Some(now_ns) => LOOKS.of_launch(words, launch, now_ns),
        None => Over::look(words, launch),
    }
}

/// Whether the calling lane's launch is over in either way.
pub(crate) fn is_over(here: Here) -> bool {
    over(here).is_over()
}

/// Whose the calls and posts of the calling lane's wave are. `home` is its slot, if it calls through another one.
fn owner(here: Here, home: Option<u32>) -> Owner {
    let (wave, workgroup) = (here.wave_in_workgroup(), here.workgroup_index());
    Owner { launch: here.params().launch, home, wave, workgroup }
}

/// The wave's home slot, claimed if it has none. One lane of a part asks for its part, which then synchronises. `None` when
/// the launch ends before a slot is free.
pub(crate) fn claim(here: Here) -> Option<u32> {
    here.record().claim(homes(here), here.proposed_slot()).or_else(|| wait_for_slot(here))
}

/// Claims the wave's home slot as [`claim`] does, where another part of the wave is claiming one, or none is free.
#[cold]
#[inline(never)]
fn wait_for_slot(here: Here) -> Option<u32> {
    let (record, homes, proposed) = (here.record(), homes(here), here.proposed_slot());
    let (mut home, mut polls) = (None, 0u32);
    here.wait_with_pauses(|| {
        home = record.claim(homes, proposed);
        polls = polls.wrapping_add(1);
        home.is_some() || polls.is_multiple_of(POLLS_A_LOOK) && is_over(here)
    });
    home
}

/// In place of an extra slot's index: the group has the wave's home slot.
const HOME: u32 = u32::MAX;

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

/// Takes a slot for the group. Where that is an extra one, the packet goes by [`exchange_by_extra`], or through
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
    let is_home = if has_slot { is_whole || current(here).try_lock() } else { claim_alone(here, is_whole) };
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

/// Claims a slot for a wave that has none, if one is free at once, for a lane that is alone. A function that calls none, so that
/// a GPU saves few registers.
#[cold]
#[inline(never)]
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
fn claim_extra(here: Here, home: u32) -> u32 {
    let channel = channel(here);
    let Some(extra) = channel.extras().claim(home) else { return HOME };
    // SAFETY: SLOT-OWNER: this lane has just claimed it.
    let slot = unsafe { channel.extra(extra) };
    slot.set_holder(home, 0);
    slot.publish_owner(owner(here, Some(home)));
    current(here).announce_posts();
    extra
}

/// What comes before the first post of a wave: whose its posts are, in `entries` reserved entries, and a word to the host
/// that the stream's launches post.
pub(crate) fn begin_posts(here: Here, slot: Slot<'_>, place: u32, entries: u32) {
    let params = here.params();
    // SAFETY: the host gives each launch the word of its stream.
    unsafe { note_posts(params.last_post, params.sequence) };
    slot.write_owner_entries(place, entries, owner(here, None));
    slot.set_posted();
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

fn release_extra(here: Here, extra: u32) {
    let slot = extra_slot(here, extra);
    slot.clear_holder();
    if !slot.is_lost() {
        channel(here).extras().release(extra);
    }
}

/// Rings the post bell of the wave's slot, which it has, if the host was not told of all posts: before the lane waits for
/// what the host may do because of them.
#[inline(always)]
pub(crate) fn announce_posts(record: &'static WaveRecord) {
    // SAFETY: as in `current`.
    unsafe { record.held() }.announce_posts();
}

/// Ends these lanes of a wave, which are together. The wave's last ones release its slot.
#[inline(always)]
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
pub(crate) fn end_lanes(group: Group) {
    group.sync();
    if group.is_leader() {
        note_end(group.here, group.mask);
    }
}

/// Notes that these lanes of the calling lane's wave end or have ended, with that one, which notes it for all of them. The
/// wave's last ones release its slot.
#[inline(always)]
pub(crate) fn note_end(here: Here, lanes: Mask) {
    let (record, all) = (here.record(), here.wave_lanes());
    // Nobody ended before a whole wave.
    let is_over = lanes == all || record.end(target::bits(lanes), target::bits(all));
    if is_over
        && let Some(slot) = record.slot()
        && !release_at_once(here, slot)
    {
        release_home(here);
    }
}

/// Releases the wave's slot, if there is nothing to wait for.
#[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), cold)]
#[inline(never)]
fn release_at_once(here: Here, slot: u32) -> bool {
    // SAFETY: SLOT-OWNER: all other lanes of the wave have ended, as `end` saw.
    unsafe { here.record().release_at_once(homes(here), slot) }
}

#[cold]
#[inline(never)]
fn release_home(here: Here) {
    let record = here.record();
    // SAFETY: SLOT-OWNER: all other lanes of the wave have ended, as `end` saw.
    unsafe {
        record.release(channel(here), |poll| {
            let mut patience = Patience::default();
            here.wait(|| poll() || patience.end(here, || ()).is_some());
        });
    }
}

/// Lets no workgroup of the lane's launch, and no later launch of its stream, begin any more.
pub(crate) fn stop_stream(here: Here) {
    let params = here.params();
    // SAFETY: the host gives each launch the word of its stream.
    unsafe { stop_from(params.stop_at, params.sequence) };
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
pub(crate) fn hint(here: Here, words: Words<'_>) {
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
    if group.is_leader() && !matches!(head.kind, Kind::Words) {
        slot.set_unsettled();
    }
    slot.ring(&doorbell, laps, group.rank);
    if doorbell.lines {
        let post_position = posts.position;
        line.tag = RequestTag { lane, timeout_us: head.timeout_us, post_position }.to_bits();
        slot.write_line(&doorbell, laps, group.rank, &line);
    }
    slot.flip_laps(&doorbell, group.rank);
    if group.is_leader() {
        hint(group.here, slot.words());
    }
    InFlight { doorbell, laps }
}

/// Looks for the lane's reply once.
#[inline(always)]
pub(crate) fn poll(slot: Slot<'static>, rank: u32, packet: &InFlight) -> Option<Line> {
    slot.poll_reply(&packet.doorbell, packet.laps, rank)
}

/// How long a lane waits for an answer.
#[derive(Default)]
struct Patience {
    polls: u32,
    /// Rings since the launch was over.
    rings: u32,
    /// The target's own: when the doorbell rang last.
    rang: u64,
}

/// Why a lane waits for an answer no longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vain {
    /// Nobody serves any more.
    Stopped,
    /// The launch is over, and the host has lost the call.
    Lost,
}

impl Patience {
    /// Counts a poll that found no answer. `ring` rings again.
    #[inline(always)]
    fn end(&mut self, here: Here, ring: impl FnOnce()) -> Option<Vain> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_A_LOOK) {
            return None;
        }
        let over = over(here);
        if over.stopped {
            return Some(Vain::Stopped);
        }
        if target::rings_again(self.polls, &mut self.rang) {
            ring();
            self.rings += u32::from(over.cancelled);
            if self.rings > RINGS_OF_LOST_CALL {
                return Some(Vain::Lost);
            }
        }
        None
    }
}

/// How a lane looks for its answer.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// As often as it can.
    AllTheTime,
    /// Less and less often. Looks travel over the link that the host's copies need: while 132 lanes of an H200 look all the
    /// time, a copy takes twenty times as long (docs/measurements.md).
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
                slot.set_unsettled();
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

/// Sends a packet through an extra slot and waits for the reply, which takes the line's place.
#[cold]
#[inline(never)]
pub(crate) fn exchange_by_extra(
    extra: u32,
    group: Group,
    head: Head,
    line: &mut Line,
) -> Result<(), CallError> {
    let slot = extra_slot(group.here, extra);
    *line = exchange_by_any(Some(extra), slot, group, head, *line, Look::AllTheTime)?;
    Ok(())
}

/// The slot that the group holds, whichever that is.
pub(crate) fn held_slot(here: Here, held: Held) -> Slot<'static> {
    held.extra().map_or(held.home_slot, |extra| extra_slot(here, extra))
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
    let extra = claim_extra(here, home);
    if extra == HOME {
        return None;
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
        if poll(slot, 0, &self.packet).is_some() {
            release_extra(here, self.extra);
            here.record().end_pending();
        }
        reply
    }
}
