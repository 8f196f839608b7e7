//! Services whose calls somebody takes, and answers when he likes, on a thread of his own: an interpreter's, which takes all that
//! wait at once.

use super::job::LaneCall;
use super::posts::{self, QueuedPost};
use super::registry::Registered;
use super::reply::{ByteReply, Filling};
use super::shared::Shared;
use super::ticket::Ticket;
use crate::engine::calls::Call;
use crate::engine::watchdog::{Waiting, Watched};
use hostcall_abi::launch::LaunchId;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_service::{Caller, Reply, Request};
use smallvec::SmallVec;
use std::sync::Arc;

/// A service that takes calls and posts, and has them answered and handled later: [`Handler::deferred`](super::Handler::deferred).
/// Its functions are called on threads that find calls, and must not wait.
pub trait DeferredService: Send + Sync + 'static {
    /// The methods. Their numbers are dispatched by their index here.
    fn methods(&self) -> &[Method];
    /// Takes calls of one packet.
    fn calls(&self, calls: DeferredCalls);
    /// Takes posts that wait, and those that come until it has found none. There is one such value of a service at a time.
    fn posts(&self, posts: DeferredPosts);
}

/// The calls of a packet's lanes, to one method. Those that are dropped without an answer get [`CallError::Cancelled`].
pub struct DeferredCalls {
    ticket: Arc<Ticket>,
    lanes: SmallVec<[(u32, LaneCall); 1]>,
}

/// A look at the lanes of [`DeferredCalls`] that have no answer, whoever has the calls.
#[derive(Clone)]
pub struct OpenCalls(Arc<Ticket>);

impl DeferredCalls {
    pub(super) fn new(ticket: Arc<Ticket>, lanes: SmallVec<[(u32, LaneCall); 1]>) -> Self {
        Self { ticket, lanes }
    }

    /// Returns the index of the method in its service.
    pub fn method(&self) -> usize {
        self.ticket.entry.index
    }

    /// Returns how many calls these are.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Returns a look at the lanes, to keep.
    pub fn open(&self) -> OpenCalls {
        OpenCalls(self.ticket.clone())
    }

    /// Takes the calls apart. Those that the iterator has still when it is dropped get [`CallError::Cancelled`].
    pub fn into_calls(mut self) -> impl ExactSizeIterator<Item = DeferredCall> {
        self.lanes.reverse();
        (0..self.lanes.len()).map(move |_| {
            // All of it, so that it is dropped with the iterator.
            let calls = &mut self;
            let (rank, call) = calls.lanes.pop().expect("as many as were counted");
            DeferredCall { ticket: calls.ticket.clone(), rank, call: Some(call) }
        })
    }

    /// Answers all with an error.
    pub fn fail(self, error: CallError) {
        self.into_calls().for_each(|call| call.fail(error));
    }
}

impl Drop for DeferredCalls {
    fn drop(&mut self) {
        for (rank, mut call) in std::mem::take(&mut self.lanes) {
            call.free();
            self.ticket.finish(rank, call.request.caller, Err(CallError::Cancelled));
        }
    }
}

impl OpenCalls {
    /// Returns whether a lane waits still.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Returns whose calls these are, and how long they have waited, for reports.
    pub fn waiting(&self) -> Waiting {
        self.0.waiting()
    }

    /// Returns the launch whose wave calls.
    pub fn launch(&self) -> LaunchId {
        self.0.launch()
    }

    /// Returns the number and the name of the method that is called.
    pub fn called(&self) -> (u16, &'static str) {
        let method = &self.0.entry.method;
        (method.number(), method.name())
    }

    /// Answers the lanes that wait still with [`CallError::TimedOut`]. Returns how many.
    pub fn time_out(&self) -> usize {
        let waits = (0..64).filter(|rank| self.0.waits(*rank));
        waits.inspect(|rank| self.0.finish(*rank, Caller::default(), Err(CallError::TimedOut))).count()
    }
}

/// A lane's call. One that is dropped without an answer gets [`CallError::Cancelled`].
pub struct DeferredCall {
    ticket: Arc<Ticket>,
    rank: u32,
    /// `None` once it was answered.
    call: Option<LaneCall>,
}

impl DeferredCall {
    /// Says that a handler begins. Returns what it gets, if the lane waits still.
    pub fn begin(&mut self) -> Option<Request<'_>> {
        let call = self.call.as_mut()?;
        let is_read = call.unread.is_none() || self.ticket.read(self.rank, call);
        (is_read && self.ticket.begin(self.rank, call)).then(|| call.as_request())
    }

    /// Returns who calls.
    pub fn caller(&self) -> Caller {
        self.call.as_ref().map_or_else(Caller::default, |call| call.request.caller)
    }

    /// Answers with words and bytes. The lane gets [`CallError::TooLarge`] when it does not take as many bytes.
    pub fn answer(mut self, words: &[u64], bytes: &[u8]) {
        let Some(call) = &self.call else { return };
        let share = self.ticket.places[self.rank as usize].share;
        let mut filling = Filling::new(&self.ticket.shared.messages, call.request.reply_capacity, share);
        filling.words(words);
        let reply = if bytes.is_empty() { Ok(()) } else { filling.bytes(bytes) };
        let reply = reply.map(|()| filling.finish());
        self.finish(reply);
    }

    /// Answers with an error.
    pub fn fail(mut self, error: CallError) {
        self.finish(Err(error));
    }

    fn finish(&mut self, result: Result<ByteReply, CallError>) {
        let Some(mut call) = self.call.take() else { return };
        call.free();
        self.ticket.finish(self.rank, call.request.caller, result);
    }
}

impl Drop for DeferredCall {
    fn drop(&mut self) {
        self.finish(Err(CallError::Cancelled));
    }
}

/// The posts to a service that wait. Dropped before there is none left, it refuses those that are.
pub struct DeferredPosts(Option<(Arc<Shared>, Arc<Registered>)>);

impl DeferredPosts {
    pub(super) fn new(shared: Arc<Shared>, service: Arc<Registered>) -> Self {
        Self(Some((shared, service)))
    }
}

impl Iterator for DeferredPosts {
    type Item = DeferredPost;

    /// Takes the next post. When there is none, later ones come to [`DeferredService::posts`] again.
    fn next(&mut self) -> Option<DeferredPost> {
        let (shared, service) = self.0.as_ref()?;
        let post = posts::next(shared, service).map(|post| DeferredPost { shared: shared.clone(), post });
        if post.is_none() {
            self.0 = None;
        }
        post
    }
}

impl Drop for DeferredPosts {
    fn drop(&mut self) {
        if let Some(of) = self.0.take() {
            posts::refuse_all(of);
        }
    }
}

/// A post that was taken. It has been handled when this is dropped: who waits for its launch's posts waits until then.
pub struct DeferredPost {
    shared: Arc<Shared>,
    post: QueuedPost,
}

impl DeferredPost {
    /// Returns the index of the method in its service.
    pub fn method(&self) -> usize {
        self.post.entry.index
    }

    /// Returns the words.
    pub fn words(&self) -> &[u64] {
        self.post.words()
    }

    /// Returns who posted.
    pub fn caller(&self) -> Caller {
        self.post.caller
    }

    /// Counts it among those that reached no handler.
    pub fn refuse(self) {
        self.shared.statistics.count_refused_posts(1);
    }
}

impl Drop for DeferredPost {
    fn drop(&mut self) {
        self.shared.post_counts.handled(self.post.caller.launch);
    }
}
