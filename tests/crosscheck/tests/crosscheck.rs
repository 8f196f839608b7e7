//! Every script with LLVM's server and with ours: the same answers, output, files and end.

use hostcall_crosscheck::SCRIPTS;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// What came of a script.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    record: String,
    files: BTreeMap<String, String>,
}

fn run(server: &str, script: &str, lanes: u32) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    let record = dir.path().join("record");
    let mut child = Command::new(env!("CARGO_BIN_EXE_hostcall-crosscheck"))
        .args([server, script, &lanes.to_string()])
        .arg(&record)
        .current_dir(&files)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = "a line that is longer\nshort\n".repeat(200);
    // Scripts that do not read it end before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let files = fs::read_dir(&files).unwrap().map(|file| {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        (name, String::from_utf8(fs::read(path).unwrap()).unwrap())
    });
    Outcome {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        files: files.collect(),
        record: fs::read_to_string(record).unwrap_or_default(),
    }
}

fn compare(lanes: u32) {
    for script in &SCRIPTS {
        let expected = run("llvm", script.name, lanes);
        if script.name != "exit" && script.name != "abort" {
            assert_eq!(expected.code, Some(0), "{} with LLVM's server: {}", script.name, expected.stderr);
        }
        for server in ["19", "20", "doorbell"] {
            let ours = run(server, script.name, lanes);
            let what = format!("{} with {lanes} lanes and server {server}", script.name);
            for (ours, expected, part) in [
                (&ours.stdout, &expected.stdout, "stdout"),
                (&ours.stderr, &expected.stderr, "stderr"),
                (&ours.record, &expected.record, "record"),
            ] {
                let mut lines = ours.lines().zip(expected.lines()).enumerate();
                if let Some((number, (ours, expected))) = lines.find(|(_, (ours, expected))| ours != expected)
                {
                    panic!("{what}: {part}, line {number}:\n ours: {ours}\nLLVM's: {expected}");
                }
            }
            assert!(ours == expected, "{what}: {ours:?}\n\n{expected:?}");
        }
    }
}

#[test]
fn a_thread_sees_what_llvms_server_does() {
    compare(1);
}

#[test]
fn waves_of_32_see_what_llvms_server_does() {
    compare(32);
}

#[test]
fn waves_of_64_see_what_llvms_server_does() {
    compare(64);
}
