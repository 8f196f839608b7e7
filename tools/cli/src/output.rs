//! The standard output and error, also where the process began without them.
#![allow(unsafe_code, reason = "looks at descriptors before the standard library does")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static HAS_NO_OUTPUT: AtomicBool = AtomicBool::new(false);
static HAS_NO_ERROR: AtomicBool = AtomicBool::new(false);

/// Notes which of them are closed. The standard library puts `/dev/null` there before `main`, which takes all.
extern "C" fn look() {
    for (descriptor, is_closed) in [(1, &HAS_NO_OUTPUT), (2, &HAS_NO_ERROR)] {
        // SAFETY: it asks about a descriptor, whatever that is.
        is_closed.store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
}

// SAFETY: the loader calls each function of this section once before `main`, and this one needs nothing of what is made later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

fn check(is_closed: &AtomicBool) -> io::Result<()> {
    match is_closed.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// The standard output; writing fails where there is none.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(&HAS_NO_OUTPUT)?;
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The standard error, as [`Stdout`].
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(&HAS_NO_ERROR)?;
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
