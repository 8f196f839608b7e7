//! Lines for stderr. A thread of its own writes them: stderr may be closed, or a pipe that nobody reads, and neither may
//! stop a server.

use hostcall_locks::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Most lines that wait to be written. Later ones are dropped and counted.
const MOST_LINES: usize = 256;

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    dropped: u64,
    /// A thread writes, and ends when no line waits.
    is_writing: bool,
}

/// A queue of lines, and a thread that writes them while there are any: who waits for a process's threads to end does not wait
/// for reports.
struct Reporter<W> {
    queue: Mutex<Queue>,
    /// Signals those who wait for the queue to be empty.
    written: Condvar,
    /// The thread's alone.
    output: Mutex<W>,
}

/// The process's reporter.
static REPORTER: LazyLock<Arc<Reporter<std::io::Stderr>>> =
    LazyLock::new(|| Reporter::new(std::io::stderr()));

impl<W: Write + Send + 'static> Reporter<W> {
    fn new(output: W) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::default(), written: Condvar::new(), output: Mutex::new(output) })
    }

    fn write_out(&self) {
        let mut output = self.output.lock();
        let mut queue = self.queue.lock();
        loop {
            let line = match std::mem::take(&mut queue.dropped) {
                0 => queue.lines.pop_front(),
                dropped => Some(format!("hostcall: {dropped} reports were lost: too many at once\n")),
            };
            let Some(line) = line else { break };
            drop(queue);
            // Whoever closed stderr does not want to know.
            let _ = output.write_all(line.as_bytes());
            queue = self.queue.lock();
        }
        // The next line's thread finds the output free.
        drop(output);
        queue.is_writing = false;
        self.written.notify_all();
    }

    fn line(self: &Arc<Self>, line: String) {
        let mut queue = self.queue.lock();
        if queue.lines.len() < MOST_LINES {
            queue.lines.push_back(line);
        } else {
            queue.dropped += 1;
        }
        // Also where there is no room: without a thread there would never be any.
        if !queue.is_writing {
            let reporter = Arc::clone(self);
            let thread = std::thread::Builder::new().name("hostcall-reports".into());
            // Where the system starts no thread, the line waits for the next one's.
            queue.is_writing = thread.spawn(move || reporter.write_out()).is_ok();
        }
    }

    fn flush(&self, limit: Duration) {
        drop(self.written.wait_timeout_while(self.queue.lock(), limit, |queue| queue.is_writing));
    }
}

/// Has a line written to stderr. Neither waits nor panics; at most 256 lines wait, more are counted.
pub fn line(text: impl std::fmt::Display) {
    REPORTER.line(format!("hostcall: {text}\n"));
}

/// How long it is waited for lines that nobody takes.
const LONGEST_FLUSH: Duration = Duration::from_millis(100);

/// Waits until the lines so far are written, for those after which the process may end; 100 ms at most.
pub fn flush() {
    REPORTER.flush(LONGEST_FLUSH);
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
        let reporter = Reporter::new(Slow(wait, Arc::clone(&written)));
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

    /// While the system starts no thread, lines gather; the first one that it starts writes them all.
    #[test]
    fn lines_that_found_no_thread_are_written_by_the_next_one() {
        let (go, wait) = mpsc::channel();
        let written = Arc::default();
        let reporter = Reporter::new(Slow(wait, Arc::clone(&written)));
        reporter.queue.lock().lines = (0..MOST_LINES).map(|i| format!("{i}\n")).collect();
        (0..=MOST_LINES).for_each(|_| go.send(()).unwrap());
        reporter.line("one too many\n".into());
        reporter.flush(Duration::from_secs(60));
        let text = String::from_utf8(written.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), MOST_LINES + 1);
        assert!(text.starts_with("hostcall: 1 reports were lost: too many at once\n0\n"), "{text}");
    }

    #[test]
    fn a_closed_stderr_does_not_matter() {
        let (_, wait) = mpsc::channel();
        let reporter = Reporter::new(Slow(wait, Arc::default()));
        reporter.line("lost\n".into());
        reporter.flush(Duration::from_secs(60));
        reporter.line("lost as well\n".into());
        reporter.flush(Duration::from_secs(60));
    }
}
