//! Launching: grids, images, and typed kernels.

use super::backend::{ImageCode, KernelCode};
use super::llvm::KernelResources;
use super::stream::Work;
use super::{Arguments, Device, Error, Stream};
use hostcall_abi::launch::KernelInfo;
use hostcall_device::kernel::Kernel;
use std::path::Path;
use std::sync::Arc;

/// Bytes of each workgroup's memory that the device crate keeps for itself.
const RESERVED_WORKGROUP_BYTES: u64 = 64;

/// How many lanes a launch has, and how they are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Workgroups in x, y, z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup in x, y, z; at most 1024 in all.
    pub lanes: [u32; 3],
    /// Bytes of workgroup memory besides what the kernel declares.
    pub workgroup_memory_bytes: u32,
}

impl Grid {
    /// `workgroups` workgroups of `lanes` lanes, in one dimension.
    pub const fn new(workgroups: u32, lanes: u32) -> Self {
        Self::new_3d([workgroups, 1, 1], [lanes, 1, 1])
    }

    /// Workgroups and their lanes in x, y, z.
    pub const fn new_3d(workgroups: [u32; 3], lanes: [u32; 3]) -> Self {
        Self { workgroups, lanes, workgroup_memory_bytes: 0 }
    }

    /// At least `lanes` lanes, in workgroups of 256: kernels compare [`hostcall_device::Lane::global_id`] with
    /// their data's length.
    pub const fn lanes(lanes: u32) -> Self {
        if lanes <= 256 { Self::new(1, lanes) } else { Self::new(lanes.div_ceil(256), 256) }
    }

    /// With workgroup memory besides what the kernel declares.
    pub const fn workgroup_memory(self, bytes: u32) -> Self {
        Self { workgroup_memory_bytes: bytes, ..self }
    }

    pub(super) fn workgroup_count(&self) -> u64 {
        self.workgroups.iter().map(|n| u64::from(*n)).product()
    }

    pub(super) fn workgroup_lanes(&self) -> u64 {
        self.lanes.iter().map(|n| u64::from(*n)).product()
    }

    pub(super) fn workgroup_memory_bytes(&self, kernel: &KernelInfo) -> u32 {
        let bytes = kernel
            .workgroup_memory_bytes
            .saturating_add(self.workgroup_memory_bytes.into())
            .saturating_add(RESERVED_WORKGROUP_BYTES);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |sentence: String| Err(Error::Device(sentence));
        let (count, lanes) = (self.workgroup_count(), self.workgroup_lanes());
        if count == 0 || lanes == 0 {
            return refuse("a grid needs at least one workgroup and one lane in x, y and z".into());
        }
        if lanes > 1024 {
            return refuse(format!("a workgroup has at most 1024 lanes, not {lanes}"));
        }
        if count.saturating_mul(lanes) > u64::from(u32::MAX) {
            return refuse(format!(
                "a grid has at most {} lanes, not {count} workgroups of {lanes}",
                u32::MAX
            ));
        }
        Ok(())
    }
}

/// A loaded image: a file of kernels compiled for the device.
#[derive(Clone)]
pub struct Image {
    code: Arc<dyn ImageCode>,
}

impl Device {
    /// Loads an image from a file.
    ///
    /// # Errors
    /// When it is no image for this device.
    pub fn load(&self, image: impl AsRef<Path>) -> Result<Image, Error> {
        let code = self.inner.backend.load(image.as_ref()).map_err(Error::Device)?;
        Ok(Image { code: code.into() })
    }
}

impl Image {
    /// Finds a kernel by name.
    ///
    /// # Errors
    /// When the image has none of this name, or was made by another version.
    pub fn kernel(&self, name: &str) -> Result<LoadedKernel, Error> {
        let code = self.code.kernel(name).map_err(Error::Device)?;
        Ok(LoadedKernel { name: name.to_string(), code })
    }

    /// The kernel of this image with the name and the types of `kernel`.
    ///
    /// # Errors
    /// As for [`Image::kernel`], and when the image's kernel takes other arguments.
    pub fn typed<P>(&self, kernel: &Kernel<P>) -> Result<LoadedKernel, Error> {
        let loaded = self.kernel(kernel.name)?;
        if loaded.code.info().schema != kernel.info.schema {
            return Err(Error::Device(format!(
                "the image's kernel {} takes other arguments than this program's; build it again",
                kernel.name
            )));
        }
        Ok(loaded)
    }
}

/// A kernel of an image.
#[derive(Clone)]
pub struct LoadedKernel {
    name: String,
    code: Arc<dyn KernelCode>,
}

impl LoadedKernel {
    /// What the image says of the kernel.
    pub fn info(&self) -> &KernelInfo {
        self.code.info()
    }

    /// What the kernel needs of the device; `None` when the device does not say.
    pub fn resources(&self) -> Option<KernelResources> {
        self.code.resources().map(|resources| KernelResources { kernel: self.name.clone(), ..resources })
    }

    /// Launches the kernel, which takes no arguments.
    ///
    /// # Errors
    /// When it takes some, or the grid is none.
    pub fn launch(&self, stream: &Stream, grid: Grid) -> Result<(), Error> {
        grid.check()?;
        let info = self.info();
        check_lanes(&self.name, info, &grid)?;
        let expected = info.argument_bytes;
        if expected != 0 {
            return Err(Error::Device(format!("kernel {} takes {expected} bytes of arguments", self.name)));
        }
        stream.enqueue(Work {
            name: self.name.clone(),
            kernel: self.code.clone(),
            grid,
            arguments: Vec::new(),
            keep_alive: Vec::new(),
        });
        Ok(())
    }

    /// Launches the kernel as `kernel`, whose types [`Image::typed`] compared.
    ///
    /// # Errors
    /// When the grid is none, or the argument block is not of the size that the image names.
    pub fn launch_as<P>(
        &self,
        _kernel: &Kernel<P>,
        stream: &Stream,
        grid: Grid,
        arguments: impl Arguments<P>,
    ) -> Result<(), Error> {
        enqueue(stream, &self.name, self.code.clone(), grid, arguments.pack())
    }
}

/// Refuses workgroups of more lanes than the kernel was written for, on every device alike.
fn check_lanes(name: &str, info: &KernelInfo, grid: &Grid) -> Result<(), Error> {
    let (most, lanes) = (info.max_lanes, grid.workgroup_lanes());
    if most != 0 && lanes > most {
        return Err(Error::Device(format!(
            "kernel {name} takes workgroups of at most {most} lanes, not {lanes}: launch more, smaller ones"
        )));
    }
    Ok(())
}

fn enqueue(
    stream: &Stream,
    name: &str,
    kernel: Arc<dyn KernelCode>,
    grid: Grid,
    packed: super::arguments::Packed,
) -> Result<(), Error> {
    grid.check()?;
    check_lanes(name, kernel.info(), &grid)?;
    let expected = kernel.info().argument_bytes;
    if (packed.bytes.len() as u64).abs_diff(expected) >= 8 {
        let given = packed.bytes.len();
        return Err(Error::Device(format!("kernel {name} takes {expected} bytes of arguments, not {given}")));
    }
    stream.enqueue(Work {
        name: name.to_string(),
        kernel,
        grid,
        arguments: packed.bytes,
        keep_alive: packed.keep_alive,
    });
    Ok(())
}

/// Launching kernels that are part of this program.
pub trait LaunchKernel<P> {
    /// Puts a launch on the stream. The arguments are a tuple of a host value for each parameter.
    ///
    /// # Errors
    /// When the grid is none, or the device runs only kernels of loaded images.
    fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments<P>) -> Result<(), Error>;
}

impl<P> LaunchKernel<P> for Kernel<P> {
    fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments<P>) -> Result<(), Error> {
        let code = stream.device().backend.native_kernel(self.entry, self.info).ok_or_else(|| {
            Error::Device(format!(
                "{} runs kernels of images only; load one and use `Image::typed`",
                stream.device().name
            ))
        })?;
        enqueue(stream, self.name, code, grid, arguments.pack())
    }
}
