//! Folders of the user's cache, each made once and never changed, which builds of any workspace use.
//!
//! # Invariants
//! KEPT: a folder's name stands for all that it was made of. It holds the file [`MADE`] only when it is
//! complete. Who makes or removes what it holds has its lock alone; who uses it shares the lock.

use crate::lock::{self, Hold};
use crate::{BuildError, Progress};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file that says that a folder is complete.
const MADE: &str = "made";

/// How many folders of a kind are kept, besides those that builds use at the moment. A library has 60 to 85
/// MB, a kernel 30.
const MOST: usize = 8;

/// A complete folder, which nobody removes while this lives.
pub struct Kept {
    pub folder: PathBuf,
    _lock: File,
}

impl Kept {
    /// Returns the folder in `cache` of this kind, for what `key` stands for. Where there is none, `make`
    /// fills an empty one, and those that were not used for the longest time go.
    ///
    /// # Errors
    /// Those of `make`, after which the next build makes the folder anew; files that cannot be read or
    /// written.
    pub fn take(
        cache: &Path,
        kind: &str,
        key: &impl Hash,
        progress: Progress,
        make: impl Fn(&Path) -> Result<(), BuildError>,
    ) -> Result<Self, BuildError> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let folder = cache.join(format!("{kind}-{:016x}", hasher.finish()));
        loop {
            let lock = lock::take(&folder, Hold::Shared, progress)?;
            if folder.join(MADE).exists() {
                // Only the order in which folders go depends on it.
                let _ = lock.set_modified(SystemTime::now());
                return Ok(Self { folder, _lock: lock });
            }
            drop(lock);
            let _lock = lock::take(&folder, Hold::Alone, progress)?;
            if !folder.join(MADE).exists() {
                // A build that was stopped leaves a part.
                clear(&folder)?;
                make(&folder)?;
                let made = folder.join(MADE);
                fs::write(&made, "").map_err(|error| BuildError::Io { path: made, error })?;
                remove_old(cache, kind, &folder);
            }
        }
    }
}

/// Removes all that a folder holds but its lock.
fn clear(folder: &Path) -> Result<(), BuildError> {
    let io = |error| BuildError::Io { path: folder.into(), error };
    // First what says that it is complete.
    let made = folder.join(MADE);
    if made.exists() {
        fs::remove_file(made).map_err(io)?;
    }
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_type().map_err(io)?.is_dir() {
            fs::remove_dir_all(entry.path()).map_err(io)?;
        } else if entry.file_name() != lock::NAME {
            fs::remove_file(entry.path()).map_err(io)?;
        }
    }
    Ok(())
}

/// Removes the folders of a kind behind the [`MOST`] that were used last, and leaves `new` and those that a
/// build has. One that cannot be removed stays: the build goes on without that.
fn remove_old(cache: &Path, kind: &str, new: &Path) {
    let mut folders: Vec<(SystemTime, PathBuf)> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path != new && is_of(kind, path))
        .filter_map(|path| Some((path.join(lock::NAME).metadata().ok()?.modified().ok()?, path)))
        .collect();
    folders.sort_unstable_by(|one, other| other.cmp(one));
    for (_, folder) in folders.iter().skip(MOST - 1) {
        let lock = File::options().read(true).append(true).open(folder.join(lock::NAME));
        // Without locks nobody knows whether it is in use: it stays.
        if lock.is_ok_and(|lock| lock.try_lock().is_ok() && clear(folder).is_ok()) {
            // Not the folder's content again: the next build may have begun.
            let _ = fs::remove_file(folder.join(lock::NAME)).and_then(|()| fs::remove_dir(folder));
        }
    }
}

/// Whether a folder's name is of this kind.
fn is_of(kind: &str, folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let hash = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    fn cache(name: &str) -> PathBuf {
        let cache = std::env::temp_dir().join(format!("hostcall-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&cache);
        cache
    }

    fn take(
        cache: &Path,
        key: u32,
        make: impl Fn(&Path) -> Result<(), BuildError>,
    ) -> Result<Kept, BuildError> {
        Kept::take(cache, "kind", &key, Progress::Quiet, make)
    }

    #[test]
    fn builds_at_once_make_a_folder_once() {
        let (cache, made) = (cache("once"), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let kept = take(&cache, 1, |folder| {
                        made.fetch_add(1, Ordering::Relaxed);
                        fs::write(folder.join("file"), "text").unwrap();
                        Ok(())
                    });
                    assert_eq!(fs::read_to_string(kept.unwrap().folder.join("file")).unwrap(), "text");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn what_a_build_left_half_made_is_made_anew() {
        let cache = cache("half");
        let failed = take(&cache, 1, |folder| {
            fs::create_dir_all(folder.join("deep/er")).unwrap();
            fs::write(folder.join("half"), "").unwrap();
            Err(BuildError::NoReport("it was stopped".into()))
        });
        assert!(failed.is_err());
        let kept = take(&cache, 1, |folder| {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "the lock alone");
            Ok(())
        });
        let again = take(&cache, 1, |_| panic!("it is complete")).unwrap();
        assert_eq!(again.folder, kept.unwrap().folder);
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn folders_that_nobody_uses_go_when_there_are_too_many() {
        let cache = cache("many");
        let long_ago = |kept: &Kept, s| {
            let lock = File::options().append(true).open(kept.folder.join(lock::NAME)).unwrap();
            lock.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(s)).unwrap();
        };
        let used = take(&cache, 0, |_| Ok(())).unwrap();
        long_ago(&used, 1);
        let first = take(&cache, 1, |_| Ok(())).unwrap();
        long_ago(&first, 2);
        let unused = first.folder.clone();
        drop(first);
        fs::create_dir_all(cache.join("kind-of-others")).unwrap();
        for key in 2..=MOST as u32 + 1 {
            take(&cache, key, |_| Ok(())).unwrap();
        }
        assert!(!unused.exists() && used.folder.exists() && cache.join("kind-of-others").exists());
        // The two besides are the one in use and the others'.
        assert_eq!(fs::read_dir(&cache).unwrap().count(), MOST + 2);
        drop(used);
        take(&cache, 100, |_| Ok(())).unwrap();
        take(&cache, 101, |_| Ok(())).unwrap();
        assert_eq!(fs::read_dir(&cache).unwrap().count(), MOST + 1);
        // One that is gone is made again.
        assert_eq!(take(&cache, 1, |_| Ok(())).unwrap().folder, unused);
        fs::remove_dir_all(&cache).unwrap();
    }
}
