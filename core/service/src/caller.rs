//! Who calls.

use hostcall_abi::launch::LaunchId;
use std::cell::Cell;

/// Who calls, as far as the device can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The launch whose wave calls; [`LaunchId::NONE`] when that is not known.
    pub launch: LaunchId,
    /// The channel's slot.
    pub slot: u32,
    /// Index of the lane in its wave.
    pub lane: u8,
}

/// A slot that no channel has: nobody calls.
const NOBODY: Caller = Caller { launch: LaunchId::NONE, slot: u32::MAX, lane: 0 };

thread_local! {
    /// Who calls, but for the lane, in which the calls of a packet and the posts of a run differ.
    static ORIGIN: Cell<Caller> = const { Cell::new(NOBODY) };
    static LANE: Cell<u8> = const { Cell::new(0) };
}

/// Returns who made the call or post that the calling handler handles; `None` outside of handlers.
///
/// In an async handler it is to be asked between two `await`s, not on threads that the handler starts.
///
/// ```
/// use hostcall_service::{Caller, called_by, caller};
///
/// assert_eq!(caller(), None);
/// let of_lane_3 = Caller { lane: 3, slot: 0, ..Caller::default() };
/// called_by(of_lane_3, || assert_eq!(caller().map(|caller| caller.lane), Some(3)));
/// ```
#[inline]
pub fn caller() -> Option<Caller> {
    let caller = Caller { lane: LANE.get(), ..ORIGIN.get() };
    Some(caller).filter(|caller| caller.slot != NOBODY.slot)
}

/// Notes who calls the handler that this thread runs next.
#[inline(always)]
pub(crate) fn set(caller: Caller) {
    ORIGIN.set(caller);
    LANE.set(caller.lane);
}

/// Notes which lane of the same packet or run it is.
#[inline(always)]
pub(crate) fn set_lane(lane: u8) {
    LANE.set(lane);
}

/// Runs a handler for a caller, which it can ask for with [`caller`].
#[inline]
pub fn called_by<T>(caller: Caller, handler: impl FnOnce() -> T) -> T {
    /// Ends the call also when the handler panics.
    struct Before(Caller);

    impl Drop for Before {
        fn drop(&mut self) {
            set(self.0);
        }
    }

    let _before = Before(Caller { lane: LANE.get(), ..ORIGIN.get() });
    set(caller);
    handler()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_calls_another_gets_its_caller_back() {
        let [outer, inner] = [1, 2].map(|index| Caller { launch: LaunchId::new(index, 1), slot: 3, lane: 4 });
        assert_eq!(caller(), None);
        called_by(outer, || {
            let _ = std::panic::catch_unwind(|| {
                called_by(inner, || {
                    assert_eq!(caller(), Some(inner));
                    std::panic::resume_unwind(Box::new(()));
                })
            });
            assert_eq!(caller(), Some(outer));
        });
        assert_eq!(caller(), None);
    }
}
