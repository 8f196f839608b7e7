//! Bodies that the driver skips and repeats by itself, and the same on a driver that cannot.

use super::*;
use hostcall::LaunchFailure;
use hostcall::device::{DeviceBuffer, PinnedBuffer, TypedKernel};
use hostcall::graph::{Condition, Graph, NodeFailure, Replay};
use hostcall::server::LaunchId;

#[test]
fn bodies_run_on_a_driver() {
    let Counts { made, launched, .. } = run_on_a_driver("bodies::on_the_driver", &[]);
    assert!(made > 5 && launched > 500, "{made} made, {launched} launched");
}

#[test]
fn bodies_run_on_a_driver_without_conditional_nodes() {
    let Counts { launched, .. } =
        run_on_a_driver("bodies::on_an_old_driver", &["-DWITHOUT_CONDITIONAL_NODES"]);
    // Kernels that follow each other are lists all the same.
    assert!(launched < 100, "{launched} launched");
}

#[test]
#[ignore = "the test above runs it with a driver"]
fn on_the_driver() {
    let (device, image) = open("bodies::on_the_driver");
    Bed::new(&device, &image, true).test();
}

#[test]
#[ignore = "the test above runs it with a driver"]
fn on_an_old_driver() {
    let (device, image) = open("bodies::on_an_old_driver");
    Bed::new(&device, &image, false).test();
}

/// What the kernels use.
struct Bed<'a> {
    device: &'a Device,
    image: &'a Image,
    stream: Stream,
    left: DeviceBuffer<u64>,
    word: DeviceBuffer<u32>,
    notes: DeviceBuffer<u64>,
    gate: PinnedBuffer<u64>,
    /// Whether the driver decides about bodies.
    has_nodes: bool,
}

/// The gate that no counter meets.
const OPEN: u64 = u64::MAX;

impl<'a> Bed<'a> {
    fn new(device: &'a Device, image: &'a Image, has_nodes: bool) -> Self {
        let (left, notes) = (device.alloc_zeroed(1).unwrap(), device.alloc_zeroed(3).unwrap());
        let (word, gate) = (device.alloc_zeroed(1).unwrap(), device.pinned(2).unwrap());
        gate[0].set(OPEN);
        Self { device, image, stream: device.stream().unwrap(), left, word, notes, gate, has_nodes }
    }

    fn test(&self) {
        self.loops_take_their_turns();
        self.loops_of_many_kernels_take_their_turns();
        self.bodies_are_chosen();
        for by_limit in [false, true] {
            self.loops_are_ended(by_limit);
        }
        self.an_ended_loop_names_what_ran();
        self.endless_loops_are_ended();
        self.arguments_in_bodies_are_set();
    }

    fn condition(&self) -> Condition {
        Condition::word(&self.word).unwrap()
    }

    /// A loop of a kernel that waits at the gate, two that note, and nothing between them.
    fn body(&self) -> Graph {
        let holds = self.image.typed(&hold).unwrap();
        let counts = self.image.typed(&count_down).unwrap();
        let mut body = Graph::new(self.device);
        let first = body.add_kernel(&holds, ONE, (&self.gate, &self.notes)).unwrap();
        let middle = body.add_empty();
        let last = body.add_kernel(&counts, ONE, (&self.left, &self.word, &self.notes)).unwrap();
        body.edge(first, middle).unwrap();
        body.edge(middle, last).unwrap();
        body
    }

    fn looping(&self) -> Instance {
        let mut graph = Graph::new(self.device).named("loop");
        graph.add_while(&self.condition(), &self.body()).unwrap();
        graph.instantiate().unwrap()
    }

    fn begin(&self, turns: u64) {
        self.left.write(&[turns]).unwrap();
        self.word.write(&[u32::from(turns > 0)]).unwrap();
        self.notes.write(&[0; 3]).unwrap();
    }

    /// Each replay takes as many turns as its word says; the launches of all turns have one sequence and id each.
    fn loops_take_their_turns(&self) {
        let instance = self.looping();
        for round in 0..600u64 {
            if round == 4 {
                instance.upload(&self.stream).unwrap();
            }
            let turns = round % 7;
            self.begin(turns);
            instance.launch(&self.stream).unwrap();
            let [taken, sequence, _] = self.notes.read().unwrap()[..] else { unreachable!() };
            assert_eq!(taken, turns);
            // Two of each replay before, and their own.
            let is_listed = self.has_nodes && round > 4;
            assert!(!is_listed || turns == 0 || (sequence - 4).is_multiple_of(2), "sequence {sequence}");
        }
        self.stream.synchronize().unwrap();
        // Several on their way, whose words are left to each other.
        self.begin(5000);
        let replays: Vec<_> = (0..20).map(|_| instance.launch(&self.stream).unwrap()).collect();
        replays.iter().for_each(|replay| replay.wait().unwrap());
        assert_eq!(self.notes.read().unwrap()[0], 5000);
        self.stream.synchronize().unwrap();
    }

    fn noting(&self, values: &DeviceBuffer<u64>, by: u64) -> Graph {
        let notes = self.image.typed(&note).unwrap();
        let mut graph = Graph::new(self.device);
        graph.add_kernel(&notes, ONE, (values, 0u64, by)).unwrap();
        graph
    }

    fn bodies_are_chosen(&self) {
        let values = self.device.alloc_zeroed::<u64>(3).unwrap();
        let [one, ten, hundred] = [1, 10, 100].map(|by| self.noting(&values, by));
        let on = self.condition();
        let mut graph = Graph::new(self.device);
        let nodes = [
            graph.add_if(&on, &one).unwrap(),
            graph.add_if_else(&on, &ten, &hundred).unwrap(),
            graph.add_switch(&on, &[&one, &Graph::new(self.device), &hundred]).unwrap(),
            graph.add_if_else(&on, &Graph::new(self.device), &ten).unwrap(),
        ];
        nodes.windows(2).for_each(|pair| graph.edge(pair[0], pair[1]).unwrap());
        let instance = graph.instantiate().unwrap();
        for round in 0..2 {
            for (word, by) in [(0u32, 100 + 1 + 10), (1, 1 + 10), (2, 1 + 10 + 100), (3, 1 + 10)] {
                values.write(&[0; 3]).unwrap();
                self.word.write(&[word]).unwrap();
                instance.launch(&self.stream).unwrap();
                assert_eq!(values.read().unwrap()[0], by, "word {word} in round {round}");
            }
            instance.upload(&self.stream).unwrap();
        }
        self.stream.synchronize().unwrap();
    }

    /// What the kernels have noted so far.
    fn noted(&self) -> Vec<u64> {
        self.notes.read_now().unwrap().expect("nothing copies to them")
    }

    /// Waits until a launch that has not ended is cancelled.
    fn wait_for_a_cancellation(&self) {
        let launches = self.device.server().launches();
        while launches.ids().iter().all(|id| launches.cancelled(*id).is_none()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn failure_of(&self, replay: &Replay) -> (String, NodeFailure) {
        let Err(Error::Replay(failure)) = replay.wait() else { panic!("it was ended") };
        (failure.to_string(), failure.cause)
    }

    /// A loop that is ended in a turn says which; later work is skipped, and it can be launched again.
    fn loops_are_ended(&self, by_limit: bool) {
        let notes: TypedKernel<_> = self.image.typed(&note).unwrap();
        let values = self.device.alloc_zeroed::<u64>(3).unwrap();
        let instance = self.looping();
        for upload in [false, true] {
            if upload {
                instance.upload(&self.stream).unwrap();
            }
            for turn in [0, 1, 30] {
                self.begin(100);
                self.gate[1].set(0);
                self.gate[0].set(turn);
                let replay = instance.launch(&self.stream).unwrap();
                let behind = instance.launch(&self.stream).unwrap();
                notes.launch(&self.stream, ONE, (&values, 0u64, 1u64)).unwrap();
                wait_for(&self.gate, turn);
                let listed = self.has_nodes && upload;
                if listed && turn > 0 {
                    // The last launch that noted was the turn's second; what waits is its first.
                    let id = self.noted()[2] as u32 - 1;
                    let origin = self.device.origin(LaunchId::from_bits(id)).unwrap();
                    assert_eq!((origin.turn, &*origin.kernel), (Some(turn), "hold"));
                    assert_eq!(origin.node.to_string(), "0.0.0");
                }
                let why = match by_limit {
                    true => LaunchFailure::TimedOut,
                    false => LaunchFailure::Cancelled,
                };
                if by_limit {
                    replay.cancel_after(Duration::from_millis(1));
                    self.wait_for_a_cancellation();
                }
                // The first reason counts. When this returns, nothing of the replay begins any more.
                replay.cancel();
                self.gate[0].set(OPEN);
                let (told, cause) = self.failure_of(&replay);
                assert_eq!(cause, NodeFailure::Launch(why));
                assert!(
                    told.starts_with(&format!(
                        "loop, replay {}, node 0.0.0 (hold), turn {turn}",
                        replay.number()
                    )),
                    "{told}"
                );
                assert_eq!(self.failure_of(&behind).1, NodeFailure::Launch(LaunchFailure::Skipped));
                assert!(self.stream.synchronize().is_err());
                assert_eq!(self.notes.read().unwrap()[0], turn, "the rest of the turn is skipped");
                assert_eq!(values.read().unwrap()[0], 0, "what follows is skipped");
                self.begin(3);
                instance.launch(&self.stream).unwrap().wait().unwrap();
                assert_eq!(self.notes.read().unwrap()[0], 3);
                self.stream.synchronize().unwrap();
            }
        }
    }

    /// Also where kernels behind it begin that have no turn.
    fn an_ended_loop_names_what_ran(&self) {
        if !self.has_nodes {
            return;
        }
        let holds = self.image.typed(&hold).unwrap();
        let counts = self.image.typed(&count_down).unwrap();
        let mut body = Graph::new(self.device);
        let first = body.add_kernel(&counts, ONE, (&self.left, &self.word, &self.notes)).unwrap();
        let last = body.add_kernel(&holds, ONE, (&self.gate, &self.notes)).unwrap();
        body.edge(first, last).unwrap();
        let mut graph = Graph::new(self.device).named("loop");
        graph.add_while(&self.condition(), &body).unwrap();
        let instance = graph.instantiate().unwrap();
        instance.upload(&self.stream).unwrap();
        for turn in 1..=5 {
            self.begin(100);
            self.gate[1].set(0);
            self.gate[0].set(turn);
            let replay = instance.launch(&self.stream).unwrap();
            wait_for(&self.gate, turn);
            replay.cancel();
            self.gate[0].set(OPEN);
            let (told, _) = self.failure_of(&replay);
            assert!(told.contains(&format!("node 0.0.1 (hold), turn {}", turn - 1)), "{told}");
            assert!(self.stream.synchronize().is_err());
        }
    }

    /// Bodies of more kernels are repeated two turns at once, or one, as are kernels that the GPU does not run at once.
    fn loops_of_many_kernels_take_their_turns(&self) {
        let counts = self.image.typed(&count_down).unwrap();
        let notes = self.image.typed(&note).unwrap();
        let values = self.device.alloc_zeroed::<u64>(3).unwrap();
        for (more, workgroups) in [(4u64, 1), (16, 1), (1, 10_000)] {
            let mut body = Graph::new(self.device);
            let mut last = body.add_kernel(&counts, ONE, (&self.left, &self.word, &self.notes)).unwrap();
            for _ in 0..more {
                let next = body.add_kernel(&notes, Grid::new(workgroups, 1), (&values, 0u64, 1u64)).unwrap();
                body.edge(last, next).unwrap();
                last = next;
            }
            let mut graph = Graph::new(self.device);
            graph.add_while(&self.condition(), &body).unwrap();
            let instance = graph.instantiate().unwrap();
            instance.upload(&self.stream).unwrap();
            for turns in 0..6 {
                self.begin(turns);
                values.write(&[0; 3]).unwrap();
                instance.launch(&self.stream).unwrap();
                assert_eq!(self.notes.read().unwrap()[0], turns);
                assert_eq!(values.read().unwrap()[0], turns * more * u64::from(workgroups));
            }
        }
        self.stream.synchronize().unwrap();
    }

    /// A loop of one kernel, whose word is never 0, and which waits for nothing.
    fn endless_loops_are_ended(&self) {
        let counts = self.image.typed(&count_down).unwrap();
        let mut body = Graph::new(self.device);
        body.add_kernel(&counts, ONE, (&self.left, &self.word, &self.notes)).unwrap();
        let mut graph = Graph::new(self.device);
        graph.add_while(&self.condition(), &body).unwrap();
        let instance = graph.instantiate().unwrap();
        instance.upload(&self.stream).unwrap();
        for _ in 0..20 {
            self.notes.write(&[0; 3]).unwrap();
            self.left.write(&[0]).unwrap();
            self.word.write(&[1]).unwrap();
            let replay = instance.launch(&self.stream).unwrap();
            while self.noted()[0] < 10 {
                std::thread::sleep(Duration::from_millis(1));
            }
            replay.cancel();
            assert!(replay.wait().is_err() && self.stream.synchronize().is_err());
        }
    }

    fn arguments_in_bodies_are_set(&self) {
        let notes = self.image.typed(&note).unwrap();
        let values = self.device.alloc_zeroed::<u64>(3).unwrap();
        let one = self.noting(&values, 1);
        let mut graph = Graph::new(self.device);
        let on = graph.add_if(&self.condition(), &one).unwrap();
        let instance = graph.instantiate().unwrap();
        instance.upload(&self.stream).unwrap();
        self.word.write(&[1]).unwrap();
        let path = hostcall::graph::NodePath::from(on).body(0).node(one.find("note").unwrap());
        for (by, upload) in [(10u64, false), (100, true)] {
            instance.set(path.clone(), &notes, ONE, (&values, 0u64, by)).unwrap();
            if upload {
                instance.upload(&self.stream).unwrap();
            }
            instance.launch(&self.stream).unwrap();
        }
        assert_eq!(values.read().unwrap()[0], 110);
        self.stream.synchronize().unwrap();
    }
}
