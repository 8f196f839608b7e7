//! Memory that host and kernels share, and kernels of other compilers that are launched from here.

use crate::channel::RawChannel;
use crate::device::{RawContext, failed, limit, refuse_wait, wait};
use crate::posts::RawPostQueue;
use crate::released::DropsFree;
use hostcall::device::{Launch, PinnedBuffer};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::{Device, Grid, Stream};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long a wait for a launch that failed may take besides.
const LONGEST_TELLING: Duration = Duration::from_secs(1);

/// Pinned memory, which the host and kernels access at the same time.
#[pyclass(frozen)]
pub struct RawBuffer {
    buffer: DropsFree<PinnedBuffer<u64>>,
}

impl RawBuffer {
    pub fn new(device: &Device, bytes: usize) -> PyResult<Self> {
        let buffer = device.pinned(bytes.div_ceil(8).max(1)).map_err(failed)?;
        Ok(Self { buffer: DropsFree::new(buffer) })
    }

    /// Writes words to its beginning, for kernels that begin later.
    pub fn write(&self, bytes: &[u8]) {
        for (word, bytes) in self.buffer.iter().zip(bytes.as_chunks::<8>().0) {
            word.set(u64::from_le_bytes(*bytes));
        }
    }
}

#[pymethods]
impl RawBuffer {
    /// Returns where it lies for the host.
    fn host_address(&self) -> usize {
        self.buffer.host_address().as_ptr().addr()
    }

    /// Returns where it lies for kernels.
    fn address(&self) -> u64 {
        self.buffer.address().get()
    }
}

/// A code object, with a stream of its own.
#[pyclass(frozen)]
pub struct RawCode {
    code: CodeObject,
    stream: Arc<DropsFree<Stream>>,
    /// The thread that calls functions for its kernels.
    interpreter: ThreadId,
}

impl RawCode {
    pub fn load(device: &Device, path: PathBuf, interpreter: ThreadId) -> PyResult<Self> {
        let code = device.load_code_object(path, Version::Stacks).map_err(failed)?;
        let stream = Arc::new(DropsFree::new(device.stream().map_err(failed)?));
        Ok(Self { code, stream, interpreter })
    }
}

/// An argument of a kernel.
#[derive(FromPyObject)]
pub enum Argument<'py> {
    Context(PyRef<'py, RawContext>),
    Buffer(PyRef<'py, RawBuffer>),
    Channel(PyRef<'py, RawChannel>),
    PostQueue(PyRef<'py, RawPostQueue>),
    Value(Vec<u8>),
}

#[pymethods]
impl RawCode {
    fn launch(
        &self,
        py: Python<'_>,
        kernel: &str,
        blocks: [u32; 3],
        threads: [u32; 3],
        shared: u32,
        arguments: Vec<Argument<'_>>,
    ) -> PyResult<RawLaunch> {
        let grid = Grid { workgroup_memory_bytes: shared, ..Grid::new_3d(blocks, threads) };
        let argument = |argument: &Argument<'_>| {
            Ok(match argument {
                Argument::Context(context) => KernelArgument::context(&*context.context()?),
                Argument::Buffer(buffer) => KernelArgument::pinned(&buffer.buffer),
                Argument::Channel(channel) => channel.argument()?,
                Argument::PostQueue(queue) => queue.argument()?,
                Argument::Value(bytes) => KernelArgument::bytes(bytes),
            })
        };
        let arguments = arguments.iter().map(argument).collect::<PyResult<Vec<_>>>()?;
        let launched = py.detach(|| {
            let kernel = self.code.kernel(kernel)?;
            // SAFETY: who launches a kernel from Python says that it does no harm, as with every foreign function.
            unsafe { kernel.launch(&self.stream, grid, &arguments) }
        });
        let (launch, stream) = (launched.map_err(failed)?, self.stream.clone());
        Ok(RawLaunch { launch, stream, interpreter: self.interpreter })
    }
}

#[pyclass(frozen)]
pub struct RawLaunch {
    launch: Launch,
    stream: Arc<DropsFree<Stream>>,
    interpreter: ThreadId,
}

impl RawLaunch {
    /// Has the stream go on after a failure, for which somebody must have been told of it. That takes no time: until then
    /// nothing else begins. Where it was told before, others may run, for which nobody waits here.
    fn go_on(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<()> {
        let longest = Instant::now() + LONGEST_TELLING;
        let deadline = deadline.map_or(longest, |deadline| deadline.min(longest));
        loop {
            let synchronized = py.detach(|| self.stream.synchronize_for(Duration::from_millis(50)));
            py.check_signals()?;
            let is_over = !matches!(synchronized, Err(hostcall::Error::TimedOut { .. }));
            if is_over || deadline <= Instant::now() {
                return Ok(());
            }
        }
    }
}

#[pymethods]
impl RawLaunch {
    fn is_done(&self) -> bool {
        self.launch.is_done()
    }

    /// Waits until the kernel has ended.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = limit(timeout)?.and_then(|limit| Instant::now().checked_add(limit));
        if !self.launch.is_done() {
            refuse_wait(self.interpreter)?;
        }
        let unfinished = format!("{} has not ended", self.launch.kernel());
        wait(py, deadline, &unfinished, || Ok(self.launch.is_done()))?;
        let Err(error) = py.detach(|| self.launch.wait()) else { return Ok(()) };
        self.go_on(py, deadline)?;
        Err(failed(error))
    }
}
