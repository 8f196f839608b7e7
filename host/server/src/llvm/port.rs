//! The server's side of a port, as a conversation sees it.

use super::executor::Thread;
use super::opcode::Conversation;
use super::options::{Fault, FaultKind};
use super::server::Shared;
use crate::engine::Threads;
use crate::engine::budget::Charge;
use crate::engine::calls::Call;
use crate::engine::trace::Recording;
use crate::engine::watchdog::{Waiting, WaitsFor, Watched};
use futures_lite::future::poll_fn;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_channel::llvm::server::Header;
use hostcall_channel::llvm::{BUFFER_BYTES, BUFFER_WORDS, FIRST_PIECE_BYTES};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// Most lanes of a wave.
pub(super) const MAX_LANES: usize = 64;

/// Bytes of a conversation's messages that are not counted against the limit of all messages.
const UNCOUNTED_BYTES: usize = 32 << 10;

/// What a message counts at least, for its memory's bookkeeping.
const LEAST_BYTES: u64 = 64;

/// Room for a lane's message that is kept for the next conversation.
pub(super) const KEPT_BYTES: usize = 16 << 10;

/// Room that is made for a message before its bytes are there.
const ROOM_IN_ADVANCE: usize = 64 << 10;

/// What a conversation keeps of its lanes' data. Conversations after one another use the same.
pub(super) struct Scratch {
    /// The lanes' buffers, as received last or to be sent next.
    pub words: [[u64; BUFFER_WORDS]; MAX_LANES],
    /// The lanes' messages.
    pub bytes: [Vec<u8>; MAX_LANES],
    /// Bytes that each lane's client said it sends.
    sizes: [u64; MAX_LANES],
}

impl Scratch {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            words: [[0; BUFFER_WORDS]; MAX_LANES],
            bytes: [const { Vec::new() }; MAX_LANES],
            sizes: [0; MAX_LANES],
        })
    }
}

/// A port whose client began to talk.
pub(super) struct Port {
    thread: Rc<Thread>,
    index: u32,
    mask: u64,
    /// What the client asked for.
    about: Conversation,
    /// The last operation was a receive: the server owns the buffers.
    received: bool,
    /// For bytes that are counted against the limit of all messages.
    charge: Charge,
    /// Bytes that are not counted yet, and may stay so.
    uncounted: usize,
    /// There may be messages in the scratch memory.
    has_messages: bool,
    scratch: Option<Box<Scratch>>,
    /// Until the conversation ends, if there is a tracer.
    recording: Option<Box<Recording>>,
    opcode: u32,
}

/// The lanes of a mask.
pub(super) fn lanes_of(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 64).then_some(lane)
    })
}

impl Port {
    /// The port with this header, whose mask was checked.
    pub fn new(thread: &Rc<Thread>, index: u32, header: Header, about: Conversation) -> Self {
        let scratch = Some(thread.scratch());
        let trace = thread.shared().options.endpoint.trace.as_ref();
        let recording = trace.map(|trace| Box::new(Recording::start(trace, index, header.mask.count_ones())));
        Self {
            thread: thread.clone(),
            index,
            mask: header.mask,
            about,
            received: false,
            charge: Charge::new(&thread.shared().budget),
            uncounted: UNCOUNTED_BYTES,
            has_messages: false,
            scratch,
            recording,
            opcode: header.opcode as u32 & thread.shared().memory.layout().version().opcode_mask(),
        }
    }

    /// What the server's threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        self.thread.shared()
    }

    /// The wave's lanes that talk.
    pub fn lanes(&self) -> impl Iterator<Item = u32> + use<> {
        lanes_of(self.mask)
    }

    /// What the client asked for.
    pub fn opcode(&self) -> u32 {
        self.opcode
    }

    /// The wave's lanes that talk, one bit a lane.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Tells of what was wrong with a call that was answered.
    pub fn tell(&self, kind: FaultKind) {
        self.shared().fault(Fault { port: self.index, kind });
    }

    /// Takes the lanes' data, for somebody else to work on.
    pub fn take_scratch(&mut self) -> Box<Scratch> {
        self.scratch.take().expect("a port has it until it is dropped")
    }

    /// Gives the lanes' data back.
    pub fn put_scratch(&mut self, scratch: Box<Scratch>) {
        self.has_messages = true;
        self.scratch = Some(scratch);
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("a port has it until it is dropped")
    }

    /// A lane's buffer.
    pub fn words(&mut self, lane: u32) -> &mut [u64; BUFFER_WORDS] {
        &mut self.scratch().words[lane as usize]
    }

    /// A lane's message.
    pub fn bytes(&mut self, lane: u32) -> &mut Vec<u8> {
        self.has_messages = true;
        &mut self.scratch().bytes[lane as usize]
    }

    /// Gives up a lane's message, but some room for the next one.
    pub fn give_up_bytes(&mut self, lane: u32) {
        let bytes = self.bytes(lane);
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
    }

    async fn owned(&self) {
        let (thread, index) = (&self.thread, self.index);
        // The executor looks at every port that is not set aside and polls this when the client has written.
        poll_fn(|_| if thread.owns(index) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn hand_over(&mut self) {
        self.thread.hand_over(self.index);
        self.received = false;
    }

    /// Ends the conversation. After a receive the client gets the buffers back.
    pub fn close(mut self) {
        if self.received {
            self.hand_over();
        }
        self.record(Status::Ok);
    }

    /// Records the call, if that was not done.
    pub fn record(&mut self, status: Status) {
        if let Some(mut recording) = self.recording.take() {
            recording.began(recording.picked_up_ns());
            recording.lanes_ended(self.mask.count_ones(), status);
            recording.answered(self.about.name(), self.opcode, LaunchId::NONE);
        }
    }

    /// Receives the first `words` words of each lane's buffer.
    pub async fn receive(&mut self, words: usize) {
        if self.received {
            self.hand_over();
        }
        self.owned().await;
        self.received = true;
        let Self { thread, index, scratch, .. } = self;
        let scratch = scratch.as_mut().expect("a port has it until it is dropped");
        let ports = thread.ports();
        for lane in lanes_of(self.mask) {
            ports.read(*index, lane, &mut scratch.words[lane as usize][..words]);
        }
    }

    /// Sends the first `words` words of each lane's buffer.
    pub async fn send(&mut self, words: usize) {
        if !self.received {
            self.owned().await;
        }
        let Self { thread, index, scratch, .. } = self;
        let scratch = scratch.as_mut().expect("a port has it until it is dropped");
        let ports = thread.ports();
        for lane in lanes_of(self.mask) {
            ports.write(*index, lane, &scratch.words[lane as usize][..words]);
        }
        self.hand_over();
    }

    /// Receives each lane's message into its bytes.
    pub async fn receive_bytes(&mut self) -> Result<(), FaultKind> {
        self.receive(BUFFER_WORDS).await;
        self.has_messages = true;
        let mut longest = 0;
        for lane in self.lanes() {
            let size = self.words(lane)[0];
            self.count(size)?;
            if let Some(recording) = &mut self.recording {
                recording.add_bytes(size as usize, 0);
            }
            longest = longest.max(size);
            let Scratch { words, bytes, sizes } = self.scratch();
            let (words, bytes) = (&words[lane as usize][1..], &mut bytes[lane as usize]);
            sizes[lane as usize] = size;
            bytes.clear();
            bytes.reserve((size as usize).min(ROOM_IN_ADVANCE));
            append(bytes, words, size);
        }
        let mut done = FIRST_PIECE_BYTES as u64;
        while done < longest {
            self.receive(BUFFER_WORDS).await;
            let Self { mask, scratch, .. } = self;
            let Scratch { words, bytes, sizes } =
                &mut **scratch.as_mut().expect("a port has it until it is dropped");
            for lane in lanes_of(*mask) {
                append(&mut bytes[lane as usize], &words[lane as usize], sizes[lane as usize]);
            }
            done += BUFFER_BYTES as u64;
        }
        Ok(())
    }

    /// Counts a message that a client wants to send against the limits.
    fn count(&mut self, bytes: u64) -> Result<(), FaultKind> {
        if bytes > self.shared().budget.most_each as u64 {
            return Err(FaultKind::TooLong(bytes));
        }
        self.count_memory(bytes.max(LEAST_BYTES) as usize)
    }

    /// Frees what was received before, and counts nothing of it any more.
    pub fn forget_messages(&mut self) {
        shrink(self.scratch());
        self.charge = Charge::new(&self.shared().budget);
        self.uncounted = UNCOUNTED_BYTES;
    }

    /// Counts memory that the conversation needs.
    pub fn count_memory(&mut self, bytes: usize) -> Result<(), FaultKind> {
        if let Some(left) = self.uncounted.checked_sub(bytes) {
            self.uncounted = left;
            return Ok(());
        }
        self.charge.add(bytes).map_err(|_| FaultKind::TooMuch)
    }

    /// How many of so many bytes may be sent to a client, which are counted.
    pub fn room_for(&mut self, bytes: u64) -> usize {
        let most = self.thread.shared().budget.most_each as u64;
        self.charge.add_up_to(bytes.min(most) as usize)
    }

    /// Sends each lane's bytes.
    pub async fn send_bytes(&mut self) {
        let mut longest = 0;
        for lane in self.lanes() {
            let Scratch { words, bytes, .. } = self.scratch();
            let (words, bytes) = (&mut words[lane as usize], &bytes[lane as usize]);
            words[0] = bytes.len() as u64;
            pack(&mut words[1..], bytes);
            let len = bytes.len();
            longest = longest.max(len);
            if let Some(recording) = &mut self.recording {
                recording.add_bytes(0, len);
            }
        }
        self.send(BUFFER_WORDS).await;
        let mut done = FIRST_PIECE_BYTES;
        while done < longest {
            for lane in self.lanes() {
                let Scratch { words, bytes, .. } = self.scratch();
                let bytes = &bytes[lane as usize];
                pack(&mut words[lane as usize], &bytes[done.min(bytes.len())..]);
            }
            self.send(BUFFER_WORDS).await;
            done += BUFFER_BYTES;
        }
    }

    /// Leaves the port out of those that are looked at, for as long as something else works for it.
    pub fn set_aside(&self) -> Aside {
        self.thread.set_aside(self.index, true);
        let call = Arc::new(WaitingCall {
            port: self.index,
            lanes: self.mask.count_ones(),
            about: self.about,
            opcode: self.opcode,
            started: Instant::now(),
        });
        self.thread.shared().engine.watchdog.watch(&call);
        Aside { thread: self.thread.clone(), port: self.index, _call: call }
    }

    /// Runs what may wait on one of these threads.
    pub async fn work<T: Send + 'static>(
        &mut self,
        threads: Threads,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FaultKind> {
        let engine = &self.thread.shared().engine;
        let aside = self.set_aside();
        let trace = self.recording.as_ref().map(|_| self.thread.shared().options.endpoint.trace.clone());
        let timed = move || {
            let Some(trace) = trace.flatten() else { return (work(), None) };
            let began_ns = trace.now_ns();
            (work(), Some([began_ns, trace.now_ns()]))
        };
        let result = engine.pool(threads).run(timed).await;
        drop(aside);
        let (result, times) = result.map_err(|_| FaultKind::Panicked)?;
        if let (Some(recording), Some([began_ns, ended_ns])) = (&mut self.recording, times) {
            recording.began(began_ns);
            recording.ended(ended_ns);
        }
        Ok(result)
    }
}

/// While this lives, a port is not looked at, and the watchdog tells of it.
pub(super) struct Aside {
    thread: Rc<Thread>,
    port: u32,
    _call: Arc<WaitingCall>,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.thread.set_aside(self.port, false);
    }
}

/// A conversation that waits for work on another thread. The watchdog tells of it while this lives; nobody can give it up,
/// since the protocol has no word for that.
struct WaitingCall {
    port: u32,
    lanes: u32,
    about: Conversation,
    opcode: u32,
    started: Instant,
}

impl Call for WaitingCall {
    fn is_open(&self) -> bool {
        true
    }

    fn launch(&self) -> LaunchId {
        LaunchId::NONE
    }
}

impl Watched for WaitingCall {
    fn started(&self) -> Instant {
        self.started
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn expire(&self, _: Instant) {}

    fn give_up(&self) {}

    fn give_up_soon(&self) {}

    fn slot(&self) -> u32 {
        self.port
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            device: Arc::default(),
            slot: self.port,
            launch: LaunchId::NONE,
            kernel: "".into(),
            place: None,
            lanes: self.lanes,
            service: match self.about {
                Conversation::Handler => format!("LLVM's opcode {:#x}", self.opcode),
                Conversation::Emissary { .. } => "LLVM's Emissary".into(),
                about => format!("LLVM's {about:?}"),
            },
            waited: self.started.elapsed(),
            waits_for: WaitsFor::Handler,
        }
    }
}

/// What is kept goes to the next conversation.
impl Drop for Port {
    fn drop(&mut self) {
        // A conversation that is dropped did not close its port: it failed, or the server stops.
        self.record(Status::Error(CallError::Cancelled));
        if let Some(mut scratch) = self.scratch.take() {
            if self.has_messages {
                shrink(&mut scratch);
            }
            self.thread.keep(scratch);
        }
    }
}

/// Leaves no bytes of any lane, and little memory for the next: a handler may have set those of lanes that do not call.
fn shrink(scratch: &mut Scratch) {
    for bytes in &mut scratch.bytes {
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
    }
}

/// Appends what of a message of `size` bytes lies in `words`.
fn append(bytes: &mut Vec<u8>, words: &[u64], size: u64) {
    let left = (size - bytes.len() as u64).min(words.len() as u64 * 8) as usize;
    for (i, word) in words.iter().enumerate().take(left.div_ceil(8)) {
        bytes.extend_from_slice(&word.to_le_bytes()[..(left - 8 * i).min(8)]);
    }
}

/// Fills words from bytes, as far as they go.
fn pack(words: &mut [u64], bytes: &[u8]) {
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(padded);
    }
}
