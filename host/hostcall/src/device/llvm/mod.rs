//! Programs that were linked with LLVM's GPU libc: loading and running them from start to end.
//!
//! Such a program has three kernels. `_begin` runs its constructors in one lane, `_start` runs `main` in every lane
//! of the grid, `_end` runs its destructors in one lane and exits. It calls the host by LLVM's protocol, which a
//! server of its own answers (see [`crate::llvm`]) with the device's streams, files and heap.
#![allow(unsafe_code)] // memory is written and kernels are run by address

mod client;
mod code;
mod vectors;

#[cfg(test)]
mod tests;

pub use client::LlvmClient;
pub(super) use code::port_memory;
use code::{Code, ProgramKernel};

use super::error::{Error, ImageError, LaunchFailure, ProgramError};
use super::grid::Grid;
use super::images::read_image;
use super::inner::Device;
use super::prepare::check_lanes;
use super::stream::Stream;
use crate::image::{self, Calls, ImageInfo, NotAnImage};
use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_seam::{ImageSource, Memory, Module};
use hostcall_server::llvm::{End, Fault, Layout, LlvmServer, Options, PortMemory};
use hostcall_trace::{Ending, Source};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use vectors::Vectors;

/// Ports when nobody names a number: as many as LLVM's own loaders give.
const DEFAULT_PORTS: u32 = 4096;

/// How often it is looked whether the device was closed or the program cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long the last calls of a program that has ended may take to be answered.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Variable of the device's clock's frequency, in programs for devices whose clocks differ.
const CLOCK_SYMBOL: &str = "__llvm_libc_clock_freq";

/// A loaded program that was linked with LLVM's GPU libc. It runs once: its variables are then no longer new.
pub struct LlvmProgram {
    device: Device,
    symbols: image::LlvmProgram,
    code: Code,
    kernels: [ProgramKernel; 3],
}

/// What a kernel needs of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelResources {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of each lane.
    pub registers: u32,
    /// Bytes of stack of each lane, as far as the compiler knows: not for what it calls through pointers.
    pub stack_bytes: u32,
    /// Bytes of memory that a workgroup's lanes share.
    pub workgroup_bytes: u32,
}

impl fmt::Display for KernelResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, registers, stack_bytes, workgroup_bytes } = self;
        write!(
            f,
            "{kernel}: {registers} registers and {stack_bytes} bytes of stack a lane, {workgroup_bytes} bytes a workgroup"
        )
    }
}

/// How to run a program.
pub struct LlvmRun {
    grid: Grid,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    ports: u32,
    server: Options,
    prepare: Option<Box<Prepare>>,
    cancelled: Arc<AtomicBool>,
}

/// Ends the run of a program. Clones end the same run.
#[derive(Clone, Debug)]
pub struct LlvmCancel(Arc<AtomicBool>);

impl LlvmCancel {
    /// Lets [`LlvmProgram::run`] return with [`LaunchFailure::Cancelled`]: the program's calls are not answered any more.
    /// Nothing ends its lanes on a GPU but themselves and the end of the process.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Looks at the server before the program starts, and gives more arguments.
type Prepare = dyn FnOnce(&LlvmServer) -> Vec<Vec<u8>> + Send;

impl LlvmRun {
    /// `main` in every lane of the grid, without arguments and variables.
    pub fn new(grid: Grid) -> Self {
        Self {
            grid,
            arguments: Vec::new(),
            environment: Vec::new(),
            ports: DEFAULT_PORTS,
            server: Options::default(),
            prepare: None,
            cancelled: Arc::default(),
        }
    }

    /// Returns what ends the run from another thread.
    pub fn cancel(&self) -> LlvmCancel {
        LlvmCancel(self.cancelled.clone())
    }

    /// The arguments, the program's name first.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<Vec<u8>>, value: impl AsRef<[u8]>) -> Self {
        let mut variable = name.into();
        variable.push(b'=');
        variable.extend(value.as_ref());
        self.environment.push(variable);
        self
    }

    /// Calls that can be on their way at once; no more than the program's LLVM can have. Default 4096.
    #[must_use]
    pub fn ports(mut self, ports: u32) -> Self {
        self.ports = ports;
        self
    }

    /// The settings of the server that answers the program's calls. What they say of the program's end is not
    /// asked for; of a fault of a port [`LlvmProgram::run`] tells as well.
    #[must_use]
    pub fn server(mut self, options: Options) -> Self {
        self.server = options;
        self
    }

    /// Calls `register` with the server before the program starts, if it makes calls at all: there functions are
    /// registered for its host calls ([`LlvmServer::register`]). What `register` gives follows the other arguments,
    /// so that the program can be told what to call the functions by.
    #[must_use]
    pub fn host_functions<A: Into<Vec<u8>>>(
        mut self,
        register: impl FnOnce(&LlvmServer) -> Vec<A> + Send + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(|server| register(server).into_iter().map(Into::into).collect()));
        self
    }
}

impl Device {
    /// Loads a program that was linked with LLVM's GPU libc.
    ///
    /// # Errors
    /// When it is no such program, was built for another device, or the device runs none.
    pub fn load_llvm(&self, program: impl AsRef<Path>) -> Result<LlvmProgram, Error> {
        let core = &self.inner.core;
        let (path, bytes) = read_image(program.as_ref())?;
        let name = || program.as_ref().display().to_string();
        let ImageInfo { target, calls } = image::identify(&bytes).map_err(|error| match error {
            NotAnImage::Unknown => Error::from(ProgramError::NotAProgram { name: name() }),
            error => ImageError::NotAnImage { name: name(), error }.into(),
        })?;
        let Calls::Llvm(symbols) = calls else {
            let name = name();
            return Err(ProgramError::NotAProgram { name }.into());
        };
        if !target.runs_on(&self.target()) {
            let (built_for, device) = (target.to_string(), self.name().to_string());
            return Err(
                ProgramError::OtherTarget { name: name(), built_for, device, target: self.target() }.into()
            );
        }
        let module = core
            .load(ImageSource::File { path: &path, bytes: &bytes })
            .map_err(|error| Error::from(ImageError::Load { name: name(), error }))?;
        LlvmProgram::new(self.clone(), symbols, module)
    }
}

impl LlvmProgram {
    fn new(device: Device, symbols: image::LlvmProgram, module: Arc<dyn Module>) -> Result<Self, Error> {
        if let Some(bytes) = symbols.unknown_client {
            return Err(ProgramError::UnknownClient { bytes }.into());
        }
        let code = Code { core: device.inner.core.clone(), module };
        let kernels = [
            code.kernel(image::LlvmProgram::BEGIN)?,
            code.kernel(image::LlvmProgram::START)?,
            code.kernel(image::LlvmProgram::END)?,
        ];
        Ok(Self { device, symbols, code, kernels })
    }

    /// What its kernels need of the device.
    pub fn resources(&self) -> Vec<KernelResources> {
        let resources = |kernel: &ProgramKernel| {
            let limits = kernel.limits();
            KernelResources {
                kernel: kernel.name.to_owned(),
                registers: limits.registers.unwrap_or(0),
                stack_bytes: limits.stack_bytes,
                workgroup_bytes: limits.workgroup_bytes,
            }
        };
        self.kernels.iter().map(resources).collect()
    }

    /// Runs the program to its end.
    ///
    /// When it ends itself in the middle of `main`, other lanes may go on: nothing ends a GPU's kernel but the end of
    /// the process. Their calls are not answered any more then. What the program allocated and did not free is freed
    /// when its kernels have ended, which may be after this returns.
    ///
    /// # Errors
    /// [`Error::Launch`] when a kernel fails, the run is cancelled, or a call cannot go on
    /// ([`LaunchFailure::Port`]), whose lanes go on waiting for it; others when the program cannot be started.
    pub fn run(self, mut run: LlvmRun) -> Result<End, Error> {
        run.grid.check(self.device.properties())?;
        let (kind, start) = (self.device.properties().kind, &self.kernels[1]);
        check_lanes(kind, start.name, &start.limits(), run.grid.workgroup_lanes())?;
        let (events, happened) = mpsc::channel();
        let memory = self.port_memory(run.ports)?;
        let trace = self.device.inner.traced.as_ref().map(|traced| traced.source("llvm"));
        let server = match &memory {
            Some(memory) => Some(self.start_server(memory, run.server, trace.as_ref(), &events)?),
            None => None,
        };
        if let (Some(server), Some(prepare)) = (&server, run.prepare.take()) {
            run.arguments.extend(prepare(server));
        }
        let constructors = self.constructors()?;
        if self.code.variable(CLOCK_SYMBOL)?.is_some() {
            let frequency = self.device.properties().clock_hz.to_le_bytes();
            self.code.set_variable(CLOCK_SYMBOL, &frequency)?;
        }
        let core = &self.device.inner.core;
        let vectors = Vectors::new(core, &run.arguments, &run.environment)?;
        let result = core.backend.allocate(size_of::<u64>())?;
        let (device, stream) = (self.device.clone(), self.device.stream()?);
        let stage = Arc::new(Stage::new());
        let session = Session {
            program: self,
            stream,
            stage: stage.clone(),
            vectors,
            result,
            trace,
            _memory: memory,
            _constructors: constructors,
        };
        std::thread::Builder::new()
            .name("hostcall-program".into())
            .spawn(move || session.run(run.grid, &events))
            .map_err(|error| Error::NoThread { what: "a program", error })?;
        let failed = |failure| Error::Launch { kernel: stage.end().to_owned(), failure, forced_lanes: 0 };
        loop {
            let event = match happened.recv_timeout(LOOK_EVERY) {
                Ok(event) => event,
                Err(_) if device.inner.core.closed.load(Ordering::SeqCst) => {
                    stage.end();
                    return Err(Error::Closed);
                }
                Err(_) if run.cancelled.load(Ordering::SeqCst) => {
                    return Err(failed(LaunchFailure::Cancelled));
                }
                Err(_) => continue,
            };
            match event {
                Event::Failed(error) => return Err(error),
                Event::Broken(fault) => return Err(failed(LaunchFailure::Port(fault))),
                Event::Ended(end) => {
                    if stage.end() == image::LlvmProgram::END {
                        // It ends at once, and then nothing of the program is left on the device.
                        let _ = happened.recv_timeout(LAST_CALLS);
                    }
                    return Ok(end);
                }
                Event::Returned(code) => {
                    let last = match server {
                        Some(_) => happened.recv_timeout(LAST_CALLS),
                        None => Err(RecvTimeoutError::Timeout),
                    };
                    return match last {
                        Ok(Event::Ended(end)) => Ok(end),
                        Ok(Event::Broken(fault)) => Err(failed(LaunchFailure::Port(fault))),
                        _ => Ok(End::Exited(code)),
                    };
                }
            }
        }
    }

    /// Starts the server of the program's calls, which tells of the program's end and of faults.
    fn start_server(
        &self,
        memory: &Arc<PortMemory>,
        options: Options,
        trace: Option<&Source>,
        events: &Sender<Event>,
    ) -> Result<LlvmServer, Error> {
        let (ended, faulted) = (events.clone(), events.clone());
        let backend = self.device.inner.core.backend.clone();
        let options = options.or_device(self.device.name()).on_thread(move || backend.enter_thread());
        let options = match trace {
            Some(trace) => options.trace(trace.clone()),
            None => options,
        };
        // The receiver is gone when the program's end is known already.
        let options = options
            .on_end(move |end| _ = ended.send(Event::Ended(end)))
            .also_on_fault(move |fault| _ = faulted.send(Event::Broken(fault.clone())));
        let server = LlvmServer::start(memory.clone(), self.device.builtins(), options);
        let server = server.map_err(|error| Error::NoThread { what: "a program's server", error })?;
        self.device.inner.llvm_calls.count(&server);
        Ok(server)
    }

    /// Memory for the program's calls, if it makes any, which it is told of.
    fn port_memory(&self, ports: u32) -> Result<Option<Arc<PortMemory>>, Error> {
        let Some(version) = self.symbols.version else { return Ok(None) };
        let core = &self.device.inner.core;
        let layout = Layout::new(version, ports.min(version.max_ports()), self.device.wave_size())
            .map_err(ProgramError::from)?;
        let memory = code::port_memory(core, layout)?;
        let object = memory.client_object();
        if version.symbol_is_pointer() {
            // SAFETY: the pointer is the one that LLVM's GPU libc defines for its client object, of this size. A pointer of
            // some other program to other memory gives it nothing that its kernels do not reach anyway.
            unsafe { self.code.write_where_pointed(version.symbol(), &object) }?;
        } else {
            self.code.set_variable(version.symbol(), &object)?;
        }
        Ok(Some(Arc::new(memory)))
    }

    /// Lists the addresses of constructors and destructors where the program looks for them, if it leaves that to its
    /// loader. The memory must live as long as the program runs.
    fn constructors(&self) -> Result<Vec<Arc<dyn Memory>>, Error> {
        [
            (&self.symbols.constructors, "__init_array_start", "__init_array_end"),
            (&self.symbols.destructors, "__fini_array_start", "__fini_array_end"),
        ]
        .into_iter()
        .map(|(objects, start, end)| self.address_list(objects, start, end))
        .filter_map(Result::transpose)
        .collect()
    }

    fn address_list(
        &self,
        objects: &[String],
        start: &str,
        end: &str,
    ) -> Result<Option<Arc<dyn Memory>>, Error> {
        if objects.is_empty() || self.code.variable(start)?.is_none() {
            return Ok(None);
        }
        let mut list = Vec::new();
        for object in objects {
            let address = self.code.variable(object)?.unwrap_or_default();
            list.extend(
                address
                    .first_chunk::<8>()
                    .ok_or_else(|| ProgramError::Variable { what: format!("{object} holds no address") })?,
            );
        }
        let backend = &self.device.inner.core.backend;
        let memory = backend.allocate(list.len())?;
        // SAFETY: the memory is new, and as long.
        unsafe { backend.write_now(memory.address(), &list) }?;
        let first = memory.address().get();
        self.code.set_variable(start, &first.to_le_bytes())?;
        self.code.set_variable(end, &(first + list.len() as u64).to_le_bytes())?;
        Ok(Some(memory))
    }
}

/// What happens to a program that runs.
enum Event {
    /// It ended itself.
    Ended(End),
    /// A call of it cannot go on.
    Broken(Fault),
    /// Its last kernel ended, and `main` gave this.
    Returned(i32),
    Failed(Error),
}

/// The kernel that a program runs. Once somebody has learned of the program's end, no other one begins: nobody would answer
/// its calls.
struct Stage(Mutex<Reached>);

struct Reached {
    kernel: &'static str,
    is_over: bool,
}

impl Stage {
    fn new() -> Self {
        Self(Mutex::new(Reached { kernel: image::LlvmProgram::BEGIN, is_over: false }))
    }

    /// Goes on to this kernel. Returns `false` if the program is over.
    fn begin(&self, kernel: &'static str) -> bool {
        let mut reached = self.0.lock();
        if !reached.is_over {
            reached.kernel = kernel;
        }
        !reached.is_over
    }

    /// Lets no kernel begin any more. Returns the last one that did.
    fn end(&self) -> &'static str {
        let mut reached = self.0.lock();
        reached.is_over = true;
        reached.kernel
    }
}

/// A program that runs, with all that its kernels use.
struct Session {
    program: LlvmProgram,
    stream: Stream,
    stage: Arc<Stage>,
    vectors: Vectors,
    /// Where the lanes gather what `main` returns.
    result: Arc<dyn Memory>,
    trace: Option<Source>,
    /// With what the program has of the heap.
    _memory: Option<Arc<PortMemory>>,
    _constructors: Vec<Arc<dyn Memory>>,
}

impl Session {
    fn run(self, grid: Grid, events: &Sender<Event>) {
        let event = self.kernels(grid).map_or_else(Event::Failed, Event::Returned);
        // Whoever waits for the end finds that nothing is left.
        drop(self);
        // Nobody waits for the event when the program has ended itself before.
        let _ = events.send(event);
    }

    /// Runs the kernels one after the other; gives what `main` returned.
    fn kernels(&self, grid: Grid) -> Result<i32, Error> {
        let Vectors { count, arguments, environment, .. } = self.vectors;
        let (one, result) = (Grid::new(1, 1), self.result.address());
        let [begin, start, end] = &self.program.kernels;
        let mut code = [0; 8];
        // SAFETY: the kernels of LLVM's startup code take these parameters, and the session keeps what they refer to. The
        // result is read when the kernel that wrote it has ended.
        unsafe {
            self.kernel(begin, one, &[count, arguments, environment])?;
            self.kernel(start, grid, &[count, arguments, environment, result.get()])?;
            self.program.code.core.backend.read_now(result, &mut code)?;
        }
        let code = u64::from_le_bytes(code) as i32;
        // SAFETY: as above.
        unsafe { self.kernel(end, one, &[code as u32 as u64]) }?;
        Ok(code)
    }

    /// Runs a kernel to its end. When the program is over, it is an error that nobody is told of.
    ///
    /// # Safety
    /// As for [`ProgramKernel::run`].
    unsafe fn kernel(&self, kernel: &ProgramKernel, grid: Grid, arguments: &[u64]) -> Result<(), Error> {
        if !self.stage.begin(kernel.name) {
            return Err(Error::Closed);
        }
        // The protocol does not say which kernel calls, and one runs at a time.
        let index = self.program.kernels.iter().position(|one| one.name == kernel.name).unwrap_or_default();
        let launch = LaunchId::new(index as u32, 1);
        if let Some(trace) = &self.trace {
            trace.launch_began(launch, &kernel.name.into(), grid.workgroups);
            trace.set_launch(launch);
        }
        // SAFETY: the caller's promise.
        let result = unsafe { kernel.run(&self.stream, grid, arguments) };
        if let Some(trace) = &self.trace {
            let ending = match &result {
                Ok(()) => Ending::OK,
                Err(Error::Launch { failure: LaunchFailure::Cancelled, .. }) => Ending::CANCELLED,
                Err(_) => Ending::FAILED,
            };
            trace.launch_ended(launch, ending);
        }
        result
    }
}
