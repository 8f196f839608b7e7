//! Lines that a device prints and the host formats: how arguments are encoded ([`tags`]), and, on the host,
//! Rust's format strings parsed ([`Format::parse`]) and rendered ([`Format::render`]) at run time. Lines of C
//! programs are formatted by [`c`]. What is rendered is what `std::format!` gives, and glibc's `printf` for
//! [`c`].
//!
//! ```
//! use hostcall_format::{Format, Value};
//!
//! let format = Format::parse("{0:>5}|{1:.2}|{0:#x}")?;
//! let mut line = Vec::new();
//! format.render(&[Value::Unsigned(42), Value::F64(0.126)], &mut line)?;
//! assert_eq!(line, b"   42|0.13|0x2a");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
extern crate alloc;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub mod c;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod floats;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod integers;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod parse;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod render;
pub mod tags;
pub mod unformatted;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod value;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use integers::{IntegerLine, Lines};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use parse::{Format, ParseError, Uses};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use render::{MAX_LINE_BYTES, RenderError};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use value::Value;

/// Most arguments of a line.
pub const MAX_ARGUMENTS: usize = 12;
