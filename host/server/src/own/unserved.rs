//! Calls and posts that reached no service: to numbers that nobody serves, or of other types than the service's. Their lanes get a
//! status, which kernels of other compilers may drop; here it is counted for who waits for these kernels.

use super::shared::Shared;
use crate::engine::rare::Rare;
use crate::engine::report;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_locks::Mutex;
use std::collections::{HashMap, HashSet};

/// Most launches and numbers of which calls are counted. Those of more are not told of.
const MOST_COUNTED: usize = 1024;

/// Calls and posts of a launch that reached no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unserved {
    /// The number that they named.
    pub number: u16,
    /// What the lanes of calls got: [`CallError::NoSuchService`], or [`CallError::TypeMismatch`] where a service has the number.
    pub error: CallError,
    /// Calls, one for each lane.
    pub calls: u64,
    /// Posts, one for each lane.
    pub posts: u64,
}

/// Those of all launches, until somebody asks.
#[derive(Default)]
pub(crate) struct UnservedCounts {
    counted: Rare<HashMap<(LaunchId, u16), Unserved>>,
    /// Numbers whose calls had other types, and whose first one was told of.
    told: Mutex<HashSet<u16>>,
}

/// Counts calls and posts of a launch, and tells of the first of each number that has other types than its service.
#[cold]
pub(super) fn count(
    shared: &Shared,
    launch: LaunchId,
    number: u16,
    error: CallError,
    calls: u64,
    posts: u64,
) {
    shared.unserved.count(shared.launches.context_of(launch), number, error, calls, posts);
    if error == CallError::TypeMismatch && shared.unserved.told.lock().insert(number) {
        let registry = shared.registry();
        let method = registry.find(number).map_or("a method", |entry| entry.method.name());
        let record = shared.launches.record(launch);
        let kernel = record.as_ref().map_or("a kernel", |record| &record.kernel);
        report::line(format_args!(
            "`{kernel}` calls {method} (number {number}) with other types than its service has: build the kernel again, or make \
             its header again by `hostcall bind`"
        ));
    }
}

impl UnservedCounts {
    /// Counts calls and posts of a launch. The last error of a number stays.
    fn count(&self, launch: LaunchId, number: u16, error: CallError, calls: u64, posts: u64) {
        self.counted.change(|counted| {
            if counted.len() >= MOST_COUNTED && !counted.contains_key(&(launch, number)) {
                return;
            }
            let none = Unserved { number, error, calls: 0, posts: 0 };
            let unserved = counted.entry((launch, number)).or_insert(none);
            unserved.error = error;
            unserved.calls += calls;
            unserved.posts += posts;
        });
    }

    /// Takes what was counted of a launch, in the order of the numbers.
    pub fn take(&self, launch: LaunchId) -> Vec<Unserved> {
        let take = |counted: &mut HashMap<_, Unserved>| {
            let mut found: Vec<_> =
                counted.extract_if(|(of, _), _| *of == launch).map(|(_, unserved)| unserved).collect();
            found.sort_unstable_by_key(|unserved| unserved.number);
            found
        };
        self.counted.change_some(take).unwrap_or_default()
    }

    /// Forgets what was counted of launches that have ended.
    pub fn forget(&self, have_ended: impl Fn(LaunchId) -> bool) {
        self.counted.change_some(|counted| counted.retain(|(launch, _), _| !have_ended(*launch)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reached_no_service_is_counted_by_launch_and_number() {
        let counts = UnservedCounts::default();
        let [first, second] = [1, 2].map(LaunchId::from_bits);
        counts.count(first, 800, CallError::NoSuchService, 32, 0);
        counts.count(first, 800, CallError::NoSuchService, 1, 3);
        counts.count(first, 700, CallError::TypeMismatch, 2, 0);
        counts.count(second, 700, CallError::NoSuchService, 5, 0);
        let counted = |number, error, calls, posts| Unserved { number, error, calls, posts };
        let expected =
            [counted(700, CallError::TypeMismatch, 2, 0), counted(800, CallError::NoSuchService, 33, 3)];
        assert_eq!(counts.take(first), expected);
        assert_eq!(counts.take(first), []);
        counts.forget(|launch| launch == second);
        assert_eq!(counts.take(second), []);
        // No more than so many are kept.
        (0..2000).for_each(|number| counts.count(first, number, CallError::NoSuchService, 1, 0));
        assert_eq!(counts.take(first).len(), MOST_COUNTED);
    }
}
