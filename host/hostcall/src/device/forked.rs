//! What becomes of devices in a child of the process that `fork` makes: it has their memory, but none of their threads, and
//! locks as they were. So whatever is asked of them there is refused before any lock is taken, and nothing is given back. The
//! locks of the process are held while a child is made, so that the child can open devices of its own.

use super::context::hold_kept;
use super::graph::hold_captures;
use super::inner::Inner;
use super::metrics::{DeviceMetrics, hold_ended};
use super::open_devices::{self, OpenDevice};
use super::waiting::hold_waiters;
use super::watch::{
    forget_trace, hold_followers, hold_listener, hold_trace, stop_followers_in_child, stop_in_child,
};
use hostcall_locks::MutexGuard;
use hostcall_seam::DeviceKind;
use hostcall_server::services::hold_check_numbers;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::Ordering;

/// The locks of the process.
struct Held {
    devices: MutexGuard<'static, Vec<(u64, OpenDevice)>>,
    ended: MutexGuard<'static, BTreeMap<String, DeviceMetrics>>,
    _others: [Box<dyn Any>; 8],
}

thread_local! {
    /// Keeps the locks while the thread makes a child.
    static FORKING: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Has children of the process know which devices are not theirs.
pub(super) fn watch() {
    static WATCH: Once = Once::new();
    // SAFETY: the functions take nothing and do not unwind. A program has memory for this one, or none for anything.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
}

extern "C" fn before() {
    // Before the devices: whoever begins a trace looks for them.
    let trace: Box<dyn Any> = Box::new(hold_trace());
    let hold = || Held {
        devices: open_devices::lock(),
        ended: hold_ended(),
        _others: [
            trace,
            Box::new(hold_listener()),
            Box::new(hold_captures()),
            Box::new(hold_waiters()),
            Box::new(hostcall_softdev::hold_locks()),
            Box::new(hold_kept()),
            Box::new(hold_check_numbers()),
            Box::new(hold_followers()),
        ],
    };
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(hold()));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}

/// Closes the devices for the child, and keeps them for good: to drop one waits for its threads.
extern "C" fn in_child() {
    let close = |(_, open): (u64, OpenDevice)| {
        let Some(device) = open.device.upgrade() else { return };
        if let Some(core) = open.core.upgrade() {
            // Lanes that are the child's threads, from a context, learn that nobody serves. A region that is pinned is the parent's.
            if let Some(inner) = device.downcast_ref::<Inner>()
                && inner.properties().kind == DeviceKind::Software
            {
                inner.region.region().stop();
            }
            core.forked.store(true, Ordering::SeqCst);
            core.closed.store(true, Ordering::SeqCst);
        }
        std::mem::forget(device);
    };
    let _ = FORKING.try_with(|forking| {
        if let Some(mut held) = forking.borrow_mut().take() {
            held.ended.clear();
            held.devices.drain(..).for_each(close);
            drop(held);
            forget_trace();
            stop_in_child();
            stop_followers_in_child();
        }
    });
}
