use super::merge::MOST_NODES;
use super::*;
use crate::device::metrics::DeviceMetrics;
use crate::device::watch::explain;
use crate::device::watch::state::{DeviceState, HandledCall, Identity, LaunchState, Polled, Wait};
use proptest::prelude::*;

/// A process with a device, whose launches `0.1`, `1.1` and so on wait for these.
fn process(rank: u64, groups: Vec<WaitGroup>) -> Process {
    let who = Identity { pid: 100 + rank as u32, job: "job".into(), rank: Some(rank), ..Identity::default() };
    let launch = |group: &WaitGroup| LaunchState {
        id: group.launch.clone().unwrap_or_default(),
        kernel: group.kernel.clone(),
        ..LaunchState::default()
    };
    let wait = |group: &WaitGroup| Wait {
        launch: group.launch.clone().unwrap_or_default(),
        service: group.service.clone(),
        waited_s: group.longest_s,
        polled: group.sequences.map(|(sequence, _)| Polled {
            peer: group.peer,
            sequence,
            said_ns: 5,
            ..Polled::default()
        }),
        ..Wait::default()
    };
    let device = DeviceState {
        number: 1,
        launches: groups.iter().map(launch).collect(),
        waiting: groups.iter().map(wait).collect(),
        metrics: DeviceMetrics { launches_running: 1, ..DeviceMetrics::default() },
        groups,
        ..DeviceState::default()
    };
    Process { who, devices: vec![device], ..Process::default() }
}

fn signal(launch: &str, peer: u32, sequence: u64) -> WaitGroup {
    WaitGroup { peer: Some(peer), sequences: Some((sequence, sequence)), ..call(launch, "signal", "Flag") }
}

fn call(launch: &str, service: &str, waits_for: &str) -> WaitGroup {
    WaitGroup {
        kernel: "exchange".into(),
        launch: Some(launch.into()),
        service: service.into(),
        waits_for: waits_for.into(),
        waits: 2,
        lanes: 64,
        longest_s: 3.0,
        ..WaitGroup::default()
    }
}

fn drawn(processes: &[Process]) -> Graph {
    let mut before = processes.to_vec();
    let waits = before.iter_mut().flat_map(|process| &mut process.devices).flat_map(|of| &mut of.waiting);
    waits.filter_map(|wait| wait.polled.as_mut()).for_each(|polled| polled.said_ns -= 1);
    for thread in before.iter_mut().flat_map(|process| &mut process.threads) {
        thread.waited_s -= 0.1;
    }
    graph(processes, &explain(&before, processes, 0))
}

/// Each edge, as the names at its ends.
fn edges(graph: &Graph) -> Vec<String> {
    let name = |at: usize| format!("{} ({})", graph.nodes[at].title, graph.nodes[at].detail);
    let mut edges: Vec<_> =
        graph.edges.iter().map(|edge| format!("{} -> {}", name(edge.from), name(edge.to))).collect();
    edges.sort();
    edges
}

fn marked(graph: &Graph, mark: Mark) -> Vec<&str> {
    graph.nodes.iter().filter(|node| node.mark == Some(mark)).map(|node| node.title.as_str()).collect()
}

#[test]
fn who_left_a_signal_out_is_marked() {
    let processes = [process(0, vec![signal("0.1", 1, 6)]), process(1, vec![signal("0.1", 0, 5)])];
    let graph = drawn(&processes);
    assert_eq!(
        edges(&graph),
        [
            "exchange (rank 0 · launch 0.1) -> signal (number 6 of rank 1)",
            "exchange (rank 1 · launch 0.1) -> signal (number 5 of rank 0)",
            "rank 0 (process 100) -> exchange (rank 0 · launch 0.1)",
            "rank 1 (process 101) -> exchange (rank 1 · launch 0.1)",
            "signal (number 5 of rank 0) -> rank 0 (process 100)",
            "signal (number 6 of rank 1) -> rank 1 (process 101)",
        ]
    );
    assert_eq!(marked(&graph, Mark::Culprit), ["rank 0"]);
    assert_eq!(graph.edges.iter().filter(|edge| edge.is_past).count(), 1);
    let culprit = graph.nodes.iter().find(|node| node.mark.is_some()).unwrap();
    assert!(culprit.why[0].contains("it is past that: it waits for number 6 of rank 1"), "{culprit:?}");
    // One that is not there has no launches.
    let graph = drawn(&processes[..1]);
    assert_eq!(marked(&graph, Mark::Culprit), ["rank 1"]);
    assert_eq!((graph.nodes.len(), graph.waits), (3, 2));
}

#[test]
fn circles_are_marked() {
    let ring: Vec<_> =
        (0..3).map(|rank| process(rank, vec![signal("0.1", (rank as u32 + 1) % 3, 5)])).collect();
    let beside = process(9, vec![signal("0.1", 1, 5)]);
    let graph = drawn(&[ring, vec![beside]].concat());
    let [circle, other] =
        [Some(Mark::Circle(0)), None].map(|mark| graph.nodes.iter().filter(|node| node.mark == mark).count());
    assert_eq!((circle, other), (9, 1));
    assert_eq!(graph.edges.iter().filter(|edge| edge.circle == Some(0)).count(), 9);
}

/// Two launches, each of which waits for a handler that waits for the other one.
#[test]
fn circles_through_handlers_are_named_and_marked() {
    let mut one = process(0, vec![call("0.1", "A::b", "Handler"), call("1.1", "C::d", "Handler")]);
    let thread = |launch: &str, service: &str, other: &str| ThreadState {
        waits_in: "`wait`".into(),
        waited_s: 2.0,
        handles: Some(HandledCall {
            of: LaunchOf { device: 1, launch: launch.into() },
            service: service.into(),
        }),
        waits_for: vec![LaunchOf { device: 1, launch: other.into() }],
        ..ThreadState::default()
    };
    one.threads = vec![thread("0.1", "A::b", "1.1"), thread("1.1", "C::d", "0.1")];
    let graph = drawn(std::slice::from_ref(&one));
    assert_eq!(
        edges(&graph),
        [
            "exchange (rank 0 · launch 0.1) -> handler of A::b (rank 0 · waits in `wait`)",
            "exchange (rank 0 · launch 1.1) -> handler of C::d (rank 0 · waits in `wait`)",
            "handler of A::b (rank 0 · waits in `wait`) -> exchange (rank 0 · launch 1.1)",
            "handler of C::d (rank 0 · waits in `wait`) -> exchange (rank 0 · launch 0.1)",
        ]
    );
    assert_eq!(marked(&graph, Mark::Circle(0)).len(), 4);
    let mut before = one.clone();
    before.threads.iter_mut().for_each(|thread| thread.waited_s = 1.0);
    let explained = explain(std::slice::from_ref(&before), std::slice::from_ref(&one), 0);
    let circle: Vec<_> = explained.circles[0].iter().map(ToString::to_string).collect();
    assert_eq!(
        circle.join(" waits for "),
        "launch 0.1 of exchange in rank 0 (process 100) waits for the handler of A::b, which in `wait` waits for launch 1.1 of \
         exchange in rank 0 (process 100) waits for the handler of C::d, which in `wait`"
    );
    // A call that has ended waits for no handler, and what has just begun to wait stands in no circle.
    let mut ended = one.clone();
    ended.devices[0].groups.pop();
    assert_eq!(explain(std::slice::from_ref(&before), &[ended], 0).circles, Vec::<Vec<_>>::new());
    assert_eq!(
        explain(std::slice::from_ref(&one), std::slice::from_ref(&one), 0).circles,
        Vec::<Vec<_>>::new()
    );
}

#[test]
fn a_thousand_waits_are_a_few_nodes() {
    // All ranks wait for rank 7, which waits for an approval, each in 16 launches.
    let of = |rank: u64| match rank {
        7 => process(7, vec![call("0.1", "Approval::of", "Handler")]),
        rank => process(rank, (0..16).map(|at| signal(&format!("{at}.1"), 7, 40 + at)).collect()),
    };
    let graph = drawn(&(0..64).map(of).collect::<Vec<_>>());
    assert_eq!(graph.waits, 63 * 32 + 2);
    assert!(graph.nodes.len() <= 5, "{graph:?}");
    let edges = edges(&graph);
    let many = "exchange (ranks 0–6, 8–63 · 1008 launches) -> signal (numbers 40–55 of rank 7)";
    assert!(edges.iter().any(|edge| edge == many), "{edges:#?}");
    assert_eq!(marked(&graph, Mark::Culprit), ["Approval::of", "rank 7"]);
    // Names without end are others.
    let many = (0..100).map(|at| call("0.1", &format!("S::m{at}"), "Handler")).collect();
    let graph = drawn(&[process(0, many)]);
    assert!(graph.nodes.len() <= MOST_NODES && graph.waits == 200, "{graph:?}");
    let others: Vec<_> = graph.nodes.iter().filter(|node| node.members > 1).map(|node| &node.title).collect();
    assert_eq!(others, ["77 others"]);
}

proptest! {
    /// Whatever processes say, the picture has room, and all waits are in it.
    #[test]
    fn all_is_drawn(
        all in prop::collection::vec(prop::collection::vec((0u32..9, 0u64..6, 0u8..4), 0..12), 0..9)
    ) {
        let group = |(at, (peer, number, kind)): (usize, &(u32, u64, u8))| match kind {
            0 => call(&format!("{at}.1"), "A::b", "Handler"),
            1 => WaitGroup { peer: None, ..signal(&format!("{at}.1"), 0, *number) },
            2 => WaitGroup { launch: None, ..signal("", *peer, *number) },
            _ => signal(&format!("{at}.1"), *peer, *number),
        };
        let of = |(rank, waits): (usize, &Vec<_>)| {
            process(rank as u64, waits.iter().enumerate().map(group).collect())
        };
        let processes: Vec<_> = all.iter().enumerate().map(of).collect();
        let graph = drawn(&processes);
        prop_assert!(graph.nodes.len() <= MOST_NODES);
        let waits: u64 = graph.edges.iter().map(|edge| edge.waits).sum();
        prop_assert_eq!((graph.waits, waits), (2 * all.iter().map(|of| of.len() as u64).sum::<u64>(), graph.waits));
        prop_assert!(graph.edges.iter().all(|edge| edge.from.max(edge.to) < graph.nodes.len()));
    }
}
