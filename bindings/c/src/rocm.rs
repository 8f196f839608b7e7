//! Kernels that other compilers made for AMD's GPUs, and the host's side of ROCm's protocol.

use crate::buffer::{hostcall_buffer, hostcall_pinned};
use crate::context::hostcall_context;
use crate::device::hostcall_device;
use crate::error::{Failure, hostcall_status};
use crate::functions::functions;
use crate::handle::{State, get, values};
use crate::launch::{hostcall_grid, hostcall_launch};
use crate::raw::hostcall_raw_channel;
use crate::stream::hostcall_stream;
use hostcall::rocm::{CodeObject, CodeObjectKernel, KernelArgument, Mode, ServiceTaken, Services, Version};
use hostcall::server::static_name;
use std::ffi::{OsStr, c_void};
use std::mem::MaybeUninit;

/// A code object: kernels in HIP, OpenCL C or C for an AMD GPU, or for the device "gfx942". Any thread may use it; it is the
/// caller's, who frees it.
pub struct hostcall_rocm_code(CodeObject);

/// A kernel of a code object. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_rocm_kernel(CodeObjectKernel);

/// Handlers of ROCm's services that are no device's. Any thread may use them; the handle is the caller's, who frees it.
pub struct hostcall_rocm_services(pub(crate) Services);

/// The version of ROCm's protocol that a code object's kernels were compiled with. The file does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_rocm_version {
    /// Packets in two stacks: device libraries until 2026.
    Stacks = 1,
    /// Packets with phases: device libraries since then.
    Phases = 2,
}

/// What an argument of a code object's kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_rocm_kind {
    /// A value: a number, or a struct as C lays it out.
    Value = 1,
    /// The address of a buffer's values, which the kernel may write: what else uses them comes before the launch or after it.
    Buffer = 2,
    /// The address of a buffer's values, which the kernel only reads: others may read them at the same time.
    Input = 3,
    /// The address of a pinned buffer's values, which host and kernel may access at the same time.
    Pinned = 4,
    /// A raw channel, for a parameter that is a `struct hostcall_raw_stream` of hostcall_device.h, by value.
    Raw = 5,
    /// A context, for a parameter of 64 bits: each launch and each replay gets an address of its own, by which its calls are the
    /// launch's. With hostcall_context_address as a value they are the context's.
    Context = 6,
}

/// What an argument of a code object's kernel refers to, by its kind.
#[repr(C)]
pub union hostcall_rocm_value {
    /// HOSTCALL_ROCM_KIND_VALUE: `bytes` bytes, which are copied.
    pub bytes: *const c_void,
    /// HOSTCALL_ROCM_KIND_BUFFER, HOSTCALL_ROCM_KIND_INPUT.
    pub buffer: *const hostcall_buffer,
    /// HOSTCALL_ROCM_KIND_PINNED.
    pub pinned: *const hostcall_pinned,
    /// HOSTCALL_ROCM_KIND_RAW.
    pub raw: *const hostcall_raw_channel,
    /// HOSTCALL_ROCM_KIND_CONTEXT.
    pub context: *const hostcall_context,
}

/// An argument of a code object's kernel.
#[repr(C)]
pub struct hostcall_rocm_argument {
    /// One of hostcall_rocm_kind.
    pub kind: u32,
    /// How many bytes a value has; of other kinds it is not looked at.
    pub bytes: usize,
    /// The value, the buffer, the channel or the context.
    pub value: hostcall_rocm_value,
}

/// What was counted of calls by ROCm's protocol.
#[repr(C)]
pub struct hostcall_rocm_counts {
    /// Packets that were found. Who has an answer finds its packet counted.
    pub packets: u64,
    /// What devices and handlers did that they must not. hostcall_options_rocm_report tells of the first 16 of each buffer.
    pub faults: u64,
}

/// Answers a lane's call of a function, as `__ockl_call_host_function` makes it: on any thread, of several lanes at the same
/// time. `arguments` are seven words, and `result` two, which are 0 before. It must return, and does not wait for a launch that
/// may wait for it, which nobody refuses: these calls do not say whose they are.
pub type hostcall_rocm_function =
    Option<unsafe extern "C" fn(state: *mut c_void, arguments: *const u64, result: *mut u64)>;

/// Answers a lane's call of a service: on any thread, of several lanes at the same time. `lane` is the lane's index in its
/// wave. `words` are eight words of the lane's, in whose place the handler puts its answer, of which kernels that were linked
/// with ROCm's device libraries read the first two. It must return, and waits for no launch that may wait for it, as a
/// hostcall_rocm_function.
pub type hostcall_rocm_handler =
    Option<unsafe extern "C" fn(state: *mut c_void, service: u32, lane: u32, words: *mut u64)>;

fn version_of(version: u32) -> Result<Version, Failure> {
    use hostcall_rocm_version as is;
    match version {
        version if version == is::Stacks as u32 => Ok(Version::Stacks),
        version if version == is::Phases as u32 => Ok(Version::Phases),
        version => Err(Failure::invalid(format!(
            "there is no version {version} of ROCm's protocol: pass a hostcall_rocm_version"
        ))),
    }
}

fn taken(error: ServiceTaken) -> Failure {
    Failure::new(hostcall_status::Refused, error)
}

/// Returns the number by which kernels call the function.
fn register_function(
    services: &Services,
    function: hostcall_rocm_function,
    state: State,
) -> Result<u64, Failure> {
    let function = get(function, "function")?;
    let call = move |arguments: &[u64; 7]| {
        let mut result = [0; 2];
        // SAFETY: CALLER: it is a function of its type, which gets its state, seven words and two.
        unsafe { function(state.pointer(), arguments.as_ptr(), result.as_mut_ptr()) };
        result
    };
    services.register_function(call).map_err(taken)
}

fn register_service(
    services: &Services,
    service: u32,
    name: &str,
    is_inline: bool,
    handler: hostcall_rocm_handler,
    state: State,
) -> Result<(), Failure> {
    let (name, handler) = (static_name(name), get(handler, "handler")?);
    let mode = if is_inline { Mode::Inline } else { Mode::Blocking };
    let registered = services.register(service, name, mode, move |packet| {
        let service = packet.service();
        for (lane, words) in packet.lanes() {
            // SAFETY: CALLER: it is a function of its type, which gets its state and a lane's eight words.
            unsafe { handler(state.pointer(), service, lane, words.as_mut_ptr()) }
        }
    });
    registered.map_err(taken)
}

impl hostcall_rocm_argument {
    /// Returns the argument for the Rust side, which checks its size.
    ///
    /// # Safety
    /// CALLER: what the kind says is there.
    unsafe fn get(&self) -> Result<KernelArgument, Failure> {
        use hostcall_rocm_kind as is;
        let Self { kind, bytes, value } = self;
        let is = |of: hostcall_rocm_kind| *kind == of as u32;
        if is(is::Value) {
            // SAFETY: CALLER: the kind says so, and so many bytes lie there.
            let bytes = unsafe { values(value.bytes.cast::<u8>(), *bytes, "value.bytes") }?;
            return Ok(KernelArgument::bytes(bytes));
        }
        if is(is::Pinned) {
            // SAFETY: CALLER: the kind says so, and it is NULL or a pinned buffer.
            let pinned = unsafe { value.pinned.as_ref() };
            return Ok(KernelArgument::pinned(&get(pinned, "value.pinned")?.bytes));
        }
        if is(is::Raw) {
            // SAFETY: CALLER: the kind says so, and it is NULL or a raw channel.
            let channel = unsafe { value.raw.as_ref() };
            return Ok(get(channel, "value.raw")?.argument());
        }
        if is(is::Context) {
            // SAFETY: CALLER: the kind says so, and it is NULL or a context.
            let context = unsafe { value.context.as_ref() };
            return Ok(KernelArgument::context(get(context, "value.context")?.get()));
        }
        if !is(is::Buffer) && !is(is::Input) {
            return Err(Failure::invalid(format!(
                "there is no kind {kind} of a code object's arguments: pass a hostcall_rocm_kind"
            )));
        }
        // SAFETY: CALLER: the kind says so, and it is NULL or a buffer.
        let buffer = &get(unsafe { value.buffer.as_ref() }, "value.buffer")?.bytes;
        Ok(if is(is::Input) { KernelArgument::input(buffer) } else { KernelArgument::buffer(buffer) })
    }
}

functions! {
    /// Loads a code object from a file; the path is taken literally. `version` is the hostcall_rocm_version that its kernels call
    /// by; kernels that do not call take either. A code object is trusted as the program's own code is.
    make hostcall_rocm_code_load(
        device: &hostcall_device,
        path: &OsStr,
        version: u32,
    ) -> hostcall_rocm_code as code {
        hostcall_rocm_code(device.device.load_code_object(path, version_of(version)?)?)
    }

    /// Loads a code object from `len` bytes, of which nothing is needed afterwards, as hostcall_rocm_code_load does from a file.
    make hostcall_rocm_code_load_bytes(
        device: &hostcall_device,
        bytes: *const u8,
        len: usize,
        version: u32,
    ) -> hostcall_rocm_code as code {
        // SAFETY: CALLER.
        let bytes = unsafe { values(bytes, len, "bytes") }?;
        hostcall_rocm_code(device.device.load_code_object_bytes(bytes, version_of(version)?)?)
    }

    /// Frees a code object and sets the handle to NULL. NULL is let be. Its kernels can still be used.
    free hostcall_rocm_code_free(code: hostcall_rocm_code) { drop(code) }

    /// Finds a kernel by the name of its symbol, without `.kd`. Names of C++ are mangled, unless the kernel is `extern "C"`. Once
    /// a kernel that may call was found, calls of `printf` print to the device's standard streams, memory that kernels ask for
    /// comes from the device's heap, and reports of the address sanitizer are lines of the standard error, unless a service was
    /// registered for them before.
    make hostcall_rocm_code_kernel(
        code: &hostcall_rocm_code,
        name: &str,
    ) -> hostcall_rocm_kernel as kernel {
        hostcall_rocm_kernel(code.0.kernel(name)?)
    }

    /// Frees a kernel and sets the handle to NULL. NULL is let be. Its launches run on.
    free hostcall_rocm_kernel_free(kernel: hostcall_rocm_kernel) { drop(kernel) }

    /// Returns how many arguments the kernel takes; 0 for NULL.
    ask hostcall_rocm_kernel_argument_count(kernel: &hostcall_rocm_kernel) -> usize {
        kernel.0.parameters().bytes.len()
    }

    /// Returns how many bytes the kernel's argument at `index` has; 0 when there is none.
    ask hostcall_rocm_kernel_argument_bytes(kernel: &hostcall_rocm_kernel, index: usize) -> usize {
        kernel.0.parameters().bytes.get(index).map_or(0, |bytes| *bytes as usize)
    }

    /// Puts a launch of a code object's kernel on a stream, with `count` arguments, of which nothing but the buffers' memory is
    /// needed afterwards. It fails when there are more or fewer than the kernel takes, or one has another size. Nothing else can be
    /// checked: they are of the kernel's types, and the kernel accesses no memory but its own, that of its heap, and the buffers
    /// that it is given. `launch` may be NULL.
    ///
    /// The launch can be waited for as others are. Once the device has it, it runs to its end: nothing ends it before, and one that
    /// was to be cancelled meanwhile fails with HOSTCALL_STATUS_CANCELLED then. Its waves do not wait for pages of raw channels any
    /// more, but drop.
    begin hostcall_rocm_kernel_launch(
        kernel: &hostcall_rocm_kernel,
        stream: &hostcall_stream,
        grid: &hostcall_grid,
        arguments: *const hostcall_rocm_argument,
        count: usize,
    ) -> hostcall_launch as launch {
        // SAFETY: CALLER.
        let given = unsafe { values(arguments, count, "arguments") }?;
        let mut arguments = Vec::with_capacity(given.len());
        for (place, argument) in given.iter().enumerate() {
            // SAFETY: CALLER.
            arguments.push(unsafe { argument.get() }.map_err(|failure| failure.of_argument(place))?);
        }
        // SAFETY: CALLER: the comment above asks for what the function does.
        hostcall_launch(unsafe { kernel.0.launch(&stream.0, grid.get(), &arguments) }?)
    }

    /// Registers a function that kernels call with `__ockl_call_host_function`, on worker threads. `number` is what kernels get in
    /// place of its address: they can call no other functions. `free_state` gets `state` when the device has ended, the last kernel
    /// handle of a code object was freed and no kernel calls any more, on any thread, or when this function fails.
    run hostcall_rocm_register_function(
        device: &hostcall_device,
        function: hostcall_rocm_function;
        state, number: &mut MaybeUninit<u64>
    ) {
        number.write(register_function(device.device.rocm_services(), function, state)?);
    }

    /// Registers the handler of a service, by the number by which kernels call it (`__ockl_hostcall_preview`): one that no service
    /// has yet. ROCm's device libraries have 1 for functions, 2 for `printf`, 3 for memory and 4 for the address sanitizer; the
    /// handler of 0 answers calls of services without one. `name` is what traces call it. With `is_inline` the handler never waits,
    /// takes microseconds, and runs on the thread that finds calls; otherwise it runs on worker threads. `free_state` gets `state`
    /// as for hostcall_rocm_register_function.
    run hostcall_rocm_register_service(
        device: &hostcall_device,
        service: u32,
        name: &str,
        is_inline: bool,
        handler: hostcall_rocm_handler;
        state
    ) {
        register_service(device.device.rocm_services(), service, name, is_inline, handler, state)?
    }

    /// Makes handlers of ROCm's services without a device, for servers of LLVM's protocol: see hostcall_llvm_server_handle_rocm.
    make hostcall_rocm_services_new() -> hostcall_rocm_services as services {
        hostcall_rocm_services(Services::new())
    }

    /// Frees the handle of services and sets it to NULL. NULL is let be. Servers that serve them keep the handlers.
    free hostcall_rocm_services_free(services: hostcall_rocm_services) { drop(services) }

    /// Registers a function as hostcall_rocm_register_function does for a device. `free_state` gets `state` when the handle and all
    /// servers with these services were freed and no function runs any more, or when this function fails.
    run hostcall_rocm_services_register_function(
        services: &hostcall_rocm_services,
        function: hostcall_rocm_function;
        state, number: &mut MaybeUninit<u64>
    ) {
        number.write(register_function(&services.0, function, state)?);
    }

    /// Registers the handler of a service as hostcall_rocm_register_service does for a device. `free_state` as for
    /// hostcall_rocm_services_register_function.
    run hostcall_rocm_services_register(
        services: &hostcall_rocm_services,
        service: u32,
        name: &str,
        is_inline: bool,
        handler: hostcall_rocm_handler;
        state
    ) {
        register_service(&services.0, service, name, is_inline, handler, state)?
    }

    /// Puts what was counted of calls by ROCm's protocol into `counts`.
    run hostcall_rocm_statistics(device: &hostcall_device, counts: &mut MaybeUninit<hostcall_rocm_counts>) {
        let counted = device.device.rocm_statistics();
        let (packets, faults) = (counted.packets, counted.faults);
        counts.write(hostcall_rocm_counts { packets, faults });
    }
}
