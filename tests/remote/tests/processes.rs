//! Services that other processes answer, which are killed, stopped, silent, denied, started again: each lane's call ends, and
//! with the status that is true.
//!
//! With `HOSTCALL_REMOTE_TIMES=1` and `--nocapture` the tests tell how long things took.

#[path = "../../../host/remote/tests/answerer/mod.rs"]
mod answerer;

use answerer::{Answerer, LONG, address, tell};
use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::{Device, Gather, Gathered, Grid, LaunchKernel};
use hostcall_remote::{Session, export, export_gathered, import};
use std::time::{Duration, Instant};

#[service]
trait Store {
    /// One more, and the number of the process that says so.
    fn next(key: u64) -> (u64, u32);
    fn panics(key: u64) -> u64;
}

/// The same name with other types.
mod other {
    use super::service;

    #[service]
    pub trait Store {
        fn next(key: u32) -> u64;
    }
}

struct Answers;

impl StoreHandler for Answers {
    fn next(&self, key: u64) -> Result<(u64, u32), CallError> {
        Ok((key + 1, std::process::id()))
    }
    fn panics(&self, _key: u64) -> Result<u64, CallError> {
        panic!("of a handler of another process")
    }
}

impl StoreGatheredHandler for Answers {
    async fn next(&self, calls: Gathered<u64, (u64, u32)>) {
        let keys = calls.arguments().to_vec();
        calls.answer_all(keys.into_iter().map(|key| Ok((key + 1, std::process::id()))));
    }
    async fn panics(&self, _calls: Gathered<u64, u64>) {
        panic!("of a handler of another process")
    }
}

/// Says when it has a call, and never answers.
struct Mute;

impl StoreHandler for Mute {
    fn next(&self, _key: u64) -> Result<(u64, u32), CallError> {
        println!("HAS");
        loop {
            std::thread::park();
        }
    }
    fn panics(&self, _key: u64) -> Result<u64, CallError> {
        Err(CallError::Failed(1))
    }
}

/// Says when it has calls, and when nobody waits for them any more.
struct Watching;

impl StoreGatheredHandler for Watching {
    async fn next(&self, calls: Gathered<u64, (u64, u32)>) {
        println!("HAS");
        calls.wanted().await;
        println!("GONE, waits: {}", calls.waits(0));
    }
    async fn panics(&self, calls: Gathered<u64, u64>) {
        calls.fail(CallError::Failed(1));
    }
}

struct OtherTypes;

impl other::StoreHandler for OtherTypes {
    fn next(&self, key: u32) -> Result<u64, CallError> {
        Ok(key.into())
    }
}

#[test]
#[ignore = "the other tests run it as a process of its own"]
fn answerer() {
    answerer::answer(|session, role| match role {
        "mute" => export(session, "store", Store::serve(Mute)),
        "other" => export(session, "store", other::Store::serve(OtherTypes)),
        "watches" => export_gathered(session, "store", Store::serve_gathered(Watching)),
        "gathered" => export_gathered(session, "store", Store::serve_gathered(Answers)),
        _ => export(session, "store", Store::serve(Answers)),
    });
}

const OK: u64 = 1 << 60;

fn code(error: CallError) -> u64 {
    match error {
        CallError::Unreachable => 1,
        CallError::MayHaveRun => 2,
        CallError::TimedOut => 3,
        CallError::TypeMismatch => 4,
        CallError::NoSuchService => 5,
        CallError::Panicked => 6,
        CallError::Busy => 7,
        CallError::Cancelled => 8,
        CallError::Malformed => 9,
        _ => 10,
    }
}

/// What a lane got: the key it asked with, one more, and who answered; or an error.
#[kernel]
fn asks(lane: &Lane, timeout_us: u32, rounds: u32, out: &[Global<u64>]) {
    let key = lane.global_id() as u64;
    for _ in 0..rounds {
        out[key as usize].set(match Store::within_us(timeout_us).next(key) {
            Ok((next, by)) if next == key + 1 => OK + u64::from(by),
            Ok(_) => 0,
            Err(error) => code(error),
        });
    }
}

#[kernel]
fn asks_panics(_: &Lane, out: &[Global<u64>]) {
    out[0].set(Store::panics(1).err().map_or(0, code));
}

/// Runs `asks` on so many waves of 32 lanes. Returns what they got and how long it took.
fn ask(device: &Device, waves: u32, timeout_us: u32, rounds: u32) -> (Vec<u64>, Duration) {
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(32 * waves as usize).unwrap());
    let begun = Instant::now();
    let launch = asks.launch(&stream, Grid::new(waves, 32), (timeout_us, rounds, &out)).unwrap();
    launch.wait_for(LONG).expect("no call hangs");
    let took = begun.elapsed();
    (out.read().unwrap(), took)
}

fn open(session: &Session, bounds: Gather) -> Device {
    let store = import(session, "store", Store::METHODS).unwrap();
    Device::builder("cpu").gathered_service(store, bounds).open().unwrap()
}

fn caller(address: &str) -> (Session, Device) {
    let session = Session::builder().connect(address).longest(Duration::from_secs(3)).open().unwrap();
    let device = open(&session, Gather::default());
    (session, device)
}

/// Asks one wave until an answer comes. Returns how long that took.
fn until_answered(device: &Device) -> Duration {
    let begun = Instant::now();
    while !ask(device, 1, 0, 1).0.iter().all(|got| *got >= OK) {
        assert!(begun.elapsed() < LONG, "nobody answers again");
    }
    begun.elapsed()
}

#[test]
fn all_lanes_get_their_own_answers() {
    for role in ["answers", "gathered"] {
        let address = address();
        let answerer = Answerer::start(role, &address);
        let (session, device) = caller(&address);
        let (got, took) = ask(&device, 32, 0, 20);
        assert!(got.iter().all(|got| *got == OK + u64::from(answerer.process.id())), "{got:?}");
        let counted = session.counts();
        assert_eq!((counted.calls, counted.unreachable, counted.may_have_run), (1024 * 20, 0, 0));
        tell(&format!("{role}: {} questions for 20,480 calls", counted.questions), took);
        // A panic is one call's, and ends nothing else.
        let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
        asks_panics.launch(&stream, Grid::new(1, 1), (&out,)).unwrap().wait_for(LONG).unwrap();
        assert_eq!(out.read().unwrap(), [code(CallError::Panicked)]);
        assert!(ask(&device, 1, 0, 1).0.iter().all(|got| *got >= OK));
    }
}

#[test]
fn nobody_is_unreachable_and_never_sent() {
    let (session, device) = caller(&address());
    let (got, took) = ask(&device, 2, 0, 3);
    assert_eq!(got, [code(CallError::Unreachable); 64]);
    assert_eq!((session.counts().questions, session.counts().unreachable), (0, 3 * 64));
    tell("nobody there", took);
}

/// The answerer has the calls and is killed, or stopped: they may have run. Started again, it is asked again.
#[test]
fn who_is_killed_or_stopped_may_have_run_the_call() {
    for signal in ["-KILL", "-STOP"] {
        let address = address();
        let mut answerer = Answerer::start("mute", &address);
        let (session, device) = caller(&address);
        let asking = {
            let device = device.clone();
            std::thread::spawn(move || {
                let got = ask(&device, 1, 0, 1).0;
                (got, Instant::now())
            })
        };
        answerer.wait_for("HAS");
        let at = Instant::now();
        answerer.signal(signal);
        let (got, ended) = asking.join().unwrap();
        assert_eq!(got, [code(CallError::MayHaveRun); 32]);
        tell(&format!("{signal}: all lanes went on after"), ended.saturating_duration_since(at));
        assert_eq!(session.counts().may_have_run, 32);
        answerer.kill();
        let (got, _) = ask(&device, 1, 0, 1);
        assert!(got.iter().all(|got| [1, 2].contains(got)), "{got:?}");
        let _answerer = Answerer::start("answers", &address);
        tell(&format!("{signal}: answered again after"), until_answered(&device));
    }
}

#[test]
fn who_is_silent_is_waited_for_as_long_as_the_lane_says() {
    let address = address();
    let _answerer = Answerer::start("mute", &address);
    let (_session, device) = caller(&address);
    let (got, took) = ask(&device, 2, 50_000, 2);
    assert_eq!(got, [code(CallError::TimedOut); 64]);
    tell("two deadlines of 50 ms", took);
    let (got, took) = ask(&device, 1, 0, 1);
    assert_eq!(got, [code(CallError::MayHaveRun); 32]);
    tell("a limit of 3 s", took);
}

/// A denial looks to the caller as if nobody was there, or as if the question got lost. Either is true.
#[test]
fn who_is_denied_gets_no_answer() {
    let address = address();
    let _answerer = Answerer::start("denies", &address);
    let (_session, device) = caller(&address);
    let (got, took) = ask(&device, 2, 0, 1);
    assert!(got.iter().all(|got| [1, 2].contains(got)), "{got:?}");
    tell(&format!("denied: {}", got[0]), took);
}

#[test]
fn other_types_and_methods_are_refused() {
    let address = address();
    let _answerer = Answerer::start("other", &address);
    let (_session, device) = caller(&address);
    assert_eq!(ask(&device, 1, 0, 1).0, [code(CallError::TypeMismatch); 32]);
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    asks_panics.launch(&stream, Grid::new(1, 1), (&out,)).unwrap().wait_for(LONG).unwrap();
    assert_eq!(out.read().unwrap(), [code(CallError::NoSuchService)]);
}

/// Whoever answers learns that the calls' launch was cancelled, and that their deadlines have passed.
#[test]
fn who_answers_learns_that_no_lane_waits() {
    let address = address();
    let mut answerer = Answerer::start("watches", &address);
    let (_session, device) = caller(&address);
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(32).unwrap());
    let launch = asks.launch(&stream, Grid::new(1, 32), (0, 1, &out)).unwrap();
    answerer.wait_for("HAS");
    std::thread::sleep(Duration::from_millis(20));
    let at = Instant::now();
    device.cancel_all();
    answerer.wait_for("GONE, waits: false");
    tell("a launch was cancelled: told after", at.elapsed());
    launch.wait_for(LONG).expect_err("it was cancelled");
    let (got, took) = ask(&device, 2, 50_000, 1);
    assert_eq!(got, [code(CallError::TimedOut); 64]);
    answerer.wait_for("HAS");
    answerer.wait_for("GONE, waits: false");
    tell("a deadline of 50 ms", took);
}

/// Each question goes to one of two, and to the other one when that is gone.
#[test]
fn a_second_answerer_takes_over() {
    let addresses = [address(), address()];
    let mut answerers = [0, 1].map(|i: usize| Answerer::start("answers", &addresses[i]));
    let session = Session::builder().connect(&*addresses[0]).connect(&*addresses[1]).open().unwrap();
    let device = open(&session, Gather::default());
    until_answered(&device);
    let (got, _) = ask(&device, 8, 0, 10);
    let by = (got[0] - OK) as u32;
    let first = answerers.iter().position(|answerer| answerer.process.id() == by).expect("one of the two");
    answerers[first].kill();
    let took = until_answered(&device);
    let (got, _) = ask(&device, 8, 0, 10);
    let second = u64::from(answerers[1 - first].process.id());
    assert!(got.iter().all(|got| *got == OK + second), "{got:?}");
    tell("the second one took over after", took);
}

/// As many kills as `HOSTCALL_REMOTE_KILLS` says, at any time: each call ends once, with a result or a status that is true.
#[test]
fn kills_at_any_time_leave_no_lane_waiting() {
    let kills = std::env::var("HOSTCALL_REMOTE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let address = address();
    let (session, device) = caller(&address);
    let mut longest = Duration::ZERO;
    let mut ends = [0u64; 3];
    for kill in 0..kills {
        let mut answerer = Answerer::start("gathered", &address);
        until_answered(&device);
        let asking = {
            let device = device.clone();
            std::thread::spawn(move || ask(&device, 8, 0, 40))
        };
        std::thread::sleep(Duration::from_micros(kill % 97 * 173));
        answerer.kill();
        let at = Instant::now();
        let (got, _) = asking.join().unwrap();
        longest = longest.max(at.elapsed());
        for got in got {
            assert!(got >= OK || [1, 2].contains(&got), "{got}");
            ends[if got >= OK { 0 } else { got as usize }] += 1;
        }
    }
    tell(
        &format!(
            "{kills} kills, last calls {ends:?} (ok, unreachable, may have run), counted {:?}; longest",
            session.counts()
        ),
        longest,
    );
}

/// Who does not speak the protocol is dropped or refused, and the others are answered.
#[test]
fn garbage_reaches_no_handler() {
    use zenoh::Wait;
    let address = address();
    let _answerer = Answerer::start("answers", &address);
    let (_session, device) = caller(&address);
    until_answered(&device);
    let mut config = zenoh::Config::default();
    for (name, value) in [
        ("mode", "\"client\"".to_owned()),
        ("scouting/multicast/enabled", "false".to_owned()),
        ("connect/endpoints", format!("[{address:?}]")),
    ] {
        config.insert_json5(name, &value).unwrap();
    }
    let stranger = zenoh::open(config).wait().unwrap();
    for (at, len) in (0..200usize).map(|at| (at, at * 37 % 400)) {
        let mut bytes = vec![at as u8; len];
        if at % 2 == 0 && len > 12 {
            bytes[..6].copy_from_slice(b"hcrm\x01\x00");
        }
        let replies = stranger.get("hostcall/default/store/Store/next").payload(bytes).wait().unwrap();
        while let Ok(reply) = replies.recv() {
            assert!(reply.result().is_ok());
        }
    }
    assert!(ask(&device, 4, 0, 5).0.iter().all(|got| *got >= OK));
}

/// A gathered import leaves in as many batches at once as it may.
#[test]
fn several_questions_may_be_under_way() {
    let address = address();
    let _answerer = Answerer::start("answers", &address);
    let session = Session::builder().connect(&*address).open().unwrap();
    let device = open(&session, Gather::default().batches(4));
    assert!(ask(&device, 32, 0, 10).0.iter().all(|got| *got >= OK));
}

/// Threads that send questions overtake each other. Whoever answers takes all of them all the same.
#[test]
fn questions_that_are_overtaken_are_answered() {
    let address = address();
    let _answerer = Answerer::start("answers", &address);
    let session = Session::builder().connect(&*address).open().unwrap();
    let device = open(&session, Gather::default().calls(1).batches(256));
    until_answered(&device);
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1024).unwrap());
    for _ in 0..3 {
        let launch = asks.launch(&stream, Grid::new(1024, 1), (0, 5, &out)).unwrap();
        launch.wait_for(LONG).expect("no call hangs");
        let lost = out.read().unwrap().into_iter().filter(|got| *got < OK).collect::<Vec<_>>();
        assert!(lost.is_empty(), "{lost:?}");
    }
}
