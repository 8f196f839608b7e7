//! A fault that no lane caused goes where it went before. Shown in processes of their own, as they die of it.

mod common;
use common::*;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

/// Runs the ignored test `name` in a process of its own.
fn run_alone(name: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("a test knows its program");
    let output = Command::new(program).args(["--exact", name, "--ignored"]).output();
    output.expect("the program starts again").status
}

fn fault_outside_lanes() {
    let executor = executor(|_| ());
    assert_works(&executor);
    // SAFETY: none, which is the point: the process must end.
    unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
}

#[test]
#[ignore = "ends its process"]
fn with_a_handler() {
    extern "C" fn leave(_: i32) {
        // SAFETY: ends the process, allowed in a handler.
        unsafe { libc::_exit(42) };
    }
    // SAFETY: a handler that only calls what handlers may.
    unsafe { libc::signal(libc::SIGSEGV, leave as *const () as usize) };
    fault_outside_lanes();
}

#[test]
#[ignore = "ends its process"]
fn without_a_handler() {
    fault_outside_lanes();
}

#[test]
fn faults_outside_lanes_go_to_the_earlier_handler() {
    assert_eq!(run_alone("with_a_handler").code(), Some(42));
    assert_eq!(run_alone("without_a_handler").signal(), Some(libc::SIGSEGV));
}
