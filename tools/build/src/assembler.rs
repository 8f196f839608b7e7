//! NVIDIA's assembler, which makes finished code of PTX: each function once, for the driver to link when it loads them. Without
//! `--compile-only` the assembler would put into each kernel a copy of all that it can reach, and of all whose address the image
//! takes: 16 kernels that call had 5.9 MB in the place of 0.7, and took 53 s in the place of 2.

use crate::BuildError;
use hostcall_abi::launch::FUNCTION_REGISTERS;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the assembler.
pub(crate) const PTXAS: &str = "PTXAS";

const HOW_TO_INSTALL: &str = "install NVIDIA's assembler `ptxas`, which the CUDA toolkit and PyPI's package \
    nvidia-cuda-nvcc-cu12 have, in PATH, or name it in the environment variable PTXAS";

/// Makes the relocatable cubin `to` of a PTX file, for the architecture `cpu`. Returns what the assembler says of its functions: what
/// each needs of the GPU.
pub(crate) fn assemble(ptx: &Path, cpu: &str, to: &Path) -> Result<String, BuildError> {
    let assembler = find(cpu)?;
    // Of functions alone: kernels say by `.maxnreg` what they get.
    let registers = format!("--maxrregcount={FUNCTION_REGISTERS}");
    // Not by several threads: functions compiled by `--split-compile` take more registers.
    let arguments = [format!("-arch={cpu}"), "--compile-only".into(), registers, "-v".into(), "-o".into()];
    let output = Command::new(&assembler)
        .args(arguments)
        .args([to, ptx])
        .output()
        .map_err(|error| BuildError::Tool { tool: assembler.clone(), error })?;
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said).trim_end().to_owned();
    if output.status.success() {
        return Ok(said);
    }
    // What it needs to say is not among what it says of functions.
    let lines = said.lines().filter(|line| !line.starts_with("ptxas info") && !line.starts_with("    "));
    let output = lines.collect::<Vec<_>>().join("\n");
    Err(BuildError::Assemble { image: ptx.to_owned(), tool: assembler, output })
}

/// The folder of what the user's programs keep.
pub(crate) fn cache() -> Option<PathBuf> {
    // A relative one counts as none, as the specification of these variables says.
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
}

/// Returns NVIDIA's assembler, by which PTX becomes a cubin: the one that the user names by `PTXAS`, the one in PATH, or one of
/// those in usual places.
pub fn assembler() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PTXAS) {
        return Some(named.into());
    }
    let cache = cache();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path)
        .chain(
            ["CUDA_HOME", "CUDA_PATH"]
                .iter()
                .filter_map(std::env::var_os)
                .map(|cuda| PathBuf::from(cuda).join("bin")),
        )
        .chain(["/usr/local/cuda/bin".into()])
        // Where hostcall's own script for a fresh machine puts it.
        .chain(cache.map(|cache| cache.join("hostcall")));
    folders.map(|folder| folder.join("ptxas")).find(|file| file.is_file())
}

/// Finds the assembler for a target that needs it.
pub(crate) fn find(cpu: &str) -> Result<PathBuf, BuildError> {
    assembler().ok_or_else(|| BuildError::NoToolchain {
        target: format!("{cpu}-cubin"),
        missing: HOW_TO_INSTALL.into(),
    })
}
