//! A program's streams, arguments and exit code are the command's own.

mod common;

use common::{act, acting, expect, fed, here, hostcall, stderr, stdout};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn arguments_are_passed_as_they_are() {
    let output = act("", &["arguments", "-l", "--timeout", "3", "--", "", "é b", "--env"]);
    expect(&output, 0, "<-l>\n<--timeout>\n<3>\n<-->\n<>\n<é b>\n<--env>\n", "");
    // The first one behind the program ends the command's own, as cargo has it.
    let mut command = hostcall(["run", common::acts(), "--", "arguments", "--", "-o"]);
    expect(&command.output().unwrap(), 0, "<-->\n<-o>\n", "");
}

#[test]
fn arguments_and_variables_need_not_be_text() {
    let name = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let output = acting("", &["arguments"]).arg(name(b"\xff\xfe")).arg(name(b"a\x80")).output().unwrap();
    assert_eq!(output.stdout, b"<\xff\xfe>\n<a\x80>\n");
    let mut command = hostcall(["run"]);
    command.arg("--env").arg(name(b"A\xff=\xfe=")).args([common::acts(), "env"]).arg(name(b"A\xff"));
    let output = command.output().unwrap();
    assert_eq!((&output.stdout[..], &*stderr(&output)), (&b"\xfe=\n"[..], ""));
    let output = acting("--inherit-env", &["env", "BYTES"]).env("BYTES", name(b"\x81")).output().unwrap();
    assert_eq!((&output.stdout[..], &*stderr(&output)), (&b"\x81\n"[..], ""));
}

#[test]
fn the_software_device_is_made_as_asked_for() {
    let overflow = act("", &["deep"]);
    assert_eq!(overflow.status.code(), Some(1), "{}", stderr(&overflow));
    expect(&act("--stack 1M --cpu-threads 2", &["deep"]), 0, "200\n", "");
}

#[test]
fn a_package_is_built_as_asked_for() {
    let acts = here("tests/programs/acts");
    let run = |options: &[&str]| {
        let mut command = hostcall(["run", "--quiet"]);
        command.args(options).arg(&acts).arg("built").output().unwrap()
    };
    expect(&run(&[]), 0, "extra false, debug false\n", "");
    expect(&run(&["--profile", "dev", "--features", "extra"]), 0, "extra true, debug true\n", "");
    // The usual image is where it was, as it was.
    expect(&act("", &["built"]), 0, "extra false, debug false\n", "");
}

/// The standard library takes a closed output for one that takes all.
#[test]
fn a_closed_output_fails_the_run() {
    let without = |closed: &str, arguments: &[&str]| {
        let mut shell = Command::new("sh");
        let line = format!("exec \"$0\" \"$@\" {closed}");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_hostcall")]).args(arguments).output().unwrap()
    };
    let closed = |arguments: &[&str]| without(">&-", arguments);
    let sentence = "hostcall: cannot write to the standard output: Bad file descriptor (os error 9)\n";
    let output = closed(&["run", common::acts(), "both"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains(sentence), "{}", stderr(&output));
    expect(&closed(&["devices"]), 1, "", sentence);
    // What prints nothing needs none.
    assert_eq!(closed(&["run", common::acts(), "return"]).status.code(), Some(7));
    // Of a closed standard error the exit code alone can tell.
    let output = without("2>&-", &["run", common::acts(), "both"]);
    assert!(output.status.code() == Some(1) && !output.stdout.is_empty(), "{output:?}");
    assert_eq!(without("2>&-", &["run", common::acts(), "return"]).status.code(), Some(7));
}

#[test]
fn output_that_cannot_be_written_fails_the_run() {
    for act in ["both", "return"] {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = acting("", &[act]).stdout(full()).output().unwrap();
        let expected = if act == "both" { 1 } else { 7 };
        assert_eq!(output.status.code(), Some(expected), "{}", stderr(&output));
        let told = stderr(&output).contains("hostcall: cannot write to the standard output: No space left");
        assert_eq!(told, act == "both", "{}", stderr(&output));
        let output = hostcall(["devices"]).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("No space left"));
        let output = hostcall(["bench", "--only", "start"]).stdout(full()).output().unwrap();
        let sentence =
            "hostcall: cannot write to the standard output: No space left on device (os error 28)\n";
        expect(&output, 1, "", sentence);
        let output = acting("--report json", &[act]).stdout(full()).output().unwrap();
        let sentence = "hostcall: cannot write the report to the standard output: No space left on device (os error 28)\n";
        expect(&output, 1, "", sentence);
    }
}

#[test]
fn grids_and_waves_are_what_was_asked_for() {
    assert!(stdout(&act("", &["grid"])).ends_with("3 of 4, [3, 0, 0] of [4, 1, 1], wave of 32\n"));
    let output = act("--threads 2,1,2 --blocks 1,3 --wave 64 --device cpu", &["grid"]);
    let mut lines: Vec<String> = stdout(&output).lines().map(Into::into).collect();
    lines.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
    assert_eq!(lines.len(), 12);
    assert_eq!(lines[11], "11 of 12, [1, 0, 1] of [2, 1, 2], wave of 64");
}

#[test]
fn the_exit_code_is_the_programs() {
    expect(&act("", &["nothing"]), 0, "", "");
    expect(&act("", &["return"]), 7, "", "");
    expect(&act("", &["exit"]), 9, "", "");
}

#[test]
fn a_panic_gives_terminals_no_orders() {
    let output = act("", &["orders"]);
    let text = stderr(&output);
    assert!(text.contains("\\u{1b}[31mred\n3") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_panic_says_where_and_what() {
    let output = act("", &["panic"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(101));
    assert!(text.starts_with("hostcall: kernel main: lane 0 of workgroup (0, 0, 0) panicked at "), "{text}");
    assert!(text.contains("lib.rs:") && text.ends_with(": the sum is 3\n"), "{text}");
    let output = act("", &["index"]);
    assert_eq!(output.status.code(), Some(101));
    assert!(stderr(&output).ends_with("the len is 3 but the index is 3\n"));
}

#[test]
fn a_fault_is_one_sentence() {
    let output = act("", &["null"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("SIGSEGV"));
}

#[test]
fn the_program_sees_only_its_own_variables() {
    let variable = |options, name| stdout(&act(options, &["env", name]));
    assert_eq!(variable("--env A=1 --env B=b=c --env C=", "B"), "b=c\n");
    assert_eq!(variable("--env A=1 --env A=2", "A"), "2\n");
    assert_eq!(variable("--env C=", "C"), "\n");
    assert_eq!(variable("", "PATH"), "none\n");
}

#[test]
fn standard_streams_are_the_commands() {
    let input: Vec<u8> = (0..300_000u32).map(|i| i.wrapping_mul(i) as u8).collect();
    let output = fed(&mut acting("", &["echo"]), &input);
    assert!(output.status.success() && output.stdout == input && output.stderr.is_empty());
    expect(&act("", &["echo"]), 0, "", "");
    expect(&act("", &["both"]), 0, "to stdout", "to stderr\n");
}

#[test]
fn files_are_reached_below_the_folder_only() {
    let folder = tempfile::tempdir().unwrap();
    let (root, inside) = (folder.path(), folder.path().join("inside"));
    fs::create_dir(&inside).unwrap();
    fs::write(root.join("secret"), "secret").unwrap();
    fs::write(inside.join("open"), "open").unwrap();
    symlink("../secret", inside.join("link")).unwrap();
    symlink("..", inside.join("up")).unwrap();
    symlink("open", inside.join("fine")).unwrap();

    let read = |dir: &str, path: &str| acting(dir, &["read", path]).current_dir(&inside).output().unwrap();
    let absolute = root.join("secret");
    for dir in ["", "--dir ."] {
        expect(&read(dir, "open"), 0, "open", "");
        expect(&read(dir, "fine"), 0, "open", "");
        for outside in ["../secret", "link", "up/secret", "./../inside/../secret", absolute.to_str().unwrap()]
        {
            let refused = "the path leads out of the directory that the host opened: open another with \
                           `Builtins::builder().dir(..)`, or `--dir` of `hostcall run`\n";
            expect(&read(dir, outside), 1, "", refused);
        }
        expect(&read(dir, "nothing"), 1, "", "there is no such file or directory\n");
    }
    expect(&read("--dir ..", "secret"), 0, "secret", "");
    expect(&read("--dir /", absolute.to_str().unwrap()), 0, "secret", "");
    expect(&read("--dir /", "../secret"), 0, "secret", "");
}

#[test]
fn a_timeout_reports_what_the_program_waited_for() {
    for (act_name, report) in [
        ("forever", "none of its 4 lanes waits for a call"),
        ("sleep", "none of its 4 lanes waits for a call"),
    ] {
        let output = act("--timeout 0.3", &[act_name]);
        assert_eq!(output.status.code(), Some(124));
        let text = stderr(&output);
        assert!(text.contains("did not end within 0.3 s") && text.contains(report), "{text}");
    }
    let mut child =
        acting("--timeout 0.3", &["echo"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _open = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("Stdin::read"), "{}", stderr(&output));
    expect(&act("--timeout 1e9", &["return"]), 7, "", "");
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn sigquit_tells_what_the_program_waits_for_and_lets_it_go_on() {
    let mut child = acting("--threads 1", &["say-echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // The first line says that the program runs.
    output.read_line(&mut line).unwrap();
    let mut reports = BufReader::new(child.stderr.take().unwrap()).lines();
    // The signal may come before the call that follows the first line.
    loop {
        send(&child, "-QUIT");
        let head = reports.next().unwrap().unwrap();
        assert!(head.starts_with("hostcall: the program goes on: "), "{head}");
        if head.ends_with("1 call waits for the host") {
            break;
        }
    }
    assert!(reports.next().unwrap().unwrap().contains("Stdin::read"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"text").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "text");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Until its trace has a reader, no program is loaded.
#[test]
fn sigquit_tells_that_the_program_has_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = acting(&format!("--trace {}", pipe.display()), &["return"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let waits = format!("hostcall: waits for a reader of {}", pipe.display());
    assert_eq!(said.next().unwrap().unwrap(), waits);
    send(&child, "-QUIT");
    let begins = "hostcall: the program has not begun: it is still being built or loaded, or its trace has no reader yet";
    assert_eq!(said.next().unwrap().unwrap(), begins);
    assert!(!fs::read(&pipe).unwrap().is_empty());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// The reader of its trace takes nothing: more than a pipe holds is written after the program has ended.
#[test]
fn a_signal_ends_the_wait_for_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let options = format!("--trace {} --threads 1 --timeout 1", pipe.display());
    let mut child = acting(&options, &["ask"]).stderr(Stdio::piped()).spawn().unwrap();
    let reader = File::open(&pipe).unwrap();
    // Beside other work the program may make few calls.
    rustix::pipe::fcntl_setpipe_size(&reader, 4096).unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("hostcall: the program did not end within 1 s: ")));
    let written = "hostcall: the trace is still being written; the exit code is 124";
    // A signal that comes while the program still ends is not told of.
    let is_told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_told.load(Ordering::Relaxed) {
                send(&child, "-QUIT");
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        // The report may name a call that is with its handler just then.
        let next = said.find(|line| !line.starts_with(' '));
        is_told.store(true, Ordering::Relaxed);
        assert_eq!(next.as_deref(), Some(written));
    });
    send(&child, "-INT");
    assert!(said.all(|line| line == written));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Sends the signal to a program that has begun, and gives the exit code and standard error.
fn signalled(mut child: Child, signal: &str) -> (Option<i32>, String) {
    // The first line says that the program runs.
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    send(&child, signal);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn a_signal_ends_the_program() {
    for (act_name, signal, code, report) in [
        ("say-forever", "-INT", 130, "its lane waits for no call"),
        ("say-echo", "-INT", 130, "Stdin::read"),
        ("say-echo", "-TERM", 143, "Stdin::read"),
    ] {
        let end = || {
            let mut child = acting("--threads 1", &[act_name])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let _open = child.stdin.take();
            let (ended, text) = signalled(child, signal);
            assert_eq!(ended, Some(code), "{text}");
            assert!(text.starts_with("hostcall: interrupted: "), "{text}");
            text
        };
        // On a busy machine the signal may come before the call that follows the first line.
        let reports: Vec<_> = (0..20).map(|_| end()).take_while(|text| !text.contains(report)).collect();
        assert!(reports.len() < 20, "{reports:?}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let mut child = acting("", &["lines"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 13];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"another line\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(stderr(&output), "");
}

#[test]
fn two_run_at_once() {
    let waiting = || {
        let mut command = acting("", &["echo"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (first, second) = (waiting(), waiting());
    for mut child in [second, first] {
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"text").unwrap();
        drop(stdin);
        assert_eq!(child.wait_with_output().unwrap().stdout, b"text");
    }
}

#[test]
fn a_folder_is_built_and_run() {
    let output = hostcall(["run".as_ref(), common::here("../../programs/hello").as_os_str()])
        .args(["first", "--second"])
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.starts_with("Hello, World!\nIt is "), "{text}");
    assert!(text.contains("argument 1: first\nargument 2: --second\n"), "{text}");
    assert_eq!(text.matches(" of the grid: lane ").count(), 8);
    // Cargo's own progress.
    assert!(stderr(&output).contains("Finished"), "{}", stderr(&output));
    let chosen = ["run", "--prefix", "--lines-of-lane", "3", "--lines-of-workgroup", "1", "--blocks", "2"];
    let output = hostcall(chosen).arg(common::here("../../programs/hello")).output().unwrap();
    let line = ", workgroup 1.0.0, lane 3] lane 11 of the grid: lane 3 of wave 0 of workgroup 1\n";
    let text = stdout(&output);
    assert!(text.starts_with("[cpu, main ") && text.ends_with(line), "{text}{}", stderr(&output));
    assert_eq!(text.lines().count(), 1);
}
