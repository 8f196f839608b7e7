//! The command line: clang's, with a few options of hostcall's among them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options of clang whose value is the next argument.
const WITH_VALUE: &[&str] = &[
    "-D",
    "-I",
    "-J",
    "-L",
    "-MF",
    "-MQ",
    "-MT",
    "-T",
    "-U",
    "-Xarch_device",
    "-Xclang",
    "-Xlinker",
    "-Xopenmp-target",
    "-Xpreprocessor",
    "-arch",
    "-idirafter",
    "-imacros",
    "-include",
    "-include-pch",
    "-iprefix",
    "-iquote",
    "-isysroot",
    "-isystem",
    "-iwithprefix",
    "-l",
    "-mllvm",
    "-module-dir",
    "-resource-dir",
    "-u",
    "-working-directory",
    "-x",
    "-z",
    "--param",
];

/// Options after which clang links nothing.
const STOPS: &[&str] = &["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--precompile"];

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
    fn named(name: &OsStr) -> Option<Self> {
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

    /// Returns the words of an option that flang has as well.
    pub fn for_fortran(&self) -> Option<&Vec<OsString>> {
        const SHARED: &[&str] =
            &["-O", "-g", "-D", "-U", "-I", "-J", "-module-dir", "-fopenmp", "-cpp", "-v"];
        let Self::Options(words) = self else { return None };
        let first = words.first()?.as_bytes();
        SHARED.iter().any(|option| first.starts_with(option.as_bytes())).then_some(words)
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
    pub stops: bool,
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
            } else if WITH_VALUE.iter().any(|option| bytes == option.as_bytes()) {
                let value = value(None)?;
                if bytes == b"-x" {
                    language = Language::named(&value);
                }
                request.items.push(Item::Options(vec![word, value]));
            } else {
                if bytes.starts_with(b"-x") && bytes.len() > 2 {
                    language = Language::named(OsStr::from_bytes(&bytes[2..]));
                }
                request.stops |= STOPS.iter().any(|option| bytes == option.as_bytes());
                request.items.push(Item::Options(vec![word]));
            }
        }
        let inputs = request.items.iter().filter(|item| matches!(item, Item::Input(_))).count();
        if inputs == 0 {
            return Err("name a file to compile: `hostcall cc main.c -o prog`".into());
        }
        if request.stops && request.output.is_some() && inputs > 1 {
            return Err("-o names one file, and -c, -S and -E make one of each source: leave -o away, or give one source".into());
        }
        Ok(request)
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
        assert!(request.stops && request.has(Language::Fortran));
        let words: Vec<_> = request.items.iter().flat_map(Item::words).collect();
        assert_eq!(
            words.join(OsStr::new(" ")),
            "-I include -D X=1 -O3 a.cpp -x c b -x none c.f90 d.o -l m -c"
        );
        let fortran: Vec<_> = request.items.iter().filter_map(Item::for_fortran).flatten().collect();
        assert_eq!(fortran, ["-I", "include", "-D", "X=1", "-O3"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(parse("-O2").unwrap_err().contains("name a file"));
        assert!(parse("a.c -o").unwrap_err().contains("-o needs a value"));
        assert!(parse("a.c --target").unwrap_err().contains("--target needs a value"));
        assert!(parse("-c a.c b.c -o x.o").unwrap_err().contains("-o names one file"));
    }
}
