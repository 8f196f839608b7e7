//! Kernels in HIP that call a service in Rust by the header which is made of it.

use crate::common::{Store, source};
use crate::{HIP, hip_kernels, temporary};
use hostcall::device::LaunchId;
use hostcall::graph::CaptureMode;
use hostcall::rocm::{KernelArgument, Version};
use hostcall::{CallError, Device, Grid, Output, Stream};
use inventory::{Inventory, InventoryHandler, Refused};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

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

/// Notes whose calls come.
#[derive(Clone, Default)]
struct Callers(Arc<Mutex<Vec<(LaunchId, bool)>>>);

impl InventoryHandler for Callers {
    fn find(&self, _: u64, _: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        Ok(None)
    }

    fn add(&self, _: u64, _: u64, _: &str) -> Result<Result<(), Refused>, CallError> {
        Ok(Ok(()))
    }

    fn transfer(&self, _: u64, _: u64, _: u64) -> Result<Result<u64, Refused>, CallError> {
        let launch = hostcall::caller().unwrap().launch;
        self.0.lock().unwrap().push((launch, hostcall::graph::origin().is_some()));
        Ok(Ok(0))
    }
}

/// Where a stream of hostcall's launches the kernel or a graph replays it. Where others do, they are the context's.
#[test]
fn calls_are_those_of_the_launch_that_makes_them() {
    let callers = Callers::default();
    let device = Device::builder("gfx942").service(Inventory::serve(callers.clone())).open().unwrap();
    let (stream, context) = (device.stream().unwrap(), device.context("step").unwrap());
    let code = bound(&source("../../programs/inventory/src/lib.rs"), "callers");
    let code = device.load_code_object_bytes(&std::fs::read(code).unwrap(), Version::Stacks).unwrap();
    let (kernel, out) = (code.kernel("mismatch").unwrap(), device.alloc_zeroed::<u64>(1).unwrap());
    let arguments =
        [KernelArgument::context(&context), KernelArgument::buffer(&out), KernelArgument::value(1u32)];
    // SAFETY: they are what the kernel takes.
    let launch = |stream: &Stream| unsafe { kernel.launch(stream, Grid::new(1, 64), &arguments) };
    let own = launch(&stream).unwrap().id();
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| launch(stream).map(drop)).unwrap();
    let instance = graph.instantiate().unwrap();
    for _ in 0..2 {
        instance.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_ne!(own, context.launch_id());
    let came = callers.0.lock().unwrap();
    let (ids, have_origins): (Vec<_>, Vec<_>) = came.iter().copied().unzip();
    assert_eq!((ids.len(), ids[0], &have_origins[..]), (3, own, &[false, true, true][..]));
    assert!(ids[1] != ids[2] && !ids[1..].contains(&own) && !ids.contains(&context.launch_id()));
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
                post();\n    fn taken(errno: u8, uint64_t: Taken, INT8_MAX: i8, words_: u64);\n}\nstruct Taken { size_t: u8, EOF: u64 \
                }\nstruct Unit;\nstruct Pair(u16, isize);\nenum Shape { Dot, Line { from: Pair, to: Pair }, Tag(u64) }";
    std::fs::write(&file, text).unwrap();
    let header = temporary("odd.h");
    std::fs::write(&header, hostcall_build::bind_c(&file, None).unwrap()).unwrap();
    for (compiler, language, standard) in
        [("cc", "c", "-std=gnu99"), ("c++", "c++", "-std=gnu++17"), ("clang-22", "c", "-std=c17")]
    {
        let mut command = Command::new(compiler);
        let program = temporary("odd.c");
        std::fs::write(
            &program,
            format!(
                "#include <errno.h>\n#include <stdio.h>\n#include \"{}\"\nint main(void) {{ return 0; }}\n",
                header.display()
            ),
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
        ("struct A;", "no service is in the file: write a trait with #[service]"),
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
        (
            "#[service]\ntrait A {\n    fn a();\n    fn a();\n}",
            "2: two methods of `A` are called `a`: rename one",
        ),
        (
            "#[service]\ntrait A {\n    fn a();\n}\n#[service(number = 300)]\ntrait A {\n    fn a();\n}",
            "6: two services are called `A`: rename one",
        ),
        ("#[service]\ntrait A {}", "2: the service `A` has no method: write one"),
        (
            "#[service]\ntrait A {\n    fn a(x: &mut [u8], y: &mut [u8]);\n}",
            "3: the bytes that a method gives back",
        ),
        ("#[service]\ntrait A {\n    fn a(x: &mut [u8], y: u8);\n}", "are its last argument, and only one"),
        ("#[service(number = 32768)]\ntrait A {\n    fn a();\n}", "2: a service's number, and those of its"),
        ("#[service(number = 32767)]\ntrait A {\n    fn a();\n    fn b();\n}", "are 256 to 32767"),
        (
            "#[service(number = 256)]\ntrait A {\n    fn a();\n    fn b();\n}\n#[service(number = 257)]\ntrait B {\n    fn a();\n}",
            "7: methods of `B` have numbers that methods of `A` have, which are 256 to 257",
        ),
        (
            "#[service]\ntrait A {\n    fn a();\n    fn b(_Bool: u8);\n}",
            "4: `_Bool` of `b` begins as names of C",
        ),
        ("#[service]\ntrait A {\n    fn a(__x: u8);\n}", "3: `__x` of `a` begins as names of C"),
        (
            "#[service]\ntrait A {\n    fn a(x: B);\n}\nstruct B { _Atomic: u8 }",
            "`_Atomic` of B begins as names",
        ),
        (
            "#[service]\ntrait A {\n    fn a(hostcall_copy: &str);\n}",
            "`hostcall_copy` of `a` begins as names",
        ),
        ("#[service]\ntrait A {\n    fn a(errno: u8, errno_: u8);\n}", "are both `errno_` in C"),
        ("#[service]\ntrait __A {\n    fn a();\n}", "2: a service cannot be called `__A` in C"),
        ("#[service]\ntrait Int8 {\n    fn a();\n    fn max();\n}", "4: method Int8::max is `INT8_MAX` in C"),
        ("#[service]\ntrait Int8 {\n    fn t();\n}", "3: method Int8::t is `int8_t` in C"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = hostcall_build::bind_c(&file, None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = hostcall_build::bind_c(Path::new("/no/such.rs"), None).unwrap_err().to_string();
    assert!(error.starts_with("/no/such.rs was not read"), "{error}");
}

/// The names of methods in a header, with numbers and check bits.
fn methods(header: &str) -> Vec<&str> {
    header.lines().filter(|line| line.contains("HOSTCALL_METHOD(")).collect()
}

/// A description, in a file of this name.
fn described(name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let file = temporary(name);
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_description_has_the_hash_of_the_same_service_in_rust() {
    let inventory = described(
        "inventory.toml",
        "[service.Inventory]\nnumber = 512\n[service.Inventory.find]\narguments = { key = 'u64', name = 'bytes out' }\n\
         result = 'Option<u64>'\n[service.Inventory.add]\narguments = { key = 'u64', amount = 'u64', name = 'str' }\n\
         result = 'Result<(), Refused>'\n[service.Inventory.transfer]\narguments.to = 'u64'\narguments.from = 'u64'\n\
         arguments.amount = 'u64'\nresult = 'Result<u64, Refused>'\n\
         [enum.Refused]\nDuplicate = []\nNoSuchItem = []\nTooFew = ['u64']\n",
    );
    let header = hostcall_build::bind_c(&inventory, None).unwrap();
    let found = methods(&header);
    assert_eq!(found.len(), Inventory::METHODS.len());
    for (line, method) in found.iter().zip(Inventory::METHODS) {
        let check = hostcall_abi::word::check_of(method.schema());
        assert!(line.ends_with(&format!("HOSTCALL_METHOD({}, {check:#x})", method.number())), "{line}");
    }
}

#[test]
fn the_description_of_the_book_is_one() {
    let book = std::fs::read_to_string(source("../../docs/book/src/contexts.md")).unwrap();
    let (_, text) = book.split_once("```toml\n").unwrap();
    let file = described("book.toml", text.split_once("```").unwrap().0);
    assert_eq!(methods(&hostcall_build::bind_c(&file, None).unwrap()).len(), 3);
}

/// What ends a line of Python's, or a comment of C's, does neither where it stands in words about a service.
#[test]
fn words_about_a_service_are_comments_alone() {
    let ends = "\r \u{b} \u{c} \u{1c} \u{1d} \u{1e} \u{85} \u{2028} \u{2029} \u{202e} \u{2067} \0".split(' ');
    let about: String = ends.map(|end| format!("a *\\{end}/ b{end}    import os")).collect();
    let escaped: String = about.chars().map(|letter| format!("\\U{:08X}", u32::from(letter))).collect();
    let toml =
        format!("[service.A]\nnumber = 256\nabout = \"{escaped}\"\n[service.A.a]\nabout = \"{escaped}\"");
    let rust = format!(
        "#[doc = {about:?}]\n#[service(number = 256)]\ntrait A {{\n    /** Ends with *\\\n/ here. */\n    #[doc = {about:?}]\n    fn \
         a();\n}}"
    );
    for file in [described("about.toml", toml), described("about.rs", rust)] {
        let header = hostcall_build::bind_c(&file, None).unwrap();
        let module = hostcall_build::bind_python(&file, None).unwrap();
        for text in [&header, &module] {
            let ends = |letter: char| {
                letter != '\n' && (letter.is_control() || "\u{2028}\u{2029}\u{202e}\u{2067}".contains(letter))
            };
            assert!(!text.contains(ends), "{text:?}");
        }
        assert!(!header.contains("*\\\n/"), "{header}");
        let opened = header.matches("/*").count();
        assert_eq!(header.matches("*/").count(), opened, "{header}");
        let is_told = |line: &str| line.contains("import os") && !line.trim_start().starts_with('#');
        assert!(!module.lines().any(is_told), "{module}");
    }
}

/// Shapes that the other test has not: docs of several lines, names that are words of Rust, structs in structs.
#[test]
fn a_description_says_all_shapes_of_types() {
    let rust = described(
        "shapes.rs",
        "/// Of\n/// \\ all.\n#[service(number = 700)]\ntrait Shapes {\n    fn r#type(r#match: Shape, b: &[u8]) -> [[Shape; 1]; 2];\n    \
         fn none();\n}\nstruct Pair { r#in: u16, b: (f32, char) }\nenum Shape { Dot, Line { from: Pair, to: Pair }, Tag(u64, bool) }",
    );
    let toml = described(
        "shapes.toml",
        "[enum.Shape]\nDot = []\nLine = { from = 'Pair', to = 'Pair' }\nTag = ['u64', 'bool']\n[service.Shapes]\nnumber = 700\n\
         about = \"Of\\n\\\\ all.\"\n[service.Shapes.type]\narguments = { match = 'Shape', b = 'bytes' }\n\
         result = '[[Shape; 1]; /* twice */ 2]'\n[struct.Pair]\nin = 'u16'\nb = '(f32, char)'\n[service.Shapes.none]\n",
    );
    let [rust, toml] = [rust, toml].map(|file| hostcall_build::bind_c(&file, None).unwrap());
    // The first lines have the files' names.
    let body = |header: &str| header.lines().skip(1).map(|line| line.to_owned() + "\n").collect::<String>();
    assert_eq!(body(&rust), body(&toml));
}

/// Has a host in C serve what `ours` describes, and a kernel in C++ call what `theirs` does.
fn described_host(name: &str, ours: &str, theirs: &str) -> (String, String) {
    let make = |of: &str, text: &str| {
        let folder = temporary(&format!("{name}-{of}"));
        std::fs::create_dir_all(&folder).unwrap();
        let file = described(&format!("{name}-{of}/prices.toml"), text);
        std::fs::write(folder.join("prices.h"), hostcall_build::bind_c(&file, None).unwrap()).unwrap();
        folder
    };
    let compile = |compiler: &str, file: &str, header: &Path| {
        let object = header.join("part.o");
        let mut command = Command::new(compiler);
        command
            .args(crate::FLAGS)
            .args(["-Wno-unused-function", "-O1", "-pthread", "-I"])
            .arg(source("include"));
        crate::common::run(command.arg("-I").arg(header).arg("-c").arg(source(file)).arg("-o").arg(&object));
        object
    };
    let host = compile("cc", "tests/c/described.c", &make("ours", ours));
    let kernel = compile("c++", "tests/c/described_kernel.cpp", &make("theirs", theirs));
    let program = temporary(name);
    let mut link = Command::new("c++");
    crate::common::run(link.args([host, kernel]).args(crate::common::shared()).arg("-o").arg(&program));
    let output = crate::common::output(&mut Command::new(program));
    assert!(output.status.success(), "{output:?}");
    (crate::common::text(&output.stdout), crate::common::text(&output.stderr))
}

const PRICES: &str = include_str!("../c/prices.toml");

#[test]
fn a_host_in_c_answers_kernels_of_the_same_description() {
    let (printed, told) = described_host("described", PRICES, PRICES);
    assert_eq!((&*printed, &*told), ("0 0 0 1 4.50 item 9\n", ""));
}

/// Statuses are HOSTCALL_CALL_TYPE_MISMATCH, and each method's first call is told of. A post is refused by the host.
#[test]
fn a_kernel_of_another_version_is_refused_and_told_of() {
    let other = PRICES
        .replace("count = \"u32\"", "count = \"u64\"")
        .replace("prefix = \"str\"", "prefix = \"bytes\"");
    let (printed, told) = described_host("described-other", PRICES, &other);
    assert_eq!(printed, "0 7 7 1 4.50  0\n");
    let lines: Vec<_> = told.lines().collect();
    let [label, sold] = lines[..] else { panic!("{told}") };
    assert!(
        label.starts_with(
            "hostcall: `shop` calls Prices::label (number 701) with other types than its service"
        ),
        "{told}"
    );
    assert!(sold.contains("Prices::sold (number 702)") && sold.ends_with("by `hostcall bind`"), "{told}");
}

#[test]
fn what_a_description_cannot_say_is_refused() {
    let with = |rest: &str| format!("[service.A]\nnumber = 256\n{rest}");
    let deep = with(&format!("[service.A.a]\nresult = '{}u8'\n", "[".repeat(500)));
    let deep_table = format!("a = {}", "[".repeat(100_000));
    for (text, why) in [
        ("".into(), "1: no service is in the file: write a trait with #[service], or [service.NAME]"),
        ("[service.A]\n[service.A.a]\n".into(), "1: the service `A` has no number: write `number = 256`"),
        ("[service.A]\nnumber = 'x'\n".into(), "2: a service's number is one from 256 to 32767"),
        ("[service.A]\nnumber = 12\n[service.A.a]".into(), "2: a service's number is one from 256 to 32767"),
        (
            "[service.A]\nnumber = 32768\n[service.A.a]".into(),
            "2: a service's number is one from 256 to 32767",
        ),
        (
            "[service.A]\nnumber = 32767\na = {}\nb = {}".into(),
            "1: a service's number, and those of its methods",
        ),
        (with(""), "1: the service `A` has no method: write one"),
        (with("a = {}\nb = {}\n[service.B]\nnumber = 257\na = {}"), "5: methods of `B` have numbers"),
        (
            with("[service.A.a]\narguments.x = 'bytes out'\narguments.y = 'bytes out'"),
            "5: the bytes that a method",
        ),
        (with("[service.A.a]\narguments.x = 'bytes out'\narguments.y = 'u8'"), "5: the bytes that a method"),
        (with("[service.A.a]\narguments.x = '&Caller'"), "4: `&Caller` is no type: no type begins with `&`"),
        (with("[service.A.a]\narguments.x = '/**/ &mut [u8]'"), "no type begins with `&`"),
        (with("a = {}\n[struct.u8]\nb = 'u64'"), "4: `u8` is a type of its own"),
        (with("a = {}\n[enum.Option]\nB = []"), "4: `Option` is a type of its own"),
        (with("a = {}\n[enum.B]\nB = []\n[struct.B]\nb = 'u8'"), "6: a struct and an enum are both `B`"),
        (with(&format!("[service.A.a]\nresult = '{}u8'", "&".repeat(250))), "4: `&&&"),
        (with(&format!("[service.A.a]\nresult = '[u8; {}1]'", "-".repeat(240))), "it has too much within"),
        (with("a = {}\nb = { arguments = { _Generic = 'u8' } }"), "4: `_Generic` of `b` begins"),
        ("[service.A]\nnumber = 99999".into(), "2: a service's number is one from 256 to 32767"),
        (with("[service.A.a]\n\n[service.A.a]\n"), "5: duplicate key: rename one of the two"),
        (with("a = 1"), "3: this is a table"),
        (
            with("[service.A.a]\nargument = {}"),
            "4: a method has `arguments`, `result` and `about`, and no `argument`",
        ),
        (with("[service.A.a]\narguments.x = 'u65'"), "4: `u65` is not in this file"),
        (with("[service.A.a]\narguments.x = 'unsigned int'"), "4: `unsigned int` is no type: take u8 to u64"),
        (with("[service.A.a]\narguments.x = 'u64, y: u64'"), "4: `u64, y: u64` is no type"),
        (with("[service.A.a]\narguments.x = 8"), "4: this is a text"),
        (with("[service.A.a]\nresult = 'bytes'"), "4: `bytes` is no type: it is for arguments alone"),
        (with("[service.A.a]\nresult = 'Vec<u8>'"), "4: C has no name for this generic type"),
        (with("[service.A.'a b']"), "3: `a b` is no name"),
        (with("[service.A.self]"), "3: `self` is no name"),
        (with("[service.A.a]\narguments.x = 'B'\n\n[struct.B]\n\nb = 'Option<B>'"), "`B` has itself within"),
        (with("[service.A.a]\n[record.B]"), "4: a description has [service.NAME], [struct.NAME]"),
        (with("[service.A.new_b]\narguments.x = 'New'\n[enum.New]\nB = []"), "are both `A_NEW_B` in C"),
        (with("[service.A.methods]"), "are both `A_METHODS` in C"),
        (deep, "is no type: a type has up to 256 bytes"),
        (deep_table, "1: "),
        (" ".repeat(1 << 20) + "\n", "1: the file has more than 1 MiB"),
    ] {
        let error = hostcall_build::bind_c(&described("refused.toml", &text), None).unwrap_err().to_string();
        assert!(error.contains(&format!("refused.toml:{why}")) || error.contains(why), "{why}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error =
        hostcall_build::bind_c(&described("latin.toml", b"\n# caf\xe9"), None).unwrap_err().to_string();
    assert!(error.ends_with("latin.toml:2: the file is no text in UTF-8: save it as UTF-8"), "{error}");
    // C and C++ have taken these, and what is made of them is theirs no more.
    let keywords = with("[service.A.switch]\narguments = { union = 'u8', class = 'str' }");
    assert!(
        hostcall_build::bind_c(&described("keywords.toml", keywords), None)
            .unwrap()
            .contains("uint8_t union_,")
    );
    let headers = "uint64_t = 'u8', errno = 'u8', NULL = 'u8', INT8_MAX = 'u8', int_fast8_t = 'u8', words_ = 'u8', delta_t = 'u8', N = 'u8'";
    let headers = with(&format!("[service.A.a]\narguments = {{ {headers} }}"));
    let renamed = "uint8_t uint64_t_, uint8_t errno_, uint8_t NULL_, uint8_t INT8_MAX_, uint8_t int_fast8_t_, uint8_t words__, uint8_t \
                   delta_t, uint8_t N,";
    let header = hostcall_build::bind_c(&described("headers.toml", headers), None).unwrap();
    assert!(header.contains(renamed), "{header}");
}

/// Its methods, which test_services.py has too.
const CATALOG: [&str; 4] = [
    "#define CATALOG_OF HOSTCALL_METHOD(900, 0x91a10)",
    "#define CATALOG_LABEL HOSTCALL_METHOD(901, 0xd255a)",
    "#define CATALOG_PAIR HOSTCALL_METHOD(902, 0x74ed3)",
    "#define CATALOG_SOLD HOSTCALL_METHOD(903, 0x76df2)",
];

#[test]
fn hosts_in_python_get_a_module() {
    let module = hostcall_build::bind_python(&source("tests/c/prices.toml"), None);
    let error = module.unwrap_err().to_string();
    assert!(error.contains("Prices::of cannot be a function of Python's: it has `Option<f64>`"), "{error}");
    let file = source("../python/tests/catalog.toml");
    let header = hostcall_build::bind_c(&file, None).unwrap();
    assert_eq!(methods(&header), CATALOG);
    let module = hostcall_build::bind_python(&file, None).unwrap();
    assert_eq!(module, include_str!("../../../python/tests/catalog.py"));
    for (text, why) in [
        ("[service.A]\nnumber = 256\n[service.A.from]", "3: a method cannot be called `from` in Python"),
        ("[service.None]\nnumber = 256\n[service.None.a]", "1: a service cannot be called `None` in Python"),
        ("[service.A]\nnumber = 256\na = {}\ntuple = {}", "4: a method cannot be called `tuple` in Python"),
        ("[service.int]\nnumber = 256\na = {}", "1: a service cannot be called `int` in Python"),
        (
            "[service.A]\nnumber = 256\na = { arguments = { from = 'u8', from_ = 'u8' } }",
            "3: two arguments of A::a are both `from_` in Python: rename one",
        ),
        ("[service.A]\nnumber = 256\n", "1: the service `A` has no method: write one"),
    ] {
        let error = hostcall_build::bind_python(&described("refused-python.toml", text), None).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
