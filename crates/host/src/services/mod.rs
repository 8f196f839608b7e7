//! The host's side of the services that come with hostcall: printing, panics and exit codes, standard streams,
//! files, heap, arguments and environment, clock.

mod caller;
mod clock;
mod environment;
mod error;
mod files;
mod heap;
mod print;
mod stdio;
mod system;
#[cfg(test)]
mod testing;

pub use files::OpenFiles;
pub use heap::{Block, Heap, HeapMemory, HeapUse, ProcessMemory};
pub use print::Printer;
pub(crate) use stdio::Outputs;
pub use stdio::{Stdio, Stream, Streams};
pub use system::{EarlyEnd, Panic, Report, Reports};

use crate::server::{Handler, Mode};
use caller::WithCaller;
use hostcall_abi::service::Service;
use hostcall_device::services as device;
use hostcall_device::system::System;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A handler that others hold too.
struct Shared<T>(Arc<T>);

/// The services of one device's session, with what they share.
pub struct Builtins {
    stdio: Arc<Stdio>,
    printer: Arc<Printer>,
    files: Arc<OpenFiles>,
    heap: Heap,
    reports: Reports,
    environment: Arc<environment::ProgramEnvironment>,
}

impl Builtins {
    /// Starts from: no files, no arguments and variables, the process's standard streams, and a heap of the
    /// device's memory.
    pub fn builder() -> BuiltinsBuilder {
        BuiltinsBuilder::default()
    }

    /// The services, as a server registers them.
    pub fn services(&self) -> Vec<Handler> {
        fn inline(service: impl Service) -> Handler {
            Handler::Sync(Arc::new(service), Mode::Inline)
        }
        fn blocking(service: impl Service) -> Handler {
            Handler::Sync(Arc::new(service), Mode::Blocking)
        }
        let system = system::SystemReports { reports: self.reports.clone(), printer: self.printer.clone() };
        vec![
            inline(Shared(self.printer.clone())),
            inline(WithCaller(System::serve(system))),
            inline(device::Clock::serve(clock::HostClock)),
            inline(device::Environment::serve(Shared(self.environment.clone()))),
            inline(WithCaller(device::Heap::serve(self.heap.clone()))),
            blocking(device::Files::serve(Shared(self.files.clone()))),
            blocking(device::Stdin::serve(Shared(self.stdio.clone()))),
            blocking(device::Stdout::serve(Shared(self.stdio.clone()))),
        ]
    }

    /// The standard streams: flush them when a launch has ended.
    pub fn stdio(&self) -> &Stdio {
        &self.stdio
    }

    /// The standard streams, to keep.
    pub(crate) fn stdio_shared(&self) -> Arc<Stdio> {
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

    /// The open files: close them when the device's session ends.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The heap: free what a launch leaves when it has ended.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Panics and exit codes: take a launch's when it has ended.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }
}

/// Makes [`Builtins`].
pub struct BuiltinsBuilder {
    dir: Option<PathBuf>,
    arguments: Vec<String>,
    variables: HashMap<String, String>,
    streams: Streams,
    heap: Heap,
}

impl Default for BuiltinsBuilder {
    fn default() -> Self {
        Self {
            dir: None,
            arguments: Vec::new(),
            variables: HashMap::new(),
            streams: Streams::process(),
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

    /// The program's arguments, its name first.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Takes the standard input from `input`.
    #[must_use]
    pub fn stdin(mut self, input: impl Read + Send + 'static) -> Self {
        self.streams.stdin = Box::new(input);
        self
    }

    /// Sends the standard output to `output`.
    #[must_use]
    pub fn stdout(mut self, output: impl Write + Send + 'static) -> Self {
        self.streams.stdout = Box::new(output);
        self
    }

    /// Sends the standard error to `output`.
    #[must_use]
    pub fn stderr(mut self, output: impl Write + Send + 'static) -> Self {
        self.streams.stderr = Box::new(output);
        self
    }

    /// Where kernels allocate from, and how many bytes they may hold.
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
        let files = match &self.dir {
            Some(dir) => OpenFiles::below(dir)?,
            None => OpenFiles::none(),
        };
        let stdio = Arc::new(Stdio::new(self.streams));
        let Self { arguments, variables, heap, .. } = self;
        Ok(Builtins {
            printer: Arc::new(Printer::new(stdio.clone())),
            stdio,
            files: Arc::new(files),
            heap,
            reports: Reports::default(),
            environment: Arc::new(environment::ProgramEnvironment { arguments, variables }),
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
            .flat_map(|handler| handler.methods().iter().map(|method| method.number).collect::<Vec<_>>())
            .collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
