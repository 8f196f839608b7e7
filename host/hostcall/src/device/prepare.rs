//! What a launch needs before a stream gets it: checks, packed arguments, and parameters as kernels take them.

use super::arguments::{Arguments, Packer};
use super::core::Core;
use super::error::{Error, LaunchRefused};
use super::grid::{Grid, dispatch_workgroup_bytes};
use super::images::LoadedKernel;
use super::inner::Inner;
use super::stream::{Parameters, Parts};
use super::words::StreamWords;
use hostcall_abi::bytes::IntoBytes;
use hostcall_abi::launch::{LaunchId, LaunchParams};
use hostcall_abi::layout::{LAUNCHES, WAVE_RECORD_BYTES};
use hostcall_seam::{BackendError, DeviceKind, KernelLimits, KernelMemory, Properties};
use hostcall_server::LaunchRecord;
use std::fmt;
use std::sync::Arc;

/// What the records of a workgroup's waves are a multiple of, on devices where they are memory of the device.
const RECORDS_ALIGN: u64 = 64;

/// A kernel, in errors.
pub(crate) fn kernel_called(name: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "kernel {name}"))
}

/// Refuses a launch of code that was written for `max_lanes` lanes a workgroup, unless that is 0, with so many bytes of
/// workgroup memory besides what it declares.
pub(crate) fn check_code(
    properties: &Properties,
    name: &str,
    limits: &KernelLimits,
    max_lanes: u64,
    grid: &Grid,
    bytes: u32,
) -> Result<(), LaunchRefused> {
    grid.check(properties)?;
    let (waves, slots) =
        (grid.workgroup_lanes().div_ceil(properties.wave_size.into()), properties.resident_waves);
    if waves > u64::from(slots) {
        return Err(LaunchRefused::Slots { waves, slots });
    }
    let lanes = grid.workgroup_lanes();
    if max_lanes != 0 && lanes > max_lanes {
        return Err(LaunchRefused::KernelLanes { kernel: name.to_owned(), lanes, max: max_lanes });
    }
    check_lanes(properties.kind, name, limits, lanes)?;
    if bytes > limits.max_dynamic_workgroup_bytes {
        let (bytes, max) = (bytes.into(), limits.max_dynamic_workgroup_bytes);
        return Err(LaunchRefused::WorkgroupMemory { bytes, max });
    }
    Ok(())
}

/// Refuses a workgroup of more lanes than the code can have.
pub(crate) fn check_lanes(
    kind: DeviceKind,
    name: &str,
    limits: &KernelLimits,
    lanes: u64,
) -> Result<(), LaunchRefused> {
    /// NVIDIA's registers of a workgroup, the unit in which lanes have them, and that of lanes.
    const REGISTERS: u32 = 64 << 10;
    const REGISTERS_STEP: u32 = 8;
    const LANES_STEP: u32 = 32;
    let (max, kernel) = (limits.max_lanes, name.to_owned());
    if lanes <= u64::from(max) {
        return Ok(());
    }
    let registers = limits.registers.unwrap_or(0);
    // The driver gives one number for both bounds.
    let needed = registers.next_multiple_of(REGISTERS_STEP).saturating_mul(max.saturating_add(LANES_STEP));
    Err(match kind {
        DeviceKind::Nvidia if needed > REGISTERS => {
            LaunchRefused::Registers { kernel, registers, max, lanes }
        }
        DeviceKind::Nvidia => LaunchRefused::CompiledLanes { kernel, bound: "its launch bounds", max, lanes },
        DeviceKind::Amd => {
            LaunchRefused::CompiledLanes { kernel, bound: "max_flat_workgroup_size", max, lanes }
        }
        _ => LaunchRefused::LargeWorkgroup { lanes, max },
    })
}

/// Memory of a launch's workgroups and waves.
#[derive(Clone, Copy)]
pub(crate) struct LaunchMemory {
    /// [`LaunchParams::workgroup_memory_bytes`].
    pub bytes: u32,
    /// [`LaunchParams::wave_records`].
    pub wave_records: u64,
}

/// Checks a launch and packs its arguments, behind the parameters that `parts` has. Returns the bytes of workgroup memory that
/// the kernel may use.
pub(crate) fn prepare<P>(
    core: &Arc<Core>,
    kernel: &LoadedKernel,
    grid: &Grid,
    arguments: &impl Arguments<P>,
    parts: &mut Parts,
) -> Result<u32, Error> {
    let LoadedKernel { name, code, info, .. } = kernel;
    let (properties, lanes) = (core.backend.properties(), grid.workgroup_lanes());
    let limits = code.limits();
    let workgroup_bytes = dispatch_workgroup_bytes(properties, &limits, info, grid);
    check_code(properties, name, &limits, info.max_lanes, grid, workgroup_bytes)?;
    let mut packer = Packer::new(core, parts);
    arguments.pack(&mut packer)?;
    let given = packer.finish()?;
    // The block ends at a multiple of 8, which the kernel's struct need not.
    if given != info.argument_bytes.next_multiple_of(8) {
        let expected = info.argument_bytes;
        return Err(LaunchRefused::ArgumentBytes { kernel: name.to_string(), expected, given }.into());
    }
    // On GPUs one dimension, so that a lane's place in its wave is its x.
    (parts.workgroups, parts.lanes) = match properties.kind {
        DeviceKind::Software => (grid.workgroups, grid.workgroup_size),
        _ => ([u32::try_from(grid.workgroup_count()).unwrap_or(u32::MAX), 1, 1], [lanes as u32, 1, 1]),
    };
    parts.workgroup_bytes = workgroup_bytes;
    if properties.kind == DeviceKind::Amd {
        // Kernels take their parameters by address.
        parts.by_address = true;
    }
    parts.kernel = Some(code.clone());
    Ok(grid.workgroup_memory_of(info))
}

/// Begins a launch that gets this sequence of the stream with these words: makes its id, and writes the first parameter.
pub(crate) fn begin(
    device: &Inner,
    name: Arc<str>,
    grid: &Grid,
    memory: LaunchMemory,
    parameters: &mut Parameters,
    sequence: u64,
    words: &StreamWords,
) -> Result<LaunchId, Error> {
    let id = begin_with(device, grid.record(name))?;
    let of_stream = OfStream { stop_at: words.stop_at().get(), last_post: words.last_post().get(), list: 0 };
    parameters.set_at(0, params(device, grid, memory, sequence, id, of_stream).as_bytes());
    Ok(id)
}

/// Begins a launch for the server alone.
pub(crate) fn begin_with(device: &Inner, record: LaunchRecord) -> Result<LaunchId, Error> {
    let limit = LAUNCHES as usize;
    Ok(device.server.begin(record).map_err(|_| LaunchRefused::TooManyLaunches { limit })?)
}

/// Addresses that launches of a stream have in common.
#[derive(Clone, Copy)]
pub(crate) struct OfStream {
    /// [`LaunchParams::stop_at`].
    pub stop_at: u64,
    /// [`LaunchParams::last_post`].
    pub last_post: u64,
    /// [`LaunchParams::list`].
    pub list: u64,
}

/// Returns the parameters of a launch, as kernels take them.
pub(crate) fn params(
    device: &Inner,
    grid: &Grid,
    memory: LaunchMemory,
    sequence: u64,
    launch: LaunchId,
    of_stream: OfStream,
) -> LaunchParams {
    let OfStream { stop_at, last_post, list } = of_stream;
    LaunchParams {
        channel: device.channel.address().get(),
        sequence,
        stop_at,
        last_post,
        launch,
        workgroup_memory_bytes: memory.bytes,
        workgroups: grid.workgroups,
        home_slots: device.channel_params.sizes.layout.home_slots,
        // No grid that passed its check has more than 1024.
        workgroup_size: grid.workgroup_size.map(|lanes| lanes as u16),
        reserved: 0,
        wave_records: memory.wave_records,
        list,
    }
}

/// Allocates what [`LaunchParams::wave_records`] is.
pub(crate) fn memory_of_records(core: &Core, grid: &Grid) -> Result<KernelMemory, Error> {
    let properties = core.backend.properties();
    let waves = grid.workgroup_lanes().div_ceil(properties.wave_size.into());
    let each = (waves * WAVE_RECORD_BYTES as u64).next_multiple_of(RECORDS_ALIGN);
    let bytes = grid.workgroup_count().saturating_mul(each);
    core.backend.allocate_for_kernels(bytes, RECORDS_ALIGN).ok_or_else(|| {
        let reason = "the grid has many workgroups: launch fewer that do more each".to_owned();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        BackendError::NoMemory { what: "memory for the waves' records", bytes, reason }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_a_workgroup_s_lanes_is_named() {
        let limits = |registers, max_lanes| KernelLimits {
            registers: Some(registers),
            stack_bytes: 0,
            workgroup_bytes: 0,
            max_lanes,
            max_dynamic_workgroup_bytes: 0,
        };
        let refused = |kind, registers, max| {
            let refused = check_lanes(kind, "k", &limits(registers, max), 1024).unwrap_err().to_string();
            assert_eq!(check_lanes(kind, "k", &limits(registers, max), max.into()), Ok(()));
            refused
        };
        let compiled = |bound| {
            format!(
                "kernel k was compiled for at most 64 lanes of a workgroup ({bound}), not 1024: launch more, smaller \
                 workgroups, or compile it for larger ones"
            )
        };
        assert_eq!(refused(DeviceKind::Amd, 2, 64), compiled("max_flat_workgroup_size"));
        assert_eq!(refused(DeviceKind::Nvidia, 16, 64), compiled("its launch bounds"));
        assert_eq!(
            refused(DeviceKind::Nvidia, 100, 608),
            "a lane of kernel k needs 100 registers, so that a workgroup has at most 608 lanes, not 1024"
        );
    }
}
