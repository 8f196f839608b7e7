//! NVIDIA GPUs as a backend.
#![allow(unsafe_code)] // launches kernels, whose parameters are those that the ABI gives them

mod heap;
mod llvm;

use super::LaunchFailure;
use super::backend::{Backend, ImageCode, KernelCode, Memory, Pinned, Running, Start};
use super::builder::DeviceInfo;
use super::llvm::{KernelResources, ProgramCode};
use crate::image;
use crate::services::HeapMemory;
use hostcall_abi::launch::{KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo, shared_bytes};
use hostcall_abi::layout::{Layout, MAGIC};
use hostcall_channel::SharedMemory;
use hostcall_cuda::{DeviceMemory, Driver, Error, Function, Gpu, GpuInfo, Launch, Module, PinnedMemory};
use std::any::Any;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WAVE_SIZE: u32 = 32;

fn text(error: Error) -> String {
    error.to_string()
}

/// What `hostcall build` builds for this GPU.
fn target(gpu: &GpuInfo) -> String {
    let (major, minor) = gpu.compute_capability;
    format!("sm_{major}{minor}")
}

/// The GPUs, or the reason why there is none.
pub(super) fn devices() -> Vec<DeviceInfo> {
    let gpus = Driver::load().and_then(|driver| driver.gpus().map_err(text));
    let describe = |gpu: GpuInfo| DeviceInfo {
        name: format!("cuda:{}", gpu.index),
        description: format!(
            "{}, {}, {} multiprocessors, {} MiB, PCI {}",
            gpu.name,
            target(&gpu),
            gpu.multiprocessors,
            gpu.memory_bytes >> 20,
            gpu.pci_bus_id
        ),
        unavailable: None,
    };
    match gpus {
        Ok(gpus) => gpus.into_iter().map(describe).collect(),
        Err(why) => vec![DeviceInfo {
            name: "cuda:0".into(),
            description: "NVIDIA GPU".into(),
            unavailable: Some(why),
        }],
    }
}

pub(super) struct Cuda {
    gpu: Arc<Gpu>,
}

impl Cuda {
    /// Opens the GPU with this place in the driver's list.
    pub fn open(index: usize) -> Result<Self, String> {
        let driver = Driver::load()?;
        let mut gpus = driver.gpus().map_err(text)?;
        if index >= gpus.len() {
            return Err(format!("the last GPU is cuda:{}", gpus.len() - 1));
        }
        Ok(Self { gpu: driver.open_gpu(gpus.swap_remove(index)).map_err(text)? })
    }
}

impl Memory for DeviceMemory {
    fn address(&self) -> u64 {
        self.address()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        self.write(offset, bytes).map_err(text)
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), String> {
        self.read(offset, bytes).map_err(text)
    }
}

impl Pinned for PinnedMemory {
    fn address(&self) -> u64 {
        self.start().addr().get() as u64
    }

    fn host_address(&self) -> *mut u8 {
        self.start().as_ptr()
    }
}

struct CudaImage(Arc<Module>);

struct CudaKernel {
    info: KernelInfo,
    function: Function,
}

impl KernelCode for CudaKernel {
    fn info(&self) -> &KernelInfo {
        &self.info
    }

    fn resources(&self) -> Option<KernelResources> {
        Some(resources(String::new(), &self.function))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn resources(kernel: String, function: &Function) -> KernelResources {
    KernelResources {
        kernel,
        registers: function.registers(),
        stack_bytes: function.stack_bytes(),
        workgroup_bytes: function.shared_bytes(),
    }
}

/// Reads the words of a [`KernelInfo`] from an image's variable.
fn kernel_info(bytes: &[u8]) -> Result<KernelInfo, String> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    match words[..] {
        [
            MAGIC,
            abi_version,
            schema,
            argument_bytes,
            default_workgroups,
            default_lanes,
            workgroup_memory_bytes,
            max_lanes,
        ] if abi_version == u64::from(hostcall_abi::ABI_VERSION) => Ok(KernelInfo {
            magic: MAGIC,
            abi_version,
            schema,
            argument_bytes,
            default_workgroups,
            default_lanes,
            workgroup_memory_bytes,
            max_lanes,
        }),
        _ => Err("the image was made with another version of hostcall; build it again".into()),
    }
}

impl ImageCode for CudaImage {
    fn kernel(&self, name: &str) -> Result<Arc<dyn KernelCode>, String> {
        let missing = |error: Error| match error.name.as_str() {
            "CUDA_ERROR_NOT_FOUND" => format!("the image has no kernel `{name}`"),
            _ => error.to_string(),
        };
        let info = self.0.variable(&format!("{KERNEL_INFO_SYMBOL_PREFIX}{name}")).map_err(missing)?;
        let info = kernel_info(&info)?;
        let function = self.0.function(&format!("{KERNEL_SYMBOL_PREFIX}{name}")).map_err(missing)?;
        Ok(Arc::new(CudaKernel { info, function }))
    }
}

struct CudaRunning {
    /// Dropped first, which waits for the kernel's end.
    launch: Launch,
    _keep_alive: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Running for CudaRunning {
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), LaunchFailure>> {
        let result = self.launch.wait(timeout)?;
        Some(result.map_err(|error| LaunchFailure::Fault(error.to_string())))
    }

    /// A GPU's kernel ends by itself only: its lanes look at the channel's cancel table when they call.
    fn cancel(&self) {}
}

/// Blocks of the physical grid: no more than the launch has slots for.
fn block_count(workgroups: [u32; 3], lanes: [u32; 3], slot_count: u32) -> u32 {
    let product = |sizes: [u32; 3]| sizes.map(u64::from).iter().product::<u64>();
    let waves = product(lanes).div_ceil(WAVE_SIZE.into()).max(1);
    let resident = u64::from(slot_count) / waves;
    u32::try_from(product(workgroups).min(resident)).unwrap_or(i32::MAX as u32)
}

impl Backend for Cuda {
    fn target(&self) -> String {
        target(self.gpu.info())
    }

    fn wave_size(&self) -> u32 {
        WAVE_SIZE
    }

    fn default_layout(&self) -> Layout {
        // As many waves as keep a GPU busy with calls, and as many again as some more launches need.
        let slots = (self.gpu.info().multiprocessors * 32 + 1024).next_multiple_of(64);
        Layout { slots, lanes: WAVE_SIZE, ring_entries: 2048, bulk_bytes: 32 << 10 }
    }

    fn shared_memory(&self, layout: Layout) -> Result<SharedMemory, String> {
        let memory = self.gpu.pin(layout.words() * 8).map_err(text)?;
        let words = memory.start().cast();
        // SAFETY: the memory is of this size, zeroed, and pages are aligned; only the channel gets its address.
        Ok(unsafe { SharedMemory::from_parts(words, layout, Box::new(memory)) })
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, String> {
        Ok(Arc::new(self.gpu.allocate(bytes).map_err(text)?))
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, String> {
        Ok(Arc::new(self.gpu.pin(bytes).map_err(text)?))
    }

    fn heap_memory(&self) -> Arc<dyn HeapMemory> {
        Arc::new(heap::Arenas::new(self.gpu.clone()))
    }

    fn native_kernel(
        &self,
        _entry: hostcall_abi::cpu::Entry,
        _info: KernelInfo,
    ) -> Option<Arc<dyn KernelCode>> {
        None
    }

    fn load(&self, image: &Path) -> Result<Box<dyn ImageCode>, String> {
        let bytes =
            std::fs::read(image).map_err(|error| format!("cannot read {}: {error}", image.display()))?;
        let (path, target) = (image.display(), self.target());
        let info = image::identify(&bytes).map_err(|why| format!("cannot load {path}: {why}"))?;
        if !info.target.runs_on(&target) {
            let built_for = info.target;
            return Err(format!(
                "{path} was built for {built_for}, and this GPU is {target}: use `hostcall build --target {target}`"
            ));
        }
        match self.gpu.load(bytes) {
            Ok(module) => Ok(Box::new(CudaImage(module))),
            Err(error) => Err(format!("cannot load {path}: {error}")),
        }
    }

    fn load_llvm(&self, image: &[u8], stack_bytes: Option<usize>) -> Result<Box<dyn ProgramCode>, String> {
        llvm::load(&self.gpu, image, stack_bytes)
    }

    fn start(&self, start: Start) -> Result<Box<dyn Running>, LaunchFailure> {
        let Start { kernel, mut params, mut arguments, mut keep_alive, .. } = start;
        let code = kernel.as_any().downcast_ref::<CudaKernel>().expect("the device's own kernel");
        let function = &code.function;
        if !Arc::ptr_eq(function.gpu(), &self.gpu) {
            return Err(LaunchFailure::Refused("the kernel's image was loaded on another device".into()));
        }
        let lanes: u32 = params.workgroup_size.iter().product();
        if lanes > function.most_lanes() {
            return Err(LaunchFailure::Refused(format!(
                "a lane of the kernel needs {} registers, so that a workgroup has at most {} lanes, not {lanes}",
                function.registers(),
                function.most_lanes()
            )));
        }
        let shared_bytes =
            params.workgroup_memory_bytes.saturating_add(shared_bytes(lanes.div_ceil(WAVE_SIZE)));
        if shared_bytes > function.most_shared_bytes() {
            return Err(LaunchFailure::Refused(format!(
                "a workgroup needs {shared_bytes} bytes of its memory, and the GPU has {} for it",
                function.most_shared_bytes()
            )));
        }
        let blocks = block_count(params.workgroups, params.workgroup_size, params.slot_count);
        arguments.resize(arguments.len().max(code.info.argument_bytes as usize), 0);
        // A kernel without arguments has one parameter, and the second address is not looked at.
        let mut parameters = [(&raw mut params).cast::<c_void>(), arguments.as_mut_ptr().cast()];
        // SAFETY: the parameters are those of every hostcall kernel of this ABI version, which `kernel_info`
        // checked; the arguments are as long as the image says and of the types that its schema names. What
        // they refer to is kept until the launch has ended, and the channel outlives its launches.
        // One dimension, so that a lane's place in its wave is its x.
        let launch = unsafe { function.launch([blocks, 1, 1], [lanes, 1, 1], shared_bytes, &mut parameters) };
        match launch {
            Ok(launch) => {
                keep_alive.push(Arc::new(kernel));
                Ok(Box::new(CudaRunning { launch, _keep_alive: keep_alive }))
            }
            Err(error) if error.is_fault => Err(LaunchFailure::Fault(error.to_string())),
            Err(error) => Err(LaunchFailure::Refused(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_the_slots() {
        assert_eq!(block_count([10, 1, 1], [32, 1, 1], 64), 10);
        assert_eq!(block_count([1000, 10, 1], [8, 4, 2], 65), 32);
        assert_eq!(block_count([2, 3, 4], [1, 1, 1], 1 << 16), 24);
        assert_eq!(block_count([u32::MAX, 1, 1], [1024, 1, 1], 64), 2);
    }

    #[test]
    fn infos_of_other_versions_are_refused() {
        let words = [MAGIC, hostcall_abi::ABI_VERSION.into(), 3, 16, 5, 6, 7, 0];
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let info = kernel_info(&bytes(&words)).unwrap();
        assert_eq!((info.schema, info.argument_bytes, info.default_lanes), (3, 16, 6));
        for at in 0..2 {
            let mut other = words;
            other[at] += 1;
            assert!(kernel_info(&bytes(&other)).is_err());
        }
        assert!(kernel_info(&bytes(&words[..7])).is_err());
        assert!(kernel_info(&[]).is_err());
    }

    /// With a driver and without one.
    #[test]
    fn gpus_are_listed_or_a_reason_is() {
        let listed = devices();
        assert_eq!(listed[0].name, "cuda:0");
        if let Some(why) = &listed[0].unavailable {
            assert_eq!(Cuda::open(0).err().as_ref(), Some(why));
        }
        assert!(Cuda::open(usize::MAX).is_err());
    }
}
