use crate::BuildError;
use std::cmp::Reverse;
use std::fmt;

/// A device to build for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// The software device on this machine.
    Cpu,
    /// NVIDIA: PTX, which the driver compiles for this architecture and every later one. With an `a` at the end it runs on this
    /// one only, with an `f` on this one and later ones of its family.
    Nvptx {
        /// Oldest architecture that the image runs on, such as `sm_70` or `sm_90a`.
        cpu: String,
    },
    /// NVIDIA: a relocatable cubin, finished code for this architecture and later ones of the same generation, which the driver
    /// links and need not compile. Made by NVIDIA's assembler.
    Cubin {
        /// The architecture, such as `sm_90`.
        cpu: String,
    },
    /// AMD: a code object, for exactly this architecture.
    Amdgpu {
        /// Architecture, such as `gfx942`.
        cpu: String,
    },
}

/// NVIDIA architectures that LLVM 22 knows, from the oldest that hostcall supports on. An `a` or `f` at the end stands for
/// instructions that only this architecture, or its family, has.
const NVIDIA: &[&str] = &[
    "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100",
    "sm_100a", "sm_100f", "sm_101", "sm_101a", "sm_101f", "sm_103", "sm_103a", "sm_103f", "sm_110",
    "sm_110a", "sm_110f", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
];

/// NVIDIA architectures whose memory model lacks what the channel needs.
const TOO_OLD_NVIDIA: &[&str] = &[
    "sm_20", "sm_21", "sm_30", "sm_32", "sm_35", "sm_37", "sm_50", "sm_52", "sm_53", "sm_60", "sm_61",
    "sm_62",
];

/// AMD processors that LLVM 22 knows, from the oldest generation on that AMD's drivers still run.
const AMD: &[&str] = &[
    "gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx942", "gfx950",
    "gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034",
    "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152",
    "gfx1153", "gfx1200", "gfx1201", "gfx1250", "gfx1251",
];

/// How many letters of a wrong name may be wrong, missing or too many for a known name to be suggested.
const MOST_WRONG_LETTERS: usize = 2;

/// What follows an NVIDIA architecture in the name of a [`Target::Cubin`].
const CUBIN: &str = "-cubin";

impl Target {
    /// Oldest NVIDIA architecture with the memory model that the channel needs; what `cuda` stands for.
    pub const OLDEST_NVIDIA: &str = NVIDIA[0];

    /// Reads `cpu`, `cuda`, or the name of an architecture from [`Target::names`]; that of an NVIDIA one may end in `-cubin`.
    ///
    /// # Errors
    /// [`BuildError::UnknownTarget`], which names the targets that exist, and [`BuildError::TooOld`].
    pub fn parse(name: &str) -> Result<Self, BuildError> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Nvptx { cpu: Self::OLDEST_NVIDIA.into() }),
            _ if name.strip_suffix(CUBIN).is_some_and(|cpu| NVIDIA.contains(&cpu)) => {
                Ok(Self::Cubin { cpu: name.trim_end_matches(CUBIN).into() })
            }
            _ if NVIDIA.contains(&name) => Ok(Self::Nvptx { cpu: name.into() }),
            _ if AMD.contains(&name) => Ok(Self::Amdgpu { cpu: name.into() }),
            _ if TOO_OLD_NVIDIA.contains(&name) => Err(BuildError::TooOld(name.into())),
            _ => Err(BuildError::UnknownTarget { name: name.into(), like: Self::like(name) }),
        }
    }

    /// Returns the names that [`Target::parse`] reads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["cpu", "cuda"].into_iter().chain(NVIDIA.iter().copied()).chain(AMD.iter().copied())
    }

    /// Returns the name that a wrong one is most like, if it is like any.
    fn like(name: &str) -> Option<&'static str> {
        let name = name.to_lowercase();
        let letters_alike = |known: &str| name.bytes().zip(known.bytes()).take_while(|(a, b)| a == b).count();
        // Of equally like names the one that begins alike is taken, and of those the first: an older
        // architecture, without a letter.
        Self::names()
            .map(|known| (strsim::osa_distance(&name, known), Reverse(letters_alike(known)), known))
            .filter(|(wrong_letters, ..)| *wrong_letters <= MOST_WRONG_LETTERS)
            .min_by_key(|(wrong_letters, letters_alike, _)| (*wrong_letters, *letters_alike))
            .map(|(.., known)| known)
    }

    /// Name of the architecture, which build folders have: `cpu`, `sm_70`, `gfx942`.
    #[must_use]
    pub fn cpu(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Nvptx { cpu } | Self::Cubin { cpu } | Self::Amdgpu { cpu } => cpu,
        }
    }

    /// Rust's name for the kind of device; `None` for this machine itself.
    pub(crate) fn triple(&self) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Nvptx { .. } | Self::Cubin { .. } => Some("nvptx64-nvidia-cuda"),
            Self::Amdgpu { .. } => Some("amdgcn-amd-amdhsa"),
        }
    }

    /// Ending of an image's file name.
    pub(crate) fn extension(&self) -> &'static str {
        match self {
            Self::Cpu => "so",
            Self::Nvptx { .. } => "ptx",
            Self::Cubin { .. } => "cubin",
            Self::Amdgpu { .. } => "elf",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cpu())?;
        f.write_str(if matches!(self, Self::Cubin { .. }) { CUBIN } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["cpu", "sm_70", "sm_90a", "sm_90-cubin", "gfx942", "gfx90a", "gfx1100"] {
            assert_eq!(Target::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Target::parse("cuda").unwrap().cpu(), Target::OLDEST_NVIDIA);
        assert_eq!(Target::OLDEST_NVIDIA, "sm_70");
        assert!(Target::names().all(|name| Target::parse(name).is_ok()));
    }

    #[test]
    fn other_names_are_refused_with_the_list() {
        for name in [
            "",
            "sm_",
            "gfx942-cubin",
            "sm_90-cubin-cubin",
            "gfx",
            "sm_../..",
            "gfx9/0",
            "gfxabc",
            "sm_1",
            "gfx1",
            "vax",
        ] {
            let error = Target::parse(name).unwrap_err();
            assert!(matches!(error, BuildError::UnknownTarget { .. }), "{name}");
            let text = error.to_string();
            assert!(text.contains("sm_90") && text.contains("gfx1201"), "{text}");
        }
        assert!(matches!(Target::parse("sm_61"), Err(BuildError::TooOld(_))));
    }

    #[test]
    fn wrong_names_get_a_suggestion() {
        for (wrong, meant) in [
            ("CPU", Some("cpu")),
            ("sm90", Some("sm_90")),
            ("sm_9", Some("sm_90")),
            ("sm_91", Some("sm_90")),
            ("gfx943", Some("gfx942")),
            ("gfx90", Some("gfx900")),
            ("vax", None),
        ] {
            assert_eq!(Target::like(wrong), meant, "{wrong}");
        }
    }
}
