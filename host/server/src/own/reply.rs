//! The replies of calls with bytes, from the handler on: short ones are copied into the slot's byte area,
//! long ones are made in memory that the device reads, and lent to the lane.

use super::messages::Messages;
use crate::engine::loans::HeldLoan;
use hostcall_abi::status::CallError;
use hostcall_abi::word::ReplyAt;
use hostcall_service::Reply;
use smallvec::SmallVec;

/// Most bytes of a reply that goes into the byte area, and does not take a loan, which takes two locks.
const MOST_FEW_BYTES: usize = 4096;

/// Where a lane's reply of bytes may go.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReplyPlace {
    /// The large area, if it is not the slot's own.
    pub area: Option<u32>,
    /// Bytes of the lane's share of it.
    pub share: usize,
    /// Where the lane wants the bytes.
    pub wanted_at: ReplyAt,
}

/// A handler's whole reply.
pub(crate) struct ByteReply {
    /// Most methods have one.
    pub words: SmallVec<[u64; 2]>,
    pub bytes: ReplyBytes,
}

impl ByteReply {
    /// Returns how many bytes it is long.
    pub fn len(&self) -> usize {
        size_of_val(&*self.words) + self.bytes.len()
    }
}

/// The bytes of a reply.
pub(crate) enum ReplyBytes {
    /// At most [`MOST_FEW_BYTES`], and no more than the lane's share of the byte area.
    Few(Vec<u8>),
    /// The first `filled` bytes of a loan.
    Many { loan: HeldLoan, filled: usize },
}

impl ReplyBytes {
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Few(bytes) => bytes,
            Self::Many { loan, filled } => &loan.bytes()[..*filled],
        }
    }

    /// Returns a loan with the bytes.
    pub fn into_loan(self, messages: &Messages) -> Result<HeldLoan, CallError> {
        match self {
            Self::Many { loan, .. } => Ok(loan),
            bytes => messages.loan_of(bytes.as_slice()),
        }
    }
}

/// A reply that a handler makes.
pub(crate) struct Filling<'a> {
    messages: &'a Messages,
    reply: ByteReply,
    /// Most bytes that the caller takes.
    capacity: usize,
    /// Most bytes of [`ReplyBytes::Few`].
    most_few: usize,
}

impl<'a> Filling<'a> {
    /// An empty reply to a lane that has `share` bytes of a byte area.
    pub fn new(messages: &'a Messages, capacity: usize, share: usize) -> Self {
        Self {
            messages,
            reply: ByteReply { words: SmallVec::new(), bytes: ReplyBytes::Few(Vec::new()) },
            capacity,
            most_few: MOST_FEW_BYTES.min(share).min(capacity),
        }
    }

    pub fn finish(self) -> ByteReply {
        self.reply
    }

    /// Makes room for so many bytes more, and returns it with the count of those that are there.
    fn room(&mut self, more: usize) -> Result<(&mut [u8], &mut usize), CallError> {
        let before = self.reply.bytes.len();
        let needed = before.checked_add(more).filter(|needed| *needed <= self.capacity);
        let needed = needed.ok_or(CallError::TooLarge)?;
        let has_room = match &self.reply.bytes {
            ReplyBytes::Many { loan, .. } => needed <= loan.bytes().len(),
            _ => false,
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
            _ => unreachable!("the reply has a loan now"),
        }
    }
}

impl Reply for Filling<'_> {
    fn words(&mut self, words: &[u64]) {
        self.reply.words = SmallVec::from_slice(words);
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        if let ReplyBytes::Few(few) = &mut self.reply.bytes
            && few.len() + bytes.len() <= self.most_few
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
        // Before memory is made for it.
        if room > self.capacity.saturating_sub(self.reply.bytes.len()) {
            return Err(CallError::TooLarge);
        }
        if let ReplyBytes::Few(few) = &mut self.reply.bytes
            && few.len() + room <= self.most_few
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::budget::Budget;
    use crate::engine::loans::LoanPool;
    use hostcall_channel::host::ProcessLoans;

    /// A handler may ask for any room, whatever the reply has already.
    #[test]
    fn room_that_the_caller_does_not_take_is_refused_before_there_is_memory_for_it() {
        let messages = Messages::new(Budget::new(1 << 20, 1 << 16), LoanPool::new(Box::new(ProcessLoans)), 8);
        let mut filling = Filling::new(&messages, 10, 64);
        filling.bytes(&[1, 2]).unwrap();
        for room in [9, 1 << 45, usize::MAX - 1, usize::MAX] {
            let filled = filling.fill(room, &mut |_| unreachable!("there is no room"));
            assert_eq!(filled, Err(CallError::TooLarge), "{room}");
        }
        assert_eq!(filling.fill(8, &mut |bytes| bytes.len() + 1), Ok(8));
        assert_eq!(filling.fill(1, &mut |_| 1), Err(CallError::TooLarge));
    }
}
