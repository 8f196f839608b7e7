//! What a file of device code is, told by its content: for which device it is, and by which protocol its kernels
//! call the host.

mod amdgpu;
mod elf;
mod ptx;
mod symbols;

pub use symbols::{Calls, KernelSymbol, LlvmProgram};

use std::fmt;

/// Most bytes of an image's file that is read: no device's code comes near it, and some files never end.
pub const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// A file of code that a device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// What it was built for.
    pub target: Target,
    /// How its kernels call the host.
    pub calls: Calls,
}

/// What an image was built for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The software device: a shared object of this process's architecture.
    Software,
    /// NVIDIA GPUs of this compute capability, and others as the scope says: PTX, which the driver compiles.
    Ptx(ComputeCapability, PtxScope),
    /// NVIDIA GPUs of this compute capability: a cubin.
    Cubin(ComputeCapability),
    /// AMD GPUs of this processor, such as `gfx90a`, or of the processors of a generic target, such as `gfx9-4-generic`.
    Amd(String),
}

/// Which GPUs PTX runs on besides those of its compute capability. What runs on fewer may use more of what these have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PtxScope {
    /// All later ones: PTX for `sm_90`.
    #[default]
    Later,
    /// Later ones of the same family: PTX for `sm_100f`.
    Family,
    /// None: PTX for `sm_90a`.
    Alone,
}

/// What an NVIDIA GPU can do, or code asks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// 9 of `sm_90`.
    pub major: u32,
    /// 0 of `sm_90`.
    pub minor: u32,
}

impl ComputeCapability {
    /// Of a number such as the 90 of `sm_90`.
    fn of_number(number: u32) -> Self {
        Self { major: number / 10, minor: number % 10 }
    }

    /// Of a name such as `sm_90`, whatever letter follows.
    fn of_name(name: &str) -> Option<Self> {
        Self::and_scope(name).map(|(capability, _)| capability)
    }

    /// Of what PTX names as its target, such as `sm_90a`. With a letter that is not known it runs nowhere else.
    fn and_scope(name: &str) -> Option<(Self, PtxScope)> {
        let number = name.strip_prefix("sm_")?;
        let digits = number.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let scope = match &number[digits.len()..] {
            "" => PtxScope::Later,
            "f" => PtxScope::Family,
            _ => PtxScope::Alone,
        };
        Some((Self::of_number(digits.parse().ok()?), scope))
    }
}

impl ComputeCapability {
    /// Whether it is another's, or a later one of the same family.
    fn is_of_family(self, least: Self) -> bool {
        self.major == least.major && self.minor >= least.minor
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Software => f.write_str("the software device"),
            Target::Ptx(capability, PtxScope::Later) => write!(f, "NVIDIA GPUs from {capability} on"),
            Target::Ptx(capability, PtxScope::Family) => {
                write!(f, "NVIDIA GPUs of {capability}'s family from it on ({capability}f)")
            }
            Target::Ptx(capability, PtxScope::Alone) => {
                write!(f, "NVIDIA GPUs of {capability} alone ({capability}a)")
            }
            Target::Cubin(capability) => write!(f, "NVIDIA GPUs of {capability}"),
            Target::Amd(processor) => write!(f, "AMD GPUs of {processor}"),
        }
    }
}

impl Target {
    /// The kind of device that runs such code, as it begins the names of such devices: `cpu`, `cuda` or `amdgpu`.
    pub fn device_kind(&self) -> &'static str {
        match self {
            Target::Software => "cpu",
            Target::Ptx(..) | Target::Cubin(_) => "cuda",
            Target::Amd(_) => "amdgpu",
        }
    }

    /// Orders targets whose code one device runs: the greater one uses more of what the device can do. Finished code comes
    /// before code that the driver compiles, and of that the one that runs on fewer; code for one AMD processor comes before
    /// code for several.
    pub(crate) fn rank(&self) -> (Option<ComputeCapability>, bool, PtxScope) {
        match self {
            Target::Software => (None, false, PtxScope::default()),
            Target::Amd(name) => (None, amdgpu::processors_of(name).is_none(), PtxScope::default()),
            Target::Ptx(capability, scope) => (Some(*capability), false, *scope),
            Target::Cubin(capability) => (Some(*capability), true, PtxScope::default()),
        }
    }

    /// Whether a device whose own images are built for `target` (see [`crate::Device::target`]) runs such code.
    pub fn runs_on(&self, target: &str) -> bool {
        match self {
            Target::Software => target == "cpu",
            Target::Amd(processor) => match amdgpu::processors_of(processor) {
                Some(processors) => processors.contains(&target),
                None => target == processor,
            },
            Target::Ptx(least, scope) => ComputeCapability::of_name(target).is_some_and(|has| match scope {
                PtxScope::Later => has >= *least,
                PtxScope::Family => has.is_of_family(*least),
                PtxScope::Alone => has == *least,
            }),
            Target::Cubin(built_for) => {
                ComputeCapability::of_name(target).is_some_and(|has| has.is_of_family(*built_for))
            }
        }
    }
}

/// Why a file is no image that a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnImage {
    /// None of the formats that this crate knows.
    #[error("it is no image of a program: name one that `hostcall build` made")]
    Unknown,
    /// An ELF file that ends too early or refers to what it does not have.
    #[error("it is a damaged ELF file: build it again")]
    Damaged,
    /// Code for several GPUs in one file.
    #[error(
        "it is a fat binary, which holds code for several GPUs: take the cubin for yours out of it, with `cuobjdump -xelf all`"
    )]
    FatBinary,
    /// Host code and device code in one file.
    #[error(
        "it is a bundle of offload code: take the device's image out of it, with `clang-offload-packager` or `clang-offload-bundler --unbundle`"
    )]
    Bundle,
    /// LLVM's intermediate code.
    #[error(
        "it is LLVM's intermediate code, which no device runs: link it, and compile it with `llc` for AMD GPUs, or to PTX for NVIDIA's"
    )]
    LlvmCode,
    /// Another intermediate code.
    #[error(
        "it is SPIR-V, which no device of hostcall runs: build it as a cubin, PTX, or an AMD code object"
    )]
    SpirV,
    /// An object that is not linked.
    #[error(
        "it is an object file, which is not linked yet: link it with `nvlink` for NVIDIA GPUs, with `ld.lld -shared` for AMD's"
    )]
    Object,
    /// Several object files.
    #[error("it is an archive of object files: link a program with it first")]
    Archive,
    /// A program of the host's.
    #[error("it is a program for this computer's processor, not for a device: run it by itself")]
    HostProgram,
    /// A file for another processor.
    #[error(
        "it is built for a processor that hostcall does not know: build it for `cpu`, an NVIDIA GPU such as `sm_90`, or an AMD GPU such as `gfx90a`"
    )]
    OtherProcessor,
}

/// Formats that are told by their first bytes, and are no image.
const REFUSED: &[(&[u8], NotAnImage)] = &[
    (b"\x50\xed\x55\xba", NotAnImage::FatBinary),
    (b"\xb1\x43\x62\x46", NotAnImage::FatBinary),
    (b"\x10\xff\x10\xad", NotAnImage::Bundle),
    (b"__CLANG_OFFLOAD_BUNDLE__", NotAnImage::Bundle),
    (b"CCOB", NotAnImage::Bundle),
    (b"BC\xc0\xde", NotAnImage::LlvmCode),
    (b"\xde\xc0\x17\x0b", NotAnImage::LlvmCode),
    (b"; ModuleID", NotAnImage::LlvmCode),
    (b"source_filename", NotAnImage::LlvmCode),
    (b"target datalayout", NotAnImage::LlvmCode),
    (b"\x03\x02\x23\x07", NotAnImage::SpirV),
    (b"!<arch>\n", NotAnImage::Archive),
    (b"!<thin>\n", NotAnImage::Archive),
];

/// Tells what the bytes of a file are. None of it is loaded or run.
///
/// # Errors
/// [`NotAnImage`], whose text goes on after the file's name and a colon.
pub fn identify(bytes: &[u8]) -> Result<ImageInfo, NotAnImage> {
    if bytes.starts_with(b"\x7fELF") {
        return elf::identify(bytes);
    }
    if let Some((_, why)) = REFUSED.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Err(*why);
    }
    ptx::identify(bytes).ok_or(NotAnImage::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_on_devices_that_are_not_older() {
        let capability = |name| ComputeCapability::of_name(name).unwrap();
        let ptx = Target::Ptx(capability("sm_70"), PtxScope::Later);
        let cubin = Target::Cubin(capability("sm_86"));
        for (target, by_ptx, by_cubin) in [
            ("sm_60", false, false),
            ("sm_70", true, false),
            ("sm_80", true, false),
            ("sm_86", true, true),
            ("sm_89", true, true),
            ("sm_90", true, false),
            ("sm_120", true, false),
            ("gfx90a", false, false),
            ("cpu", false, false),
        ] {
            assert_eq!((ptx.runs_on(target), cubin.runs_on(target)), (by_ptx, by_cubin), "{target}");
        }
        assert_eq!(capability("sm_90a").to_string(), "sm_90");
        assert_eq!(capability("sm_121"), ComputeCapability { major: 12, minor: 1 });
        assert!(Target::Software.runs_on("cpu") && !Target::Software.runs_on("sm_90"));
    }

    #[test]
    fn generic_code_runs_on_its_processors() {
        let amd = |name: &str| Target::Amd(name.into());
        for (target, runs) in [
            ("gfx9-4-generic", &["gfx942", "gfx950"][..]),
            ("gfx942", &["gfx942"]),
            ("gfx9-generic", &["gfx900"]),
            ("gfx11-generic", &["gfx1100"]),
        ] {
            for device in ["gfx900", "gfx90a", "gfx942", "gfx950", "gfx1100", "sm_90", "cpu"] {
                assert_eq!(amd(target).runs_on(device), runs.contains(&device), "{target} on {device}");
            }
        }
        assert!(amd("gfx942").rank() > amd("gfx9-4-generic").rank());
    }

    #[test]
    fn ptx_with_a_letter_runs_on_few_devices() {
        let ptx = |name| {
            let (capability, scope) = ComputeCapability::and_scope(name).unwrap();
            Target::Ptx(capability, scope)
        };
        for (name, runs, text) in [
            ("sm_90", &["sm_90", "sm_100", "sm_103", "sm_120"][..], "NVIDIA GPUs from sm_90 on"),
            ("sm_90a", &["sm_90"], "NVIDIA GPUs of sm_90 alone (sm_90a)"),
            ("sm_100a", &["sm_100"], "NVIDIA GPUs of sm_100 alone (sm_100a)"),
            ("sm_100f", &["sm_100", "sm_103"], "NVIDIA GPUs of sm_100's family from it on (sm_100f)"),
            ("sm_103f", &["sm_103"], "NVIDIA GPUs of sm_103's family from it on (sm_103f)"),
        ] {
            let target = ptx(name);
            assert_eq!(target.to_string(), text);
            for device in ["sm_80", "sm_90", "sm_100", "sm_103", "sm_120", "gfx942"] {
                assert_eq!(target.runs_on(device), runs.contains(&device), "{name} on {device}");
            }
        }
        assert!(ptx("sm_90a").rank() > ptx("sm_90").rank() && ptx("sm_100").rank() > ptx("sm_90a").rank());
    }

    #[test]
    fn other_files_are_told_apart() {
        for (start, why) in REFUSED {
            let mut file = start.to_vec();
            file.extend([0; 64]);
            assert_eq!(identify(&file), Err(*why));
        }
        for text in [&b""[..], b"hello", b"#!/bin/sh\n", b"\x7fEL"] {
            assert_eq!(identify(text), Err(NotAnImage::Unknown));
        }
    }
}
