//! The signals that devices ring. The host polls its buffers and looks at no signal, but a device rings one, and the
//! caller's own code may wait for it, so it is HSA's.

use hostcall_hsa::{LIBRARY, LIBRARY_VARIABLE};
use hostcall_locks::Mutex;
use std::ffi::c_void;

/// HSA's handle of a signal.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    handle: u64,
}

type Create = unsafe extern "C" fn(i64, u32, *const c_void, *mut Handle) -> u32;
type Destroy = unsafe extern "C" fn(Handle) -> u32;

#[derive(Clone, Copy)]
struct Functions {
    create: Create,
    destroy: Destroy,
}

impl Functions {
    /// Returns the functions of the process's HSA runtime, which is loaded if the program has not done so.
    fn get() -> Option<Self> {
        // The library stays loaded: threads of its own run in it.
        static LOADED: Mutex<Option<(libloading::Library, Functions)>> = Mutex::new(None);
        let mut loaded = LOADED.lock();
        if loaded.is_none() {
            *loaded = Self::load();
        }
        loaded.as_ref().map(|(_, functions)| *functions)
    }

    fn load() -> Option<(libloading::Library, Self)> {
        let file = std::env::var_os(LIBRARY_VARIABLE).unwrap_or_else(|| LIBRARY.into());
        // SAFETY: loads the HSA runtime, as every program for these devices does.
        let library = unsafe { libloading::Library::new(file) }.ok()?;
        // SAFETY: an HSA runtime has functions of these names with the types of HSA's headers; the library outlives them in
        // `LOADED`.
        let functions = unsafe {
            Self {
                create: *library.get::<Create>(b"hsa_signal_create\0").ok()?,
                destroy: *library.get::<Destroy>(b"hsa_signal_destroy\0").ok()?,
            }
        };
        Some((library, functions))
    }
}

/// A signal.
pub(crate) struct Signal {
    handle: Handle,
    destroy: Destroy,
}

impl Signal {
    /// Makes a signal; `None` when HSA is not there or not initialised.
    pub fn create() -> Option<Self> {
        let Functions { create, destroy } = Functions::get()?;
        let mut handle = Handle { handle: 0 };
        // SAFETY: HSA's function, which answers with an error when HSA is not initialised; the result lives through the call.
        let status = unsafe { create(0, 0, std::ptr::null(), &mut handle) };
        (status == 0 && handle.handle != 0).then_some(Self { handle, destroy })
    }

    pub fn handle(&self) -> u64 {
        self.handle.handle
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: HSA's function; the signal was made by it and is destroyed once. When HSA was shut down it says so.
        unsafe { (self.destroy)(self.handle) };
    }
}
