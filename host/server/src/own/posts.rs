//! Posts to handlers that may wait: a bounded queue a service, whose posts are handled one after the other.
//!
//! A full queue declines: the posts stay in their wave's ring, and the wave waits once that is full. The consumer goes on
//! with other rings meanwhile. [`PostCounts`] knows which launches have posts in queues, so that the end of a launch can
//! wait for its posts.

use super::deferred::DeferredPosts;
use super::gather;
use super::job::call_async;
use super::registry::{Entry, Kind, Registered};
use super::shared::Shared;
use crate::engine::caught::catch;
use crate::engine::executor::BeginsLater;
use crate::engine::handling::set_service;
use crate::engine::rare::Rare;
use crate::engine::workers::Work;
use hostcall_abi::launch::{LaunchId, LaunchIds};
use hostcall_abi::status::Status;
use hostcall_abi::word::MAX_POST_WORDS;
use hostcall_locks::{Condvar, Mutex};
use hostcall_service::gather::{GatheredCall, GatheredLanes, Wakers};
use hostcall_service::{Caller, GatheredCalls, OwnedRequest, Posts, Request, called_by};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// Most posts in a service's queue, besides those of rings that were cleared.
pub(crate) const MOST_QUEUED: usize = 4096;

/// A post that was taken from its ring.
pub(super) struct QueuedPost {
    pub entry: Arc<Entry>,
    extra: u32,
    words: [u64; MAX_POST_WORDS],
    count: u8,
    pub caller: Caller,
}

impl QueuedPost {
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count.into()]
    }
}

#[derive(Default)]
struct State {
    posts: VecDeque<QueuedPost>,
    /// A worker or a future handles posts, and looks for more before it ends.
    is_handled: bool,
    /// [`PostCounts::forgotten`] when posts of cancelled launches were dropped last.
    forgotten: u64,
}

/// The posts to one service that wait to be handled.
#[derive(Default)]
pub(crate) struct PostQueue(Mutex<State>);

/// How many posts of each launch are in queues or handled now. A launch that was cancelled is not listed: its posts
/// are dropped when their turn comes.
#[derive(Default)]
pub(crate) struct PostCounts {
    by_launch: Rare<HashMap<LaunchId, u64>>,
    changed: Condvar,
    /// How often posts of a launch were forgotten.
    forgotten: AtomicU64,
    /// Of each service whose future waits for its handler: wakes that future, which looks whether its post is forgotten.
    wakers: Mutex<HashMap<ServiceAddress, Waker>>,
}

/// Where a service lies, of which one future at a time handles posts.
type ServiceAddress = usize;

/// The place of a future's waker while it handles a post.
struct WakerPlace<'a> {
    counts: &'a PostCounts,
    service: ServiceAddress,
}

impl WakerPlace<'_> {
    /// Waits until the posts of a launch are forgotten.
    fn poll_forgotten(&self, launch: LaunchId, context: &Context<'_>) -> Poll<()> {
        // Whoever forgets them later finds the waker; who did it before is seen below.
        let mut wakers = self.counts.wakers.lock();
        match wakers.get_mut(&self.service) {
            Some(waker) => waker.clone_from(context.waker()),
            None => _ = wakers.insert(self.service, context.waker().clone()),
        }
        drop(wakers);
        if self.counts.is_wanted(launch) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for WakerPlace<'_> {
    fn drop(&mut self) {
        let waker = self.counts.wakers.lock().remove(&self.service);
        // Not under the lock: it may be a runtime's of the user's.
        drop(waker);
    }
}

impl PostCounts {
    fn add(&self, launch: LaunchId, count: usize) {
        self.by_launch.change(|by_launch| *by_launch.entry(launch).or_default() += count as u64);
    }

    fn is_wanted(&self, launch: LaunchId) -> bool {
        self.by_launch.change_some(|by_launch| by_launch.contains_key(&launch)) == Some(true)
    }

    pub(super) fn handled(&self, launch: LaunchId) {
        self.by_launch.change(|by_launch| {
            if let Some(count) = by_launch.get_mut(&launch) {
                *count -= 1;
                if *count == 0 {
                    by_launch.remove(&launch);
                    self.changed.notify_all();
                }
            }
        });
    }

    /// Forgets the posts of launches: those in queues will not be handled.
    pub fn forget(&self, launches: LaunchIds) {
        // Under the lock also where there are none: who adds some takes it before it looks whether the launch lives.
        let forgotten = self.by_launch.change(|by_launch| {
            let before = by_launch.len();
            by_launch.retain(|launch, _| !launches.contains(*launch));
            before - by_launch.len()
        });
        if forgotten > 0 {
            self.forgotten.fetch_add(forgotten as u64, Ordering::Release);
            self.changed.notify_all();
            self.wake();
        }
    }

    /// Forgets the posts of all launches.
    pub fn forget_all(&self) {
        self.by_launch.change(HashMap::clear);
        self.changed.notify_all();
        self.wake();
    }

    /// Wakes the futures that handle posts.
    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns whether all posts of launches were handled that were taken from rings, or the launches were cancelled.
    pub fn has_handled(&self, launches: LaunchIds) -> bool {
        self.by_launch.change_some(|by_launch| has_posts_of(by_launch, launches)) != Some(true)
    }

    /// Waits until all posts of launches were handled that were taken from rings, or the launches were cancelled.
    pub fn wait_until_handled(&self, launches: LaunchIds) {
        self.by_launch.wait_while(&self.changed, |by_launch| has_posts_of(by_launch, launches));
    }
}

/// Returns whether posts of these launches are listed.
fn has_posts_of(by_launch: &HashMap<LaunchId, u64>, launches: LaunchIds) -> bool {
    launches.ids().any(|launch| by_launch.contains_key(&launch))
}

/// Takes as many posts of a run as the queue of their service has room for, and declines the rest.
pub(crate) fn queue(shared: &Arc<Shared>, entry: &Arc<Entry>, posts: &mut Posts<'_>) {
    let service = &entry.service;
    let launch = posts.origin().launch;
    let mut state = service.posts.0.lock();
    if service.is_removed() || !shared.launches.is_live(launch) {
        let mut refused = 0;
        posts.for_each(|_, _| refused += 1);
        return shared.statistics.count_refused_posts(refused);
    }
    let forgotten = shared.post_counts.forgotten.load(Ordering::Acquire);
    if state.posts.len() >= MOST_QUEUED && state.forgotten != forgotten {
        state.forgotten = forgotten;
        let before = state.posts.len();
        state.posts.retain(|post| shared.post_counts.is_wanted(post.caller.launch));
        shared.statistics.count_refused_posts(before - state.posts.len());
    }
    let (extra, most) = (posts.extra(), if posts.may_decline() { MOST_QUEUED } else { usize::MAX });
    let before = state.posts.len();
    posts.for_each_taken(|words, caller| {
        let has_room = state.posts.len() < most;
        if has_room {
            let mut copy = [0; MAX_POST_WORDS];
            copy[..words.len()].copy_from_slice(words);
            let (entry, count) = (entry.clone(), words.len() as u8);
            state.posts.push_back(QueuedPost { entry, extra, words: copy, count, caller });
        }
        has_room
    });
    let taken = state.posts.len() - before;
    if taken > 0 {
        // Before anybody can have handled them.
        shared.post_counts.add(launch, taken);
        // Whoever cancels marks the launch and then has its posts forgotten. If that came before these were counted, the
        // mark is seen here.
        if !shared.launches.is_live(launch) || shared.stopping.load(Ordering::Acquire) {
            shared.post_counts.forget(launch.into());
        }
    }
    if posts.is_declined() {
        shared.posts_declined();
    }
    let begin = taken > 0 && !std::mem::replace(&mut state.is_handled, true);
    drop(state);
    if begin {
        handle_all(shared, service);
    }
}

/// Sees to it that the queue of a service is handled until it is empty.
fn handle_all(shared: &Arc<Shared>, service: &Arc<Registered>) {
    match &service.kind {
        Kind::Inline(_) | Kind::Blocking(_) => {
            let work = HandleAll { shared: shared.clone(), service: service.clone() };
            shared.engine.pool(service.threads).submit(Arc::new(work), 1);
        }
        Kind::Async(_) | Kind::Gathered { .. } => {
            let begins = BeginsLater::new((shared.clone(), service.clone()), refuse_all);
            shared.engine.futures.spawn(async move {
                let mut handling = HandlesPosts { of: Some(begins.begin()), posts: None };
                handling.all().await;
            });
        }
        Kind::Deferred(deferred) => {
            let posts = DeferredPosts::new(shared.clone(), service.clone());
            let _ = catch(|| deferred.posts(posts));
        }
    }
}

/// Refuses the posts of a service whose future was dropped before it began.
pub(super) fn refuse_all((shared, service): (Arc<Shared>, Arc<Registered>)) {
    let mut state = service.posts.0.lock();
    state.is_handled = false;
    let posts = std::mem::take(&mut state.posts);
    drop(state);
    refuse(&shared, &posts);
}

/// A future that handles the posts of a service. Where it is dropped before it has ended, they are refused.
struct HandlesPosts {
    /// `None` once no post was left.
    of: Option<(Arc<Shared>, Arc<Registered>)>,
    /// The launch of the posts that are handled, and how many these are.
    posts: Option<(LaunchId, usize)>,
}

impl HandlesPosts {
    async fn all(&mut self) {
        let Some((shared, service)) = &self.of else { return };
        while let Some(post) = next(shared, service) {
            let mut posts = vec![post];
            if service.gathers() {
                take_more(service, &mut posts);
            }
            self.posts = Some((posts[0].caller.launch, posts.len()));
            match &service.kind {
                Kind::Gathered { .. } => handle_gathered(shared, &posts).await,
                _ => handle_async(shared, &posts[0]).await,
            }
            self.posts = None;
            posts.iter().for_each(|post| handled(shared, post));
        }
        self.of = None;
    }
}

impl Drop for HandlesPosts {
    fn drop(&mut self) {
        let Some(of) = self.of.take() else { return };
        if let Some((launch, count)) = self.posts {
            of.0.statistics.count_refused_posts(count);
            (0..count).for_each(|_| of.0.post_counts.handled(launch));
        }
        refuse_all(of);
    }
}

struct HandleAll {
    shared: Arc<Shared>,
    service: Arc<Registered>,
}

impl Work for HandleAll {
    fn run_next(self: Arc<Self>) {
        let shared = &self.shared;
        while let Some(post) = next(shared, &self.service) {
            handle(shared, &post);
            handled(shared, &post);
        }
    }

    fn is_wanted(&self) -> bool {
        true
    }
}

/// Takes the next post that is to be handled out of a queue. When there is none, whoever called handles the queue no more.
pub(super) fn next(shared: &Shared, service: &Registered) -> Option<QueuedPost> {
    let mut state = service.posts.0.lock();
    loop {
        let Some(post) = state.posts.pop_front() else {
            state.is_handled = false;
            return None;
        };
        // Waves wait for room; who takes many posts at once handles them later.
        if service.is_deferred() && (state.posts.len() == MOST_QUEUED / 2 || state.posts.is_empty()) {
            shared.posts_wanted();
        }
        if !service.is_removed() && shared.post_counts.is_wanted(post.caller.launch) {
            return Some(post);
        }
        shared.statistics.count_refused_posts(1);
        shared.post_counts.handled(post.caller.launch);
    }
}

fn handled(shared: &Shared, post: &QueuedPost) {
    shared.post_counts.handled(post.caller.launch);
    shared.posts_wanted();
}

fn handle(shared: &Shared, post: &QueuedPost) {
    let (Kind::Inline(service) | Kind::Blocking(service)) = &post.entry.service.kind else { return };
    let QueuedPost { ref entry, extra, caller, .. } = *post;
    let request = Request { words: post.words(), bytes: &[], reply_capacity: 0, caller };
    set_service(entry.method.name());
    if catch(|| called_by(caller, || service.post(entry.index, extra, request))).is_err() {
        shared.statistics.count_refused_posts(1);
        shared.handler_panicked(entry, caller);
    }
}

async fn handle_async(shared: &Shared, post: &QueuedPost) {
    let Kind::Async(service) = &post.entry.service.kind else { return };
    let caller = post.caller;
    let words = post.words().to_vec();
    let request = OwnedRequest { words, bytes: Vec::new(), reply_capacity: 0, caller };
    let place = WakerPlace { counts: &shared.post_counts, service: Arc::as_ptr(&post.entry.service).addr() };
    let mut handles = pin!(call_async(shared, &***service, &post.entry, request));
    let is_handled = poll_fn(|context| match handles.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(result.is_ok()),
        Poll::Pending => place.poll_forgotten(caller.launch, context).map(|()| false),
    });
    if !is_handled.await {
        shared.statistics.count_refused_posts(1);
    }
}

/// Takes the posts behind these that a batch may have with them: of the same launch to the same method, with as many words.
fn take_more(service: &Registered, posts: &mut Vec<QueuedPost>) {
    let mut state = service.posts.0.lock();
    let first = &posts[0];
    let is_like = |post: &QueuedPost| {
        Arc::ptr_eq(&post.entry, &first.entry)
            && (post.caller.launch, post.count) == (first.caller.launch, first.count)
    };
    let count = state.posts.iter().take_while(|post| is_like(post)).count();
    posts.extend(state.posts.drain(..count));
}

/// The posts of a batch: nobody waits for answers.
#[derive(Default)]
struct PostLanes {
    is_over: AtomicBool,
    wakers: Wakers,
}

impl GatheredLanes for PostLanes {
    fn answer(&self, _: &[u32], _: &[Status], _: &[u64]) {}

    fn waits(&self, _: u32) -> bool {
        false
    }

    fn is_wanted(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    fn wake_when_unwanted(&self, id: u64, waker: &Waker) {
        self.wakers.set(id, waker);
    }

    fn forget_waker(&self, id: u64) {
        self.wakers.forget(id);
    }

    fn end(&self, _: bool) {
        self.is_over.store(true, Ordering::Release);
        self.wakers.tell();
    }
}

/// Has a service that gathers handle posts. They are handled when the handler has dropped them.
async fn handle_gathered(shared: &Shared, posts: &[QueuedPost]) {
    /// Tells the future that handles the posts from others.
    const OWN_ID: u64 = u64::MAX;
    let (entry, caller) = (&posts[0].entry, posts[0].caller);
    let words = posts.iter().flat_map(QueuedPost::words).copied().collect();
    let calls = (0..)
        .zip(posts)
        .map(|(place, post)| GatheredCall { caller: post.caller, deadline: None, place })
        .collect();
    let lanes = Arc::<PostLanes>::default();
    let calls = GatheredCalls::new(lanes.clone(), posts[0].count.into(), words, calls);
    let place = WakerPlace { counts: &shared.post_counts, service: Arc::as_ptr(&entry.service).addr() };
    let refused = AtomicBool::new(false);
    let panicked = || {
        refused.store(true, Ordering::Relaxed);
        shared.handler_panicked(entry, caller);
    };
    let poll_over = |context: &mut Context<'_>| {
        lanes.wake_when_unwanted(OWN_ID, context.waker());
        if !lanes.is_wanted() {
            return Poll::Ready(());
        }
        place.poll_forgotten(caller.launch, context).map(|()| refused.store(true, Ordering::Relaxed))
    };
    gather::handle(entry, calls, panicked, poll_over).await;
    lanes.end(false);
    if refused.into_inner() {
        shared.statistics.count_refused_posts(posts.len());
    }
}

/// Drops the posts of a service that was removed. Its handlers are begun no more.
pub(crate) fn remove(shared: &Shared, service: &Registered) {
    service.set_removed();
    let posts = std::mem::take(&mut service.posts.0.lock().posts);
    refuse(shared, &posts);
}

/// Counts posts that no handler gets.
fn refuse(shared: &Shared, posts: &VecDeque<QueuedPost>) {
    shared.statistics.count_refused_posts(posts.len());
    for post in posts {
        shared.post_counts.handled(post.caller.launch);
    }
    shared.posts_wanted();
}

#[cfg(test)]
mod tests {
    use super::super::control::Server;
    use super::super::launches::LaunchRecord;
    use super::super::registry::{Handler, Registry};
    use super::*;
    use futures_lite::future::yield_now;
    use hostcall_abi::layout::Layout;
    use hostcall_abi::service::Method;
    use hostcall_channel::SharedMemory;
    use hostcall_service::{AsyncReply, AsyncService, OwnedReply};
    use std::sync::mpsc;

    /// Its handler waits once, and for ever if the post says so.
    struct Waits(mpsc::SyncSender<()>);

    impl AsyncService for Waits {
        fn methods(&self) -> &[Method] {
            const { &[Method::untyped("waits", 7)] }
        }

        fn call(&self, _: usize, request: OwnedRequest) -> AsyncReply {
            let (waits, for_ever) = (self.0.clone(), request.words[0] != 0);
            Box::pin(async move {
                yield_now().await;
                let _ = waits.send(());
                if for_ever {
                    std::future::pending::<()>().await;
                }
                Ok(OwnedReply::default())
            })
        }
    }

    /// As many posts as there may be, each of which finds its queue empty: nothing is kept of their futures.
    #[test]
    fn a_future_that_has_ended_leaves_nothing_behind() {
        let layout = Layout::small(32, 1, 4, 256);
        let server = Server::builder(Arc::new(SharedMemory::allocate(layout.check().unwrap())));
        let server = server.start().unwrap();
        let shared = server.shared();
        let (waits, has_waited) = mpsc::sync_channel(1);
        let mut registry = Registry::new(1);
        let service = registry.add(Handler::futures(Waits(waits))).unwrap();
        let entry = registry.find(7).unwrap().clone();
        let launch = server.begin(LaunchRecord::default()).unwrap();
        let post = |word| {
            let caller = Caller { launch, ..Caller::default() };
            let words = [word; MAX_POST_WORDS];
            let mut state = service.posts.0.lock();
            state.posts.push_back(QueuedPost { entry: entry.clone(), extra: 0, words, count: 1, caller });
            shared.post_counts.add(launch, 1);
            assert!(!std::mem::replace(&mut state.is_handled, true), "the queue was empty");
            drop(state);
            handle_all(shared, &service);
            has_waited.recv().unwrap();
        };
        let wait_until_idle = || {
            while service.posts.0.lock().is_handled {
                std::thread::yield_now();
            }
        };
        for _ in 0..100 {
            post(0);
            wait_until_idle();
        }
        assert_eq!(shared.post_counts.wakers.lock().len(), 0);
        // One that waits is woken when its post is forgotten.
        post(1);
        shared.post_counts.forget(launch.into());
        wait_until_idle();
        assert_eq!(shared.post_counts.wakers.lock().len(), 0);
        assert_eq!(server.statistics().refused_posts, 1);
    }
}
