//! HSA's extensions, of which this runtime has AMD's loader.

use std::ffi::{CStr, c_char, c_void};

use super::runtime::Runtime;
use super::symbols::refuse;
use super::{Status, give, loader, report, status};

/// AMD's loader.
const LOADER: u16 = 0x201;
const LOADER_VERSION: (u16, u16) = (1, 3);

/// Returns the mask of the extensions that there are.
pub fn mask() -> [u8; 128] {
    let mut mask = [0; 128];
    mask[usize::from(LOADER) / 8] |= 1 << (LOADER % 8);
    mask
}

/// Returns the name of an extension of the headers.
fn name_of(extension: u16) -> Result<&'static CStr, Status> {
    Ok(match extension {
        0 => c"HSA_EXTENSION_FINALIZER",
        1 => c"HSA_EXTENSION_IMAGES",
        2 => c"HSA_EXTENSION_PERFORMANCE_COUNTERS",
        3 => c"HSA_EXTENSION_PROFILING_EVENTS",
        0x200 => c"HSA_EXTENSION_AMD_PROFILER",
        LOADER => c"HSA_EXTENSION_AMD_LOADER",
        0x202 => c"HSA_EXTENSION_AMD_AQLPROFILE",
        _ => return Err(status::INVALID_ARGUMENT),
    })
}

/// Returns the latest minor version of an extension's major one, if this runtime has that.
fn version(extension: u16, major: u16) -> Result<Option<u16>, Status> {
    Runtime::get()?;
    name_of(extension)?;
    Ok((extension == LOADER && major == LOADER_VERSION.0).then_some(LOADER_VERSION.1))
}

/// Gives an extension's name.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_extension_get_name(extension: u16, name: *mut *const c_char) -> Status {
    let tell = || {
        Runtime::get()?;
        // SAFETY: contract C.
        unsafe { give(name, name_of(extension)?.as_ptr()) }
    };
    report(tell())
}

/// Tells whether there is an extension in this version or a later minor one (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_system_extension_supported(
    extension: u16,
    major: u16,
    minor: u16,
    result: *mut bool,
) -> Status {
    let has = version(extension, major).map(|latest| latest.is_some_and(|latest| minor <= latest));
    // SAFETY: contract C.
    report(has.and_then(|has| unsafe { give(result, has) }))
}

/// Tells whether there is an extension in this major version, and which minor one is the latest.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_system_major_extension_supported(
    extension: u16,
    major: u16,
    minor: *mut u16,
    result: *mut bool,
) -> Status {
    let tell = || {
        let latest = version(extension, major)?;
        // SAFETY: contract C.
        unsafe {
            if let Some(latest) = latest {
                give(minor, latest)?;
            }
            give(result, latest.is_some())
        }
    };
    report(tell())
}

/// Tells whether an agent has an extension in this version (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_agent_extension_supported(
    extension: u16,
    agent: u64,
    major: u16,
    minor: u16,
    result: *mut bool,
) -> Status {
    match Runtime::get().and_then(|runtime| runtime.check_agent(agent)) {
        // SAFETY: contract C.
        Ok(()) => unsafe { hsa_system_extension_supported(extension, major, minor, result) },
        Err(status) => status,
    }
}

/// Tells whether an agent has an extension in this major version.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_agent_major_extension_supported(
    extension: u16,
    agent: u64,
    major: u16,
    minor: *mut u16,
    result: *mut bool,
) -> Status {
    match Runtime::get().and_then(|runtime| runtime.check_agent(agent)) {
        // SAFETY: contract C.
        Ok(()) => unsafe { hsa_system_major_extension_supported(extension, major, minor, result) },
        Err(status) => status,
    }
}

/// Writes as much of an extension's table of functions as the client has bytes for.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_system_get_major_extension_table(
    extension: u16,
    major: u16,
    bytes: usize,
    table: *mut c_void,
) -> Status {
    let tell = || {
        let has = version(extension, major)?.is_some();
        if table.is_null() || bytes == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        if !has {
            let name = name_of(extension)?.to_string_lossy();
            return Err(refuse(&name, "this runtime has no such extension in that version"));
        }
        let functions = loader::table().into_iter().take(bytes / size_of::<*const c_void>());
        for (index, function) in functions.enumerate() {
            // SAFETY: contract C: the table has so many bytes.
            unsafe { give(table.cast::<*const c_void>().add(index), function) }?;
        }
        Ok(())
    };
    report(tell())
}

/// Writes the table of functions that an extension had in this version (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_system_get_extension_table(
    extension: u16,
    major: u16,
    minor: u16,
    table: *mut c_void,
) -> Status {
    // What each minor version has.
    let functions = [3, 5, 6, 7].get(usize::from(minor)).copied().unwrap_or(0);
    // SAFETY: contract C: the table is that of the version.
    unsafe {
        hsa_system_get_major_extension_table(extension, major, functions * size_of::<*const c_void>(), table)
    }
}

/// Returns the version of AMD's profiler of packets, which this runtime does not have.
pub extern "C" fn hsa_ven_amd_aqlprofile_version_major() -> u32 {
    0
}
