//! How the lanes of a grid share work, and lanes of one wave of which each does something else.

use crate::mix;
use crate::services::Echo;
use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::{Disjoint, Global, Lane, kernel};

/// Counts in `shared` how often each number is in a lane's share of all of them, and in `lens` how many each lane has.
/// Writes to `strided` which lane each number is strided to.
#[kernel]
pub fn shares(lane: &Lane, shared: &[Global<u32>], strided: &[Global<u64>], lens: &[Global<u64>]) {
    let (mut len, mut least) = (0, 0);
    for i in lane.share(shared.len()) {
        assert!(i >= least);
        least = i + 1;
        shared[i].fetch_add(1, Relaxed, Scope::Device);
        len += 1;
    }
    lens[lane.global_id()].set(len);
    for i in lane.strided(strided.len()) {
        strided[i].set(lane.global_id() as u64);
    }
    // Of more than there is, each lane has some.
    for end in [1 << 61, (1 << 61) + 1] {
        assert!(lane.share(end).next().is_some_and(|first| first < end));
        assert_eq!(lane.strided(end).next(), Some(lane.global_id()));
    }
    assert!(lane.share(0).next().is_none() && lane.strided(0).next().is_none());
}

/// Adds each number and its place to what lies in `sums`.
#[kernel]
pub fn own_shares(lane: &Lane, x: &[u64], mut sums: Disjoint<'_, u64>) {
    let x = &x[..sums.len()];
    // Twice: a lane has its share as often as it asks for it.
    for (i, sum) in sums.share(lane) {
        *sum += x[i];
    }
    assert_eq!(sums.share(lane).count(), lane.share(sums.len()).count());
    for (i, sum) in sums.share(lane) {
        *sum += i as u64;
    }
}

/// Takes two buffers of which each lane has a part.
#[kernel]
pub fn own_shares_of_two(lane: &Lane, mut a: Disjoint<'_, u64>, mut b: Disjoint<'_, u64>) {
    a.share(lane).for_each(|(_, a)| *a += 1);
    b.share(lane).for_each(|(_, b)| *b += 2);
}

/// Lanes that end at once, beside others that wait in every way.
#[kernel]
pub fn of_all_sorts(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    match id % 11 {
        2 => (0..5).for_each(|_| lane.pause()),
        5 => assert_eq!(Echo::one(id), Ok(id)),
        6 => assert!(lane.active() & 1 << lane.index() != 0),
        8 => assert!(
            lane.ballot(id.is_multiple_of(2)) & 1 << lane.index()
                == u64::from(id.is_multiple_of(2)) << lane.index()
        ),
        9 => assert!(lane.clock_ns() > 0),
        10 => {
            lane.pause();
            assert_eq!(Echo::two(id, 3), Ok((id, 3)));
        }
        _ => {}
    }
    out[id as usize].set(id + 1);
}

/// Values that each lane sorts: more than what is sorted by insertion.
const SORTED: usize = 48;

/// Sorts pairs from several orders, and looks whether each is where it belongs. Not stably: that takes 5 KiB of a GPU's stack.
/// The same pairs in each lane: in an image that ptxas makes of an object, recursion of lanes that go apart mixes up their stacks.
#[kernel]
pub fn sorted(lane: &Lane, out: &[Global<u64>]) {
    for round in 0..40 {
        let mut pairs = [(0u32, 0u64); SORTED];
        for (i, pair) in (0..).zip(&mut pairs) {
            *pair = ((mix(round << 8 | i) % 16) as u32, i);
        }
        pairs.sort_unstable();
        assert!(pairs.is_sorted());
        let there = pairs.iter().fold(0u64, |there, pair| there | 1 << pair.1);
        assert_eq!(there, (1 << SORTED) - 1);
    }
    let id = lane.global_id();
    out[id].set(id as u64 + 1);
}
