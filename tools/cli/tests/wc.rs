//! The program `wc` counts, prints and fails as the system's `wc` does.

mod common;

use common::{build, expect, fed, hostcall, stderr, stdout};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| build(&common::here("../../programs/wc")))
}

/// Both commands, in the folder, with arguments divided by spaces.
fn commands(folder: &Path, options: &str, arguments: &str) -> [Command; 2] {
    let mut ours = hostcall(["run"]);
    // Behind `--` all is the program's.
    ours.args(options.split_whitespace()).arg(image()).arg("--");
    let mut theirs = Command::new("wc");
    theirs.env("LC_ALL", "C.UTF-8").stdin(std::process::Stdio::null());
    [ours, theirs].map(|mut command| {
        command.args(arguments.split_whitespace()).current_dir(folder);
        command
    })
}

#[track_caller]
fn same(folder: &Path, options: &str, arguments: &str) {
    let [ours, theirs] = commands(folder, options, arguments).map(|mut command| command.output().unwrap());
    expect(&ours, theirs.status.code().unwrap(), &stdout(&theirs), &stderr(&theirs));
}

/// Numbers that look random, the same each time.
fn noise(len: usize) -> impl Iterator<Item = u32> {
    let mut state = 1u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    })
    .take(len)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("empty", b"");
    write("short", b"two words\n");
    write("open-ended", b"no newline at the end");
    write("newline", b"\n");
    write("-dash", b"a b c");
    write("spaces", &b" \t\n\r\x0b\x0c".repeat(10_000));
    write("one-word", &b"x".repeat(1_000_000));
    write("zeros", &vec![0; 300_000]);
    write("utf-8", "für 歯車\u{2003}and\u{a0}😀 \u{85} \u{2028} \u{301}\n".repeat(20_000).as_bytes());
    write("binary", &noise(2_000_000).map(|number| number as u8).collect::<Vec<_>>());
    let pieces = [&b" "[..], b"\n", b"a", b"\0", b"\xc3", b"\xc3\xa9", b"\xe2\x80\x83", b"\xf0\x9f", b"\x85"];
    write(
        "mixed",
        &noise(300_000).flat_map(|number| pieces[number as usize % 9]).copied().collect::<Vec<_>>(),
    );
    let pieces =
        ["a", "\t", "\t\t", " ", "\n", "\r", "\x0c", "\x0b", "\x01", "é", "歯", "\u{301}", "\u{2028}", "😀"];
    let line =
        noise(300_000).map(|number| pieces[if number % 97 == 0 { 4 } else { number as usize / 97 % 14 }]);
    write("columns", line.collect::<String>().as_bytes());
    // Hardly a tab or a line end, so that lines reach over many parts.
    let pieces = noise(300_000).map(|number| match number % 60_000 {
        0 => "\n",
        1..4 => "\t",
        other => ["x", "é", "歯"][other as usize % 3],
    });
    write("long-lines", pieces.collect::<String>().as_bytes());
    write("every-character", ('\0'..=char::MAX).collect::<String>().as_bytes());
    fs::create_dir(folder.path().join("folder")).unwrap();
    folder
}

#[test]
fn files_are_counted_as_by_the_systems_wc() {
    let folder = folder();
    for name in
        ["empty", "short", "open-ended", "newline", "spaces", "one-word", "zeros", "utf-8", "binary", "mixed"]
    {
        same(folder.path(), "", name);
        same(folder.path(), "--threads 64 --wave 64 --blocks 3,2", name);
        same(folder.path(), "--threads 1 --blocks 1", name);
    }
}

#[test]
fn characters_and_columns_are_counted_as_by_the_systems_wc() {
    let folder = folder();
    for name in
        ["empty", "open-ended", "utf-8", "binary", "mixed", "columns", "long-lines", "every-character"]
    {
        same(folder.path(), "", &format!("-lwmcL {name}"));
        same(folder.path(), "--threads 64 --wave 64 --blocks 3,2", &format!("-mL {name} short"));
        same(folder.path(), "--threads 1 --blocks 1", &format!("-L {name}"));
    }
    for (text, columns) in
        [("a\tb", 9), ("12345678\t|", 17), ("ab\rc", 2), ("ab\x0cc\n\tx", 9), ("歯\te\u{301}", 9)]
    {
        fs::write(folder.path().join("line"), text).unwrap();
        same(folder.path(), "", "--max-line-length line");
        let output =
            hostcall(["run"]).arg(image()).args(["-L", "line"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(stdout(&output), format!("{columns} line\n"), "{text:?}");
    }
}

#[test]
fn rows_and_errors_are_those_of_the_systems_wc() {
    let folder = folder();
    for arguments in [
        "short empty binary",
        "short missing short",
        "missing",
        "missing missing",
        "folder",
        "short folder",
        "-l folder",
        "short/x",
        "-l short",
        "-l short short",
        "-w utf-8",
        "-c binary",
        "-c folder short",
        "-lw short binary",
        "-cl short",
        "-wcl short",
        "short -l",
        "--lines --words short",
        "--bytes empty",
        "--chars --max-line-length utf-8 short",
        "-m utf-8",
        "-m folder",
        "-L short open-ended empty",
        "-- -dash",
        "-l -- -dash -l",
        "-z short",
        "-lzx short",
        "- short",
        "-",
        "",
        "-l",
        "--li short",
        "--max short",
        "--lines=3 short",
        "--linesx short",
        "-l --linesx short --words",
    ] {
        same(folder.path(), "", arguments);
    }
}

/// File names as the system has them: bytes of any kind, but zero and the slash.
const NAMES: [&[u8]; 22] = [
    b"",
    b"\xff",
    b"a\xfe b",
    b"two words",
    b"tab\there",
    b"line\nend",
    b"\x01\x7f",
    b"it's",
    b"it's $5",
    b"'",
    b"\"'",
    b"~",
    b"a~",
    b"#1",
    b"c#",
    b"{}",
    b"{",
    b"a:b",
    b"q?",
    "für 歯車".as_bytes(),
    "\u{85}é'".as_bytes(),
    b"\xc3",
];

#[test]
fn file_names_are_those_of_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let compare = |names: &[&[u8]]| {
        let names = names.iter().map(|name| OsStr::from_bytes(name));
        let outputs =
            commands(folder.path(), "", "").map(|mut command| command.args(names.clone()).output().unwrap());
        let [ours, theirs] = &outputs;
        assert_eq!(ours.status.code(), theirs.status.code(), "{}", stderr(ours));
        // Both write to two streams, of which each has its own order.
        assert_eq!(stderr(ours), stderr(theirs));
        assert!(ours.stdout == theirs.stdout, "{}\n{}", stdout(ours), stdout(theirs));
    };
    // None of them exists.
    compare(&NAMES);
    for name in NAMES.iter().filter(|name| !name.is_empty()) {
        fs::write(folder.path().join(OsStr::from_bytes(name)), b"one two\n").unwrap();
    }
    compare(&NAMES);
    compare(&[b""]);
    compare(&[b"two words", b""]);
}

#[test]
fn the_help_is_that_of_the_systems_wc_without_what_is_not_there() {
    let [ours, theirs] =
        commands(Path::new("."), "", "--help").map(|mut command| stdout(&command.output().unwrap()));
    let options = |text: &str| {
        let lines = text.lines().filter(|line| line.trim_start().starts_with('-'));
        lines.filter(|line| !line.contains("files0")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(options(&ours), options(&theirs));
    assert!(ours.starts_with("Usage: wc [OPTION]... [FILE]...\n"), "{ours}");
    let output = hostcall(["run"]).arg(image()).args(["--help", "--bogus", "missing"]).output().unwrap();
    expect(&output, 0, &ours, "");
    let output = hostcall(["run"]).arg(image()).arg("--version").output().unwrap();
    assert!(output.status.success() && stdout(&output).starts_with("wc (hostcall) "));
}

#[test]
fn the_standard_input_is_counted() {
    let folder = folder();
    for name in ["empty", "open-ended", "utf-8", "mixed", "binary"] {
        let input = fs::read(folder.path().join(name)).unwrap();
        for arguments in ["", "-", "-w", "-mL", "short - empty"] {
            let [ours, theirs] =
                commands(folder.path(), "", arguments).map(|mut command| fed(&mut command, &input));
            expect(&ours, 0, &stdout(&theirs), "");
        }
    }
}

#[test]
fn a_large_file_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let piece: Vec<u8> = noise(1 << 20).map(|number| b" \nabcdefgh"[number as usize % 10]).collect();
    fs::write(folder.path().join("large"), piece.repeat(100)).unwrap();
    same(folder.path(), "", "large");
}
