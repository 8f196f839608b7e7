//! The driver frees pinned memory and modules only after every kernel has ended. A kernel may wait for the
//! very thread that frees, so such things are kept until no kernel of this process runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something that the driver frees only after all kernels.
type Release = Box<dyn FnOnce() + Send>;

struct State {
    running: usize,
    later: Vec<Release>,
}

static STATE: Mutex<State> = Mutex::new(State { running: 0, later: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees now when no kernel runs, and else when the last has ended. No kernel starts meanwhile.
pub(crate) fn when_quiet(release: impl FnOnce() + Send + 'static) {
    let mut state = state();
    if state.running == 0 {
        release();
    } else {
        state.later.push(Box::new(release));
    }
}

/// A kernel runs while this lives.
pub(crate) struct Busy(());

impl Busy {
    pub fn new() -> Self {
        state().running += 1;
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = state();
        state.running -= 1;
        if state.running == 0 {
            for release in std::mem::take(&mut state.later) {
                release();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn things_are_freed_once_no_kernel_runs() {
        let freed = Arc::new(AtomicU32::new(0));
        let free = || {
            let freed = freed.clone();
            when_quiet(move || _ = freed.fetch_add(1, Ordering::Relaxed));
        };
        let (first, second) = (Busy::new(), Busy::new());
        free();
        drop(first);
        free();
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(freed.load(Ordering::Relaxed), 2);
        free();
        assert_eq!(freed.load(Ordering::Relaxed), 3);
    }
}
