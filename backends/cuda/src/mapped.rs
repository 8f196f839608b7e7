//! Files that the GPU reads and writes in place, over the link.

use crate::quiet::when_quiet;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

/// A file that is mapped into the process, whose pages stay in memory for the GPU. It ends when dropped, or
/// when the last running kernel has ended.
///
/// Pages that the file loses when it is cut stay where they are for the GPU, with what they had.
pub struct MappedFile {
    gpu: Arc<Gpu>,
    pages: Option<Pages>,
}

/// Pages of a mapping of the process.
struct Pages {
    start: usize,
    bytes: usize,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are a mapping of their own, and the GPU does not know them.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.bytes) };
    }
}

impl Gpu {
    /// Maps the first `bytes` bytes of a file, to be read and, if it is `writable`, written by kernels.
    ///
    /// # Errors
    /// When the system does not map the file, or the driver does not take such pages: not every file system's
    /// may stay in memory to be written.
    pub fn map_file(
        self: &Arc<Self>,
        file: &File,
        bytes: usize,
        writable: bool,
    ) -> Result<MappedFile, Error> {
        let doing = || format!("mapping {bytes} bytes of a file for the GPU");
        let refused =
            |name: &str, text: String| Error { doing: doing(), name: name.into(), text, is_fault: false };
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: new pages, at an address that the system chooses.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(refused("no mapping", std::io::Error::last_os_error().to_string()));
        }
        let pages = Pages { start: start.expose_provenance(), bytes };
        let read_only = if writable { 0 } else { sys::CU_MEMHOSTREGISTER_READ_ONLY };
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | read_only;
        // SAFETY: LOADED; the pages are mapped until they are taken back below, or by the result's drop.
        self.run(doing, || unsafe { sys::cuMemHostRegister_v2(start, bytes, flags) })?;
        let mapped = MappedFile { gpu: self.clone(), pages: Some(pages) };
        let mut address = 0;
        // SAFETY: LOADED; the result lives through the call.
        self.run(doing, || unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, start, 0) })?;
        if address == mapped.address() {
            return Ok(mapped);
        }
        Err(refused(
            "no unified addressing",
            "the GPU sees the host's memory at other addresses than the host".into(),
        ))
    }
}

impl MappedFile {
    /// Address of the file's first byte, on the host and on every GPU.
    pub fn address(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.start as u64)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let (gpu, pages) = (self.gpu.clone(), self.pages.take());
        when_quiet(move || {
            if let Some(pages) = &pages {
                let start = ptr::with_exposed_provenance_mut::<c_void>(pages.start);
                // SAFETY: LOADED; `map_file` registered the pages, once, and no kernel runs that could use them.
                gpu.release(|| unsafe { sys::cuMemHostUnregister(start) });
            }
            (pages, gpu)
        });
    }
}
