//! Agents, instruction sets and the system.

use std::ffi::c_void;

use super::runtime::{HOST, Runtime};
use super::{Status, give, give_text, report, status};
use crate::device::RESIDENT_WAVES;
use crate::exec::REALTIME_HZ;

/// The only instruction set.
const ISA: u64 = 1;

/// Its name.
const ISA_NAME: &str = "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-";

/// Compute units that an agent reports, and the waves that each holds: clients compute from them how many waves are resident.
/// Waves of all of them share the CPU's threads.
const COMPUTE_UNITS: u32 = 64;
const WAVES_OF_COMPUTE_UNIT: u32 = 32;
const _: () = assert!((COMPUTE_UNITS * WAVES_OF_COMPUTE_UNIT) as usize == RESIDENT_WAVES);

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
        for agent in runtime.agents() {
            match callback(agent, data) {
                status::SUCCESS => {}
                other => return Err(other),
            }
        }
        Ok(())
    };
    report(visit())
}

/// Calls a function of the client's for each instruction set of a GPU agent.
pub extern "C" fn hsa_agent_iterate_isas(
    agent: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        Runtime::get()?.gpu(agent)?;
        match callback.ok_or(status::INVALID_ARGUMENT)?(ISA, data) {
            status::SUCCESS => Ok(()),
            other => Err(other),
        }
    };
    report(visit())
}

/// Tells a property of an instruction set.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_get_info_alt(isa: u64, attribute: u32, value: *mut c_void) -> Status {
    if isa != ISA {
        return status::INVALID_ISA;
    }
    // SAFETY: contract C says that `value` has the attribute's type.
    report(unsafe {
        match attribute {
            0 => give(value.cast(), ISA_NAME.len() as u32 + 1),
            1 => give_text(value, ISA_NAME, ISA_NAME.len() + 1),
            5 | 6 => give(value.cast(), [false, true]),
            7 | 8 => give(value.cast(), [false, false, true]),
            9 => give(value.cast(), true),
            12 => give(value.cast(), [MOST_LANES as u16; 3]),
            13 => give(value.cast(), MOST_LANES),
            14 => give(value.cast(), [u32::MAX; 3]),
            16 => give(value.cast(), u64::MAX),
            17 => give(value.cast(), 32u32),
            _ => Err(status::INVALID_ARGUMENT),
        }
    })
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
            0 => give_text(value, if gpu { "gfx942" } else { "cpu" }, 64),
            1 => give_text(value, "hostcall", 64),
            // Kernel dispatch.
            2 => give(value.cast(), u32::from(gpu)),
            // Large machine model; the base profile for GPUs, which see the host's memory when it is pinned.
            3 => give(value.cast(), 1u32),
            4 => give(value.cast(), u32::from(!gpu)),
            5 => give(value.cast(), 2u32),
            23 => give(value.cast(), 4u32),
            24 => give(value.cast(), gpu),
            6 => give(value.cast(), if gpu { 64u32 } else { 0 }),
            7 => give(value.cast(), [if gpu { MOST_LANES as u16 } else { 0 }; 3]),
            8 => give(value.cast(), if gpu { MOST_LANES } else { 0 }),
            9 => give(value.cast(), [if gpu { u32::MAX } else { 0 }; 3]),
            10 => give(value.cast(), if gpu { u32::MAX } else { 0 }),
            11 => give(value.cast(), if gpu { 32u32 } else { 0 }),
            12 => give(value.cast(), if gpu { 128u32 } else { 0 }),
            13 => give(value.cast(), if gpu { QUEUE_SIZES.0 } else { 0 }),
            14 => give(value.cast(), if gpu { QUEUE_SIZES.1 } else { 0 }),
            15 => give(value.cast(), 0u32),
            16 => give(value.cast(), (agent - HOST) as u32),
            17 => give(value.cast(), u32::from(gpu)),
            18 => give(value.cast(), [16u32 << 10, 4 << 20, 0, 0]),
            19 => give(value.cast(), if gpu { ISA } else { 0 }),
            20 => give(value.cast(), [0u8; 128]),
            21 => give(value.cast(), 1u16),
            22 => give(value.cast(), 1u16),
            0xa000 => give(value.cast(), 0x74a1u32),
            0xa001 => give(value.cast(), 64u32),
            0xa002 => give(value.cast(), COMPUTE_UNITS),
            0xa003 => give(value.cast(), 2000u32),
            0xa004 => give(value.cast(), (agent - HOST) as u32),
            0xa005 | 0xa00f => give(value.cast(), 0u32),
            0xa006 => give(value.cast(), (agent as u32) << 8),
            0xa007 => give(value.cast(), 64u32),
            0xa008 => give(value.cast(), 1000u32),
            0xa009 => give_text(value, "hostcall software gfx942", 64),
            0xa00a => give(value.cast(), WAVES_OF_COMPUTE_UNIT),
            0xa00b => give(value.cast(), 4u32),
            0xa00c | 0xa00d => give(value.cast(), 1u32),
            0xa010 => give(value.cast(), false),
            0xa011 => give_text(value, &format!("GPU-{agent:016x}"), 21),
            // HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY
            0xa016 => give(value.cast(), REALTIME_HZ),
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
            0 => give(value.cast(), 1u16),
            1 => give(value.cast(), 1u16),
            2 => give(value.cast(), runtime.now()),
            3 => give(value.cast(), 1_000_000_000u64),
            4 => give(value.cast(), u64::MAX),
            5 => give(value.cast(), 0u32),
            6 => give(value.cast(), 1u32),
            7 => give(value.cast(), [0u8; 128]),
            0x200 => give(value.cast(), c"softhsa 0.1".as_ptr()),
            0x201 | 0x202 => give(value.cast(), false),
            _ => Err(status::INVALID_ARGUMENT),
        }
    })
}
