//! The command line: clang's, with a few options of hostcall's among them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options of clang and flang whose value is the next argument.
const WITH_VALUE: &[&str] = &[
    "--analyzer-output",
    "--param",
    "--serialize-diagnostics",
    "--sysroot",
    "-A",
    "-B",
    "-D",
    "-F",
    "-G",
    "-I",
    "-J",
    "-L",
    "-MF",
    "-MJ",
    "-MQ",
    "-MT",
    "-T",
    "-Tbss",
    "-Tdata",
    "-Ttext",
    "-U",
    "-Xanalyzer",
    "-Xassembler",
    "-Xclang",
    "-Xclangas",
    "-Xcuda-fatbinary",
    "-Xcuda-ptxas",
    "-Xlinker",
    "-Xoffload-linker",
    "-Xopenmp-target",
    "-Xpreprocessor",
    "-arch",
    "-b",
    "-cxx-isystem",
    "-dependency-dot",
    "-dependency-file",
    "-dumpdir",
    "-e",
    "-fintrinsic-modules-path",
    "-fmodules-user-build-path",
    "-framework",
    "-gen-cdb-fragment-path",
    "-iapinotes-modules",
    "-idirafter",
    "-iframework",
    "-iframeworkwithsysroot",
    "-imacros",
    "-imultilib",
    "-include",
    "-include-pch",
    "-iprefix",
    "-iquote",
    "-isysroot",
    "-isystem",
    "-isystem-after",
    "-ivfsoverlay",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-iwithsysroot",
    "-l",
    "-meabi",
    "-mllvm",
    "-mmlir",
    "-module-dependency-dir",
    "-module-dir",
    "-mthread-model",
    "-resource-dir",
    "-rpath",
    "-serialize-diagnostics",
    "-specs",
    "-stdlib++-isystem",
    "-target",
    "-u",
    "-vfsoverlay",
    "-working-directory",
    "-x",
    "-z",
];

/// Beginnings of options that name a target, and whose value is the next argument.
const OF_TARGET: &[&str] = &["-Xarch_", "-Xopenmp-target=", "-Xoffload-linker-"];

/// Whether an option's value is the next argument.
fn has_value(option: &[u8]) -> bool {
    WITH_VALUE.iter().any(|with_value| option == with_value.as_bytes())
        || OF_TARGET.iter().any(|begin| option.starts_with(begin.as_bytes()))
}

/// Where clang stops before it links, the earliest first: of several options that one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    Dependencies,
    Preprocess,
    Check,
    Modules,
    Assemble,
    Compile,
}

impl Stop {
    const ALL: [(&str, Self); 7] = [
        ("-M", Self::Dependencies),
        ("-MM", Self::Dependencies),
        ("-E", Self::Preprocess),
        ("-fsyntax-only", Self::Check),
        ("--precompile", Self::Modules),
        ("-S", Self::Assemble),
        ("-c", Self::Compile),
    ];

    /// Returns what an option says.
    pub fn of(word: &OsStr) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| word.as_bytes() == name.as_bytes()).map(|(_, stop)| *stop)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, stop)| *stop == self).map_or("", |(name, _)| name)
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, assembly, and all else that clang tells by itself.
    C,
    Cxx,
    Fortran,
    /// What is linked as it is.
    Object,
}

impl Language {
    /// Returns what an option `-x` names; nothing for `none`.
    pub fn named(name: &OsStr) -> Option<Self> {
        match name.to_str()? {
            "none" => None,
            name if name.starts_with("c++") => Some(Self::Cxx),
            name if name.starts_with('f') => Some(Self::Fortran),
            _ => Some(Self::C),
        }
    }

    fn of_file(path: &Path) -> Self {
        match path.extension().and_then(OsStr::to_str).unwrap_or_default() {
            "C" | "cc" | "cp" | "cpp" | "cxx" | "c++" | "CPP" | "ii" | "cppm" => Self::Cxx,
            "f" | "F" | "for" | "f90" | "F90" | "f95" | "F95" | "f03" | "F03" | "f08" | "F08" | "f18"
            | "F18" => Self::Fortran,
            "c" | "i" | "m" | "s" | "S" | "ll" | "cl" => Self::C,
            _ => Self::Object,
        }
    }
}

/// A file that the program is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub path: PathBuf,
    pub language: Language,
}

/// A part of the command line, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An option, with its value where that is an argument of its own.
    Options(Vec<OsString>),
    Input(Input),
}

impl Item {
    /// Returns what clang is given.
    pub fn words(&self) -> Vec<&OsStr> {
        match self {
            Self::Options(words) => words.iter().map(OsString::as_os_str).collect(),
            Self::Input(input) => vec![input.path.as_os_str()],
        }
    }

    /// Returns the language that an option `-x` says.
    pub fn language(&self) -> Option<&OsStr> {
        let Self::Options(words) = self else { return None };
        let joined = words.first()?.as_bytes().strip_prefix(b"-x")?;
        if joined.is_empty() {
            words.get(1).map(OsString::as_os_str)
        } else {
            Some(OsStr::from_bytes(joined))
        }
    }

    /// Whether it matters when files are linked, and not before.
    pub fn is_for_linking(&self) -> bool {
        let Self::Options(words) = self else { return false };
        let first = words.first().map(|word| word.as_bytes()).unwrap_or_default();
        ["-l", "-L", "-Wl,", "-Xlinker"].iter().any(|option| first.starts_with(option.as_bytes()))
    }
}

/// What is to be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub target: Option<String>,
    pub libc: Option<PathBuf>,
    pub output: Option<PathBuf>,
    /// Nothing is linked.
    pub stop: Option<Stop>,
    pub items: Vec<Item>,
}

impl Request {
    /// Reads the command line.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(arguments: Vec<OsString>) -> Result<Self, String> {
        let mut request = Self::default();
        let mut language = None;
        let mut rest = arguments.into_iter();
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            let named = |option: &str| {
                let value = bytes.strip_prefix(option.as_bytes())?;
                match value {
                    [] => Some(None),
                    [b'=', value @ ..] => Some(Some(OsStr::from_bytes(value).to_owned())),
                    _ => None,
                }
            };
            let mut value = |given: Option<OsString>| {
                given
                    .or_else(|| rest.next())
                    .ok_or_else(|| format!("{} needs a value behind it", word.display()))
            };
            if let Some(given) = named("--target") {
                request.target = Some(value(given)?.to_string_lossy().into_owned());
            } else if let Some(given) = named("--libc") {
                request.libc = Some(value(given)?.into());
            } else if bytes == b"-o" {
                request.output = Some(value(None)?.into());
            } else if let Some(output) = bytes.strip_prefix(b"-o").filter(|_| !bytes.starts_with(b"-object"))
            {
                request.output = Some(OsStr::from_bytes(output).into());
            } else if bytes == b"-" || !bytes.starts_with(b"-") {
                let path = PathBuf::from(&word);
                let language = language.unwrap_or_else(|| Language::of_file(&path));
                request.items.push(Item::Input(Input { path, language }));
            } else if has_value(bytes) {
                let value = value(None)?;
                if bytes == b"-x" {
                    language = Language::named(&value);
                }
                request.items.push(Item::Options(vec![word, value]));
            } else {
                if bytes.starts_with(b"-x") && bytes.len() > 2 {
                    language = Language::named(OsStr::from_bytes(&bytes[2..]));
                }
                request.stop = [request.stop, Stop::of(&word)].into_iter().flatten().min();
                request.items.push(Item::Options(vec![word]));
            }
        }
        let inputs = request.items.iter().filter(|item| matches!(item, Item::Input(_))).count();
        if inputs == 0 {
            return Err("name a file to compile: `hostcall cc main.c -o prog`".into());
        }
        if request.stop.is_some() && request.output.is_some() && inputs > 1 {
            return Err("-o names one file, and -c, -S and -E make one of each source: leave -o away, or give one source".into());
        }
        Ok(request)
    }

    /// Whether the user wants to see which commands are run.
    pub fn is_verbose(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Options(words) if words.iter().eq(["-v"])))
    }

    /// Whether a file is in this language.
    pub fn has(&self, language: Language) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Input(input) if input.language == language))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Request::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_of_our_own_stand_anywhere() {
        for line in ["--target gfx942 main.c -o prog --libc /l", "main.c -oprog --libc=/l --target=gfx942"] {
            let request = parse(line).unwrap();
            assert_eq!(request.target.as_deref(), Some("gfx942"));
            assert_eq!((request.libc, request.output), (Some("/l".into()), Some("prog".into())));
            assert_eq!(request.items, [Item::Input(Input { path: "main.c".into(), language: Language::C })]);
        }
    }

    #[test]
    fn inputs_are_told_from_values() {
        let request = parse("-I include -D X=1 -O3 a.cpp -x c b -x none c.f90 d.o -l m -c").unwrap();
        let input = |item: &Item| match item {
            Item::Input(input) => Some((input.path.to_str().unwrap().to_owned(), input.language)),
            Item::Options(_) => None,
        };
        let inputs: Vec<_> = request.items.iter().filter_map(input).collect();
        let all = [
            ("a.cpp", Language::Cxx),
            ("b", Language::C),
            ("c.f90", Language::Fortran),
            ("d.o", Language::Object),
        ];
        assert_eq!(inputs, all.map(|(path, language)| (path.to_owned(), language)));
        assert!(request.stop == Some(Stop::Compile) && request.has(Language::Fortran));
        let words: Vec<_> = request.items.iter().flat_map(Item::words).collect();
        assert_eq!(
            words.join(OsStr::new(" ")),
            "-I include -D X=1 -O3 a.cpp -x c b -x none c.f90 d.o -l m -c"
        );
    }

    /// Values of options are no files.
    #[test]
    fn values_stand_behind_their_options() {
        for option in [
            "-MJ x.json",
            "--sysroot /x",
            "-target T",
            "-Xassembler -x",
            "-Xarch_host -g",
            "-Xopenmp-target=x -O2",
            "-e main",
            "-F f",
            "-A a=b",
            "-ivfsoverlay v",
        ] {
            let request = parse(&format!("-c {option} a.c -o a.o")).unwrap();
            let inputs = request.items.iter().filter(|item| matches!(item, Item::Input(_))).count();
            assert_eq!((inputs, request.items.len()), (1, 3), "{option}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(parse("-O2").unwrap_err().contains("name a file"));
        assert!(parse("a.c -o").unwrap_err().contains("-o needs a value"));
        assert!(parse("a.c --target").unwrap_err().contains("--target needs a value"));
        assert!(parse("-c a.c b.c -o x.o").unwrap_err().contains("-o names one file"));
    }
}
