//! Compiling functions apart and linking them, by the driver's linker.
//!
//! Where the driver loads PTX as a whole, its compiler puts into each kernel a copy of all that the kernel can reach: 46 kernels of
//! the benchmarks took it more than 220 s, and take 4 s here. Like what it makes of PTX elsewhere, the driver keeps this for the
//! next process of the same user.

use crate::module::{Log, refuse_other};
use crate::{Error, Gpu, Module};
use cudarc::driver::sys::{self, CUjit_option, CUjitInputType};
use std::ffi::c_void;
use std::sync::Arc;

impl Gpu {
    /// Loads PTX text or a relocatable cubin, of which a function that is no kernel gets `function_registers` registers at most
    /// where the driver compiles it. A kernel that says by `.maxnreg` how many it gets can call only such as have no more. May wait
    /// for the kernels that run.
    ///
    /// # Errors
    /// What the driver says, its compiler and its linker; that the image is another kind of file, or is cut.
    pub fn link(self: &Arc<Self>, mut image: Vec<u8>, function_registers: u32) -> Result<Module, Error> {
        refuse_other(&image)?;
        let kind = if image.starts_with(b"\x7fELF") {
            CUjitInputType::CU_JIT_INPUT_CUBIN
        } else {
            image.push(0);
            CUjitInputType::CU_JIT_INPUT_PTX
        };
        let linker = Linker::new(self, function_registers)?;
        // SAFETY: LOADED; the linker is there, the image lives through the call and ends as its kind must, and has no options of its
        // own.
        let added = self.run(doing, || unsafe {
            let (bytes, none) = (image.len(), std::ptr::null_mut());
            let name = c"the image".as_ptr();
            sys::cuLinkAddData_v2(
                linker.state,
                kind,
                image.as_mut_ptr().cast(),
                bytes,
                name,
                0,
                none,
                none.cast(),
            )
        });
        added.map_err(|error| linker.log.explain(error))?;
        let (mut cubin, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: LOADED; the linker is there, and the results live through the call.
        let linked = self.run(doing, || unsafe { sys::cuLinkComplete(linker.state, &mut cubin, &mut bytes) });
        linked.map_err(|error| linker.log.explain(error))?;
        // SAFETY: the driver says that so many bytes are there while the linker is.
        self.load(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), bytes) }.to_vec())
    }
}

fn doing() -> String {
    "compiling and linking GPU code".into()
}

/// A linker of the driver's.
struct Linker<'a> {
    gpu: &'a Arc<Gpu>,
    state: sys::CUlinkState,
    log: Log,
}

impl<'a> Linker<'a> {
    fn new(gpu: &'a Arc<Gpu>, function_registers: u32) -> Result<Self, Error> {
        let (mut log, mut state) = (Log::new(), std::ptr::null_mut());
        let [(buffer, at), (size, bytes)] = log.options();
        let mut options = [CUjit_option::CU_JIT_MAX_REGISTERS, buffer, size];
        let mut values = [function_registers as usize as *mut c_void, at, bytes];
        // SAFETY: LOADED; options and values live through the call, and the log as long as the linker, which writes there.
        gpu.run(doing, || unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuLinkCreate_v2(3, options, values, &mut state)
        })?;
        Ok(Self { gpu, state, log })
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        // SAFETY: LOADED; made by `new`, and nothing uses it any more.
        self.gpu.release(|| unsafe { sys::cuLinkDestroy(self.state) });
    }
}
