//! Which batches were here before. A batch is sent once; this keeps what arrives twice all the same, by whoever's doing, from
//! running twice.

use std::collections::{HashMap, VecDeque};

/// Callers that are remembered. Of more of them, those that came first are forgotten.
const MOST_CALLERS: usize = 4096;

/// The numbers of batches by caller: the highest one, and which of the 64 below it were here. Older ones count as such.
#[derive(Default)]
pub(crate) struct Once {
    callers: HashMap<u64, (u64, u64)>,
    order: VecDeque<u64>,
}

impl Once {
    /// Notes a batch. Returns whether it is here for the first time.
    pub fn is_new(&mut self, process: u64, batch: u64) -> bool {
        let Some((highest, before)) = self.callers.get_mut(&process) else {
            if self.order.len() == MOST_CALLERS
                && let Some(first) = self.order.pop_front()
            {
                self.callers.remove(&first);
            }
            self.order.push_back(process);
            self.callers.insert(process, (batch, 0));
            return true;
        };
        if batch > *highest {
            let more = batch - *highest;
            // The one that was highest is among those below now.
            *before =
                if more > 64 { 0 } else { before.checked_shl(more as u32).unwrap_or(0) | 1 << (more - 1) };
            *highest = batch;
            return true;
        }
        let below = *highest - batch;
        if below == 0 || below > 64 {
            return false;
        }
        let bit = 1 << (below - 1);
        let is_new = *before & bit == 0;
        *before |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_new_once() {
        let mut once = Once::default();
        // In an order of its own, as several batches under way may come.
        for batch in [5, 3, 4, 9, 6, 70, 71, 69, 8, 200] {
            assert!(once.is_new(1, batch), "{batch}");
            assert!(!once.is_new(1, batch), "{batch} again");
        }
        assert!(once.is_new(1, 140) && !once.is_new(1, 140));
        assert!(!once.is_new(1, 7), "it is too old to be known");
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
