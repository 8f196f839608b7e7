//! AMD GPUs as a backend, through an HSA runtime: ROCm's, or a software one that the program contains.

use crate::runtime::no_memory;
use crate::{Gpu, GpuInfo, Runtime};
use hostcall_seam::{
    Arenas, Backend, BackendError, DeviceAddress, DeviceInfo, DeviceKind, ImageSource, KernelMemory, Memory,
    Module, Pinned, Properties, Queue,
};
use std::any::Any;
use std::sync::Arc;

/// Which runtime drives the GPU.
#[derive(Clone, Copy, Debug)]
pub enum Vendor {
    /// ROCm's, which is loaded: GPUs in hardware.
    Rocm,
    /// A runtime that the program contains ([`Runtime::contained`]), whose GPUs are software.
    Software {
        /// What the names of its devices begin with: the processor.
        kind: &'static str,
        /// Returns the runtime.
        runtime: fn() -> Result<&'static Runtime, String>,
    },
}

impl Vendor {
    /// The kind of device, as its devices' names begin.
    fn kind(self) -> &'static str {
        match self {
            Self::Rocm => "amdgpu",
            Self::Software { kind, .. } => kind,
        }
    }

    fn runtime(self) -> Result<&'static Runtime, String> {
        match self {
            Self::Rocm => Runtime::load(),
            Self::Software { runtime, .. } => runtime(),
        }
    }

    fn gpus(self) -> Result<Vec<GpuInfo>, String> {
        let gpus = self.runtime()?.gpus().map_err(|error| error.to_string())?;
        match gpus.is_empty() {
            true => Err("the HSA runtime lists no GPU: `rocminfo` must show one".into()),
            false => Ok(gpus),
        }
    }
}

/// Lists the GPUs, or the reason why there is none.
pub fn devices(vendor: Vendor) -> Vec<DeviceInfo> {
    let kind = vendor.kind();
    let describe = |gpu: GpuInfo| {
        let memory = match (vendor, gpu.shares_memory) {
            (Vendor::Software { .. }, _) => "memory of this computer".to_owned(),
            (_, true) => {
                format!("{} MiB shared with the host, PCI {}", gpu.memory_bytes >> 20, gpu.pci_bus_id)
            }
            (_, false) => format!("{} MiB, PCI {}", gpu.memory_bytes >> 20, gpu.pci_bus_id),
        };
        let description = match vendor {
            Vendor::Rocm => {
                format!("{}, {}, {} compute units, {memory}", gpu.name, gpu.processor, gpu.compute_units)
            }
            Vendor::Software { .. } => {
                format!("AMD GPU in software, executes {} code, waves of 64 lanes, {memory}", gpu.processor)
            }
        };
        let name = match (vendor, gpu.index) {
            (Vendor::Software { .. }, 0) => kind.to_owned(),
            (_, index) => format!("{kind}:{index}"),
        };
        DeviceInfo { name, description, unavailable: None }
    };
    match vendor.gpus() {
        Ok(gpus) => gpus.into_iter().map(describe).collect(),
        Err(why) => vec![DeviceInfo {
            name: if matches!(vendor, Vendor::Rocm) { format!("{kind}:0") } else { kind.into() },
            description: "AMD GPU".into(),
            unavailable: Some(why),
        }],
    }
}

/// A GPU as a backend.
pub struct Hsa {
    pub(crate) gpu: Arc<Gpu>,
    heap: Arenas,
    properties: Properties,
}

impl Hsa {
    /// Opens the GPU with this place in the runtime's list.
    ///
    /// # Errors
    /// A sentence: there is no such GPU, no runtime, or the GPU lacks something.
    pub fn open(vendor: Vendor, index: usize) -> Result<Self, String> {
        let mut gpus = vendor.gpus()?;
        if index >= gpus.len() {
            return Err(format!("the last GPU is {}:{}", vendor.kind(), gpus.len() - 1));
        }
        let gpu = vendor.runtime()?.open_gpu(gpus.swap_remove(index)).map_err(|error| error.to_string())?;
        let info = gpu.info();
        let properties = Properties {
            kind: DeviceKind::Amd,
            product: info.name.clone(),
            target: info.processor.clone(),
            wave_size: info.wave_size,
            multiprocessors: info.compute_units,
            resident_waves: info.compute_units * info.waves_per_unit,
            max_workgroup_lanes: info.workgroup_lanes,
            max_workgroup_bytes: info.workgroup_bytes,
            memory_bytes: info.memory_bytes,
            clock_hz: info.clock_hz,
            // Parts of a wave take turns where the compiler says so.
            independent_lanes: false,
        };
        let of_gpu = gpu.clone();
        let allocate = move |bytes| Some(Arc::new(of_gpu.allocate(bytes).ok()?) as Arc<dyn Memory>);
        Ok(Self { heap: Arenas::new(Box::new(allocate)), properties, gpu })
    }
}

// SAFETY: 1. memory and modules are the runtime's own for this GPU, and nothing uses them when they are dropped (USERS-KEEP);
// 2. see `crate::Queue`; 3. everything holds the GPU; 4. the arenas give pieces of the GPU's memory that are nobody else's until
// they are dropped; 5. it is of another kind.
unsafe impl Backend for Hsa {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Memory of an AMD GPU is its own: others get no access to it.
    fn reaches(&self, other: &dyn Backend) -> bool {
        let other: &dyn Any = other;
        let runtime = self.gpu.runtime();
        let other = other.downcast_ref::<Self>().map(|other| other.gpu.runtime());
        other.is_some_and(|other| std::ptr::eq(runtime, other)) && runtime.gpus_share_memory
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
        Ok(Arc::new(self.gpu.load(image.bytes().to_vec(), stack_bytes)?))
    }

    fn queue(&self, _progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(self.gpu.queue()))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.gpu.write(to.get(), bytes) }?)
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        Ok(unsafe { self.gpu.read(from.get(), bytes) }?)
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.heap.allocate(bytes, align)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With ROCm and without it.
    #[test]
    fn gpus_are_listed_or_a_reason_is() {
        let listed = devices(Vendor::Rocm);
        assert_eq!(listed[0].name, "amdgpu:0");
        if let Some(why) = &listed[0].unavailable {
            assert_eq!(Hsa::open(Vendor::Rocm, 0).err().as_ref(), Some(why));
        }
        assert!(Hsa::open(Vendor::Rocm, usize::MAX).is_err());
    }

    #[test]
    fn a_contained_gpu_is_always_there() {
        // SAFETY: `symbol` returns the function of the name, whose type is that of the headers, of a
        // runtime whose memory is new pages of the system's and whose queues are told of the faults that
        // no handler of events wants.
        let runtime = || unsafe { Runtime::contained(hostcall_softhsa::api::symbol) };
        let software = Vendor::Software { kind: "gfx942", runtime };
        let listed = devices(software);
        assert_eq!((listed[0].name.as_str(), &listed[0].unavailable), ("gfx942", &None));
        assert!(Hsa::open(software, usize::MAX).is_err());
    }
}
