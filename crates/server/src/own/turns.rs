//! Calls that are handled one after the other, though many threads handle calls: those of one *turn*, such as writes to one
//! file ([`Service::turn`](hostcall_service::Service::turn)). The thread that handles the first handles those that come
//! meanwhile too, so that nobody waits for it.

use super::job::Begun;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

/// A service's number, and what the service says.
pub(crate) type Turn = (u16, u64);

/// The calls that wait for the thread that has their turn.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<Turn, VecDeque<Begun>>>);

impl Turns {
    /// Handles a call, and those of its turn that come meanwhile; or leaves it to the thread that handles one of these.
    pub fn handle(&self, turn: Turn, call: Begun) {
        let mut waiting = self.0.lock();
        if let Some(waiting) = waiting.get_mut(&turn) {
            return waiting.push_back(call);
        }
        waiting.insert(turn, VecDeque::new());
        drop(waiting);
        let ended = Ended { turns: self, turn };
        let mut next = Some(call);
        while let Some(call) = next {
            call.handle();
            let mut waiting = self.0.lock();
            next = waiting.get_mut(&turn).and_then(VecDeque::pop_front);
            if next.is_none() {
                waiting.remove(&turn);
            }
        }
        std::mem::forget(ended);
    }
}

/// Ends a turn whose thread panicked. The calls that wait are dropped, which answers them.
struct Ended<'a> {
    turns: &'a Turns,
    turn: Turn,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let waiting = self.turns.0.lock().remove(&self.turn);
        drop(waiting);
    }
}
