//! The server of LLVM's protocol, with kernels on the software device as clients. That it answers as LLVM's own
//! server does is checked in tests/crosscheck.

use hostcall::hostcall_device::llvm::Client;
use hostcall::hostcall_device::{Global, Lane, heap, kernel};
use hostcall::llvm::{End, FaultKind, LlvmClient, LlvmServer, Options, Version};
use hostcall::services::{Block, Builtins, BuiltinsBuilder, HeapMemory, ProcessMemory};
use hostcall::{Device, DeviceBuffer, Grid, Hostcall, HostcallRef, LaunchKernel};
use std::alloc::Layout;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Libc's first opcode.
const LIBC: u32 = 0x6300_0000;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

struct Session {
    device: Device,
    server: LlvmServer,
    client: LlvmClient,
}

impl Session {
    fn new(builtins: BuiltinsBuilder, options: Options) -> Self {
        Self::sized(Version::Llvm20, 40, 32, builtins, options)
    }

    fn sized(version: Version, ports: u32, lanes: u32, builtins: BuiltinsBuilder, options: Options) -> Self {
        let device = Device::builder("cpu").wave_size(lanes).open().unwrap();
        let client = LlvmClient::new(&device, version, ports).unwrap();
        let server = LlvmServer::start(client.memory(), &builtins.build().unwrap(), options).unwrap();
        Self { device, server, client }
    }

    fn words(&self, count: usize) -> DeviceBuffer<u64> {
        self.device.alloc_zeroed(count).unwrap()
    }
}

/// Runs a kernel to its end.
macro_rules! run {
    ($session:expr, $kernel:ident, $grid:expr, ($($argument:expr),*)) => {{
        let stream = $session.device.stream().unwrap();
        $kernel.launch(&stream, $grid, (&$session.client, $($argument),*)).unwrap();
        stream.synchronize().unwrap();
    }};
}

/// Sends words and gives the first of the answer.
fn ask(client: Client, opcode: u32, words: &[u64]) -> u64 {
    let mut port = client.open(LIBC | opcode);
    port.send(words);
    let mut answer = [0];
    port.receive(&mut answer);
    port.close();
    answer[0]
}

/// Sends byte messages and gives the first word of the answer.
fn tell(client: Client, opcode: u32, messages: &[&[u8]]) -> u64 {
    let mut port = client.open(LIBC | opcode);
    for message in messages {
        port.send_bytes(message);
    }
    let mut answer = [0];
    port.receive(&mut answer);
    port.close();
    answer[0]
}

#[kernel]
fn increments(lane: &Lane, client: Client, sums: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let mut sum = 0;
    for round in 0..50 {
        if !(id + round).is_multiple_of(3) {
            let number = id << 32 | round;
            assert_eq!(ask(client, 0x8001, &[number]), number + 1);
            sum += 1;
        }
    }
    sums[id as usize].set(sum);
}

#[test]
fn diverged_waves_get_their_own_answers() {
    for (version, lanes, ports) in [(Version::Llvm20, 32, 7), (Version::Doorbell, 64, 16384)] {
        let options = Options::default().threads(2);
        let session = Session::sized(version, ports, lanes, Builtins::builder(), options);
        let sums = session.words(300);
        run!(session, increments, Grid::new(3, 100), (&sums));
        assert!(sums.read().unwrap().iter().all(|sum| (33..=34).contains(sum)));
    }
}

#[kernel]
fn allocate_in_a_stream(_lane: &Lane, client: Client, pieces: u64) {
    let mut stream = client.open(LIBC | 0x8003);
    stream.send(&[56 + 64 * pieces]);
    let mut sum = 0;
    for piece in 0..pieces {
        assert_ne!(ask(client, 10, &[8]), 0);
        stream.send(&[piece; 8]);
        sum += piece;
    }
    let mut words = [0; 8];
    stream.receive(&mut words);
    for _ in 0..pieces {
        assert_eq!(ask(client, 0x8001, &[1]), 2);
        stream.receive(&mut words);
        assert_eq!(words, [words[0]; 8]);
        sum -= words[0];
    }
    stream.close();
    assert_eq!(sum, 0);
}

#[test]
fn a_port_in_the_middle_of_a_stream_delays_no_other() {
    let session = Session::new(Builtins::builder(), Options::default());
    run!(session, allocate_in_a_stream, Grid::new(4, 64), (9));
}

/// An input that gives a line once it is told to.
struct Slow(Mutex<Receiver<()>>);

impl Read for Slow {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0.lock().unwrap().recv_timeout(LONG) {
            Ok(()) => b"at last\n".as_slice().read(bytes),
            Err(_) => Ok(0),
        }
    }
}

#[kernel]
fn one_waits_for_input(lane: &Lane, client: Client, wake: u64) {
    if lane.workgroup()[0] == 0 {
        let mut port = client.open(LIBC | 7);
        port.send(&[100, 1]);
        let mut line = [0; 100];
        assert_eq!(port.receive_bytes(&mut line), 9);
        port.close();
        assert_eq!(line[..9], *b"at last\n\0");
    } else {
        for i in 0..100 {
            assert_eq!(ask(client, 0x8001, &[i]), i + 1);
        }
        // Waits for the reader as well.
        assert_eq!(ask(client, 14, &[2]), 0);
        let mut port = client.open(LIBC | 12);
        port.send_bytes(b"now");
        port.send(&[wake]);
        let mut answer = [0];
        port.receive(&mut answer);
        port.close();
        assert_eq!(answer, [3]);
    }
}

#[test]
fn who_waits_for_input_delays_no_other() {
    let (wake, woken) = channel();
    let session = Session::new(Builtins::builder().stdin(Slow(Mutex::new(woken))), Options::default());
    let function = session.server.register(move |bytes| {
        assert_eq!(bytes, b"now");
        wake.send(()).unwrap();
        bytes.len() as u64
    });
    run!(session, one_waits_for_input, Grid::new(2, 1), (function));
}

#[kernel]
fn misbehave(lane: &Lane, client: Client, bad_function: u64) {
    let (opcode, words) = match lane.workgroup()[0] {
        0 => (0x1234, [0, 0]),
        1 => (LIBC | 2, [1 << 60, 0]),
        2 => (LIBC | 12, [3, 0]),
        3 => (LIBC | 12, [3, 0]),
        _ => {
            assert_eq!(ask(client, 0x8001, &[1]), 2);
            return;
        }
    };
    let mut port = client.open(opcode);
    port.send(&words);
    if opcode == LIBC | 12 {
        port.send(&[if lane.workgroup()[0] == 2 { 0x5555_0000 } else { bad_function }]);
    }
    port.close();
}

#[test]
fn misbehaving_clients_lose_their_port_alone() {
    let (fault, faults) = channel();
    let options = Options::default().on_fault(move |kind| fault.send(kind.clone()).unwrap());
    let session = Session::new(Builtins::builder(), options);
    let function = session.server.register(|_| panic!("a host function that panics, as a test"));
    run!(session, misbehave, Grid::new(12, 1), (function));
    let mut kinds: Vec<FaultKind> = (0..4).map(|_| faults.recv_timeout(LONG).unwrap().kind).collect();
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    let expected = [
        FaultKind::NoSuchFunction(0x5555_0000),
        FaultKind::Opcode(0x1234),
        FaultKind::Panicked,
        FaultKind::TooLong(1 << 60),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(session.server.statistics().faults, 4);
    assert!(faults.try_recv().is_err());
}

#[kernel]
fn commands(_lane: &Lane, client: Client, results: &[Global<u64>]) {
    results[0].set(tell(client, 29, &[b"echo ran > made; exit 3\0"]));
    results[1].set(tell(client, 28, &[b"old\0", b"new\0"]));
    results[2].set(tell(client, 28, &[b"old\0", b"../new\0"]));
    results[3].set(tell(client, 28, &[b"new\0", b"/tmp/../new\0"]));
}

#[test]
fn commands_run_when_they_may_and_files_stay_inside() {
    for allowed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "text").unwrap();
        let builtins = Builtins::builder().dir(dir.path());
        let session = Session::new(builtins, Options::default().system(allowed));
        let results = session.words(4);
        let made = std::env::current_dir().unwrap().join("made");
        run!(session, commands, Grid::new(1, 1), (&results));
        assert_eq!(made.exists(), allowed);
        if allowed {
            assert_eq!(std::fs::read_to_string(&made).unwrap(), "ran\n");
            std::fs::remove_file(made).unwrap();
        }
        let status = if allowed { 3 << 8 } else { u64::MAX };
        assert_eq!(results.read().unwrap(), [status, 0, u64::MAX, u64::MAX]);
        assert_eq!(std::fs::read_to_string(dir.path().join("new")).unwrap(), "text");
    }
}

#[kernel]
fn bad_lines_and_streams(_lane: &Lane, client: Client, results: &[Global<u64>]) {
    for (i, format) in (0..).zip([&b"%n\0"[..], b"%ls\0", b"%99999999d%99999999d\0", b"fine %d\n\0"]) {
        let mut port = client.open(LIBC | 21);
        port.send_bytes(format);
        let mut size = [0];
        port.receive(&mut size);
        port.send_bytes(&[7, 0, 0, 0, 7, 0, 0, 0][..size[0] as usize]);
        let mut answer = [0, 1];
        port.receive(&mut answer);
        port.close();
        assert_eq!(answer[1], 0);
        results[i].set(answer[0]);
    }
    // Streams that are none: tell, close, seek, flush, unget, end, error.
    let none = 0xdead_bee0;
    for (i, opcode) in (4..).zip([18, 9, 17, 19, 20, 14, 15]) {
        results[i].set(ask(client, opcode, &if opcode == 20 { [65, none, 0] } else { [none, 0, 0] }));
    }
    let mut port = client.open(LIBC | 4);
    port.send(&[none]);
    port.send_bytes(b"nowhere");
    let mut written = [1];
    port.receive(&mut written);
    port.close();
    results[11].set(written[0]);
    let mut port = client.open(LIBC | 6);
    port.send(&[u64::MAX, none]);
    assert_eq!(port.receive_bytes(&mut []), 0);
    port.receive(&mut written);
    port.close();
    results[12].set(written[0]);
}

#[test]
fn bad_formats_and_made_up_streams_fail() {
    let session = Session::new(Builtins::builder().stdout(io::sink()), Options::default());
    let results = session.words(13);
    run!(session, bad_lines_and_streams, Grid::new(1, 1), (&results));
    const FAILED: u64 = u64::MAX;
    let expected = [FAILED, FAILED, FAILED, 7, FAILED, FAILED, FAILED, FAILED, FAILED, 0, 1, 0, 0];
    assert_eq!(results.read().unwrap(), expected);
}

#[kernel]
fn ends(lane: &Lane, client: Client, opcode: u32) {
    let mut port = client.open(LIBC | opcode);
    port.send(&[]);
    port.receive(&mut []);
    port.send(&[40 + u64::from(lane.index())]);
    port.close();
}

#[test]
fn ends_are_told() {
    for (opcode, expected) in [(1, End::Exited(40)), (13, End::Aborted)] {
        let (end, ended) = channel();
        let options = Options::default().on_end(move |how| end.send(how).unwrap());
        let session = Session::new(Builtins::builder(), options);
        assert_eq!(session.server.end(), None);
        run!(session, ends, Grid::new(1, 32), (opcode));
        assert_eq!(ended.recv_timeout(LONG), Ok(expected));
        assert_eq!(session.server.end(), Some(expected));
    }
}

#[kernel]
fn long_messages(lane: &Lane, client: Client, bytes: u64) {
    // Both waves have a port before one leaves its own, which the other could get then.
    let mut port = client.open(LIBC | 0x8003);
    let mut words = [lane.global_id() as u64; 8];
    words[0] = bytes;
    lane.barrier();
    port.send(&words);
    lane.barrier();
    port.close();
}

#[test]
fn messages_are_limited_alone_and_together() {
    // Two waves say that each lane sends 4000 bytes, and do not go on.
    for (bytes, expected) in [(4000, FaultKind::TooMuch), (4001, FaultKind::TooLong(4001))] {
        let (fault, faults) = channel();
        let options = Options::default()
            .message_limit(4000)
            .messages_limit(40 * 4000)
            .on_fault(move |it| fault.send(it.kind.clone()).unwrap());
        let session = Session::new(Builtins::builder(), options);
        run!(session, long_messages, Grid::new(1, 64), (bytes));
        assert_eq!(faults.recv_timeout(LONG), Ok(expected));
    }
}

/// The process's memory. Each allocation that was not freed has a reference to the counter.
struct Counted(Arc<()>);

// SAFETY: the memory is the process's.
unsafe impl HeapMemory for Counted {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        let Block { address, memory } = ProcessMemory.allocate(bytes, align)?;
        Some(Block { address, memory: Box::new((memory, self.0.clone())) })
    }
}

#[kernel]
fn allocate_and_wait(_lane: &Lane, client: Client, wait: HostcallRef<u64, ()>) {
    wait.call(ask(client, 10, &[8])).unwrap();
}

#[test]
fn what_a_client_allocated_lives_until_its_kernels_have_ended() {
    let counter = Arc::new(());
    let builtins = Builtins::builder().heap(Counted(counter.clone()), 1 << 20).build().unwrap();
    let device = Device::open("cpu").unwrap();
    let client = LlvmClient::new(&device, Version::Llvm20, 4).unwrap();
    let server = LlvmServer::start(client.memory(), &builtins, Options::default()).unwrap();
    let ((allocated, address), (go_on, told)) = (channel(), channel());
    let told = Mutex::new(told);
    let wait = Hostcall::continuous(&device, move |address: u64| {
        allocated.send(address).unwrap();
        told.lock().unwrap().recv_timeout(LONG).unwrap();
    });
    let stream = device.stream().unwrap();
    allocate_and_wait.launch(&stream, Grid::new(1, 1), (&client, &wait.unwrap())).unwrap();
    assert_ne!(address.recv_timeout(LONG), Ok(0));
    drop((server, client));
    // This one, the heap's, and the allocation's.
    assert_eq!(Arc::strong_count(&counter), 3);
    go_on.send(()).unwrap();
    stream.synchronize().unwrap();
    let begin = Instant::now();
    while Arc::strong_count(&counter) > 2 {
        assert!(begin.elapsed() < LONG);
        std::thread::yield_now();
    }
}

#[kernel]
fn free_anothers(_lane: &Lane, client: Client) {
    let memory = heap::alloc(Layout::new::<u64>());
    assert!(!memory.is_null());
    let mut port = client.open(LIBC | 11);
    port.send(&[memory.addr() as u64]);
    port.close();
}

#[test]
fn programs_free_nothing_of_launches() {
    let device = Device::open("cpu").unwrap();
    let client = LlvmClient::new(&device, Version::Llvm20, 4).unwrap();
    let server = LlvmServer::start(client.memory(), device.builtins(), Options::default()).unwrap();
    let (stream, heap) = (device.stream().unwrap(), device.builtins().heap());
    let launch = free_anothers.launch(&stream, Grid::new(1, 1), (&client,)).unwrap();
    stream.synchronize().unwrap();
    // The kernel does not wait for the call.
    let begin = Instant::now();
    while server.statistics().calls < 1 || heap.failed_frees() == 0 && heap.held_by(launch.id()).bytes > 0 {
        assert!(begin.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert_eq!((heap.failed_frees(), heap.held_by(launch.id()).allocations), (1, 1));
}

#[kernel]
fn wait_for_ever(_lane: &Lane, client: Client) {
    let mut port = client.open(0x1234);
    port.send(&[]);
    port.receive(&mut []);
}

#[test]
fn a_lane_that_waits_for_ever_is_cancelled() {
    let (fault, faults) = channel();
    let options = Options::default().on_fault(move |it| fault.send(it.kind.clone()).unwrap());
    let session = Session::new(Builtins::builder(), options);
    let stream = session.device.stream().unwrap();
    wait_for_ever.launch(&stream, Grid::new(1, 40), (&session.client,)).unwrap();
    assert_eq!(faults.recv_timeout(LONG), Ok(FaultKind::Opcode(0x1234)));
    session.device.cancel_all();
    let ended = stream.synchronize().unwrap_err();
    assert!(ended.to_string().contains("cancelled"), "{ended}");
}
