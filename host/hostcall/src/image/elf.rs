//! ELF files: cubins, AMD's code objects, and shared objects of the host's architecture.

use super::symbols::calls;
use super::{ComputeCapability, ImageInfo, NotAnImage, Target, amdgpu};
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_STRSZ, DT_STRTAB, DT_SYMTAB, EM_AMDGPU, EM_CUDA, ET_DYN, ET_REL, FileHeader64,
    PT_INTERP, PT_LOAD, ProgramHeader64, Sym64,
};
use object::pod::slice_from_bytes;
use object::read::StringTable;
use object::read::elf::{Dyn, ElfFile64, FileHeader, GnuHashTable, HashTable, ProgramHeader, Sym};
use object::{LittleEndian, Object, ObjectSymbol};

/// `e_machine` of this process's own shared objects.
const EM_HOST: u16 =
    if cfg!(target_arch = "aarch64") { object::elf::EM_AARCH64 } else { object::elf::EM_X86_64 };

/// `EI_ABIVERSION` of cubins since CUDA 13, whose flags have the compute capability at another place.
const CUBIN_ABI_13: u8 = 8;

pub(super) fn identify(bytes: &[u8]) -> Result<ImageInfo, NotAnImage> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| damaged_or_other(bytes))?;
    let endian = header.endian().map_err(|_| NotAnImage::OtherProcessor)?;
    let (machine, kind, flags) = (header.e_machine(endian), header.e_type(endian), header.e_flags(endian));
    let target = match machine {
        EM_CUDA => Target::Cubin(compute_capability(header.e_ident().abi_version, flags)),
        EM_AMDGPU => Target::Amd(amdgpu::processor(flags)),
        EM_HOST if kind == ET_DYN => Target::Software,
        EM_HOST if kind != ET_REL => return Err(NotAnImage::HostProgram),
        EM_HOST => return Err(NotAnImage::Object),
        _ => return Err(NotAnImage::OtherProcessor),
    };
    // NVIDIA's driver links objects when it loads them.
    if kind == ET_REL && machine != EM_CUDA {
        return Err(NotAnImage::Object);
    }
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(|_| NotAnImage::Damaged)?;
    let defined = file.symbols().filter(|symbol| !symbol.is_undefined());
    let mut symbols: Vec<_> =
        defined.filter_map(|symbol| Some((symbol.name().ok()?, symbol.size()))).collect();
    if symbols.is_empty() {
        // The dynamic symbols are among the others, unless those were stripped.
        symbols = dynamic_symbols(bytes, file.elf_program_headers()).unwrap_or_default();
    }
    let calls = calls(symbols);
    // Most programs of the host are shared objects too, which name their interpreter.
    let interpreter = |header: &ProgramHeader64<LittleEndian>| header.p_type(endian) == PT_INTERP;
    if target == Target::Software && file.elf_program_headers().iter().any(interpreter) {
        return Err(NotAnImage::HostProgram);
    }
    Ok(ImageInfo { target, calls })
}

/// Returns names and sizes of the dynamic symbols that are defined, as what loads the file finds them: by its segments alone.
/// `None` if the file has none, or they lie outside of it.
fn dynamic_symbols<'a>(
    bytes: &'a [u8],
    headers: &[ProgramHeader64<LittleEndian>],
) -> Option<Vec<(&'a str, u64)>> {
    const LITTLE: LittleEndian = LittleEndian;
    let dynamic = headers.iter().find_map(|header| header.dynamic(LITTLE, bytes).ok().flatten())?;
    // The bytes from an address on, to the end of its segment.
    let loaded = |tag: u32| -> Option<&'a [u8]> {
        let entry = dynamic.iter().find(|entry| entry.tag32(LITTLE) == Some(tag))?;
        headers.iter().filter(|header| header.p_type(LITTLE) == PT_LOAD).find_map(|header| {
            let offset = entry.d_val(LITTLE).checked_sub(header.p_vaddr(LITTLE))?;
            header.data(LITTLE, bytes).ok()?.get(usize::try_from(offset).ok()?..)
        })
    };
    let count = match loaded(DT_HASH) {
        Some(hash) => {
            HashTable::<FileHeader64<LittleEndian>>::parse(LITTLE, hash).ok()?.symbol_table_length()
        }
        None => GnuHashTable::<FileHeader64<LittleEndian>>::parse(LITTLE, loaded(DT_GNU_HASH)?)
            .ok()?
            .symbol_table_length(LITTLE)?,
    };
    let (symbols, _) = slice_from_bytes::<Sym64<LittleEndian>>(loaded(DT_SYMTAB)?, count as usize).ok()?;
    let names_bytes = dynamic.iter().find(|entry| entry.tag32(LITTLE) == Some(DT_STRSZ))?.d_val(LITTLE);
    let names = loaded(DT_STRTAB)?.get(..usize::try_from(names_bytes).ok()?)?;
    let names = StringTable::new(names, 0, names_bytes);
    let defined = symbols.iter().filter(|symbol| !symbol.is_undefined(LITTLE));
    let named = defined.filter_map(|symbol| {
        Some((std::str::from_utf8(symbol.name(LITTLE, names).ok()?).ok()?, symbol.st_size(LITTLE)))
    });
    Some(named.collect())
}

/// Why the header is none of a 64-bit little-endian file.
fn damaged_or_other(bytes: &[u8]) -> NotAnImage {
    const CLASS_64_LITTLE: [u8; 2] = [2, 1];
    match bytes.get(4..6) {
        Some(class) if class != CLASS_64_LITTLE => NotAnImage::OtherProcessor,
        _ => NotAnImage::Damaged,
    }
}

fn compute_capability(abi_version: u8, flags: u32) -> ComputeCapability {
    let number = if abi_version >= CUBIN_ABI_13 { flags >> 8 } else { flags };
    ComputeCapability::of_number(number & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, machine: u8) -> Vec<u8> {
        let mut image = b"\x7fELF\x02\x01\x01".to_vec();
        image.resize(16, 0);
        image.extend([kind, 0, machine, 0, 1, 0, 0, 0]);
        image.resize(52, 0);
        image.extend([64, 0]);
        image.resize(64, 0);
        image
    }

    fn refused(bytes: &[u8]) -> NotAnImage {
        identify(bytes).expect_err("no image")
    }

    #[test]
    fn machines_and_kinds() {
        let host = EM_HOST as u8;
        let software = identify(&header(3, host)).unwrap();
        assert_eq!(software.target, Target::Software);
        assert_eq!(refused(&header(2, host)), NotAnImage::HostProgram);
        assert_eq!(refused(&header(1, host)), NotAnImage::Object);
        assert_eq!(refused(&header(1, 224)), NotAnImage::Object);
        assert!(matches!(identify(&header(1, 190)).unwrap().target, Target::Cubin(_)));
        assert_eq!(refused(&header(3, 40)), NotAnImage::OtherProcessor);
        assert_eq!(refused(&header(3, host)[..40]), NotAnImage::Damaged);
        assert_eq!(refused(b"\x7fELF\x01\x01\x01"), NotAnImage::OtherProcessor);
        let this_test = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(refused(&this_test), NotAnImage::HostProgram);
        // Its section table lies outside.
        let mut damaged = header(3, host);
        damaged[40..48].copy_from_slice(&(1u64 << 40).to_le_bytes());
        damaged[58..62].copy_from_slice(&[64, 0, 5, 0]);
        assert_eq!(refused(&damaged), NotAnImage::Damaged);
    }

    #[test]
    fn images_may_lie_anywhere() {
        // As `include_bytes` puts them. One of these places is aligned, at most.
        let image = header(3, EM_HOST as u8);
        for offset in 0..8 {
            let placed = [&vec![0; offset][..], &image].concat();
            assert!(identify(&placed[offset..]).is_ok(), "{offset}");
        }
    }

    #[test]
    fn architectures() {
        let with = |machine, abi_version, flags: u32| {
            let mut image = header(2, machine);
            image[8] = abi_version;
            image[48..52].copy_from_slice(&flags.to_le_bytes());
            identify(&image).unwrap().target.to_string()
        };
        assert_eq!(with(190, 7, 0x5a055a), "NVIDIA GPUs of sm_90");
        assert_eq!(with(190, 8, 0x06007802), "NVIDIA GPUs of sm_120");
        assert_eq!(with(224, 3, 0x53f), "AMD GPUs of gfx90a");
    }
}
