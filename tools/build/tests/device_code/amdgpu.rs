//! Reads AMD code objects: their headers, notes and disassembly.

use crate::Limits;
use std::path::Path;
use std::process::Command;

/// A read-modify-write that an image may hold, by the start of its mnemonic, and why it is right. On memory of
/// the host it would need atomics over the link, which not every machine has.
const ALLOWED_ATOMICS: &[(&str, &str)] = &[
    // Of 32 and 64 bits, by each architecture's names.
    (
        "flat_atomic_cmpswap",
        "the lock of a slot that parts of a wave share, the bitmap of the pool, and who has an entry of the wait table: all in \
         memory of the device",
    ),
    ("flat_atomic_add", "the count of waits that found no entry of the wait table, in memory of the device"),
];

/// What is wrong with the image, a sentence each.
pub fn problems(image: &hostcall_build::Image, limits: &Limits) -> Vec<String> {
    let about = tool("llvm-readelf-22", &["--file-header", "--notes", "--symbols", "--wide"], &image.path);
    let code = tool("llvm-objdump-22", &["--disassemble", "--no-show-raw-insn"], &image.path);
    let mut problems = if limits.atomics { Vec::new() } else { atomics(&code) };

    if !about.contains(&format!("amdhsa.target:   amdgcn-amd-amdhsa--{}\n", image.target)) {
        problems.push(format!("is not for {}", image.target));
    }
    // The ABI version in the header is 3 for code object version 5.
    if field(&about, "ABI Version:") != Some(3) {
        problems.push("is not of code object version 5".into());
    }
    // What an argument becomes must not hang on its size: the host passes the address of each.
    if about.lines().any(|line| line.contains(".value_kind:") && line.ends_with("by_value")) {
        problems.push("a kernel takes an argument by value".into());
    }
    for line in about.lines().filter(|line| line.contains(".private_segment_fixed_size:")) {
        if field(line, ".private_segment_fixed_size:").is_none_or(|bytes| bytes > limits.stack_bytes) {
            problems.push(format!("a kernel takes much stack: {}", line.trim()));
        }
    }
    for kernel in &image.kernels {
        let Some(end) = crate::symbol_end(&about, kernel) else {
            problems.push(format!("has no info symbol of kernel {kernel}"));
            continue;
        };
        for symbol in [format!("hostcall_kernel_{end}.kd"), format!("hostcall_kernel_info_{end}")] {
            if !about.lines().any(|line| line.split_whitespace().last() == Some(&symbol)) {
                problems.push(format!("has no symbol {symbol}"));
            }
        }
    }
    problems
}

/// Atomic instructions on memory that the host may share. Those on workgroup memory are named `ds_`.
fn atomics(code: &str) -> Vec<String> {
    code.lines()
        .map(str::trim)
        .filter(|line| {
            ["global_atomic", "flat_atomic", "buffer_atomic"].iter().any(|start| line.starts_with(start))
        })
        .filter(|line| !ALLOWED_ATOMICS.iter().any(|(allowed, _)| line.starts_with(allowed)))
        .map(|line| format!("a read-modify-write: {line}"))
        .collect()
}

/// The number after the first `name`.
fn field(text: &str, name: &str) -> Option<u32> {
    text.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

fn tool(name: &str, arguments: &[&str], image: &Path) -> String {
    let output = match Command::new(name).args(arguments).arg(image).output() {
        Ok(output) => output,
        Err(error) => panic!("{name} does not run ({error}): install it with .ci/install-device-toolchain"),
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn traps_are_seen() {
    assert_eq!(atomics("\tglobal_load_dword v1, v[2:3], off\n\tds_add_u32 v0, v1\n"), [""; 0]);
    assert_eq!(atomics("\tglobal_atomic_add_x2 v[0:1], v[2:3], off\n\tflat_atomic_or v0, v1\n").len(), 2);
}
