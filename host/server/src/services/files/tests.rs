mod folders;

use super::*;
use crate::services::SharedHandler;
use crate::services::testing::{collect, collect_at_most};
use hostcall_abi::launch::LaunchId;
use hostcall_device::services::open_flags::{APPEND, CREATE, CREATE_NEW, READ, TRUNCATE, WRITE};
use hostcall_service::{Caller, Request, Service, called_by};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

type Files = SharedHandler<OpenFiles>;

/// A directory with `open/inner` (opened to kernels) and `secret` beside it.
fn files() -> (TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("open")).unwrap();
    fs::create_dir(dir.path().join("open/inner")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::write(dir.path().join("open/data"), "0123456789").unwrap();
    let files = below(&dir.path().join("open"));
    (dir, files)
}

#[test]
fn a_folder_that_cannot_be_opened_is_named() {
    let error = OpenFiles::below(Path::new("/no/such")).err().unwrap().to_string();
    assert!(error.starts_with("cannot open the folder /no/such to kernels: No such file"), "{error}");
}

fn below(path: &Path) -> Files {
    SharedHandler(Arc::new(OpenFiles::below(path).unwrap()))
}

fn error<T>(result: Result<T, CallError>) -> Option<Error> {
    result.err().map(Error::from)
}

fn read(files: &Files, file: u64, capacity: usize) -> Vec<u8> {
    let (result, bytes) = collect(capacity, |out| files.read(file, out));
    result.unwrap();
    bytes
}

fn read_at(files: &Files, file: u64, offset: u64, capacity: usize) -> (Result<(), CallError>, Vec<u8>) {
    collect(capacity, |out| files.read_at(file, offset, out))
}

#[test]
fn a_file_is_written_and_read() {
    let (dir, files) = files();
    let file = files.open(b"inner/new", READ | WRITE | CREATE_NEW).unwrap();
    assert_eq!(error(files.open(b"inner/new", WRITE | CREATE_NEW)), Some(Error::AlreadyExists));
    assert_eq!(files.write(file, b"hello world"), Ok(11));
    assert_eq!(files.seek(file, 0, 6), Ok(6));
    assert_eq!(read(&files, file, 100), b"world");
    assert_eq!(read(&files, file, 100), b"");
    assert_eq!(files.seek(file, 2, -5), Ok(6));
    assert_eq!(files.seek(file, 1, -2), Ok(4));
    assert_eq!(read(&files, file, 3), b"o w");
    assert_eq!(files.write_at(file, 0, b"J"), Ok(1));
    assert_eq!(read_at(&files, file, 0, 5), (Ok(()), b"Jello".into()));
    assert_eq!(files.len(file), Ok(11));
    files.set_len(file, 2).unwrap();
    files.sync(file).unwrap();
    let append = files.open(b"inner/new", APPEND).unwrap();
    assert_eq!(files.write(append, b"p"), Ok(1));
    assert_eq!(fs::read(dir.path().join("open/inner/new")).unwrap(), b"Jep");
    files.open(b"inner/new", WRITE | TRUNCATE).unwrap();
    assert_eq!(files.len(file), Ok(0));
    files.rename(b"inner/new", b"moved").unwrap();
    assert_eq!(error(files.remove(b"inner/new")), Some(Error::NotFound));
    files.remove(b"moved").unwrap();
    files.create_dir(b"a").unwrap();
    assert_eq!(error(files.create_dir(b"a")), Some(Error::AlreadyExists));
    files.remove_dir(b"a").unwrap();
}

/// Where the memory for replies ends, the file's position is behind what was read.
#[test]
fn what_was_read_is_passed_on() {
    let (dir, files) = files();
    let content: Vec<u8> = (0..5 * PIECE_BYTES / 2).map(|i| (i / 64 % 251) as u8).collect();
    fs::write(dir.path().join("open/long"), &content).unwrap();
    let file = files.open(b"long", READ).unwrap();
    let (result, first) = collect_at_most(PIECE_BYTES, 3 * PIECE_BYTES, |out| files.read(file, out));
    assert_eq!(result, Ok(()));
    let rest = read(&files, file, 3 * PIECE_BYTES);
    assert!(first.len() == PIECE_BYTES && [first, rest].concat() == content);
    let (result, _) = collect_at_most(0, 10, |out| files.read_at(file, 0, out));
    assert_eq!(result, Err(CallError::Busy));
}

#[test]
fn no_path_leads_out() {
    let (dir, files) = files();
    let secret = dir.path().join("secret");
    let open = dir.path().join("open");
    symlink(&secret, open.join("absolute")).unwrap();
    symlink("../secret", open.join("relative")).unwrap();
    symlink("..", open.join("up")).unwrap();
    symlink("/", open.join("root")).unwrap();
    symlink("inner/../data", open.join("harmless")).unwrap();
    let secret = secret.to_str().unwrap();
    let from_above = format!("{}/../secret", open.display());
    for path in [
        secret,
        "..",
        "../secret",
        "inner/../../secret",
        "absolute",
        "relative",
        "up/secret",
        "root/etc/passwd",
        "/etc/passwd",
        "/",
        &from_above,
        "inner/../../open/../secret",
        "/proc/self/root/etc/passwd",
    ] {
        assert_eq!(error(files.open(path.as_bytes(), READ)), Some(Error::OutsideDir), "{path}");
        assert_eq!(error(files.open(path.as_bytes(), WRITE | CREATE)), Some(Error::OutsideDir), "{path}");
    }
    for path in [secret, "../secret", "up/secret", "../open/../secret"] {
        assert_eq!(error(files.remove(path.as_bytes())), Some(Error::OutsideDir), "{path}");
        assert_eq!(error(files.rename(path.as_bytes(), b"mine")), Some(Error::OutsideDir), "{path}");
        assert_eq!(error(files.rename(b"data", path.as_bytes())), Some(Error::OutsideDir), "{path}");
        assert_eq!(
            error(files.create_dir(format!("{path}/d").as_bytes())),
            Some(Error::OutsideDir),
            "{path}"
        );
    }
    // A link itself may go; what it points to stays.
    files.remove(b"absolute").unwrap();
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    let file = files.open(b"harmless", READ).unwrap();
    assert_eq!(read(&files, file, 3), b"012");
    let file = files.open(b"inner/../data", READ).unwrap();
    assert_eq!(read(&files, file, 3), b"012");
}

#[test]
fn absolute_paths_below_the_directory_are_taken() {
    let (dir, _) = files();
    let link = dir.path().join("link");
    symlink(dir.path().join("open"), &link).unwrap();
    let files = below(&link);
    for name in [&link, &dir.path().join("open").canonicalize().unwrap()] {
        let file = files.open(name.join("data").to_str().unwrap().as_bytes(), READ).unwrap();
        assert_eq!(read(&files, file, 1), b"0");
        // The directory itself opens, as on any Unix, but has nothing to read.
        let file = files.open(name.to_str().unwrap().as_bytes(), READ).unwrap();
        assert!(collect(1, |out| files.read(file, out)).0.is_err());
    }
    let beside = format!("{}sibling", link.display());
    assert_eq!(error(files.open(beside.as_bytes(), READ)), Some(Error::OutsideDir));
}

#[test]
fn the_root_opens_everything() {
    let (dir, _) = files();
    symlink(dir.path().join("secret"), dir.path().join("open/absolute")).unwrap();
    let files = below(Path::new("/"));
    for path in ["secret", "open/../secret", "open/absolute"] {
        let file = files.open(dir.path().join(path).to_str().unwrap().as_bytes(), READ).unwrap();
        assert_eq!(read(&files, file, 100), b"secret");
    }
}

#[test]
fn without_a_directory_there_are_no_files() {
    let files = SharedHandler(Arc::new(OpenFiles::none()));
    for path in ["x", "/etc/passwd", ".", ""] {
        assert_eq!(error(files.open(path.as_bytes(), READ)), Some(Error::NoDir));
        assert_eq!(error(files.remove(path.as_bytes())), Some(Error::NoDir));
    }
    assert!(OpenFiles::below(Path::new("/no/such/dir")).is_err());
}

#[test]
fn odd_paths_and_flags_are_errors() {
    let (_dir, files) = files();
    for path in
        ["", "no\0name", "data\0", "missing", "missing/x", "data/x", &"x".repeat(300), &"x/".repeat(9000)]
    {
        assert!(files.open(path.as_bytes(), READ).is_err(), "{path:?}");
        assert!(files.remove(path.as_bytes()).is_err(), "{path:?}");
        assert!(files.rename(path.as_bytes(), b"inner/y").is_err(), "{path:?}");
        assert!(files.remove_dir(path.as_bytes()).is_err(), "{path:?}");
    }
    assert_eq!(error(files.open(b"no\0name", READ)), Some(Error::InvalidInput));
    for flags in [0, CREATE, TRUNCATE, READ | CREATE, READ | TRUNCATE, APPEND | TRUNCATE] {
        assert_eq!(error(files.open(b"data", flags)), Some(Error::InvalidInput), "{flags:#b}");
    }
    let file = files.open(b"data", READ | 1 << 31).unwrap();
    assert!(error(files.write(file, b"x")).is_some());
    assert_eq!(fs::read(_dir.path().join("open/data")).unwrap(), b"0123456789");
}

#[test]
fn odd_offsets_are_errors() {
    let (_dir, files) = files();
    let file = files.open(b"data", READ | WRITE).unwrap();
    for (whence, offset) in [(0, -1), (1, -1), (2, -11), (2, i64::MIN), (3, 0), (u32::MAX, 0)] {
        assert_eq!(error(files.seek(file, whence, offset)), Some(Error::InvalidInput), "{whence} {offset}");
    }
    assert_eq!(read_at(&files, file, 1 << 40, 5), (Ok(()), vec![]));
    for offset in [u64::MAX, 1 << 63] {
        assert!(read_at(&files, file, offset, 5).0.is_err());
        assert!(files.write_at(file, offset, b"x").is_err());
    }
    assert!(files.set_len(file, u64::MAX).is_err());
    assert_eq!(read_at(&files, file, 8, usize::MAX), (Ok(()), b"89".into()));
    assert_eq!(files.write(file, b""), Ok(0));
}

#[test]
fn a_read_ends_when_the_device_takes_no_more() {
    let (dir, files) = files();
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(dir.path().join("open/big"), &content).unwrap();
    let file = files.open(b"big", READ).unwrap();
    assert!(read(&files, file, 2_700_001) == content[..2_700_001]);
    assert!(read(&files, file, usize::MAX) == content[2_700_001..]);
    assert!(read_at(&files, file, 5, PIECE_BYTES).1 == content[5..5 + PIECE_BYTES]);
    assert_eq!(read(&files, file, 0), b"");
}

#[test]
fn old_and_made_up_handles_are_refused() {
    let (_dir, files) = files();
    let old = files.open(b"data", READ).unwrap();
    files.close(old).unwrap();
    let new = files.open(b"data", READ).unwrap();
    assert_ne!(old, new);
    for handle in [0, old, new + 1, new ^ 1 << 63, u64::MAX, u64::from(u32::MAX)] {
        assert_eq!(error(files.close(handle)), Some(Error::Closed));
        assert_eq!(error(files.len(handle)), Some(Error::Closed));
        assert_eq!(error(files.write(handle, b"x")), Some(Error::Closed));
        assert_eq!(error(collect(9, |out| files.read(handle, out)).0), Some(Error::Closed));
    }
    assert_eq!(files.len(new), Ok(10));
}

#[test]
fn a_handle_of_another_device_is_refused() {
    let ((_dir, files), (_other_dir, others)) = (files(), files());
    let (own, other) = (files.open(b"data", READ | WRITE).unwrap(), others.open(b"data", READ).unwrap());
    assert_eq!(error(files.len(other)), Some(Error::Closed));
    assert_eq!(error(files.write(other, b"x")), Some(Error::Closed));
    assert_eq!(error(files.close(other)), Some(Error::Closed));
    assert_eq!((files.len(own), others.len(other)), (Ok(10), Ok(10)));
}

#[test]
fn the_number_of_open_files_is_bounded() {
    let (dir, files) = files();
    let mut open = Vec::new();
    let mut refused = None;
    for _ in 0..10_000 {
        match files.open(b"data", READ) {
            Ok(file) => open.push(file),
            Err(error) => {
                refused = Some(Error::from(error));
                break;
            }
        }
    }
    assert_eq!(refused, Some(Error::TooManyOpen));
    assert!(open.len() <= 4096);
    assert_eq!(files.0.open_count(), open.len());
    assert_eq!(error(files.open(b"never", WRITE | CREATE)), Some(Error::TooManyOpen));
    assert!(!dir.path().join("open/never").exists());
    files.close(open[5]).unwrap();
    let file = files.open(b"data", READ).unwrap();
    files.0.close_all();
    assert_eq!(files.0.open_count(), 0);
    assert_eq!(error(files.close(file)), Some(Error::Closed));
    assert_eq!(error(files.close(open[0])), Some(Error::Closed));
    for _ in 0..10_000 {
        let file = files.open(b"data", READ).unwrap();
        files.close(file).unwrap();
    }
    assert_eq!(files.0.open_count(), 0);
}

/// Runs itself again where the system allows 64 files.
#[test]
fn half_of_the_processs_files_are_left_to_the_program() {
    const NAME: &str = "services::files::tests::half_of_the_processs_files_are_left_to_the_program";
    const AGAIN: &str = "HOSTCALL_TEST_FEW_FILES";
    if std::env::var_os(AGAIN).is_none() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        let output = shell.args(["--exact", NAME]).env(AGAIN, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let (dir, files) = files();
    for _ in 0..32 {
        files.open(b"data", READ).unwrap();
    }
    assert_eq!(error(files.open(b"data", READ)), Some(Error::TooManyOpen));
    let own: Vec<_> = (0..16).map(|_| fs::File::open(dir.path().join("secret")).unwrap()).collect();
    drop(own);
}

#[test]
fn the_bound_may_be_said() {
    let (dir, _) = files();
    let builtins = crate::services::Builtins::builder().stdin(std::io::empty()).dir(dir.path());
    let builtins = builtins.open_files(3).build().unwrap();
    let files = SharedHandler(builtins.files_shared());
    // Programs of LLVM's protocol have tables of their own, and the same bound.
    let of_program = files.0.permit().unwrap();
    let open = [0; 2].map(|_| files.open(b"secret", READ).unwrap());
    assert_eq!(error(files.open(b"secret", READ)), Some(Error::TooManyOpen));
    drop(of_program);
    files.open(b"secret", READ).unwrap();
    files.close(open[0]).unwrap();
    assert_eq!(error(files.open(b"missing", READ)), Some(Error::NotFound));
    files.open(b"secret", READ).unwrap();
    assert_eq!(error(files.open(b"secret", READ)), Some(Error::TooManyOpen));
}

#[test]
fn files_are_a_launchs() {
    let (_dir, files) = files();
    let [one, two, ended] = [1, 2, 3].map(|index| LaunchId::new(index, 1));
    files.0.set_launches(move |launch| launch != ended);
    let open = |launch| {
        called_by(Caller { launch, ..Caller::default() }, || files.open(b"data", READ | WRITE | CREATE))
    };
    let [first, second, third] = [one, two, one].map(|launch| open(launch).unwrap());
    files.0.close_of(one);
    assert_eq!(files.0.open_count(), 1);
    assert_eq!([first, third].map(|file| error(files.len(file))), [Some(Error::Closed); 2]);
    assert_eq!(files.len(second), Ok(10));
    // The launch ended while its file was being opened.
    assert_eq!(open(ended), Err(CallError::Cancelled));
    assert_eq!(files.0.open_count(), 1);
}

#[test]
fn lanes_share_a_file_by_offset() {
    let (dir, files) = files();
    let file = files.open(b"shared", READ | WRITE | CREATE).unwrap();
    let files = &files;
    std::thread::scope(|scope| {
        for lane in 0..8u8 {
            scope.spawn(move || {
                for row in 0..100 {
                    assert_eq!(files.write_at(file, row * 80 + u64::from(lane) * 10, &[lane; 10]), Ok(10));
                }
            });
        }
    });
    let content = fs::read(dir.path().join("open/shared")).unwrap();
    assert_eq!(content.len(), 8000);
    assert!(content.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / 10 % 8));
}

#[test]
fn mappings_are_a_launchs() {
    let (_dir, files) = files();
    let [one, two, ended] = [1, 2, 3].map(|index| LaunchId::new(index, 1));
    files.0.set_launches(move |launch| launch != ended);
    let as_of = |launch| Caller { launch, ..Caller::default() };
    let map = |launch| called_by(as_of(launch), || files.map(files.open(b"data", READ)?, false));
    // Without a mapper there is no address, and the length all the same.
    let [(first, address, len), (second, ..)] = [one, two].map(|launch| map(launch).unwrap());
    assert_eq!((address, len), (0, 10));
    assert_eq!(map(ended), Err(CallError::Cancelled));
    let unmap = |launch, mapping| called_by(as_of(launch), || files.unmap(mapping));
    assert_eq!(error(unmap(two, first)), Some(Error::Closed));
    assert_eq!(unmap(one, first), Ok(()));
    assert_eq!(error(unmap(one, first)), Some(Error::Closed));
    files.0.unmap_of(&two.into());
    assert_eq!(error(unmap(two, second)), Some(Error::Closed));
    let directory = files.open(b"inner", READ).unwrap();
    assert_eq!(error(files.map(directory, false)), Some(Error::InvalidInput));
    // A mapping allows what the file was opened for.
    let [to_read, to_write] = [READ, WRITE].map(|flags| files.open(b"data", flags).unwrap());
    for (file, writable) in [(to_read, true), (to_write, false), (to_write, true)] {
        assert_eq!(error(files.map(file, writable)), Some(Error::PermissionDenied));
    }
}

/// A reply with room in the caller's memory, which counts how often that was filled.
/// Writes to one file take turns, and others none: to write to a pipe may wait for somebody who writes or reads.
#[test]
fn writes_to_a_file_take_turns() {
    let (dir, files) = files();
    let service = FilesInTurn::serve(files.0.clone());
    let [a, again, b] = [b"a", b"a", b"b"].map(|name| files.open(name, WRITE | CREATE).unwrap());
    let turn_at = |name, file, offset| {
        let method = service.methods().iter().position(|method| method.name() == name).unwrap();
        let words = [file, offset, 0];
        let request = Request { words: &words, bytes: b"", reply_capacity: 0, caller: Caller::default() };
        service.turn(method, request)
    };
    let turn = |name, file| turn_at(name, file, 0);
    let of_a = turn("Files::write_at", a);
    assert!(of_a.is_some());
    assert_eq!([turn("Files::write_at", again), turn("Files::write", a)], [of_a; 2]);
    assert_ne!(turn("Files::write", b), of_a);
    // Each of two threads writes to every other part.
    let of_parts = [0u64, (2 << 20) - 1, 2 << 20, 4 << 20].map(|at| turn_at("Files::write_at", a, at));
    assert_eq!([of_parts[0], of_parts[1], of_parts[3]], [of_a; 3]);
    assert!(of_parts[2].is_some() && of_parts[2] != of_a);
    assert_eq!([turn("Files::read_at", a), turn("Files::write_at", a + 1000)], [None; 2]);
    assert!(Command::new("mkfifo").arg(dir.path().join("open/pipe")).status().unwrap().success());
    let pipe = files.open(b"pipe", READ | WRITE).unwrap();
    assert_eq!(turn("Files::write", pipe), None);
}
