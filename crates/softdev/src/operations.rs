//! What kernels call: the functions behind [`CpuOperations`]. They run on the lane's stack.

use crate::lane::{Lane, Poll, Request};
use hostcall_abi::cpu::{CpuLane, CpuOperations};
use std::ffi::c_void;
use std::hint::spin_loop;
use std::sync::atomic::Ordering;

pub(crate) static OPERATIONS: CpuOperations =
    CpuOperations { converge, exchange, barrier, wait, pause, notify, clock_ns };

/// Polls on the lane's own stack when it is the only lane of its seat (about 20 µs),
const POLLS_ALONE: u32 = 4096;
/// and when it is not, but no other lane of its wave can run.
const POLLS: u32 = 16;

/// Runs `operation` for the lane that `abi` is of.
///
/// # Safety
/// As [`Lane::of`].
unsafe fn operate<R>(abi: *mut CpuLane, operation: impl FnOnce(&Lane) -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { Lane::of(abi) }.in_executor(operation)
}

/// After an operation that did not block: gives way now and then, so that a loop of such operations lets other
/// lanes run and can be cancelled.
fn charge(lane: &Lane) {
    if !lane.group().seat().charge() {
        lane.suspend();
    }
}

/// Blocks until the scheduler has done what the request asks for.
fn block(lane: &Lane, request: Request) {
    lane.request.set(request);
    let (wave, bit) = lane.group().wave_of(lane);
    wave.block(bit, request);
    lane.suspend();
}

unsafe extern "C" fn converge(abi: *mut CpuLane, site: u64) -> u64 {
    let converge = |lane: &Lane| {
        let (wave, bit) = lane.group().wave_of(lane);
        if wave.live.get() == bit || lane.group().run().cancelled() {
            charge(lane);
            return bit;
        }
        block(lane, Request::Converge { site });
        lane.converged.get()
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, converge) }
}

unsafe extern "C" fn exchange(abi: *mut CpuLane, mask: u64, value: u64, values: *mut [u64; 64]) {
    let exchange = |lane: &Lane| {
        let (_, bit) = lane.group().wave_of(lane);
        if mask == bit {
            let mut all = [0; 64];
            all[bit.trailing_zeros() as usize] = value;
            // SAFETY: the kernel gives an array to write to.
            unsafe { values.write(all) };
            charge(lane);
        } else {
            block(lane, Request::Exchange { mask, value, values });
        }
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, exchange) }
}

unsafe extern "C" fn barrier(abi: *mut CpuLane) {
    let barrier = |lane: &Lane| {
        let group = lane.group();
        if group.live.get() == 1 || group.run().cancelled() {
            charge(lane);
        } else {
            block(lane, Request::Barrier);
        }
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, barrier) }
}

unsafe extern "C" fn wait(abi: *mut CpuLane, poll: Poll, data: *mut c_void) {
    let wait = |lane: &Lane| {
        let group = lane.group();
        let seat = group.seat();
        let (wave, bit) = group.wave_of(lane);
        let polls = if group.draws_death(wave) {
            0
        } else if wave.ready.get() != bit {
            1
        } else if seat.live_lanes.load(Ordering::Relaxed) == 1 {
            POLLS_ALONE
        } else {
            POLLS
        };
        for n in 1..=polls {
            // SAFETY: the kernel gives a function to be called with its data.
            if unsafe { poll(data) } {
                return charge(lane);
            }
            if n % 64 == 0 && seat.called() {
                break;
            }
            spin_loop();
        }
        block(lane, Request::Wait { poll, data });
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, wait) }
}

unsafe extern "C" fn pause(abi: *mut CpuLane) {
    let pause = |lane: &Lane| {
        let group = lane.group();
        if group.seat().live_lanes.load(Ordering::Relaxed) == 1 && group.seat().charge() {
            return spin_loop();
        }
        let (wave, bit) = group.wave_of(lane);
        wave.paused.set(wave.paused.get() | bit);
        lane.suspend();
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, pause) }
}

unsafe extern "C" fn notify(abi: *mut CpuLane) {
    let notify = |lane: &Lane| {
        let group = lane.group();
        if !group.draws_loss(group.wave_of(lane).0) {
            let notify = &*group.run().notify;
            lane.on_thread_stack(notify);
        }
        charge(lane);
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, notify) }
}

unsafe extern "C" fn clock_ns(abi: *mut CpuLane) -> u64 {
    let clock_ns = |lane: &Lane| {
        charge(lane);
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time to memory made for it; every Linux has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, clock_ns) }
}
