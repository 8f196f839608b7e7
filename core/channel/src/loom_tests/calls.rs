//! Calls, their answers, and what ends them.

use super::*;

/// Calls in a row, each answered once and with its own answer, while every lap comes round twice.
#[test]
fn calls_in_a_row() {
    model(3, || {
        let (device, mut host) = ends(1);
        let shapes = [(1, 1), (0, 0), (1, 1), (1, 1), (1, 1)];
        let calls = thread::spawn(move || {
            for (i, (arguments, results)) in (0..).zip(shapes) {
                device.call(doorbell(1, arguments, results), i << 63 | i);
            }
        });
        for _ in shapes {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// Packets of changing shapes use the same words in different places and laps.
#[test]
fn calls_of_changing_shapes() {
    model(2, || {
        let (device, mut host) = ends(2);
        let shapes = [(2, 1, 1), (1, 3, 2), (2, 0, 3), (2, 2, 0)];
        let calls = thread::spawn(move || {
            for (seed, (lanes, arguments, results)) in (7..).zip(shapes) {
                device.call(doorbell(lanes, arguments, results), seed);
            }
        });
        for _ in shapes {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// A doorbell that is rung again is still one call.
#[test]
fn ringing_again_is_no_second_call() {
    model(3, || {
        let (device, mut host) = ends(1);
        let calls = thread::spawn(move || {
            let bell = doorbell(1, 1, 1);
            for seed in [4, 5] {
                let laps = device.slot().laps(device.slot().glance(), &bell, 0);
                let again = || {
                    device.slot().ring_again(&bell, laps);
                    false
                };
                check(bell, seed, &device.call_unless(bell, seed, again).unwrap());
            }
        });
        for _ in 0..2 {
            let answer = host.next_call();
            host.answer(answer);
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// Answers from other threads, while the scanner looks on. What such a thread did comes before the slot's next
/// call.
#[test]
fn detached_answers() {
    model(2, || {
        let (device, mut host) = ends(1);
        let calls = thread::spawn(move || {
            device.call(doorbell(1, 1, 1), 10);
            device.call(doorbell(1, 1, 1), 11);
            let lines = device.call_unless(doorbell(1, 1, 1), 12, || false).unwrap();
            assert_eq!(Status::from_bits(lines[0].tag), Status::Error(CallError::Cancelled));
            device.call(doorbell(1, 1, 1), 13);
        });
        let mut early = None;
        let done = Arc::new(Owned::new(0));
        for seed in 10..14 {
            let answer = early.take().unwrap_or_else(|| host.next_call());
            assert_eq!(host.batch.lines().words(0)[0], seed);
            // SAFETY: loom checks that no answering thread writes meanwhile.
            assert_eq!(unsafe { done.get() }, (seed - 9) / 2);
            if seed % 2 == 1 {
                host.answer(answer);
                continue;
            }
            let mut detached = host.scanner.detach(&host.memory, answer);
            let done = done.clone();
            let answers = thread::spawn(move || {
                // SAFETY: loom checks that the scanner does not read meanwhile.
                unsafe { done.set(done.get() + 1) };
                if seed == 10 {
                    detached.lane(0, Status::Ok, &[!seed]);
                }
            });
            assert!(early.is_none());
            early = host.look();
            answers.join().unwrap();
        }
        calls.join().unwrap();
        assert!(!host.rung());
    });
}

/// A device that calls again before it has its answer waits until the other thread has answered.
#[test]
fn a_hostile_call_waits_for_a_detached_answer() {
    model(3, || {
        let (device, mut host) = ends(1);
        let bell = doorbell(1, 0, 0);
        device.slot().ring(&bell, device.slot().laps(device.slot().glance(), &bell, 0), 0);
        device.slot().flip_laps(&bell, 0);
        let answer = host.next_call();
        let detached = host.scanner.detach(&host.memory, answer);
        let laps = device.slot().laps(device.slot().glance(), &bell, 0);
        device.slot().ring(&bell, laps, 0);
        device.slot().flip_laps(&bell, 0);
        let answers = thread::spawn(move || drop(detached));
        let early = host.look().is_some();
        if early {
            let reply = host.memory.region().places().reply(0);
            assert!(lap_of(host.memory.region().word(reply).load(Ordering::Relaxed)));
        }
        answers.join().unwrap();
        assert!(early || host.look().is_some());
    });
}

/// Whenever the server stops, answered calls have their answers and the one that waits gives up.
#[test]
fn stop() {
    for answered in 0..3 {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                let mut seed = 30;
                let stopped = || device.slot().words().stopped();
                while let Some(lines) = device.call_unless(doorbell(1, 1, 1), seed, stopped) {
                    check(doorbell(1, 1, 1), seed, &lines);
                    seed += 1;
                }
                seed - 30
            });
            for _ in 0..answered {
                let answer = host.next_call();
                host.answer(answer);
            }
            host.memory.region().stop();
            let late = host.look().map(|answer| host.answer(answer)).is_some();
            assert!(calls.join().unwrap() <= answered + u64::from(late));
        });
    }
}

/// A cancelled launch's wave gives up waiting; that of another launch is answered.
#[test]
fn cancel() {
    for cancelled in [LAUNCH, LaunchId::new(6, 1)] {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                let bell = doorbell(1, 1, 1);
                let lines = device.call_unless(bell, 40, || device.slot().words().cancelled(LAUNCH));
                lines.map(|lines| check(bell, 40, &lines)).is_some()
            });
            host.memory.region().set_cancelled(cancelled, true);
            if cancelled != LAUNCH {
                let answer = host.next_call();
                host.answer(answer);
            }
            assert_eq!(calls.join().unwrap(), cancelled != LAUNCH);
        });
    }
}
