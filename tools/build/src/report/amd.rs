//! AMD: what a code object's metadata says of its kernels (LLVM's AMDGPU usage guide, "Code Object Metadata").

use super::{KernelReport, lanes_of};
use crate::BuildError;
use hostcall_abi::launch::{
    KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo, RESERVED_WORKGROUP_BYTES, kernel_name,
};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use serde::Deserialize;
use std::fs;
use std::mem::offset_of;
use std::path::Path;

/// Type of the note.
const NT_AMDGPU_METADATA: u32 = 32;

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    kernels: Vec<Kernel>,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    #[serde(rename = ".name")]
    name: String,
    /// With accumulation registers, where these come out of the same memory.
    #[serde(rename = ".vgpr_count", default)]
    vector_registers: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    spilled_vector_registers: u32,
    #[serde(rename = ".private_segment_fixed_size", default)]
    stack_bytes: u64,
    #[serde(rename = ".group_segment_fixed_size", default)]
    workgroup_bytes: u64,
    #[serde(rename = ".wavefront_size", default)]
    wave_size: u32,
}

/// Reports the kernels of a code object.
pub(super) fn kernels(image: &Path, cpu: &str) -> Result<Vec<KernelReport>, BuildError> {
    let bytes = fs::read(image).map_err(|error| BuildError::Io { path: image.to_owned(), error })?;
    of_code_object(&bytes, cpu)
        .map_err(|why| BuildError::NoReport(format!("{} cannot be read: {why}", image.display())))
}

fn of_code_object(image: &[u8], cpu: &str) -> Result<Vec<KernelReport>, String> {
    let note = note(image).map_err(|error| error.to_string())?.ok_or("it has no metadata of kernels")?;
    let metadata: Metadata = rmp_serde::from_slice(note).map_err(|error| error.to_string())?;
    let file = object::File::parse(image).map_err(|error| error.to_string())?;
    let reports = metadata.kernels.into_iter().filter_map(|kernel| {
        let symbol = kernel.name.strip_prefix(KERNEL_SYMBOL_PREFIX)?;
        let info = format!("{KERNEL_INFO_SYMBOL_PREFIX}{symbol}");
        let name = kernel_name(&info)?.to_owned();
        let field = |offset| info_field(&file, &info, offset);
        let lanes = lanes_of(field(offset_of!(KernelInfo, max_lanes)));
        let workgroup_bytes = kernel.workgroup_bytes
            + field(offset_of!(KernelInfo, workgroup_memory_bytes)).unwrap_or(0)
            + RESERVED_WORKGROUP_BYTES as u64;
        let spilled_bytes = kernel.spilled_vector_registers * 4;
        let warnings = (spilled_bytes > 0).then(|| {
            format!(
                "{spilled_bytes} bytes of values have no registers, of which there are {}",
                kernel.vector_registers
            )
        });
        let waves =
            ComputeUnit::of(cpu).map(|unit| (unit.waves(&kernel, lanes, workgroup_bytes), unit.most_waves()));
        Some(KernelReport {
            name,
            registers: kernel.vector_registers,
            spilled_bytes,
            stack_bytes: kernel.stack_bytes,
            code_bytes: symbol_bytes(&file, &kernel.name),
            workgroup_bytes,
            lanes,
            waves,
            warnings: warnings.into_iter().collect(),
        })
    });
    Ok(reports.collect())
}

/// Finds the note.
fn note(image: &[u8]) -> object::Result<Option<&[u8]>> {
    let header = FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, image)? {
        let Some(mut notes) = segment.notes(endian, image)? else { continue };
        while let Some(note) = notes.next()? {
            if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                return Ok(Some(note.desc()));
            }
        }
    }
    Ok(None)
}

/// Bytes of a symbol; 0 for one that is not there.
fn symbol_bytes(file: &object::File<'_>, symbol: &str) -> u64 {
    let symbol = file.dynamic_symbols().chain(file.symbols()).find(|known| known.name() == Ok(symbol));
    symbol.map_or(0, |symbol| symbol.size())
}

/// A field of a kernel's [`KernelInfo`].
fn info_field(file: &object::File<'_>, symbol: &str, offset: usize) -> Option<u64> {
    let symbol = file.dynamic_symbols().chain(file.symbols()).find(|known| known.name() == Ok(symbol))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let bytes = section.data_range(symbol.address() + offset as u64, 8).ok()??;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// What a compute unit has (LLVM's `AMDGPUBaseInfo`, "getMaxWavesPerEU", "getTotalNumVGPRs", "getVGPRAllocGranule").
struct ComputeUnit {
    /// Vector processors, in each of which a wave lies.
    processors: u32,
    /// Waves that a processor holds at once.
    waves: u32,
    /// Vector registers of a processor for waves of 32 lanes, and in what pieces waves get them. For waves of 64 lanes both
    /// are half on processors that have both sizes.
    registers: u32,
    piece: u32,
    has_both_sizes: bool,
    workgroup_bytes: u64,
}

impl ComputeUnit {
    fn of(cpu: &str) -> Option<Self> {
        let gfx9 = |waves, registers, piece, kib: u64| Self {
            processors: 4,
            waves,
            registers,
            piece,
            has_both_sizes: false,
            workgroup_bytes: kib << 10,
        };
        let gfx10 = |waves, registers, piece| Self {
            processors: 2,
            waves,
            registers,
            piece,
            has_both_sizes: true,
            workgroup_bytes: 64 << 10,
        };
        Some(match cpu {
            "gfx90a" | "gfx942" => gfx9(8, 512, 8, 64),
            "gfx950" => gfx9(8, 512, 8, 160),
            "gfx900" | "gfx902" | "gfx904" | "gfx906" | "gfx908" | "gfx909" | "gfx90c" => {
                gfx9(10, 256, 4, 64)
            }
            "gfx1010" | "gfx1011" | "gfx1012" | "gfx1013" => gfx10(20, 1024, 8),
            "gfx1100" | "gfx1101" | "gfx1151" | "gfx1200" | "gfx1201" => gfx10(16, 1536, 24),
            "gfx1250" | "gfx1251" => return None,
            _ if cpu.starts_with("gfx103") || cpu.starts_with("gfx11") => gfx10(16, 1024, 16),
            _ => return None,
        })
    }

    fn most_waves(&self) -> u32 {
        self.waves * self.processors
    }

    /// Waves that it holds of a kernel's workgroups.
    fn waves(&self, kernel: &Kernel, lanes: u32, workgroup_bytes: u64) -> u32 {
        let half = if self.has_both_sizes && kernel.wave_size == 64 { 2 } else { 1 };
        let of_wave = kernel.vector_registers.max(1).next_multiple_of(self.piece / half);
        let waves = lanes.div_ceil(kernel.wave_size.max(1)).max(1);
        let by_registers = (self.registers / half / of_wave).min(self.waves) * self.processors / waves;
        let by_memory = u32::try_from(self.workgroup_bytes / workgroup_bytes.max(1)).unwrap_or(u32::MAX);
        by_registers.min(by_memory) * waves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_are_bounded_by_what_runs_out_first() {
        let waves = |cpu, wave_size, vector_registers, lanes, bytes| {
            let kernel = Kernel {
                name: String::new(),
                vector_registers,
                spilled_vector_registers: 0,
                stack_bytes: 0,
                workgroup_bytes: 0,
                wave_size,
            };
            ComputeUnit::of(cpu).unwrap().waves(&kernel, lanes, bytes)
        };
        assert_eq!(waves("gfx942", 64, 64, 256, 64), 32);
        assert_eq!(waves("gfx942", 64, 65, 256, 64), 28);
        assert_eq!(waves("gfx942", 64, 128, 256, 33 << 10), 4);
        assert_eq!(waves("gfx906", 64, 24, 256, 64), 40);
        assert_eq!(waves("gfx1100", 32, 96, 256, 64), 32);
        assert_eq!(waves("gfx1100", 32, 97, 256, 64), 24);
        assert!(ComputeUnit::of("gfx1250").is_none());
    }
}
