//! The software device as a backend.
#![allow(unsafe_code)] // loads images, whose symbols have the types that the ABI gives them

use super::LaunchFailure;
use super::backend::{Backend, ImageCode, KernelCode, Memory, Pinned, Running, Start};
use crate::services::{HeapMemory, ProcessMemory};
use hostcall_abi::cpu::Entry;
use hostcall_abi::launch::{KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo};
use hostcall_abi::layout::{Layout, MAGIC};
use hostcall_channel::SharedMemory;
use hostcall_softdev::{Config, Executor, Launch, LaunchError, LaunchHandle};
use std::any::Any;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct Cpu {
    executor: Executor,
}

impl Cpu {
    pub fn open(config: Config) -> Result<Self, String> {
        Executor::new(config).map(|executor| Self { executor }).map_err(|error| error.to_string())
    }
}

/// Words that kernels may write at any time, so that the host too accesses them atomically.
struct CpuMemory {
    words: Box<[AtomicU64]>,
    start: usize,
    len: usize,
}

const ALIGN: usize = 256;

impl CpuMemory {
    fn new(len: usize) -> Result<Self, String> {
        let no_room = || format!("there is no room for {len} bytes of device memory");
        let count = len.checked_add(ALIGN).ok_or_else(no_room)?.div_ceil(8);
        let layout = std::alloc::Layout::array::<AtomicU64>(count).map_err(|_| no_room())?;
        // SAFETY: the layout has a size. Pages that nobody touches take no memory, unlike those of a vector of zeros
        // that are written one by one.
        let words = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(no_room)?;
        let words = std::ptr::slice_from_raw_parts_mut(words.as_ptr().cast::<AtomicU64>(), count);
        // SAFETY: allocated as a box of so many words is, and zeros are such words.
        let words = unsafe { Box::from_raw(words) };
        let start = words.as_ptr().align_offset(ALIGN);
        Ok(Self { words, start, len })
    }

    fn range(&self, offset: usize, len: usize) -> Result<&[AtomicU64], String> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len && offset.is_multiple_of(8) => {
                Ok(&self.words[self.start + offset / 8..][..len.div_ceil(8)])
            }
            _ => Err(format!("{len} bytes at {offset} do not lie in a buffer of {} bytes", self.len)),
        }
    }
}

impl Memory for CpuMemory {
    fn address(&self) -> u64 {
        self.words[self.start..].as_ptr() as usize as u64
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        for (word, chunk) in self.range(offset, bytes.len())?.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            if chunk.len() < 8 {
                value = word.load(Ordering::Relaxed).to_le_bytes();
            }
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), String> {
        let words = self.range(offset, bytes.len())?;
        for (chunk, word) in bytes.chunks_mut(8).zip(words) {
            let value = word.load(Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
        Ok(())
    }
}

impl Pinned for CpuMemory {
    fn address(&self) -> u64 {
        Memory::address(self)
    }

    fn host_address(&self) -> *mut u8 {
        self.words[self.start..].as_ptr().cast::<u8>().cast_mut()
    }
}

struct CpuKernel {
    entry: Entry,
    info: KernelInfo,
    /// Keeps the image loaded.
    _image: Option<Arc<libloading::Library>>,
}

impl KernelCode for CpuKernel {
    fn info(&self) -> &KernelInfo {
        &self.info
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct CpuImage(Arc<libloading::Library>);

impl ImageCode for CpuImage {
    fn kernel(&self, name: &str) -> Result<Arc<dyn KernelCode>, String> {
        let symbol = |prefix: &str| format!("{prefix}{name}");
        // SAFETY: a symbol of this name is a `KernelInfo`, as `#[kernel]` makes it; its magic is checked
        // before anything else of it is believed.
        let info = unsafe {
            let info = self.0.get::<*const KernelInfo>(symbol(KERNEL_INFO_SYMBOL_PREFIX).as_bytes());
            **info.map_err(|_| format!("the image has no kernel `{name}`"))?
        };
        if info.magic != MAGIC || info.abi_version != u64::from(hostcall_abi::ABI_VERSION) {
            return Err("the image was made with another version of hostcall; build it again".to_string());
        }
        // SAFETY: the info says that this is a hostcall image of this version, whose kernels are entries.
        let entry = unsafe { self.0.get::<Entry>(symbol(KERNEL_SYMBOL_PREFIX).as_bytes()) };
        let entry = *entry.map_err(|_| format!("the image has no entry of the kernel `{name}`"))?;
        Ok(Arc::new(CpuKernel { entry, info, _image: Some(self.0.clone()) }))
    }
}

struct CpuRunning(LaunchHandle);

impl Running for CpuRunning {
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), LaunchFailure>> {
        self.0.wait(timeout).map(|result| result.map(|_| ()).map_err(failure))
    }

    fn cancel(&self) {
        self.0.cancel();
    }
}

fn failure(error: LaunchError) -> LaunchFailure {
    match error {
        LaunchError::Panicked { .. } => LaunchFailure::Panicked(None),
        LaunchError::Cancelled => LaunchFailure::Cancelled,
        LaunchError::BadGrid(sentence) => LaunchFailure::Refused(sentence),
        other => LaunchFailure::Fault(other.to_string()),
    }
}

impl Backend for Cpu {
    fn target(&self) -> String {
        "cpu".into()
    }

    fn wave_size(&self) -> u32 {
        self.executor.config().wave_size
    }

    fn default_layout(&self) -> Layout {
        Layout { slots: 2048, lanes: self.wave_size(), ring_entries: 512, bulk_bytes: 64 << 10 }
    }

    fn shared_memory(&self, layout: Layout) -> Result<SharedMemory, String> {
        let memory = CpuMemory::new(layout.words() * 8)?;
        let words = NonNull::new(memory.host_address().cast::<u64>()).expect("memory has an address");
        // SAFETY: as many zeroed words, aligned to more than a cache line, which `memory` keeps and only the channel
        // gets. Every layout comes here checked.
        Ok(unsafe { SharedMemory::from_parts(words, layout, Box::new(memory)) })
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, String> {
        Ok(Arc::new(CpuMemory::new(bytes)?))
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, String> {
        Ok(Arc::new(CpuMemory::new(bytes)?))
    }

    fn has_reliable_hints(&self) -> bool {
        self.executor.config().faults.lose_notifications == 0.0
    }

    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        let waker = self.executor.waker();
        Some(Box::new(move || waker.wake()))
    }

    fn heap_memory(&self) -> Arc<dyn HeapMemory> {
        Arc::new(ProcessMemory)
    }

    fn native_kernel(&self, entry: Entry, info: KernelInfo) -> Option<Arc<dyn KernelCode>> {
        Some(Arc::new(CpuKernel { entry, info, _image: None }))
    }

    fn load(&self, image: &Path) -> Result<Box<dyn ImageCode>, String> {
        // SAFETY: loading runs the image's initialisers; the user asked to run this image.
        let library = unsafe { libloading::Library::new(image) }
            .map_err(|error| format!("cannot load {}: {error}", image.display()))?;
        Ok(Box::new(CpuImage(Arc::new(library))))
    }

    fn start(&self, start: Start) -> Result<Box<dyn Running>, LaunchFailure> {
        let kernel = start.kernel.as_any().downcast_ref::<CpuKernel>().expect("the device's own kernel");
        let launch = Launch {
            entry: kernel.entry,
            arguments: start.arguments,
            params: start.params,
            keep_alive: Box::new((start.kernel.clone(), start.keep_alive)),
            notify: start.notify,
            on_failure: start.on_failure,
            kernel_name: start.name,
        };
        // SAFETY: the entry takes the arguments that its info names, which `enqueue` compared; the parameters
        // are those of this device's channel, which outlives its launches.
        let handle = unsafe { self.executor.launch(launch) };
        handle.map(|handle| Box::new(CpuRunning(handle)) as _).map_err(failure)
    }
}
