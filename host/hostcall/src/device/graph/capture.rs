//! Streams that capture: what they are given is recorded, and not done.
//!
//! A capture is *broken* by work that a replay could not repeat or that would have to be done now: waiting
//! for or reading on one of its streams, an allocation that is under no cache and cannot be the capture's
//! (see [`CaptureMode`]), a second capture on the stream, functions and closures that run once, an event from
//! outside, the launch of an instance, a fork that was not joined, the end of the stream or of the device.
//! The call that broke it gets the sentence that says why, and so do later calls on the stream and the end of
//! the capture.
//!
//! Memory that the capturing thread allocates is the capture's: a node gives it its first values at each
//! replay, and the nodes that use it keep it. Whoever drops the buffer before the capture ends has given it
//! to the graph. Within the capture, dropped memory is handed out again, which the one order of nodes allows.
//! The host's own copies are refused meanwhile, since replays would not make them.

use super::node::{Node, TransferNode};
use super::{Graph, Recorded, new_name};
use crate::device::buffer::Allocation;
use crate::device::core::Core;
use crate::device::error::{Error, GraphError};
use crate::device::inner::Device;
use crate::device::stream::{Stream, StreamQueue};
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// Who breaks a capture, of what breaks one.
///
/// | | `Global` | `ThreadLocal` | `Relaxed` |
/// |---|---|---|---|
/// | another thread's allocation under no [`AllocCache`](super::AllocCache) | breaks it | is none of it | is none of it |
/// | one of the thread that began it | is captured | is captured | is none of it |
/// | other threads' work on a stream of the capture | is captured | breaks it | is captured |
///
/// A buffer whose allocation is captured gets its first values at each replay, and belongs to the graph: it is dropped before
/// the capture's end, which is else broken, and meanwhile the host neither reads nor writes it. Buffers of one size that are
/// dropped and allocated in turn are one memory. Pinned memory is not captured: to allocate some breaks the capture.
///
/// In every mode a capture is broken by what waits for its streams or reads on them. Nothing else that threads do breaks
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// What any thread does with the device counts.
    Global,
    /// What the thread counts that began the capture.
    #[default]
    ThreadLocal,
    /// Only what is done with the capture's streams counts.
    Relaxed,
}

/// The captures that have not ended, of all devices.
static CAPTURES: Mutex<Vec<Weak<Capture>>> = Mutex::new(Vec::new());

/// How many there are at most: most threads never look further.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Captures neither begin nor end while what is returned lives.
pub(crate) fn hold_captures() -> impl Sized {
    CAPTURES.lock()
}

fn add_capture(capture: &Arc<Capture>) {
    let mut captures = CAPTURES.lock();
    captures.push(Arc::downgrade(capture));
    COUNT.store(captures.len(), Ordering::SeqCst);
}

fn remove_capture(capture: &Arc<Capture>) {
    let mut captures = CAPTURES.lock();
    captures.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**capture));
    COUNT.store(captures.len(), Ordering::SeqCst);
}

/// Refuses an allocation under no cache that breaks a capture.
pub(crate) fn check_allocation(core: &Core, call: &'static str) -> Result<(), Error> {
    owner_of_allocation(core, call, false).map(drop)
}

/// Returns the capture that an allocation is one of, if it may be. Refuses one that breaks a capture: of another thread
/// than the capture's, or one that could be of several.
pub(crate) fn owner_of_allocation(
    core: &Core,
    call: &'static str,
    may_be: bool,
) -> Result<Option<Arc<Capture>>, Error> {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return Ok(None);
    }
    let mut captures: Vec<_> = CAPTURES.lock().iter().filter_map(Weak::upgrade).collect();
    let here = std::thread::current().id();
    captures.retain(|capture| capture.device == core.id());
    captures.retain(|capture| match capture.mode {
        CaptureMode::Global => true,
        CaptureMode::ThreadLocal => capture.thread == here,
        CaptureMode::Relaxed => false,
    });
    // One that ends now captures nothing more.
    captures.retain(|capture| !capture.state.lock().has_ended);
    if let [capture] = &captures[..]
        && may_be
        && capture.thread == here
    {
        return Ok(Some(capture.clone()));
    }
    let mut refused = Ok(None);
    for capture in captures {
        refused = Err(capture.break_with(GraphError::Allocated { call }).into());
    }
    refused
}

/// What the streams of a capture were given.
pub(crate) struct Capture {
    mode: CaptureMode,
    /// The number of its device.
    device: u64,
    thread: ThreadId,
    /// The stream that it was begun on.
    origin: Weak<StreamQueue>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recorded: Recorded,
    broken: Option<GraphError>,
    has_ended: bool,
    allocations: Vec<CapturedAllocation>,
    /// The streams, by address: which nodes the next one of each waits for.
    streams: HashMap<usize, Member>,
}

impl State {
    /// Why a call is refused, if the capture is broken or over.
    fn refused(&self) -> Option<GraphError> {
        let why = self.broken.clone()?;
        // Of one that is over it is said that it is.
        Some(if self.has_ended { why } else { GraphError::Broken { why: Box::new(why) } })
    }
}

/// Memory that was allocated in a capture, and by which call last.
struct CapturedAllocation {
    allocation: Arc<Allocation>,
    bytes: usize,
    call: &'static str,
}

impl CapturedAllocation {
    /// Says whether somebody besides nodes has it. Who has none cannot get one, but by another allocation.
    fn is_held(&self) -> bool {
        let of_nodes = self.allocation.graph_uses.load(Ordering::Relaxed);
        Arc::strong_count(&self.allocation) > 1 + of_nodes
    }
}

struct Member {
    queue: Weak<StreamQueue>,
    last: Vec<u32>,
}

fn address(queue: &StreamQueue) -> usize {
    std::ptr::from_ref(queue).addr()
}

/// A point of a capture, as its event knows it.
#[derive(Clone)]
pub(crate) struct CapturedPoint {
    capture: Arc<Capture>,
    nodes: Vec<u32>,
}

impl Capture {
    /// Notes what broke the capture, unless something did before. Returns why the call is refused.
    fn break_with(&self, why: GraphError) -> GraphError {
        let mut state = self.state.lock();
        if let Some(refused) = state.refused() {
            return refused;
        }
        state.broken = Some(why.clone());
        why
    }

    /// Refuses a call on a stream of the capture that was broken, or that the call breaks.
    fn check(&self, queue: &StreamQueue, call: &'static str) -> Result<(), GraphError> {
        if let Some(refused) = self.state.lock().refused() {
            return Err(refused);
        }
        if queue.device.core.closed.load(Ordering::SeqCst) {
            return Err(self.break_with(GraphError::Closed));
        }
        if self.mode == CaptureMode::ThreadLocal && self.thread != std::thread::current().id() {
            return Err(self.break_with(GraphError::OtherThread { call }));
        }
        Ok(())
    }

    /// Adds a node that a stream was given.
    pub fn add(&self, queue: &Arc<StreamQueue>, node: Node) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(refused) = state.refused() {
            return Err(refused.into());
        }
        let at = state.recorded.nodes.len() as u32;
        let member = Member { queue: Arc::downgrade(queue), last: Vec::new() };
        let member = state.streams.entry(address(queue)).or_insert(member);
        let after = std::mem::replace(&mut member.last, vec![at]);
        state.recorded.push(node, after);
        Ok(())
    }

    /// Returns memory for an allocation in the capture: some that was dropped in it, or new.
    pub fn allocate(
        &self,
        bytes: usize,
        call: &'static str,
        new: impl FnOnce() -> Result<Arc<Allocation>, Error>,
    ) -> Result<Arc<Allocation>, Error> {
        let dropped = {
            let mut state = self.state.lock();
            if let Some(refused) = state.refused() {
                return Err(refused.into());
            }
            let is_free = |known: &&mut CapturedAllocation| known.bytes == bytes && !known.is_held();
            state.allocations.iter_mut().find(is_free).map(|known| {
                known.call = call;
                known.allocation.clone()
            })
        };
        if let Some(allocation) = dropped {
            allocation.is_of_capture.store(false, Ordering::Relaxed);
            return Ok(allocation);
        }
        let allocation = new()?;
        let known = CapturedAllocation { allocation: allocation.clone(), bytes, call };
        self.state.lock().allocations.push(known);
        Ok(allocation)
    }

    /// Adds the node that gives memory its first values at each replay. The host reaches the memory no more.
    pub fn begin_values(&self, allocation: &Allocation, node: TransferNode) -> Result<(), Error> {
        let queue = self.origin.upgrade().ok_or(GraphError::StreamDropped)?;
        self.add(&queue, Node::Transfer(node))?;
        allocation.is_of_capture.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Notes what an error of a captured call means for the capture.
    pub fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Graph(error @ GraphError::OneShotClosure { .. })) = &result {
            self.break_with(error.clone());
        }
        result
    }

    /// Ends the capture: its streams are as any others. Returns what they were given.
    fn end(self: &Arc<Self>, origin: &StreamQueue) -> Result<Recorded, GraphError> {
        remove_capture(self);
        let state = {
            let mut state = self.state.lock();
            // Another thread may be about to add a node.
            let broken = Some(GraphError::NotCapturing { call: "work" });
            std::mem::replace(&mut *state, State { has_ended: true, broken, ..State::default() })
        };
        let queues: Vec<_> = state.streams.values().filter_map(|member| member.queue.upgrade()).collect();
        for queue in &queues {
            queue.recorder.clear();
        }
        let mut kept = Ok(());
        for known in state.allocations.iter().filter(|known| known.is_held()) {
            // Who has it may use it as any other memory, since it is no graph's alone.
            known.allocation.is_of_capture.store(false, Ordering::Relaxed);
            kept = Err(GraphError::Allocated { call: known.call });
        }
        if let Some(broken) = state.broken {
            return Err(broken);
        }
        kept?;
        let last = |queue: &StreamQueue| state.streams.get(&address(queue)).map(|member| &member.last);
        let mut is_joined = vec![false; state.recorded.nodes.len()];
        let mut open: Vec<u32> = last(origin).cloned().unwrap_or_default();
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut is_joined[at as usize], true) {
                open.extend(&state.recorded.nodes[at as usize].after);
            }
        }
        let is_left = |member: &&Member| member.last.iter().any(|at| !is_joined[*at as usize]);
        match state.streams.values().filter(is_left).count() {
            0 => Ok(state.recorded),
            streams => Err(GraphError::NotJoined { streams }),
        }
    }
}

/// Ends a capture whose work panicked.
struct Unwinding<'a>(Option<&'a Stream>);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            let _ = stream.end_capture();
        }
    }
}

impl Stream {
    /// Records the work that `work` gives the stream, which is not done. When `work` panics, the capture is over.
    ///
    /// Launches, writes, copies, fills, [repeated functions](Stream::repeated_function) and [graphs](Stream::add_graph) are
    /// captured. A stream that waits for an event of the capture becomes one of its streams, until the capture's end: so
    /// work forks, and it is joined when this stream waits for an event of the other one.
    ///
    /// # Errors
    /// What `work` gives, or what broke the capture. Afterwards the stream is as before.
    pub fn capture(
        &self,
        mode: CaptureMode,
        work: impl FnOnce(&Stream) -> Result<(), Error>,
    ) -> Result<Graph, Error> {
        self.begin_capture(mode)?;
        let mut unwinding = Unwinding(Some(self));
        let done = work(self);
        unwinding.0 = None;
        let graph = self.end_capture();
        match (done, graph) {
            // A capture that was broken says why, whatever came of that.
            (_, Err(error)) => Err(error),
            (done, graph) => done.and(graph),
        }
    }

    /// Begins to record the stream's work. [`Stream::capture`] does so until a function returns.
    ///
    /// # Errors
    /// When the stream captures already, which breaks that capture, or the device was closed.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<(), Error> {
        let queue = self.queue();
        queue.check_open()?;
        if let Some(capture) = current(queue) {
            return Err(capture.break_with(GraphError::SecondCapture).into());
        }
        let (thread, origin) = (std::thread::current().id(), Arc::downgrade(queue));
        let device = queue.device.core.id();
        let capture = Arc::new(Capture { mode, device, thread, origin, state: Mutex::default() });
        let member = Member { queue: Arc::downgrade(queue), last: Vec::new() };
        capture.state.lock().streams.insert(address(queue), member);
        // Who ends the capture finds it in the slot, and then in the list too: another thread may end it at once.
        add_capture(&capture);
        if !queue.recorder.set(capture.clone()) {
            remove_capture(&capture);
            return Err(GraphError::SecondCapture.into());
        }
        Ok(())
    }

    /// Ends the capture that was begun on this stream.
    ///
    /// # Errors
    /// What broke the capture, or that there is none or was begun on another stream. Afterwards the capture's streams are as
    /// before it, but in the last case.
    pub fn end_capture(&self) -> Result<Graph, Error> {
        let queue = self.queue();
        let capture = current(queue).ok_or(GraphError::NotCapturing { call: "end_capture" })?;
        if !std::ptr::eq(capture.origin.as_ptr(), &**queue) {
            return Err(GraphError::EndedElsewhere.into());
        }
        // What it breaks the capture with, the end returns.
        let _ = capture.check(queue, "end_capture");
        let recorded = capture.end(queue)?;
        let device = Device { inner: queue.device.clone() };
        Ok(Graph { name: new_name(), device, recorded })
    }

    /// Says whether the stream's work is recorded.
    pub fn is_capturing(&self) -> bool {
        current(self.queue()).is_some()
    }

    /// Adds a graph to what the stream captures, as one node.
    ///
    /// # Errors
    /// When the stream does not capture, the graph is another device's, or graphs lie in it too deep.
    pub fn add_graph(&self, graph: &Graph) -> Result<(), Error> {
        let call = "add_graph";
        let child = graph.child_of(self.core())?;
        let capture = capture_of(self, call)?.ok_or(GraphError::NotCapturing { call })?;
        capture.add(self.queue(), Node::Graph(child))
    }
}

/// The capture that gets a stream's work, if it captures.
fn current(queue: &StreamQueue) -> Option<Arc<Capture>> {
    queue.recorder.get()?.downcast().ok()
}

/// Returns the capture that gets what a call gives the stream, if there is one.
pub(crate) fn capture_of(stream: &Stream, call: &'static str) -> Result<Option<Arc<Capture>>, Error> {
    let Some(capture) = current(stream.queue()) else { return Ok(None) };
    capture.check(stream.queue(), call)?;
    Ok(Some(capture))
}

/// Refuses what cannot be captured, if the stream captures; that breaks the capture.
pub(crate) fn refuse_captured(
    stream: &Stream,
    why: impl FnOnce() -> GraphError,
    call: &'static str,
) -> Result<(), Error> {
    match capture_of(stream, call)? {
        Some(capture) => Err(capture.break_with(why()).into()),
        None => Ok(()),
    }
}

/// Records an event, if the stream captures.
pub(crate) fn capture_event(stream: &Stream) -> Result<Option<CapturedPoint>, Error> {
    let Some(capture) = capture_of(stream, "record")? else { return Ok(None) };
    let nodes = {
        let state = capture.state.lock();
        state.streams.get(&address(stream.queue())).map(|member| member.last.clone())
    };
    Ok(Some(CapturedPoint { capture, nodes: nodes.unwrap_or_default() }))
}

/// Has the stream wait for an event, which is at `point` if it was captured, as far as captures go. Returns whether that was all.
pub(crate) fn capture_wait(stream: &Stream, point: Option<&CapturedPoint>) -> Result<bool, Error> {
    let own = capture_of(stream, "wait_for")?;
    let (capture, nodes) = match (own, point) {
        (None, None) => return Ok(false),
        (Some(capture), None) => return Err(capture.break_with(GraphError::ForeignEvent).into()),
        (Some(capture), Some(point)) if !Arc::ptr_eq(&capture, &point.capture) => {
            return Err(capture.break_with(GraphError::ForeignEvent).into());
        }
        (_, Some(point)) => (&point.capture, &point.nodes),
    };
    if capture.state.lock().has_ended {
        return Err(GraphError::Captured { what: "an event" }.into());
    }
    capture.check(stream.queue(), "wait_for")?;
    let mut state = capture.state.lock();
    if state.has_ended {
        return Err(GraphError::Captured { what: "an event" }.into());
    }
    let queue = stream.queue();
    let joined = queue.recorder.set(capture.clone());
    if !joined && !current(queue).is_some_and(|own| Arc::ptr_eq(&own, capture)) {
        return Err(GraphError::SecondCapture.into());
    }
    let member = Member { queue: Arc::downgrade(queue), last: Vec::new() };
    let member = state.streams.entry(address(queue)).or_insert(member);
    for node in nodes {
        if !member.last.contains(node) {
            member.last.push(*node);
        }
    }
    Ok(true)
}

/// The stream is dropped: its capture is broken, and over if it was begun on it.
pub(crate) fn leave_capture(stream: &Stream) {
    let Some(capture) =
        stream.queue().recorder.clear().and_then(|capture| capture.downcast::<Capture>().ok())
    else {
        return;
    };
    capture.break_with(GraphError::StreamDropped);
    if std::ptr::eq(capture.origin.as_ptr(), &**stream.queue()) {
        let _ = capture.end(stream.queue());
    }
}
