//! Posts: fire and forget, through the slot's ring.

use crate::call::{CallOptions, call_any, enter};
use crate::group::Group;
use crate::packet;
use crate::target::{self, Here, Mask};
use hostcall_abi::layout::LONE_WAVE;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{MAX_POST_WORDS, PostHead, check_of};
use hostcall_channel::device::{Glance, Slot};

/// No place in a ring: the launch was cancelled while the lane waited for room.
const CANCELLED: u64 = u64::MAX;

/// The same, and the wave knew it: its lanes end.
const CANCELLED_BEFORE: u64 = u64::MAX - 1;

/// Polls between looks at whether the launch was cancelled.
const POLLS_A_LOOK: u32 = 64;

/// Posts at most [`MAX_POST_WORDS`] words and 32 more bits to any service, for a lane that has called [`enter`].
#[inline]
pub(crate) fn post_words(service: u16, extra: u32, words: &[u64]) -> Result<(), CallError> {
    let mut payload = [0; MAX_POST_WORDS];
    for (to, from) in payload.iter_mut().zip(words) {
        *to = *from;
    }
    match words.len() {
        0 => put::<0>(service, extra, payload),
        1 => put::<1>(service, extra, payload),
        2 => put::<2>(service, extra, payload),
        3 => put::<3>(service, extra, payload),
        4 => put::<4>(service, extra, payload),
        5 => put::<5>(service, extra, payload),
        _ => Err(CallError::TooLarge),
    }
}

/// Posts words of a message that is more than one post, which is rare.
pub(crate) fn post_piece(service: u16, extra: u32, words: [u64; MAX_POST_WORDS]) -> Result<(), CallError> {
    put_as_group::<MAX_POST_WORDS>(service, extra, words)
}

#[inline(always)]
fn put<const N: usize>(service: u16, extra: u32, payload: [u64; MAX_POST_WORDS]) -> Result<(), CallError> {
    if target::IN_STEP && put_in_step::<N>(service, extra, payload) {
        return Ok(());
    }
    put_as_group::<N>(service, extra, payload)
}

/// The post of a full wave, or of a wave of one lane, that has posted through its slot before and finds room in the ring.
/// Whether it was that. Where the lanes of a wave run in step, each looks at the slot itself, so that
/// all that differs between posts is the position.
#[inline(always)]
fn put_in_step<const N: usize>(service: u16, extra: u32, payload: [u64; MAX_POST_WORDS]) -> bool {
    let entries = const { PostHead::entries_for(N) as u32 };
    let here = target::here();
    let slot = packet::current(here);
    let wave = here.full();
    let together = here.converge(0);
    let is_whole = together == wave;
    // Else the first lane alone. In a larger wave it looks in vain: that one never rang as a wave of one lane.
    if !is_whole && together != 1 {
        return false;
    }
    let of_all = if is_whole { wave.count_ones() * entries } else { entries };
    let ring = Ring::look(slot, !is_whole);
    let is_ready = ring.has_room(slot, of_all) & ring.is_told(slot);
    // Every lane has looked before any writes, and all have written before any looks again.
    let can_be = match is_whole {
        true => here.all(wave, is_ready) || make_ready_in_step(wave, of_all),
        false => is_ready || here.wave_lanes() == 1 && make_ready_in_step(1, of_all),
    };
    if !can_be {
        return false;
    }
    slot.take_places(ring.glance, of_all);
    let lane = match is_whole {
        true => {
            here.sync(wave);
            here.lane_index()
        }
        false => 0,
    };
    // One write for both. Where each had its own, LLVM 22 made one of the two in large kernels for AMD, and lost on the way to it where
    // the ring lies.
    let head = PostHead { service, lane: lane as u8, words: N as u8, extra };
    slot.write_post(ring.glance.post_position.wrapping_add(lane * entries), head, &payload);
    true
}

/// Makes the ring ready for posts of the lanes of `wave`, all of the wave, behind posts that say whose they are: looks whether
/// the host has made room, and tells it of the posts if it knows of none in this period. Returns whether they can be made. A
/// function of its own: what it branches for, compilers would mix with what each post does.
#[cold]
#[inline(never)]
fn make_ready_in_step(wave: Mask, entries: u32) -> bool {
    let here = target::here();
    let slot = packet::current(here);
    let mut ring = Ring::look(slot, wave == 1);
    if wave == 1 {
        // Alone it takes so long to fill its ring that it need not ask before that is full.
        let is_ready = ring.has_room(slot, entries) & ring.glance.has_rung_for_posts();
        if is_ready {
            ring.tell(slot, entries);
        }
        return is_ready;
    }
    if !here.all(wave, ring.glance.has_rung_for_posts()) {
        return false;
    }
    let is_leader = here.lane_index() == 0;
    if is_leader {
        slot.renew_ring_tail(ring.glance, entries);
    }
    here.sync(wave);
    ring.glance = slot.glance();
    if !here.all(wave, ring.has_room(slot, entries)) {
        return false;
    }
    if is_leader && !ring.is_told(slot) {
        ring.tell(slot, entries);
    }
    here.sync(wave);
    true
}

/// A slot's ring, as a wave sees it before a post.
struct Ring {
    glance: Glance,
    period: Option<u32>,
}

impl Ring {
    #[inline(always)]
    fn look(slot: Slot<'static>, is_lone_wave: bool) -> Self {
        // The clock first: it comes while the load takes its time.
        let period =
            target::bell_period().map(|period| if is_lone_wave { period | LONE_WAVE } else { period });
        Self { glance: slot.glance(), period }
    }

    #[inline(always)]
    fn has_room(&self, slot: Slot<'static>, entries: u32) -> bool {
        slot.has_room(self.glance, entries)
    }

    /// Whether posts of this period need no bell.
    #[inline(always)]
    fn is_told(&self, slot: Slot<'static>) -> bool {
        slot.is_told(self.glance, self.period)
    }

    /// Tells the host of so many entries from the position on.
    #[inline(always)]
    fn tell(&self, slot: Slot<'static>, entries: u32) {
        slot.ring_post_bell(self.period, self.glance.post_position.wrapping_add(entries));
    }
}

/// The post of any part of a wave.
#[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), cold, inline(never))]
fn put_as_group<const N: usize>(
    service: u16,
    extra: u32,
    payload: [u64; MAX_POST_WORDS],
) -> Result<(), CallError> {
    let entries = const { PostHead::entries_for(N) as u32 };
    let group = Group::converge(u64::from(service) << 8 | u64::from(entries) | 1 << 63);
    let here = group.here;
    let place = if group.is_leader() { take_places(group, entries) } else { 0 };
    let place = group.of_leader(place);
    group.sync();
    let slot = packet::current(here);
    if place >= CANCELLED_BEFORE {
        if place == CANCELLED_BEFORE {
            target::exit_lane();
        }
        return Err(CallError::Cancelled);
    }
    let place = place as u32;
    let head = PostHead { service, lane: here.lane_index() as u8, words: N as u8, extra };
    slot.write_post(place.wrapping_add(group.rank * entries), head, &payload);
    if group.is_leader() {
        packet::wake_host(here, slot.words());
    }
    Ok(())
}

/// The leader's part of a post: claims a slot if the wave has none, has the ring for its part, and reserves places for
/// `entries` entries of each lane. The first post of a wave has whose it is before it.
#[cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), cold)]
#[inline(never)]
fn take_places(group: Group, entries: u32) -> u64 {
    let here = group.here;
    here.will_post();
    if packet::claim(here).is_none() {
        return CANCELLED_BEFORE;
    }
    let slot = packet::current(here);
    // A whole wave excludes any other part.
    if !group.is_whole() && !slot.try_lock_ring() {
        here.wait_with_pauses(|| slot.try_lock_ring());
    }
    let glance = slot.glance();
    let owners = if slot.has_posted() { 0 } else { slot.owner_entries(glance, group.count) };
    let entries = group.count * entries + owners;
    let is_lone_wave = here.wave_lanes() == 1;
    let mut place = match reserve(slot, entries, is_lone_wave) {
        Some(place) => place.into(),
        None => wait_for_room(here, entries, is_lone_wave),
    };
    if place == CANCELLED && glance.cancelled {
        place = CANCELLED_BEFORE;
    }
    if owners > 0 && place < CANCELLED_BEFORE {
        packet::begin_posts(here, slot, place as u32, owners);
        place = (place as u32).wrapping_add(owners).into();
    }
    if !group.is_whole() {
        slot.unlock_ring();
    }
    place
}

/// Reserves places in the ring, if there is room, and tells the host that posts will be there. Both while the leader's
/// group has the ring.
#[inline(always)]
fn reserve(slot: Slot<'static>, entries: u32, is_lone_wave: bool) -> Option<u32> {
    let ring = Ring::look(slot, is_lone_wave);
    let place = slot.reserve_posts(ring.glance, entries)?;
    if !ring.is_told(slot) {
        ring.tell(slot, entries);
    }
    Some(place)
}

#[cold]
#[inline(never)]
fn wait_for_room(here: Here, entries: u32, is_lone_wave: bool) -> u64 {
    let mut place = CANCELLED;
    let slot = packet::current(here);
    let mut polls = 0u32;
    if slot.glance().cancelled {
        return CANCELLED;
    }
    // The host may have left the ring since the bell rang, and no post rings it any more before there is room.
    slot.announce_posts();
    packet::wake_host(here, slot.words());
    // On the CPU the executor calls this while other lanes run: it asks nothing of its own lane.
    here.wait(|| {
        slot.look_at_ring_tail();
        match reserve(slot, entries, is_lone_wave) {
            Some(reserved) => {
                place = reserved.into();
                true
            }
            None => {
                polls = polls.wrapping_add(1);
                polls.is_multiple_of(POLLS_A_LOOK) && packet::is_over(here)
            }
        }
    });
    if place == CANCELLED {
        slot.set_cancelled();
        packet::stop_stream(here);
    }
    place
}

/// As [`crate::call::post`], to any service.
#[inline]
pub(crate) fn post<A: Wire>(method: &Method, arguments: &A) -> Result<(), CallError> {
    if A::WORDS > MAX_POST_WORDS {
        return call_any::<A, ()>(method, CallOptions::DEFAULT, arguments);
    }
    enter(target::here())?;
    let mut words = [0; MAX_POST_WORDS];
    arguments.to_words(&mut words[..A::WORDS]);
    post_words(method.number(), check_of(method.schema()), &words[..A::WORDS])
}
