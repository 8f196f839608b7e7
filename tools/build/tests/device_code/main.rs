//! Builds every program for every kind of device and reads the code that came out. What is read for is in
//! `ptx.rs` and `amdgpu.rs`: the traps of the compilers, which no test on the CPU would see.

mod amdgpu;
mod ptx;

use hostcall_abi::launch::{KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX};
use hostcall_build::{BuildError, Image, Request, Target, build};
use std::fs;
use std::path::{Path, PathBuf};

/// What a program's code may hold.
struct Limits {
    /// Stack of a kernel's entry, bytes a lane.
    stack_bytes: u32,
    /// Fences of the whole system. Byte messages need them; since all is inlined into the entry, only a
    /// program without such messages can be checked.
    fences: bool,
    /// Read-modify-writes that somebody wrote without a scope: a program may count in memory of the device.
    atomics: bool,
}

impl Limits {
    const PROGRAM: Self = Self { stack_bytes: 32 << 10, fences: true, atomics: true };
    const SMALL_CALL: Self = Self { stack_bytes: 256, fences: false, atomics: false };
    const NO_CALL: Self = Self { stack_bytes: 0, ..Self::PROGRAM };
}

/// Folders of all programs with what each may hold.
fn programs() -> Vec<(PathBuf, Limits)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(here.join("../../programs")).expect("the folder of programs");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    let mut programs: Vec<_> =
        folders.filter(|path| path.join("Cargo.toml").exists()).map(|path| (path, Limits::PROGRAM)).collect();
    programs.extend(small_call());
    programs
}

/// The least of programs, for targets that are of the kind of one that all programs are built for.
fn small_call() -> Vec<(PathBuf, Limits)> {
    vec![(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/small_call"), Limits::SMALL_CALL)]
}

/// Kernels that call nothing.
fn no_call() -> (PathBuf, Limits) {
    (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/no_call"), Limits::NO_CALL)
}

/// Where programs are built: where other tests and users build them too, so that `core` and each of them is
/// compiled once for a processor.
fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/target")
}

/// Builds programs for the target and fails with all that `problems` finds in any of them.
fn check(target: &str, programs: Vec<(PathBuf, Limits)>, problems: impl Fn(&Image, &Limits) -> Vec<String>) {
    let folder = target_dir();
    let target = Target::parse(target).expect("a target");
    let found: Vec<String> = programs
        .into_iter()
        .flat_map(|(package, limits)| {
            let request = Request::new(&package, target.clone()).target_dir(&folder).quiet();
            let found = match build(&request) {
                Ok(image) => problems(&image, &limits),
                Err(error) => vec![error.to_string()],
            };
            found.into_iter().map(move |problem| format!("{}: {problem}", package.display()))
        })
        .collect();
    assert!(found.is_empty(), "for {target}:\n{}", found.join("\n"));
}

fn nvidia(target: &str, programs: Vec<(PathBuf, Limits)>) {
    check(target, programs, |image, limits| {
        let text = fs::read_to_string(&image.path).expect("the image");
        let mut problems = ptx::problems(&text, &image.kernels, limits);
        problems.extend(ptx::assemble(image));
        problems
    });
}

#[test]
fn cpu() {
    check("cpu", programs(), |_, _| Vec::new());
}

/// These use all of the device crate; `costs` reads the benchmarks' kernels.
#[test]
fn sm_70() {
    nvidia("sm_70", some_programs(&["conformance", "wc"]));
}

#[test]
fn sm_90() {
    nvidia("sm_90", small_call());
}

/// `EM_CUDA`, the machine that the ELF header of a cubin names.
const CUDA: u16 = 190;

#[test]
fn cubins() {
    check("sm_90-cubin", small_call(), |image, _| {
        let bytes = fs::read(&image.path).expect("the image");
        let is_cubin = bytes.starts_with(b"\x7fELF") && bytes[18..20] == CUDA.to_le_bytes();
        let problems = [
            (!is_cubin).then(|| "is no cubin".to_owned()),
            image.kernels.is_empty().then(|| "has no kernels".to_owned()),
        ];
        problems.into_iter().flatten().collect()
    });
}

#[test]
fn kernels_that_call_nothing_take_few_registers() {
    check("sm_90", vec![no_call()], |image, limits| {
        let text = fs::read_to_string(&image.path).expect("the image");
        let mut problems = ptx::problems(&text, &image.kernels, limits);
        problems.extend(ptx::kernels_that_take_more(image, 32));
        problems
    });
}

/// Kernels with the same code are entries of their own.
#[test]
fn kernels_with_the_same_code() {
    let twins = || (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/twins"), Limits::PROGRAM);
    nvidia("sm_90", vec![twins()]);
    check("gfx942", vec![twins()], amdgpu::problems);
}

/// Without the device crate's feature `trace`, a kernel with trace points is the same machine code as one without.
#[test]
fn trace_points_that_are_off_are_no_code() {
    let package = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/no_trace"), Limits::NO_CALL);
    check("sm_90", vec![package], |image, _| {
        let text = fs::read_to_string(&image.path).expect("the image");
        let bodies = ["plain", "pointed"].map(|kernel| body(&text, kernel));
        match bodies {
            [Some(plain), Some(pointed)] if plain == pointed && plain.contains("mul.f32") => Vec::new(),
            [plain, pointed] => vec![format!("with trace points: {pointed:?}\nwithout: {plain:?}")],
        }
    });
}

/// The text of a kernel, but for names of labels and of constants, and numbers of calls, which count through the image.
fn body(text: &str, kernel: &str) -> Option<String> {
    let symbol = format!("{KERNEL_SYMBOL_PREFIX}{}", symbol_end(text, kernel)?);
    let from = text.find(&format!(".entry {symbol}("))?;
    let body = &text[from..from + text[from..].find("\n}")?];
    let is_kept = |word: &&str| {
        !word.is_empty()
            && ["$L__BB", "callseq", "anon_$", "alloc_"].iter().all(|begin| !word.starts_with(begin))
    };
    let body = body.replace(&symbol, "kernel").replace("callseq ", "callseq");
    let words = body.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':'));
    Some(words.filter(is_kept).collect::<Vec<_>>().join(" "))
}

#[test]
fn kernels_that_compute_have_no_more_than_they_need() {
    let limits = Limits { stack_bytes: u32::MAX, ..Limits::PROGRAM };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/computing");
    check("sm_90", vec![(package, limits)], |image, _| {
        let text = fs::read_to_string(&image.path).expect("the image");
        ptx::of_computing(&text)
    });
}

#[test]
fn gfx942() {
    check("gfx942", programs(), amdgpu::problems);
}

/// Programs of these names, and the least one.
fn some_programs(names: &[&str]) -> Vec<(PathBuf, Limits)> {
    let mut some = programs();
    some.retain(|(path, _)| path.ends_with("small_call") || names.iter().any(|name| path.ends_with(name)));
    assert_eq!(some.len(), names.len() + 1, "programs have other names");
    some
}

/// It has waves of 64 lanes, as gfx942 has.
#[test]
fn gfx90a() {
    check("gfx90a", some_programs(&["hello"]), amdgpu::problems);
}

/// It has waves of 32 lanes. The conformance suite's program uses every part of the device crate.
#[test]
fn gfx1100() {
    check("gfx1100", some_programs(&["conformance"]), amdgpu::problems);
}

/// Cargo compiles anew what has no file of its own, as a listing is none.
#[test]
fn what_was_built_for_nvidia_is_not_compiled_again() {
    let (package, _) = no_call();
    let folder = target_dir();
    let listed = || {
        build(&Request::new(&package, Target::parse("sm_70").expect("a target")).target_dir(&folder).quiet())
            .expect("it is built");
        let deps = folder.join("hostcall/sm_70/nvptx64-nvidia-cuda/release/deps/no_call.s");
        fs::metadata(deps).and_then(|listing| listing.modified()).expect("the listing")
    };
    assert_eq!(listed(), listed());
}

#[test]
fn what_is_no_program_is_said_so() {
    let folder = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let built = |path: &str| build(&Request::new(folder(path), Target::Cpu).quiet());
    assert!(matches!(built("src"), Err(BuildError::NoPackage { .. })));
    assert!(matches!(built("."), Err(BuildError::NotProgram { .. })));
}

/// What the symbols of this kernel end with in an image's text: its name and eight digits.
fn symbol_end<'t>(text: &'t str, kernel: &str) -> Option<&'t str> {
    let start = format!("{KERNEL_INFO_SYMBOL_PREFIX}{kernel}__");
    let at = text.find(&start)?;
    text.get(at + KERNEL_INFO_SYMBOL_PREFIX.len()..at + start.len() + 8)
}
