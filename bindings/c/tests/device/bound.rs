//! Kernels in HIP that call a service in Rust by the header which is made of it.

use crate::common::{Store, source};
use crate::{HIP, hip_kernels, temporary};
use hostcall::rocm::{KernelArgument, Version};
use hostcall::{Device, Grid};
use inventory::Inventory;
use std::path::{Path, PathBuf};

/// The kernels with the header of a source.
fn bound(service: &Path, name: &str) -> PathBuf {
    let folder = temporary(name);
    std::fs::create_dir_all(&folder).unwrap();
    let header = hostcall_build::bind_c(service, Some("Inventory")).unwrap();
    std::fs::write(folder.join("inventory.h"), header).unwrap();
    let folder = folder.display().to_string();
    hip_kernels(&[&HIP[..], &["-I", &folder]].concat(), "tests/c/bound.hip", &format!("{name}.co"))
}

/// Runs a kernel, whose lanes find nothing wrong.
fn run(code: &Path, kernel: &str, lanes: u32) {
    let device = Device::builder("gfx942").service(Inventory::serve(Store::default())).open().unwrap();
    let (stream, context) = (device.stream().unwrap(), device.context("bound").unwrap());
    let code = device.load_code_object_bytes(&std::fs::read(code).unwrap(), Version::Stacks).unwrap();
    let out = device.upload(&vec![u64::MAX; lanes as usize]).unwrap();
    let arguments =
        [KernelArgument::context(&context), KernelArgument::buffer(&out), KernelArgument::value(lanes)];
    // SAFETY: they are what the kernel takes.
    unsafe { code.kernel(kernel).unwrap().launch(&stream, Grid::new(lanes.div_ceil(64), 64), &arguments) }
        .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), vec![0; lanes as usize]);
}

#[test]
fn kernels_call_by_a_bound_header() {
    let code = bound(&source("../../programs/inventory/src/lib.rs"), "bound");
    run(&code, "stock", 100);
    run(&code, "stock", 1);
}

#[test]
fn a_header_of_other_types_is_told() {
    let text = std::fs::read_to_string(source("../../programs/inventory/src/lib.rs")).unwrap();
    let other = temporary("other.rs");
    std::fs::write(&other, text.replace("to: u64, amount: u64)", "to: u64, amount: u32)")).unwrap();
    run(&bound(&other, "mismatch"), "mismatch", 70);
}

/// Every shape of a type, and names that C or C++ has taken.
#[test]
fn headers_of_odd_types_are_compiled() {
    let file = temporary("odd.rs");
    let text = "/* Of \\* all. */\n#[service(number = 700)]\npub trait Odd {\n    /// See /* there */.\n    fn union(caller: \
                &Caller, template: Shape, context: [u8; 3], result: ((), (i8, bool)), none: [(); 4]) -> Result<Option<Option<char>>, \
                Unit>;\n    fn switch(unix: f32, static_: f64) -> [[Shape; 1]; 2];\n    fn both(a: &[u8], b: &str, result: &mut [u8]);\n    fn \
                post();\n}\nstruct Unit;\nstruct Pair(u16, isize);\nenum Shape { Dot, Line { from: Pair, to: Pair }, Tag(u64) }";
    std::fs::write(&file, text).unwrap();
    let header = temporary("odd.h");
    std::fs::write(&header, hostcall_build::bind_c(&file, None).unwrap()).unwrap();
    for (compiler, language, standard) in
        [("cc", "c", "-std=gnu99"), ("c++", "c++", "-std=gnu++17"), ("clang-22", "c", "-std=c17")]
    {
        let mut command = std::process::Command::new(compiler);
        let program = temporary("odd.c");
        std::fs::write(
            &program,
            format!("#include \"{}\"\nint main(void) {{ return 0; }}\n", header.display()),
        )
        .unwrap();
        command.args(["-x", language, standard, "-O1", "-c", "-o", "/dev/null"]).args(crate::FLAGS);
        crate::common::run(
            command.arg("-Wno-unused-function").arg("-I").arg(source("include")).arg(&program),
        );
    }
}

#[test]
fn what_c_cannot_say_is_refused() {
    let file = temporary("refused.rs");
    for (text, why) in [
        ("fn x(", "1: "),
        ("struct A;", "no trait with #[service] is in the file"),
        ("#[service]\ntrait A {\n    fn a(x: Vec<u8>);\n}", "3: C has no name for this generic type"),
        ("#[service]\ntrait A {\n    fn a(x: B);\n}\nstruct B { b: Option<B> }", "`B` has itself within"),
        ("#[service]\ntrait A {\n    fn a(x: B);\n}", "3: `B` is not in this file"),
        ("#[service(number = N)]\ntrait A {\n    fn a();\n}", "write the service's number as digits"),
        ("#[service(number = 65535)]\ntrait A {\n    fn a();\n    fn b();\n}", "are 256 to 32767"),
        ("#[service]\ntrait A {\n    fn a(x: [[u64; 4294967296]; 4294967296]);\n}", "64 words at most"),
        ("#[service]\ntrait A {\n    fn new_b(x: New);\n}\nenum New { B }", "are both `A_NEW_B` in C"),
        (
            "#[service]\ntrait A {\n    fn a(x: F32, y: f32);\n}\nstruct F32(u8);",
            "are both `struct a_f32` in C",
        ),
        ("#[service]\ntrait A {\n    fn a(x: &str, x_count: u64);\n}", "are both `x_count` in C"),
        ("#[service]\ntrait Hostcall {\n    fn a();\n}", "cannot be called `Hostcall`"),
        ("#[service]\ntrait A {\n    fn a(x: E);\n}\nenum E {}", "has no value to send"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = hostcall_build::bind_c(&file, None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = hostcall_build::bind_c(Path::new("/no/such.rs"), None).unwrap_err().to_string();
    assert!(error.starts_with("/no/such.rs was not read"), "{error}");
}
