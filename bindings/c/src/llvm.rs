//! The server of LLVM's RPC protocol, for hosts that load and launch kernels themselves.

use crate::error::{Failure, c_text, hostcall_status};
use crate::functions::functions;
use crate::handle::{State, fits, get, hostcall_free_function, values};
use crate::llvm_call::{emissary_argument, failed, hostcall_llvm_call, hostcall_llvm_emissary_handler};
use crate::options::{hostcall_options, hostcall_report_function};
use crate::rocm::hostcall_rocm_services;
use hostcall::image::{Calls, LlvmProgram, identify};
use hostcall::llvm::{
    End, Layout, LlvmServer, OpcodeHandler, Options, Packet, Poller, PortMemory, Taken, Version,
};
use hostcall::services::{Block, Builtins, BuiltinsBuilder, HeapMemory};
use hostcall_locks::Mutex;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// The version of LLVM's protocol that an image speaks. The image tells it, by its client's symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_llvm_version {
    /// LLVM 19 and before: `__llvm_libc_rpc_client` is a pointer to the client object.
    Pointer = 19,
    /// LLVM 20 to 22: `__llvm_rpc_client` is the client object, of 552 bytes.
    Object = 20,
    /// LLVM 23 and later: the same with a doorbell, of 2096 bytes.
    Doorbell = 23,
}

/// Allocates `bytes` bytes that the device can reach, at a multiple of `align`, and returns their address on the device, or 0.
/// Any thread calls it, and it does not wait for kernels.
pub type hostcall_llvm_allocate_function =
    Option<unsafe extern "C" fn(state: *mut c_void, bytes: u64, align: u64) -> u64>;

/// Frees what was allocated at an address.
pub type hostcall_llvm_release_function = Option<unsafe extern "C" fn(state: *mut c_void, address: u64)>;

/// What a server of LLVM's protocol serves, and for whom. What may be 0 or NULL says so.
#[repr(C)]
pub struct hostcall_llvm_config {
    /// One of hostcall_llvm_version.
    pub version: u32,
    /// How many ports the memory has: a multiple of 16 is fastest.
    pub ports: u32,
    /// Lanes of a wave: 32 or 64, or 1 where the client is a processor.
    pub lanes: u32,
    /// Threads that serve; with 0 the caller's, which calls hostcall_llvm_server_poll.
    pub threads: u32,
    /// The ports' memory, of hostcall_llvm_memory_bytes bytes at a multiple of 64, which the device reaches coherently. It is
    /// the caller's, all 0, and nothing but the client uses it until hostcall_llvm_server_free has returned. A doorbell in its
    /// first 64 bytes is the caller's to set and to reset: the server does not look at it.
    pub memory: *mut c_void,
    /// How many bytes the memory has.
    pub bytes: usize,
    /// Where the device has the memory.
    pub device_address: u64,
    /// Most bytes of one lane's message; 64 MiB with 0.
    pub message_limit: usize,
    /// Most bytes of all messages together; 1 GiB with 0.
    pub messages_limit: usize,
    /// The functions with `state` give and take back memory that clients ask for with `malloc`; with NULL, the process's
    /// memory, which GPUs do not reach.
    pub allocate: hostcall_llvm_allocate_function,
    /// Frees what `allocate` gave, and is needed with it.
    pub release: hostcall_llvm_release_function,
    /// Most bytes that clients may have allocated; 16 GiB with 0.
    pub heap_limit: u64,
    /// Gets a sentence for each call that cannot go on, whose client waits for ever unless `answers_faults` is set (up to 1024 that
    /// wait to be told; the counts have all); with NULL, a line on the standard error.
    pub report: hostcall_report_function,
    /// What the functions get. Several threads use it at the same time.
    pub state: *mut c_void,
    /// Frees `state`, once, when nothing uses it any more, or when hostcall_llvm_server_start fails, unless the options or `server`
    /// are NULL; it may be NULL.
    pub free_state: hostcall_free_function,
    /// Lets clients run commands with `system`.
    pub allows_system: bool,
    /// Answers what is left of a call that cannot go on with zeros, so that no client waits for ever and the port is served on. The
    /// protocol has no status: the counts tell of it. The opcode with all bits set is the server's then.
    pub answers_faults: bool,
}

/// A server of LLVM's protocol. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_llvm_server {
    // Before the server, whose threads have ended when its memory may go.
    poller: Mutex<Option<Polled>>,
    server: LlvmServer,
    builtins: Builtins,
}

/// What serves by hand.
struct Polled(Poller);

// SAFETY: a poller shares what is not atomic with nobody but itself, and a lock is around it. This server has no trace.
unsafe impl Send for Polled {}

/// Answers packets of several waves at the same time. `buffers` are those of the wave's lanes, by lane; those whose bit in `mask`
/// is set call, and get theirs back as the handler leaves it. Returns 0, or a number of its own for a failure, with which the
/// call cannot go on. It must return.
pub type hostcall_llvm_packet_handler =
    Option<unsafe extern "C" fn(state: *mut c_void, opcode: u32, mask: u64, buffers: *mut [u64; 8]) -> i32>;

/// Answers a call, on a worker thread: several calls at the same time. Returns 0, or a number of its own for a failure, with
/// which the call cannot go on. It must return.
pub type hostcall_llvm_handler =
    Option<unsafe extern "C" fn(state: *mut c_void, call: &mut hostcall_llvm_call<'_>) -> i32>;

/// A function of the host that clients call by the number that they were given for its address. It gets a copy of the bytes that
/// the lane sent; its result goes back. Several lanes call it at the same time. It must return.
pub type hostcall_llvm_function =
    Option<unsafe extern "C" fn(state: *mut c_void, bytes: *mut u8, count: usize) -> u64>;

/// What a server has counted.
#[repr(C)]
pub struct hostcall_llvm_counts {
    /// Calls that clients made.
    pub calls: u64,
    /// Calls that could not go on. A client that got zeros for one finds it counted.
    pub faults: u64,
}

fn version_of(version: u32) -> Result<Version, Failure> {
    use hostcall_llvm_version as is;
    match version {
        version if version == is::Pointer as u32 => Ok(Version::Llvm19),
        version if version == is::Object as u32 => Ok(Version::Llvm20),
        version if version == is::Doorbell as u32 => Ok(Version::Doorbell),
        version => Err(Failure::invalid(format!(
            "there is no version {version} of LLVM's protocol: pass a hostcall_llvm_version"
        ))),
    }
}

fn number_of(version: Version) -> u32 {
    use hostcall_llvm_version as is;
    (match version {
        Version::Llvm19 => is::Pointer,
        Version::Llvm20 => is::Object,
        Version::Doorbell => is::Doorbell,
    }) as u32
}

fn layout(version: u32, ports: u32, lanes: u32) -> Result<Layout, Failure> {
    Layout::new(version_of(version)?, ports, lanes).map_err(Failure::invalid)
}

fn image_failure(text: impl ToString) -> Failure {
    Failure::new(hostcall_status::Image, text)
}

fn unknown_client(bytes: u64) -> Failure {
    image_failure(format!(
        "the image's LLVM has a client of {bytes} bytes for its calls, which this version of hostcall does not know, or clients \
         of two versions: link it with one release of LLVM that is not much later than 23"
    ))
}

fn taken(taken: Taken) -> Failure {
    Failure::new(hostcall_status::Refused, taken)
}

/// Memory of the caller's functions.
struct CallersMemory {
    state: Arc<State>,
    allocate: unsafe extern "C" fn(*mut c_void, u64, u64) -> u64,
    release: unsafe extern "C" fn(*mut c_void, u64),
}

struct CallersBlock(Arc<State>, unsafe extern "C" fn(*mut c_void, u64), u64);

impl Drop for CallersBlock {
    fn drop(&mut self) {
        // SAFETY: CALLER: it is a function of its type, and the address one that `allocate` gave.
        unsafe { (self.1)(self.0.pointer(), self.2) }
    }
}

// SAFETY: CALLER: `allocate` does what its type's comment says.
unsafe impl HeapMemory for CallersMemory {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        let address = unsafe { (self.allocate)(self.state.pointer(), bytes, align) };
        let block = || CallersBlock(self.state.clone(), self.release, address);
        (address != 0).then(|| Block { address, memory: Box::new(block()) })
    }
}

impl hostcall_llvm_config {
    /// Returns the ports' memory.
    ///
    /// # Safety
    /// CALLER: so many bytes lie there, and stay until the server was freed.
    unsafe fn memory(&self) -> Result<PortMemory, Failure> {
        let layout = layout(self.version, self.ports, self.lanes)?;
        let start = NonNull::new(self.memory.cast::<u8>());
        let start = start.filter(|start| start.addr().get().is_multiple_of(64)).ok_or_else(|| {
            Failure::invalid("`config.memory` is NULL or no multiple of 64: allocate it with that alignment")
        })?;
        if self.bytes < layout.bytes() {
            return Err(Failure::invalid(format!(
                "`config.memory` has {} bytes, and so many ports take {}: hostcall_llvm_memory_bytes tells how many",
                self.bytes,
                layout.bytes()
            )));
        }
        // SAFETY: CALLER: the memory has the layout's bytes, is 0, and stays until the server was freed. Only what serves looks
        // at it, which has ended by then; workers that still run handlers keep this without a view of the memory.
        let memory = unsafe { PortMemory::from_parts(start, self.device_address, layout, Box::new(())) };
        if !memory.is_new() {
            return Err(Failure::invalid(
                "`config.memory` was used before: set it to 0, and make the client object anew",
            ));
        }
        Ok(memory)
    }
}

fn start(options: hostcall_options, config: &hostcall_llvm_config) -> Result<hostcall_llvm_server, Failure> {
    let state = Arc::new(State::new(config.state, config.free_state));
    // SAFETY: CALLER.
    let memory = Arc::new(unsafe { config.memory() }?);
    let mut options = options;
    match (config.allocate, config.release) {
        (Some(allocate), Some(release)) => {
            let default = BuiltinsBuilder::DEFAULT_HEAP_BYTES;
            let limit = if config.heap_limit == 0 { default } else { config.heap_limit };
            options.heap(CallersMemory { state: state.clone(), allocate, release }, limit);
        }
        (None, None) if config.heap_limit != 0 => options.heap_limit(config.heap_limit),
        (None, None) => {}
        _ => {
            return Err(Failure::invalid("`config` has one of `allocate` and `release`: set both, or none"));
        }
    }
    let mut settings = Options::default().threads(config.threads).system(config.allows_system);
    if config.message_limit != 0 {
        settings = settings.message_limit(config.message_limit);
    }
    if config.messages_limit != 0 {
        settings = settings.messages_limit(config.messages_limit);
    }
    if config.answers_faults {
        settings = settings.answer_faults(|_| ());
    }
    if let Some(report) = config.report {
        settings = settings.on_fault(move |fault| {
            let text = c_text(&fault.to_string());
            // SAFETY: CALLER: it is a function of its type, which gets its state and a text that lives until it returns.
            unsafe { report(state.pointer(), text.as_ptr()) }
        });
    }
    let builtins = options.builtins()?;
    let no_thread = |error| Failure::new(hostcall_status::Device, format!("the server's threads: {error}"));
    if config.threads > 0 {
        let server = LlvmServer::start(memory, &builtins, settings).map_err(no_thread)?;
        return Ok(hostcall_llvm_server { server, builtins, poller: Mutex::new(None) });
    }
    let (server, poller) = LlvmServer::by_hand(memory, &builtins, settings).map_err(no_thread)?;
    Ok(hostcall_llvm_server { server, builtins, poller: Mutex::new(Some(Polled(poller))) })
}

/// Returns what answers calls with a handler of the caller's.
fn call_handler(handler: hostcall_llvm_handler, state: State) -> Result<OpcodeHandler, Failure> {
    let handler = get(handler, "handler")?;
    Ok(OpcodeHandler::call(move |call| {
        // SAFETY: CALLER: it is a function of its type, which gets its state and a call that lives until it returns.
        failed(unsafe { handler(state.pointer(), &mut hostcall_llvm_call(call)) })
    }))
}

functions! {
    /// Puts the version of LLVM's protocol that an image's kernels speak into `version`: of an AMD code object, a cubin or PTX of
    /// `len` bytes, with the symbol of LLVM's client. None of it is loaded.
    run hostcall_llvm_version_of_image(image: *const u8, len: usize, version: &mut MaybeUninit<u32>) {
        // SAFETY: CALLER.
        let image = unsafe { values(image, len, "image") }?;
        let of_image = identify(image).map_err(|error| image_failure(format!("the image: {error}")))?;
        let (Calls::Llvm(LlvmProgram { version: found, unknown_client: unknown, .. })
        | Calls::LlvmKernels(LlvmProgram { version: found, unknown_client: unknown, .. })) = of_image.calls
        else {
            let text = "the image has no client of LLVM's protocol: link it with LLVM's libc or offload runtime for the GPU";
            return Err(image_failure(text));
        };
        if let Some(bytes) = unknown {
            return Err(unknown_client(bytes));
        }
        let found = found.ok_or_else(|| image_failure("the image's program makes no calls of the host"))?;
        version.write(number_of(found));
    }

    /// Puts the version of LLVM's protocol into `version` whose client has a symbol of this name and size in bytes.
    run hostcall_llvm_version_of_symbol(name: &str, bytes: u64, version: &mut MaybeUninit<u32>) {
        let found = Version::of_symbol(name, bytes).ok_or_else(|| {
            image_failure(format!(
                "no version of LLVM's protocol has a client {name} of {bytes} bytes: pass the name and size of \
                 __llvm_rpc_client or __llvm_libc_rpc_client"
            ))
        })?;
        version.write(number_of(found));
    }

    /// Returns how many bytes of memory so many ports take, for waves of so many lanes; 0 when the version has no such ports.
    ask hostcall_llvm_memory_bytes(version: u32, ports: u32, lanes: u32) -> usize {
        layout(version, ports, lanes)?.bytes()
    }

    /// Returns how many bytes the version's client object has; 0 when there is no such version.
    ask hostcall_llvm_client_bytes(version: u32) -> usize { version_of(version)?.object_bytes() }

    /// Starts a server of ports in memory of the caller's. It needs no device: the options' device name is not looked at, and what
    /// they say of files, arguments and standard streams is what clients of LLVM's libc get. Libc's opcodes, calls of host
    /// functions and Emissary's `printf` are served; for others there are handlers. All that clients write is checked. The options
    /// are taken.
    make hostcall_llvm_server_start(
        options: Box<hostcall_options>,
        config: &hostcall_llvm_config,
    ) -> hostcall_llvm_server as server {
        start(*options, config)?
    }

    /// Ends the service, if it was not cancelled, and frees the server: nothing looks at the ports' memory from then on. Handlers
    /// that run are not waited for; their states are freed after them. What clients got by `malloc` and did not free is given to
    /// `release`: their kernels have ended before, or do not use it any more. The handle is set to NULL; NULL is let be.
    free hostcall_llvm_server_free(server: hostcall_llvm_server) { drop(server) }

    /// Writes the client object of the server's ports, of hostcall_llvm_client_bytes bytes, into `object`: it goes to the device in
    /// the place of the image's `__llvm_rpc_client`, or where `__llvm_libc_rpc_client` points to.
    run hostcall_llvm_server_client(server: &hostcall_llvm_server, object: *mut u8, bytes: usize) {
        let client = server.server.client_object();
        if object.is_null() || bytes != client.len() {
            return Err(Failure::invalid(format!(
                "`object` is NULL or has {bytes} bytes: the client object has {}",
                client.len()
            )));
        }
        // SAFETY: CALLER: so many bytes can be written there.
        unsafe { object.copy_from_nonoverlapping(client.as_ptr(), client.len()) }
    }

    /// Goes on with all calls that wait for the host, of a server without threads, and returns how many there were. It does not wait;
    /// handlers that may wait run on worker threads. One thread calls it at a time: for another it returns 0.
    ask hostcall_llvm_server_poll(server: &hostcall_llvm_server) -> usize {
        let poller = server.poller.try_lock();
        poller.and_then(|mut poller| Some(poller.as_mut()?.0.poll())).unwrap_or(0)
    }

    /// Ends the service: no port is answered any more, and handlers that receive or send are told that the call has ended.
    /// Returns true; false for NULL.
    ask hostcall_llvm_server_cancel(server: &hostcall_llvm_server) -> bool {
        server.server.cancel();
        // Without threads it is a poll that tells handlers; where another thread polls now, its next one.
        if let Some(mut poller) = server.poller.try_lock()
            && let Some(poller) = poller.as_mut()
        {
            poller.0.poll();
        }
        true
    }

    /// Returns true once the program has ended itself, and puts its exit code into `code`: that of `exit`, or 134 of `abort`.
    ask hostcall_llvm_server_ended(server: &hostcall_llvm_server, code: &mut MaybeUninit<i32>) -> bool {
        let Some(end) = server.server.end() else { return Ok(false) };
        code.write(match end {
            End::Exited(code) => code,
            End::Aborted => 134,
        });
        true
    }

    /// Writes out what files and streams of clients hold back. Returns true; false for NULL.
    ask hostcall_llvm_server_flush(server: &hostcall_llvm_server) -> bool {
        server.server.flush();
        true
    }

    /// Puts what was counted into `counts`.
    run hostcall_llvm_server_statistics(
        server: &hostcall_llvm_server,
        counts: &mut MaybeUninit<hostcall_llvm_counts>,
    ) {
        let counted = server.server.statistics();
        counts.write(hostcall_llvm_counts { calls: counted.calls, faults: counted.faults });
    }

    /// Registers the handler of the opcodes from `first` to `last`, before clients use them; of libc's opcodes it comes in the place
    /// of the server's own. `free_state` gets `state` when no handler runs any more after the server was freed, or when this
    /// function fails.
    run hostcall_llvm_server_handle(
        server: &hostcall_llvm_server,
        first: u32,
        last: u32,
        handler: hostcall_llvm_handler;
        state
    ) {
        server.server.handle(first..=last, call_handler(handler, state)?).map_err(taken)?
    }

    /// Registers the handler of opcodes whose clients send one packet and receive one. With `is_inline` it never waits, takes
    /// microseconds, and runs on the thread that finds calls; otherwise it runs on worker threads. `free_state` as for
    /// hostcall_llvm_server_handle.
    run hostcall_llvm_server_handle_packets(
        server: &hostcall_llvm_server,
        first: u32,
        last: u32,
        is_inline: bool,
        handler: hostcall_llvm_packet_handler;
        state
    ) {
        let handler = get(handler, "handler")?;
        let answer = move |packet: &mut Packet<'_>| {
            let (opcode, mask) = (packet.opcode(), packet.mask());
            // SAFETY: CALLER: it is a function of its type, which gets its state and 64 buffers.
            failed(unsafe { handler(state.pointer(), opcode, mask, packet.buffers().as_mut_ptr()) })
        };
        let handler = if is_inline { OpcodeHandler::inline(answer) } else { OpcodeHandler::packet(answer) };
        server.server.handle(first..=last, handler).map_err(taken)?
    }

    /// Registers the handler of opcodes that nobody else has. Without it such a call cannot go on, and is reported.
    /// `free_state` as for hostcall_llvm_server_handle.
    run hostcall_llvm_server_handle_unknown(
        server: &hostcall_llvm_server,
        handler: hostcall_llvm_handler;
        state
    ) {
        server.server.handle_unknown(call_handler(handler, state)?).map_err(taken)?
    }

    /// Registers the functions of one of Emissary's APIs, by the API's number (3 is MPI, 4 HDF5, 5 the application's own).
    /// `free_state` as for hostcall_llvm_server_handle.
    run hostcall_llvm_server_handle_emissary(
        server: &hostcall_llvm_server,
        api: u32,
        handler: hostcall_llvm_emissary_handler;
        state
    ) {
        let (api, handler) = (fits(api.into(), "an API of Emissary's")?, get(handler, "handler")?);
        let answer = move |call: &mut hostcall::llvm::EmissaryCall| {
            let memory = &mut call.memory;
            let arguments: Vec<_> =
                call.arguments.iter_mut().map(|value| emissary_argument(value, memory)).collect();
            let (function, lane, mut result) = (call.function.into(), call.lane, 0);
            // SAFETY: CALLER: it is a function of its type; arguments and the memory that they point to live until it returns.
            failed(unsafe {
                handler(state.pointer(), function, lane, arguments.as_ptr(), arguments.len(), &raw mut result)
            })?;
            Ok(result)
        };
        server.server.handle_emissary(api, answer).map_err(taken)?
    }

    /// Serves ROCm's services too, for kernels of HIP that call by LLVM's protocol in the place of hostcall buffers: the opcodes from
    /// `'r' << 24` on, of functions, memory, the address sanitizer's reports and `printf`. Services that have no handler get
    /// hostcall's: `printf` prints to the server's standard streams, memory is `allocate`'s, and reports of the address sanitizer are
    /// lines of the standard error. Several servers may have the same services: streams and memory are the first one's then. What
    /// goes wrong is answered with zeros and counted as a fault. The handle of the services is not needed any more afterwards.
    run hostcall_llvm_server_handle_rocm(server: &hostcall_llvm_server, services: &hostcall_rocm_services) {
        let services = &services.0;
        // The caller's own handlers stay.
        let _ = services.register_printf(&server.builtins);
        let _ = services.register_device_heap(&server.builtins);
        let _ = services.register_sanitizer_reports();
        server.server.handle_rocm(services).map_err(taken)?
    }

    /// Registers a function that clients call by LLVM's host call. `number` is what they get in place of its address: they can call
    /// no others. `free_state` as for hostcall_llvm_server_handle.
    run hostcall_llvm_server_register_function(
        server: &hostcall_llvm_server,
        function: hostcall_llvm_function;
        state, number: &mut MaybeUninit<u64>
    ) {
        let function = get(function, "function")?;
        number.write(server.server.register(move |bytes| {
            // SAFETY: CALLER: it is a function of its type, which gets its state and so many bytes.
            unsafe { function(state.pointer(), bytes.as_mut_ptr(), bytes.len()) }
        }));
    }
}
