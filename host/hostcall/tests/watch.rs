//! Another process looks into one that runs, also while everything in it hangs. Here it looks into itself: the way is the same.

#![allow(unsafe_code, reason = "a test forks")]

use hostcall::watch::{self, Process, Request, WatchError};
use hostcall::{CallError, Device, Grid, Lane, LaunchKernel, Stream, kernel, println, service};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

#[service(crate = hostcall)]
trait Gate {
    fn pass() -> u32;
}

/// Waits until the test ends.
struct Closed(Mutex<Sender<()>>, Mutex<Receiver<()>>);

impl GateHandler for Closed {
    fn pass(&self) -> Result<u32, CallError> {
        let _ = self.0.lock().unwrap().send(());
        let _ = self.1.lock().unwrap().recv();
        Ok(1)
    }
}

#[kernel(crate = hostcall)]
fn stand(_: &Lane) {
    println!("standing at the gate");
    let _ = Gate::pass();
}

fn own() -> Process {
    watch::state(std::process::id()).unwrap()
}

/// The device with this name's product, of those that other tests of this process have open too.
fn device_of(process: &Process, kernel: &str) -> Option<usize> {
    process
        .devices
        .iter()
        .position(|device| device.launches.iter().any(|launch| launch.kernel.ends_with(kernel)))
}

/// An inline handler that does not return holds the server's only consumer, and `close` waits for it.
#[test]
fn a_hang_is_seen_with_its_reason() {
    let (tell, told) = channel();
    let (open, opened) = channel();
    let gate = Closed(Mutex::new(tell), Mutex::new(opened));
    let device = Device::builder("cpu").inline_service(Gate::serve(gate)).open().unwrap();
    let stream = device.stream().unwrap();
    stand.launch(&stream, Grid::new(1, 1), ()).unwrap();
    told.recv_timeout(LONG).unwrap();
    let closing = {
        let device = device.clone();
        std::thread::spawn(move || device.close())
    };
    let process = own();
    let state = &process.devices[device_of(&process, "stand").expect("the launch is told of")];
    let wait = &state.waiting[0];
    assert_eq!(
        (state.name.as_str(), state.kind.as_str(), state.metrics.launches_running),
        ("cpu", "software", 1)
    );
    assert_eq!((wait.service.as_str(), wait.waits_for.as_str()), ("Gate::pass", "InlineHandler"));
    assert_eq!((wait.lanes, wait.place.map(|place| place.at)), (1, Some([0; 3])));
    assert!(wait.text.contains("Gate::pass"), "{}", wait.text);
    assert_eq!(process.who.pid, std::process::id());
    assert!(watch::processes().unwrap().contains(&process.who.pid));
    drop(open);
    closing.join().unwrap();
    drop((stream, device));
    // With its last device a process is there no more; other tests may have some.
    match watch::state(std::process::id()) {
        Ok(process) => assert_eq!(device_of(&process, "stand"), None),
        Err(error) => assert!(matches!(error, WatchError::NotThere(_) | WatchError::Cut(_)), "{error}"),
    }
}

#[test]
fn what_was_printed_last_is_told() {
    let device = Device::builder("cpu").service(Gate::serve(Open)).open().unwrap();
    let stream = device.stream().unwrap();
    stand.launch(&stream, Grid::new(2, 3), ()).unwrap();
    stream.synchronize().unwrap();
    let process = own();
    let has_text = |output: &watch::OutputState| output.tail.contains("standing at the gate\n");
    let state = process.devices.iter().find(|device| has_text(&device.output)).expect("it is told of");
    assert_eq!((state.metrics.output_bytes, state.metrics.lost_output_bytes), (6 * 21, 0));
}

struct Open;

impl GateHandler for Open {
    fn pass(&self) -> Result<u32, CallError> {
        Ok(2)
    }
}

fn connected() -> UnixStream {
    let name = SocketAddr::from_abstract_name(format!("hostcall-{}", std::process::id())).unwrap();
    let connection = UnixStream::connect_addr(&name).unwrap();
    connection.set_read_timeout(Some(LONG)).unwrap();
    connection
}

#[test]
fn bad_clients_hold_up_nobody() {
    let _device = Device::open("cpu").unwrap();
    let silent: Vec<_> = (0..4).map(|_| connected()).collect();
    let mut halves: Vec<_> = (0..4).map(|_| connected()).collect();
    halves.iter_mut().for_each(|half| half.write_all(b"{\"ask\":").unwrap());
    assert_eq!(own().who.pid, std::process::id());
    // Each is closed by the process at last.
    for mut connection in silent.into_iter().chain(halves) {
        assert_eq!(connection.read(&mut [0; 16]).unwrap(), 0);
    }
    let mut wrong = connected();
    wrong.write_all(b"what now?\n").unwrap();
    let mut answer = String::new();
    wrong.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("{\"error\":\"hostcall "), "{answer}");
    let mut long = connected();
    long.write_all(&[b'x'; 5 << 10]).unwrap();
    let mut answer = String::new();
    long.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "{\"error\":\"a request has 4096 bytes at most, and this one has more\"}\n");
    let mut longer = connected();
    let _ = longer.write_all(&[b'x'; 640 << 10]);
    let _ = longer.read(&mut [0; 16]);
    assert_eq!(own().who.pid, std::process::id());
}

/// What is too long is known before it is sent, and told with what to do.
#[test]
fn a_long_request_is_refused_in_a_sentence() {
    let _device = Device::open("cpu").unwrap();
    let asked = watch::TraceAsked { points: vec!["x".repeat(4200)], ..Default::default() };
    let error = watch::ask::<watch::TraceBegun>(std::process::id(), &Request::TraceOn(asked)).unwrap_err();
    assert!(matches!(error, WatchError::TooLong { bytes: 4200.., .. }), "{error}");
    assert!(error.to_string().contains("a request of 4096 bytes at most"), "{error}");
}

#[test]
fn who_is_not_there_is_told_so() {
    let error = watch::ask::<Process>(u32::MAX, &Request::State).unwrap_err();
    assert!(matches!(error, WatchError::NotThere(u32::MAX)), "{error}");
    assert!(error.to_string().contains("HOSTCALL_WATCH=off"), "{error}");
}

/// Runs one test of this file in a process of its own, whose standard input is the test's to close.
fn in_another_process(test: &str, variable: (&str, &str)) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(variable.0, variable.1);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until a child says that it is ready, in a line.
fn ready(child: &mut std::process::Child) {
    let mut out = child.stdout.take().unwrap();
    let (mut said, mut piece) = (Vec::new(), [0; 256]);
    while !String::from_utf8_lossy(&said).contains("ready") {
        let count = out.read(&mut piece).unwrap();
        assert!(count > 0, "the child has ended: {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&piece[..count]);
    }
    child.stdout = Some(out);
}

/// Run by others: has a device until the standard input ends.
#[test]
#[ignore = "it is run by other tests"]
fn has_a_device() {
    let _device = Device::open("cpu").unwrap();
    std::println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn another_process_is_looked_into() {
    let mut child = in_another_process("has_a_device", ("HOSTCALL_RANK", "5"));
    ready(&mut child);
    let process = watch::state(child.id()).unwrap();
    assert_eq!((process.who.rank, process.devices.len()), (Some(5), 1));
    assert!(process.who.program.contains("has_a_device"), "{}", process.who.program);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(matches!(watch::state(child.id()), Err(WatchError::NotThere(_))));
    assert!(!watch::processes().unwrap().contains(&child.id()));
}

/// Run by others: ends at once, and leaves a child of `fork` until the standard input ends.
#[test]
#[ignore = "it is run by other tests"]
fn leaves_a_child() {
    let _device = Device::open("cpu").unwrap();
    // SAFETY: the child only reads and ends.
    if unsafe { libc::fork() } == 0 {
        let mut byte = 0u8;
        // SAFETY: there is room for the byte.
        unsafe {
            libc::read(0, (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    }
    std::println!("ready");
}

/// A child of `fork` has its parent's sockets.
#[test]
fn a_child_stands_for_nobody() {
    let mut child = in_another_process("leaves_a_child", ("HOSTCALL_RANK", "5"));
    let stdin = child.stdin.take();
    ready(&mut child);
    assert!(child.wait().unwrap().success());
    assert!(!watch::processes().unwrap().contains(&child.id()));
    assert!(matches!(watch::state(child.id()), Err(WatchError::NotThere(_))));
    drop(stdin);
}

#[test]
fn a_process_may_want_nobody_to_look() {
    let mut child = in_another_process("has_a_device", ("HOSTCALL_WATCH", "off"));
    ready(&mut child);
    assert!(matches!(watch::state(child.id()), Err(WatchError::NotThere(_))));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// A device that is dropped while others look at it again and again is closed when the drop returns.
#[test]
fn looking_keeps_no_device() {
    struct Told(Arc<()>);
    impl GateHandler for Told {
        fn pass(&self) -> Result<u32, CallError> {
            Ok(Arc::strong_count(&self.0) as u32)
        }
    }
    let kept = Device::open("cpu").unwrap();
    let (stop, stopped) = channel::<()>();
    let looks = std::thread::spawn(move || {
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            own();
        }
    });
    for _ in 0..20 {
        let shared = Arc::new(());
        let device = Device::builder("cpu").service(Gate::serve(Told(shared.clone()))).open().unwrap();
        let weak = device.downgrade();
        drop(device);
        assert!(weak.upgrade().is_none());
        assert_eq!(Arc::strong_count(&shared), 1, "the service is gone with its device");
    }
    drop(stop);
    looks.join().unwrap();
    drop(kept);
}

#[service(crate = hostcall)]
trait Pair {
    fn first() -> u32;
    fn second() -> u32;
}

/// Each handler waits for the other one's stream. The first one has a limit, so that neither is refused.
struct Each {
    streams: Arc<Mutex<Option<[Arc<Stream>; 2]>>>,
    may_go_on: Mutex<Receiver<()>>,
}

impl Each {
    fn stream(&self, of: usize) -> Arc<Stream> {
        self.streams.lock().unwrap().as_ref().expect("a kernel has called")[of].clone()
    }
}

impl PairHandler for Each {
    fn first(&self) -> Result<u32, CallError> {
        let waited = self.stream(1).synchronize_for(10 * LONG);
        waited.map(|()| 1).map_err(|_| CallError::Cancelled)
    }

    fn second(&self) -> Result<u32, CallError> {
        let _ = self.may_go_on.lock().unwrap().recv();
        self.stream(0).synchronize().map(|()| 2).map_err(|_| CallError::Cancelled)
    }
}

#[kernel(crate = hostcall)]
fn calls_first(_: &Lane) {
    let _ = Pair::first();
}

#[kernel(crate = hostcall)]
fn calls_second(_: &Lane) {
    let _ = Pair::second();
}

/// What a handler waits for is known while it is inside a function of the library, and so is the launch that it waits for.
#[test]
fn a_circle_through_handlers_is_named() {
    let (go_on, may_go_on) = channel();
    let of_each = Arc::<Mutex<Option<_>>>::default();
    let each = Each { streams: of_each.clone(), may_go_on: Mutex::new(may_go_on) };
    let device = Device::builder("cpu").service(Pair::serve(each)).open().unwrap();
    let streams = [(); 2].map(|()| Arc::new(device.stream().unwrap()));
    *of_each.lock().unwrap() = Some(streams.clone());
    calls_second.launch(&streams[1], Grid::new(1, 1), ()).unwrap();
    calls_first.launch(&streams[0], Grid::new(1, 1), ()).unwrap();
    let waits = |service: &str| {
        let process = own();
        let is_it =
            |thread: &watch::ThreadState| thread.handles.as_ref().is_some_and(|call| call.service == service);
        let found = process.threads.iter().any(is_it);
        found.then_some(process)
    };
    let until = |what: &dyn Fn() -> Option<Process>| {
        let begin = Instant::now();
        loop {
            match what() {
                Some(process) => return process,
                None => assert!(begin.elapsed() < LONG, "nothing waits"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let before = until(&|| waits("Pair::first"));
    let circles = |before: &Process, after: &Process| {
        let explained = watch::explain(std::slice::from_ref(before), std::slice::from_ref(after), 0);
        let own = explained
            .circles
            .into_iter()
            .map(|circle| circle.iter().map(ToString::to_string).collect::<Vec<_>>());
        own.map(|circle| circle.join(" waits for "))
            .filter(|circle| circle.contains("Pair"))
            .collect::<Vec<_>>()
    };
    assert_eq!(circles(&before, &own()), Vec::<String>::new(), "the second one may go on");
    go_on.send(()).unwrap();
    let before = until(&|| waits("Pair::second"));
    std::thread::sleep(Duration::from_millis(5));
    let found = circles(&before, &own());
    let [circle] = &found[..] else { panic!("{found:?}") };
    for part in ["calls_first in ", "the handler of Pair::first, which in `synchronize`", "calls_second in "]
    {
        assert!(circle.contains(part), "{circle}");
    }
    // Both ends of it let go.
    device.close();
}
