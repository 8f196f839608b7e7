//! What a kind of device must give: memory, and running one kernel. Streams, servers and errors are the same
//! for all.

use super::LaunchFailure;
use super::llvm::{KernelResources, ProgramCode};
use crate::services::HeapMemory;
use hostcall_abi::launch::{KernelInfo, LaunchParams};
use hostcall_abi::layout::Layout;
use hostcall_channel::SharedMemory;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Memory that kernels reach, freed when dropped.
pub(crate) trait Memory: Send + Sync {
    /// Address as the device sees it. A multiple of 256.
    fn address(&self) -> u64;
    /// Copies `bytes` to `offset`, a multiple of 8.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), String>;
    /// Copies from `offset`, a multiple of 8.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), String>;
}

/// Memory that host and kernels both reach at any time, freed when dropped.
pub(crate) trait Pinned: Send + Sync {
    /// Address as the device sees it. A multiple of 256.
    fn address(&self) -> u64;
    /// Address as the host sees it: as many zeroed bytes as were asked for, until it is dropped.
    fn host_address(&self) -> *mut u8;
}

/// A kernel that the device can launch.
pub(crate) trait KernelCode: Any + Send + Sync {
    /// What the image says of the kernel.
    fn info(&self) -> &KernelInfo;
    /// What it needs of the device, as far as the device says that.
    fn resources(&self) -> Option<KernelResources> {
        None
    }
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// One launch.
pub(crate) struct Start {
    pub name: String,
    pub kernel: Arc<dyn KernelCode>,
    pub params: LaunchParams,
    pub arguments: Vec<u8>,
    /// What must live until the launch has ended.
    pub keep_alive: Vec<Arc<dyn Any + Send + Sync>>,
    /// Hints to the server that there may be work.
    pub notify: Arc<dyn Fn() + Send + Sync>,
    /// Cancels the launch's calls, for a device that ends the other lanes of a launch itself when one failed.
    pub on_failure: Arc<dyn Fn() + Send + Sync>,
}

/// A launch on its way.
pub(crate) trait Running: Send + Sync {
    /// Waits for the end, at most `timeout`. `None` when it passed first.
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), LaunchFailure>>;
    /// Asks for the end. Kernels that never look may run on.
    fn cancel(&self);
}

/// A device.
pub(crate) trait Backend: Send + Sync {
    /// What its images are built for, as `hostcall build --target` takes it.
    fn target(&self) -> String;
    /// Lanes of a wave.
    fn wave_size(&self) -> u32;
    /// The channel's sizes when the user names none, and the slots that all resident waves need.
    fn default_layout(&self) -> Layout;
    /// Zeroed memory that host and device share.
    fn shared_memory(&self, layout: Layout) -> Result<SharedMemory, String>;
    /// Zeroed memory of the device.
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, String>;
    /// Zeroed memory that host and kernels both reach.
    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, String>;
    /// Whether a wave that rings while the channel's header says that the host sleeps always calls
    /// [`Start::notify`].
    fn has_reliable_hints(&self) -> bool {
        false
    }
    /// Makes lanes look that wait for long, on a device that lets them sleep: called after an answer.
    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        None
    }
    /// Where its kernels' heap comes from.
    fn heap_memory(&self) -> Arc<dyn HeapMemory>;
    /// A kernel that is part of this process, when the device can run such.
    fn native_kernel(&self, entry: hostcall_abi::cpu::Entry, info: KernelInfo)
    -> Option<Arc<dyn KernelCode>>;
    /// Loads an image and returns a function that finds its kernels by name.
    fn load(&self, image: &Path) -> Result<Box<dyn ImageCode>, String>;
    /// Loads a program that was linked with LLVM's GPU libc, with stacks of so many bytes a lane if they are named.
    fn load_llvm(&self, _image: &[u8], _stack_bytes: Option<usize>) -> Result<Box<dyn ProgramCode>, String> {
        Err("the device runs no programs that were linked with LLVM's GPU libc; use a GPU".into())
    }
    /// Starts a kernel.
    fn start(&self, start: Start) -> Result<Box<dyn Running>, LaunchFailure>;
}

/// A loaded image.
pub(crate) trait ImageCode: Send + Sync {
    /// The kernel of this name, or a sentence why there is none.
    fn kernel(&self, name: &str) -> Result<Arc<dyn KernelCode>, String>;
}
