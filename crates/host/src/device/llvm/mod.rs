//! Programs that were linked with LLVM's GPU libc: loading and running them from start to end.
//!
//! Such a program has three kernels. `_begin` runs its constructors in one lane, `_start` runs `main` in every lane
//! of the grid, `_end` runs its destructors in one lane and exits. It calls the host by LLVM's protocol, which a
//! server of its own answers (see [`crate::llvm`]) with the device's streams, files and heap.

mod code;
mod vectors;

#[cfg(test)]
mod tests;

pub(crate) use code::{ProgramCode, ProgramKernel, port_memory};

use super::backend::Memory;
use super::{Device, Error, Grid, LaunchFailure};
use crate::image::{self, Calls, ImageInfo};
use crate::llvm::{End, Layout, LlvmServer, Options, PortMemory};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use vectors::Vectors;

/// Ports when nobody names a number: as many as LLVM's own loaders give.
const DEFAULT_PORTS: u32 = 4096;

/// How long the last calls of a program that has ended may take to be answered.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// Variable of the device's clock's frequency, in programs for devices whose clocks differ.
const CLOCK_SYMBOL: &str = "__llvm_libc_clock_freq";

/// A loaded program that was linked with LLVM's GPU libc. It runs once: its variables are then no longer new.
pub struct LlvmProgram {
    device: Device,
    symbols: image::LlvmProgram,
    code: Box<dyn ProgramCode>,
    kernels: [Box<dyn ProgramKernel>; 3],
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
        }
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
    /// asked for.
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
    /// Loads a program that was linked with LLVM's GPU libc. Lanes get stacks of at least `stack_bytes` bytes, if
    /// it is given.
    ///
    /// # Errors
    /// When it is no such program, was built for another device, or the device runs none.
    pub fn load_llvm(
        &self,
        program: impl AsRef<Path>,
        stack_bytes: Option<usize>,
    ) -> Result<LlvmProgram, Error> {
        let path = program.as_ref().display();
        let bytes =
            std::fs::read(&program).map_err(|error| Error::Device(format!("cannot read {path}: {error}")))?;
        let says = |what: &dyn fmt::Display| Error::Device(format!("{path}: {what}"));
        let ImageInfo { target, calls } = image::identify(&bytes).map_err(|why| says(&why))?;
        let Calls::Llvm(symbols) = calls else {
            return Err(says(&"it is no program that was linked with LLVM's GPU libc"));
        };
        if !target.runs_on(&self.target()) {
            let (device, has) = (self.name(), self.target());
            return Err(says(&format!(
                "it was built for {target}, and {device} is {has}: build it for that"
            )));
        }
        let code = self.inner.backend.load_llvm(&bytes, stack_bytes).map_err(|why| says(&why))?;
        LlvmProgram::new(self.clone(), symbols, code)
    }
}

impl LlvmProgram {
    fn new(device: Device, symbols: image::LlvmProgram, code: Box<dyn ProgramCode>) -> Result<Self, Error> {
        if let Some(bytes) = symbols.unknown_client {
            return Err(Error::Device(format!(
                "the program's LLVM has a client of {bytes} bytes for its calls, which this version of hostcall does \
                 not know: link it with LLVM 19 or a release that is not much later"
            )));
        }
        let kernel = |name| code.kernel(name).map_err(Error::Device);
        let kernels = [
            kernel(image::LlvmProgram::BEGIN)?,
            kernel(image::LlvmProgram::START)?,
            kernel(image::LlvmProgram::END)?,
        ];
        Ok(Self { device, symbols, code, kernels })
    }

    /// What its kernels need of the device.
    pub fn resources(&self) -> Vec<KernelResources> {
        self.kernels.iter().map(|kernel| kernel.resources()).collect()
    }

    /// Runs the program to its end.
    ///
    /// When it ends itself in the middle of `main`, other lanes may go on: nothing ends a GPU's kernel but the end of
    /// the process. Their calls are not answered any more then.
    ///
    /// # Errors
    /// [`Error::Launch`] when a kernel fails, and others when the program cannot be started.
    pub fn run(self, mut run: LlvmRun) -> Result<End, Error> {
        run.grid.check()?;
        let (events, happened) = mpsc::channel();
        let memory = self.port_memory(run.ports)?;
        let server = match &memory {
            Some(memory) => {
                let ended = events.clone();
                // The receiver is gone when the program's end is known already.
                let options = run.server.on_end(move |end| _ = ended.send(Event::Ended(end)));
                let server = LlvmServer::start(memory.clone(), self.device.builtins(), options);
                Some(server.map_err(|error| Error::Device(format!("no thread for a server: {error}")))?)
            }
            None => None,
        };
        if let (Some(server), Some(prepare)) = (&server, run.prepare.take()) {
            run.arguments.extend(prepare(server));
        }
        let constructors = self.constructors()?;
        if self.code.variable(CLOCK_SYMBOL).map_err(Error::Device)?.is_some() {
            let frequency = self.code.clock_hz().to_le_bytes();
            self.code.set_variable(CLOCK_SYMBOL, &frequency).map_err(Error::Device)?;
        }
        let inner = &self.device.inner;
        let vectors = Vectors::new(inner, &run.arguments, &run.environment)?;
        let result = inner.backend.allocate(size_of::<u64>()).map_err(Error::Device)?;
        let session =
            Session { program: self, vectors, result, _memory: memory, _constructors: constructors };
        std::thread::Builder::new()
            .name("hostcall-program".into())
            .spawn(move || session.run(run.grid, &events))
            .map_err(|error| Error::Device(format!("no thread for a program: {error}")))?;
        let mut in_last_kernel = false;
        loop {
            match happened.recv().expect("the session tells its end") {
                Event::LastKernel => in_last_kernel = true,
                Event::Failed(error) => return Err(error),
                Event::Ended(end) => {
                    if in_last_kernel {
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
                    return Ok(if let Ok(Event::Ended(end)) = last { end } else { End::Exited(code) });
                }
            }
        }
    }

    /// Memory for the program's calls, if it makes any, which it is told of.
    fn port_memory(&self, ports: u32) -> Result<Option<Arc<PortMemory>>, Error> {
        let Some(version) = self.symbols.version else { return Ok(None) };
        let inner = &self.device.inner;
        let layout = Layout::new(version, ports.min(version.max_ports()), inner.backend.wave_size())
            .map_err(|error| Error::Device(error.to_string()))?;
        let memory = code::port_memory(inner, layout)?;
        let object = memory.client_object();
        let written = if version.symbol_is_pointer() {
            self.code.write_where_pointed(version.symbol(), &object)
        } else {
            self.code.set_variable(version.symbol(), &object)
        };
        written.map_err(Error::Device)?;
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
        .map(|(objects, start, end)| self.address_list(objects, start, end).map_err(Error::Device))
        .filter_map(Result::transpose)
        .collect()
    }

    fn address_list(
        &self,
        objects: &[String],
        start: &str,
        end: &str,
    ) -> Result<Option<Arc<dyn Memory>>, String> {
        if objects.is_empty() || self.code.variable(start)?.is_none() {
            return Ok(None);
        }
        let mut list = Vec::new();
        for object in objects {
            let address = self.code.variable(object)?.unwrap_or_default();
            list.extend(address.first_chunk::<8>().ok_or_else(|| format!("{object} holds no address"))?);
        }
        let memory = self.device.inner.backend.allocate(list.len())?;
        memory.write(0, &list)?;
        let first = memory.address();
        self.code.set_variable(start, &first.to_le_bytes())?;
        self.code.set_variable(end, &(first + list.len() as u64).to_le_bytes())?;
        Ok(Some(memory))
    }
}

/// What happens to a program that runs.
enum Event {
    /// Its last kernel is about to start.
    LastKernel,
    /// It ended itself.
    Ended(End),
    /// Its last kernel ended, and `main` gave this.
    Returned(i32),
    Failed(Error),
}

/// A program that runs, with all that its kernels use.
struct Session {
    program: LlvmProgram,
    vectors: Vectors,
    /// Where the lanes gather what `main` returns.
    result: Arc<dyn Memory>,
    _memory: Option<Arc<PortMemory>>,
    _constructors: Vec<Arc<dyn Memory>>,
}

impl Session {
    fn run(self, grid: Grid, events: &Sender<Event>) {
        // Nobody waits for the event when the program has ended itself before.
        let _ = events.send(self.kernels(grid, events).map_or_else(Event::Failed, Event::Returned));
    }

    /// Runs the kernels one after the other; gives what `main` returned.
    fn kernels(&self, grid: Grid, events: &Sender<Event>) -> Result<i32, Error> {
        let Vectors { count, arguments, environment, .. } = self.vectors;
        let one = Grid::new(1, 1);
        let [begin, start, end] = &self.program.kernels;
        self.kernel(&**begin, one, &mut [count, arguments, environment])?;
        self.kernel(&**start, grid, &mut [count, arguments, environment, self.result.address()])?;
        let mut code = [0; 8];
        self.result.read(0, &mut code).map_err(Error::Device)?;
        let code = u64::from_le_bytes(code) as i32;
        let _ = events.send(Event::LastKernel);
        self.kernel(&**end, one, &mut [code as u32 as u64])?;
        Ok(code)
    }

    fn kernel(&self, kernel: &dyn ProgramKernel, grid: Grid, arguments: &mut [u64]) -> Result<(), Error> {
        let failed = |failure: LaunchFailure| Error::Launch { kernel: kernel.resources().kernel, failure };
        let running = kernel.start(grid, arguments).map_err(failed)?;
        running.wait(None).expect("without a timeout the wait ends with the launch").map_err(failed)
    }
}
