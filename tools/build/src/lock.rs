//! One build at a time in a folder: what cargo made is read when its own lock is free again, and other
//! features give it other content.

use crate::{BuildError, Progress};
use std::fs::{self, File, TryLockError};
use std::path::Path;

/// A folder that no other build changes while this lives.
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Waits until no other build has the folder, which is made if there is none. A file system without locks
    /// has none.
    pub fn take(folder: &Path, progress: Progress) -> Result<Self, BuildError> {
        let path = folder.join(".hostcall-lock");
        let io = |error| BuildError::Io { path: path.clone(), error };
        fs::create_dir_all(folder).map_err(io)?;
        let file = File::options().create(true).append(true).open(&path).map_err(io)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            if progress == Progress::Inherit {
                eprintln!("    Blocking waiting for another build in {}", folder.display());
            }
            file.lock().map_err(io)?;
        }
        Ok(Self { _file: file })
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
        let file = File::open(folder.join(".hostcall-lock")).unwrap();
        assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(first);
        assert_eq!(told.recv(), Ok("has it"));
        second.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
