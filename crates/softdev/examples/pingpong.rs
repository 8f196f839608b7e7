//! How long a lane's `wait` takes to see what another thread wrote, against two plain threads in the same run.

use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};
use hostcall_abi::launch::LaunchParams;
use hostcall_softdev::{Config, Executor, Launch};
use std::ffi::c_void;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const ROUNDS: u64 = 1_000_000;
/// Rounds that are timed together. The best batch counts: in others one of the threads was interrupted.
const BATCH: u64 = 1000;

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicU64);

#[derive(Default)]
struct Table {
    to: Padded,
    back: Padded,
}

struct Expected<'a>(&'a AtomicU64, u64);

unsafe extern "C" fn poll(expected: *mut c_void) -> bool {
    // SAFETY: `kernel` passes an `Expected` to `wait`.
    let expected = unsafe { &*expected.cast::<Expected>() };
    expected.0.load(Relaxed) == expected.1
}

unsafe extern "C" fn kernel(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with the address of a table.
    let table = unsafe { &**arguments.cast::<*const Table>() };
    for round in 1..=ROUNDS {
        table.to.0.store(round, Relaxed);
        let mut expected = Expected(&table.back.0, round);
        // SAFETY: the lane that runs, and a poll with its data.
        unsafe { ((*(*lane).operations).wait)(lane, poll, (&raw mut expected).cast()) };
    }
    ENTRY_DONE
}

/// Answers every round; nanoseconds of one.
fn answer(table: &Table) -> f64 {
    let mut best = f64::INFINITY;
    let mut start = Instant::now();
    for round in 1..=ROUNDS {
        if round % BATCH == 0 {
            best = best.min(start.elapsed().as_nanos() as f64 / BATCH as f64);
            start = Instant::now();
        }
        while table.to.0.load(Relaxed) != round {
            spin_loop();
        }
        table.back.0.store(round, Relaxed);
    }
    best
}

/// Nanoseconds of a round trip between two threads.
fn plain() -> f64 {
    let table = Table::default();
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&table));
        for round in 1..=ROUNDS {
            table.to.0.store(round, Relaxed);
            while table.back.0.load(Relaxed) != round {
                spin_loop();
            }
        }
        answering.join().expect("it does not panic")
    })
}

/// Nanoseconds of a round trip between a lane and a thread.
fn lane(executor: &Executor) -> f64 {
    let table = Arc::new(Table::default());
    let params = LaunchParams { workgroups: [1; 3], workgroup_size: [1; 3], ..LaunchParams::default() };
    let launch = Launch {
        entry: kernel,
        arguments: (Arc::as_ptr(&table) as usize).to_ne_bytes().to_vec(),
        params,
        keep_alive: Box::new(Arc::clone(&table)),
        notify: Arc::new(|| ()),
        on_failure: Arc::new(|| ()),
        kernel_name: "pingpong".into(),
    };
    // SAFETY: the kernel gets the address that it asks for, of a table that the launch keeps alive.
    let handle = unsafe { executor.launch(launch) }.expect("the grid fits");
    let best = answer(&table);
    handle.wait(None).expect("there is no timeout").expect("the kernel ends");
    best
}

fn main() -> std::io::Result<()> {
    let executor = Executor::new(Config { threads: 1, ..Config::default() })?;
    for _ in 0..5 {
        let (plain, lane) = (plain(), lane(&executor));
        println!("two threads {plain:.0} ns, lane and thread {lane:.0} ns, ratio {:.2}", lane / plain);
    }
    Ok(())
}
