//! Devices: listing and opening them, and services that come and go.

use crate::error::{c_text, hostcall_error, hostcall_status, run};
use crate::handle::{self, Out, State, get, place, put, take};
use crate::options::hostcall_options;
use crate::service::{Places, Served, hostcall_service};
use hostcall::Device;
use hostcall::device::devices;
use hostcall::server::Registration;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::Arc;

/// The devices of this machine, and the kinds of which there is none. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_device_list(Vec<ListedDevice>);

struct ListedDevice {
    name: CString,
    description: CString,
    unavailable: Option<CString>,
}

/// A device that could be opened, or the reason why it cannot. The texts live as long as the list.
#[repr(C)]
pub struct hostcall_device_info {
    /// The name to open it by.
    pub name: *const c_char,
    /// What it is, in words.
    pub description: *const c_char,
    /// Why it cannot be used, with what to do; NULL when it can.
    pub unavailable: *const c_char,
}

/// A device with its server. Any thread may use it; it is the caller's, who frees it. The device ends when this and all
/// that was made on it are freed: some of its threads and its services' states go a moment later.
pub struct hostcall_device {
    pub(crate) device: Device,
    target: CString,
    places: Arc<Places>,
}

/// A service that was registered at an open device. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_registration(Registration);

/// What a device's server has counted since it was opened.
#[repr(C)]
pub struct hostcall_statistics {
    /// Packets taken: calls of waves. Who has an answer finds its packet counted.
    pub packets: u64,
    /// Posts taken.
    pub posts: u64,
    /// Posts that reached no handler.
    pub refused_posts: u64,
    /// How often posts were left in their ring, because their service had no room for more.
    pub declined_posts: u64,
    /// Words where a post should have begun and did not.
    pub garbage_posts: u64,
    /// Slots given up because the device wrote what is no doorbell.
    pub broken_slots: u64,
    /// Bytes of messages and replies that are held now.
    pub message_bytes: u64,
    /// Threads for handlers now, those of built-in services included.
    pub handler_threads: u64,
    /// Handlers that wait for a thread now.
    pub waiting_handlers: u64,
    /// Reports to callbacks that were dropped, because more than 1024 waited.
    pub lost_reports: u64,
}

/// Lists the devices. Any thread may call it.
pub extern "C" fn hostcall_devices(
    list: Out<'_, hostcall_device_list>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(list, "list")?;
        let listed = devices().into_iter().map(|device| ListedDevice {
            name: c_text(&device.name),
            description: c_text(&device.description),
            unavailable: device.unavailable.as_deref().map(c_text),
        });
        put(place, hostcall_device_list(listed.collect()));
        Ok(())
    })
}

/// Returns how many devices are listed; 0 for NULL.
pub extern "C" fn hostcall_device_list_count(list: Option<&hostcall_device_list>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// Puts the device at `index` into `info` and returns true, if there is one.
pub extern "C" fn hostcall_device_list_get(
    list: Option<&hostcall_device_list>,
    index: usize,
    info: Option<&mut MaybeUninit<hostcall_device_info>>,
) -> bool {
    let (Some(device), Some(info)) = (list.and_then(|list| list.0.get(index)), info) else { return false };
    let ListedDevice { name, description, unavailable } = device;
    let unavailable = unavailable.as_ref().map_or(null(), |text| text.as_ptr());
    info.write(hostcall_device_info { name: name.as_ptr(), description: description.as_ptr(), unavailable });
    true
}

/// Frees a list and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_device_list_free(list: Option<&mut *mut hostcall_device_list>) {
    handle::free(list);
}

/// Opens a device and starts its server. It takes the options, whose handle is NULL afterwards, also when it fails.
pub extern "C" fn hostcall_device_open(
    options: Option<&mut *mut hostcall_options>,
    device: Out<'_, hostcall_device>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let options = take(options);
        let place = place(device, "device")?;
        let device = get(options, "options")?.open()?;
        let (target, places) = (c_text(&device.target()), Arc::<Places>::default());
        places.set(&device);
        put(place, hostcall_device { device, target, places });
        Ok(())
    })
}

/// Ends the device's work for good: every launch is cancelled, and later ones, new streams and all other work of streams are
/// refused with HOSTCALL_STATUS_CLOSED. Buffers can still be made, read and written. Waits until all launches have ended, at
/// most five seconds, but for a handler that runs inline without a limit. Not to be called in a function that the library
/// calls.
pub extern "C" fn hostcall_device_close(
    device: Option<&hostcall_device>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        get(device, "device")?.device.close();
        Ok(())
    })
}

/// Frees a device and sets the handle to NULL. NULL is let be. What was made on the device can still be used.
pub extern "C" fn hostcall_device_free(device: Option<&mut *mut hostcall_device>) {
    handle::free(device);
}

/// Returns what images for the device are built for, as `hostcall build --target` takes it; NULL for NULL. It lives as long
/// as the device's handle.
pub extern "C" fn hostcall_device_target(device: Option<&hostcall_device>) -> *const c_char {
    device.map_or(null(), |device| device.target.as_ptr())
}

/// Returns how many lanes a wave has; 0 for NULL.
pub extern "C" fn hostcall_device_wave_lanes(device: Option<&hostcall_device>) -> u32 {
    device.map_or(0, |device| device.device.wave_size())
}

/// Waits until all that kernels printed is written, and tells of a failure to write it.
pub extern "C" fn hostcall_device_flush(
    device: Option<&hostcall_device>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let flushed = get(device, "device")?.device.builtins().stdio().flush();
        flushed.map_err(|error| crate::error::Failure::new(hostcall_status::Device, error))
    })
}

/// Puts what the device's server has counted into `statistics`.
pub extern "C" fn hostcall_device_statistics(
    device: Option<&hostcall_device>,
    statistics: Option<&mut MaybeUninit<hostcall_statistics>>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let counted = get(device, "device")?.device.statistics();
        get(statistics, "statistics")?.write(hostcall_statistics {
            packets: counted.packets,
            posts: counted.posts,
            refused_posts: counted.refused_posts,
            declined_posts: counted.declined_posts,
            garbage_posts: counted.garbage_posts,
            broken_slots: counted.broken_slots,
            message_bytes: counted.message_bytes,
            handler_threads: counted.handler_threads,
            waiting_handlers: counted.waiting_handlers,
            lost_reports: counted.lost_reports,
        });
        Ok(())
    })
}

/// Registers a service while kernels run, as hostcall_options_service does before. It stays until
/// hostcall_registration_remove, or as long as the device. `registration` may be NULL.
pub unsafe extern "C" fn hostcall_device_register(
    device: Option<&hostcall_device>,
    service: Option<&hostcall_service>,
    registration: Out<'_, hostcall_registration>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = registration.map(|registration| registration.write(std::ptr::null_mut()));
        let service = get(service, "service")?;
        let state = State::new(service.state, service.free_state);
        let hostcall_device { device, places, .. } = get(device, "device")?;
        // SAFETY: CALLER.
        let served = unsafe { Served::new(service, state, places) }?;
        let made = match service.is_inline {
            true => device.register_inline(served),
            false => device.register(served),
        }?;
        if let Some(place) = place {
            put(place, hostcall_registration(made));
        }
        Ok(())
    })
}

/// Removes a service and sets the handle to NULL. Handlers that run finish; when this returns, no more are begun (unless it
/// is called by a handler that runs inline). NULL is let be.
pub extern "C" fn hostcall_registration_remove(registration: Option<&mut *mut hostcall_registration>) {
    handle::answer(|| {
        if let Some(registration) = take(registration) {
            registration.0.remove();
        }
        true
    });
}

/// Frees the handle of a registration and sets it to NULL; the service stays. NULL is let be.
pub extern "C" fn hostcall_registration_free(registration: Option<&mut *mut hostcall_registration>) {
    handle::free(registration);
}
