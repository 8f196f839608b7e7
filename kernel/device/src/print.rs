//! What `print!` and its like expand to. The host formats a line if all of its arguments have types with
//! `print::Argument`; the device then sends a format's id and the arguments as words. The first print of a
//! call site sends its format string and gets the id: no linker sections, no pointers that the host would
//! have to trust. A line with a text, or with more words than a post carries, is some posts, one behind the
//! other (`pieces.rs`).
//!
//! `print!` finds out which way to go without knowing the types: it calls methods that two traits have
//! (`print/how.rs`), of which the compiler takes the one for `Argument` where it can, and the one for all
//! types where it cannot. That gives a constant, so a program whose lines are all words has no formatting
//! code. Any other line is formatted on the device by `core::fmt`, into 256 bytes on its stack or, if it is
//! longer, into the heap, and sent as text.

use crate::call::{call_rarely, enter};
use crate::group::Group;
use crate::packet;
use crate::pieces::{Pieces, send_texts};
use crate::post::post_words;
use crate::system::System;
use crate::target;
use core::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroUsize, Wrapping,
};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_abi::io;
use hostcall_abi::service::{Method, number};
use hostcall_abi::status::{CallError, Status};
use hostcall_abi::word::MAX_POST_WORDS;
use hostcall_format::tags;
use hostcall_format::unformatted::MOST_LINE_BYTES;

#[path = "print/how.rs"]
mod how;
#[path = "print/text.rs"]
mod text;

pub use how::{AsAddress, AsBoth, AsValue, ByDevice, ByHost};
pub use text::print_text;

/// Bits of a format's id.
const ID_BITS: u32 = 24;

/// Bits of the tags of as many arguments as a post carries.
const TAG_BITS: u32 = tags::BITS * MAX_POST_WORDS as u32;

/// One `print!` in the source.
pub struct Site {
    text: &'static str,
    stream: u32,
    /// The id that the host gave last, and whom it holds for: bits 0–23 the id, 0 for none; 24–43 the tags of
    /// the arguments, which differ between the instances of a generic function; 44–63 the channel's epoch.
    /// One word, so that whoever reads it (relaxed) has all of it.
    registered: AtomicU64,
}

impl Site {
    /// A line of this format for stream 1 (stdout) or 2 (stderr).
    pub const fn new(text: &'static str, stream: u32) -> Self {
        Self { text, stream, registered: AtomicU64::new(0) }
    }

    /// The id of this format for arguments of types `tags`, which are at most [`MAX_POST_WORDS`].
    #[inline]
    fn id(&self, tags: u64) -> Result<u32, CallError> {
        let key = u64::from(target::here().channel().epoch) << TAG_BITS | tags;
        let registered = target::seen(&self.registered);
        let id = registered as u32 & ((1 << ID_BITS) - 1);
        if registered >> ID_BITS == key & (u64::MAX >> ID_BITS) && id != 0 {
            return Ok(id);
        }
        self.register(key, tags)
    }

    /// Asks the host for the id, one lane for those that come here together.
    #[cold]
    #[inline(never)]
    fn register(&self, key: u64, tags: u64) -> Result<u32, CallError> {
        let site = core::ptr::from_ref(self).addr() as u64 ^ tags.rotate_right(TAG_BITS);
        let id = Group::meet(site, 0, |group| {
            let id = if group.is_leader() { self.ask(tags).unwrap_or(0) } else { 0 };
            group.of_leader(id)
        });
        if id == 0 || id >> ID_BITS != 0 {
            return Err(CallError::Malformed);
        }
        self.registered.store(key << ID_BITS | id, Ordering::Relaxed);
        Ok(id as u32)
    }

    fn ask(&self, tags: u64) -> Result<u64, CallError> {
        let lane = send_texts(&[self.text])?;
        let words = [lane, tags, self.stream.into(), self.text.len() as u64, 0, 0, 0];
        call_rarely(REGISTER_FORMAT, 4, words, 1)
    }
}

/// A type whose values the host formats: numbers of at most 64 bits, `bool`, `char`, `str`, `String`, `CallError`,
/// `io::Error`, raw pointers, and references, boxes and the like of these. They cost a device no more than to send a word.
///
/// Values of all other types are formatted on the device. A generic function's values are too, unless its type parameter
/// has this trait as a bound.
#[diagnostic::on_unimplemented(
    message = "the host does not format values of type `{Self}`",
    note = "without the bound `Argument`, values of any type with `Display` or `Debug` are printed, formatted on the device"
)]
pub trait Argument {
    /// The type's tag.
    const TAG: u8;
    /// The value's word, see [`hostcall_format::tags`].
    fn word(&self) -> u64;
    /// A string's text.
    #[inline(always)]
    fn text(&self) -> &str {
        ""
    }
}

macro_rules! arguments {
    ($($t:ty, $tag:ident, |$v:ident| $word:expr;)*) => {$(
        impl Argument for $t {
            const TAG: u8 = tags::$tag;
            #[inline(always)]
            fn word(&self) -> u64 {
                let $v = *self;
                $word
            }
        }
    )*};
}

arguments! {
    u8, UNSIGNED, |v| v.into();
    u16, UNSIGNED, |v| v.into();
    u32, UNSIGNED, |v| v.into();
    u64, UNSIGNED, |v| v;
    usize, UNSIGNED, |v| v as u64;
    i8, I8, |v| v as u64;
    i16, I16, |v| v as u64;
    i32, I32, |v| v as u64;
    i64, I64, |v| v as u64;
    isize, I64, |v| v as u64;
    f32, F32, |v| v.to_bits().into();
    f64, F64, |v| v.to_bits();
    bool, BOOL, |v| v.into();
    char, CHAR, |v| v.into();
    NonZeroU8, UNSIGNED, |v| v.get().into();
    NonZeroU16, UNSIGNED, |v| v.get().into();
    NonZeroU32, UNSIGNED, |v| v.get().into();
    NonZeroU64, UNSIGNED, |v| v.get();
    NonZeroUsize, UNSIGNED, |v| v.get() as u64;
    NonZeroI8, I8, |v| v.get() as u64;
    NonZeroI16, I16, |v| v.get() as u64;
    NonZeroI32, I32, |v| v.get() as u64;
    NonZeroI64, I64, |v| v.get() as u64;
    NonZeroIsize, I64, |v| v.get() as u64;
    CallError, CALL_ERROR, |v| Status::Error(v).to_bits();
    io::Error, IO_ERROR, |v| Status::Error(v.into()).to_bits();
}

impl Argument for str {
    const TAG: u8 = tags::STR;
    #[inline(always)]
    fn word(&self) -> u64 {
        self.len() as u64
    }
    #[inline(always)]
    fn text(&self) -> &str {
        self
    }
}

impl<T: Argument> Argument for Wrapping<T> {
    const TAG: u8 = T::TAG;
    #[inline(always)]
    fn word(&self) -> u64 {
        self.0.word()
    }
}

/// A type whose values have an address, which is all that `{:p}` shows, also where `std` would add a length.
#[diagnostic::on_unimplemented(message = "`{Self}` is no pointer", label = "has no address to be shown")]
pub trait Address {
    /// The address.
    fn address(&self) -> u64;
}

/// A pointer that prints as its address in every way, so that one argument can be shown by `{:p}` and by `{:?}`.
#[diagnostic::on_unimplemented(message = "`{Self}` is no raw pointer", label = "is not shown as an address")]
pub trait Pointer: Argument + Address {}

macro_rules! pointers {
    ($($t:ty, |$v:ident| $pointer:expr;)*) => {$(
        impl<T: ?Sized> Argument for $t {
            const TAG: u8 = tags::POINTER;
            #[inline(always)]
            fn word(&self) -> u64 {
                self.address()
            }
        }

        impl<T: ?Sized> Address for $t {
            #[inline(always)]
            fn address(&self) -> u64 {
                let $v = *self;
                $pointer.addr() as u64
            }
        }

        impl<T: ?Sized> Pointer for $t {}
    )*};
}

pointers! {
    *const T, |v| v;
    *mut T, |v| v;
    NonNull<T>, |v| v.as_ptr();
}

macro_rules! references_with_address {
    ($($t:ty),*) => {$(
        impl<T: ?Sized> Address for $t {
            #[inline(always)]
            fn address(&self) -> u64 {
                core::ptr::from_ref::<T>(self).addr() as u64
            }
        }
    )*};
}

references_with_address!(&T, &mut T);

macro_rules! references {
    ($($t:ty),*) => {$(
        impl<T: Argument + ?Sized> Argument for $t {
            const TAG: u8 = T::TAG;
            #[inline(always)]
            fn word(&self) -> u64 {
                (**self).word()
            }
            #[inline(always)]
            fn text(&self) -> &str {
                (**self).text()
            }
        }
    )*};
}

references!(&T, &mut T);

/// Prints one line.
#[inline(always)]
pub fn print<const N: usize>(site: &'static Site, tags: [u8; N], words: [u64; N], texts: [&str; N]) {
    let tags = tags::of(&tags);
    if N <= MAX_POST_WORDS && !tags::has_str(tags) {
        let mut all = [0; MAX_POST_WORDS];
        all.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        let [a, b, c, d, e] = all;
        print_words::<N>(site, tags, a, b, c, d, e);
    } else {
        // Fails as in `print_words`.
        let _ = enter(target::here()).and_then(|()| print_in_pieces(site, tags, &words, &texts));
    }
}

/// Posts a line of `N` words: once for all lines of so many, since what the host does for a line takes longer than to come here.
/// Words are parameters of their own, because these travel in registers.
#[inline(never)]
fn print_words<const N: usize>(site: &'static Site, tags: u64, a: u64, b: u64, c: u64, d: u64, e: u64) {
    // A line that has begun is posted, also if another lane panics while the host gives its format an id. It fails when the
    // launch is over, so that the line has no reader, or when the host refuses it and counts that.
    let _ = enter(target::here())
        .and_then(|()| site.id(tags))
        .and_then(|id| post_words(number::PRINT, id, &[a, b, c, d, e][..N.min(MAX_POST_WORDS)]));
}

/// `System::register_format`, whose text is posted before.
const REGISTER_FORMAT: &Method = &System::METHODS[2];

/// Prints a line that one post cannot carry. The tags travel with each line and are no part of the format, so
/// that a site needs to know at most [`MAX_POST_WORDS`] of them.
#[cold]
#[inline(never)]
fn print_in_pieces(site: &'static Site, tags: u64, words: &[u64], texts: &[&str]) -> Result<(), CallError> {
    let id = site.id(0)?;
    let bytes = words.len() * 8 + texts.iter().map(|text| text.len()).sum::<usize>();
    if bytes > MOST_LINE_BYTES {
        return System::line_too_long(site.stream, bytes as u64);
    }
    let here = target::here();
    // A loop that prints alone would go on after its launch was cancelled: the host takes posts all the same.
    if packet::is_over(here) {
        packet::stop_stream(here);
        target::exit_lane();
    }
    let mut pieces = Pieces::new(number::LINE, u32::MAX);
    pieces.number(u64::from(id) | (bytes as u64) << 32, 8);
    pieces.number(tags, 8);
    for word in words {
        pieces.number(*word, 8);
    }
    for text in texts {
        // SAFETY: a text can be read.
        unsafe { pieces.bytes(text.as_ptr(), text.len()) };
    }
    // Not all of it is sent only where the launch is over, so that the line has no reader.
    pieces.finish();
    Ok(())
}
