use super::*;
use crate::llvm::stream::Amount;
use std::fs;
use tempfile::TempDir;

fn files() -> (TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), "one\ntwo\nthree").unwrap();
    let files = Files::new(Arc::new(OpenFiles::below(dir.path()).unwrap()));
    (dir, files)
}

fn read(file: &OpenFile, bytes: usize, line: bool) -> String {
    let mut out = Vec::new();
    file.lock().read(Amount { bytes, line }, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn modes_are_cs() {
    let (dir, files) = files();
    for mode in ["", "q", "rw", "r+q", "+r"] {
        assert_eq!(files.open(b"text\0", mode.as_bytes()), 0, "{mode}");
    }
    assert_eq!(files.open(b"missing\0", b"r\0"), 0);
    assert_eq!(files.open(b"text\0", b"wx\0"), 0);
    assert_eq!(files.open(b"../text\0", b"r\0"), 0);
    let written = files.open(b"new\0", b"w\0junk");
    assert!(written != 0 && written & 3 == 0);
    let file = files.get(written).unwrap();
    assert_eq!(file.lock().write(b"hello"), 5);
    assert_eq!(read(&file, 5, false), "");
    assert!(file.lock().reading.error);
    assert_eq!(files.close(written), 0);
    assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"hello");
    let appended = files.open(b"new\0", b"a+b\0");
    let file = files.get(appended).unwrap();
    assert_eq!(file.lock().tell(), 5);
    assert_eq!(file.lock().seek(1, 0), 0);
    assert_eq!(read(&file, 2, false), "el");
    assert_eq!(file.lock().write(b"!"), 1);
    assert_eq!(file.lock().tell(), 6);
    assert_eq!(files.close(appended), 0);
    assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"hello!");
}

#[test]
fn old_and_made_up_handles_are_nothing() {
    let (_dir, files) = files();
    let first = files.open(b"text\0", b"r\0");
    assert!(files.get(first).is_some());
    assert_eq!(files.close(first), 0);
    assert_eq!(files.close(first), -1);
    let second = files.open(b"text\0", b"r\0");
    assert_ne!(first, second);
    for wrong in [0, 4, first, second ^ 1 << 40, second + 4, !3] {
        assert!(files.get(wrong).is_none(), "{wrong:#x}");
        assert_eq!(files.close(wrong), -1);
    }
    assert!(files.get(second).is_some());
}

#[test]
fn reading_ends_lines_and_takes_characters_back() {
    let (_dir, files) = files();
    let file = files.get(files.open(b"text\0", b"r\0")).unwrap();
    assert_eq!(read(&file, 100, true), "one\n");
    assert_eq!(read(&file, 2, true), "tw");
    assert_eq!(file.lock().unget(i64::from(b'X')), i64::from(b'X'));
    assert_eq!(file.lock().tell(), 5);
    assert_eq!(read(&file, 3, false), "Xo\n");
    assert!(!file.lock().reading.end);
    assert_eq!(read(&file, 100, false), "three");
    assert!(file.lock().reading.end);
    assert_eq!(file.lock().unget(-1), -1);
    assert_eq!(file.lock().unget(i64::from(b'Y')), i64::from(b'Y'));
    assert!(!file.lock().reading.end);
    assert_eq!(read(&file, 100, false), "Y");
    assert_eq!(file.lock().seek(-5, 2), 0);
    assert!(!file.lock().reading.end);
    assert_eq!(read(&file, 2, false), "th");
    assert_eq!(file.lock().unget(i64::from(b'h')), i64::from(b'h'));
    assert_eq!(file.lock().seek(1, 1), 0);
    assert_eq!(read(&file, 100, false), "ree");
    assert_eq!(file.lock().seek(-1, 0), -1);
    assert_eq!(file.lock().seek(0, 9), -1);
}

#[test]
fn reading_and_writing_take_turns_at_one_position() {
    let (dir, files) = files();
    let handle = files.open(b"text\0", b"r+\0");
    let file = files.get(handle).unwrap();
    assert_eq!(read(&file, 4, false), "one\n");
    assert_eq!(file.lock().write(b"TWO"), 3);
    assert_eq!(file.lock().tell(), 7);
    assert_eq!(read(&file, 3, false), "\nth");
    assert_eq!(file.lock().flush(), 0);
    assert_eq!(fs::read(dir.path().join("text")).unwrap(), b"one\nTWO\nthree");
    let long = vec![b'z'; 200_000];
    assert_eq!(file.lock().write(&long), long.len());
    assert_eq!(files.flush_all(), 0);
    assert_eq!(fs::read(dir.path().join("text")).unwrap().len(), 10 + long.len());
    assert_eq!(files.rename(b"text\0", b"moved\0"), 0);
    assert_eq!(files.remove(b"text\0"), -1);
    assert_eq!(files.remove(b"moved\0"), 0);
}

/// A pipe has no end to begin at.
#[test]
fn pipes_are_appended_to() {
    let (dir, files) = files();
    let path = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Whoever opens a pipe to write waits for a reader.
    let mut reader = fs::File::options().read(true).write(true).open(&path).unwrap();
    let pipe = files.open(b"pipe\0", b"a\0");
    assert_ne!(pipe, 0);
    assert_eq!(files.get(pipe).unwrap().lock().write(b"hello"), 5);
    assert_eq!(files.close(pipe), 0);
    let mut read = [0; 5];
    std::io::Read::read_exact(&mut reader, &mut read).unwrap();
    assert_eq!(&read, b"hello");
}
