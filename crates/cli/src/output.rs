//! The standard output, also where the process began without one.
#![allow(unsafe_code, reason = "looks at a descriptor before the standard library does")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Notes whether the standard output is closed. The standard library puts `/dev/null` there before `main`, which takes all.
extern "C" fn look() {
    // SAFETY: it asks about a descriptor, whatever that is.
    IS_CLOSED.store(unsafe { libc::fcntl(1, libc::F_GETFD) } < 0, Ordering::Relaxed);
}

// SAFETY: the loader calls each function of this section once before `main`, and this one needs nothing of what is made later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// The standard output; writing fails where there is none.
pub struct Stdout;

fn check() -> io::Result<()> {
    match IS_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check()?;
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
