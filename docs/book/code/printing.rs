//! The chapter "Printing".

use hostcall::services::Stream;

// ANCHOR: kernel
use hostcall::services::{Builtins, Lines, Sink};
use hostcall::{Device, Grid, Lane, LaunchKernel, eprintln, kernel, println};
use std::sync::mpsc;

#[kernel]
fn greet(lane: &Lane, temperature: f32) {
    let id = lane.global_id();
    println!("lane {id:>3}: {temperature:.1} °C{}", if temperature > 30.0 { ", hot" } else { "" });
    if id == 0 {
        eprintln!("this goes to the standard error");
    }
}
// ANCHOR_END: kernel

#[test]
fn lines_go_where_the_host_wants_them() {
    // ANCHOR: sink
    let (lines, received) = mpsc::channel();
    let sink = Sink::callback(move |stream, text| {
        // Whole lines, on a thread of the sink's own, while the kernel runs.
        let _ = lines.send((stream, String::from_utf8_lossy(text).into_owned()));
    });
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    // ANCHOR_END: sink
    let stream = device.stream().unwrap();
    // ANCHOR: flush
    greet.launch(&stream, Grid::new(1, 2), (31.25,)).unwrap();
    stream.synchronize().unwrap(); // every line of the launch is on its way to its writer
    device.builtins().stdio().flush().unwrap(); // and has been written, or this says why not
    // ANCHOR_END: flush
    let all: Vec<(Stream, String)> = received.try_iter().collect();
    let of = |wanted| all.iter().filter(move |(stream, _)| *stream == wanted).map(|(_, text)| text.as_str());
    let mut out: Vec<String> = of(Stream::Stdout).flat_map(str::lines).map(str::to_owned).collect();
    out.sort();
    assert_eq!(out, ["lane   0: 31.2 °C, hot", "lane   1: 31.2 °C, hot"]);
    assert_eq!(of(Stream::Stderr).collect::<String>(), "this goes to the standard error\n");
}

#[test]
fn lines_say_where_they_come_from() {
    let (lines, received) = mpsc::channel();
    let sink = Sink::callback(move |_, text| {
        let _ = lines.send(String::from_utf8_lossy(text).into_owned());
    });
    // ANCHOR: lines
    // The first lane of each workgroup of `greet`, as `[cpu, greet 0.1, workgroup 1.0.0, lane 0] lane   2: 21.5 °C`
    let lines = Lines::new().prefix().of_kernel("greet").of_lane(0);
    let builtins = Builtins::builder().lines(lines).output(sink).build().unwrap();
    // ANCHOR_END: lines
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    greet.launch(&stream, Grid::new(2, 2), (21.5,)).unwrap();
    stream.synchronize().unwrap();
    device.builtins().stdio().flush().unwrap();
    let text: String = received.try_iter().collect();
    let mut lines: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(", workgroup ")).map(|(_, l)| l).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "0.0.0, lane 0] lane   0: 21.5 °C",
            "0.0.0, lane 0] this goes to the standard error",
            "1.0.0, lane 0] lane   2: 21.5 °C"
        ]
    );
}
