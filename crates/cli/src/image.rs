//! What the user names as a program: a package's folder, which is built for the device, or an image.

use hostcall::Device;
use hostcall::device::devices;
use hostcall::image::{Calls, ImageInfo, identify};
use hostcall_build::{BuildError, Progress, Request, Target};
use std::error::Error;
use std::path::{Path, PathBuf};

/// The software device's name, and its kind's.
const SOFTWARE: &str = "cpu";

/// A program that was found, and read if it is a file.
pub enum Program {
    /// A package's folder.
    Package(PathBuf),
    /// An image of kernels that call by hostcall's own channel, with a `main`.
    Image(PathBuf, ImageInfo),
    /// An image that was linked with LLVM's GPU libc.
    Llvm(PathBuf, ImageInfo),
}

impl Program {
    /// Finds what `name` stands for.
    ///
    /// # Errors
    /// A sentence, when it is nothing that could be run.
    pub fn find(name: &str) -> Result<Self, Box<dyn Error>> {
        let unreadable = |error| format!("cannot read the program {name}: {error}");
        let path = Path::new(name);
        if path.metadata().map_err(unreadable)?.is_dir() {
            return Ok(Self::Package(path.into()));
        }
        let path = path.canonicalize().map_err(unreadable)?;
        let info =
            identify(&std::fs::read(&path).map_err(unreadable)?).map_err(|why| format!("{name}: {why}"))?;
        match &info.calls {
            Calls::Hostcall(kernels) if kernels.iter().any(|kernel| kernel == "main") => Ok(Self::Image(path, info)),
            Calls::Hostcall(_) => Err(BuildError::NoMain { image: name.into() }.into()),
            Calls::Llvm(_) => Ok(Self::Llvm(path, info)),
            _ => Err(format!(
                "{name} has no main kernel: a program is built by `hostcall build`, or linked with LLVM's GPU libc, \
                 which gives it the kernels _begin, _start and _end"
            )
            .into()),
        }
    }

    /// The device to run on when the user names none: the first that an image is for, or else the software device.
    ///
    /// # Errors
    /// A sentence, when an image is for a kind of device that is not there.
    pub fn device(&self) -> Result<String, Box<dyn Error>> {
        let (path, info) = match self {
            Self::Package(_) => return Ok(SOFTWARE.into()),
            Self::Image(path, info) | Self::Llvm(path, info) => (path, info),
        };
        let kind = info.target.device_kind();
        if kind == SOFTWARE {
            // Listing the others starts their drivers.
            return Ok(SOFTWARE.into());
        }
        let of_kind = |name: &str| name.split(':').next() == Some(kind);
        let first = devices().into_iter().find(|device| of_kind(&device.name)).expect("every kind is listed");
        match first.unavailable {
            None => Ok(first.name),
            Some(why) => {
                let (program, target) = (path.display(), &info.target);
                Err(format!("{program} was built for {target}, and {} cannot be used: {why}", first.name)
                    .into())
            }
        }
    }

    /// The image for the device, built if the program is a package.
    ///
    /// # Errors
    /// A sentence, when it does not build or is for another device.
    pub fn image_for(&self, device: &Device) -> Result<PathBuf, Box<dyn Error>> {
        let wanted = device.target();
        match self {
            Self::Package(folder) => {
                let target = Target::parse(&wanted)?;
                let request = Request {
                    package: folder.clone(),
                    target,
                    target_dir: None,
                    progress: Progress::Inherit,
                };
                let image = hostcall_build::build(&request)?;
                image.require_main()?;
                Ok(image.path)
            }
            Self::Image(path, info) | Self::Llvm(path, info) if info.target.runs_on(&wanted) => {
                Ok(path.clone())
            }
            Self::Image(path, info) => {
                let (program, target) = (path.display(), &info.target);
                Err(format!(
                    "{program} was built for {target}, not for {wanted}: build it with `hostcall build --target {wanted}`"
                )
                .into())
            }
            Self::Llvm(path, info) => {
                let (program, target) = (path.display(), &info.target);
                Err(format!("{program} was built for {target}, not for {wanted}: link it for that device")
                    .into())
            }
        }
    }
}
