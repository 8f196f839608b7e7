//! The header of the services that come with hostcall: made of their traits, and tried by kernels in HIP.

use crate::common::source;
use crate::{HIP, hip_kernels, temporary};
use hostcall::hostcall_device::services::{file_kinds, open_flags};
use hostcall::rocm::{KernelArgument, Version};
use hostcall::services::Builtins;
use hostcall::{Device, Grid};
use hostcall_abi::io;
use hostcall_abi::status::CallError;

const ABOUT: &str = "\
/*
 * Files, folders, memory of the device, arguments, environment and clock of the host, for kernels that call by
 * hostcall_device.h. Made of the traits in kernel/device/src/services.
 *
 *     uint64_t file, length = sizeof text;
 *     if (hostcall_files_open(context, \"data.txt\", 8, HOSTCALL_OPEN_READ, &file, 0) == HOSTCALL_CALL_OK) {
 *         hostcall_files_read(context, file, text, &length, 0);
 *         hostcall_files_close(context, file, 0);
 *     }
 *
 * Each function returns a hostcall_call_status, and takes a time limit in microseconds last (0: none). Texts are bytes and how
 * many; what is read goes to a buffer, whose size is replaced by how much came. Which files there are is the host's to say
 * (`Builtins::builder().dir(..)` in Rust, `hostcall_options_dir` in C): without a folder of its there are none.
 */
";

/// Makes the header.
fn header() -> String {
    let sources = ["files", "folders", "heap", "environment", "clock"].map(|name| {
        std::fs::read_to_string(source(&format!("../../kernel/device/src/services/{name}.rs"))).unwrap()
    });
    let file = temporary("services.rs");
    std::fs::write(&file, sources.concat()).unwrap();
    let made = hostcall_build::bind_c(&file, None).unwrap();
    let (_, made) = made.split_once('\n').unwrap();
    let guard = made.split_whitespace().nth(1).unwrap().to_owned();

    let mut constants = String::new();
    let mut define = |name: &str, value: u32| constants += &format!("#define HOSTCALL_{name} {value}u\n");
    for (name, flag) in [
        ("READ", open_flags::READ),
        ("WRITE", open_flags::WRITE),
        ("APPEND", open_flags::APPEND),
        ("TRUNCATE", open_flags::TRUNCATE),
        ("CREATE", open_flags::CREATE),
        ("CREATE_NEW", open_flags::CREATE_NEW),
    ] {
        define(&format!("OPEN_{name}"), flag);
    }
    for (name, kind) in [
        ("FILE", file_kinds::FILE),
        ("DIR", file_kinds::DIR),
        ("SYMLINK", file_kinds::SYMLINK),
        ("OTHER", file_kinds::OTHER),
    ] {
        define(&format!("KIND_{name}"), kind);
    }
    let coded = [
        ("NOT_FOUND", io::Error::NotFound),
        ("PERMISSION_DENIED", io::Error::PermissionDenied),
        ("ALREADY_EXISTS", io::Error::AlreadyExists),
        ("OUTSIDE_DIR", io::Error::OutsideDir),
        ("INVALID_INPUT", io::Error::InvalidInput),
        ("TOO_MANY_OPEN", io::Error::TooManyOpen),
        ("CLOSED", io::Error::Closed),
        ("UNEXPECTED_END", io::Error::UnexpectedEnd),
        ("NO_DIR", io::Error::NoDir),
    ];
    constants += "\n/* What hostcall_code says of files and folders: one of these, or an `errno` of the host's Linux. */\n";
    for (name, error) in coded {
        let CallError::Failed(code) = error.into() else { panic!("{name} has no code") };
        constants += &format!("#define HOSTCALL_IO_{name} ({code})\n");
    }
    constants += "\n/* The code of a call that ended with HOSTCALL_CALL_FAILED. */\n\
                  HOSTCALL_FUNCTION int32_t hostcall_code(uint64_t status) {\n    return (int32_t)(uint32_t)(status >> 8);\n}\n";
    let made = made
        .replace(&guard, "HOSTCALL_SERVICES_H")
        .replace("[`open_flags`]", "HOSTCALL_OPEN_READ and the like")
        .replace("[`file_kinds`]", "HOSTCALL_KIND_FILE and the like")
        .replace("the codes of [`crate::io::Error`]", "HOSTCALL_IO_NOT_FOUND and the like")
        .replace("the codes of\n * [`crate::io::Error`]", "HOSTCALL_IO_NOT_FOUND and\n * the like")
        .replace("[`NOT_ALLOCATED`]", "the code 1")
        .replace("[`Heap::allocate`]", "hostcall_heap_allocate");
    ABOUT.to_owned()
        + &made.replacen("\"hostcall_device.h\"\n", &format!("\"hostcall_device.h\"\n\n{constants}"), 1)
}

#[test]
fn the_header_is_as_the_services_are() {
    let (made, file) = (header(), source("include/hostcall_services.h"));
    if std::env::var_os("HOSTCALL_WRITE_HEADER").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).unwrap_or_default() == made,
        "write the header: HOSTCALL_WRITE_HEADER=1 cargo test -p hostcall-c --test device services"
    );
}

#[test]
fn kernels_have_files_and_memory() {
    let folder = temporary("files");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let builtins =
        Builtins::builder().dir(&folder).args(["kernel"]).env("WHAT", "files of others").build().unwrap();
    let device = Device::builder("gfx942").builtins(builtins).open().unwrap();
    let (stream, context) = (device.stream().unwrap(), device.context("files").unwrap());
    let code = std::fs::read(hip_kernels(&HIP, "tests/c/files.hip", "files.co")).unwrap();
    let code = device.load_code_object_bytes(&code, Version::Stacks).unwrap();
    let lanes = 100u32;
    let out = device.upload(&vec![u64::MAX; lanes as usize]).unwrap();
    let arguments =
        [KernelArgument::context(&context), KernelArgument::buffer(&out), KernelArgument::value(lanes)];
    // SAFETY: they are what the kernel takes.
    unsafe { code.kernel("files").unwrap().launch(&stream, Grid::new(lanes.div_ceil(64), 64), &arguments) }
        .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), vec![0; lanes as usize]);
    let written = std::fs::read_to_string(folder.join("lane-07.txt")).unwrap();
    assert_eq!(written, "This is of lane 07.\n".repeat(7));
}
