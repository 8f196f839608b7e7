//! The driver frees pinned memory and modules only after every kernel has ended. A kernel may wait for the
//! very thread that frees, so such things are kept until no kernel of this process runs.

use hostcall_locks::Mutex;
use std::any::Any;

/// Something that the driver frees only after all kernels. What it returns is dropped after the lock.
type Release = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

struct State {
    running: usize,
    later: Vec<Release>,
}

static STATE: Mutex<State> = Mutex::new(State { running: 0, later: Vec::new() });

/// Frees now when no kernel runs, and else when the last has ended. No kernel starts meanwhile. What `release` returns is dropped
/// afterwards: it may be of the kind that is freed this way too.
pub(crate) fn when_quiet<T: Send + 'static>(release: impl FnOnce() -> T + Send + 'static) {
    let mut state = STATE.lock();
    if state.running == 0 {
        let rest = release();
        drop(state);
        drop(rest);
    } else {
        state.later.push(Box::new(move || Box::new(release())));
    }
}

/// Does something if no kernel runs, and lets none start meanwhile.
pub(crate) fn if_quiet<R>(body: impl FnOnce() -> R) -> Option<R> {
    let state = STATE.lock();
    (state.running == 0).then(body)
}

/// A kernel runs while this lives.
pub(crate) struct Busy(());

impl Busy {
    pub fn new() -> Self {
        STATE.lock().running += 1;
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = STATE.lock();
        state.running -= 1;
        if state.running == 0 {
            let later = std::mem::take(&mut state.later);
            let rest: Vec<_> = later.into_iter().map(|release| release()).collect();
            drop(state);
            drop(rest);
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
        // Something that keeps something else of the kind.
        struct Keeper(Arc<AtomicU32>);
        impl Drop for Keeper {
            fn drop(&mut self) {
                let freed = self.0.clone();
                when_quiet(move || _ = freed.fetch_add(1, Ordering::Relaxed));
            }
        }
        for busy in [None, Some(Busy::new())] {
            let keeper = Keeper(freed.clone());
            when_quiet(move || keeper);
            drop(busy);
        }
        assert_eq!(freed.load(Ordering::Relaxed), 5);
    }
}
