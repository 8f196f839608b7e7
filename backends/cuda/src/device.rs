//! NVIDIA GPUs as a backend.
#![allow(unsafe_code, reason = "promises of the seam, kept by the driver")]

use super::arenas::Arenas;
use super::builder::DeviceInfo;
use super::seam::{
    Backend, BackendError, ConditionalList, DeviceAddress, DeviceFault, DeviceFaultKind, DeviceKind,
    Dispatch, ImageSource, Kernel, KernelLimits, KernelList, KernelMemory, KernelParameters, ListBody,
    ListDispatch, Mark, Memory, Module, Pinned, Properties, Queue, Running, Variable,
};
use crate::image::LlvmProgram;
use hostcall_abi::launch::{FUNCTION_REGISTERS, STACK_BYTES_SYMBOL};
use hostcall_cuda::{
    Body, Condition, Decide, DeviceMemory, Driver, Error, Function, Gpu, GpuInfo, Listed, MappedFile,
    PinnedMemory,
};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WAVE_SIZE: u32 = 32;

/// From this compute capability on, times ten, hostcall's kernels wait in lists until the one before them has ended: older GPUs
/// have no instruction for it (`begin_launch` of `hostcall-channel`).
const WAITS_IN_LISTS: u32 = 90;

/// Ticks a second of the clock that kernels read, `%globaltimer`, on every GPU.
const GLOBAL_TIMER_HZ: u64 = 1_000_000_000;

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
fn no_memory(what: &'static str, bytes: usize) -> impl FnOnce(Error) -> BackendError {
    move |error| match error.name.as_str() {
        "CUDA_ERROR_OUT_OF_MEMORY" => BackendError::NoMemory { what, bytes, reason: error.to_string() },
        _ => error.into(),
    }
}

/// What `hostcall build` builds for this GPU.
fn target(gpu: &GpuInfo) -> String {
    let (major, minor) = gpu.compute_capability;
    format!("sm_{major}{minor}")
}

/// Returns the GPUs, or a sentence where there are none.
fn at_least_one(gpus: Vec<GpuInfo>) -> Result<Vec<GpuInfo>, String> {
    match gpus.is_empty() {
        true => Err("the NVIDIA driver lists no GPU: `nvidia-smi` must show one".into()),
        false => Ok(gpus),
    }
}

/// The GPUs, or the reason why there is none.
pub(super) fn devices() -> Vec<DeviceInfo> {
    let gpus =
        Driver::load().and_then(|driver| at_least_one(driver.gpus().map_err(|error| error.to_string())?));
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

/// Bytes of stack of each lane of a program that was linked with LLVM's libc, which calls through pointers and says nowhere how deep.
const PROGRAM_STACK_BYTES: usize = 8 << 10;

/// Whether an image's functions are compiled by themselves and linked: what `hostcall build` made, whose kernels have registers
/// enough for that, and relocatable cubins. Kernels of others get what their compiler puts into each.
fn is_linked(image: &[u8]) -> bool {
    const ET_REL: [u8; 2] = [1, 0];
    if image.starts_with(b"\x7fELF") {
        return image.get(16..18) == Some(&ET_REL);
    }
    // The build writes it at the end of the text.
    let symbol = STACK_BYTES_SYMBOL.as_bytes();
    image.windows(symbol.len()).rev().any(|window| window == symbol)
}

pub(super) struct Cuda {
    gpu: Arc<Gpu>,
    heap: Arenas,
    properties: Properties,
    /// What decides about bodies, once it was loaded; `None` in it when the driver has no such.
    decide: Mutex<Option<Option<Arc<Decide>>>>,
    maps: Mutex<HashMap<FileKey, Weak<MappedFile>>>,
}

/// Longer than files' times are apart.
const TICK: Duration = Duration::from_secs(2);

/// What a mapping is of: device and number of the file, when it was changed (one that is cut gets other pages), bytes, and
/// whether it is to be written.
type FileKey = (u64, u64, [i64; 2], u64, bool);

impl Cuda {
    /// Opens the GPU with this place in the driver's list.
    pub fn open(index: usize) -> Result<Self, String> {
        let driver = Driver::load()?;
        let mut gpus = at_least_one(driver.gpus().map_err(|error| error.to_string())?)?;
        if index >= gpus.len() {
            return Err(format!("the last GPU is cuda:{}", gpus.len() - 1));
        }
        let gpu = driver.open_gpu(gpus.swap_remove(index)).map_err(|error| error.to_string())?;
        let info = gpu.info();
        let properties = Properties {
            kind: DeviceKind::Nvidia,
            product: info.name.clone(),
            target: target(info),
            wave_size: WAVE_SIZE,
            multiprocessors: info.multiprocessors,
            resident_waves: info.multiprocessors * (info.multiprocessor_threads / WAVE_SIZE),
            max_workgroup_lanes: info.block_threads,
            max_workgroup_bytes: info.block_shared_bytes,
            memory_bytes: info.memory_bytes,
            clock_hz: GLOBAL_TIMER_HZ,
            independent_lanes: true,
        };
        let of_gpu = gpu.clone();
        let allocate = move |bytes| Some(Arc::new(of_gpu.allocate_unset(bytes).ok()?) as Arc<dyn Memory>);
        let (decide, maps) = Default::default();
        Ok(Self { heap: Arenas::new(Box::new(allocate)), properties, decide, gpu, maps })
    }

    fn decide(&self) -> Result<Option<Arc<Decide>>, Error> {
        let mut decide = self.decide.lock().unwrap_or_else(PoisonError::into_inner);
        if decide.is_none() {
            *decide = Some(Decide::load(&self.gpu)?.map(Arc::new));
        }
        Ok(decide.clone().flatten())
    }

    fn listed<'a>(&self, dispatches: &'a [Dispatch<'a>]) -> Result<Vec<Listed<'a>>, BackendError> {
        let listed = dispatches.iter().map(|dispatch| {
            let Dispatch { workgroups, lanes, workgroup_bytes, parameters, .. } = *dispatch;
            let function = function_of(&self.gpu, dispatch)?;
            let arguments = parameters.iter().map(|parameter| parameter.as_ptr().cast_mut().cast()).collect();
            // So begins each kernel whose device crate was compiled for such a GPU.
            let waits = function.architecture() >= WAITS_IN_LISTS;
            Ok(Listed {
                function,
                blocks: workgroups,
                lanes,
                shared_bytes: workgroup_bytes,
                arguments,
                waits,
            })
        });
        listed.collect()
    }
}

// SAFETY: the driver allocated the memory for this value, zeroed by `Gpu::allocate`, and frees it when it is dropped.
unsafe impl Memory for DeviceMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.address())
    }

    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; `Gpu::pin` checks that host and GPU have it at the same address.
unsafe impl Pinned for PinnedMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.start().addr().get() as u64)
    }

    fn host_address(&self) -> NonNull<u8> {
        self.start()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

struct CudaModule(Arc<hostcall_cuda::Module>);

struct CudaKernel(Function);

// SAFETY: a function keeps its module.
unsafe impl Kernel for CudaKernel {
    fn limits(&self) -> KernelLimits {
        KernelLimits {
            registers: Some(self.0.registers()),
            stack_bytes: self.0.stack_bytes(),
            workgroup_bytes: self.0.shared_bytes(),
            max_lanes: self.0.most_lanes(),
            max_dynamic_workgroup_bytes: self.0.most_shared_bytes(),
        }
    }

    fn parameters(&self) -> Option<KernelParameters> {
        let bytes = self.0.parameter_bytes()?;
        Some(KernelParameters { bytes, ..KernelParameters::default() })
    }

    fn resident_workgroups(&self, lanes: u32, workgroup_bytes: u32) -> Option<u32> {
        self.0.resident_blocks(lanes, workgroup_bytes).ok().filter(|blocks| *blocks > 0)
    }
}

// SAFETY: the driver keeps code and variables in place while the module is loaded, which it is until the value and all of
// its functions are dropped.
unsafe impl Module for CudaModule {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        let function = self.0.function(symbol)?;
        Ok(function.map(|function| Arc::new(CudaKernel(function)) as Arc<dyn Kernel>))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let found = self.0.variable(symbol)?;
        Ok(found.map(|(address, bytes)| Variable { address: DeviceAddress::new(address), bytes }))
    }
}

// SAFETY: 1. memory and modules are the driver's own for this GPU, and nothing uses them when they are dropped (USERS-KEEP);
// 2. see `CudaQueue`; 3. everything holds the GPU; 4. the heap's arenas give pieces of the GPU's memory that are nobody else's
// until they are dropped, and whoever has a mapping keeps it; 5. it is of another kind.
unsafe impl Backend for Cuda {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(self.gpu.allocate(bytes).map_err(no_memory("GPU memory", bytes))?))
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError> {
        Ok(Arc::new(self.gpu.pin(bytes).map_err(no_memory("pinned memory", bytes))?))
    }

    fn load(
        &self,
        image: ImageSource<'_>,
        stack_bytes: Option<usize>,
    ) -> Result<Arc<dyn Module>, BackendError> {
        if let Some(bytes) = stack_bytes {
            self.gpu.need_stack_bytes(bytes)?;
        }
        let bytes = image.bytes();
        let module = if is_linked(bytes) {
            self.gpu.link(bytes.to_vec(), FUNCTION_REGISTERS)?
        } else {
            self.gpu.load(bytes.to_vec())?
        };
        // Now, and not at a launch, where the driver would wait for kernels that run.
        self.gpu.need_stack_bytes(module.stack_bytes()? as usize)?;
        if let Some((address, 8)) = module.variable(STACK_BYTES_SYMBOL)? {
            let mut bytes = [0; 8];
            // SAFETY: the module has so many bytes there, and nothing of it runs.
            unsafe { self.gpu.read(address, &mut bytes) }?;
            self.gpu.need_stack_bytes(u64::from_le_bytes(bytes) as usize)?;
        } else if module.function(LlvmProgram::START)?.is_some() {
            self.gpu.need_stack_bytes(PROGRAM_STACK_BYTES)?;
        }
        Ok(Arc::new(CudaModule(module)))
    }

    fn queue(&self, _progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(CudaQueue { queue: self.gpu.queue()?, gpu: self.gpu.clone() }))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.gpu.write(to.get(), bytes) }?)
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.gpu.read(from.get(), bytes) }?)
    }

    unsafe fn list(&self, dispatches: &[Dispatch<'_>]) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        // SAFETY: by the caller's promise.
        Ok(Some(Arc::new(CudaList(unsafe { self.gpu.list(&mut self.listed(dispatches)?) }?))))
    }

    unsafe fn conditional_list(
        &self,
        list: &ConditionalList<'_>,
    ) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        let Some(decide) = self.decide()? else { return Ok(None) };
        let ConditionalList { ref bodies, repeats, word, stop_at, last, words } = *list;
        let mut of_driver = Vec::new();
        for ListBody { kernels, when } in bodies {
            of_driver.push(Body { kernels: self.listed(kernels)?, when: when.clone() });
        }
        let condition =
            Condition { word: word.get(), stop: stop_at.get(), last, words: words.get(), repeats };
        // SAFETY: by the caller's promise.
        Ok(Some(Arc::new(CudaList(unsafe { decide.list(&mut of_driver, condition) }?))))
    }

    fn allocate_list_words(&self, bytes: u64) -> Option<KernelMemory> {
        let words = self.gpu.list_words(usize::try_from(bytes).ok()?).ok()?;
        Some(KernelMemory { address: DeviceAddress::new(words.address()), owner: Box::new(words) })
    }

    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        // SAFETY: the lane waits, and whoever launched it vouches for what it lends.
        unsafe { self.gpu.read_for_lane(from.get(), bytes) }.unwrap_or(false)
    }

    fn copy_to_lane(&self, to: DeviceAddress, bytes: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { self.gpu.write_for_lane(to.get(), bytes) }.unwrap_or(false)
    }

    fn enter_thread(&self) {
        self.gpu.enter_thread();
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.heap.allocate(bytes, align)
    }

    fn map_file(&self, file: &File, len: u64, writable: bool) -> Option<KernelMemory> {
        // To map takes the driver 0.1 ms a MiB, and the lanes of a kernel map the same file.
        let metadata = file.metadata().ok()?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|_, map| map.strong_count() > 0);
        let changed = [metadata.ctime(), metadata.ctime_nsec()];
        let key = (metadata.dev(), metadata.ino(), changed, len, writable);
        // Changes within a tick of the file system's clock have one time.
        let is_settled = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .is_ok_and(|now| now.saturating_sub(TICK).as_secs() as i64 > metadata.ctime());
        let mapped = match maps.get(&key).and_then(Weak::upgrade) {
            Some(mapped) => mapped,
            None => {
                let mapped = Arc::new(self.gpu.map_file(file, usize::try_from(len).ok()?, writable).ok()?);
                if is_settled {
                    maps.insert(key, Arc::downgrade(&mapped));
                }
                mapped
            }
        };
        let address = DeviceAddress::new(mapped.address());
        Some(KernelMemory { address, owner: Box::new(mapped) })
    }
}

struct CudaList(hostcall_cuda::List);

impl KernelList for CudaList {}

/// Returns the function that a dispatch is of, if it is this GPU's.
fn function_of<'a>(gpu: &Arc<Gpu>, dispatch: &Dispatch<'a>) -> Result<&'a Function, BackendError> {
    let kernel: &dyn Any = &**dispatch.kernel;
    match kernel.downcast_ref::<CudaKernel>() {
        Some(kernel) if Arc::ptr_eq(kernel.0.gpu(), gpu) => Ok(&kernel.0),
        _ => Err(BackendError::Refused("the kernel is another device's".into())),
    }
}

struct CudaQueue {
    queue: hostcall_cuda::Queue,
    gpu: Arc<Gpu>,
}

struct CudaMark(hostcall_cuda::Mark);

impl Mark for CudaMark {
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError> {
        match (earlier as &dyn Any).downcast_ref::<Self>() {
            Some(earlier) => Ok(self.0.elapsed_ns_since(&earlier.0)?),
            None => Ok(None),
        }
    }
}

// SAFETY: 1. a stream of the driver does one thing after the other by itself; 2. numbers are written and events
// recorded in the stream's order, after all earlier writes; 3. after a failure the driver runs nothing, and `check` asks it.
unsafe impl Queue for CudaQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let function = function_of(&self.gpu, dispatch)?;
        let Dispatch { workgroups, lanes, workgroup_bytes, parameters, .. } = *dispatch;
        // The driver copies from here as many bytes as the kernel's parameter has, which is no more: see `Dispatch`.
        let address = |parameter: &&[u8]| parameter.as_ptr().cast_mut().cast::<c_void>();
        let (mut few, mut many) = ([std::ptr::null_mut(); 4], Vec::new());
        let addresses = if parameters.len() <= few.len() {
            few.iter_mut().zip(parameters).for_each(|(place, parameter)| *place = address(parameter));
            &mut few[..]
        } else {
            many.extend(parameters.iter().map(address));
            &mut many
        };
        // SAFETY: by the caller's promise; whoever submits keeps the kernel until it has ended (USERS-KEEP).
        unsafe { self.queue.launch(function, workgroups, lanes, workgroup_bytes, addresses) }?;
        Ok(None)
    }

    unsafe fn dispatch_list(
        &self,
        dispatch: &ListDispatch<'_>,
    ) -> Result<Vec<Arc<dyn Running>>, BackendError> {
        let list: &dyn Any = &**dispatch.list;
        match list.downcast_ref::<CudaList>() {
            Some(CudaList(list)) if Arc::ptr_eq(list.gpu(), &self.gpu) => {
                // SAFETY: by the caller's promise; whoever submits keeps the list until its kernels have ended (USERS-KEEP).
                unsafe { self.queue.launch_list(list, dispatch.words.get(), dispatch.values) }?;
                Ok(Vec::new())
            }
            _ => Err(BackendError::Refused("the list is another device's".into())),
        }
    }

    unsafe fn write(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.queue.write(to.get(), from, bytes) }?)
    }

    unsafe fn read(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.queue.read(to, from.get(), bytes) }?)
    }

    unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.queue.copy(to.get(), from.get(), bytes) }?)
    }

    unsafe fn fill(&self, to: DeviceAddress, pattern: &[u8], count: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.queue.fill(to.get(), pattern, count) }?)
    }

    fn signal(&self, value: u64) -> Result<(), BackendError> {
        Ok(self.queue.signal(value)?)
    }

    fn completed(&self) -> u64 {
        self.queue.completed()
    }

    fn poll(&self, value: u64) -> bool {
        self.queue.poll(value)
    }

    fn calls_progress(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(self.queue.check()?)
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        Ok(Arc::new(CudaMark(self.queue.mark()?)))
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn wait(&self, other: &dyn Queue, value: u64) -> Result<(), BackendError> {
        let other: &dyn Any = other;
        match other.downcast_ref::<Self>() {
            Some(other) if Arc::ptr_eq(&self.gpu, &other.gpu) => Ok(self.queue.wait(&other.queue, value)?),
            _ => Err(BackendError::Refused("the queue is another device's".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_hostcalls_are_linked_and_others_are_loaded() {
        let ptx = ".version 7.8\n.visible .entry k()\n{\n\tret;\n}\n".to_owned();
        let ours = format!("{ptx}.visible .global .align 8 .u64 {STACK_BYTES_SYMBOL} = 8;\n");
        assert_eq!([ours, ptx].map(|ptx| is_linked(ptx.as_bytes())), [true, false]);
        let elf = |kind| [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[kind, 0, 190, 0]].concat();
        // Relocatable, executable, cut.
        assert_eq!([elf(1), elf(2), elf(1)[..16].to_vec()].map(|elf| is_linked(&elf)), [true, false, false]);
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
        assert!(at_least_one(Vec::new()).is_err_and(|why| why.contains("lists no GPU")));
    }
}
