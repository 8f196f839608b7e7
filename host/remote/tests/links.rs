//! What an import is told of an answering process that is killed, stopped, silent, denied, started again, without any device:
//! batches as a device's server makes them, and real processes. `tests/remote` has the same with kernels.
//!
//! With `HOSTCALL_REMOTE_TIMES=1` and `--nocapture` the tests tell how long things took.

mod answerer;

use answerer::{Answerer, LONG, address, tell};
use futures_lite::future::block_on;
use hostcall_abi::CallError;
use hostcall_abi::service::Method;
use hostcall_abi::status::Status;
use hostcall_remote::{Imported, Session, export, export_gathered, import, message};
use hostcall_service::gather::{BatchFuture, GatheredCall, GatheredLanes};
use hostcall_service::{Caller, GatheredCalls, GatheredService, Reply, Request, Service};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

static METHODS: [Method; 2] = [Method::untyped("Store::next", 700), Method::untyped("Store::panics", 701)];
static FEWER: [Method; 1] = [Method::untyped("Store::next", 700)];

/// Answers with one more, and the process's number; or says that it has a call, and never answers.
struct Store {
    is_mute: bool,
    methods: &'static [Method],
}

impl Service for Store {
    fn methods(&self) -> &[Method] {
        self.methods
    }

    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError> {
        assert_eq!(method, 0, "a handler of another process panics");
        if self.is_mute {
            println!("HAS");
            loop {
                std::thread::park();
            }
        }
        reply.words(&[request.words[0] + 1, std::process::id().into()]);
        Ok(())
    }
}

/// Says when it has calls of the first method, and when nobody waits for them any more; answers those of the second.
struct Watching;

impl GatheredService for Watching {
    fn methods(&self) -> &[Method] {
        &METHODS
    }

    fn gathered(&self, method: usize, calls: GatheredCalls) -> BatchFuture {
        Box::pin(async move {
            if method == 1 {
                return calls.fail(CallError::Failed(7));
            }
            let remaining = calls.remaining(0).is_some();
            println!("HAS {}, with deadlines: {remaining}", calls.len());
            calls.wanted().await;
            println!("GONE, waits: {}", calls.waits(0));
            std::future::pending().await
        })
    }
}

#[test]
#[ignore = "the other tests run it as a process of its own"]
fn asker() {
    let Ok(address) = std::env::var(answerer::ADDRESS) else { return };
    let (_session, store) = caller(&address);
    println!("READY");
    ask(&store, 0, 5, None);
}

#[test]
#[ignore = "the other tests run it as a process of its own"]
fn answerer() {
    answerer::answer(|session, role| {
        if role == "watches" {
            return export_gathered(session, "store", Watching);
        }
        let methods = if role == "fewer" { &FEWER[..] } else { &METHODS[..] };
        export(session, "store", Store { is_mute: role == "mute", methods })
    });
}

/// A lane's status and words.
type LaneAnswer = (Status, Vec<u64>);

/// The lanes of a batch, each of which gets one answer.
struct Lanes(Mutex<Vec<Option<LaneAnswer>>>);

impl GatheredLanes for Lanes {
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]) {
        let (mut lanes, width) = (self.0.lock().unwrap(), words.len() / places.len());
        for (at, place) in places.iter().enumerate() {
            let answer = (statuses[at], words[at * width..(at + 1) * width].to_vec());
            assert!(lanes[*place as usize].replace(answer).is_none(), "a lane is answered twice");
        }
    }

    fn waits(&self, place: u32) -> bool {
        self.0.lock().unwrap()[place as usize].is_none()
    }

    fn is_wanted(&self) -> bool {
        self.0.lock().unwrap().iter().any(Option::is_none)
    }

    fn wake_when_unwanted(&self, _: u64, _: &Waker) {}

    fn forget_waker(&self, _: u64) {}

    fn end(&self, _: bool) {
        assert!(!self.is_wanted(), "a batch is dropped with calls that nobody has answered");
    }
}

impl Lanes {
    /// Has all lanes go on.
    fn cancel(&self) {
        self.0.lock().unwrap().fill(Some((Status::Error(CallError::Cancelled), Vec::new())));
    }
}

/// What a call ended with: the process that answered it, or an error.
type End = Result<u64, CallError>;

/// Begins to ask with so many calls of a method at once.
fn begin(
    store: &Imported,
    method: usize,
    calls: u32,
    remaining: Option<Duration>,
) -> (Arc<Lanes>, BatchFuture) {
    let lanes = Arc::new(Lanes(Mutex::new(vec![None; calls as usize])));
    let deadline = remaining.map(|remaining| Instant::now() + remaining);
    let gathered = (0..calls).map(|place| GatheredCall { caller: Caller::default(), deadline, place });
    let words = (0..u64::from(calls)).collect();
    let batch = store.gathered(method, GatheredCalls::new(lanes.clone(), 1, words, gathered.collect()));
    (lanes, batch)
}

/// Asks with so many calls of a method at once. Returns how they ended, and how long that took.
fn ask(store: &Imported, method: usize, calls: u32, remaining: Option<Duration>) -> (Vec<End>, Duration) {
    let begun = Instant::now();
    let (lanes, batch) = begin(store, method, calls, remaining);
    block_on(batch);
    let took = begun.elapsed();
    let lanes = lanes.0.lock().unwrap();
    let ends = lanes.iter().zip(0..).map(|(answer, key): (_, u64)| {
        let (status, words) = answer.as_ref().expect("each lane is answered");
        status.into_result().map(|()| {
            assert_eq!(words[0], key + 1, "a lane gets its own answer");
            words[1]
        })
    });
    (ends.collect(), took)
}

fn caller(address: &str) -> (Session, Imported) {
    let session = Session::builder().connect(address).longest(Duration::from_secs(3)).open().unwrap();
    let store = import(&session, "store", &METHODS).unwrap();
    (session, store)
}

/// Nobody answers: whoever asks compares the lengths before it waits for somebody.
#[test]
fn more_than_a_message_may_have_is_too_large() {
    let (_session, store) = caller(&address());
    let most = message::MAX_CALLS as u32;
    let of = |calls: u32, width: usize| {
        let lanes = Arc::new(Lanes(Mutex::new(vec![None; calls as usize])));
        let calls = (0..calls).map(|place| GatheredCall { caller: Caller::default(), deadline: None, place });
        let words = vec![0; width * calls.len()];
        block_on(store.gathered(0, GatheredCalls::new(lanes.clone(), width, words, calls.collect())));
        let lanes = lanes.0.lock().unwrap();
        lanes[0].as_ref().map(|answer| answer.0)
    };
    let ended = |error| Some(Status::Error(error));
    assert_eq!(of(most + 1, 1), ended(CallError::TooLarge));
    assert_eq!(of(most, 17), ended(CallError::TooLarge));
    assert_eq!(of(most, 16), ended(CallError::Unreachable));
}

/// Does something until it succeeds.
fn until(mut succeeds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !succeeds() {
        assert!(begun.elapsed() < LONG, "it never succeeds");
    }
}

/// Asks until an answer comes. Returns who answered, and how long that took.
fn until_answered(store: &Imported) -> (u64, Duration) {
    let begun = Instant::now();
    loop {
        if let Ok(by) = ask(store, 0, 1, None).0[0] {
            return (by, begun.elapsed());
        }
        assert!(begun.elapsed() < LONG, "nobody answers again");
    }
}

#[test]
fn all_calls_get_their_own_answers() {
    let address = address();
    let answerer = Answerer::start("answers", &address);
    let (session, store) = caller(&address);
    until_answered(&store);
    let by = u64::from(answerer.process.id());
    for calls in [1, 32, 1024, 60_000] {
        let mut times: Vec<_> = (0..50)
            .map(|_| {
                let (ends, took) = ask(&store, 0, calls, Some(LONG));
                assert!(ends.iter().all(|end| *end == Ok(by)), "{:?}", ends[0]);
                took
            })
            .collect();
        times.sort();
        tell(&format!("{calls} calls in a message, median of 50"), times[25]);
    }
    let counted = session.counts();
    assert_eq!((counted.unreachable, counted.may_have_run), (0, 0));
    // A panic is one call's, and ends nothing else.
    assert_eq!(ask(&store, 1, 3, None).0, [Err(CallError::Panicked); 3]);
    assert_eq!(ask(&store, 0, 1, None).0, [Ok(by)]);
}

#[test]
fn nobody_is_unreachable_and_never_sent() {
    let (session, store) = caller(&address());
    for time in 0..3 {
        let (ends, took) = ask(&store, 0, 2, None);
        assert_eq!(ends, [Err(CallError::Unreachable); 2]);
        tell(&format!("nobody there, {time}"), took);
    }
    assert_eq!((session.counts().questions, session.counts().unreachable), (0, 6));
}

/// The answerer has the calls and is killed, or stopped: they may have run. Started again, it is asked again.
#[test]
fn who_is_killed_or_stopped_may_have_run_the_call() {
    for signal in ["-KILL", "-STOP"] {
        let address = address();
        let mut answerer = Answerer::start("mute", &address);
        let (session, store) = caller(&address);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| (ask(&store, 0, 32, Some(LONG)).0, Instant::now()));
            answerer.wait_for("HAS");
            let at = Instant::now();
            answerer.signal(signal);
            let (ends, ended) = asking.join().unwrap();
            assert_eq!(ends, [Err(CallError::MayHaveRun); 32]);
            tell(&format!("{signal}: all lanes told after"), ended.saturating_duration_since(at));
        });
        assert_eq!(session.counts().may_have_run, 32);
        answerer.kill();
        let _answerer = Answerer::start("answers", &address);
        tell(&format!("{signal}: answered again after"), until_answered(&store).1);
    }
}

#[test]
fn who_is_silent_is_waited_for_as_long_as_was_said() {
    let address = address();
    let _answerer = Answerer::start("mute", &address);
    let (_session, store) = caller(&address);
    let deadline = (Some(Duration::from_millis(50)), CallError::TimedOut, "a deadline of 50 ms");
    for (remaining, error, what) in [deadline, (None, CallError::MayHaveRun, "a limit of 3 s")] {
        let (ends, took) = ask(&store, 0, 3, remaining);
        assert_eq!(ends, [Err(error); 3]);
        tell(what, took);
    }
}

/// Whoever has the calls is told when nobody waits for them any more: they were given up, their deadlines have passed, whoever
/// asked is gone. More often than there are threads that run handlers: each goes on to the next.
#[test]
fn who_answers_learns_that_nobody_waits() {
    let address = address();
    let mut answerer = Answerer::start("watches", &address);
    let (session, store) = caller(&address);
    until(|| ask(&store, 1, 1, None).0[0] == Err(CallError::Failed(7)));
    for _ in 0..6 {
        let (lanes, batch) = begin(&store, 0, 3, None);
        answerer.wait_for("HAS 3, with deadlines: false");
        // For shorter ones nobody is told.
        std::thread::sleep(Duration::from_millis(20));
        lanes.cancel();
        let at = Instant::now();
        drop(batch);
        answerer.wait_for("GONE, waits: false");
        tell("calls were given up: told after", at.elapsed());
    }
    for _ in 0..6 {
        let (ends, took) = ask(&store, 0, 2, Some(Duration::from_millis(50)));
        assert_eq!(ends, [Err(CallError::TimedOut); 2]);
        answerer.wait_for("HAS 2, with deadlines: true");
        answerer.wait_for("GONE, waits: false");
        tell("a deadline of 50 ms", took);
    }
    for signal in ["-KILL", "-STOP"] {
        let asker = Answerer::run("asker", "asks", &address);
        answerer.wait_for("HAS 5");
        let at = Instant::now();
        asker.signal(signal);
        answerer.wait_for("GONE, waits: false");
        tell(&format!("{signal} to who asks: told after"), at.elapsed());
    }
    assert_eq!(ask(&store, 1, 4, None).0, [Err(CallError::Failed(7)); 4]);
    assert_eq!(session.counts().may_have_run, 0);
}

/// A denial looks to the caller as if nobody was there, or as if the question got lost.
#[test]
fn who_is_denied_gets_no_answer() {
    let address = address();
    let _answerer = Answerer::start("denies", &address);
    let (_session, store) = caller(&address);
    let (ends, took) = ask(&store, 0, 1, None);
    assert!([Err(CallError::Unreachable), Err(CallError::MayHaveRun)].contains(&ends[0]), "{ends:?}");
    tell(&format!("denied: {:?}", ends[0]), took);
}

#[test]
fn a_method_that_is_not_there_is_refused() {
    let address = address();
    let _answerer = Answerer::start("fewer", &address);
    let (_session, store) = caller(&address);
    until_answered(&store);
    assert_eq!(ask(&store, 1, 2, None).0, [Err(CallError::NoSuchService); 2]);
}

/// Each question goes to one of two, and to the other one when that is gone.
#[test]
fn a_second_answerer_takes_over() {
    let addresses = [address(), address()];
    let mut answerers = [0, 1].map(|i: usize| Answerer::start("answers", &addresses[i]));
    let session = Session::builder().connect(&*addresses[0]).connect(&*addresses[1]).open().unwrap();
    let store = import(&session, "store", &METHODS).unwrap();
    let mut first = until_answered(&store).0;
    let begun = Instant::now();
    // Until both are there, or the first one was the only one for long.
    while begun.elapsed() < Duration::from_secs(1) {
        first = until_answered(&store).0;
    }
    let at = answerers.iter().position(|answerer| u64::from(answerer.process.id()) == first).unwrap();
    answerers[at].kill();
    let (second, took) = until_answered(&store);
    assert_eq!(second, u64::from(answerers[1 - at].process.id()));
    tell("the second one took over after", took);
}

/// As many kills as `HOSTCALL_REMOTE_KILLS` says, at any time: each call ends once, with a result or a status that is true.
#[test]
fn kills_at_any_time_leave_no_call_waiting() {
    let kills = std::env::var("HOSTCALL_REMOTE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let address = address();
    let (session, store) = caller(&address);
    let (mut longest, mut ends) = (Duration::ZERO, [0u64; 3]);
    for kill in 0..kills {
        let mut answerer = Answerer::start("answers", &address);
        until_answered(&store);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                loop {
                    let (got, took) = ask(&store, 0, 100, None);
                    let first = got[0];
                    if first.is_err() {
                        return (got, took);
                    }
                }
            });
            std::thread::sleep(Duration::from_micros(kill % 97 * 173));
            answerer.kill();
            let (got, took) = asking.join().unwrap();
            longest = longest.max(took);
            for end in got {
                ends[match end {
                    Ok(_) => 0,
                    Err(CallError::Unreachable) => 1,
                    Err(CallError::MayHaveRun) => 2,
                    Err(error) => panic!("{error}"),
                }] += 1;
            }
        });
    }
    let counted = session.counts();
    tell(
        &format!("{kills} kills, last calls {ends:?} (ok, unreachable, may have run), {counted:?}, longest"),
        longest,
    );
}

/// Who does not speak the protocol is dropped or refused, and the others are answered.
#[test]
fn garbage_reaches_no_handler() {
    use zenoh::Wait;
    let address = address();
    let _answerer = Answerer::start("answers", &address);
    let (_session, store) = caller(&address);
    until_answered(&store);
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
    assert!(ask(&store, 0, 40, None).0.iter().all(Result::is_ok));
}
