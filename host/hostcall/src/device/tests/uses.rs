//! Work in order by the memory that it uses. Not in `uses.rs`, which `tests/models.rs` compiles with other locks.

use crate::device::uses::*;
use hostcall_locks::{Condvar, Mutex};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A stream whose work ends when the test says so.
#[derive(Default)]
struct Fake(Mutex<u64>, Condvar);

impl Fake {
    fn finish(&self, position: u64) {
        *self.0.lock() = position;
        self.1.notify_all();
    }
}

impl Timeline for Fake {
    fn has_reached(&self, position: u64) -> bool {
        *self.0.lock() >= position
    }

    fn wait_until(&self, position: u64) {
        drop(self.1.wait_while(self.0.lock(), |reached| *reached < position));
    }
}

fn fakes() -> [Arc<Fake>; 2] {
    Default::default()
}

fn at(fake: &Arc<Fake>, position: u64) -> Point {
    let fake: Arc<dyn Timeline> = fake.clone();
    Point { timeline: Arc::downgrade(&fake), position }
}

fn request(uses: &Uses, access: Access, bytes: Range<usize>) -> Request<'_> {
    Request { uses, access, bytes }
}

/// Nobody waits for who waits.
fn may_wait(_: Vec<Point>) -> Result<(), ()> {
    Ok(())
}

#[test]
fn only_conflicts_of_other_streams_are_waited_for() {
    use Access::*;
    for (first, second, waits) in [
        (Read, Read, false),
        (Shared, Shared, false),
        (Write, Write, true),
        (Read, Shared, true),
        (Shared, Read, true),
        (Write, Read, true),
        (Shared, Write, true),
    ] {
        let (order, uses, [a, b]) = (Order::default(), Uses::default(), fakes());
        assert!(order.enter(&at(&a, 1), &[request(&uses, first, 0..8)]).is_empty());
        assert!(order.enter(&at(&a, 2), &[request(&uses, first, 0..8)]).is_empty());
        let before = order.enter(&at(&b, 1), &[request(&uses, second, 4..12)]);
        assert_eq!(
            before.iter().map(|point| point.position).collect::<Vec<_>>(),
            vec![2; usize::from(waits)]
        );
        // Parts that lie apart do not conflict, nor does what has ended.
        assert!(order.enter(&at(&b, 2), &[request(&uses, second, 12..16)]).is_empty());
        a.finish(2);
        b.finish(2);
        assert!(order.enter(&at(&b, 3), &[request(&uses, Write, 0..16)]).is_empty());
    }
}

#[test]
fn a_list_stays_short() {
    let (order, uses, [a, b]) = (Order::default(), Uses::default(), fakes());
    let last = if cfg!(miri) { 200 } else { 10_000 };
    let bytes = |position: u64| position as usize * 16..position as usize * 16 + 8;
    for position in 1..=last {
        order.enter(&at(&a, position), &[request(&uses, Access::Read, bytes(position))]);
    }
    assert!(uses.listed.lock().work.len() <= MOST_USES);
    let before = order.enter(&at(&b, 1), &[request(&uses, Access::Write, bytes(last))]);
    assert_eq!(before[0].position, last);
    // What was listed first is waited for alone.
    let before = order.enter(&at(&b, 2), &[request(&uses, Access::Write, bytes(1))]);
    assert_eq!(before[0].position, 1);
}

#[test]
fn a_copy_of_the_hosts_waits_and_is_waited_for() {
    let (order, uses, [a, b]) = (Order::default(), Uses::default(), fakes());
    order.enter(&at(&a, 1), &[request(&uses, Access::Shared, 0..8)]);
    assert_eq!(order.host_copy_now(&request(&uses, Access::Write, 0..8), || ()), None);
    assert_eq!(order.host_copy_now(&request(&uses, Access::Shared, 0..8), || ()), Some(()));
    let copied = AtomicBool::new(false);
    let (inside, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let (inside, go_on, copied, order, uses) = (&inside, &go_on, &copied, &order, &uses);
        scope.spawn(move || {
            let copy = || {
                inside.wait();
                go_on.wait();
                copied.store(true, Ordering::Relaxed);
            };
            order.host_copy(&request(uses, Access::Write, 0..8), may_wait, copy).unwrap();
        });
        a.finish(1);
        inside.wait();
        let before = order.enter(&at(&b, 1), &[request(uses, Access::Read, 0..4)]);
        assert!(before.len() == 1 && !before[0].is_reached());
        go_on.wait();
        before[0].wait();
        assert!(copied.load(Ordering::Relaxed) && before[0].is_reached());
    });
}

/// Who copies waits for what was entered before it, and what is entered meanwhile waits for the copy.
#[test]
fn a_copy_of_the_hosts_does_not_wait_for_what_is_entered_meanwhile() {
    let (order, uses, [a, b]) = (Order::default(), Uses::default(), fakes());
    order.enter(&at(&a, 1), &[request(&uses, Access::Write, 0..8)]);
    let asked = std::sync::Barrier::new(2);
    let copied = std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            let may_wait = |before: Vec<Point>| {
                asked.wait();
                assert_eq!(before.len(), 1);
                Ok::<_, ()>(())
            };
            order.host_copy(&request(&uses, Access::Read, 0..8), may_wait, || ())
        });
        asked.wait();
        let before = order.enter(&at(&b, 1), &[request(&uses, Access::Write, 0..8)]);
        assert_eq!(before.len(), 2);
        assert!(before.iter().all(|point| !point.is_reached()));
        // The second stream's work has not ended, and need not.
        a.finish(1);
        copy.join().unwrap()
    });
    assert_eq!(copied, Ok(()));
}

/// A copy that panics does not keep others waiting.
#[test]
fn a_copy_that_panics_is_over() {
    let (order, uses) = (Order::default(), Uses::default());
    let request = request(&uses, Access::Write, 0..8);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        order.host_copy(&request, may_wait, || panic!("in the middle"))
    }));
    assert!(panicked.is_err());
    assert_eq!(order.host_copy(&request, may_wait, || 1), Ok(1));
}
