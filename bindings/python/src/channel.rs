//! Raw channels, through which kernels stream records to Python. Whatever waits gives the GIL up.

use crate::device::{RawContext, failed, limit};
use crate::kernels::RawBuffer;
use crate::released::DropsFree;
use hostcall::Device;
use hostcall::raw::{self, Block, DropNewest, OverwriteOldest, Placement, Policy, RawReader, RawStatistics};
use hostcall::rocm::KernelArgument;
use hostcall_locks::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a wait for a page goes on before it looks for signals, and whether the channel was closed.
const TURN: Duration = Duration::from_millis(50);

/// The channel with its policy, which is a type.
enum Channel {
    Block(raw::RawChannel<u8, Block>),
    DropNewest(raw::RawChannel<u8, DropNewest>),
    OverwriteOldest(raw::RawChannel<u8, OverwriteOldest>),
}

/// A channel and who reads it. Without both nobody gives pages back, and waves that wait go on.
struct Parts {
    channel: Channel,
    reader: RawReader<u8>,
}

#[pyclass(frozen)]
pub struct RawChannel(Mutex<Option<Arc<DropsFree<Parts>>>>);

impl RawChannel {
    pub fn new(
        device: &Device,
        pages: u32,
        page_bytes: u32,
        policy: &str,
        is_staged: bool,
    ) -> PyResult<Self> {
        let placement = if is_staged { Placement::Staged } else { Placement::Direct };
        let refused = |error: hostcall::Error| match error {
            error @ hostcall::Error::RawSizes { .. } => PyValueError::new_err(error.to_string()),
            error => failed(error),
        };
        fn made<P: Policy>(
            made: Result<raw::RawChannel<u8, P>, hostcall::Error>,
            of: impl FnOnce(raw::RawChannel<u8, P>) -> Channel,
        ) -> Result<Parts, hostcall::Error> {
            made.map(|channel| Parts { reader: channel.reader(), channel: of(channel) })
        }
        macro_rules! of {
            ($policy:ident) => {
                made(
                    raw::RawChannel::<u8, $policy>::placed(device, placement, pages, page_bytes),
                    Channel::$policy,
                )
            };
        }
        let parts = match policy {
            "block" => of!(Block),
            "drop" => of!(DropNewest),
            "overwrite" => of!(OverwriteOldest),
            _ => {
                let what = format!("there is no policy `{policy}`: take block, drop or overwrite");
                return Err(PyValueError::new_err(what));
            }
        };
        Ok(Self(Mutex::new(Some(Arc::new(DropsFree::new(parts.map_err(refused)?))))))
    }

    fn parts(&self) -> Option<Arc<DropsFree<Parts>>> {
        self.0.lock().clone()
    }

    fn open(&self) -> PyResult<Arc<DropsFree<Parts>>> {
        self.parts().ok_or_else(|| PyRuntimeError::new_err("the channel was closed: make another one"))
    }

    /// Returns the channel as an argument of a kernel that is launched from here.
    pub fn argument(&self) -> PyResult<KernelArgument> {
        Ok(match &self.open()?.channel {
            Channel::Block(channel) => KernelArgument::raw_channel(channel),
            Channel::DropNewest(channel) => KernelArgument::raw_channel(channel),
            Channel::OverwriteOldest(channel) => KernelArgument::raw_channel(channel),
        })
    }
}

#[pymethods]
impl RawChannel {
    /// Puts what kernels with the context take into memory that they read.
    fn stream(&self, context: &RawContext, at: &RawBuffer) -> PyResult<()> {
        let (parts, context) = (self.open()?, context.context()?);
        let bytes = match &parts.channel {
            Channel::Block(channel) => context.raw_stream(channel),
            Channel::DropNewest(channel) => context.raw_stream(channel),
            Channel::OverwriteOldest(channel) => context.raw_stream(channel),
        };
        at.write(&bytes.map_err(failed)?);
        Ok(())
    }

    /// Returns the next page, and waits for it as long as `timeout` says; `None` once the channel is closed.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<RawPage>> {
        let is_poll = timeout == Some(0.0);
        let deadline = if is_poll { None } else { limit(timeout)? };
        let deadline = deadline.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let Some(parts) = self.parts() else { return Ok(None) };
            let left = deadline.map_or(TURN, |deadline| deadline.saturating_duration_since(Instant::now()));
            let page = py.detach(|| {
                let reader = &parts.reader;
                let page = if is_poll { reader.try_next() } else { reader.next_within(left.min(TURN)) };
                drop(parts);
                page
            });
            // A page that is there is nobody else's: signals come after it.
            if let Some(page) = page {
                return Ok(Some(RawPage(DropsFree::new(page))));
            }
            py.check_signals()?;
            if is_poll || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.0.lock().is_none()
    }

    fn statistics(&self) -> PyResult<Vec<(&'static str, u64)>> {
        let counted = match &self.open()?.channel {
            Channel::Block(channel) => channel.statistics(),
            Channel::DropNewest(channel) => channel.statistics(),
            Channel::OverwriteOldest(channel) => channel.statistics(),
        };
        let RawStatistics {
            pages,
            bytes,
            dropped_records,
            overwritten_bytes,
            swept_pages,
            malformed_words,
            ..
        } = counted;
        Ok(vec![
            ("pages", pages),
            ("bytes", bytes),
            ("dropped_records", dropped_records),
            ("overwritten_bytes", overwritten_bytes),
            ("swept_pages", swept_pages),
            ("malformed_words", malformed_words),
        ])
    }

    /// Ends the channel: waves that wait for a page go on, and what finds none is dropped.
    fn close(&self, py: Python<'_>) {
        let parts = self.0.lock().take();
        py.detach(|| drop(parts));
    }
}

/// A page, or the part of one that was written, lent until it is dropped.
#[pyclass(frozen)]
pub struct RawPage(DropsFree<raw::RawPage<u8>>);

impl RawPage {
    /// Returns a copy of its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.append_to(&mut bytes);
        bytes
    }
}

#[pymethods]
impl RawPage {
    /// Returns where its bytes lie, and how many there are.
    fn memory(&self) -> (usize, usize) {
        (self.0.words().as_ptr().addr(), self.0.len_bytes() as usize)
    }

    /// Returns what is known of it, by name.
    fn info(&self) -> Vec<(&'static str, u64)> {
        let (page, writer) = (&self.0, self.0.writer());
        vec![
            ("sequence", page.sequence()),
            ("offset_bytes", page.offset_bytes().into()),
            ("is_last", page.is_last().into()),
            ("block", writer.workgroup.into()),
            ("wave", writer.wave.into()),
            ("opened_ns", page.opened_ns()),
            ("dropped_before", page.dropped_before()),
            ("overwritten_before", page.overwritten_before()),
        ]
    }
}
