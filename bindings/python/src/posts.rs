//! Post queues, which a thread of Python's polls. Whatever waits gives the GIL up.

use crate::device::{Process, failed};
use crate::released::DropsFree;
use hostcall::Device;
use hostcall::device::{PostBatch, PostQueue, PostQueueSizes, PostQueueStatistics};
use hostcall::rocm::KernelArgument;
use hostcall_locks::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Most words of a post.
const MOST_WORDS: usize = 16;
/// How long a wait for posts goes on before it looks for signals.
const TURN: Duration = Duration::from_millis(50);
/// For so long a wait polls without sleeping: posts that come soon are taken soon.
const SPIN: Duration = Duration::from_millis(1);
/// Time between two polls after that.
const PAUSE: Duration = Duration::from_micros(50);
/// Time between two polls of a queue to which nothing came for `IDLE`.
const LONG_PAUSE: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(100);

/// The queue, until it is closed. Who polls has the lock for one poll: several threads share the posts. In a box, since objects of
/// Python's lie at multiples of 16 bytes, and the queue has parts with a cache line of their own.
#[pyclass(frozen)]
pub struct RawPostQueue {
    queue: Mutex<Option<DropsFree<Box<PostQueue>>>>,
    process: Process,
    made: Instant,
    /// Milliseconds from then on until posts came last.
    last: AtomicU64,
}

impl RawPostQueue {
    pub fn new(
        device: &Device,
        name: &str,
        waves: u32,
        ring_entries: u32,
        process: Process,
    ) -> PyResult<Self> {
        let made = device.post_queue(name, PostQueueSizes { waves, ring_entries });
        let queue = made.map_err(|error| match error {
            error @ hostcall::Error::Sizes(_) => PyValueError::new_err(error.to_string()),
            error => failed(error),
        });
        let queue = Mutex::new(Some(DropsFree::new(Box::new(queue?))));
        Ok(Self { queue, process, made: Instant::now(), last: AtomicU64::new(0) })
    }

    fn age_ms(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.made).as_millis() as u64
    }

    /// Returns whether nothing has come for a while.
    fn is_idle(&self, now: Instant) -> bool {
        self.age_ms(now).saturating_sub(self.last.load(Ordering::Relaxed)) > IDLE.as_millis() as u64
    }

    /// Does something with the queue, without the GIL.
    fn with<T: Send>(&self, py: Python<'_>, with: impl FnOnce(&PostQueue) -> T + Send) -> PyResult<T> {
        self.process.check()?;
        py.detach(|| self.queue.lock().as_deref().map(|queue| with(queue))).ok_or_else(closed)
    }

    /// Returns the queue as an argument of a kernel that is launched from here.
    pub fn argument(&self) -> PyResult<KernelArgument> {
        self.process.check()?;
        self.queue.lock().as_deref().map(|queue| KernelArgument::post_queue(queue)).ok_or_else(closed)
    }
}

#[pymethods]
impl RawPostQueue {
    fn address(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |queue| queue.address().get())
    }

    /// Returns the posts that are there, `most` at most, one record after the other; waits for the first one for so many seconds,
    /// without a limit for `None`.
    fn poll<'py>(&self, py: Python<'py>, most: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        self.process.check()?;
        let limit = timeout.map(Duration::try_from_secs_f64).transpose();
        let limit = limit.map_err(|_| {
            PyValueError::new_err("a timeout is a number of seconds from 0 on, or None for no limit")
        })?;
        let began = Instant::now();
        let deadline = limit.and_then(|limit| began.checked_add(limit));
        loop {
            let until = Instant::now() + TURN;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            let records = py.detach(|| {
                let mut records = Vec::new();
                loop {
                    let take = |batch: PostBatch<'_>| append(&mut records, &batch);
                    let polled = self.queue.lock().as_deref().map(|queue| queue.poll(most, take));
                    polled.ok_or_else(closed)?.map_err(failed)?;
                    let now = Instant::now();
                    if !records.is_empty() {
                        self.last.store(self.age_ms(now), Ordering::Relaxed);
                    }
                    if !records.is_empty() || most == 0 || now >= until {
                        return Ok::<_, PyErr>(records);
                    }
                    if now - began < SPIN {
                        thread::yield_now();
                    } else {
                        thread::sleep(if self.is_idle(now) { LONG_PAUSE } else { PAUSE });
                    }
                }
            })?;
            // Posts that are there are nobody else's: signals come after them.
            let is_over = most == 0 || deadline.is_some_and(|deadline| deadline <= Instant::now());
            if !records.is_empty() || is_over {
                return Ok(PyBytes::new(py, &records));
            }
            py.check_signals()?;
        }
    }

    fn has_posts(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, PostQueue::has_posts)?.map_err(failed)
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, PostQueue::cancel)?.map_err(failed)
    }

    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, PostQueue::renew)?.map_err(failed)
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.with(py, |queue| numbers(queue.statistics()))
    }

    /// Closes the queue. Returns its statistics; `None` where it is closed already, and in a child of `fork`.
    fn close(&self, py: Python<'_>) -> Option<Vec<(&'static str, u64)>> {
        if !self.process.is_this() {
            // The parent's.
            return None;
        }
        py.detach(|| {
            let queue = self.queue.lock().take();
            queue.map(|queue| numbers(queue.into_inner().close()))
        })
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the post queue was closed: make another one")
}

/// Appends a record for each post, as `hostcall/_posts.py` describes it.
fn append(records: &mut Vec<u8>, batch: &PostBatch<'_>) {
    for post in batch.posts() {
        records.extend(batch.tag().to_le_bytes());
        for number in [batch.workgroup(), batch.wave(), batch.slot(), post.len() as u32] {
            records.extend(number.to_le_bytes());
        }
        let words = post.iter().copied().chain(std::iter::repeat(0)).take(MOST_WORDS);
        words.for_each(|word| records.extend(word.to_le_bytes()));
    }
}

fn numbers(of: PostQueueStatistics) -> Vec<(&'static str, u64)> {
    let PostQueueStatistics { posts, dropped, refused_calls, garbage } = of;
    vec![("posts", posts), ("dropped", dropped), ("refused_calls", refused_calls), ("garbage", garbage)]
}
