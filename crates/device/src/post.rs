//! Posts: fire and forget, through the slot's ring.

use crate::call::{CallOptions, call, enter};
use crate::group::Group;
use crate::{packet, target};
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{MAX_POST_WORDS, PostHead, check_of};
use hostcall_channel::device::Slot;

/// No place in a ring: the launch was cancelled while the lane waited for room.
const CANCELLED: u64 = u64::MAX;

/// Polls between looks at whether the launch was cancelled.
const POLLS_A_LOOK: u32 = 64;

/// Posts at most [`MAX_POST_WORDS`] words and 32 more bits to a service. Waits while the slot's ring is full;
/// the host takes the posts of a lane in order, and before the lane's next call.
///
/// # Errors
/// [`CallError::Cancelled`] when the launch was cancelled, [`CallError::TooLarge`] for more words.
#[inline]
pub fn post_words(service: u16, extra: u32, words: &[u64]) -> Result<(), CallError> {
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

/// A post of `N` words, the same code for every service.
#[inline(never)]
fn put<const N: usize>(service: u16, extra: u32, payload: [u64; MAX_POST_WORDS]) -> Result<(), CallError> {
    enter()?;
    let entries = const { PostHead::entries_for(N) as u32 };
    let group = Group::converge(u64::from(service) << 8 | u64::from(entries) | 1 << 63);
    let place = packet::held(group, |slot| {
        let mut place = CANCELLED;
        if group.is_leader() {
            place = match slot.reserve_posts(group.count * entries) {
                Some(place) => place,
                None => wait_for_room(slot, group.count * entries),
            };
        }
        group.of_leader(place)
    });
    if place == CANCELLED {
        return Err(CallError::Cancelled);
    }
    let slot = packet::current();
    let head = PostHead { service, lane: target::lane_index() as u8, words: N as u8, extra };
    slot.write_post(place + u64::from(group.rank * entries), head, &payload);
    if group.is_leader() {
        slot.ring_post_bell(target::bell_clock(), target::BELL_QUIET);
        packet::hint(slot.region());
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn wait_for_room(slot: Slot<'static>, entries: u32) -> u64 {
    let mut place = CANCELLED;
    let launch = target::params().launch;
    let mut polls = 0u32;
    packet::hint(slot.region());
    // On the CPU the executor calls this while other lanes run: it asks nothing of its own lane.
    target::wait(|| match slot.reserve_posts(entries) {
        Some(reserved) => {
            place = reserved;
            true
        }
        None => {
            polls = polls.wrapping_add(1);
            polls.is_multiple_of(POLLS_A_LOOK) && (slot.region().stopped() || slot.region().cancelled(launch))
        }
    });
    place
}

/// Posts `arguments` to `method`, whose result, if any, nobody gets. Arguments of more than
/// [`MAX_POST_WORDS`] words go as a call instead.
///
/// # Errors
/// As for [`post_words`]; a call's status when it went as a call.
#[inline]
pub fn post<A: Wire>(method: &Method, arguments: &A) -> Result<(), CallError> {
    if A::WORDS > MAX_POST_WORDS {
        return call::<A, ()>(method, CallOptions::DEFAULT, arguments);
    }
    let mut words = [0; MAX_POST_WORDS];
    arguments.to_words(&mut words[..A::WORDS]);
    post_words(method.number, check_of(method.schema), &words[..A::WORDS])
}
