//! Paths that the host knows. As on any Unix, lists of them are divided by colons.

use crate::ffi::{OsStr, OsString};
use crate::path::{Path, PathBuf};
use crate::sys::pal::{abi, unsupported, whole};
use crate::{fmt, io};

/// The path of bytes that the host gave.
pub(super) fn path(bytes: Vec<u8>) -> PathBuf {
    // SAFETY: the strings of this platform are any bytes.
    unsafe { OsString::from_encoded_bytes_unchecked(bytes) }.into()
}

pub fn getcwd() -> io::Result<PathBuf> {
    let found = whole(|room| {
        // SAFETY: the room is this function's until the call returns.
        usize::try_from(unsafe { abi::current_dir(room.as_mut_ptr(), room.len()) })
    });
    found.map(path).map_err(|_| io::ErrorKind::NotFound.into())
}

/// The host's process keeps its own.
pub fn chdir(_to: &Path) -> io::Result<()> {
    unsupported()
}

pub struct SplitPaths<'a>(Option<&'a [u8]>);

pub fn split_paths(list: &OsStr) -> SplitPaths<'_> {
    SplitPaths(Some(list.as_encoded_bytes()))
}

impl Iterator for SplitPaths<'_> {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        let left = self.0?;
        let end = left.iter().position(|&byte| byte == b':');
        self.0 = end.map(|end| &left[end + 1..]);
        Some(path(left[..end.unwrap_or(left.len())].to_vec()))
    }
}

#[derive(Debug)]
pub struct JoinPathsError;

pub fn join_paths<I: Iterator<Item = T>, T: AsRef<OsStr>>(paths: I) -> Result<OsString, JoinPathsError> {
    let mut list = Vec::new();
    for (i, path) in paths.enumerate() {
        let path = path.as_ref().as_encoded_bytes();
        if path.contains(&b':') {
            return Err(JoinPathsError);
        }
        if i > 0 {
            list.push(b':');
        }
        list.extend_from_slice(path);
    }
    // SAFETY: the strings of this platform are any bytes.
    Ok(unsafe { OsString::from_encoded_bytes_unchecked(list) })
}

impl fmt::Display for JoinPathsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path in the list contains `:`")
    }
}

impl crate::error::Error for JoinPathsError {}

/// The program is no file that the host would open.
pub fn current_exe() -> io::Result<PathBuf> {
    unsupported()
}

pub fn temp_dir() -> PathBuf {
    crate::env::var_os("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from)
}

pub fn home_dir() -> Option<PathBuf> {
    crate::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}
