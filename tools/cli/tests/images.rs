//! Programs of LLVM's protocol for GPUs, built here from C and C++: what is read from their images, and what the command
//! says of them on a machine without such a GPU.

mod common;

use common::{hostcall, stderr, stdout};
use hostcall::image::{Calls, LlvmProgram, Target, identify};
use hostcall::llvm::Version;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const NVIDIA: &str = "sm_90";
const AMD: &str = "gfx90a";

/// The folder of the images, built once.
fn images() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/llvm-images");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("llvm-images");
        let output = Command::new(script).args([NVIDIA, AMD]).arg(&folder).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        folder
    })
}

/// What is read from an image of LLVM's protocol.
fn read(name: &str) -> (Target, LlvmProgram) {
    let image =
        identify(&fs::read(images().join(name)).unwrap()).unwrap_or_else(|why| panic!("{name}: {why}"));
    match image.calls {
        Calls::Llvm(program) => (image.target, program),
        other => panic!("{name}: {other:?}"),
    }
}

/// Programs' names, and the versions with the numbers that their names end in.
fn all() -> impl Iterator<Item = (String, Version)> {
    let versions = [(19, Version::Llvm19), (20, Version::Llvm20), (26, Version::Doorbell)];
    ["hello", "calls", "printf", "constructors"]
        .into_iter()
        .flat_map(move |name| versions.map(|(number, version)| (format!("{name}-{number}"), version)))
}

/// What is built for a processor is loaded on it: its code in an image's flags is known.
#[test]
fn processors_of_all_targets_are_known() {
    const EM_AMDGPU: u16 = 224;
    let known: Vec<_> = (0u32..=0xff)
        .map(|code| {
            let mut image = [0; 64];
            image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            (image[16], image[20]) = (3, 1);
            image[18..20].copy_from_slice(&EM_AMDGPU.to_le_bytes());
            image[48..52].copy_from_slice(&code.to_le_bytes());
            match identify(&image).unwrap().target {
                Target::Amd(processor) => processor,
                other => panic!("{other}"),
            }
        })
        .collect();
    let targets: Vec<_> = hostcall_build::Target::names().filter(|name| name.starts_with("gfx")).collect();
    assert!(targets.contains(&"gfx942"));
    for target in targets {
        assert!(known.iter().any(|processor| processor == target), "{target}");
    }
}

#[test]
fn versions_are_read_from_every_kind_of_image() {
    for (name, version) in all() {
        for ending in ["ptx", "cubin", "elf"] {
            let name = format!("{name}.{ending}");
            let (target, program) = read(&name);
            assert_eq!((program.version, program.unknown_client), (Some(version), None), "{name}");
            let device = match ending {
                "elf" => "AMD GPUs of gfx90a",
                "ptx" => "NVIDIA GPUs from sm_90 on",
                _ => "NVIDIA GPUs of sm_90",
            };
            assert_eq!(target.to_string(), device, "{name}");
        }
    }
}

#[test]
fn constructors_are_listed_where_the_loader_calls_for_them() {
    for ending in ["ptx", "cubin"] {
        let (_, program) = read(&format!("constructors-19.{ending}"));
        let priorities = |names: &[String]| {
            names.iter().map(|name| name.rsplit('_').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(priorities(&program.constructors), ["101", "65535"], "{ending}");
        assert_eq!(priorities(&program.destructors), ["65535"], "{ending}");
        assert!(read(&format!("hello-19.{ending}")).1.constructors.is_empty());
    }
    // AMD's linker makes the lists.
    assert!(read("constructors-19.elf").1.constructors.is_empty());
}

#[test]
fn cubins_of_our_own_programs_are_images_too() {
    // What other tests build the programs for as well.
    const OLDEST: &str = "sm_70";
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/hello");
    let output =
        hostcall([OsStr::new("build"), "--target".as_ref(), OLDEST.as_ref(), program.as_os_str()]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
    let ptx = stdout(&output);
    let cubin = images().join("ours.cubin");
    let find = "command -v ptxas || echo ${XDG_CACHE_HOME:-$HOME/.cache}/hostcall/ptxas";
    let ptxas = stdout(&Command::new("sh").args(["-c", find]).output().unwrap());
    let status = Command::new(ptxas.trim_end())
        .args(["-O0", "-arch", OLDEST, ptx.trim_end(), "-o"])
        .arg(&cubin)
        .status();
    assert!(status.unwrap().success());
    let image = identify(&fs::read(cubin).unwrap()).unwrap();
    assert_eq!(image.target.to_string(), "NVIDIA GPUs of sm_70");
    let Calls::Hostcall(kernels) = &image.calls else { panic!("{:?}", image.calls) };
    assert_eq!(kernels.iter().map(|kernel| kernel.name()).collect::<Vec<_>>(), ["main"]);
}

#[test]
fn objects_are_told_from_linked_images() {
    let object = images().join("hello.o");
    let source = images().join("hello-19.elf");
    let copied = fs::read(&source).unwrap();
    fs::write(&object, [&copied[..16], &[1, 0], &copied[18..]].concat()).unwrap();
    let output = hostcall(["run", object.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not linked yet"), "{}", stderr(&output));
}

#[test]
fn the_command_names_the_device_that_an_image_is_for() {
    let refused = |arguments: &[&str], name: &str| {
        let image = images().join(name);
        let output = hostcall([&["run"], arguments, &[image.to_str().unwrap()]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let text = refused(&["--device", "cpu"], "hello-19.cubin");
    assert!(text.contains("was built for NVIDIA GPUs of sm_90, not for cpu"), "{text}");
    let text = refused(&["--device", "cpu"], "hello-20.elf");
    assert!(text.contains("was built for AMD GPUs of gfx90a, not for cpu"), "{text}");
    for (kind, name) in [("cuda", "hello-19.ptx"), ("amdgpu", "hello-19.elf")] {
        let device =
            hostcall::device::devices().into_iter().find(|device| device.name.starts_with(kind)).unwrap();
        if let Some(why) = device.unavailable {
            let text = refused(&[], name);
            assert!(text.contains(&format!("and {} cannot be used: {why}", device.name)), "{text}");
        }
    }
}
