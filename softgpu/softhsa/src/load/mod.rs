//! Code objects: ELF files of AMD GPUs, versions 4 to 6.

pub mod descriptor;
mod elf;
mod loaded;
mod metadata;

use std::collections::BTreeMap;
use std::fmt;

pub use descriptor::Descriptor;
use elf::{Elf, Symbol};
pub use loaded::Loaded;
use metadata::Described;

use crate::memory::PAGE;

/// Why a code object was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the code object was refused: {}", self.0)
    }
}

impl std::error::Error for Refused {}

macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::load::Refused(format!($($text)*))) };
}
use refuse;

/// The most bytes that a code object may take in memory.
const MOST_BYTES: u64 = 1 << 30;

/// A kernel of a code object.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name of its descriptor's symbol, which ends in `.kd`.
    pub symbol: String,
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Where its descriptor is, from the start of the image.
    pub descriptor_offset: u64,
    /// Where its first instruction is, from the start of the image.
    pub entry_offset: u64,
    /// Bytes of kernel arguments, the hidden ones included, by the metadata.
    pub kernarg_bytes: u32,
    /// What the kernel arguments' address must be a multiple of.
    pub kernarg_alignment: u32,
    /// Whether it needs a stack of a size that is not known.
    pub dynamic_stack: bool,
}

/// A variable of a code object.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Where it is, from the start of the image.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A code object, read and checked.
#[derive(Debug)]
pub struct CodeObject {
    /// The kernels by the names of their symbols.
    pub kernels: BTreeMap<String, Kernel>,
    /// The variables by name.
    pub variables: BTreeMap<String, Variable>,
    /// The contents of its memory: relocated once it is loaded.
    pub image: Vec<u8>,
    /// Parts of the image that hold code, in order: first byte and number of bytes.
    pub code: Vec<(u64, u64)>,
    relocations: Vec<elf::Relocation>,
    /// The address that the image's first byte has in the file.
    first: u64,
}

impl CodeObject {
    /// Reads a code object.
    ///
    /// # Errors
    ///
    /// The file is no code object for gfx942, or what it says of itself cannot be true.
    pub fn read(file: &[u8]) -> Result<CodeObject, Refused> {
        let elf = Elf::read(file)?;
        let (first, image) = image(&elf)?;
        let code = code_ranges(&elf, first)?;
        let metadata = elf.metadata()?;
        let mut object = CodeObject {
            kernels: BTreeMap::new(),
            variables: BTreeMap::new(),
            image,
            code,
            relocations: elf.relocations()?,
            first,
        };
        let mut described = BTreeMap::new();
        for kernel in metadata.kernels {
            if let Some(name) = kernel.symbol {
                described.entry(name).or_insert(kernel);
            }
        }
        for symbol in elf.symbols()? {
            object.add_symbol(&symbol, described.get(symbol.name).copied().unwrap_or_default())?;
        }
        Ok(object)
    }

    /// Adds a symbol, and if it is a kernel what the metadata has of it.
    fn add_symbol(&mut self, symbol: &Symbol<'_>, described: Described<'_>) -> Result<(), Refused> {
        if !symbol.is_global_object() {
            return Ok(());
        }
        let name = symbol.name;
        let Some(offset) = self.offset_of(symbol.address, symbol.bytes) else {
            refuse!("the symbol {name} lies outside of the loaded segments");
        };
        if name.ends_with(".kd") {
            let kernel = self.kernel(name, offset, symbol.bytes, described)?;
            self.kernels.insert(name.to_owned(), kernel);
        } else {
            self.variables.insert(name.to_owned(), Variable { offset, bytes: symbol.bytes });
        }
        Ok(())
    }

    fn offset_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.first)?;
        (offset.checked_add(bytes)? <= self.image.len() as u64).then_some(offset)
    }

    fn is_code(&self, offset: u64) -> bool {
        let behind = self.code.partition_point(|&(start, _)| start <= offset);
        self.code[..behind].last().is_some_and(|&(start, length)| offset - start < length)
    }

    fn kernel(
        &self,
        name: &str,
        offset: u64,
        bytes: u64,
        described: Described<'_>,
    ) -> Result<Kernel, Refused> {
        let raw = self.image[offset as usize..].first_chunk().filter(|_| bytes == Descriptor::BYTES as u64);
        let Some(raw) = raw else {
            refuse!("the kernel descriptor {name} has {bytes} bytes instead of {}", Descriptor::BYTES);
        };
        if !offset.is_multiple_of(Descriptor::ALIGNMENT) {
            refuse!("the kernel descriptor {name} is not at a multiple of {}", Descriptor::ALIGNMENT);
        }
        let descriptor = Descriptor::read(raw).map_err(|why| Refused(format!("{name}: {why}")))?;
        let entry_offset = descriptor.first_instruction().and_then(|entry| offset.checked_add_signed(entry));
        let Some(entry_offset) = entry_offset.filter(|&entry| self.is_code(entry)) else {
            refuse!("the entry of the kernel {name} is not in its code");
        };
        if !entry_offset.is_multiple_of(Descriptor::CODE_ALIGNMENT) {
            refuse!("the entry of the kernel {name} is not at a multiple of {}", Descriptor::CODE_ALIGNMENT);
        }
        let kernarg_bytes = described.kernarg_bytes.unwrap_or(u64::from(descriptor.kernarg_bytes));
        if kernarg_bytes > 1 << 20 {
            refuse!("the kernel {name} has {kernarg_bytes} bytes of arguments");
        }
        let preloaded = descriptor.preloaded;
        if preloaded.words > 0 && u64::from(preloaded.offset + preloaded.words) * 4 > kernarg_bytes {
            refuse!("the kernel {name} preloads more than its {kernarg_bytes} bytes of arguments");
        }
        let alignment = described.kernarg_alignment.unwrap_or(16);
        if !alignment.is_power_of_two() || alignment > PAGE as u64 {
            refuse!("the arguments of the kernel {name} have an alignment of {alignment}");
        }
        Ok(Kernel {
            symbol: name.to_owned(),
            dynamic_stack: descriptor.dynamic_stack,
            descriptor,
            descriptor_offset: offset,
            entry_offset,
            kernarg_bytes: kernarg_bytes as u32,
            kernarg_alignment: alignment as u32,
        })
    }

    /// Changes the image for the address that it is loaded at.
    ///
    /// # Errors
    ///
    /// A relocation is of an unknown type or outside of the image.
    pub fn relocate(&mut self, address: u64) -> Result<(), Refused> {
        let delta = address.wrapping_sub(self.first);
        for relocation in &self.relocations {
            let (bytes, value) = relocation.value(delta)?;
            let place =
                relocation.address.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            let target = place.and_then(|place| self.image.get_mut(place..place.checked_add(bytes)?));
            match target {
                Some(target) => target.copy_from_slice(&value.to_le_bytes()[..bytes]),
                None => refuse!("a relocation at {:#x} is outside of the image", relocation.address),
            }
        }
        Ok(())
    }
}

/// Puts the segments together. Returns the address of the first byte, which is a multiple of a page, and the bytes.
fn image(elf: &Elf<'_>) -> Result<(u64, Vec<u8>), Refused> {
    let mut segments: Vec<&elf::Load<'_>> = elf.loads().iter().collect();
    segments.sort_by_key(|segment| segment.address);
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        refuse!("it has no segments to load");
    };
    let (first, last) = (first.address / PAGE as u64 * PAGE as u64, last.end());
    for (segment, next) in segments.iter().zip(&segments[1..]) {
        if segment.end() > next.address {
            refuse!("its segments at {:#x} and {:#x} overlap", segment.address, next.address);
        }
    }
    if last - first > MOST_BYTES {
        refuse!(
            "its segments take {} bytes of memory, of which a code object has {MOST_BYTES}",
            last - first
        );
    }
    // Code is kept as words and as instructions, too: a small file is not to be in memory again and again.
    let contents: u64 = segments.iter().map(|segment| segment.contents.len() as u64).sum();
    if contents > elf.file_bytes() {
        refuse!("its segments have {contents} bytes of the file's {}", elf.file_bytes());
    }
    let mut image = vec![0; (last - first) as usize];
    for segment in segments {
        let start = (segment.address - first) as usize;
        image[start..start + segment.contents.len()].copy_from_slice(segment.contents);
    }
    Ok((first, image))
}

/// Returns where code is, in segments that [`image`] has checked. What the file does not hold is none, so that there is
/// never more of it than of the file.
fn code_ranges(elf: &Elf<'_>, first: u64) -> Result<Vec<(u64, u64)>, Refused> {
    let executable = elf.loads().iter().filter(|segment| segment.executable);
    let range = |segment: &elf::Load<'_>| {
        if !segment.address.is_multiple_of(4) {
            refuse!("its code at {:#x} is not at a multiple of 4", segment.address);
        }
        Ok((segment.address - first, segment.contents.len() as u64))
    };
    let mut ranges: Vec<_> = executable.map(range).collect::<Result<_, _>>()?;
    ranges.sort_unstable();
    Ok(ranges)
}
