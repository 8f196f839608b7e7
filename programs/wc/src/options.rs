//! The command line, read as GNU wc reads it.

use alloc::string::String;
use alloc::vec::Vec;
use hostcall_device::{CallError, env, eprintln, print, println};

/// What is asked for.
#[derive(Default)]
pub struct Options {
    pub lines: bool,
    pub words: bool,
    pub bytes: bool,
    pub characters: bool,
    /// Columns of the longest line.
    pub longest_line: bool,
    /// Names as the system has them; none for the standard input without a name.
    pub files: Vec<Vec<u8>>,
}

const HELP: &str = "\
Usage: wc [OPTION]... [FILE]...
Print newline, word, and byte counts for each FILE, and a total line if
more than one FILE is specified.  A word is a non-zero-length sequence of
printable characters delimited by white space.

With no FILE, or when FILE is -, read standard input.

The options below may be used to select which counts are printed, always in
the following order: newline, word, character, byte, maximum line length.
  -c, --bytes            print the byte counts
  -m, --chars            print the character counts
  -l, --lines            print the newline counts
  -L, --max-line-length  print the maximum display width
  -w, --words            print the word counts
      --help        display this help and exit
      --version     output version information and exit
";

/// Long options; one may be cut short as long as no other begins so.
const LONG: [(&str, Option<char>); 7] = [
    ("--bytes", Some('c')),
    ("--chars", Some('m')),
    ("--help", None),
    ("--lines", Some('l')),
    ("--max-line-length", Some('L')),
    ("--version", None),
    ("--words", Some('w')),
];

impl Options {
    /// Reads the program's arguments. `Err`: there is nothing to count, the user was told, and this is the exit code.
    pub fn read() -> Result<Result<Self, i32>, CallError> {
        let mut options = Self::default();
        let mut only_files = false;
        for argument in env::args_bytes()?.into_iter().skip(1) {
            if only_files || argument == b"-" || !argument.starts_with(b"-") {
                options.files.push(argument);
            } else if argument == b"--" {
                only_files = true;
            } else if let Err(code) = options.set(&argument) {
                if code != 0 {
                    eprintln!("Try 'wc --help' for more information.");
                }
                return Ok(Err(code));
            }
        }
        if options.columns() == 0 {
            options = Self { lines: true, words: true, bytes: true, ..options };
        }
        Ok(Ok(options))
    }

    fn set(&mut self, argument: &[u8]) -> Result<(), i32> {
        if argument.starts_with(b"--") {
            return self.set_long(argument);
        }
        for letter in String::from_utf8_lossy(argument).chars().skip(1) {
            self.set_letter(letter)?;
        }
        Ok(())
    }

    fn set_letter(&mut self, letter: char) -> Result<(), i32> {
        match letter {
            'l' => self.lines = true,
            'w' => self.words = true,
            'c' => self.bytes = true,
            'm' => self.characters = true,
            'L' => self.longest_line = true,
            _ => {
                eprintln!("wc: invalid option -- '{}'", letter);
                return Err(1);
            }
        }
        Ok(())
    }

    fn set_long(&mut self, argument: &[u8]) -> Result<(), i32> {
        let text = String::from_utf8_lossy(argument);
        let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        let mut meant = LONG.iter().filter(|(long, _)| long.starts_with(name));
        let (Some((long, letter)), None) = (meant.next(), meant.next()) else {
            eprintln!("wc: unrecognized option '{}'", &*text);
            return Err(1);
        };
        if value.is_some() {
            eprintln!("wc: option '{}' doesn't allow an argument", *long);
            return Err(1);
        }
        match letter {
            Some(letter) => return self.set_letter(*letter),
            None if *long == "--help" => print!("{}", HELP),
            None => println!("wc (hostcall) {}", env!("CARGO_PKG_VERSION")),
        }
        Err(0)
    }

    /// Numbers of each row.
    pub fn columns(&self) -> usize {
        [self.lines, self.words, self.characters, self.bytes, self.longest_line]
            .into_iter()
            .filter(|on| *on)
            .count()
    }
}
