//! The directory that kernels see, and how far out of it their paths may lead: not at all.

use crate::services::error::status;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::open_flags;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What kernels' paths are relative to.
pub(crate) enum Root {
    /// A directory that no path leaves, by `..`, symbolic links or otherwise.
    Dir {
        dir: Dir,
        /// The paths by which the directory is known: absolute paths below them are taken too.
        names: Vec<PathBuf>,
    },
    /// All that the process can reach; relative paths are the process's.
    Everything,
}

impl Root {
    /// The root that is this directory.
    pub fn new(path: &Path) -> io::Result<Self> {
        let canonical = path.canonicalize()?;
        if canonical.parent().is_none() {
            return Ok(Self::Everything);
        }
        let dir = Dir::open_ambient_dir(&canonical, ambient_authority())?;
        Ok(Self::Dir { dir, names: vec![std::path::absolute(path)?, canonical] })
    }

    /// The path as the directory's own, with no leading `/`.
    fn inside<'p>(names: &[PathBuf], path: &'p Path) -> Result<&'p Path, CallError> {
        if path.is_relative() {
            return Ok(path);
        }
        let rest = names.iter().find_map(|name| path.strip_prefix(name).ok());
        match rest {
            Some(rest) if rest.as_os_str().is_empty() => Ok(Path::new(".")),
            Some(rest) => Ok(rest),
            None => Err(Error::OutsideDir.into()),
        }
    }

    pub fn open(&self, path: &Path, flags: u32) -> Result<std::fs::File, CallError> {
        let on = |flag| flags & flag != 0;
        // The options of the two libraries have the same methods but no common trait.
        macro_rules! with {
            ($options:expr) => {
                $options
                    .read(on(open_flags::READ))
                    .write(on(open_flags::WRITE))
                    .append(on(open_flags::APPEND))
                    .truncate(on(open_flags::TRUNCATE))
                    .create(on(open_flags::CREATE))
                    .create_new(on(open_flags::CREATE_NEW))
            };
        }
        match self {
            Root::Dir { dir, names } => dir
                .open_with(Self::inside(names, path)?, with!(OpenOptions::new()))
                .map(cap_std::fs::File::into_std)
                .map_err(path_status),
            Root::Everything => with!(std::fs::OpenOptions::new()).open(path).map_err(path_status),
        }
    }

    pub fn remove(&self, path: &Path) -> Result<(), CallError> {
        match self {
            Root::Dir { dir, names } => dir.remove_file(Self::inside(names, path)?),
            Root::Everything => std::fs::remove_file(path),
        }
        .map_err(path_status)
    }

    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), CallError> {
        match self {
            Root::Dir { dir, names } => dir.rename(Self::inside(names, from)?, dir, Self::inside(names, to)?),
            Root::Everything => std::fs::rename(from, to),
        }
        .map_err(path_status)
    }

    pub fn create_dir(&self, path: &Path) -> Result<(), CallError> {
        match self {
            Root::Dir { dir, names } => dir.create_dir(Self::inside(names, path)?),
            Root::Everything => std::fs::create_dir(path),
        }
        .map_err(path_status)
    }

    pub fn remove_dir(&self, path: &Path) -> Result<(), CallError> {
        match self {
            Root::Dir { dir, names } => dir.remove_dir(Self::inside(names, path)?),
            Root::Everything => std::fs::remove_dir(path),
        }
        .map_err(path_status)
    }
}

fn path_status(error: io::Error) -> CallError {
    // A path that leads out is refused by the library and not by the system, so it has no number.
    if error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return Error::OutsideDir.into();
    }
    status(&error)
}
