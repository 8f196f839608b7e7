//! Reads PTX text for what the compiler is known to get wrong, and for what our device code must not hold.

use crate::Limits;
use hostcall_abi::launch::LaunchParams;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Warp operations: as inline assembly they could be moved out of a branch and see another mask.
const CONVERGENT: &[&str] = &["activemask", "shfl.", "vote.", "match.", "redux.", "bar.", "barrier."];

/// What is wrong with the image, a sentence each.
pub fn problems(text: &str, kernels: &[String], limits: &Limits) -> Vec<String> {
    let mut problems = Vec::new();
    let mut in_inline_asm = false;
    let mut in_entry = false; // or in the call itself
    for line in text.lines().map(str::trim) {
        match line {
            "// begin inline asm" => in_inline_asm = true,
            "// end inline asm" => in_inline_asm = false,
            _ => {}
        }
        if line.starts_with(".visible .entry") || line.starts_with(".entry") {
            in_entry = true;
        } else if line.contains(".func ") {
            // The call itself stands in a function of its own, one for each size of line.
            in_entry = line.contains("hostcall_device4call8exchange");
        }
        if !limits.fences && in_entry && line.contains("4core3fmt") {
            problems.push(format!("a call formats: {line}"));
        }
        if in_entry && let Some(bytes) = stack_bytes(line).filter(|bytes| *bytes > limits.stack_bytes) {
            problems.push(format!("a kernel takes {bytes} bytes of stack a lane"));
        }
        for statement in line.split("//").next().unwrap_or_default().split(';') {
            // A predicate comes before the opcode.
            let opcode =
                statement.split_whitespace().find(|word| !word.starts_with(['@', '{'])).unwrap_or_default();
            // Rust's name their scope, and their order with it.
            if (!limits.atomics || !in_inline_asm) && is_bare(opcode) {
                problems.push(format!("a read-modify-write without scope: {statement}"));
            }
            if !limits.fences && in_entry && is_system_fence(opcode) {
                problems.push(format!("a fence of the whole system: {statement}"));
            }
            if in_inline_asm && CONVERGENT.iter().any(|name| opcode.starts_with(name)) {
                problems.push(format!("a warp operation as inline assembly: {statement}"));
            }
        }
    }

    if text.contains("hostcall_formatters[];") || !text.contains(" hostcall_formatters[") {
        problems.push("panics are formatted by the device: `core` has others than it knows".to_owned());
    }
    if !limits.fences && text.lines().any(|line| line.contains("call") && line.contains(", prototype_")) {
        problems.push("a program that only calls the host calls through a pointer".to_owned());
    }
    for needed in ["ld.relaxed.sys.", "st.relaxed.sys."] {
        if !text.contains(needed) {
            problems.push(format!("no {needed}: calls cannot work without"));
        }
    }
    for kernel in kernels {
        let Some(end) = crate::symbol_end(text, kernel) else {
            problems.push(format!("no info symbol of kernel {kernel}"));
            continue;
        };
        match parameters(text, end) {
            None => problems.push(format!("no entry for kernel {kernel}")),
            Some(parameters) => {
                let launch = format!("hostcall_kernel_{end}_param_0[{}]", size_of::<LaunchParams>());
                // A kernel without arguments has the launch's parameters only.
                if parameters.matches(".param ").count() > 2 || !parameters.contains(&launch) {
                    problems
                        .push(format!("kernel {kernel} does not take the launch's and its own parameters"));
                }
            }
        }
    }
    problems
}

/// LLVM drops scope and order of read-modify-writes: what is left is relaxed, among the lanes of this GPU. Atomics name a scope
/// when LLVM got them right (compare-and-exchange), when their order was written back, or somebody wrote them himself.
fn is_bare(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    matches!(parts.next(), Some("atom" | "red"))
        && !parts.any(|part| matches!(part, "sys" | "gpu" | "cta" | "cluster"))
}

/// A small call orders nothing but its own words: a fence would wait for every write of the wave to reach the host.
fn is_system_fence(opcode: &str) -> bool {
    opcode == "membar.sys" || opcode.starts_with("fence.") && opcode.ends_with(".sys")
}

/// Bytes of `.local .align 8 .b8 __local_depot0[64];`.
fn stack_bytes(line: &str) -> Option<u32> {
    let (_, rest) = line.strip_prefix(".local ")?.split_once("__local_depot")?;
    rest.split_once('[')?.1.split(']').next()?.parse().ok()
}

/// Parameters of the kernel's entry.
fn parameters<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!(".visible .entry hostcall_kernel_{end}("))?;
    rest.split(')').next()
}

/// What is wrong with the kernels of `tests/computing`.
pub fn of_computing(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut expect = |is_so: bool, what: &str| problems.extend((!is_so).then(|| what.to_owned()));
    let entry = |kernel| {
        let end = crate::symbol_end(text, kernel).expect("the kernel");
        let (_, rest) =
            text.split_once(&format!(".visible .entry hostcall_kernel_{end}(")).expect("its entry");
        rest.split("\n}").next().expect("its body")
    };
    let count = |body: &str, opcode: &str| {
        body.lines().filter(|line| line.split_whitespace().next() == Some(opcode)).count()
    };

    let matmul = entry("matmul");
    expect(!matmul.contains(".local"), "an array of a kernel lies in local memory");
    expect(count(matmul, "mul.f32") == 64 && count(matmul, "add.f32") == 64, "64 sums are not contracted");
    expect(count(matmul, "ld.global.b32") >= 16, "loads of slices are not known to be global");
    expect(count(matmul, "st.relaxed.sys.global.b32") == 64, "stores to slices are not known to be global");
    expect(count(matmul, "ld.b32") == 0, "loads are not known to be of any memory");

    let floats = entry("floats");
    expect(count(floats, "mul.f32") == 1 && count(floats, "add.f32") == 2, "floats are not contracted");
    expect(count(floats, "mul.rn.f32") == 1, "a product is not rounded that shall be");
    expect(floats.contains("15hostcall_device4math"), "mathematics is part of a kernel");
    let mathematics = text.split("\n}").filter(|function| {
        let header = function.split("\n{").next().and_then(|header| header.rsplit_once(".func "));
        header.is_some_and(|(_, name)| name.contains("15hostcall_device4math"))
    });
    let is_contracted =
        |body: &str| ["mul.f32", "mul.f64", "add.f32", "add.f64"].iter().any(|op| count(body, op) > 0);
    expect(mathematics.clone().count() > 0, "there is no mathematics");
    expect(!mathematics.into_iter().any(is_contracted), "mathematics is contracted");

    let double = entry("double");
    expect(count(double, "call.uni") == 0 && count(double, "call") == 0, "a kernel that calls nothing calls");
    expect(!double.contains(".shared."), "a kernel that calls nothing keeps something of its waves");
    expect(double.contains("hostcall asks: record"), "the question for a record is not found");
    for (kernel, posts) in [("rounds", false), ("posting_rounds", true)] {
        let body = entry(kernel);
        let asks = |answer: u32| body.contains(&format!(", {answer}; // hostcall asks: posts"));
        expect(
            asks(posts.into()) && !asks((!posts).into()),
            "a kernel with barriers is told wrongly of its posts",
        );
    }
    expect(!double.contains(".local"), "a kernel that calls nothing has a stack");
    problems
}

/// NVIDIA's assembler: `PTXAS`, in PATH, or where `.ci/install-device-toolchain` puts it.
fn ptxas() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let installed = cache.or(home).map(|folder| folder.join("hostcall/ptxas")).filter(|file| file.exists());
    std::env::var_os("PTXAS").map(PathBuf::from).or(installed).unwrap_or_else(|| "ptxas".into())
}

/// Runs the assembler. Returns what it says, or what it has against the image.
fn run_ptxas(image: &hostcall_build::Image, arguments: &[&str]) -> Result<String, String> {
    let arch = format!("-arch={}", image.target);
    let output = match Command::new(ptxas()).args([&arch, "-o", "/dev/null"]).args(arguments).output() {
        Ok(output) => output,
        Err(error) => panic!("ptxas does not run ({error}): install it with .ci/install-device-toolchain"),
    };
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// What the assembler has against the image.
pub fn assemble(image: &hostcall_build::Image) -> Vec<String> {
    // An object's functions are compiled apart from the kernels, whose bounds they would have to keep.
    let text = fs::read_to_string(&image.path).expect("the image");
    let lines = text.lines().filter(|line| !line.starts_with(".maxnreg"));
    let object = image.path.with_extension("object.ptx");
    fs::write(&object, lines.collect::<Vec<_>>().join("\n")).expect("a file beside the image");
    let object = object.to_str().expect("the path is text");
    run_ptxas(image, &["-c", "-maxrregcount=64", object]).err().into_iter().collect()
}

/// Kernels that take more than so many registers.
pub fn kernels_that_take_more(image: &hostcall_build::Image, registers: u32) -> Vec<String> {
    let said = match run_ptxas(image, &["-v", image.path.to_str().expect("the path is text")]) {
        Ok(said) => said,
        Err(problem) => return vec![problem],
    };
    // Of each kernel: "Compiling entry function 'name' for ...", properties, "Used 32 registers, ...".
    let kernels = said.split("Compiling entry function '").skip(1);
    kernels
        .filter_map(|about| {
            let name = about.split('\'').next()?;
            let used: u32 = about.split_once("Used ")?.1.split(' ').next()?.parse().ok()?;
            (used > registers).then(|| format!("{name} takes {used} registers"))
        })
        .collect()
}

#[test]
fn traps_are_seen() {
    let kernels = ["main".to_owned()];
    let good = "\
.visible .global .align 8 .b8 hostcall_kernel_info_main__0123abcd[72] = {1};
.global .align 8 .u64 hostcall_formatters[2] = {0, 0};
.visible .entry hostcall_kernel_main__0123abcd(
	.param .align 8 .b8 hostcall_kernel_main__0123abcd_param_0[80],
	.param .align 8 .b8 hostcall_kernel_main__0123abcd_param_1[8]
)
{
	.local .align 8 .b8 	__local_depot0[64];
	ld.relaxed.sys.b64 	%rd4, [%rd2];
	st.relaxed.sys.b64 	[%rd2], %rd8;
	activemask.b32 	%r1;
	// begin inline asm
	atom.acq_rel.sys.add.u64 %rd1, [%rd2], 1;
	// end inline asm
	@%p1 atom.relaxed.sys.cas.b64 %rd1, [%rd2], %rd3, %rd4; // not red.add
";
    assert_eq!(problems(good, &kernels, &Limits::SMALL_CALL), [""; 0]);
    for bad in [
        "	atom.add.u64 	%rd9, [%rd2], 1;",
        "	@%p1 red.or.b64 [%rd2], 1;",
        "	fence.acq_rel.sys;",
        "	membar.sys;",
        "	// begin inline asm\n	{ .reg .u32 %t; activemask.b32 %t; }\n	// end inline asm",
        "	.local .align 8 .b8 	__local_depot1[2048];",
        "	// begin inline asm\n	@%p1 bar.sync 0;\n	// end inline asm",
        "	call (retval0), %rd1, (param0), prototype_7;",
        ".extern .global .align 8 .b64 hostcall_formatters[];",
    ] {
        assert_eq!(problems(&format!("{good}{bad}\n"), &kernels, &Limits::SMALL_CALL).len(), 1, "{bad}");
    }
    assert_eq!(problems(good, &["other".to_owned()], &Limits::SMALL_CALL).len(), 1);
}
