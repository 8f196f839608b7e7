//! The way of blocks into a file: from the thread that has them, or, where there are many, by a thread that
//! writes while more are made.

use crate::tracer::no_thread;
use hostcall_locks::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bytes that may be on their way to the file by the thread, or what was given at once if that is more.
const MOST_ON_THE_WAY: usize = 4 << 20;

/// Between two looks whether the thread has written something: at first, and at most. To wake who waits would
/// cost the thread a twentieth of its time; looks cost it nothing, and there is more on its way than it
/// writes between two of them.
const FIRST_SLEEP: Duration = Duration::from_micros(100);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Whole blocks that the file does not have yet.
#[derive(Default)]
pub(crate) struct Blocks {
    pub bytes: Vec<u8>,
    /// Where in `bytes` the block of a page, or of its last part, ends, and how many bytes the page has.
    pub pages: Vec<(usize, u64)>,
}

impl Blocks {
    /// Forgets all, of which so many bytes are in the file. Returns how many bytes the other pages have.
    fn clear(&mut self, written: usize) -> u64 {
        self.bytes.clear();
        self.pages.drain(..).filter(|(end, _)| *end > written).map(|(_, bytes)| bytes).sum()
    }
}

/// Pages that are not in a file, and why.
#[derive(Debug)]
pub struct Unwritten {
    /// Bytes of the pages, of those that were added.
    pub bytes: u64,
    /// What the writer answered.
    pub error: io::Error,
}

/// A file, until it cannot be written.
struct File {
    to: Box<dyn Write + Send>,
    failure: Option<io::ErrorKind>,
}

impl File {
    /// Writes blocks, and empties them. What comes after an error would lie behind a torn block: it is not
    /// written.
    fn write(&mut self, blocks: &mut Blocks) -> Result<(), Unwritten> {
        let mut written = 0;
        // Until all is written, so that nothing follows a block in which the writer panicked.
        let before = self.failure.replace(io::ErrorKind::Other);
        let result = loop {
            if let Some(kind) = before {
                break Err(kind.into());
            }
            let left = blocks.bytes.get(written..).unwrap_or_default();
            if left.is_empty() {
                break self.to.flush();
            }
            match self.to.write(left) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let bytes = blocks.clear(written);
        self.failure = result.as_ref().err().map(io::Error::kind);
        result.map_err(|error| Unwritten { bytes, error })
    }
}

/// Writes blocks to a file, in the order in which they are given.
pub(crate) struct Output {
    file: Arc<Mutex<File>>,
    thread: Option<WritingThread>,
}

impl Output {
    pub fn new(to: impl Write + Send + 'static) -> Self {
        let file = File { to: Box::new(to), failure: None };
        Self { file: Arc::new(Mutex::new(file)), thread: None }
    }

    /// Has blocks written by the thread, and waits while too much is on its way. Blocks are empty then. As
    /// after each call, an error may be that of blocks that were given before, and counts all that are not
    /// in the file.
    pub fn give(&mut self, blocks: &mut Blocks) -> Result<(), Unwritten> {
        if self.thread.is_none() {
            self.thread = WritingThread::start(&self.file).ok();
        }
        // Without a thread the file is written more slowly.
        let Some(thread) = &mut self.thread else { return self.file.lock().write(blocks) };
        thread.wait(MOST_ON_THE_WAY.saturating_sub(blocks.bytes.len()), blocks)?;
        thread.give(blocks);
        Ok(())
    }

    /// Does what [`Output::give`] does without waiting for the thread: where it has something to write, the
    /// blocks stay, so that what it gets next is not little. Where there is no thread, they are written now.
    pub fn offer(&mut self, blocks: &mut Blocks) -> Result<(), Unwritten> {
        let Some(thread) = &mut self.thread else { return self.file.lock().write(blocks) };
        thread.wait(usize::MAX, blocks)?;
        if thread.on_the_way == 0 && !blocks.bytes.is_empty() {
            thread.give(blocks);
        }
        Ok(())
    }

    /// Writes blocks, and waits until all is in the file.
    pub fn write(&mut self, blocks: &mut Blocks) -> Result<(), Unwritten> {
        if let Some(thread) = &mut self.thread {
            thread.wait(0, blocks)?;
        }
        self.file.lock().write(blocks)
    }
}

/// The thread that writes. The buffers go back and forth: memory that is touched first costs more than
/// copying into it.
struct WritingThread {
    given: Option<Sender<Blocks>>,
    written: Receiver<Written>,
    on_the_way: usize,
    spare: Vec<Blocks>,
    thread: Option<JoinHandle<()>>,
}

/// Blocks that were written or failed, empty, and how many bytes they had.
struct Written {
    blocks: Blocks,
    bytes: usize,
    result: Result<(), Unwritten>,
}

impl WritingThread {
    fn start(file: &Arc<Mutex<File>>) -> io::Result<Self> {
        let ((given, to_write), (back, written)) = (channel::<Blocks>(), channel());
        let file = file.clone();
        let thread = Builder::new().name("hostcall-write".into()).spawn(move || {
            for mut blocks in to_write {
                let bytes = blocks.bytes.len();
                let result = file.lock().write(&mut blocks);
                // Nobody takes it any more where the file is dropped.
                let _ = back.send(Written { blocks, bytes, result });
            }
        });
        let thread = thread.map_err(|error| no_thread("a trace's output", &error))?;
        Ok(Self { given: Some(given), written, on_the_way: 0, spare: Vec::new(), thread: Some(thread) })
    }

    fn give(&mut self, blocks: &mut Blocks) {
        let full = std::mem::replace(blocks, self.spare.pop().unwrap_or_default());
        self.on_the_way += full.bytes.len();
        if self.given.as_ref().is_none_or(|given| given.send(full).is_err()) {
            self.has_panicked();
        }
    }

    /// Takes back what is written, and waits until no more than so many bytes are on their way. After an
    /// error, until nothing is: then all that was given, and the `blocks` that were to be given next, are
    /// counted.
    fn wait(&mut self, most: usize, blocks: &mut Blocks) -> Result<(), Unwritten> {
        let (mut failure, mut sleep) = (None::<Unwritten>, FIRST_SLEEP);
        while self.on_the_way > 0 {
            let Written { blocks, bytes, result } = match self.written.try_recv() {
                Ok(written) => written,
                Err(TryRecvError::Disconnected) => self.has_panicked(),
                Err(TryRecvError::Empty) if self.on_the_way <= most && failure.is_none() => break,
                Err(TryRecvError::Empty) => {
                    std::thread::sleep(sleep);
                    sleep = (2 * sleep).min(LONGEST_SLEEP);
                    continue;
                }
            };
            (self.on_the_way, sleep) = (self.on_the_way - bytes, FIRST_SLEEP);
            self.spare.push(blocks);
            if let Err(unwritten) = result {
                // What came after the first error was not tried.
                let first = failure.get_or_insert(Unwritten { bytes: 0, error: unwritten.error });
                first.bytes += unwritten.bytes;
            }
        }
        failure.map_or(Ok(()), |Unwritten { bytes, error }| {
            Err(Unwritten { bytes: bytes + blocks.clear(0), error })
        })
    }

    /// Goes on with the panic of the writer.
    fn has_panicked(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => panic!("the file's writer has panicked"),
        }
    }
}

impl Drop for WritingThread {
    fn drop(&mut self) {
        self.given = None;
        if let Some(thread) = self.thread.take() {
            // What was given is in the file when this returns. A panic was told on standard error.
            let _ = thread.join();
        }
    }
}
