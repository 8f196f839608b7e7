//! Ordinary programs with `std` do on devices what they do on Linux.

mod common;

use common::{expect, fed, hostcall, stderr, stdout};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use tempfile::TempDir;

/// The devices that are tested, where the compiler for them is here.
const DEVICES: [&str; 2] = ["cpu", "gfx942"];

/// The program's image for each of these devices. They are built side by side: mostly a compiler takes one
/// processor.
fn images(program: &'static str, devices: &[&'static str]) -> Vec<(&'static str, PathBuf)> {
    thread::scope(|scope| {
        let builds: Vec<_> = devices.iter().map(|device| scope.spawn(|| image(program, device))).collect();
        let images = builds.into_iter().map(|build| build.join().unwrap());
        devices.iter().copied().zip(images).filter_map(|(device, image)| Some((device, image?))).collect()
    })
}

fn image(program: &str, device: &str) -> Option<PathBuf> {
    let folder = common::here("tests/std").join(program);
    let build = [OsStr::new("build"), "--target".as_ref(), device.as_ref(), folder.as_os_str()];
    let output = hostcall(build).output().unwrap();
    if stderr(&output).contains("install a device toolchain") {
        eprintln!("not tested on {device}: {}", stderr(&output));
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    Some(PathBuf::from(stdout(&output).trim_end()))
}

fn ordinary() -> &'static [(&'static str, PathBuf)] {
    static IMAGES: OnceLock<Vec<(&str, PathBuf)>> = OnceLock::new();
    IMAGES.get_or_init(|| images("ordinary", &DEVICES))
}

/// What `hostcall run` does each time, and what takes minutes the first time.
#[test]
fn what_was_built_is_not_compiled_again() {
    let folder = common::here("tests/std/target/hostcall/std-gfx942/hostcall-gfx942");
    // What LLVM makes of the compiler's text.
    let code = || {
        let files = fs::read_dir(&folder).into_iter().flatten().map(|file| file.unwrap());
        let of_program = files.filter(|file| file.file_name().to_string_lossy().starts_with("ordinary-"));
        of_program
            .map(|file| (file.path(), file.metadata().unwrap().modified().unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    for (device, _) in ordinary() {
        let made = code();
        let mut again = hostcall(["build", "--target", device]);
        let output = again.arg(common::here("tests/std/ordinary")).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success() && !said.contains("Compiling"), "for {device}: {said}");
        assert_eq!(code(), made, "{device}");
    }
}

/// The program as Linux runs it.
fn native() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = common::here("tests/std/target");
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "ordinary", "--manifest-path"])
            .arg(common::here("tests/std/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", stderr(&built));
        target.join("debug/ordinary")
    })
}

/// A folder `open`, with something beside it.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::write(folder.path().join("beside"), "as it was").unwrap();
    symlink("../beside", open.join("link")).unwrap();
    (folder, open)
}

/// What Linux's program does with the arguments, and what each device's does.
fn all(arguments: &str, input: &str) -> (Output, Vec<(&'static str, Output)>) {
    let (_outer, open) = folder();
    let run = |command: &mut Command| {
        fed(command.args(arguments.split_whitespace()).current_dir(&open), input.as_bytes())
    };
    let linux = run(Command::new(native()).env_clear());
    let devices = ordinary().iter().map(|(device, image)| {
        let mut command = hostcall(["run", "--device", device]);
        (*device, run(command.arg(image).arg("--")))
    });
    (linux, devices.collect())
}

/// Asserts that each device's program prints and ends as Linux's does.
#[track_caller]
fn same(arguments: &str, input: &str) {
    let (linux, devices) = all(arguments, input);
    for (device, ran) in devices {
        let outcome = |output: &Output| (output.status.code(), stdout(output), stderr(output));
        assert_eq!(outcome(&ran), outcome(&linux), "{device}: {arguments}");
    }
}

#[test]
fn programs_print_what_they_print_on_linux() {
    same("words", &"the cat and the dog\nTHE end\n".repeat(50));
    same("words", "");
    same("files", "");
    same("time", "");
    same("shared", "");
    same("heap", "");
    same("mathematics", "");
}

#[test]
fn programs_end_as_on_linux() {
    same("parse 12", "");
    same("parse x", "");
    same("exit 7", "");
    same("code 9", "");
    same("no-such", "");
    same("", "");
    for (device, ran) in all("abort", "").1 {
        assert_eq!(ran.status.code(), Some(134), "{device}: {}", stderr(&ran));
    }
}

#[test]
fn a_panic_is_told_by_std_and_by_the_command() {
    for (device, ran) in all("panic", "").1 {
        assert_eq!((ran.status.code(), &*stdout(&ran)), (Some(101), "before\n"), "{device}");
        let told = stderr(&ran);
        assert!(
            told.contains("thread 'main'") && told.contains("panicked at ordinary/src/acts.rs:"),
            "{device}: {told}"
        );
        assert!(told.contains("\n2 is too many\n"), "{device}: {told}");
        let report =
            told.lines().find(|line| line.starts_with("hostcall: ")).unwrap_or_else(|| panic!("{told}"));
        assert!(
            report.contains("ordinary/src/acts.rs:") && report.contains(": 2 is too many"),
            "{device}: {report}"
        );
    }
    for (device, ran) in all("panic hook", "").1 {
        assert_eq!(ran.status.code(), Some(101), "{device}");
        assert!(stderr(&ran).contains("the hook: panicked at"), "{device}: {}", stderr(&ran));
    }
    for (device, ran) in all("panic index", "").1 {
        assert_eq!(ran.status.code(), Some(101), "{device}");
        assert!(stderr(&ran).contains("the len is 3 but the index is 3"), "{device}: {}", stderr(&ran));
    }
}

/// The packages' workspace has a profile for all of them, which makes a program with these checks but for
/// AMD, and one of its libraries is made for C too.
#[test]
fn a_program_has_the_checks_that_its_profile_asks_for() {
    same("next 254", "");
    for (device, ran) in all("next 255", "").1 {
        if device == "gfx942" {
            expect(&ran, 0, "0\n", "");
            continue;
        }
        assert_eq!(ran.status.code(), Some(101), "{device}: {}", stderr(&ran));
        assert!(stderr(&ran).contains("attempt to add with overflow"), "{device}: {}", stderr(&ran));
    }
}

/// The library and the kernel are in the cache, and of the other workspace nothing is.
#[test]
fn another_workspace_compiles_its_own_crates_alone() {
    ordinary();
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir(workspace.path().join("src")).unwrap();
    let manifest = "[package]\nname = \"own\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(workspace.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(workspace.path().join("src/main.rs"), "fn main() {\n    println!(\"own\");\n}\n").unwrap();
    for (device, _) in ordinary() {
        let ran = hostcall(["run", "--device", device]).arg(workspace.path()).output().unwrap();
        let said = stderr(&ran);
        assert_eq!((ran.status.code(), &*stdout(&ran)), (Some(0), "own\n"), "{device}: {said}");
        let compiled: Vec<_> = said.lines().filter(|line| line.contains("Compiling")).collect();
        assert!(compiled.len() == 1 && compiled[0].contains("own v0.0.0"), "{device}: {said}");
    }
}

#[test]
fn nothing_leads_out_of_the_folder() {
    let denied = "Err(PermissionDenied)";
    for (device, ran) in all("outside", "").1 {
        let told =
            ["../beside", "/etc/passwd", "link"].map(|path| format!("{path}: PermissionDenied\n")).concat();
        assert_eq!(stdout(&ran), format!("{told}{denied}\n{denied}\n"), "{device}: {}", stderr(&ran));
    }
}

#[test]
fn variables_are_those_that_are_given() {
    for (device, image) in ordinary() {
        let mut command = hostcall(["run", "--device", device, "--env", "NAME=a value"]);
        let ran = command.arg(image).args(["environment", "one", "--two"]).output().unwrap();
        let told =
            "[\"one\", \"--two\"]\n{\"NAME\": \"a value\"}\nOk(\"a value\") Err(NotPresent)\nOk(\"other\")\n";
        expect(&ran, 0, told, "");
    }
}

#[test]
fn threads_do_what_they_do_on_linux() {
    same("threads 5", "");
    same("detached", "");
}

/// LLVM takes a stack for private memory, and would load such a variable as one that nobody else changes.
#[test]
fn atomic_variables_on_stacks_are_shared_on_nvidia() {
    for (_, image) in images("ordinary", &["sm_90"]) {
        let ptx = fs::read_to_string(image).unwrap();
        // C's mathematics is in the program, which is linked with no library.
        assert_eq!(ptx.lines().find(|line| line.starts_with(".extern .func")), None);
        let local = ptx.lines().find(|line| line.contains("atom.") && line.contains(".local"));
        assert_eq!(local, None);
        let code = ptx.split("\n}\n").find_map(|function| {
            let (header, body) = function.rsplit_once("\n{\n")?;
            header.ends_with("7threads4flag()").then_some(body)
        });
        // What a loop loads that does nothing else.
        let waits = code.unwrap().split("\n$L").filter_map(|block| {
            let (label, instructions) = block.split_once(':')?;
            let mut instructions = instructions.lines().map(str::trim).filter(|line| !line.is_empty());
            let (load, again) = (instructions.next()?, instructions.nth(1)?);
            again.ends_with(&format!("bra \t$L{label};")).then(|| load.split_whitespace().next().unwrap())
        });
        assert_eq!(waits.collect::<Vec<_>>(), ["ld.acquire.sys.b8"]);
    }
}

/// `scripts/std-threads` does this and more a thousand times.
#[test]
fn a_hundred_threads_want_one_lock() {
    let (_outer, open) = folder();
    for (device, image) in ordinary() {
        let mut command = hostcall(["run", "--device", device, "--threads", "100"]);
        let ran = command.arg(image).args(["crowd", "100", "20"]).current_dir(&open).output().unwrap();
        expect(&ran, 0, "2000 100\n", "");
    }
}

#[test]
fn there_are_as_many_threads_as_are_asked_for() {
    for (device, image) in ordinary() {
        let mut command = hostcall(["run", "--device", device, "--threads", "2"]);
        let ran = command.arg(image).arg("too-many").output().unwrap();
        expect(&ran, 0, "Err(WouldBlock) Ok(2)\n5\n", "");
        for (option, value) in [("--blocks", "3"), ("--threads", "2,2"), ("--threads", "100000")] {
            let mut command = hostcall(["run", "--device", device, option, value]);
            let ran = command.arg(image).args(["parse", "5"]).output().unwrap();
            assert_ne!(ran.status.code(), Some(0), "{device}: {option} {value}");
            assert!(stderr(&ran).contains("threads"), "{device}: {}", stderr(&ran));
        }
    }
}

#[test]
fn a_panic_of_a_thread_ends_the_program() {
    for (device, ran) in all("panic-in-thread", "").1 {
        assert_eq!(ran.status.code(), Some(101), "{device}: {}", stderr(&ran));
        let told = stderr(&ran);
        assert!(told.contains("thread 'other'") && told.contains("\nin a thread\n"), "{device}: {told}");
    }
}

/// Runs the program on each device with the options and arguments, which spaces divide.
fn with(options: &str, arguments: &str) -> Vec<(&'static str, Output)> {
    let (_outer, open) = folder();
    let ran = ordinary().iter().map(|(device, image)| {
        let mut command = hostcall(["run", "--device", device]);
        command.args(options.split_whitespace()).arg(image).args(arguments.split_whitespace());
        (*device, command.current_dir(&open).output().unwrap())
    });
    ran.collect()
}

#[test]
fn programs_do_with_the_network_what_they_do_on_linux() {
    let linux = Command::new(native()).arg("net").output().unwrap();
    assert_eq!((linux.status.code(), &*stderr(&linux)), (Some(0), ""));
    for (_, ran) in with("--net 127.0.0.1 --net localhost --listen 127.0.0.1", "net") {
        expect(&ran, 0, &stdout(&linux), "");
    }
}

/// A server of the loopback that answers each who connects with what it hears.
fn echoes() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut heard) = (stream.unwrap(), String::new());
            stream.read_to_string(&mut heard).unwrap();
            write!(stream, "heard {heard:?}").unwrap();
        }
    });
    port
}

#[test]
fn the_network_is_open_as_far_as_is_told() {
    let port = echoes();
    let (number, name) = (format!("127.0.0.1:{port}"), format!("localhost:{port}"));
    let denied = "PermissionDenied: the host does not open this name or address to the program (`--net` lets it connect, \
                  `--listen` listen) (os error 65540)";
    let heard = r#"heard "hello\n""#;
    let asked = format!("net-to {number} {name}");
    for (options, to_number, to_name, datagrams) in [
        (String::new(), denied, denied, "Err(PermissionDenied)"),
        (format!("--listen {number} --listen {name}"), denied, denied, "Err(PermissionDenied)"),
        (format!("--net {number}"), heard, denied, "Ok(())"),
        ("--net 127.0.0.1:1 --net localhost:1".into(), denied, denied, "Ok(())"),
        // The name was not looked up when its address was asked for.
        (format!("--net {name}"), denied, heard, "Ok(())"),
        ("--net *".into(), heard, heard, "Ok(())"),
    ] {
        let told = format!("{number}: {to_number}\n{name}: {to_name}\ndatagrams {datagrams}\n");
        for (_, ran) in with(&options, &asked) {
            expect(&ran, 0, &told, "");
        }
    }
    let asked = "net-listen 127.0.0.1:0 0.0.0.0:0";
    for (options, loopback, everywhere) in [
        ("--net 127.0.0.2:1", "Err(PermissionDenied) Ok(())", "Err(PermissionDenied) Ok(())"),
        ("--listen 127.0.0.1", "Ok(()) Ok(())", "Err(PermissionDenied) Err(PermissionDenied)"),
        ("--listen *:0", "Ok(()) Ok(())", "Ok(()) Ok(())"),
    ] {
        for (_, ran) in with(options, asked) {
            expect(&ran, 0, &format!("127.0.0.1:0: {loopback}\n0.0.0.0:0: {everywhere}\n"), "");
        }
    }
}

/// 24 threads wait for what never comes.
#[test]
fn waits_for_the_network_hold_nothing_up() {
    const OPEN: &str = "--net 127.0.0.1 --listen 127.0.0.1";
    let told = "read them\nfound true\n";
    for (how, code) in [("end", 0), ("exit", 3), ("panic", 101)] {
        for (device, ran) in with(OPEN, &format!("net-waits {how}")) {
            let outcome = (ran.status.code(), stdout(&ran));
            assert_eq!(outcome, (Some(code), told.to_owned()), "{device} {how}: {}", stderr(&ran));
        }
    }
    // And then the main one too, until it is ended.
    let (_outer, open) = folder();
    for (device, image) in ordinary() {
        let mut command = hostcall(["run", "--device", device]);
        command.args(OPEN.split_whitespace()).arg(image).args(["net-waits", "on"]).current_dir(&open);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap() == "waits"), "{device}");
        // Not SIGINT, which whoever runs the tests may have them ignore.
        let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(ended.success());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(143), "{device}: {}", stderr(&ended));
        assert!(stderr(&ended).contains("Sockets::accept"), "{device}: {}", stderr(&ended));
    }
}

#[test]
fn crates_from_the_registry_work() {
    sums("cpu");
}

/// Its code for AMD takes minutes to compile.
#[test]
#[ignore = "takes some minutes of a processor: `scripts/std-threads` does it"]
fn crates_from_the_registry_work_on_amd() {
    sums("gfx942");
}

fn sums(device: &'static str) {
    let (_outer, open) = folder();
    fs::write(open.join("table"), "city,amount\nBonn,1.5\n\"Aachen, West\",2\nBonn,-0.25\n").unwrap();
    fs::write(open.join("wrong"), "city,amount\nBonn,x\n").unwrap();
    for (device, image) in images("csv_sums", &[device]) {
        let run = |arguments: &[&str]| {
            let mut command = hostcall(["run", "--device", device]);
            command.arg(&image).arg("--").args(arguments).current_dir(&open).output().unwrap()
        };
        expect(&run(&["table"]), 0, "Aachen, West: 2.00\nBonn: 1.25\n", "");
        expect(&run(&["--least", "0", "table"]), 0, "Aachen, West: 2.00\nBonn: 1.50\n", "");
        let none = "Error: cannot open none\n\nCaused by:\n    No such file or directory (os error 2)\n";
        expect(&run(&["none"]), 1, "", none);
        let wrong = run(&["wrong"]);
        assert_eq!(wrong.status.code(), Some(1));
        assert!(
            stderr(&wrong).starts_with("Error: a row is wrong\n\nCaused by:\n    CSV deserialize error"),
            "{}",
            stderr(&wrong)
        );
    }
}
