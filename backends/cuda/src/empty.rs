//! A kernel that does nothing, launched as the driver's own API does: what hostcall's launches are measured beside.

use crate::gpu::Stream;
use crate::list::{List, Listed};
use crate::module::Function;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// The kernel, for every GPU that the driver still compiles for.
const PTX: &str = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n";

/// The kernel that does nothing, and a stream of the driver's own.
pub struct EmptyKernel {
    gpu: Arc<Gpu>,
    function: Function,
    stream: Stream,
}

/// A list of such kernels.
pub struct EmptyKernels(List);

impl EmptyKernel {
    /// Loads the kernel.
    ///
    /// # Errors
    /// What the driver says.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        let module = gpu.load(PTX.as_bytes().to_vec())?;
        let function = module.function("empty")?.expect("the text above has it");
        Ok(Self { gpu: gpu.clone(), function, stream: gpu.take_stream()? })
    }

    /// Launches `blocks` blocks of `lanes` lanes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch(&self, blocks: u32, lanes: u32) -> Result<(), Error> {
        let (stream, none) = (self.stream.0, std::ptr::null_mut::<*mut c_void>());
        let doing = || "launching an empty kernel".to_string();
        // SAFETY: LOADED; the kernel has no parameters, and its module lives as long as this.
        self.gpu.run(doing, || unsafe {
            sys::cuLaunchKernel(self.function.handle(), blocks, 1, 1, lanes, 1, 1, 0, stream, none, none)
        })
    }

    /// Makes a list of `count` launches of one block of `lanes` lanes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn list(&self, count: u32, lanes: u32) -> Result<EmptyKernels, Error> {
        let listed = |_| Listed {
            function: &self.function,
            blocks: [1; 3],
            lanes: [lanes, 1, 1],
            shared_bytes: 0,
            arguments: Vec::new(),
            waits: false,
        };
        let mut launches: Vec<_> = (0..count).map(listed).collect();
        // SAFETY: the kernel has no parameters.
        Ok(EmptyKernels(unsafe { self.gpu.list(&mut launches) }?))
    }

    /// Launches the kernels of a list.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch_list(&self, list: &EmptyKernels) -> Result<(), Error> {
        list.0.launch_on(self.stream.0)
    }

    /// Waits for the launches.
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<(), Error> {
        let doing = || "running empty kernels".to_string();
        // SAFETY: LOADED, with the stream of this.
        self.gpu.run(doing, || unsafe { sys::cuStreamSynchronize(self.stream.0) })
    }
}

impl Drop for EmptyKernel {
    fn drop(&mut self) {
        // Nothing runs on it then.
        if self.synchronize().is_ok() {
            self.gpu.give_back_stream(self.stream);
        }
    }
}
