use crate::BuildError;
use std::fmt;

/// A device to build for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// The software device on this machine.
    Cpu,
    /// NVIDIA: PTX, which the driver compiles for this architecture and every later one.
    Nvptx {
        /// Oldest architecture that the image runs on, such as `sm_70`.
        cpu: String,
    },
    /// AMD: a code object, for exactly this architecture.
    Amdgpu {
        /// Architecture, such as `gfx942`.
        cpu: String,
    },
}

impl Target {
    /// Oldest NVIDIA architecture with the memory model that the channel needs; what `cuda` stands for.
    pub const OLDEST_NVIDIA: &str = "sm_70";

    /// Reads `cpu`, `cuda`, `sm_NN` or `gfxNNN`.
    ///
    /// # Errors
    /// [`BuildError::UnknownTarget`].
    pub fn parse(name: &str) -> Result<Self, BuildError> {
        let is_cpu = |prefix| {
            name.strip_prefix(prefix).is_some_and(|rest: &str| {
                rest.starts_with(|c: char| c.is_ascii_digit())
                    && rest.bytes().all(|b| b.is_ascii_alphanumeric())
            })
        };
        match name {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Nvptx { cpu: Self::OLDEST_NVIDIA.into() }),
            _ if is_cpu("sm_") => Ok(Self::Nvptx { cpu: name.into() }),
            _ if is_cpu("gfx") => Ok(Self::Amdgpu { cpu: name.into() }),
            _ => Err(BuildError::UnknownTarget(name.into())),
        }
    }

    /// Name that [`Target::parse`] reads and build folders have: `cpu`, `sm_70`, `gfx942`.
    #[must_use]
    pub fn cpu(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Nvptx { cpu } | Self::Amdgpu { cpu } => cpu,
        }
    }

    /// Ending of an image's file name.
    pub(crate) fn extension(&self) -> &'static str {
        match self {
            Self::Cpu => "so",
            Self::Nvptx { .. } => "ptx",
            Self::Amdgpu { .. } => "elf",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cpu())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["cpu", "sm_70", "sm_90a", "gfx942", "gfx90a", "gfx1100"] {
            assert_eq!(Target::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(Target::parse("cuda").unwrap().cpu(), Target::OLDEST_NVIDIA);
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "sm_", "gfx", "sm_../..", "gfx9/0", "CPU", "gfxabc"] {
            assert!(matches!(Target::parse(name), Err(BuildError::UnknownTarget(_))), "{name}");
        }
    }
}
