//! AMD GPUs as a backend, through an HSA runtime: ROCm's, or the software one that this crate contains.
#![allow(unsafe_code, reason = "promises of the seam, kept by the HSA runtime")]

use super::arenas::Arenas;
use super::builder::DeviceInfo;
use super::seam::{
    Backend, BackendError, DeviceAddress, DeviceFault, DeviceFaultKind, DeviceKind, Dispatch, ImageSource,
    Kernel, KernelLimits, KernelMemory, KernelParameters, Mark, Memory, Module, Pinned, Properties, Queue,
    Running, Variable,
};
use hostcall_hsa::{
    DeviceMemory, Error, FaultKind, Function, Gpu, GpuInfo, Hidden, Launch, PinnedMemory, Runtime,
};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Which runtime drives the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    /// ROCm's, which is loaded: GPUs in hardware.
    Rocm,
    /// The one that this crate contains, whose GPUs are software.
    Software,
}

impl Vendor {
    /// The kind of device, as its devices' names begin.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Rocm => "amdgpu",
            Self::Software => "gfx942",
        }
    }

    fn runtime(self) -> Result<&'static Runtime, String> {
        match self {
            Self::Rocm => Runtime::load(),
            // SAFETY: `symbol` returns the function of the name, whose type is that of the headers, of a
            // runtime whose memory is new pages of the system's and whose queues are told of the faults that
            // no handler of events wants.
            Self::Software => unsafe { Runtime::contained(hostcall_softhsa::api::symbol) },
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

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        let mut reason = error.to_string();
        let kind = match error.fault {
            None => return BackendError::Driver(reason),
            Some(FaultKind::Memory) => DeviceFaultKind::Memory,
            Some(FaultKind::Aperture) => {
                reason += "; where it is a stack that is too small, raise the device's `stack_bytes` (`--stack` of \
                           `hostcall run`)";
                DeviceFaultKind::Memory
            }
            Some(FaultKind::Instruction) => DeviceFaultKind::Instruction,
            Some(_) => DeviceFaultKind::Device,
        };
        BackendError::Fault { fault: DeviceFault { kind, reason }, is_final: true }
    }
}

/// Turns the runtime's refusal of memory into an error that names the bytes.
fn no_memory(what: &'static str, bytes: usize) -> impl FnOnce(Error) -> BackendError {
    move |error| match error.is_out_of_memory() {
        true => BackendError::NoMemory { what, bytes, reason: error.to_string() },
        false => error.into(),
    }
}

/// The GPUs, or the reason why there is none.
pub(super) fn devices(vendor: Vendor) -> Vec<DeviceInfo> {
    let kind = vendor.kind();
    let describe = |gpu: GpuInfo| {
        let memory = match (vendor, gpu.shares_memory) {
            (Vendor::Software, _) => "memory of this computer".to_owned(),
            (_, true) => {
                format!("{} MiB shared with the host, PCI {}", gpu.memory_bytes >> 20, gpu.pci_bus_id)
            }
            (_, false) => format!("{} MiB, PCI {}", gpu.memory_bytes >> 20, gpu.pci_bus_id),
        };
        let description = match vendor {
            Vendor::Rocm => {
                format!("{}, {}, {} compute units, {memory}", gpu.name, gpu.processor, gpu.compute_units)
            }
            Vendor::Software => {
                format!("AMD GPU in software, executes {} code, waves of 64 lanes, {memory}", gpu.processor)
            }
        };
        let name = match (vendor, gpu.index) {
            (Vendor::Software, 0) => kind.to_owned(),
            (_, index) => format!("{kind}:{index}"),
        };
        DeviceInfo { name, description, unavailable: None }
    };
    match vendor.gpus() {
        Ok(gpus) => gpus.into_iter().map(describe).collect(),
        Err(why) => vec![DeviceInfo {
            name: if vendor == Vendor::Rocm { format!("{kind}:0") } else { kind.into() },
            description: "AMD GPU".into(),
            unavailable: Some(why),
        }],
    }
}

pub(super) struct Hsa {
    gpu: Arc<Gpu>,
    heap: Arenas,
    properties: Properties,
}

impl Hsa {
    /// Opens the GPU with this place in the runtime's list.
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

// SAFETY: the runtime allocated the memory for this value, zeroed by `Gpu::allocate`, and frees it when it is dropped.
unsafe impl Memory for DeviceMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress::new(self.address())
    }

    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; HSA has such memory at the same address on host and GPU, and it is fine-grained.
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

struct HsaModule(Arc<hostcall_hsa::Module>);

struct HsaKernel(Arc<Function>);

// SAFETY: a function keeps its module.
unsafe impl Kernel for HsaKernel {
    fn limits(&self) -> KernelLimits {
        KernelLimits {
            registers: Some(self.0.registers()),
            stack_bytes: self.0.private_bytes(),
            workgroup_bytes: self.0.group_bytes(),
            max_lanes: self.0.max_lanes(),
            max_dynamic_workgroup_bytes: self.0.max_dynamic_group_bytes(),
        }
    }

    fn parameters(&self) -> Option<KernelParameters> {
        Some(KernelParameters {
            bytes: self.0.argument_bytes().collect(),
            takes_hostcall_buffer: self.0.takes_hostcall_buffer(),
            takes_heap: self.0.takes_heap(),
            takes_printf_buffer: self.0.takes_printf_buffer(),
            special: self.0.special_argument(),
            workgroup: self.0.required_lanes(),
        })
    }
}

// SAFETY: the runtime keeps code and variables in place while the executable lives, which it does until the value and all of
// its functions are dropped.
unsafe impl Module for HsaModule {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        let function = self.0.function(symbol)?;
        Ok(function.map(|function| Arc::new(HsaKernel(Arc::new(function))) as Arc<dyn Kernel>))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let found = self.0.variable(symbol)?;
        Ok(found.map(|(address, bytes)| Variable { address: DeviceAddress::new(address), bytes }))
    }
}

// SAFETY: 1. memory and modules are the runtime's own for this GPU, and nothing uses them when they are dropped (USERS-KEEP);
// 2. see `HsaQueue`; 3. everything holds the GPU; 4. the arenas give pieces of the GPU's memory that are nobody else's until
// they are dropped; 5. it is of another kind.
unsafe impl Backend for Hsa {
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
        Ok(Arc::new(HsaModule(self.gpu.load(image.bytes().to_vec(), stack_bytes)?)))
    }

    fn queue(&self, _progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(HsaQueue { queue: self.gpu.queue(), gpu: self.gpu.clone() }))
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

struct HsaQueue {
    queue: hostcall_hsa::Queue,
    gpu: Arc<Gpu>,
}

struct HsaMark(hostcall_hsa::Mark);

impl Mark for HsaMark {
    fn elapsed_ns_since(&self, earlier: &dyn Mark) -> Result<Option<u64>, BackendError> {
        match (earlier as &dyn Any).downcast_ref::<Self>() {
            Some(earlier) => Ok(self.0.elapsed_ns_since(&earlier.0)?),
            None => Ok(None),
        }
    }
}

// SAFETY: 1. every packet has the barrier bit and fences of the system's scope, and copies have packets before and behind
// them; 2. the signal that counts operations is changed by their last packets; 3. after a failure the GPU's queues are ended,
// and every function says why.
unsafe impl Queue for HsaQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let kernel: &dyn Any = &**dispatch.kernel;
        let function = match kernel.downcast_ref::<HsaKernel>() {
            Some(kernel) if Arc::ptr_eq(kernel.0.gpu(), &self.gpu) => &kernel.0,
            _ => return Err(BackendError::Refused("the kernel is another device's".into())),
        };
        let Dispatch { workgroups, lanes, workgroup_bytes, parameters, by_address, hidden, .. } = *dispatch;
        let hidden = Hidden { hostcall_buffer: hidden.hostcall_buffer.get(), heap: hidden.heap.get() };
        let (group_bytes, arguments) = (workgroup_bytes, parameters);
        let launch = Launch { function, workgroups, lanes, group_bytes, arguments, by_address, hidden };
        // SAFETY: by the caller's promise.
        unsafe { self.queue.launch(&launch) }?;
        Ok(None)
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
        self.queue.signal(value);
        Ok(())
    }

    fn completed(&self) -> u64 {
        self.queue.completed()
    }

    fn calls_progress(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(self.queue.check()?)
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        Ok(Arc::new(HsaMark(self.queue.mark()?)))
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
    fn the_software_gpu_is_always_there() {
        let listed = devices(Vendor::Software);
        assert_eq!((listed[0].name.as_str(), &listed[0].unavailable), ("gfx942", &None));
        assert!(Hsa::open(Vendor::Software, usize::MAX).is_err());
    }
}
