//! What consumers share with other threads, under loom's model checker: the sleep of a consumer, and the answers to a call
//! that left it. The modules are those of the server, compiled with loom's atomics and locks.
//!
//! `cargo test -p hostcall-server --release --test models`
#![allow(dead_code, reason = "the models use a part of what the server does")]

use answers::{Answers, PacketAnswer};
use attention::{Attention, Endpoint};
use calls::{Call, Calls};
use hostcall_abi::launch::LaunchId;
use loom::sync::Notify;
use loom::thread;
use primitive::{AtomicBool, AtomicU64, Mutex, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

#[path = "../src/engine/answers.rs"]
mod answers;
#[path = "../src/engine/attention.rs"]
mod attention;
#[path = "../src/engine/calls.rs"]
mod calls;

/// Loom's, with the faces of those that the server uses.
mod primitive {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub use loom::thread::{Thread, current};
    use std::ops::{Deref, DerefMut};
    use std::sync;
    use std::time::Duration;

    /// Loom's own has a `try_lock` that waits.
    pub struct Mutex<T> {
        is_locked: AtomicBool,
        /// Whoever has set `is_locked` has it.
        value: sync::Mutex<T>,
        /// For those who wait.
        waits: loom::sync::Mutex<()>,
        released: loom::sync::Condvar,
    }

    pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>, &'a Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            let (waits, released) = (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
            Self { is_locked: AtomicBool::new(false), value: sync::Mutex::new(value), waits, released }
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            loop {
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
                let waits = self.waits.lock().unwrap();
                if self.is_locked.load(Ordering::Relaxed) {
                    drop(self.released.wait(waits));
                }
            }
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let lock = self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            lock.is_ok().then(|| MutexGuard(self.value.try_lock().ok(), self))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("one thread has the lock")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("one thread has the lock")
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.0 = None;
            self.1.is_locked.store(false, Ordering::Release);
            drop(self.1.waits.lock());
            self.1.released.notify_all();
        }
    }

    /// A sleep of no time is over at once, and any other one lasts until somebody ends it.
    pub fn park_timeout(time: Duration) {
        if time.is_zero() { loom::thread::yield_now() } else { loom::thread::park() }
    }
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// A consumer whose only place is one word.
struct Place(Arc<AtomicBool>);

impl Endpoint for Place {
    fn attend(&mut self) -> bool {
        true
    }

    fn pass(&mut self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn sweep(&mut self, _: bool) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        false
    }

    /// What was rung before the first sleep comes without a hint: that sleep is short.
    fn longest_sleep(&mut self, _: Duration, again: bool) -> Duration {
        if again { Duration::MAX } else { Duration::ZERO }
    }
}

/// Has a consumer sleep while another thread rings or calls.
fn asleep(ring: impl Fn(&Attention, &AtomicBool) + Sync + Send + Clone + 'static, finds_work: bool) {
    model(3, move || {
        let (attention, rang) = (Arc::new(Attention::default()), Arc::new(AtomicBool::new(false)));
        let (of_ringer, ring) = ((attention.clone(), rang.clone()), ring.clone());
        attention.begin();
        let ringer = thread::spawn(move || ring(&of_ringer.0, &of_ringer.1));
        let worked = attention.sleep(&mut Place(rang), 0, Instant::now());
        assert_eq!(worked, finds_work);
        ringer.join().unwrap();
    });
}

#[test]
fn a_consumer_that_sleeps_finds_what_rang() {
    asleep(
        |attention, rang| {
            // A hint of what somebody else has found: the consumer is to be woken again.
            attention.wake();
            rang.store(true, Ordering::Relaxed);
            primitive::fence(Ordering::SeqCst);
            attention.wake();
        },
        true,
    );
}

#[test]
fn a_consumer_that_sleeps_is_woken_by_a_call() {
    asleep(|attention, _| attention.call(), false);
}

/// The answers that lanes got: how often each, and of which kind.
#[derive(Default)]
struct Got {
    handled: [AtomicU64; 2],
    given_up: AtomicU64,
    told: AtomicU64,
}

struct Lanes(Arc<Got>);

impl PacketAnswer for Lanes {
    fn give_up(&mut self, lanes: u32) {
        self.0.given_up.fetch_add(lanes.into(), Ordering::Relaxed);
    }
}

impl answers::Notify for Arc<Got> {
    fn answered(&self, is_last: bool) {
        self.told.fetch_add(u64::from(is_last), Ordering::Relaxed);
    }
}

/// A call of two lanes.
struct Ticket {
    answers: Answers<Lanes, Arc<Got>>,
    got: Arc<Got>,
}

impl Ticket {
    fn new() -> Arc<Self> {
        let got = Arc::<Got>::default();
        Arc::new(Self { answers: Answers::new(2, Lanes(got.clone()), got.clone()), got })
    }

    fn finish(&self, rank: u32) {
        self.answers
            .give(rank, |Lanes(got), _| _ = got.handled[rank as usize].fetch_add(1, Ordering::Relaxed));
    }

    /// Asserts that both lanes have one answer each.
    fn assert_answered(&self) {
        let [first, second] = [0, 1].map(|rank: usize| self.got.handled[rank].load(Ordering::Relaxed));
        assert!(first <= 1 && second <= 1);
        assert_eq!(first + second + self.got.given_up.load(Ordering::Relaxed), 2);
        assert_eq!(self.got.told.load(Ordering::Relaxed), 1);
        assert_eq!(self.answers.open(), 0);
    }
}

impl Call for Ticket {
    fn is_open(&self) -> bool {
        self.answers.open() != 0
    }

    fn launch(&self) -> LaunchId {
        LaunchId::NONE
    }
}

/// The handler of one lane, the deadline of the other, and a cancellation that waits for nobody race.
#[test]
fn each_lane_is_answered_once() {
    model(2, || {
        let ticket = Ticket::new();
        let [handler, watchdog] = [0, 1].map(|_| ticket.clone());
        let handles = thread::spawn(move || handler.finish(0));
        let expires = thread::spawn(move || {
            let give = |Lanes(got): &mut Lanes, _| _ = got.handled[1].fetch_add(1, Ordering::Relaxed);
            watchdog.answers.try_give(1, give);
        });
        ticket.answers.give_up_soon();
        handles.join().unwrap();
        expires.join().unwrap();
        ticket.assert_answered();
    });
}

/// A consumer hands a call on while its launch is cancelled: it notes the call and then looks at the mark, and whoever
/// cancels sets the mark and then looks for calls.
#[test]
fn a_call_is_cancelled_by_its_consumer_or_by_who_cancels() {
    model(3, || {
        let calls = Arc::new(Mutex::new(Calls::<Ticket>::new(0)));
        let is_live = Arc::new(AtomicBool::new(true));
        let of_canceller = (calls.clone(), is_live.clone());
        let cancels = thread::spawn(move || {
            let (calls, is_live) = of_canceller;
            is_live.store(false, Ordering::Relaxed);
            let found = calls.lock().of(|_| true);
            found.iter().for_each(|call| call.answers.give_up_soon());
        });
        let (ticket, mut looked_at) = (Ticket::new(), Vec::new());
        calls.lock().add(Arc::downgrade(&ticket), LaunchId::NONE, &mut looked_at);
        if !is_live.load(Ordering::Relaxed) {
            ticket.answers.give_up();
        }
        cancels.join().unwrap();
        ticket.assert_answered();
    });
}

/// A copy does not end before the consumer has noted another call and the watchdog has looked at all: were one of them to
/// wait for it, this would not end.
#[test]
fn nobody_waits_for_a_copy() {
    model(2, || {
        let (calls, ticket) = (Arc::new(Mutex::new(Calls::<Ticket>::new(0))), Ticket::new());
        calls.lock().add(Arc::downgrade(&ticket), LaunchId::NONE, &mut Vec::new());
        let (goes_on, copies) = (Arc::new(Notify::new()), ticket.clone());
        let told = goes_on.clone();
        let handler = thread::spawn(move || {
            copies.answers.give(0, |Lanes(got), _| {
                told.wait();
                got.handled[0].fetch_add(1, Ordering::Relaxed);
            });
        });
        let (next, mut looked_at) = (Ticket::new(), Vec::new());
        calls.lock().add(Arc::downgrade(&next), LaunchId::NONE, &mut looked_at);
        calls.lock().look(&mut looked_at, |call, _| {
            let _ =
                call.answers.try_give(1, |Lanes(got), _| _ = got.handled[1].fetch_add(1, Ordering::Relaxed));
        });
        calls.lock().of(|_| true).iter().for_each(|call| call.answers.give_up_soon());
        goes_on.notify();
        handler.join().unwrap();
        ticket.assert_answered();
        next.assert_answered();
    });
}

struct Wakes(Notify);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A batch's future waits until no lane waits, while one lane is answered by its handler and the rest by a cancellation.
#[test]
fn a_future_learns_that_all_lanes_are_answered() {
    model(2, || {
        let ticket = Ticket::new();
        let [handler, canceller] = [0, 1].map(|_| ticket.clone());
        let handles = thread::spawn(move || {
            handler.answers.give_many(1, |Lanes(got), ranks, _| {
                assert_eq!(ranks, 1);
                got.handled[0].fetch_add(1, Ordering::Relaxed);
            });
        });
        let cancels = thread::spawn(move || canceller.answers.give_up_soon());
        let wakes = Arc::new(Wakes(Notify::new()));
        let waker = wakes.clone().into();
        let mut context = Context::from_waker(&waker);
        while ticket.answers.poll_all_answered(&mut context) == Poll::Pending {
            wakes.0.wait();
        }
        handles.join().unwrap();
        cancels.join().unwrap();
        ticket.assert_answered();
    });
}

/// A future that waits for its lane's answer sees it, or is woken.
#[test]
fn a_future_learns_that_its_lane_is_answered() {
    model(3, || {
        let ticket = Ticket::new();
        let canceller = ticket.clone();
        let cancels = thread::spawn(move || canceller.answers.give_up_soon());
        let wakes = Arc::new(Wakes(Notify::new()));
        let waker = wakes.clone().into();
        let mut context = Context::from_waker(&waker);
        while ticket.answers.poll_answered(0, &mut context) == Poll::Pending {
            wakes.0.wait();
        }
        cancels.join().unwrap();
        ticket.assert_answered();
    });
}
