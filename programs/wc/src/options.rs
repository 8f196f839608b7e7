//! The command line, read as GNU wc reads it.

use alloc::string::String;
use alloc::vec::Vec;
use hostcall_device::{CallError, env, eprintln};

/// What is asked for.
#[derive(Default)]
pub struct Options {
    pub lines: bool,
    pub words: bool,
    pub bytes: bool,
    pub characters: bool,
    /// Columns of the longest line.
    pub longest_line: bool,
    /// Names; empty for the standard input without one.
    pub files: Vec<String>,
}

impl Options {
    /// Reads the program's arguments. `None`: they are wrong, and the user was told.
    pub fn read() -> Result<Option<Self>, CallError> {
        let mut options = Self::default();
        let mut only_files = false;
        for argument in env::args()?.into_iter().skip(1) {
            if only_files || argument == "-" || !argument.starts_with('-') {
                options.files.push(argument);
            } else if argument == "--" {
                only_files = true;
            } else if !options.set(&argument) {
                eprintln!("Try 'wc --help' for more information.");
                return Ok(None);
            }
        }
        if options.columns() == 0 {
            options = Self { lines: true, words: true, bytes: true, ..options };
        }
        Ok(Some(options))
    }

    fn set(&mut self, argument: &str) -> bool {
        match argument {
            "--lines" => self.lines = true,
            "--words" => self.words = true,
            "--bytes" => self.bytes = true,
            "--chars" => self.characters = true,
            "--max-line-length" => self.longest_line = true,
            _ if argument.starts_with("--") => {
                eprintln!("wc: unrecognized option '{}'", argument);
                return false;
            }
            _ => {
                for letter in argument.chars().skip(1) {
                    match letter {
                        'l' => self.lines = true,
                        'w' => self.words = true,
                        'c' => self.bytes = true,
                        'm' => self.characters = true,
                        'L' => self.longest_line = true,
                        _ => {
                            eprintln!("wc: invalid option -- '{}'", letter);
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    /// Numbers of each row.
    pub fn columns(&self) -> usize {
        [self.lines, self.words, self.characters, self.bytes, self.longest_line]
            .into_iter()
            .filter(|on| *on)
            .count()
    }
}
