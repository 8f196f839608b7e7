//! A process that may run on some processors only keeps its other threads, its ranks and its GPU's neighbours where they are: no
//! thread of the library leaves these processors.
#![cfg(target_os = "linux")]

use hostcall::raw::{OverwriteOldest, RawChannel};
use hostcall::trace::Tracer;
use hostcall::{CallError, Device, service};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const CHILD: &str = "HOSTCALL_TEST_OF_AFFINITY";

#[service(number = 700)]
trait Slow {
    fn wait() -> u64;
}

struct Waits;

impl SlowHandler for Waits {
    fn wait(&self) -> Result<u64, CallError> {
        Ok(1)
    }
}

/// The processors on which a thread may run, as the system lists them.
fn allowed(task: &Path) -> Option<String> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Opens a device with all kinds of threads, and checks where they may run.
fn check() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = Tracer::builder().file(folder.path().join("a.trace")).unwrap().start().unwrap();
    let device = Device::builder("cpu").trace(&tracer).service(Slow::serve(Waits)).open().unwrap();
    let stream = device.stream().unwrap();
    let channel = RawChannel::<u64, OverwriteOldest>::new(&device, 16, 128).unwrap();
    stream.synchronize().unwrap();
    let tasks: Vec<_> = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).collect();
    // A thread may have ended meanwhile.
    let lists: Vec<_> = tasks.iter().filter_map(|task| allowed(task)).collect();
    assert!(lists.len() > 4, "the library has threads: {lists:?}");
    assert!(lists.iter().all(|list| list == "0"), "{lists:?}");
    drop(channel);
}

#[test]
fn threads_run_where_the_process_may() {
    if env::var_os(CHILD).is_some() {
        return check();
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "threads_run_where_the_process_may", "--nocapture"]);
    assert!(command.env(CHILD, "1").status().expect("util-linux is installed").success());
}
