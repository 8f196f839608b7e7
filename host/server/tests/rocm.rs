//! Consumers of ROCm's hostcall buffers, with threads that play the waves of a device.

use hostcall_channel::rocm::client;
use hostcall_server::rocm::{
    Broken, Consumer, Fault, FaultKind, LaunchError, Layout, Mode, Options, PacketMemory, RegisterError,
    SanitizerReport, ServiceTaken, Services, Version, number,
};
use hostcall_server::services::{Builtins, Sink, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[path = "fuzz/rocm_server.rs"]
mod rocm_server;

/// A service that adds one to each lane's first word.
const INCREMENT: u32 = 700;

/// A call that has no answer by then gets none.
const HANG: Duration = Duration::from_secs(100);

fn buffer(version: Version, packets: u32) -> Arc<PacketMemory> {
    Arc::new(PacketMemory::allocate(Layout::new(version, packets).unwrap()))
}

fn services() -> Services {
    let services = Services::new();
    let increment = |packet: &mut hostcall_server::rocm::Packet<'_>| {
        packet.lanes().for_each(|(_, words)| words[0] += 1);
    };
    services.register(INCREMENT, "increment", Mode::Inline, increment).unwrap();
    services
}

fn running(services: &Services, options: Options, buffers: &[&Arc<PacketMemory>]) -> Consumer {
    let consumer = Consumer::new(services, options).unwrap();
    buffers.iter().for_each(|buffer| consumer.register(buffer).unwrap());
    consumer.launch().unwrap();
    consumer
}

/// Calls a service for the lanes of `mask`.
fn call(buffer: &PacketMemory, service: u32, mask: u64, lanes: &mut [[u64; 8]]) {
    let since = Instant::now();
    client::call(buffer.packets(), service, mask, lanes, || {
        assert!(since.elapsed() < HANG, "service {service} has no answer");
        std::thread::yield_now();
    });
}

/// Calls a service for one lane.
fn call_one(buffer: &PacketMemory, service: u32, words: [u64; 8]) -> [u64; 2] {
    let mut lanes = [words];
    call(buffer, service, 1, &mut lanes);
    [lanes[0][0], lanes[0][1]]
}

/// Options that collect faults.
fn collecting() -> (Options, mpsc::Receiver<Fault>) {
    let (told, faults) = mpsc::channel();
    let options = Options::default().on_fault(move |fault| drop(told.send(fault.clone())));
    (options, faults)
}

#[test]
fn waves_of_several_buffers_are_answered_while_others_come_and_go() {
    const CALLS: u64 = 40;
    let services = services();
    let buffers: Vec<_> =
        (0..4).map(|index| buffer(Version::ALL[index % 2], 2 + index as u32 * 15)).collect();
    let consumers: Vec<_> = (0..2).map(|_| running(&services, Options::default(), &[])).collect();
    std::thread::scope(|scope| {
        for (index, buffer) in buffers.iter().enumerate() {
            consumers[index % 2].register(buffer).unwrap();
            assert_eq!(consumers[(index + 1) % 2].register(buffer), Err(RegisterError::Registered));
            for wave in 0..2 {
                scope.spawn(move || {
                    for number in 0..CALLS {
                        let mask = 0x8421_u64.rotate_left(number as u32) | 1 << 63;
                        let mut lanes: [[u64; 8]; 64] =
                            std::array::from_fn(|lane| [number << 8 | lane as u64, 0, 0, 0, 0, 0, 0, wave]);
                        let before = lanes;
                        call(buffer, INCREMENT, mask, &mut lanes);
                        for (lane, (after, before)) in lanes.iter().zip(before).enumerate() {
                            assert_eq!(after[0], before[0] + (mask >> lane & 1));
                        }
                    }
                });
            }
        }
        for round in 0..10 {
            let buffer = buffer(Version::ALL[round % 2], 3);
            consumers[0].register(&buffer).unwrap();
            assert_eq!(call_one(&buffer, INCREMENT, [7; 8]), [8, 7]);
            assert!(consumers[0].deregister(&buffer) && !consumers[0].deregister(&buffer));
            // A later consumer goes on with it.
            consumers[1].register(&buffer).unwrap();
            assert_eq!(call_one(&buffer, INCREMENT, [8; 8]), [9, 8]);
            assert!(consumers[1].deregister(&buffer));
        }
    });
}

#[test]
fn consumers_are_launched_once_and_services_registered_once() {
    let services = services();
    let consumer = running(&services, Options::default(), &[]);
    assert!(consumer.is_active() && !consumer.is_this_thread());
    assert!(matches!(consumer.launch(), Err(LaunchError::Active)));
    let again = services.register(INCREMENT, "again", Mode::Inline, |_| ());
    assert_eq!(again, Err(ServiceTaken(INCREMENT)));
    let never_launched = Consumer::new(&services, Options::default()).unwrap();
    let buffer = buffer(Version::Stacks, 1);
    never_launched.register(&buffer).unwrap();
    drop(never_launched);
    consumer.register(&buffer).unwrap();
}

#[test]
fn a_default_handler_gets_what_has_none_until_it_has() {
    let services = services();
    let buffer = buffer(Version::Phases, 2);
    let (options, faults) = collecting();
    let consumer = running(&services, options, &[&buffer]);
    assert_eq!(call_one(&buffer, 900, [5; 8]), [0, 0]);
    let fault = faults.recv_timeout(HANG).unwrap();
    assert_eq!(fault, Fault { buffer: buffer.device_address(), kind: FaultKind::NoSuchService(900) });
    services
        .register(number::DEFAULT, "default", Mode::Blocking, |packet| {
            let service = packet.service().into();
            packet.lanes().for_each(|(_, words)| words[0] = service);
        })
        .unwrap();
    assert_eq!(call_one(&buffer, 900, [5; 8]), [900, 5]);
    assert_eq!(call_one(&buffer, 0, [5; 8]), [0, 5]);
    services
        .register(900, "late", Mode::Inline, |packet| packet.lanes().for_each(|(_, words)| words[1] = 1))
        .unwrap();
    assert_eq!(call_one(&buffer, 900, [5; 8]), [5, 1]);
    drop(consumer);
}

#[test]
fn handlers_that_panic_harm_nobody() {
    let services = services();
    for (service, mode) in
        [(800, Mode::Inline), (801, Mode::Blocking), (802, Mode::InlineUnless(Arc::new(|| panic!())))]
    {
        services.register(service, "panics", mode, |_| std::panic::panic_any(1)).unwrap();
    }
    let buffer = buffer(Version::Stacks, 3);
    let (options, faults) = collecting();
    let consumer = running(&services, options, &[&buffer]);
    for service in 800..803 {
        assert_eq!(call_one(&buffer, service, [9; 8]), [0, 0]);
        assert_eq!(faults.recv_timeout(HANG).unwrap().kind, FaultKind::Panicked(service));
        assert_eq!(call_one(&buffer, INCREMENT, [1; 8]), [2, 1]);
    }
    assert_eq!(consumer.statistics().faults, 3);
}

#[test]
fn functions_are_called_by_their_numbers_only() {
    let services = services();
    let sum = services.register_function(|words| [words.iter().sum(), words[6]]).unwrap();
    let other = services.register_function(|_| [7, 8]).unwrap();
    assert_eq!(services.register(number::FUNCTION_CALL, "mine", Mode::Inline, |_| ()), Err(ServiceTaken(1)));
    let buffer = buffer(Version::Stacks, 3);
    let (options, faults) = collecting();
    let _consumer = running(&services, options, &[&buffer]);
    assert_eq!(call_one(&buffer, 1, [sum, 1, 2, 3, 4, 5, 6, 7]), [28, 7]);
    assert_eq!(call_one(&buffer, 1, [other; 8]), [7, 8]);
    // Another device's is none of this one's.
    let foreign = self::services().register_function(|_| [9, 9]).unwrap();
    for number in [0, foreign, other + 1, u64::MAX, 0x7fff_0000_1000] {
        assert_eq!(call_one(&buffer, 1, [number; 8]), [0, 0]);
        assert_eq!(faults.recv_timeout(HANG).unwrap().kind, FaultKind::NoSuchFunction(number));
    }
}

#[test]
fn a_function_that_panics_for_a_lane_is_called_for_the_others() {
    let services = services();
    let half = services.register_function(|[x, ..]| {
        assert!(x % 2 == 0, "an odd number");
        [x / 2, *x]
    });
    let half = half.unwrap();
    let buffer = buffer(Version::Phases, 3);
    let (options, faults) = collecting();
    let consumer = running(&services, options, &[&buffer]);
    let mut lanes: [[u64; 8]; 5] = std::array::from_fn(|lane| [half, 10 + lane as u64, 1, 1, 1, 1, 1, 1]);
    lanes[4][0] = 12345;
    call(&buffer, number::FUNCTION_CALL, 0b1_1111, &mut lanes);
    assert_eq!(lanes.map(|words| [words[0], words[1]]), [[5, 10], [0, 0], [6, 12], [0, 0], [0, 0]]);
    let mut told: Vec<_> = (0..2).map(|_| faults.recv_timeout(HANG).unwrap().kind).collect();
    told.sort_by_key(|kind| matches!(kind, FaultKind::NoSuchFunction(_)));
    assert_eq!(told, [FaultKind::Panicked(number::FUNCTION_CALL), FaultKind::NoSuchFunction(12345)]);
    assert_eq!(consumer.statistics().faults, 2);
}

#[test]
fn device_memory_is_the_heap_s_and_sanitizer_reports_reach_their_callback() {
    let services = services();
    let builtins = Builtins::builder().heap_limit(3 << 20).build().unwrap();
    services.register_device_heap(&builtins).unwrap();
    let (told, reports) = mpsc::channel();
    services
        .register_sanitizer(move |report| {
            let _ = told.send(*report);
        })
        .unwrap();
    let buffer = buffer(Version::Phases, 3);
    let _consumer = running(&services, Options::default(), &[&buffer]);
    let allocate = |bytes| call_one(&buffer, 3, [0, bytes, 0, 0, 0, 0, 0, 0])[0];
    let [small, slab] = [100, 2 << 20].map(allocate);
    assert!(small != 0 && small % 4096 == 0 && slab != 0 && slab % (2 << 20) == 0, "{small:#x} {slab:#x}");
    assert_eq!([allocate(0), allocate(2 << 20)], [0, 0], "the limit holds");
    for address in [slab, 12345] {
        assert_eq!(call_one(&buffer, 3, [address, 0, 0, 0, 0, 0, 0, 0])[0], 0);
    }
    assert_eq!(builtins.heap().failed_frees(), 1);
    assert_ne!(allocate(2 << 20), 0);
    let mut lanes = [[0x1000, 0x2000, 1, 2, 3, 4, 1, 8]; 6];
    call(&buffer, 4, 0b10_0100, &mut lanes);
    for lane in [2, 5] {
        let report = reports.recv_timeout(HANG).unwrap();
        let expected = SanitizerReport {
            lane,
            address: 0x1000,
            pc: 0x2000,
            workgroup: [1, 2, 3],
            wave: 4,
            is_load: true,
            bytes: 8,
        };
        assert_eq!(report, expected);
        assert!(report.to_string().contains("a load of 8 bytes at 0x1000"), "{report}");
    }
}

/// Sends a message for a lane as ROCm's device libraries do. Returns what the host gives at its end.
fn send(buffer: &PacketMemory, words: &[u64]) -> u64 {
    let mut descriptor = 1;
    let pieces = words.chunks(7);
    let last = pieces.len() - 1;
    for (index, piece) in pieces.enumerate() {
        let mut lane = [0; 8];
        lane[0] = descriptor & !0xe0 | (piece.len() as u64) << 5 | if index == last { 2 } else { 0 };
        lane[1..=piece.len()].copy_from_slice(piece);
        descriptor = call_one(buffer, 2, lane)[0];
    }
    descriptor
}

/// The words of a text with the zero byte that ends it.
fn text(text: &str) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(text.len() / 8 * 8 + 8, 0);
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn kernels_print_to_both_streams() {
    let printed = Arc::new(Mutex::new([String::new(), String::new()]));
    let kept = printed.clone();
    let sink = Sink::callback(move |stream, text| {
        let index = usize::from(stream == Stream::Stderr);
        kept.lock().unwrap()[index].push_str(&String::from_utf8_lossy(text));
    });
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let services = services();
    services.register_printf(&builtins).unwrap();
    let buffer = buffer(Version::Stacks, 3);
    let _consumer = running(&services, Options::default(), &[&buffer]);
    let print = |control: u64, format: &str, arguments: &[&[u64]]| {
        let message = [&[control], &*text(format), &arguments.concat()].concat();
        send(&buffer, &message) as i64
    };
    assert_eq!(print(0, "plain\n", &[]), 6);
    assert_eq!(print(1, "%5d|%-4s|%x\n", &[&[-3i64 as u64], &text("ab"), &[255]]), 14);
    assert_eq!(
        print(0, "%s%s%c%s\n", &[&text("12345678"), &text(""), &[b'!'.into()], &text("a longer one")]),
        22
    );
    assert_eq!(print(0, "%*.*f %lu %p\n", &[&[8], &[2], &[1.5f64.to_bits()], &[u64::MAX], &[0]]), 36);
    // Too few arguments, a conversion that writes, no such stream, no message at all.
    assert_eq!(print(0, "%d %d\n", &[&[1]]), -1);
    assert_eq!(print(0, "%n\n", &[&[1]]), -1);
    assert_eq!(print(6, "lost\n", &[]), -1);
    assert_eq!(call_one(&buffer, 2, [2, 0, 0, 0, 0, 0, 0, 0])[0] as i64, -1);
    builtins.stdio().flush().unwrap();
    // One that may be a kernel without fault's is told of.
    assert_eq!(print(1, "%2000000000d\n", &[&[1]]), -1);
    let error = builtins.stdio().flush().unwrap_err().to_string();
    assert!(error.contains("standard error: a line was refused: the printed line is longer"), "{error}");
    let printed = printed.lock().unwrap();
    assert_eq!(printed[0], "plain\n12345678!a longer one\n    1.50 18446744073709551615 (nil)\n");
    assert_eq!(printed[1], "   -3|ab  |ff\n");
}

#[test]
fn messages_that_are_too_long_or_too_many_are_told_of() {
    let builtins = Builtins::builder().output(Sink::callback(|_, _| ())).build().unwrap();
    let services = services();
    services.register_printf(&builtins).unwrap();
    let buffer = buffer(Version::Stacks, 3);
    let (options, faults) = collecting();
    let options = options.message_limit(100).messages_limit(300);
    let consumer = running(&services, options, &[&buffer]);
    let lost = |count| {
        assert_eq!(faults.recv_timeout(HANG).unwrap().kind, FaultKind::MessagesLost(count));
    };
    let long = [&[0], &*text(&"x".repeat(100))].concat();
    assert_eq!(send(&buffer, &long) as i64, -1);
    lost(1);
    // Each takes 64 bytes and what it has.
    let mut lanes = [[1 | 1 << 5, 0, 0, 0, 0, 0, 0, 0]; 6];
    call(&buffer, number::PRINTF, 0b11_1111, &mut lanes);
    lost(2);
    for (place, lane) in lanes.iter().enumerate() {
        let whole = [lane[0] & !0xe0 | 1 << 5 | 2, 0x41, 0, 0, 0, 0, 0, 0];
        let written = call_one(&buffer, number::PRINTF, whole)[0] as i64;
        // The oldest made room for the others.
        assert_eq!(written, if place < 2 { -1 } else { 1 }, "{place}");
    }
    assert_eq!(consumer.statistics().faults, 2);
    // Those that go on are told of a few times, and the last at the end; other faults are told of as well.
    for _ in 0..40 {
        assert_eq!(send(&buffer, &long) as i64, -1);
    }
    [3, 6, 12].into_iter().for_each(lost);
    call_one(&buffer, 77, [0; 8]);
    assert_eq!(faults.recv_timeout(HANG).unwrap().kind, FaultKind::NoSuchService(77));
    assert!(consumer.deregister(&buffer));
    lost(40 - 3 - 6 - 12);
    assert_eq!(consumer.statistics().faults, 2 + 40 + 1);
}

#[test]
fn a_handler_that_waits_holds_its_own_packet_only_and_is_let_go_at_the_end() {
    for version in Version::ALL {
        let services = services();
        let (entered, waits) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        services
            .register(800, "waits", Mode::Blocking, move |packet| {
                let _ = entered.send(());
                let _ = gate.lock().unwrap().recv();
                packet.lanes().for_each(|(_, words)| words[0] = 77);
            })
            .unwrap();
        let (deregistered, closed) = (buffer(version, 2), buffer(version, 2));
        let consumer = running(&services, Options::default().device("gpu"), &[&deregistered, &closed]);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| call_one(&deregistered, 800, [5; 8]));
            waits.recv_timeout(HANG).unwrap();
            assert!(consumer.waiting().iter().any(|waiting| &*waiting.device == "gpu"));
            let second = scope.spawn(|| call_one(&closed, 800, [5; 8]));
            for buffer in [&deregistered, &closed] {
                assert_eq!(call_one(buffer, INCREMENT, [1; 8]), [2, 1]);
            }
            // Answers of handlers that still run go nowhere.
            assert!(consumer.deregister(&deregistered));
            assert_eq!(first.join().unwrap(), [0, 0]);
            waits.recv_timeout(HANG / 2).unwrap_or_else(|_| panic!("the second handler does not run"));
            drop(consumer);
            assert_eq!(second.join().unwrap(), [0, 0]);
        });
        drop(go);
    }
}

/// Those that wait for their turn on the consumer's thread, and those that wait for a worker thread.
#[test]
fn no_handler_begins_for_a_buffer_that_is_deregistered() {
    let layout = hostcall_abi::layout::Layout::small(8, 4, 16, 256).check().unwrap();
    let memory = Arc::new(hostcall_channel::SharedMemory::allocate(layout));
    let one_thread = hostcall_server::Server::builder(memory).handler_threads(1).start().unwrap();
    for (version, mode) in Version::ALL.into_iter().flat_map(|v| [(v, Mode::Inline), (v, Mode::Blocking)]) {
        let (services, called) = (services(), Arc::new(AtomicU64::new(0)));
        let (first, other) = (buffer(version, 4), buffer(version, 4));
        let consumer = Arc::new(Consumer::new(&services, Options::default().like(&one_thread)).unwrap());
        let (of, counted, gone) = (Arc::downgrade(&consumer), called.clone(), first.clone());
        let deregister = move |packet: &mut hostcall_server::rocm::Packet<'_>| {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                // Its other packets are on their way to their handlers by now.
                while packet.lanes().next().is_some_and(|(_, words)| words[7] != 0)
                    && of.upgrade().is_some_and(|consumer| consumer.waiting().len() < 3)
                {
                    std::thread::yield_now();
                }
                assert!(of.upgrade().is_some_and(|consumer| consumer.deregister(&gone)));
            }
        };
        let blocks = u64::from(matches!(mode, Mode::Blocking));
        services.register(800, "deregisters", mode, deregister).unwrap();
        for buffer in [&first, &other] {
            consumer.register(buffer).unwrap();
        }
        let packets: Vec<_> = (0..3).map(|_| client::claim(first.packets()).unwrap()).collect();
        for packet in &packets {
            packet.write(0, &[5, 5, 5, 5, 5, 5, 5, blocks]);
            packet.submit(800, 1);
        }
        consumer.launch().unwrap();
        assert_eq!(call_one(&other, 800, [9; 8]), [9, 9]);
        for packet in packets {
            assert!(packet.is_answered());
            assert_eq!(packet.read(0), [0, 0]);
        }
        assert_eq!(called.load(Ordering::Relaxed), 2, "the first of one buffer, and the other's");
    }
}

#[test]
fn packets_are_traced() {
    for version in Version::ALL {
        let tracer = hostcall_trace::Tracer::builder().start().unwrap();
        let services = services();
        services.register(800, "blocking", Mode::Blocking, |_| ()).unwrap();
        services.register(801, "panics", Mode::Inline, |_| panic!("on purpose")).unwrap();
        let (options, _faults) = collecting();
        let buffer = buffer(version, 2);
        let consumer = running(&services, options.trace(tracer.source("a GPU", "rocm")), &[&buffer]);
        for service in [INCREMENT, INCREMENT, 800, 801, 802] {
            call(&buffer, service, 0b101, &mut [[1; 8]; 64]);
        }
        drop(consumer);
        let summary = tracer.finish(HANG);
        let mut counts: Vec<_> = summary
            .latencies
            .methods()
            .map(|(method, of)| {
                let name = summary.names.method(method).unwrap();
                (&*name.name, name.number, of.calls(), of.lanes(), of.failed())
            })
            .collect();
        counts.sort();
        let expected = [
            ("blocking", 800, 1, 2, 0),
            ("increment", INCREMENT, 2, 4, 0),
            ("panics", 801, 1, 2, 1),
            ("rocm::no_service", 802, 1, 2, 1),
        ];
        assert_eq!(counts, expected);
    }
}

#[test]
fn what_was_submitted_before_the_end_is_served() {
    for version in Version::ALL {
        let services = services();
        let buffer = buffer(version, 20);
        let consumer = Consumer::new(&services, Options::default()).unwrap();
        consumer.register(&buffer).unwrap();
        let packet = client::claim(buffer.packets()).unwrap();
        packet.write(0, &[41; 8]);
        packet.submit(INCREMENT, 1);
        consumer.launch().unwrap();
        drop(consumer);
        assert!(packet.is_answered());
        assert_eq!(packet.read(0), [42, 41]);
    }
}

#[test]
fn a_chain_that_breaks_off_is_told_of() {
    let services = services();
    let buffer = buffer(Version::Stacks, 5);
    let (options, faults) = collecting();
    let _consumer = running(&services, options, &[&buffer]);
    // SAFETY: the word of the ready stack, which is an atomic.
    let ready = unsafe { &*((buffer.device_address() + 32) as *const AtomicU64) };
    ready.store(u64::MAX, Ordering::Release);
    assert_eq!(faults.recv_timeout(HANG).unwrap().kind, FaultKind::Broken(Broken::NoPacket(u64::MAX)));
    assert_eq!(call_one(&buffer, INCREMENT, [1; 8]), [2, 1]);
}

/// The body of the fuzz target, with its corpus and with inputs of a generator.
#[test]
fn hostile_devices_harm_nobody() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rocm_server");
    let corpus = std::fs::read_dir(folder).into_iter().flatten();
    for entry in corpus {
        rocm_server::run(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let since = Instant::now();
    for _ in 0..60 {
        let data: Vec<u8> = (0..400)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            })
            .collect();
        rocm_server::run(&data);
        if since.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
}

#[test]
fn long_lines_of_a_packet_wait_for_room() {
    const LINE_BYTES: u64 = 4_000_000;
    let (told, writes) = mpsc::channel();
    let (go_on, may_write) = mpsc::channel::<()>();
    let sink = Sink::callback(move |_, text| {
        told.send(text.len() as u64).unwrap();
        let _ = may_write.recv();
    });
    let builtins = Builtins::builder().output(sink.clone()).build().unwrap();
    let services = Services::new();
    services.register_printf(&builtins).unwrap();
    let buffer = buffer(Version::Stacks, 2);
    let consumer = running(&services, Options::default(), &[&buffer]);
    let mut format = [0; 16];
    format[..9].copy_from_slice(b"%4000000d");
    let [first, second] = [0, 8].map(|at| u64::from_le_bytes(format[at..at + 8].try_into().unwrap()));
    // Each lane's whole message, of four words.
    let mut lanes = [[3 | 4 << 5, 0, first, second, 7, 0, 0, 0]; 64];
    std::thread::scope(|scope| {
        let wave = scope.spawn(|| call(&buffer, number::PRINTF, !0, &mut lanes));
        let since = Instant::now();
        while !wave.is_finished() && consumer.waiting().is_empty() {
            assert!(since.elapsed() < HANG, "nobody waits");
            std::thread::yield_now();
        }
        let appended = sink.appended();
        drop(go_on);
        // The queue is full after 17 lines, and once more when the writer has taken those.
        assert!(appended <= 40 * LINE_BYTES, "{appended} bytes before one was written");
    });
    assert!(lanes.iter().all(|words| words[0] == LINE_BYTES));
    sink.flush().unwrap();
    assert_eq!(writes.try_iter().sum::<u64>(), 64 * LINE_BYTES);
}
