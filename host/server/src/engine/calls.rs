//! The calls that a watchdog knows of.

use hostcall_abi::launch::LaunchId;
use std::sync::{Arc, Weak};

/// A call that lanes wait for. To ask these takes no lock under which a request or reply is copied.
pub(crate) trait Call: Send + Sync {
    /// Returns whether lanes still wait.
    fn is_open(&self) -> bool;
    /// Returns whose call it is.
    fn launch(&self) -> LaunchId;
}

struct Entry<C: ?Sized> {
    call: Weak<C>,
    launch: LaunchId,
    is_reported: bool,
}

/// A list of calls, which forgets those that were answered.
pub(crate) struct Calls<C: ?Sized> {
    entries: Vec<Entry<C>>,
    /// Calls noted since the last look after which those that were answered are forgotten.
    forget_after: usize,
    /// Calls after the last look, or after answered ones were forgotten.
    kept: usize,
}

impl<C: ?Sized + Call> Calls<C> {
    /// Makes an empty list.
    pub fn new(forget_after: usize) -> Self {
        Self { entries: Vec::new(), forget_after, kept: 0 }
    }

    /// Adds a call. `looked_at` gets what is to be dropped under no lock: the last reference to a call may be among them,
    /// and with it a service.
    pub fn add(&mut self, call: Weak<C>, launch: LaunchId, looked_at: &mut Vec<Arc<C>>) {
        self.entries.push(Entry { call, launch, is_reported: false });
        if self.entries.len() > 2 * self.kept + self.forget_after {
            self.look(looked_at, |_, _| ());
        }
    }

    /// Returns the calls of the launches that are `wanted`, also answered ones.
    pub fn of(&self, wanted: impl Fn(LaunchId) -> bool) -> Vec<Arc<C>> {
        let calls = self.entries.iter().filter(|entry| wanted(entry.launch));
        calls.filter_map(|entry| entry.call.upgrade()).collect()
    }

    /// Looks at each call whose lanes wait, with whether it was reported, and forgets the others. `looked_at` is as in
    /// [`Calls::add`].
    pub fn look(&mut self, looked_at: &mut Vec<Arc<C>>, mut look: impl FnMut(&Arc<C>, &mut bool)) {
        self.entries.retain_mut(|Entry { call, is_reported, .. }| {
            let Some(call) = call.upgrade() else { return false };
            let is_open = call.is_open();
            if is_open {
                look(&call, is_reported);
            }
            looked_at.push(call);
            is_open
        });
        self.kept = self.entries.len();
    }
}
