//! Calls that are handled one after the other, though many threads handle calls: those that have one *turn*,
//! such as writes to one file ([`Service::turn`](hostcall_service::Service::turn)).
//!
//! The system lets one thread at a time write to a file; further threads would only wait for its lock. So the
//! thread that handles the first call of a turn also handles those that others bring meanwhile, and these
//! threads go on with other calls. A call that waits here keeps its deadline and its cancellation, and is not
//! handled once it was answered.

use super::job::ReadCall;
use hostcall_locks::Mutex;
use std::collections::{HashMap, VecDeque};

/// Where a service lies, which its calls keep there, and what it says.
pub(crate) type Turn = (usize, u64);

/// Calls that wait for a turn, from which on those that nobody waits for any more are taken out, whenever they have doubled.
const LOOK_FROM: usize = 64;

/// The calls that wait for the thread that has their turn.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<Turn, VecDeque<ReadCall>>>);

impl Turns {
    /// Handles a call, and those of its turn that come meanwhile; or leaves it to the thread that handles one of these.
    pub fn handle(&self, turn: Turn, call: ReadCall) {
        let mut turns = self.0.lock();
        if let Some(waiting) = turns.get_mut(&turn) {
            call.waits_for_turn();
            waiting.push_back(call);
            let mut unwanted = Vec::new();
            if waiting.len() >= LOOK_FROM && waiting.len().is_power_of_two() {
                let (wanted, others) = waiting.drain(..).partition(ReadCall::is_wanted);
                (*waiting, unwanted) = (wanted, Vec::from(others));
            }
            drop(turns);
            drop(unwanted);
            return;
        }
        turns.insert(turn, VecDeque::new());
        drop(turns);
        let ended = Ended { turns: self, turn };
        let mut next = Some(call);
        while let Some(call) = next {
            call.handle();
            let mut turns = self.0.lock();
            next = turns.get_mut(&turn).and_then(VecDeque::pop_front);
            if next.is_none() {
                turns.remove(&turn);
            }
        }
        std::mem::forget(ended);
    }
}

/// Ends a turn whose thread panicked, and answers the calls that wait.
struct Ended<'a> {
    turns: &'a Turns,
    turn: Turn,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let waiting = self.turns.0.lock().remove(&self.turn);
        waiting.into_iter().flatten().for_each(ReadCall::cancel);
    }
}
