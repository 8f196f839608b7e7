use crate::assembler::PTXAS;
use crate::toolchain::{DEVICE_CARGO, DEVICE_RUSTC};
use crate::{BuildError, Image, Request, Target, available, build};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Targets that kernels are built for, whatever the build script says: names divided by commas, or `none`.
const TARGETS: &str = "HOSTCALL_TARGETS";

/// What stands there for no target.
const NONE: &str = "none";

/// The file of Rust code in `OUT_DIR` that `hostcall::embedded_images!()` includes.
const LIST: &str = "hostcall_images.rs";

/// Builds a package of kernels for GPUs and makes the images part of the program, from its build script:
///
/// ```no_run
/// // The whole of `main` in build.rs.
/// hostcall_build::Kernels::new("kernels").embed();
/// ```
///
/// The program gives the images to the devices that it opens, with
/// `Device::builder(name).images(hostcall::embedded_images!())`. Then `kernel.launch` runs the package's kernels on
/// every device: on `cpu` those that were compiled with the program, on a GPU those of the image.
///
/// # Which targets
/// The environment variable `HOSTCALL_TARGETS` names them: `sm_90,gfx942`, or `none`, which an empty one
/// means too. Without it they are those of [`Kernels::targets`]. If that was not called either, the target is
/// `cuda`, PTX for every NVIDIA GPU that hostcall supports, on a machine that can build it ([`available`]);
/// on another there is none, and the program runs on `cpu` only.
///
/// The driver compiles PTX when a program loads it, which takes some seconds, and keeps the result for the next runs of the
/// same user. Targets such as `sm_90-cubin` have that done at build time, which leaves the driver some milliseconds of linking;
/// name the PTX beside them, as in `sm_90-cubin,cuda`, for other GPUs and for drivers older than the assembler.
#[derive(Clone, Debug)]
pub struct Kernels {
    package: PathBuf,
    targets: Option<Vec<String>>,
    features: Vec<String>,
}

impl Kernels {
    /// Takes the package in a folder, named from the folder of the program's package.
    pub fn new(package: impl Into<PathBuf>) -> Self {
        Self { package: package.into(), targets: None, features: Vec::new() }
    }

    /// Builds for these targets, as [`Target::parse`] reads them. What builds for them must be installed then.
    #[must_use]
    pub fn targets(self, targets: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { targets: Some(targets.into_iter().map(Into::into).collect()), ..self }
    }

    /// Turns features of the kernels' package on.
    #[must_use]
    pub fn features(self, features: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { features: features.into_iter().map(Into::into).collect(), ..self }
    }

    /// Builds the images and writes the list of them that the program includes. Ends the build script when that fails,
    /// with the reason as cargo's error.
    pub fn embed(self) {
        if let Err(error) = self.try_embed() {
            for line in error.to_string().lines() {
                println!("cargo::error={line}");
            }
            std::process::exit(1);
        }
    }

    /// As [`Kernels::embed`], for build scripts that deal with failures themselves. Returns the images.
    ///
    /// # Errors
    /// See [`BuildError`]; each sentence says what to do.
    pub fn try_embed(self) -> Result<Vec<Image>, BuildError> {
        for variable in [TARGETS, DEVICE_RUSTC, DEVICE_CARGO, PTXAS] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let (Some(here), Some(out)) = (std::env::var_os("CARGO_MANIFEST_DIR"), std::env::var_os("OUT_DIR"))
        else {
            return Err(BuildError::NoBuildScript);
        };
        let (package, out) = (Path::new(&here).join(&self.package), PathBuf::from(out));
        for source in crate::package::Package::read(&package)?.sources {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        let wanted = std::env::var(TARGETS).ok();
        let images = targets(wanted.as_deref(), self.targets.as_deref())?
            .into_iter()
            .map(|target| {
                let request =
                    Request::new(&package, target).target_dir(&out).features(&self.features).quiet();
                build(&Request { in_build_script: true, ..request })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let path = out.join(LIST);
        fs::write(&path, list(&images)).map_err(|error| BuildError::Io { path, error })?;
        Ok(images)
    }
}

/// The targets to build for: those of the environment, else those of the build script, else what can be built here.
fn targets(environment: Option<&str>, script: Option<&[String]>) -> Result<Vec<Target>, BuildError> {
    let names: Vec<&str> = match (environment, script) {
        (Some(names), _) => {
            let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            match names.contains(&NONE) {
                true if names.iter().any(|name| *name != NONE) => return Err(BuildError::NoneAndTargets),
                true => Vec::new(),
                false => names,
            }
        }
        (None, Some(names)) => names.iter().map(String::as_str).collect(),
        (None, None) => {
            let target = Target::parse("cuda")?;
            return Ok(if available(&target).is_ok() { vec![target] } else { Vec::new() });
        }
    };
    let mut seen = BTreeSet::new();
    let targets = names.into_iter().map(Target::parse);
    // Kernels for the CPU are part of the program itself. Two names may stand for one target.
    targets
        .filter(|target| {
            target.as_ref().map_or(true, |target| *target != Target::Cpu && seen.insert(target.to_string()))
        })
        .collect()
}

/// Rust code of a slice with the images.
fn list(images: &[Image]) -> String {
    let mut code = "&[\n".to_owned();
    for Image { target, path, .. } in images {
        let path = path.display().to_string();
        writeln!(
            code,
            "    ::hostcall::device::EmbeddedImage {{ target: {:?}, bytes: ::core::include_bytes!({path:?}) }},",
            target.to_string()
        )
        .expect("a string takes all");
    }
    code + "]\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(environment: Option<&str>, script: &[&str]) -> Vec<String> {
        let script: Vec<String> = script.iter().map(|name| (*name).to_owned()).collect();
        targets(environment, Some(&script)).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_environment_names_targets_first() {
        assert_eq!(names(None, &["sm_90", "gfx942"]), ["sm_90", "gfx942"]);
        assert_eq!(names(Some("gfx90a, cuda,sm_70"), &["sm_90"]), ["gfx90a", "sm_70"]);
        for nothing in ["none", "", "cpu"] {
            assert!(names(Some(nothing), &["sm_90"]).is_empty(), "{nothing}");
        }
        for both in ["none,sm_90", "gfx942, none"] {
            assert!(matches!(targets(Some(both), None), Err(BuildError::NoneAndTargets)), "{both}");
        }
        assert!(matches!(targets(Some("sm_1"), None), Err(BuildError::UnknownTarget { .. })));
    }

    #[test]
    fn the_list_is_rust() {
        let image =
            Image { path: "/a \"b\"/k.ptx".into(), target: Target::parse("cuda").unwrap(), kernels: vec![] };
        assert_eq!(list(&[]), "&[\n]\n");
        assert!(
            list(&[image]).contains(r#"target: "sm_70", bytes: ::core::include_bytes!("/a \"b\"/k.ptx")"#)
        );
    }
}
