//! Folders, and what is said of files.

use super::{Files, below, collect, error, files};
use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::open_flags::READ;
use hostcall_device::services::{FilesHandler, FoldersHandler, file_kinds};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn listed(files: &Files, path: &str) -> Vec<u8> {
    let (len, _) = collect(0, |out| files.entries(path.as_bytes(), out));
    let (again, bytes) = collect(len.unwrap() as usize, |out| files.entries(path.as_bytes(), out));
    assert_eq!(again, len);
    bytes
}

#[test]
fn folders_are_made_listed_and_removed() {
    let (dir, files) = files();
    files.create_dir_all(b"a/b/c").unwrap();
    files.create_dir_all(b"a/b").unwrap();
    fs::write(dir.path().join("open/a/two"), "22").unwrap();
    symlink("two", dir.path().join("open/a/link")).unwrap();
    assert_eq!(listed(&files, "a"), b"\x01\x01\0b\x02\x04\0link\0\x03\0two");
    assert_eq!(listed(&files, "a/b/c"), b"");
    // Only whole lists are given.
    assert_eq!(collect(17, |out| files.entries(b"a", out)), (Ok(17), listed(&files, "a")));
    assert_eq!(collect(16, |out| files.entries(b"a", out)), (Ok(17), vec![]));
    assert!(files.remove_dir(b"a").is_err());
    files.remove_dir_all(b"a").unwrap();
    assert_eq!(error(files.metadata(b"a", true)), Some(Error::NotFound));
    assert_eq!(error(files.create_dir_all(b"data/x")), Some(Error::Os(20)));
}

#[test]
fn what_is_said_of_files() {
    let (dir, files) = files();
    symlink("data", dir.path().join("open/link")).unwrap();
    files.set_permissions(b"data", 0o640).unwrap();
    let (kind, len, mode, modified_ns) = files.metadata(b"link", true).unwrap();
    assert_eq!((kind, len, mode), (file_kinds::FILE, 10, 0o640));
    assert!(modified_ns > 1_700_000_000_000_000_000);
    assert_eq!(files.metadata(b"link", false).unwrap().0, file_kinds::SYMLINK);
    assert_eq!(files.metadata(b"inner", true).unwrap().0, file_kinds::DIR);
    let file = files.open(b"data", READ).unwrap();
    assert_eq!(files.metadata_of_file(file), files.metadata(b"data", true));
    assert_eq!(error(files.metadata_of_file(file + 1)), Some(Error::Closed));
    assert_eq!(error(files.set_permissions(b"data", 0o10_000)), Some(Error::InvalidInput));
}

#[test]
fn files_are_copied_but_not_onto_themselves() {
    let (dir, files) = files();
    assert_eq!(files.copy(b"data", b"inner/copy"), Ok(10));
    assert_eq!(fs::read(dir.path().join("open/inner/copy")).unwrap(), b"0123456789");
    fs::hard_link(dir.path().join("open/data"), dir.path().join("open/same")).unwrap();
    for itself in ["data", "inner/../data", "same"] {
        assert_eq!(error(files.copy(b"data", itself.as_bytes())), Some(Error::InvalidInput));
    }
    assert_eq!(fs::read(dir.path().join("open/data")).unwrap(), b"0123456789");
    assert_eq!(error(files.copy(b"inner", b"x")), Some(Error::InvalidInput));
    // There is no more room to open the two.
    let few = super::SharedHandler(std::sync::Arc::new(
        super::OpenFiles::below(&dir.path().join("open")).unwrap().with_bound(1),
    ));
    assert_eq!(error(few.copy(b"data", b"other")), Some(Error::TooManyOpen));
}

#[test]
fn paths_become_the_folders_own() {
    let (dir, files) = files();
    symlink("inner/../data", dir.path().join("open/link")).unwrap();
    let canonical = |files: &Files, path: &str| {
        let (len, bytes) = collect(4096, |out| files.canonicalize(path.as_bytes(), out));
        assert!(len.is_err() || len == Ok(bytes.len() as u64));
        len.map(|_| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(canonical(&files, "./link").unwrap(), "data");
    assert_eq!(canonical(&files, "inner/..").unwrap(), ".");
    let open = dir.path().join("open").canonicalize().unwrap();
    assert_eq!(canonical(&files, open.join("inner").to_str().unwrap()).unwrap(), "inner");
    assert_eq!(error(canonical(&files, "missing")), Some(Error::NotFound));
    assert_eq!(collect(3, |out| files.canonicalize(b"link", out)), (Ok(4), vec![]));
    let link = open.join("link");
    let all = canonical(&below(Path::new("/")), link.to_str().unwrap()).unwrap();
    assert_eq!(Path::new(&all), open.join("data"));
}

#[test]
fn nothing_outside_is_reached() {
    let (dir, files) = files();
    let (open, secret) = (dir.path().join("open"), dir.path().join("secret"));
    symlink(&secret, open.join("absolute")).unwrap();
    symlink("..", open.join("up")).unwrap();
    for path in [secret.to_str().unwrap(), "..", "../secret", "up/secret", "absolute", "up", "/etc"] {
        let path = path.as_bytes();
        let outside = Some(Error::OutsideDir);
        assert_eq!(error(files.metadata(path, true)), outside);
        assert_eq!(error(files.set_permissions(path, 0o777)), outside);
        assert_eq!(error(collect(99, |out| files.entries(path, out)).0), outside);
        assert_eq!(error(collect(99, |out| files.canonicalize(path, out)).0), outside);
        assert_eq!(error(files.copy(path, b"mine")), outside);
        assert_eq!(error(files.copy(b"data", path)), outside);
        assert_eq!(error(files.create_dir_all(&[path, b"/d"].concat())), outside);
    }
    for path in ["..", "../secret", "up/secret"] {
        assert!(files.remove_dir_all(path.as_bytes()).is_err(), "{path}");
    }
    // Of a folder the links go, and not what they lead to.
    symlink("../..", open.join("inner/up")).unwrap();
    files.remove_dir_all(b"inner").unwrap();
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    assert_eq!(fs::read(open.join("data")).unwrap(), b"0123456789");
    let none = super::SharedHandler(std::sync::Arc::new(super::OpenFiles::none()));
    assert_eq!(none.metadata(b"x", true), Err(CallError::from(Error::NoDir)));
    assert_eq!(none.remove_dir_all(b"x"), Err(CallError::from(Error::NoDir)));
}
