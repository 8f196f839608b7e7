//! Memory that lanes lend to the host, and stacks that lanes have one after the other.

mod common;
use common::*;
use hostcall_abi::cpu::{CpuLane, ENTRY_DONE, ENTRY_PANICKED};
use hostcall_softdev::LaunchError;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct Lent {
    address: AtomicU64,
    is_answered: AtomicBool,
}

impl Lent {
    fn until_lent(&self) -> u64 {
        loop {
            match self.address.load(SeqCst) {
                0 => thread::yield_now(),
                address => return address,
            }
        }
    }
}

/// Lends 100 bytes, waits for the answer, and ends well if each byte is 7 then.
unsafe extern "C" fn lend_and_wait(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this.
    let kernel = unsafe { Kernel::<Lent>::new(lane, arguments) };
    let mut bytes = [0; 100];
    // SAFETY: they are looked at only after they were taken back.
    let address = unsafe { kernel.lend(&raw mut bytes[..], true) };
    kernel.data.address.store(address, SeqCst);
    kernel.wait(&kernel.data.is_answered);
    kernel.take_back(address);
    if bytes == [7; 100] { ENTRY_DONE } else { ENTRY_PANICKED }
}

#[test]
fn the_host_writes_what_a_waiting_lane_lends() {
    let executor = executor(|_| ());
    let (memory, lent) = (executor.lent_memory(), Arc::new(Lent::default()));
    let launch = start(&executor, lend_and_wait, &lent, params([1; 3], [1; 3]));
    let address = lent.until_lent();
    assert!(memory.write(address, &[7; 100]) && !memory.write(address + 1, &[8; 100]));
    lent.is_answered.store(true, SeqCst);
    launch.wait(LONG).expect("the launch ends").expect("the lane finds the bytes");
    assert!(!memory.write(address, &[9]) && !memory.read(address, &mut [0]));
}

/// A backend that knows nothing of memory that is lent gets messages in packets.
#[test]
fn lanes_lend_nothing_where_nobody_asked_for_it() {
    unsafe extern "C" fn lend(lane: *mut CpuLane, arguments: *const u8) -> u32 {
        // SAFETY: launched with this.
        let kernel = unsafe { Kernel::<Lent>::new(lane, arguments) };
        let mut bytes = [0; 100];
        // SAFETY: they are looked at only after they were taken back.
        let address = unsafe { kernel.lend(&raw mut bytes[..], true) };
        kernel.take_back(address);
        if address == 0 { ENTRY_DONE } else { ENTRY_PANICKED }
    }
    let executor = executor(|_| ());
    run(&executor, lend, &Arc::new(Lent::default()), params([1; 3], [1; 3])).expect("nothing is lent");
}

/// Its stack is another lane's soon.
#[test]
fn nobody_writes_what_a_lane_lent_that_was_ended() {
    let executor = executor(|_| ());
    let (memory, lent) = (executor.lent_memory(), Arc::new(Lent::default()));
    let launch = start(&executor, lend_and_wait, &lent, params([1; 3], [1; 3]));
    let address = lent.until_lent();
    assert!(memory.write(address, &[1]));
    launch.cancel();
    assert_eq!(launch.wait(LONG).expect("the launch ends"), Err(LaunchError::Cancelled));
    assert!(!memory.write(address, &[2]));
    assert_works(&executor);
}

/// Where each lane's stack is, before and after a barrier if there is one.
#[derive(Default)]
struct Stacks {
    has_barrier: bool,
    seen: Mutex<HashSet<usize>>,
}

unsafe extern "C" fn note_stack(lane: *mut CpuLane, arguments: *const u8) -> u32 {
    // SAFETY: launched with this.
    let kernel = unsafe { Kernel::<Stacks>::new(lane, arguments) };
    let here = 0u8;
    let at = black_box(&raw const here).addr();
    if kernel.data.has_barrier {
        kernel.barrier();
    }
    kernel.data.seen.lock().unwrap().insert(at);
    ENTRY_DONE
}

#[test]
fn lanes_that_never_wait_have_one_stack() {
    let executor = executor(|config| config.threads = 1);
    for (has_barrier, stacks) in [(false, 1), (true, 256), (false, 1)] {
        let data = Arc::new(Stacks { has_barrier, ..Stacks::default() });
        run(&executor, note_stack, &data, params([3, 1, 1], [256, 1, 1])).unwrap();
        let seen = data.seen.lock().unwrap().len();
        assert!(seen >= stacks && (has_barrier || seen == 1), "{seen} stacks");
    }
}
