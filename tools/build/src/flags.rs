//! What compilers are told for GPUs, in one place, each with its reason. What LLVM and the assembler make of
//! kernels otherwise is told by the modules that change it: contraction of floats ([`crate::contraction`]),
//! the registers of a kernel ([`crate::registers`]), the stack of an image ([`crate::stack`]), and what
//! kernels are spared that do not call ([`crate::spared`]).
//!
//! Two things that no flag mends, for those who write kernels:
//! - Where a barrier stands behind a loop's sums, LLVM moves the sums behind it, and all that was read for
//!   them waits in registers: put the barrier that protects shared memory at the beginning of the next round.
//! - A buffer's address comes as a number. What LLVM 22 is told of it (`isspacep.global`) it drops before it
//!   would use it, so `target::global` of the device crate makes the pointer in a way that it cannot:
//!   accesses are `ld.global` and `st.relaxed.sys.global`. In workgroup memory the 32-bit address is the
//!   difference to the window in which all addresses see that memory, so that constant parts of an index are
//!   part of the instruction.

use crate::assembler::cache;
use crate::toolchain::Toolchain;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

/// Settings of the package's profile. Without these, bounds checks and panic paths alone make a megabyte.
pub(crate) const PROFILE: &[(&str, &str)] =
    &[("LTO", "fat"), ("CODEGEN_UNITS", "1"), ("PANIC", "abort"), ("OPT_LEVEL", "3"), ("DEBUG", "false")];

/// What the entries that the macros make in the program need. It is given here and not in the source, so that
/// a program is stable Rust on the CPU.
const NVIDIA_FEATURE: &str = "abi_ptx";
const AMD_FEATURE: &str = "abi_gpu_kernel";

/// How large a loop of known count may become when it is unrolled, in LLVM's instructions.
///
/// An array that a loop indexes lies in registers only once the loop is unrolled, and each checked index is a branch more to
/// count: the 8 × 8 sums of a matrix product with checked indices take more than 400, where LLVM's own bound is 300. Without
/// this they took 17 times as long. From 1000 on images grow by a tenth, up to here by nothing (docs/history). LLVM's
/// AMD target has such a bound for loops with arrays already (2700), which this one would take the place of.
pub(crate) const UNROLL: &str = "-Cllvm-args=-unroll-threshold=800";

/// Arguments for the crate of an NVIDIA program itself, which all others are linked into before LLVM makes code of them. So they
/// hold for all, and no other crate is compiled anew for them.
pub(crate) const NVIDIA_PROGRAM: &[&str] = &[
    // The listing is the image: there is no linker. LLVM's own has the orders of atomics that the other lacks (`order`).
    "--emit=asm,llvm-ir",
    UNROLL,
];

/// LLVM 22 computes an address from another one if their indices differ by a constant, and takes that to be so of `-(b as isize)` and
/// `-(!b as isize)`, whose difference is 1 or -1 (llvm/llvm-project#204278). The library's sorts step so: sorting pairs gave wrong
/// results on NVIDIA and AMD. The counter lets the pass (`slsr`) change nothing.
const NO_STRENGTH_REDUCTION: &str = "-Cllvm-args=-debug-counter=slsr-counter=9223372036854775807";

/// Of kernels with the same code, LLVM makes one and names for it, which AMD's linker does not find descriptors of. Each is an
/// entry of its own, so that it must be there; other functions are mostly inlined.
const NO_MERGED_FUNCTIONS: &str = "-Zmerge-functions=disabled";

fn all(cpu: &str, feature: &str) -> Vec<String> {
    vec![
        NO_STRENGTH_REDUCTION.into(),
        NO_MERGED_FUNCTIONS.into(),
        format!("-Ctarget-cpu={cpu}"),
        format!("-Zcrate-attr=feature({feature})"),
        // Every crate gets it, whether it uses it, names it itself, or not.
        "-Aunused_features".into(),
        "-Aduplicate_features".into(),
    ]
}

/// Has panics sent for the host to format, and not formatted on the device.
pub(crate) const SENDS_PANICS: &str = "--cfg=hostcall_unformatted";

/// Names a linker that leaves an empty file, for what is not linked: a listing of the compiler's is used. Cargo compiles each
/// time what has no file.
pub(crate) fn no_linker() -> String {
    const SCRIPT: &str = "#!/bin/sh\nwhile [ $# -gt 1 ] && [ \"$1\" != -o ]; do shift; done\n: >\"$2\"\n";
    static LINKER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let linker = LINKER.get_or_init(|| {
        let folder = cache()?.join("hostcall");
        let (linker, new) = (folder.join("no-linker"), folder.join(format!("no-linker-{}", process::id())));
        if fs::read_to_string(&linker).ok().as_deref() != Some(SCRIPT) {
            fs::create_dir_all(&folder).ok()?;
            fs::write(&new, SCRIPT).ok()?;
            fs::set_permissions(&new, Permissions::from_mode(0o755)).ok()?;
            fs::rename(&new, &linker).ok()?;
        }
        Some(linker)
    });
    // Without a folder to keep it in, programs are compiled each time.
    let linker = linker.as_deref().unwrap_or(Path::new("/bin/true"));
    format!("-Clinker={}", linker.display())
}

/// Arguments for every crate of an NVIDIA program.
pub(crate) fn nvidia(cpu: &str, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = all(cpu, NVIDIA_FEATURE);
    if toolchain.sends_panics {
        flags.push(SENDS_PANICS.into());
    }
    flags.push(no_linker());
    // Other architectures imply a PTX version that has every instruction of the device crate. Named only where
    // it must be, because the compiler warns of it.
    match cpu {
        "sm_70" | "sm_72" => flags.push("-Ctarget-feature=+ptx63".into()),
        "sm_90" | "sm_90a" => flags.push("-Ctarget-feature=+ptx80".into()),
        _ => {}
    }
    flags
}

/// Where LLVM keeps scalar registers that it has too few of: in memory, not in lanes of a vector register. Where such a register
/// is moved itself, LLVM 22 writes beside it, for all lanes, copies that are meant for some: lanes that do not run there lose
/// what they had (of a group whose leader waited for room in its ring, the other lanes lost their ranks).
const SCALARS_IN_MEMORY: &str = "-Cllvm-args=-amdgpu-spill-sgpr-to-vgpr=0";

/// Arguments for every crate of an AMD program.
pub(crate) fn amd(cpu: &str, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = all(cpu, AMD_FEATURE);
    // The version whose hidden arguments and metadata hosts read (`hostcall_hsa`).
    flags.push("-Cllvm-args=--amdhsa-code-object-version=5".into());
    flags.push(SCALARS_IN_MEMORY.into());
    if let Some(clang) = &toolchain.clang {
        flags.push(format!("-Clinker={}", clang.display()));
        flags.push("-Clinker-flavor=gcc".into());
        let arguments = ["--target=amdgcn-amd-amdhsa".to_owned(), format!("-mcpu={cpu}"), "-nogpulib".into()];
        flags.extend(arguments.map(|argument| format!("-Clink-arg={argument}")));
    }
    flags
}
