//! How far long work is, on the standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two lines on a terminal, each of which replaces the one before.
const ON_TERMINAL: Duration = Duration::from_millis(200);

/// Time between two lines elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// Says how far work is, if that takes long. Any thread may tell it.
pub struct Progress {
    what: String,
    of: u64,
    told: Mutex<Told>,
    is_terminal: bool,
}

struct Told {
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// For work of so many points.
    pub fn new(what: impl Into<String>, of: u64) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let next = Instant::now() + if is_terminal { ON_TERMINAL } else { ELSEWHERE };
        Self { what: what.into(), of, told: Mutex::new(Told { next, is_shown: false }), is_terminal }
    }

    /// Says that so many points are done, unless that was said a short time ago.
    pub fn tell(&self, done: u64) {
        // Another thread says it.
        let Ok(mut told) = self.told.try_lock() else { return };
        let at = Instant::now();
        if at < told.next {
            return;
        }
        let part = done as f64 / self.of.max(1) as f64 * 100.0;
        let line = format!("{}: {part:.0} % of {} points", self.what, self.of);
        // Nobody can be told that standard error is closed.
        let _ = match self.is_terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
        told.next = at + if self.is_terminal { ON_TERMINAL } else { ELSEWHERE };
        told.is_shown = self.is_terminal;
    }
}

/// Removes the line from a terminal.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.told.get_mut().is_ok_and(|told| told.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
