//! A C client, written against the official HSA headers, runs against this library.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns this crate as a shared library, which Cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let deps = test.parent().expect("it is in a folder");
    let places = [deps.join("libsofthsa.so"), deps.with_file_name("libsofthsa.so")];
    places.into_iter().find(|path| path.exists()).expect("Cargo built the library")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command is installed (.ci/install-device-toolchain)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Compiles a client and its device's code in a folder of that name against the library with those arguments. Returns both.
fn compile(name: &str, [host, device]: [&str; 2], link: &[OsString]) -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let (object, client) = (folder.join("device"), folder.join("client"));
    let target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-O2", "-std=gnu11"];
    // ROCm 5.7's HIP reads no later version.
    let version = "-mcode-object-version=5";
    run(Command::new("clang-22").args(target).arg(version).arg(source.join(device)).arg("-o").arg(&object));
    let flags = ["-std=gnu11", "-Wall", "-O1", "-pthread"];
    run(Command::new("cc").args(flags).arg(source.join(host)).args(link).arg("-o").arg(&client));
    (client, object)
}

const CLIENT: [&str; 2] = ["client.c", "device.c"];

/// Returns what links a client with this library.
fn linked() -> [OsString; 2] {
    let library = library();
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(library.parent().expect("it is in a folder"));
    [library.into(), path]
}

/// Lies, ends of what is in use, forks: each in a process of its own, which must come to its end.
#[test]
fn a_hostile_client_is_answered() {
    let (client, object) = compile("hostile", ["hostile.c", "hostile_device.c"], &linked());
    for part in [
        "packets",
        "doorbells",
        "destroy",
        "shut_down",
        "free_memory",
        "forks",
        "clients",
        "atomics",
        "signals",
        "copies",
        "pins",
        "room",
        "refused_events",
        "forks_later",
        "forks_first",
        "copies_of_destroyed",
        "handlers",
        "refused_at_the_end",
    ] {
        let mut command = Command::new("timeout");
        assert_eq!(run(command.arg("300").arg(&client).arg(&object).arg(part)), "passed\n", "{part}");
    }
}

/// A setting that is no number of its range is refused, and the runtime says why.
#[test]
fn settings_out_of_range_are_refused() {
    let (client, object) = compile("settings", ["hostile.c", "hostile_device.c"], &linked());
    for (name, value) in [("SOFTHSA_AGENTS", "two"), ("SOFTHSA_AGENTS", "9"), ("SOFTHSA_THREADS", "0")] {
        let output = Command::new(&client).arg(&object).arg("clients").env(name, value).output();
        let errors = String::from_utf8(output.expect("the client starts").stderr).expect("it is text");
        assert!(errors.contains(&format!("{name}={value} sets the software HSA runtime up")), "{errors}");
    }
}

#[test]
fn a_c_client_runs_unchanged() {
    let (client, object) = compile("client", CLIENT, &linked());
    assert_eq!(run(Command::new("timeout").arg("120").arg(&client).arg(&object)), "passed\n");
}

#[test]
fn a_client_of_rocm_s_library_runs_unchanged() {
    let (client, object) = compile("rocm-client", CLIENT, &["-lhsa-runtime64".into()]);
    let folder = as_rocm_s(client.parent().expect("it is in a folder"));
    let mut command = Command::new("timeout");
    let output = command.arg("120").arg(&client).arg(&object).env("LD_LIBRARY_PATH", &folder).output();
    let output = output.expect("the client starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "passed\n", "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(!errors.contains("version information"), "{errors}");
}

/// Puts this library into a folder under the name of ROCm's. Returns the folder.
fn as_rocm_s(folder: &Path) -> PathBuf {
    let folder = folder.join("lib");
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let link = folder.join("libhsa-runtime64.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("the link is made");
    folder
}

/// What the headers have besides the way of a launch is there, or is refused with a sentence.
#[test]
fn other_functions_of_the_headers_are_served() {
    let (client, object) = compile("functions", ["functions.c", "device.c"], &linked());
    assert_eq!(run(Command::new("timeout").arg("120").arg(&client).arg(&object)), "passed\n");
}

/// A client that gave its queue no callback for errors does not wait for ever, and reads which field is wrong.
#[test]
fn a_client_without_a_callback_ends() {
    const SIGABRT: i32 = 6;
    let (client, object) = compile("no-callback", ["functions.c", "device.c"], &linked());
    let output = Command::new("timeout").arg("60").arg(&client).arg(&object).arg("wait").output();
    let output = output.expect("the client starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("packet 0 of a queue: grid_size_y is 0; 1 is the least"), "{errors}");
    assert!(errors.contains("this process ends"), "{errors}");
    // `timeout` ends as the client does.
    assert_eq!(output.status.signal(), Some(SIGABRT), "{errors}");
}

/// Every function that the headers declare is there in the version of ROCm's library.
#[test]
fn all_functions_of_the_headers_are_exported() {
    const HEADERS: &str = "#include <hsa/hsa.h>\n#include <hsa/hsa_ext_amd.h>\n#include <hsa/hsa_ext_finalize.h>\n\
        #include <hsa/hsa_ext_image.h>\n#include <hsa/hsa_ven_amd_loader.h>\n#include <stdbool.h>\n\
        #include <hsa/hsa_ven_amd_aqlprofile.h>\n";
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers.c");
    std::fs::write(&source, HEADERS).expect("the folder is there");
    let dump = ["-Xclang", "-ast-dump", "-fsyntax-only", "-fno-color-diagnostics"];
    let tree = run(Command::new("clang-22").args(dump).arg(&source));
    let declarations = tree.lines().filter(|line| line.contains("FunctionDecl") && !line.contains(" inline"));
    let names = declarations.filter_map(|line| line.split(' ').find(|word| word.starts_with("hsa_")));
    let exported =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library()));
    let (mut count, mut missing) = (0, Vec::new());
    for name in names {
        count += 1;
        if !exported.contains(&format!(" T {name}@@ROCR_1\n")) {
            missing.push(name);
        }
    }
    assert!(count > 200, "the headers declare only {count} functions");
    assert!(missing.is_empty(), "{missing:?}");
}

/// ROCm's HIP finds all that it needs when it is loaded. A HIP that knows gfx942 (5.7 and later) runs a kernel; earlier
/// ones say that there is no device.
#[test]
fn rocm_s_hip_runs() {
    const NO_DEVICE: &str = "error 100\n";
    let (host, kernel) = compile("hip", ["hip.c", "hip_device.c"], &["-ldl".into()]);
    let mut command = Command::new("timeout");
    command.arg("120").arg(&host).arg(&kernel).env("LD_BIND_NOW", "1");
    let printed = run(command.env("LD_LIBRARY_PATH", as_rocm_s(host.parent().expect("it is in a folder"))));
    assert!(printed == "passed\n" || printed == NO_DEVICE, "{printed}");
}
