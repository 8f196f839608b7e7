//! Fortran: which options of the command line are flang's, and how its compiler is told of them.
//!
//! The driver of flang gives its compiler options of AMD's targets that that does not know (LLVM 22), so that the compiler itself is run
//! here, and what the driver would translate is translated here.

use super::arguments::{Input, Item, Language, Request, Stop};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Beginnings of options that flang alone has: clang refuses them.
const OWN: &[&str] = &[
    "-J",
    "-module-dir",
    "-cpp",
    "-nocpp",
    "-std=f",
    "-falternative-parameter-statement",
    "-fbackslash",
    "-fno-backslash",
    "-fconvert=",
    "-fd-lines-as-",
    "-fno-d-lines-as-",
    "-fdefault-",
    "-fdo-concurrent-to-openmp=",
    "-ffixed-form",
    "-ffixed-line-length",
    "-ffree-form",
    "-fhermetic-module-files",
    "-fimplicit-none",
    "-fno-implicit-none",
    "-fno-automatic",
    "-finit-global-zero",
    "-fno-init-global-zero",
    "-fintrinsic-modules-path",
    "-flarge-sizes",
    "-flogical-abbreviations",
    "-fno-logical-abbreviations",
    "-fopenacc",
    "-frealloc-lhs",
    "-fno-realloc-lhs",
    "-frepack-arrays",
    "-fno-repack-arrays",
    "-fsave-main-program",
    "-fno-save-main-program",
    "-fstack-arrays",
    "-fno-stack-arrays",
    "-funsigned",
    "-fxor-operator",
    "-fno-xor-operator",
];

/// Beginnings of options that clang and flang's compiler both have, with the same words.
const SHARED: &[&str] = &[
    "-D",
    "-U",
    "-I",
    "-Werror",
    "-pedantic",
    "-mllvm",
    "-fapprox-func",
    "-fcolor-diagnostics",
    "-fcomplex-arithmetic=",
    "-ffast-math",
    "-ffp-contract=",
    "-fno-builtin",
    "-fno-signed-zeros",
    "-fno-unroll-loops",
    "-fopenmp",
    "-freciprocal-math",
    "-funroll-loops",
    "-fverbose-asm",
    "-fwrapv",
];

/// Options that change nothing of Fortran for a GPU, or that are for other steps than compiling.
const NOTHING: &[&str] = &[
    "-v", "-pipe", "-pthread", "-fPIC", "-fpic", "-fPIE", "-fpie", "-flto", "-g0", "-x", "-L", "-l", "-Wl,",
    "-Xlinker",
];

/// What an option is to Fortran.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The compiler is given these words.
    Words(Vec<OsString>),
    /// Nothing.
    Nothing,
    /// Flang does not know it.
    Unknown,
}

fn begins(word: &OsStr, options: &[&str]) -> bool {
    options.iter().any(|option| word.as_bytes().starts_with(option.as_bytes()))
}

/// Whether clang must not be given the option.
pub fn is_own(words: &[OsString]) -> bool {
    words.first().is_some_and(|word| begins(word, OWN))
}

/// Returns what an option is to flang's compiler.
pub fn meaning(words: &[OsString]) -> Meaning {
    let given = |words: &[&str]| Meaning::Words(words.iter().map(OsString::from).collect());
    let Some(word) = words.first() else { return Meaning::Nothing };
    let text = word.to_str().unwrap_or_default();
    match text {
        "-w" => given(&["-w"]),
        // The compiler takes numbers alone.
        "-Os" | "-Oz" => given(&["-O2"]),
        "-Og" => given(&["-O1"]),
        "-Ofast" => given(&["-O3", "-ffast-math", "-fstack-arrays"]),
        _ if text.starts_with("-O") => Meaning::Words(words.to_vec()),
        "-g1" | "-gline-tables-only" | "-gmlt" => given(&["-debug-info-kind=line-tables-only"]),
        "-g" | "-g2" | "-g3" | "-gdwarf" => given(&["-debug-info-kind=standalone"]),
        _ if text.starts_with("-ggdb") => given(&["-debug-info-kind=standalone"]),
        _ if text.strip_prefix("-gdwarf-").is_some_and(|version| version.parse::<u8>().is_ok()) => {
            given(&["-debug-info-kind=standalone", &format!("-dwarf-version={}", &text["-gdwarf-".len()..])])
        }
        _ if Stop::of(word).is_some() || begins(word, NOTHING) => Meaning::Nothing,
        _ if begins(word, OWN) || begins(word, SHARED) => Meaning::Words(words.to_vec()),
        _ => Meaning::Unknown,
    }
}

/// How the sources of a request are compiled.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What the compiler is given.
    pub words: Vec<OsString>,
    /// What flang does not know, and Fortran is compiled without.
    pub left_out: Vec<OsString>,
}

impl Options {
    /// Sorts the options. Where there is C or C++, what flang does not know is for that.
    ///
    /// # Errors
    /// A sentence, when the request asks for what flang does not do.
    pub fn of(request: &Request) -> Result<Self, String> {
        let mut options = Self::default();
        let is_alone = !request.has(Language::C) && !request.has(Language::Cxx);
        for item in &request.items {
            let Item::Options(words) = item else { continue };
            match meaning(words) {
                Meaning::Words(words) => options.words.extend(words),
                Meaning::Unknown if is_alone && words[0].as_bytes().starts_with(b"-f") => {
                    let word = words[0].display();
                    return Err(format!(
                        "{word} is no option that `hostcall cc` knows of flang's: leave it out"
                    ));
                }
                Meaning::Unknown if is_alone => options.left_out.push(words[0].clone()),
                Meaning::Nothing | Meaning::Unknown => {}
            }
        }
        match request.stop {
            Some(stop @ (Stop::Dependencies | Stop::Modules)) => Err(format!(
                "{} is not for Fortran: leave its files out, or compile them with -c",
                stop.name()
            )),
            _ => Ok(options),
        }
    }
}

/// A source, and what is made of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Its place in the request.
    pub place: usize,
    pub path: PathBuf,
    /// What the compiler is told of its language, where `-x` says it.
    pub language: Vec<&'static str>,
}

/// Returns the sources in Fortran.
pub fn sources(request: &Request) -> Vec<Source> {
    let (mut sources, mut named) = (Vec::new(), Vec::new());
    for (place, item) in request.items.iter().enumerate() {
        match item {
            Item::Options(_) => {
                if let Some(name) = item.language() {
                    named = match (Language::named(name), name.to_string_lossy()) {
                        (Some(Language::Fortran), name) => {
                            let language = if name.contains("cpp") { "f95-cpp-input" } else { "f95" };
                            let form = name.starts_with("f77").then_some("-ffixed-form");
                            ["-x", language].into_iter().chain(form).collect()
                        }
                        _ => Vec::new(),
                    };
                }
            }
            Item::Input(Input { path, language: Language::Fortran }) => {
                sources.push(Source { place, path: path.clone(), language: named.clone() });
            }
            Item::Input(_) => {}
        }
    }
    sources
}

/// Returns what the compiler makes, and the ending of its file, if it is one.
pub fn action(stop: Option<Stop>) -> (&'static str, Option<&'static str>) {
    match stop {
        None | Some(Stop::Compile | Stop::Dependencies | Stop::Modules) => ("-emit-llvm-bc", Some("o")),
        Some(Stop::Assemble) => ("-S", Some("s")),
        // To the standard output.
        Some(Stop::Preprocess) => ("-E", None),
        Some(Stop::Check) => ("-fsyntax-only", None),
    }
}

/// Returns the file that is made of a source where nothing is linked.
pub fn made(source: &Path, output: Option<&Path>, ending: Option<&str>) -> Option<PathBuf> {
    match (output, ending) {
        (Some(output), _) => Some(output.to_owned()),
        (None, Some(ending)) => {
            Some(PathBuf::from(source.file_name().unwrap_or_default()).with_extension(ending))
        }
        (None, None) => None,
    }
}

/// Takes out what clang must not be given once the sources are compiled: flang's own options, and the language of files.
pub fn take_out(items: &mut [Item]) {
    for item in items {
        let is_fortran = item.language().is_some_and(|name| Language::named(name) == Some(Language::Fortran));
        if is_fortran {
            *item = Item::Options(vec!["-x".into(), "none".into()]);
        } else if matches!(item, Item::Options(words) if is_own(words)) {
            *item = Item::Options(Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Request {
        Request::parse(line.split_whitespace().map(OsString::from).collect()).unwrap()
    }

    fn words(line: &str) -> String {
        let options = Options::of(&parse(line)).unwrap();
        assert!(options.left_out.is_empty(), "{line}");
        options.words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn options_are_translated() {
        assert_eq!(words("a.f90 -O3 -I inc -DX=1 -J mods -cpp"), "-O3 -I inc -DX=1 -J mods -cpp");
        assert_eq!(
            words("a.f90 -fdefault-real-8 -ffree-form -std=f2018"),
            "-fdefault-real-8 -ffree-form -std=f2018"
        );
        assert_eq!(words("-g a.f90 -v -Os"), "-debug-info-kind=standalone -O2");
        assert_eq!(words("-gdwarf-4 a.f90 -g0"), "-debug-info-kind=standalone -dwarf-version=4");
        assert_eq!(
            words("-g1 a.f90 -Ofast -w"),
            "-debug-info-kind=line-tables-only -O3 -ffast-math -fstack-arrays -w"
        );
        // What is for linking, and what is clang's where there is C.
        assert_eq!(words("a.f90 -L. -lm -Wl,-x -c"), "");
        assert_eq!(words("a.f90 b.c -Wall -fno-strict-aliasing -std=c11 -ffast-math"), "-ffast-math");
    }

    #[test]
    fn what_flang_does_not_know_is_told() {
        let of = |line: &str| Options::of(&parse(line));
        assert!(of("a.f90 -fno-such").unwrap_err().starts_with("-fno-such is no option"));
        assert_eq!(of("a.f90 -Wall -march=x").unwrap().left_out, ["-Wall", "-march=x"]);
        for option in ["-M", "-MM", "--precompile"] {
            let error = of(&format!("{option} a.f90")).unwrap_err();
            assert!(error.contains("is not for Fortran"), "{error}");
        }
    }

    #[test]
    fn what_is_made_is_what_was_asked_for() {
        let of = |line: &str| {
            let request = parse(line);
            let (action, ending) = action(request.stop);
            (action, made(Path::new("src/a.f90"), request.output.as_deref(), ending))
        };
        assert_eq!(of("src/a.f90 -c"), ("-emit-llvm-bc", Some("a.o".into())));
        assert_eq!(of("src/a.f90 -S"), ("-S", Some("a.s".into())));
        assert_eq!(of("src/a.f90 -S -o b"), ("-S", Some("b".into())));
        assert_eq!(of("src/a.f90 -E -c"), ("-E", None));
        assert_eq!(of("src/a.f90 -c -fsyntax-only"), ("-fsyntax-only", None));
    }

    #[test]
    fn clang_gets_nothing_of_flangs() {
        let mut request = parse("-x f95 m.txt -J mods -ffree-form -x c main -xf77 n.txt -O2");
        let sources = sources(&request);
        let found: Vec<_> = sources.iter().map(|source| (source.place, &source.language[..])).collect();
        assert_eq!(found, [(1, &["-x", "f95"][..]), (7, &["-x", "f95", "-ffixed-form"][..])]);
        take_out(&mut request.items);
        let words: Vec<_> = request.items.iter().flat_map(Item::words).collect();
        assert_eq!(words.join(OsStr::new(" ")), "-x none m.txt -x c main -x none n.txt -O2");
    }
}
