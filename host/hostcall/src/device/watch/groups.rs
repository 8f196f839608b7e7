//! Which waits a device tells where there are more than a message has room for: of each kind one, and all of them in groups.

use super::collect::{short, word_of};
use super::state::WaitGroup;
use hostcall_server::{Polled, Waiting, WaitsFor};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Waits that are told one by one, and groups of them.
pub(super) const MOST_WAITING: usize = 256;
const MOST_GROUPS: usize = 256;

fn polled(waiting: &Waiting) -> Option<Polled> {
    match waiting.waits_for {
        WaitsFor::Flag(polled) | WaitsFor::Barrier(polled) => Some(polled),
        _ => None,
    }
}

/// Returns the waits that are told, in the order of their times, and of how many kinds of waits for ranks none is.
///
/// The longest wait of each kind comes first, for those who ask why it does not end: of two looks it is the same one, as long as it
/// stands. Of each name and rank the earliest events come before the others, as who waits for an early one is not past it.
pub(super) fn told(mut waiting: Vec<Waiting>) -> (Vec<Waiting>, u64) {
    waiting.sort_by_key(|wait| Reverse(wait.waited));
    if waiting.len() <= MOST_WAITING {
        return (waiting, 0);
    }
    let mut kinds = HashSet::new();
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for wait in waiting {
        let of = polled(&wait);
        let kind = (word_of(&wait.waits_for), wait.service.clone(), of.map(|of| (of.peer, of.sequence)));
        if kinds.insert(kind) { &mut firsts } else { &mut others }.push(wait);
    }
    firsts.sort_by_key(|wait| polled(wait).map(|of| (of.peer.is_none(), of.sequence)));
    let mut of_name = HashMap::<_, usize>::new();
    let place = |wait: &Waiting| {
        let peer = polled(wait).and_then(|of| of.peer);
        let place = of_name.entry((wait.service.clone(), peer)).or_default();
        *place += 1;
        *place
    };
    let mut placed: Vec<(usize, Waiting)> = {
        let places: Vec<usize> = firsts.iter().map(place).collect();
        places.into_iter().zip(firsts).collect()
    };
    placed.sort_by_key(|(place, _)| *place);
    let has_peer = |wait: &Waiting| polled(wait).is_some_and(|of| of.peer.is_some());
    let untold = placed.iter().skip(MOST_WAITING).filter(|(_, wait)| has_peer(wait)).count() as u64;
    let all = placed.into_iter().map(|(_, wait)| wait).chain(others);
    let mut told: Vec<Waiting> = all.take(MOST_WAITING).collect();
    told.sort_by_key(|wait| Reverse(wait.waited));
    (told, untold)
}

/// What waits of a group have in common.
type Key<'a> = (&'a str, Option<String>, &'a str, std::mem::Discriminant<WaitsFor>, Option<u32>, Option<u64>);

/// Returns all waits in groups, the longest first: by as much as leaves few enough of them. With how many waits are in none.
pub(super) fn groups(waiting: &[Waiting]) -> (Vec<WaitGroup>, u64) {
    let by = |has_launch: bool, has_peer: bool| {
        let mut groups = HashMap::<Key<'_>, WaitGroup>::new();
        for wait in waiting {
            let of = polled(wait);
            let launch = has_launch.then(|| wait.launch.to_string());
            let peer = of.and_then(|of| of.peer).filter(|_| has_peer);
            let sequence = of.map(|of| of.sequence);
            let kind = std::mem::discriminant(&wait.waits_for);
            let key: Key<'_> =
                (&wait.kernel, launch.clone(), &wait.service, kind, peer, sequence.filter(|_| has_launch));
            let group = groups.entry(key).or_insert_with(|| WaitGroup {
                kernel: short(&wait.kernel),
                launch,
                service: short(&wait.service),
                waits_for: word_of(&wait.waits_for),
                peer,
                sequences: sequence.map(|sequence| (sequence, sequence)),
                ..WaitGroup::default()
            });
            if let (Some((first, last)), Some(sequence)) = (&mut group.sequences, sequence) {
                (*first, *last) = ((*first).min(sequence), (*last).max(sequence));
            }
            group.waits += 1;
            group.lanes += u64::from(wait.lanes);
            group.longest_s = group.longest_s.max(wait.waited.as_secs_f64());
        }
        groups.into_values().collect::<Vec<_>>()
    };
    let mut groups = by(true, true);
    for has_peer in [true, false] {
        if groups.len() > MOST_GROUPS {
            groups = by(false, has_peer);
        }
    }
    let names =
        |of: &WaitGroup| (of.kernel.clone(), of.launch.clone(), of.service.clone(), of.peer, of.sequences);
    groups.sort_by(|a, b| b.longest_s.total_cmp(&a.longest_s).then_with(|| names(a).cmp(&names(b))));
    let ungrouped = groups.iter().skip(MOST_GROUPS).map(|group| group.waits).sum();
    groups.truncate(MOST_GROUPS);
    (groups, ungrouped)
}
