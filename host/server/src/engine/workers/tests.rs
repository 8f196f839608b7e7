use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

struct Each<F>(F);

impl<F: Fn() + Send + Sync> Work for Each<F> {
    fn run_next(self: Arc<Self>) {
        self.0();
    }

    fn is_wanted(&self) -> bool {
        true
    }
}

/// Processors of machines on which no thread looks for work, and on which some do.
const PROCESSORS: [usize; 3] = [1, 2, 16];

/// A pool and a thread that lets it grow.
fn pool(limits: Limits) -> Arc<Pool> {
    let (hungry, looks) = mpsc::channel();
    let hungry = Mutex::new(hungry);
    let pool = Pool::new("test-worker", ThreadSetup::default(), limits, move || {
        let _ = hungry.lock().send(());
    });
    let grown = Arc::downgrade(&pool);
    std::thread::spawn(move || {
        while looks.recv().is_ok() {
            while let Some(next) = grown.upgrade().and_then(|pool| pool.grow(Instant::now())) {
                std::thread::sleep(next - Instant::now());
            }
        }
    });
    pool
}

#[test]
fn a_thread_that_does_not_start_is_not_said_to_run() {
    let limits = Limits { stack_bytes: 1 << 60, ..Limits::default() };
    let pool = Pool::new("test-worker", ThreadSetup::default(), limits, || ());
    pool.submit(Arc::new(Each(|| ())), 1);
    // The first look may only ask for another one.
    (0..3).for_each(|_| _ = pool.grow(Instant::now()));
    let load = pool.load();
    assert_eq!((load.threads, load.waiting), (0, 1));
    let error = std::io::Error::other(load.refused.unwrap());
    assert!(refused(&error, load.threads, "test-worker").ends_with("handlers wait until it does"));
    assert!(
        refused(&error, 1, "test-worker").ends_with("1 thread test-worker goes on, and handlers wait for it")
    );
    assert!(refused(&error, 2, "test-worker").contains("2 threads test-worker go on"));
}

#[test]
fn unwanted_work_is_dropped_under_no_lock() {
    struct Unwanted(Arc<Pool>);
    impl Work for Unwanted {
        fn run_next(self: Arc<Self>) {}

        fn is_wanted(&self) -> bool {
            false
        }
    }
    impl Drop for Unwanted {
        fn drop(&mut self) {
            self.0.load();
        }
    }
    let pool = Pool::new("test-worker", ThreadSetup::default(), Limits::default(), || ());
    for _ in 0..=PURGE_AFTER {
        pool.submit(Arc::new(Unwanted(pool.clone())), 1);
    }
    assert_eq!(pool.load().waiting, 0);
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn handlers_that_wait_for_each_other_all_get_a_thread() {
    for processors in PROCESSORS {
        let pool = pool(Limits { idle: Duration::from_millis(1), processors, ..Limits::default() });
        for pieces in [2, 70, 700] {
            let (met, done) = (Arc::new(Barrier::new(pieces + 1)), Arc::new(AtomicUsize::new(0)));
            let (with, counted) = (met.clone(), done.clone());
            pool.submit(
                Arc::new(Each(move || {
                    with.wait();
                    counted.fetch_add(1, Ordering::Relaxed);
                })),
                pieces,
            );
            met.wait();
            wait_until(|| done.load(Ordering::Relaxed) == pieces);
        }
        // Idle threads end.
        wait_until(|| pool.load().threads == 0);
    }
}

/// Each piece waits until the one after it runs, whichever thread looks, sleeps or is being woken when it comes.
#[test]
fn no_piece_is_overlooked() {
    for (processors, busy) in PROCESSORS.into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let pool = pool(Limits { processors, busy, ..Limits::default() });
        for round in 0..400u64 {
            let (met, done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
            for _ in 0..2 {
                let (with, counted) = (met.clone(), done.clone());
                let work = Each(move || {
                    with.wait();
                    counted.fetch_add(1, Ordering::Relaxed);
                });
                pool.submit(Arc::new(work), 1);
                // From no time to twice as long as a thread looks.
                let begun = Instant::now();
                while begun.elapsed() < LOOKS_FOR * (round % 8) as u32 / 4 {}
            }
            wait_until(|| done.load(Ordering::Relaxed) == 2);
        }
    }
}

#[test]
fn a_pool_that_is_not_eager_gives_a_thread_to_each_that_waits() {
    let pool = pool(Limits { busy: true, processors: 16, ..Limits::default() });
    // The second time the threads are there, and asleep.
    for _ in 0..2 {
        let (met, done) = (Arc::new(Barrier::new(101)), Arc::new(AtomicUsize::new(0)));
        let (with, counted) = (met.clone(), done.clone());
        let work = Arc::new(Each(move || {
            with.wait();
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        for _ in 0..100 {
            pool.submit(work.clone(), 1);
        }
        met.wait();
        wait_until(|| done.load(Ordering::Relaxed) == 100 && pool.load().waiting == 0);
        wait_until(|| {
            let state = pool.state.lock();
            state.idle == state.threads && state.woken == 0
        });
    }
    // One that waits does not keep others waiting for ever.
    let (met, done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..2 {
        let (with, counted) = (met.clone(), done.clone());
        let work = Each(move || {
            with.wait();
            counted.fetch_add(1, Ordering::Relaxed);
        });
        pool.submit(Arc::new(work), 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    wait_until(|| done.load(Ordering::Relaxed) == 2);
}

#[test]
fn a_pool_is_eager_while_its_handlers_are_not_quick() {
    let (waits, busy) = (pool(Limits::default()), pool(Limits { busy: true, ..Limits::default() }));
    let mut state = State::default();
    assert!(!waits.is_eager(&state), "nobody knows yet");
    (0..8).for_each(|_| state.note_done(QUICK_NS + 1));
    assert!(waits.is_eager(&state) && !busy.is_eager(&state));
    // One in eight waits.
    for _ in 0..16 {
        (0..7).for_each(|_| state.note_done(QUICK_NS));
        state.note_done(QUICK_NS + 1);
    }
    assert!(!waits.is_eager(&state));
}

#[test]
fn at_the_limit_work_waits_and_is_told() {
    let pool = pool(Limits { threads: 3, ..Limits::default() });
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let work = Arc::new(Each(move || {
        let _ = gate.lock().recv();
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    pool.submit(work, 10);
    wait_until(|| pool.load() == Load { threads: 3, waiting: 7, refused: None });
    for _ in 0..10 {
        go.send(()).unwrap();
    }
    wait_until(|| done.load(Ordering::Relaxed) == 10);
}

#[test]
fn a_thread_that_was_woken_is_not_idle() {
    for _ in 0..50 {
        let pool = pool(Limits { processors: 16, ..Limits::default() });
        pool.submit(Arc::new(Each(|| ())), 1);
        wait_until(|| {
            let state = pool.state.lock();
            state.done == 1 && state.idle == state.threads
        });
        let pieces = pool.load().threads + 1;
        let (met, done) = (Arc::new(Barrier::new(pieces)), Arc::new(AtomicUsize::new(0)));
        let counted = done.clone();
        let work = Arc::new(Each(move || {
            met.wait();
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        // The last comes before the idle threads have taken those before it.
        for _ in 0..pieces {
            pool.submit(work.clone(), 1);
        }
        wait_until(|| done.load(Ordering::Relaxed) == pieces);
    }
}

#[test]
fn handlers_that_return_share_few_threads_and_panics_end_none() {
    let pool = pool(Limits::default());
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let work = Arc::new(Each(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any(super::super::caught::tests::PanicsInDrop(1));
    }));
    std::panic::set_hook(Box::new(|_| ()));
    pool.submit(work, 3000);
    wait_until(|| done.load(Ordering::Relaxed) == 3000);
    let _ = std::panic::take_hook();
    assert!(pool.load().threads <= MOVING_THREADS);
}

#[test]
fn stopping_waits_for_no_handler() {
    let pool = pool(Limits { threads: 1, ..Limits::default() });
    let (_go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let work = Arc::new(Each(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let _ = gate.lock().recv();
    }));
    pool.submit(work.clone(), 5);
    wait_until(|| begun.load(Ordering::Relaxed) == 1);
    pool.stop();
    pool.submit(work, 5);
    assert_eq!(pool.load().waiting, 0);
}
