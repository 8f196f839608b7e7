//! How the compiler sees a device that has `std`: as it sees the device itself, but for these.

use crate::toolchain::Toolchain;
use crate::{BuildError, Target};
use serde_json::{Map, Value, json};
use std::process::Command;

/// What the compiler calls the function by which it runs a program's `fn main()`. The device crate calls it.
const ENTRY: &str = "__hostcall_std_main";

/// The software device's system, which is none that anything knows: what asks for Linux would go past the host's services.
const CPU_SYSTEM: &str = "hostcall";

/// What this machine's own target says of Linux, and the software device is not.
const OF_LINUX: [&str; 9] = [
    "target-family",
    // A program's threads are lanes, of which a thread of the process has many.
    "has-thread-local",
    "env",
    "abi",
    "crt-static-respected",
    "has-rpath",
    "supported-sanitizers",
    "supports-xray",
    "position-independent-executables",
];

/// Returns the target's description, as compilers read it.
///
/// # Errors
/// When the compiler does not describe its own target.
pub fn describe(target: &Target, toolchain: &Toolchain) -> Result<String, BuildError> {
    let mut told = told(target, toolchain)?;
    told.insert("entry-name".into(), json!(ENTRY));
    told.insert("executables".into(), json!(true));
    told.remove("metadata");
    // A package's library that is made for C too is then made for Rust alone: a program needs no more.
    told.remove("dynamic-linking");
    told.remove("only-cdylib");
    if *target == Target::Cpu {
        for key in OF_LINUX {
            told.remove(key);
        }
        told.insert("os".into(), json!(CPU_SYSTEM));
        told.insert("panic-strategy".into(), json!("abort"));
    }
    Ok(Value::Object(told).to_string())
}

/// The description's name, by which cargo knows the target.
pub fn name(target: &Target) -> String {
    format!("hostcall-{}", target.cpu())
}

/// What the compiler says of the target, or of this machine's for the software device.
fn told(target: &Target, toolchain: &Toolchain) -> Result<Map<String, Value>, BuildError> {
    let rustc = toolchain.rustc.clone().unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(&rustc);
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--print=target-spec-json"]);
    if let Some(triple) = target.triple() {
        command.args(["--target", triple]);
    }
    let output = command.output().map_err(|error| BuildError::Tool { tool: rustc.clone(), error })?;
    serde_json::from_slice(&output.stdout).map_err(|_| BuildError::NoToolchain {
        target: target.to_string(),
        missing: format!("{} does not describe its target", rustc.display()),
    })
}
