//! Memory pools, pinned memory and what is known of a pointer.

use std::ffi::c_void;

use super::attribute::{agent_pool, pool as info};
use super::runtime::{ClientData, HOST, Runtime, lock};
use super::{Status, each, give, report, status};
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
        each(pools_of(agent), |(pool, _)| callback(pool, data))
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
            info::REGION_ALLOC_MAX_SIZE => give(value.cast(), if global { pool.bytes } else { 0 }),
            info::REGION_ALLOC_MAX_PRIVATE_WORKGROUP_SIZE if !global => give(value.cast(), pool.bytes as u32),
            info::REGION_HOST_ACCESSIBLE => give(value.cast(), global),
            info::RUNTIME_ALLOC_ALLOWED => give(value.cast(), global),
            info::RUNTIME_ALLOC_GRANULE | info::RUNTIME_ALLOC_ALIGNMENT | info::RUNTIME_ALLOC_REC_GRANULE => {
                give(value.cast(), if global { PAGE as u64 } else { 0 })
            }
            info::LOCATION => give(value.cast(), u32::from(pool.agent != HOST)),
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
            // Of each hop, of which there is none.
            agent_pool::LINK_INFO => Ok(()),
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

/// Frees memory of a pool, after a call of the client's functions that wait for this. A null pointer is no memory.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_pool_free(pointer: *mut c_void) -> Status {
    let free = || {
        let runtime = Runtime::get()?;
        if pointer.is_null() {
            return Ok(());
        }
        let address = pointer.addr() as u64;
        if let Some(Found { base, bytes, purpose: Use::Pool, .. }) = runtime.memory.find(address)
            && base == address
        {
            let end = base + bytes as u64;
            let is_inside = |notice: &mut Notice| (base..end).contains(&(notice.pointer.get().addr() as u64));
            let told: Vec<Notice> = lock(&runtime.deallocations).extract_if(.., is_inside).collect();
            for notice in told {
                (notice.callback)(notice.pointer.get(), notice.data.get());
            }
        }
        if runtime.memory.free(address) { Ok(()) } else { Err(status::INVALID_ALLOCATION) }
    };
    report(free())
}

/// A function of the client's that is called when memory is freed.
type DeallocationCallback = extern "C" fn(*mut c_void, *mut c_void);

/// A client's wish to be told of a deallocation.
#[derive(Debug)]
pub struct Notice {
    pointer: ClientData,
    callback: DeallocationCallback,
    data: ClientData,
}

/// Calls a function of the client's, once, when the memory is freed that holds an address.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_register_deallocation_callback(
    pointer: *mut c_void,
    callback: Option<DeallocationCallback>,
    data: *mut c_void,
) -> Status {
    let register = || {
        let runtime = Runtime::get()?;
        let callback = callback.filter(|_| !pointer.is_null()).ok_or(status::INVALID_ARGUMENT)?;
        runtime.memory.find(pointer.addr() as u64).ok_or(status::INVALID_ALLOCATION)?;
        let notice = Notice { pointer: ClientData(pointer), callback, data: ClientData(data) };
        lock(&runtime.deallocations).push(notice);
        Ok(())
    };
    report(register())
}

/// Undoes [`hsa_amd_register_deallocation_callback`].
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_deregister_deallocation_callback(
    pointer: *mut c_void,
    callback: Option<DeallocationCallback>,
) -> Status {
    let deregister = || {
        let runtime = Runtime::get()?;
        let callback = callback.ok_or(status::INVALID_ARGUMENT)?;
        let mut notices = lock(&runtime.deallocations);
        let is_it = |notice: &Notice| {
            notice.pointer.get() == pointer && std::ptr::fn_addr_eq(notice.callback, callback)
        };
        let place = notices.iter().position(is_it).ok_or(status::INVALID_ARGUMENT)?;
        notices.remove(place);
        Ok(())
    };
    report(deregister())
}

/// Tells whether memory of a pool can become another's: none can.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_pool_can_migrate(from: u64, to: u64, result: *mut bool) -> Status {
    let tell = || {
        let runtime = Runtime::get()?;
        pool_of(&runtime, from)?;
        pool_of(&runtime, to)?;
        // SAFETY: contract C.
        unsafe { give(result, false) }
    };
    report(tell())
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

/// Pins the client's memory.
///
/// # Safety
///
/// The memory stays valid until [`unpin`].
pub unsafe fn pin(host: *mut c_void, bytes: usize) -> Result<(), Status> {
    let runtime = Runtime::get()?;
    if host.is_null() || bytes == 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    // SAFETY: by this function's contract.
    let is_pinned = unsafe { runtime.memory.pin(host.expose_provenance() as u64, bytes) };
    if is_pinned { Ok(()) } else { Err(status::INVALID_ALLOCATION) }
}

/// Undoes one pinning.
pub fn unpin(host: *mut c_void) -> Result<(), Status> {
    let runtime = Runtime::get()?;
    let address = host.addr() as u64;
    // Memory of a pool counts as pinned for as long as it is allocated.
    let known = runtime.memory.unpin(address) || runtime.memory.find(address).is_some();
    if known { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
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
    if agent_pointer.is_null() {
        return Runtime::get().err().unwrap_or(status::INVALID_ARGUMENT);
    }
    // SAFETY: contract C.
    report(unsafe { pin(host, bytes).and_then(|()| give(agent_pointer, host)) })
}

/// Pins the client's memory as if it was a pool's of the host, which it is.
///
/// # Safety
///
/// As for [`hsa_amd_memory_lock`].
pub unsafe extern "C" fn hsa_amd_memory_lock_to_pool(
    host: *mut c_void,
    bytes: usize,
    agents: *mut u64,
    count: i32,
    pool: u64,
    _flags: u32,
    agent_pointer: *mut *mut c_void,
) -> Status {
    match Runtime::get().and_then(|runtime| pool_of(&runtime, pool)) {
        // SAFETY: contract C.
        Ok(pool) if pool.agent == HOST => unsafe {
            hsa_amd_memory_lock(host, bytes, agents, count, agent_pointer)
        },
        Ok(_) => status::INVALID_ARGUMENT,
        Err(status) => status,
    }
}

/// Undoes one pinning.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_memory_unlock(host: *mut c_void) -> Status {
    report(unpin(host))
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
    allocate: Option<extern "C" fn(usize) -> *mut c_void>,
    count: *mut u32,
    accessible: *mut *mut u64,
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
            user_data: std::ptr::with_exposed_provenance_mut(found.map_or(0, |found| found.note) as usize),
            owner,
            flags,
        };
        // All agents may access all that is known.
        let agents: Vec<u64> = found.map_or(Vec::new(), |_| runtime.agents().collect());
        if let Some(allocate) = allocate.filter(|_| !count.is_null() && !accessible.is_null()) {
            let list = allocate(size_of::<u64>() * agents.len()).cast::<u64>();
            if list.is_null() && !agents.is_empty() {
                return Err(status::OUT_OF_RESOURCES);
            }
            for (index, agent) in agents.iter().enumerate() {
                // SAFETY: contract C: the client allocated so many numbers.
                unsafe { give(list.add(index), *agent) }?;
            }
            // SAFETY: contract C.
            unsafe { give(accessible, list) }?;
        }
        if !count.is_null() {
            // SAFETY: contract C.
            unsafe { give(count, agents.len() as u32) }?;
        }
        // SAFETY: contract C: the client's structure has at least `size` bytes.
        unsafe { std::ptr::copy_nonoverlapping((&raw const told).cast::<u8>(), info.cast(), size) };
        Ok(())
    };
    report(tell())
}

/// Notes a pointer of the client's with an allocation, which `hsa_amd_pointer_info` tells.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_pointer_info_set_userdata(
    pointer: *const c_void,
    data: *mut c_void,
) -> Status {
    let note = |runtime: std::sync::Arc<Runtime>| {
        let noted = runtime.memory.set_note(pointer.addr() as u64, data.expose_provenance() as u64);
        if noted { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
    };
    report(Runtime::get().and_then(note))
}
