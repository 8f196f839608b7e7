//! Calls that are made now and waited for later. Each takes a slot of the channel's pool, so that the wave's
//! own slot stays free for other calls.

use crate::call::{CallOptions, call, enter, head};
use crate::group::Group;
use crate::packet::{self, Head, InFlight};
use crate::target;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::Line;
use hostcall_channel::device::{Pool, Slot};

/// A call on its way. Dropping it waits for the reply and forgets it.
#[must_use = "the result comes with `wait`"]
pub struct Pending<R: Wire>(State<R>);

enum State<R> {
    /// The call in the pool's slot of this index.
    InFlight(u32, InFlight, PhantomData<fn() -> R>),
    Done(Result<R, CallError>),
}

fn pool() -> Pool<'static> {
    let params = target::here().params();
    // SAFETY: the host gives every launch of the channel the same bitmap, with a bit for each slot of the
    // pool.
    unsafe { Pool::from_address(params.pool_bitmap, params.pool_count) }
}

/// The pool's slot of this index, which the calling lane has claimed.
fn claimed(index: u32) -> Slot<'static> {
    // SAFETY: SLOT-OWNER: the pool gives a slot to one lane at a time.
    unsafe { packet::slot(target::here(), target::here().params().pool_base + index) }
}

/// Calls `method` without waiting. When all of the pool's slots are taken, or the words are too many for a
/// line, the call is made as [`call`] makes it, so that this never waits for another pending call.
pub fn start<A: Wire, R: Wire>(method: &Method, options: CallOptions, arguments: &A) -> Pending<R> {
    let here = target::here();
    let hint = here.slot() + here.lane_index();
    let small = A::WORDS <= MAX_WORDS && R::WORDS <= MAX_WORDS;
    let index = if small && here.params().pool_count > 0 { pool().claim(hint) } else { None };
    let Some(index) = index else {
        return Pending(State::Done(call(method, options, arguments)));
    };
    let mut line = Line::default();
    arguments.to_words(&mut line.words[..A::WORDS]);
    match send(index, head::<A, R>(method, options), &line) {
        Ok(packet) => Pending(State::InFlight(index, packet, PhantomData)),
        Err(error) => Pending(State::Done(Err(error))),
    }
}

/// Sends a line through the pool's slot of this index, the same code for every method.
#[inline(never)]
fn send(index: u32, head: Head, line: &Line) -> Result<InFlight, CallError> {
    if let Err(error) = enter(target::here()) {
        pool().release(index);
        return Err(error);
    }
    if packet::current(target::here()).glance().cancelled {
        pool().release(index);
        target::exit_lane();
    }
    let slot = claimed(index);
    Ok(packet::send(slot, slot.glance(), Group::alone(), head, *line))
}

fn decode<R: Wire>(line: Line) -> Result<R, CallError> {
    R::from_words(&line.words).ok_or(CallError::Malformed)
}

impl<R: Wire> Pending<R> {
    /// Whether [`Pending::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            State::InFlight(index, packet, _) => packet::poll(claimed(*index), 0, packet).is_some(),
            State::Done(_) => true,
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The call's status.
    pub fn wait(self) -> Result<R, CallError> {
        let mut this = ManuallyDrop::new(self);
        match core::mem::replace(&mut this.0, State::Done(Err(CallError::Cancelled))) {
            State::InFlight(index, packet, _) => finish(index, &packet).and_then(decode),
            State::Done(result) => result,
        }
    }
}

/// Waits for the reply and gives the slot back. A slot whose call the host never answered stays taken.
#[inline(never)]
fn finish(index: u32, packet: &InFlight) -> Result<Line, CallError> {
    let slot = claimed(index);
    let reply = packet::receive(slot, Group::alone(), *packet);
    if packet::poll(slot, 0, packet).is_some() {
        pool().release(index);
    }
    reply
}

impl<R: Wire> Drop for Pending<R> {
    fn drop(&mut self) {
        if let State::InFlight(index, packet, _) = &self.0
            && !target::here().unwinding()
        {
            let _ = finish(*index, packet);
        }
    }
}
