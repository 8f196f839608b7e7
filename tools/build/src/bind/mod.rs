//! Headers for kernels in C, C++, CUDA and HIP, and modules for hosts in Python, made of the trait that a service in Rust is or of
//! a description in TOML.
//!
//! The types of a call cannot differ: the header's methods carry the schema hash of what it was made of, and a host whose
//! service has other types answers with a mismatch.

mod c;
mod describe;
mod parse;
mod python;
mod types;

use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of a file. One of this size has hundreds of services.
const MOST_BYTES: usize = 1 << 20;

/// Why no header was made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The file was not read.
    #[error("{} was not read: {error}", .file.display())]
    NotRead {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no Rust and no description, or has what the other language cannot say.
    #[error("{}:{line}: {message}", .file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// Line in it, from 1.
        line: usize,
        /// What is wrong, and what to do.
        message: String,
    },
}

/// Returns the C header of the services in a file: of all, or of the one of this name. A file `.toml` is a description, any other
/// one is Rust. Structs and enums that travel (`#[derive(Wire)]`) are looked for in the same file.
///
/// A method `find(key: u64, name: &mut [u8]) -> Option<u64>` of a service `Inventory` becomes a function
/// `inventory_find(context, key, name, &name_count, &result, timeout_us)`, which returns a `hostcall_call_status`.
///
/// # Errors
/// When the file cannot be read, is neither, has no such service, or one whose types are not in it.
pub fn bind_c(file: &Path, service: Option<&str>) -> Result<String, BindError> {
    bind(file, service, c::header)
}

/// Returns the same services as a module for hosts in Python: classes with annotated methods, from which services are derived.
///
/// # Errors
/// As of [`bind_c`], and when a method has types that hosts in Python do not serve.
pub fn bind_python(file: &Path, service: Option<&str>) -> Result<String, BindError> {
    bind(file, service, |services, file| python::module(&services, file))
}

fn bind(
    file: &Path,
    service: Option<&str>,
    write: impl FnOnce(Vec<types::Service>, &str) -> Result<String, types::Wrong>,
) -> Result<String, BindError> {
    let refused = |line, message| BindError::Refused { file: file.to_owned(), line, message };
    let text = read(file)?;
    let text = std::str::from_utf8(&text).map_err(|error| {
        let line = text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        refused(line, "the file is no text in UTF-8: save it as UTF-8".into())
    })?;
    let described = if file.extension().is_some_and(|extension| extension == "toml") {
        Some(describe::read(text).map_err(|wrong| refused(wrong.line, wrong.message))?)
    } else {
        None
    };
    let rust = described.as_ref().map_or(text, |described| &described.rust);
    let services = syn::parse_file(rust).and_then(|parsed| parse::services(&parsed, service));
    // A line of the Rust, which may have been made of a description.
    let wrong =
        |line, message| refused(described.as_ref().map_or(line, |described| described.line(line)), message);
    let services = services.map_err(|error| wrong(error.span().start().line, error.to_string()))?;
    let of = parse::plain(&file.file_name().unwrap_or_default().to_string_lossy());
    write(services, &of).map_err(|error| wrong(error.line, error.message))
}

/// Reads a file that may be another one than was meant.
fn read(file: &Path) -> Result<Vec<u8>, BindError> {
    let mut text = Vec::new();
    std::fs::File::open(file)
        .and_then(|from| from.take(MOST_BYTES as u64 + 1).read_to_end(&mut text))
        .map_err(|error| BindError::NotRead { file: file.to_owned(), error })?;
    if text.len() > MOST_BYTES {
        let message = "the file has more than 1 MiB: name the one that has the services alone".into();
        return Err(BindError::Refused { file: file.to_owned(), line: 1, message });
    }
    Ok(text)
}
