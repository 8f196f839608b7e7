//! C's `printf` on the host, for a line whose format and arguments came from a device.
//!
//! A device sends the format string, then its variadic arguments as one block of bytes, and the text of each
//! `%s` apart, because the block has only its address there. So a line is made in steps:
//!
//! 1. [`Format::parse`];
//! 2. [`Format::block_bytes`] says how long the block of arguments must be;
//! 3. [`Format::strings`] reads the strings' addresses off the block, for the device to send their text;
//! 4. [`Format::render`] appends the line, byte for byte what glibc's `printf` writes in the C locale.
//!
//! ROCm's device libraries send each argument in a word, with the text of strings in place: [`Format::render_words`].
//!
//! Where glibc has an error or the C standard no meaning, this is what happens: a conversion that C does not know is
//! text; `%n` is refused, since it writes to memory; so is `%ls`, since a device sends bytes; `long double`, which is
//! `double` on devices, is printed as one.
//!
//! ```
//! use hostcall_format::c::{Format, Layout};
//!
//! let format = Format::parse(b"%s: %5.1f %%\n\0")?;
//! let mut block = 0xabcd_u64.to_le_bytes().to_vec();
//! block.extend(99.5_f64.to_le_bytes());
//! assert_eq!(block.len(), format.block_bytes(Layout::Natural));
//! assert_eq!(format.strings(Layout::Natural, &block)?, [0xabcd]);
//! let mut line = Vec::new();
//! format.render(Layout::Natural, &block, &[Some("done")], &mut line)?;
//! assert_eq!(line, b"done:  99.5 %\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
mod float;
mod parse;
mod render;

pub use parse::{Format, ParseError};
pub use render::{MAX_LINE_BYTES, RenderError};

/// How the arguments lie in their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each at a multiple of its size, as in a C structure: LLVM's GPU libc for NVIDIA.
    Natural,
    /// One right after the other: LLVM's GPU libc for AMD.
    Packed,
    /// Each in a word of 8 bytes: ROCm's device libraries, see [`Format::render_words`].
    Words,
}
