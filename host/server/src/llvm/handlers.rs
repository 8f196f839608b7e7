//! Handlers of the embedding program: what answers opcodes that are not libc's, or in libc's place.

use super::call::Call;
use super::emissary::EmissaryHandler;
use super::port::{MAX_LANES, lanes_of};
use crate::rocm::RpcServices;
use hostcall_channel::llvm::BUFFER_WORDS;
use hostcall_locks::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The buffers of a wave's lanes.
pub(super) type Buffers = [[u64; BUFFER_WORDS]; MAX_LANES];

/// A handler that failed: its port is served no more, and the fault tells this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerFailed(pub i32);

/// A packet that a handler answers in its place.
pub struct Packet<'p> {
    pub(super) opcode: u32,
    pub(super) mask: u64,
    pub(super) buffers: &'p mut Buffers,
}

impl Packet<'_> {
    /// Returns what the client asked for.
    pub fn opcode(&self) -> u32 {
        self.opcode
    }

    /// Returns the lanes that call, one bit a lane.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Returns the lanes that call with their buffers, which go back to them as the handler leaves them.
    pub fn lanes(&mut self) -> impl Iterator<Item = (u32, &mut [u64; BUFFER_WORDS])> {
        let mask = self.mask;
        (0u32..).zip(self.buffers.iter_mut()).filter(move |(lane, _)| mask >> lane & 1 != 0)
    }

    /// Returns all lanes' buffers, by lane. Those of lanes that do not call are not looked at.
    pub fn buffers(&mut self) -> &mut [[u64; BUFFER_WORDS]; MAX_LANES] {
        self.buffers
    }
}

type AnswerPacket = dyn Fn(&mut Packet<'_>) -> Result<(), HandlerFailed> + Send + Sync;
type AnswerCall = dyn Fn(&mut Call) -> Result<(), HandlerFailed> + Send + Sync;

/// How a call of some opcodes is answered.
#[derive(Clone)]
pub struct OpcodeHandler(pub(super) Answer);

#[derive(Clone)]
pub(super) enum Answer {
    Packet {
        answer: Arc<AnswerPacket>,
        is_inline: bool,
    },
    Call(Arc<AnswerCall>),
    /// ROCm's services.
    Rocm(Arc<RpcServices>),
}

impl OpcodeHandler {
    /// A client's only packet goes back as `answer` leaves it. It runs on the thread that found the call, never waits and takes
    /// microseconds.
    pub fn inline(
        answer: impl Fn(&mut Packet<'_>) -> Result<(), HandlerFailed> + Send + Sync + 'static,
    ) -> Self {
        Self(Answer::Packet { answer: Arc::new(answer), is_inline: true })
    }

    /// The same on a worker thread, where it may wait.
    pub fn packet(
        answer: impl Fn(&mut Packet<'_>) -> Result<(), HandlerFailed> + Send + Sync + 'static,
    ) -> Self {
        Self(Answer::Packet { answer: Arc::new(answer), is_inline: false })
    }

    /// On a worker thread `answer` receives and sends as its client sends and receives.
    pub fn call(answer: impl Fn(&mut Call) -> Result<(), HandlerFailed> + Send + Sync + 'static) -> Self {
        Self(Answer::Call(Arc::new(answer)))
    }
}

/// What a handler was to be registered for has one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// Some of these opcodes.
    Opcodes(RangeInclusive<u32>),
    /// The opcodes that nobody has.
    Unknown,
    /// This API of Emissary's.
    Emissary(u16),
    /// The range has no opcodes: its first one is behind its last.
    Empty(RangeInclusive<u32>),
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcodes(range) => write!(
                f,
                "some of the opcodes {:#x} to {:#x} have a handler: register one for the others",
                range.start(),
                range.end()
            ),
            Self::Unknown => f.write_str("unknown opcodes have a handler: register one only"),
            Self::Emissary(api) => write!(f, "Emissary's API {api} has a handler: register one only"),
            Self::Empty(range) => write!(
                f,
                "{:#x} to {:#x} is no range of opcodes: name the first one first",
                range.start(),
                range.end()
            ),
        }
    }
}

impl std::error::Error for Taken {}

#[derive(Default)]
struct Table {
    /// By their ranges' first opcodes, with the last ones.
    ranges: BTreeMap<u32, (u32, OpcodeHandler)>,
    unknown: Option<OpcodeHandler>,
    emissary: BTreeMap<u16, Arc<EmissaryHandler>>,
}

/// The registered handlers.
#[derive(Default)]
pub(super) struct Handlers {
    /// There are ranges: most servers have none, whose calls need not look.
    has_ranges: AtomicBool,
    table: RwLock<Table>,
}

impl Handlers {
    pub fn add(&self, opcodes: RangeInclusive<u32>, handler: OpcodeHandler) -> Result<(), Taken> {
        let (first, last) = (*opcodes.start(), *opcodes.end());
        if first > last {
            return Err(Taken::Empty(opcodes));
        }
        let mut table = self.table.write();
        // Ranges do not overlap, so that the last one that begins before this one's end reaches furthest.
        let before = table.ranges.range(..=last).next_back();
        if before.is_some_and(|(_, (end, _))| *end >= first) {
            return Err(Taken::Opcodes(opcodes));
        }
        table.ranges.insert(first, (last, handler));
        self.has_ranges.store(true, Ordering::Release);
        Ok(())
    }

    pub fn add_unknown(&self, handler: OpcodeHandler) -> Result<(), Taken> {
        let mut table = self.table.write();
        if table.unknown.is_some() {
            return Err(Taken::Unknown);
        }
        table.unknown = Some(handler);
        Ok(())
    }

    pub fn add_emissary(&self, api: u16, handler: Arc<EmissaryHandler>) -> Result<(), Taken> {
        let mut table = self.table.write();
        if table.emissary.contains_key(&api) {
            return Err(Taken::Emissary(api));
        }
        table.emissary.insert(api, handler);
        Ok(())
    }

    /// Returns the handler of a range with this opcode.
    #[inline]
    pub fn of(&self, opcode: u32) -> Option<OpcodeHandler> {
        if !self.has_ranges.load(Ordering::Acquire) {
            return None;
        }
        let table = self.table.read();
        let (_, (last, handler)) = table.ranges.range(..=opcode).next_back()?;
        (*last >= opcode).then(|| handler.clone())
    }

    /// Returns the handler of opcodes that nobody has.
    pub fn of_unknown(&self) -> Option<OpcodeHandler> {
        self.table.read().unknown.clone()
    }

    /// Returns the handler of an API of Emissary's.
    pub fn of_emissary(&self, api: u16) -> Option<Arc<EmissaryHandler>> {
        self.table.read().emissary.get(&api).cloned()
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes: Vec<_> = lanes_of(self.mask).map(|lane| (lane, self.buffers[lane as usize])).collect();
        f.debug_struct("Packet").field("opcode", &self.opcode).field("lanes", &lanes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_are_found() {
        let handlers = Handlers::default();
        let handler = || OpcodeHandler::inline(|_| Ok(()));
        assert!(handlers.of(7).is_none());
        handlers.add(10..=20, handler()).unwrap();
        handlers.add(30..=u32::MAX, handler()).unwrap();
        handlers.add(21..=21, handler()).unwrap();
        for taken in [0..=10, 20..=20, 12..=13, 5..=25, 25..=30, u32::MAX..=u32::MAX] {
            assert_eq!(handlers.add(taken.clone(), handler()), Err(Taken::Opcodes(taken)));
        }
        #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
        let empty = 5..=4;
        assert_eq!(handlers.add(empty.clone(), handler()), Err(Taken::Empty(empty)));
        handlers.add(0..=9, handler()).unwrap();
        let found: Vec<_> =
            [0, 9, 10, 21, 22, 29, 30, u32::MAX].map(|opcode| handlers.of(opcode).is_some()).into();
        assert_eq!(found, [true, true, true, true, false, false, true, true]);
        assert!(handlers.of_unknown().is_none());
        handlers.add_unknown(handler()).unwrap();
        assert_eq!(handlers.add_unknown(handler()), Err(Taken::Unknown));
    }
}
