//! Messages of kernels to a post queue, polled by a host in C++, and examples of kernels that others launch: from threads of the
//! host, the GPU in software, and compiled for NVIDIA's.

use crate::common::{self, run, source};
use crate::contexts::nvidia;
use crate::{CUDA, FLAGS, HIP, hip_kernels, nvptx64, temporary};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const KERNELS: &str = "tests/c/post_queue.hip";
const ALL_TO_ALL: &str = "examples/all_to_all.hip";
const HASH_JOIN: &str = "examples/hash_join.hip";

/// Compiles a host in C++, in which threads are lanes too.
fn host(file: &str) -> PathBuf {
    let program = temporary(file.rsplit('/').next().expect("a path has a last part")).with_extension("host");
    let mut command = Command::new("c++");
    command.args(["-std=c++20", "-g", "-O1", "-pthread"]).args(FLAGS).arg("-I").arg(source("include"));
    run(command.arg(source(file)).args(common::shared()).arg("-o").arg(&program));
    program
}

static HOST: LazyLock<PathBuf> = LazyLock::new(|| host("tests/c/post_queue.cpp"));
static PROXY: LazyLock<PathBuf> = LazyLock::new(|| host("examples/all_to_all.cpp"));

#[test]
fn threads_post_to_a_queue() {
    assert_eq!(run(Command::new(&*HOST).arg("cpu")), "passed\n");
}

#[test]
fn kernels_in_hip_post_to_a_queue() {
    for (level, name) in [("-O3", "post_queue-3.co"), ("-O1", "post_queue-1.co")] {
        let code = hip_kernels(&[&HIP[..], &[level]].concat(), KERNELS, name);
        assert_eq!(run(Command::new(&*HOST).arg("gfx942").arg(code)), "passed\n", "{level}");
    }
}

#[test]
fn the_example_sends_from_all_to_all() {
    let code = hip_kernels(&HIP, ALL_TO_ALL, "all_to_all.co");
    for (ranks, bytes) in [("2", "1000"), ("4", "4096"), ("5", "24")] {
        for device in ["cpu", "gfx942"] {
            let mut command = Command::new(&*PROXY);
            command.arg(device).args([ranks, bytes, "6"]);
            if device == "gfx942" {
                command.arg(&code);
            }
            let printed = run(&mut command);
            let (ranks, bytes): (u64, u64) = (ranks.parse().unwrap(), bytes.parse().unwrap());
            let messages = 6 * ranks * ranks;
            let expected =
                format!("{ranks} ranks, 6 rounds: {messages} messages, {} bytes", messages * bytes);
            assert_eq!(printed, format!("{expected}, all of them right\n"), "{device}");
        }
    }
}

#[test]
fn compilers_for_nvidia_take_them() {
    for (file, ptx) in
        [(KERNELS, "post_queue.ptx"), (ALL_TO_ALL, "all_to_all.ptx"), (HASH_JOIN, "hash_join.ptx")]
    {
        nvptx64::assemble(&hip_kernels(&CUDA, file, ptx));
        let mut command = Command::new(nvidia().join("bin/nvcc"));
        command.args(["-x", "cu", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]);
        command.arg(source("include")).arg("-I").arg(source("tests/c")).arg(source(file));
        run(command.arg("-o").arg(temporary("post_queue.o")));
    }
}

/// A join whose kernel calls a service in C for the keys that the GPU has not.
#[test]
fn the_example_joins_with_keys_that_it_asks_for() {
    let (host, code) = (host("examples/hash_join.cpp"), hip_kernels(&HIP, HASH_JOIN, "hash_join.co"));
    for (rows, keys) in [("1", "1"), ("777", "99"), ("20000", "1000")] {
        let on_host = run(Command::new(&host).arg("cpu").args([rows, keys]));
        let on_gpu = run(Command::new(&host).arg("gfx942").args([rows, keys]).arg(&code));
        assert!(on_host.ends_with(", as here\n"), "{on_host}");
        assert_eq!(on_host, on_gpu);
    }
}
