//! Posts: fire and forget, through the slot's ring.

use crate::call::{CallOptions, call, enter};
use crate::group::Group;
use crate::{packet, target};
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::{MAX_POST_WORDS, PostHead, check_of};

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
    if words.len() > MAX_POST_WORDS {
        return Err(CallError::TooLarge);
    }
    enter()?;
    let mut payload = [0; MAX_POST_WORDS];
    for (to, from) in payload.iter_mut().zip(words) {
        *to = *from;
    }
    let entries = PostHead::entries_for(words.len()) as u32;
    let group = Group::converge(u64::from(service) << 8 | u64::from(entries) | 1 << 63);
    let place = packet::held(group, |slot| {
        let mut place = CANCELLED;
        if group.is_leader() {
            let launch = target::params().launch;
            let mut polls = 0u32;
            // On the CPU the executor calls this while other lanes run: it asks nothing of its own lane.
            let mut look = || match slot.reserve_posts(group.count * entries) {
                Some(reserved) => {
                    place = reserved;
                    true
                }
                None => {
                    polls = polls.wrapping_add(1);
                    polls.is_multiple_of(POLLS_A_LOOK)
                        && (slot.region().stopped() || slot.region().cancelled(launch))
                }
            };
            if !look() {
                packet::hint(slot.region());
                target::wait(look);
            }
        }
        group.from_leader(place)
    });
    if place == CANCELLED {
        return Err(CallError::Cancelled);
    }
    let head = PostHead { service, lane: target::lane_index() as u8, words: words.len() as u8, extra };
    packet::current().write_post(place + u64::from(group.rank * entries), head, &payload);
    if group.is_leader() {
        let slot = packet::current();
        slot.ring_post_bell(target::bell_clock(), target::BELL_QUIET);
        packet::hint(slot.region());
    }
    Ok(())
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
