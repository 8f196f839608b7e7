//! Trace points of a program that runs: this one.

use super::{lines, stderr, stdout, trace};
use hostcall::device::PinnedBuffer;
use hostcall::watch::{Request, TraceAsked, TraceBegun, TraceEnded, WatchError, ask};
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, PointFilter, Stream, counter, kernel, span};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

#[kernel]
fn spins(lane: &Lane, stop: &[Global<u32>]) {
    while stop[0].get() == 0 {
        let _turn = span!("turn");
        counter!("spun by", lane.index());
        counter!("not wanted", 1u32);
        lane.pause();
    }
}

/// A process has one trace that others have asked for.
static ALONE: Mutex<()> = Mutex::new(());

struct Spinning {
    _device: Device,
    stream: Stream,
    stop: PinnedBuffer<u32>,
    _alone: MutexGuard<'static, ()>,
}

fn spinning() -> Spinning {
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let device = Device::open("cpu").unwrap();
    let (stream, stop) = (device.stream().unwrap(), device.pinned::<u32>(1).unwrap());
    spins.launch(&stream, Grid::new(1, 1), (&stop,)).unwrap();
    Spinning { _device: device, stream, stop, _alone: alone }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.stop[0].set(1);
        self.stream.synchronize_for(Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn points_of_a_program_that_runs_are_recorded_for_a_while() {
    let _spinning = spinning();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.trace");
    let (pid, path) = (std::process::id().to_string(), file.to_str().unwrap());
    let output = trace(&["on", &pid, "--to", path, "--points", "spun*", "--points", "turn", "--for", "0.2"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with(&format!("process {pid}: ")) && said.contains("cpu"), "{said}");
    assert!(said.ends_with(&format!("process {pid}: {path} is whole\n")), "{said}");
    let dump = stdout(&trace(&["dump", path]));
    assert!(dump.contains("spun by") && dump.contains("turn") && dump.contains("spins"), "{dump}");
    assert!(!dump.contains("not wanted"), "{dump}");
    let info = lines(&stdout(&trace(&["info", path])));
    assert!(info.iter().any(|line| line.ends_with("records of kernels' trace points")), "{info:?}");
}

#[test]
fn a_trace_of_a_program_that_runs_begins_and_ends_once() {
    let _spinning = spinning();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.trace");
    let (pid, path) = (std::process::id().to_string(), file.to_str().unwrap());
    let sentence = |arguments: &[&str]| {
        let output = trace(arguments);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    assert_eq!(sentence(&["off", &pid]), format!("hostcall: process {pid} says: it is not traced\n"));
    let began = trace(&["on", &pid, "--to", path]);
    assert_eq!(began.status.code(), Some(0), "{}", stderr(&began));
    let again =
        format!("hostcall: process {pid} says: it is traced already, to {path}: end that trace first\n");
    assert_eq!(sentence(&["on", &pid, "--to", "other.trace"]), again);
    std::thread::sleep(Duration::from_millis(50));
    let ended = trace(&["off", &pid]);
    assert_eq!((ended.status.code(), stderr(&ended)), (Some(0), format!("process {pid}: {path} is whole\n")));
    assert!(stdout(&trace(&["dump", path])).contains("not wanted"));
    for (launch, says) in
        [("17", "no launch has the id 17: ids are like 17.3"), ("1.02", "no launch has the id 1.02")]
    {
        assert!(sentence(&["on", &pid, "--to", path, "--launch", launch]).contains(says));
    }
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(sentence(&["on", &pid, "--to", pipe.to_str().unwrap()]).contains("is no file"));
    let nowhere = sentence(&["on", &pid, "--to", "/nowhere/a.trace"]);
    assert!(nowhere.contains("cannot write the trace /nowhere/a.trace"), "{nowhere}");
    // Several processes, of which one is there.
    let both = trace(&["on", "1", &pid, "--to", path, "--for", "0.1"]);
    assert_eq!(both.status.code(), Some(1));
    assert!(stderr(&both).contains("process 1 ") && folder.path().join(format!("a-{pid}.trace")).exists());
}

/// Who has asked is gone: the process ends the trace by itself.
#[test]
fn a_trace_ends_by_itself() {
    let spinning = spinning();
    let folder = tempfile::tempdir().unwrap();
    let asked = hostcall::watch::TraceAsked {
        file: folder.path().join("a.trace"),
        for_s: Some(0.05),
        ..Default::default()
    };
    let pid = std::process::id();
    let begun: hostcall::watch::TraceBegun =
        hostcall::watch::ask(pid, &hostcall::watch::Request::TraceOn(asked)).unwrap();
    assert!(begun.devices.contains(&"cpu".to_owned()));
    // The device's points are free again.
    let tracer = hostcall::trace::Tracer::builder().start().unwrap();
    let begin = std::time::Instant::now();
    while spinning._device.record_points(&tracer, PointFilter::default()).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the trace goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended: hostcall::watch::TraceEnded =
        hostcall::watch::ask(pid, &hostcall::watch::Request::TraceOff { number: None }).unwrap();
    assert_eq!(ended.lost, None);
}

/// Who began a trace ends that one alone, not another's that was begun since.
#[test]
fn who_began_a_trace_ends_no_other() {
    let _spinning = spinning();
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let begin = |name: &str| {
        let asked = TraceAsked { file: folder.path().join(name), ..TraceAsked::default() };
        ask::<TraceBegun>(pid, &Request::TraceOn(asked)).unwrap().number
    };
    let end = |number| ask::<TraceEnded>(pid, &Request::TraceOff { number });
    let refused = |number, sentence: &str| match end(Some(number)) {
        Err(WatchError::Refused { why, .. }) => assert!(why.contains(sentence), "{why}"),
        ended => panic!("{ended:?}"),
    };
    let first = begin("a.trace");
    assert!(end(None).unwrap().file.ends_with("a.trace"));
    refused(first, "has been ended before, by somebody else");
    let second = begin("b.trace");
    refused(first, "has ended before, and another one has begun since");
    assert!(end(Some(second)).unwrap().file.ends_with("b.trace"));
}

/// What is recorded for the page has no name on disk: nothing is left of it, however the command ends.
#[test]
fn an_interrupted_page_leaves_nothing() {
    let _spinning = spinning();
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostcall"));
    command.args(["serve", "--port", "0", "--allow-traces", &pid.to_string()]);
    command.env("TMPDIR", folder.path()).env("HOSTCALL_TOKEN", "token").stdout(Stdio::piped());
    let mut serving = command.spawn().unwrap();
    let mut address = String::new();
    BufReader::new(serving.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let host = address.trim().strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut connection = TcpStream::connect(host).unwrap();
    let head = format!("Host: {host}\r\nAuthorization: Bearer token\r\n\r\n");
    let asks = format!("POST /api/trace?pid={pid}&seconds=60 HTTP/1.1\r\n{head}");
    connection.write_all(asks.as_bytes()).unwrap();
    let begin = std::time::Instant::now();
    // The process opens a file there, whatever its name is.
    let is_there = |file: std::path::PathBuf| file.starts_with(folder.path());
    let is_traced = || {
        let files = std::path::Path::new("/proc/self/fd").read_dir().unwrap().flatten();
        files.filter_map(|file| file.path().read_link().ok()).any(is_there)
    };
    while !is_traced() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no trace begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Not the terminal's signal, which a shell has what it starts in the background ignore.
    assert!(Command::new("kill").args(["-TERM", &serving.id().to_string()]).status().unwrap().success());
    serving.wait().unwrap();
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // The process goes on until the trace's time is over, into a file that nobody sees.
    ask::<TraceEnded>(pid, &Request::TraceOff { number: None }).unwrap();
}
