//! The replies of calls with bytes, from the handler on: short ones are copied into the slot's byte area,
//! long ones are made in memory that the device reads, and lent to the lane.

use super::messages::Messages;
use crate::engine::loans::HeldLoan;
use hostcall_abi::status::CallError;
use hostcall_service::Reply;

/// Bytes from which a reply is made in a loan. What is shorter and fits the lane's share of the byte area
/// goes there: a loan takes two locks.
const LEAST_LOAN_BYTES: usize = 4096;

/// Where a lane's reply of bytes may go.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReplyPlace {
    /// The large area, if it is not the slot's own.
    pub area: Option<u32>,
    /// Where in the device's memory the lane wants the bytes; 0 if nowhere.
    pub wanted_at: u64,
}

/// A handler's whole reply.
pub(crate) struct ByteReply {
    pub words: Vec<u64>,
    pub bytes: ReplyBytes,
}

impl ByteReply {
    /// Returns how many bytes it is long.
    pub fn len(&self) -> usize {
        size_of_val(&*self.words) + self.bytes.as_slice().len()
    }
}

/// The bytes of a reply.
pub(crate) enum ReplyBytes {
    /// At most [`LEAST_LOAN_BYTES`].
    Few(Vec<u8>),
    /// The first `filled` bytes of a loan.
    Many { loan: HeldLoan, filled: usize },
}

impl ReplyBytes {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Few(bytes) => bytes,
            Self::Many { loan, filled } => &loan.bytes()[..*filled],
        }
    }

    /// Returns a loan with the bytes.
    ///
    /// # Errors
    /// [`CallError::Busy`] when there is no memory for it.
    pub fn into_loan(self, messages: &Messages) -> Result<HeldLoan, CallError> {
        match self {
            Self::Many { loan, .. } => Ok(loan),
            Self::Few(bytes) => messages.loan_of(&bytes),
        }
    }
}

/// A reply that a handler makes.
pub(crate) struct Filling<'a> {
    messages: &'a Messages,
    reply: ByteReply,
    /// Most bytes that the caller takes.
    capacity: usize,
}

impl<'a> Filling<'a> {
    pub fn new(messages: &'a Messages, capacity: usize) -> Self {
        Self {
            messages,
            reply: ByteReply { words: Vec::new(), bytes: ReplyBytes::Few(Vec::new()) },
            capacity,
        }
    }

    pub fn finish(self) -> ByteReply {
        self.reply
    }

    /// Makes room for so many bytes more, and returns it with the count of those that are there.
    fn room(&mut self, more: usize) -> Result<(&mut [u8], &mut usize), CallError> {
        let before = self.reply.bytes.as_slice().len();
        let needed = before.checked_add(more).filter(|needed| *needed <= self.capacity);
        let needed = needed.ok_or(CallError::TooLarge)?;
        let has_room = match &self.reply.bytes {
            ReplyBytes::Few(_) => false,
            ReplyBytes::Many { loan, .. } => needed <= loan.bytes().len(),
        };
        if !has_room {
            // Twice as much as there was, so that a reply that grows is copied once or twice at most.
            let grown = needed.max((2 * before).min(self.capacity));
            let mut loan = self.messages.loan(grown)?;
            loan.bytes_mut()[..before].copy_from_slice(self.reply.bytes.as_slice());
            self.reply.bytes = ReplyBytes::Many { loan, filled: before };
        }
        match &mut self.reply.bytes {
            ReplyBytes::Many { loan, filled } => Ok((&mut loan.bytes_mut()[before..needed], filled)),
            ReplyBytes::Few(_) => unreachable!("the reply has a loan now"),
        }
    }
}

impl Reply for Filling<'_> {
    fn words(&mut self, words: &[u64]) {
        self.reply.words = words.to_vec();
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if let ReplyBytes::Few(few) = &mut self.reply.bytes
            && few.len() + bytes.len() <= LEAST_LOAN_BYTES.min(self.capacity)
        {
            few.extend_from_slice(bytes);
            return Ok(());
        }
        let (room, filled) = self.room(bytes.len())?;
        room.copy_from_slice(bytes);
        *filled += bytes.len();
        Ok(())
    }

    fn fill(&mut self, room: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, CallError> {
        if let ReplyBytes::Few(few) = &mut self.reply.bytes
            && few.len() + room <= LEAST_LOAN_BYTES.min(self.capacity)
        {
            let before = few.len();
            few.resize(before + room, 0);
            let written = fill(&mut few[before..]).min(room);
            few.truncate(before + written);
            return Ok(written);
        }
        let (bytes, filled) = self.room(room)?;
        let written = fill(bytes).min(room);
        *filled += written;
        Ok(written)
    }
}
