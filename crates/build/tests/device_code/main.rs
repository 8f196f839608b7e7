//! Builds every program for every kind of device and reads the code that came out. What is read for is in
//! `ptx.rs` and `amdgpu.rs`: the traps of the compilers, which no test on the CPU would see.

mod amdgpu;
mod ptx;

use hostcall_build::{BuildError, Image, Progress, Request, Target, build};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of all programs.
fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs");
    let entries =
        fs::read_dir(folder).expect("the folder of programs").map(|entry| entry.expect("an entry").path());
    let programs: Vec<_> = entries.filter(|path| path.join("Cargo.toml").exists()).collect();
    assert!(!programs.is_empty(), "no programs to build");
    programs
}

/// Builds all programs for the target and fails with all that `problems` finds in any of them.
fn check(target: &str, problems: impl Fn(&Path, &Image) -> Vec<String>) {
    let target = Target::parse(target).expect("a target");
    let found: Vec<String> = programs()
        .into_iter()
        .flat_map(|package| {
            let request = Request {
                package: package.clone(),
                target: target.clone(),
                target_dir: None,
                progress: Progress::Quiet,
            };
            let found = match build(&request) {
                Ok(image) => problems(&package, &image),
                Err(error) => vec![error.to_string()],
            };
            found.into_iter().map(move |problem| format!("{}: {problem}", package.display()))
        })
        .collect();
    assert!(found.is_empty(), "for {target}:\n{}", found.join("\n"));
}

/// Whether the program takes the device crate without its features, of which `panic-text` formats on the
/// device.
fn without_panic_text(package: &Path) -> bool {
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("the program's Cargo.toml");
    manifest.contains("default-features = false") && !manifest.contains("\"panic-text\"")
}

fn nvidia(target: &str) {
    check(target, |package, image| {
        let text = fs::read_to_string(&image.path).expect("the image");
        let mut problems = ptx::problems(&text, &image.kernels);
        if without_panic_text(package) && text.contains("4core3fmt") {
            problems.push("holds core::fmt, which costs 50 KB".into());
        }
        problems.extend(ptx::assemble(image));
        problems
    });
}

#[test]
fn cpu() {
    check("cpu", |_, _| Vec::new());
}

#[test]
fn sm_70() {
    nvidia("sm_70");
}

#[test]
fn sm_90() {
    nvidia("sm_90");
}

#[test]
fn gfx942() {
    check("gfx942", |_, image| amdgpu::problems(image));
}

#[test]
fn gfx90a() {
    check("gfx90a", |_, image| amdgpu::problems(image));
}

/// The one with waves of 32 lanes.
#[test]
fn gfx1100() {
    check("gfx1100", |_, image| amdgpu::problems(image));
}

#[test]
fn what_is_no_program_is_said_so() {
    let folder = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let built = |path: &str| {
        build(&Request {
            package: folder(path),
            target: Target::Cpu,
            target_dir: None,
            progress: Progress::Quiet,
        })
    };
    assert!(matches!(built("src"), Err(BuildError::NoPackage { .. })));
    assert!(matches!(built("."), Err(BuildError::NotProgram { .. })));
}
