//! Loading the driver, and what it answers.

use crate::{Gpu, GpuInfo};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

/// What the driver answered to a request, other than success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {text} ({name})")]
pub struct Error {
    /// What was asked for, such as "allocating 64 bytes of GPU memory".
    pub doing: String,
    /// The driver's name of the error, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// The driver's words for it, and what it wrote when it compiled.
    pub text: String,
    /// The GPU can do nothing more for this process: a kernel did what it must not.
    pub is_fault: bool,
}

/// Functions of the driver that this crate calls: a missing one is found here, and not at its first use.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolSetAttribute",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

/// The driver, loaded and initialised: whoever has a reference may call it (invariant LOADED).
#[derive(Debug)]
pub struct Driver(());

impl Driver {
    /// The process's driver, loaded by the first call.
    ///
    /// The first call sets two variables of the environment, which the driver reads, unless they are set: call
    /// it before threads run that read the environment other than through [`mod@std::env`].
    ///
    /// # Errors
    /// A sentence that says what is missing, the same at every call.
    pub fn load() -> Result<&'static Self, String> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        DRIVER.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        for (name, value) in [
            // A kernel whose code is loaded at its first launch waits for the kernels that run.
            ("CUDA_MODULE_LOADING", "EAGER"),
            // Streams that share one of the default 8 queues wait for each other's kernels.
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ] {
            if std::env::var_os(name).is_none() {
                // SAFETY: once a process, before the driver is there to read it; `load` says what callers must
                // see to.
                unsafe { std::env::set_var(name, value) };
            }
        }
        // SAFETY: loads the driver's library by its name, as every program that uses a GPU does.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "there is no NVIDIA driver: libcuda.so.1 was not found; install the driver, so that \
                        `nvidia-smi` shows the GPU"
                    .into(),
            );
        }
        for name in FUNCTIONS {
            // SAFETY: the library is present, and the function is looked up only, not called.
            if unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
                return Err(format!(
                    "the NVIDIA driver is too old, it has no {name}: install one for CUDA 12 or later"
                ));
            }
        }
        // SAFETY: LOADED, but for this initialisation.
        let result = unsafe { sys::cuInit(0) };
        match check(result, || "starting the NVIDIA driver".into()) {
            Err(_) if result == CUresult::CUDA_ERROR_NO_DEVICE => {
                Err("the NVIDIA driver finds no GPU: `nvidia-smi` must show one".into())
            }
            result => result.map(|()| Self(())).map_err(|error| error.to_string()),
        }
    }

    /// The GPUs of this machine that the process may use, in the driver's order.
    ///
    /// # Errors
    /// What the driver says.
    pub fn gpus(&self) -> Result<Vec<GpuInfo>, Error> {
        let mut count = 0;
        // SAFETY: LOADED; the count lives through the call.
        check(unsafe { sys::cuDeviceGetCount(&mut count) }, || "counting GPUs".into())?;
        (0..count).map(GpuInfo::read).collect()
    }

    /// Opens a GPU: its primary context, which all of the process share.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open_gpu(&self, info: GpuInfo) -> Result<Arc<Gpu>, Error> {
        Gpu::open(info)
    }
}

/// Turns the driver's answer into a result.
pub(crate) fn check(result: CUresult, doing: impl FnOnce() -> String) -> Result<(), Error> {
    use CUresult::*;
    if result == CUDA_SUCCESS {
        return Ok(());
    }
    let describe = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: LOADED, since there is a result; the pointer lives through the call.
        unsafe { get(result, &mut text) };
        // SAFETY: the driver leaves null, or the address of a string that it keeps for good.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    Err(Error {
        doing: doing(),
        name: describe(sys::cuGetErrorName).unwrap_or_else(|| format!("{result:?}")),
        text: describe(sys::cuGetErrorString).unwrap_or_else(|| "an error without a description".into()),
        is_fault: matches!(
            result,
            CUDA_ERROR_ECC_UNCORRECTABLE
                | CUDA_ERROR_ILLEGAL_ADDRESS
                | CUDA_ERROR_LAUNCH_TIMEOUT
                | CUDA_ERROR_CONTEXT_IS_DESTROYED
                | CUDA_ERROR_ASSERT
                | CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUDA_ERROR_MISALIGNED_ADDRESS
                | CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUDA_ERROR_INVALID_PC
                | CUDA_ERROR_LAUNCH_FAILED
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine with a GPU as on one without: no panic, and the same answer again.
    #[test]
    fn a_missing_driver_is_a_sentence() {
        match Driver::load() {
            Ok(driver) => assert!(driver.gpus().is_ok()),
            Err(sentence) => {
                assert!(sentence.contains("NVIDIA driver"), "{sentence}");
                assert_eq!(Driver::load().err(), Some(sentence));
            }
        }
    }
}
