//! The chapter "Printing".

use hostcall::services::{Builtins, Sink, Stream};
use hostcall::{Device, Grid, Lane, LaunchKernel, eprintln, kernel, println};
use std::sync::mpsc;

// ANCHOR: kernel
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
