//! Which nodes are marked, and which are drawn as one.

use super::names::{Named, name};
use super::{Builder, Fine, Graph, Mark, Node, NodeKind, Waits};
use crate::device::watch::culprits::Culprit;
use crate::device::watch::handlers::kernel_of;
use crate::device::watch::state::{LaunchOf, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Most nodes that a picture has room for.
pub(super) const MOST_NODES: usize = 28;

/// Kinds of nodes.
const KINDS: usize = 5;

/// So many nodes that are marked stay apart from others that are like them.
const MOST_MARKED: usize = 12;

/// What has waited for so long in seconds may be marked: shorter waits are on their way, mostly.
const LATE_S: f64 = 0.5;

/// Returns which of the nodes are marked.
pub(super) fn marks(builder: &Builder<'_>) -> Vec<Option<Mark>> {
    let Builder { processes, explained, .. } = builder;
    let mut marks = vec![None; builder.nodes.len()];
    let is_late = |edge: &&Waits| edge.longest_s >= LATE_S && !edge.is_past;
    let mut next = vec![Vec::new(); marks.len()];
    // Whether a rank holds somebody up is for `explained` to say.
    let may_hold = |edge: &&Waits| {
        !matches!(builder.nodes[edge.from], Fine::Event { .. })
            || builder.holding.contains(&(edge.from, edge.to))
    };
    for edge in builder.edges.values().filter(is_late).filter(may_hold) {
        next[edge.from].push(edge.to);
    }
    for (number, circle) in strongly_connected(&next).into_iter().enumerate() {
        circle.into_iter().for_each(|at| marks[at] = Some(Mark::Circle(number as u32)));
    }
    let has_more: BTreeSet<usize> = builder.edges.values().map(|edge| edge.from).collect();
    for edge in builder.edges.values().filter(is_late).filter(|edge| !has_more.contains(&edge.to)) {
        if !matches!(builder.nodes[edge.to], Fine::Rank { .. }) {
            marks[edge.to] = Some(Mark::Culprit);
        }
    }
    for (at, node) in builder.nodes.iter().enumerate() {
        if let Fine::Rank { process, missing } = *node
            && explained.culprits.iter().any(|culprit| is_rank(culprit, processes, process, missing))
        {
            marks[at] = Some(Mark::Culprit);
        }
    }
    marks
}

/// Says whether a culprit is this rank.
fn is_rank(culprit: &Culprit, processes: &[Process], process: usize, missing: Option<u32>) -> bool {
    let who = &processes[process].who;
    culprit.of.job == who.job
        && match missing {
            Some(rank) => culprit.of.pid.is_none() && culprit.of.rank == Some(rank.into()),
            None => culprit.of.pid == Some(who.pid),
        }
}

/// Returns the sets of nodes, each of which reaches all others of its set, and itself (Kosaraju).
fn strongly_connected(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); next.len()];
    next.iter().enumerate().for_each(|(from, all)| all.iter().for_each(|to| before[*to].push(from)));
    /// Visits what is reached from a node, and notes each node when all that it reaches is noted.
    fn visit(start: usize, next: &[Vec<usize>], seen: &mut [bool], noted: &mut Vec<usize>) {
        let mut path = vec![(start, 0)];
        seen[start] = true;
        while let Some((at, tried)) = path.last_mut() {
            match next[*at].get(*tried) {
                Some(&to) => {
                    *tried += 1;
                    if !std::mem::replace(&mut seen[to], true) {
                        path.push((to, 0));
                    }
                }
                None => {
                    noted.push(*at);
                    path.pop();
                }
            }
        }
    }
    let (mut order, mut seen) = (Vec::new(), vec![false; next.len()]);
    for start in 0..next.len() {
        if !seen[start] {
            visit(start, next, &mut seen, &mut order);
        }
    }
    let (mut sets, mut seen) = (Vec::new(), vec![false; next.len()]);
    for start in order.into_iter().rev() {
        if !seen[start] {
            let mut set = Vec::new();
            visit(start, &before, &mut seen, &mut set);
            if set.len() > 1 || next[start].contains(&start) {
                sets.push(set);
            }
        }
    }
    sets
}

/// What nodes have in common that are drawn as one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Common<'a> {
    Own(Fine<'a>),
    Alike {
        kind: NodeKind,
        mark: Option<Mark>,
        process: Option<usize>,
        job: &'a str,
        name: &'a str,
        more: &'a str,
        /// What it waits for.
        next: BTreeSet<&'a str>,
    },
    /// There was no room for it.
    Rest(NodeKind),
}

/// Returns what a node has in common with others: at 0 nothing, at 1 it is of one process, at 2 of one job. `next` names what it
/// waits for.
fn common<'a>(
    node: Fine<'a>,
    mark: Option<Mark>,
    level: u32,
    next: &BTreeSet<&'a str>,
    processes: &'a [Process],
) -> Common<'a> {
    if level == 0 {
        return Common::Own(node);
    }
    let alike = |kind, process: usize, name, more| {
        let (job, next) = (processes[process].who.job.as_str(), next.clone());
        Common::Alike { kind, mark, process: (level == 1).then_some(process), job, name, more, next }
    };
    match node {
        Fine::Launch { process, device, launch, kernel } => {
            let of =
                |launch: &str| kernel_of(&processes[process], &LaunchOf { device, launch: launch.into() });
            alike(NodeKind::Launch, process, launch.map_or(kernel, of), "")
        }
        Fine::Service { process, service, waits_for } => alike(NodeKind::Called, process, service, waits_for),
        Fine::Handler { process, thread } => {
            let state = &processes[process].threads[thread];
            let service = state.handles.as_ref().map_or("", |call| &call.service);
            alike(NodeKind::Handler, process, service, &state.waits_in)
        }
        Fine::Event { process, of, name, .. } => {
            alike(NodeKind::Event, process, name, if of.is_some() { "of a rank" } else { "" })
        }
        Fine::Rank { process, missing } => {
            let missing = if missing.is_some() { "not there" } else { "" };
            alike(NodeKind::Rank, process, "", missing)
        }
    }
}

/// Puts nodes together until there are few enough, and names them.
pub(super) fn put_together(builder: &Builder<'_>, marks: &[Option<Mark>], graph: &mut Graph) {
    let Builder { processes, explained, .. } = builder;
    let marked = marks.iter().flatten().count();
    let mut longest = vec![0f64; builder.nodes.len()];
    for edge in builder.edges.values() {
        for at in [edge.from, edge.to] {
            longest[at] = longest[at].max(edge.longest_s);
        }
    }
    let mut next = vec![BTreeSet::new(); builder.nodes.len()];
    for edge in builder.edges.values() {
        if let (Fine::Launch { .. }, Fine::Service { service: name, .. } | Fine::Event { name, .. }) =
            (builder.nodes[edge.from], builder.nodes[edge.to])
        {
            next[edge.from].insert(name);
        }
    }
    let is_culprits = |process: usize| {
        let rank = builder.places.get(&Fine::Rank { process, missing: None });
        rank.is_some_and(|rank| marks[*rank] == Some(Mark::Culprit))
    };
    let mut groups = BTreeMap::<Common<'_>, Vec<usize>>::new();
    for level in 0..3 {
        groups.clear();
        for (at, node) in builder.nodes.iter().enumerate() {
            let level = match *node {
                _ if marked > MOST_MARKED => level,
                _ if marks[at].is_some() => 0,
                Fine::Launch { process, .. } if is_culprits(process) => level.min(1),
                _ => level,
            };
            groups.entry(common(*node, marks[at], level, &next[at], processes)).or_default().push(at);
        }
        if groups.len() <= MOST_NODES {
            break;
        }
    }
    if groups.len() > MOST_NODES {
        let weight = |of: &[usize]| {
            let is_marked = of.iter().any(|at| marks[*at].is_some());
            (is_marked, of.iter().map(|at| longest[*at]).fold(0.0, f64::max))
        };
        let mut all: Vec<(Common<'_>, Vec<usize>)> = std::mem::take(&mut groups).into_iter().collect();
        all.sort_by(|(_, a), (_, b)| {
            let ((a_mark, a_s), (b_mark, b_s)) = (weight(a), weight(b));
            b_mark.cmp(&a_mark).then(b_s.total_cmp(&a_s))
        });
        let rest = all.split_off(MOST_NODES - KINDS).into_iter().flat_map(|(_, of)| of);
        groups = all.into_iter().collect();
        for at in rest {
            groups.entry(Common::Rest(builder.nodes[at].kind())).or_default().push(at);
        }
    }
    let mut place = vec![0; builder.nodes.len()];
    for (number, (common, of)) in groups.iter().enumerate() {
        of.iter().for_each(|at| place[*at] = number);
        let fine: Vec<Fine<'_>> = of.iter().map(|at| builder.nodes[*at]).collect();
        let Named { kind, title, detail } = match common {
            Common::Rest(kind) if fine.len() > 1 => Named::rest(*kind, fine.len()),
            _ => name(&fine, processes),
        };
        let mark = of.iter().filter_map(|at| marks[*at]).min();
        let mut why = Vec::new();
        if mark == Some(Mark::Culprit) {
            let is_of = |culprit: &Culprit| {
                fine.iter().any(|node| match *node {
                    Fine::Rank { process, missing } => is_rank(culprit, processes, process, missing),
                    _ => false,
                })
            };
            why.extend(explained.culprits.iter().filter(|culprit| is_of(culprit)).map(ToString::to_string));
        }
        graph.nodes.push(Node { kind, title, detail, members: of.len() as u64, mark, why });
    }
    let mut edges = BTreeMap::<(usize, usize, bool), Waits>::new();
    for edge in builder.edges.values() {
        let (from, to) = (place[edge.from], place[edge.to]);
        let circle = match (marks[edge.from], marks[edge.to]) {
            (Some(Mark::Circle(a)), Some(Mark::Circle(b))) if a == b && !edge.is_past => Some(a),
            _ => None,
        };
        let of = edges.entry((from, to, edge.is_past)).or_default();
        *of = Waits {
            from,
            to,
            waits: of.waits.saturating_add(edge.waits),
            lanes: of.lanes.saturating_add(edge.lanes),
            longest_s: of.longest_s.max(edge.longest_s),
            is_past: edge.is_past,
            circle: of.circle.or(circle),
        };
    }
    graph.edges = edges.into_values().collect();
}
