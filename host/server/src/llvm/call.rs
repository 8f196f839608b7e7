//! A call that a handler of the embedding program answers packet by packet.
//!
//! The handler runs on a worker thread, the port belongs to the thread that serves it. They hand the lanes' data to each
//! other: whoever has it works on it, and the other waits.

use super::handlers::{Answer, HandlerFailed, OpcodeHandler, Packet};
use super::options::FaultKind;
use super::port::{Port, Scratch, lanes_of};
use crate::engine::Threads;
use futures_lite::future::poll_fn;
use hostcall_channel::llvm::BUFFER_WORDS;
use hostcall_locks::{Condvar, Mutex};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Why a handler's port sends and receives no more: the server stops, or the client sent more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnded;

impl fmt::Display for CallEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call has ended, since its server stops or its client broke a limit: return")
    }
}

impl std::error::Error for CallEnded {}

/// What is told of it is the fault, or that the server has stopped.
impl From<CallEnded> for HandlerFailed {
    fn from(CallEnded: CallEnded) -> Self {
        HandlerFailed(0)
    }
}

/// What a handler asks its port for.
#[derive(Clone, Copy, Debug)]
enum Request {
    Receive,
    Send,
    ReceiveBytes { is_kept: bool },
    SendBytes,
}

/// Between a handler and its port.
#[derive(Default)]
struct Link {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    asked: Option<(Request, Box<Scratch>)>,
    answer: Option<Box<Scratch>>,
    waker: Option<Waker>,
    /// The port does no more.
    is_closed: bool,
}

/// A call of a wave's lanes, as its handler has it. What one side sends the other receives; the client begins with a send.
pub struct Call {
    opcode: u32,
    mask: u64,
    link: Arc<Link>,
    /// The port has it while it does what it was asked for, and keeps it when the call has ended.
    scratch: Option<Box<Scratch>>,
}

impl Call {
    /// Returns what the client asked for.
    pub fn opcode(&self) -> u32 {
        self.opcode
    }

    /// Returns the lanes that call, one bit a lane.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Returns the lanes that call.
    pub fn lanes(&self) -> impl Iterator<Item = u32> + use<> {
        lanes_of(self.mask)
    }

    /// Returns a lane's buffer: what was received last, or what [`Call::send`] sends.
    ///
    /// # Panics
    /// When no wave has such a lane.
    pub fn words(&mut self, lane: u32) -> &mut [u64; BUFFER_WORDS] {
        &mut self.scratch().words[lane as usize]
    }

    /// Returns a lane's bytes: those received last, or what [`Call::send_bytes`] sends.
    ///
    /// # Panics
    /// When no wave has such a lane.
    pub fn bytes(&mut self, lane: u32) -> &mut Vec<u8> {
        &mut self.scratch().bytes[lane as usize]
    }

    /// Receives the lanes' buffers.
    ///
    /// # Errors
    /// As for each of these functions, when the call has ended.
    pub fn receive(&mut self) -> Result<(), CallEnded> {
        self.ask(Request::Receive)
    }

    /// Sends the lanes' buffers.
    ///
    /// # Errors
    /// When the call has ended.
    pub fn send(&mut self) -> Result<(), CallEnded> {
        self.ask(Request::Send)
    }

    /// Receives bytes of any number from each lane (`send_n` on the device).
    ///
    /// # Errors
    /// When the call has ended.
    pub fn receive_bytes(&mut self) -> Result<(), CallEnded> {
        self.ask(Request::ReceiveBytes { is_kept: false })
    }

    /// The same, where what was received before is still held and counts against the limits.
    pub(super) fn receive_more_bytes(&mut self) -> Result<(), CallEnded> {
        self.ask(Request::ReceiveBytes { is_kept: true })
    }

    /// Sends each lane its bytes (`recv_n` on the device).
    ///
    /// # Errors
    /// When the call has ended.
    pub fn send_bytes(&mut self) -> Result<(), CallEnded> {
        self.ask(Request::SendBytes)
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_with(Scratch::new)
    }

    fn ask(&mut self, request: Request) -> Result<(), CallEnded> {
        let scratch = self.scratch.take().unwrap_or_else(Scratch::new);
        let mut state = self.link.state.lock();
        state.asked = Some((request, scratch));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        let waits = |state: &mut State| state.answer.is_none() && !state.is_closed;
        let mut state = self.link.answered.wait_while(self.link.state.lock(), waits);
        self.scratch = state.answer.take();
        if self.scratch.is_some() { Ok(()) } else { Err(CallEnded) }
    }
}

/// The port's end of a link, which is closed with it.
struct PortEnd(Arc<Link>);

impl Drop for PortEnd {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.answered.notify_all();
    }
}

/// Answers a port's call with a handler.
pub(super) async fn answer(port: &mut Port, handler: OpcodeHandler) -> Result<(), FaultKind> {
    match handler.0 {
        Answer::Call(answer) => converse(port, move |call| answer(call).map_err(failed)).await,
        Answer::Rocm(services) => {
            port.receive(BUFFER_WORDS).await;
            let (opcode, mask, mut scratch) = (port.opcode(), port.mask(), port.take_scratch());
            let work = move || (services.answer(opcode, mask, &mut scratch.words), scratch);
            let (faults, scratch) = port.work(Threads::Users, work).await?;
            port.put_scratch(scratch);
            faults.into_iter().for_each(|fault| port.tell(FaultKind::OfRocm(fault)));
            port.send(BUFFER_WORDS).await;
            Ok(())
        }
        Answer::Packet { answer, .. } => {
            port.receive(BUFFER_WORDS).await;
            let (opcode, mask, mut scratch) = (port.opcode(), port.mask(), port.take_scratch());
            let work = move || {
                let mut packet = Packet { opcode, mask, buffers: &mut scratch.words };
                (answer(&mut packet), scratch)
            };
            let (result, scratch) = port.work(Threads::Users, work).await?;
            port.put_scratch(scratch);
            result.map_err(failed)?;
            port.send(BUFFER_WORDS).await;
            Ok(())
        }
    }
}

pub(super) fn failed(HandlerFailed(code): HandlerFailed) -> FaultKind {
    FaultKind::HandlerFailed(code)
}

/// Has `answer` talk with the client, on a worker thread.
pub(super) async fn converse(
    port: &mut Port,
    answer: impl FnOnce(&mut Call) -> Result<(), FaultKind> + Send + 'static,
) -> Result<(), FaultKind> {
    let end = PortEnd(Arc::default());
    let (opcode, mask, scratch) = (port.opcode(), port.mask(), Some(port.take_scratch()));
    let mut call = Call { opcode, mask, link: end.0.clone(), scratch };
    let work = move || (answer(&mut call), call.scratch);
    let engine = port.shared().engine.clone();
    let mut answered = pin!(engine.pool(Threads::Users).run(work));
    let mut has_talked = false;
    loop {
        let asked = poll_fn(|context| {
            let mut state = end.0.state.lock();
            if let Some(asked) = state.asked.take() {
                return Poll::Ready(Ok(asked));
            }
            state.waker = Some(context.waker().clone());
            drop(state);
            answered.as_mut().poll(context).map(Err)
        });
        let aside = port.set_aside();
        let asked = asked.await;
        drop(aside);
        let (request, scratch) = match asked {
            Ok(asked) => asked,
            Err(result) => {
                let (result, scratch) = result.map_err(|_| FaultKind::Panicked)?;
                port.put_scratch(scratch.unwrap_or_else(Scratch::new));
                if result.is_ok() && !has_talked {
                    // The client gets back what it sent.
                    port.receive(0).await;
                }
                return result;
            }
        };
        port.put_scratch(scratch);
        has_talked = true;
        match request {
            Request::Receive => port.receive(BUFFER_WORDS).await,
            Request::Send => port.send(BUFFER_WORDS).await,
            Request::ReceiveBytes { is_kept } => {
                if !is_kept {
                    // What was received before goes with what it counted.
                    port.forget_messages();
                }
                port.receive_bytes().await?;
            }
            Request::SendBytes => port.send_bytes().await,
        }
        end.0.state.lock().answer = Some(port.take_scratch());
        end.0.answered.notify_all();
    }
}
