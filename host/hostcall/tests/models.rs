//! What the host's threads share about streams, under loom's model checker: the reaper's sleep, the threads of host functions, and
//! who asks for a signal while more is submitted. The modules are those of the crate, compiled with loom's atomics and locks.
//!
//! `cargo test -p hostcall --release --test models`
#![allow(dead_code, reason = "the models use a part of what the host does")]

use functions::{Function, HostFunctions, RETRY_AFTER};
use hostcall::device::seam::{BackendError, Queue};
use loom::sync::atomic::AtomicU64;
use loom::thread;
use primitive::{Mutex, Ordering};
use sleep::Sleep;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uses::{Access, Order, Point, Request, Timeline, Uses};

#[path = "../src/device/reaper/functions.rs"]
mod functions;
#[path = "../src/device/reaper/sleep.rs"]
mod sleep;
#[path = "../src/device/uses.rs"]
mod uses;

mod primitive {
    pub use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::sync::{self, MutexGuard};
    use std::time::Duration;

    /// With the faces of hostcall's locks.
    #[derive(Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    #[derive(Default)]
    pub struct Condvar(sync::Condvar);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap()
        }

        pub fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            limit: Duration,
        ) -> (MutexGuard<'a, T>, bool) {
            let (guard, result) = self.0.wait_timeout(guard, limit).unwrap();
            (guard, result.timed_out())
        }
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.max_branches = 10_000;
    builder.check(run);
}

/// A reaper that sleeps for good finds what two threads submit. Loom says so if it never wakes.
#[test]
fn a_reaper_finds_what_is_submitted() {
    model(|| {
        let (sleep, streams) = (Arc::new(Sleep::default()), Arc::new([Mutex::new(0), Mutex::new(0)]));
        let submitters = [0, 1].map(|stream| {
            let (sleep, streams) = (sleep.clone(), streams.clone());
            thread::spawn(move || {
                *streams[stream].lock() += 1;
                sleep.note_work(stream == 1);
            })
        });
        let mut found = 0;
        while found < 2 {
            sleep.begin_look(true);
            found += streams.iter().map(|stream| std::mem::take(&mut *stream.lock())).sum::<u32>();
            if found < 2 {
                sleep.sleep(None);
            }
        }
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    });
}

/// A wake that comes between a look and the sleep, or in the sleep, ends that.
#[test]
fn a_wake_ends_every_sleep() {
    for pause in [None, Some(Duration::from_secs(1))] {
        model(move || {
            let (sleep, is_limited) = (Arc::new(Sleep::default()), Arc::new(Mutex::new(false)));
            let of_waker = (sleep.clone(), is_limited.clone());
            let waker = thread::spawn(move || {
                *of_waker.1.lock() = true;
                of_waker.0.wake();
            });
            loop {
                sleep.begin_look(true);
                if *is_limited.lock() {
                    break;
                }
                sleep.sleep(pause);
            }
            waker.join().unwrap();
        });
    }
}

/// What a stream knows of its signals, with the rule of `stream/submit.rs` for launches whose memory the next one uses too: the
/// last one is signalled before another follows if somebody has asked.
struct Stream {
    wanted: AtomicU64,
    state: Mutex<Submitted>,
}

#[derive(Default)]
struct Submitted {
    last: u64,
    signalled: Vec<u64>,
}

impl Stream {
    fn submit(&self, position: u64) {
        let mut state = self.state.lock();
        let last = state.last;
        if self.wanted.load(Ordering::SeqCst) >= last && last > 0 {
            state.signalled.push(last);
        }
        state.last = position;
        if self.wanted.load(Ordering::SeqCst) >= position {
            state.signalled.push(position);
        }
    }
}

impl Timeline for Stream {
    fn has_reached(&self, _: u64) -> bool {
        false
    }

    fn wait_until(&self, _: u64) {}

    fn ask(&self, position: u64) {
        self.wanted.fetch_max(position, Ordering::SeqCst);
    }

    fn is_signalled(&self, position: u64) -> bool {
        let mut state = self.state.lock();
        if state.last == position {
            state.signalled.push(position);
        }
        state.signalled.contains(&position)
    }

    fn hold_back(&self, _: &dyn Queue, _: u64) -> Result<(), BackendError> {
        Ok(())
    }
}

/// A stream launches twice with the same memory, and the second launch never ends. Who has to wait for the first one alone,
/// since it came between the two, gets a signal of that: it would wait for the second else.
#[test]
fn who_came_between_two_launches_has_a_signal_of_the_first() {
    model(|| {
        let (order, uses) = (Arc::new(Order::default()), Arc::new(Uses::default()));
        let stream = Arc::new(Stream { wanted: AtomicU64::new(0), state: Mutex::default() });
        let other = Arc::new(Stream { wanted: AtomicU64::new(0), state: Mutex::default() });
        let at = |stream: &Arc<Stream>, position| {
            let timeline: Arc<dyn Timeline> = stream.clone();
            Point { timeline: Arc::downgrade(&timeline) as Weak<dyn Timeline>, position }
        };
        let of_asker = (order.clone(), uses.clone(), stream.clone(), at(&other, 1));
        let asker = thread::spawn(move || {
            let (order, uses, stream, own) = of_asker;
            let before = order.enter(&own, &[Request { uses: &uses, access: Access::Write, bytes: 0..8 }]);
            before
                .iter()
                .map(|point| (point.position, stream.is_signalled(point.position)))
                .collect::<Vec<_>>()
        });
        for position in [1, 2] {
            order
                .enter(&at(&stream, position), &[Request { uses: &uses, access: Access::Read, bytes: 0..8 }]);
            stream.submit(position);
        }
        let waits_for = asker.join().unwrap();
        // What was not signalled when it was asked for is by now, as it was to be when its turn came.
        let signalled = &stream.state.lock().signalled;
        for (position, was_signalled) in waits_for {
            assert!(was_signalled || signalled.contains(&position), "nobody learns when {position} ends");
        }
        drop(other);
    });
}

/// Of a copy of the host's and work that conflicts with it, one waits for the other, unless the copy is over before; and who
/// waits for the copy goes on. Loom says so if it never does.
#[test]
fn a_copy_of_the_hosts_and_work_follow_each_other() {
    model(|| {
        let (order, uses) = (Arc::new(Order::default()), Arc::new(Uses::default()));
        let stream = Arc::new(Stream { wanted: AtomicU64::new(0), state: Mutex::default() });
        let of_copier = (order.clone(), uses.clone());
        let copier = thread::spawn(move || {
            let (order, uses) = of_copier;
            let mut waits_for = 0;
            let may_wait = |before: Vec<Point>| {
                waits_for = before.len();
                Ok::<(), ()>(())
            };
            let request = Request { uses: &uses, access: Access::Write, bytes: 0..8 };
            order.host_copy(&request, may_wait, || ()).unwrap();
            waits_for
        });
        let timeline: Arc<dyn Timeline> = stream.clone();
        let own = Point { timeline: Arc::downgrade(&timeline), position: 1 };
        let before = order.enter(&own, &[Request { uses: &uses, access: Access::Write, bytes: 0..8 }]);
        before.iter().for_each(Point::wait);
        assert!(before.iter().all(Point::is_reached));
        assert!(before.len() + copier.join().unwrap() <= 1);
    });
}

/// A device's functions: a thread for each that needs one.
fn add(functions: &Arc<HostFunctions>, function: Function) -> Option<thread::JoinHandle<()>> {
    let of_thread = functions.clone();
    functions.add(function).then(|| thread::spawn(move || of_thread.work()))
}

/// A host function may wait for one that was given later, by whatever thread. Loom says so if that never runs.
#[test]
fn a_host_function_waits_for_a_later_one() {
    model(|| {
        let functions = Arc::new(HostFunctions::default());
        let called = Arc::new((Mutex::new(false), primitive::Condvar::new()));
        let (waits, calls) = (called.clone(), called);
        let first = add(
            &functions,
            Box::new(move || {
                let mut is_called = waits.0.lock();
                while !*is_called {
                    is_called = waits.1.wait(is_called);
                }
            }),
        );
        let call: Function = Box::new(move || {
            *calls.0.lock() = true;
            calls.1.notify_all();
        });
        let second = add(&functions, call);
        functions.stop();
        first.into_iter().chain(second).for_each(|thread| thread.join().unwrap());
    });
}

/// Without a thread for it, a function is done by another thread or by the reaper, which is woken then.
#[test]
fn functions_without_threads_are_done() {
    model(|| {
        let (functions, reaper) = (Arc::new(HostFunctions::default()), Arc::new(Sleep::default()));
        let done = Arc::new(Mutex::new(0));
        let count = |done: &Arc<Mutex<u32>>| -> Function {
            let done = done.clone();
            Box::new(move || *done.lock() += 1)
        };
        let (of_first, of_second) = (count(&done), count(&done));
        let (functions_there, reaper_there) = (functions.clone(), reaper.clone());
        let adder = thread::spawn(move || {
            // The system has a thread for the first, and none for the second.
            let worker = add(&functions_there, of_first);
            if functions_there.add(of_second) {
                let _ = functions_there.has_not_started();
                reaper_there.wake();
            }
            functions_there.stop();
            worker.unwrap().join().unwrap();
            reaper_there.wake();
        });
        loop {
            reaper.begin_look(true);
            while let Some(function) = functions.take_without_threads() {
                function();
            }
            if *done.lock() == 2 {
                break;
            }
            reaper.sleep(None);
        }
        adder.join().unwrap();
    });
}

/// A function waits for one for which the system had no thread. Once it has one, the reaper starts it; loom says so if nobody does.
#[test]
fn a_thread_that_was_refused_is_tried_again() {
    model(|| {
        let (functions, reaper) = (Arc::new(HostFunctions::default()), Arc::new(Sleep::default()));
        let called = Arc::new((Mutex::new(false), primitive::Condvar::new()));
        let (waits, calls) = (called.clone(), called);
        let first: Function = Box::new(move || {
            let mut is_called = waits.0.lock();
            while !*is_called {
                is_called = waits.1.wait(is_called);
            }
        });
        let second: Function = Box::new(move || {
            *calls.0.lock() = true;
            calls.1.notify_all();
        });
        let (functions_there, reaper_there) = (functions.clone(), reaper.clone());
        let adder = thread::spawn(move || {
            let worker = add(&functions_there, first);
            if functions_there.add(second) {
                assert_eq!(functions_there.has_not_started(), Some(1));
                reaper_there.wake();
            }
            functions_there.stop();
            worker.unwrap().join().unwrap();
        });
        let later = Instant::now() + 2 * RETRY_AFTER;
        let mut worker = None;
        while worker.is_none() {
            reaper.begin_look(true);
            if functions.needs_thread_still(later) {
                let of_thread = functions.clone();
                worker = Some(thread::spawn(move || of_thread.work()));
                break;
            }
            assert!(functions.take_without_threads().is_none());
            reaper.sleep(None);
        }
        worker.into_iter().chain([adder]).for_each(|thread| thread.join().unwrap());
    });
}
