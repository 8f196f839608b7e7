//! What a device is opened with.

use crate::error::{Failure, hostcall_error, hostcall_status, run};
use crate::handle::{self, Out, State, fits, get, hostcall_free_function, place, put, system_text, text};
use crate::service::{Places, Served, hostcall_service};
use hostcall::device::{DeviceBuilder, SoftwareDeviceConfig};
use hostcall::services::{Builtins, Sink, Stream};
use hostcall::{Device, services};
use std::ffi::{OsString, c_char, c_int, c_void};
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

    /// Opens the device.
    pub(crate) fn open(self) -> Result<Device, Failure> {
        let Self { builder, builtins, software, arguments, places } = self;
        let (Some(builder), Some(builtins)) = (builder, builtins) else {
            return Err(Failure::invalid("a panic broke the options: make others"));
        };
        let builtins = builtins.args(arguments).build().map_err(hostcall::Error::Builtins)?;
        let device = builder.software(software).builtins(builtins).open()?;
        places.set(&device);
        Ok(device)
    }
}

/// Makes options for the device of this name: "cpu" is the software device, "cuda:0" the first NVIDIA GPU, "amdgpu:0" the
/// first AMD GPU, "gfx942" an AMD GPU in software. Kernels get no files, no arguments and no environment, and the process's
/// standard streams. The caller frees them, or opens a device with them.
pub unsafe extern "C" fn hostcall_options_new(
    device_name: *const c_char,
    options: Out<'_, hostcall_options>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(options, "options")?;
        // SAFETY: CALLER.
        let name = unsafe { text(device_name, "device_name") }?;
        let made = hostcall_options {
            builder: Some(Device::builder(name)),
            builtins: Some(Builtins::builder()),
            software: SoftwareDeviceConfig::default(),
            arguments: Vec::new(),
            places: Arc::default(),
        };
        put(place, made);
        Ok(())
    })
}

/// Frees options and what was given with them, and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_options_free(options: Option<&mut *mut hostcall_options>) {
    handle::free(options);
}

/// Sets a number, one of hostcall_setting.
pub extern "C" fn hostcall_options_set(
    options: Option<&mut hostcall_options>,
    setting: u32,
    value: u64,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || get(options, "options")?.set(setting, value))
}

/// Opens the files below the folder `path` to kernels; "/" opens all. hostcall_device_open fails when there is no such folder.
pub unsafe extern "C" fn hostcall_options_dir(
    options: Option<&mut hostcall_options>,
    path: *const c_char,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        // SAFETY: CALLER.
        let path = unsafe { system_text(path, "path") }?;
        get(options, "options")?.change_builtins(|builtins| builtins.dir(path));
        Ok(())
    })
}

/// Adds an argument of the kernels' program; the first is the program's name.
pub unsafe extern "C" fn hostcall_options_argument(
    options: Option<&mut hostcall_options>,
    argument: *const c_char,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        // SAFETY: CALLER.
        let argument = unsafe { system_text(argument, "argument") }?;
        get(options, "options")?.arguments.push(argument.to_owned());
        Ok(())
    })
}

/// Sets a variable of the kernels' environment.
pub unsafe extern "C" fn hostcall_options_variable(
    options: Option<&mut hostcall_options>,
    name: *const c_char,
    value: *const c_char,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        // SAFETY: CALLER.
        let (name, value) = unsafe { (system_text(name, "name")?, system_text(value, "value")?) };
        if name.is_empty() || name.as_encoded_bytes().contains(&b'=') {
            return Err(Failure::invalid(
                "`name` is empty or has a `=`: pass a variable's name, and its value as `value`",
            ));
        }
        get(options, "options")?.change_builtins(|builtins| builtins.env(name, value));
        Ok(())
    })
}

/// Sends what kernels print to `write`. `free_state` gets `state` when nothing is written any more, or when this function
/// fails.
pub extern "C" fn hostcall_options_output(
    options: Option<&mut hostcall_options>,
    write: hostcall_output_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let write = get(write, "write")?;
        let sink = Sink::callback(move |stream, text| {
            let number = if stream == Stream::Stdout { 1 } else { 2 };
            // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
            unsafe { write(state.pointer(), number, text.as_ptr().cast(), text.len()) }
        });
        get(options, "options")?.change_builtins(|builtins| builtins.output(sink));
        Ok(())
    })
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

/// Gives kernels file descriptors for their standard streams, of which the library makes copies; -1 leaves a stream as it
/// is.
pub extern "C" fn hostcall_options_descriptors(
    options: Option<&mut hostcall_options>,
    input: c_int,
    output: c_int,
    error_output: c_int,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let options = get(options, "options")?;
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
        Ok(())
    })
}

/// Calls `report` once for each call that has waited for `after_ns`. Without it that is 5 s, and a line on the standard
/// error. `free_state` gets `state` when nothing is reported any more, or when this function fails.
pub extern "C" fn hostcall_options_stall_report(
    options: Option<&mut hostcall_options>,
    after_ns: u64,
    report: hostcall_report_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let (report, after) = (get(report, "report")?, Duration::from_nanos(after_ns));
        get(options, "options")?.change(|builder| {
            builder.server(move |server| {
                server.stall_report(after, move |waiting| {
                    let text = crate::error::c_text(&waiting.to_string());
                    // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
                    unsafe { report(state.pointer(), text.as_ptr()) }
                })
            })
        });
        Ok(())
    })
}

/// Calls `report` with a sentence for each thing that kernels or handlers of ROCm's protocol did and must not, at most 16 times
/// for each of the device's hostcall buffers, besides lost messages. Without it that is a line on the standard error.
/// `free_state` gets `state` when nothing is reported any more, or when this function fails.
pub extern "C" fn hostcall_options_rocm_report(
    options: Option<&mut hostcall_options>,
    report: hostcall_report_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let report = get(report, "report")?;
        get(options, "options")?.change(|builder| {
            builder.rocm(hostcall::rocm::Options::default().on_fault(move |fault| {
                let text = crate::error::c_text(&fault.to_string());
                // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
                unsafe { report(state.pointer(), text.as_ptr()) }
            }))
        });
        Ok(())
    })
}

/// Adds a service. What `service` points to is copied; its `free_state` gets its `state` when the device has ended and no
/// handler runs any more, on any thread, or when this function fails.
pub unsafe extern "C" fn hostcall_options_service(
    options: Option<&mut hostcall_options>,
    service: Option<&hostcall_service>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let service = get(service, "service")?;
        let state = State::new(service.state, service.free_state);
        let options = get(options, "options")?;
        // SAFETY: CALLER.
        let served = unsafe { Served::new(service, state, &options.places) }?;
        options.change(|builder| match service.is_inline {
            true => builder.inline_service(served),
            false => builder.service(served),
        });
        Ok(())
    })
}
