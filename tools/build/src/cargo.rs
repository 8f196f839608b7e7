use crate::flags;
use crate::package::Package;
use crate::toolchain::Toolchain;
use crate::{BuildError, Progress, Request, Target};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::DiagnosticLevel;
use std::io::{BufReader, IsTerminal, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Compiles the package's library, in `folder`, and returns the file that came out.
pub(crate) fn compile(
    request: &Request,
    package: &Package,
    toolchain: &Toolchain,
    folder: &Path,
) -> Result<PathBuf, BuildError> {
    let mut cargo = Command::new(&toolchain.cargo);
    let colours = request.progress == Progress::Inherit && std::io::stderr().is_terminal();
    cargo
        .args(["rustc", "--lib", "--crate-type=cdylib", "--profile"])
        .arg(&request.profile)
        .arg(if colours { "--message-format=json-diagnostic-rendered-ansi" } else { "--message-format=json" })
        .arg("--manifest-path")
        .arg(&package.manifest)
        .arg("--target-dir")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    for features in &request.features {
        cargo.arg("--features").arg(features);
    }
    // What cargo and its wrappers leave for a build script is not meant for another build.
    if request.in_build_script {
        for variable in
            ["RUSTC", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"]
        {
            cargo.env_remove(variable);
        }
    }
    match request.progress {
        Progress::Inherit => cargo.stderr(Stdio::inherit()),
        Progress::Quiet => cargo.arg("--quiet").stderr(Stdio::piped()),
    };
    match &request.target {
        // A lane's panic is caught and reported, so it must unwind whatever the package's profile says.
        Target::Cpu => _ = cargo.env(profile_variable(&request.profile, "PANIC"), "unwind"),
        Target::Nvptx { cpu } | Target::Cubin { cpu } => {
            for_gpu(&mut cargo, request, package, toolchain, &flags::nvidia(cpu, toolchain));
            cargo.arg("--").args(flags::NVIDIA_PROGRAM);
        }
        Target::Amdgpu { cpu } => {
            for_gpu(&mut cargo, request, package, toolchain, &flags::amd(cpu, toolchain));
        }
    }

    let tool = |error| BuildError::Tool { tool: toolchain.cargo.clone(), error };
    let output = follow(cargo.spawn().map_err(tool)?, request.progress, &package.manifest).map_err(tool)?;
    let failed = || {
        let (name, target, output_text) =
            (package.name.clone(), request.target.to_string(), output.text.clone());
        match output.has_errors {
            true => BuildError::Compile { name, target, output: output_text },
            false => BuildError::Cargo { name, target, output: output_text },
        }
    };
    if let Some(signal) = output.status.signal() {
        return Err(BuildError::Ended {
            name: package.name.clone(),
            target: request.target.to_string(),
            signal,
        });
    }
    if !output.status.success() {
        return Err(failed());
    }
    match &request.target {
        // With an assembly listing asked for, and no linker run, cargo names no file: the listing is the image.
        Target::Nvptx { .. } | Target::Cubin { .. } => Ok(listing(request, package, folder)),
        _ => output.artifact.clone().ok_or_else(failed),
    }
}

/// Where the assembly listing of an NVIDIA target lies.
pub(crate) fn listing(request: &Request, package: &Package, folder: &Path) -> PathBuf {
    let triple = request.target.triple().unwrap_or_default();
    let built = folder.join(triple).join(profile_folder(&request.profile)).join("deps");
    built.join(&package.library).with_extension("s")
}

/// What came of a build.
struct Built {
    status: ExitStatus,
    /// The compiler has named an error.
    has_errors: bool,
    /// What the compiler said; empty if it was shown already.
    text: String,
    /// The file that the package's library was built into.
    artifact: Option<PathBuf>,
}

/// Reads cargo's messages until it ends, and shows the compiler's among them when they are to be shown.
fn follow(mut cargo: Child, progress: Progress, manifest: &Path) -> std::io::Result<Built> {
    // Cargo writes little there when it is quiet, but a pipe that is full would stop it.
    let errors = cargo.stderr.take().map(|mut stderr| {
        std::thread::Builder::new().name("hostcall-cargo".into()).spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            text
        })
    });
    let errors = errors.transpose().inspect_err(|_| {
        // It would wait for somebody to read what it says.
        let _ = cargo.kill();
        let _ = cargo.wait();
    })?;
    let (mut text, mut artifact, mut has_errors) = (String::new(), None, false);
    for message in Message::parse_stream(BufReader::new(cargo.stdout.take().expect("it is piped"))) {
        match message {
            Ok(Message::CompilerMessage(message)) if !is_expected(&message.message.message) => {
                has_errors |= matches!(message.message.level, DiagnosticLevel::Error | DiagnosticLevel::Ice);
                let rendered = message.message.rendered.unwrap_or_default();
                match progress {
                    // Nobody can be told that standard error is closed.
                    Progress::Inherit => _ = std::io::stderr().write_all(rendered.as_bytes()),
                    Progress::Quiet => text += &rendered,
                }
            }
            Ok(Message::CompilerArtifact(built)) if built.manifest_path.as_std_path() == manifest => {
                artifact = built.filenames.into_iter().next().map(PathBuf::from);
            }
            _ => {}
        }
    }
    let status = cargo.wait()?;
    if let Some(errors) = errors.and_then(|thread| thread.join().ok()) {
        text += &String::from_utf8_lossy(&errors);
    }
    Ok(Built { status, has_errors, text, artifact })
}

/// Whether the compiler warns of what this crate asks for, which is no fault of the program's.
fn is_expected(warning: &str) -> bool {
    warning.starts_with("unstable feature specified for `-Ctarget-feature`")
}

/// Cargo's name for a setting of a profile, as an environment variable.
fn profile_variable(profile: &str, setting: &str) -> String {
    format!("CARGO_PROFILE_{}_{setting}", profile.to_uppercase().replace('-', "_"))
}

/// The folder of what a profile builds.
fn profile_folder(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        other => other,
    }
}

fn for_gpu(
    cargo: &mut Command,
    request: &Request,
    package: &Package,
    toolchain: &Toolchain,
    flags: &[String],
) {
    let profile = |setting| profile_variable(&request.profile, setting);
    cargo
        .arg("--target")
        .args(request.target.triple())
        .arg("-Zbuild-std=core,alloc")
        .env("RUSTC_BOOTSTRAP", "1")
        // Also takes the place of the user's RUSTFLAGS, which are meant for this machine.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .envs(flags::PROFILE.iter().map(|(setting, value)| (profile(setting), value)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_cargos_names() {
        assert_eq!(profile_variable("my-release", "LTO"), "CARGO_PROFILE_MY_RELEASE_LTO");
        assert_eq!(["dev", "release", "own"].map(profile_folder), ["debug", "release", "own"]);
    }
}
