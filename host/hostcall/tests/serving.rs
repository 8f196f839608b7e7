//! What the server promises, from kernels on the software device: handlers that wait, panic, or are removed, and posts
//! that come faster than they are handled.

use hostcall::hostcall_device::{CallError, Global, Lane, fs, io, kernel, println, service};
use hostcall::server::{CancelReason, LaunchId, WaitsFor};
use hostcall::services::{Builtins, Sink};
use hostcall::{Device, Error, Grid, LaunchFailure, LaunchKernel};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Handlers for every way to wait and fail.
#[service]
trait Hard {
    fn hold(key: u64) -> u64;
    fn note(key: u64);
    fn sum(bytes: &[u8]) -> u64;
    fn fail(how: u32) -> u64;
}

/// [`Hard`] as a test wants it.
struct Handler<H: Fn(u64) -> u64> {
    hold: H,
    noted: Arc<AtomicU64>,
    notes: Gate,
}

/// Panics when it is dropped, so many times.
struct PanicsInDrop(u32);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(PanicsInDrop(self.0 - 1));
        }
    }
}

impl<H: Fn(u64) -> u64 + Send + Sync + 'static> HardHandler for Handler<H> {
    fn hold(&self, key: u64) -> Result<u64, CallError> {
        Ok((self.hold)(key))
    }

    fn note(&self, _key: u64) -> Result<(), CallError> {
        self.noted.fetch_add(1, Ordering::SeqCst);
        self.notes.wait();
        Ok(())
    }

    fn sum(&self, bytes: &[u8]) -> Result<u64, CallError> {
        Ok(bytes.iter().map(|byte| u64::from(*byte)).sum())
    }

    fn fail(&self, how: u32) -> Result<u64, CallError> {
        std::panic::panic_any(PanicsInDrop(how))
    }
}

fn handler<H: Fn(u64) -> u64 + Send + Sync + 'static>(hold: H) -> Handler<H> {
    Handler { hold, noted: Arc::default(), notes: Gate::default() }
}

/// The launch whose lane calls next.
static CALLING: AtomicU64 = AtomicU64::new(0);

#[kernel]
fn hold_once(lane: &Lane) {
    CALLING.store(lane.launch().to_bits().into(), Ordering::SeqCst);
    let _ = Hard::hold(0);
}

/// A call that is taken while its launch is cancelled is answered, at whatever moment the cancellation comes.
#[test]
fn cancellations_reach_calls_at_every_moment() {
    let gate = Gate::default();
    let held = gate.clone();
    let device = Device::builder("cpu").slots(128).service(Hard::serve(handler(move |_| {
        held.wait();
        0
    })));
    let device = device.open().unwrap();
    let stream = device.stream().unwrap();
    for round in 0..1500u32 {
        CALLING.store(0, Ordering::SeqCst);
        hold_once.launch(&stream, Grid::new(1, 1), ()).unwrap();
        while CALLING.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..round % 100 * 20 {
            std::hint::spin_loop();
        }
        // The server alone is told: on a GPU nobody can end the lanes by force.
        let launch = LaunchId::from_bits(CALLING.load(Ordering::SeqCst) as u32);
        device.server().cancel(launch, CancelReason::Asked);
        let ended = stream.synchronize();
        assert!(matches!(ended, Err(Error::Launch { failure: LaunchFailure::Cancelled, .. })), "{ended:?}");
    }
    gate.open();
}

#[kernel]
fn hold_each(lane: &Lane, out: &[Global<u64>]) {
    out[lane.global_id()].set(Hard::hold(lane.global_id() as u64).unwrap());
}

#[kernel]
fn write_file(_lane: &Lane) {
    let file = fs::File::create("written").unwrap();
    file.write_all(b"text").unwrap();
}

/// Lanes that wait for each other in handlers all have a thread, and take none of other devices'.
#[test]
fn lanes_may_wait_for_each_other_in_handlers() {
    const LANES: usize = 512;
    let met = Arc::new(Barrier::new(LANES + 1));
    let meet = met.clone();
    let device = Device::builder("cpu").service(Hard::serve(handler(move |key| {
        meet.wait();
        key + 1
    })));
    let device = device.open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(LANES).unwrap());
    hold_each.launch(&stream, Grid::new(16, 32), (&out,)).unwrap();
    // Another device writes a file meanwhile.
    let dir = tempfile::tempdir().unwrap();
    let other = Device::builder("cpu").builtins(Builtins::builder().dir(dir.path()).build().unwrap()).open();
    let other = other.unwrap();
    let other_stream = other.stream().unwrap();
    write_file.launch(&other_stream, Grid::new(1, 1), ()).unwrap();
    other_stream.synchronize().unwrap();
    assert_eq!(std::fs::read(dir.path().join("written")).unwrap(), b"text");
    met.wait();
    stream.synchronize().unwrap();
    assert!(out.read().unwrap().iter().zip(1..).all(|(got, want)| *got == want));
}

#[kernel]
fn ask_and_read(lane: &Lane) {
    if lane.workgroup()[0] < 20 {
        let mut line = [0; 16];
        assert_eq!(io::stdin().read_line(&mut line).unwrap(), "answer\n");
    } else if lane.index() == 0 {
        // Others wait for the input already, on all threads that they get.
        while Hard::hold(0).unwrap() == 0 {}
        let file = fs::File::create("written").unwrap();
        file.write_all(b"text").unwrap();
        io::stdout().write(b"question").unwrap();
    }
}

struct Answers(Receiver<Vec<u8>>, Vec<u8>);

impl Read for Answers {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            self.1 = self.0.recv().unwrap_or_default();
        }
        let len = buffer.len().min(self.1.len());
        buffer[..len].copy_from_slice(&self.1[..len]);
        self.1.drain(..len);
        Ok(len)
    }
}

/// Lanes that wait for input do not keep the one that asks for it from files and from printing, however few threads there are.
#[test]
fn readers_of_the_input_leave_threads_to_others() {
    let (answers, input) = mpsc::channel();
    let (texts, text) = mpsc::channel();
    let dir = tempfile::tempdir().unwrap();
    let builtins = Builtins::builder()
        .dir(dir.path())
        .stdin(Answers(input, Vec::new()))
        .output(Sink::callback(move |_, text| texts.send(text.to_vec()).unwrap()))
        .build();
    let all_read = Arc::new(AtomicU64::new(0));
    let asked = all_read.clone();
    let device = Device::builder("cpu")
        .builtins(builtins.unwrap())
        .service(Hard::serve(handler(move |_| asked.load(Ordering::SeqCst))))
        .server(|server| server.builtin_threads(2))
        .open()
        .unwrap();
    let stream = device.stream().unwrap();
    ask_and_read.launch(&stream, Grid::new(21, 32), ()).unwrap();
    wait_until("that all lanes read", || {
        let waiting = device.waiting();
        let reads = waiting.iter().filter(|waiting| waiting.service.contains("Stdin"));
        reads.map(|waiting| waiting.lanes).sum::<u32>() == 640
    });
    all_read.store(1, Ordering::SeqCst);
    assert_eq!(text.recv_timeout(LONG).unwrap(), b"question");
    assert_eq!(std::fs::read(dir.path().join("written")).unwrap(), b"text");
    answers.send(b"answer\n".repeat(640)).unwrap();
    stream.synchronize().unwrap();
}

/// An inline handler that does not return holds up whatever its consumer would take: reports name it, although nobody
/// watches inline calls.
#[test]
fn an_inline_handler_that_waits_is_reported() {
    const AFTER: Duration = Duration::from_millis(60);
    let gate = Gate::default();
    let held = gate.clone();
    let handler = handler(move |key| {
        held.wait();
        key
    });
    let (notes, (stalls, stall)) = (handler.notes.clone(), mpsc::channel());
    let device = Device::builder("cpu")
        .inline_service(Hard::serve(handler))
        .server(|server| server.stall_report(AFTER, move |waiting| drop(stalls.send(waiting.clone()))));
    let device = device.open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(8).unwrap());
    let launch = hold_each.launch(&stream, Grid::new(1, 8), (&out,)).unwrap();
    let reported = stall.recv_timeout(LONG).unwrap();
    assert_eq!((&*reported.service, reported.waits_for), ("Hard::hold", WaitsFor::InlineHandler));
    assert_eq!((reported.launch, reported.lanes, &*reported.kernel), (launch.id(), 8, "hold_each"));
    assert!(reported.place.is_some() && reported.waited >= AFTER, "{reported:?}");
    let sentence = reported.to_string();
    assert!(sentence.contains(" of hold_each on cpu, workgroup "), "{sentence}");
    assert_eq!(&*device.waiting()[0].device, "cpu");
    let held_up = format!(
        "in slot {}: has held up other calls in the inline handler of Hard::hold for ",
        reported.slot
    );
    assert!(sentence.contains(&held_up), "{sentence}");
    let limit = Duration::from_millis(20);
    let waits = [
        stream.synchronize_for(limit),
        launch.wait_for(limit).map(drop),
        stream.record().unwrap().wait_for(limit),
    ];
    for timed_out in waits {
        let sentence = timed_out.unwrap_err().to_string();
        assert!(sentence.contains(" has not ended after 20ms; launch "), "{sentence}");
        assert!(sentence.contains(&held_up), "{sentence}");
    }
    assert_eq!(device.waiting().len(), 1);
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(device.waiting(), []);
    // Posts hold up others likewise, and no lane waits for them.
    post_each.launch(&stream, Grid::new(1, 40), (1u32,)).unwrap();
    let reported = stall.recv_timeout(LONG).unwrap();
    assert_eq!((&*reported.service, reported.lanes), ("Hard::note", 0));
    notes.open();
    stream.synchronize().unwrap();
    assert_eq!((device.waiting(), stall.try_recv()), (vec![], Err(mpsc::TryRecvError::Empty)));
}

#[kernel]
fn one_is_in_a_hurry(lane: &Lane, out: &[Global<u64>]) {
    let timeout_us = if lane.index() == 3 { 10_000 } else { 0 };
    let result = Hard::within_us(timeout_us).hold(1);
    let timed_out = result == Err(CallError::TimedOut);
    out[lane.global_id()].set(result.unwrap_or(if timed_out { 2 } else { 3 }));
}

#[test]
fn a_deadline_is_its_lanes() {
    let gate = Gate::default();
    let held = gate.clone();
    let device = Device::builder("cpu").service(Hard::serve(handler(move |key| {
        held.wait();
        key
    })));
    let device = device.open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(8).unwrap());
    one_is_in_a_hurry.launch(&stream, Grid::new(1, 8), (&out,)).unwrap();
    wait_until("the deadline", || device.waiting().iter().any(|waiting| waiting.lanes == 7));
    gate.open();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [1, 1, 1, 2, 1, 1, 1, 1]);
}

#[kernel]
fn post_each(lane: &Lane, count: u32) {
    for _ in 0..count {
        Hard::post_note(lane.global_id() as u64).unwrap();
    }
}

#[kernel]
fn nothing(_lane: &Lane) {}

#[kernel]
fn print_line(_lane: &Lane) {
    println!("a line");
}

/// Posts that are not handled fast enough stay on the device, and are handled when their launch's end is told.
#[test]
fn posts_have_back_pressure() {
    const POSTS: u64 = 40 * 500;
    let handler = handler(|key| key);
    let (noted, notes) = (handler.noted.clone(), handler.notes.clone());
    let builtins = Builtins::builder().stdout(std::io::sink()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).service(Hard::serve(handler)).open().unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    // A line is several posts: the pieces that describe it, and its values.
    print_line.launch(&other, Grid::new(1, 1), ()).unwrap();
    other.synchronize_for(LONG).unwrap();
    let of_a_line = device.statistics().posts;
    post_each.launch(&stream, Grid::new(1, 40), (500u32,)).unwrap();
    wait_until("a full queue", || device.statistics().declined_posts > 0);
    // Others are served.
    print_line.launch(&other, Grid::new(1, 1), ()).unwrap();
    other.synchronize_for(LONG).unwrap();
    // A full queue, what is handled, and two lines.
    assert!(device.statistics().posts <= 4096 + 1 + 2 * of_a_line);
    wait_until("a handler", || noted.load(Ordering::SeqCst) > 0);
    assert_eq!(noted.load(Ordering::SeqCst), 1);
    // Both waves, of 32 lanes and of 8, wait for room: their rings have none for a post of each lane and what says whose it is.
    wait_until("full rings", || {
        let ready = device.server().ready_posts();
        ready.iter().filter(|ring| ring.entries + 3 * 32 > ring.ring_entries).count() == 2
    });
    let ids = device.server().launches().ids();
    assert_eq!(ids.len(), 1);
    notes.open();
    stream.synchronize().unwrap();
    assert_eq!(device.server().ready_posts(), []);
    assert_eq!((noted.load(Ordering::SeqCst), device.statistics().refused_posts), (POSTS, 0));
}

/// After a service was removed none of its handlers is begun, not for posts that were taken before either.
#[test]
fn a_removed_service_handles_no_post_any_more() {
    let handler = handler(|key| key);
    let (noted, notes) = (handler.noted.clone(), handler.notes.clone());
    let device = Device::open("cpu").unwrap();
    let service = device.register(Hard::serve(handler)).unwrap();
    let stream = device.stream().unwrap();
    post_each.launch(&stream, Grid::new(1, 40), (20u32,)).unwrap();
    wait_until("a handler", || noted.load(Ordering::SeqCst) == 1);
    service.remove();
    notes.open();
    // The one that runs ends; nobody waits for more.
    stream.synchronize().unwrap();
    nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(noted.load(Ordering::SeqCst), 1);
    assert_eq!(device.statistics().refused_posts, 40 * 20 - 1);
}

/// Posts of a launch that was cancelled are dropped, so that its end waits for no handler.
#[test]
fn a_cancelled_launch_waits_for_no_post() {
    let handler = handler(|key| key);
    let (noted, notes) = (handler.noted.clone(), handler.notes.clone());
    let device = Device::builder("cpu").service(Hard::serve(handler)).open().unwrap();
    let stream = device.stream().unwrap();
    post_each.launch(&stream, Grid::new(1, 40), (5000u32,)).unwrap();
    wait_until("a full queue", || device.statistics().declined_posts > 0);
    wait_until("a handler", || noted.load(Ordering::SeqCst) == 1);
    device.cancel_all();
    assert!(stream.synchronize().is_err());
    assert_eq!(noted.load(Ordering::SeqCst), 1);
    // They leave their places to others.
    let posts = device.statistics().posts;
    post_each.launch(&stream, Grid::new(1, 1), (1u32,)).unwrap();
    wait_until("another post", || device.statistics().posts > posts);
    notes.open();
    stream.synchronize().unwrap();
    assert_eq!(noted.load(Ordering::SeqCst), 2);
}

/// Prints lines of 4000 bytes.
#[kernel]
fn print_much(lane: &Lane, lines: u32) {
    for line in 0..lines {
        println!("{:>2000}{:>1999}", line, lane.index());
    }
}

#[kernel]
fn call_post_and_write(lane: &Lane, out: &[Global<u64>]) {
    out[0].set(Hard::hold(7).unwrap());
    Hard::post_note(1).unwrap();
    if lane.index() == 0 {
        let file = fs::File::create("written").unwrap();
        file.write_all(b"text").unwrap();
    }
}

#[kernel]
fn write_by_calls(_lane: &Lane) {
    io::stdout().write(b"by a call").unwrap();
}

/// An output that nobody reads stops those who print, and nobody else.
#[test]
fn an_output_that_nobody_reads_stops_only_who_prints() {
    let (gate, read) = (Gate::default(), Arc::new(AtomicU64::new(0)));
    let (stopped, counted) = (gate.clone(), read.clone());
    let dir = tempfile::tempdir().unwrap();
    let sink = Sink::callback(move |_, text| {
        stopped.wait();
        counted.fetch_add(text.len() as u64, Ordering::SeqCst);
    });
    let builtins = Builtins::builder().dir(dir.path()).output(sink).build().unwrap();
    let handler = handler(|key| key);
    let (noted, notes) = (handler.noted.clone(), handler.notes.clone());
    notes.open();
    let device = Device::builder("cpu")
        .builtins(builtins)
        .service(Hard::serve(handler))
        .server(|server| server.builtin_threads(2))
        .open()
        .unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    let [printing, cancelled, writing, other] = &streams[..] else { unreachable!() };
    // One wave alone, which has not ended when the output is full: no other wave's posts come behind its own.
    const LINES: u32 = (80 << 20) / 4000 / 32;
    print_much.launch(printing, Grid::new(1, 32), (LINES,)).unwrap();
    wait_until("a full output", || device.statistics().declined_posts > 0);
    // What prints by calls waits on threads of its own, more of it than others have.
    write_by_calls.launch(writing, Grid::new(1, 64), ()).unwrap();
    let launch = print_much.launch(cancelled, Grid::new(1, 64), (LINES,)).unwrap();
    let out = device.alloc_zeroed::<u64>(1).unwrap();
    call_post_and_write.launch(other, Grid::new(1, 1), (&out,)).unwrap();
    other.synchronize_for(LONG).unwrap();
    assert_eq!((out.read().unwrap()[0], noted.load(Ordering::SeqCst)), (7, 1));
    assert_eq!(std::fs::read(dir.path().join("written")).unwrap(), b"text");
    nothing.launch(other, Grid::new(1, 1), ()).unwrap();
    other.synchronize_for(LONG).unwrap();
    launch.cancel();
    wait_until("a cancelled launch's end", || !device.server().launches().is_known(launch.id()));
    for waits in [printing, writing] {
        let timed_out = waits.synchronize_for(Duration::from_millis(20));
        assert!(matches!(timed_out, Err(Error::TimedOut { .. })), "{timed_out:?}");
    }
    gate.open();
    assert!(cancelled.synchronize().is_err());
    printing.synchronize().unwrap();
    writing.synchronize().unwrap();
    assert!(read.load(Ordering::SeqCst) >= u64::from(LINES) * 32 * 4000 + 64 * 9);
}

#[kernel]
fn send_pieces(_lane: &Lane, stop: &[Global<u64>]) {
    let bytes = [1; 5000];
    while stop[0].get() == 0 {
        match Hard::sum(&bytes) {
            Ok(sum) => assert_eq!(sum, 5000),
            Err(error) => assert_eq!(error, CallError::NoSuchService),
        }
    }
}

/// A message whose service goes while it is sent does not spoil the next one.
#[test]
fn interrupted_messages_leave_nothing_behind() {
    let device = Device::builder("cpu").bulk_bytes(2048).open().unwrap();
    let (stream, stop) = (device.stream().unwrap(), device.pinned::<u64>(1).unwrap());
    send_pieces.launch(&stream, Grid::new(2, 3), (&stop,)).unwrap();
    for _ in 0..300 {
        let service = device.register(Hard::serve(handler(|key| key))).unwrap();
        let before = device.statistics().packets;
        wait_until("calls", || device.statistics().packets > before);
        service.remove();
    }
    stop[0].set(1);
    stream.synchronize().unwrap();
    assert_eq!(device.statistics().message_bytes, 0);
}

#[service]
trait Late {
    fn next(key: u64) -> u64;
}

/// Answers on the second look.
struct Later;

impl LateAsyncHandler for Later {
    async fn next(&self, key: u64) -> Result<u64, CallError> {
        let mut looks = 0;
        std::future::poll_fn(|context| {
            looks += 1;
            context.waker().wake_by_ref();
            if looks > 1 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(key + 1)
    }
}

/// Has large things on its thread's stack.
impl LateHandler for Later {
    fn next(&self, key: u64) -> Result<u64, CallError> {
        let large = std::hint::black_box([key; 512 << 10]);
        Ok(large[key as usize] + 2)
    }
}

#[kernel]
fn ask_late(_: &Lane, out: &[Global<u64>]) {
    out[0].set(Late::next(41).unwrap_or(0));
}

/// Handlers come and go while the device is open, and a blocking one has the stack that was asked for.
#[test]
fn handlers_of_each_kind_come_and_go() {
    let device = Device::builder("cpu").server(|server| server.handler_stack_bytes(32 << 20)).open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let ask = || {
        ask_late.launch(&stream, Grid::new(1, 1), (&out,)).unwrap();
        stream.synchronize().unwrap();
        out.read().unwrap()[0]
    };
    assert_eq!(ask(), 0);
    let service = device.register_async(Late::serve_async(Later)).unwrap();
    let error = device.register(Late::serve(Later)).err().expect("the number is taken").to_string();
    assert!(error.contains("service Late"), "{error}");
    assert_eq!(ask(), 42);
    service.remove();
    let service = device.register(Late::serve(Later)).unwrap();
    assert_eq!(ask(), 43);
    service.remove();
    assert_eq!(ask(), 0);
}

#[kernel]
fn fail_each(lane: &Lane, out: &[Global<u64>]) {
    for how in 0..3 {
        assert_eq!(Hard::fail(how), Err(CallError::Panicked));
        let _ = Hard::post_note(how.into());
    }
    out[lane.global_id()].set(Hard::hold(7).unwrap());
}

/// A service whose values panic when they are dropped.
struct Bad(#[expect(dead_code, reason = "it is dropped")] PanicsInDrop);

impl HardHandler for Bad {
    fn hold(&self, key: u64) -> Result<u64, CallError> {
        Ok(key)
    }
    fn note(&self, key: u64) -> Result<(), CallError> {
        std::panic::panic_any(PanicsInDrop(key as u32))
    }
    fn sum(&self, _bytes: &[u8]) -> Result<u64, CallError> {
        Ok(0)
    }
    fn fail(&self, how: u32) -> Result<u64, CallError> {
        std::panic::panic_any(PanicsInDrop(how))
    }
}

/// Nothing that panics takes the server with it.
#[test]
fn whatever_panics_the_server_goes_on() {
    for inline in [false, true] {
        let (tell, told) = mpsc::channel();
        let builder = Device::builder("cpu").server(|server| {
            server.handler_panic_report(move |panic| tell.send(panic.clone()).expect("the test listens"))
        });
        let device = builder.open().unwrap();
        let bad = Hard::serve(Bad(PanicsInDrop(2)));
        let service = if inline { device.register_inline(bad) } else { device.register(bad) }.unwrap();
        let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(40).unwrap());
        fail_each.launch(&stream, Grid::new(1, 40), (&out,)).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(out.read().unwrap(), [7; 40]);
        // Each lane's three calls and three posts; of each method the first panic is told.
        wait_until("the posts' panics", || device.statistics().handler_panics == 240);
        let mut of = [(); 2].map(|()| told.recv().expect("a report comes"));
        of.sort_by_key(|panic| panic.service);
        assert_eq!(of.each_ref().map(|panic| panic.service), ["Hard::fail", "Hard::note"]);
        assert!(
            of.iter().all(|panic| &*panic.kernel == "fail_each" && panic.place.is_some() && panic.lane < 40)
        );
        assert!(told.try_recv().is_err());
        service.remove();
        // The service is dropped now, and another one answers.
        device.register(Hard::serve(handler(|key| key + 1))).unwrap();
        hold_each.launch(&stream, Grid::new(1, 40), (&out,)).unwrap();
        stream.synchronize().unwrap();
        assert!(out.read().unwrap().iter().zip(1..).all(|(got, want)| *got == want));
    }
}

/// Reports that panic, or never return, hold up no deadline.
#[test]
fn bad_reports_hold_nobody_up() {
    let never = Gate::default();
    let (held, stuck) = (never.clone(), never.clone());
    let reported = Arc::new(AtomicBool::new(false));
    let told = reported.clone();
    let device = Device::builder("cpu")
        .service(Hard::serve(handler(move |key| {
            held.wait();
            key
        })))
        .server(move |server| {
            server.stall_report(Duration::from_millis(1), move |_| {
                if told.swap(true, Ordering::SeqCst) {
                    stuck.wait();
                }
                panic!("a report that panics, as a test");
            })
        });
    let device = device.open().unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(40).unwrap());
    hurry.launch(&stream, Grid::new(1, 40), (&out,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [1; 40]);
    wait_until("a report", || reported.load(Ordering::SeqCst));
    never.open();
}

#[kernel]
fn hurry(lane: &Lane, out: &[Global<u64>]) {
    for _ in 0..3 {
        assert_eq!(Hard::within_us(20_000).hold(1), Err(CallError::TimedOut));
    }
    out[lane.global_id()].set(1);
}

#[service]
trait Who {
    fn calls() -> (u64, u32);
}

struct Asks;

impl WhoHandler for Asks {
    fn calls(&self) -> Result<(u64, u32), CallError> {
        let caller = hostcall::caller().expect("a lane calls");
        Ok((caller.launch.to_bits().into(), caller.lane.into()))
    }
}

impl WhoAsyncHandler for Asks {
    async fn calls(&self) -> Result<(u64, u32), CallError> {
        WhoHandler::calls(self)
    }
}

#[kernel]
fn who(lane: &Lane) {
    if lane.index() % 3 == 1 {
        assert_eq!(Who::calls(), Ok((lane.launch().to_bits().into(), lane.index())));
    }
    assert_eq!(Who::calls(), Ok((lane.launch().to_bits().into(), lane.index())));
}

#[test]
fn handlers_can_ask_who_calls() {
    let opened = [
        Device::builder("cpu").service(Who::serve(Asks)),
        Device::builder("cpu").inline_service(Who::serve(Asks)),
        Device::builder("cpu").async_service(Who::serve_async(Asks)),
    ];
    for device in opened.map(|device| device.open().unwrap()) {
        let stream = device.stream().unwrap();
        who.launch(&stream, Grid::new(3, 70), ()).unwrap();
        stream.synchronize().unwrap();
    }
    assert_eq!(hostcall::caller(), None);
}
