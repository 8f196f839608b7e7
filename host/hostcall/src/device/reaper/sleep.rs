//! How a device's reaper sleeps, and how others wake it.
//!
//! Whoever launches pays for one load while the reaper is active. It says that it no longer is *before* it looks at the
//! streams for the last time: what is submitted to a stream after it was looked at finds it inactive, by the stream's lock,
//! and wakes it.

use crate::primitive::{AtomicBool, Condvar, Mutex, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Sleep {
    /// There may be something to do: the thread does not sleep for good.
    active: AtomicBool,
    /// Operations wait for room on the device.
    feeding: AtomicBool,
    /// The thread has to look again before it sleeps.
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Sleep {
    /// Notes that something was submitted, and whether something was held back.
    pub fn note_work(&self, is_left: bool) {
        let slept = !self.active.load(Ordering::Relaxed) && !self.active.swap(true, Ordering::SeqCst);
        let starved = is_left && !self.feeding.swap(true, Ordering::SeqCst);
        if slept || starved {
            self.wake();
        }
    }

    /// Has the thread look at everything now.
    pub fn wake(&self) {
        self.active.store(true, Ordering::SeqCst);
        let mut woken = self.woken.lock();
        if !*woken {
            *woken = true;
            drop(woken);
            self.changed.notify_one();
        }
    }

    /// Called before a look, after which the thread sleeps for good only if it `may_sleep`.
    pub fn begin_look(&self, may_sleep: bool) {
        self.feeding.store(false, Ordering::SeqCst);
        if may_sleep {
            self.active.store(false, Ordering::SeqCst);
        }
    }

    /// Sleeps after a look for `pause`, or for good, until somebody wakes it: not at all if somebody did meanwhile. Returns
    /// whether it slept for good.
    pub fn sleep(&self, pause: Option<Duration>) -> bool {
        let mut woken = self.woken.lock();
        let for_good = !*woken && pause.is_none();
        match pause {
            _ if *woken => {}
            Some(pause) => {
                woken = self.changed.wait_timeout(woken, pause).0;
            }
            None => {
                while !*woken && !self.active.load(Ordering::SeqCst) {
                    woken = self.changed.wait(woken);
                }
            }
        }
        *woken = false;
        for_good
    }
}
