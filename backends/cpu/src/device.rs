//! The software device as a backend.

use crate::list::CpuList;
use crate::memory;
use crate::module::{CpuKernel, CpuModule, MAX_WORKGROUP_BYTES};
use crate::queue::CpuQueue;
use crate::{Config, Executor, LentMemory, MappedFile};
use hostcall_abi::cpu::Entry;
use hostcall_seam::{
    Backend, BackendError, DeviceAddress, DeviceInfo, DeviceKind, Dispatch, HostMemory, ImageSource, Kernel,
    KernelList, KernelMemory, Memory, Module, Pinned, Properties, Queue,
};
use std::any::Any;
use std::fs::File;
use std::sync::Arc;

/// The software device, in a list of devices.
pub fn device_info() -> DeviceInfo {
    let threads = Config::default().threads;
    DeviceInfo {
        name: "cpu".into(),
        description: format!("software device, {threads} thread(s), waves of 32 or 64 lanes"),
        unavailable: None,
    }
}

/// Opens the software device as a backend, for backends from outside that change or watch what it does: each function of such a
/// [`Backend`] hands its call on, also those that have a default.
///
/// # Errors
/// When the system has no room for its threads.
pub fn software_backend(config: Config) -> std::io::Result<Arc<dyn Backend>> {
    Ok(Arc::new(Cpu::open(config)?))
}

/// The software device.
pub struct Cpu {
    executor: Arc<Executor>,
    lent: Arc<LentMemory>,
    properties: Properties,
}

impl Cpu {
    /// Opens one of its own: its threads end when it and all that it gave are dropped.
    ///
    /// # Errors
    /// When the system has no room for its threads.
    pub fn open(config: Config) -> std::io::Result<Self> {
        let executor = Executor::new(config)?;
        let config = executor.config();
        let properties = Properties {
            kind: DeviceKind::Software,
            product: "software device".into(),
            target: "cpu".into(),
            wave_size: config.wave_size,
            multiprocessors: config.threads as u32,
            resident_waves: config.resident_waves,
            max_workgroup_lanes: 1024,
            max_workgroup_bytes: MAX_WORKGROUP_BYTES,
            memory_bytes: 0,
            clock_hz: 1_000_000_000,
            independent_lanes: true,
        };
        Ok(Self { lent: executor.lent_memory(), executor: Arc::new(executor), properties })
    }
}

// SAFETY: 1. memory is the process's (`HostMemory`), modules and kernels keep their libraries; 2. see `CpuQueue`; 3. every
// part holds what it needs of the executor; 4. memory for kernels is `HostMemory` of its own, a mapping is kept by its
// `MappedFile`; 5. the executor numbers waves so, and gives lost numbers to others once they are restored.
unsafe impl Backend for Cpu {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// All memory is the process's.
    fn reaches(&self, other: &dyn Backend) -> bool {
        let other: &dyn Any = other;
        other.is::<Self>()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(HostMemory::new(bytes)?))
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError> {
        Ok(Arc::new(HostMemory::new(bytes)?))
    }

    fn load(
        &self,
        image: ImageSource<'_>,
        _stack_bytes: Option<usize>,
    ) -> Result<Arc<dyn Module>, BackendError> {
        Ok(Arc::new(CpuModule::load(image)?))
    }

    fn queue(&self, progress: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        Ok(Box::new(CpuQueue::new(self.executor.clone(), progress)))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: the caller vouches for the target; `bytes` cannot overlap memory that may be written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory::pointer(to), bytes.len()) };
        Ok(())
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: the caller vouches for the source; `bytes` are nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(memory::pointer(from), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn store_words(&self, to: DeviceAddress, bytes: &[u8], width: usize) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { memory::store(to, bytes, width) }
    }

    unsafe fn load_words(
        &self,
        from: DeviceAddress,
        bytes: &mut [u8],
        width: usize,
    ) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { memory::load(from, bytes, width) }
    }

    fn native_kernel(&self, entry: Entry) -> Option<Arc<dyn Kernel>> {
        Some(Arc::new(CpuKernel { entry, _image: None }))
    }

    unsafe fn list(&self, dispatches: &[Dispatch<'_>]) -> Result<Option<Arc<dyn KernelList>>, BackendError> {
        Ok(Some(Arc::new(CpuList::new(dispatches)?)))
    }

    fn has_reliable_hints(&self) -> bool {
        self.executor.config().faults.lose_notifications == 0.0
    }

    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        let waker = self.executor.waker();
        Some(Box::new(move || waker.wake()))
    }

    fn copy_from_lane(&self, from: DeviceAddress, bytes: &mut [u8]) -> bool {
        self.lent.read(from.get(), bytes)
    }

    fn copy_to_lane(&self, to: DeviceAddress, bytes: &[u8]) -> bool {
        self.lent.write(to.get(), bytes)
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        let memory =
            HostMemory::aligned(usize::try_from(bytes).ok()?, usize::try_from(align).ok()?.max(16)).ok()?;
        let address = Memory::address(&memory);
        Some(KernelMemory { address, owner: Box::new(memory) })
    }

    fn map_file(&self, file: &File, len: u64, writable: bool) -> Option<KernelMemory> {
        let mapped = MappedFile::new(file, usize::try_from(len).ok()?, writable).ok()?;
        let address = DeviceAddress::new(mapped.address() as u64);
        Some(KernelMemory { address, owner: Box::new(mapped) })
    }
}
