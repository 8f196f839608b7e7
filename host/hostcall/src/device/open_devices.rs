//! The open devices of the process. A handler knows its server alone, whose number is the device's.

use super::core::Core;
use super::owners::Owners;
use hostcall_locks::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::{Arc, Weak};

/// A device that somebody has. Who looks it up holds neither the device nor its threads meanwhile.
pub(crate) struct OpenDevice {
    pub device: Weak<dyn Any + Send + Sync>,
    pub core: Weak<Core>,
    pub owners: Weak<Owners>,
    /// The device as others look at it, which does not keep it.
    pub look: Arc<dyn Any + Send + Sync>,
}

static DEVICES: Mutex<Vec<(u64, OpenDevice)>> = Mutex::new(Vec::new());

/// Lets others find the device with this number.
pub(crate) fn note(id: u64, open: OpenDevice) {
    let mut devices = DEVICES.lock();
    // A device stays until it has ended: what it has counted is found here until then.
    devices.retain(|(_, open)| Arc::strong_count(&open.look) > 1);
    devices.push((id, open));
}

/// Returns the devices. None is opened while the guard lives.
pub(crate) fn lock() -> MutexGuard<'static, Vec<(u64, OpenDevice)>> {
    DEVICES.lock()
}

/// Returns the cores of all of them.
pub(crate) fn cores() -> Vec<Arc<Core>> {
    DEVICES.lock().iter().filter_map(|(_, open)| open.core.upgrade()).collect()
}

fn find<T>(id: u64, part: impl Fn(&OpenDevice) -> &Weak<T>) -> Option<Arc<T>> {
    let devices = DEVICES.lock();
    devices.iter().find(|(of, _)| *of == id).and_then(|(_, open)| part(open).upgrade())
}

/// Returns the core of the device with this number.
pub(crate) fn core_of(id: u64) -> Option<Arc<Core>> {
    find(id, |open| &open.core)
}

/// Returns whose the launches are of the device with this number.
pub(crate) fn owners_of(id: u64) -> Option<Arc<Owners>> {
    find(id, |open| &open.owners)
}
