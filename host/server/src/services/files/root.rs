//! The directory that kernels see, and how far out of it their paths may lead: not at all.

use crate::services::error::status;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::{file_kinds, open_flags};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One operation by either library: on the directory, or on all that the process reaches.
macro_rules! on {
    ($root:expr, $path:ident, |$dir:ident, $inside:ident| $of_dir:expr, $of_all:expr) => {
        match $root {
            Root::Dir { dir: $dir, names } => {
                let $inside = Root::inside(names, $path)?;
                $of_dir
            }
            Root::Everything => $of_all,
        }
        .map_err(path_status)
    };
}

/// The kind of a file, by its type of either library.
macro_rules! kind_of {
    ($file_type:expr) => {
        match $file_type {
            kind if kind.is_file() => file_kinds::FILE,
            kind if kind.is_dir() => file_kinds::DIR,
            kind if kind.is_symlink() => file_kinds::SYMLINK,
            _ => file_kinds::OTHER,
        }
    };
}

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
        on!(self, path, |dir, path| dir.remove_file(path), std::fs::remove_file(path))
    }

    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), CallError> {
        match self {
            Root::Dir { dir, names } => dir.rename(Self::inside(names, from)?, dir, Self::inside(names, to)?),
            Root::Everything => std::fs::rename(from, to),
        }
        .map_err(path_status)
    }

    pub fn copy(&self, from: &Path, to: &Path) -> Result<u64, CallError> {
        match self {
            Root::Dir { dir, names } => dir.copy(Self::inside(names, from)?, dir, Self::inside(names, to)?),
            Root::Everything => std::fs::copy(from, to),
        }
        .map_err(path_status)
    }

    pub fn create_dir(&self, path: &Path) -> Result<(), CallError> {
        on!(self, path, |dir, path| dir.create_dir(path), std::fs::create_dir(path))
    }

    pub fn create_dir_all(&self, path: &Path) -> Result<(), CallError> {
        on!(self, path, |dir, path| dir.create_dir_all(path), std::fs::create_dir_all(path))
    }

    pub fn remove_dir(&self, path: &Path) -> Result<(), CallError> {
        on!(self, path, |dir, path| dir.remove_dir(path), std::fs::remove_dir(path))
    }

    pub fn remove_dir_all(&self, path: &Path) -> Result<(), CallError> {
        on!(self, path, |dir, path| dir.remove_dir_all(path), std::fs::remove_dir_all(path))
    }

    pub fn set_permissions(&self, path: &Path, mode: u32) -> Result<(), CallError> {
        let permissions = std::fs::Permissions::from_mode(mode);
        on!(
            self,
            path,
            |dir, path| dir.set_permissions(path, cap_std::fs::Permissions::from_std(permissions)),
            std::fs::set_permissions(path, permissions)
        )
    }

    /// Returns the path without links, `.` and `..`: as the directory's own, unless that is `/`.
    pub fn canonicalize(&self, path: &Path) -> Result<PathBuf, CallError> {
        let path = on!(self, path, |dir, path| dir.canonicalize(path), std::fs::canonicalize(path))?;
        Ok(if path.as_os_str().is_empty() { ".".into() } else { path })
    }

    pub fn metadata(&self, path: &Path, follow: bool) -> Result<Found, CallError> {
        match (self, follow) {
            (Root::Dir { dir, names }, true) => {
                dir.metadata(Self::inside(names, path)?).map(|it| Found::of_cap(&it))
            }
            (Root::Dir { dir, names }, false) => {
                dir.symlink_metadata(Self::inside(names, path)?).map(|it| Found::of_cap(&it))
            }
            (Root::Everything, true) => std::fs::metadata(path).map(|it| Found::of_std(&it)),
            (Root::Everything, false) => std::fs::symlink_metadata(path).map(|it| Found::of_std(&it)),
        }
        .map_err(path_status)
    }

    /// Returns the names in a directory, each with its kind.
    pub fn entries(&self, path: &Path) -> Result<Vec<(OsString, u32)>, CallError> {
        // The entries of the two libraries have the same methods but no common trait.
        macro_rules! all {
            ($entries:expr) => {
                $entries.and_then(|entries| {
                    entries
                        .map(|entry| entry.and_then(|it| Ok((it.file_name(), kind_of!(it.file_type()?)))))
                        .collect::<io::Result<Vec<_>>>()
                })
            };
        }
        match self {
            Root::Dir { dir, names } => all!(dir.read_dir(Self::inside(names, path)?)),
            Root::Everything => all!(std::fs::read_dir(path)),
        }
        .map_err(path_status)
    }
}

/// What the system says of a file.
pub(crate) struct Found {
    /// One of [`file_kinds`].
    pub kind: u32,
    pub len: u64,
    pub mode: u32,
    /// Nanoseconds since 1970; past the year 2262 they no longer fit, and stay as they are.
    pub modified_ns: i64,
    /// The numbers of its file system and in that: of no other file.
    pub file: (u64, u64),
}

macro_rules! found {
    ($metadata:ident) => {
        Found {
            kind: kind_of!($metadata.file_type()),
            len: $metadata.len(),
            mode: $metadata.mode(),
            modified_ns: $metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add($metadata.mtime_nsec()),
            file: ($metadata.dev(), $metadata.ino()),
        }
    };
}

impl Found {
    pub fn of_std(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        found!(metadata)
    }

    fn of_cap(metadata: &cap_std::fs::Metadata) -> Self {
        use cap_std::fs::MetadataExt;
        found!(metadata)
    }
}

fn path_status(error: io::Error) -> CallError {
    // A path that leads out is refused by the library and not by the system, so it has no number.
    if error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return Error::OutsideDir.into();
    }
    status(&error)
}
