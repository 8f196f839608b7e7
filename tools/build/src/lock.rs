//! One build at a time in a folder: what cargo made is read when its own lock is free again, and other
//! features give it other content.

use crate::{BuildError, Progress};
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file in a folder that is locked.
pub(crate) const NAME: &str = ".hostcall-lock";

/// Who else may have a folder's lock meanwhile.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Hold {
    Alone,
    /// Others that share it.
    Shared,
}

/// Waits until the folder's lock can be had, and returns what holds it. A folder that is not there is made. A
/// file system without locks has none.
pub(crate) fn take(folder: &Path, hold: Hold, progress: Progress) -> Result<File, BuildError> {
    let path = folder.join(NAME);
    let io = |error| BuildError::Io { path: path.clone(), error };
    loop {
        fs::create_dir_all(folder).map_err(io)?;
        // Locks of network file systems that are shared want a file that can be read, others one that can be written.
        let file = match File::options().create(true).read(true).append(true).open(&path) {
            // Somebody removed the folder meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            file => file.map_err(io)?,
        };
        let tried = match hold {
            Hold::Alone => file.try_lock(),
            Hold::Shared => file.try_lock_shared(),
        };
        if let Err(TryLockError::WouldBlock) = tried {
            if progress == Progress::Inherit {
                eprintln!("    Blocking waiting for another build in {}", folder.display());
            }
            match hold {
                Hold::Alone => file.lock(),
                Hold::Shared => file.lock_shared(),
            }
            .map_err(io)?;
        }
        // Who had it may have removed it, and then it keeps nobody out.
        let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let ours = inode(file.metadata().map_err(io)?);
        if path.metadata().is_ok_and(|there| inode(there) == ours) {
            return Ok(file);
        }
    }
}

/// A folder that no other build changes while this lives.
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Waits until no other build has the folder.
    pub fn take(folder: &Path, progress: Progress) -> Result<Self, BuildError> {
        take(folder, Hold::Alone, progress).map(|file| Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_build_at_a_time_has_a_folder() {
        let folder = std::env::temp_dir().join(format!("hostcall-lock-{}", std::process::id()));
        let first = FolderLock::take(&folder, Progress::Quiet).unwrap();
        let (tell, told) = mpsc::channel();
        let other = folder.clone();
        let second = std::thread::spawn(move || {
            tell.send("begins").unwrap();
            let lock = FolderLock::take(&other, Progress::Quiet).unwrap();
            tell.send("has it").unwrap();
            drop(lock);
        });
        assert_eq!(told.recv(), Ok("begins"));
        let file = File::open(folder.join(NAME)).unwrap();
        assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(first);
        assert_eq!(told.recv(), Ok("has it"));
        second.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
