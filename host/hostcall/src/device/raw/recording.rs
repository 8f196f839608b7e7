//! Recording raw channels to files.
//!
//! One thread copies pages into a MiB of whole blocks and gives them back; from the first full MiB on a
//! second thread writes the blocks. The file is written from copies because a block has a checksum, which a
//! device that breaks the rules could make wrong by a store between the sum and the write. The system lets
//! one `write` go into a file at a time, so more threads would wait for each other. At most 4 MiB, or one
//! larger page, are on their way besides the MiB that is being gathered; then the first thread waits with a
//! page in its hand. An error counts the pages of all blocks that are not in the file, and nothing is written
//! behind it.

use super::{Inner, Pace, RawChannel, RawPage, RawReader, RawStatistics};
use crate::device::error::Error;
use hostcall_device::kernel::Plain;
use hostcall_device::raw::Policy;
use hostcall_trace::{Descriptor, Page, StreamFile, StreamTotals, Unwritten};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread that copies waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(1);

/// A channel that is written to a file, for `hostcall trace`: by a thread that copies pages, so that waves
/// get them again, and, where there are many, one that writes. When it is dropped without
/// [`Recording::finish`], the file lacks its end and what kernels write later, which is said on the standard
/// error, as is what an error of the file lost.
#[must_use = "what kernels write is recorded as long as this lives, until `finish`"]
pub struct Recording {
    inner: Arc<Inner>,
    /// The file's, for errors; `None` where another was begun.
    path: Option<PathBuf>,
    shall_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Written>>,
}

/// What the thread has done.
#[derive(Default)]
struct Written {
    file: Option<(StreamFile, u16)>,
    lost_bytes: u64,
    failure: Option<io::Error>,
}

impl<T: Plain, P: Policy> RawChannel<T, P> {
    /// Writes what kernels write from now on to a new file at this path, under this name, until [`Recording::finish`]. Who reads
    /// the channel too gets other pages.
    ///
    /// After an error of the file, such as a full disk, the channel is read on, so that no kernel waits; what is lost is counted.
    ///
    /// # Errors
    /// [`Error::Recording`] with the path, when the file cannot be written; [`Error::NoThread`].
    pub fn record(&self, path: impl AsRef<Path>, name: &str) -> Result<Recording, Error> {
        let path = path.as_ref();
        let mut recording = self.record_to(StreamFile::create(path).map_err(Error::Recording)?, name)?;
        recording.path = Some(path.into());
        Ok(recording)
    }

    /// Records the channel as [`RawChannel::record`] does, to a file that was begun.
    ///
    /// # Errors
    /// As for [`RawChannel::record`].
    pub fn record_to(&self, mut file: StreamFile, name: &str) -> Result<Recording, Error> {
        // Bytes are no records.
        let has_records = size_of::<T>().is_multiple_of(8);
        let descriptor = Descriptor::of(T::TYPE).filter(|_| has_records);
        let stream = file.stream(name, size_of::<T>() as u32, T::SCHEMA, P::NAME, descriptor.as_ref());
        let stream = stream.map_err(Error::Recording)?;
        let (reader, shall_end) = (self.reader(), Arc::<AtomicBool>::default());
        let told = shall_end.clone();
        let thread = std::thread::Builder::new().name("hostcall-record".into()).spawn(move || {
            reader.enter_thread();
            write_on(&reader, &told, file, stream)
        });
        let thread = thread.map_err(|error| Error::NoThread { what: "a recording", error })?;
        Ok(Recording { inner: self.inner.clone(), path: None, shall_end, thread: Some(thread) })
    }
}

/// Pages that are copied between two looks at whether to end.
const PAGES_A_LOOK: usize = 64;

fn write_on<T>(reader: &RawReader<T>, shall_end: &AtomicBool, file: StreamFile, stream: u16) -> Written {
    let mut written = Written { file: Some((file, stream)), ..Written::default() };
    let mut pace = Pace::new();
    loop {
        // What was there before it was told to end is written, and not what waves write for ever.
        let is_last = shall_end.load(Ordering::Acquire);
        let most = if is_last { reader.most_there() } else { PAGES_A_LOOK };
        let pages = reader.rest().take(most).map(|page| written.add(&page)).count();
        if is_last || pages < most {
            written.hand_on(is_last);
        }
        if is_last {
            return written;
        }
        match pages {
            0 => pace.wait(LOOK),
            _ => pace.found(),
        }
    }
}

impl Written {
    fn add<T>(&mut self, page: &RawPage<T>) {
        let count = page.len_bytes();
        let Some((file, stream)) = &mut self.file else {
            self.lost_bytes += u64::from(count);
            return;
        };
        let writer = page.writer();
        let of_file = Page {
            stream: *stream,
            sequence: page.sequence(),
            offset_bytes: page.offset_bytes(),
            is_last: page.is_last(),
            launch: writer.launch.to_bits(),
            slot: writer.slot,
            workgroup: writer.workgroup,
            wave: writer.wave,
            opened_ns: page.opened_ns(),
            dropped_before: page.dropped_before(),
            overwritten_before: page.overwritten_before(),
            bytes: Box::default(),
        };
        let added = file.add_page(&of_file, count as usize, |bytes| page.append_to(bytes));
        self.note(added);
    }

    /// Has what waits for more written, without waiting for it, since pages come meanwhile; but where
    /// nothing follows.
    fn hand_on(&mut self, is_last: bool) {
        if let Some((file, _)) = &mut self.file {
            let handed = if is_last { file.flush() } else { file.hand_on() };
            self.note(handed);
        }
    }

    fn note(&mut self, written: Result<(), Unwritten>) {
        if let Err(Unwritten { bytes, error }) = written {
            self.lost_bytes += bytes;
            (self.file, self.failure) = (None, Some(error));
        }
    }
}

impl Recording {
    /// Writes what launches that were waited for have written, and ends the file. Returns what the channel had.
    ///
    /// # Errors
    /// [`Error::Recording`], if the file could not be written to its end: with how many bytes are not there.
    pub fn finish(mut self) -> Result<RawStatistics, Error> {
        let Some(mut written) = self.end() else {
            let panicked = io::Error::other("the thread that wrote the file has panicked");
            return Err(Error::Recording(panicked));
        };
        let statistics = self.inner.statistics();
        let mut failure = written.failure.take();
        if let Some((mut file, stream)) = written.file.take() {
            let totals = StreamTotals {
                pages: statistics.pages,
                bytes: statistics.bytes,
                dropped_records: statistics.dropped_records,
                overwritten_bytes: statistics.overwritten_bytes,
                lost_bytes: written.lost_bytes + statistics.lost_bytes,
            };
            failure = file.end_stream(stream, &totals).and_then(|()| file.finish()).err();
        }
        match failure {
            None => Ok(statistics),
            Some(error) => {
                let lost = written.lost_bytes;
                let file = self.file();
                let sentence =
                    format!("{file} was written up to an error, and {lost} bytes after it are lost: {error}");
                Err(Error::Recording(io::Error::new(error.kind(), sentence)))
            }
        }
    }

    /// What errors call the file.
    fn file(&self) -> String {
        self.path.as_ref().map_or("the file".into(), |path| path.display().to_string())
    }

    fn end(&mut self) -> Option<Written> {
        self.shall_end.store(true, Ordering::Release);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        let lost = match self.end() {
            Some(Written { failure: None, .. }) => {
                format!("{} lacks its end, and what kernels write from now on", self.file())
            }
            Some(Written { failure: Some(error), lost_bytes, .. }) => {
                format!("{lost_bytes} bytes of {} are lost: {error}", self.file())
            }
            None => format!("the thread that wrote {} has panicked", self.file()),
        };
        let line = format!("hostcall: a recording was dropped without `finish`: {lost}\n");
        // Nobody can be told that the standard error is closed.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
