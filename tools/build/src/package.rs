use crate::BuildError;
use cargo_metadata::{CrateType, DependencyKind, MetadataCommand, TargetKind};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// What a package with kernels depends on.
const DEVICE_CRATE: &str = "hostcall-device";

/// What a program of the host's depends on. It depends on the device's crate itself, and is no program.
const HOST_CRATE: &str = "hostcall";

/// What cargo says of the program's package.
pub(crate) struct Package {
    pub name: String,
    pub manifest: PathBuf,
    /// Name of the library as a crate, or of the program, with underscores.
    pub library: String,
    /// Name of the program with `std` that the package is, unless it is one of kernels.
    pub program: Option<String>,
    pub target_dir: PathBuf,
    /// Whether any package of its workspace comes from elsewhere than this machine's folders: cargo resolves them together.
    pub has_registry_dependencies: bool,
    /// Folders and files on this machine that the library is built from.
    pub sources: BTreeSet<PathBuf>,
}

impl Package {
    pub fn read(folder: &Path) -> Result<Self, BuildError> {
        let manifest = folder.join("Cargo.toml").canonicalize().map_err(|_| no_package(folder))?;
        if manifest.to_str().is_none() {
            return Err(BuildError::NotUtf8 { folder: manifest.with_file_name("") });
        }
        let unreadable = |output: String| BuildError::Package { folder: folder.into(), output };

        let cargo = host_cargo();
        let metadata = MetadataCommand::new()
            .cargo_path(&cargo)
            .manifest_path(&manifest)
            .other_options(["--quiet".to_owned()])
            .exec()
            .map_err(|error| match error {
                cargo_metadata::Error::CargoMetadata { stderr } => unreadable(stderr),
                cargo_metadata::Error::Io(error) => BuildError::Tool { tool: cargo, error },
                other => unreadable(other.to_string()),
            })?;

        let needs = |package: &cargo_metadata::Package, name: &str| {
            package
                .dependencies
                .iter()
                .any(|needed| needed.kind == DependencyKind::Normal && needed.name == name)
        };
        let programs = || {
            let members = metadata.workspace_packages().into_iter();
            let programs =
                members.filter(|package| needs(package, DEVICE_CRATE) && package.name != HOST_CRATE);
            let folders = programs.filter_map(|package| package.manifest_path.parent());
            folders.map(|folder| folder.to_path_buf().into_std_path_buf()).collect()
        };
        let package = metadata
            .packages
            .iter()
            .find(|package| package.manifest_path.as_std_path() == manifest)
            .ok_or_else(|| BuildError::Workspace { folder: folder.into(), programs: programs() })?;
        let name = package.name.to_string();
        let program = match (needs(package, DEVICE_CRATE), needs(package, HOST_CRATE), has_program(package)) {
            (true, ..) => None,
            (false, true, true) => {
                return Err(BuildError::HostProgram { name, folder: folder.into(), kernels: programs() });
            }
            (false, true, false) => return Err(BuildError::HostLibrary { name, kernels: programs() }),
            (false, false, true) => Some(program_of(package)?),
            (false, false, false) => return Err(BuildError::NotProgram { name }),
        };
        let is_library = |target: &&cargo_metadata::Target| {
            target
                .kind
                .iter()
                .any(|kind| matches!(kind, TargetKind::Lib | TargetKind::RLib | TargetKind::CDyLib))
                && !target.crate_types.contains(&CrateType::ProcMacro)
        };
        let library = match &program {
            Some(program) => program,
            None => {
                let library = package.targets.iter().find(is_library);
                &library.ok_or_else(|| BuildError::NoLibrary { name: name.clone() })?.name
            }
        };
        Ok(Self {
            library: library.replace('-', "_"),
            program,
            name,
            target_dir: metadata.target_directory.clone().into(),
            has_registry_dependencies: metadata.packages.iter().any(|package| package.source.is_some()),
            sources: sources(&metadata, &package.id),
            manifest,
        })
    }
}

fn is_program(target: &cargo_metadata::Target) -> bool {
    target.kind.contains(&TargetKind::Bin)
}

fn has_program(package: &cargo_metadata::Package) -> bool {
    package.targets.iter().any(is_program)
}

/// The name of the package's program, of several the one that `cargo run` runs.
fn program_of(package: &cargo_metadata::Package) -> Result<String, BuildError> {
    let names: Vec<&str> = package
        .targets
        .iter()
        .filter(|target| is_program(target))
        .map(|target| target.name.as_str())
        .collect();
    match (&package.default_run, &names[..]) {
        (Some(name), _) => Ok(name.clone()),
        (None, [name]) => Ok((*name).to_owned()),
        (None, _) => {
            Err(BuildError::SeveralPrograms { name: package.name.to_string(), programs: names.join(", ") })
        }
    }
}

/// Why there is no manifest in a folder.
fn no_package(folder: &Path) -> BuildError {
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => BuildError::NoPackage { folder: folder.into() },
        Ok(_) => BuildError::NotFolder { file: folder.into() },
        Err(_) => BuildError::NoFolder { folder: folder.into() },
    }
}

/// Manifests, lock file and source folders of the package and of what it depends on, as far as they lie on this machine.
fn sources(metadata: &cargo_metadata::Metadata, package: &cargo_metadata::PackageId) -> BTreeSet<PathBuf> {
    let nodes: HashMap<_, _> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::from([package]);
    let mut todo = vec![package];
    while let Some(node) = todo.pop().and_then(|id| nodes.get(id)) {
        todo.extend(node.dependencies.iter().filter(|id| seen.insert(id)));
    }
    let local =
        metadata.packages.iter().filter(|package| package.source.is_none() && seen.contains(&package.id));
    let mut sources: BTreeSet<PathBuf> = local
        .flat_map(|package| {
            // A library's modules lie beside its root.
            let roots = package
                .targets
                .iter()
                .filter(|target| !target.is_test() && !target.is_example() && !target.is_bench());
            let folders = roots.filter_map(|target| target.src_path.parent());
            let folders = folders.map(|folder| folder.to_path_buf().into_std_path_buf());
            folders.chain([package.manifest_path.clone().into_std_path_buf()]).collect::<Vec<_>>()
        })
        // A build script lies beside the manifest, together with folders of what is built.
        .map(|path| if path.join("Cargo.toml").exists() { path.join("build.rs") } else { path })
        .collect();
    sources.insert(metadata.workspace_root.join("Cargo.toml").into());
    sources.insert(metadata.workspace_root.join("Cargo.lock").into());
    sources
}

/// The cargo that builds for the CPU: the one that runs us, else the first in PATH.
pub(crate) fn host_cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_path_that_cargo_does_not_take() {
        let parent = std::env::temp_dir().join(format!("hostcall-package-{}", std::process::id()));
        let folder = parent.join(OsStr::from_bytes(b"a\xff"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Cargo.toml"), "").unwrap();
        let read = Package::read(&folder);
        std::fs::remove_dir_all(parent).unwrap();
        let refused = read.err().expect("cargo does not take it");
        assert!(matches!(&refused, BuildError::NotUtf8 { .. }), "{refused}");
        assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    }
}
