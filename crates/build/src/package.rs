use crate::BuildError;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What cargo says of the program's package.
pub(crate) struct Package {
    pub name: String,
    pub manifest: PathBuf,
    /// Name of the library as a crate, with underscores.
    pub library: String,
    pub target_dir: PathBuf,
    /// Whether it or anything below it comes from elsewhere than this machine's folders.
    pub has_registry_dependencies: bool,
}

impl Package {
    pub fn read(folder: &Path) -> Result<Self, BuildError> {
        let manifest = folder
            .join("Cargo.toml")
            .canonicalize()
            .map_err(|_| BuildError::NoPackage { folder: folder.into() })?;
        let unreadable = |output: String| BuildError::Package { folder: folder.into(), output };

        let cargo = host_cargo();
        let output = Command::new(&cargo)
            .args(["metadata", "--quiet", "--format-version=1", "--manifest-path"])
            .arg(&manifest)
            .output()
            .map_err(|error| BuildError::Tool { tool: cargo, error })?;
        if !output.status.success() {
            return Err(unreadable(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|e| unreadable(e.to_string()))?;

        let packages = list(&metadata["packages"]);
        let package = packages
            .iter()
            .find(|package| Path::new(text(&package["manifest_path"])) == manifest)
            .ok_or_else(|| unreadable("it is a workspace: name the folder of one of its packages".into()))?;
        let name = text(&package["name"]).to_owned();
        if !list(&package["dependencies"]).iter().any(|needed| needed["name"] == "hostcall-device") {
            return Err(BuildError::NotProgram { name });
        }
        let library = list(&package["targets"])
            .iter()
            .find(|target| {
                list(&target["kind"]).iter().any(|kind| kind == "lib" || kind == "rlib" || kind == "cdylib")
            })
            .ok_or_else(|| BuildError::NoLibrary { name: name.clone() })?;
        Ok(Self {
            library: text(&library["name"]).replace('-', "_"),
            name,
            target_dir: text(&metadata["target_directory"]).into(),
            has_registry_dependencies: packages.iter().any(|package| !package["source"].is_null()),
            manifest,
        })
    }
}

/// The cargo that builds for the CPU: the one that runs us, else the first in PATH.
pub(crate) fn host_cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
