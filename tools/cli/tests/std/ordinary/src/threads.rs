//! What threads do together: each line is the same whatever they do first.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

/// All of it, with `count` threads at a time.
pub fn all(count: usize) {
    spawned(count);
    scoped(count);
    println!("flag {}", flag());
    channels(count);
    waits(count);
    locals(count);
    println!("deep {}", deep(count));
}

/// Threads by `spawn`, in rounds, so that a later one is where another one was.
fn spawned(count: usize) {
    let total = Arc::new(Mutex::new(0));
    for round in 0..3 {
        let threads: Vec<_> = (0..count)
            .map(|i| {
                let total = Arc::clone(&total);
                thread::spawn(move || {
                    *total.lock().unwrap() += i;
                    vec![round; i % 3]
                })
            })
            .collect();
        let lens: usize = threads.into_iter().map(|thread| thread.join().unwrap().len()).sum();
        println!("round {round}: {lens} {}", total.lock().unwrap());
    }
}

/// Threads that borrow from this one's stack, to read and to write.
fn scoped(count: usize) {
    let (read, mut written) = (black_box([42u32; 4]), vec![[0u32; 3]; count]);
    let (boxed, on_stack) = (Box::new([43u32; 4]), Mutex::new([0u64; 2]));
    thread::scope(|scope| {
        for (i, written) in written.iter_mut().enumerate() {
            let (read, boxed, on_stack) = (&read, &boxed, &on_stack);
            scope.spawn(move || {
                let own = black_box([i as u32; 3]);
                *written = [own[0] + read[1], own[1] + boxed[2], own[2]];
                on_stack.lock().unwrap()[i % 2] += u64::from(read[3]);
            });
        }
    });
    let right = written.iter().zip(0..).all(|(&written, i)| written == [i + 42, i + 43, i]);
    println!("borrowed {right} {:?} {read:?}", on_stack.into_inner().unwrap());
    let joined = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || black_box([i; 8]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()[7]).sum::<usize>()
    });
    println!("joined {joined}");
}

/// Counts together with another thread, and waits for it, by variables on this one's stack.
#[inline(never)]
fn flag() -> u32 {
    let (is_done, total) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..1000).for_each(|_| _ = total.fetch_add(1, Ordering::Relaxed));
            is_done.store(true, Ordering::Release);
        });
        (0..1000).for_each(|_| _ = total.fetch_add(1, Ordering::Relaxed));
        while !is_done.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        total.load(Ordering::Relaxed)
    })
}

/// Many senders, rendezvous, and a queue that is full.
fn channels(count: usize) {
    let (sender, receiver) = mpsc::channel();
    let senders: Vec<_> = (0..count)
        .map(|i| {
            let sender = sender.clone();
            thread::spawn(move || (0..10).for_each(|j| sender.send(i * 10 + j).unwrap()))
        })
        .collect();
    drop(sender);
    let mut received: Vec<usize> = receiver.iter().collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    received.sort_unstable();
    println!("sent {} {}", received.len(), received.iter().enumerate().all(|(i, &number)| i == number));
    for room in [0, 2] {
        let (sender, receiver) = mpsc::sync_channel(room);
        let thread = thread::spawn(move || (0..20u64).for_each(|i| sender.send([i; 5]).unwrap()));
        let sum: u64 = receiver.iter().map(|numbers| numbers[4]).sum();
        thread.join().unwrap();
        println!("room for {room}: {sum}");
    }
    let (sender, receiver) = mpsc::channel::<()>();
    let nothing = receiver.recv_timeout(Duration::from_millis(5));
    println!("nothing {}", nothing == Err(RecvTimeoutError::Timeout));
    drop(sender);
}

/// Who waits for a lock, a signal, others, a token, or one that begins.
fn waits(count: usize) {
    let (ready, signal) = (Mutex::new(0), Condvar::new());
    let (barrier, table) = (Barrier::new(count), RwLock::new(vec![0; count]));
    let (leaders, once, first) = (AtomicU32::new(0), Once::new(), OnceLock::new());
    thread::scope(|scope| {
        for i in 0..count {
            let (ready, signal, barrier, table) = (&ready, &signal, &barrier, &table);
            let (leaders, once, first) = (&leaders, &once, &first);
            scope.spawn(move || {
                once.call_once(|| _ = leaders.fetch_add(100, Ordering::Relaxed));
                first.get_or_init(|| vec![7; 3]);
                table.write().unwrap()[i] = i;
                let is_leader = barrier.wait().is_leader();
                leaders.fetch_add(u32::from(is_leader), Ordering::Relaxed);
                assert_eq!(table.read().unwrap().iter().sum::<usize>(), count * (count - 1) / 2);
                *ready.lock().unwrap() += 1;
                signal.notify_one();
            });
        }
        let all = signal.wait_while(ready.lock().unwrap(), |ready| *ready < count).unwrap();
        println!("ready {}", *all == count);
    });
    println!("leaders {} {:?}", leaders.into_inner(), first.get());
    let parked = thread::Builder::new().name("parked".into()).spawn(|| {
        thread::park();
        thread::current().name().map(str::to_owned)
    });
    let parked = parked.unwrap();
    parked.thread().unpark();
    println!("{:?} {:?}", parked.join().unwrap(), thread::current().name());
    thread::park_timeout(Duration::from_millis(2));
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(Cell<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0.get(), Ordering::Relaxed);
    }
}

thread_local!(static OWN: Counted = const { Counted(Cell::new(0)) });

/// Each thread has values of its own, which end with it.
fn locals(count: usize) {
    OWN.with(|own| own.0.set(1000));
    for _ in 0..2 {
        let threads = (0..count).map(|_| {
            thread::spawn(|| {
                let before = OWN.with(|own| own.0.replace(1));
                (before, thread::current().id())
            })
        });
        let mut ids: Vec<_> = threads.map(|thread| thread.join().unwrap()).collect();
        let fresh = ids.iter().all(|(before, _)| *before == 0);
        ids.dedup();
        println!("fresh {fresh} {} dropped {}", ids.len(), DROPPED.load(Ordering::Relaxed));
    }
    println!("own {}", OWN.with(|own| own.0.get()));
}

/// Sums by calls that each have something on the stack.
fn deep(count: usize) -> u64 {
    fn sum(left: u64) -> u64 {
        let own = black_box([left; 16]);
        if left == 0 { 0 } else { own[(left % 16) as usize] + sum(left - 1) }
    }
    let threads: Vec<_> = (0..count.min(4))
        .map(|_| thread::Builder::new().stack_size(512 << 10).spawn(|| sum(200)).unwrap())
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// Threads that all want one lock, `rounds` times each.
pub fn crowd(count: usize, rounds: usize) {
    let (lock, least) = (Mutex::new(0usize), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                for _ in 0..rounds {
                    *lock.lock().unwrap() += 1;
                }
                least.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    println!("{} {}", lock.into_inner().unwrap(), least.into_inner());
}

/// Starts threads until there is no wave for one more.
pub fn too_many() {
    let gate = Arc::new(Barrier::new(3));
    let start = || {
        let gate = Arc::clone(&gate);
        thread::Builder::new().spawn(move || _ = gate.wait())
    };
    let (first, second) = (start().unwrap(), start().unwrap());
    println!("{:?} {:?}", start().map(drop).map_err(|error| error.kind()), thread::available_parallelism());
    gate.wait();
    first.join().unwrap();
    second.join().unwrap();
    println!("{}", thread::spawn(|| 5).join().unwrap());
}
