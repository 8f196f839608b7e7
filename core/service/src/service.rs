//! Services as the host dispatches them: the form in which a handler gets a request, and how it answers.

use crate::batch::{Calls, Posts};
use crate::caller::Caller;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::wire::Wire;
use std::{future::Future, pin::Pin};

/// A request as a handler gets it: the host's own copy, so that a device cannot change it any more.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Argument words.
    pub words: &'a [u64],
    /// The bytes of the call's slices, one after the other.
    pub bytes: &'a [u8],
    /// Most bytes of reply (without result words) that the caller takes.
    pub reply_capacity: usize,
    /// Who calls.
    pub caller: Caller,
}

impl<'a> Request<'a> {
    /// The arguments that the words are.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when the words are no `A`.
    #[inline]
    pub fn arguments<A: Wire>(&self) -> Result<A, CallError> {
        if self.words.len() != A::WORDS {
            return Err(CallError::Malformed);
        }
        A::from_words(self.words).ok_or(CallError::Malformed)
    }

    /// Takes the next slice off the front of [`Request::bytes`].
    ///
    /// # Errors
    /// [`CallError::Malformed`] when fewer than `len` bytes are left.
    #[inline]
    pub fn take_slice(&mut self, len: u32) -> Result<&'a [u8], CallError> {
        let (slice, rest) = self.bytes.split_at_checked(len as usize).ok_or(CallError::Malformed)?;
        self.bytes = rest;
        Ok(slice)
    }

    /// Takes the next slice as text.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when fewer than `len` bytes are left or they are no UTF-8.
    #[inline]
    pub fn take_str(&mut self, len: u32) -> Result<&'a str, CallError> {
        std::str::from_utf8(self.take_slice(len)?).map_err(|_| CallError::Malformed)
    }

    /// Checks that every byte was taken.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when bytes are left.
    #[inline]
    pub fn finish(&self) -> Result<(), CallError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(CallError::Malformed) }
    }
}

/// Where a handler puts its reply. Words and bytes may be set in either order.
pub trait Reply {
    /// Sets the result words, at most `words.len()` of what the caller asked for. Of a call with bytes they
    /// are as many as the method's result has: only the caller knows that number, and it takes the first
    /// bytes for words that are missing.
    fn words(&mut self, words: &[u64]);
    /// Appends bytes to the reply. Fails with [`CallError::TooLarge`] past the caller's capacity.
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError>;
    /// Appends what `fill` writes to the start of `room` bytes, whose content is unspecified before, and
    /// returns how many it says it wrote. A server gives memory that the device reads, so that nobody
    /// copies the bytes again. Fails with [`CallError::TooLarge`] when the caller does not take `room`
    /// bytes more, and with [`CallError::Busy`] when there is no memory for them.
    fn fill(&mut self, room: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, CallError> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).map_err(|_| CallError::Busy)?;
        bytes.resize(room, 0);
        let filled = fill(&mut bytes).min(room);
        self.bytes(&bytes[..filled])?;
        Ok(filled)
    }
}

/// The host's end of an `&mut [u8]` parameter: a handler pushes what the device shall find in its slice.
///
/// ```
/// use hostcall_abi::status::CallError;
/// use hostcall_service::{NoReply, Output};
///
/// /// The handler of `fn name(id: u32, into: &mut [u8]) -> bool`.
/// fn name(id: u32, into: &mut Output<'_>) -> Result<bool, CallError> {
///     let Some(name) = ["lane", "wave"].get(id as usize) else { return Ok(false) };
///     into.push(name.as_bytes())?;
///     Ok(true)
/// }
///
/// let mut reply = NoReply;
/// assert_eq!(name(0, &mut Output::new(&mut reply, 16)), Ok(true));
/// assert_eq!(name(1, &mut Output::new(&mut reply, 3)), Err(CallError::TooLarge));
/// ```
pub struct Output<'a> {
    reply: &'a mut dyn Reply,
    capacity: usize,
}

impl<'a> Output<'a> {
    /// An output of at most `capacity` bytes into `reply`.
    pub fn new(reply: &'a mut dyn Reply, capacity: usize) -> Self {
        Self { reply, capacity }
    }

    /// Bytes that the device's slice still takes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CallError::TooLarge`] when they are more than [`Output::capacity`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.capacity = self.capacity.checked_sub(bytes.len()).ok_or(CallError::TooLarge)?;
        self.reply.bytes(bytes)
    }

    /// Has `fill` append bytes: it writes to the start of a slice of at most `room` bytes, and less where the
    /// device's slice takes no more, and says how many it wrote. The slice's content is unspecified before.
    /// Where the device reads the reply in place, as long ones are, nobody copies the bytes again. May be
    /// called again, to go on.
    ///
    /// Returns what `fill` wrote, or its error; then nothing was appended.
    ///
    /// # Errors
    /// [`CallError::Busy`] when there is no memory for the reply.
    pub fn fill<E>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, CallError> {
        let (mut fill, mut result) = (Some(fill), Ok(0));
        let mut once = |bytes: &mut [u8]| {
            result = fill.take().map_or(Ok(0), |fill| fill(bytes)).map(|filled| filled.min(bytes.len()));
            *result.as_ref().unwrap_or(&0)
        };
        let filled = self.reply.fill(room.min(self.capacity), &mut once)?;
        self.capacity -= filled.min(self.capacity);
        Ok(result)
    }
}

/// A set of methods with their handler. `#[service]` makes one from a trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no service whose handlers return when they are done",
    note = "`serve` of a `#[service]` makes one; what `serve_async` makes is registered by `async_service`"
)]
pub trait Service: Send + Sync + 'static {
    /// The methods. Their numbers are dispatched to [`Service::call`] by their index here.
    fn methods(&self) -> &[Method];
    /// Handles a call of method `method`. An `Err` becomes the caller's status.
    fn call(&self, method: usize, request: Request<'_>, reply: &mut dyn Reply) -> Result<(), CallError>;
    /// Handles a post to method `method`. `extra` is the post's 32 more bits; those of a method with a schema
    /// were its check. Nobody waits for a result or an error.
    fn post(&self, method: usize, _extra: u32, request: Request<'_>) {
        let _ = self.call(method, request, &mut NoReply);
    }
    /// Handles calls to method `method`, of several lanes and waves, each as [`Service::call`] would. Called for handlers
    /// that run inline; it is called again for the calls that are left when one panicked.
    fn calls(&self, method: usize, calls: &mut Calls<'_>) {
        calls.one_by_one(self, method);
    }
    /// Handles a run of posts to method `method`, each as [`Service::post`] would, and returns how many were
    /// refused because their words are no arguments. Called for handlers that run inline; it is called again for
    /// the posts that are left when one panicked. A service that has no room for more posts declines the rest with
    /// [`Posts::decline`]: they stay in their wave's ring and come again.
    fn posts(&self, method: usize, posts: &mut Posts<'_>) -> usize {
        posts.one_by_one(self, method);
        0
    }
    /// Returns the turn of a call of method `method`, if it has one: of calls of the same service and turn, those that go to
    /// worker threads are handled one after the other, and whoever handles one waits for none. For what the system does one
    /// after the other in any case, such as writing to a file. A panic is no turn.
    fn turn(&self, _method: usize, _request: Request<'_>) -> Option<u64> {
        None
    }
}

/// The [`Reply`] of a post: nobody gets it.
#[derive(Clone, Copy, Debug)]
pub struct NoReply;

impl Reply for NoReply {
    fn words(&mut self, _words: &[u64]) {}
    fn bytes(&mut self, _bytes: &[u8]) -> Result<(), CallError> {
        Ok(())
    }
}

/// A [`Request`] that a handler may keep while it waits.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    /// Argument words.
    pub words: Vec<u64>,
    /// The bytes of the call's slices, one after the other.
    pub bytes: Vec<u8>,
    /// Most bytes of reply (without result words) that the caller takes.
    pub reply_capacity: usize,
    /// Who calls.
    pub caller: Caller,
}

impl OwnedRequest {
    /// Borrows the request.
    pub fn as_request(&self) -> Request<'_> {
        let Self { ref words, ref bytes, reply_capacity, caller } = *self;
        Request { words, bytes, reply_capacity, caller }
    }
}

/// What an [`AsyncService`] answers.
#[derive(Clone, Debug, Default)]
pub struct OwnedReply {
    /// Result words.
    pub words: Vec<u64>,
    /// Bytes of the reply, at most the request's `reply_capacity`.
    pub bytes: Vec<u8>,
}

/// The future of an [`OwnedReply`].
pub type AsyncReply = Pin<Box<dyn Future<Output = Result<OwnedReply, CallError>> + Send>>;

/// A [`Service`] whose handlers wait without holding a thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no service whose handlers are futures",
    note = "`serve_async` of a `#[service]` makes one; what `serve` makes is registered by `service` or `inline_service`"
)]
pub trait AsyncService: Send + Sync + 'static {
    /// The methods. Their numbers are dispatched to [`AsyncService::call`] by their index here.
    fn methods(&self) -> &[Method];
    /// Handles a call of method `method`. An `Err` becomes the caller's status.
    fn call(&self, method: usize, request: OwnedRequest) -> AsyncReply;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_no_memory_has_is_refused() {
        let mut fill = |_: &mut [u8]| unreachable!("there is no room");
        for room in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(NoReply.fill(room, &mut fill), Err(CallError::Busy));
        }
        assert_eq!(NoReply.fill(3, &mut |bytes| bytes.len() + 1), Ok(3));
    }
}
