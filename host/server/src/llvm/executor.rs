//! A thread that serves: looks for ports that the server owns and goes on with their conversations.
//!
//! The places of [`crate::engine::polling`] are lines of mailbox words. A conversation is a future that lives in a
//! *seat*, whose memory conversations after one another use; it is polled when its port is found, or when
//! its work on another thread is done.

use super::conversation;
use super::one_packet;
use super::opcode::{Conversation, OnePacket, Opcode};
use super::options::{Fault, FaultKind};
use super::port::{Port, Scratch};
use super::server::Shared;
use crate::engine::caught::catch;
use crate::engine::polling::{self, Attention, Endpoint, HotSet, SLEEP_PART};
use crate::engine::trace::Recording;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status};
use hostcall_channel::llvm::Ports;
use hostcall_channel::llvm::server::{Header, Scanner};
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
use tracing::Level;

/// Longest sleep: within this time a call is found, since nothing wakes the thread for it.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// No conversation of a port.
const NONE: u32 = u32::MAX;

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
        self.scratch.borrow_mut().push(scratch);
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
    let scanner = Scanner::new(ports.clone());
    let lines = scanner.lines();
    let thread = Rc::new(Thread { shared, scanner, scratch: RefCell::default() });
    let mut executor = Executor {
        seats: Seats {
            first_port: ports.start,
            of_ports: vec![NONE; ports.len()],
            seats: Vec::new(),
            free: Vec::new(),
            bell: bell.clone(),
        },
        converse: conversation::converse,
        lines: HotSet::new(lines as usize),
        thread,
        bell: bell.clone(),
    };
    polling::run(&mut executor, &bell.attention);
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
    M: Fn(Port, Conversation) -> F,
{
    /// Polls the conversations whose work on another thread is done.
    fn poll_rung(&mut self) {
        let seats = std::mem::take(&mut *self.bell.seats.lock());
        for seat in seats {
            self.poll(seat);
        }
    }

    #[inline]
    fn cold_line(&mut self, line: u32) -> bool {
        let worked = !self.lines.is_hot(line) && self.line(line);
        if worked {
            self.lines.heat(line);
        }
        worked
    }

    /// Goes on with the ports of a line. Whether there were any.
    #[inline]
    fn line(&mut self, line: u32) -> bool {
        let mut ready = self.thread.scanner.ready(self.thread.ports(), line);
        let found = ready != 0;
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
            seat => self.poll(seat),
        }
    }

    /// Begins a port's conversation.
    #[inline]
    fn begin(&mut self, port: u32) {
        self.thread.shared.calls.fetch_add(1, Ordering::Relaxed);
        let header = self.thread.ports().read_header(port);
        let layout = self.thread.shared.memory.layout();
        let opcode = Opcode::of(layout.version(), header.opcode);
        if header.mask == 0 || header.mask > u64::MAX >> (64 - layout.lanes()) {
            return self.fault(port, FaultKind::Mask(header.mask));
        }
        match opcode {
            None => {
                let opcode = header.opcode as u32 & layout.version().opcode_mask();
                self.fault(port, FaultKind::Opcode(opcode));
            }
            Some(Opcode::OnePacket(what)) => {
                let trace = self.thread.shared.options.endpoint.trace.as_ref();
                let recording = trace.map(|trace| Recording::start(trace, port, header.mask.count_ones()));
                let answer = || one_packet::answer(&self.thread, port, header.mask, what);
                let is_answered = catch(answer).is_ok();
                if !is_answered {
                    self.fault(port, FaultKind::Panicked);
                }
                if let Some(recording) = recording {
                    record(recording, what, header, is_answered);
                }
            }
            Some(Opcode::Conversation(about)) => {
                let conversation = (self.converse)(Port::new(&self.thread, port, header, about), about);
                let seat = self.seats.seat(port, conversation);
                self.poll(seat);
            }
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

    /// Serves a port no more.
    #[cold]
    fn fault(&self, port: u32, kind: FaultKind) {
        self.thread.set_aside(port, true);
        let shared = &self.thread.shared;
        shared.faults.fetch_add(1, Ordering::Relaxed);
        let fault = Fault { port, kind };
        let (shared, told) = (shared.clone(), fault.clone());
        shared
            .engine
            .log(Level::ERROR, move || tracing::error!(fault = %told, "a client of LLVM's protocol"));
        shared.clone().engine.call_back(move || shared.options.tell(&fault));
    }
}

/// Records a call of one packet, whose handler took all of its time.
#[cold]
fn record(mut recording: Recording, what: OnePacket, header: Header, is_answered: bool) {
    recording.began(recording.picked_up_ns());
    if !is_answered {
        recording.lanes_ended(header.mask.count_ones(), Status::Error(CallError::Panicked));
    }
    recording.answered(what.name(), header.opcode as u32, LaunchId::NONE);
}

impl<F, M> Endpoint for Executor<F, M>
where
    F: Future<Output = Result<(), FaultKind>>,
    M: Fn(Port, Conversation) -> F,
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
            let found = self.line(line);
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
