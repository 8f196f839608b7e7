//! Headers for kernels in C, C++, CUDA and HIP, made of the trait that a service in Rust is.
//!
//! The types of a call cannot differ: the header's methods carry the schema hash of what it was made of, and a host whose
//! service has other types answers with a mismatch.

mod c;
mod parse;
mod types;

use std::path::{Path, PathBuf};

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
    /// It is no Rust, or has what C cannot say.
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

/// Returns the C header of the services in a file of Rust: of all, or of the one of this name. Structs and enums that travel
/// (`#[derive(Wire)]`) are looked for in the same file.
///
/// A method `find(key: u64, name: &mut [u8]) -> Option<u64>` of a service `Inventory` becomes a function
/// `inventory_find(context, key, name, &name_count, &result, timeout_us)`, which returns a `hostcall_call_status`.
///
/// # Errors
/// When the file cannot be read, is no Rust, has no such service, or one whose types are not in it.
pub fn bind_c(file: &Path, service: Option<&str>) -> Result<String, BindError> {
    let text =
        std::fs::read_to_string(file).map_err(|error| BindError::NotRead { file: file.to_owned(), error })?;
    let services = syn::parse_file(&text).and_then(|parsed| parse::services(&parsed, service));
    let refused = |error: syn::Error| BindError::Refused {
        file: file.to_owned(),
        line: error.span().start().line,
        message: error.to_string(),
    };
    let of = file.file_name().unwrap_or_default().to_string_lossy();
    let refused_in_c = |message| BindError::Refused { file: file.to_owned(), line: 1, message };
    c::header(services.map_err(refused)?, &of).map_err(refused_in_c)
}
