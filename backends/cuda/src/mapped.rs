//! Files that the GPU reads and writes in place, over the link.

use crate::quiet::when_quiet;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that is mapped into the process, whose pages stay in memory for the GPU. It ends when dropped, or
/// when the last running kernel has ended.
///
/// Pages that the file loses when it is cut stay where they are for the GPU, with what they had.
pub(crate) struct MappedFile {
    gpu: Arc<Gpu>,
    pages: Option<Pages>,
}

/// The files of a GPU that are mapped: to map takes the driver 0.1 ms a MiB, and the lanes of a kernel map the same file.
#[derive(Default)]
pub(crate) struct MappedFiles(Mutex<HashMap<FileKey, Weak<MappedFile>>>);

/// Longer than files' times are apart.
const TICK: Duration = Duration::from_secs(2);

/// What a mapping is of: device and number of the file, when it was changed (one that is cut gets other pages), bytes, and
/// whether it is to be written.
type FileKey = (u64, u64, [i64; 2], usize, bool);

impl MappedFiles {
    /// Does what [`Gpu::map_file`] does, or returns a mapping of the same file as it is.
    pub fn map(
        &self,
        gpu: &Arc<Gpu>,
        file: &File,
        bytes: usize,
        writable: bool,
    ) -> Result<Arc<MappedFile>, Error> {
        let Ok(metadata) = file.metadata() else { return Ok(Arc::new(gpu.map_file(file, bytes, writable)?)) };
        let mut maps = self.0.lock();
        maps.retain(|_, map| map.strong_count() > 0);
        let changed = [metadata.ctime(), metadata.ctime_nsec()];
        let key = (metadata.dev(), metadata.ino(), changed, bytes, writable);
        if let Some(mapped) = maps.get(&key).and_then(Weak::upgrade) {
            return Ok(mapped);
        }
        // Changes within a tick of the file system's clock have one time.
        let is_old = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .is_ok_and(|now| now.saturating_sub(TICK).as_secs() as i64 > metadata.ctime());
        let mapped = Arc::new(gpu.map_file(file, bytes, writable)?);
        if is_old {
            maps.insert(key, Arc::downgrade(&mapped));
        }
        Ok(mapped)
    }
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
    pub(crate) fn map_file(
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
