//! Agents, their caches and the system.

use std::ffi::c_void;

use super::attribute::{agent as info, cache, system};
use super::extensions;
use super::isas::{ISA, WAVES_OF_COMPUTE_UNIT};
use super::runtime::{HOST, Runtime};
use super::{Status, each, give, give_text, report, status};
use crate::device::RESIDENT_WAVES;
use crate::exec::REALTIME_HZ;
use crate::memory::host_bytes;

/// Compute units that an agent reports, and the waves that each holds: clients compute from them how many waves are resident.
/// Waves of all of them share the CPU's threads.
pub const COMPUTE_UNITS: u32 = 64;
const _: () = assert!((COMPUTE_UNITS * WAVES_OF_COMPUTE_UNIT) as usize == RESIDENT_WAVES);

/// Bytes of an agent's caches, by level.
const CACHES: [u32; 4] = [16 << 10, 4 << 20, 0, 0];

/// The most lanes of a workgroup.
pub const MOST_LANES: u32 = 1024;

/// The least and the most packets of a queue.
pub const QUEUE_SIZES: (u32, u32) = (64, 1 << 17);

/// Calls a function of the client's for each agent until it asks to stop.
pub extern "C" fn hsa_iterate_agents(
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        let (runtime, callback) = (Runtime::get()?, callback.ok_or(status::INVALID_ARGUMENT)?);
        each(runtime.agents(), |agent| callback(agent, data))
    };
    report(visit())
}

/// Tells a property of an agent.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_agent_get_info(agent: u64, attribute: u32, value: *mut c_void) -> Status {
    let check = Runtime::get().and_then(|runtime| runtime.check_agent(agent));
    // SAFETY: contract C says that `value` has the attribute's type.
    report(check.and_then(|()| unsafe { agent_info(agent, attribute, value) }))
}

/// Writes an attribute.
///
/// # Safety
///
/// `value` is null or valid for a write of the attribute's type.
unsafe fn agent_info(agent: u64, attribute: u32, value: *mut c_void) -> Result<(), Status> {
    let gpu = agent != HOST;
    // SAFETY: by this function's contract.
    unsafe {
        match attribute {
            info::NAME => give_text(value, if gpu { "gfx942" } else { "cpu" }, 64),
            info::VENDOR_NAME => give_text(value, "hostcall", 64),
            // Kernel dispatch.
            info::FEATURE => give(value.cast(), u32::from(gpu)),
            // Large machine model; the base profile for GPUs, which see the host's memory when it is pinned.
            info::MACHINE_MODEL => give(value.cast(), 1u32),
            info::PROFILE => give(value.cast(), u32::from(!gpu)),
            info::DEFAULT_FLOAT_ROUNDING_MODE => give(value.cast(), 2u32),
            info::BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES => give(value.cast(), 4u32),
            info::FAST_F16_OPERATION => give(value.cast(), gpu),
            info::WAVEFRONT_SIZE => give(value.cast(), if gpu { 64u32 } else { 0 }),
            info::WORKGROUP_MAX_DIM => give(value.cast(), [if gpu { MOST_LANES as u16 } else { 0 }; 3]),
            info::WORKGROUP_MAX_SIZE => give(value.cast(), if gpu { MOST_LANES } else { 0 }),
            info::GRID_MAX_DIM => give(value.cast(), [if gpu { u32::MAX } else { 0 }; 3]),
            info::GRID_MAX_SIZE => give(value.cast(), if gpu { u32::MAX } else { 0 }),
            info::FBARRIER_MAX_SIZE => give(value.cast(), if gpu { 32u32 } else { 0 }),
            info::QUEUES_MAX => give(value.cast(), if gpu { 128u32 } else { 0 }),
            info::QUEUE_MIN_SIZE => give(value.cast(), if gpu { QUEUE_SIZES.0 } else { 0 }),
            info::QUEUE_MAX_SIZE => give(value.cast(), if gpu { QUEUE_SIZES.1 } else { 0 }),
            info::QUEUE_TYPE => give(value.cast(), 0u32),
            info::NODE => give(value.cast(), (agent - HOST) as u32),
            info::DEVICE => give(value.cast(), u32::from(gpu)),
            info::CACHE_SIZE => give(value.cast(), CACHES),
            info::ISA => give(value.cast(), if gpu { ISA } else { 0 }),
            info::EXTENSIONS => give(value.cast(), extensions::mask()),
            info::VERSION_MAJOR => give(value.cast(), 1u16),
            info::VERSION_MINOR => give(value.cast(), 1u16),
            info::CHIP_ID => give(value.cast(), 0x74a1u32),
            info::CACHELINE_SIZE => give(value.cast(), 64u32),
            info::COMPUTE_UNIT_COUNT => give(value.cast(), COMPUTE_UNITS),
            info::MAX_CLOCK_FREQUENCY => give(value.cast(), 2000u32),
            info::DRIVER_NODE_ID => give(value.cast(), (agent - HOST) as u32),
            info::MAX_ADDRESS_WATCH_POINTS | info::DOMAIN => give(value.cast(), 0u32),
            info::BDFID => give(value.cast(), (agent as u32) << 8),
            info::MEMORY_WIDTH => give(value.cast(), 64u32),
            info::MEMORY_MAX_FREQUENCY => give(value.cast(), 1000u32),
            info::PRODUCT_NAME => give_text(value, "hostcall software gfx942", 64),
            info::MAX_WAVES_PER_CU => give(value.cast(), WAVES_OF_COMPUTE_UNIT),
            info::NUM_SIMDS_PER_CU => give(value.cast(), 4u32),
            info::NUM_SHADER_ENGINES | info::NUM_SHADER_ARRAYS_PER_SE => give(value.cast(), 1u32),
            info::COOPERATIVE_QUEUES => give(value.cast(), false),
            info::UUID => give_text(value, &format!("GPU-{agent:016x}"), 21),
            // All memory is the host's, and nothing has to be flushed to it.
            info::HDP_FLUSH => give(value.cast(), [0u64; 2]),
            info::ASIC_REVISION => give(value.cast(), 0u32),
            info::SVM_DIRECT_HOST_ACCESS => give(value.cast(), true),
            info::COOPERATIVE_COMPUTE_UNIT_COUNT => give(value.cast(), COMPUTE_UNITS),
            // There are no images.
            info::IMAGE_2D_MAX_ELEMENTS..=info::IMAGE_2DADEPTH_MAX_ELEMENTS => give(value.cast(), [0u32; 2]),
            info::IMAGE_3D_MAX_ELEMENTS => give(value.cast(), [0u32; 3]),
            info::IMAGE_1D_MAX_ELEMENTS..=info::IMAGE_LINEAR_ROW_PITCH_ALIGNMENT => give(value.cast(), 0u32),
            info::MEMORY_AVAIL => give(value.cast(), if gpu { host_bytes() } else { 0 }),
            info::NUM_SDMA_ENG | info::NUM_XCC => give(value.cast(), u32::from(gpu)),
            info::ASIC_FAMILY_ID
            | info::UCODE_VERSION
            | info::SDMA_UCODE_VERSION
            | info::NUM_SDMA_XGMI_ENG
            | info::IOMMU_SUPPORT => give(value.cast(), 0u32),
            info::DRIVER_UID => give(value.cast(), (agent - HOST) as u32),
            info::NEAREST_CPU => give(value.cast(), HOST),
            info::MEMORY_PROPERTIES | info::AQL_EXTENSIONS => give(value.cast(), [0u8; 8]),
            info::TIMESTAMP_FREQUENCY => give(value.cast(), REALTIME_HZ),
            _ => Err(status::INVALID_ARGUMENT),
        }
    }
}

/// Tells a property of the system.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_system_get_info(attribute: u32, value: *mut c_void) -> Status {
    let runtime = match Runtime::get() {
        Ok(runtime) => runtime,
        Err(status) => return status,
    };
    // SAFETY: contract C says that `value` has the attribute's type.
    report(unsafe {
        match attribute {
            system::VERSION_MAJOR => give(value.cast(), 1u16),
            system::VERSION_MINOR => give(value.cast(), 1u16),
            system::TIMESTAMP => give(value.cast(), runtime.now()),
            system::TIMESTAMP_FREQUENCY => give(value.cast(), 1_000_000_000u64),
            system::SIGNAL_MAX_WAIT => give(value.cast(), u64::MAX),
            system::ENDIANNESS => give(value.cast(), 0u32),
            system::MACHINE_MODEL => give(value.cast(), 1u32),
            system::EXTENSIONS => give(value.cast(), extensions::mask()),
            system::BUILD_VERSION => give(value.cast(), c"softhsa 0.1".as_ptr()),
            system::SVM_SUPPORTED
            | system::SVM_ACCESSIBLE_BY_DEFAULT
            | system::MWAITX_ENABLED
            | system::DMABUF_SUPPORTED
            | system::VIRTUAL_MEM_API_SUPPORTED
            | system::XNACK_ENABLED => give(value.cast(), false),
            _ => Err(status::INVALID_ARGUMENT),
        }
    })
}

/// Calls a function of the client's for each cache of an agent until it asks to stop.
pub extern "C" fn hsa_agent_iterate_caches(
    agent: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        Runtime::get()?.check_agent(agent)?;
        let callback = callback.ok_or(status::INVALID_ARGUMENT)?;
        // A cache's handle is its level.
        let levels = (1..).zip(CACHES).filter(|(_, bytes)| *bytes > 0);
        each(levels.map(|(level, _)| level), |level| callback(level, data))
    };
    report(visit())
}

/// Tells a property of a cache.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_cache_get_info(cache: u64, attribute: u32, value: *mut c_void) -> Status {
    let tell = || {
        Runtime::get()?;
        let index = cache.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let bytes = index.and_then(|index| CACHES.get(index)).filter(|bytes| **bytes > 0);
        let bytes = *bytes.ok_or(status::INVALID_CACHE)?;
        let name = format!("L{cache}");
        // SAFETY: contract C says that `value` has the attribute's type.
        unsafe {
            match attribute {
                cache::NAME_LENGTH => give(value.cast(), name.len() as u32 + 1),
                cache::NAME => give_text(value, &name, name.len() + 1),
                cache::LEVEL => give(value.cast(), cache as u8),
                cache::SIZE => give(value.cast(), bytes),
                _ => Err(status::INVALID_ARGUMENT),
            }
        }
    };
    report(tell())
}

/// Tells how an agent sees memory that others change: as they do.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_coherency_get_type(agent: u64, kind: *mut u32) -> Status {
    let tell = || {
        Runtime::get()?.gpu(agent)?;
        // SAFETY: contract C.
        unsafe { give(kind, COHERENT) }
    };
    report(tell())
}

/// Allows an agent to see memory later than others change it, which it does not make use of.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_amd_coherency_set_type(agent: u64, kind: u32) -> Status {
    const NONCOHERENT: u32 = 1;
    let set = |runtime: std::sync::Arc<Runtime>| {
        runtime.gpu(agent)?;
        if matches!(kind, COHERENT | NONCOHERENT) { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
    };
    report(Runtime::get().and_then(set))
}

/// `HSA_AMD_COHERENCY_TYPE_COHERENT`.
const COHERENT: u32 = 0;
