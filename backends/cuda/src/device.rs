//! NVIDIA GPUs as a backend.

use crate::conditional::Decide;
use crate::driver::no_memory;
use crate::list::Listed;
use crate::mapped::MappedFiles;
use crate::{Driver, Error, Gpu, GpuInfo};
use hostcall_abi::launch::{FUNCTION_REGISTERS, STACK_BYTES_SYMBOL};
use hostcall_locks::Mutex;
use hostcall_seam::{
    Arenas, Backend, BackendError, ConditionalList, DeviceAddress, DeviceInfo, DeviceKind, Dispatch, Fence,
    ImageSource, KernelList, KernelMemory, Memory, Module, Pinned, Properties, Queue, Variable,
};
use std::any::Any;
use std::fs::File;
use std::sync::Arc;

const WAVE_SIZE: u32 = 32;

/// Ticks a second of the clock that kernels read, `%globaltimer`, on every GPU.
const GLOBAL_TIMER_HZ: u64 = 1_000_000_000;

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

/// Lists the GPUs, or the reason why there is none.
pub fn devices() -> Vec<DeviceInfo> {
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

/// The kernel by which programs of LLVM's libc begin.
const PROGRAM_START: &str = "_start";

/// A GPU as a backend.
pub struct Cuda {
    pub(crate) gpu: Arc<Gpu>,
    heap: Arenas,
    properties: Properties,
    /// What decides about bodies, once it was loaded; `None` in it when the driver has no such.
    decide: Mutex<Option<Option<Arc<Decide>>>>,
    mapped: MappedFiles,
}

impl Cuda {
    /// Opens the GPU with this place in the driver's list.
    ///
    /// # Errors
    /// A sentence: there is no such GPU, no driver, or the GPU lacks something.
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
        let (decide, mapped) = Default::default();
        Ok(Self { heap: Arenas::new(Box::new(allocate)), properties, decide, gpu, mapped })
    }

    fn decide(&self) -> Result<Option<Arc<Decide>>, Error> {
        let mut decide = self.decide.lock();
        if decide.is_none() {
            *decide = Some(Decide::load(&self.gpu)?.map(Arc::new));
        }
        Ok(decide.clone().flatten())
    }
}

// SAFETY: 1. memory and modules are the driver's own for this GPU, and nothing uses them when they are dropped (USERS-KEEP);
// 2. see `crate::Queue`; 3. everything holds the GPU; 4. the heap's arenas give pieces of the GPU's memory that are nobody else's
// until they are dropped, and whoever has a mapping keeps it; 5. it is of another kind.
unsafe impl Backend for Cuda {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The driver copies through memory of the host where one GPU does not see the other's.
    fn reaches(&self, other: &dyn Backend) -> bool {
        let other: &dyn Any = other;
        other.is::<Self>()
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
        self.gpu.need_stack_bytes(module.0.stack_bytes()? as usize)?;
        if let Some(Variable { address, bytes: 8 }) = module.variable(STACK_BYTES_SYMBOL)? {
            let mut bytes = [0; 8];
            // SAFETY: the module has so many bytes there, and nothing of it runs.
            unsafe { self.gpu.read(address.get(), &mut bytes) }?;
            self.gpu.need_stack_bytes(u64::from_le_bytes(bytes) as usize)?;
        } else if module.function(PROGRAM_START)?.is_some() {
            self.gpu.need_stack_bytes(PROGRAM_STACK_BYTES)?;
        }
        Ok(Arc::new(module))
    }

    fn queue(&self, _progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(self.gpu.queue()?))
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
        Ok(Some(Arc::new(unsafe { self.gpu.list(&mut Listed::all(&self.gpu, dispatches)?) }?)))
    }

    unsafe fn conditional_list(
        &self,
        list: &ConditionalList<'_>,
    ) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        let Some(decide) = self.decide()? else { return Ok(None) };
        // SAFETY: by the caller's promise.
        Ok(Some(Arc::new(unsafe { decide.list(list) }?)))
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

    unsafe fn fence(&self, stream: u64) -> Result<Box<dyn Fence>, BackendError> {
        // SAFETY: as the caller says.
        let fence = unsafe { self.gpu.fence(stream) }?;
        Ok(Box::new(fence))
    }

    fn enter_thread(&self) {
        self.gpu.enter_thread();
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.heap.allocate(bytes, align)
    }

    fn map_file(&self, file: &File, len: u64, writable: bool) -> Option<KernelMemory> {
        let mapped = self.mapped.map(&self.gpu, file, usize::try_from(len).ok()?, writable).ok()?;
        let address = DeviceAddress::new(mapped.address());
        Some(KernelMemory { address, owner: Box::new(mapped) })
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
