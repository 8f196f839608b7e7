//! `hostcall cc`, with Debian's clang and a small library in the place of LLVM's libc, which no distribution has for GPUs
//! (scripts/llvm-suite uses that one).

mod common;

use common::{expect, here, hostcall, stderr, stdout};
use hostcall::image::{Calls, identify};
use hostcall::llvm::Version;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

const CLANG: &str = "clang-22";
const LLVM: &str = "/usr/lib/llvm-22/bin";

/// The folder of the small library for both kinds of GPUs, made once.
fn libc() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let (folder, source) =
            (Path::new(env!("CARGO_TARGET_TMPDIR")).join("small-libc"), here("tests/llvm/small"));
        let done = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        };
        for (triple, options) in [
            ("amdgcn-amd-amdhsa", ["-mcpu=gfx942", "-nogpulib"]),
            ("nvptx64-nvidia-cuda", ["-march=sm_90", "--cuda-feature=+ptx78"]),
        ] {
            let (lib, include) = (folder.join("lib").join(triple), folder.join("include").join(triple));
            fs::create_dir_all(&lib).unwrap();
            fs::create_dir_all(&include).unwrap();
            fs::copy(source.join("include/stdio.h"), include.join("stdio.h")).unwrap();
            for name in ["crt1", "puts"] {
                let mut clang = Command::new(CLANG);
                clang.arg(format!("--target={triple}")).args(options).args([
                    "-O2",
                    "-flto",
                    "-ffreestanding",
                ]);
                clang.args(["-DRPC_VERSION=20", "-I"]).arg(&include).arg("-c");
                clang.arg(source.join(name).with_extension("c")).arg("-o").arg(lib.join(format!("{name}.o")));
                done(&mut clang);
            }
            let _ = fs::remove_file(lib.join("libc.a"));
            done(
                Command::new(format!("{LLVM}/llvm-ar"))
                    .arg("rcs")
                    .arg(lib.join("libc.a"))
                    .arg(lib.join("puts.o")),
            );
        }
        folder
    })
}

/// A folder of sources, in which the command runs.
struct Sources(TempDir);

impl Sources {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command with these arguments, divided by spaces.
    fn command(&self, arguments: &str) -> Command {
        let mut command = hostcall(arguments.split_whitespace());
        command.current_dir(self.0.path()).env_remove("HOSTCALL_LIBC").env_remove("HOSTCALL_FLANG");
        command.env("HOSTCALL_CLANG", CLANG);
        command
    }

    /// Runs `hostcall cc` with the small library.
    fn cc(&self, arguments: &str) -> Output {
        self.command(&format!("cc {arguments}")).env("HOSTCALL_LIBC", libc()).output().unwrap()
    }

    #[track_caller]
    fn made(&self, arguments: &str) {
        expect(&self.cc(arguments), 0, "", "");
    }

    #[track_caller]
    fn runs(&self, arguments: &str, code: i32, out: &str) {
        expect(&self.command(&format!("run {arguments}")).output().unwrap(), code, out, "");
    }
}

const MAIN: &str = "#include <stdio.h>\n#include <stdint.h>\n#ifndef GREETING\n#define GREETING \"hello\"\n#endif\n\
    int main(int argc, char **argv) { puts(GREETING); for (int i = 1; i < argc; i++) puts(argv[i]); return argc; }\n";

#[test]
fn a_program_in_c_runs() {
    let sources = Sources::new(&[("main.c", MAIN)]);
    sources.made("main.c -o prog --target gfx942 -Wall -Wextra -Werror");
    sources.runs("--device gfx942 prog one two", 3, "hello\none\ntwo\n");
    sources.runs("--device gfx942 --threads 3 prog", 1, "hello\nhello\nhello\n");
    // The device of the software is for it, where there is no GPU.
    sources.made("--target=gfx942 -O0 -g main.c -DGREETING=\"again\"");
    sources.runs("--device gfx942 a.out", 1, "again\n");
}

#[test]
fn c_and_cxx_are_linked_together() {
    let sources = Sources::new(&[
        ("sum.c", "int sum(int a, int b) { return a + b; }\n"),
        (
            "main.cpp",
            "#include <stdio.h>\nextern \"C\" int sum(int, int);\nstruct Made { Made() { puts(\"made\"); } virtual int get() { return 3; } };\n\
             Made made;\nint main() { Made *which = &made; return sum(which->get(), 4); }\n",
        ),
        ("plain", MAIN),
    ]);
    sources.made("main.cpp sum.c -o prog --target gfx942");
    sources.runs("--device gfx942 prog", 7, "made\n");
    sources.made("-c main.cpp sum.c --target gfx942");
    sources.made("main.o sum.o -o linked --target gfx942");
    sources.runs("--device gfx942 linked", 7, "made\n");
    sources.made("-x c plain -o named --target gfx942");
    sources.runs("--device gfx942 named", 1, "hello\n");
    // A library of the user's.
    let archived = Command::new(format!("{LLVM}/llvm-ar"))
        .args(["rcs", "libsum.a", "sum.o"])
        .current_dir(sources.path(""))
        .status();
    assert!(archived.unwrap().success());
    sources.made("main.cpp -L. -lsum -o archived --target gfx942");
    sources.runs("--device gfx942 archived", 7, "made\n");
}

#[test]
fn programs_for_nvidia_are_cubins_or_ptx() {
    let sources = Sources::new(&[("main.c", MAIN), ("more.cpp", "int more = 1;\n")]);
    let image = |name: &str| {
        let bytes = fs::read(sources.path(name)).unwrap();
        let info = identify(&bytes).unwrap();
        let Calls::Llvm(program) = &info.calls else { panic!("{:?}", info.calls) };
        (info.target.to_string(), program.version)
    };
    sources.made("main.c more.cpp -o prog --target sm_90");
    assert_eq!(image("prog"), ("NVIDIA GPUs of sm_90".into(), Some(Version::Llvm20)));
    sources.made("-c main.c more.cpp --target sm_90");
    sources.made("main.o more.o -o linked --target sm_90");
    assert_eq!(image("linked").1, Some(Version::Llvm20));
    // Where there is no assembler, the driver compiles.
    let bin = sources.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(format!("{LLVM}/clang"), bin.join(CLANG)).unwrap();
    let mut command = sources.command("cc main.c -o ptx --target sm_90");
    command
        .env("HOSTCALL_LIBC", libc())
        .env("PATH", &bin)
        .env("HOME", &bin)
        .env_remove("XDG_CACHE_HOME")
        .env_remove("PTXAS");
    command.env_remove("CUDA_HOME").env_remove("CUDA_PATH");
    if !Path::new("/usr/local/cuda/bin/ptxas").exists() {
        expect(&command.output().unwrap(), 0, "", "");
        assert_eq!(image("ptx"), ("NVIDIA GPUs from sm_90 on".into(), Some(Version::Llvm20)));
    }
    let missing = sources.cc("main.c -lnothing --target sm_90");
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        stderr(&missing).contains("-lnothing is not there: no libnothing.a is in "),
        "{}",
        stderr(&missing)
    );
}

/// Either flang is there and its code runs, or the user is told what is missing.
#[test]
fn fortran_is_compiled_by_flang() {
    let sources = Sources::new(&[
        ("square.f90", SQUARE),
        ("main.c", "int square(int);\nint main(void) { return square(6); }\n"),
        ("prints.f90", "program prints\n  print *, 1\nend program\n"),
    ]);
    let output = sources.cc("main.c square.f90 -o prog --target gfx942");
    if output.status.success() {
        expect(&output, 0, "", "");
        sources.runs("--device gfx942 prog", 36, "");
        let lacks = sources.cc("prints.f90 -o prints --target gfx942");
        let text = stderr(&lacks);
        let sentence = text.lines().last().unwrap_or_default();
        assert!(sentence.contains("has no libflang_rt.runtime.a: build LLVM's flang-rt"), "{text}");
    }
    let mut without = sources.command("cc main.c square.f90 -o prog --target gfx942");
    let bin = sources.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(format!("{LLVM}/clang"), bin.join(CLANG)).unwrap();
    let output = without.env("HOSTCALL_LIBC", libc()).env("PATH", bin).output().unwrap();
    // One beside clang is found without PATH.
    if !output.status.success() {
        let text = stderr(&output);
        assert!(text.contains("no flang is in PATH, which compiles Fortran: install LLVM's"), "{text}");
    }
}

const SQUARE: &str =
    "integer(4) function square(x) bind(c)\n  integer(4), value :: x\n  square = x * x\nend function\n";

/// Fortran stops where C does, and gets the options that are flang's: where flang is there.
#[test]
fn options_are_translated_for_fortran() {
    let sources = Sources::new(&[
        ("square.f90", SQUARE),
        ("square.txt", SQUARE),
        ("main.c", "int square(int);\nint main(void) { return square(6); }\n"),
        (
            "kind.f90",
            "integer(4) function square(x) bind(c)\n  integer(4), value :: x\n  square = x * kind(1.0)\nend function\n",
        ),
    ]);
    let checked = sources.cc("-fsyntax-only square.f90 --target gfx942");
    if !checked.status.success() && stderr(&checked).contains("no flang is in PATH") {
        return;
    }
    expect(&checked, 0, "", "");
    let preprocessed = sources.cc("-E square.f90 --target gfx942");
    assert!(preprocessed.status.success() && stdout(&preprocessed).contains("function square(x)"));
    assert!(!sources.path("square.o").exists(), "neither makes an object");
    sources.made("-S square.f90 --target gfx942");
    assert!(fs::read_to_string(sources.path("square.s")).unwrap().contains("square"));
    sources.made("-g -c square.f90 -o of.o --target gfx942");
    sources.made("main.c of.o -o linked --target gfx942");
    sources.runs("--device gfx942 linked", 36, "");
    // What is not called as Fortran is, and an option without which the result is another.
    sources.made("main.c -x f95 square.txt -o named --target gfx942");
    sources.runs("--device gfx942 named", 36, "");
    sources.made("main.c kind.f90 -fdefault-real-8 -Wall -o kind --target gfx942");
    sources.runs("--device gfx942 kind", 48, "");
    let shown = sources.cc("-v -c square.f90 --target gfx942");
    assert!(shown.status.success() && stderr(&shown).contains("-fc1"), "{}", stderr(&shown));
    for (options, code, sentence) in [
        (
            "-fno-such -c square.f90",
            1,
            "-fno-such is no option that `hostcall cc` knows of flang's: leave it out",
        ),
        ("-MM square.f90", 1, "is not for Fortran"),
        ("-Wall -c square.f90", 0, "flang does not know -Wall: Fortran is compiled without it"),
    ] {
        let output = sources.cc(&format!("{options} --target gfx942"));
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(code), 1), "{text}");
        assert!(text.contains(sentence), "{text}");
    }
}

/// A value of an option is no second file.
#[test]
fn values_of_options_are_no_files() {
    let sources = Sources::new(&[("main.c", MAIN)]);
    sources.made("-c -MJ x.json main.c -o main.o --target gfx942");
    assert!(sources.path("x.json").exists() && sources.path("main.o").exists());
}

#[test]
fn what_is_missing_is_said_in_a_sentence() {
    let sources = Sources::new(&[("main.c", MAIN), ("wrong.c", "int main( {\n")]);
    #[track_caller]
    fn says(command: &mut Command, code: i32, what: &str) {
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(code), 1), "{text}");
        assert!(text.starts_with("hostcall: ") && text.contains(what), "{text}");
        assert_eq!(stdout(&output), "");
    }
    let command = |arguments: &str| sources.command(arguments);
    says(&mut command("cc"), 2, "`hostcall cc --help` says more");
    says(&mut command("cc -O2"), 2, "name a file to compile: `hostcall cc main.c -o prog`");
    says(
        &mut command("cc main.c --target x86-64"),
        2,
        "--target x86-64 is no processor that programs are made for",
    );
    let bare = "cc main.c --target gfx942";
    says(
        command(bare).env("HOSTCALL_CLANG", "none-such"),
        1,
        "HOSTCALL_CLANG names none-such, which is no clang",
    );
    says(
        command(bare).env_remove("HOSTCALL_CLANG").env("PATH", sources.path("")),
        1,
        "no clang of LLVM 19 or later is in PATH: install one",
    );
    let empty = sources.path("");
    says(
        &mut command(&format!("{bare} --libc {}", empty.display())),
        1,
        "has no LLVM libc for gfx942: neither",
    );
    fs::write(sources.path("libc.a"), "").unwrap();
    says(
        &mut command(&format!("{bare} --libc {}", empty.display())),
        1,
        "crt1.o is not there, which starts programs",
    );
    // Debian's clang has none beside it; where somebody has installed it there, the program is made.
    let beside = Path::new("/usr/lib/llvm-22/lib/amdgcn-amd-amdhsa/libc.a");
    if !beside.exists() {
        says(
            &mut command(bare),
            1,
            "LLVM's libc for gfx942 is not installed: no lib/amdgcn-amd-amdhsa/libc.a is beside ",
        );
    }
    // What clang has to say is clang's.
    let output = sources.cc("wrong.c --target gfx942");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).starts_with("wrong.c:1:") && !stderr(&output).contains("hostcall:"),
        "{}",
        stderr(&output)
    );
}
