//! Images and their kernels.

use crate::device::hostcall_device;
use crate::error::c_text;
use crate::functions::functions;
use crate::handle::values;
use hostcall::device::{Image, LoadedKernel};
use std::ffi::{CString, OsStr, c_char};
use std::ptr::null;

/// A loaded image of kernels. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_image {
    image: Image,
    names: Vec<CString>,
}

/// A kernel of an image. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_kernel(pub(crate) LoadedKernel);

impl From<Image> for hostcall_image {
    fn from(image: Image) -> Self {
        Self { names: image.kernels().map(c_text).collect(), image }
    }
}

functions! {
    /// Loads an image that `hostcall build` made from a file. The path is taken literally. An image is trusted as the program's
    /// own code is.
    make hostcall_image_load(device: &hostcall_device, path: &OsStr) -> hostcall_image as image {
        device.device.load(path)?.into()
    }

    /// Loads an image from `len` bytes, of which nothing is needed afterwards. It is trusted as in hostcall_image_load.
    make hostcall_image_load_bytes(
        device: &hostcall_device,
        bytes: *const u8,
        len: usize,
    ) -> hostcall_image as image {
        // SAFETY: CALLER.
        let bytes = unsafe { values(bytes, len, "bytes") }?;
        device.device.load_bytes(bytes)?.into()
    }

    /// Frees an image and sets the handle to NULL. NULL is let be. Its kernels can still be used.
    free hostcall_image_free(image: hostcall_image) { drop(image) }

    /// Returns how many kernels the image has; 0 for NULL.
    ask hostcall_image_kernel_count(image: &hostcall_image) -> usize { image.names.len() }

    /// Returns the name of the kernel at `index`; NULL when there is none. It lives as long as the image's handle.
    ask hostcall_image_kernel_name(image: &hostcall_image, index: usize) -> *const c_char {
        image.names.get(index).map_or(null(), |name| name.as_ptr())
    }

    /// Finds a kernel by its name, or by its path, as "shop::stock::count".
    make hostcall_image_kernel(image: &hostcall_image, name: &str) -> hostcall_kernel as kernel {
        hostcall_kernel(image.image.kernel(name)?)
    }

    /// Frees a kernel and sets the handle to NULL. NULL is let be. Its launches run on.
    free hostcall_kernel_free(kernel: hostcall_kernel) { drop(kernel) }
}
