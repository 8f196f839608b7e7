//! Memory pools, pinned memory and what is known of a pointer.

use std::ffi::c_void;

use super::attribute::{agent_pool, pool as info};
use super::runtime::{HOST, Runtime};
use super::{Status, give, report, status};
use crate::memory::{Found, PAGE, Use, host_bytes};

/// Global memory that both sides see at once.
const FINE_GRAINED: u32 = 2;
/// Global memory of a device.
const COARSE_GRAINED: u32 = 4;
/// Global memory that kernel arguments can be in.
const KERNARG: u32 = 1;

/// A pool: of an agent, and of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    agent: u64,
    flags: u32,
    segment: u32,
    bytes: u64,
}

/// Returns an agent's pools with their handles. All global ones share the host's memory.
fn pools_of(agent: u64) -> Vec<(u64, Pool)> {
    const GLOBAL: u32 = 0;
    const GROUP: u32 = 3;
    let kinds: &[(u32, u32)] = match agent {
        HOST => &[(GLOBAL, FINE_GRAINED), (GLOBAL, FINE_GRAINED | KERNARG), (GLOBAL, COARSE_GRAINED)],
        _ => &[(GLOBAL, COARSE_GRAINED), (GLOBAL, FINE_GRAINED), (GROUP, 0)],
    };
    let pool = |(number, &(segment, flags)): (usize, &(u32, u32))| {
        let bytes = if segment == GROUP { 64 << 10 } else { host_bytes() };
        (agent << 8 | (number as u64 + 1), Pool { agent, flags, segment, bytes })
    };
    kinds.iter().enumerate().map(pool).collect()
}

fn pool_of(runtime: &Runtime, handle: u64) -> Result<Pool, Status> {
    runtime.check_agent(handle >> 8).map_err(|_| status::INVALID_MEMORY_POOL)?;
    let found = pools_of(handle >> 8).into_iter().find(|(number, _)| *number == handle);
    found.map(|(_, pool)| pool).ok_or(status::INVALID_MEMORY_POOL)
}

/// Calls a function of the client's for each pool of an agent until it asks to stop.
pub extern "C" fn hsa_amd_agent_iterate_memory_pools(
    agent: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        Runtime::get()?.check_agent(agent)?;
        let callback = callback.ok_or(status::INVALID_ARGUMENT)?;
        for (pool, _) in pools_of(agent) {
            match callback(pool, data) {
                status::SUCCESS => {}
                other => return Err(other),
            }
        }
        Ok(())
    };
    report(visit())
}

/// Tells a property of a pool.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_pool_get_info(
    pool: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    let pool = match Runtime::get().and_then(|runtime| pool_of(&runtime, pool)) {
        Ok(pool) => pool,
        Err(status) => return status,
    };
    let global = pool.segment == 0;
    // SAFETY: contract C says that `value` has the attribute's type.
    report(unsafe {
        match attribute {
            info::SEGMENT => give(value.cast(), pool.segment),
            info::GLOBAL_FLAGS => give(value.cast(), pool.flags),
            info::SIZE | info::ALLOC_MAX_SIZE => give(value.cast(), pool.bytes),
            info::RUNTIME_ALLOC_ALLOWED => give(value.cast(), global),
            info::RUNTIME_ALLOC_GRANULE | info::RUNTIME_ALLOC_ALIGNMENT => {
                give(value.cast(), if global { PAGE as u64 } else { 0 })
            }
            info::ACCESSIBLE_BY_ALL => give(value.cast(), pool.agent == HOST),
            _ => Err(status::INVALID_ARGUMENT),
        }
    })
}

/// Tells how an agent may access a pool: every agent may access all global memory.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_agent_memory_pool_get_info(
    agent: u64,
    pool: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    const ALLOWED_BY_DEFAULT: u32 = 1;
    let check = || {
        let runtime = Runtime::get()?;
        runtime.check_agent(agent)?;
        pool_of(&runtime, pool)?;
        match attribute {
            // SAFETY: contract C says that `value` has the attribute's type.
            agent_pool::ACCESS => unsafe { give(value.cast(), ALLOWED_BY_DEFAULT) },
            // SAFETY: as above.
            agent_pool::NUM_LINK_HOPS => unsafe { give(value.cast(), 0u32) },
            _ => Err(status::INVALID_ARGUMENT),
        }
    };
    report(check())
}

/// Allocates memory from a pool. It reads 0.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_pool_allocate(
    pool: u64,
    bytes: usize,
    _flags: u32,
    pointer: *mut *mut c_void,
) -> Status {
    let allocate = || {
        let runtime = Runtime::get()?;
        let handle = pool;
        let pool = pool_of(&runtime, handle)?;
        if bytes == 0 || pointer.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        if pool.segment != 0 || bytes as u64 > pool.bytes {
            return Err(status::INVALID_ALLOCATION);
        }
        let address = runtime.memory.allocate(bytes, Use::Pool).ok_or(status::OUT_OF_RESOURCES)?;
        runtime.memory.set_owner(address, handle);
        // SAFETY: contract C.
        unsafe { give(pointer, std::ptr::with_exposed_provenance_mut(address as usize)) }
    };
    report(allocate())
}

/// Frees memory of a pool. A null pointer is no memory.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_pool_free(pointer: *mut c_void) -> Status {
    let free = || {
        let runtime = Runtime::get()?;
        if pointer.is_null() || runtime.memory.free(pointer.addr() as u64) {
            return Ok(());
        }
        Err(status::INVALID_ALLOCATION)
    };
    report(free())
}

/// Lets agents access memory, which all may access here.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_agents_allow_access(
    count: u32,
    agents: *const u64,
    _flags: *const u32,
    pointer: *const c_void,
) -> Status {
    let allow = || {
        let runtime = Runtime::get()?;
        if count == 0 || agents.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        for index in 0..count as usize {
            // SAFETY: contract C says that there are `count` agents.
            runtime.check_agent(unsafe { agents.add(index).read_unaligned() })?;
        }
        runtime.memory.find(pointer.addr() as u64).map(drop).ok_or(status::INVALID_ALLOCATION)
    };
    report(allow())
}

/// Pins the client's memory, so that devices may access it at the same address.
///
/// # Safety
///
/// Contract C; the memory stays valid until it is unlocked.
pub unsafe extern "C" fn hsa_amd_memory_lock(
    host: *mut c_void,
    bytes: usize,
    _agents: *mut u64,
    _count: i32,
    agent_pointer: *mut *mut c_void,
) -> Status {
    let pin = || {
        let runtime = Runtime::get()?;
        if host.is_null() || bytes == 0 || agent_pointer.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C.
        if !unsafe { runtime.memory.pin(host.expose_provenance() as u64, bytes) } {
            return Err(status::INVALID_ALLOCATION);
        }
        // SAFETY: contract C.
        unsafe { give(agent_pointer, host) }
    };
    report(pin())
}

/// Undoes one pinning.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_unlock(host: *mut c_void) -> Status {
    let unpin = || {
        let runtime = Runtime::get()?;
        // Memory of a pool counts as pinned for as long as it is allocated.
        let known =
            runtime.memory.unpin(host.addr() as u64) || runtime.memory.find(host.addr() as u64).is_some();
        if known { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
    };
    report(unpin())
}

/// What `hsa_amd_pointer_info` tells.
#[repr(C)]
#[derive(Debug)]
pub struct PointerInfo {
    size: u32,
    kind: u32,
    agent_base: *mut c_void,
    host_base: *mut c_void,
    bytes: usize,
    user_data: *mut c_void,
    owner: u64,
    flags: u32,
}

/// Tells what is known of a pointer.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_pointer_info(
    pointer: *const c_void,
    info: *mut PointerInfo,
    _allocate: Option<extern "C" fn(usize) -> *mut c_void>,
    count: *mut u32,
    _accessible: *mut *mut u64,
) -> Status {
    const UNKNOWN: u32 = 0;
    const HSA: u32 = 1;
    const LOCKED: u32 = 2;
    let tell = || {
        let runtime = Runtime::get()?;
        if info.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // The client's structure may be an older one, which is shorter.
        // SAFETY: contract C: the client has set the size, which is the first part of all of them.
        let room = unsafe { info.cast::<u32>().read_unaligned() };
        let size = size_of::<PointerInfo>().min(room as usize);
        if size < size_of::<u32>() {
            return Err(status::INVALID_ARGUMENT);
        }
        let found = runtime.memory.find(pointer.addr() as u64);
        let base = found.map_or(0, |found| found.base);
        let base = std::ptr::with_exposed_provenance_mut(base as usize);
        let (owner, flags) = match found {
            None => (0, 0),
            Some(Found { purpose: Use::Pool, owner, .. }) => {
                pool_of(&runtime, owner).map_or((0, 0), |pool| (pool.agent, pool.flags))
            }
            Some(Found { purpose: Use::Runtime, owner, .. }) => (owner, FINE_GRAINED),
            Some(Found { purpose: Use::Pinned, .. }) => (HOST, FINE_GRAINED),
        };
        let told = PointerInfo {
            size: size as u32,
            kind: match found.map(|found| found.purpose) {
                None => UNKNOWN,
                Some(Use::Pinned) => LOCKED,
                Some(_) => HSA,
            },
            agent_base: base,
            host_base: base,
            bytes: found.map_or(0, |found| found.bytes),
            user_data: std::ptr::null_mut(),
            owner,
            flags,
        };
        if !count.is_null() {
            // SAFETY: contract C.
            unsafe { give(count, 0) }?;
        }
        // SAFETY: contract C: the client's structure has at least `size` bytes.
        unsafe { std::ptr::copy_nonoverlapping((&raw const told).cast::<u8>(), info.cast(), size) };
        Ok(())
    };
    report(tell())
}
