//! The example in HIP and CUDA C++, compiled for the GPU in software, and its host in C.

use crate::common::{self, run};
use crate::{CUDA, HIP, hip_kernels, nvptx64};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const KERNELS: &str = "examples/walk.hip";

static CODE: LazyLock<PathBuf> = LazyLock::new(|| hip_kernels(&HIP, KERNELS, "walk.co"));

static HOST: LazyLock<PathBuf> = LazyLock::new(|| common::compile("examples/raw.c", &common::shared()));

#[test]
fn a_host_in_c_reads_what_a_kernel_in_hip_writes() {
    let printed = run(Command::new(&*HOST).arg("gfx942").arg(&*CODE).args(["600", "50"]));
    // Three workgroups of 256 lanes walk through the nodes.
    let mut reads = vec![0; 4096];
    for lane in 0..768 {
        (0..50).fold(lane, |node, _| {
            reads[node] += 1;
            (node * 5 + 3) % reads.len()
        });
    }
    let (sum, most): (u64, _) = (reads.iter().sum(), reads.iter().max().unwrap());
    let of_channel = format!("{} bytes, 0 dropped, 0 pages left open", 16 * sum);
    let expected = format!("{sum} reads, at most {most} of a node; {of_channel}\n");
    assert_eq!(printed, expected);
}

#[test]
fn the_kernel_is_assembled_as_cuda() {
    nvptx64::assemble(&hip_kernels(&CUDA, KERNELS, "walk.ptx"));
}

#[test]
fn what_cannot_be_is_refused_and_told() {
    let host = common::compile("tests/c/raw_checks.c", &common::shared());
    assert_eq!(run(Command::new(host).arg(&*CODE)), "passed\n");
}

#[test]
fn a_host_has_no_error_under_valgrind() {
    let mut command = common::valgrind();
    command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]).arg(&*HOST);
    run(command.arg("gfx942").arg(&*CODE).args(["70", "3"]));
}
