//! Byte messages: put together from pieces, and replies handed out in pieces. What the host keeps of them is bounded
//! together, see [`Budget`].

use crate::engine::budget::{Budget, Charge, Charged};
use hostcall_abi::MAX_LANES;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_abi::word::BytesHead;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A slot and a lane of its wave.
pub(crate) type LaneKey = (u32, u8);

/// What the host keeps of a lane between packets.
struct Kept {
    launch: LaunchId,
    bytes: KeptBytes,
}

enum KeptBytes {
    /// The message so far.
    Message(Charged),
    /// A reply, and where its next piece begins.
    Reply { reply: Charged, next: usize },
}

/// What the host keeps of all lanes between packets.
pub(crate) struct Messages {
    pub budget: Arc<Budget>,
    lanes: Mutex<HashMap<LaneKey, Kept>>,
    /// Lanes of which something is kept.
    count: AtomicUsize,
    /// Per slot: `lanes` may have something of its lanes.
    slots: Box<[AtomicBool]>,
}

impl Messages {
    pub fn new(budget: Arc<Budget>, slots: u32) -> Self {
        let slots = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Self { budget, lanes: Mutex::default(), count: AtomicUsize::new(0), slots }
    }

    /// Changes what is kept, and gives what `change` returns after that.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<LaneKey, Kept>) -> T) -> T {
        let mut lanes = self.lanes.lock();
        let result = change(&mut lanes);
        self.count.store(lanes.len(), Ordering::Relaxed);
        result
    }

    fn keep(&self, key: LaneKey, launch: LaunchId, bytes: KeptBytes) {
        self.slots[key.0 as usize].store(true, Ordering::Relaxed);
        // What is forgotten is freed after the lock: that may take its time.
        let _forgotten = self.change(|lanes| lanes.insert(key, Kept { launch, bytes }));
    }

    /// Takes a piece of a lane's message, which `read` copies from the `share` bytes that the lane has of the slot's bulk
    /// area. Returns the message's argument words and bytes if this was its last piece and `is_last` says so.
    ///
    /// # Errors
    /// [`CallError::TooLarge`] or [`CallError::Busy`] for what would be more than is allowed, [`CallError::Malformed`] for
    /// pieces that do not fit together. The lane's message is forgotten then.
    pub fn take_piece(
        &self,
        key: LaneKey,
        launch: LaunchId,
        head: &BytesHead,
        share: usize,
        is_last: bool,
        read: impl FnOnce(&mut [u8]),
    ) -> Result<Option<Message>, CallError> {
        // What the lane has left behind is of no use to anybody, whatever comes now.
        let before = self.change(|lanes| lanes.remove(&key));
        let total = usize::try_from(head.total_bytes).map_err(|_| CallError::TooLarge)?;
        let piece = head.piece_bytes as usize;
        if total > self.budget.most_each {
            return Err(CallError::TooLarge);
        }
        let mut message = match before {
            _ if head.begins => Charged::new(&self.budget),
            Some(Kept { bytes: KeptBytes::Message(message), .. }) => message,
            _ => return Err(CallError::Malformed),
        };
        if piece > share || message.bytes.len() + piece > total {
            return Err(CallError::Malformed);
        }
        read(message.grow(piece)?);
        if is_last {
            return finish(message, head).map(Some);
        }
        self.keep(key, launch, KeptBytes::Message(message));
        Ok(None)
    }

    /// Keeps a reply of which only the first `share` bytes were given to the lane.
    pub fn keep_reply(&self, key: LaneKey, launch: LaunchId, reply: Charged, share: usize) {
        self.keep(key, launch, KeptBytes::Reply { reply, next: share });
    }

    /// Gives the next piece of a lane's reply, which is to begin at `offset`, to `write`. After the last one the reply is
    /// forgotten.
    ///
    /// # Errors
    /// [`CallError::Malformed`] when there is no such piece.
    pub fn fetch(
        &self,
        key: LaneKey,
        offset: u64,
        share: usize,
        write: impl FnOnce(&[u8]),
    ) -> Result<(), CallError> {
        let forgotten = self.change(|lanes| {
            let Some(Kept { bytes: KeptBytes::Reply { reply, next }, .. }) = lanes.get_mut(&key) else {
                return Err(CallError::Malformed);
            };
            let begin = *next;
            if offset != begin as u64 {
                return Err(CallError::Malformed);
            }
            let end = reply.bytes.len().min(begin + share);
            *next = end;
            write(&reply.bytes[begin..end]);
            Ok(if end == reply.bytes.len() { lanes.remove(&key) } else { None })
        })?;
        drop(forgotten);
        Ok(())
    }

    /// Forgets what the lanes of a slot left behind: another wave has it.
    pub fn forget(&self, slot: u32) {
        let may_have = &self.slots[slot as usize];
        if may_have.load(Ordering::Relaxed) {
            may_have.store(false, Ordering::Relaxed);
            self.change(|lanes| {
                for lane in 0..MAX_LANES as u8 {
                    lanes.remove(&(slot, lane));
                }
            });
        }
    }

    /// Forgets what the lanes of a launch left behind: it has ended.
    pub fn forget_launch(&self, launch: LaunchId) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|lanes| lanes.retain(|_, kept| kept.launch != launch));
        }
    }
}

/// A whole message.
pub(crate) struct Message {
    pub words: Vec<u64>,
    pub bytes: Vec<u8>,
    /// Held while the handler has the message.
    pub charge: Charge,
}

/// Splits a whole message into its argument words and bytes.
fn finish(message: Charged, head: &BytesHead) -> Result<Message, CallError> {
    let (mut bytes, charge) = message.into_parts();
    let words_end = usize::from(head.argument_words) * 8;
    if bytes.len() as u64 != head.total_bytes || words_end > bytes.len() {
        return Err(CallError::Malformed);
    }
    let words = bytes[..words_end].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    bytes.drain(..words_end);
    Ok(Message { words, bytes, charge })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: LaneKey = (3, 4);
    const LAUNCH: LaunchId = LaunchId::new(1, 1);

    fn head(begins: bool, piece_bytes: u32, total_bytes: u64) -> BytesHead {
        BytesHead { begins, piece_bytes, area: None, total_bytes, argument_words: 1, reply_capacity: 0 }
    }

    fn messages(most: usize) -> Messages {
        Messages::new(Budget::new(most, 100), 8)
    }

    #[test]
    fn an_interrupted_message_does_not_spoil_the_next_one() {
        let messages = messages(1000);
        let take = |head: &BytesHead, is_last| {
            messages.take_piece(KEY, LAUNCH, head, 16, is_last, |bytes| bytes.fill(7))
        };
        assert!(take(&head(true, 16, 40), false).unwrap().is_none());
        // The lane was told of an error elsewhere, and begins anew.
        assert!(take(&head(true, 16, 24), false).unwrap().is_none());
        let message = take(&head(false, 8, 24), true).unwrap().expect("it is whole");
        assert_eq!((message.words, message.bytes), (vec![0x0707_0707_0707_0707], vec![7; 16]));
        // A piece that continues nothing.
        assert_eq!(take(&head(false, 8, 24), true).err(), Some(CallError::Malformed));
        drop(message.charge);
        assert_eq!(messages.budget.held(), 0);
    }

    #[test]
    fn lanes_together_hold_no_more_than_the_budget() {
        let messages = messages(40);
        let take = |lane, head: &BytesHead| messages.take_piece((0, lane), LAUNCH, head, 32, false, |_| ());
        assert!(take(0, &head(true, 32, 100)).is_ok());
        assert_eq!(take(1, &head(true, 32, 100)).err(), Some(CallError::Busy));
        assert_eq!(take(2, &head(true, 32, 101)).err(), Some(CallError::TooLarge));
        assert_eq!(messages.budget.held(), 32);
        messages.forget(1);
        assert_eq!(messages.budget.held(), 32);
        messages.forget(0);
        assert_eq!(messages.budget.held(), 0);
        assert!(take(1, &head(true, 32, 100)).is_ok());
        messages.forget_launch(LaunchId::new(2, 1));
        assert_eq!(messages.budget.held(), 32);
        messages.forget_launch(LAUNCH);
        assert_eq!(messages.budget.held(), 0);
    }

    #[test]
    fn a_reply_is_free_as_soon_as_it_was_fetched() {
        let messages = messages(100);
        let reply = Charged::of(&messages.budget, (0..90).collect()).unwrap();
        assert_eq!(Charged::of(&messages.budget, vec![0; 11]).err(), Some(crate::engine::budget::OverBudget));
        messages.keep_reply(KEY, LAUNCH, reply, 40);
        let mut fetched = Vec::new();
        let mut fetch =
            |offset, share| messages.fetch(KEY, offset, share, |piece| fetched.extend_from_slice(piece));
        assert_eq!(fetch(0, 40), Err(CallError::Malformed));
        // The lanes that fetch may be others from piece to piece, and so the share.
        assert_eq!(fetch(40, 20), Ok(()));
        assert_eq!(fetch(60, 40), Ok(()));
        assert_eq!(fetch(90, 40), Err(CallError::Malformed));
        assert_eq!(fetched, (40..90).collect::<Vec<u8>>());
        assert_eq!(messages.budget.held(), 0);
    }
}
