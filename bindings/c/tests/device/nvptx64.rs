//! Kernels in C for NVIDIA's GPUs, as far as a machine without one can tell.

use crate::common::run;
use crate::kernels;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What C is compiled with.
const NVIDIA: [&str; 9] = [
    "-std=c99",
    "--target=nvptx64-nvidia-cuda",
    "-march=sm_90",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+ptx78",
    "-ffreestanding",
    "-S",
];

/// Assembles PTX, where NVIDIA's assembler is installed.
pub fn assemble(ptx: &Path) {
    let Some(ptxas) = ptxas() else { return };
    run(Command::new(ptxas).args(["-arch=sm_90", "-o", "/dev/null"]).arg(ptx));
}

/// NVIDIA's assembler, where it is installed.
pub fn ptxas() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let places = [PathBuf::from("ptxas"), cache.join("hostcall/ptxas")];
    let is_there = |place: &PathBuf| Command::new(place).arg("--version").output().is_ok();
    places.into_iter().find(is_there)
}

#[test]
fn kernels_in_c_are_assembled() {
    let ptx = kernels(&NVIDIA, "tests/c/raw_kernels.c", "kernels.ptx");
    let text = std::fs::read_to_string(&ptx).unwrap();
    // A release before each place that is stored, system-wide; what it is called depends on PTX's version.
    let fences = ["fence.acq_rel.sys", "fence.release.sys"];
    assert!(fences.iter().any(|fence| text.contains(fence)) && text.contains("st.relaxed.sys"));
    assemble(&ptx);
}
