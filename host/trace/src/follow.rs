//! Reading a trace while another process writes it. What is there of a block is kept until the block is
//! whole.

use crate::reader::Reader;
use crate::record::Event;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Between two looks at whether the file has grown: at first, and at most.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Reads a trace that grows: where the file ends for now, it waits for more. A block that is there in part is
/// not read before it is whole.
///
/// ```
/// use hostcall_trace::{Call, Event, Follower, Reader, Tracer};
/// use hostcall_abi::launch::LaunchId;
/// use std::time::Duration;
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("calls.trace");
/// let tracer = Tracer::builder().file(&file)?.start()?;
/// let mut follower = Follower::new(Reader::new(std::fs::File::open(&file)?)?);
/// let source = tracer.source("cpu", "hostcall");
/// source.call("Inventory::lookup", 300, LaunchId::NONE, Call::at(source.now_ns()));
/// // The tracer goes on.
/// let event = loop {
///     match follower.next_within(Duration::from_secs(10))? {
///         Some(Event::Call(call)) => break call,
///         event => assert!(event.is_some(), "the call is written soon"),
///     }
/// };
/// assert_eq!(event.lanes, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Follower<R> {
    reader: Reader<R>,
}

impl<R: Read> Follower<R> {
    /// Follows what this reader reads, from where it is.
    pub fn new(reader: Reader<R>) -> Self {
        Self { reader }
    }

    /// Returns the reader.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// Returns whether nothing follows: the trace's end was read.
    pub fn is_complete(&self) -> bool {
        self.reader.is_complete()
    }

    /// Returns the next event, and waits so long for one. `None` says that there was none; none follows if
    /// the trace
    /// [is complete](Self::is_complete).
    ///
    /// # Errors
    /// The system's, when the file cannot be read.
    pub fn next_within(&mut self, longest: Duration) -> io::Result<Option<Event>> {
        let (began, mut sleep) = (Instant::now(), FIRST_SLEEP);
        loop {
            if let Some(event) = self.reader.next() {
                return event.map(Some);
            }
            let left = longest.saturating_sub(began.elapsed());
            if self.is_complete() || left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(sleep.min(left));
            sleep = (2 * sleep).min(LONGEST_SLEEP);
            self.reader.resume();
        }
    }
}
