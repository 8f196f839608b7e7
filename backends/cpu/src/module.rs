//! Images of the software device: shared objects of this process's architecture.

use crate::memory::pointer;
use hostcall_abi::cpu::Entry;
use hostcall_locks::Mutex;
use hostcall_seam::{BackendError, DeviceAddress, ImageSource, Kernel, KernelLimits, Module, Variable};
use libloading::Library;
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of memory of a workgroup.
pub(crate) const MAX_WORKGROUP_BYTES: u32 = 1 << 20;

/// Images whose kernels may start threads, which stay loaded.
static KEPT: Mutex<Vec<Arc<Library>>> = Mutex::new(Vec::new());

/// A kernel of this process or of a loaded image.
pub(crate) struct CpuKernel {
    pub entry: Entry,
    /// Keeps the image loaded.
    pub _image: Option<Arc<Library>>,
}

// SAFETY: the image, if there is one, stays loaded while the kernel lives; the program itself always is.
unsafe impl Kernel for CpuKernel {
    fn limits(&self) -> KernelLimits {
        KernelLimits {
            registers: None,
            stack_bytes: 0,
            workgroup_bytes: 0,
            max_lanes: 1024,
            max_dynamic_workgroup_bytes: MAX_WORKGROUP_BYTES,
        }
    }
}

/// A loaded image.
pub(crate) struct CpuModule {
    library: Arc<Library>,
    /// Bytes of its exported symbols.
    sizes: HashMap<String, u64>,
}

/// Bytes that the loader reads from memory, as a file without a name.
fn file_of_bytes(bytes: &[u8]) -> std::io::Result<(OwnedFd, PathBuf)> {
    // SAFETY: the name is a string that ends in a zero, and lives through the call.
    let file = unsafe { libc::memfd_create(c"hostcall-image".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the system has just made it, and nobody else has it.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    std::fs::File::from(file.try_clone()?).write_all(bytes)?;
    Ok((file, path))
}

impl CpuModule {
    /// Loads an image, from the file itself where there is one, so that debuggers find it.
    pub fn load(image: ImageSource<'_>) -> Result<Self, BackendError> {
        let bytes = image.bytes();
        let file = object::File::parse(bytes).map_err(|error| BackendError::BadImage(error.to_string()))?;
        let sizes = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.size())))
            .collect();
        let driver = |error: &dyn std::fmt::Display| BackendError::Driver(error.to_string());
        let open = |path: &Path| {
            // SAFETY: loading runs the image's initialisers. It is an image of kernels, which the caller looked at, and
            // the user asked to run it; a path with a slash is taken literally.
            unsafe { Library::new(path) }.map_err(|error| driver(&error))
        };
        let library = match image {
            ImageSource::File { path, .. } => open(path)?,
            ImageSource::Bytes(bytes) => {
                let (file, path) = file_of_bytes(bytes).map_err(|error| driver(&error))?;
                let library = open(&path)?;
                drop(file);
                library
            }
        };
        let library = Arc::new(library);
        // A thread that a kernel starts may run when nobody else knows of the image any more.
        if file.dynamic_symbols().any(|symbol| symbol.is_undefined() && symbol.name() == Ok("pthread_create"))
        {
            KEPT.lock().push(library.clone());
        }
        Ok(Self { library, sizes })
    }

    /// Returns the address of a symbol that the image itself defines.
    fn address(&self, symbol: &str) -> Option<DeviceAddress> {
        self.sizes.get(symbol)?;
        // SAFETY: only the symbol's address is taken.
        let found = unsafe { self.library.get::<*mut u8>(symbol.as_bytes()) }.ok()?;
        // SAFETY: as above: the type is a raw pointer's, which any symbol's address is.
        let address = unsafe { found.into_raw() }.as_raw_ptr();
        (!address.is_null()).then(|| DeviceAddress::new(address.expose_provenance() as u64))
    }
}

// SAFETY: the library stays loaded while the module or one of its kernels lives.
unsafe impl Module for CpuModule {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        let Some(address) = self.address(symbol) else { return Ok(None) };
        // SAFETY: the address is a function's of an image that `identify` found to be hostcall's, whose kernels are
        // entries: their symbols begin with a prefix that nothing else has.
        let entry = unsafe { std::mem::transmute::<*mut u8, Entry>(pointer(address)) };
        Ok(Some(Arc::new(CpuKernel { entry, _image: Some(self.library.clone()) })))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let bytes = self.sizes.get(symbol).copied().unwrap_or(0) as usize;
        Ok(self.address(symbol).map(|address| Variable { address, bytes }))
    }
}
