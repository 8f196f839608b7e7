//! Names of AMD's processors, as a code object's flags have them (LLVM's AMDGPU usage guide).

/// The flags' bits that name the processor.
const PROCESSOR_BITS: u32 = 0xff;

const PROCESSORS: &[(u32, &str)] = &[
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x40, "gfx940"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x49, "gfx1250"),
    (0x4a, "gfx1151"),
    (0x4b, "gfx941"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x51, "gfx9-generic"),
    (0x52, "gfx10-1-generic"),
    (0x53, "gfx10-3-generic"),
    (0x54, "gfx11-generic"),
    (0x55, "gfx1152"),
    (0x58, "gfx1153"),
    (0x59, "gfx12-generic"),
    (0x5a, "gfx1251"),
    (0x5b, "gfx12-5-generic"),
    (0x5f, "gfx9-4-generic"),
];

/// Targets whose code runs on several processors, with these processors.
const GENERIC: &[(&str, &[&str])] = &[
    ("gfx9-generic", &["gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"]),
    ("gfx9-4-generic", &["gfx940", "gfx941", "gfx942", "gfx950"]),
    ("gfx10-1-generic", &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ("gfx10-3-generic", &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    (
        "gfx11-generic",
        &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"],
    ),
    ("gfx12-generic", &["gfx1200", "gfx1201"]),
    ("gfx12-5-generic", &["gfx1250", "gfx1251"]),
];

/// The name of the processor that a code object with these flags is for.
pub(super) fn processor(flags: u32) -> String {
    let code = flags & PROCESSOR_BITS;
    match PROCESSORS.iter().find(|(known, _)| *known == code) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("an unknown kind, {code:#x}"),
    }
}

/// Returns the processors that code for a generic target runs on; `None` for the name of a processor.
pub(super) fn processors_of(target: &str) -> Option<&'static [&'static str]> {
    GENERIC.iter().find(|(generic, _)| *generic == target).map(|(_, processors)| *processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_targets_are_processors_of_the_table() {
        let is_known = |name: &str| PROCESSORS.iter().any(|(_, known)| *known == name);
        for (generic, processors) in GENERIC {
            assert!(is_known(generic) && processors.iter().all(|processor| is_known(processor)), "{generic}");
        }
        for (_, name) in PROCESSORS {
            assert_eq!(name.ends_with("-generic"), processors_of(name).is_some(), "{name}");
        }
        assert_eq!(processor(0x0100_055f), "gfx9-4-generic");
    }
}
