//! Loading images on a device.

use super::error::Error;
use super::images::{EmbeddedImage, Image, load, read_image};
use super::inner::Device;
use hostcall_seam::ImageSource;
use std::path::Path;

impl Device {
    /// Loads an image from a file. The path is taken literally: no folders are searched.
    ///
    /// An image is trusted as the program's own code is: on `cpu` loading it runs its initialisers, and a GPU's driver reads what
    /// its headers say.
    ///
    /// # Errors
    /// When it cannot be read, or is no image of kernels for this device.
    pub fn load(&self, image: impl AsRef<Path>) -> Result<Image, Error> {
        self.inner.core.check_process()?;
        let (path, bytes) = read_image(image.as_ref())?;
        let name = image.as_ref().display().to_string();
        Ok(load(&self.inner.core, &name, ImageSource::File { path: &path, bytes: &bytes })?)
    }

    /// Loads an image from memory, which is trusted as in [`Device::load`].
    ///
    /// # Errors
    /// When it is no image of kernels for this device.
    pub fn load_bytes(&self, image: &[u8]) -> Result<Image, Error> {
        self.inner.core.check_process()?;
        Ok(load(&self.inner.core, "the image", ImageSource::Bytes(image))?)
    }

    /// Adds images of the same kernels for several devices, in which [`crate::LaunchKernel::launch`] looks for kernels, and
    /// loads the one that fits this device best. A device that runs the program's own kernels, such as `cpu`, ignores them.
    ///
    /// # Errors
    /// When that one cannot be loaded.
    pub fn add_images(&self, images: &[EmbeddedImage]) -> Result<(), Error> {
        self.inner.core.check_process()?;
        Ok(self.inner.images.add(&self.inner.core, images)?)
    }

    /// Adds an image in which [`crate::LaunchKernel::launch`] looks for kernels.
    ///
    /// # Errors
    /// As for [`Device::load_bytes`].
    pub fn add_image(&self, image: &[u8]) -> Result<(), Error> {
        let image = self.load_bytes(image)?;
        self.inner.images.images().push(image);
        Ok(())
    }
}
