//! Waits of kernels that other compilers made, as another process sees them.

use crate::common::{self, run, source};
use crate::contexts::nvidia;
use crate::{CUDA, FLAGS, HIP, hip_kernels, nvptx64, temporary};
use hostcall::watch::{self, Wait};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const KERNELS: &str = "tests/c/waits.hip";

/// The host, whose threads are lanes too.
static HOST: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary("waits");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-g", "-O1", "-pthread"]).args(FLAGS).arg("-I").arg(source("include"));
    command.arg(source("tests/c/waits.cpp")).args(common::shared());
    run(command.arg("-o").arg(&program));
    program
});

/// A process that ends with this.
struct Hangs(Child);

impl Drop for Hangs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs kernels that wait, and finds that all of these lanes do in the end, for what they say.
fn check(command: &mut Command, lanes: u32) {
    let mut host = Hangs(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(host.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().expect("the first waits end").unwrap(), "waits");
    let begin = Instant::now();
    let waits = loop {
        let process = watch::state(host.0.id()).unwrap();
        let waits = &process.devices[0].waiting;
        if waits.iter().map(|wait| wait.lanes).sum::<u32>() == lanes {
            break waits.clone();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{process:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut peers = BTreeMap::<Option<u32>, u32>::new();
    for Wait { launch, kernel, service, waits_for, polled, lanes, text, .. } in &waits {
        let polled = polled.expect("it says what it polls");
        assert_eq!((&**kernel, &**service, &**waits_for), ("kernels that wait", "signal", "Flag"), "{text}");
        assert!(polled.sequence == 5 && polled.address != 0 && !launch.is_empty(), "{text}");
        assert!(text.contains("has waited for the flag `signal`, number 5 of rank "), "{text}");
        *peers.entry(polled.peer).or_default() += lanes;
    }
    let expected = (0..3).map(|peer| (Some(peer), (lanes - peer).div_ceil(3)));
    assert_eq!(peers, expected.collect());
}

#[test]
fn threads_say_what_they_wait_for() {
    check(Command::new(&*HOST).arg("cpu"), 8);
}

#[test]
fn kernels_in_hip_say_what_they_wait_for() {
    for level in ["-O3", "-O1"] {
        let code = hip_kernels(&[&HIP[..], &[level]].concat(), KERNELS, &format!("waits{level}.co"));
        check(Command::new(&*HOST).arg("gfx942").arg(code), 70);
    }
}

#[test]
fn compilers_for_nvidia_take_waits() {
    nvptx64::assemble(&hip_kernels(&CUDA, KERNELS, "waits.ptx"));
    let mut command = Command::new(nvidia().join("bin/nvcc"));
    command.args(["-x", "cu", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]);
    command.arg(source("include")).arg("-I").arg(source("tests/c")).arg(source(KERNELS));
    run(command.arg("-o").arg(temporary("waits-nvcc.o")));
    let mut command = Command::new("python3");
    command.arg(source("tests/c/nvrtc.py")).arg(nvidia().join("lib"));
    let text = |file: &str| source(file).display().to_string();
    let files = [KERNELS, "tests/c/wait_kernels.h", "include/hostcall_device.h"];
    assert_eq!(run(command.args(files.map(text))), "compiled\n");
}
