//! Messages longer than a packet, which a lane sends in pieces of up to seven words, each behind a descriptor.

use crate::engine::budget::{Budget, Charge};
use hostcall_channel::rocm::SLOT_WORDS;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A descriptor's bits: the message begins, or ends.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Where a descriptor has how many words come with it, and its message's number.
const LENGTH_SHIFT: u32 = 5;
const LENGTH_MASK: u64 = 7;
const NUMBER_SHIFT: u32 = 8;
const NUMBER_MASK: u64 = u64::MAX >> NUMBER_SHIFT;

/// What a message takes besides its words.
const OVERHEAD_BYTES: usize = 64;

/// What a lane gets at the end of a message that was refused: C's -1.
pub(super) const REFUSED: u64 = u64::MAX;

/// The number of messages that were refused before their end. No message has it.
const NO_NUMBER: u64 = NUMBER_MASK;

/// A lane's message.
pub(super) struct Message {
    pub words: Vec<u64>,
    charge: Charge,
}

/// The messages of a buffer that have begun and not ended.
pub(super) struct Messages {
    open: BTreeMap<u64, Message>,
    next: u64,
    budget: Arc<Budget>,
    /// Messages that were refused or given up, and nobody was told.
    lost: u32,
}

impl Messages {
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { open: BTreeMap::new(), next: 0, budget: budget.clone(), lost: 0 }
    }

    /// Returns how many messages were refused or given up since this was asked last.
    pub fn take_lost(&mut self) -> u32 {
        std::mem::take(&mut self.lost)
    }

    /// Takes a lane's piece of a message. Returns the message when that was its end; else the lane's first word is the
    /// descriptor that it sends the next piece with, or [`REFUSED`] at the end of a refused message.
    pub fn piece(&mut self, lane: &mut [u64; SLOT_WORDS]) -> Option<Message> {
        let descriptor = lane[0];
        let number =
            if descriptor & BEGIN != 0 { self.begin() } else { descriptor >> NUMBER_SHIFT & NUMBER_MASK };
        let length = (descriptor >> LENGTH_SHIFT & LENGTH_MASK) as usize;
        let taken = self.add(number, &lane[1..1 + length]);
        if descriptor & END != 0 {
            // The handler of what was taken says what the lane gets.
            lane[0] = REFUSED;
            return self.open.remove(&number);
        }
        let number = if taken { number } else { NO_NUMBER };
        // A descriptor that came back does not begin another message.
        lane[0] = number << NUMBER_SHIFT | descriptor & ((1 << NUMBER_SHIFT) - 1) & !BEGIN;
        None
    }

    /// Begins a message. Returns its number, [`NO_NUMBER`] when there is no room.
    fn begin(&mut self) -> u64 {
        let number = self.next;
        let mut charge = Charge::new(&self.budget);
        if !self.charge(&mut charge, OVERHEAD_BYTES) {
            return NO_NUMBER;
        }
        self.next = (number + 1) % NO_NUMBER;
        self.open.insert(number, Message { words: Vec::new(), charge });
        number
    }

    /// Charges bytes of a message that is not among the open ones. Where all that are open have too many, the buffer's oldest are
    /// given up: most likely those of lanes that were ended in the middle, which nobody else would ever give up. Returns `false`
    /// when that is not enough.
    fn charge(&mut self, charge: &mut Charge, bytes: usize) -> bool {
        while charge.add(bytes).is_err() {
            self.lost += 1;
            if self.open.pop_first().is_none() {
                return false;
            }
        }
        true
    }

    /// Adds words to a message. Returns `false` when there is no such message, or no room, and then it is there no more.
    fn add(&mut self, number: u64, words: &[u64]) -> bool {
        let Some(mut message) = self.open.remove(&number) else { return false };
        if 8 * (message.words.len() + words.len()) > self.budget.most_each {
            self.lost += 1;
            return false;
        }
        if !self.charge(&mut message.charge, 8 * words.len()) {
            return false;
        }
        message.words.extend_from_slice(words);
        self.open.insert(number, message);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(descriptor: u64, words: &[u64]) -> [u64; SLOT_WORDS] {
        let mut lane = [0; SLOT_WORDS];
        lane[0] = descriptor | (words.len() as u64) << LENGTH_SHIFT;
        lane[1..=words.len()].copy_from_slice(words);
        lane
    }

    #[test]
    fn messages_of_several_lanes_are_put_together() {
        let mut messages = Messages::new(&Budget::new(1 << 20, 1 << 16));
        let mut lanes = [piece(BEGIN, &[1, 2]), piece(BEGIN, &[])];
        lanes.iter_mut().for_each(|lane| assert!(messages.piece(lane).is_none()));
        let descriptors = lanes.map(|lane| lane[0] & !(LENGTH_MASK << LENGTH_SHIFT));
        assert_ne!(descriptors[0], descriptors[1]);
        let mut more = piece(descriptors[1], &[7; 7]);
        assert!(messages.piece(&mut more).is_none());
        for (descriptor, words) in [(descriptors[1], vec![7; 7]), (descriptors[0], vec![1, 2])] {
            let ended = messages.piece(&mut piece(descriptor | END, &[])).expect("it ends");
            assert_eq!(ended.words, words);
        }
        // Both have ended.
        let mut late = piece(descriptors[0] | END, &[1]);
        assert!(messages.piece(&mut late).is_none());
        assert_eq!(late[0], REFUSED);
        let whole = messages.piece(&mut piece(BEGIN | END, &[3])).expect("it is whole");
        assert_eq!(whole.words, [3]);
    }

    #[test]
    fn pieces_without_words_take_nothing() {
        let budget = Budget::new(1024, 1024);
        let mut messages = Messages::new(&budget);
        let mut lane = piece(BEGIN, &[]);
        for _ in 0..100 {
            assert!(messages.piece(&mut lane).is_none());
            assert_eq!(budget.held(), OVERHEAD_BYTES);
        }
        let ended = messages.piece(&mut piece(lane[0] | END, &[1, 2])).expect("it ends");
        assert_eq!((ended.words.as_slice(), budget.held()), (&[1, 2][..], OVERHEAD_BYTES + 16));
    }

    #[test]
    fn messages_are_bounded_and_given_back() {
        let budget = Budget::new(4096, 1024);
        let mut messages = Messages::new(&budget);
        let mut lane = piece(BEGIN, &[5; 7]);
        let mut pieces = 0;
        while lane[0] >> NUMBER_SHIFT != NO_NUMBER {
            assert!(messages.piece(&mut lane).is_none());
            pieces += 1;
        }
        assert_eq!((pieces, budget.held(), messages.take_lost()), (1024 / 56 + 1, 0, 1));
        // What is refused stays refused, to its end.
        assert!(messages.piece(&mut lane).is_none());
        assert_eq!((lane[0] >> NUMBER_SHIFT, lane[0] & BEGIN, budget.held()), (NO_NUMBER, 0, 0));
        lane[0] |= END;
        assert!(messages.piece(&mut lane).is_none());
        assert_eq!((lane[0], messages.take_lost()), (REFUSED, 0));
        drop(messages);
        assert_eq!(budget.held(), 0);
    }

    /// Lanes that were ended in the middle cost the others nothing: the oldest messages are given up, and all others go on.
    #[test]
    fn the_oldest_messages_make_room() {
        const ROOM: usize = 4096 / (56 + OVERHEAD_BYTES);
        let budget = Budget::new(4096, 1024);
        let mut messages = Messages::new(&budget);
        for begun in 1..=10 * ROOM {
            let mut lane = piece(BEGIN, &[5; 7]);
            assert!(messages.piece(&mut lane).is_none());
            assert_eq!(lane[0] >> NUMBER_SHIFT, begun as u64 - 1);
            assert_eq!(messages.open.len(), begun.min(ROOM));
        }
        assert_eq!(messages.take_lost() as usize, 9 * ROOM);
        // A message that grows takes the place of older ones, not its own.
        let number = *messages.open.first_key_value().unwrap().0;
        let mut lane = piece(number << NUMBER_SHIFT, &[6; 7]);
        assert!(messages.piece(&mut lane).is_none());
        assert_eq!((lane[0] >> NUMBER_SHIFT, messages.take_lost()), (number, 1));
        let ended = messages.piece(&mut piece(number << NUMBER_SHIFT | END, &[])).expect("it is whole");
        assert_eq!(ended.words, [[5; 7], [6; 7]].concat());
        // Those of another buffer are not this one's to give up.
        let mut others = Messages::new(&budget);
        drop(ended);
        while budget.held() + OVERHEAD_BYTES <= 4096 {
            assert!(messages.piece(&mut piece(BEGIN, &[])).is_none());
        }
        messages.take_lost();
        let mut lane = piece(BEGIN, &[]);
        assert!(others.piece(&mut lane).is_none());
        assert_eq!((lane[0] >> NUMBER_SHIFT, others.take_lost(), messages.take_lost()), (NO_NUMBER, 1, 0));
    }

    /// A GPU's lanes may all be in the middle of a line: those of 304 compute units with 32 waves each.
    #[test]
    fn as_many_messages_are_open_as_a_gpu_has_lanes() {
        const LANES: u64 = 304 * 32 * 64;
        let options = super::super::Options::default();
        let mut messages = Messages::new(&options.endpoint.budget());
        let mut lanes: Vec<_> = (0..LANES).map(|number| piece(BEGIN, &[number; 7])).collect();
        lanes.iter_mut().for_each(|lane| assert!(messages.piece(lane).is_none()));
        for (number, lane) in lanes.iter_mut().enumerate() {
            let ended = messages.piece(&mut piece(lane[0] & !(LENGTH_MASK << LENGTH_SHIFT) | END, &[7]));
            assert_eq!(ended.expect("it is whole").words, [&[number as u64; 7][..], &[7]].concat());
        }
        assert_eq!(messages.take_lost(), 0);
    }
}
