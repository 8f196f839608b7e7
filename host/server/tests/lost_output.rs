//! Output that is lost without anybody asking for it is told of in the end.

use hostcall_server::services::{Sink, Stream};
use std::io::{self, Write};
use std::process::Command;

/// A full disk.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn nobody_flushes() {
    Sink::writers(Full, io::sink()).write(Stream::Stdout, b"four").unwrap();
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn somebody_flushes() {
    let sink = Sink::writers(Full, io::sink());
    sink.write(Stream::Stdout, b"four").unwrap();
    sink.flush().unwrap_err();
}

/// What a test writes to the standard error when it runs alone.
fn stderr_of(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", test, "--ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_loss_that_nobody_asks_about_is_told() {
    let told = stderr_of("nobody_flushes");
    assert!(told.contains("hostcall: 4 bytes that kernels printed are lost: standard output: "), "{told}");
    let told = stderr_of("somebody_flushes");
    assert!(!told.contains("lost"), "{told}");
}
