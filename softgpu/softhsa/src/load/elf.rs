//! ELF files: every offset, size and count in them is checked before it is used.

use super::metadata::{self, Metadata};
use super::{Refused, refuse};

/// The most symbols and relocations that are read.
const MOST_ENTRIES: u64 = 1 << 20;

/// The most bytes of all symbols' names. Names may be parts of each other, so their file can be much smaller.
const MOST_NAME_BYTES: usize = 64 << 20;

/// A segment that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Its address in the file.
    pub address: u64,
    /// Bytes in memory; those after the contents are 0.
    pub memory_bytes: u64,
    /// Its bytes in the file.
    pub contents: &'a [u8],
    /// Whether it holds code.
    pub executable: bool,
}

impl Load<'_> {
    /// Returns the address behind it.
    pub fn end(&self) -> u64 {
        // Addresses that wrap around were refused.
        self.address + self.memory_bytes
    }
}

/// A symbol.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address in the file.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    info: u8,
    section: u16,
}

impl Symbol<'_> {
    /// Returns whether the symbol is a defined object that other files can see.
    pub fn is_global_object(&self) -> bool {
        const OBJECT: u8 = 1;
        const LOCAL: u8 = 0;
        self.info & 15 == OBJECT && self.info >> 4 != LOCAL && self.section != 0
    }
}

/// A place in the image that depends on the address that it is loaded at.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The place's address in the file.
    pub address: u64,
    kind: u32,
    /// The address in the file that it refers to, with the addend.
    target: u64,
    /// Whether the target is defined in this file.
    defined: bool,
}

impl Relocation {
    /// Returns how many bytes to write and what, if the file's addresses grow by `delta`.
    ///
    /// # Errors
    ///
    /// The relocation's type is unknown, or its symbol is not defined in this file.
    pub fn value(&self, delta: u64) -> Result<(usize, u64), Refused> {
        const ABS32_LOW: u32 = 1;
        const ABS32_HIGH: u32 = 2;
        const ABS64: u32 = 3;
        const ABS32: u32 = 6;
        const RELATIVE64: u32 = 13;
        if !self.defined {
            refuse!("a relocation at {:#x} refers to a symbol that is not defined in it", self.address);
        }
        let value = self.target.wrapping_add(delta);
        Ok(match self.kind {
            ABS32_LOW | ABS32 => (4, value & 0xffff_ffff),
            ABS32_HIGH => (4, value >> 32),
            ABS64 | RELATIVE64 => (8, value),
            kind => refuse!("it has a relocation of type {kind}, which is not known"),
        })
    }
}

/// An ELF file.
#[derive(Debug)]
pub struct Elf<'a> {
    file: &'a [u8],
    loads: Vec<Load<'a>>,
    notes: Vec<&'a [u8]>,
    dynamic: &'a [u8],
}

/// Returns bytes of the file.
fn part<'a>(file: &'a [u8], offset: u64, bytes: u64, what: &str) -> Result<&'a [u8], Refused> {
    let end = offset.checked_add(bytes).filter(|&end| end <= file.len() as u64);
    match end {
        Some(end) => Ok(&file[offset as usize..end as usize]),
        None => refuse!("{what} at {offset:#x} with {bytes} bytes lies outside of the file"),
    }
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    pub fn read(file: &'a [u8]) -> Result<Elf<'a>, Refused> {
        let header = part(file, 0, 64, "the ELF header")?;
        check_header(header)?;
        let (offset, size, count) = (number(header, 32, 8), number(header, 54, 2), number(header, 56, 2));
        if size != 56 {
            refuse!("its program headers have {size} bytes instead of 56");
        }
        let headers = part(file, offset, size * count, "the table of program headers")?;
        let mut elf = Elf { file, loads: Vec::new(), notes: Vec::new(), dynamic: &[] };
        for header in headers.chunks_exact(56) {
            elf.program_header(header)?;
        }
        // Headers may name the same bytes again and again, and all of these are read.
        let notes: u64 = elf.notes.iter().map(|note| note.len() as u64).sum();
        if notes > elf.file_bytes() {
            refuse!("its notes have {notes} bytes of the file's {}", elf.file_bytes());
        }
        Ok(elf)
    }

    fn program_header(&mut self, header: &[u8]) -> Result<(), Refused> {
        const LOAD: u64 = 1;
        const DYNAMIC: u64 = 2;
        const NOTE: u64 = 4;
        const EXECUTABLE: u64 = 1;
        let (kind, flags) = (number(header, 0, 4), number(header, 4, 4));
        let (offset, address) = (number(header, 8, 8), number(header, 16, 8));
        let (file_bytes, memory_bytes) = (number(header, 32, 8), number(header, 40, 8));
        if !matches!(kind, LOAD | DYNAMIC | NOTE) {
            return Ok(());
        }
        let contents = part(self.file, offset, file_bytes, "a segment")?;
        match kind {
            LOAD => {
                if memory_bytes < file_bytes || address.checked_add(memory_bytes).is_none() {
                    refuse!(
                        "the segment at {address:#x} has {file_bytes} bytes and {memory_bytes} in memory"
                    );
                }
                let executable = flags & EXECUTABLE != 0;
                if memory_bytes > 0 {
                    self.loads.push(Load { address, memory_bytes, contents, executable });
                }
            }
            DYNAMIC => self.dynamic = contents,
            _ => self.notes.push(contents),
        }
        Ok(())
    }

    /// Returns how many bytes the file has.
    pub fn file_bytes(&self) -> u64 {
        self.file.len() as u64
    }

    /// Returns the segments that are loaded, those without memory left out.
    pub fn loads(&self) -> &[Load<'a>] {
        &self.loads
    }

    /// Returns the file's bytes that are loaded at an address.
    fn loaded(&self, address: u64, bytes: u64, what: &str) -> Result<&'a [u8], Refused> {
        part(self.loaded_from(address, what)?, 0, bytes, what)
    }

    /// Returns the file's bytes from where an address is loaded to the segment's end.
    fn loaded_from(&self, address: u64, what: &str) -> Result<&'a [u8], Refused> {
        for load in &self.loads {
            if let Some(offset) = address.checked_sub(load.address)
                && offset < load.contents.len() as u64
            {
                return Ok(&load.contents[offset as usize..]);
            }
        }
        refuse!("{what} at {address:#x} lies outside of the loaded segments")
    }

    fn entry(&self, tag: u64) -> Option<u64> {
        let mut pairs = self.dynamic.chunks_exact(16);
        pairs.find(|pair| number(pair, 0, 8) == tag).map(|pair| number(pair, 8, 8))
    }

    /// Returns how many dynamic symbols there are, which only the hash tables say.
    fn symbol_count(&self) -> Result<u64, Refused> {
        const HASH: u64 = 4;
        const GNU_HASH: u64 = 0x6fff_fef5;
        if let Some(hash) = self.entry(HASH) {
            return Ok(number(self.loaded(hash, 8, "the hash table")?, 4, 4));
        }
        let Some(hash) = self.entry(GNU_HASH) else { return Ok(0) };
        let header = self.loaded(hash, 16, "the hash table")?;
        let (buckets, first, words) = (number(header, 0, 4), number(header, 4, 4), number(header, 8, 4));
        let table = hash.wrapping_add(16).wrapping_add(words.wrapping_mul(8));
        let buckets_bytes = self.loaded(table, buckets.saturating_mul(4), "the hash table's buckets")?;
        let last = buckets_bytes.chunks_exact(4).map(|bucket| number(bucket, 0, 4)).max().unwrap_or(0);
        if last < first {
            return Ok(first);
        }
        // The last chain lies in one segment, which is looked for once.
        let chain = table.wrapping_add(buckets * 4).wrapping_add((last - first) * 4);
        let chain = self.loaded_from(chain, "the hash table's chains")?;
        let mut entries = (last..).zip(chain.chunks_exact(4)).take(MOST_ENTRIES as usize);
        match entries.find(|(_, entry)| number(entry, 0, 4) & 1 != 0) {
            Some((symbol, _)) => Ok(symbol + 1),
            None => refuse!("its hash table has a chain without an end"),
        }
    }

    fn raw_symbols(&self) -> Result<&'a [u8], Refused> {
        const SYMBOLS: u64 = 6;
        let count = self.symbol_count()?;
        if count > MOST_ENTRIES {
            refuse!("it says that it has {count} symbols");
        }
        match self.entry(SYMBOLS) {
            Some(table) if count > 0 => self.loaded(table, count * 24, "the symbol table"),
            _ => Ok(&[]),
        }
    }

    /// Returns the dynamic symbols.
    pub fn symbols(&self) -> Result<Vec<Symbol<'a>>, Refused> {
        const STRINGS: u64 = 5;
        const STRING_BYTES: u64 = 10;
        let raw = self.raw_symbols()?;
        if raw.is_empty() {
            return Ok(Vec::new());
        }
        let (Some(strings), Some(bytes)) = (self.entry(STRINGS), self.entry(STRING_BYTES)) else {
            refuse!("it has symbols and no names");
        };
        let strings = self.loaded(strings, bytes, "the string table")?;
        let mut name_bytes = 0;
        let read = |entry: &[u8]| {
            let symbol = symbol(entry, strings)?;
            name_bytes += symbol.name.len();
            if name_bytes > MOST_NAME_BYTES {
                refuse!("its symbols' names take more than {MOST_NAME_BYTES} bytes together");
            }
            Ok(symbol)
        };
        raw.chunks_exact(24).map(read).collect()
    }

    /// Returns the relocations.
    pub fn relocations(&self) -> Result<Vec<Relocation>, Refused> {
        const RELA: u64 = 7;
        const RELA_BYTES: u64 = 8;
        let (Some(table), Some(bytes)) = (self.entry(RELA), self.entry(RELA_BYTES)) else {
            return Ok(Vec::new());
        };
        if bytes / 24 > MOST_ENTRIES {
            refuse!("it says that it has {} relocations", bytes / 24);
        }
        let (raw, symbols) = (self.loaded(table, bytes, "the table of relocations")?, self.raw_symbols()?);
        let relocation = |entry: &[u8]| {
            let (info, addend) = (number(entry, 8, 8), number(entry, 16, 8));
            let index = (info >> 32) as usize;
            let (base, defined) = match symbols.chunks_exact(24).nth(index) {
                _ if index == 0 => (0, true),
                Some(symbol) => (number(symbol, 8, 8), number(symbol, 6, 2) != 0),
                None => refuse!("a relocation refers to symbol {index}, which does not exist"),
            };
            let target = base.wrapping_add(addend);
            Ok(Relocation { address: number(entry, 0, 8), kind: info as u32, target, defined })
        };
        raw.chunks_exact(24).map(relocation).collect()
    }

    /// Returns the metadata, which says nothing if there is none.
    pub fn metadata(&self) -> Result<Metadata<'a>, Refused> {
        const METADATA: u64 = 32;
        for notes in &self.notes {
            let mut rest = *notes;
            while rest.len() >= 12 {
                let (name, bytes, kind) = (number(rest, 0, 4), number(rest, 4, 4), number(rest, 8, 4));
                let contents_at = 12 + name.next_multiple_of(4);
                let contents = part(rest, contents_at, bytes, "a note")?;
                if kind == METADATA && part(rest, 12, name, "a note's name")? == b"AMDGPU\0" {
                    return metadata::read(contents);
                }
                let next = (contents_at + bytes.next_multiple_of(4)).min(rest.len() as u64);
                rest = &rest[next as usize..];
            }
        }
        Ok(Metadata::default())
    }
}

fn check_header(header: &[u8]) -> Result<(), Refused> {
    const MACHINE: u64 = 224;
    const OS_HSA: u8 = 64;
    if header[..4] != *b"\x7fELF" || header[4] != 2 || header[5] != 1 {
        refuse!("it is no 64-bit little-endian ELF file");
    }
    const SHARED: u64 = 3;
    if number(header, 16, 2) != SHARED {
        refuse!("it is no linked code object (its ELF type is {})", number(header, 16, 2));
    }
    if number(header, 18, 2) != MACHINE || header[7] != OS_HSA {
        refuse!("it is not for AMD GPUs under HSA");
    }
    let version = u32::from(header[8]) + 2;
    if !(4..=6).contains(&version) {
        refuse!("it is a code object of version {version}; versions 4 to 6 are known");
    }
    const GFX942: u64 = 0x4c;
    const GFX9_4_GENERIC: u64 = 0x5f;
    let processor = number(header, 48, 4) & 255;
    if !matches!(processor, GFX942 | GFX9_4_GENERIC) {
        refuse!("it is for another processor (number {processor:#x}); this one is gfx942");
    }
    // Two bits each say that it is not of the processor's, does not matter, must be off, or must be on.
    let feature = |first: u32| number(header, 48, 4) >> first & 3;
    if feature(8) == 3 {
        refuse!(
            "it is for processors that repeat accesses, which this one does not: compile it without xnack+"
        );
    }
    if feature(10) == 2 {
        refuse!(
            "it is for processors without ECC of registers, which this one has: compile it without sramecc-"
        );
    }
    Ok(())
}

fn symbol<'a>(entry: &[u8], strings: &'a [u8]) -> Result<Symbol<'a>, Refused> {
    let at = number(entry, 0, 4) as usize;
    let name = strings.get(at..).and_then(|rest| rest.split(|&byte| byte == 0).next());
    let Some(Ok(name)) = name.map(std::str::from_utf8) else {
        refuse!("a symbol's name lies outside of the string table or is not UTF-8");
    };
    Ok(Symbol {
        name,
        address: number(entry, 8, 8),
        bytes: number(entry, 16, 8),
        info: entry[4],
        section: number(entry, 6, 2) as u16,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment's kind and address, and its place in the file behind the headers.
    type Segment = (u64, u64, std::ops::Range<usize>);

    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;
    const NOTE: u64 = 4;

    fn file(segments: &[Segment], contents: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x40\x03");
        file[16..20].copy_from_slice(&[3, 0, 224, 0]);
        (file[32], file[48], file[54], file[56]) = (64, 0x4c, 56, segments.len() as u8);
        let start = 64 + 56 * segments.len();
        for (kind, address, range) in segments {
            let (offset, bytes) = ((start + range.start) as u64, range.len() as u64);
            let fields = [*kind, offset, *address, *address, bytes, bytes, 4096];
            file.extend(fields.map(u64::to_le_bytes).concat());
        }
        file.extend(contents);
        file
    }

    /// A table of one bucket, whose chain begins with symbol 1, and a dynamic section that tells of it.
    fn hash_table(chain: &[u32]) -> Vec<u8> {
        let words = [&[1, 1, 0, 0, 1], chain].concat();
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend([0x6fff_fef5, 0x1_0000u64].map(u64::to_le_bytes).concat());
        bytes
    }

    #[test]
    fn a_chain_ends_in_its_segment() {
        let count = |chain: &[u32], loaded: usize| {
            let contents = hash_table(chain);
            let (table, end) = (contents.len() - 16, contents.len());
            let segments = [
                (LOAD, 0x1_0000, 0..loaded),
                (LOAD, 0x1_0000 + loaded as u64, loaded..table),
                (DYNAMIC, 0, table..end),
            ];
            Elf::read(&file(&segments, &contents)).and_then(|elf| elf.symbol_count())
        };
        assert_eq!(count(&[0, 0, 1], 32), Ok(4));
        let refused = count(&[0, 0, 1], 28).expect_err("its end is in another segment");
        assert!(refused.0.contains("a chain without an end"), "{refused}");
    }

    #[test]
    fn what_has_no_bytes_is_no_segment() {
        let file = file(&[(LOAD, 0, 0..0), (LOAD, 0x1000, 0..4), (LOAD, 0, 0..0)], &[0; 4]);
        assert_eq!(Elf::read(&file).expect("it is read").loads().len(), 1);
    }

    #[test]
    fn notes_have_no_more_than_the_file() {
        let with = |notes: usize| {
            let segments = vec![(NOTE, 0, 0..400); notes];
            Elf::read(&file(&segments, &[0; 400])).map(drop)
        };
        assert_eq!(with(1), Ok(()));
        let refused = with(10).expect_err("there are ten of one");
        assert!(refused.0.contains("its notes have 4000 bytes of the file's 1024"), "{refused}");
    }
}
