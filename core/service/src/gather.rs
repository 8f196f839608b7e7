//! Services that gather: a handler gets the calls of all waves that wait for a method, in one batch.
//!
//! A database, a server on the network and an interpreter take a thousand questions at once for little more than
//! one. [`GatheredService`] is for those. While one batch is under way, the calls that come gather for the next
//! one, which leaves when that is over: no timer, and a call that comes alone leaves at once.
//!
//! # What is promised
//! - A call is in one batch, once, and [has a number](GatheredCalls::number) that no other call of the process has.
//! - Each lane gets one answer: the handler's, or its deadline's, a cancellation's or the server's end,
//!   whichever comes first. A later one is dropped.
//! - A batch is *under way* as long as a lane of it waits. Its handler's future is dropped when none does.
//! - A [`Gathered`] that is dropped answers the lanes that wait still: [`CallError::Cancelled`], or
//!   [`CallError::Panicked`] where a panic drops it. So a handler that forgets a call leaves no lane waiting.
//! - Batches, the calls of a batch and its bytes are bounded by [`Gather`]. What waits for a batch is bounded by
//!   the lanes that wait, of which each has one call, and by the server's memory for messages.
//! - A handler that never answers holds up the method's later calls, but for as many batches as may be under way
//!   at once. Their deadlines and cancellations count; other methods and services go on.
//!
//! # Who has what, and when
//! The handler owns the [`Gathered`], with copies of all words: it may keep it, and give it to a thread or a task.
//! The right to answer is shared with deadlines and cancellations, so that a lane may be answered by somebody else
//! at any time: [`GatheredCalls::waits`] tells of one, [`Wanted`] of all.

use crate::caller::Caller;
use hostcall_abi::service::Method;
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::wire::Wire;
use hostcall_abi::word::MAX_TYPED_WORDS;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The future of a batch's handler. It answers by the [`GatheredCalls`] that it got.
pub type BatchFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A service whose handlers get the calls of all waves that wait for a method.
///
/// Its methods' arguments and results travel as words: calls with bytes get [`CallError::Malformed`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no service whose handlers get batches of calls",
    note = "`serve_gathered` of a `#[service]` makes one, if its methods have no `&str`, `&[u8]` or `&mut [u8]`"
)]
pub trait GatheredService: Send + Sync + 'static {
    /// The methods. Their numbers are dispatched to [`GatheredService::gathered`] by their index here.
    fn methods(&self) -> &[Method];
    /// Handles calls of method `method`, at least one. Those of posts have nobody who waits for an answer.
    fn gathered(&self, method: usize, calls: GatheredCalls) -> BatchFuture;
}

/// The bounds of a [`GatheredService`], for each of its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    batches: usize,
    calls: usize,
    bytes: usize,
}

impl Default for Gather {
    /// One batch under way, of at most 16,384 calls and 1 MiB.
    fn default() -> Self {
        Self { batches: 1, calls: 16_384, bytes: 1 << 20 }
    }
}

impl Gather {
    /// Most batches under way at once, at least one. More of them are smaller: for a backend that works on several at a
    /// time, or whose answer to one may take long.
    pub fn batches(self, batches: usize) -> Self {
        Self { batches: batches.max(1), ..self }
    }

    /// Most calls of a batch; but the lanes of one packet, up to 64, stay together.
    pub fn calls(self, calls: usize) -> Self {
        Self { calls, ..self }
    }

    /// Most bytes of a batch's argument words; but the lanes of one packet stay together.
    pub fn bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Returns how many batches may be under way.
    pub fn most_batches(&self) -> usize {
        self.batches
    }

    /// Returns whether a batch that has these may have more.
    pub fn has_room(&self, calls: usize, bytes: usize) -> bool {
        calls <= self.calls && bytes <= self.bytes
    }
}

/// The server's end of a batch: how its lanes get their answers, by the places of their calls.
#[doc(hidden)]
pub trait GatheredLanes: Send + Sync {
    /// Answers the calls at these places that wait still, each with its status and `words.len() / places.len()`
    /// result words.
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]);
    /// Returns whether the lane of a call waits.
    fn waits(&self, place: u32) -> bool;
    /// Returns whether any lane waits.
    fn is_wanted(&self) -> bool;
    /// Wakes this waker when no lane waits any more, in place of the one of the same id.
    fn wake_when_unwanted(&self, id: u64, waker: &Waker);
    /// Forgets such a waker.
    fn forget_waker(&self, id: u64);
    /// Answers the lanes that wait still: the batch was dropped, by a panic if it `panicked`.
    fn end(&self, panicked: bool);
}

/// A call of a batch, as the server puts it together.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct GatheredCall {
    pub caller: Caller,
    pub deadline: Option<Instant>,
    pub place: u32,
}

/// The calls of a batch as words: what a hand-written [`GatheredService`] gets. [`Gathered`] is the same with types.
/// Calls are counted from 0.
pub struct GatheredCalls {
    lanes: Arc<dyn GatheredLanes>,
    argument_words: usize,
    words: Vec<u64>,
    calls: Vec<GatheredCall>,
    first_number: u64,
}

impl GatheredCalls {
    /// The calls of a batch, each of `argument_words` of the words.
    #[doc(hidden)]
    pub fn new(
        lanes: Arc<dyn GatheredLanes>,
        argument_words: usize,
        words: Vec<u64>,
        calls: Vec<GatheredCall>,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        debug_assert_eq!(words.len(), argument_words * calls.len());
        let first_number = NUMBERS.fetch_add(calls.len() as u64, Ordering::Relaxed);
        Self { lanes, argument_words, words, calls, first_number }
    }

    /// Returns how many calls these are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the argument words of each call.
    pub fn argument_words(&self) -> usize {
        self.argument_words
    }

    /// Returns the argument words of all calls, those of one call side by side.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the argument words of a call.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn words_of(&self, call: usize) -> &[u64] {
        &self.words[call * self.argument_words..(call + 1) * self.argument_words]
    }

    /// Returns who makes a call.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn caller(&self, call: usize) -> Caller {
        self.calls[call].caller
    }

    /// Returns the number of a call, which no other call of the process has: by it another process may recognise a call
    /// that it was sent twice. The numbers of a batch go up.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn number(&self, call: usize) -> u64 {
        self.first_number + u64::from(self.calls[call].place)
    }

    /// Returns until when the lane of a call waits; `None` if it waits as long as it takes.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn deadline(&self, call: usize) -> Option<Instant> {
        self.calls[call].deadline
    }

    /// Returns how much longer the lane of a call waits, zero if it does not any more; `None` if it waits as long as it
    /// takes.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn remaining(&self, call: usize) -> Option<Duration> {
        self.deadline(call).map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the lane of a call waits for its answer. One that does not may have got another one: its deadline's,
    /// a cancellation's.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn waits(&self, call: usize) -> bool {
        self.lanes.waits(self.calls[call].place)
    }

    /// Returns a look at whether anybody waits for this batch, to keep.
    pub fn wanted(&self) -> Wanted {
        Wanted::new(self.lanes.clone())
    }

    /// Answers a call with its result words or an error, if its lane waits. Words that are missing are zero.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn answer(&self, call: usize, result: Result<&[u64], CallError>) {
        let (status, words) = match result {
            Ok(words) => (Status::Ok, words),
            Err(error) => (Status::Error(error), &[][..]),
        };
        self.lanes.answer(&[self.calls[call].place], &[status], words);
    }

    /// Answers the calls from `first` on, one for each status, with as many result words each as there are of `words` for a
    /// status. The lanes of a wave are answered together.
    ///
    /// # Panics
    /// When there are not so many calls.
    pub fn answer_from(&self, first: usize, statuses: &[Status], words: &[u64]) {
        let places: Vec<_> =
            self.calls[first..first + statuses.len()].iter().map(|call| call.place).collect();
        self.lanes.answer(&places, statuses, words);
    }

    /// Answers all calls that wait with an error.
    pub fn fail(self, error: CallError) {
        self.answer_from(0, &vec![Status::Error(error); self.len()], &[]);
    }

    /// Leaves out calls, which were answered.
    fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let (width, mut at) = (self.argument_words, 0);
        let mut words = Vec::with_capacity(self.words.len());
        self.calls.retain(|_| {
            let kept = keep(at);
            if kept {
                words.extend_from_slice(&self.words[at * width..(at + 1) * width]);
            }
            at += 1;
            kept
        });
        self.words = words;
    }
}

impl Drop for GatheredCalls {
    fn drop(&mut self) {
        self.lanes.end(std::thread::panicking());
    }
}

impl fmt::Debug for GatheredCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatheredCalls").field("calls", &self.len()).finish_non_exhaustive()
    }
}

/// The calls of a batch, whose arguments are `A` and whose results are `R`: what a handler of a `#[service]` gets.
/// It has what [`GatheredCalls`] has besides. Calls are counted from 0.
pub struct Gathered<A, R> {
    calls: GatheredCalls,
    arguments: Vec<A>,
    result: PhantomData<fn(R)>,
}

impl<A: Wire, R: Wire> Gathered<A, R> {
    /// Reads the arguments. Calls whose words are no `A` are answered with [`CallError::Malformed`] and left out.
    pub fn new(mut calls: GatheredCalls) -> Self {
        if calls.argument_words != A::WORDS || R::WORDS > MAX_TYPED_WORDS {
            calls.answer_from(0, &vec![Status::Error(CallError::Malformed); calls.len()], &[]);
            calls.retain(|_| false);
        }
        let mut arguments = Vec::with_capacity(calls.len());
        let mut malformed = Vec::new();
        for call in 0..calls.len() {
            match A::from_words(calls.words_of(call)) {
                Some(read) => arguments.push(read),
                None => malformed.push(call),
            }
        }
        if !malformed.is_empty() {
            malformed.iter().for_each(|call| calls.answer(*call, Err(CallError::Malformed)));
            calls.retain(|call| malformed.binary_search(&call).is_err());
        }
        Self { calls, arguments, result: PhantomData }
    }

    /// Returns the arguments of all calls.
    pub fn arguments(&self) -> &[A] {
        &self.arguments
    }

    /// Answers a call, if its lane waits.
    ///
    /// # Panics
    /// When there is no such call.
    pub fn answer(&self, call: usize, result: Result<R, CallError>) {
        let mut words = [0; MAX_TYPED_WORDS];
        match result {
            Ok(result) => {
                result.to_words(&mut words[..R::WORDS]);
                self.calls.answer(call, Ok(&words[..R::WORDS]));
            }
            Err(error) => self.calls.answer(call, Err(error)),
        }
    }

    /// Answers the calls in their order, as long as there are results. Calls for which there is none get
    /// [`CallError::Cancelled`]. The lanes of a wave are answered together.
    pub fn answer_all(self, results: impl IntoIterator<Item = Result<R, CallError>>) {
        let mut statuses = Vec::with_capacity(self.len());
        let mut words = vec![0; self.len() * R::WORDS];
        for (call, result) in results.into_iter().take(self.len()).enumerate() {
            statuses.push(match result {
                Ok(result) => {
                    result.to_words(&mut words[call * R::WORDS..(call + 1) * R::WORDS]);
                    Status::Ok
                }
                Err(error) => Status::Error(error),
            });
        }
        words.truncate(statuses.len() * R::WORDS);
        self.calls.answer_from(0, &statuses, &words);
    }

    /// Answers all calls that wait with an error.
    pub fn fail(self, error: CallError) {
        self.calls.fail(error);
    }
}

impl<A, R> std::ops::Deref for Gathered<A, R> {
    type Target = GatheredCalls;

    fn deref(&self) -> &GatheredCalls {
        &self.calls
    }
}

impl<A, R> fmt::Debug for Gathered<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.fmt(f)
    }
}

/// Who is told when nobody waits for a batch any more, by ids of their own.
#[doc(hidden)]
#[derive(Default)]
pub struct Wakers(Mutex<Vec<(u64, Waker)>>);

impl Wakers {
    /// An id that no [`Wanted`] has: of whoever drives the batch.
    pub const DRIVER: u64 = u64::MAX;

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has one woken. Whether it is late for that is to be seen after this.
    pub fn set(&self, id: u64, waker: &Waker) {
        let waker = waker.clone();
        let mut wakers = self.lock();
        let before = match wakers.iter_mut().find(|(of, _)| *of == id) {
            Some((_, before)) => Some(std::mem::replace(before, waker)),
            None => {
                wakers.push((id, waker));
                None
            }
        };
        // Wakers are a user's: not under the lock.
        drop(wakers);
        drop(before);
    }

    /// Has one woken no more.
    pub fn forget(&self, id: u64) {
        let forgotten: Vec<_> = self.lock().extract_if(.., |(of, _)| *of == id).collect();
        drop(forgotten);
    }

    /// Wakes all.
    pub fn tell(&self) {
        let wakers = std::mem::take(&mut *self.lock());
        for (_, waker) in wakers {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // A payload may panic when it is dropped.
                std::mem::forget(payload);
            }
        }
    }
}

/// A look at whether anybody waits for a batch, for whoever works for it: a thread, a task, a query. As a future it
/// ends when nobody waits any more.
pub struct Wanted {
    lanes: Arc<dyn GatheredLanes>,
    /// Tells its waker from those of others.
    id: u64,
}

impl Wanted {
    fn new(lanes: Arc<dyn GatheredLanes>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self { lanes, id: IDS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns whether a lane of the batch waits.
    pub fn is_wanted(&self) -> bool {
        self.lanes.is_wanted()
    }
}

impl Clone for Wanted {
    fn clone(&self) -> Self {
        Self::new(self.lanes.clone())
    }
}

impl Future for Wanted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Whoever answers the last lane later finds the waker; who did it before is seen below.
        self.lanes.wake_when_unwanted(self.id, context.waker());
        if self.is_wanted() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.lanes.forget_waker(self.id);
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("is_wanted", &self.is_wanted()).finish()
    }
}
