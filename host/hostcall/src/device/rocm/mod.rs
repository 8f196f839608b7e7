//! Code objects of AMD's GPUs that other compilers made, such as those of HIP and OpenCL C: kernels that take
//! plain arguments, and call the host by ROCm's protocol if they were linked with ROCm's device libraries.
//! And so code for NVIDIA's GPUs: cubins and PTX of CUDA C++ or clang, whose kernels take plain arguments
//! too.
//!
//! A launch is an operation of its stream as any other, with an id by which traces, pages of raw channels and
//! calls by a context name it. What hostcall knows of such a kernel is its metadata: how many bytes each argument has, and which
//! hidden arguments there are. Nobody can check their types, so `launch` is unsafe.
//!
//! Nothing of hostcall's is in the kernel but what it writes to raw channels, and how it calls by a context. So
//! nothing ends it once the device has it: when it is cancelled it stops waiting for pages, its calls end, it runs
//! to its end, and who cancelled it is told (`LaunchFailure::RanToEnd`). It does not look whether its stream was
//! stopped, just as copies are made all the same. Its calls by ROCm's protocol do not say whose they are, so a
//! handler of such a call that waits for its own kernel waits for ever. A replay launches it by itself, never in
//! a list.
//!
//! | hidden argument | what it gets |
//! |---|---|
//! | sizes of grid and workgroups, dimensions, queue, dynamic local memory | what the dispatch says (`backends/hsa/src/kernarg.rs`) |
//! | `hidden_hostcall_buffer` | the device's buffer of the version that the program named, whether the kernel calls or not |
//! | `hidden_heap_v1` | 128 KiB of the device's memory, in which ROCm's device heap keeps its state |
//! | `hidden_printf_buffer` | nothing: such a kernel is refused |
//! | all others | 0 |
//!
//! | what | owner | until |
//! |---|---|---|
//! | the consumer with its threads | the device, each kernel that was looked up, each launch | none of them is left |
//! | a hostcall buffer, with a packet for each wave that the device holds; the heap's state | `Serving`, of which the consumer is a part | as above |
//! | memory that kernels allocate | the handlers (`Services`); the device's heap has it, and its limit holds | a kernel frees it, or the handlers are gone |
//! | the consumer's attention | a value that each launch keeps (`CallsExpected`) | the launch is settled |
//!
//! Kernels that call by LLVM's protocol, as ROCm's newer runtimes have it, are served by ports of their code object's own
//! (`rpc.rs`), with the same handlers and libc's opcodes. Their server is kept as the consumer is, by the code object as well.
//! A call that cannot go on ends with zeros, and so fail the launches of the code object that had not been settled.
//! One that the host has told of ports of its own, before the kernel is looked up, is left to it.
//!
//! One buffer serves all streams: no more waves can call than the device holds.
#![allow(unsafe_code, reason = "kernels run with arguments that nobody can check")]

mod argument;
mod rpc;

pub use argument::KernelArgument;

use super::core::Core;
use super::error::{CodeObjectError, Error, ImageError, LaunchRefused};
use super::foreign::{ForeignKernel, ForeignPorts, OwnArguments};
use super::graph::{ForeignNode, Node, capture_of};
use super::grid::Grid;
use super::images::read_image;
use super::inner::{Device, Inner};
use super::prepare::{check_code, kernel_called};
use super::stream::{Launch, Parts, Stream};
use crate::image::{self, Calls, NotAnImage, Target};
use hostcall_locks::Mutex;
use hostcall_seam::{HiddenParameters, ImageSource, KernelLimits, KernelParameters, Module};
use hostcall_server::llvm::Version as LlvmVersion;
use hostcall_server::rocm::{Services, Statistics, Version};
use rpc::Ports;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

/// A loaded code object.
///
/// ```no_run
/// use hostcall::rocm::{KernelArgument, Version};
/// use hostcall::{Device, Grid};
///
/// let device = Device::open("gfx942")?;
/// let square = device.rocm_services().register_function(|[x, ..]| [x * x, 0])?;
/// let code = device.load_code_object("kernels.co", Version::Stacks)?;
/// let (stream, out) = (device.stream()?, device.alloc_zeroed::<u64>(256)?);
/// let arguments = [KernelArgument::buffer(&out), KernelArgument::value(square)];
/// // SAFETY: `squares` is `__global__ void squares(unsigned long *out, unsigned long square)`, and writes one number a lane.
/// unsafe { code.kernel("squares")?.launch(&stream, Grid::new(4, 64), &arguments) }?;
/// stream.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CodeObject {
    device: Weak<Inner>,
    module: Arc<dyn Module>,
    version: Version,
    ports: Arc<CallsByPorts>,
}

/// Calls that a code object's kernels make by LLVM's protocol.
struct CallsByPorts {
    /// `None` when they make none.
    version: Option<LlvmVersion>,
    /// What answers them, from the first kernel on that is looked up.
    served: Mutex<Option<Arc<Ports>>>,
}

impl fmt::Debug for CodeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeObject").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A kernel of a code object.
#[derive(Clone)]
pub struct CodeObjectKernel {
    device: Weak<Inner>,
    kernel: ForeignKernel,
    parameters: KernelParameters,
    /// Whether the code, or the driver, says what the kernel takes.
    knows_parameters: bool,
}

impl fmt::Debug for CodeObjectKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, parameters, .. } = self;
        f.debug_struct("CodeObjectKernel")
            .field("name", &kernel.name)
            .field("parameters", parameters)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Loads a code object from a file. Its kernels call the host by the `version` of ROCm's protocol that they were compiled
    /// with, which the file does not tell: [`Version::Stacks`] with device libraries until 2026. Calls by LLVM's protocol are
    /// told by the file, and served in either case. On an NVIDIA GPU it is a cubin
    /// or PTX, whose kernels call nobody by that, with either version.
    ///
    /// What it takes and gives is in the module [`hostcall::rocm`](crate::rocm): [`Version`], [`CodeObject`] with an example, and
    /// [`KernelArgument`].
    ///
    /// # Errors
    /// When it cannot be read, is no code object for this device, or is an image that another function loads.
    pub fn load_code_object(&self, image: impl AsRef<Path>, version: Version) -> Result<CodeObject, Error> {
        let (path, bytes) = read_image(image.as_ref())?;
        let name = image.as_ref().display().to_string();
        self.load_code(&name, ImageSource::File { path: &path, bytes: &bytes }, version)
    }

    /// Loads a code object from memory, as [`Device::load_code_object`] does from a file.
    ///
    /// # Errors
    /// When it is no code object for this device, or is an image that another function loads.
    pub fn load_code_object_bytes(&self, image: &[u8], version: Version) -> Result<CodeObject, Error> {
        self.load_code("the code object", ImageSource::Bytes(image), version)
    }

    fn load_code(&self, name: &str, source: ImageSource<'_>, version: Version) -> Result<CodeObject, Error> {
        let info = image::identify(source.bytes()).map_err(|error| match error {
            NotAnImage::Unknown => Error::from(CodeObjectError::Unknown { name: name.into() }),
            error => ImageError::NotAnImage { name: name.into(), error }.into(),
        })?;
        if matches!(&info.target, Target::Software) || !info.target.runs_on(&self.target()) {
            let (built_for, device) = (info.target.to_string(), self.name().to_owned());
            let (name, target) = (name.to_owned(), self.target());
            return Err(CodeObjectError::OtherTarget { name, built_for, device, target }.into());
        }
        let refused = |what, load| CodeObjectError::NotForeign { name: name.into(), what, load };
        match &info.calls {
            Calls::Hostcall(_) => {
                return Err(refused("an image of hostcall's kernels", "Device::load").into());
            }
            Calls::Llvm(_) => {
                let what = "a program that was linked with LLVM's GPU libc";
                return Err(refused(what, "Device::load_llvm").into());
            }
            Calls::LlvmKernels(_) | Calls::Unknown => {}
        }
        let llvm = match &info.calls {
            Calls::LlvmKernels(program) => program.version.filter(|version| !version.symbol_is_pointer()),
            _ => None,
        };
        let module = self.inner.core.load(source);
        let module = module.map_err(|error| ImageError::Load { name: name.into(), error })?;
        let ports = Arc::new(CallsByPorts { version: llvm, served: Mutex::default() });
        Ok(CodeObject { device: Arc::downgrade(&self.inner), module, version, ports })
    }

    /// Returns the handlers of calls by ROCm's protocol, to which others can be added at any time. When the first kernel that
    /// may call is looked up, services that have no handler then get those of hostcall: `printf` prints to the device's
    /// standard streams, memory comes from the device's heap, and reports of the address sanitizer are lines of the standard
    /// error. Functions are called by the numbers that [`Services::register_function`] gives.
    ///
    /// A handler does not wait for a launch that waits for it: nobody finds such circles, since calls do not say whose they
    /// are. A stream that it drops goes on without it.
    pub fn rocm_services(&self) -> &Services {
        self.inner.hostcalls.services()
    }

    /// Returns what was counted of calls by ROCm's protocol.
    pub fn rocm_statistics(&self) -> Statistics {
        self.inner.hostcalls.statistics()
    }
}

impl CodeObject {
    /// Finds a kernel by the name of its symbol, without `.kd`. Names of C++ are mangled, unless the kernel is `extern "C"`.
    ///
    /// # Errors
    /// When there is none, it prints to a buffer, takes an argument that launches cannot give, or what answers its calls does
    /// not start.
    pub fn kernel(&self, name: &str) -> Result<CodeObjectKernel, Error> {
        let device = self.device.upgrade().ok_or(Error::Closed)?;
        let code = self.module.kernel(name)?;
        let code = code.ok_or_else(|| ImageError::NoKernel { kernel: name.to_owned() })?;
        let parameters = code.parameters();
        let (knows_parameters, parameters) = (parameters.is_some(), parameters.unwrap_or_default());
        if parameters.takes_printf_buffer {
            return Err(CodeObjectError::Buffered { kernel: name.to_owned() }.into());
        }
        if let Some((argument, what)) = parameters.special {
            let hint = match what.contains("workgroup") {
                true => {
                    "declare the memory in the kernel, or in HIP take it as `extern __shared__`, whose size is \
                     `Grid::workgroup_memory`"
                }
                false => "take the address of a buffer",
            };
            return Err(CodeObjectError::Argument { kernel: name.to_owned(), argument, what, hint }.into());
        }
        let mut hidden = HiddenParameters::default();
        let mut serving = None;
        if parameters.takes_hostcall_buffer || parameters.takes_heap {
            let trace = device.traced.as_ref().map(|traced| traced.source("rocm"));
            let Inner { core, server, builtins, hostcalls, .. } = &*device;
            let answers = hostcalls.serving(core, server, builtins, trace)?;
            // A kernel that allocates asks the host for what it has not.
            hidden.hostcall_buffer = answers.buffer(&device.core, self.version)?;
            if parameters.takes_heap {
                hidden.heap = answers.heap(&device.core)?;
            }
            serving = Some(answers);
        }
        let ports = self.ports(&device)?;
        let ports = ports.map(|ports| ForeignPorts { address: ports.address, serving: ports as _ });
        let (device, kernel) =
            (self.device.clone(), ForeignKernel { name: name.into(), code, hidden, serving, ports });
        Ok(CodeObjectKernel { device, kernel, parameters, knows_parameters })
    }

    /// Returns what answers the kernels' calls by LLVM's protocol, unless they make none or another host serves them.
    fn ports(&self, device: &Inner) -> Result<Option<Arc<Ports>>, Error> {
        let Some(version) = self.ports.version else { return Ok(None) };
        let mut served = self.ports.served.lock();
        if served.is_none() {
            *served = rpc::serve(device, &*self.module, version)?.map(Arc::new);
        }
        Ok(served.clone())
    }

    /// Returns the bytes that a variable has now; `None` when there is no such variable.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// No kernel that runs writes the variable.
    pub unsafe fn read_variable(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let device = self.device.upgrade().ok_or(Error::Closed)?;
        let Some(variable) = self.module.variable(name)? else { return Ok(None) };
        let mut bytes = vec![0; variable.bytes];
        // SAFETY: the module says that the variable lies there, and by the caller's promise nobody writes it.
        unsafe { device.core.backend.read_now(variable.address, &mut bytes) }?;
        Ok(Some(bytes))
    }
}

impl CodeObjectKernel {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// Returns what the kernel needs of the device, and what a launch may ask for.
    pub fn limits(&self) -> KernelLimits {
        self.kernel.code.limits()
    }

    /// Returns what the code object says of its parameters, or the driver of NVIDIA's. A driver before that of CUDA 12.4 says
    /// nothing, and it is as if there were none; launches do not count arguments then.
    pub fn parameters(&self) -> &KernelParameters {
        &self.parameters
    }

    /// Puts a launch of the kernel on the stream, or into what that captures. [`Grid::workgroup_memory`] is what the kernel gets
    /// besides what it declares, its *dynamic* shared memory.
    ///
    /// # Errors
    /// When grid or arguments do not fit, the kernel or a buffer is another device's, or the device was closed. Nothing is
    /// launched then.
    ///
    /// # Safety
    /// The arguments are those that the kernel takes, of its types, and for all lanes of the grid the kernel accesses no memory but
    /// its own, that of its heap, and the buffers that it is given: it writes to none that is an [`KernelArgument::input`].
    /// Its code is what the device executes without harm, as any code of the program; it was compiled with the version of ROCm's
    /// protocol that its code object was loaded with, and uses neither synchronisation of several grids or devices nor queues
    /// of its own. All of that holds for each replay of a graph that captured it.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: Grid,
        arguments: &[KernelArgument],
    ) -> Result<Launch, Error> {
        let device = self.device.upgrade().ok_or(Error::Closed)?;
        stream.core().check_own(&device.core, kernel_called(&self.kernel.name))?;
        let capture = capture_of(stream, "launch")?;
        let mut parts = stream.queue().blank();
        let own = self.prepare(&device.core, grid, arguments, &mut parts)?;
        if let Some(capture) = capture {
            let node = ForeignNode::new(self.kernel.clone(), grid, own, *parts);
            capture.add(stream.queue(), Node::Foreign(node.into()))?;
            return Ok(Launch::captured(stream.queue(), self.kernel.name.clone()));
        }
        self.kernel.fill(grid, &own, &mut parts);
        stream.queue().launch(self.kernel.name.clone(), None, parts, |parameters, sequence, words| {
            self.kernel.begin(&device, grid, &own, parameters, sequence, words)
        })
    }

    /// Checks a launch and packs its arguments. Returns those that are the launch's own.
    fn prepare(
        &self,
        core: &Core,
        grid: Grid,
        arguments: &[KernelArgument],
        parts: &mut Parts,
    ) -> Result<OwnArguments, Error> {
        let kernel = || self.kernel.name.to_string();
        let (properties, limits) = (core.backend.properties(), self.kernel.code.limits());
        check_code(properties, &self.kernel.name, &limits, 0, &grid, grid.workgroup_memory_bytes)?;
        if let Some(takes) = self.parameters.workgroup.filter(|takes| *takes != grid.workgroup_size) {
            let given = grid.workgroup_size;
            return Err(LaunchRefused::WorkgroupSize { kernel: kernel(), takes, given }.into());
        }
        let takes = self.parameters.bytes.len();
        if self.knows_parameters && arguments.len() != takes {
            let (kernel, given) = (kernel(), arguments.len());
            return Err(LaunchRefused::ArgumentCount { kernel, takes, given }.into());
        }
        let mut own = OwnArguments::new();
        for (place, argument) in arguments.iter().enumerate() {
            let takes = self.parameters.bytes.get(place).map(|bytes| *bytes as usize);
            own.extend(argument.pack(core, place, takes, parts)?);
        }
        Ok(own)
    }
}
