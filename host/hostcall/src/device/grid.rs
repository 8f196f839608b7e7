//! Grids: how many lanes a launch has, and how they are grouped.

use super::error::LaunchRefused;
use hostcall_abi::launch::{
    KernelInfo, LEAST_STAGING_BYTES, PULLS, RESERVED_WORKGROUP_BYTES, STAGING_ALIGN, shared_bytes,
};
use hostcall_seam::{DeviceKind, KernelLimits, Properties};
use hostcall_server::LaunchRecord;
use std::sync::Arc;

/// How many lanes a launch has, and how they are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Workgroups in x, y, z.
    pub workgroups: [u32; 3],
    /// Lanes of a workgroup in x, y, z; at most 1024 in all.
    pub workgroup_size: [u32; 3],
    /// Bytes of workgroup memory besides what the kernel declares.
    pub workgroup_memory_bytes: u32,
}

impl Grid {
    /// `workgroups` workgroups of `lanes` lanes, in one dimension.
    pub const fn new(workgroups: u32, lanes: u32) -> Self {
        Self::new_3d([workgroups, 1, 1], [lanes, 1, 1])
    }

    /// Workgroups and the lanes of each in x, y, z.
    pub const fn new_3d(workgroups: [u32; 3], workgroup_size: [u32; 3]) -> Self {
        Self { workgroups, workgroup_size, workgroup_memory_bytes: 0 }
    }

    /// At least `lanes` lanes, in workgroups of 256: kernels compare [`hostcall_device::Lane::global_id`] with
    /// their data's length. A launch of more than 2³² is refused.
    pub const fn lanes(lanes: usize) -> Self {
        if lanes <= 256 {
            return Self::new(1, lanes as u32);
        }
        let workgroups = lanes.div_ceil(256);
        // More than these are refused, too.
        Self::new(if workgroups > u32::MAX as usize { u32::MAX } else { workgroups as u32 }, 256)
    }

    /// With workgroup memory besides what the kernel declares.
    pub const fn workgroup_memory(self, bytes: u32) -> Self {
        Self { workgroup_memory_bytes: bytes, ..self }
    }

    /// Returns how many workgroups there are; `u64::MAX` if they are more.
    pub fn workgroup_count(&self) -> u64 {
        product(self.workgroups)
    }

    /// Returns how many lanes a workgroup has; `u64::MAX` if they are more.
    pub fn workgroup_lanes(&self) -> u64 {
        product(self.workgroup_size)
    }

    /// Returns the bytes of workgroup memory of a kernel's launch, with what the device crate keeps.
    pub(super) fn workgroup_memory_of(&self, kernel: &KernelInfo) -> u32 {
        let bytes = kernel
            .workgroup_memory_bytes
            .saturating_add(self.workgroup_memory_bytes.into())
            .saturating_add(RESERVED_WORKGROUP_BYTES as u64);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns what the server has to know of a launch.
    pub(super) fn record(&self, kernel: Arc<str>) -> LaunchRecord {
        let lanes = self.workgroup_lanes();
        LaunchRecord { kernel, workgroups: self.workgroups, lanes, ..LaunchRecord::default() }
    }

    /// Refuses what no launch on the device can be.
    pub(super) fn check(&self, properties: &Properties) -> Result<(), LaunchRefused> {
        let (workgroups, lanes) = (self.workgroup_count(), self.workgroup_lanes());
        if workgroups == 0 || lanes == 0 {
            return Err(LaunchRefused::EmptyGrid);
        }
        if lanes > u64::from(properties.max_workgroup_lanes) {
            return Err(LaunchRefused::LargeWorkgroup { lanes, max: properties.max_workgroup_lanes });
        }
        if workgroups.saturating_mul(lanes) > u64::from(u32::MAX) {
            return Err(LaunchRefused::LargeGrid { workgroups, lanes });
        }
        // A GPU's grid has one dimension here, which is a signed number.
        let max = i32::MAX.unsigned_abs();
        if properties.kind != DeviceKind::Software && workgroups > max.into() {
            return Err(LaunchRefused::ManyWorkgroups { workgroups, max });
        }
        Ok(())
    }
}

/// Bytes of workgroup memory that a dispatch of hostcall's asks the device for: those that the kernel may use, and on NVIDIA
/// what the device crate keeps of each wave. If the kernel copies through it ([`PULLS`]), it gets some for that,
/// if there is room.
pub(super) fn dispatch_workgroup_bytes(
    properties: &Properties,
    limits: &KernelLimits,
    info: &KernelInfo,
    grid: &Grid,
) -> u32 {
    let bytes = grid.workgroup_memory_of(info);
    if properties.kind != DeviceKind::Nvidia {
        return bytes;
    }
    let waves = grid.workgroup_lanes().div_ceil(properties.wave_size.into());
    let waves = u32::try_from(waves).unwrap_or(u32::MAX);
    let kept = bytes.saturating_add(shared_bytes(waves));
    let staging = match info.found & PULLS {
        0 => None,
        _ => staging_of(properties, limits, grid, waves, kept),
    };
    staging.unwrap_or(kept)
}

/// Bytes of a multiprocessor's memory that kernels which copy through it get. Workgroups that share one share them.
const STAGING_BYTES: u32 = 64 << 10;

/// Bytes of a multiprocessor's memory that NVIDIA's driver keeps of each workgroup.
const RESERVED_BY_DRIVER: u32 = 1024;

/// A multiprocessor gives its memory out in multiples of so many bytes.
const GIVEN_OUT_BYTES: u32 = 256;

/// Returns `kept` with what a workgroup of so many waves is to copy through; `None` if there is no room for that.
fn staging_of(
    properties: &Properties,
    limits: &KernelLimits,
    grid: &Grid,
    waves: u32,
    kept: u32,
) -> Option<u32> {
    // Workgroups of the grid on each multiprocessor, which staging must not make fewer.
    let multiprocessors = properties.multiprocessors.max(1);
    let most = (properties.resident_waves / multiprocessors / waves.max(1)).max(1);
    let together = grid.workgroup_count().div_ceil(multiprocessors.into()).clamp(1, most.into()) as u32;
    let each = properties.max_workgroup_bytes.saturating_add(RESERVED_BY_DRIVER) / together;
    let each = each / GIVEN_OUT_BYTES * GIVEN_OUT_BYTES;
    let start = kept.checked_next_multiple_of(STAGING_ALIGN)?;
    let taken = start.saturating_add(limits.workgroup_bytes).saturating_add(RESERVED_BY_DRIVER);
    let wanted = (STAGING_BYTES / together).min(each.saturating_sub(taken));
    let room = limits.max_dynamic_workgroup_bytes.checked_sub(start)?;
    let least = waves.checked_mul(LEAST_STAGING_BYTES)?;
    (room >= least).then(|| start + wanted.clamp(least, room))
}

pub(super) fn product(sizes: [u32; 3]) -> u64 {
    sizes.iter().fold(1, |product: u64, size| product.saturating_mul((*size).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties() -> Properties {
        Properties {
            kind: DeviceKind::Nvidia,
            product: String::new(),
            target: String::new(),
            wave_size: 32,
            multiprocessors: 2,
            resident_waves: 128,
            max_workgroup_lanes: 1024,
            max_workgroup_bytes: 227 << 10,
            memory_bytes: 0,
            clock_hz: 1,
            independent_lanes: true,
        }
    }

    /// No sizes overflow.
    #[test]
    fn grids_of_any_size_are_counted_and_refused() {
        let most = u32::MAX;
        let grid = Grid::new_3d([most; 3], [most; 3]);
        assert_eq!((grid.workgroup_count(), grid.workgroup_lanes()), (u64::MAX, u64::MAX));
        assert!(matches!(grid.check(&properties()), Err(LaunchRefused::LargeWorkgroup { .. })));
        let many = Grid::new_3d([most; 3], [32, 1, 1]);
        assert!(matches!(many.check(&properties()), Err(LaunchRefused::LargeGrid { .. })));
        assert_eq!(Grid::new(i32::MAX as u32, 2).check(&properties()), Ok(()));
        let refused = Grid::new(most, 1).check(&properties());
        assert!(matches!(refused, Err(LaunchRefused::ManyWorkgroups { .. })));
        assert!(matches!(Grid::new(most, 2).check(&properties()), Err(LaunchRefused::LargeGrid { .. })));
        assert_eq!(Grid::lanes(257), Grid::new(2, 256));
        for lanes in [1 << 32 | 1, 1 << 40, usize::MAX] {
            let refused = Grid::lanes(lanes).check(&properties());
            assert!(matches!(refused, Err(LaunchRefused::LargeGrid { .. })), "{lanes}");
        }
        for empty in [Grid::lanes(0), Grid::new(0, 1), Grid::new(1, 0), Grid::new_3d([1, 0, most], [1; 3])] {
            assert_eq!(empty.check(&properties()), Err(LaunchRefused::EmptyGrid));
        }
        let memory = Grid::new(1, 1).workgroup_memory(most);
        let info = KernelInfo { workgroup_memory_bytes: u64::MAX, ..info() };
        assert_eq!(memory.workgroup_memory_of(&info), most);
        for (found, grid) in
            [0, PULLS].into_iter().flat_map(|found| [(found, memory), (found, Grid::new(1, most))])
        {
            let info = KernelInfo { found, ..info };
            assert_eq!(dispatch_workgroup_bytes(&properties(), &limits(), &info, &grid), most);
        }
    }

    /// A kernel that pulls gets memory for it which leaves as many workgroups on a multiprocessor as before.
    #[test]
    fn workgroups_share_the_memory_that_they_copy_through() {
        let of = |workgroups, lanes, memory, found| {
            let grid = Grid::new(workgroups, lanes).workgroup_memory(memory);
            dispatch_workgroup_bytes(&properties(), &limits(), &KernelInfo { found, ..info() }, &grid)
        };
        let kept =
            |lanes: u32, memory| shared_bytes(lanes.div_ceil(32)) + RESERVED_WORKGROUP_BYTES as u32 + memory;
        for lanes in [1, 32, 33, 256, 1024] {
            assert_eq!(of(1, lanes, 1000, 0), kept(lanes, 1000));
            for (workgroups, together) in
                [(1, 1), (2, 1), (3, 2), (8, 4), (1000, 64 / lanes.div_ceil(32).max(1))]
            {
                let (kept, waves) = (kept(lanes, 1000), lanes.div_ceil(32));
                let bytes = of(workgroups, lanes, 1000, PULLS);
                let (start, each) = hostcall_abi::launch::staging_bytes(bytes, waves, bytes_of_kernel(1000));
                assert_eq!(start, kept.next_multiple_of(STAGING_ALIGN));
                assert!(each >= LEAST_STAGING_BYTES && start + waves * each <= bytes, "{each} of {bytes}");
                let together = together.min(64 / waves);
                let least = start + waves * LEAST_STAGING_BYTES;
                assert!(
                    bytes <= least.max(start + STAGING_BYTES / together),
                    "{bytes} of {workgroups} x {lanes}"
                );
            }
        }
        // What the kernel takes itself is not to be had.
        let most = limits().max_dynamic_workgroup_bytes - RESERVED_WORKGROUP_BYTES as u32 - shared_bytes(1);
        assert_eq!(of(1, 32, most, PULLS), limits().max_dynamic_workgroup_bytes);
        // As many workgroups fit as without staging, unless that is the least.
        let whole = properties().max_workgroup_bytes + RESERVED_BY_DRIVER;
        for (together, lanes) in [(2, 32), (2, 256), (4, 64), (6, 256), (7, 256)] {
            for memory in (0..whole / together).step_by(41) {
                let bytes = of(2 * together, lanes, memory, PULLS);
                let fits = |bytes: u32| {
                    together * (bytes + RESERVED_BY_DRIVER).next_multiple_of(GIVEN_OUT_BYTES) <= whole
                };
                let start = kept(lanes, memory).next_multiple_of(STAGING_ALIGN);
                let least = start + lanes.div_ceil(32) * LEAST_STAGING_BYTES;
                assert!(
                    fits(bytes) || bytes == least || !fits(start),
                    "{together} x {lanes}, {memory}: {bytes}"
                );
            }
        }
    }

    fn bytes_of_kernel(memory: u32) -> u32 {
        RESERVED_WORKGROUP_BYTES as u32 + memory
    }

    fn limits() -> KernelLimits {
        KernelLimits {
            registers: None,
            stack_bytes: 0,
            workgroup_bytes: 0,
            max_lanes: 1024,
            max_dynamic_workgroup_bytes: 227 << 10,
        }
    }

    fn info() -> KernelInfo {
        KernelInfo {
            magic: 0,
            abi_version: 0,
            schema: 0,
            argument_bytes: 0,
            default_workgroups: 0,
            default_lanes: 0,
            workgroup_memory_bytes: 0,
            max_lanes: 0,
            found: 0,
            path: 0,
        }
    }
}
