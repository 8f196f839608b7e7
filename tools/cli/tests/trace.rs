//! Runs are traced, and traces are read.

mod common;
#[path = "trace/live.rs"]
mod live;
#[path = "trace/top.rs"]
mod top;

use ::hostcall::raw::{Block, RawChannel, RawStream};
use ::hostcall::server::LaunchId;
use ::hostcall::trace::Tracer;
use ::hostcall::{Device, Grid, Lane, LaunchKernel, Plain, Stream, counter, event, kernel, span};
use common::{acting, acts, expect, fed, hostcall, stderr, stdout};
use hostcall_trace::{Call, Descriptor, Ending, Page, StreamFile, StreamTotals, Waiting};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a subcommand of `hostcall trace`.
fn trace(arguments: &[&str]) -> Output {
    hostcall(["trace"]).args(arguments).output().unwrap()
}

/// A trace of the program `acts`, whose first argument is `act`.
fn traced(folder: &Path, act: &[&str]) -> (PathBuf, Output) {
    let file = folder.join("calls.trace");
    let output = acting(&format!("--stats --trace {}", file.display()), act).output().unwrap();
    (file, output)
}

/// The lines of a text, with one space between words.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_run_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = traced(folder.path(), &["grid"]);
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 4), "{}", stderr(&output));
    let stats = lines(&stderr(&output));
    assert_eq!(stats[0], "calls' times, from where the host finds a call to its answer:");
    assert_eq!(stats[1], "service method count failed posts p50 p99 p99.9 slowest callers");
    let of = |method: &str| stats.iter().find(|line| line.starts_with(method)).cloned().unwrap_or_default();
    assert!(of("Environment argument ").contains("main workgroup 0 wave 0 "), "{stats:?}");

    let file = file.to_str().unwrap();
    let output = trace(&["info", file]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let info = lines(&stdout(&output));
    for line in ["device: cpu, protocol hostcall", "launches: 1, of which 1 ended, 0 cancelled"] {
        assert!(info.iter().any(|it| it == line), "{info:?}");
    }
    // The same table.
    assert!(info.ends_with(&stats), "{info:?}\n{stats:?}");

    let output = trace(&["dump", file]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let dump = stdout(&output);
    for part in [
        " launch 1 began on cpu: main, workgroups 1,1,1\n",
        " cpu Environment::argument: launch 1 main, workgroup 0 wave 0, slot ",
        " launch 1 ended\n",
    ] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    assert!(dump.lines().last().unwrap().contains(" the trace ended, "), "{dump}");
}

#[test]
fn a_run_that_fails_is_traced_too() {
    let folder = tempfile::tempdir().unwrap();
    let (file, output) = traced(folder.path(), &["panic"]);
    assert_eq!(output.status.code(), Some(101), "{}", stderr(&output));
    let output = trace(&["info", file.to_str().unwrap()]);
    let info = lines(&stdout(&output));
    for line in [
        "launches: 1, of which 1 ended, 0 cancelled, 1 panicked",
        "panicked: launch 1, kernel main; the run said where and why",
    ] {
        assert!(info.iter().any(|it| it == line), "{info:?}");
    }
    let dump = stdout(&trace(&["dump", file.to_str().unwrap()]));
    assert!(dump.contains(" launch 1 ended: panicked\n"), "{dump}");
    let (file, output) = traced(folder.path(), &["exit"]);
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    let info = stdout(&trace(&["info", file.to_str().unwrap()]));
    assert!(info.contains("1 ended, 0 cancelled, 1 exited\n"), "{info}");
}

#[test]
fn calls_that_wait_are_traced_when_they_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.trace");
    let options = format!("--timeout 1 --trace {}", file.display());
    // It reads what nobody writes.
    let (reader, _writer) = std::io::pipe().unwrap();
    let output = acting(&options, &["echo"]).stdin(reader).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let dump = stdout(&trace(&["dump", file.to_str().unwrap()]));
    assert!(dump.contains("1 lanes: cancelled"), "{dump}");
}

#[test]
fn statistics_need_no_file() {
    let output = acting("--stats", &["return"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(stderr(&output).starts_with("calls' times, "), "{}", stderr(&output));
    // Of those that cannot be written the exit code tells, but for a program that has one of its own.
    for (act, code) in [("nothing", 1), ("return", 7)] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = acting("--stats", &[act]).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_one_sentence() {
    let output = acting("--trace /dev/full", &["nothing"]).output().unwrap();
    expect(
        &output,
        1,
        "",
        "hostcall: cannot write the trace /dev/full: No space left on device (os error 28)\n",
    );
    let output = acting("--trace /no/such/folder/calls.trace", &["nothing"]).output().unwrap();
    let sentence = "hostcall: cannot write the trace /no/such/folder/calls.trace: No such file or directory (os error 2)\n";
    expect(&output, 1, "", sentence);
}

#[test]
fn what_is_no_trace_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "This is no trace, but it is long enough for one.").unwrap();
    for command in ["info", "dump"] {
        let name = text.to_str().unwrap();
        let sentence = format!("hostcall: cannot read {name}: it is no trace of hostcall\n");
        expect(&trace(&[command, name]), 1, "", &sentence);
        let sentence = "hostcall: cannot read /no/such: No such file or directory (os error 2)\n";
        expect(&trace(&[command, "/no/such"]), 1, "", sentence);
        let output = trace(&[command, folder.path().to_str().unwrap()]);
        assert!(stderr(&output).contains("is a folder: name the file of a trace"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
    let output = trace(&["top", folder.path().to_str().unwrap()]);
    assert!(stderr(&output).contains("is a folder: name the file of a trace"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

const NO_END: &str =
    "the trace's end is missing: it was cut, or is still being written (`hostcall trace top` follows it)";

#[test]
fn recordings_have_pages_and_a_time_also_without_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.trace"), folder.path().join("cut.trace"));
    let mut file = StreamFile::create(&whole).unwrap();
    let stream = file.stream("samples", 8, 0, "block", None).unwrap();
    let begun = fs::read(&whole).unwrap().len();
    // Another page lies between two parts of one.
    for (sequence, offset_bytes) in [(0, 0), (1, 0), (0, 8), (2, 0)] {
        let opened_ns = 7_000_000_000 + sequence * 250_000_000;
        let bytes = vec![1; 8].into();
        file.page(&Page { stream, sequence, offset_bytes, opened_ns, bytes, ..Page::default() }).unwrap();
    }
    file.flush().unwrap();
    let written = fs::read(&whole).unwrap();
    let info = |bytes: &[u8]| {
        fs::write(&cut, bytes).unwrap();
        stdout(&trace(&["info", cut.to_str().unwrap()]))
    };
    let text = info(&written);
    assert!(text.contains(" 3 pages, 32 bytes;"), "{text}");
    assert!(
        text.contains(&format!("time:      0.500 s from the first page to the last one; {NO_END}\n")),
        "{text}"
    );
    assert!(!text.contains("p99"), "it has no calls, and so no table of them: {text}");
    let text = info(&written[..begun]);
    assert!(text.contains(&format!("time:      not known; {NO_END}\n")), "{text}");
    // The channel says how many it had, also of pages that are not in the file.
    file.end_stream(stream, &StreamTotals { pages: 5, ..StreamTotals::default() }).unwrap();
    file.finish().unwrap();
    let text = info(&fs::read(&whole).unwrap());
    assert!(text.contains(" 5 pages, 32 bytes;"), "{text}");
}

#[test]
fn cut_and_damaged_traces_are_read_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = traced(folder.path(), &["grid"]);
    let whole = fs::read(&file).unwrap();
    let cut = folder.path().join("cut.trace");
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let output = trace(&["info", cut.to_str().unwrap()]);
    assert!(stdout(&output).contains(NO_END), "{}", stdout(&output));
    let output = trace(&["dump", cut.to_str().unwrap()]);
    assert!(stdout(&output).ends_with(&format!("{NO_END}\n")), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));

    let mut damaged = whole.clone();
    let at = damaged.len() / 2;
    damaged[at] ^= 1;
    fs::write(&cut, damaged).unwrap();
    let output = trace(&["info", cut.to_str().unwrap()]);
    let text = lines(&stdout(&output)).join("\n");
    assert!(text.contains("\nmissing: 1 blocks\ndamaged: "), "{text}");
    let csv = folder.path().join("damaged.csv");
    let output = trace(&["export", cut.to_str().unwrap(), csv.to_str().unwrap()]);
    let name = cut.display();
    let sentences = stderr(&output);
    assert!(
        sentences.starts_with(&format!("hostcall: {name}: missing: 1 blocks\nhostcall: {name}: damaged: "))
    );
    assert!(output.status.success() && sentences.lines().count() == 2, "{sentences}");
}

#[test]
fn exports_say_what_a_stream_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (path, csv) = (folder.path().join("samples.trace"), folder.path().join("samples.csv"));
    let mut file = StreamFile::create(&path).unwrap();
    let of = Descriptor::of(Sample::TYPE).unwrap();
    let stream = file.stream("samples", size_of::<Sample>() as u32, 0, "drop newest", Some(&of)).unwrap();
    let bytes = vec![0; size_of::<Sample>()].into();
    file.page(&Page { stream, dropped_before: 2, bytes, ..Page::default() }).unwrap();
    // After the last page more were dropped.
    let totals =
        StreamTotals { dropped_records: 7, overwritten_bytes: 64, lost_bytes: 80, ..StreamTotals::default() };
    file.end_stream(stream, &totals).unwrap();
    file.finish().unwrap();
    let sentences = "hostcall: kernels have dropped 7 records of this stream\n\
                     hostcall: 64 bytes of this stream were overwritten before they were read\n\
                     hostcall: 80 bytes of this stream could not be read or written when it was recorded\n";
    let path = path.to_str().unwrap();
    expect(&trace(&["export", path, csv.to_str().unwrap()]), 0, "", sentences);
    for (command, part) in [
        ("info", " 7 records dropped, 64 bytes overwritten, 80 bytes lost\n"),
        ("dump", " 7 records dropped, 64 bytes overwritten, 80 bytes lost\n"),
        ("top", "\nlost: 80 bytes of streams could not be read or written\n"),
    ] {
        let text = stdout(&trace(&[command, path]));
        assert!(text.contains(part), "{command}: {text}");
    }
}

#[test]
fn outputs_that_take_nothing_end_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = traced(folder.path(), &["grid"]);
    for command in ["info", "dump"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = hostcall(["trace", command]).arg(&file).stdout(full).output().unwrap();
        let sentence =
            "hostcall: cannot write to the standard output: No space left on device (os error 28)\n";
        expect(&output, 1, "", sentence);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = hostcall(["trace", command]).arg(&file).stdout(Stdio::from(writer)).output().unwrap();
        expect(&output, 141, "", "");
    }
}

#[test]
fn traces_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = traced(folder.path(), &["grid"]);
    let file = file.to_str().unwrap();
    let to = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, begin) in
        [("a.pftrace", &b"\x0a"[..]), ("a.arrow", b"ARROW1"), ("a.parquet", b"PAR1"), ("a.csv", b"event,")]
    {
        expect(&trace(&["export", file, &to(name)]), 0, "", "");
        assert!(fs::read(to(name)).unwrap().starts_with(begin), "{name}");
    }
    let csv = fs::read_to_string(to("a.csv")).unwrap();
    let dump = stdout(&trace(&["dump", file]));
    let calls = dump.lines().filter(|line| line.contains("; handler ")).count();
    assert_eq!(csv.lines().filter(|line| line.starts_with("call,cpu,hostcall,")).count(), calls, "{csv}");
    let is_launch = |line: &&str| line.starts_with("launch,cpu,hostcall,,,1,main,") && line.ends_with(",0.1");
    assert_eq!(csv.lines().filter(is_launch).count(), 1, "{csv}");
    assert!(csv.lines().filter(|line| line.starts_with("call,")).all(|line| line.ends_with(",0.1")), "{csv}");

    // What is there of a trace that was cut is exported, and told of.
    let whole = fs::read(file).unwrap();
    fs::write(to("cut.trace"), &whole[..whole.len() - 30]).unwrap();
    let sentence = format!("hostcall: {}: {NO_END}; what is there was exported\n", to("cut.trace"));
    expect(&trace(&["export", &to("cut.trace"), &to("cut.csv")]), 0, "", &sentence);
    assert_eq!(fs::read_to_string(to("cut.csv")).unwrap(), csv);
}

/// What an interrupted export has written does not stay, and what had its name does.
#[test]
fn interrupted_exports_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.trace");
    let tracer = Tracer::builder().file(&whole).unwrap().queue_calls(1 << 17).start().unwrap();
    let source = tracer.source("cpu", "hostcall");
    (0..100_000).for_each(|at| source.call("A::b", 300, LaunchId::NONE, Call::at(at)));
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("a.csv"), "old").unwrap();
    let pipe = folder.path().join("pipe.trace");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut export = hostcall(["trace", "export"]).arg(&pipe).arg(out.join("a.csv")).spawn().unwrap();
    // The pipe stays open, so that the export waits for more.
    let mut writer = File::options().read(true).write(true).open(&pipe).unwrap();
    let bytes = fs::read(&whole).unwrap();
    writer.write_all(&bytes[..bytes.len() - 100]).unwrap();
    let names = || fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let begin = Instant::now();
    while names().len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Not SIGINT, which whoever runs the tests may have them ignore.
    let kill = Command::new("kill").args(["-TERM", &export.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(export.wait().unwrap().signal(), Some(15));
    assert_eq!((names(), &*fs::read_to_string(out.join("a.csv")).unwrap()), (vec!["a.csv".into()], "old"));
    drop(writer);
    let (from, to) = (whole.to_str().unwrap(), out.join("a.csv"));
    expect(&trace(&["export", from, to.to_str().unwrap()]), 0, "", "");
    assert_eq!(names(), ["a.csv"]);
    assert_eq!(fs::read_to_string(to).unwrap().lines().count(), 100_001);
}

/// Whatever the descriptors do not suffice for is named.
#[test]
fn an_export_without_descriptors_says_what_for() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = traced(folder.path(), &["arguments", "x"]);
    let out = folder.path().join("out.csv");
    let script = "ulimit -n $0; exec \"$@\"";
    let export = |descriptors: u32| {
        let mut command = Command::new("bash");
        command.args(["-c", script, &descriptors.to_string(), env!("CARGO_BIN_EXE_hostcall")]);
        command.args(["trace", "export"]).arg(&file).arg(&out).output().unwrap()
    };
    let refused: Vec<_> = (4..12).map(export).filter(|output| !output.status.success()).collect();
    assert!(!refused.is_empty());
    for text in refused.iter().map(stderr) {
        assert!(text.starts_with("hostcall: cannot ") && text.contains("Too many open files"), "{text}");
    }
}

#[test]
fn exports_that_cannot_be_made_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = traced(folder.path(), &["grid"]);
    let file = file.to_str().unwrap();
    let to = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sentence = format!(
        "hostcall: {} has none of the endings that say what to write: .pftrace, .arrow, .parquet, .csv\n",
        to("a.json")
    );
    expect(&trace(&["export", file, &to("a.json")]), 2, "", &sentence);
    let sentence = "hostcall: cannot read /no/such: No such file or directory (os error 2)\n";
    expect(&trace(&["export", "/no/such", &to("a.csv")]), 1, "", sentence);
    let sentence = "hostcall: cannot write /no/such/a.csv: No such file or directory (os error 2)\n";
    expect(&trace(&["export", file, "/no/such/a.csv"]), 1, "", sentence);
    // What is there stays where the trace has no such stream.
    fs::write(to("kept.csv"), "kept").unwrap();
    assert_eq!(trace(&["export", file, &to("kept.csv"), "--stream", "typo"]).status.code(), Some(1));
    assert_eq!(fs::read_to_string(to("kept.csv")).unwrap(), "kept");
    // A link to the trace itself, and to a disk that is full.
    std::os::unix::fs::symlink(file, to("itself.csv")).unwrap();
    let sentence = format!("hostcall: {} is the trace itself: name another file\n", to("itself.csv"));
    expect(&trace(&["export", file, &to("itself.csv")]), 1, "", &sentence);
    for ending in ["pftrace", "arrow", "parquet", "csv"] {
        let full = to(&format!("full.{ending}"));
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let output = trace(&["export", file, &full]);
        let sentence = format!(
            "hostcall: cannot write {full}: No space left on device (os error 28); what is there is not whole\n"
        );
        expect(&output, 1, "", &sentence);
    }
}

/// A sample that a kernel takes.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(format = "lane {lane}: {celsius:.1} degrees")]
struct Sample {
    place: [i16; 2],
    lane: u32,
    #[hostcall(unit = "degrees")]
    celsius: f32,
    reserved: u32,
}

#[kernel]
fn sample(lane: &Lane, out: RawStream<'_, Sample, Block>) {
    let id = lane.global_id() as u32;
    out.write(lane, &Sample { place: [-1, id as i16], lane: id, celsius: 20.25 + id as f32, reserved: 0 });
}

#[kernel]
fn words(lane: &Lane, out: RawStream<'_, u8, Block>) {
    out.write_bytes(lane, b"16 bytes of text");
}

/// Records what a channel gets from a launch.
fn recorded<T: Plain>(path: &Path, launch: impl FnOnce(&Stream, &RawChannel<T, Block>)) {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let channel = RawChannel::new(&device, 16, 128).unwrap();
    let recording = channel.record(path, "samples").unwrap();
    launch(&stream, &channel);
    stream.synchronize().unwrap();
    recording.finish().unwrap();
}

#[test]
fn records_are_shown_without_their_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.trace");
    recorded(&path, |stream, channel| drop(sample.launch(stream, Grid::new(1, 3), (channel,)).unwrap()));
    let file = path.to_str().unwrap();
    let output = trace(&["dump", file]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let dump = stdout(&output);
    let columns = "Sample { place.0: i16, place.1: i16, lane: u32, celsius: f32 in degrees, reserved: u32 }";
    assert!(dump.contains(columns), "{dump}");
    assert!(dump.contains("  lane 2: 22.2 degrees\n"), "{dump}");

    for stream in [&[][..], &["--stream", "samples"]] {
        let csv = folder.path().join("samples.csv");
        let output = trace(&[&["export", file, csv.to_str().unwrap()], stream].concat());
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        let csv = fs::read_to_string(csv).unwrap();
        let lines: Vec<_> = csv.lines().collect();
        let of_page = "page.sequence,page.opened_ns,page.launch,page.slot,page.workgroup,page.wave";
        assert_eq!(lines[0], format!("{of_page},place.0,place.1,lane,celsius,reserved"));
        assert!(lines.len() == 4 && lines[3].ends_with(",0,0,-1,2,2,22.25,0"), "{lines:?}");
        // As the table of calls has it.
        assert_eq!(lines[3].split(',').nth(2), Some("0.1"));
    }
    for (arguments, code, sentence) in [
        (["x.arrow", "--stream", "nobody"], 1, "no stream \"nobody\" near its begin; there is: samples"),
        (["x.pftrace", "--stream", "samples"], 2, "name a .arrow, .parquet or .csv"),
    ] {
        let out = folder.path().join(arguments[0]);
        let output = trace(&["export", file, out.to_str().unwrap(), arguments[1], arguments[2]]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(sentence), "{}", stderr(&output));
    }
    let out = folder.path().join("x.pftrace");
    let sentence = "hostcall: a .pftrace has no table of a stream's records, and the trace has nothing else: name a .arrow, \
                    .parquet or .csv\n";
    expect(&trace(&["export", file, out.to_str().unwrap()]), 2, "", sentence);
    assert!(!out.exists());
}

#[kernel]
fn speaks(_lane: &Lane) {
    let _work = span!("work");
    counter!("level", -1.5f32);
    event!("so be it: {:?}", 'x');
    // As of a lane that hangs.
    core::mem::forget(span!("open"));
}

#[test]
fn trace_points_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.trace");
    let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
    let device = Device::builder("cpu").trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    speaks.launch(&stream, Grid::new(1, 32), ()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);
    let file = path.to_str().unwrap();
    let dump = stdout(&trace(&["dump", file]));
    for part in [
        ": span \"work\", tools/cli/tests/trace.rs:",
        " cpu launch 1 speaks, workgroup 0 wave 0, slot ",
        ", 32 lanes from 0: work begins\n",
        ": level = -1.5\n",
        ": so be it: 'x'\n",
        ": work ends after ",
        " cpu showed ",
    ] {
        assert!(dump.contains(part), "{part}: {dump}");
    }
    let info = lines(&stdout(&trace(&["info", file])));
    assert!(info.iter().any(|line| line == "points: 5 records of kernels' trace points"), "{info:?}");
    assert!(info.iter().any(|line| line.starts_with("clock: of cpu, compared ")), "{info:?}");
    let top = stdout(&trace(&["top", file]));
    for part in [
        "  span \"work\": ",
        "/s, 1 in all, mean ",
        "/s, 1 in all, last value -1.5\n",
        "  event, last \"so be it: 'x'\": ",
    ] {
        assert!(top.contains(part), "{part}: {top}");
    }
    let csv = folder.path().join("points.csv");
    let output = trace(&["export", file, csv.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let csv = fs::read_to_string(csv).unwrap();
    for (row, value) in [
        ("span,cpu,hostcall,,work,1,speaks,0,0,", ",1,,0.1"),
        ("counter,cpu,hostcall,,level,", ",1,-1.5,0.1"),
    ] {
        let is_it = |line: &str| line.starts_with(row) && line.ends_with(value);
        assert!(csv.lines().any(is_it), "{row}: {csv}");
    }
    let open = csv.lines().find(|line| line.starts_with("span,cpu,hostcall,,open,1,speaks,0,0,"));
    let open = open.expect("a span that has not ended has a row").split(',').collect::<Vec<_>>();
    assert!(!open[13].is_empty() && open[16].is_empty(), "{open:?}");
    let pftrace = folder.path().join("points.pftrace");
    let output = trace(&["export", file, pftrace.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let pftrace = fs::read(pftrace).unwrap();
    for name in ["wave in slot ", "work", "level", "so be it: 'x'"] {
        assert!(pftrace.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
    }
}

#[test]
fn bytes_have_no_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes.trace");
    recorded(&path, |stream, channel| drop(words.launch(stream, Grid::new(1, 1), (channel,)).unwrap()));
    let file = path.to_str().unwrap();
    let dump = stdout(&trace(&["dump", file]));
    assert!(
        dump.contains("  000000: 31 36 20 62 79 74 65 73 20 6f 66 20 74 65 78 74  16 bytes of text\n"),
        "{dump}"
    );
    let out = folder.path().join("x.csv");
    let output = trace(&["export", file, out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("does not say what the records of stream \"samples\""),
        "{}",
        stderr(&output)
    );
}

#[kernel]
fn asks(_: &Lane) {
    assert!(::hostcall::hostcall_device::time::now_ns().unwrap() > 0);
}

/// Ids of launches are each device's own.
#[test]
fn devices_of_one_name_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, table) = (folder.path().join("two.trace"), folder.path().join("two.csv"));
    let tracer = Tracer::builder().file(&path).unwrap().start().unwrap();
    let devices = [(); 2].map(|()| Device::builder("cpu").trace(&tracer).open().unwrap());
    for device in &devices {
        let stream = device.stream().unwrap();
        asks.launch(&stream, Grid::new(1, 1), ()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(device.name(), "cpu");
        device.close();
    }
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);
    let [path, out] = [&path, &table].map(|path| path.to_str().unwrap());
    let info = lines(&stdout(&trace(&["info", path])));
    for line in ["device: cpu, protocol hostcall", "device: cpu (2), protocol hostcall"] {
        assert!(info.iter().any(|it| it == line), "{info:?}");
    }
    expect(&trace(&["export", path, out]), 0, "", "");
    let table = fs::read_to_string(&table).unwrap();
    for device in ["cpu", "cpu (2)"] {
        let call = format!("call,{device},hostcall,Clock,wall_ns,");
        assert_eq!(table.matches(&call).count(), 1, "{table}");
    }
}

/// What a terminal obeys, in a trace that may be anybody's.
const ORDERS: &str = "\u{1b}]0;title\u{7}\u{9b}2J\r\n";

/// A record whose format and unit are for terminals.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(format = "{value}\u{1b}[2J\n")]
struct Orders {
    #[hostcall(unit = "\u{1b}[2J")]
    value: u64,
}

#[kernel]
fn speaks_orders(_lane: &Lane) {
    let _work = span!("\u{1b}[2Jwork");
    counter!("\u{1b}[2Jlevel", 1u32);
    event!("\u{1b}[2J{}\n", 5u32);
}

#[test]
fn what_a_trace_says_gives_terminals_no_orders() {
    let folder = tempfile::tempdir().unwrap();
    let (calls, records) = (folder.path().join("calls.trace"), folder.path().join("records.trace"));
    let tracer = Tracer::builder().file(&calls).unwrap().start().unwrap();
    let (source, launch) = (tracer.source(ORDERS, ORDERS), LaunchId::new(1, 1));
    source.launch_began(launch, &ORDERS.into(), [1; 3]);
    source.call(ORDERS, 300, launch, Call { replied_ns: 2_000_000_000, ..Call::at(5) });
    source.waiting(launch, Waiting { at_ns: 7, slot: 3, method: ORDERS.into(), ..Waiting::default() });
    source.launch_ended(launch, Ending::PANICKED);
    let device = Device::builder("cpu").trace(&tracer).open().unwrap();
    let stream = device.stream().unwrap();
    speaks_orders.launch(&stream, Grid::new(1, 1), ()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);

    let mut file = StreamFile::create(&records).unwrap();
    let described = Descriptor::of(Orders::TYPE).unwrap();
    let mut bare = described.clone();
    bare.format = "".into();
    for descriptor in [Some(&described), Some(&bare), None] {
        let stream = file.stream(ORDERS, 8, 0, ORDERS, descriptor).unwrap();
        file.page(&Page { stream, bytes: vec![1; 8].into(), ..Page::default() }).unwrap();
    }
    file.finish().unwrap();

    let [calls, records] = [&calls, &records].map(|path| path.to_str().unwrap());
    let out = folder.path().join("out.csv");
    let out = out.to_str().unwrap();
    let runs: [&[&str]; 8] = [
        &["info", calls],
        &["dump", calls],
        &["top", calls],
        &["info", records],
        &["dump", records],
        &["top", records],
        &["export", records, out],
        &["export", records, out, "--stream", "nobody"],
    ];
    for arguments in runs {
        let output = trace(arguments);
        let printed = stdout(&output) + &stderr(&output);
        assert!(!printed.contains(|c: char| c.is_control() && c != '\n'), "{arguments:?}: {printed:?}");
        assert!(printed.contains("\\u{1b}]0;title\\u{7}\\u{9b}2J\\r\\n"), "{arguments:?}: {printed}");
    }
}
