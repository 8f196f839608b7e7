//! Files and folders.

use super::{bytes, code, length, put, room};
use crate::abi::CallError;
use crate::services::{Files, Folders};

/// Bytes that one call writes at most: less than any server takes in a message unless it is told otherwise.
const MAX_WRITE_BYTES: usize = 16 << 20;

/// What is said of a file; the layer has the same struct.
#[repr(C)]
struct Metadata {
    len: u64,
    modified_ns: i64,
    /// One of [`crate::services::file_kinds`].
    kind: u32,
    mode: u32,
}

fn metadata(result: Result<(u32, u64, u32, i64), CallError>) -> Result<Metadata, CallError> {
    result.map(|(kind, len, mode, modified_ns)| Metadata { len, modified_ns, kind, mode })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_open(path: *const u8, len: usize, flags: u32, file: *mut u64) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Files::open(bytes(path, len), flags), file) }
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_close(file: u64) {
    // Nobody is left to be told.
    let _ = Files::close(file);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_file_read(file: u64, data: *mut u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length(Files::read(file, unsafe { room(data, len) }).map(|((), len)| len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_file_write(file: u64, data: *const u8, len: usize) -> i64 {
    // SAFETY: ABI.
    length(Files::write(file, unsafe { bytes(data, len.min(MAX_WRITE_BYTES)) }).map(|len| len as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_file_seek(file: u64, whence: u32, offset: i64, at: *mut u64) -> i32 {
    // SAFETY: ABI.
    unsafe { put(Files::seek(file, whence, offset), at) }
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_file_set_len(file: u64, len: u64) -> i32 {
    code(Files::set_len(file, len))
}

#[unsafe(no_mangle)]
extern "C" fn __hostcall_std_file_sync(file: u64) -> i32 {
    code(Files::sync(file))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_file_metadata(file: u64, to: *mut Metadata) -> i32 {
    // SAFETY: ABI.
    unsafe { put(metadata(Folders::metadata_of_file(file)), to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_metadata(
    path: *const u8,
    len: usize,
    follow: bool,
    to: *mut Metadata,
) -> i32 {
    // SAFETY: ABI.
    unsafe { put(metadata(Folders::metadata(bytes(path, len), follow)), to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_set_permissions(path: *const u8, len: usize, mode: u32) -> i32 {
    // SAFETY: ABI.
    code(Folders::set_permissions(unsafe { bytes(path, len) }, mode))
}

/// A folder's entries, as [`crate::services::Folders::entries`] has them; the length says how many bytes all have.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_entries(
    path: *const u8,
    len: usize,
    data: *mut u8,
    data_len: usize,
) -> i64 {
    // SAFETY: ABI.
    let (path, data) = unsafe { (bytes(path, len), room(data, data_len)) };
    length(Folders::entries(path, data).map(|(len, _)| len as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_canonicalize(
    path: *const u8,
    len: usize,
    data: *mut u8,
    data_len: usize,
) -> i64 {
    // SAFETY: ABI.
    let (path, data) = unsafe { (bytes(path, len), room(data, data_len)) };
    length(Folders::canonicalize(path, data).map(|(len, _)| len as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_remove(path: *const u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Files::remove(unsafe { bytes(path, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_create_dir(path: *const u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Files::create_dir(unsafe { bytes(path, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_remove_dir(path: *const u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Files::remove_dir(unsafe { bytes(path, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_remove_dir_all(path: *const u8, len: usize) -> i32 {
    // SAFETY: ABI.
    code(Folders::remove_dir_all(unsafe { bytes(path, len) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_rename(
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> i32 {
    // SAFETY: ABI.
    code(unsafe { Files::rename(bytes(from, from_len), bytes(to, to_len)) })
}

/// Copies a file; the length says how many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn __hostcall_std_copy(
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> i64 {
    // SAFETY: ABI.
    length(unsafe { Folders::copy(bytes(from, from_len), bytes(to, to_len)) }.map(|len| len as usize))
}
