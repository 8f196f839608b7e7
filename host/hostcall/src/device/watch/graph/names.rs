//! The names of what is drawn, of one or of many.

use super::{Fine, NodeKind};
use crate::device::watch::handlers::kernel_of;
use crate::device::watch::state::{LaunchOf, Process};
use std::collections::BTreeSet;

/// Ranges of ranks that are listed.
const MOST_RANGES: usize = 4;

pub(super) struct Named {
    pub kind: NodeKind,
    pub title: String,
    pub detail: String,
}

impl Named {
    /// Names what there was no room for.
    pub fn rest(kind: NodeKind, count: usize) -> Self {
        Self { kind, title: format!("{count} others"), detail: String::new() }
    }
}

/// Names numbers as `0–1, 3`.
fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    };
    let mut texts: Vec<String> = ranges.iter().take(MOST_RANGES).map(text).collect();
    if ranges.len() > MOST_RANGES {
        texts.push("…".into());
    }
    texts.join(", ")
}

fn ranks(numbers: &BTreeSet<u64>) -> String {
    match numbers.len() {
        1 => format!("rank {}", ranges(numbers)),
        _ => format!("ranks {}", ranges(numbers)),
    }
}

/// Names processes.
fn who(of: &BTreeSet<usize>, processes: &[Process]) -> String {
    let numbers: Option<BTreeSet<u64>> = of.iter().map(|at| processes[*at].who.rank).collect();
    match (numbers, of.first()) {
        (Some(numbers), _) if !numbers.is_empty() => ranks(&numbers),
        (_, Some(first)) if of.len() == 1 => format!("process {}", processes[*first].who.pid),
        _ => format!("{} processes", of.len()),
    }
}

/// Says why a service has not answered.
fn why(waits_for: &str) -> &str {
    match waits_for {
        "Handler" => "its handler runs",
        "InlineHandler" => "its inline handler runs",
        "Thread" => "no thread is free for it",
        "Turn" => "calls before it in its turn",
        "Words" => "calls that are begun",
        "Posts" => "posts before it",
        "Page" => "a free page",
        "Slot" => "a free call slot",
        other => other,
    }
}

/// Names nodes that are drawn as one, which are of one kind.
pub(super) fn name(nodes: &[Fine<'_>], processes: &[Process]) -> Named {
    let mut of = BTreeSet::new();
    let (mut launches, mut peers) = (BTreeSet::new(), BTreeSet::new());
    let (mut first, mut last) = (u64::MAX, 0);
    for node in nodes {
        match *node {
            Fine::Launch { process, launch, .. } => {
                of.insert(process);
                launches.extend(launch.map(|launch| (process, launch)));
            }
            Fine::Event { process, of: peer, sequences, .. } => {
                match peer {
                    Some(peer) => _ = peers.insert(u64::from(peer)),
                    None => _ = of.insert(process),
                }
                (first, last) = (first.min(sequences.0), last.max(sequences.1));
            }
            Fine::Service { process, .. } | Fine::Handler { process, .. } => _ = of.insert(process),
            Fine::Rank { process, missing } => match missing {
                Some(rank) => _ = peers.insert(u64::from(rank)),
                None => _ = of.insert(process),
            },
        }
    }
    let named = |kind, title: String, detail: Vec<String>| {
        let detail = detail.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
        Named { kind, title, detail }
    };
    let Some(one) = nodes.first() else { return Named::rest(NodeKind::Launch, 0) };
    match *one {
        Fine::Launch { process, device, launch, kernel } => {
            let kernel = launch.map_or(kernel, |launch| {
                kernel_of(&processes[process], &LaunchOf { device, launch: launch.into() })
            });
            let title = if kernel.is_empty() { "a kernel" } else { kernel };
            let which = match (launches.len(), launch) {
                (0, _) => String::new(),
                (1, Some(launch)) => format!("launch {launch}"),
                (count, _) => format!("{count} launches"),
            };
            named(NodeKind::Launch, title.to_owned(), vec![who(&of, processes), which])
        }
        Fine::Service { service, waits_for, .. } => {
            let title = if service.is_empty() { "the host" } else { service };
            named(NodeKind::Called, title.to_owned(), vec![who(&of, processes), why(waits_for).to_owned()])
        }
        Fine::Handler { process, thread } => {
            let state = &processes[process].threads[thread];
            let service = state.handles.as_ref().map_or("", |call| &call.service);
            let threads = if nodes.len() > 1 { format!("{} threads", nodes.len()) } else { String::new() };
            let waits = format!("waits in {}", state.waits_in);
            named(
                NodeKind::Handler,
                format!("handler of {service}"),
                vec![who(&of, processes), threads, waits],
            )
        }
        Fine::Event { name, .. } => {
            let title = if name.is_empty() { "a flag" } else { name };
            let numbers =
                if first == last { format!("number {first}") } else { format!("numbers {first}–{last}") };
            let whose = if peers.is_empty() { who(&of, processes) } else { format!("of {}", ranks(&peers)) };
            let detail = format!("{numbers} {whose}");
            named(NodeKind::Event, title.to_owned(), vec![detail])
        }
        Fine::Rank { missing: Some(_), .. } => {
            named(NodeKind::Rank, ranks(&peers), vec!["not there".to_owned()])
        }
        Fine::Rank { process, .. } => {
            let detail = match of.len() {
                1 => format!("process {}", processes[process].who.pid),
                count => format!("{count} processes"),
            };
            named(NodeKind::Rank, who(&of, processes), vec![detail])
        }
    }
}
