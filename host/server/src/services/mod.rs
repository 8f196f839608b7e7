//! The host's side of the services that come with hostcall: printing, panics and exit codes, standard streams,
//! files, sockets, heap, arguments and environment, clock.

mod clock;
mod environment;
mod error;
mod files;
mod foreign;
mod heap;
mod lines;
mod net;
mod pieces;
mod print;
mod sink;
mod stdio;
mod system;
#[cfg(test)]
mod testing;

pub use files::OpenFiles;
pub(crate) use files::Permit;
pub use foreign::{CheckNumberError, Checks, FailedCheck, check_number, hold_check_numbers};
pub use heap::{Heap, HeapUse};
pub(crate) use heap::{HeapOwner, ProgramMemory};
pub use hostcall_channel::{Block, FileMapper, HeapMemory, ProcessMemory};
pub use lines::Lines;
pub use net::{NetRule, NetRuleError, OpenSockets};
pub use print::Printer;
pub(crate) use sink::Append;
pub use sink::{Sink, Stream, TakenText, Unwritten, hear_text};
pub use stdio::Stdio;
pub use system::{EarlyEnd, Panic, Report, Reports};

use crate::Handler;
use crate::engine::Threads;
use hostcall_abi::launch::LaunchId;
use hostcall_device::services as device;
use hostcall_device::system::System;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest format of C's `printf`, by whichever protocol it comes.
pub(crate) const MAX_C_FORMAT_BYTES: usize = 64 << 10;

/// Returns the launch whose call this thread handles.
fn calling_launch() -> LaunchId {
    hostcall_service::caller().map_or(LaunchId::NONE, |caller| caller.launch)
}

/// A handler that others hold too.
struct SharedHandler<T>(Arc<T>);

/// The services of one device's session, with what they share.
pub struct Builtins {
    stdio: Arc<Stdio>,
    printer: Arc<Printer>,
    files: Arc<OpenFiles>,
    sockets: Arc<OpenSockets>,
    heap: Heap,
    reports: Reports,
    checks: Arc<Checks>,
    environment: Arc<environment::ProgramEnvironment>,
}

impl Builtins {
    /// Starts from: no files, no network, no arguments and variables, the process's standard streams, and a heap of the
    /// device's memory.
    pub fn builder() -> BuiltinsBuilder {
        BuiltinsBuilder::default()
    }

    /// The services, as a server registers them.
    pub fn services(&self) -> Vec<Handler> {
        let system = system::SystemReports { reports: self.reports.clone(), printer: self.printer.clone() };
        let foreign = foreign::Foreign { stdio: self.stdio.clone(), checks: self.checks.clone() };
        let in_pieces = pieces::InPieces {
            reports: self.reports.clone(),
            checks: self.checks.clone(),
            printer: self.printer.clone(),
        };
        vec![
            Handler::inline(SharedHandler(self.printer.clone())),
            Handler::inline(in_pieces),
            Handler::inline(System::serve(system)),
            Handler::inline(device::Clock::serve(clock::HostClock)),
            Handler::inline(device::Environment::serve(SharedHandler(self.environment.clone()))),
            Handler::inline(device::Heap::serve(heap::HeapService(self.heap.clone()))),
            Handler::blocking(files::FilesInTurn::serve(self.files.clone())).on(Threads::Builtins),
            Handler::blocking(device::Folders::serve(SharedHandler(self.files.clone())))
                .on(Threads::Builtins),
            Handler::futures(device::Sockets::serve_async(SharedHandler(self.sockets.clone()))),
            Handler::blocking(device::Names::serve(SharedHandler(self.sockets.clone()))).on(Threads::Names),
            Handler::blocking(device::Stdin::serve(SharedHandler(self.stdio.clone()))).on(Threads::Input),
            Handler::blocking(device::Stdout::serve(SharedHandler(self.stdio.clone()))).on(Threads::Output),
            Handler::blocking(device::Foreign::serve(foreign)).on(Threads::Output),
        ]
    }

    /// The standard streams: flush them when a launch has ended.
    pub fn stdio(&self) -> &Stdio {
        &self.stdio
    }

    /// The standard streams, to keep.
    #[doc(hidden)]
    pub fn stdio_shared(&self) -> Arc<Stdio> {
        self.stdio.clone()
    }

    /// The open files, to keep.
    pub(crate) fn files_shared(&self) -> Arc<OpenFiles> {
        self.files.clone()
    }

    /// The printer.
    pub fn printer(&self) -> &Printer {
        &self.printer
    }

    /// The open files.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The open sockets.
    pub fn sockets(&self) -> &OpenSockets {
        &self.sockets
    }

    /// Returns the heap, which tells what launches left in it.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Checks of kernels of other compilers that have failed.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Panics and exit codes: take a launch's when it has ended.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }
}

/// Makes [`Builtins`].
pub struct BuiltinsBuilder {
    dir: Option<PathBuf>,
    open_files: Option<usize>,
    connect: Vec<NetRule>,
    listen: Vec<NetRule>,
    arguments: Vec<OsString>,
    variables: BTreeMap<OsString, OsString>,
    stdin: Box<dyn Read + Send>,
    stdout: Option<Box<dyn Write + Send>>,
    stderr: Option<Box<dyn Write + Send>>,
    output: Option<Sink>,
    lines: Lines,
    heap: Heap,
}

impl Default for BuiltinsBuilder {
    fn default() -> Self {
        Self {
            dir: None,
            open_files: None,
            connect: Vec::new(),
            listen: Vec::new(),
            arguments: Vec::new(),
            variables: BTreeMap::new(),
            stdin: Box::new(io::stdin()),
            stdout: None,
            stderr: None,
            output: None,
            lines: Lines::new(),
            heap: Heap::of_device(Self::DEFAULT_HEAP_BYTES),
        }
    }
}

impl BuiltinsBuilder {
    /// What kernels may hold of the heap when nobody says otherwise.
    pub const DEFAULT_HEAP_BYTES: u64 = 16 << 30;

    /// Opens the files below `dir` to kernels; `/` opens all.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Lets kernels have at most so many files and sockets open at a time. Unless it is said, that is half of what the system allows
    /// the process when this is built (`RLIMIT_NOFILE`), at most 4096.
    #[must_use]
    pub fn open_files(mut self, most: usize) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Lets kernels connect and send to a part of the network, by names and addresses: may be called for several. A name's
    /// addresses are open once a kernel has looked it up.
    #[must_use]
    pub fn net(mut self, open: NetRule) -> Self {
        self.connect.push(open);
        self
    }

    /// Lets kernels listen at addresses of this machine, or names of them: may be called for several.
    #[must_use]
    pub fn listen(mut self, open: NetRule) -> Self {
        self.listen.push(open);
        self
    }

    /// The program's arguments, its name first.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Takes the standard input from `input`.
    #[must_use]
    pub fn stdin(mut self, input: impl Read + Send + 'static) -> Self {
        self.stdin = Box::new(input);
        self
    }

    /// Sends the standard output to `output`.
    #[must_use]
    pub fn stdout(mut self, output: impl Write + Send + 'static) -> Self {
        self.stdout = Some(Box::new(output));
        self
    }

    /// Sends the standard error to `output`.
    #[must_use]
    pub fn stderr(mut self, output: impl Write + Send + 'static) -> Self {
        self.stderr = Some(Box::new(output));
        self
    }

    /// Sends both outputs to a sink: a writer, a callback, or `tracing`.
    #[must_use]
    pub fn output(mut self, sink: Sink) -> Self {
        self.output = Some(sink);
        self
    }

    /// Leaves lines of kernels out, or has them say where they come from.
    #[must_use]
    pub fn lines(mut self, lines: Lines) -> Self {
        self.lines = lines;
        self
    }

    /// How many bytes kernels may hold of the device's memory by calls for memory: all allocations on a GPU,
    /// and those by `hostcall_device::heap::alloc` on every device. On the software device `alloc`'s types
    /// make no such calls. [`BuiltinsBuilder::DEFAULT_HEAP_BYTES`] if it is not said.
    #[must_use]
    pub fn heap_limit(mut self, bytes: u64) -> Self {
        self.heap = Heap::of_device(bytes);
        self
    }

    /// The same, of other memory than the device's, which the device must reach: the software device reaches
    /// all of the process ([`ProcessMemory`]), a GPU does not.
    #[must_use]
    pub fn heap(mut self, memory: impl HeapMemory, limit_bytes: u64) -> Self {
        self.heap = Heap::new(memory, limit_bytes);
        self
    }

    /// The services.
    ///
    /// # Errors
    /// When the directory of files cannot be opened.
    pub fn build(self) -> io::Result<Builtins> {
        let (files, current_dir) = match &self.dir {
            Some(dir) => (OpenFiles::below(dir)?, Some(environment::current_dir(dir)?)),
            None => (OpenFiles::none(), None),
        };
        let files = match self.open_files {
            Some(most) => files.with_bound(most),
            None => files,
        };
        let files = Arc::new(files);
        let sockets = Arc::new(OpenSockets::new(self.connect, self.listen, files.clone()));
        let Self { arguments, variables, heap, stdin, stdout, stderr, output, lines, .. } = self;
        let sink = output.unwrap_or_else(|| {
            Sink::writers(
                stdout.unwrap_or_else(|| Box::new(io::stdout())),
                stderr.unwrap_or_else(|| Box::new(io::stderr())),
            )
        });
        let stdio = Arc::new(Stdio::new(stdin, sink).with_lines(lines));
        Ok(Builtins {
            printer: Arc::new(Printer::new(stdio.clone())),
            stdio,
            files,
            sockets,
            heap,
            reports: Reports::default(),
            checks: Arc::default(),
            environment: Arc::new(environment::ProgramEnvironment { arguments, variables, current_dir }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_taken_twice() {
        let builtins = Builtins::builder().stdin(io::empty()).build().unwrap();
        let mut numbers: Vec<u16> = builtins
            .services()
            .iter()
            .flat_map(|handler| handler.methods().iter().map(|method| method.number()).collect::<Vec<_>>())
            .collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
