//! A port under loom's model checker, as the channel's `loom_tests` are. Loom's memory is not the real layout;
//! lanes are one thread each, or one thread alone.

use super::client::{Alone, Client};
use super::server::Scanner;
use super::{AtomicU32, Layout, PortMemory, Version};
use crate::primitive::Ordering;
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

struct Ends {
    memory: PortMemory,
    locks: [AtomicU32; 1],
}

impl Ends {
    fn new(ports: u32) -> Arc<Self> {
        let layout = Layout::new(Version::Llvm20, ports, 1).unwrap();
        Arc::new(Self { memory: PortMemory::allocate(layout), locks: [AtomicU32::new(0)] })
    }

    fn client(&self) -> Client<'_> {
        Client::new(self.memory.ports(), &self.locks).unwrap()
    }
}

/// The server's side, one step at a time.
struct Server {
    ends: Arc<Ends>,
    scanner: Scanner,
    port: u32,
}

impl Server {
    fn new(ends: &Arc<Ends>) -> Self {
        Self { ends: ends.clone(), scanner: Scanner::new(0..ends.memory.layout().ports()), port: 0 }
    }

    fn wait(&mut self) {
        loop {
            let ready = self.scanner.ready(self.ends.memory.ports(), 0);
            if ready != 0 {
                self.port = ready.trailing_zeros();
                assert!(self.scanner.owns(self.ends.memory.ports(), self.port));
                return;
            }
            thread::yield_now();
        }
    }

    fn read(&self) -> u64 {
        let mut word = [0];
        self.ends.memory.ports().read(self.port, 0, &mut word);
        word[0]
    }

    fn write(&self, word: u64) {
        self.ends.memory.ports().write(self.port, 0, &[word]);
    }

    fn hand_over(&self) {
        self.scanner.hand_over(self.ends.memory.ports(), self.port);
    }
}

/// Calls in a row over one port: each answer is that of its own call.
#[test]
fn calls_in_a_row() {
    model(3, || {
        let ends = Ends::new(1);
        let mut server = Server::new(&ends);
        let calls = thread::spawn(move || {
            for i in 0..3 {
                let mut port = ends.client().open(Alone(thread::yield_now), 0x8001, 0);
                port.send(&[10 * i]);
                let mut answer = [0];
                port.receive(&mut answer);
                assert_eq!(answer, [10 * i + 1]);
                port.close();
            }
        });
        for _ in 0..3 {
            server.wait();
            assert_eq!(server.ends.memory.ports().read_header(0).opcode, 0x8001);
            server.write(server.read() + 1);
            server.hand_over();
        }
        calls.join().unwrap();
        assert_eq!(server.scanner.ready(server.ends.memory.ports(), 0), 0);
    });
}

/// Several sends, then several receives; the client closes while its last send is not received, and opens the
/// port again.
#[test]
fn sends_in_a_row_and_receives_in_a_row() {
    model(3, || {
        let ends = Ends::new(1);
        let mut server = Server::new(&ends);
        let client = thread::spawn(move || {
            for round in 0..2 {
                let mut port = ends.client().open(Alone(thread::yield_now), round, 0);
                port.send(&[1]);
                port.send(&[2]);
                let mut answer = [0];
                port.receive(&mut answer);
                assert_eq!(answer, [3]);
                port.receive(&mut answer);
                assert_eq!(answer, [4]);
                port.send(&[5]);
                port.close();
            }
        });
        for round in 0..2 {
            server.wait();
            assert_eq!(server.ends.memory.ports().read_header(0).opcode, round);
            assert_eq!(server.read(), 1);
            server.hand_over();
            server.wait();
            assert_eq!(server.read(), 2);
            server.write(3);
            server.hand_over();
            server.wait();
            server.write(4);
            server.hand_over();
            server.wait();
            assert_eq!(server.read(), 5);
            server.hand_over();
        }
        client.join().unwrap();
    });
}

/// Two waves and one port: each gets its own answer, whoever waits serves.
#[test]
fn waves_take_turns() {
    model(2, || {
        let ends = Ends::new(1);
        let server = Arc::new(Mutex::new(Server::new(&ends)));
        let wave = |seed: u64| {
            let (ends, server) = (ends.clone(), server.clone());
            move || {
                let serve = || {
                    let server = server.lock().unwrap();
                    if server.scanner.ready(server.ends.memory.ports(), 0) != 0
                        && server.scanner.owns(server.ends.memory.ports(), 0)
                    {
                        server.write(!server.read());
                        server.hand_over();
                    }
                    drop(server);
                    thread::yield_now();
                };
                let mut port = ends.client().open(Alone(serve), 1, 0);
                port.send(&[seed]);
                let mut answer = [0];
                port.receive(&mut answer);
                assert_eq!(answer, [!seed]);
                port.close();
            }
        };
        let other = thread::spawn(wave(7));
        wave(8)();
        other.join().unwrap();
        assert_eq!(ends.locks[0].load(Ordering::Relaxed), 0);
    });
}

/// Two ports: a client whose port another has takes the other one, and both are found.
#[test]
fn ports_side_by_side() {
    model(2, || {
        let ends = Ends::new(2);
        let mut server = Server::new(&ends);
        let client = thread::spawn(move || {
            let mut first = ends.client().open(Alone(thread::yield_now), 1, 0);
            first.send(&[1]);
            let mut second = ends.client().open(Alone(thread::yield_now), 1, 0);
            second.send(&[2]);
            let mut answers = [[0]; 2];
            second.receive(&mut answers[1]);
            first.receive(&mut answers[0]);
            assert_eq!(answers, [[!1], [!2]]);
        });
        for _ in 0..2 {
            server.wait();
            assert_eq!(server.read(), u64::from(server.port) + 1);
            server.write(!server.read());
            server.hand_over();
        }
        client.join().unwrap();
    });
}
