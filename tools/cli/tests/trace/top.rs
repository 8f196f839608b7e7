//! `hostcall trace top`, of files that grow and change, and on terminals.

use super::*;

/// A file that is there and empty is one that a run is about to begin.
#[test]
fn top_says_that_it_waits_for_an_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.trace");
    File::create(&path).unwrap();
    let mut top = hostcall(["trace".as_ref(), "top".as_ref(), path.as_os_str()]);
    let mut top = top.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(top.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, format!("hostcall: waits for {} to begin, at most 10s\n", path.display()));
    top.kill().unwrap();
    top.wait().unwrap();
}

/// A pipe that nobody has written to is waited for without an end, which is said.
#[test]
fn a_pipe_without_a_writer_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for subcommand in ["top", "info"] {
        let mut reader = hostcall(["trace".as_ref(), subcommand.as_ref(), pipe.as_os_str()]);
        let mut reader = reader.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(reader.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, format!("hostcall: waits for a trace to begin in {}\n", pipe.display()));
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
}

#[test]
fn top_shows_a_run_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.trace");
    let file = path.to_str().unwrap();
    // To build the program may take longer than the run's begin is waited for.
    acts();
    // It waits for the run to begin, and says so.
    let mut top = hostcall(["trace", "top", "--every", "0.2", file]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(top.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, format!("hostcall: waits for {file} to appear, at most 10s\n"));
    let mut run = acting(&format!("--trace {file}"), &["echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut shown = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The first lane waits for the standard input, until that is closed.
    let waits = shown.find(|line| line.starts_with("  waits: ")).expect("somebody waits");
    assert!(waits.contains(" cpu main workgroup (0, 0, 0) wave 0 slot "), "{waits}");
    drop(run.stdin.take());
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let rest: Vec<_> = shown.collect();
    assert_eq!(top.wait().unwrap().code(), Some(0));
    let last = rest.iter().rposition(|line| line.contains(" s, and the trace ended; cpu (hostcall)"));
    let last = &rest[last.expect("top sees the end")..];
    assert!(last[1].contains(" launches 1, 0 run"), "{last:?}");
    assert!(!last.iter().any(|line| line.contains("waits: ")), "{last:?}");
}

#[test]
fn top_shows_a_trace_that_has_ended_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = traced(folder.path(), &["arguments", "x"]);
    let output = trace(&["top", path.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let shown = stdout(&output);
    assert_eq!(shown.matches("the trace ended; cpu (hostcall)\n").count(), 1, "{shown}");
    assert!(
        shown.contains("  Environment::argument: ") && shown.contains("  slow: Environment::argument"),
        "{shown}"
    );
    let piped = fed(&mut hostcall(["trace", "top", "/dev/stdin"]), &fs::read(&path).unwrap());
    assert_eq!((piped.status.code(), &*stderr(&piped)), (Some(0), ""));
    assert!(stdout(&piped).contains("the trace ended; cpu (hostcall)\n"), "{}", stdout(&piped));
    let output = trace(&["top", acts()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("it is no trace of hostcall"), "{}", stderr(&output));
}

/// Writes a trace of so many calls, without its end if a run still writes it.
fn write_trace(path: &Path, calls: u64, has_ended: bool) {
    let tracer = Tracer::builder().file(path).unwrap().start().unwrap();
    let (source, launch) = (tracer.source("cpu", "hostcall"), LaunchId::new(1, 1));
    for at in 0..calls {
        source.call("Shop::price", 300, launch, Call { replied_ns: at + 5, ..Call::at(at) });
    }
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);
    if !has_ended {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 60).unwrap();
    }
}

/// `hostcall trace top` of this file, and the lines that it shows.
fn top_of(path: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut top = hostcall(["trace", "top", "--every", "0.3", path.to_str().unwrap()]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let shown = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap);
    (top, shown)
}

/// A run begins the file anew in the time between two looks and has written more by then, or a file takes
/// its place, or it is removed and made anew later.
#[test]
fn top_goes_on_with_the_trace_that_is_there_now() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["now.trace", "other.trace"].map(|name| folder.path().join(name));
    for way in ["renamed", "written", "removed"] {
        write_trace(&path, 3, false);
        let (top, mut shown) = top_of(&path);
        assert!(shown.any(|line| line.starts_with("calls 3, ")));
        write_trace(&other, 5000, true);
        match way {
            "renamed" => fs::rename(&other, &path).unwrap(),
            "written" => fs::write(&path, fs::read(&other).unwrap()).unwrap(),
            _ => {
                fs::remove_file(&path).unwrap();
                // It looks for the file before each of these.
                for _ in 0..3 {
                    assert!(shown.any(|line| line.starts_with("calls 3, ")));
                }
                fs::copy(&other, &path).unwrap();
            }
        }
        let rest: Vec<_> = shown.collect();
        let output = top.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""), "{way}");
        let last = rest.iter().rfind(|line| line.starts_with("calls ")).unwrap();
        assert!(last.starts_with("calls 5000, "), "{way}: {rest:?}");
        assert!(!rest.iter().any(|line| line.starts_with("lost: ")), "{way}: {rest:?}");
    }
}

/// A run that only makes the file anew does not make the other one's trace a bad one, nor is that shown
/// more often while the new one is waited for.
#[test]
fn top_ends_with_a_trace_that_no_other_follows() {
    let folder = tempfile::tempdir().unwrap();
    let [path, old, empty] = ["now.trace", "old.trace", "empty"].map(|name| folder.path().join(name));
    write_trace(&path, 3, true);
    let whole = fs::read(&path).unwrap();
    let (begin, end) = whole.split_at(whole.len() - 60);
    fs::write(&path, begin).unwrap();
    let (top, mut shown) = top_of(&path);
    assert!(shown.any(|line| line.starts_with("calls 3, ")));
    fs::hard_link(&path, &old).unwrap();
    fs::write(&empty, "").unwrap();
    fs::rename(&empty, &path).unwrap();
    // It looks for the file before each of these.
    for _ in 0..3 {
        assert!(shown.any(|line| line.starts_with("calls 3, ")));
    }
    File::options().append(true).open(&old).unwrap().write_all(end).unwrap();
    let rest: Vec<_> = shown.collect();
    let output = top.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    // For ten seconds at most.
    let screens = rest.iter().filter(|line| line.contains(" s, and the trace ended; cpu (hostcall)")).count();
    assert!((1..50).contains(&screens), "{screens}");
}

/// A terminal of its own, on which a shell runs commands, and what came out.
struct Terminal {
    script: Child,
    text: Vec<u8>,
}

/// What the first screen ends with.
const FOOTER: &str = "q quits";
/// Goes to the other screen of the terminal.
const ENTERS: &str = "\x1b[?1049h";

/// Leaves that.
const LEAVES: &str = "\x1b[?1049l";

/// What each screen begins with.
const HIDES_CURSOR: &str = "\x1b[?25l";

const SHOWS_CURSOR: &str = "\x1b[?25h";

impl Terminal {
    fn of(commands: &str) -> Self {
        // A terminal of no size shows nothing.
        let script = Command::new("script")
            .args(["-q", "-e", "-c", &format!("stty rows 24 cols 80; {commands}"), "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { script, text: Vec::new() }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Reads on until `part` came out so many times more.
    fn read_until(&mut self, part: &str, times: usize) {
        let from = self.text.len();
        while String::from_utf8_lossy(&self.text[from..]).matches(part).count() < times {
            let mut bytes = [0; 4096];
            let read = self.script.stdout.as_mut().unwrap().read(&mut bytes).unwrap();
            assert_ne!(read, 0, "{part:?} did not come: {}", self.text());
            self.text.extend_from_slice(&bytes[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// All that came out, when the commands have ended.
    fn wait(mut self) -> String {
        self.script.stdout.as_mut().unwrap().read_to_end(&mut self.text).unwrap();
        self.script.wait().unwrap();
        self.text()
    }
}

/// Shell commands that run `hostcall trace top`, say its exit code and how the terminal is, and leave its
/// process's number in the file `pid`.
fn top_command(path: &Path, pid: &Path) -> String {
    format!(
        "sh -c 'echo $$ >{pid}; exec {hostcall} trace top --every 0.1 {path}'; echo code $?; stty -a",
        pid = pid.display(),
        hostcall = env!("CARGO_BIN_EXE_hostcall"),
        path = path.display()
    )
}

/// Sends a signal that ends the command of [`top_command`], and looks at what it leaves.
fn end_by_signal(terminal: Terminal, pid: &Path) {
    let kill = Command::new("kill").args(["-TERM", fs::read_to_string(pid).unwrap().trim()]).status();
    assert!(kill.unwrap().success());
    let text = terminal.wait();
    assert!(text.contains("code 143") && text.contains(" icanon ") && !text.contains("-icanon"), "{text}");
    // It has left the terminal's other screen.
    assert_eq!([ENTERS, LEAVES].map(|order| text.matches(order).count()), [1, 1], "{text}");
    assert!(text.rfind(SHOWS_CURSOR) > text.rfind(HIDES_CURSOR), "{text}");
}

#[test]
fn top_gives_the_terminal_back_when_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, pid) = (folder.path().join("now.trace"), folder.path().join("pid"));
    write_trace(&path, 3, false);
    let mut terminal = Terminal::of(&top_command(&path, &pid));
    terminal.read_until(FOOTER, 1);
    end_by_signal(terminal, &pid);
}

/// The writer of a pipe keeps it open and writes no more.
#[test]
fn top_takes_keys_while_it_waits_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let [path, pipe, pid] = ["now.trace", "pipe", "pid"].map(|name| folder.path().join(name));
    write_trace(&path, 3, false);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut terminal = Terminal::of(&top_command(&pipe, &pid));
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    writer.write_all(&fs::read(&path).unwrap()).unwrap();
    terminal.read_until(FOOTER, 1);
    terminal.press("q");
    let text = terminal.wait();
    assert!(text.contains("code 0") && text.contains("Shop::price:"), "{text}");
    drop(writer);
}

/// Says whether a process's main thread waits in a write to its standard output, at several looks; nothing
/// where the system does not say it.
fn is_in_write(process: &str) -> Option<bool> {
    let number = match std::env::consts::ARCH {
        "x86_64" => "1",
        "aarch64" | "riscv64" => "64",
        _ => return None,
    };
    let path = format!("/proc/{process}/task/{process}/syscall");
    for _ in 0..4 {
        // The number of the call, and its arguments.
        let call = fs::read_to_string(&path).ok()?;
        let mut fields = call.split_whitespace();
        if [fields.next(), fields.next()] != [Some(number), Some("0x1")] {
            return Some(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(true)
}

/// What has the terminal is stopped, and takes nothing of a screen.
#[test]
fn top_leaves_the_screen_of_a_terminal_that_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [path, pid, tty] = ["now.trace", "pid", "tty"].map(|name| folder.path().join(name));
    write_trace(&path, 3, false);
    let command = format!("tty >{}; {}", tty.display(), top_command(&path, &pid));
    let mut terminal = Terminal::of(&command);
    terminal.read_until(FOOTER, 1);
    let kill = |signal: &str, process: &str| {
        assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
    };
    let (top, script) = (fs::read_to_string(&pid).unwrap(), terminal.script.id().to_string());
    kill("-STOP", &script);
    // Each of these sizes is another whole screen, of which the terminal holds a few only.
    let began = Instant::now();
    let mut columns = 0;
    let waits = loop {
        columns += 1;
        let of_terminal = File::open(fs::read_to_string(&tty).unwrap().trim()).unwrap();
        let size = ["rows", "100", "cols", &(480 + columns % 20).to_string()].map(String::from);
        assert!(Command::new("stty").args(size).stdin(of_terminal).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(150));
        match is_in_write(top.trim()) {
            // Nothing says when it waits. By now it does.
            None if columns == 20 => break true,
            Some(true) => break true,
            _ if began.elapsed() >= Duration::from_secs(60) => break false,
            _ => {}
        }
    };
    assert!(waits, "the terminal takes all of {columns} screens");
    kill("-TERM", top.trim());
    let began = Instant::now();
    while fs::read_to_string(format!("/proc/{}/stat", top.trim())).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill("-CONT", &script);
    let text = terminal.wait();
    assert!(text.contains("code 143") && text.contains(" icanon ") && !text.contains("-icanon"), "{text}");
    assert_eq!([ENTERS, LEAVES].map(|order| text.matches(order).count()), [1, 1], "{text}");
    assert!(text.rfind(SHOWS_CURSOR) > text.rfind(HIDES_CURSOR), "{text}");
}

/// The writer of a pipe keeps it open and writes no more, as above.
#[test]
fn top_gives_the_terminal_back_while_it_waits_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let [path, pipe, pid] = ["now.trace", "pipe", "pid"].map(|name| folder.path().join(name));
    write_trace(&path, 3, false);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut terminal = Terminal::of(&top_command(&pipe, &pid));
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    writer.write_all(&fs::read(&path).unwrap()).unwrap();
    terminal.read_until(ENTERS, 1);
    end_by_signal(terminal, &pid);
    drop(writer);
}

/// The shell is told of it and goes on, the command is not told. It has neither a screen nor a standard
/// error then, and must neither read the terminal's end for ever nor panic.
#[test]
fn top_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (path, code) = (folder.path().join("now.trace"), folder.path().join("code"));
    write_trace(&path, 3, false);
    let mut terminal = Terminal::of(&format!(
        "trap '' HUP; {hostcall} trace top --every 0.1 {path}; echo $? >{code}",
        hostcall = env!("CARGO_BIN_EXE_hostcall"),
        path = path.display(),
        code = code.display()
    ));
    terminal.read_until(FOOTER, 1);
    terminal.script.kill().unwrap();
    terminal.script.wait().unwrap();
    let began = Instant::now();
    while !fs::read_to_string(&code).is_ok_and(|text| text.ends_with('\n')) {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_to_string(&code).unwrap(), "129\n");
}

#[test]
fn top_can_be_left_while_its_file_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let (path, pid) = (folder.path().join("now.trace"), folder.path().join("pid"));
    write_trace(&path, 3, false);
    let mut terminal = Terminal::of(&top_command(&path, &pid));
    terminal.read_until(FOOTER, 1);
    fs::write(&path, "").unwrap();
    // It looks at the file before each screen, and shows more of them while it waits for the other trace.
    terminal.read_until(HIDES_CURSOR, 5);
    terminal.press("q");
    let text = terminal.wait();
    // Had it waited for the trace before it looked at the keys, it would have failed.
    assert!(text.contains("code 0") && !text.contains("waits for"), "{text}");
}
