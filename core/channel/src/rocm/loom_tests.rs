//! Packets under loom's model checker, as the channel's `loom_tests` are. A payload has one lane here, and a wave is one
//! thread.

use super::client;
use super::host::Host;
use super::{Layout, PacketMemory, Version};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// Both ends, and who serves.
struct Ends {
    memory: PacketMemory,
    host: Mutex<(Host, Vec<u32>)>,
}

impl Ends {
    fn new(version: Version, packets: u32) -> Arc<Self> {
        let memory = PacketMemory::allocate(Layout::new(version, packets).unwrap());
        let host = Host::new(memory.layout(), memory.packets());
        Arc::new(Self { memory, host: Mutex::new((host, Vec::new())) })
    }

    /// Answers what waits with the complement of its first word. Returns how many packets were answered.
    fn serve(&self) -> usize {
        let mut host = self.host.lock().unwrap();
        let (host, found) = &mut *host;
        let packets = self.memory.packets();
        found.clear();
        host.find(packets, 0, found).expect("waves are correct");
        for packet in &*found {
            let header = packets.read_header(*packet);
            assert_eq!((header.mask, header.service), (1, 7));
            let words = packets.read(*packet, 0);
            packets.write(*packet, 0, &[!words[0], words[0]]);
            assert!(host.answer(packets, *packet));
        }
        found.len()
    }

    fn call(&self, word: u64, wait: impl FnMut()) {
        let mut lanes = [[word, 0, 0, 0, 0, 0, 0, 0]];
        client::call(self.memory.packets(), 7, 1, &mut lanes, wait);
        assert_eq!(lanes[0][..2], [!word, word]);
    }
}

/// Calls in a row over one packet: each answer is that of its own call.
fn calls_in_a_row(version: Version) {
    model(3, move || {
        let ends = Ends::new(version, 1);
        let caller = ends.clone();
        let calls = thread::spawn(move || (10..12).for_each(|word| caller.call(word, thread::yield_now)));
        let mut answered = 0;
        while answered < 2 {
            answered += ends.serve();
            thread::yield_now();
        }
        calls.join().unwrap();
        assert_eq!(ends.serve(), 0);
    });
}

#[test]
fn calls_in_a_row_with_stacks() {
    calls_in_a_row(Version::Stacks);
}

#[test]
fn calls_in_a_row_with_phases() {
    calls_in_a_row(Version::Phases);
}

/// Two waves: each gets its own answer, whether they share the packets or wait for one. Whoever waits serves.
fn two_waves(version: Version, packets: u32) {
    model(2, move || {
        let ends = Ends::new(version, packets);
        let wave = |word| {
            let ends = ends.clone();
            move || {
                ends.call(word, || {
                    ends.serve();
                    thread::yield_now();
                });
            }
        };
        let other = thread::spawn(wave(7));
        wave(8)();
        other.join().unwrap();
    });
}

#[test]
fn two_waves_with_stacks() {
    two_waves(Version::Stacks, 2);
}

#[test]
fn two_waves_with_phases() {
    two_waves(Version::Phases, 2);
}

#[test]
fn waves_wait_for_a_packet_with_stacks() {
    two_waves(Version::Stacks, 1);
}

#[test]
fn waves_wait_for_a_packet_with_phases() {
    two_waves(Version::Phases, 1);
}
