//! The instruction set, of which there is one, and its wavefronts.

use std::ffi::{CStr, c_char, c_void};

use super::agents::MOST_LANES;
use super::attribute::isa as info;
use super::runtime::Runtime;
use super::{Status, give, give_text, report, status};
use crate::exec::wave::LANES;

/// The instruction set's handle.
pub const ISA: u64 = 1;

/// Its name.
const NAME: &str = "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-";

/// The handle of its wavefront, of which there is one.
const WAVEFRONT: u64 = 1;

/// Waves that a compute unit holds.
pub const WAVES_OF_COMPUTE_UNIT: u32 = 32;

/// Returns an error if this is not the instruction set, or if the runtime has not started.
fn check(isa: u64) -> Result<(), Status> {
    Runtime::get()?;
    if isa == ISA { Ok(()) } else { Err(status::INVALID_ISA) }
}

/// Calls a function of the client's for each instruction set of a GPU agent.
pub extern "C" fn hsa_agent_iterate_isas(
    agent: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        Runtime::get()?.gpu(agent)?;
        Ok(callback.ok_or(status::INVALID_ARGUMENT)?(ISA, data))
    };
    visit().unwrap_or_else(|status| status)
}

/// Finds an instruction set by its name.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_from_name(name: *const c_char, isa: *mut u64) -> Status {
    let find = || {
        Runtime::get()?;
        if name.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        // SAFETY: contract C.
        if unsafe { CStr::from_ptr(name) }.to_bytes() != NAME.as_bytes() {
            return Err(status::INVALID_ISA_NAME);
        }
        // SAFETY: contract C.
        unsafe { give(isa, ISA) }
    };
    report(find())
}

/// Tells a property of an instruction set.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_get_info_alt(isa: u64, attribute: u32, value: *mut c_void) -> Status {
    // SAFETY: contract C says that `value` has the attribute's type.
    report(check(isa).and_then(|()| unsafe {
        match attribute {
            info::NAME_LENGTH => give(value.cast(), NAME.len() as u32 + 1),
            info::NAME => give_text(value, NAME, NAME.len() + 1),
            info::CALL_CONVENTION_COUNT => give(value.cast(), 1u32),
            info::CALL_CONVENTION_WAVEFRONT_SIZE => give(value.cast(), LANES as u32),
            info::CALL_CONVENTION_WAVEFRONTS_PER_COMPUTE_UNIT => give(value.cast(), WAVES_OF_COMPUTE_UNIT),
            info::MACHINE_MODELS | info::PROFILES => give(value.cast(), [false, true]),
            info::DEFAULT_FLOAT_ROUNDING_MODES | info::BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES => {
                give(value.cast(), [false, false, true])
            }
            info::FAST_F16_OPERATION => give(value.cast(), true),
            info::WORKGROUP_MAX_DIM => give(value.cast(), [MOST_LANES as u16; 3]),
            info::WORKGROUP_MAX_SIZE => give(value.cast(), MOST_LANES),
            info::GRID_MAX_DIM => give(value.cast(), [u32::MAX; 3]),
            info::GRID_MAX_SIZE => give(value.cast(), u64::MAX),
            info::FBARRIER_MAX_SIZE => give(value.cast(), 32u32),
            _ => Err(status::INVALID_ARGUMENT),
        }
    }))
}

/// Tells a property of an instruction set, or of its call convention of this index, of which there is one (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_get_info(
    isa: u64,
    attribute: u32,
    index: u32,
    value: *mut c_void,
) -> Status {
    let of_convention = matches!(
        attribute,
        info::CALL_CONVENTION_WAVEFRONT_SIZE | info::CALL_CONVENTION_WAVEFRONTS_PER_COMPUTE_UNIT
    );
    if of_convention && index != 0 {
        return check(isa).err().unwrap_or(status::INVALID_INDEX);
    }
    // SAFETY: contract C.
    unsafe { hsa_isa_get_info_alt(isa, attribute, value) }
}

/// Tells whether code for one instruction set runs on the other.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_compatible(code: u64, agent: u64, result: *mut bool) -> Status {
    // SAFETY: contract C.
    report(check(code).and_then(|()| check(agent)).and_then(|()| unsafe { give(result, true) }))
}

/// Tells which exceptions are handled how: none is, since waves go on after them.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_get_exception_policies(isa: u64, _profile: u32, mask: *mut u16) -> Status {
    // SAFETY: contract C.
    report(check(isa).and_then(|()| unsafe { give(mask, 0) }))
}

/// Tells which exceptions are handled how (deprecated).
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_agent_get_exception_policies(
    agent: u64,
    _profile: u32,
    mask: *mut u16,
) -> Status {
    let tell = || {
        Runtime::get()?.check_agent(agent)?;
        // SAFETY: contract C.
        unsafe { give(mask, 0) }
    };
    report(tell())
}

/// Tells how multiply-adds round: once.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_isa_get_round_method(
    isa: u64,
    _kind: u32,
    _flush: u32,
    method: *mut u32,
) -> Status {
    const SINGLE: u32 = 1;
    // SAFETY: contract C.
    report(check(isa).and_then(|()| unsafe { give(method, SINGLE) }))
}

/// Calls a function of the client's for each kind of wavefront.
pub extern "C" fn hsa_isa_iterate_wavefronts(
    isa: u64,
    callback: Option<extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let visit = || {
        check(isa)?;
        Ok(callback.ok_or(status::INVALID_ARGUMENT)?(WAVEFRONT, data))
    };
    visit().unwrap_or_else(|status| status)
}

/// Tells a wavefront's size, its only property.
///
/// # Safety
///
/// Contract C.
pub unsafe extern "C" fn hsa_wavefront_get_info(
    wavefront: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    const SIZE: u32 = 0;
    let tell = || {
        Runtime::get()?;
        match (wavefront, attribute) {
            // SAFETY: contract C says that `value` has the attribute's type.
            (WAVEFRONT, SIZE) => unsafe { give(value.cast(), LANES as u32) },
            (WAVEFRONT, _) => Err(status::INVALID_ARGUMENT),
            _ => Err(status::INVALID_WAVEFRONT),
        }
    };
    report(tell())
}
