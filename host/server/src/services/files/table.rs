//! Handles: numbers that no two files of the process have.

use super::bound::Permit;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_locks::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file. It closes when the operations on it are done and it is in no table.
pub(super) struct OpenFile {
    pub file: File,
    /// The turn of writes; `None` for what is no file with a place for each byte, such as a pipe: to write to that may wait for
    /// others that write.
    pub turn: Option<u64>,
    /// The launch that opened it.
    pub owner: LaunchId,
    pub _permit: Permit,
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// The open files, by their handles.
#[derive(Default)]
pub(super) struct Table(Mutex<HashMap<u64, Arc<OpenFile>>>);

impl Table {
    /// Adds a file and gives its handle, which is never 0.
    pub fn insert(&self, file: OpenFile) -> u64 {
        /// The next handle, which none has had before it in this process: one that a kernel kept, or that a program brought
        /// from another device, never means another file. Above the small numbers that memory often has.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().insert(handle, Arc::new(file));
        handle
    }

    /// The file of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<OpenFile>, CallError> {
        self.0.lock().get(&handle).cloned().ok_or(Error::Closed.into())
    }

    /// Takes a file out.
    pub fn remove(&self, handle: u64) -> Result<(), CallError> {
        let removed = self.0.lock().remove(&handle);
        // Closing may take a while, and is done without the lock.
        removed.map(drop).ok_or(Error::Closed.into())
    }

    /// Takes out the files of the owners that `is_one` accepts.
    pub fn remove_of(&self, is_one: impl Fn(LaunchId) -> bool) {
        let removed: Vec<_> = self.0.lock().extract_if(|_, file| is_one(file.owner)).collect();
        drop(removed);
    }

    /// Files open now.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}
