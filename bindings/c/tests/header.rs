//! The header: cbindgen makes it from the sources, compilers take it, and the library has its functions.

mod common;

use common::{library, output, run, source, text};
use std::path::Path;
use std::process::Command;

/// The sources' types and their functions' declarations, in the order that they have in the header.
const SOURCES: [(&str, &str); 19] = {
    macro_rules! sources {
        ($($name:ident)*) => {
            [$((include_str!(concat!("../src/", stringify!($name), ".rs")), hostcall_c::$name::DECLARATIONS)),*]
        };
    }
    sources! {
        error options device context post_queue image buffer stream closure launch graph bodies service raw rocm llvm_call llvm trace metrics
    }
};

/// Returns the sources as cbindgen can read them, with the pointers that C has for what is borrowed or taken.
fn sources() -> String {
    let pointers = [
        ("&OsStr", "*const c_char"),
        ("&str", "*const c_char"),
        ("Box<hostcall_options>", "*mut *mut hostcall_options"),
        ("Box<hostcall_post_queue>", "*mut *mut hostcall_post_queue"),
        ("Offered<'_>", "&hostcall_service"),
        ("Out<'_, hostcall_raw_page>", "*mut *mut hostcall_raw_page"),
    ];
    let all = SOURCES.map(|(types, functions)| {
        types.to_owned() + &pointers.iter().fold(functions.to_owned(), |all, (rust, c)| all.replace(rust, c))
    });
    let all = include_str!("../src/handle.rs").to_owned() + &all.concat();
    let all = all.replace("<'_>", "").replace("<'a>", "");
    all.lines().filter(|line| !line.starts_with("//!")).fold(String::new(), |all, line| all + line + "\n")
}

/// Makes the header.
fn header() -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostcall-c-sources.rs");
    std::fs::write(&file, sources()).expect("the file is written");
    let config = cbindgen::Config::from_file(source("cbindgen.toml")).expect("the settings are there");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(file).generate();
    let mut made = Vec::new();
    bindings.expect("cbindgen reads the sources").write(&mut made);
    text(&made)
}

#[test]
fn header_and_sources_do_not_differ() {
    let (made, file) = (header(), source("include/hostcall.h"));
    if std::env::var_os("HOSTCALL_WRITE_HEADER").is_some() {
        std::fs::write(&file, &made).expect("the header is written");
    }
    let header = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        header == made,
        "write the header: HOSTCALL_WRITE_HEADER=1 cargo test -p hostcall-c --test header"
    );
}

#[test]
fn the_header_is_pedantic_c99_and_cxx17() {
    let include = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostcall-c-include.c");
    std::fs::write(
        &include,
        "#include \"hostcall.h\"\nint main(void) { return sizeof(hostcall_argument) != 24; }\n",
    )
    .expect("the file is written");
    let program = include.with_extension("");
    let flags = ["-pedantic", "-Wall", "-Wextra", "-Werror"];
    for (compiler, language) in [("cc", ["-std=c99", "-xc"]), ("g++", ["-std=c++17", "-xc++"])] {
        let mut command = Command::new(compiler);
        command.args(language).args(flags).arg("-I").arg(source("include")).arg(&include);
        run(command.arg("-o").arg(&program));
        assert!(output(&mut Command::new(&program)).status.success());
    }
}

#[test]
fn symbols_have_the_interface_s_version() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library("libhostcall_c.so")));
    let (mut functions, sources) = (0, sources());
    for rest in sources.split("extern \"C\" fn hostcall_").skip(1) {
        let (name, _) = rest.split_once('(').expect("a function has parameters");
        let symbol = format!(" T hostcall_{name}@@HOSTCALL_1\n");
        assert!(symbols.contains(&symbol), "{name} is missing in {symbols}");
        functions += 1;
    }
    assert_eq!(symbols.matches(" hostcall_").count(), functions, "{symbols}");
}
