use hostcall_abi::service::number;
use hostcall_macros::service;

/// Files of the host. Paths are bytes, as the host's system has them. Fails with the codes of [`crate::io::Error`].
#[service(number = number::FILES, internal)]
pub trait Files {
    /// Opens a file; `flags` are those of [`open_flags`]. Gives the file's handle.
    fn open(path: &[u8], flags: u32) -> u64;
    /// Closes a file.
    fn close(file: u64);
    /// Reads from the file's position on, which moves.
    fn read(file: u64, out: &mut [u8]);
    /// Reads from `offset` on. The file's position stays.
    fn read_at(file: u64, offset: u64, out: &mut [u8]);
    /// Writes at the file's position, which moves. Gives the bytes written, less than all at times.
    fn write(file: u64, data: &[u8]) -> u64;
    /// Writes at `offset`. The file's position stays.
    fn write_at(file: u64, offset: u64, data: &[u8]) -> u64;
    /// Moves the file's position by `offset` from its start (`whence` 0), its position (1) or its end (2), and
    /// gives the new one from the start.
    fn seek(file: u64, whence: u32, offset: i64) -> u64;
    /// Bytes in the file.
    fn len(file: u64) -> u64;
    /// Cuts the file, or lengthens it with zeros.
    fn set_len(file: u64, len: u64);
    /// Waits until the file's content has reached the disk.
    fn sync(file: u64);
    /// Removes a file.
    fn remove(path: &[u8]);
    /// Renames a file or directory, in place of what has the new name.
    fn rename(from: &[u8], to: &[u8]);
    /// Makes a directory.
    fn create_dir(path: &[u8]);
    /// Removes an empty directory.
    fn remove_dir(path: &[u8]);
    /// Maps a file, for writing too if `writable` is set, and gives the mapping's handle, where the device
    /// reaches the file's content (0: nowhere), and the bytes that the file has.
    fn map(file: u64, writable: bool) -> (u64, u64, u64);
    /// Ends a mapping, which no lane uses any more.
    fn unmap(mapping: u64);
}

/// How [`Files::open`] opens a file, with the meaning they have in `std::fs::OpenOptions`.
pub mod open_flags {
    /// For reading.
    pub const READ: u32 = 1;
    /// For writing.
    pub const WRITE: u32 = 1 << 1;
    /// Every write goes to the end.
    pub const APPEND: u32 = 1 << 2;
    /// Cut to nothing.
    pub const TRUNCATE: u32 = 1 << 3;
    /// Made when it is not there.
    pub const CREATE: u32 = 1 << 4;
    /// Made; an error when it is there.
    pub const CREATE_NEW: u32 = 1 << 5;
}
