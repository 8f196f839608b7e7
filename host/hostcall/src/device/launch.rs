//! Launching kernels.

use super::arguments::Arguments;
use super::core::Core;
use super::error::Error;
use super::graph::{GraphKernel, KernelNode, Node, capture_of, sealed::Sealed};
use super::grid::Grid;
use super::images::{LoadedKernel, TypedKernel};
use super::inner::Device;
use super::prepare::{self, LaunchMemory, kernel_called};
use super::stream::{Launch, Stream};
use hostcall_abi::launch::LAUNCH_PARAMS_BYTES;
use hostcall_device::kernel::Kernel;
use hostcall_locks::Mutex;
use hostcall_seam::DeviceKind;
use std::sync::Arc;

/// Launching kernels, the same on every device: a device that cannot run the program's own code takes the kernel of
/// this name and these types from the images that it was given ([`DeviceBuilder::images`](crate::device::DeviceBuilder::images)).
pub trait LaunchKernel<P> {
    /// Puts a launch on the stream. The arguments are a tuple of a host value for each parameter.
    ///
    /// Launches of several streams run beside each other while the device has room. A GPU that one launch fills, with waves
    /// that run on or wait, starts nothing else until some of them end: a kernel that others wait for is launched before
    /// them, or its room is left free by a smaller grid. The software device leaves room.
    ///
    /// # Errors
    /// When the grid or an argument does not fit, no image has the kernel, or the device was closed. Nothing is
    /// launched then.
    fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments<P>) -> Result<Launch, Error>;
}

impl<P> Sealed<P> for Kernel<P> {}

impl<P> GraphKernel<P> for Kernel<P> {
    fn resolve(&self, device: &Device) -> Result<LoadedKernel, Error> {
        let device = &device.inner;
        match native(&device.core, self) {
            Some(kernel) => Ok(kernel),
            None => Ok(device.images.find(&device.core, self)?.as_ref().clone()),
        }
    }
}

impl<P> Sealed<P> for TypedKernel<P> {}

impl<P> GraphKernel<P> for TypedKernel<P> {
    fn resolve(&self, device: &Device) -> Result<LoadedKernel, Error> {
        let LoadedKernel { core, name, .. } = &self.kernel;
        device.inner.core.check_own(core, kernel_called(name))?;
        Ok(self.kernel.clone())
    }
}

/// Returns a kernel of the program where the device runs the program's own code.
fn native<P>(core: &Arc<Core>, kernel: &Kernel<P>) -> Option<LoadedKernel> {
    let code = core.backend.native_kernel(kernel.entry())?;
    Some(LoadedKernel { core: core.clone(), name: kernel.name().into(), code, info: *kernel.info() })
}

impl<P> LaunchKernel<P> for Kernel<P> {
    fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments<P>) -> Result<Launch, Error> {
        let device = stream.device();
        device.core.check_process()?;
        match native(&device.core, self) {
            Some(kernel) => enqueue(stream, &kernel, grid, arguments),
            None => enqueue(stream, &*device.images.find(&device.core, self)?, grid, arguments),
        }
    }
}

impl<P> LaunchKernel<P> for TypedKernel<P> {
    fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments<P>) -> Result<Launch, Error> {
        stream.core().check_own(&self.kernel.core, kernel_called(&self.kernel.name))?;
        enqueue(stream, &self.kernel, grid, arguments)
    }
}

impl LoadedKernel {
    /// Puts a launch of the kernel, which takes no arguments, on the stream.
    ///
    /// # Errors
    /// When it takes some, the grid does not fit, or the kernel is another device's.
    pub fn launch(&self, stream: &Stream, grid: Grid) -> Result<Launch, Error> {
        stream.core().check_own(&self.core, kernel_called(&self.name))?;
        enqueue(stream, self, grid, ())
    }
}

pub(super) fn enqueue<P>(
    stream: &Stream,
    kernel: &LoadedKernel,
    grid: Grid,
    arguments: impl Arguments<P>,
) -> Result<Launch, Error> {
    let core = stream.core();
    if let Some(capture) = capture_of(stream, "launch")? {
        let name = kernel.name.clone();
        let node = capture.note(KernelNode::new(core, kernel.clone(), grid, &arguments))?;
        capture.add(stream.queue(), Node::Kernel(node))?;
        return Ok(Launch::captured(stream.queue(), name));
    }
    let mut parts = stream.queue().blank();
    // Known when the launch begins.
    parts.parameters.push(&[0; LAUNCH_PARAMS_BYTES]);
    let bytes = prepare::prepare(core, kernel, &grid, &arguments, &mut parts)?;
    let device = stream.device();
    let mut wave_records = 0;
    if device.properties().kind == DeviceKind::Amd {
        let memory = prepare::memory_of_records(core, &grid)?;
        wave_records = memory.address.get();
        parts.memory.push(Arc::new(Mutex::new(memory.owner)));
    }
    let (name, memory) = (kernel.name.clone(), LaunchMemory { bytes, wave_records });
    stream.queue().launch(name.clone(), None, parts, |parameters, sequence, words| {
        prepare::begin(device, name, &grid, memory, parameters, sequence, words)
    })
}
