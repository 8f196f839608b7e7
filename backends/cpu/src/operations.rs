//! What kernels call: the functions behind [`CpuOperations`]. They run on the lane's stack.

use crate::lane::{Lane, Poll, Request};
use crate::launch::quietly;
use crate::lent::Access;
use crate::wave::Exchanged;
use hostcall_abi::cpu::{CpuLane, CpuOperations, OtherBarrier};
use std::ffi::c_void;
use std::hint::spin_loop;
use std::sync::atomic::Ordering;

pub(crate) static OPERATIONS: CpuOperations = CpuOperations {
    converge,
    exchange,
    barrier,
    wait,
    pause,
    notify,
    clock_ns,
    sleep_until,
    end,
    lend,
    take_back,
};

/// Polls of a waiting lane on its own stack before it blocks, if it is the only lane of its seat. They take
/// about 5 µs, after which the lane may keep whoever answers it from the processor.
const POLLS_ALONE: u32 = 256;

/// Polls of a waiting lane on its own stack before it blocks, if its seat has other lanes, but none of its
/// wave can run.
const POLLS: u32 = 16;

/// Runs `operation` for the lane that `abi` is of.
///
/// # Safety
/// As [`Lane::of`].
#[inline(always)]
unsafe fn operate<R>(abi: *mut CpuLane, operation: impl FnOnce(&Lane) -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { Lane::of(abi) }.in_executor(operation)
}

/// Runs `operation`, in which lanes wait for each other, or `alone` for one that unwinds: the others need not come to where
/// its destructors are.
///
/// # Safety
/// As [`Lane::of`].
#[inline(always)]
unsafe fn operate_together<R>(
    abi: *mut CpuLane,
    operation: impl FnOnce(&Lane) -> R,
    alone: impl FnOnce(&Lane) -> R,
) -> R {
    // SAFETY: the caller's promise.
    let lane = unsafe { Lane::of(abi) };
    if lane.unwinds() { alone(lane) } else { lane.in_executor(operation) }
}

/// Returns the lane's bit in its wave's masks.
#[inline(always)]
fn bit_of(lane: &Lane) -> u64 {
    1 << lane.place().0
}

/// After an operation that did not block: gives way now and then, so that a loop of such operations lets other
/// lanes run and can be cancelled.
fn charge(lane: &Lane) {
    if !lane.workgroup().seat().charge() {
        lane.suspend();
    }
}

/// Blocks until the scheduler has done what the request asks for.
#[inline(always)]
fn block(lane: &Lane, request: Request) {
    lane.request.set(request);
    let (wave, bit) = lane.workgroup().wave_of(lane);
    wave.block(bit, request);
    lane.suspend();
}

unsafe extern "C" fn converge(abi: *mut CpuLane, site: u64) -> u64 {
    let converge = |lane: &Lane| {
        let (wave, bit) = lane.workgroup().wave_of(lane);
        if wave.live.get() == bit || lane.workgroup().run().cancelled() {
            charge(lane);
            return bit;
        }
        block(lane, Request::Converge { site });
        lane.given.get()
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate_together(abi, converge, bit_of) }
}

unsafe extern "C" fn exchange(abi: *mut CpuLane, mask: u64, value: u64, gets: u32) -> u64 {
    let alone = |lane: &Lane| {
        let mut given = Exchanged::default();
        given.add(lane.place().0 as usize, value);
        given.get(value, gets)
    };
    let exchange = |lane: &Lane| {
        if mask == bit_of(lane) {
            charge(lane);
            alone(lane)
        } else {
            block(lane, Request::Exchange { mask, value, gets });
            lane.given.get()
        }
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate_together(abi, exchange, alone) }
}

unsafe extern "C" fn barrier(abi: *mut CpuLane, site: u64, other: *mut OtherBarrier) {
    let barrier = |lane: &Lane| {
        let workgroup = lane.workgroup();
        if workgroup.live.get() == 1 || workgroup.run().cancelled() {
            charge(lane);
        } else {
            block(lane, Request::Barrier { site, other });
        }
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate_together(abi, barrier, |_| ()) }
}

unsafe extern "C" fn wait(abi: *mut CpuLane, poll: Poll, data: *mut c_void) {
    let wait = |lane: &Lane| {
        let workgroup = lane.workgroup();
        let seat = workgroup.seat();
        let (wave, bit) = workgroup.wave_of(lane);
        let polls = if workgroup.draws_death(wave) {
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
        let workgroup = lane.workgroup();
        if workgroup.seat().live_lanes.load(Ordering::Relaxed) == 1 && workgroup.seat().charge() {
            return spin_loop();
        }
        let (wave, bit) = workgroup.wave_of(lane);
        wave.paused.set(wave.paused.get() | bit);
        lane.suspend();
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, pause) }
}

/// Notifies the host, on the thread's own stack.
fn call_host(lane: &Lane) {
    let notify = &*lane.workgroup().run().notify;
    lane.on_thread_stack(|| quietly(notify));
}

unsafe extern "C" fn notify(abi: *mut CpuLane) {
    let notify = |lane: &Lane| {
        let workgroup = lane.workgroup();
        if !workgroup.draws_loss(workgroup.wave_of(lane).0) {
            call_host(lane);
        }
        charge(lane);
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, notify) }
}

/// Returns the nanoseconds of the device's clock, which is the system's monotonic one.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to memory made for it; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

unsafe extern "C" fn clock_ns(abi: *mut CpuLane) -> u64 {
    let clock_ns = |lane: &Lane| {
        charge(lane);
        now_ns()
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, clock_ns) }
}

unsafe extern "C" fn sleep_until(abi: *mut CpuLane, deadline_ns: u64) {
    let sleep = |lane: &Lane| {
        if now_ns() >= deadline_ns || lane.workgroup().run().cancelled() {
            charge(lane);
        } else {
            block(lane, Request::Sleep { deadline_ns });
        }
    };
    // SAFETY: the kernel passes the lane that runs.
    unsafe { operate(abi, sleep) }
}

unsafe extern "C" fn end(abi: *mut CpuLane) -> ! {
    // SAFETY: the kernel passes the lane that runs.
    unsafe { Lane::of(abi) }.end_here()
}

unsafe extern "C" fn lend(abi: *mut CpuLane, start: *mut u8, len: usize, written: bool) -> u64 {
    // SAFETY: the kernel passes the lane that runs.
    let lane = unsafe { Lane::of(abi) };
    let mut address = 0;
    let access = if written { Access::Write } else { Access::Read };
    lane.shielded(|lane| {
        // SAFETY: LENT: the kernel leaves the bytes alone until `take_back` has returned, and so does who ends the lane.
        address = unsafe { lane.lend(start.expose_provenance(), len, access) };
    });
    address
}

unsafe extern "C" fn take_back(abi: *mut CpuLane, address: u64) {
    // SAFETY: the kernel passes the lane that runs.
    unsafe { Lane::of(abi) }.shielded(|lane| lane.take_back(address));
}
