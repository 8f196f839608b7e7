//! Loading an HSA runtime, and what it answers.

use crate::agent::{self, GpuInfo};
use crate::faults;
use crate::gpu::Gpu;
use crate::sys::{self, Functions, hsa_status_t};
use hostcall_locks::Mutex;
use hostcall_seam::{BackendError, DeviceFault, DeviceFaultKind};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::sync::Arc;

/// ROCm's runtime.
pub const LIBRARY: &str = "libhsa-runtime64.so.1";

/// The environment's variable that names the file of another HSA runtime.
pub const LIBRARY_VARIABLE: &str = "HOSTCALL_HSA_LIBRARY";

/// Finds a function of a runtime by its name.
pub type Lookup = fn(&CStr) -> Option<*const c_void>;

/// What a runtime answered to a request, other than success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct Error {
    /// What was asked for, such as "allocating 64 bytes of GPU memory".
    pub doing: String,
    /// The runtime's number of the error; 0 when it is not the runtime that refused.
    pub status: u32,
    /// The runtime's words for it.
    pub text: String,
    /// What a kernel did that it must not. The GPU can do nothing more for this opening of it then.
    pub fault: Option<FaultKind>,
}

/// What a kernel did that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// It accessed memory that is not its own.
    Memory,
    /// A lane accessed its stack, or its workgroup's memory, beyond the end.
    Aperture,
    /// It came to an instruction that the GPU does not execute, or to a trap.
    Instruction,
    /// The GPU or its runtime failed, or did not say what happened.
    Other,
}

impl FaultKind {
    /// The kind of fault for which the runtime gives a queue this status.
    pub(crate) fn of(status: hsa_status_t) -> Self {
        match status {
            sys::HSA_STATUS_ERROR_MEMORY_FAULT => Self::Memory,
            sys::HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION => Self::Aperture,
            sys::HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION | sys::HSA_STATUS_ERROR_EXCEPTION => Self::Instruction,
            _ => Self::Other,
        }
    }
}

impl Error {
    /// An error that this crate found.
    pub(crate) fn own(doing: impl Into<String>, text: impl Into<String>) -> Self {
        Self { doing: doing.into(), status: 0, text: text.into(), fault: None }
    }

    /// Says whether there is no room for what was asked for.
    pub fn is_out_of_memory(&self) -> bool {
        // The second one is for more than a pool has at all.
        [sys::HSA_STATUS_ERROR_OUT_OF_RESOURCES, sys::HSA_STATUS_ERROR_INVALID_ALLOCATION]
            .contains(&self.status)
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        let mut reason = error.to_string();
        let kind = match error.fault {
            None => return BackendError::Driver(reason),
            Some(FaultKind::Memory) => DeviceFaultKind::Memory,
            Some(FaultKind::Aperture) => {
                reason += "; where it is a stack that is too small, raise the device's `stack_bytes` (`--stack` of \
                           `hostcall run`)";
                DeviceFaultKind::Memory
            }
            Some(FaultKind::Instruction) => DeviceFaultKind::Instruction,
            Some(FaultKind::Other) => DeviceFaultKind::Device,
        };
        BackendError::Fault { fault: DeviceFault { kind, reason }, is_final: true }
    }
}

/// Turns the runtime's refusal of memory into an error that names the bytes.
pub(crate) fn no_memory(what: &'static str, bytes: usize) -> impl FnOnce(Error) -> BackendError {
    move |error| match error.is_out_of_memory() {
        true => BackendError::NoMemory { what, bytes, reason: error.to_string() },
        false => error.into(),
    }
}

/// A runtime, loaded and initialised: whoever has a reference may call it (invariant LOADED).
#[derive(Debug)]
pub struct Runtime {
    pub(crate) functions: Functions,
    /// What it allocates reads 0.
    pub(crate) zeroes_memory: bool,
    /// A memory fault that no handler of events wants is an error of the queue whose kernel it is. ROCm's
    /// ends the process.
    pub(crate) tells_queues_of_faults: bool,
    /// Each GPU reaches the memory of all.
    pub(crate) gpus_share_memory: bool,
    /// Tells why the last launch failed, or why the runtime did not start. No part of HSA.
    last_failure: Option<unsafe extern "C" fn(*mut c_char, usize) -> usize>,
}

/// Runtimes that were loaded, or why not, by file or by the function that finds them.
#[derive(Default)]
struct Loaded {
    files: BTreeMap<OsString, Result<&'static Runtime, String>>,
    contained: BTreeMap<usize, Result<&'static Runtime, String>>,
}

static LOADED: Mutex<Loaded> = Mutex::new(Loaded { files: BTreeMap::new(), contained: BTreeMap::new() });

impl Runtime {
    /// Returns the runtime in a file, which is loaded by the first call: that of [`LIBRARY_VARIABLE`], or else ROCm's.
    ///
    /// # Errors
    /// A sentence that says what is missing, the same at every call.
    pub fn load() -> Result<&'static Self, String> {
        let file = std::env::var_os(LIBRARY_VARIABLE).unwrap_or_else(|| LIBRARY.into());
        let mut loaded = LOADED.lock();
        loaded.files.entry(file.clone()).or_insert_with(|| Self::open(&file)).clone()
    }

    /// Returns the runtime that this process contains, whose functions `lookup` finds, whose memory reads 0
    /// when it is new, whose GPUs reach each other's memory, and which tells a queue of a memory fault that the
    /// handler of events leaves to it. The first call initialises it.
    ///
    /// # Errors
    /// A sentence that says why it cannot be used, the same at every call.
    ///
    /// # Safety
    /// What `lookup` returns for a name is the function of this name as the HSA headers declare it, and the
    /// runtime does what is said above.
    pub unsafe fn contained(lookup: Lookup) -> Result<&'static Self, String> {
        let mut loaded = LOADED.lock();
        let start = || {
            // SAFETY: by the caller's promise.
            let functions = unsafe { Functions::find(lookup) };
            let functions = functions.map_err(|name| format!("the contained HSA runtime has no {name}"))?;
            // Who looks this up has failures told by its own errors: the software runtime does not print them any more then.
            let last_failure = lookup(c"softhsa_last_failure").map(|found| {
                // SAFETY: the function of this name has this type (softgpu/softhsa).
                unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn(_, _) -> _>(found) }
            });
            Self {
                functions,
                zeroes_memory: true,
                tells_queues_of_faults: true,
                gpus_share_memory: true,
                last_failure,
            }
            .start()
        };
        loaded.contained.entry(lookup as usize).or_insert_with(start).clone()
    }

    fn open(file: &OsString) -> Result<&'static Self, String> {
        let shown = file.to_string_lossy();
        // SAFETY: loads the library that the user named, or ROCm's by its name, as every program that uses such a GPU does.
        let library = unsafe { libloading::Library::new(file) }.map_err(|error| match *file == *LIBRARY {
            true => format!(
                "there is no HSA runtime: {LIBRARY} was not found; install ROCm, so that `rocminfo` shows the GPU, or \
                 name the file in {LIBRARY_VARIABLE}"
            ),
            false => format!("the HSA runtime {shown}, which {LIBRARY_VARIABLE} names, cannot be loaded: {error}"),
        })?;
        // It stays loaded: threads of its own run in it.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let find = |name: &CStr| {
            // SAFETY: the symbol is looked up only, not used.
            let found = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) };
            found.ok().map(|symbol| *symbol)
        };
        // SAFETY: an HSA runtime exports functions of these names with the headers' types.
        let functions = unsafe { Functions::find(find) }.map_err(|name| {
            format!("{shown} is no HSA runtime, or too old: it has no {name}; install ROCm 5.2 or later")
        })?;
        Self {
            functions,
            zeroes_memory: false,
            tells_queues_of_faults: false,
            gpus_share_memory: false,
            last_failure: None,
        }
        .start()
    }

    /// Initialises the runtime for good.
    fn start(self) -> Result<&'static Self, String> {
        // SAFETY: LOADED, but for this initialisation.
        let status = unsafe { (self.functions.hsa_init)() };
        if status == sys::HSA_STATUS_ERROR_OUT_OF_RESOURCES {
            if let Some(reason) = self.last_failure() {
                return Err(reason);
            }
            return Err("the HSA runtime finds no AMD GPU (hsa_init answers 0x1008): `rocminfo` must show one, and this \
                        user must be allowed to open /dev/kfd"
                .into());
        }
        let runtime: &'static Self = Box::leak(Box::new(self));
        runtime.check(status, || "starting the HSA runtime".into()).map_err(|error| error.to_string())?;
        faults::watch(runtime).map_err(|error| error.to_string())?;
        Ok(runtime)
    }

    /// Turns the runtime's answer into a result.
    pub(crate) fn check(&self, status: hsa_status_t, doing: impl FnOnce() -> String) -> Result<(), Error> {
        match status {
            sys::HSA_STATUS_SUCCESS => Ok(()),
            status => {
                let text = self.text(status);
                Err(Error { doing: doing(), status, text, fault: None })
            }
        }
    }

    /// Returns the runtime's words for a status.
    pub(crate) fn text(&self, status: hsa_status_t) -> String {
        let mut text = std::ptr::null();
        // SAFETY: LOADED; the result lives through the call.
        let told = unsafe { (self.functions.hsa_status_string)(status, &mut text) };
        if told != sys::HSA_STATUS_SUCCESS || text.is_null() {
            return format!("HSA status {status:#x}");
        }
        // SAFETY: the runtime keeps the text for good.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{} (HSA status {status:#x})", text.trim_end_matches('.'))
    }

    /// Returns how often the system's clock ticks in a second.
    pub(crate) fn timestamp_hertz(&self) -> Result<u64, Error> {
        let mut hertz = 0u64;
        let (attribute, value) = (sys::HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, (&raw mut hertz).cast());
        // SAFETY: LOADED; the attribute is a number of 64 bits, which lives through the call.
        let status = unsafe { (self.functions.hsa_system_get_info)(attribute, value) };
        self.check(status, || "asking for the clock".into()).map(|()| hertz)
    }

    /// Returns what the runtime says of its last failure, besides what HSA has it say.
    pub(crate) fn last_failure(&self) -> Option<String> {
        let mut bytes = vec![0u8; 1024];
        // SAFETY: LOADED; the buffer has so many bytes.
        let len = unsafe { self.last_failure?(bytes.as_mut_ptr().cast(), bytes.len()) };
        bytes.truncate(len.min(bytes.len() - 1));
        (len > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the GPUs of this runtime, in its order.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn gpus(&'static self) -> Result<Vec<GpuInfo>, Error> {
        agent::gpus(self)
    }

    /// Opens a GPU of this runtime.
    ///
    /// # Errors
    /// What the runtime says, or that the GPU lacks something.
    pub fn open_gpu(&'static self, info: GpuInfo) -> Result<Arc<Gpu>, Error> {
        Gpu::open(self, info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_missing_is_named_with_what_to_do() {
        let refused = Runtime::open(&"/nowhere/libhsa.so".into()).unwrap_err();
        assert!(refused.contains("/nowhere/libhsa.so") && refused.contains(LIBRARY_VARIABLE), "{refused}");
        // Not an HSA runtime.
        let refused = Runtime::open(&"libc.so.6".into()).unwrap_err();
        assert!(refused.contains("libc.so.6 is no HSA runtime"), "{refused}");
        fn none(_: &CStr) -> Option<*const c_void> {
            None
        }
        // SAFETY: it returns nothing.
        let refused = unsafe { Runtime::contained(none) }.unwrap_err();
        assert!(refused.contains("has no hsa_"), "{refused}");
    }
}
