//! A program whose graph loops for ever, and which ends its work when it is interrupted (Ctrl-C).
#![cfg(target_os = "linux")]

use hostcall::graph::{CaptureMode, Condition, Graph};
use hostcall::hostcall_device::{Lane, kernel, time};
use hostcall::{Device, Error, Grid, LaunchKernel};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[kernel]
fn ask_the_time(_: &Lane) {
    let _ = time::now_ns();
}

#[test]
fn an_interruption_ends_a_loop_that_calls() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loop_until_interrupted", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "it loops"));
    // SAFETY: a signal to a process that is this one's child, and was not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let told: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("ended: for ever, replay 1, ")), "{told:?}");
    assert!(told.iter().any(|line| line.ends_with("the launch was cancelled")), "{told:?}");
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interruption(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

#[test]
#[ignore = "the test above runs it, and interrupts it"]
fn loop_until_interrupted() {
    let handler = note_interruption as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing but store to an atomic.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    let device = Device::open("cpu").unwrap();
    let interrupted = device.clone();
    std::thread::spawn(move || {
        while !INTERRUPTED.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupted.cancel_all();
    });
    let stream = device.stream().unwrap();
    let body = stream.capture(CaptureMode::ThreadLocal, |stream| {
        ask_the_time.launch(stream, Grid::new(1, 4), ()).map(drop)
    });
    let mut graph = Graph::new(&device).named("for ever");
    graph.add_while(&Condition::function(|| 1), &body.unwrap()).unwrap();
    let replay = graph.instantiate().unwrap().launch(&stream).unwrap();
    // Whatever goes wrong.
    replay.cancel_after(Duration::from_secs(60));
    println!("it loops");
    match stream.synchronize() {
        Err(Error::Replay(failure)) => println!("ended: {failure}"),
        other => panic!("{other:?}"),
    }
}
