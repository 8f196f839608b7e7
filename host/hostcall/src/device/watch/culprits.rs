//! Who waits for whom among the processes of jobs, and because of whom: from what they say, and of nothing else.
//!
//! A wave that polls a flag says whose it is and the event's number there ([`Polled`]). Of who is waited for, its own waits say
//! where it is:
//!
//! | who is waited for for event 5 | so |
//! |---|---|
//! | waits for event 6 or later of the same name itself | it is *past* the event: its signal was left out or lost |
//! | waits for a rank otherwise | it is *held up*: its own waits say by whom |
//! | waits for its host, or for what names no rank | that is why |
//! | runs, and waits of it may go on that found no room to be told | whether it waits is not known |
//! | runs, and nothing of it waits; runs no launch; is not there | it has not sent it yet, or never will |
//!
//! So each wait that stands still leads to a [`Culprit`], or into a circle of ranks that hold each other up. A circle may also lie
//! within a process, through its handlers ([`super::handlers`]). Processes say what they
//! say at different moments: [`Explanation`]s are of waits that two looks have found, one a while after the other, and whose waves
//! have polled in between ([`explain`]'s `before`).
//!
//! It takes memory for what the processes said, which each of them bounds, and time in proportion to that.

use super::handlers::{self, circles_of};
use super::state::{DeviceState, Identity, Place, Polled, Process, Wait};
use crate::device::metrics::sum;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rank {
    /// Its job.
    pub job: String,
    /// Its number there, if it has one.
    pub rank: Option<u64>,
    /// Its process, if it is there.
    pub pid: Option<u32>,
    /// The name of its machine, if the process is there.
    #[serde(default)]
    pub host: String,
}

/// As part of a sentence, such as `rank 3 (process 17)`, or with `{:#}` also on which machine.
impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on =
            if f.alternate() && self.pid.is_some() { format!(" on {}", self.host) } else { String::new() };
        match (self.rank, self.pid) {
            (Some(rank), Some(pid)) => write!(f, "rank {rank} (process {pid}{on})"),
            (Some(rank), None) => write!(f, "rank {rank}"),
            (None, Some(pid)) => write!(f, "process {pid}{on}"),
            (None, None) => f.write_str("a process"),
        }
    }
}

/// Why a wait does not end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// Who is waited for waits for a later event itself.
    Past {
        /// Which.
        waits_for: u64,
        /// Of which rank.
        of: Option<u32>,
    },
    /// Its launches run, and none says that it waits.
    Runs,
    /// Its launches run, and waits of theirs may go on that found no room to be told.
    Untold,
    /// It runs no launch.
    RunsNothing,
    /// No process of the job has this rank, or none that could be asked.
    NotThere,
    /// It waits for no rank, but for its host or for what names no rank.
    Waits {
        /// What waits longest there, in a sentence.
        text: String,
    },
}

/// A wait that others wait for, too, and that no other wait explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Culprit {
    /// Who waits.
    pub waits: Rank,
    /// The flag's or barrier's name.
    pub name: String,
    /// Which of the events.
    pub sequence: u64,
    /// For how many seconds.
    pub waited_s: f64,
    /// Whose event it is.
    pub of: Rank,
    /// Why it does not come.
    pub why: Why,
}

/// A sentence; with `{:#}` it says also on which machines processes are.
impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waits, name, sequence, waited_s, of, why } = self;
        let said = |rank: &Rank| if f.alternate() { format!("{rank:#}") } else { rank.to_string() };
        let (of, waits) = (said(of), said(waits));
        write!(f, "{of}: {waits} has waited for its `{name}` number {sequence} for {waited_s:.1} s, and ")?;
        match why {
            Why::Past { waits_for, of: Some(rank) } => {
                write!(f, "it is past that: it waits for number {waits_for} of rank {rank}")
            }
            Why::Past { waits_for, of: None } => {
                write!(f, "it is past that: it waits for number {waits_for}")
            }
            Why::Runs => f.write_str("nothing that it runs says that it waits"),
            Why::Untold => {
                f.write_str("waits of it found no room to be told: whether it waits itself is not known")
            }
            Why::RunsNothing => f.write_str("it runs no launch"),
            Why::NotThere => f.write_str("it is not there, or cannot be asked"),
            Why::Waits { text } => write!(f, "it waits itself: {text}"),
        }
    }
}

/// Who is in a circle, and waits for the next one there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Member {
    /// A rank, some wave of which waits for the next one.
    Rank(Rank),
    /// A launch, a call of which waits for its handler.
    Launch {
        /// Its process.
        of: Rank,
        /// Its device's number there, and its number on that.
        device: u64,
        /// Its number on the device.
        launch: String,
        /// Its kernel, if it is known.
        kernel: String,
    },
    /// A handler, whose thread waits for the next launch.
    Handler {
        /// Its process.
        of: Rank,
        /// Its method.
        service: String,
        /// The function that it waits in.
        waits_in: String,
    },
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => rank.fmt(f),
            Self::Launch { of, launch, kernel, .. } if kernel.is_empty() => {
                write!(f, "launch {launch} of {of}")
            }
            Self::Launch { of, launch, kernel, .. } => write!(f, "launch {launch} of {kernel} in {of}"),
            Self::Handler { service, waits_in, .. } => {
                write!(f, "the handler of {service}, which in {waits_in}")
            }
        }
    }
}

/// Who waits for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// Waits because of which the others wait: the longest first.
    pub culprits: Vec<Culprit>,
    /// Who hold each other up: each waits for the next, and the last for the first. Each circle is of ranks, or of launches and
    /// handlers of one process.
    pub circles: Vec<Vec<Member>>,
    /// Waits for a rank that others explain.
    pub held_up: u64,
    /// Of these, which process is held up by which, by their places among the processes.
    #[serde(default)]
    pub held_up_by: BTreeSet<(usize, usize)>,
    /// Waits, or kinds of waits for ranks, that processes had no room to tell: there may be culprits and circles that are not here.
    #[serde(default)]
    pub untold: u64,
    /// Processes that were not asked, since there are more than are asked at a time: the same. Nobody is then said not to be there.
    #[serde(default)]
    pub left_out: u64,
}

/// A wait for a rank.
struct Held<'a> {
    /// The process that waits, and the one that is waited for, if it is there.
    from: usize,
    to: Option<usize>,
    peer: u32,
    polled: Polled,
    wait: &'a Wait,
}

/// Explains what `processes` wait for. Of waits for ranks those count that `before` has too, and that have polled since: what the
/// same processes said a while before, such as 100 ms. `left_out` is how many processes were not asked, which may be of the same jobs
/// ([`Answers::left_out`](super::Answers::left_out)).
pub fn explain(before: &[Process], processes: &[Process], left_out: u64) -> Explanation {
    let stood = standing(before);
    let ranks = by_rank(processes);
    let untold = untold(before, processes);
    let mut explained =
        Explanation { untold: sum(untold.values().copied()), left_out, ..Explanation::default() };
    let mut holds: Vec<Held<'_>> = Vec::new();
    for (from, process) in processes.iter().enumerate() {
        for wait in waits(process) {
            let Some(polled) = wait.polled else { continue };
            let said_before = stood.get(&key(process, wait));
            let has_polled = said_before.is_some_and(|said_ns| *said_ns < polled.said_ns);
            let Some(peer) = polled.peer.filter(|_| has_polled) else { continue };
            let to = ranks.get(&(process.who.job.as_str(), u64::from(peer))).copied();
            holds.push(Held { from, to, peer, polled, wait });
        }
    }
    let mut next = vec![Vec::new(); processes.len()];
    // Of each place one: many waves wait for the same event.
    let mut culprits = BTreeMap::new();
    for held in &holds {
        match why(held, processes, &untold) {
            // It may be one of those that were not asked.
            Some(Why::NotThere) if left_out > 0 => {}
            None => {
                explained.held_up += 1;
                next[held.from].extend(held.to);
                explained.held_up_by.extend(held.to.map(|to| (held.from, to)));
            }
            Some(why) => {
                let place = (held.from, held.peer, held.wait.service.as_str(), held.polled.sequence);
                let culprit = culprits.entry(place).or_insert_with(|| culprit(held, processes, why));
                culprit.waited_s = culprit.waited_s.max(held.wait.waited_s);
            }
        }
    }
    explained.culprits = culprits.into_values().collect();
    explained.culprits.sort_by(|a, b| b.waited_s.total_cmp(&a.waited_s));
    for waiting in &mut next {
        waiting.sort_unstable();
        waiting.dedup();
    }
    let name = |at: &usize| Member::Rank(rank_of(&processes[*at].who));
    explained.circles = circles(&next).iter().map(|circle| circle.iter().map(name).collect()).collect();
    explained.circles.extend(circles_of(before, processes));
    explained
}

fn waits(process: &Process) -> impl Iterator<Item = &Wait> {
    process.devices.iter().flat_map(|device| &device.waiting)
}

/// Returns how many waits, or kinds of them, each process has had no room to tell, of those that may go on: also when it said so at
/// the earlier look alone, since a wave takes a while to find out that there is room.
fn untold<'a>(before: &'a [Process], processes: &'a [Process]) -> HashMap<Place<'a>, u64> {
    let mut untold = HashMap::new();
    for process in before.iter().chain(processes) {
        let of = |device: &DeviceState| {
            let waits = if device.may_wait_untold { device.waits_untold } else { 0 };
            device.kinds_untold.saturating_add(waits)
        };
        let most = untold.entry(process.who.place()).or_default();
        *most = sum(process.devices.iter().map(of)).max(*most);
    }
    untold
}

/// What tells a wait from others.
type Key<'a> = (Place<'a>, &'a str, Option<([u32; 3], u32)>, &'a str, Option<Polled>);

fn key<'a>(process: &'a Process, wait: &'a Wait) -> Key<'a> {
    let place = wait.place.map(|place| (place.at, place.wave));
    let polled = wait.polled.map(|polled| Polled { said_ns: 0, ..polled });
    (process.who.place(), &wait.launch, place, &wait.service, polled)
}

/// The waits, and how long each had waited when it said so last.
fn standing(processes: &[Process]) -> HashMap<Key<'_>, u64> {
    let said = |wait: &Wait| wait.polled.map_or(0, |polled| polled.said_ns);
    let of = |process| waits(process).map(move |wait| (key(process, wait), said(wait)));
    processes.iter().flat_map(of).collect()
}

/// Finds processes by job and rank. One that was started again is the later one.
pub(super) fn by_rank(processes: &[Process]) -> HashMap<(&str, u64), usize> {
    let mut ranks = HashMap::<_, usize>::new();
    for (at, process) in processes.iter().enumerate() {
        if let Some(rank) = process.who.rank {
            let newest = ranks.entry((process.who.job.as_str(), rank)).or_insert(at);
            if processes[*newest].who.since < process.who.since {
                *newest = at;
            }
        }
    }
    ranks
}

pub(super) fn rank_of(who: &Identity) -> Rank {
    Rank { job: who.job.clone(), rank: who.rank, pid: Some(who.pid), host: who.host.clone() }
}

/// Why the wait does not end; `None` where the waits of who is waited for explain it.
fn why(held: &Held<'_>, processes: &[Process], untold: &HashMap<Place<'_>, u64>) -> Option<Why> {
    let Some(to) = held.to else { return Some(Why::NotThere) };
    let process = &processes[to];
    let of_same = waits(process).filter(|wait| wait.service == held.wait.service);
    let first = of_same.filter_map(|wait| wait.polled).min_by_key(|polled| polled.sequence);
    if let Some(first) = first.filter(|first| first.sequence > held.polled.sequence) {
        return Some(Why::Past { waits_for: first.sequence, of: first.peer });
    }
    if waits(process).any(|wait| wait.polled.is_some_and(|polled| polled.peer.is_some())) {
        return None;
    }
    let longest = waits(process).max_by(|a, b| a.waited_s.total_cmp(&b.waited_s));
    Some(match longest {
        Some(wait) => Why::Waits { text: handlers::all_of(process, wait) },
        None if process.devices.iter().all(|device| device.metrics.launches_running == 0) => Why::RunsNothing,
        None if untold.get(&process.who.place()).is_some_and(|count| *count > 0) => Why::Untold,
        None => Why::Runs,
    })
}

fn culprit(held: &Held<'_>, processes: &[Process], why: Why) -> Culprit {
    let who = &processes[held.from].who;
    let missing =
        || Rank { job: who.job.clone(), rank: Some(held.peer.into()), pid: None, host: String::new() };
    Culprit {
        waits: rank_of(who),
        name: held.wait.service.clone(),
        sequence: held.polled.sequence,
        waited_s: held.wait.waited_s,
        of: held.to.map_or_else(missing, |to| rank_of(&processes[to].who)),
        why,
    }
}

/// Finds a circle of each set of nodes that hold each other up, with as few nodes as one from its first node can have.
pub(super) fn circles(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut is_told = vec![false; next.len()];
    let mut found = Vec::new();
    for start in 0..next.len() {
        if is_told[start] {
            continue;
        }
        // From where each node was reached.
        let mut reached = HashMap::from([(start, None)]);
        let mut queue = std::collections::VecDeque::from([start]);
        let mut last = None;
        while let Some(at) = queue.pop_front().filter(|_| last.is_none()) {
            for &to in next[at].iter().filter(|to| !is_told[**to]) {
                if to == start {
                    last = Some(at);
                    break;
                }
                if let std::collections::hash_map::Entry::Vacant(new) = reached.entry(to) {
                    new.insert(Some(at));
                    queue.push_back(to);
                }
            }
        }
        let mut circle: Vec<usize> =
            std::iter::successors(last, |at| reached.get(at).copied().flatten()).collect();
        if circle.is_empty() {
            // It is in no circle, so that nothing else reaches one through it that it is a part of.
            continue;
        }
        circle.reverse();
        circle.iter().for_each(|at| is_told[*at] = true);
        found.push(circle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::DeviceMetrics;
    use super::*;
    use proptest::prelude::*;

    /// A process with a launch, that waits for events of peers: peer, name and number.
    fn process(rank: u64, waits: &[(Option<u32>, &str, u64)]) -> Process {
        let who =
            Identity { pid: 100 + rank as u32, job: "job".into(), rank: Some(rank), ..Identity::default() };
        let wait = |(peer, name, sequence): &(Option<u32>, &str, u64)| Wait {
            launch: "0.1".into(),
            service: (*name).to_owned(),
            waited_s: 1.5,
            polled: Some(Polled { address: 0, peer: *peer, sequence: *sequence, said_ns: 5 }),
            ..Wait::default()
        };
        let waiting: Vec<Wait> = waits.iter().map(wait).collect();
        let device = {
            let metrics = DeviceMetrics { launches_running: 1, ..DeviceMetrics::default() };
            DeviceState { metrics, waiting, ..DeviceState::default() }
        };
        Process { who, devices: vec![device], ..Process::default() }
    }

    /// The rank that is in a circle.
    fn number(member: &Member) -> u64 {
        let Member::Rank(rank) = member else { panic!("{member:?} is no rank") };
        rank.rank.unwrap()
    }

    /// What they said before.
    fn earlier(processes: &[Process]) -> Vec<Process> {
        let mut processes = processes.to_vec();
        let devices = processes.iter_mut().flat_map(|process| &mut process.devices);
        let polled = devices.flat_map(|device| &mut device.waiting).filter_map(|wait| wait.polled.as_mut());
        polled.for_each(|polled| polled.said_ns -= 1);
        processes
    }

    fn sentences(processes: &[Process]) -> Vec<String> {
        explain(&earlier(processes), processes, 0).culprits.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_signal_that_was_left_out_is_named() {
        let processes = [
            process(0, &[(Some(2), "signal", 6)]),
            process(1, &[(Some(2), "signal", 6)]),
            process(2, &[(Some(0), "signal", 5)]),
            process(3, &[(Some(2), "signal", 6)]),
        ];
        let told = "rank 0 (process 100): rank 2 (process 102) has waited for its `signal` number 5 for 1.5 s, and it is past \
                    that: it waits for number 6 of rank 2";
        assert_eq!(sentences(&processes), [told]);
        let explained = explain(&earlier(&processes), &processes, 0);
        assert_eq!((explained.held_up, explained.circles.len()), (3, 0));
        // What an earlier look has not found may have been going on.
        let before = [&processes[..2], &[process(2, &[(Some(0), "signal", 4)])], &processes[3..]].concat();
        assert_eq!(explain(&earlier(&before), &processes, 0).culprits, []);
        // Nor what has not polled since.
        assert_eq!(explain(&processes, &processes, 0), Explanation::default());
    }

    #[test]
    fn who_does_not_wait_is_named() {
        let waits = process(0, &[(Some(1), "signal", 5)]);
        let of = |other: Process| {
            let mut explained = explain(&earlier(std::slice::from_ref(&waits)), &[waits.clone(), other], 0);
            explained.culprits.pop().map(|culprit| culprit.why)
        };
        assert_eq!(of(process(1, &[])), Some(Why::Runs));
        assert_eq!(of(process(2, &[])), Some(Why::NotThere));
        let unnamed = process(1, &[(None, "signal", 5)]);
        assert_eq!(of(unnamed), Some(Why::Waits { text: String::new() }));
        assert_eq!(of(process(1, &[(Some(0), "other", 1)])), None);
        let mut idle = process(1, &[]);
        idle.devices[0].metrics.launches_running = 0;
        assert_eq!(of(idle.clone()), Some(Why::RunsNothing));
        let mut host = process(1, &[]);
        host.devices[0].waiting.push(Wait { text: "it waits for Shop::sold".into(), ..Wait::default() });
        assert_eq!(of(host), Some(Why::Waits { text: "it waits for Shop::sold".into() }));
        // Of a rank that was started again the later process counts.
        idle.who.since = 7.0;
        let both = [waits.clone(), process(1, &[(Some(0), "signal", 9)]), idle];
        assert_eq!(explain(&earlier(&both), &both, 0).culprits[0].why, Why::RunsNothing);
        // Another job's rank is another rank.
        let mut other = process(1, &[]);
        other.who.job = "other".into();
        assert_eq!(of(other), Some(Why::NotThere));
    }

    /// What is not known is nobody's fault.
    #[test]
    fn who_was_not_asked_or_had_no_room_is_not_blamed() {
        let waits = process(0, &[(Some(1), "signal", 5)]);
        let alone = std::slice::from_ref(&waits);
        let explained = explain(&earlier(alone), alone, 3);
        assert_eq!((explained.culprits.len(), explained.left_out, explained.held_up), (0, 3, 0));
        let mut full = process(1, &[]);
        (full.devices[0].waits_untold, full.devices[0].may_wait_untold) = (7, true);
        let mut empty = full.clone();
        empty.devices[0].may_wait_untold = false;
        let of = |before: &Process, now: &Process| {
            let before = earlier(&[waits.clone(), before.clone()]);
            let explained = explain(&before, &[waits.clone(), now.clone()], 0);
            (explained.culprits[0].why.clone(), explained.untold)
        };
        assert_eq!(of(&full, &full), (Why::Untold, 7));
        assert_eq!(of(&full, &empty), (Why::Untold, 7));
        assert_eq!(of(&empty, &empty), (Why::Runs, 0));
    }

    /// Numbers of other processes may be any.
    #[test]
    fn numbers_of_others_do_not_overflow() {
        let mut loud = process(0, &[(Some(1), "signal", 5)]);
        let device = &mut loud.devices[0];
        (device.kinds_untold, device.waits_untold, device.may_wait_untold) = (u64::MAX, 2, true);
        let both = [loud.clone(), loud];
        assert_eq!(explain(&earlier(&both), &both, 0).untold, u64::MAX);
    }

    #[test]
    fn circles_are_named_once() {
        let ring: Vec<Process> =
            (0..5).map(|rank| process(rank, &[(Some((rank as u32 + 1) % 5), "ring", 3)])).collect();
        let beside = process(7, &[(Some(2), "ring", 3)]);
        let processes = [ring, vec![beside]].concat();
        let explained = explain(&earlier(&processes), &processes, 0);
        assert_eq!(explained.culprits, []);
        let ranks: Vec<_> =
            explained.circles.iter().map(|circle| circle.iter().map(number).collect::<Vec<_>>()).collect();
        assert_eq!(ranks, [[0, 1, 2, 3, 4]]);
        let own = [process(0, &[(Some(0), "own", 1)])];
        assert_eq!(explain(&earlier(&own), &own, 0).circles.len(), 1);
    }

    proptest! {
        /// Whatever processes say, each wait for a rank is explained or held up, and circles are circles.
        #[test]
        fn all_is_explained(
            waits in prop::collection::vec(prop::collection::vec((0u32..8, 0u64..4), 0..4), 0..8)
        ) {
            let processes: Vec<Process> = waits.iter().enumerate().map(|(rank, waits)| {
                let waits: Vec<_> = waits.iter().map(|(peer, number)| (Some(*peer), "signal", *number)).collect();
                process(rank as u64, &waits)
            }).collect();
            let explained = explain(&earlier(&processes), &processes, 0);
            let count: usize = waits.iter().map(Vec::len).sum();
            prop_assert!(explained.culprits.len() as u64 + explained.held_up <= count as u64);
            prop_assert_eq!(count == 0, explained.culprits.is_empty() && explained.held_up == 0);
            // Something is always named: a culprit, or a circle.
            prop_assert!(count == 0 || !explained.culprits.is_empty() || !explained.circles.is_empty());
            for circle in explained.circles {
                for (at, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
                    let waits = &waits[number(at) as usize];
                    prop_assert!(waits.iter().any(|(peer, _)| u64::from(*peer) == number(next)));
                }
            }
        }
    }
}
