//! Programs of LLVM's GPU libc on NVIDIA GPUs.

use super::{CudaRunning, text};
use crate::device::backend::Running;
use crate::device::llvm::{KernelResources, ProgramCode, ProgramKernel};
use crate::device::{Grid, LaunchFailure};
use hostcall_cuda::{Error, Function, Gpu, Module};
use std::ffi::c_void;
use std::sync::Arc;

/// Ticks a second of the clock that programs read, `%globaltimer`, on every GPU.
const GLOBAL_TIMER_HZ: u64 = 1_000_000_000;

struct CudaProgram(Arc<Module>);

/// Loads a program's code, with larger stacks if it is to have them.
pub(super) fn load(
    gpu: &Arc<Gpu>,
    image: &[u8],
    stack_bytes: Option<usize>,
) -> Result<Box<dyn ProgramCode>, String> {
    if let Some(bytes) = stack_bytes {
        gpu.set_stack_bytes(bytes).map_err(text)?;
    }
    Ok(Box::new(CudaProgram(gpu.load(image.to_vec()).map_err(text)?)))
}

fn is_missing(error: &Error) -> bool {
    error.name == "CUDA_ERROR_NOT_FOUND"
}

impl ProgramCode for CudaProgram {
    fn variable(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.0.variable(name) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        self.0.set_variable(name, bytes).map_err(text)
    }

    fn write_where_pointed(&self, pointer: &str, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the pointer is the one that LLVM's GPU libc defines for its client object, of this size. A pointer
        // of some other program to other memory gives it nothing that its kernels do not reach anyway.
        unsafe { self.0.write_where_pointed(pointer, bytes) }.map_err(text)
    }

    fn clock_hz(&self) -> u64 {
        GLOBAL_TIMER_HZ
    }

    fn kernel(&self, name: &str) -> Result<Box<dyn ProgramKernel>, String> {
        let function = self.0.function(name).map_err(|error| match is_missing(&error) {
            true => format!("the program has no kernel `{name}`"),
            false => error.to_string(),
        })?;
        Ok(Box::new(CudaProgramKernel { name: name.to_owned(), function }))
    }
}

struct CudaProgramKernel {
    name: String,
    function: Function,
}

impl ProgramKernel for CudaProgramKernel {
    fn resources(&self) -> KernelResources {
        super::resources(self.name.clone(), &self.function)
    }

    fn start(&self, grid: Grid, arguments: &mut [u64]) -> Result<Box<dyn Running>, LaunchFailure> {
        let lanes: u32 = grid.lanes.iter().product();
        if lanes > self.function.most_lanes() {
            return Err(LaunchFailure::Refused(format!(
                "a lane of the program needs {} registers, so that a workgroup has at most {} lanes, not {lanes}",
                self.function.registers(),
                self.function.most_lanes()
            )));
        }
        let mut addresses: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| (&raw mut *argument).cast()).collect();
        // SAFETY: the kernels of LLVM's startup code take these parameters, none larger than 8 bytes; the session
        // keeps what they refer to.
        let launch = unsafe { self.function.launch(grid.workgroups, grid.lanes, 0, &mut addresses) };
        match launch {
            Ok(launch) => Ok(Box::new(CudaRunning { launch, _keep_alive: Vec::new() })),
            Err(error) if error.is_fault => Err(LaunchFailure::Fault(error.to_string())),
            Err(error) => Err(LaunchFailure::Refused(error.to_string())),
        }
    }
}
