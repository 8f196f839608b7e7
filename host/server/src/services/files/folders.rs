//! Folders, and what is said of files.

use super::root::{Found, Root};
use super::{OpenFiles, as_path};
use crate::services::SharedHandler;
use crate::services::error::status;
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::{ENTRY_HEAD_BYTES, FoldersHandler, file_kinds};
use hostcall_service::Output;
use std::os::unix::ffi::OsStrExt;

/// Bits of a mode that say who may do what.
const PERMISSIONS: u32 = 0o7777;

/// Gives back all of `bytes`, or only says how many they are.
fn whole(bytes: &[u8], out: &mut Output<'_>) -> Result<u64, CallError> {
    if bytes.len() <= out.capacity() {
        out.push(bytes)?;
    }
    Ok(bytes.len() as u64)
}

/// What a call gives of a file.
fn told(found: &Found) -> (u32, u64, u32, i64) {
    (found.kind, found.len, found.mode & PERMISSIONS, found.modified_ns)
}

/// Entries as they travel, in the order of their names.
fn entries_of(root: &Root, path: &[u8]) -> Result<Vec<u8>, CallError> {
    let mut entries = root.entries(as_path(path))?;
    entries.sort_unstable();
    let bytes = entries.iter().map(|(name, _)| ENTRY_HEAD_BYTES + name.len()).sum();
    let mut all = Vec::new();
    all.try_reserve_exact(bytes).map_err(|_| CallError::Busy)?;
    for (name, kind) in entries {
        let (name, kind) = (name.as_bytes(), u8::try_from(kind).map_err(|_| CallError::Malformed)?);
        let [low, high] = u16::try_from(name.len()).map_err(|_| Error::InvalidInput)?.to_le_bytes();
        all.extend([kind, low, high]);
        all.extend(name);
    }
    Ok(all)
}

impl FoldersHandler for SharedHandler<OpenFiles> {
    fn metadata(&self, path: &[u8], follow: bool) -> Result<(u32, u64, u32, i64), CallError> {
        Ok(told(&self.0.root()?.metadata(as_path(path), follow)?))
    }

    fn metadata_of_file(&self, file: u64) -> Result<(u32, u64, u32, i64), CallError> {
        let metadata = self.0.table.get(file)?.metadata().map_err(|error| status(&error))?;
        Ok(told(&Found::of_std(&metadata)))
    }

    fn set_permissions(&self, path: &[u8], mode: u32) -> Result<(), CallError> {
        if mode & !PERMISSIONS != 0 {
            return Err(Error::InvalidInput.into());
        }
        self.0.root()?.set_permissions(as_path(path), mode)
    }

    fn entries(&self, path: &[u8], out: &mut Output<'_>) -> Result<u64, CallError> {
        // As long as the folder is open.
        let permit = self.0.permit()?;
        let entries = entries_of(self.0.root()?, path)?;
        drop(permit);
        whole(&entries, out)
    }

    fn create_dir_all(&self, path: &[u8]) -> Result<(), CallError> {
        self.0.root()?.create_dir_all(as_path(path))
    }

    fn remove_dir_all(&self, path: &[u8]) -> Result<(), CallError> {
        let _permit = self.0.permit()?;
        self.0.root()?.remove_dir_all(as_path(path))
    }

    fn copy(&self, from: &[u8], to: &[u8]) -> Result<u64, CallError> {
        let _permits = (self.0.permit()?, self.0.permit()?);
        let (root, from, to) = (self.0.root()?, as_path(from), as_path(to));
        let source = root.metadata(from, true)?;
        // Others may have no end; and the file itself would be cut before it is read.
        let is_itself = root.metadata(to, true).is_ok_and(|target| target.file == source.file);
        if source.kind != file_kinds::FILE || is_itself {
            return Err(Error::InvalidInput.into());
        }
        root.copy(from, to)
    }

    fn canonicalize(&self, path: &[u8], out: &mut Output<'_>) -> Result<u64, CallError> {
        let path = self.0.root()?.canonicalize(as_path(path))?;
        whole(path.as_os_str().as_bytes(), out)
    }
}
