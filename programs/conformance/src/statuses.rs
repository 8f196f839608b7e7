//! How calls end that do not end well.

use crate::services::{AsyncGate, Current, Echo, Faulty, Gate, Nobody, Trusting, old};
use core::alloc::Layout;
use hostcall_device::abi::service::Method;
use hostcall_device::call::{CallOptions, call, call_with_bytes, post, start};
use hostcall_device::services::{Files, Heap};
use hostcall_device::{CallError, Global, Lane, heap, kernel};

/// Calls that fail, each followed by one that does not.
#[kernel]
pub fn status_failures(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let works = || assert_eq!(Echo::one(id), Ok(id));
    assert_eq!(Nobody::call(1), Err(CallError::NoSuchService));
    works();
    for code in [0, 1, -1, i32::MIN, i32::MAX, id as i32] {
        assert_eq!(Faulty::fail(code), Err(CallError::Failed(code)));
    }
    works();
    assert_eq!(Faulty::panic(id), Err(CallError::Panicked));
    works();
    assert_eq!(old::Current::get(1), Err(CallError::TypeMismatch));
    assert_eq!(Current::get(id), Ok(id + 1));
    if id.is_multiple_of(2) {
        assert_eq!(Faulty::start_fail(lane, 3).wait(), Err(CallError::Failed(3)));
        assert_eq!(Nobody::start_call(lane, 3).wait(), Err(CallError::NoSuchService));
    }
    out[id as usize].set(id + 1);
}

/// Calls with a deadline, of handlers that never return unless the host opens their gates.
#[kernel]
pub fn status_timeout(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    assert_eq!(Gate::within_us(2000).pass(id), Err(CallError::TimedOut));
    assert_eq!(AsyncGate::within_us(2000).pass(id), Err(CallError::TimedOut));
    assert_eq!(Echo::within_us(60_000_000).one(id), Ok(id));
    out[id as usize].set(id + 1);
}

/// Tries to call what is unsafe to call, and to open a file, past the functions that say what that needs.
#[kernel]
pub fn status_unsafe(lane: &Lane, out: &[Global<u64>]) {
    let refused = CallError::NoSuchService;
    let memory = heap::alloc(Layout::new::<u64>());
    assert!(!memory.is_null());
    let [_, free] = Heap::METHODS;
    let address = (memory.addr() as u64,);
    assert_eq!(call::<_, ()>(free, CallOptions::DEFAULT, &address), Err(refused));
    assert_eq!(start::<_, ()>(lane, free, CallOptions::DEFAULT, &address).wait(), Err(refused));
    assert_eq!(post(free, &address), Err(refused));
    let opened = call_with_bytes::<_, ()>(&Files::METHODS[0], CallOptions::DEFAULT, &(), &[b"x"], &mut []);
    assert_eq!(opened, Err(refused));
    // SAFETY: it was allocated above, and only this lane knows of it.
    assert_eq!(unsafe { heap::dealloc(memory) }, Ok(()));

    let [next, note, len] = Trusting::METHODS;
    assert_eq!(call::<_, u64>(next, CallOptions::DEFAULT, &(1u64,)), Err(refused));
    assert_eq!(start::<_, u64>(lane, next, CallOptions::DEFAULT, &(1u64,)).wait(), Err(refused));
    assert_eq!(post(note, &(1u64,)), Err(refused));
    let bytes = call_with_bytes::<_, u64>(len, CallOptions::DEFAULT, &(1u32,), &[b"x"], &mut []);
    assert_eq!(bytes, Err(refused));
    // A number alone has not the method's types.
    let same_number = Method::untyped("Trusting::next", next.number());
    let untyped = call::<_, u64>(&same_number, CallOptions::DEFAULT, &(1u64,));
    assert_eq!(untyped, Err(CallError::TypeMismatch));
    // SAFETY: each value is small enough.
    unsafe {
        assert_eq!(Trusting::next(1), Ok(2));
        assert_eq!(Trusting::start_next(lane, 2).wait(), Ok(3));
        assert_eq!(Trusting::post_note(3), Ok(()));
        assert_eq!(Trusting::within_us(0).len("four"), Ok(4));
    }
    out[lane.global_id()].set(lane.global_id() as u64 + 1);
}

/// Calls a number that only a default service answers.
#[kernel]
pub fn status_default(lane: &Lane, out: &[Global<u64>]) {
    out[lane.global_id()].set(Nobody::call(lane.global_id() as u64).unwrap());
}

/// Says that it is here, and waits for a gate that nobody opens; writes 1 if the call was cancelled.
#[kernel]
pub fn status_wait(lane: &Lane, kind: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    assert_eq!(Echo::one(id), Ok(id));
    let result = match kind {
        0 => Gate::pass(id),
        1 => AsyncGate::pass(id),
        2 => Gate::start_pass(lane, id).wait(),
        5 => Ok(Gate::pass(id).unwrap()),
        kind => loop {
            if kind == 4 {
                let _ = Gate::pass(id);
            }
            // Never waits for long, and never ends by itself.
            if let Err(error) = Echo::one(id) {
                break Err(error);
            }
        },
    };
    out[id as usize].set(if result == Err(CallError::Cancelled) { 1 } else { 2 });
}

/// Writes 1 if [`Nobody`] is there, else 0.
#[kernel]
pub fn status_is_there(lane: &Lane, out: &[Global<u64>]) {
    out[lane.global_id()].set(Nobody::call(1).is_ok().into());
}

/// Calls [`Nobody`] until someone is there, and then until nobody is: writes how often it was answered.
#[kernel]
pub fn status_comes_and_goes(lane: &Lane, out: &[Global<u64>]) {
    while Nobody::call(1).is_err() {
        lane.pause();
    }
    let mut answers = 1;
    while Nobody::call(2).is_ok() {
        answers += 1;
    }
    out[lane.global_id()].set(answers);
}
