//! What is told of handlers that panic.
//!
//! The process's panic hook tells the message and the place in the handler's code, once for each lane. Whose call it was it does
//! not know.

use super::Engine;
use super::watchdog::{WavePlace, write_wave};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::Level;

/// A handler's panic, of which its lane is told by
/// [`CallError::Panicked`](hostcall_abi::status::CallError::Panicked) if it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerPanic {
    /// The device whose lane called or posted, as [`ServerBuilder::device`](crate::ServerBuilder::device)
    /// names it; else empty.
    pub device: Arc<str>,
    /// The method.
    pub service: &'static str,
    /// The launch whose lane called or posted.
    pub launch: LaunchId,
    /// The launch's kernel; empty when it is not known.
    pub kernel: Arc<str>,
    /// The place of the lane's wave in the launch's grid, as the device says; `None` when it is not known.
    pub place: Option<WavePlace>,
    /// The channel's slot.
    pub slot: u32,
    /// Index of the lane in its wave.
    pub lane: u8,
}

impl std::fmt::Display for HandlerPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { device, service, launch, kernel, place, slot, lane } = self;
        write_wave(f, device, *launch, kernel, *place, *slot)?;
        write!(f, ", lane {lane}: the handler of {service} panicked")
    }
}

/// Methods of launches of which it is remembered that a panic was told.
const REMEMBERED: usize = 64;

/// How many handlers have panicked, and of which it was told.
#[derive(Default)]
pub(crate) struct Panics {
    count: AtomicU64,
    told: Mutex<VecDeque<(LaunchId, &'static str)>>,
}

impl Panics {
    /// Returns how many handlers have panicked.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one. Returns whether it is the first of its launch and method, as far as is remembered.
    fn note(&self, launch: LaunchId, service: &'static str) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock();
        if told.contains(&(launch, service)) {
            return false;
        }
        if told.len() == REMEMBERED {
            told.pop_front();
        }
        told.push_back((launch, service));
        true
    }
}

impl Engine {
    /// Counts a handler's panic, and tells of it if it is the first in this launch and method: a thousand lanes whose handler
    /// panics have one reason, most likely.
    #[cold]
    pub fn handler_panicked(
        &self,
        launch: LaunchId,
        service: &'static str,
        panic: impl FnOnce() -> HandlerPanic,
    ) {
        if !self.panics.note(launch, service) {
            return;
        }
        let (report, panic) = (self.settings.on_handler_panic.clone(), panic());
        let told = panic.clone();
        self.call_back(move || report(&told));
        self.log(Level::ERROR, move || {
            tracing::error!(
                device = &*panic.device,
                launch = %panic.launch,
                kernel = &*panic.kernel,
                slot = panic.slot,
                lane = panic.lane,
                service = panic.service,
                "a handler panicked"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_launch_and_method_is_told() {
        let panics = Panics::default();
        let launch = |index| LaunchId::new(index, 1);
        assert!(panics.note(launch(1), "A::a"));
        assert!(!panics.note(launch(1), "A::a"));
        assert!(panics.note(launch(1), "A::b"));
        assert!(panics.note(launch(2), "A::a"));
        assert_eq!(panics.count(), 4);
        // What is remembered is bounded.
        (3..200).for_each(|index| assert!(panics.note(launch(index), "A::a")));
        assert_eq!(panics.told.lock().len(), REMEMBERED);
    }

    #[test]
    fn a_report_names_wave_lane_and_method() {
        let mut panic = HandlerPanic {
            device: "cuda:1".into(),
            service: "Sums::add",
            launch: LaunchId::new(3, 1),
            kernel: "sum".into(),
            place: Some(WavePlace { workgroup: [4, 0, 1], wave: 2 }),
            slot: 7,
            lane: 31,
        };
        let launch = panic.launch;
        assert_eq!(
            panic.to_string(),
            format!(
                "launch {launch} of sum on cuda:1, workgroup (4, 0, 1), wave 2 in slot 7, lane 31: the handler of Sums::add panicked"
            )
        );
        (panic.device, panic.kernel, panic.place) = ("".into(), "".into(), None);
        assert_eq!(
            panic.to_string(),
            format!("launch {launch} in slot 7, lane 31: the handler of Sums::add panicked")
        );
    }
}
