//! Memory faults, which the runtime tells one handler of, and errors of queues.
//!
//! Handlers run on threads of the runtime's, at any time, also when the GPU is not open any more. So what
//! they are given is a number, which is looked up in a list of those that are open. ROCm's memory faults name
//! the GPU's agent alone: they are every opening's of the GPU in this process. The contained runtime leaves
//! them to the queue, and so to one opening.

use crate::runtime::{Error, FaultKind, Runtime};
use crate::sys::{self, hsa_amd_event_t, hsa_queue_t, hsa_status_t};
use hostcall_locks::Mutex;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock, Weak};

/// What went wrong on an open GPU first.
#[derive(Debug)]
pub(crate) struct Faults {
    runtime: &'static Runtime,
    agent: u64,
    number: usize,
    first: OnceLock<(FaultKind, String)>,
}

/// The open GPUs' faults.
static OPEN: Mutex<(usize, Vec<Weak<Faults>>)> = Mutex::new((0, Vec::new()));

fn open(of: impl Fn(&Faults) -> bool) -> Vec<Arc<Faults>> {
    let open = OPEN.lock();
    open.1.iter().filter_map(Weak::upgrade).filter(|faults| of(faults)).collect()
}

impl Faults {
    /// Those of a GPU that is opened.
    pub fn new(runtime: &'static Runtime, agent: u64) -> Arc<Self> {
        let mut open = OPEN.lock();
        open.0 += 1;
        let faults = Arc::new(Self { runtime, agent, number: open.0, first: OnceLock::new() });
        open.1.retain(|known| known.strong_count() > 0);
        open.1.push(Arc::downgrade(&faults));
        faults
    }

    /// Notes what went wrong, unless something did before.
    pub fn note(&self, kind: FaultKind, text: String) {
        let _ = self.first.set((kind, text));
    }

    /// Returns what went wrong first.
    pub fn first(&self) -> Option<&(FaultKind, String)> {
        self.first.get()
    }

    /// What the callback of a queue's errors is given.
    pub fn as_data(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.number)
    }

    /// What happened, with what the runtime says of it besides.
    fn with_details(&self, text: String) -> String {
        match self.runtime.last_failure() {
            Some(details) => format!("{text}: {details}"),
            None => text,
        }
    }
}

/// Called by the runtime when a queue fails.
pub(crate) unsafe extern "C" fn queue_failed(
    status: hsa_status_t,
    _queue: *mut hsa_queue_t,
    number: *mut c_void,
) {
    for faults in open(|faults| faults.number == number.addr()) {
        let text = match status {
            sys::HSA_STATUS_ERROR_MEMORY_FAULT => {
                "a kernel accessed an address that no memory of the GPU holds".into()
            }
            status => faults.runtime.text(status),
        };
        faults.note(FaultKind::of(status), faults.with_details(text));
    }
}

/// Called by the runtime for events. Those that are no memory fault are left to the runtime.
unsafe extern "C" fn event(event: *const hsa_amd_event_t, runtime: *mut c_void) -> hsa_status_t {
    // SAFETY: the runtime gives an event that lives through the call.
    let event = unsafe { &*event };
    if event.event_type != sys::HSA_AMD_GPU_MEMORY_FAULT_EVENT {
        return sys::HSA_STATUS_ERROR;
    }
    // SAFETY: an event of this type has this part.
    let fault = unsafe { event.__bindgen_anon_1.memory_fault };
    let known =
        |faults: &Faults| faults.agent == fault.agent.handle && std::ptr::eq(faults.runtime, runtime.cast());
    let reason = match fault.fault_reason_mask as sys::hsa_amd_memory_fault_reason_t {
        mask if mask & sys::HSA_AMD_MEMORY_FAULT_READ_ONLY != 0 => "which is read-only",
        mask if mask & sys::HSA_AMD_MEMORY_FAULT_NX != 0 => "which holds no code",
        mask if mask & sys::HSA_AMD_MEMORY_FAULT_HOST_ONLY != 0 => "which is the host's alone",
        _ => "which no memory of the GPU holds",
    };
    let text = format!("a kernel accessed the page of address {:#x}, {reason}", fault.virtual_address);
    let found = open(known);
    for faults in &found {
        faults.note(FaultKind::Memory, faults.with_details(text.clone()));
    }
    // The runtime ends the process when nobody takes the event.
    if found.is_empty() { sys::HSA_STATUS_ERROR } else { sys::HSA_STATUS_SUCCESS }
}

/// Leaves all events to the runtime, which tells the queue of memory faults then.
unsafe extern "C" fn leave_event(_event: *const hsa_amd_event_t, _runtime: *mut c_void) -> hsa_status_t {
    sys::HSA_STATUS_ERROR
}

/// Has the runtime tell of memory faults. Another client of the same runtime may have done so before: then it is told, and
/// kernels' faults are what the runtime makes of them.
pub(crate) fn watch(runtime: &'static Runtime) -> Result<(), Error> {
    let data = std::ptr::from_ref(runtime).cast_mut().cast();
    let handler = if runtime.tells_queues_of_faults { leave_event } else { event };
    // SAFETY: LOADED; the callback expects this data, which lives for good.
    let status = unsafe { (runtime.functions.hsa_amd_register_system_event_handler)(Some(handler), data) };
    match status {
        sys::HSA_STATUS_ERROR => Ok(()),
        status => runtime.check(status, || "watching for memory faults".into()),
    }
}
