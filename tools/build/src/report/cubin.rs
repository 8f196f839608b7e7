//! What a relocatable cubin says of its functions.

use object::{Object, ObjectSection, ObjectSymbol, SymbolIndex};
use std::collections::HashMap;

/// What a function has, by its symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    /// Bytes of its code.
    pub bytes: u64,
    /// Registers that it takes.
    pub registers: u32,
}

/// The functions of a cubin; none if it is no such file.
pub(super) fn functions(cubin: &[u8]) -> HashMap<String, Code> {
    let Ok(file) = object::File::parse(cubin) else { return HashMap::new() };
    let sections = file.sections().filter_map(|section| {
        let symbol = section.name().ok()?.strip_prefix(".text.")?;
        Some((symbol.to_owned(), Code { bytes: section.size(), registers: 0 }))
    });
    let mut functions: HashMap<_, _> = sections.collect();
    let info = file.section_by_name(".nv.info").and_then(|section| section.data().ok()).unwrap_or_default();
    for (symbol, registers) in register_counts(info) {
        let symbol = file.symbol_by_index(SymbolIndex(symbol as usize));
        if let Some(function) = symbol.ok().and_then(|symbol| functions.get_mut(symbol.name().ok()?)) {
            function.registers = registers;
        }
    }
    functions
}

/// Indices of symbols and their registers, of what `cuobjdump -elf` shows as `EIATTR_REGCOUNT`.
fn register_counts(mut info: &[u8]) -> Vec<(u32, u32)> {
    // An attribute is its form, its kind and two bytes, which are its value, or how many bytes of it follow.
    const FORM_SIZED: u8 = 4;
    const REGISTER_COUNT: u8 = 0x2f;
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?));
    let mut counts = Vec::new();
    while let [form, kind, low, high, rest @ ..] = info {
        let bytes = if *form == FORM_SIZED { u16::from_le_bytes([*low, *high]).into() } else { 0 };
        let Some((value, rest)) = rest.split_at_checked(bytes) else { break };
        if *kind == REGISTER_COUNT
            && let (Some(symbol), Some(count)) = (number(value), value.get(4..).and_then(number))
        {
            counts.push((symbol, count));
        }
        info = rest;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_far_as_they_go() {
        let counts = [&[3, 0x1b, 255, 0][..], &[4, 0x11, 8, 0, 1, 0, 0, 0, 9, 0, 0, 0]].concat();
        let info = [
            &counts[..],
            &[4, 0x2f, 8, 0, 7, 0, 0, 0, 32, 0, 0, 0],
            &[4, 0x2f, 8, 0, 8, 0, 0, 0, 40, 0, 0, 0],
        ]
        .concat();
        assert_eq!(register_counts(&info), [(7, 32), (8, 40)]);
        for cut in 0..info.len() {
            assert!(register_counts(&info[..cut]).len() <= 2, "{cut}");
        }
        assert_eq!(functions(b"no cubin"), HashMap::new());
    }
}
