//! Sending a panic as the words that its message is made of, for the host to format: a template, and values with what shows
//! them. Nothing is formatted here, and nothing called through a pointer, so that a kernel that can panic has no more code and stack for it
//! than for a post.
//!
//! What `core` hands to a panic is private to it ([`Arguments`]). The build has looked into its sources before it lets this
//! be compiled (`tools/build/src/toolchain.rs`), and the code looks again at one that it knows ([`is_known`]), of which the
//! compiler leaves nothing where it is as it is to be.
//!
//! What shows a value is known by the address of `core`'s function for that. The build writes a table of those whose address the
//! program takes, with what each is given ([`Tag`]); of a value that is shown by any other function, it has the function that panics
//! format (`tools/build/src/panics.rs`).

use crate::pieces::Pieces;
use crate::print::Argument;
use crate::target::{self, formatters};
use core::fmt::Arguments;
use core::panic::{PanicInfo, PanicMessage};
use hostcall_abi::io;
use hostcall_abi::service::number;
use hostcall_abi::status::CallError;
use hostcall_format::unformatted::{MOST_PIECES, MOST_TEXT_BYTES, TEMPLATE, TEXT, Tag};
use hostcall_format::{MAX_ARGUMENTS, tags};

/// What [`Arguments`] are: where the template is, and the arguments that it names.
#[derive(Clone, Copy)]
struct Parts {
    template: *const u8,
    arguments: *const [usize; 2],
}

const _: () = assert!(size_of::<Arguments<'_>>() == size_of::<Parts>());
const _: () = assert!(size_of::<PanicMessage<'_>>() == size_of::<&Arguments<'_>>());

impl Parts {
    #[inline(always)]
    fn of(arguments: &Arguments<'_>) -> Self {
        // SAFETY: as many bytes, which are two pointers (`is_known`).
        unsafe { core::mem::transmute_copy(arguments) }
    }
}

/// Whether `core` makes templates and arguments as this module reads them.
#[inline(always)]
fn is_known() -> bool {
    let value = 5u32;
    let count = 7usize;
    let text = format_args!("ab{value:count$}c");
    let Parts { template, arguments } = Parts::of(&text);
    // With the flags of a width, no alignment, and spaces to fill it.
    let expected = [2, b'a', b'b', 0xd3, b' ', 0, 0, 0x68, 1, 0, 1, b'c', 0];
    // SAFETY: it has so many bytes if it is as expected up to the one before, and two arguments.
    unsafe {
        let is_template = expected.iter().enumerate().all(|(i, byte)| *template.add(i) == *byte);
        is_template
            && (*arguments)[0] == core::ptr::from_ref(&value).addr()
            && count_of(*arguments.add(1)) == Some(count as u16)
            && count_of(*arguments).is_none()
    }
}

/// The width or precision that an argument is, if it is one: then one of its words is zero, which no address is.
#[inline(always)]
fn count_of([first, second]: [usize; 2]) -> Option<u16> {
    match (first, second) {
        (0, count) | (count, 0) => Some(count as u16),
        _ => None,
    }
}

/// Tells the host of a panic. Returns whether it could; if not, nothing was sent.
pub(crate) fn report(info: &PanicInfo<'_>) -> bool {
    if !is_known() {
        return false;
    }
    let here = target::here();
    let (file, line, column) =
        info.location().map_or(("?", 0, 0), |place| (place.file(), place.line(), place.column()));
    let [width, height, _] = here.params().workgroups;
    let mut sender = Sender(Pieces::new(number::PANIC, MOST_PIECES));
    for word in [line, column, here.index_in_workgroup(), here.workgroup_index(), width, height] {
        sender.number(word.into(), 4);
    }
    sender.text(file.as_ptr(), file.len());
    let message = info.message();
    // SAFETY: it is a reference to the arguments, as the build has seen, and is as long as one.
    let arguments: &Arguments<'_> = unsafe { core::mem::transmute_copy(&message) };
    sender.message::<false>(arguments);
    sender.0.finish();
    true
}

/// A panic on its way to the host.
struct Sender(Pieces);

impl Sender {
    fn number(&mut self, number: u64, bytes: u32) {
        self.0.number(number, bytes);
    }

    /// Adds a text, or as much of it as is sent. `start` is where so many bytes are.
    #[inline(never)]
    fn text(&mut self, start: *const u8, len: usize) {
        let len = len.min(MOST_TEXT_BYTES);
        self.number(len as u64, 2);
        // SAFETY: the caller's text, of the program or of this lane.
        unsafe { self.0.bytes(start, len) };
    }

    /// Adds a message, which is one in another if `IS_INNER`.
    #[inline(always)]
    fn message<const IS_INNER: bool>(&mut self, arguments: &Arguments<'_>) {
        if let Some(text) = arguments.as_str() {
            self.number(TEXT.into(), 1);
            self.text(text.as_ptr(), text.len());
            return;
        }
        let Parts { template, arguments } = Parts::of(arguments);
        // SAFETY: it is no text, so it is a template, which ends where it says, and as many arguments as that names.
        unsafe {
            let (len, count) = extent(template);
            self.number(TEMPLATE.into(), 1);
            self.text(template, len);
            let count = count.min(MAX_ARGUMENTS);
            self.number(count as u64, 1);
            for argument in 0..count {
                self.argument::<IS_INNER>(*arguments.add(argument));
            }
        }
    }

    /// Adds an argument: where the value is, and the function that shows it.
    ///
    /// # Safety
    /// It is one of [`Parts::arguments`].
    #[inline(always)]
    unsafe fn argument<const IS_INNER: bool>(&mut self, argument: [usize; 2]) {
        if let Some(count) = count_of(argument) {
            self.number(Tag::COUNT.0.into(), 2);
            return self.number(count.into(), 2);
        }
        let [value, function] = argument;
        let (mut value, mut tag) = (value as *const usize, tag_of(function));
        // SAFETY: the function's type is that of the value, as the build has read from its name.
        unsafe {
            if tag.kind() == Tag::DYN {
                for _ in 1..tag.references() {
                    value = *value as *const usize;
                }
                // The table of a trait with one method: what drops the value, its size and alignment, and the method.
                let (data, table) = (*value, *value.add(1));
                (value, tag) = (data as *const usize, tag_of(*(table as *const usize).add(3)));
            }
            let is_fat = tag.kind() == tags::STR;
            for _ in u8::from(is_fat)..tag.references() {
                value = *value as *const usize;
            }
            let (kind, is_inner) = (tag.kind(), IS_INNER);
            if kind == Tag::DYN || kind == Tag::ARGUMENTS && is_inner {
                return self.number(Tag::UNKNOWN.0.into(), 2);
            }
            self.number(tag.0.into(), 2);
            match kind {
                0 => {}
                tags::STR => self.text(*value as *const u8, *value.add(1)),
                Tag::ARGUMENTS if !IS_INNER => self.inner(&*value.cast::<Arguments<'_>>()),
                _ => self.number(word(tag, value.cast()), 8),
            }
        }
    }

    /// Adds a message that is in another.
    #[inline(never)]
    fn inner(&mut self, arguments: &Arguments<'_>) {
        self.message::<true>(arguments);
    }
}

/// The value's word.
///
/// # Safety
/// A value of the tag's kind lies there.
#[inline(never)]
unsafe fn word(tag: Tag, value: *const ()) -> u64 {
    macro_rules! word {
        ($t:ty) => {
            // SAFETY: the caller's promise.
            unsafe { Argument::word(&*value.cast::<$t>()) }
        };
    }
    match (tag.kind(), tag.size_log2()) {
        (tags::UNSIGNED, 0) => word!(u8),
        (tags::UNSIGNED, 1) => word!(u16),
        (tags::UNSIGNED, 2) => word!(u32),
        (tags::UNSIGNED, _) => word!(u64),
        (tags::I8, _) => word!(i8),
        (tags::I16, _) => word!(i16),
        (tags::I32, _) => word!(i32),
        (tags::I64, _) => word!(i64),
        (tags::F32, _) => word!(f32),
        (tags::F64, _) => word!(f64),
        (tags::BOOL, _) => word!(bool),
        (tags::CHAR, _) => word!(char),
        (tags::POINTER, _) => word!(*const ()),
        (tags::CALL_ERROR, _) => word!(CallError),
        (tags::IO_ERROR, _) => word!(io::Error),
        _ => 0,
    }
}

/// Bytes of a template, and how many arguments it names.
///
/// # Safety
/// It is a template.
#[inline(never)]
unsafe fn extent(template: *const u8) -> (usize, usize) {
    let mut at = template;
    let (mut next, mut count) = (0, 0);
    // SAFETY: it ends in the zero.
    unsafe {
        let number = |at: *const u8| usize::from(u16::from_le_bytes([*at, *at.add(1)]));
        loop {
            let kind = *at;
            at = at.add(1);
            match kind {
                0 => return (at.offset_from_unsigned(template), count),
                1..0x80 => at = at.add(kind.into()),
                0x80 => at = at.add(2 + number(at)),
                _ => {
                    // Flags, width, precision and index, where they are; width and precision may be those that arguments are.
                    at = at.add(usize::from(kind & 1) * 4);
                    for (has, names) in [(2, 16), (4, 32)] {
                        if kind & has != 0 {
                            let index = number(at);
                            at = at.add(2);
                            if kind & names != 0 {
                                count = count.max(index + 1);
                            }
                        }
                    }
                    if kind & 8 != 0 {
                        next = number(at);
                        at = at.add(2);
                    }
                    next += 1;
                    count = count.max(next);
                }
            }
        }
    }
}

/// What the function with this address is given.
#[inline(never)]
fn tag_of(function: usize) -> Tag {
    let mut at = formatters();
    loop {
        // SAFETY: the build's table, of pairs, which ends in a zero.
        let [address, tag] = unsafe { *at };
        if address == 0 || address == function {
            return Tag(tag as u16);
        }
        // SAFETY: not the last one.
        at = unsafe { at.add(1) };
    }
}
