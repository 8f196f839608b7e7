//! How long a lane waits for its answer: as long as somebody serves. That its launch is cancelled ends no wait, since the host
//! answers such calls; only one that the host has lost is given up, after [`RINGS_OF_LOST_CALL`].

use super::{POLLS_A_LOOK, over};
use crate::target::{self, Here};

/// Rings after which a lane whose launch is over waits no longer, some four seconds on a GPU. The host answers the calls of a launch
/// that it cancels, so that it has lost this one.
const RINGS_OF_LOST_CALL: u32 = 32;

/// How long a lane waits for an answer.
#[derive(Default)]
pub(super) struct Patience {
    polls: u32,
    /// Rings since the launch was over.
    rings: u32,
    /// The target's own: when the doorbell rang last.
    rang: u64,
}

/// Why a lane waits for an answer no longer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Vain {
    /// Nobody serves any more.
    Stopped,
    /// The launch is over, and the host has lost the call.
    Lost,
}

impl Patience {
    /// Counts a poll that found no answer. `ring` rings again.
    #[inline(always)]
    pub fn end(&mut self, here: Here, ring: impl FnOnce()) -> Option<Vain> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_A_LOOK) {
            return None;
        }
        let over = over(here);
        if over.stopped {
            return Some(Vain::Stopped);
        }
        if target::rings_again(self.polls, &mut self.rang) {
            ring();
            self.rings += u32::from(over.cancelled);
            if self.rings > RINGS_OF_LOST_CALL {
                return Some(Vain::Lost);
            }
        }
        None
    }
}
