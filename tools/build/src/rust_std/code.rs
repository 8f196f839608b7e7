//! Makes code of LLVM's text of a program for AMD, whose variables [`stacks`](super::stacks) moves to device memory first.

use super::stacks;
use crate::toolchain::Toolchain;
use crate::{BuildError, Request, flags};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What begins an argument of LLVM's among the compiler's.
const OF_LLVM: &str = "-Cllvm-args=";

/// The version of code objects, which clang takes by an argument of its own.
const VERSION: &str = "--amdhsa-code-object-version=";

/// Makes the code object of the program `name`, beside the text at `listing`, and returns its path.
///
/// # Errors
/// Text that is not understood, a compiler that is missing or says no, and files that cannot be read or written.
pub(crate) fn of_listing(
    request: &Request,
    toolchain: &Toolchain,
    name: &str,
    listing: &Path,
) -> Result<PathBuf, BuildError> {
    let target = request.target.to_string();
    let refused = |output| BuildError::Compile { name: name.into(), target: target.clone(), output };
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| BuildError::Io { path, error }
    };
    let text = fs::read_to_string(listing).map_err(io(listing))?;
    let text = stacks::llvm::with_stacks(&text)
        .map_err(|what| refused(format!("the build moves no stack to device memory that has {what}")))?;
    let (moved, image) = (listing.with_extension("stacks.ll"), listing.with_extension("elf"));
    let cpu = request.target.cpu();
    let clang = toolchain.clang.clone().ok_or_else(|| BuildError::NoToolchain {
        target: target.clone(),
        missing: "programs with std are compiled by clang-22 and linked by lld-22, which are missing".into(),
    })?;
    let mut command = Command::new(&clang);
    // The compiler has optimised it already.
    command.args(["--target=amdgcn-amd-amdhsa", "-nogpulib", "-O3", "-Xclang", "-disable-llvm-passes"]);
    command.arg(format!("-mcpu={cpu}")).args(["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]);
    for argument in flags::amd(cpu, toolchain).iter().filter_map(|flag| flag.strip_prefix(OF_LLVM)) {
        match argument.strip_prefix(VERSION) {
            Some(version) => command.arg(format!("-mcode-object-version={version}")),
            None => command.args(["-mllvm", argument]),
        };
    }
    command.arg("-o").args([&image, &moved]);
    // It takes most of the build: what it made of the same text is used again.
    let mut hasher = DefaultHasher::new();
    (&text, format!("{command:?}")).hash(&mut hasher);
    let (made_of, is_made_of) = (format!("{:016x}", hasher.finish()), image.with_extension("made-of"));
    if image.exists() && fs::read_to_string(&is_made_of).is_ok_and(|before| before == made_of) {
        return Ok(image);
    }
    let _ = fs::remove_file(&is_made_of);
    fs::write(&moved, text).map_err(io(&moved))?;
    let output = command.output().map_err(|error| BuildError::Tool { tool: clang.clone(), error })?;
    if !output.status.success() {
        return Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    fs::write(&is_made_of, made_of).map_err(io(&is_made_of))?;
    Ok(image)
}
