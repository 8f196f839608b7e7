//! Memory by regions, HSA's older names for what AMD's pools are: each pool is a region of the same handle.

use std::ffi::c_void;

use super::memory_pools::{
    hsa_amd_agent_iterate_memory_pools, hsa_amd_memory_pool_allocate, hsa_amd_memory_pool_get_info, pin,
    unpin,
};
use super::runtime::Runtime;
use super::{Status, report, status};

fn of_region(status: Status) -> Status {
    if status == status::INVALID_MEMORY_POOL { status::INVALID_REGION } else { status }
}

/// Calls a function of the client's for each region of an agent until it asks to stop.
pub extern "C" fn hsa_agent_iterate_regions(
    agent: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    hsa_amd_agent_iterate_memory_pools(agent, callback, data)
}

/// Tells a property of a region.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_region_get_info(region: u64, attribute: u32, value: *mut c_void) -> Status {
    // SAFETY: contract C.
    of_region(unsafe { hsa_amd_memory_pool_get_info(region, attribute, value) })
}

/// Allocates memory of a region. It reads 0.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_memory_allocate(region: u64, bytes: usize, pointer: *mut *mut c_void) -> Status {
    // SAFETY: contract C.
    of_region(unsafe { hsa_amd_memory_pool_allocate(region, bytes, 0, pointer) })
}

/// Makes memory an agent's, which may access it anyhow.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_memory_assign_agent(pointer: *mut c_void, agent: u64, _access: u32) -> Status {
    let assign = |runtime: std::sync::Arc<Runtime>| {
        runtime.check_agent(agent)?;
        runtime.memory.find(pointer.addr() as u64).map(drop).ok_or(status::INVALID_ALLOCATION)
    };
    report(Runtime::get().and_then(assign))
}

/// Pins the client's memory, so that devices may access it at the same address.
///
/// # Safety
///
/// Contract C; the memory stays valid until [`hsa_memory_deregister`].
pub unsafe extern "C" fn hsa_memory_register(pointer: *mut c_void, bytes: usize) -> Status {
    if bytes == 0 && !pointer.is_null() {
        return report(Runtime::get().map(drop));
    }
    // SAFETY: contract C.
    report(unsafe { pin(pointer, bytes) })
}

/// Undoes one registration. Memory that is not registered is left as it is.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_memory_deregister(pointer: *mut c_void, _bytes: usize) -> Status {
    report(
        unpin(pointer).or_else(|other| if other == status::INVALID_ARGUMENT { Ok(()) } else { Err(other) }),
    )
}
