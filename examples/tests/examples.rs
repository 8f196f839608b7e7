//! All examples on the software device, and their kernels for GPUs.

use hostcall_build::{Request, Target, build};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn all_run_on_the_software_device() {
    let out = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_sort")).parent().unwrap();
    let output = Command::new(Path::new(HERE).join("../scripts/examples"))
        .arg("cpu")
        .arg(programs)
        .env("OUT", out.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let ran = |name: &str| text.lines().any(|line| line.starts_with(&format!("ok      {name} ")));
    let files = fs::read_dir(Path::new(HERE).join("src/bin")).unwrap();
    let mut names = files.map(|file| PathBuf::from(file.unwrap().file_name()).with_extension(""));
    assert!(names.all(|name| ran(name.to_str().unwrap())), "{text}");
    let drawing = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
    assert_eq!(drawing("nbody.svg").matches("<circle").count(), 300);
}

#[test]
fn the_book_shows_what_tools_find() {
    let out = tempfile::tempdir().unwrap();
    let tools =
        [("heat-map", env!("CARGO_BIN_EXE_heat_map")), ("sanitizer", env!("CARGO_BIN_EXE_sanitizer"))];
    for (name, program) in tools {
        let drawing = out.path().join(name);
        let output = Command::new(program).arg("--out").arg(&drawing).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let of_book = |ending: &str| {
            fs::read_to_string(Path::new(HERE).join("../docs/book/src").join(name).with_extension(ending))
                .unwrap()
        };
        assert!(fs::read_to_string(&drawing).unwrap() == of_book("svg"), "{name} draws another picture");
        let (page, text) = (of_book("md"), String::from_utf8(output.stdout).unwrap());
        let shown =
            page.split("```text\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines());
        for line in shown.filter(|line| *line != "...") {
            assert!(text.lines().any(|told| told == line), "{name} does not say {line:?}, but:\n{text}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_one_sentence() {
    let sentence = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = sentence(env!("CARGO_BIN_EXE_sort"), &["gpu:0"]);
    assert_eq!(text, "error: there is no device `gpu:0`; `hostcall devices` lists those there are\n");
    // Whatever the kernels were built for before.
    let text = sentence(env!("CARGO_BIN_EXE_sort"), &["gfx942"]);
    assert!(text.contains("build it with HOSTCALL_TARGETS=gfx942"), "{text}");
    let text = sentence(env!("CARGO_BIN_EXE_mandelbrot"), &["--out", "/nowhere/picture.png"]);
    assert!(text.starts_with("error: cannot write to /nowhere: ") && text.lines().count() == 1, "{text}");
    // A kernel that cannot write its file ends the launch, and the sentence is its panic's.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("picture.png")).unwrap();
    let file = folder.path().join("picture.png");
    let text = sentence(env!("CARGO_BIN_EXE_mandelbrot"), &["--out", file.to_str().unwrap()]);
    assert!(text.contains("kernel begin") && text.contains("panicked at"), "{text}");
}

/// A reader that has left is no news, and a full disk is told of in a sentence.
#[test]
fn outputs_that_take_nothing_end_an_example() {
    let ended = |output: Stdio| {
        let output = Command::new(env!("CARGO_BIN_EXE_solver")).stdout(output).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let sentence = "error: cannot write to the standard output: No space left on device (os error 28)\n";
    assert_eq!(ended(full.into()), (Some(1), sentence.to_owned()));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(ended(writer.into()), (Some(1), String::new()));
}

#[test]
fn the_kernels_are_built_for_nvidia() {
    // What other tests build for, and where: what Rust's own library takes is built once.
    let request = Request::new(Path::new(HERE).join("kernels"), Target::parse("sm_70").unwrap());
    let request = request.target_dir(Path::new(HERE).join("../programs/target")).quiet();
    let image = build(&request).unwrap();
    let expected = [
        "add_energy",
        "add_up",
        "begin",
        "blur",
        "count_bytes",
        "double",
        "end",
        "exchange",
        "gather",
        "join",
        "measure",
        "merge_far",
        "merge_near",
        "multiply",
        "probe",
        "report",
        "rows",
        "score",
        "search",
        "sort_tiles",
        "step",
        "sweep",
        "transpose",
    ];
    assert_eq!(image.kernels, expected);
}
