//! Calls that are made now and waited for later. Each takes an extra slot of the channel, so that the wave's
//! own slot stays free for other calls.

use crate::call::{CallOptions, call, enter, head};
use crate::packet::{self, Head, Started};
use crate::target;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::Line;

/// A call on its way. Dropping it waits for the reply and forgets it. A wave does not end before its calls were answered,
/// also those that were forgotten.
#[must_use = "the result comes with `wait`"]
pub struct Pending<R: Wire> {
    state: State<R>,
    // The slot is the calling wave's.
    not_send: PhantomData<*const ()>,
}

enum State<R> {
    InFlight(Started, PhantomData<fn() -> R>),
    Done(Result<R, CallError>),
}

/// Calls `method` without waiting. When all of the channel's extra slots are taken, or the words are too many for a
/// line, the call is made as [`call`] makes it, so that this never waits for another pending call.
pub fn start<A: Wire, R: Wire>(method: &Method, options: CallOptions, arguments: &A) -> Pending<R> {
    let done = |result| Pending { state: State::Done(result), not_send: PhantomData };
    if A::WORDS > MAX_WORDS || R::WORDS > MAX_WORDS {
        return done(call(method, options, arguments));
    }
    let mut line = Line::default();
    arguments.to_words(&mut line.words[..A::WORDS]);
    match send(head::<A, R>(method, options), &line) {
        Ok(Some(started)) => Pending { state: State::InFlight(started, PhantomData), not_send: PhantomData },
        Ok(None) => done(call(method, options, arguments)),
        Err(error) => done(Err(error)),
    }
}

/// Sends a line through an extra slot, the same code for every method.
#[inline(never)]
fn send(head: Head, line: &Line) -> Result<Option<Started>, CallError> {
    enter(target::here())?;
    Ok(packet::start(target::here(), head, line))
}

fn decode<R: Wire>(line: Line) -> Result<R, CallError> {
    R::from_words(&line.words).ok_or(CallError::Malformed)
}

impl<R: Wire> Pending<R> {
    /// Whether [`Pending::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        match &self.state {
            State::InFlight(started, _) => started.is_ready(target::here()),
            State::Done(_) => true,
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The call's status.
    pub fn wait(self) -> Result<R, CallError> {
        let mut this = ManuallyDrop::new(self);
        match core::mem::replace(&mut this.state, State::Done(Err(CallError::Cancelled))) {
            State::InFlight(started, _) => finish(&started).and_then(decode),
            State::Done(result) => result,
        }
    }
}

#[inline(never)]
fn finish(started: &Started) -> Result<Line, CallError> {
    started.finish(target::here())
}

impl<R: Wire> Drop for Pending<R> {
    fn drop(&mut self) {
        // A lane that unwinds does not wait; the last lane of its wave does.
        if let State::InFlight(started, _) = &self.state
            && !target::here().unwinding()
        {
            let _ = finish(started);
        }
    }
}
