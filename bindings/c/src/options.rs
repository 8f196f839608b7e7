//! What a device is opened with.

use crate::error::{Failure, c_text};
use crate::functions::functions;
use crate::handle::{fits, get};
use crate::service::{Offered, Places};
use hostcall::device::{DeviceBuilder, SoftwareDeviceConfig};
use hostcall::services::{Builtins, HeapMemory, Sink, Stream};
use hostcall::{Device, services};
use std::ffi::{OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A number that a device is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_setting {
    /// Lanes of the software device's waves: 32 or 64.
    WaveLanes = 1,
    /// Threads that run lanes of the software device, at most 4096.
    DeviceThreads = 2,
    /// How long lanes of the software device may take to end after they were cancelled, in ns.
    CancelGraceNs = 3,
    /// Call slots, at most 65,536 with some extra ones.
    Slots = 4,
    /// Most threads for handlers that wait, at least one.
    HandlerThreads = 5,
    /// Most bytes of a message or a reply.
    MessageLimitBytes = 6,
    /// Most bytes of all messages and replies that are held.
    MessagesLimitBytes = 7,
    /// Most files that kernels have open at a time.
    OpenFiles = 8,
    /// Bytes of stack of each lane; on a GPU at least so many, where the compiler cannot know how many a lane needs: by itself
    /// it has 16 KiB there on AMD's GPUs and 8 KiB on NVIDIA's, and 64 KiB on the software device.
    StackBytes = 9,
}

/// What a device is opened with. One thread at a time uses it. It is the caller's until hostcall_device_open takes it.
pub struct hostcall_options {
    builder: Option<DeviceBuilder>,
    builtins: Option<services::BuiltinsBuilder>,
    software: SoftwareDeviceConfig,
    arguments: Vec<OsString>,
    places: Arc<Places>,
}

/// Gets what kernels print: `stream` is 1 for the standard output and 2 for the standard error, `text` has `len` bytes and
/// no zero at its end. One thread at a time calls it, of the library's.
pub type hostcall_output_function =
    Option<unsafe extern "C" fn(state: *mut c_void, stream: c_int, text: *const c_char, len: usize)>;

/// Gets a sentence about a call that waits. One of the library's threads calls it.
pub type hostcall_report_function = Option<unsafe extern "C" fn(state: *mut c_void, text: *const c_char)>;

impl hostcall_options {
    pub(crate) fn change(&mut self, change: impl FnOnce(DeviceBuilder) -> DeviceBuilder) {
        self.builder = self.builder.take().map(change);
    }

    fn change_builtins(
        &mut self,
        change: impl FnOnce(services::BuiltinsBuilder) -> services::BuiltinsBuilder,
    ) {
        self.builtins = self.builtins.take().map(change);
    }

    fn set(&mut self, setting: u32, value: u64) -> Result<(), Failure> {
        use hostcall_setting as is;
        let [wave, threads, grace, slots, handlers, message, messages, files, stack] = [
            is::WaveLanes,
            is::DeviceThreads,
            is::CancelGraceNs,
            is::Slots,
            is::HandlerThreads,
            is::MessageLimitBytes,
            is::MessagesLimitBytes,
            is::OpenFiles,
            is::StackBytes,
        ]
        .map(|setting| setting as u32);
        let size = || fits::<usize>(value, "a size");
        match setting {
            _ if setting == wave => self.software.wave_size = fits(value, "lanes of a wave")?,
            _ if setting == threads => self.software.threads = size()?.max(1),
            _ if setting == grace => self.software.cancel_grace = Duration::from_nanos(value),
            _ if setting == slots => {
                let slots = fits(value, "slots")?;
                self.change(|builder| builder.slots(slots));
            }
            _ if setting == handlers => {
                let threads = size()?;
                self.change(|builder| builder.server(move |server| server.handler_threads(threads)));
            }
            _ if setting == message => {
                let bytes = size()?;
                self.change(|builder| builder.server(move |server| server.message_limit(bytes)));
            }
            _ if setting == messages => {
                let bytes = size()?;
                self.change(|builder| builder.server(move |server| server.messages_limit(bytes)));
            }
            _ if setting == files => {
                let files = size()?;
                self.change_builtins(|builtins| builtins.open_files(files));
            }
            _ if setting == stack => {
                let bytes = size()?;
                self.change(|builder| builder.stack_bytes(bytes));
            }
            _ => {
                return Err(Failure::invalid(format!(
                    "there is no setting {setting}: pass a hostcall_setting"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn heap(&mut self, memory: impl HeapMemory, limit_bytes: u64) {
        self.change_builtins(|builtins| builtins.heap(memory, limit_bytes));
    }

    pub(crate) fn heap_limit(&mut self, bytes: u64) {
        self.change_builtins(|builtins| builtins.heap_limit(bytes));
    }

    /// Makes what kernels get of the host, for a server without a device.
    pub(crate) fn builtins(self) -> Result<Builtins, Failure> {
        let Some(builtins) = self.builtins else { return Err(Self::broken()) };
        Ok(builtins.args(self.arguments).build().map_err(hostcall::Error::Builtins)?)
    }

    fn broken() -> Failure {
        Failure::invalid("a panic broke the options: make others")
    }

    /// Opens the device.
    pub(crate) fn open(self) -> Result<Device, Failure> {
        let Self { builder, builtins, software, arguments, places } = self;
        let (Some(builder), Some(builtins)) = (builder, builtins) else {
            return Err(Self::broken());
        };
        let builtins = builtins.args(arguments).build().map_err(hostcall::Error::Builtins)?;
        let device = builder.software(software).builtins(builtins).open()?;
        places.set(&device);
        Ok(device)
    }
}

fn file_of(descriptor: c_int) -> Result<File, Failure> {
    if descriptor < 0 {
        return Err(Failure::invalid(
            "a file descriptor is no negative number: pass an open one, or -1 to leave the stream",
        ));
    }
    // SAFETY: it is no -1. CALLER: it stays open while the function runs, which is all that this borrows.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let copy = borrowed.try_clone_to_owned();
    copy.map(File::from).map_err(|error| Failure::invalid(format!("file descriptor {descriptor}: {error}")))
}

functions! {
    /// Makes options for the device of this name: "cpu" is the software device, "cuda:0" the first NVIDIA GPU, "amdgpu:0" the
    /// first AMD GPU, "gfx942" an AMD GPU in software. Kernels get no files, no arguments and no environment, and the process's
    /// standard streams. The caller frees them, or opens a device with them.
    make hostcall_options_new(device_name: &str) -> hostcall_options as options {
        hostcall_options {
            builder: Some(Device::builder(device_name)),
            builtins: Some(Builtins::builder()),
            software: SoftwareDeviceConfig::default(),
            arguments: Vec::new(),
            places: Arc::default(),
        }
    }

    /// Frees options and what was given with them, and sets the handle to NULL. NULL is let be.
    free hostcall_options_free(options: hostcall_options) { drop(options) }

    /// Sets a number, one of hostcall_setting.
    run hostcall_options_set(options: &mut hostcall_options, setting: u32, value: u64) {
        options.set(setting, value)?
    }

    /// Opens the files below the folder `path` to kernels; "/" opens all. hostcall_device_open fails when there is no such folder.
    run hostcall_options_dir(options: &mut hostcall_options, path: &OsStr) {
        options.change_builtins(|builtins| builtins.dir(path));
    }

    /// Adds an argument of the kernels' program; the first is the program's name.
    run hostcall_options_argument(options: &mut hostcall_options, argument: &OsStr) {
        options.arguments.push(argument.to_owned());
    }

    /// Sets a variable of the kernels' environment.
    run hostcall_options_variable(options: &mut hostcall_options, name: &OsStr, value: &OsStr) {
        if name.is_empty() || name.as_encoded_bytes().contains(&b'=') {
            return Err(Failure::invalid(
                "`name` is empty or has a `=`: pass a variable's name, and its value as `value`",
            ));
        }
        options.change_builtins(|builtins| builtins.env(name, value));
    }

    /// Sends what kernels print to `write`. `free_state` gets `state` when nothing is written any more, or when this function
    /// fails.
    run hostcall_options_output(options: &mut hostcall_options, write: hostcall_output_function; state) {
        let write = get(write, "write")?;
        let sink = Sink::callback(move |stream, text| {
            let number = if stream == Stream::Stdout { 1 } else { 2 };
            // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
            unsafe { write(state.pointer(), number, text.as_ptr().cast(), text.len()) }
        });
        options.change_builtins(|builtins| builtins.output(sink));
    }

    /// Gives kernels file descriptors for their standard streams, of which the library makes copies; -1 leaves a stream as it
    /// is.
    run hostcall_options_descriptors(
        options: &mut hostcall_options,
        input: c_int,
        output: c_int,
        error_output: c_int,
    ) {
        let file = |descriptor| if descriptor == -1 { Ok(None) } else { file_of(descriptor).map(Some) };
        let (input, output, error_output) = (file(input)?, file(output)?, file(error_output)?);
        options.change_builtins(|mut builtins| {
            if let Some(file) = input {
                builtins = builtins.stdin(file);
            }
            if let Some(file) = output {
                builtins = builtins.stdout(file);
            }
            if let Some(file) = error_output {
                builtins = builtins.stderr(file);
            }
            builtins
        });
    }

    /// Calls `report` once for each call that has waited for `after_ns`. Without it that is 5 s, and a line on the standard
    /// error. `free_state` gets `state` when nothing is reported any more, or when this function fails.
    run hostcall_options_stall_report(
        options: &mut hostcall_options,
        after_ns: u64,
        report: hostcall_report_function;
        state
    ) {
        let (report, after) = (get(report, "report")?, Duration::from_nanos(after_ns));
        options.change(|builder| {
            builder.server(move |server| {
                server.stall_report(after, move |waiting| {
                    let text = c_text(&waiting.to_string());
                    // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
                    unsafe { report(state.pointer(), text.as_ptr()) }
                })
            })
        });
    }

    /// Calls `report` with a sentence for each thing that kernels or handlers of ROCm's protocol did and must not, at most 16 times
    /// for each of the device's hostcall buffers, besides lost messages. Without it that is a line on the standard error.
    /// `free_state` gets `state` when nothing is reported any more, or when this function fails.
    run hostcall_options_rocm_report(
        options: &mut hostcall_options,
        report: hostcall_report_function;
        state
    ) {
        let report = get(report, "report")?;
        options.change(|builder| {
            builder.rocm(hostcall::rocm::Options::default().on_fault(move |fault| {
                let text = c_text(&fault.to_string());
                // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
                unsafe { report(state.pointer(), text.as_ptr()) }
            }))
        });
    }

    /// Adds a service. What `service` points to is copied; its `free_state` gets its `state` when the device has ended and no
    /// handler runs any more, on any thread, or when this function fails.
    run hostcall_options_service(options: &mut hostcall_options, service: Offered<'_>) {
        let is_inline = service.is_inline();
        // SAFETY: CALLER.
        let served = unsafe { service.accept(&options.places) }?;
        options.change(|builder| if is_inline { builder.inline_service(served) } else { builder.service(served) });
    }
}
