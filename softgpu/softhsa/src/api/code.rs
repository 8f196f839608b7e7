//! Code objects, executables and symbols.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::attribute::{executable as of_executable, symbol as info};
use super::runtime::{Runtime, lock};
use super::{Status, each, give, give_text, report, status};
use crate::load::{CodeObject, Kernel, Loaded};

/// The bytes of a code object.
#[derive(Clone, Debug)]
pub struct Reader(pub Arc<Vec<u8>>);

/// What a symbol is.
#[derive(Clone, Debug)]
enum SymbolKind {
    /// A kernel, by the address of its descriptor.
    Kernel {
        descriptor: u64,
        kernel: Arc<Kernel>,
    },
    Variable {
        address: u64,
        bytes: u64,
    },
}

/// A symbol of an executable.
#[derive(Clone, Debug)]
pub struct Symbol {
    name: String,
    agent: u64,
    kind: SymbolKind,
}

/// An executable: code objects that are loaded on agents.
#[derive(Debug, Default)]
pub struct Executable {
    /// The client's profile and rounding mode, of which there is one each.
    profile: u32,
    rounding: u32,
    /// What is loaded.
    pub loaded: Mutex<Vec<LoadedObject>>,
    symbols: Mutex<Symbols>,
    frozen: AtomicBool,
}

/// A code object that is loaded on an agent.
#[derive(Clone, Debug)]
pub struct LoadedObject {
    /// Its handle.
    pub handle: u64,
    /// The agent.
    pub agent: u64,
    /// The file that it was read from.
    pub file: Reader,
    /// The code object in the agent's memory.
    pub loaded: Arc<Loaded>,
}

/// The symbols of an executable.
#[derive(Debug, Default)]
struct Symbols {
    /// Handles by name. Names are unique on an agent.
    handles: BTreeMap<String, Vec<u64>>,
    /// The executable was destroyed: who still has it adds nothing.
    destroyed: bool,
}

/// A kernel, and the code object that it is in.
type LoadedKernel = (Arc<Loaded>, Arc<Kernel>);

/// What is loaded in all executables, for those who know a handle or an address.
#[derive(Debug, Default)]
pub struct LoadedCode {
    symbols: RwLock<HashMap<u64, Symbol>>,
    /// By the addresses of descriptors.
    kernels: RwLock<HashMap<u64, LoadedKernel>>,
}

impl LoadedCode {
    /// Returns the code object and the kernel whose descriptor is at the address.
    pub fn kernel(&self, descriptor: u64) -> Option<LoadedKernel> {
        self.kernels.read().unwrap_or_else(PoisonError::into_inner).get(&descriptor).cloned()
    }

    fn symbol(&self, handle: u64) -> Result<Symbol, Status> {
        let symbols = self.symbols.read().unwrap_or_else(PoisonError::into_inner);
        symbols.get(&handle).cloned().ok_or(status::INVALID_EXECUTABLE_SYMBOL)
    }

    fn add(&self, handle: u64, symbol: Symbol, loaded: &Arc<Loaded>) {
        if let SymbolKind::Kernel { descriptor, kernel } = &symbol.kind {
            let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
            kernels.insert(*descriptor, (Arc::clone(loaded), Arc::clone(kernel)));
        }
        self.symbols.write().unwrap_or_else(PoisonError::into_inner).insert(handle, symbol);
    }

    /// Forgets what an executable has.
    fn remove(&self, executable: &Executable) {
        let gone = Symbols { destroyed: true, ..Symbols::default() };
        let Symbols { handles, .. } = std::mem::replace(&mut *lock(&executable.symbols), gone);
        let mut symbols = self.symbols.write().unwrap_or_else(PoisonError::into_inner);
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        let removed = handles.into_values().flatten().filter_map(|handle| symbols.remove(&handle));
        let forgotten: Vec<_> = removed
            .filter_map(|symbol| match symbol.kind {
                SymbolKind::Kernel { descriptor, .. } => kernels.remove(&descriptor),
                SymbolKind::Variable { .. } => None,
            })
            .collect();
        // Code is unloaded without the locks.
        drop((symbols, kernels));
        drop(forgotten);
    }
}

impl Executable {
    /// Loads a code object, and returns its handle.
    fn load(&self, runtime: &Runtime, agent: u64, file: Reader) -> Result<u64, Status> {
        if self.frozen.load(Ordering::Acquire) {
            return Err(status::FROZEN_EXECUTABLE);
        }
        let device = runtime.gpu(agent)?;
        let loaded =
            CodeObject::read(&file.0).and_then(|object| Loaded::load(device, object)).map_err(|refused| {
                Runtime::note_failure(refused.to_string());
                status::INVALID_CODE_OBJECT
            })?;
        runtime.memory.set_owner(loaded.address, agent);
        let loaded = Arc::new(loaded);
        let kernels = loaded.object.kernels.iter().map(|(name, kernel)| {
            let descriptor = loaded.address + kernel.descriptor_offset;
            (name, SymbolKind::Kernel { descriptor, kernel: Arc::new(kernel.clone()) })
        });
        let variables = loaded.object.variables.iter().map(|(name, variable)| {
            let address = loaded.address + variable.offset;
            (name, SymbolKind::Variable { address, bytes: variable.bytes })
        });
        let mut symbols = lock(&self.symbols);
        if symbols.destroyed {
            return Err(status::INVALID_EXECUTABLE);
        }
        let is_there = |name: &str| {
            let handles = symbols.handles.get(name).into_iter().flatten();
            handles.filter_map(|handle| runtime.code.symbol(*handle).ok()).any(|symbol| symbol.agent == agent)
        };
        let defined: Vec<_> = kernels.chain(variables).collect();
        if let Some((name, _)) = defined.iter().find(|(name, _)| is_there(name)) {
            Runtime::note_failure(format!(
                "a code object defines {name}, as another one does that the executable has on this agent"
            ));
            return Err(status::VARIABLE_ALREADY_DEFINED);
        }
        for (name, kind) in defined {
            let handle = runtime.new_handle();
            symbols.handles.entry(name.clone()).or_default().push(handle);
            runtime.code.add(handle, Symbol { name: name.clone(), agent, kind }, &loaded);
        }
        drop(symbols);
        let handle = runtime.new_handle();
        lock(&self.loaded).push(LoadedObject { handle, agent, file, loaded });
        Ok(handle)
    }
}

impl Runtime {
    /// Returns an executable by its handle.
    pub fn executable(&self, handle: u64) -> Result<Arc<Executable>, Status> {
        let executables = self.executables.read().unwrap_or_else(PoisonError::into_inner);
        executables.get(&handle).cloned().ok_or(status::INVALID_EXECUTABLE)
    }

    fn reader(&self, handle: u64, otherwise: Status) -> Result<Reader, Status> {
        lock(&self.readers).get(&handle).cloned().ok_or(otherwise)
    }

    /// Adds a code object's file, and returns the handle of its reader.
    pub fn add_reader(&self, bytes: Vec<u8>) -> u64 {
        let handle = self.new_handle();
        lock(&self.readers).insert(handle, Reader(Arc::new(bytes)));
        handle
    }
}

/// Makes a reader of a code object in memory.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_code_object_reader_create_from_memory(
    bytes: *const c_void,
    size: usize,
    reader: *mut u64,
) -> Status {
    let read = |runtime: Arc<Runtime>| {
        if bytes.is_null() || size == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C.
        let copied = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec();
        // SAFETY: contract C.
        unsafe { give(reader, runtime.add_reader(copied)) }
    };
    report(Runtime::get().and_then(read))
}

/// Ends a reader.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_code_object_reader_destroy(reader: u64) -> Status {
    let destroy = |runtime: Arc<Runtime>| {
        lock(&runtime.readers).remove(&reader).map(drop).ok_or(status::INVALID_CODE_OBJECT_READER)
    };
    report(Runtime::get().and_then(destroy))
}

/// Makes a code object of its file (deprecated in favour of readers).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_code_object_deserialize(
    bytes: *mut c_void,
    size: usize,
    _options: *const c_char,
    object: *mut u64,
) -> Status {
    // SAFETY: contract C.
    unsafe { hsa_code_object_reader_create_from_memory(bytes, size, object) }
}

/// Ends a code object (deprecated in favour of readers).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_code_object_destroy(object: u64) -> Status {
    // SAFETY: contract C.
    match unsafe { hsa_code_object_reader_destroy(object) } {
        status::INVALID_CODE_OBJECT_READER => status::INVALID_CODE_OBJECT,
        other => other,
    }
}

/// Makes an executable.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_create_alt(
    profile: u32,
    rounding: u32,
    _options: *const c_char,
    executable: *mut u64,
) -> Status {
    let create = || {
        let runtime = Runtime::get()?;
        let handle = runtime.new_handle();
        // SAFETY: contract C.
        unsafe { give(executable, handle) }?;
        let mut executables = runtime.executables.write().unwrap_or_else(PoisonError::into_inner);
        executables.insert(handle, Arc::new(Executable { profile, rounding, ..Executable::default() }));
        Ok(())
    };
    report(create())
}

/// Makes an executable in this state (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_create(
    profile: u32,
    state: u32,
    options: *const c_char,
    executable: *mut u64,
) -> Status {
    const DEFAULT_ROUNDING: u32 = 0;
    const FROZEN: u32 = 1;
    // SAFETY: contract C.
    unsafe {
        match hsa_executable_create_alt(profile, DEFAULT_ROUNDING, options, executable) {
            status::SUCCESS if state == FROZEN => hsa_executable_freeze(executable.read_unaligned(), options),
            status => status,
        }
    }
}

/// Tells a property of an executable.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_get_info(
    executable: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    let tell = |runtime: Arc<Runtime>| {
        let executable = runtime.executable(executable)?;
        let number = match attribute {
            of_executable::PROFILE => executable.profile,
            of_executable::STATE => u32::from(executable.frozen.load(Ordering::Acquire)),
            of_executable::DEFAULT_FLOAT_ROUNDING_MODE => executable.rounding,
            _ => return Err(status::INVALID_ARGUMENT),
        };
        // SAFETY: contract C says that `value` has the attribute's type.
        unsafe { give(value.cast(), number) }
    };
    report(Runtime::get().and_then(tell))
}

/// Loads a code object on an agent.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_load_agent_code_object(
    executable: u64,
    agent: u64,
    reader: u64,
    _options: *const c_char,
    loaded: *mut u64,
) -> Status {
    let load = || {
        let runtime = Runtime::get()?;
        let file = runtime.reader(reader, status::INVALID_CODE_OBJECT_READER)?;
        let handle = runtime.executable(executable)?.load(&runtime, agent, file)?;
        if loaded.is_null() {
            return Ok(());
        }
        // SAFETY: contract C.
        unsafe { give(loaded, handle) }
    };
    report(load())
}

/// Loads a code object on an agent (deprecated in favour of readers).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_load_code_object(
    executable: u64,
    agent: u64,
    object: u64,
    _options: *const c_char,
) -> Status {
    let load = || {
        let runtime = Runtime::get()?;
        let file = runtime.reader(object, status::INVALID_CODE_OBJECT)?;
        runtime.executable(executable)?.load(&runtime, agent, file).map(drop)
    };
    report(load())
}

/// Makes an executable final.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_freeze(executable: u64, _options: *const c_char) -> Status {
    let freeze =
        |runtime: Arc<Runtime>| match runtime.executable(executable)?.frozen.swap(true, Ordering::AcqRel) {
            true => Err(status::FROZEN_EXECUTABLE),
            false => Ok(()),
        };
    report(Runtime::get().and_then(freeze))
}

/// Tells whether an executable is valid, which it is once its code objects are loaded.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_validate(executable: u64, result: *mut u32) -> Status {
    let validate = |runtime: Arc<Runtime>| {
        runtime.executable(executable)?;
        // SAFETY: contract C.
        unsafe { give(result, 0) }
    };
    report(Runtime::get().and_then(validate))
}

/// Tells whether an executable is valid.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_validate_alt(
    executable: u64,
    _options: *const c_char,
    result: *mut u32,
) -> Status {
    // SAFETY: contract C.
    unsafe { hsa_executable_validate(executable, result) }
}

/// Ends an executable. Launches that run keep its code.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_destroy(executable: u64) -> Status {
    let destroy = |runtime: Arc<Runtime>| {
        let removed = runtime.executables.write().unwrap_or_else(PoisonError::into_inner).remove(&executable);
        runtime.code.remove(&*removed.ok_or(status::INVALID_EXECUTABLE)?);
        Ok(())
    };
    report(Runtime::get().and_then(destroy))
}

/// Finds a symbol by name, on an agent if one is given.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_get_symbol_by_name(
    executable: u64,
    name: *const c_char,
    agent: *const u64,
    symbol: *mut u64,
) -> Status {
    let find = || {
        let runtime = Runtime::get()?;
        let executable = runtime.executable(executable)?;
        if name.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| status::INVALID_SYMBOL_NAME)?;
        // SAFETY: contract C.
        let agent = (!agent.is_null()).then(|| unsafe { agent.read_unaligned() });
        let is_wanted = |handle: &u64| {
            agent.is_none_or(|agent| runtime.code.symbol(*handle).is_ok_and(|symbol| symbol.agent == agent))
        };
        let symbols = lock(&executable.symbols);
        let found = symbols.handles.get(name).and_then(|handles| handles.iter().copied().find(is_wanted));
        // SAFETY: contract C.
        unsafe { give(symbol, found.ok_or(status::INVALID_SYMBOL_NAME)?) }
    };
    report(find())
}

/// Finds a symbol by name, on an agent (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_get_symbol(
    executable: u64,
    _module: *const c_char,
    name: *const c_char,
    agent: u64,
    _convention: i32,
    symbol: *mut u64,
) -> Status {
    // SAFETY: contract C.
    unsafe { hsa_executable_get_symbol_by_name(executable, name, &raw const agent, symbol) }
}

/// Calls a function for the symbols of an executable, of one agent if there is one, until it asks to stop.
fn each_symbol(
    executable: u64,
    agent: Option<u64>,
    callback: impl FnMut(u64) -> Status,
) -> Result<(), Status> {
    let runtime = Runtime::get()?;
    let executable = runtime.executable(executable)?;
    agent.map_or(Ok(()), |agent| runtime.check_agent(agent))?;
    let symbols: Vec<u64> = lock(&executable.symbols).handles.values().flatten().copied().collect();
    let is_wanted = |handle: &u64| {
        let symbol = runtime.code.symbol(*handle);
        symbol.is_ok_and(|symbol| agent.is_none_or(|agent| symbol.agent == agent))
    };
    each(symbols.into_iter().filter(is_wanted), callback)
}

/// A function of the client's that is called with an executable's symbols.
type SymbolCallback = extern "C" fn(u64, u64, *mut c_void) -> Status;

/// Calls a function of the client's for each symbol of an executable until it asks to stop (deprecated).
pub extern "C" fn hsa_executable_iterate_symbols(
    executable: u64,
    callback: Option<SymbolCallback>,
    data: *mut c_void,
) -> Status {
    let callback = callback.ok_or(status::INVALID_ARGUMENT);
    report(callback.and_then(|call| each_symbol(executable, None, |symbol| call(executable, symbol, data))))
}

/// Calls a function of the client's for each symbol of an executable that is of no agent: there is none.
pub extern "C" fn hsa_executable_iterate_program_symbols(
    executable: u64,
    callback: Option<SymbolCallback>,
    _data: *mut c_void,
) -> Status {
    let executable = Runtime::get().and_then(|runtime| runtime.executable(executable));
    report(executable.and_then(|_| callback.map(drop).ok_or(status::INVALID_ARGUMENT)))
}

/// Calls a function of the client's for each symbol that an executable has on an agent until it asks to stop.
pub extern "C" fn hsa_executable_iterate_agent_symbols(
    executable: u64,
    agent: u64,
    callback: Option<extern "C" fn(u64, u64, u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let callback = callback.ok_or(status::INVALID_ARGUMENT);
    report(callback.and_then(|call| {
        each_symbol(executable, Some(agent), |symbol| call(executable, agent, symbol, data))
    }))
}

/// Tells a property of a symbol.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_executable_symbol_get_info(
    symbol: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    let tell = || {
        let runtime = Runtime::get()?;
        let symbol = runtime.code.symbol(symbol)?;
        // SAFETY: contract C says that `value` has the attribute's type.
        unsafe { symbol_info(&symbol, attribute, value) }
    };
    report(tell())
}

/// Writes an attribute.
///
/// # Safety
///
/// `value` is null or valid for a write of the attribute's type.
unsafe fn symbol_info(symbol: &Symbol, attribute: u32, value: *mut c_void) -> Result<(), Status> {
    // SAFETY: by this function's contract.
    unsafe {
        match (attribute, &symbol.kind) {
            (info::TYPE, kind) => give(value.cast(), u32::from(matches!(kind, SymbolKind::Kernel { .. }))),
            (info::NAME_LENGTH, _) => give(value.cast(), symbol.name.len() as u32),
            (info::NAME, _) => give_text(value, &symbol.name, symbol.name.len()),
            (info::MODULE_NAME_LENGTH, _) => give(value.cast(), 0u32),
            (info::MODULE_NAME, _) => Ok(()),
            (info::LINKAGE, _) => give(value.cast(), 1u32),
            (info::IS_DEFINITION, _) => give(value.cast(), true),
            (info::AGENT, _) => give(value.cast(), symbol.agent),
            (info::VARIABLE_ALLOCATION | info::VARIABLE_SEGMENT, SymbolKind::Variable { .. }) => {
                give(value.cast(), 0u32)
            }
            (info::VARIABLE_ALIGNMENT, SymbolKind::Variable { .. }) => give(value.cast(), 4096u32),
            (info::VARIABLE_SIZE, SymbolKind::Variable { bytes, .. }) => give(value.cast(), *bytes as u32),
            (info::VARIABLE_IS_CONST, SymbolKind::Variable { .. }) => give(value.cast(), false),
            (info::VARIABLE_ADDRESS, SymbolKind::Variable { address, .. }) => give(value.cast(), *address),
            (info::KERNEL_OBJECT, SymbolKind::Kernel { descriptor, .. }) => give(value.cast(), *descriptor),
            (info::KERNEL_KERNARG_SEGMENT_SIZE, SymbolKind::Kernel { kernel, .. }) => {
                give(value.cast(), kernel.kernarg_bytes)
            }
            (info::KERNEL_KERNARG_SEGMENT_ALIGNMENT, SymbolKind::Kernel { kernel, .. }) => {
                give(value.cast(), kernel.kernarg_alignment)
            }
            (info::KERNEL_GROUP_SEGMENT_SIZE, SymbolKind::Kernel { kernel, .. }) => {
                give(value.cast(), kernel.descriptor.group_bytes)
            }
            (info::KERNEL_PRIVATE_SEGMENT_SIZE, SymbolKind::Kernel { kernel, .. }) => {
                give(value.cast(), kernel.descriptor.private_bytes)
            }
            (info::KERNEL_DYNAMIC_CALLSTACK, SymbolKind::Kernel { kernel, .. }) => {
                give(value.cast(), kernel.dynamic_stack)
            }
            (info::KERNEL_CALL_CONVENTION, SymbolKind::Kernel { .. }) => give(value.cast(), 0u32),
            _ => Err(status::INVALID_ARGUMENT),
        }
    }
}

/// Registers the client's handler of events. There is one.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_register_system_event_handler(
    handler: Option<super::runtime::EventHandler>,
    data: *mut c_void,
) -> Status {
    let register = |runtime: Arc<Runtime>| {
        let mut current = lock(&runtime.event_handler);
        if current.is_some() && handler.is_some() {
            return Err(status::ERROR);
        }
        *current = handler.map(|handler| (handler, super::runtime::ClientData(data)));
        Ok(())
    };
    report(Runtime::get().and_then(register))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code object of one instruction.
    fn object() -> Vec<u8> {
        const HEADERS_BYTES: usize = 64 + 56;
        let mut file = vec![0; 64];
        file[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x40\x03");
        file[16..20].copy_from_slice(&[3, 0, 224, 0]);
        (file[32], file[48], file[54], file[56]) = (64, 0x4c, 56, 1);
        // PT_LOAD with PF_X.
        let fields = [1 << 32 | 1, HEADERS_BYTES as u64, 0, 0, 4, 4, 4096];
        file.extend(fields.map(u64::to_le_bytes).concat());
        file.extend([0; 4]);
        file
    }

    #[test]
    fn nothing_is_loaded_for_an_executable_that_was_destroyed_meanwhile() {
        let runtime = Runtime::start().expect("it starts");
        let agent = runtime.agents().nth(1).expect("there is a GPU");
        let executable = Executable::default();
        let object = Reader(Arc::new(object()));
        assert!(executable.load(&runtime, agent, object.clone()).is_ok());
        runtime.code.remove(&executable);
        assert_eq!(executable.load(&runtime, agent, object), Err(status::INVALID_EXECUTABLE));
        assert_eq!(lock(&executable.loaded).len(), 1);
    }
}
