//! What becomes of devices in a child of the process that `fork` makes: it has their memory, but none of their threads, and
//! locks as they were. So whatever is asked of them there is refused before any lock is taken, and nothing is given back.

use super::error::Error;
use super::inner::Inner;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

type Devices = Vec<Weak<Inner>>;

/// The open devices.
static DEVICES: Mutex<Devices> = Mutex::new(Vec::new());

thread_local! {
    /// Keeps the devices as they are while the thread makes a child.
    static FORKING: RefCell<Option<MutexGuard<'static, Devices>>> = const { RefCell::new(None) };
}

fn devices() -> MutexGuard<'static, Devices> {
    // Nothing panics halfway through a change.
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has children know that the device is not theirs.
///
/// # Errors
/// The system has no memory to note it.
pub(super) fn note(device: &Arc<Inner>) -> Result<(), Error> {
    static WATCH: Once = Once::new();
    // SAFETY: the functions take nothing and do not unwind. A program has memory for this one, or none for anything.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
    let mut devices = devices();
    devices.retain(|device| device.strong_count() > 0);
    devices.push(Arc::downgrade(device));
    Ok(())
}

extern "C" fn before() {
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(devices()));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}

/// Closes the devices for the child, and keeps them for good: to drop one waits for its threads.
extern "C" fn in_child() {
    let close = |device: Weak<Inner>| {
        let Some(device) = device.upgrade() else { return };
        device.core.forked.store(true, Ordering::SeqCst);
        device.core.closed.store(true, Ordering::SeqCst);
        std::mem::forget(device);
    };
    let _ = FORKING.try_with(|forking| {
        if let Some(mut devices) = forking.borrow_mut().take() {
            devices.drain(..).for_each(close);
        }
    });
}
