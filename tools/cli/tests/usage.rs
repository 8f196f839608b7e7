//! Wrong input gets one clear sentence and an exit code.

mod common;

use common::{acts, build, expect, here, hostcall, stderr, stdout};
use hostcall::Device;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs the command, which must fail with the code, and gives what it says in its last line.
#[track_caller]
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = hostcall(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    assert!(output.stdout.is_empty());
    let text = stderr(&output);
    let sentence = text.lines().last().unwrap_or_default();
    sentence.strip_prefix("hostcall: ").unwrap_or_else(|| panic!("{arguments:?}: {text}")).to_owned()
}

#[track_caller]
fn says(sentence: &str, what: &str) {
    assert!(sentence.contains(what), "{sentence}");
}

#[test]
fn options_are_checked() {
    let run = |options: &[&str]| {
        let arguments: Vec<&str> = ["run"].iter().chain(options).copied().chain([acts()]).collect();
        refused(2, &arguments)
    };
    says(&run(&["--threads", "0"]), "at least 1");
    says(&run(&["--blocks", "4,0,4"]), "at least 1");
    says(&run(&["--blocks", "99999999999"]), "at most 4294967295");
    says(&run(&["--threads", "1,2,3,4"]), "at most three numbers");
    says(&run(&["--threads=-3"]), "give a number or three");
    says(&run(&["--blocks", "many"]), "give a number or three");
    says(&run(&["--wave", "48"]), "32 or 64");
    says(&run(&["--timeout", "soon"]), "number of seconds");
    for seconds in ["0", "-1", "-0.5", "nan"] {
        says(&run(&["--timeout", seconds]), "give a number of seconds above 0");
    }
    for seconds in ["inf", "1e300"] {
        says(&run(&["--timeout", seconds]), "give a number of seconds of at most 1e18");
    }
    says(&run(&["--env", "NAME"]), "NAME=VALUE");
    says(&run(&["--env", "=value"]), "NAME=VALUE");
    for option in ["--net", "--listen"] {
        says(
            &run(&[option, "http://here"]),
            "\"http://here\" is no host with a port or without: name one as example.com:443",
        );
    }
    says(&run(&["--stack", "much"]), "number of bytes");
    says(&run(&["--stack", "2000M"]), "number of bytes");
    says(&run(&["--stack", "10"]), "--stack 10 is too little for a lane of cpu: give at least 16384 bytes");
    for count in ["0", "4097", "x"] {
        says(&run(&["--cpu-threads", count]), "give a number from 1 to 4096");
    }
    says(&run(&["--ports", "x"]), "give a number that is at least 1");
    says(&run(&["--lines-of-lane", "x"]), "give a lane's number in its workgroup, from 0 on");
    for (all, one) in [
        ("--blocks=2,3", "--blocks-y=4"),
        ("--threads=2,3", "--threads-y=3"),
        ("--blocks=2,3,4", "--blocks-z=4"),
    ] {
        says(&run(&[all, one]), "twice");
    }
    says(&run(&["--bogus"]), "--bogus");
    says(&run(&["--bogus"]), "; `hostcall run --help` says more");
    says(&refused(2, &["run"]), "PROGRAM");
    says(&refused(2, &["bogus"]), "bogus");
    says(&refused(2, &["bogus"]), "; `hostcall --help` says more");
    for seconds in ["0.04", "0", "-1", "soon"] {
        let sentence = refused(2, &["trace", "top", "--every", seconds, "x"]);
        says(
            &sentence,
            "give a number of seconds that is at least 0.05; `hostcall trace top --help` says more",
        );
    }
}

#[test]
fn help_names_every_benchmark() {
    let output = hostcall(["bench", "--help"]).output().unwrap();
    let text = stdout(&output);
    for group in hostcall_bench::Group::ALL {
        says(&text, group.name());
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    says(&refused(1, &["bench", "--only", "stores,rivals"]), "stores, rivals: measured on GPUs only");
    let start = |more: &[&str]| refused(1, &[&["bench", "--only", "start"], more].concat());
    says(&start(&["--image", "/nowhere"]), "cannot read the image /nowhere: ");
    let gpu = start(&["--device", "gfx942"]);
    says(&gpu, "name the one that `hostcall build --target gfx942 programs/bench` makes, by --image");
}

#[test]
fn what_was_meant_is_suggested() {
    says(&refused(2, &["run", "--timout", "3", acts()]), "did you mean `--timeout`?");
    says(&refused(2, &["buidl", "."]), "did you mean `build`?");
    says(&refused(2, &["build", "--tagret", "cpu", "."]), "did you mean `--target`?");
    says(
        &refused(2, &["build", "--target", "sm_9", "."]),
        "unknown target `sm_9` (did you mean sm_90?): there are",
    );
    says(&refused(2, &["build", "--report", "/nowhere"]), "--report says what kernels need of a GPU");
}

#[test]
fn targets_are_checked_before_anything_is_built() {
    for target in ["vax", "sm_1", "gfx1", "sm_"] {
        let sentence = refused(2, &["build", "--target", target, "/nowhere"]);
        for listed in [target, "cpu", "cuda", "sm_70", "sm_120a", "gfx90a", "gfx1201"] {
            says(&sentence, listed);
        }
    }
    says(&refused(2, &["build", "--target", "sm_61", "/nowhere"]), "too old");
}

#[test]
fn options_that_a_run_cannot_use_are_refused() {
    let package = here("tests/programs/acts");
    let package = package.to_str().unwrap();
    for program in [acts(), package] {
        says(&refused(2, &["run", "--ports", "5", program]), "--ports is for programs linked with LLVM's");
        says(&refused(2, &["run", "--allow-system", program]), "--allow-system is for programs linked");
    }
    says(&refused(2, &["run", "--profile", "dev", acts()]), "is built already: leave --profile away");
    says(&refused(2, &["run", "--features", "extra", acts()]), "is built already: leave --features away");
    let on_gpu = |option, value| refused(2, &["run", "--device", "cuda:0", option, value, package]);
    says(&on_gpu("--wave", "64"), "--wave is for the software device");
    says(&on_gpu("--cpu-threads", "2"), "--cpu-threads is for the software device");
}

#[test]
fn the_program_stands_before_the_options_in_the_help() {
    let text = stdout(&hostcall(["run", "--help"]).output().unwrap());
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at("<PROGRAM> [ARGUMENTS]...\n") < at("\nOptions:"), "{text}");
    assert!(at("\nArguments:") < at("Folder of the program's package"), "{text}");
}

#[test]
fn what_cargo_does_not_know_is_no_fault_of_the_code() {
    let acts = here("tests/programs/acts");
    for (option, name) in [("--features", "nosuch"), ("--profile", "nosuch")] {
        let output = hostcall(["run", "-q", option, name]).arg(&acts).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.starts_with("hostcall: cargo does not build acts for cpu: mend what it says:\n"),
            "{text}"
        );
        assert!(text.contains("nosuch"), "{text}");
    }
}

#[test]
fn a_signal_that_ends_cargo_is_no_fault_of_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    // Made by a process that has ended: no child of another test has it open.
    let make =
        "printf '#!/bin/sh\n[ \"$1\" = rustc ] && kill -QUIT $$\nexec cargo \"$@\"\n' > $0; chmod +x $0";
    assert!(Command::new("sh").args(["-c", make]).arg(&cargo).status().unwrap().success());
    let mut command = hostcall(["run", "-q"]);
    let output = command.arg(here("tests/programs/acts")).env("CARGO", cargo).output().unwrap();
    let sentence = "hostcall: cargo was ended by signal 3 before it had built acts for cpu: build again\n";
    expect(&output, 1, "", sentence);
}

#[test]
fn a_trace_does_not_take_the_place_of_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let [image, link] = ["image.so", "link"].map(|name| folder.path().join(name));
    fs::copy(acts(), &image).unwrap();
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let [image_name, link] = [&image, &link].map(|path| path.to_str().unwrap());
    let sentence = refused(1, &["run", "--trace", link, image_name, "return"]);
    says(&sentence, "link is the program itself: name another file for the trace");
    assert!(fs::read(&image).unwrap() == fs::read(acts()).unwrap());
}

#[test]
fn the_help_names_the_exit_codes() {
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let output = hostcall(arguments).output().unwrap();
        let text = stdout(&output);
        assert!(output.status.success());
        for code in ["101  a lane of the program panicked", "124  the program did not end"] {
            assert!(text.contains(code), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_run_is_named() {
    says(&refused(1, &["run", "--threads", "1025", acts()]), "at most 1024 lanes");
    says(&refused(1, &["run", "--blocks", "4294967295", acts()]), "lanes");
    says(
        &refused(1, &["run", "--device", "toaster", acts()]),
        "no device `toaster`; `hostcall devices` lists",
    );
    for (processor, device) in [("gfx90a", "amdgpu:0"), ("sm_90", "cuda:0")] {
        let sentence = refused(1, &["run", "--device", processor, acts()]);
        says(
            &sentence,
            &format!("that is what images are built for (`hostcall build --target {processor}`)"),
        );
        says(&sentence, &format!("the first GPU of the kind is named {device}; `hostcall devices`"));
    }
    says(&refused(1, &["run", "--dir", "/nowhere", acts()]), "cannot open the folder /nowhere");
    says(&refused(1, &["run", "/nowhere"]), "cannot read the program /nowhere");
}

#[test]
fn packages_are_checked() {
    let program = |name: &str| here("tests/programs").join(name).to_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    says(&refused(1, &["run", folder.path().to_str().unwrap()]), "no Cargo.toml in");
    for missing in ["nothere", "/nowhere"] {
        let sentence = refused(1, &["build", missing]);
        says(
            &sentence,
            &format!("there is no folder {missing}: name that of a program's package, or make one"),
        );
    }
    says(&refused(1, &["build", acts()]), "is a file: name the folder of a program's package");
    let workspace = refused(1, &["run", here("tests/programs").to_str().unwrap()]);
    says(
        &workspace,
        "tests/programs has a workspace and no package of its own: name the folder of a program's",
    );
    says(&workspace, " in it, such as ");
    // Such as a program, which the host's library is not.
    let workspace = refused(1, &["run", here("../..").to_str().unwrap()]);
    assert!(!workspace.ends_with("host/hostcall"), "{workspace}");
    says(&refused(1, &["run", &program("no_program")]), "not a hostcall program");
    says(&refused(1, &["run", &program("no_main")]), "no main kernel");
    says(&refused(1, &["run", &program("broken")]), "broken does not compile");
}

#[test]
fn a_host_program_is_told_how_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let output = hostcall(["new", "--app", "shop"]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // The versions that are here already.
    fs::copy(here("../../Cargo.lock"), folder.path().join("shop/Cargo.lock")).unwrap();
    let output = hostcall(["run", "."]).current_dir(folder.path().join("shop")).output().unwrap();
    let text = stderr(&output);
    says(
        &text,
        "hostcall: shop is a program of the host's, which launches kernels itself: start it with `cargo run",
    );
    says(&text, "`hostcall build` for packages of kernels, such as ");
    says(&text, "shop/kernels\n");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    // A library of such a program starts nothing.
    fs::rename(folder.path().join("shop/src/main.rs"), folder.path().join("shop/src/lib.rs")).unwrap();
    let output = hostcall(["run", "."]).current_dir(folder.path().join("shop")).output().unwrap();
    says(&stderr(&output), "hostcall: shop is a library of the host's and has no program: ");
}

#[test]
fn the_folder_here_lies_in_its_package() {
    let here = here("tests/programs/acts/src");
    let output = hostcall(["run", "-q", ".", "return"]).current_dir(here).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let folder = tempfile::tempdir().unwrap();
    let output = hostcall(["build", "."]).current_dir(&folder).output().unwrap();
    says(&stderr(&output), "no Cargo.toml in .");
}

#[test]
fn devices_are_listed_with_what_they_are() {
    let short = stdout(&hostcall(["devices"]).output().unwrap());
    assert!(short.starts_with("cpu      software device, ") && !short.contains("--target"), "{short}");
    for flag in ["-v", "--verbose"] {
        let output = hostcall(["devices", flag]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        for line in [
            "         built for by hostcall build --target cpu\n",
            "         built for by hostcall build --target gfx942\n",
            "         waves        of 64 lanes, ",
        ] {
            says(&text, line);
        }
        // What is not there is told as it is without.
        assert!(short.lines().all(|line| text.contains(line)), "{text}");
    }
}

#[test]
fn files_that_are_no_image_for_the_device_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let run = |name: &str, bytes: &[u8]| refused(1, &["run", "--device", "cpu", &file(name, bytes)]);
    says(&run("text", b"hello"), "no image of a program");
    says(&run("empty", b""), "no image of a program");
    says(&run("bitcode", b"BC\xc0\xde"), "LLVM's intermediate code");
    says(&run("fat", b"\x50\xed\x55\xba"), "fat binary");
    let ptx = b"//\n.version 6.3\n.target sm_70\n";
    says(&run("ptx", ptx), "no main kernel");
    says(&run("ptx", ptx), "other kernels are launched by a host program (`Device::load_code_object`)");
    let ours =
        [ptx, &b".visible .entry hostcall_kernel_main__01234567(\n.global .b8 hostcall_kernel_info_main__01234567[72];\n"[..]];
    says(&run("ours.ptx", &ours.concat()), "built for NVIDIA GPUs from sm_70 on, not for cpu");
    let llvm = [ptx, &b".entry _begin(\n.entry _start(\n.entry _end(\n"[..]].concat();
    says(&run("llvm.ptx", &llvm), "built for NVIDIA GPUs from sm_70 on, not for cpu");
    let host = fs::read(env!("CARGO_BIN_EXE_hostcall")).unwrap();
    says(&run("host", &host), "for this computer's processor");

    let image = fs::read(acts()).unwrap();
    let library = image[..64].to_vec();
    says(&run("library.so", &library), "damaged ELF file");
    let unreadable = file("unreadable", &image);
    fs::set_permissions(&unreadable, PermissionsExt::from_mode(0o000)).unwrap();
    // The superuser reads it all the same.
    if fs::read(&unreadable).is_err() {
        says(&refused(1, &["run", &unreadable]), "Permission denied");
    }
}

#[test]
fn files_that_have_no_end_are_not_read() {
    says(&refused(1, &["run", ""]), "the program's name is empty");
    says(&refused(1, &["run", "/dev/zero"]), "/dev/zero is no regular file");
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    says(&refused(1, &["run", pipe.to_str().unwrap()]), "is no regular file");
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len((1 << 30) + 1).unwrap();
    says(&refused(1, &["run", large.to_str().unwrap()]), "it has more than 1024 MiB");
}

#[test]
fn images_are_not_searched_for_where_the_loader_searches() {
    let device = Device::open("cpu").unwrap();
    for name in ["libm.so.6", "libc.so.6"] {
        let error = device.load(name).expect_err("no such file is here").to_string();
        assert!(error.contains(name) && error.contains("No such file"), "{error}");
    }
    assert!(device.load("/dev/zero").err().unwrap().to_string().contains("no regular file"));
    says(&refused(1, &["run", "libm.so.6"]), "cannot read the program libm.so.6");
}

#[test]
fn an_image_is_found_without_a_folder_in_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(acts(), folder.path().join("program")).unwrap();
    let output = hostcall(["run", "program", "return"]).current_dir(&folder).output().unwrap();
    expect(&output, 7, "", "");
}

#[test]
fn a_new_package_runs() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| hostcall(arguments).current_dir(&folder).output().unwrap();
    let output = run(&["new", "greeter"]);
    expect(&output, 0, "Made greeter. Run it with `hostcall run greeter`.\n", "");
    let output = run(&["run", "greeter"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("Hello from lane 7 of 8\n"));

    let output = run(&["new", "greeter"]);
    expect(&output, 1, "", "hostcall: greeter exists already: take another name\n");
    fs::write(folder.path().join("file"), "").unwrap();
    let sentence = "hostcall: cannot make file/greeter: file is no folder\n";
    expect(&run(&["new", "file/greeter"]), 1, "", sentence);
    for bad in ["1st", "fn", "with space", ".."] {
        assert_eq!(run(&["new", bad]).status.code(), Some(1), "{bad}");
    }
    for bad in ["std", "hostcall"] {
        let sentence = format!("hostcall: `{bad}` is a crate that programs use: take another name\n");
        expect(&run(&["new", bad]), 1, "", &sentence);
    }
}

#[test]
fn a_new_package_that_cannot_be_made_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // No file may have a byte.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    for arguments in [&["new", "half"][..], &["new", "--app", "half"]] {
        let output = Command::new("bash")
            .args(["-c", script, env!("CARGO_BIN_EXE_hostcall")])
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with("hostcall: cannot make half: "), "{}", stderr(&output));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}

#[test]
fn devices_are_listed_with_reasons() {
    let output = hostcall(["devices"]).output().unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(text.starts_with("cpu "), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("amdgpu:0") && line.contains("not available: ")),
        "{text}"
    );
}

#[test]
fn build_prints_the_images_path() {
    assert!(build(&here("tests/programs/acts")).is_file());
    assert!(hostcall(["--version"]).output().unwrap().stdout.starts_with(b"hostcall "));
}
