//! Programs with Rust's own `std`: a package with a `fn main()` that depends on nothing of hostcall's.
//!
//! The library is the one of the toolchain, compiled once ([`library`]) from a copy of its sources that has a
//! platform layer of ours ([`layer`], whose files are in `std/` of this crate): 15 files, and some lines of
//! one arm each where the library chooses among systems. On NVIDIA atomic operations get some, too
//! ([`layer::HIDDEN`]). The layer calls C functions of the device crate (`kernel/device/src/rust_std`), which
//! is compiled for the same library and linked into the program, with the kernel that calls `main`. Nothing
//! of this is the program's: its package is compiled as it is, as an executable of a target that the compiler
//! is told of ([`target`]).
//!
//! One way leads to every device, so that files, variables and prints of a program have the same bounds on each. On the
//! software device too the program sees hostcall's layer, and not the Linux below it.

mod code;
mod kept;
mod layer;
mod library;
mod patch;
pub(crate) mod stacks;
mod target;

pub(crate) use code::of_listing;
pub(crate) use library::Library;

use crate::toolchain::Toolchain;
use crate::{Target, flags};
use std::path::{Path, PathBuf};

/// Settings of a profile that no image can have, beside those for all programs ([`flags::PROFILE`]).
pub(crate) const PROFILE: &[(&str, &str)] =
    &[("INCREMENTAL", "false"), ("RPATH", "false"), ("SPLIT_DEBUGINFO", "off"), ("STRIP", "none")];

/// The device crate.
pub(crate) const DEVICE: &str = "hostcall_device";

/// Whether an image has what the library calls.
pub(crate) fn is_image(image: &[u8]) -> bool {
    has(image, b"__hostcall_std_exit")
}

/// Whether an image has the text by which the layer's `thread.rs` says that it starts threads. Other programs are one thread,
/// whatever the grid.
pub(crate) fn starts_threads(image: &[u8]) -> bool {
    has(image, b"hostcall-std-threads-1") || String::from_utf8_lossy(image).contains(IN_PTX)
}

/// The beginning of that text as PTX has it.
const IN_PTX: &str = "104, 111, 115, 116, 99, 97, 108, 108, 45, 115, 116, 100, 45, 116, 104, 114";

fn has(image: &[u8], text: &[u8]) -> bool {
    image.windows(text.len()).any(|window| window == text)
}

/// Where cargo puts what is compiled for the target below the build's folder: by the name of its description.
pub(crate) fn output(target: &Target, folder: &Path) -> PathBuf {
    folder.join(target::name(target))
}

/// Arguments for the compiler of the program itself, into which the library's kernel is linked.
pub(crate) fn program_flags(target: &Target, library: &Library, listing: &Path) -> Vec<String> {
    let mut flags = vec![
        "-Zunstable-options".to_owned(),
        "--extern".into(),
        format!("force:{DEVICE}={}", library.device.display()),
        format!("-Ldependency={}", library.dependencies().display()),
        // The kernel is found by its name, as in a library.
        "-Zexport-executable-symbols".into(),
    ];
    match target {
        Target::Nvptx { .. } | Target::Cubin { .. } => {
            flags.push(format!(
                "--emit=asm={},llvm-ir={}",
                listing.display(),
                listing.with_extension("ll").display()
            ));
            flags.push(flags::UNROLL.into());
        }
        Target::Amdgpu { .. } => {
            flags.push(format!("--emit=llvm-ir={}", listing.display()));
            // Code is made of the text, behind the compiler (`code`): what the compiler itself would make ends at its first step.
            flags.push("-Cllvm-args=-stop-before=codegenprepare".into());
        }
        Target::Cpu => {
            // An image is a library. Its own functions are not those of the process by the same names.
            let link = ["-shared", "-nostartfiles", "-Wl,-Bsymbolic", "-lgcc_s"];
            flags.extend(link.map(|flag| format!("-Clink-arg={flag}")));
            // The compiler makes code for executables, whose thread-local variables the linker finds in no library. There is
            // one, the device crate's.
            flags.push("-Ztls-model=emulated".into());
        }
    }
    flags
}

/// How much is inlined: as on other machines. LLVM's AMD target inlines what is eleven times as large, and
/// many times that where a function is given the address of a variable, since a variable that is not passed
/// on may lie in registers, and calls cost more there. Of code that formats, allocates and handles errors,
/// which kernels have little of, that makes many times the code.
const INLINED_AS_ELSEWHERE: [&str; 2] =
    ["-Cllvm-args=-inline-threshold=25", "-Cllvm-args=-amdgpu-inline-arg-alloca-cost=0"];

/// Arguments for every crate of such a program.
pub(crate) fn flags(target: &Target, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = match target {
        Target::Nvptx { cpu } | Target::Cubin { cpu } => flags::nvidia(cpu, toolchain),
        Target::Amdgpu { cpu } => flags::amd(cpu, toolchain),
        Target::Cpu => vec!["-Crelocation-model=pic".into()],
    };
    // Panics go by the library's own hook, which formats them. Nothing is linked but for the software device.
    let is_unused = |flag: &str| flag == flags::SENDS_PANICS || flag.starts_with("-Clink");
    flags.retain(|flag| !is_unused(flag));
    if *target != Target::Cpu {
        flags.push(flags::no_linker());
    }
    if let Target::Amdgpu { .. } = target {
        // As linkers that are given by their path are taken.
        flags.push("-Clinker-flavor=gcc".into());
        flags.extend(INLINED_AS_ELSEWHERE.map(String::from));
    }
    flags.push("--cfg=hostcall_std".into());
    flags
}
