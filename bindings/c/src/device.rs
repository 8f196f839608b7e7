//! Devices: listing and opening them, and services that come and go.

use crate::error::{Failure, c_text, hostcall_status};
use crate::functions::functions;
use crate::options::hostcall_options;
use crate::service::{Offered, Places};
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

functions! {
    /// Lists the devices. Any thread may call it.
    make hostcall_devices() -> hostcall_device_list as list {
        let listed = devices().into_iter().map(|device| ListedDevice {
            name: c_text(&device.name),
            description: c_text(&device.description),
            unavailable: device.unavailable.as_deref().map(c_text),
        });
        hostcall_device_list(listed.collect())
    }

    /// Returns how many devices are listed; 0 for NULL.
    ask hostcall_device_list_count(list: &hostcall_device_list) -> usize { list.0.len() }

    /// Puts the device at `index` into `info` and returns true, if there is one.
    ask hostcall_device_list_get(
        list: &hostcall_device_list,
        index: usize,
        info: &mut MaybeUninit<hostcall_device_info>,
    ) -> bool {
        let Some(device) = list.0.get(index) else { return Ok(false) };
        let ListedDevice { name, description, unavailable } = device;
        let unavailable = unavailable.as_ref().map_or(null(), |text| text.as_ptr());
        info.write(hostcall_device_info { name: name.as_ptr(), description: description.as_ptr(), unavailable });
        true
    }

    /// Frees a list and sets the handle to NULL. NULL is let be.
    free hostcall_device_list_free(list: hostcall_device_list) { drop(list) }

    /// Opens a device and starts its server. It takes the options, whose handle is NULL afterwards, also when it fails.
    make hostcall_device_open(options: Box<hostcall_options>) -> hostcall_device as device {
        let device = options.open()?;
        let (target, places) = (c_text(&device.target()), Arc::<Places>::default());
        places.set(&device);
        hostcall_device { device, target, places }
    }

    /// Ends the device's work for good: every launch is cancelled, and later ones, new streams and all other work of streams are
    /// refused with HOSTCALL_STATUS_CLOSED. Buffers can still be made, read and written. Waits until all launches have ended, at
    /// most five seconds, but for a handler that runs inline without a limit. Not to be called in a function that the library
    /// calls.
    run hostcall_device_close(device: &hostcall_device) { device.device.close(); }

    /// Frees a device and sets the handle to NULL. NULL is let be. What was made on the device can still be used.
    free hostcall_device_free(device: hostcall_device) { drop(device) }

    /// Returns what images for the device are built for, as `hostcall build --target` takes it; NULL for NULL. It lives as long
    /// as the device's handle.
    ask hostcall_device_target(device: &hostcall_device) -> *const c_char {
        device.target.as_ptr()
    }

    /// Returns how many lanes a wave has; 0 for NULL.
    ask hostcall_device_wave_lanes(device: &hostcall_device) -> u32 {
        device.device.wave_size()
    }

    /// Waits until all that kernels printed is written, and tells of a failure to write it.
    run hostcall_device_flush(device: &hostcall_device) {
        let flushed = device.device.builtins().stdio().flush();
        flushed.map_err(|error| Failure::new(hostcall_status::Device, error))?
    }

    /// Puts what the device's server has counted into `statistics`.
    run hostcall_device_statistics(
        device: &hostcall_device,
        statistics: &mut MaybeUninit<hostcall_statistics>,
    ) {
        let counted = device.device.statistics();
        statistics.write(hostcall_statistics {
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
    }

    /// Registers a service while kernels run, as hostcall_options_service does before. It stays until
    /// hostcall_registration_remove, or as long as the device. `registration` may be NULL.
    begin hostcall_device_register(
        device: &hostcall_device,
        service: Offered<'_>,
    ) -> hostcall_registration as registration {
        let hostcall_device { device, places, .. } = device;
        let is_inline = service.is_inline();
        // SAFETY: CALLER.
        let served = unsafe { service.accept(places) }?;
        hostcall_registration(if is_inline { device.register_inline(served) } else { device.register(served) }?)
    }

    /// Removes a service and sets the handle to NULL. Handlers that run finish; when this returns, no more are begun (unless it
    /// is called by a handler that runs inline). NULL is let be.
    free hostcall_registration_remove(registration: hostcall_registration) { registration.0.remove() }

    /// Frees the handle of a registration and sets it to NULL; the service stays. NULL is let be.
    free hostcall_registration_free(registration: hostcall_registration) { drop(registration) }
}
