//! A software GPU that the environment turns off.

use hostcall_hsa::Runtime;
use std::process::Command;

/// Set for the process in which the GPU is turned off.
const INNER: &str = "HOSTCALL_HSA_TEST_OFF";

#[test]
fn a_software_gpu_that_is_turned_off_is_named_once() {
    const REASON: &str = "the software HSA runtime has no GPU, as SOFTHSA_AGENTS=0 asks";
    if std::env::var_os(INNER).is_some() {
        // SAFETY: `symbol` returns the functions of the names, whose types are those of the headers, and the
        // runtime does what `contained` says.
        let runtime = unsafe { Runtime::contained(hostcall_softhsa::api::symbol) };
        assert_eq!(runtime.map(|_| ()), Err(REASON.to_owned()));
        return;
    }
    let program = std::env::current_exe().expect("the test's file has a path");
    let output = Command::new(program)
        .arg("--nocapture")
        .env("SOFTHSA_AGENTS", "0")
        .env(INNER, "1")
        .output()
        .expect("the test starts again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Whoever opens the device says it.
    assert!(!said.contains("SOFTHSA_AGENTS"), "{said}");
}
