//! Loading the driver, and what it answers.

use crate::{Gpu, GpuInfo};
use cudarc::driver::sys::{self, CUresult};
use hostcall_seam::{BackendError, DeviceFault, DeviceFaultKind};
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
    /// The GPU can do nothing more for this process: a kernel did what it must not, or the driver lost the
    /// GPU.
    pub is_fault: bool,
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        let reason = error.to_string();
        if !error.is_fault {
            return BackendError::Driver(reason);
        }
        let kind = match error.name.as_str() {
            "CUDA_ERROR_ILLEGAL_ADDRESS"
            | "CUDA_ERROR_MISALIGNED_ADDRESS"
            | "CUDA_ERROR_INVALID_ADDRESS_SPACE" => DeviceFaultKind::Memory,
            "CUDA_ERROR_HARDWARE_STACK_ERROR" => DeviceFaultKind::StackOverflow,
            "CUDA_ERROR_ILLEGAL_INSTRUCTION" | "CUDA_ERROR_INVALID_PC" | "CUDA_ERROR_ASSERT" => {
                DeviceFaultKind::Instruction
            }
            _ => DeviceFaultKind::Device,
        };
        BackendError::Fault { fault: DeviceFault { kind, reason }, is_final: true }
    }
}

/// Turns the driver's refusal of memory into an error that names the bytes.
pub(crate) fn no_memory(what: &'static str, bytes: usize) -> impl FnOnce(Error) -> BackendError {
    move |error| match error.name.as_str() {
        "CUDA_ERROR_OUT_OF_MEMORY" => BackendError::NoMemory { what, bytes, reason: error.to_string() },
        _ => error.into(),
    }
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
    "cuMemPoolTrimTo",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxGetLimit",
    "cuCtxSetLimit",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemsetD8Async",
    "cuStreamWaitEvent",
    "cuStreamWriteValue64_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuStreamBatchMemOp_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetFlags",
    "cuPointerGetAttribute",
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkDestroy",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncGetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuThreadExchangeStreamCaptureMode",
    "cuGraphCreate",
    "cuGraphAddKernelNode_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// Sets the environment's variable that lets kernels of up to 32 streams run beside each other, unless it is set.
///
/// # Safety
/// No other thread of the process reads or writes the environment meanwhile: to be called at the start of `main`.
pub unsafe fn prepare_environment() {
    const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    if std::env::var_os(CONNECTIONS).is_none() {
        // SAFETY: by the caller's promise.
        unsafe { std::env::set_var(CONNECTIONS, "32") };
    }
}

/// The driver, loaded and initialised: whoever has a reference may call it (invariant LOADED).
#[derive(Debug)]
pub struct Driver(());

impl Driver {
    /// Returns the process's driver, which the first call loads.
    ///
    /// The driver reads `CUDA_DEVICE_MAX_CONNECTIONS` then. At its default of 8, kernels of more than eight streams wait for
    /// each other; programs whose kernels wait for one another on many streams set it to 32 before they start (see
    /// [`prepare_environment`]).
    ///
    /// # Errors
    /// A sentence that says what is missing, the same at every call.
    pub fn load() -> Result<&'static Self, String> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        DRIVER.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
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

    /// Says whether the driver can be told to load a kernel's code before its first launch (12.4 and later).
    pub(crate) fn loads_functions(&self) -> bool {
        // SAFETY: LOADED; the function is looked up only, not called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuFuncLoad") }.is_ok()
    }

    /// Returns the GPUs of this machine that the process may use, in the driver's order.
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
        Gpu::open(info, self.loads_functions())
    }
}

/// Says whether a kernel did what it must not, which the driver tells by whatever call comes next.
fn is_of_kernel(result: CUresult) -> bool {
    use CUresult::*;
    matches!(
        result,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
    )
}

/// Says whether the GPU is lost to this process though no kernel did anything wrong.
fn is_of_process(result: CUresult) -> bool {
    use CUresult::*;
    matches!(
        result,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

/// Says whether the driver refuses for what the calling thread does: it captures a stream of its own, or runs
/// inside of a callback of the driver's. Another thread gets another answer.
pub(crate) fn is_of_thread(result: CUresult) -> bool {
    use CUresult::*;
    matches!(
        result,
        CUDA_ERROR_NOT_PERMITTED
            | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    )
}

/// Turns the driver's answer into a result.
///
/// The bindings' functions return an enum, to which a driver that is newer may give a value that it does not
/// have: undefined behaviour before anything here could look at it. Only functions of one's own would return
/// a number, one for each of the driver's, so that the bindings are those of the newest CUDA instead (see
/// this crate's `Cargo.toml`).
pub(crate) fn check(result: CUresult, doing: impl FnOnce() -> String) -> Result<(), Error> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(described(result, doing()))
}

/// An error with the driver's words for it.
#[cold]
fn described(result: CUresult, doing: String) -> Error {
    let describe = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: LOADED, since there is a result; the pointer lives through the call.
        unsafe { get(result, &mut text) };
        // SAFETY: the driver leaves null, or the address of a string that it keeps for good.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let is_kernel = is_of_kernel(result);
    Error {
        doing: if is_kernel { "running the kernel".into() } else { doing },
        name: describe(sys::cuGetErrorName).unwrap_or_else(|| format!("{result:?}")),
        text: describe(sys::cuGetErrorString).unwrap_or_else(|| "an error without a description".into()),
        is_fault: is_kernel || is_of_process(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Safe code changes no variables of the environment (S7).
    #[test]
    fn loading_leaves_the_environment_alone() {
        let before: Vec<_> = std::env::vars_os().collect();
        let _ = Driver::load();
        assert_eq!(std::env::vars_os().collect::<Vec<_>>(), before);
    }

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
