//! One packet: from the lanes of a group, through a slot, and back.
//!
//! A wave has a home slot from its first call or post on. A group that is the whole wave has it for itself; a part of a
//! diverged wave takes it if no other part does, else an extra slot for the one call.

mod exchange;
mod held;
mod patience;

pub(crate) use exchange::{
    Head, Look, Started, exchange, exchange_by_any, exchange_rarely, start, wake_host,
};
pub(crate) use held::{Held, held_by, held_slot, hold, hold_alone, release, with_home};

#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
use crate::group::Group;
use crate::target::{self, Here, Mask};
use crate::waits::HostWait;
use hostcall_abi::launch::HOME_SLOTS_AT;
use hostcall_abi::word::Owner;
use hostcall_channel::device::{Channel, Homes, Looks, Over, Slot, WaveRecord, note_posts, stop_from};
use patience::Patience;

/// Polls between looks at whether the host still serves, and whether the launch is cancelled.
const POLLS_A_LOOK: u32 = 256;

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
    unsafe { Homes::from_address(params.channel + HOME_SLOTS_AT as u64, params.home_slots) }
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
    let (mut home, mut polls, mut wait) = (None, 0u32, HostWait::for_slot(here));
    here.wait_with_pauses(|| {
        home = record.claim(homes, proposed);
        polls = polls.wrapping_add(1);
        wait.poll(here);
        home.is_some() || polls.is_multiple_of(POLLS_A_LOOK) && is_over(here)
    });
    wait.end(here);
    home
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
        && !(release_known(here, record, slot) || release_at_once(here, slot))
    {
        release_home(here);
    }
}

/// Releases the slot of a wave of which no lane does anything any more, if there is nothing to wait for or to work out.
///
/// How many slots there are is not asked, because that stands beside what a wave may have changed, and so only in its record: where
/// kernels end that make none, it would be a reason to make one.
#[inline(always)]
pub(crate) fn release_known(here: Here, record: &WaveRecord, slot: u32) -> bool {
    let first = here.params().channel + HOME_SLOTS_AT as u64;
    // SAFETY: SLOT-OWNER: the wave claimed the slot from these, so that there are so many at least; all other lanes of the wave
    // have ended or do nothing but end.
    unsafe { record.release_known(Homes::from_address(first, slot + 1), slot) }
}

/// Releases the wave's slot, if there is nothing to wait for and its state fits a word.
#[cfg_attr(target_arch = "amdgpu", cold)]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
#[cfg_attr(target_arch = "nvptx64", inline(always))]
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

/// Tells the host of the posts that a panic is, and lets no later launch of the stream begin.
#[cfg(all(target_arch = "nvptx64", hostcall_unformatted))]
pub(crate) fn end_panicked(here: Here) {
    // It has none where its launch was over before.
    if here.slot().is_some() {
        announce_posts(here.record());
    }
    stop_stream(here);
}

/// Lets no workgroup of the lane's launch, and no later launch of its stream, begin any more.
pub(crate) fn stop_stream(here: Here) {
    let params = here.params();
    // SAFETY: the host gives each launch the word of its stream.
    unsafe { stop_from(params.stop_at, params.sequence) };
}
