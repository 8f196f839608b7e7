//! Images and their kernels.

use crate::device::hostcall_device;
use crate::error::{c_text, hostcall_error, hostcall_status, run};
use crate::handle::{self, Out, get, place, put, system_text, text, values};
use hostcall::device::{Image, LoadedKernel};
use std::ffi::{CString, c_char};
use std::ptr::null;

/// A loaded image of kernels. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_image {
    image: Image,
    names: Vec<CString>,
}

/// A kernel of an image. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_kernel(pub(crate) LoadedKernel);

fn put_image(place: &mut *mut hostcall_image, image: Image) {
    let names = image.kernels().map(c_text).collect();
    put(place, hostcall_image { image, names });
}

/// Loads an image that `hostcall build` made from a file. The path is taken literally. An image is trusted as the program's
/// own code is.
pub unsafe extern "C" fn hostcall_image_load(
    device: Option<&hostcall_device>,
    path: *const c_char,
    image: Out<'_, hostcall_image>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(image, "image")?;
        // SAFETY: CALLER.
        let path = unsafe { system_text(path, "path") }?;
        put_image(place, get(device, "device")?.device.load(path)?);
        Ok(())
    })
}

/// Loads an image from `len` bytes, of which nothing is needed afterwards. It is trusted as in hostcall_image_load.
pub unsafe extern "C" fn hostcall_image_load_bytes(
    device: Option<&hostcall_device>,
    bytes: *const u8,
    len: usize,
    image: Out<'_, hostcall_image>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(image, "image")?;
        // SAFETY: CALLER.
        let bytes = unsafe { values(bytes, len, "bytes") }?;
        put_image(place, get(device, "device")?.device.load_bytes(bytes)?);
        Ok(())
    })
}

/// Frees an image and sets the handle to NULL. NULL is let be. Its kernels can still be used.
pub extern "C" fn hostcall_image_free(image: Option<&mut *mut hostcall_image>) {
    handle::free(image);
}

/// Returns how many kernels the image has; 0 for NULL.
pub extern "C" fn hostcall_image_kernel_count(image: Option<&hostcall_image>) -> usize {
    image.map_or(0, |image| image.names.len())
}

/// Returns the name of the kernel at `index`; NULL when there is none. It lives as long as the image's handle.
pub extern "C" fn hostcall_image_kernel_name(image: Option<&hostcall_image>, index: usize) -> *const c_char {
    image.and_then(|image| image.names.get(index)).map_or(null(), |name| name.as_ptr())
}

/// Finds a kernel by its name, or by its path, as "shop::stock::count".
pub unsafe extern "C" fn hostcall_image_kernel(
    image: Option<&hostcall_image>,
    name: *const c_char,
    kernel: Out<'_, hostcall_kernel>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(kernel, "kernel")?;
        // SAFETY: CALLER.
        let name = unsafe { text(name, "name") }?;
        put(place, hostcall_kernel(get(image, "image")?.image.kernel(name)?));
        Ok(())
    })
}

/// Frees a kernel and sets the handle to NULL. NULL is let be. Its launches run on.
pub extern "C" fn hostcall_kernel_free(kernel: Option<&mut *mut hostcall_kernel>) {
    handle::free(kernel);
}
