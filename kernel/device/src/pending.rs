//! Calls that are made now and waited for later. Each takes an extra slot of the channel, so that the wave's
//! own slot stays free for other calls.

use crate::call::{CallOptions, call_any, enter, head};
use crate::lane::Lane;
use crate::packet::{self, Head, Started};
use crate::target;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};
use hostcall_abi::MAX_WORDS;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use hostcall_abi::word::Line;

/// A call on its way, of a lane of a launch.
///
/// It is a future, too, which [`Lane::block_on`](crate::Lane::block_on) and any executor can run: it asks to be polled again
/// until the reply is there. Dropping it forgets the call: the host goes on with it, and its reply goes to nobody. A wave does not
/// end before its calls were answered, also those that were forgotten; a deadline bounds that.
///
/// ```
/// use hostcall_device::{Global, Lane, kernel, service};
///
/// #[service]
/// trait Prices {
///     fn of(item: u64) -> u64;
/// }
///
/// /// Asks for a price and computes meanwhile.
/// #[kernel]
/// fn total(lane: &Lane, items: &[u64], out: &[Global<u64>]) {
///     let i = lane.global_id();
///     let price = Prices::start_of(lane, items[i]);
///     let count = items.iter().filter(|item| **item == items[i]).count() as u64;
///     out[i].set(price.wait().map_or(0, |price| price * count));
/// }
/// ```
#[must_use = "the result comes with `wait`"]
pub struct Pending<'launch, R: Wire> {
    state: State<R>,
    // The slot is the calling wave's, so that no other lane may wait here, and none of a later launch.
    lane: PhantomData<&'launch Lane>,
}

enum State<R> {
    InFlight(Started, PhantomData<fn() -> R>),
    Done(Result<R, CallError>),
}

/// As [`crate::call::start`], of any service.
pub(crate) fn start<'launch, A: Wire, R: Wire>(
    _lane: &'launch Lane,
    method: &Method,
    options: CallOptions,
    arguments: &A,
) -> Pending<'launch, R> {
    if A::WORDS > MAX_WORDS || R::WORDS > MAX_WORDS {
        return Pending::done(call_any(method, options, arguments));
    }
    let mut line = Line::default();
    arguments.to_words(&mut line.words[..A::WORDS]);
    match send(head::<A, R>(method, options), &line) {
        Ok(Some(started)) => Pending { state: State::InFlight(started, PhantomData), lane: PhantomData },
        Ok(None) => Pending::done(call_any(method, options, arguments)),
        Err(error) => Pending::done(Err(error)),
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

impl<R: Wire> Pending<'_, R> {
    /// A call that was answered at once.
    pub(crate) fn done(result: Result<R, CallError>) -> Self {
        Self { state: State::Done(result), lane: PhantomData }
    }

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

/// Gives the call's result once; polled after that, [`CallError::Cancelled`].
impl<R: Wire> Future for Pending<'_, R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_ready() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = core::mem::replace(&mut *self, Self::done(Err(CallError::Cancelled)));
        Poll::Ready(taken.wait())
    }
}

// Nothing is pinned by it: a result is plain words.
impl<R: Wire> Unpin for Pending<'_, R> {}

impl<R: Wire> Drop for Pending<'_, R> {
    fn drop(&mut self) {
        if let State::InFlight(started, _) = &self.state {
            forget(started);
        }
    }
}

#[inline(never)]
fn forget(started: &Started) {
    started.forget(target::here());
}
