//! ROCm's other way: kernels of HIP that call by LLVM's protocol. Such code has LLVM's client object as a variable, which says
//! in which memory its ports are; the version is told by the variable's size.

use crate::device::core::Core;
use crate::device::error::{Error, ProgramError};
use crate::device::inner::Inner;
use crate::device::llvm::port_memory;
use hostcall_seam::{Module, Variable};
use hostcall_server::llvm::{Layout, LlvmServer, Options, PortMemory, Version};
use std::fmt;
use std::sync::Arc;

/// What answers the calls of one code object's kernels.
pub(super) struct Ports {
    /// Where they are on the device.
    pub address: u64,
    // It leaves the memory alone once it is dropped, and has it until then.
    _server: LlvmServer,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

/// Has the kernels of a code object served whose client object nobody has filled in yet. Returns `None` where somebody has: a
/// host that serves them itself.
///
/// # Errors
/// When there is no memory for the ports, or no thread.
pub(super) fn serve(device: &Inner, module: &dyn Module, version: Version) -> Result<Option<Ports>, Error> {
    let core = &*device.core;
    let Some(Variable { address, bytes }) = module.variable(version.symbol())? else { return Ok(None) };
    let mut count = [0; 4];
    // SAFETY: the module says that the variable lies there, with more bytes than that. No kernel writes the number of ports.
    unsafe { core.backend.read_now(address, &mut count) }?;
    if count != [0; 4] {
        return Ok(None);
    }
    let properties = core.backend.properties();
    let ports = properties.resident_waves.clamp(1, version.max_ports());
    let layout = Layout::new(version, ports, properties.wave_size).map_err(ProgramError::from)?;
    let memory = Arc::new(port_memory(core, layout)?);
    let object = memory.client_object();
    if object.len() > bytes {
        let what =
            format!("the code's variable {} has {bytes} bytes, not {}", version.symbol(), object.len());
        return Err(ProgramError::Variable { what }.into());
    }
    let server = start(device, core, &memory)?;
    // SAFETY: as above; the kernels that the caller may launch begin later.
    unsafe { core.backend.write_now(address, &object) }?;
    Ok(Some(Ports { address: memory.device_address(), _server: server }))
}

fn start(device: &Inner, core: &Core, memory: &Arc<PortMemory>) -> Result<LlvmServer, Error> {
    let backend = core.backend.clone();
    // A kernel's `exit` and `abort` end ROCm's process. Here they end their lanes alone.
    let ended = |end| tracing::warn!(?end, "a kernel that is no program has called exit or abort");
    // No kernel could be ended that waits for an answer, and who waits for the launch is told.
    let (launches, address) = (device.llvm_calls.clone(), memory.device_address());
    let options = Options::default()
        .on_end(ended)
        .rocm_faults(device.hostcalls.options())
        .answer_faults(move |fault| launches.fault(address, fault));
    let options = options.on_thread(move || backend.enter_thread());
    let options = match &device.traced {
        Some(traced) => options.trace(traced.source("llvm")),
        None => options,
    };
    let server = LlvmServer::start(memory.clone(), &device.builtins, options);
    let server = server.map_err(|error| Error::NoThread { what: "calls by LLVM's protocol", error })?;
    device.llvm_calls.count(&server);
    server.handle_rocm(device.hostcalls.services_for(&device.builtins)).expect("the server is new");
    Ok(server)
}
