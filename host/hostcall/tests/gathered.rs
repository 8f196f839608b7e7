//! Services that gather, from kernels on the software device: who answers a lane, when a batch is over, and what bounds
//! there are. The promises are those of `hostcall::service::gather`.

use hostcall::hostcall_device::{CallError, Global, Lane, kernel, service};
use hostcall::service::Wanted;
use hostcall::{Device, Error, Gather, Gathered, Grid, LaunchKernel};
use std::collections::HashSet;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[service]
trait Index {
    /// One more.
    fn next(key: u64) -> u64;
    /// What is more words than a line has.
    fn row(key: u64, of: [u64; 9]) -> [u64; 10];
    /// A truth, of which most words are none.
    fn is(truth: bool) -> bool;
    fn note(key: u64);
}

/// What happened, in the order of its coming.
#[derive(Debug)]
enum Seen {
    /// A batch of so many calls began.
    Batch(usize),
    /// A handler's future was dropped, or ended.
    Dropped,
    Noted(Vec<u64>),
}

/// What a handler does with a batch.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Answers,
    AnswersOdd,
    Panics,
    Forgets,
    Waits,
    /// Waits for the gate's word, and answers.
    Gated,
    /// Gives the batch to a thread, which waits until nobody wants it.
    GivesAway,
}

struct Handler {
    does: Mutex<Does>,
    seen: Mutex<Sender<Seen>>,
    gate: Mutex<Option<Receiver<()>>>,
    numbers: Mutex<HashSet<u64>>,
    most_calls: AtomicUsize,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Handler {
    fn new(does: Does) -> (Arc<Self>, Receiver<Seen>) {
        let (seen, sees) = mpsc::channel();
        let handler = Self {
            does: Mutex::new(does),
            seen: Mutex::new(seen),
            gate: Mutex::default(),
            numbers: Mutex::default(),
            most_calls: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        };
        (Arc::new(handler), sees)
    }

    fn tell(&self, seen: Seen) {
        let _ = self.seen.lock().unwrap().send(seen);
    }
}

/// Tells of the end of a handler's future.
struct TellsEnd(Arc<Handler>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.tell(Seen::Dropped);
    }
}

struct Serves(Arc<Handler>);

impl IndexGatheredHandler for Serves {
    async fn next(&self, calls: Gathered<u64, u64>) {
        let handler = &self.0;
        let under_way = handler.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        handler.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        handler.most_calls.fetch_max(calls.len(), Ordering::SeqCst);
        handler.tell(Seen::Batch(calls.len()));
        let _end = TellsEnd(handler.clone());
        for call in 0..calls.len() {
            assert!(handler.numbers.lock().unwrap().insert(calls.number(call)), "numbers are given once");
            assert!(calls.remaining(call).is_none_or(|remaining| remaining <= LONG));
        }
        let does = *handler.does.lock().unwrap();
        match does {
            Does::Answers => {
                let keys = calls.arguments().to_vec();
                calls.answer_all(keys.into_iter().map(|key| Ok(key + 1)));
            }
            Does::AnswersOdd => {
                // From the last to the first, and each twice: the second answer is dropped.
                for call in (0..calls.len()).rev().filter(|call| call % 2 == 1) {
                    calls.answer(call, Ok(calls.arguments()[call] + 1));
                    calls.answer(call, Err(CallError::Failed(9)));
                    assert!(!calls.waits(call));
                }
            }
            Does::Panics => {
                calls.answer(0, Ok(calls.arguments()[0] + 1));
                panic!("of a handler that gathers");
            }
            Does::Forgets => drop(calls),
            Does::Waits => pending().await,
            Does::Gated => {
                let gate = handler.gate.lock().unwrap().take();
                if let Some(gate) = gate {
                    let _ = gate.recv();
                }
                let keys = calls.arguments().to_vec();
                calls.answer_all(keys.into_iter().map(|key| Ok(key + 1)));
            }
            Does::GivesAway => {
                let handler = handler.clone();
                std::thread::spawn(move || {
                    let wanted = calls.wanted();
                    block_on(wanted);
                    assert!((0..calls.len()).all(|call| !calls.waits(call)));
                    handler.tell(Seen::Noted(vec![7]));
                });
            }
        }
    }

    async fn row(&self, calls: Gathered<(u64, [u64; 9]), [u64; 10]>) {
        let rows = calls.arguments().iter().map(|(key, of)| {
            let mut row = [*key; 10];
            row[1..].copy_from_slice(of);
            Ok(row)
        });
        let rows: Vec<_> = rows.collect();
        calls.answer_all(rows);
    }

    async fn is(&self, calls: Gathered<bool, bool>) {
        let truths = calls.arguments().to_vec();
        calls.answer_all(truths.into_iter().map(Ok));
    }

    async fn note(&self, calls: Gathered<u64, ()>) {
        assert!(!calls.waits(0));
        self.0.tell(Seen::Noted(calls.arguments().to_vec()));
    }
}

/// Waits for what nobody does but a thread that waits for nothing else.
fn block_on(wanted: Wanted) {
    struct Unparks(std::thread::Thread);
    impl std::task::Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unparks(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut wanted = std::pin::pin!(wanted);
    while wanted.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
}

const OK: u64 = 1 << 40;

/// What a lane got: a result, or what error.
fn code(result: Result<u64, CallError>) -> u64 {
    match result {
        Ok(value) => OK + value,
        Err(CallError::Cancelled) => 1,
        Err(CallError::Panicked) => 2,
        Err(CallError::TimedOut) => 3,
        Err(CallError::NoSuchService) => 4,
        Err(CallError::Busy) => 5,
        Err(_) => 6,
    }
}

#[kernel]
fn asks(lane: &Lane, timeout_us: u32, rounds: u32, out: &[Global<u64>]) {
    let key = lane.global_id() as u64;
    for _ in 0..rounds {
        out[key as usize].set(code(Index::within_us(timeout_us).next(key)));
    }
}

fn open(handler: &Arc<Handler>, bounds: Gather) -> Device {
    Device::builder("cpu")
        .gathered_service(Index::serve_gathered(Serves(handler.clone())), bounds)
        .open()
        .unwrap()
}

/// Runs `asks` on so many waves of 32 lanes and returns what they got.
fn ask(device: &Device, waves: u32, timeout_us: u32, rounds: u32) -> Vec<u64> {
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(32 * waves as usize).unwrap());
    asks.launch(&stream, Grid::new(waves, 32), (timeout_us, rounds, &out)).unwrap();
    stream.synchronize().unwrap();
    out.read().unwrap()
}

/// The calls of each batch that a handler has seen by now.
fn batches(sees: &mpsc::Receiver<Seen>) -> Vec<usize> {
    let of_batch = |seen| match seen {
        Seen::Batch(calls) => Some(calls),
        _ => None,
    };
    sees.try_iter().filter_map(of_batch).collect()
}

#[test]
fn all_lanes_get_their_own_answers() {
    let (handler, sees) = Handler::new(Does::Answers);
    let device = open(&handler, Gather::default());
    let got = ask(&device, 32, 0, 20);
    assert!(got.iter().zip(0..).all(|(got, key)| *got == OK + key + 1));
    let batches = batches(&sees);
    assert_eq!(batches.iter().sum::<usize>(), 32 * 32 * 20);
    assert_eq!(handler.most_under_way.load(Ordering::SeqCst), 1);
    assert_eq!(handler.numbers.lock().unwrap().len(), 32 * 32 * 20);
}

/// While one batch is under way, all that comes gathers: the second batch has all other calls.
#[test]
fn calls_gather_while_a_batch_is_under_way() {
    let (handler, sees) = Handler::new(Does::Gated);
    let (opens, gate) = mpsc::channel();
    *handler.gate.lock().unwrap() = Some(gate);
    let device = open(&handler, Gather::default());
    let asking = {
        let device = device.clone();
        std::thread::spawn(move || ask(&device, 32, 0, 1))
    };
    let Ok(Seen::Batch(first)) = sees.recv_timeout(LONG) else { panic!("a batch begins") };
    // Each lane has one call: these are all.
    let begun = Instant::now();
    while device.waiting().iter().map(|waiting| waiting.lanes).sum::<u32>() < 1024 {
        assert!(begun.elapsed() < LONG, "not all lanes call");
        std::thread::yield_now();
    }
    assert!(device.waiting().iter().all(|waiting| waiting.service == "Index::next"));
    opens.send(()).unwrap();
    assert!(asking.join().unwrap().iter().all(|got| *got >= OK));
    let batches = batches(&sees);
    assert_eq!(batches.iter().sum::<usize>(), 1024 - first);
    // A call waits for the watchdog's eyes a moment before it is in its queue: the last ones may be late for the batch.
    assert!(batches.len() <= 2, "{batches:?}");
}

#[test]
fn batches_keep_their_bounds() {
    let (handler, _sees) = Handler::new(Does::Answers);
    let device = open(&handler, Gather::default().batches(3).calls(64));
    assert!(ask(&device, 32, 0, 20).iter().all(|got| *got >= OK));
    assert!(handler.most_calls.load(Ordering::SeqCst) <= 64);
    assert!(handler.most_under_way.load(Ordering::SeqCst) <= 3);
    // One packet stays together, however small the bound.
    let (handler, _sees) = Handler::new(Does::Answers);
    let device = open(&handler, Gather::default().bytes(0));
    assert!(ask(&device, 4, 0, 5).iter().all(|got| *got >= OK));
    assert!(handler.most_calls.load(Ordering::SeqCst) <= 32);
}

/// Only the first answer counts, and a call that the handler forgets is cancelled.
#[test]
fn a_handler_that_answers_some_leaves_none_waiting() {
    let (handler, _sees) = Handler::new(Does::AnswersOdd);
    let device = open(&handler, Gather::default());
    for (got, key) in ask(&device, 3, 0, 1).iter().zip(0..) {
        assert_eq!(*got, if key % 2 == 1 { OK + key + 1 } else { 1 });
    }
    *handler.does.lock().unwrap() = Does::Forgets;
    assert_eq!(ask(&device, 3, 0, 2), [1; 96]);
}

#[test]
fn a_handler_that_panics_ends_its_batch_alone() {
    std::panic::set_hook(Box::new(|_| ()));
    let (handler, _sees) = Handler::new(Does::Panics);
    let device = open(&handler, Gather::default());
    let got = ask(&device, 1, 0, 1);
    assert_eq!((got[0], &got[1..]), (OK + 1, &[2; 31][..]));
    assert_eq!(device.statistics().handler_panics, 1);
    *handler.does.lock().unwrap() = Does::Answers;
    assert!(ask(&device, 8, 0, 5).iter().all(|got| *got >= OK));
}

/// The lanes go on at their deadlines, which ends the batch, and the handler's future with it: the next batch leaves.
#[test]
fn deadlines_end_a_batch_that_is_never_answered() {
    let (handler, sees) = Handler::new(Does::Waits);
    let device = open(&handler, Gather::default());
    assert_eq!(ask(&device, 4, 20_000, 3), [3; 128]);
    *handler.does.lock().unwrap() = Does::Answers;
    assert!(ask(&device, 4, 0, 1).iter().all(|got| *got >= OK));
    drop(device);
    let (mut begun, mut dropped) = (0, 0);
    while begun < 2 || begun != dropped {
        match sees.recv_timeout(LONG).expect("each future that began is dropped") {
            Seen::Batch(_) => begun += 1,
            Seen::Dropped => dropped += 1,
            Seen::Noted(_) => {}
        }
    }
}

/// Whoever has the batch learns that nobody waits, also when its handler has ended.
#[test]
fn who_works_for_a_batch_learns_that_nobody_waits() {
    let (handler, sees) = Handler::new(Does::GivesAway);
    let device = open(&handler, Gather::default());
    assert_eq!(ask(&device, 1, 20_000, 1), [3; 32]);
    let told = || matches!(sees.recv_timeout(LONG), Ok(Seen::Noted(_)));
    while !told() {}
    // A cancellation, in place of a deadline.
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(32).unwrap());
    let launch = asks.launch(&stream, Grid::new(1, 32), (0, 1, &out)).unwrap();
    while !matches!(sees.recv_timeout(LONG), Ok(Seen::Batch(32))) {}
    launch.cancel();
    while !told() {}
    assert!(matches!(stream.synchronize(), Err(Error::Launch { .. })));
}

/// A cancellation ends the calls of its launch in the queue and in the batch, and no others.
#[test]
fn a_cancellation_ends_its_own_calls() {
    let (handler, sees) = Handler::new(Does::Gated);
    let (opens, gate) = mpsc::channel();
    *handler.gate.lock().unwrap() = Some(gate);
    let device = open(&handler, Gather::default());
    let streams = [(); 2].map(|()| device.stream().unwrap());
    let outs = [(); 2].map(|()| device.alloc_zeroed::<u64>(64).unwrap());
    let [first, second] =
        [0, 1].map(|i: usize| asks.launch(&streams[i], Grid::new(2, 32), (0, 1, &outs[i])).unwrap());
    let begun = Instant::now();
    while device.waiting().iter().map(|waiting| waiting.lanes).sum::<u32>() < 128 {
        assert!(begun.elapsed() < LONG, "not all lanes call");
        std::thread::yield_now();
    }
    second.cancel();
    assert!(second.wait().is_err());
    opens.send(()).unwrap();
    first.wait().unwrap();
    assert!(outs[0].read().unwrap().iter().all(|got| *got >= OK));
    drop(sees);
}

#[test]
fn a_close_ends_calls_in_the_queue_and_in_the_batch() {
    let (handler, sees) = Handler::new(Does::Waits);
    let device = open(&handler, Gather::default());
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1024).unwrap());
    let launch = asks.launch(&stream, Grid::new(32, 32), (0, 1, &out)).unwrap();
    assert!(matches!(sees.recv_timeout(LONG), Ok(Seen::Batch(_))));
    device.close();
    assert!(launch.wait().is_err());
    drop((launch, stream, out, device));
    // All that the server had of the service is gone.
    while !matches!(sees.recv_timeout(LONG), Ok(Seen::Dropped)) {}
    let begun = Instant::now();
    while Arc::strong_count(&handler) > 1 {
        assert!(begun.elapsed() < LONG, "somebody keeps the service");
        std::thread::yield_now();
    }
}

#[test]
fn a_removed_service_begins_no_batch() {
    let (handler, sees) = Handler::new(Does::Gated);
    let (opens, gate) = mpsc::channel();
    *handler.gate.lock().unwrap() = Some(gate);
    let device = Device::builder("cpu").open().unwrap();
    let service =
        device.register_gathered(Index::serve_gathered(Serves(handler.clone())), Gather::default()).unwrap();
    let (stream, out) = (device.stream().unwrap(), device.alloc_zeroed::<u64>(1024).unwrap());
    let launch = asks.launch(&stream, Grid::new(32, 32), (0, 1, &out)).unwrap();
    let Ok(Seen::Batch(first)) = sees.recv_timeout(LONG) else { panic!("a batch begins") };
    let begun = Instant::now();
    while device.waiting().iter().map(|waiting| waiting.lanes).sum::<u32>() < 1024 {
        assert!(begun.elapsed() < LONG, "not all lanes call");
        std::thread::yield_now();
    }
    service.remove();
    opens.send(()).unwrap();
    launch.wait().unwrap();
    let got = out.read().unwrap();
    assert_eq!(got.iter().filter(|got| **got >= OK).count(), first);
    assert_eq!(got.iter().filter(|got| **got == 4).count(), 1024 - first);
}

#[kernel]
fn others(lane: &Lane) {
    let key = lane.global_id() as u64;
    assert_eq!(Index::row(key, [key + 1; 9]).map(|row| (row[0], row[9])), Ok((key, key + 1)));
    assert_eq!(Index::is(key.is_multiple_of(2)), Ok(key.is_multiple_of(2)));
    let _ = Index::post_note(key);
}

/// Long calls gather too, and so do posts, of which each is handled once.
#[test]
fn long_calls_and_posts_gather() {
    let (handler, sees) = Handler::new(Does::Answers);
    let device = open(&handler, Gather::default());
    let stream = device.stream().unwrap();
    others.launch(&stream, Grid::new(8, 40), ()).unwrap();
    stream.synchronize().unwrap();
    let mut noted: Vec<_> = sees
        .try_iter()
        .filter_map(|seen| match seen {
            Seen::Noted(keys) => Some(keys),
            _ => None,
        })
        .flatten()
        .collect();
    noted.sort_unstable();
    assert_eq!(noted, (0..320).collect::<Vec<_>>());
    assert_eq!(device.statistics().refused_posts, 0);
}
