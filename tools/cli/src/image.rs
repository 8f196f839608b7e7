//! What the user names as a program: a package's folder, which is built for the device, or an image.

use crate::arguments::BuildOptions;
use hostcall::Device;
use hostcall::device::devices;
use hostcall::image::{Calls, ImageInfo, MAX_IMAGE_BYTES, NotAnImage, identify};
use hostcall_build::{BuildError, Target};
use std::error::Error;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The software device's name, and its kind's.
pub const SOFTWARE: &str = "cpu";

/// A program that was found, and read if it is a file.
pub enum Program {
    /// A package's folder.
    Package(PathBuf),
    /// An image of kernels that call by hostcall's own channel, with a `main`.
    Image(PathBuf, ImageInfo),
    /// An image that was linked with LLVM's GPU libc.
    Llvm(PathBuf, ImageInfo),
}

/// Returns the folder of the package that the folder `.` lies in, as cargo finds it, and any other folder as
/// it is.
pub fn package_around(folder: PathBuf) -> PathBuf {
    const MANIFEST: &str = "Cargo.toml";
    if folder != Path::new(".") || folder.join(MANIFEST).exists() {
        return folder;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let around = here.ancestors().find(|above| above.join(MANIFEST).is_file());
    around.map_or(folder, Path::to_path_buf)
}

impl Program {
    /// Finds what `name` stands for.
    ///
    /// # Errors
    /// A sentence, when it is nothing that could be run.
    pub fn find(name: &OsStr) -> Result<Self, Box<dyn Error>> {
        if name.is_empty() {
            return Err("the program's name is empty: name a package's folder or an image".into());
        }
        let path = Path::new(name);
        let name = path.display();
        let unreadable = |error| format!("cannot read the program {name}: {error}");
        let metadata = path.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Ok(Self::Package(package_around(path.into())));
        }
        if !metadata.is_file() {
            return Err(format!("{name} is no regular file: name a package's folder or an image").into());
        }
        let path = path.canonicalize().map_err(unreadable)?;
        let mut bytes = Vec::new();
        // Files of the system may say that they are short and never end.
        if metadata.len() <= MAX_IMAGE_BYTES {
            File::open(&path)
                .and_then(|file| file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes))
                .map_err(unreadable)?;
        }
        if metadata.len().max(bytes.len() as u64) > MAX_IMAGE_BYTES {
            let most = MAX_IMAGE_BYTES >> 20;
            return Err(format!("{name} is no image of a program: it has more than {most} MiB").into());
        }
        let info = identify(&bytes).map_err(|why| match why {
            NotAnImage::Unknown => format!("{name}: {why}, or a package's folder"),
            why => format!("{name}: {why}"),
        })?;
        match &info.calls {
            Calls::Hostcall(kernels) if kernels.iter().any(|kernel| kernel.name() == "main") => Ok(Self::Image(path, info)),
            Calls::Hostcall(_) => Err(BuildError::NoMain { image: path }.into()),
            Calls::Llvm(_) => Ok(Self::Llvm(path, info)),
            _ => Err(format!(
                "{name} has no main kernel: a program is built by `hostcall build`, or linked with LLVM's GPU libc, \
                 which gives it the kernels _begin, _start and _end; other kernels are launched by a host program \
                 (`Device::load_code_object`)"
            )
            .into()),
        }
    }

    /// Whether it is an ordinary program with Rust's own `std`, which takes more stack than kernels do.
    ///
    /// # Errors
    /// A sentence, when it cannot be read.
    pub fn has_std(&self) -> Result<bool, Box<dyn Error>> {
        match self {
            Self::Package(folder) => Ok(hostcall_build::has_std(folder)?),
            Self::Image(path, _) => {
                let bytes = std::fs::read(path)
                    .map_err(|error| format!("cannot read the program {}: {error}", path.display()))?;
                Ok(hostcall_build::is_of_std(&bytes))
            }
            Self::Llvm(..) => Ok(false),
        }
    }

    /// Whether a path is that of the image, by whatever name.
    pub fn is_file(&self, path: &Path) -> bool {
        let (Self::Image(image, _) | Self::Llvm(image, _)) = self else { return false };
        let id = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
        id(path).is_some_and(|file| id(image) == Some(file))
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
        let mut listed = devices();
        let at = listed.iter().position(|device| of_kind(&device.name)).expect("every kind is listed");
        let first = listed.swap_remove(at);
        match first.unavailable {
            None => Ok(first.name),
            // The processor that is there in software.
            Some(_) if listed.iter().any(|device| info.target.runs_on(&device.name)) => Ok(listed
                .into_iter()
                .map(|device| device.name)
                .find(|name| info.target.runs_on(name))
                .expect("one is")),
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
    pub fn image_for(&self, device: &Device, options: &BuildOptions) -> Result<PathBuf, Box<dyn Error>> {
        let wanted = device.target();
        match self {
            Self::Package(folder) => {
                let target = Target::parse(&wanted)?;
                let image = hostcall_build::build(&options.request(folder.clone(), target))?;
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
