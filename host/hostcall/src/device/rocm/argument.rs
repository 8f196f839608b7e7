//! Arguments of kernels of code objects.

use crate::device::buffer::{Allocation, DeviceBuffer, PinnedBuffer, Wanted, bytes_of};
use crate::device::context::Context;
use crate::device::core::Core;
use crate::device::error::{Error, LaunchRefused};
use crate::device::foreign::{CurrentLaunch, OwnArgument};
use crate::device::post_queue::PostQueue;
use crate::device::raw::{Memory as RawMemory, RawChannel};
use crate::device::stream::Parts;
use crate::device::uses::Access;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::raw::ForeignRawParams;
use hostcall_device::Word;
use hostcall_device::kernel::Plain;
use hostcall_device::raw::Policy;
use hostcall_seam::DeviceAddress;
use smallvec::SmallVec;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// An argument of a kernel of a code object.
#[derive(Clone)]
pub struct KernelArgument {
    bytes: SmallVec<[u8; 16]>,
    memory: Memory,
}

/// What an argument is the address of.
#[derive(Clone)]
enum Memory {
    Nothing,
    Buffer {
        allocation: Arc<Allocation>,
        access: Access,
        bytes: Range<usize>,
    },
    /// Memory that kernels share with others.
    Shared {
        core: Arc<Core>,
        memory: Arc<dyn Any + Send + Sync>,
    },
    /// A context's block.
    Context {
        core: Arc<Core>,
        memory: Arc<dyn Any + Send + Sync>,
        launch: Arc<CurrentLaunch>,
    },
    Raw {
        core: Arc<Core>,
        memory: Arc<RawMemory>,
        params: ForeignRawParams,
    },
}

impl KernelArgument {
    /// A value: a number, or a struct as the kernel's language lays it out.
    pub fn value<T: Plain + Copy>(value: T) -> Self {
        Self { bytes: SmallVec::from_slice(&bytes_of(&[value])), memory: Memory::Nothing }
    }

    /// A value as its bytes, as the kernel's language lays it out.
    pub fn bytes(value: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(value), memory: Memory::Nothing }
    }

    /// The address of a buffer's values, which are the launch's alone while it runs: what else uses them comes before it or
    /// after.
    pub fn buffer<T: Plain>(buffer: &DeviceBuffer<T>) -> Self {
        Self::of(buffer, Access::Write)
    }

    /// The address of a buffer's values, which nobody writes while the launch runs, nor the kernel: others may read them.
    pub fn input<T: Plain>(buffer: &DeviceBuffer<T>) -> Self {
        Self::of(buffer, Access::Read)
    }

    /// The address of a pinned buffer's values, which host and kernels may access meanwhile.
    pub fn pinned<T: Word>(buffer: &PinnedBuffer<T>) -> Self {
        Self::shared(buffer.address(), &buffer.core, Arc::new(buffer.memory.clone()))
    }

    /// The address of a context, from which the kernel calls the host by the functions of `hostcall_device.h`: its parameter is
    /// a `uint64_t`.
    ///
    /// The calls are the launch's: reports name its kernel, handlers get its id, and they end when it is cancelled, or the context
    /// is. So each launch and each replay gets an address of its own here, which is nothing after it. Of several
    /// contexts of a launch it is so for the first; calls by the others are those contexts', and so are calls by the
    /// [address](Context::address) as a [value](KernelArgument::value).
    pub fn context(context: &Context) -> Self {
        let (core, memory, launch) = context.reach();
        let (core, launch) = (core.clone(), launch.clone());
        let memory = Memory::Context { core, memory, launch };
        Self { bytes: SmallVec::from_slice(&context.address().get().to_le_bytes()), memory }
    }

    /// The address of a post queue, to which the kernel posts by the functions of `hostcall_device.h`: its parameter is an integer
    /// of 64 bits. The launch keeps what is reached by it.
    pub fn post_queue(queue: &PostQueue) -> Self {
        let (core, memory) = queue.reach();
        Self::shared(queue.address(), core, memory)
    }

    fn shared(address: DeviceAddress, core: &Arc<Core>, memory: Arc<dyn Any + Send + Sync>) -> Self {
        let memory = Memory::Shared { core: core.clone(), memory };
        Self { bytes: SmallVec::from_slice(&address.get().to_le_bytes()), memory }
    }

    /// A raw channel, to which the kernel writes by the functions of the header `hostcall_device.h` (in `bindings/c/include`): its
    /// parameter is a `struct hostcall_raw_stream`, by value. The kernel writes records of the channel's type, or bytes.
    ///
    /// ```no_run
    /// use hostcall::raw::{Block, RawChannel};
    /// use hostcall::rocm::{KernelArgument, Version};
    /// use hostcall::{Device, Grid};
    ///
    /// let device = Device::open("gfx942")?;
    /// let kernel = device.load_code_object("kernels.co", Version::Stacks)?.kernel("squares")?;
    /// let (stream, channel) = (device.stream()?, RawChannel::<[u64; 2], Block>::new(&device, 64, 4096)?);
    /// // SAFETY: `squares` is `__global__ void squares(hostcall_raw_stream out)`, and writes records of two words.
    /// unsafe { kernel.launch(&stream, Grid::new(4, 64), &[KernelArgument::raw_channel(&channel)]) }?;
    /// stream.synchronize()?;
    /// for [number, square] in channel.reader().rest().flat_map(|page| page.records().collect::<Vec<_>>()) {
    ///     println!("{number} {square}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw_channel<T: Plain, P: Policy>(channel: &RawChannel<T, P>) -> Self {
        let (core, memory, params) = channel.foreign();
        Self { bytes: params.as_bytes().into(), memory: Memory::Raw { core, memory, params } }
    }

    fn of<T: Plain>(buffer: &DeviceBuffer<T>, access: Access) -> Self {
        let Wanted { allocation, access, bytes } = buffer.wanted(access);
        let address = buffer.address().get().to_le_bytes();
        Self { bytes: SmallVec::from_slice(&address), memory: Memory::Buffer { allocation, access, bytes } }
    }

    /// Adds the argument at this place to a launch whose kernel takes so many bytes there, if that is known. Returns what the
    /// launch's beginning has to complete, and where it begins.
    pub(super) fn pack(
        &self,
        core: &Core,
        place: usize,
        takes: Option<usize>,
        parts: &mut Parts,
    ) -> Result<Option<(usize, OwnArgument)>, Error> {
        let given = self.bytes.len();
        if let Some(takes) = takes.filter(|takes| *takes != given) {
            return Err(LaunchRefused::ArgumentSize { argument: place, takes, given }.into());
        }
        let check = |of: &Core| core.check_own(of, format_args!("argument {place} (the first is 0)"));
        let (at, mut own) = (parts.parameters.bytes.len(), None);
        match &self.memory {
            Memory::Nothing => {}
            Memory::Buffer { allocation, access, bytes } => {
                check(&allocation.core)?;
                let (allocation, bytes) = (allocation.clone(), bytes.clone());
                parts.wanted.push(Wanted { allocation, access: *access, bytes });
            }
            Memory::Shared { core, memory } => {
                check(core)?;
                parts.memory.push(memory.clone());
            }
            Memory::Context { core, memory, launch } => {
                check(core)?;
                parts.memory.push(memory.clone());
                own = Some((at, OwnArgument::Context(launch.clone())));
            }
            Memory::Raw { core, memory, params } => {
                check(core)?;
                parts.memory.push(memory.clone());
                own = Some((at, OwnArgument::Raw(*params)));
            }
        }
        parts.parameters.push(&self.bytes);
        Ok(own)
    }
}

impl std::fmt::Debug for KernelArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelArgument").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
