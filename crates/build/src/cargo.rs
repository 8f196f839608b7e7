use crate::package::Package;
use crate::toolchain::Toolchain;
use crate::{BuildError, Progress, Target};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles the package's library for the target, in `folder`, and returns the file that came out.
pub(crate) fn compile(
    package: &Package,
    target: &Target,
    toolchain: &Toolchain,
    folder: &Path,
    progress: Progress,
) -> Result<PathBuf, BuildError> {
    let mut cargo = Command::new(&toolchain.cargo);
    cargo
        .args([
            "rustc",
            "--release",
            "--lib",
            "--crate-type=cdylib",
            "--message-format=json-render-diagnostics",
        ])
        .arg("--manifest-path")
        .arg(&package.manifest)
        .arg("--target-dir")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    match progress {
        Progress::Inherit => cargo.stderr(Stdio::inherit()),
        Progress::Quiet => cargo.arg("--quiet").stderr(Stdio::piped()),
    };
    match target {
        // A lane's panic is caught and reported, so it must unwind whatever the package's profile says.
        Target::Cpu => _ = cargo.env("CARGO_PROFILE_RELEASE_PANIC", "unwind"),
        Target::Nvptx { cpu } => for_gpu(&mut cargo, package, toolchain, NVPTX, &nvptx_flags(cpu)),
        Target::Amdgpu { cpu } => {
            for_gpu(&mut cargo, package, toolchain, AMDGPU, &amdgpu_flags(cpu, toolchain))
        }
    }
    if let Target::Nvptx { .. } = target {
        cargo.args(["--", "--emit=asm"]);
    }

    let output = cargo
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .map_err(|error| BuildError::Tool { tool: toolchain.cargo.clone(), error })?;
    let failed = || BuildError::Compile {
        name: package.name.clone(),
        target: target.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if !output.status.success() {
        return Err(failed());
    }
    match target {
        // With an assembly listing asked for, and no linker run, cargo names no file: the listing is the image.
        Target::Nvptx { .. } => {
            Ok(folder.join(NVPTX).join("release/deps").join(&package.library).with_extension("s"))
        }
        _ => artifact(&output.stdout, package).ok_or_else(failed),
    }
}

const NVPTX: &str = "nvptx64-nvidia-cuda";
const AMDGPU: &str = "amdgcn-amd-amdhsa";

/// What the entries that the macros make in the program need. It is given here and not in the source, so that
/// a program is stable Rust on the CPU.
const NVPTX_FEATURE: &str = "abi_ptx";
const AMDGPU_FEATURE: &str = "abi_gpu_kernel";

fn gpu_flags(cpu: &str, feature: &str) -> Vec<String> {
    vec![
        format!("-Ctarget-cpu={cpu}"),
        format!("-Zcrate-attr=feature({feature})"),
        // Every crate gets it, whether it uses it, names it itself, or not.
        "-Aunused_features".into(),
        "-Aduplicate_features".into(),
    ]
}

fn nvptx_flags(cpu: &str) -> Vec<String> {
    let mut flags = gpu_flags(cpu, NVPTX_FEATURE);
    flags.push("-Clinker=/bin/true".into());
    // Later architectures imply a PTX version that has every instruction of the device crate. Named only where
    // it must be, because the compiler warns of it.
    if matches!(cpu, "sm_70" | "sm_72") {
        flags.push("-Ctarget-feature=+ptx63".into());
    }
    flags
}

fn amdgpu_flags(cpu: &str, toolchain: &Toolchain) -> Vec<String> {
    let mut flags = gpu_flags(cpu, AMDGPU_FEATURE);
    flags.push("-Cllvm-args=--amdhsa-code-object-version=5".into());
    if let Some(clang) = &toolchain.clang {
        flags.push(format!("-Clinker={}", clang.display()));
        flags.push("-Clinker-flavor=gcc".into());
        let arguments = [format!("--target={AMDGPU}"), format!("-mcpu={cpu}"), "-nogpulib".into()];
        flags.extend(arguments.map(|argument| format!("-Clink-arg={argument}")));
    }
    flags
}

fn for_gpu(cargo: &mut Command, package: &Package, toolchain: &Toolchain, triple: &str, flags: &[String]) {
    cargo
        .arg("--target")
        .arg(triple)
        .arg("-Zbuild-std=core,alloc")
        .env("RUSTC_BOOTSTRAP", "1")
        // Also takes the place of the user's RUSTFLAGS, which are meant for this machine.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // Without these, bounds checks and panic paths alone make a megabyte.
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    if let Some(rustc) = &toolchain.rustc {
        cargo.env("RUSTC", rustc);
    }
    // The library's own dependencies from the toolchain's copy, so that no registry is needed. It would take
    // the place of the registry for the package too, so only where nothing else comes from there.
    if let (Some(vendor), false) = (&toolchain.vendor, package.has_registry_dependencies) {
        cargo.args(["--config", "source.crates-io.replace-with=\"library-vendor\"", "--config"]);
        cargo.arg(format!("source.library-vendor.directory={:?}", vendor.display().to_string()));
    }
}

/// The file that cargo's messages name for the package's library.
fn artifact(messages: &[u8], package: &Package) -> Option<PathBuf> {
    messages
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["manifest_path"].as_str().map(Path::new) == Some(&package.manifest))
        .find_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
}
