//! Which calls a closure takes, and what is refused of it.

/// Which calls a [`Hostcall`](crate::Hostcall) takes.
///
/// | state | a kernel's call | [`Hostcall::non_continuous`](crate::Hostcall::non_continuous) | [`Hostcall::finish`](crate::Hostcall::finish) |
/// |---|---|---|---|
/// | `Once` | runs; then `Finished` | refused | `Finished` |
/// | `Continuous` | runs | `LastCall` | `Finished` |
/// | `LastCall` | runs; then `Finished` | refused | `Finished` |
/// | `Finished` | ends with [`CallError::NoSuchService`](crate::CallError::NoSuchService) | refused | stays |
///
/// [`Hostcall::once`](crate::Hostcall::once) makes a closure in the state `Once`, and [`Hostcall::continuous`](crate::Hostcall::continuous) one in the state `Continuous`.
/// No step leads out of `Finished`. A call takes its step when it begins, so that two calls never both are the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostcallState {
    /// The closure takes one call.
    Once,
    /// The closure takes calls.
    Continuous,
    /// The closure takes one more call.
    LastCall,
    /// The closure takes no more calls.
    Finished,
}

impl HostcallState {
    /// Returns the state after a call, or `None` when the call is refused.
    pub(crate) fn after_call(self) -> Option<Self> {
        match self {
            HostcallState::Once | HostcallState::LastCall => Some(HostcallState::Finished),
            HostcallState::Continuous => Some(HostcallState::Continuous),
            HostcallState::Finished => None,
        }
    }
}

/// [`Hostcall::non_continuous`](crate::Hostcall::non_continuous) was called on a closure that is not continuous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "only a continuous closure can be told that its next call is the last; this one's state is {state:?}"
)]
pub struct NotContinuous {
    /// The closure's state, which stays as it is.
    pub state: HostcallState,
}
