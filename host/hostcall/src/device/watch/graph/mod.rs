//! Who waits for whom, as a graph that can be drawn: launches, what they wait for, the handlers of that, and the ranks that events
//! are of.
//!
//! | from | to | when |
//! |---|---|---|
//! | a launch | a service, an event, a handler | waves of it wait for that; for a handler where that waits, too |
//! | an event | a rank | the flag or barrier is of that rank |
//! | a rank | a launch | the launch is the rank's, and has waves that wait |
//! | a handler | a launch | its thread waits for the launch's end |
//!
//! What is alike is one node where there are too many: first the launches of a kernel in a process, then those of all ranks.

mod merge;
mod names;
#[cfg(test)]
mod tests;

use super::culprits::{Explanation, Why, by_rank};
use super::handlers::is_waited_for;
use super::state::{LaunchOf, Process, ThreadState, WaitGroup};
use crate::device::metrics::sum;
use merge::{marks, put_together};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a node stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeKind {
    /// Launches, whose waves wait.
    #[default]
    Launch,
    /// A method, or what else of the host is waited for.
    Called,
    /// Threads that run a handler and wait in it.
    Handler,
    /// Events: flags and barriers.
    Event,
    /// Ranks or processes.
    Rank,
}

/// Why a node is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mark {
    /// Others wait because of it, and nothing else explains why.
    Culprit,
    /// It is in the circle with this number.
    Circle(u32),
}

/// What waits or is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its name.
    pub title: String,
    /// Whose it is, and which.
    pub detail: String,
    /// How many it stands for.
    pub members: u64,
    /// Why it is marked, if it is.
    pub mark: Option<Mark>,
    /// What makes it a culprit, in sentences.
    pub why: Vec<String>,
}

/// That one node waits for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waits {
    /// Which waits, as a place in [`Graph::nodes`].
    pub from: usize,
    /// For which.
    pub to: usize,
    /// Waits of waves; 0 where none is meant.
    pub waits: u64,
    /// Lanes of them.
    pub lanes: u64,
    /// The longest of them, in seconds.
    pub longest_s: f64,
    /// Who is waited for is past what is waited for: it was left out, or lost.
    pub is_past: bool,
    /// The circle that it is a part of.
    pub circle: Option<u32>,
}

/// Who waits for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Graph {
    /// Who and what: 28 at most.
    pub nodes: Vec<Node>,
    /// Who waits for whom.
    pub edges: Vec<Waits>,
    /// All waits that there are.
    pub waits: u64,
}

/// What a node is before any are put together. Processes are places in a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fine<'a> {
    /// A launch of a device; without its number all of the kernel's.
    Launch {
        process: usize,
        device: u64,
        launch: Option<&'a str>,
        kernel: &'a str,
    },
    Service {
        process: usize,
        service: &'a str,
        waits_for: &'a str,
    },
    Handler {
        process: usize,
        thread: usize,
    },
    /// An event of a rank of the process's job, or of no rank that is known.
    Event {
        process: usize,
        of: Option<u32>,
        name: &'a str,
        sequences: (u64, u64),
    },
    /// A process, or a rank of its job that is not there.
    Rank {
        process: usize,
        missing: Option<u32>,
    },
}

impl Fine<'_> {
    fn kind(&self) -> NodeKind {
        match self {
            Self::Launch { .. } => NodeKind::Launch,
            Self::Service { .. } => NodeKind::Called,
            Self::Handler { .. } => NodeKind::Handler,
            Self::Event { .. } => NodeKind::Event,
            Self::Rank { .. } => NodeKind::Rank,
        }
    }
}

struct Builder<'a> {
    processes: &'a [Process],
    explained: &'a Explanation,
    places: HashMap<Fine<'a>, usize>,
    nodes: Vec<Fine<'a>>,
    edges: BTreeMap<(usize, usize), Waits>,
    /// Edges from events to ranks that are known to hold somebody up.
    holding: BTreeSet<(usize, usize)>,
}

/// Draws what processes say: `explained` is what [`super::explain`] says of the same processes.
pub fn graph(processes: &[Process], explained: &Explanation) -> Graph {
    let ranks = by_rank(processes);
    let (places, nodes) = (HashMap::new(), Vec::new());
    let (edges, holding) = (BTreeMap::new(), BTreeSet::new());
    let mut builder = Builder { processes, explained, places, nodes, edges, holding };
    let mut graph = Graph::default();
    for (process, said) in processes.iter().enumerate() {
        for device in &said.devices {
            let waits = device.groups.iter().map(|group| group.waits);
            graph.waits = sum(waits.chain([graph.waits, device.ungrouped]));
            for group in &device.groups {
                builder.add(process, device.number, group, &ranks);
            }
        }
        builder.add_handlers(process);
    }
    builder.add_launches_of_ranks();
    let marks = marks(&builder);
    put_together(&builder, &marks, &mut graph);
    graph
}

impl<'a> Builder<'a> {
    fn node(&mut self, node: Fine<'a>) -> usize {
        *self.places.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }

    fn edge(&mut self, from: usize, to: usize, waits: u64, lanes: u64, longest_s: f64) -> &mut Waits {
        let edge = self.edges.entry((from, to)).or_default();
        (edge.from, edge.to) = (from, to);
        edge.waits = edge.waits.saturating_add(waits);
        edge.lanes = edge.lanes.saturating_add(lanes);
        edge.longest_s = edge.longest_s.max(longest_s);
        edge
    }

    /// Adds that waits of a launch are for a node, whose place is returned.
    fn waits(&mut self, from: usize, group: &WaitGroup, to: Fine<'a>) -> usize {
        let to = self.node(to);
        self.edge(from, to, group.waits, group.lanes, group.longest_s);
        to
    }

    /// Adds what waves of a process wait for.
    fn add(
        &mut self,
        process: usize,
        device: u64,
        group: &'a WaitGroup,
        ranks: &HashMap<(&str, u64), usize>,
    ) {
        let launch = group.launch.as_deref();
        let kernel = if launch.is_some() { "" } else { &group.kernel };
        let from = self.node(Fine::Launch { process, device, launch, kernel });
        let WaitGroup { service, waits_for, peer, sequences, .. } = group;
        let Some(sequences) = *sequences else {
            let threads = self.threads_of(process, device, group);
            if threads.is_empty() {
                self.waits(from, group, Fine::Service { process, service, waits_for });
            }
            for thread in threads {
                self.waits(from, group, Fine::Handler { process, thread });
            }
            return;
        };
        let Some(peer) = *peer else {
            self.waits(from, group, Fine::Event { process, of: None, name: service, sequences });
            return;
        };
        let job = &self.processes[process].who.job;
        let rank = match ranks.get(&(job.as_str(), u64::from(peer))) {
            Some(process) => Fine::Rank { process: *process, missing: None },
            None => {
                // Of one that is not there the first process of its job says whose it is.
                let first = self.processes.iter().position(|of| of.who.job == *job);
                Fine::Rank { process: first.unwrap_or(process), missing: Some(peer) }
            }
        };
        let Fine::Rank { process: of_rank, .. } = rank else { return };
        let event = Fine::Event { process: of_rank, of: Some(peer), name: service, sequences };
        let (event, rank) = (self.waits(from, group, event), self.node(rank));
        let is_past = self.explained.culprits.iter().any(|culprit| {
            let is_it = culprit.waits.job == *job && culprit.of.rank == Some(peer.into());
            let is_event =
                culprit.name == *service && (sequences.0..=sequences.1).contains(&culprit.sequence);
            is_it && is_event && matches!(culprit.why, Why::Past { .. })
        });
        self.edge(event, rank, 0, 0, group.longest_s).is_past |= is_past;
        if self.explained.held_up_by.contains(&(process, of_rank)) {
            self.holding.insert((event, rank));
        }
    }

    /// Returns the threads that answer a group's calls and wait.
    fn threads_of(&self, process: usize, device: u64, group: &WaitGroup) -> Vec<usize> {
        let said = &self.processes[process];
        let answers = |state: &ThreadState| {
            state.handles.as_ref().is_some_and(|call| {
                let is_of = call.of.device == device && group.launch.as_ref() == Some(&call.of.launch);
                is_of && call.service == group.service && is_waited_for(said, call)
            })
        };
        let threads = said.threads.iter().enumerate();
        threads.filter(|(_, state)| answers(state)).map(|(at, _)| at).collect()
    }

    /// Adds what the handlers wait for that something waits for.
    fn add_handlers(&mut self, process: usize) {
        let processes = self.processes;
        for (thread, state) in processes[process].threads.iter().enumerate() {
            let Some(from) = self.places.get(&Fine::Handler { process, thread }).copied() else { continue };
            for LaunchOf { device, launch } in &state.waits_for {
                let to = Fine::Launch { process, device: *device, launch: Some(launch), kernel: "" };
                let to = self.node(to);
                self.edge(from, to, 0, 0, state.waited_s);
            }
        }
    }

    /// Adds which launches hold up the ranks that somebody waits for.
    fn add_launches_of_ranks(&mut self) {
        let mut longest = HashMap::<usize, f64>::new();
        for edge in self.edges.values() {
            let of = longest.entry(edge.from).or_default();
            *of = of.max(edge.longest_s);
        }
        for at in 0..self.nodes.len() {
            let Fine::Launch { process, .. } = self.nodes[at] else { continue };
            let rank = self.places.get(&Fine::Rank { process, missing: None });
            if let (Some(rank), Some(longest)) = (rank.copied(), longest.get(&at)) {
                self.edge(rank, at, 0, 0, *longest);
            }
        }
    }
}
