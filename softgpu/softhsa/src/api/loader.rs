//! AMD's loader extension: what is loaded where, for profilers and debuggers.

use std::ffi::c_void;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError};

use super::attribute::loaded_code_object as info;
use super::code::LoadedObject;
use super::runtime::{Runtime, lock};
use super::{Status, each, give, give_text, report, status};

/// A code object in a file that the client keeps (`HSA_VEN_AMD_LOADER_CODE_OBJECT_STORAGE_TYPE_MEMORY`).
const IN_MEMORY: u32 = 2;

/// Returns the functions of the extension's table, in its order.
pub fn table() -> [*const c_void; 7] {
    [
        hsa_ven_amd_loader_query_host_address as *const c_void,
        hsa_ven_amd_loader_query_segment_descriptors as *const c_void,
        hsa_ven_amd_loader_query_executable as *const c_void,
        hsa_ven_amd_loader_executable_iterate_loaded_code_objects as *const c_void,
        hsa_ven_amd_loader_loaded_code_object_get_info as *const c_void,
        hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size as *const c_void,
        hsa_ven_amd_loader_iterate_executables as *const c_void,
    ]
}

impl Runtime {
    /// Returns all loaded code objects, with their executables' handles.
    fn loaded_objects(&self) -> Vec<(u64, LoadedObject)> {
        let executables = self.executables.read().unwrap_or_else(PoisonError::into_inner);
        let of_one = |(handle, executable): (&u64, &Arc<super::code::Executable>)| {
            let loaded = lock(&executable.loaded).clone();
            loaded.into_iter().map(|object| (*handle, object)).collect::<Vec<_>>()
        };
        executables.iter().flat_map(of_one).collect()
    }

    /// Returns the loaded code object that holds an address, with its executable's handle.
    fn loaded_at(&self, address: u64) -> Result<(u64, LoadedObject), Status> {
        let holds = |(_, object): &(u64, LoadedObject)| {
            let start = object.loaded.address;
            (start..start + object.loaded.object.image.len() as u64).contains(&address)
        };
        self.loaded_objects().into_iter().find(holds).ok_or(status::INVALID_ARGUMENT)
    }
}

/// Gives the address at which the host reads what is loaded at an address: the same.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_ven_amd_loader_query_host_address(
    device: *const c_void,
    host: *mut *const c_void,
) -> Status {
    let find = |runtime: Arc<Runtime>| {
        runtime.loaded_at(device.addr() as u64)?;
        // SAFETY: contract C.
        unsafe { give(host, device) }
    };
    report(Runtime::get().and_then(find))
}

/// Finds the executable of what is loaded at an address.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_ven_amd_loader_query_executable(
    device: *const c_void,
    executable: *mut u64,
) -> Status {
    let find = |runtime: Arc<Runtime>| {
        let (found, _) = runtime.loaded_at(device.addr() as u64)?;
        // SAFETY: contract C.
        unsafe { give(executable, found) }
    };
    report(Runtime::get().and_then(find))
}

/// A loaded segment: HSA's `hsa_ven_amd_loader_segment_descriptor_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SegmentDescriptor {
    agent: u64,
    executable: u64,
    storage_type: u32,
    storage_base: *const c_void,
    storage_bytes: usize,
    storage_offset: usize,
    base: *const c_void,
    bytes: usize,
}

/// Describes all loaded segments, of which each code object is one. Without descriptors, tells how many there are.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_ven_amd_loader_query_segment_descriptors(
    descriptors: *mut SegmentDescriptor,
    count: *mut usize,
) -> Status {
    let describe = |runtime: Arc<Runtime>| {
        if count.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        let loaded = runtime.loaded_objects();
        // SAFETY: contract C.
        match (descriptors.is_null(), unsafe { count.read_unaligned() }) {
            // SAFETY: contract C.
            (true, 0) => return unsafe { give(count, loaded.len()) },
            (false, room) if room == loaded.len() => {}
            (true, _) => return Err(status::INVALID_ARGUMENT),
            (false, _) => return Err(status::INCOMPATIBLE_ARGUMENTS),
        }
        for (index, (executable, object)) in loaded.into_iter().enumerate() {
            let descriptor = SegmentDescriptor {
                agent: object.agent,
                executable,
                storage_type: IN_MEMORY,
                storage_base: object.file.0.as_ptr().cast(),
                storage_bytes: object.file.0.len(),
                storage_offset: 0,
                base: std::ptr::with_exposed_provenance(object.loaded.address as usize),
                bytes: object.loaded.object.image.len(),
            };
            // SAFETY: contract C says that there are `count` descriptors.
            unsafe { give(descriptors.add(index), descriptor) }?;
        }
        Ok(())
    };
    report(Runtime::get().and_then(describe))
}

/// Calls a function of the client's for each executable until it asks to stop.
pub extern "C" fn hsa_ven_amd_loader_iterate_executables(
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = |runtime: Arc<Runtime>| {
        let callback = callback.ok_or(status::INVALID_ARGUMENT)?;
        let executables = runtime.executables.read().unwrap_or_else(PoisonError::into_inner);
        let handles: Vec<u64> = executables.keys().copied().collect();
        drop(executables);
        each(handles, |executable| callback(executable, data))
    };
    report(Runtime::get().and_then(visit))
}

/// Calls a function of the client's for each loaded code object of an executable until it asks to stop.
pub extern "C" fn hsa_ven_amd_loader_executable_iterate_loaded_code_objects(
    executable: u64,
    callback: Option<extern "C" fn(u64, u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = |runtime: Arc<Runtime>| {
        let callback = callback.ok_or(status::INVALID_ARGUMENT)?;
        let loaded = lock(&runtime.executable(executable)?.loaded).clone();
        each(loaded, |object| callback(executable, object.handle, data))
    };
    report(Runtime::get().and_then(visit))
}

/// Tells a property of a loaded code object.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_ven_amd_loader_loaded_code_object_get_info(
    object: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    const OF_AGENT: u32 = 2;
    let tell = |runtime: Arc<Runtime>| {
        let found = runtime.loaded_objects().into_iter().find(|(_, loaded)| loaded.handle == object);
        let (executable, LoadedObject { agent, file, loaded, .. }) =
            found.ok_or(status::INVALID_CODE_OBJECT)?;
        let (base, bytes) = (file.0.as_ptr().addr() as u64, file.0.len() as u64);
        let uri = format!("memory://{}#offset={base:#x}&size={bytes}", std::process::id());
        // SAFETY: contract C says that `value` has the attribute's type.
        unsafe {
            match attribute {
                info::EXECUTABLE => give(value.cast(), executable),
                info::KIND => give(value.cast(), OF_AGENT),
                info::AGENT => give(value.cast(), agent),
                info::STORAGE_TYPE => give(value.cast(), IN_MEMORY),
                info::STORAGE_MEMORY_BASE => give(value.cast(), base),
                info::STORAGE_MEMORY_SIZE => give(value.cast(), bytes),
                info::LOAD_DELTA => give(value.cast(), loaded.delta() as i64),
                info::LOAD_BASE => give(value.cast(), loaded.address),
                info::LOAD_SIZE => give(value.cast(), loaded.object.image.len() as u64),
                info::URI_LENGTH => give(value.cast(), uri.len() as u32),
                info::URI => give_text(value, &uri, uri.len()),
                _ => Err(status::INVALID_ARGUMENT),
            }
        }
    };
    report(Runtime::get().and_then(tell))
}

/// Makes a reader of a code object in a part of a file.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size(
    file: i32,
    offset: usize,
    size: usize,
    reader: *mut u64,
) -> Status {
    // SAFETY: contract C.
    report(unsafe { read_file(file, offset as u64, Some(size), reader) })
}

/// Makes a reader of a code object in a file.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_code_object_reader_create_from_file(file: i32, reader: *mut u64) -> Status {
    // SAFETY: contract C.
    report(unsafe { read_file(file, 0, None, reader) })
}

/// Reads so many bytes of a file, or all from the offset on.
///
/// # Safety
///
/// `reader` is null or valid for a write; an open file stays open meanwhile.
unsafe fn read_file(file: i32, offset: u64, size: Option<usize>, reader: *mut u64) -> Result<(), Status> {
    let runtime = Runtime::get()?;
    if file < 0 {
        return Err(status::INVALID_FILE);
    }
    // SAFETY: by this function's contract. It is the client's, which closes it.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
    let whole = file.metadata().map_err(|_| status::INVALID_FILE)?.len();
    let left = whole.checked_sub(offset).ok_or(status::INVALID_ARGUMENT)?;
    let size = size.map_or(left, |size| size as u64);
    if size == 0 || size > left {
        return Err(status::INVALID_ARGUMENT);
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, offset).map_err(|_| status::INVALID_FILE)?;
    // SAFETY: by this function's contract.
    unsafe { give(reader, runtime.add_reader(bytes)) }
}
