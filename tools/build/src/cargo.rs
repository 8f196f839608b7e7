use crate::flags;
use crate::package::Package;
use crate::rust_std::{self, Library};
use crate::toolchain::Toolchain;
use crate::{BuildError, Progress, Request, Target};
use cargo_metadata::diagnostic::DiagnosticLevel;
use cargo_metadata::{Artifact, Message};
use std::hash::{DefaultHasher, Hash, Hasher};
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
    let mut cargo = command(request, toolchain, &package.manifest, folder);
    cargo.args(["--lib", "--crate-type=cdylib"]);
    for features in &request.features {
        cargo.arg("--features").arg(features);
    }
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
    let artifact = run(cargo, request, &package.name, |built| is_of(package, built))?;
    match &request.target {
        // With an assembly listing asked for, and no linker run, cargo names no file: the listing is the image.
        Target::Nvptx { .. } | Target::Cubin { .. } => Ok(listing(request, package, folder)),
        _ => artifact.ok_or_else(|| no_file(request, &package.name)),
    }
}

/// Compiles the package's program, in `folder`, for a device that has `std`, and returns the file that came out.
pub(crate) fn compile_program(
    request: &Request,
    package: &Package,
    toolchain: &Toolchain,
    folder: &Path,
) -> Result<PathBuf, BuildError> {
    let library = Library::take(request, toolchain)?;
    library.remove_others(request, folder)?;
    let listing = match &request.target {
        Target::Amdgpu { .. } => listing(request, package, folder).with_extension("ll"),
        _ => listing(request, package, folder),
    };
    let mut cargo = command(request, toolchain, &package.manifest, folder);
    library.tell(&mut cargo, request, toolchain);
    cargo.arg("--bin").arg(package.program.as_deref().unwrap_or(&package.name));
    for features in &request.features {
        cargo.arg("--features").arg(features);
    }
    cargo.arg("--").args(rust_std::program_flags(&request.target, &library, &listing));
    let artifact = run(cargo, request, &package.name, |built| is_of(package, built))?;
    match &request.target {
        Target::Nvptx { .. } | Target::Cubin { .. } => Ok(listing),
        Target::Amdgpu { .. } => rust_std::of_listing(request, toolchain, &package.name, &listing),
        Target::Cpu => artifact.ok_or_else(|| no_file(request, &package.name)),
    }
}

/// Cargo, asked to compile a package.
pub(crate) fn command(request: &Request, toolchain: &Toolchain, manifest: &Path, folder: &Path) -> Command {
    let mut cargo = Command::new(&toolchain.cargo);
    let colours = request.progress == Progress::Inherit && std::io::stderr().is_terminal();
    cargo
        .args(["rustc", "--profile"])
        .arg(&request.profile)
        .arg(if colours { "--message-format=json-diagnostic-rendered-ansi" } else { "--message-format=json" })
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
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
    cargo
}

/// Whether something was built of the package.
fn is_of(package: &Package, built: &Artifact) -> bool {
    built.manifest_path.as_std_path() == package.manifest
}

/// Runs cargo for the package `name`, and returns the file of what `is_wanted` among all that was built, if cargo names one.
pub(crate) fn run(
    mut cargo: Command,
    request: &Request,
    name: &str,
    is_wanted: impl Fn(&Artifact) -> bool,
) -> Result<Option<PathBuf>, BuildError> {
    let program = PathBuf::from(cargo.get_program());
    let tool = |error| BuildError::Tool { tool: program.clone(), error };
    let built = follow(cargo.spawn().map_err(tool)?, request.progress, is_wanted).map_err(tool)?;
    let (name, target) = (name.to_owned(), request.target.to_string());
    if let Some(signal) = built.status.signal() {
        return Err(BuildError::Ended { name, target, signal });
    }
    match (built.status.success(), built.has_errors) {
        (true, _) => Ok(built.artifact),
        (false, true) => Err(BuildError::Compile { name, target, output: built.text }),
        (false, false) => Err(BuildError::Cargo { name, target, output: built.text }),
    }
}

/// Why there is no image where cargo says that all went well.
pub(crate) fn no_file(request: &Request, name: &str) -> BuildError {
    BuildError::Cargo { name: name.into(), target: request.target.to_string(), output: String::new() }
}

/// Where the assembly listing of an NVIDIA target lies. That of a program has a name of its own for each package and set of
/// features: cargo keeps what it compiled for each, and makes no listing again.
pub(crate) fn listing(request: &Request, package: &Package, folder: &Path) -> PathBuf {
    if package.program.is_some() {
        let mut hasher = DefaultHasher::new();
        (&package.manifest, &package.program, &request.features, &request.profile).hash(&mut hasher);
        let name = format!("{}-{:016x}.s", package.library, hasher.finish());
        return rust_std::output(&request.target, folder).join(name);
    }
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
    /// The file that was wanted.
    artifact: Option<PathBuf>,
}

/// Reads cargo's messages until it ends, and shows the compiler's among them when they are to be shown.
fn follow(
    mut cargo: Child,
    progress: Progress,
    is_wanted: impl Fn(&Artifact) -> bool,
) -> std::io::Result<Built> {
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
            Ok(Message::CompilerArtifact(built)) if is_wanted(&built) => {
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

/// Has all crates of a build compiled with these flags, as a device needs them.
pub(crate) fn for_device(cargo: &mut Command, request: &Request, toolchain: &Toolchain, flags: &[String]) {
    cargo
        .env("RUSTC_BOOTSTRAP", "1")
        // Also takes the place of the user's RUSTFLAGS, which are meant for this machine.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    set_profile(cargo, request, flags::PROFILE);
    if let Some(rustc) = &toolchain.rustc {
        cargo.env("RUSTC", rustc);
    }
}

/// Gives the profile of a build these settings, whatever the package says.
pub(crate) fn set_profile(cargo: &mut Command, request: &Request, settings: &[(&str, &str)]) {
    cargo.envs(settings.iter().map(|(setting, value)| (profile_variable(&request.profile, setting), value)));
}

fn for_gpu(
    cargo: &mut Command,
    request: &Request,
    package: &Package,
    toolchain: &Toolchain,
    flags: &[String],
) {
    cargo.arg("--target").args(request.target.triple()).arg("-Zbuild-std=core,alloc");
    for_device(cargo, request, toolchain, flags);
    // The library's own dependencies from the toolchain's copy, so that no registry is needed. It would take
    // the place of the registry for the package too, so only where nothing else comes from there.
    if let (Some(vendor), false) = (&toolchain.vendor, package.has_registry_dependencies) {
        from_vendor(cargo, vendor);
    }
}

/// Has cargo take from a folder all that would come from the registry.
pub(crate) fn from_vendor(cargo: &mut Command, vendor: &Path) {
    cargo.args(["--config", "source.crates-io.replace-with=\"library-vendor\"", "--config"]);
    cargo.arg(format!("source.library-vendor.directory={:?}", vendor.display().to_string()));
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
