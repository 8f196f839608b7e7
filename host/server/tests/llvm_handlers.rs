//! A server of LLVM's protocol in a host of somebody else's: handlers by opcode, typed functions, Emissary, serving by hand,
//! cancellation. The clients are threads of this process.

use hostcall_channel::llvm::client::{Alone, Client, Port};
use hostcall_server::llvm::{
    Argument, EmissaryValue, FaultKind, HandlerFailed, Layout, LlvmServer, OpcodeHandler, Options, Parameter,
    PortMemory, Taken, Version,
};
use hostcall_server::rocm::{self, Services};
use hostcall_server::services::Builtins;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, yield_now};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

const LIBC: u32 = (b'c' as u32) << 24;
const OURS: u32 = (b'x' as u32) << 24;
const EMISSARY: u32 = (b'e' as u32) << 24 | 1;

/// What a client and its threads have.
#[derive(Clone)]
struct Ends {
    memory: Arc<PortMemory>,
    locks: Arc<[AtomicU32; 1]>,
    /// Clients of ports that are served no more give up.
    is_over: Arc<AtomicBool>,
}

/// The panic of a client that gave up.
struct GaveUp;

impl Ends {
    fn new(version: Version) -> Self {
        let memory = Arc::new(PortMemory::allocate(Layout::new(version, 17, 1).unwrap()));
        Self { memory, locks: Arc::new([const { AtomicU32::new(0) }; 1]), is_over: Arc::default() }
    }

    /// Talks over an open port.
    fn talk<T>(&self, opcode: u32, talk: impl FnOnce(&mut Port<'_, Alone<&dyn Fn()>>) -> T) -> T {
        let client = Client::new(self.memory.ports(), &*self.locks).unwrap();
        let wait = || {
            if self.is_over.load(Ordering::Relaxed) {
                std::panic::resume_unwind(Box::new(GaveUp));
            }
            yield_now();
        };
        let mut port = client.open(Alone(&wait as &dyn Fn()), opcode, 0);
        let result = talk(&mut port);
        port.close();
        result
    }

    /// Sends words and returns those of the answer.
    fn ask(&self, opcode: u32, words: [u64; 2]) -> [u64; 2] {
        self.talk(opcode, |port| {
            port.send(&words);
            let mut answer = [0; 2];
            port.receive(&mut answer);
            answer
        })
    }

    /// Asks in a thread of its own, which may wait until this is over.
    fn ask_aside(&self, opcode: u32) -> JoinHandle<[u64; 2]> {
        let ends = self.clone();
        std::thread::spawn(move || ends.ask(opcode, [1, 2]))
    }
}

/// Standard output that can be read.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Host {
    ends: Ends,
    server: LlvmServer,
    faults: Receiver<FaultKind>,
    printed: Printed,
}

fn options() -> (Options, Receiver<FaultKind>) {
    let (told, faults): (Sender<FaultKind>, _) = channel();
    (Options::default().on_fault(move |fault| drop(told.send(fault.kind.clone()))), faults)
}

impl Host {
    fn new(version: Version) -> Self {
        let (ends, (options, faults), printed) = (Ends::new(version), options(), Printed::default());
        let builtins = Builtins::builder().stdout(printed.clone()).build().unwrap();
        let server = LlvmServer::start(ends.memory.clone(), &builtins, options).unwrap();
        Self { ends, server, faults, printed }
    }

    /// A client asks for what ends the service of its port. Returns why.
    fn fault(&self, opcode: u32) -> FaultKind {
        let _ = self.ends.ask_aside(opcode);
        self.faults.recv_timeout(LONG).expect("the fault is told")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.ends.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn handlers_answer_their_opcodes_in_every_version() {
    for version in Version::ALL {
        // Opcodes of 16 bits have no byte on top.
        let (ours, libc) = if version == Version::Llvm19 { (0x4000, 0) } else { (OURS, LIBC) };
        let host = Host::new(version);
        let sum = |packet: &mut hostcall_server::llvm::Packet<'_>| {
            let opcode = u64::from(packet.opcode());
            packet.lanes().for_each(|(_, words)| (words[0], words[1]) = (words[0] + words[1], opcode));
            Ok(())
        };
        host.server.handle(ours..=ours + 9, OpcodeHandler::inline(sum)).unwrap();
        host.server.handle(ours + 10..=ours + 10, OpcodeHandler::packet(sum)).unwrap();
        let talk = |call: &mut hostcall_server::llvm::Call| {
            call.receive_bytes()?;
            let lane = call.lanes().next().expect("a lane calls");
            call.bytes(lane).reverse();
            call.send_bytes()?;
            call.receive()?;
            call.words(lane)[0] *= 3;
            Ok(call.send()?)
        };
        host.server.handle(ours + 11..=ours + 11, OpcodeHandler::call(talk)).unwrap();
        let taken = host.server.handle(ours + 9..=ours + 20, OpcodeHandler::inline(sum));
        assert_eq!(taken, Err(Taken::Opcodes(ours + 9..=ours + 20)));
        host.server.handle(ours + 12..=ours + 12, OpcodeHandler::call(|_| Ok(()))).unwrap();
        // In libc's place.
        let malloc = OpcodeHandler::inline(|packet| {
            packet.lanes().for_each(|(_, words)| words[0] = 0xabc0);
            Ok(())
        });
        host.server.handle(libc + 10..=libc + 10, malloc).unwrap();
        for _ in 0..3 {
            assert_eq!(host.ends.ask(ours + 7, [20, 22]), [42, u64::from(ours) + 7]);
            assert_eq!(host.ends.ask(ours + 10, [1, 2]), [3, u64::from(ours) + 10]);
            assert_eq!(host.ends.ask(ours + 12, [1, 2]), [1, 2]);
            assert_eq!(host.ends.ask(libc + 10, [64, 0])[0], 0xabc0);
            let message: Vec<u8> = (0..200).collect();
            host.ends.talk(ours + 11, |port| {
                port.send_bytes(&message);
                let mut answer = [0; 300];
                assert_eq!(port.receive_bytes(&mut answer), 200);
                assert!(answer[..200].iter().rev().eq(&message));
                port.send(&[14]);
                let mut word = [0];
                port.receive(&mut word);
                assert_eq!(word, [42]);
            });
        }
        // Libc's others are the server's.
        assert_eq!(host.ends.ask(0x8001, [41, 0])[0], 42);
        assert_eq!(host.server.statistics().faults, 0);
    }
}

#[test]
fn what_fails_ends_its_port_alone() {
    let host = Host::new(Version::Llvm20);
    let words = |opcode| host.ends.ask(opcode, [1, 2])[0];
    assert_eq!(host.fault(OURS), FaultKind::Opcode(OURS));
    host.server.handle(OURS..=OURS, OpcodeHandler::inline(|_| Err(HandlerFailed(7)))).unwrap();
    host.server.handle(OURS + 1..=OURS + 1, OpcodeHandler::call(|_| Err(HandlerFailed(8)))).unwrap();
    let panics = || std::panic::resume_unwind(Box::new("on purpose"));
    host.server.handle(OURS + 2..=OURS + 2, OpcodeHandler::inline(move |_| panics())).unwrap();
    host.server.handle(OURS + 3..=OURS + 3, OpcodeHandler::packet(move |_| panics())).unwrap();
    host.server.handle(OURS + 4..=OURS + 4, OpcodeHandler::call(move |_| panics())).unwrap();
    assert_eq!(host.fault(OURS), FaultKind::HandlerFailed(7));
    assert_eq!(host.fault(OURS + 1), FaultKind::HandlerFailed(8));
    for opcode in OURS + 2..=OURS + 4 {
        assert_eq!(host.fault(opcode), FaultKind::Panicked);
        assert_eq!(words(LIBC + 0x8001), 2);
    }
    let unknown = OpcodeHandler::packet(|packet| {
        packet.lanes().for_each(|(_, words)| words[0] = 99);
        Ok(())
    });
    host.server.handle_unknown(unknown.clone()).unwrap();
    assert_eq!(host.server.handle_unknown(unknown), Err(Taken::Unknown));
    assert_eq!(words(OURS + 100), 99);
    assert_eq!(words(LIBC + 0x8001), 2);
    assert_eq!(host.server.statistics().faults, 6);
}

/// Where nothing can end a client that waits, the rest of its call is zeros, whatever the call is.
#[test]
fn clients_of_calls_with_faults_get_zeros_where_that_is_asked_for() {
    for version in Version::ALL {
        let ours = if version == Version::Llvm19 { 0x4000 } else { OURS };
        let (ends, (options, faults), noted) = (Ends::new(version), options(), Arc::new(AtomicU32::new(0)));
        let notes = noted.clone();
        let options = options.message_limit(1000).answer_faults(move |_| {
            notes.fetch_add(1, Ordering::Relaxed);
        });
        let server =
            LlvmServer::start(ends.memory.clone(), &Builtins::builder().build().unwrap(), options).unwrap();
        let fails_later = |call: &mut hostcall_server::llvm::Call| {
            call.receive()?;
            call.send()?;
            Err(HandlerFailed(3))
        };
        server.handle(ours + 1..=ours + 1, OpcodeHandler::inline(|_| Err(HandlerFailed(2)))).unwrap();
        server.handle(ours + 2..=ours + 2, OpcodeHandler::call(fails_later)).unwrap();
        server.handle(ours + 3..=ours + 3, OpcodeHandler::inline(|_| Ok(()))).unwrap();
        let bytes = OpcodeHandler::call(|call| Ok(call.receive_bytes()?));
        server.handle(ours + 4..=ours + 4, bytes).unwrap();
        let mut calls = 0;
        // Everything that a client can do, with each port in turn.
        let mut check = |opcode: u32, fault: FaultKind, receives_first: bool| {
            ends.talk(opcode, |port| {
                port.send(&[1, 2]);
                let mut words = [9; 8];
                if receives_first {
                    port.receive(&mut words);
                }
                for _ in 0..3 {
                    words = [9; 8];
                    port.receive(&mut words);
                    assert_eq!(words, [0; 8], "{version:?} {opcode:#x}");
                }
                port.send(&[7]);
                port.send_bytes(&[5; 300]);
                assert_eq!(port.receive_bytes(&mut [1; 100]), 0);
                port.send(&[8]);
            });
            calls += 1;
            assert_eq!(noted.load(Ordering::Relaxed), calls);
            assert_eq!(faults.recv_timeout(LONG), Ok(fault));
            // The port is served on, also for another call.
            assert_eq!(ends.ask(0x8001, [41, 0])[0], 42);
        };
        for _ in 0..3 {
            check(ours, FaultKind::Opcode(ours), false);
            check(ours + 1, FaultKind::HandlerFailed(2), false);
            check(ours + 2, FaultKind::HandlerFailed(3), true);
            check(ours + 3, FaultKind::BeyondEnd, true);
        }
        ends.talk(ours + 4, |port| {
            port.send_bytes(&[1; 1001]);
            let mut words = [9; 2];
            port.receive(&mut words);
            assert_eq!(words, [0; 2]);
        });
        assert_eq!(faults.recv_timeout(LONG), Ok(FaultKind::TooLong(1001)));
        assert_eq!(server.statistics().faults, 13);
    }
}

#[test]
fn a_server_without_threads_serves_when_it_is_polled() {
    let (ends, (options, _)) = (Ends::new(Version::Doorbell), options());
    let builtins = Builtins::builder().build().unwrap();
    let (server, mut poller) = LlvmServer::by_hand(ends.memory.clone(), &builtins, options).unwrap();
    assert_eq!(poller.poll(), 0);
    server.handle(OURS..=OURS, OpcodeHandler::packet(|_| Ok(()))).unwrap();
    let (first, second) = (ends.ask_aside(LIBC + 0x8001), ends.ask_aside(OURS));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!first.is_finished() && !second.is_finished(), "nobody serves");
    let (mut served, since) = (0, Instant::now());
    while !(first.is_finished() && second.is_finished()) {
        assert!(since.elapsed() < LONG);
        served += poller.poll();
    }
    assert!(served >= 2);
    assert_eq!([first, second].map(|asked| asked.join().unwrap()), [[2, 2], [1, 2]]);
    server.cancel();
    let late = ends.ask_aside(LIBC + 0x8001);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(poller.poll(), 0);
    assert!(!late.is_finished());
    ends.is_over.store(true, Ordering::Relaxed);
}

#[test]
fn a_cancelled_server_lets_handlers_go_that_wait_for_clients() {
    let host = Host::new(Version::Llvm20);
    let (told, ended) = channel();
    let waits = move |call: &mut hostcall_server::llvm::Call| {
        call.receive()?;
        told.send("waits").unwrap();
        // The client never sends again.
        let received = call.receive();
        told.send(if received.is_err() { "ended" } else { "received" }).unwrap();
        Ok(received?)
    };
    host.server.handle(OURS..=OURS, OpcodeHandler::call(waits)).unwrap();
    let never = OpcodeHandler::call(|_| {
        loop {
            std::thread::park();
        }
    });
    host.server.handle(OURS + 1..=OURS + 1, never).unwrap();
    let _ = (host.ends.ask_aside(OURS), host.ends.ask_aside(OURS + 1));
    assert_eq!(ended.recv_timeout(LONG), Ok("waits"));
    assert!(ended.recv_timeout(Duration::from_millis(20)).is_err());
    host.server.cancel();
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
    // A handler that never returns does not hold this up.
    drop(host);
}

#[test]
fn typed_functions_get_copies_and_give_them_back() {
    let host = Host::new(Version::Doorbell);
    let parameters = [Parameter::Value(4), Parameter::Input, Parameter::Pointer, Parameter::Value(80)];
    let function = move |call: &mut hostcall_server::llvm::Call| {
        call.dispatch(&parameters, 72, |_, arguments, result| {
            let [
                Argument::Value(number),
                Argument::Memory(text),
                Argument::Memory(Some(numbers)),
                Argument::Value(large),
            ] = arguments
            else {
                return Err(HandlerFailed(1));
            };
            result[..4].copy_from_slice(number);
            result[4] = text.as_ref().map_or(0, |text| text.len() as u8);
            result[71] = large[79];
            numbers.iter_mut().for_each(|number| *number += 1);
            Ok(())
        })
    };
    host.server.handle(OURS..=OURS, OpcodeHandler::call(function)).unwrap();
    let nothing = |call: &mut hostcall_server::llvm::Call| call.dispatch(&[], 0, |_, _, _| Ok(()));
    host.server.handle(OURS + 1..=OURS + 1, OpcodeHandler::call(nothing)).unwrap();
    for text in [&b""[..], b"text\0"] {
        let (result, numbers) = host.ends.talk(OURS, |port| {
            let mut arguments = Vec::from(7u32.to_le_bytes());
            for memory in [text, &[1, 2, 3]] {
                port.send_bytes(memory);
                let mut name = [0];
                port.receive(&mut name);
                assert_eq!(name[0] == 0, memory.is_empty());
                arguments.extend(name[0].to_le_bytes());
            }
            arguments.extend([5; 80]);
            for packet in arguments.chunks(64) {
                let mut words = [0; 8];
                for (word, bytes) in words.iter_mut().zip(packet.chunks(8)) {
                    let mut padded = [0; 8];
                    padded[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(padded);
                }
                port.send(&words);
            }
            assert_eq!(port.receive_bytes(&mut [0; 8]), 0, "what is constant does not come back");
            let mut numbers = [0; 3];
            assert_eq!(port.receive_bytes(&mut numbers), 3);
            let mut result = [[0; 8]; 2];
            result.iter_mut().for_each(|words| port.receive(words));
            (result, numbers)
        });
        assert_eq!(numbers, [2, 3, 4]);
        assert_eq!(result[0][0], 7 | (text.len() as u64) << 32);
        assert_eq!(result[1][0], 5 << 56);
    }
    assert_eq!(host.ends.ask(OURS + 1, [0; 2])[0], 0);
}

/// A block of arguments as Emissary's compiler packs it.
struct Block {
    keys: Vec<u32>,
    arguments: Vec<u8>,
    texts: Vec<u8>,
}

impl Block {
    fn new(api: u64, function: u64, to_host: u64, back: u64) -> Self {
        let own = api << 48 | function << 32 | to_host << 16 | back;
        Self { keys: vec![2 << 16 | 64], arguments: own.to_le_bytes().into(), texts: Vec::new() }
    }

    fn argument(mut self, key: u32, bytes: &[u8]) -> Self {
        self.keys.push(key);
        while !self.arguments.len().is_multiple_of(bytes.len()) {
            self.arguments.push(0);
        }
        self.arguments.extend_from_slice(bytes);
        self
    }

    fn text(mut self, text: &str) -> Self {
        self.texts.extend_from_slice(text.as_bytes());
        self.texts.push(0);
        self.argument(3 << 16 | 1, &(text.len() as u32 + 1).to_le_bytes())
    }

    fn address(self, address: u64) -> Self {
        self.argument(3 << 16 | 64, &address.to_le_bytes())
    }

    fn transfer(self, address: u64, bytes: u64) -> Self {
        self.address(address).argument(2 << 16 | 64, &bytes.to_le_bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let before = (8 + 4 * self.keys.len()).next_multiple_of(8);
        let mut bytes = ((before + self.arguments.len()) as u32).to_le_bytes().to_vec();
        bytes.extend((self.keys.len() as u32).to_le_bytes());
        bytes.extend(self.keys.iter().flat_map(|key| key.to_le_bytes()));
        bytes.resize(before, 0);
        [&*bytes, &self.arguments, &self.texts].concat()
    }
}

fn call_emissary(ends: &Ends, block: &[u8]) -> u64 {
    ends.talk(EMISSARY, |port| {
        port.send_bytes(block);
        let mut result = [0];
        port.receive(&mut result);
        result[0]
    })
}

#[test]
fn emissary_prints_and_calls_functions_with_transfers() {
    let host = Host::new(Version::Doorbell);
    let line = Block::new(2, 1, 0, 0)
        .text("%s: %d %.2f %lx|%c\n")
        .text("name")
        .argument(2 << 16 | 32, &(-5i32).to_le_bytes())
        .argument(1 << 16 | 64, &2.5f64.to_le_bytes())
        .argument(2 << 16 | 64, &0xabcu64.to_le_bytes())
        .argument(2 << 16 | 32, &u32::from(b'z').to_le_bytes());
    assert_eq!(call_emissary(&host.ends, &line.bytes()), 20);
    let to_stream = Block::new(2, 2, 0, 0).address(2).text("to a stream\n");
    assert_eq!(call_emissary(&host.ends, &to_stream.bytes()), 12);
    for wrong in [Block::new(2, 1, 0, 0), Block::new(2, 1, 0, 0).text("%s %d").text("too few")] {
        assert_eq!(call_emissary(&host.ends, &wrong.bytes()) as i32, -1);
    }
    host.server.flush();
    let printed = String::from_utf8(host.printed.0.lock().unwrap().clone()).unwrap();
    assert_eq!(printed, "name: -5 2.50 abc|z\nto a stream\n");

    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let exchange = move |call: &mut hostcall_server::llvm::EmissaryCall| {
        noted.lock().unwrap().push((call.function, call.arguments.clone()));
        let sent = call.memory[0].clone();
        call.memory[1][..sent.len()].copy_from_slice(&sent);
        call.memory[1].reverse();
        Ok(77)
    };
    host.server.handle_emissary(3, exchange).unwrap();
    let block = Block::new(3, 9, 1, 1)
        .transfer(0x1000, 100)
        .transfer(0x2000, 120)
        .address(0x2000)
        .argument(1 << 16 | 32, &1.5f32.to_le_bytes())
        .address(0x1000)
        .address(0x3000);
    let (back, result) = host.ends.talk(EMISSARY + 1, |port| {
        port.send_bytes(&block.bytes());
        port.send_bytes(&[6; 100]);
        let mut back = [0; 120];
        assert_eq!(port.receive_bytes(&mut back), 120);
        let mut result = [0];
        port.receive(&mut result);
        (back, result[0])
    });
    assert_eq!(result, 77);
    assert!(back[..20] == [0; 20] && back[20..] == [6; 100]);
    let expected = vec![
        EmissaryValue::Memory(1),
        EmissaryValue::Float(1.5),
        EmissaryValue::Memory(0),
        EmissaryValue::Address(0x3000),
    ];
    assert_eq!(*seen.lock().unwrap(), [(9, expected)]);

    // Nobody's API, and blocks that lie about what is in them.
    let mut faults = Vec::new();
    let mut lies = vec![Block::new(4, 1, 0, 0).bytes(), Vec::new(), vec![0; 8]];
    let good = line.bytes();
    lies.push(good[..good.len() - 3].to_vec());
    for (place, value) in [(0, u32::MAX), (4, 1 << 30), (4, 0), (8, 9), (12, 7 << 16), (12, 3 << 16 | 64)] {
        let mut lie = good.clone();
        lie[place..place + 4].copy_from_slice(&value.to_le_bytes());
        lies.push(lie);
    }
    for lie in lies {
        let ends = host.ends.clone();
        let client = std::thread::spawn(move || call_emissary(&ends, &lie));
        loop {
            if let Ok(fault) = host.faults.recv_timeout(Duration::from_millis(1)) {
                faults.push(fault);
                break;
            }
            if client.is_finished() {
                // What is read differently but fits is answered.
                break;
            }
        }
    }
    assert_eq!(faults[0], FaultKind::NoSuchEmissary { api: 4, function: 1 });
    assert!(faults.len() >= 7, "{faults:?}");
    assert!(faults[1..].iter().all(|fault| *fault == FaultKind::Arguments), "{faults:?}");
    assert_eq!(host.ends.ask(LIBC + 0x8001, [41, 0])[0], 42);
}

#[test]
fn several_servers_and_clients_go_on_at_once() {
    let hosts: Vec<_> = Version::ALL.into_iter().map(Host::new).collect();
    let calls = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for host in &hosts {
            let opcode = 0x4000;
            let counted = calls.clone();
            let count = OpcodeHandler::packet(move |packet| {
                counted.fetch_add(1, Ordering::Relaxed);
                packet.lanes().for_each(|(_, words)| words[0] *= 2);
                Ok(())
            });
            host.server.handle(opcode..=opcode, count).unwrap();
            for client in 0..4 {
                let ends = &host.ends;
                scope.spawn(move || {
                    for call in 0..200 {
                        assert_eq!(ends.ask(opcode, [call + client, 0])[0], 2 * (call + client));
                        assert_eq!(ends.ask(0x8001, [call, 0])[0], call + 1);
                    }
                });
            }
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 3 * 4 * 200);
}

/// Kernels of HIP call ROCm's services so, where their runtime does without hostcall buffers.
#[test]
fn rocm_services_are_called_by_opcodes() {
    const ROCM: u32 = (b'r' as u32) << 24;
    let (ends, (options, faults), printed) = (Ends::new(Version::Doorbell), options(), Printed::default());
    let builtins = Builtins::builder().stdout(printed.clone()).build().unwrap();
    let server = LlvmServer::start(ends.memory.clone(), &builtins, options).unwrap();
    let host = Host { ends, server, faults, printed };
    let (services, reports) = (Services::new(), channel());
    let square = services.register_function(|[x, ..]| [x * x, 7]).unwrap();
    services.register_sanitizer(move |report| reports.0.send(*report).unwrap()).unwrap();
    services.register_printf(&builtins).unwrap();
    host.server.handle_rocm(&services).unwrap();
    assert_eq!(host.server.handle_rocm(&services), Err(Taken::Opcodes(ROCM..=ROCM + 3)));
    let ask = |opcode: u32, words: [u64; 8]| {
        host.ends.talk(ROCM + opcode, |port| {
            port.send(&words);
            let mut answer = [0; 8];
            port.receive(&mut answer);
            [answer[0], answer[1]]
        })
    };
    assert_eq!(ask(0, [square, 5, 0, 0, 0, 0, 0, 0]), [25, 7]);

    ask(2, [0x1000, 0x20, 1, 2, 3, 4, 1, 8]);
    let store = reports.1.recv_timeout(LONG).unwrap();
    assert_eq!((store.address, store.workgroup, store.is_load, store.bytes), (0x1000, [1, 2, 3], false, 8));
    ask(2, [0x1000, 0x20, 1, 2, 3, 4, 1 << 32, 8]);
    assert!(reports.1.recv_timeout(LONG).unwrap().is_load);

    // A line in two pieces: its control word and format, then what it prints. A descriptor has the number of words.
    let format = u64::from_le_bytes(*b"n=%lu\n\0\0");
    let [descriptor, _] = ask(3, [1 | 2 << 5, 0, format, 0, 0, 0, 0, 0]);
    let [printed, _] = ask(3, [descriptor & !(7 << 5) | 2 | 1 << 5, 42, 0, 0, 0, 0, 0, 0]);
    assert_eq!(printed, 5);
    host.server.flush();
    assert_eq!(*host.printed.0.lock().unwrap(), b"n=42\n");

    // What nobody answers gets zeros, and its port is served on.
    let nothing = rocm::FaultKind::NoSuchFunction(square + 1);
    assert_eq!(ask(0, [square + 1, 5, 0, 0, 0, 0, 0, 0]), [0, 0]);
    assert_eq!(host.faults.recv_timeout(LONG), Ok(FaultKind::OfRocm(nothing)));
    assert_eq!(ask(1, [0, 4096, 0, 0, 0, 0, 0, 0]), [0, 0]);
    let memory = rocm::FaultKind::NoSuchService(rocm::number::DEVICE_MEMORY);
    assert_eq!(host.faults.recv_timeout(LONG), Ok(FaultKind::OfRocm(memory)));
    assert_eq!(ask(0, [square, 6, 0, 0, 0, 0, 0, 0]), [36, 7]);
}
