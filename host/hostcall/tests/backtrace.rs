//! `HOSTCALL_BACKTRACE=1` has a panic on the software device say which calls led to it.

use hostcall::{Device, Error, Global, Grid, Lane, LaunchFailure, LaunchKernel, kernel};
use std::hint::black_box;
use std::process::Command;

/// Set for the process that panics.
const CHILD: &str = "HOSTCALL_TEST_PANICS";

#[inline(never)]
fn divide(value: u32, by: u32) -> u32 {
    black_box(value).checked_div(by).expect("a number that is not 0")
}

#[inline(never)]
fn mean(values: &[Global<u32>], count: u32) -> u32 {
    black_box(divide(values.iter().map(Global::get).sum(), count))
}

#[kernel]
fn average(_: &Lane, values: &[Global<u32>], count: u32) {
    values[0].set(mean(values, count));
}

/// What the panic of a launch says.
fn message() -> String {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let values = device.alloc_zeroed::<u32>(4).unwrap();
    average.launch(&stream, Grid::new(1, 2), (&values, 0)).unwrap();
    match stream.synchronize() {
        Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(panic), .. }, .. }) => {
            panic.message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kernels_calls_are_told_where_they_are_wanted() {
    if std::env::var_os(CHILD).is_some() {
        println!("<{}>", message());
        return;
    }
    let this = std::env::current_exe().unwrap();
    let said = |wanted: Option<&str>| {
        let mut child = Command::new(&this);
        child
            .args(["--exact", "the_kernels_calls_are_told_where_they_are_wanted", "--nocapture"])
            .env(CHILD, "1");
        match wanted {
            Some(value) => child.env("HOSTCALL_BACKTRACE", value),
            None => child.env_remove("HOSTCALL_BACKTRACE"),
        };
        let output = String::from_utf8(child.output().unwrap().stdout).unwrap();
        output
            .split_once('<')
            .and_then(|(_, rest)| Some(rest.split_once(">\n")?.0.to_owned()))
            .expect("a message")
    };
    assert_eq!(said(None), "a number that is not 0");
    assert_eq!(said(Some("0")), "a number that is not 0");
    let text = said(Some("1"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "a number that is not 0");
    let calls = ["divide", "mean", "average"];
    assert_eq!(lines.len(), 1 + calls.len(), "{text}");
    for (line, call) in lines[1..].iter().zip(calls) {
        assert!(
            line.starts_with("  in ") && line.contains(call) && line.contains("tests/backtrace.rs:"),
            "{text}"
        );
    }
}
