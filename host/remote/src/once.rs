//! Which batches were here before. A batch is sent once; this keeps what arrives twice all the same, by whoever's
//! doing, from running twice.
//!
//! Threads that send batches overtake each other, by as many as the others send while one of them has to wait for
//! a processor. So more numbers are told apart than may be under way.

use std::collections::{HashMap, VecDeque};

/// Callers that are remembered. Of more of them, those that came first are forgotten.
pub(crate) const MOST_CALLERS: usize = 4096;

/// Numbers of a caller that are told apart, below the highest one and with it: 1 KiB a caller. A batch that more
/// others have overtaken is taken for one that was here.
const WINDOW: u64 = 8192;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of batches by caller.
#[derive(Default)]
pub(crate) struct Once {
    callers: HashMap<u64, Seen>,
    order: VecDeque<u64>,
}

/// The highest number of a caller, and which of the window were here, by their places in it.
struct Seen {
    highest: u64,
    here: Box<[u64; WORDS]>,
}

impl Seen {
    fn first(batch: u64) -> Self {
        let mut seen = Self { highest: batch, here: Box::new([0; WORDS]) };
        seen.set(batch);
        seen
    }

    fn place(batch: u64) -> (usize, u64) {
        let place = batch % WINDOW;
        ((place / 64) as usize, 1 << (place % 64))
    }

    fn set(&mut self, batch: u64) {
        let (word, bit) = Self::place(batch);
        self.here[word] |= bit;
    }

    fn is_new(&mut self, batch: u64) -> bool {
        if batch > self.highest {
            if batch - self.highest >= WINDOW {
                self.here.fill(0);
            } else {
                for missing in self.highest + 1..batch {
                    let (word, bit) = Self::place(missing);
                    self.here[word] &= !bit;
                }
            }
            self.highest = batch;
            self.set(batch);
            return true;
        }
        let (word, bit) = Self::place(batch);
        let is_new = self.highest - batch < WINDOW && self.here[word] & bit == 0;
        self.here[word] |= if is_new { bit } else { 0 };
        is_new
    }
}

impl Once {
    /// Notes a batch. Returns whether it is here for the first time.
    pub fn is_new(&mut self, process: u64, batch: u64) -> bool {
        if let Some(seen) = self.callers.get_mut(&process) {
            return seen.is_new(batch);
        }
        if self.order.len() == MOST_CALLERS
            && let Some(first) = self.order.pop_front()
        {
            self.callers.remove(&first);
        }
        self.order.push_back(process);
        self.callers.insert(process, Seen::first(batch));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_new_once() {
        let mut once = Once::default();
        // In an order of its own, as several batches under way may come.
        for batch in [5, 3, 4, 9, 6, 70, 71, 69, 8, 200, 7, WINDOW + 300, WINDOW + 299] {
            assert!(once.is_new(1, batch), "{batch}");
            assert!(!once.is_new(1, batch), "{batch} again");
        }
        assert!(!once.is_new(1, 300), "it is too old to be known");
        assert!(once.is_new(1, 301) && !once.is_new(1, 301));
        assert!(once.is_new(1, u64::MAX) && once.is_new(1, u64::MAX - 1) && !once.is_new(1, 302));
        assert!(once.is_new(2, 5), "of another process");
    }

    /// What other languages' answerers are tested with.
    #[test]
    fn the_shared_numbers_are_new_once() {
        let shared: serde_json::Value = serde_json::from_str(include_str!("../tests/messages.json")).unwrap();
        let mut once = Once::default();
        for batch in shared["once"].as_array().unwrap() {
            let [process, number] = [0, 1].map(|at| batch[at].as_u64().unwrap());
            assert_eq!(once.is_new(process, number), batch[2], "{batch}");
        }
    }

    #[test]
    fn callers_are_bounded() {
        let mut once = Once::default();
        for process in 0..3 * MOST_CALLERS as u64 {
            assert!(once.is_new(process, 0));
        }
        assert_eq!((once.callers.len(), once.order.len()), (MOST_CALLERS, MOST_CALLERS));
        assert!(!once.is_new(3 * MOST_CALLERS as u64 - 1, 0));
    }
}
