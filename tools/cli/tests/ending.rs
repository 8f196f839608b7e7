//! Where a limit, a slow reader or the system ends a run: what the program printed arrives or is counted, and the report says
//! who was waited for.

mod common;

use common::{act, acting, hostcall, stderr, stdout};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Bytes that `much` prints.
const MUCH: usize = 13 * 20_000;

/// Bytes of which a writer that waits may have taken some.
const PIECE: usize = 64 << 10;

/// Runs a program whose output nobody reads before the command has ended, or for so long. Returns what was read, too.
fn unread(options: &str, act: &str, reads_after: Option<Duration>) -> (Output, Vec<u8>) {
    let mut child = acting(options, &[act]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut read = Vec::new();
    if let Some(after) = reads_after {
        std::thread::sleep(after);
        out.read_to_end(&mut read).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    out.read_to_end(&mut read).unwrap();
    (output, read)
}

/// Returns how many bytes a report says to be lost.
fn lost(report: &str) -> usize {
    let line =
        report.lines().find(|line| line.ends_with(": they are lost")).expect("what is lost is counted");
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn output_that_nobody_reads_is_counted_and_its_reader_named() {
    let (output, read) = unread("--timeout 2", "much", None);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("within 2 s: ") && first.contains(" wait for the reader of the standard output"),
        "{text}"
    );
    let bytes = read.len() + lost(&text);
    assert!((MUCH..=MUCH + PIECE).contains(&bytes), "{bytes}: {text}");
    // A program that prints without end is not said to hold itself up.
    let (output, read) = unread("--threads 1 --timeout 1", "lines", None);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    assert!(text.lines().next().unwrap().contains(" wait for the reader of the standard output"), "{text}");
    assert!(!text.contains("its lane") && lost(&text) > 0 && !read.is_empty(), "{text}");
}

#[test]
fn output_arrives_at_a_reader_that_comes_late() {
    // Before the limit where the command was slow to begin, else within the time that a reader has after it.
    let (output, read) = unread("--timeout 1", "much", Some(Duration::from_millis(1500)));
    assert_eq!(read.len(), MUCH, "{:?}: {}", output.status, stderr(&output));
    assert!(!stderr(&output).contains("lost"), "{}", stderr(&output));
}

/// Runs the command with files of at most four kibibytes.
fn with_short_files(folder: &Path, line: &str) -> Output {
    let line = format!("ulimit -f 8; exec \"$0\" {line}");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &line, env!("CARGO_BIN_EXE_hostcall"), common::acts()])
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn a_file_that_must_not_grow_is_an_error_of_its_writer() {
    let folder = tempfile::tempdir().unwrap();
    let output = with_short_files(folder.path(), "run \"$1\" much > out");
    let sentence = "hostcall: cannot write to the standard output: File too large (os error 27)\n";
    assert_eq!(
        (output.status.code(), &*stderr(&output)),
        (Some(1), sentence),
        "{:?}",
        output.status.signal()
    );
    let output = with_short_files(folder.path(), "run --trace trace --timeout 1 \"$1\" ask");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    assert!(text.contains("hostcall: trace: the trace was not written to its end ("), "{text}");
    assert!(text.contains("File too large"), "{text}");
    let output = hostcall(["trace", "info"]).arg(folder.path().join("trace")).output().unwrap();
    let said = stdout(&output) + &stderr(&output);
    assert!(said.contains("the trace's end is missing"), "{said}");
}

/// A `pthread_create` that refuses after a number of threads.
const REFUSES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
static int left = -1;
__attribute__((constructor)) static void begin(void) { left = atoi(getenv("THREADS")); }
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return __atomic_fetch_sub(&left, 1, __ATOMIC_SEQ_CST) > 0 ? create(thread, attributes, start, argument) : EAGAIN;
}
"#;

/// Asserts of a command that it ends well or with a sentence, however many threads the system starts.
fn with_few_threads(library: &Path, arguments: &[&str]) {
    for threads in 0..14 {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_hostcall")]).args(arguments).stdin(Stdio::null());
        let output = command.env("LD_PRELOAD", library).env("THREADS", threads.to_string()).output().unwrap();
        let text = stderr(&output);
        let (code, told) = (output.status.code(), text.lines().all(|line| line.starts_with("hostcall: ")));
        assert!(
            matches!(code, Some(0 | 1)) && told,
            "{threads} threads: {code:?}\n{text}{}",
            stdout(&output)
        );
        assert!(code == Some(0) || text.contains("thread"), "{threads} threads: {code:?}\n{text}");
    }
}

#[test]
fn nothing_panics_where_the_system_starts_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("refuses.c"), folder.path().join("refuses.so"));
    fs::write(&source, REFUSES).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let trace = folder.path().join("trace");
    let (trace, table) = (trace.to_str().unwrap(), folder.path().join("t.csv"));
    assert!(act(&format!("--trace {trace}"), &["both"]).status.success());
    with_few_threads(&library, &["run", "--cpu-threads", "1", "--trace", trace, common::acts(), "nothing"]);
    for arguments in [
        &["trace", "info", trace][..],
        &["trace", "export", trace, table.to_str().unwrap()],
        &["devices", "-v"],
    ] {
        with_few_threads(&library, arguments);
    }
}
