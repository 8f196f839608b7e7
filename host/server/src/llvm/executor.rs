//! A thread that serves: looks for ports that the server owns and goes on with their conversations.
//!
//! The places of [`crate::engine::polling`] are lines of mailbox words. A conversation is a future that lives in a
//! *seat*, whose memory conversations after one another use; it is polled when its port is found, or when
//! its work on another thread is done.

use super::call;
use super::conversation;
use super::handlers::{Answer, OpcodeHandler};
use super::one_packet;
use super::opcode::{Conversation, Opcode};
use super::options::{Fault, FaultKind};
use super::port::{Port, Scratch};
use super::server::Shared;
use crate::engine::caught::catch;
use crate::engine::polling::{self, Attention, Endpoint, HotSet, SLEEP_PART};
use crate::engine::trace::Recording;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_channel::llvm::server::{Header, Scanner};
use hostcall_channel::llvm::{BUFFER_WORDS, Ports};
use hostcall_locks::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Longest sleep: within this time a call is found, since nothing wakes the thread for it.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// No conversation of a port.
const NONE: u32 = u32::MAX;

/// The port's call had a fault, and what is left of it is answered with zeros.
const FAULTY: u32 = u32::MAX - 1;

/// Conversations whose memory a thread keeps for the next ones.
const MOST_KEPT: usize = 64;

/// What a thread and its conversations share.
pub(super) struct Thread {
    shared: Arc<Shared>,
    scanner: Scanner,
    scratch: RefCell<Vec<Box<Scratch>>>,
}

impl Thread {
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn ports(&self) -> Ports<'_> {
        self.shared.memory.ports()
    }

    pub fn owns(&self, port: u32) -> bool {
        self.scanner.owns(self.ports(), port)
    }

    pub fn hand_over(&self, port: u32) {
        self.scanner.hand_over(self.ports(), port);
    }

    pub fn set_aside(&self, port: u32, aside: bool) {
        self.scanner.set_aside(port, aside);
    }

    pub fn scratch(&self) -> Box<Scratch> {
        self.scratch.borrow_mut().pop().unwrap_or_else(Scratch::new)
    }

    pub fn keep(&self, scratch: Box<Scratch>) {
        let mut kept = self.scratch.borrow_mut();
        if kept.len() < MOST_KEPT {
            kept.push(scratch);
        }
    }
}

/// Wakes a serving thread from outside.
#[derive(Default)]
pub(super) struct Bell {
    /// Seats to poll: work for their conversations is done.
    seats: Mutex<Vec<u32>>,
    pub attention: Attention,
}

struct SeatWaker {
    seat: u32,
    bell: Arc<Bell>,
}

impl Wake for SeatWaker {
    fn wake(self: Arc<Self>) {
        self.bell.seats.lock().push(self.seat);
        self.bell.attention.call();
    }
}

/// Where a conversation takes place.
struct Seat<F> {
    port: u32,
    conversation: Pin<Box<Option<F>>>,
    waker: Waker,
}

/// The ports with a conversation, and the conversations.
struct Seats<F> {
    first_port: u32,
    of_ports: Vec<u32>,
    seats: Vec<Seat<F>>,
    free: Vec<u32>,
    bell: Arc<Bell>,
}

impl<F> Seats<F> {
    fn of(&mut self, port: u32) -> &mut u32 {
        &mut self.of_ports[(port - self.first_port) as usize]
    }

    /// Gives a port's new conversation a seat.
    fn seat(&mut self, port: u32, conversation: F) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            let seat = self.seats.len() as u32;
            let waker = Arc::new(SeatWaker { seat, bell: self.bell.clone() }).into();
            self.seats.push(Seat { port, conversation: Box::pin(None), waker });
            seat
        });
        let seat = &mut self.seats[index as usize];
        seat.port = port;
        seat.conversation.set(Some(conversation));
        *self.of(port) = index;
        index
    }
}

/// Serves the ports of a range until the server stops.
pub(super) fn run(shared: Arc<Shared>, ports: Range<u32>, bell: Arc<Bell>) {
    let mut executor = executor(shared, ports, bell.clone(), conversation::converse);
    polling::run(&mut executor, &bell.attention);
}

/// Returns a function that goes on with all that waits, for servers without threads that serve. It returns how many
/// conversations that were, and 0 once the server stops.
pub(super) fn by_hand(shared: Arc<Shared>, ports: Range<u32>, bell: Arc<Bell>) -> Box<dyn FnMut() -> usize> {
    let mut executor = executor(shared, ports, bell, conversation::converse);
    Box::new(move || executor.serve_all())
}

fn executor<F, M>(shared: Arc<Shared>, ports: Range<u32>, bell: Arc<Bell>, converse: M) -> Executor<F, M> {
    let scanner = Scanner::new(ports.clone());
    let lines = scanner.lines();
    let thread = Rc::new(Thread { shared, scanner, scratch: RefCell::default() });
    Executor {
        seats: Seats {
            first_port: ports.start,
            of_ports: vec![NONE; ports.len()],
            seats: Vec::new(),
            free: Vec::new(),
            bell: bell.clone(),
        },
        converse,
        lines: HotSet::new(lines as usize),
        thread,
        bell,
    }
}

struct Executor<F, M> {
    thread: Rc<Thread>,
    seats: Seats<F>,
    converse: M,
    lines: HotSet,
    bell: Arc<Bell>,
}

impl<F, M> Executor<F, M>
where
    F: Future<Output = Result<(), FaultKind>>,
    M: Fn(Port, Conversation, Option<OpcodeHandler>) -> F,
{
    /// Polls the conversations whose work on another thread is done. Returns how many.
    fn poll_rung(&mut self) -> usize {
        let seats = std::mem::take(&mut *self.bell.seats.lock());
        for seat in &seats {
            self.poll(*seat);
        }
        seats.len()
    }

    /// Goes on with all that waits. Returns how many conversations that were.
    fn serve_all(&mut self) -> usize {
        if self.thread.shared.stopping.load(Ordering::Acquire) {
            // Handlers that wait for their clients wait no longer.
            self.seats.seats.clear();
            return 0;
        }
        let lines = 0..self.thread.scanner.lines();
        self.poll_rung() + lines.map(|line| self.line(line) as usize).sum::<usize>()
    }

    #[inline]
    fn cold_line(&mut self, line: u32) -> bool {
        let worked = !self.lines.is_hot(line) && self.line(line) != 0;
        if worked {
            self.lines.heat(line);
        }
        worked
    }

    /// Goes on with the ports of a line. Returns how many there were.
    #[inline]
    fn line(&mut self, line: u32) -> u32 {
        let mut ready = self.thread.scanner.ready(self.thread.ports(), line);
        let found = ready.count_ones();
        while ready != 0 {
            self.port(self.thread.scanner.first_port(line) + ready.trailing_zeros());
            ready &= ready - 1;
        }
        found
    }

    #[inline]
    fn port(&mut self, port: u32) {
        self.thread.ports().prefetch(port);
        // What the client wrote before is there only after this.
        if !self.thread.owns(port) {
            return;
        }
        match *self.seats.of(port) {
            NONE => self.begin(port),
            FAULTY => self.go_on_with_zeros(port),
            seat => self.poll(seat),
        }
    }

    /// Returns the opcode that a port's header has once the server knows its call: a client that opens the port for another call
    /// writes that one's. `None` where clients of faulty calls get no answer.
    #[inline]
    fn known_call(&self) -> Option<u32> {
        let Shared { memory, options, .. } = &*self.thread.shared;
        options.before_zeros.is_some().then(|| memory.layout().version().opcode_mask())
    }

    /// Answers the next packet of a call that had a fault, or begins the call that came after it.
    #[cold]
    fn go_on_with_zeros(&mut self, port: u32) {
        let opcode = self.thread.ports().read_header(port).opcode as u32;
        if self.known_call().is_some_and(|known| opcode & known == known) {
            return self.answer_zeros(port);
        }
        *self.seats.of(port) = NONE;
        self.begin(port);
    }

    fn answer_zeros(&self, port: u32) {
        let ports = self.thread.ports();
        (0..ports.lanes()).for_each(|lane| ports.write(port, lane, &[0; BUFFER_WORDS]));
        self.thread.hand_over(port);
    }

    /// Begins a port's conversation.
    #[inline]
    fn begin(&mut self, port: u32) {
        self.thread.shared.counted.calls.fetch_add(1, Ordering::Relaxed);
        let header = self.thread.ports().read_header(port);
        let layout = self.thread.shared.memory.layout();
        let code = header.opcode as u32 & layout.version().opcode_mask();
        if let Some(known) = self.known_call() {
            if code == known {
                return self.fault(port, FaultKind::BeyondEnd);
            }
            self.thread.ports().set_opcode(port, known);
        }
        if header.mask == 0 || header.mask > u64::MAX >> (64 - layout.lanes()) {
            return self.fault(port, FaultKind::Mask(header.mask));
        }
        if let Some(handler) = self.thread.shared.handlers.of(code) {
            return self.begin_handler(port, header, code, handler);
        }
        match Opcode::of(layout.version(), header.opcode) {
            None => match self.thread.shared.handlers.of_unknown() {
                Some(handler) => self.begin_handler(port, header, code, handler),
                None => self.fault(port, FaultKind::Opcode(code)),
            },
            Some(Opcode::OnePacket(what)) => {
                let trace = self.thread.shared.options.endpoint.trace.as_ref();
                let recording = trace.map(|trace| Recording::start(trace, port, header.mask.count_ones()));
                let answer = || one_packet::answer(&self.thread, port, header.mask, what);
                let is_answered = catch(answer).is_ok();
                if !is_answered {
                    self.fault(port, FaultKind::Panicked);
                }
                if let Some(recording) = recording {
                    record(recording, what.name(), header, is_answered);
                }
            }
            Some(Opcode::Conversation(about)) => self.begin_conversation(port, header, about, None),
        }
    }

    fn begin_conversation(
        &mut self,
        port: u32,
        header: Header,
        about: Conversation,
        handler: Option<OpcodeHandler>,
    ) {
        let conversation = (self.converse)(Port::new(&self.thread, port, header, about), about, handler);
        let seat = self.seats.seat(port, conversation);
        self.poll(seat);
    }

    /// Begins a conversation that a handler of the embedding program answers.
    fn begin_handler(&mut self, port: u32, header: Header, code: u32, handler: OpcodeHandler) {
        let Answer::Packet { answer, is_inline: true } = &handler.0 else {
            return self.begin_conversation(port, header, Conversation::Handler, Some(handler));
        };
        let trace = self.thread.shared.options.endpoint.trace.as_ref();
        let recording = trace.map(|trace| Recording::start(trace, port, header.mask.count_ones()));
        let answered = catch(|| one_packet::answer_with(&self.thread, port, header.mask, code, &**answer));
        let is_answered = matches!(answered, Ok(Ok(())));
        match answered {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => self.fault(port, call::failed(failed)),
            Err(_) => self.fault(port, FaultKind::Panicked),
        }
        if let Some(recording) = recording {
            record(recording, Conversation::Handler.name(), header, is_answered);
        }
    }

    fn poll(&mut self, index: u32) {
        let seat = &mut self.seats.seats[index as usize];
        let Some(conversation) = seat.conversation.as_mut().as_pin_mut() else {
            // Work was done for a conversation that has ended.
            return;
        };
        let mut context = Context::from_waker(&seat.waker);
        let polled = catch(|| conversation.poll(&mut context));
        let result = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(result)) => result,
            Err(_) => Err(FaultKind::Panicked),
        };
        seat.conversation.set(None);
        let port = seat.port;
        self.seats.free.push(index);
        *self.seats.of(port) = NONE;
        if let Err(kind) = result {
            self.fault(port, kind);
        }
    }

    /// Gives up a call: its port is served no more, or its client gets zeros from now on.
    #[cold]
    fn fault(&mut self, port: u32, kind: FaultKind) {
        let fault = Fault { port, kind };
        let Some(note) = &self.thread.shared.options.before_zeros else {
            self.thread.set_aside(port, true);
            return self.thread.shared.fault(fault);
        };
        // Whoever waits for the fault is told below.
        let _ = catch(|| note(&fault));
        self.thread.shared.fault(fault);
        *self.seats.of(port) = FAULTY;
        if self.thread.owns(port) {
            self.answer_zeros(port);
        }
    }
}

/// Records a call of one packet, whose handler took all of its time.
#[cold]
fn record(mut recording: Recording, name: &'static str, header: Header, is_answered: bool) {
    recording.began(recording.picked_up_ns());
    if !is_answered {
        recording.lanes_ended(header.mask.count_ones(), Status::Error(CallError::Panicked));
    }
    recording.answered(name, header.opcode as u32, LaunchId::NONE);
}

impl<F, M> Endpoint for Executor<F, M>
where
    F: Future<Output = Result<(), FaultKind>>,
    M: Fn(Port, Conversation, Option<OpcodeHandler>) -> F,
{
    fn attend(&mut self) -> bool {
        if self.thread.shared.stopping.load(Ordering::Acquire) {
            return false;
        }
        self.poll_rung();
        true
    }

    #[inline]
    fn pass(&mut self) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(line) = self.lines.get(at) {
            let found = self.line(line) != 0;
            worked |= found;
            at += usize::from(self.lines.judge(at, found));
        }
        let cold = self.lines.next_in_turn();
        self.cold_line(cold) | worked
    }

    fn sweep(&mut self, _again: bool) -> bool {
        (0..self.thread.scanner.lines()).fold(false, |worked, line| self.cold_line(line) | worked)
    }

    #[inline(always)]
    fn is_busy(&self) -> bool {
        !self.lines.is_empty()
    }

    fn longest_sleep(&mut self, idle: Duration, _again: bool) -> Duration {
        (idle / SLEEP_PART).min(LONGEST_SLEEP)
    }
}
