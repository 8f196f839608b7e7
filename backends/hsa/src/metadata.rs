//! What a code object says of its kernels: a note in MessagePack, as LLVM's AMDGPU usage guide describes it for code object
//! versions 3 to 6.

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use serde::Deserialize;

/// Type of the note.
const NT_AMDGPU_METADATA: u32 = 32;

/// The function of ROCm's device libraries that takes a place of the buffer that kernels print to.
const PRINTF_ALLOC: &str = "__printf_alloc";

/// Most bytes of a kernel argument segment: compilers make some thousand at most.
const MOST_KERNARG_BYTES: u32 = 1 << 20;

/// The part of the metadata that this crate reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    #[serde(rename = "amdhsa.kernels", default)]
    pub kernels: Vec<Kernel>,
    /// It has the function that takes a place of the buffer that kernels print to. Kernels may call it without having the
    /// buffer among their arguments: those of OpenCL C that were linked with ROCm's device libraries by clang, which then
    /// takes a stub of the libraries for `printf`.
    #[serde(skip)]
    pub has_printf_buffer: bool,
}

/// What is said of a kernel.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Kernel {
    /// The symbol of its descriptor, `<name>.kd`.
    #[serde(rename = ".symbol")]
    pub symbol: String,
    #[serde(rename = ".args", default)]
    raw_arguments: Vec<RawArgument>,
    #[serde(skip)]
    pub arguments: Vec<Argument>,
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_bytes: u32,
    #[serde(rename = ".wavefront_size")]
    pub wave_size: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub max_lanes: u32,
    #[serde(rename = ".vgpr_count", default)]
    pub vector_registers: u32,
    #[serde(rename = ".agpr_count", default)]
    pub accumulation_registers: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub uses_dynamic_stack: bool,
    /// The only lanes in x, y and z that a workgroup can have, if the source says which.
    #[serde(rename = ".reqd_workgroup_size", default)]
    pub required_lanes: Option<[u32; 3]>,
}

#[derive(Clone, Debug, Deserialize)]
struct RawArgument {
    #[serde(rename = ".offset")]
    offset: u32,
    #[serde(rename = ".size")]
    bytes: u32,
    #[serde(rename = ".value_kind")]
    kind: String,
}

/// An argument's place in the segment, which holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub offset: u32,
    pub bytes: u32,
    pub kind: Kind,
}

/// What an argument is. Axes are x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One of the kernel's own: a value, or an address of memory that the whole device reaches.
    Own,
    /// One of the kernel's own that no bytes of the host's can be: in words, what it is.
    Special(&'static str),
    /// Workgroups along an axis.
    BlockCount(usize),
    /// Lanes of a workgroup along an axis.
    GroupSize(usize),
    /// Dimensions of the grid.
    GridDims,
    /// Bytes of local memory besides what the kernel declares.
    DynamicLdsBytes,
    /// The queue's address.
    QueuePointer,
    /// The address of a buffer by which the kernel calls the host, as ROCm's device libraries do.
    HostcallBuffer,
    /// The address of the state of ROCm's device heap.
    Heap,
    /// The address of a buffer that the kernel prints to, and that the host reads when the kernel has ended: nobody gives
    /// one.
    PrintfBuffer,
    /// A hidden one that is 0: offsets and remainders, which no launch of this crate has, apertures, which processors tell
    /// by themselves, and services of other runtimes.
    Nothing,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "hidden_block_count_x" => Self::BlockCount(0),
            "hidden_block_count_y" => Self::BlockCount(1),
            "hidden_block_count_z" => Self::BlockCount(2),
            "hidden_group_size_x" => Self::GroupSize(0),
            "hidden_group_size_y" => Self::GroupSize(1),
            "hidden_group_size_z" => Self::GroupSize(2),
            "hidden_grid_dims" => Self::GridDims,
            "hidden_dynamic_lds_size" => Self::DynamicLdsBytes,
            "hidden_queue_ptr" => Self::QueuePointer,
            "hidden_hostcall_buffer" => Self::HostcallBuffer,
            "hidden_heap_v1" => Self::Heap,
            "hidden_printf_buffer" => Self::PrintfBuffer,
            name if name.starts_with("hidden_") => Self::Nothing,
            "dynamic_shared_pointer" => Self::Special("a pointer to workgroup memory"),
            "image" => Self::Special("an image"),
            "sampler" => Self::Special("a sampler"),
            "pipe" => Self::Special("a pipe"),
            "queue" => Self::Special("a queue"),
            _ => Self::Own,
        }
    }
}

impl Kind {
    /// Says whether a launch gives it.
    pub fn is_own(self) -> bool {
        matches!(self, Self::Own | Self::Special(_))
    }
}

impl Metadata {
    /// Reads the metadata of a code object.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn read(image: &[u8]) -> Result<Self, String> {
        let note = note(image)?.ok_or("it has no metadata of kernels: compile it for amdgcn-amd-amdhsa")?;
        let mut metadata: Self = rmp_serde::from_slice(note)
            .map_err(|error| format!("its metadata of kernels is damaged: {error}"))?;
        metadata.kernels.iter_mut().try_for_each(Kernel::check)?;
        metadata.has_printf_buffer = has_symbol(image, PRINTF_ALLOC);
        Ok(metadata)
    }
}

impl Kernel {
    /// Takes the arguments over, which must lie in the segment.
    fn check(&mut self) -> Result<(), String> {
        if self.kernarg_bytes > MOST_KERNARG_BYTES {
            return Err(format!("the arguments of {} take {} bytes", self.symbol, self.kernarg_bytes));
        }
        for RawArgument { offset, bytes, kind } in self.raw_arguments.drain(..) {
            if offset.checked_add(bytes).is_none_or(|end| end > self.kernarg_bytes) {
                return Err(format!("an argument of {} lies outside of its arguments' memory", self.symbol));
            }
            self.arguments.push(Argument { offset, bytes, kind: Kind::of(&kind) });
        }
        Ok(())
    }
}

/// Says whether the code object defines this symbol, as far as it has a table of symbols.
fn has_symbol(image: &[u8], name: &str) -> bool {
    let Ok(file) = ElfFile64::<Endianness>::parse(image) else { return false };
    file.symbols().any(|symbol| !symbol.is_undefined() && symbol.name() == Ok(name))
}

/// Finds the note.
fn note(image: &[u8]) -> Result<Option<&[u8]>, String> {
    let damaged = |error: object::Error| format!("it is a damaged ELF file: {error}");
    let header = FileHeader64::<Endianness>::parse(image).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    for segment in header.program_headers(endian, image).map_err(damaged)? {
        let Some(mut notes) = segment.notes(endian, image).map_err(damaged)? else { continue };
        while let Some(note) = notes.next().map_err(damaged)? {
            if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                return Ok(Some(note.desc()));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(kernarg_bytes: u32, offset: u32, bytes: u32) -> Kernel {
        let raw = RawArgument { offset, bytes, kind: "by_value".into() };
        Kernel {
            symbol: "k.kd".into(),
            raw_arguments: vec![raw],
            arguments: Vec::new(),
            kernarg_bytes,
            wave_size: 64,
            max_lanes: 1024,
            vector_registers: 0,
            accumulation_registers: 0,
            uses_dynamic_stack: false,
            required_lanes: None,
        }
    }

    #[test]
    fn arguments_lie_in_their_segment() {
        assert!(kernel(16, 8, 8).check().is_ok());
        for (kernarg_bytes, offset, bytes) in [(16, 8, 9), (16, u32::MAX, 8), (1 << 30, 0, 8), (0, 0, 1)] {
            assert!(kernel(kernarg_bytes, offset, bytes).check().is_err());
        }
    }

    #[test]
    fn files_without_metadata_are_refused() {
        assert!(Metadata::read(b"").unwrap_err().contains("damaged"));
        let this_test = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(Metadata::read(&this_test).unwrap_err().contains("no metadata"));
    }

    #[test]
    fn hidden_arguments_are_told_by_their_names() {
        assert_eq!(Kind::of("hidden_group_size_y"), Kind::GroupSize(1));
        assert_eq!(Kind::of("hidden_heap_v1"), Kind::Heap);
        assert_eq!(Kind::of("hidden_default_queue"), Kind::Nothing);
        assert_eq!(Kind::of("global_buffer"), Kind::Own);
        assert_eq!(Kind::of("image"), Kind::Special("an image"));
    }
}
