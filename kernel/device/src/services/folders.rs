use hostcall_abi::service::number;
use hostcall_macros::service;

/// Folders of the host, and what it says of files. Paths are bytes, as the host's system has them. Fails with the codes of
/// [`crate::io::Error`].
#[service(number = number::FILES + 24, internal, rare)]
pub trait Folders {
    /// The kind of a path's file (one of [`file_kinds`]), its bytes, its permissions, and when it was modified, in nanoseconds
    /// since 1970. Where `follow` is not set, a symbolic link is told of and not what it leads to.
    fn metadata(path: &[u8], follow: bool) -> (u32, u64, u32, i64);
    /// The same of an open file.
    fn metadata_of_file(file: u64) -> (u32, u64, u32, i64);
    /// Sets a file's permissions: the last twelve bits of its mode.
    fn set_permissions(path: &[u8], mode: u32);
    /// The bytes of a folder's entries in the order of their names, and the entries if all fit `out`: of each a byte for its
    /// kind, two for the length of its name, of which the first counts least, and the name.
    fn entries(path: &[u8], out: &mut [u8]) -> u64;
    /// Makes a folder, and those above it that are not there.
    fn create_dir_all(path: &[u8]);
    /// Removes a folder with all that is in it.
    fn remove_dir_all(path: &[u8]);
    /// Copies a file's content and permissions in place of what has the new name. Gives the bytes copied.
    fn copy(from: &[u8], to: &[u8]) -> u64;
    /// The bytes of the path without links, `.` and `..`, and the path itself if it fits `out`. It is relative to the folder
    /// that the host opened, unless that is `/`.
    fn canonicalize(path: &[u8], out: &mut [u8]) -> u64;
}

/// What a file is.
pub mod file_kinds {
    /// A file with content.
    pub const FILE: u32 = 0;
    /// A folder.
    pub const DIR: u32 = 1;
    /// A symbolic link.
    pub const SYMLINK: u32 = 2;
    /// A device, a pipe or a socket.
    pub const OTHER: u32 = 3;
}

/// Bytes before an entry's name in what [`Folders::entries`] gives.
pub const ENTRY_HEAD_BYTES: usize = 3;
