//! Grids: how many lanes a launch has, and how they are grouped.

use super::error::LaunchRefused;
use super::seam::{DeviceKind, Properties};
use hostcall_abi::launch::{KernelInfo, RESERVED_WORKGROUP_BYTES, shared_bytes};

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
    /// their data's length.
    pub const fn lanes(lanes: u32) -> Self {
        if lanes <= 256 { Self::new(1, lanes) } else { Self::new(lanes.div_ceil(256), 256) }
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

/// Bytes of workgroup memory that a dispatch of hostcall's asks the device for: `bytes` for the kernel, and on NVIDIA what
/// the device crate keeps of each wave.
pub(super) fn dispatch_workgroup_bytes(properties: &Properties, lanes: u64, bytes: u32) -> u32 {
    match properties.kind {
        DeviceKind::Nvidia => {
            let waves = lanes.div_ceil(properties.wave_size.into());
            bytes.saturating_add(shared_bytes(u32::try_from(waves).unwrap_or(u32::MAX)))
        }
        _ => bytes,
    }
}

fn product(sizes: [u32; 3]) -> u64 {
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
            multiprocessors: 1,
            resident_waves: 64,
            max_workgroup_lanes: 1024,
            max_workgroup_bytes: 1 << 16,
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
        for empty in [Grid::new(0, 1), Grid::new(1, 0), Grid::new_3d([1, 0, most], [1; 3])] {
            assert_eq!(empty.check(&properties()), Err(LaunchRefused::EmptyGrid));
        }
        let memory = Grid::new(1, 1).workgroup_memory(most);
        let info = KernelInfo { workgroup_memory_bytes: u64::MAX, ..info() };
        assert_eq!(memory.workgroup_memory_of(&info), most);
        assert_eq!(dispatch_workgroup_bytes(&properties(), 1024, most), most);
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
            never_stops: 0,
            path: 0,
        }
    }
}
