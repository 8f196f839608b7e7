//! A C client, written against the official HSA headers, runs against this library.

use std::ffi::OsString;
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
    run(Command::new("clang-22").args(target).arg(source.join(device)).arg("-o").arg(&object));
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
    let folder = client.with_file_name("lib");
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let link = folder.join("libhsa-runtime64.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("the link is made");
    let mut command = Command::new("timeout");
    let output = command.arg("120").arg(&client).arg(&object).env("LD_LIBRARY_PATH", &folder).output();
    let output = output.expect("the client starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "passed\n", "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    assert!(!errors.contains("version information"), "{errors}");
}

#[test]
fn symbols_have_rocm_s_version() {
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library()));
    // The functions that a loader and a hostcall runtime need.
    let needed = "init shut_down status_string iterate_agents agent_get_info agent_iterate_isas isa_get_info_alt \
        system_get_info amd_agent_iterate_memory_pools amd_memory_pool_get_info amd_memory_pool_allocate \
        amd_memory_pool_free amd_agents_allow_access amd_memory_fill amd_memory_lock amd_memory_unlock \
        amd_memory_async_copy memory_copy amd_pointer_info amd_register_system_event_handler \
        code_object_reader_create_from_memory code_object_reader_destroy executable_create_alt \
        executable_load_agent_code_object executable_freeze executable_validate executable_destroy \
        executable_get_symbol_by_name executable_symbol_get_info queue_create queue_destroy \
        queue_add_write_index_relaxed queue_load_read_index_scacquire signal_create signal_destroy \
        signal_store_relaxed signal_store_screlease signal_load_relaxed signal_load_scacquire \
        signal_subtract_screlease signal_wait_scacquire amd_signal_create amd_signal_async_handler";
    for name in needed.split_whitespace() {
        assert!(symbols.contains(&format!(" T hsa_{name}@@ROCR_1\n")), "hsa_{name} is missing in {symbols}");
    }
}
