//! Lines for stderr. A thread of its own writes them: stderr may be closed, or a pipe that nobody reads, and neither may
//! stop a server.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most lines that wait to be written. Later ones are dropped and counted.
const MOST_LINES: usize = 256;

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    dropped: u64,
    /// The thread writes what it took.
    is_writing: bool,
}

/// A queue of lines with the thread that writes them.
#[derive(Default)]
struct Reporter {
    queue: Mutex<Queue>,
    /// Signals the thread.
    more: Condvar,
    /// Signals those who wait for the queue to be empty.
    written: Condvar,
    /// There is a thread.
    runs: AtomicBool,
}

/// The process's reporter, once something was reported.
static REPORTER: OnceLock<&'static Reporter> = OnceLock::new();

impl Reporter {
    /// Starts a reporter for `output`. It lives as long as the process.
    fn start(output: impl Write + Send + 'static) -> &'static Self {
        let reporter: &'static Self = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("hostcall-reports".into());
        let started = thread.spawn(move || reporter.write_out(output));
        reporter.runs.store(started.is_ok(), Ordering::Release);
        reporter
    }

    fn write_out(&self, mut output: impl Write) {
        let mut queue = self.queue.lock();
        loop {
            let line = match std::mem::take(&mut queue.dropped) {
                0 => queue.lines.pop_front(),
                dropped => Some(format!("hostcall: {dropped} reports were lost: too many at once\n")),
            };
            queue.is_writing = line.is_some();
            let Some(line) = line else {
                self.written.notify_all();
                self.more.wait(&mut queue);
                continue;
            };
            drop(queue);
            // Whoever closed stderr does not want to know.
            let _ = output.write_all(line.as_bytes());
            queue = self.queue.lock();
        }
    }

    fn line(&self, line: String) {
        let mut queue = self.queue.lock();
        if !self.runs.load(Ordering::Acquire) || queue.lines.len() >= MOST_LINES {
            queue.dropped += 1;
            return;
        }
        queue.lines.push_back(line);
        self.more.notify_one();
    }

    fn flush(&self, limit: Duration) {
        let mut queue = self.queue.lock();
        let waits = |queue: &mut Queue| {
            self.runs.load(Ordering::Acquire) && (queue.is_writing || !queue.lines.is_empty())
        };
        self.written.wait_while_for(&mut queue, waits, limit);
    }
}

/// Has a line written to stderr. Neither waits nor panics; at most [`MOST_LINES`] lines wait.
pub(crate) fn line(text: impl std::fmt::Display) {
    REPORTER.get_or_init(|| Reporter::start(std::io::stderr())).line(format!("hostcall: {text}\n"));
}

/// Waits until the lines so far are written, or `limit` has passed.
pub(crate) fn flush(limit: Duration) {
    if let Some(reporter) = REPORTER.get() {
        reporter.flush(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;
    use std::sync::mpsc;

    /// Writes once it is told to.
    struct Slow(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.1.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_pipe_holds_nobody_up_and_what_is_lost_is_counted() {
        let (go, wait) = mpsc::channel();
        let written = Arc::default();
        let reporter = Reporter::start(Slow(wait, Arc::clone(&written)));
        for i in 0..MOST_LINES + 11 {
            reporter.line(format!("{i}\n"));
        }
        reporter.flush(Duration::ZERO);
        for _ in 0..MOST_LINES + 12 {
            let _ = go.send(());
        }
        reporter.flush(Duration::from_secs(60));
        let text = String::from_utf8(written.lock().clone()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("hostcall")).count();
        let lost =
            text.lines().find(|line| line.starts_with("hostcall")).expect("the lost lines are told of");
        let lost: usize = lost.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(lines + lost, MOST_LINES + 11);
    }

    #[test]
    fn a_closed_stderr_does_not_matter() {
        let (_, wait) = mpsc::channel();
        let reporter = Reporter::start(Slow(wait, Arc::default()));
        reporter.line("lost\n".into());
        reporter.flush(Duration::from_secs(60));
        reporter.line("lost as well\n".into());
        reporter.flush(Duration::from_secs(60));
    }
}
