//! Lines with a value that the host cannot format. The device formats them by `core::fmt`, and sends the text.

use super::{Site, print};
use core::fmt::{self, Write};
use hostcall_format::tags;

/// Bytes of a line that need no allocation.
const ROOM: usize = 256;

static STDOUT: Site = Site::new("{}", 1);
static STDERR: Site = Site::new("{}", 2);

/// A line while it is formatted. A longer one than there is room for goes to the heap as a whole; where there is none, it
/// is sent in parts.
struct Text {
    site: &'static Site,
    bytes: [u8; ROOM],
    len: usize,
    #[cfg(feature = "alloc")]
    longer: alloc::string::String,
}

impl Text {
    fn send_part(&mut self) {
        // Not `from_utf8`: LLVM 22 compiles it wrongly for AMD's GPUs, and loses the pointer.
        // SAFETY: `write_str` puts whole strings one behind the other.
        let text = unsafe { core::str::from_utf8_unchecked(&self.bytes[..self.len]) };
        send(self.site, text);
        self.len = 0;
    }

    /// Adds what does not fit.
    #[cold]
    fn write_more(&mut self, text: &str) {
        #[cfg(feature = "alloc")]
        if self.longer.try_reserve(self.len + text.len()).is_ok() {
            // SAFETY: as in `send_part`.
            self.longer.push_str(unsafe { core::str::from_utf8_unchecked(&self.bytes[..self.len]) });
            self.longer.push_str(text);
            self.len = 0;
            return;
        }
        self.send();
        if text.len() > ROOM {
            send(self.site, text);
        } else {
            self.bytes[..text.len()].copy_from_slice(text.as_bytes());
            self.len = text.len();
        }
    }

    /// Sends what is there, and keeps nothing.
    fn send(&mut self) {
        #[cfg(feature = "alloc")]
        if !self.longer.is_empty() {
            send(self.site, &self.longer);
            self.longer.clear();
        }
        if self.len > 0 {
            self.send_part();
        }
    }

    /// Whether the line is still in `bytes`.
    fn is_short(&self) -> bool {
        #[cfg(feature = "alloc")]
        return self.longer.is_empty();
        #[cfg(not(feature = "alloc"))]
        true
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_short() && text.len() <= ROOM - self.len {
            self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
            self.len += text.len();
        } else {
            self.write_more(text);
        }
        Ok(())
    }
}

fn send(site: &'static Site, text: &str) {
    print(site, [tags::STR], [text.len() as u64], [text]);
}

/// Prints a line that the device formats to stream 1 (stdout) or 2 (stderr), with `end` behind it.
#[cold]
#[inline(never)]
pub fn print_text(stream: u32, end: &str, line: fmt::Arguments<'_>) {
    let site = if stream == 1 { &STDOUT } else { &STDERR };
    let mut text = Text {
        site,
        bytes: [0; ROOM],
        len: 0,
        #[cfg(feature = "alloc")]
        longer: alloc::string::String::new(),
    };
    // Fails only when a value's own formatting does: what came before it is printed, as far as it got.
    let _ = text.write_fmt(line);
    let _ = text.write_str(end);
    text.send();
}
