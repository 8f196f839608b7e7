//! What users give streams, which is done, or recorded while the stream captures.

use super::buffer::DeviceBuffer;
use super::error::{Error, GraphError};
use super::event::Event;
use super::graph::{Capture, Node, capture_event, capture_of, capture_wait, leave_capture, refuse_captured};
use super::inner::Device;
use super::stream::{Operation, Readback, Stream, StreamQueue, Transferring};
use super::transfer::{self, Checked, Readable, Transfer};
use super::uses::Access;
use super::waiting;
use hostcall_device::kernel::Plain;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a stream that is dropped waits before it says so.
const TELL_AFTER: Duration = Duration::from_secs(5);

impl Device {
    /// Makes a stream.
    ///
    /// # Errors
    /// When the device has as many streams as it can have (4096), or was closed.
    pub fn stream(&self) -> Result<Stream, Error> {
        self.inner.core.check_open()?;
        Ok(Stream { queue: StreamQueue::new(&self.inner)? })
    }
}

impl Stream {
    /// Copies values to a buffer, in the stream's order. They are taken at once, and may change after the call. They must
    /// be as many as the buffer's: take a [part](DeviceBuffer::part) for fewer.
    ///
    /// # Errors
    /// When they are not as many, there is no room for them, the buffer is another device's, or the device was closed.
    pub fn write<T: Plain>(&self, to: &DeviceBuffer<T>, values: &[T]) -> Result<(), Error> {
        let capture = capture_of(self, "write")?;
        self.transfer(capture, transfer::check_write(self.core(), to, values)?)
    }

    /// Makes or captures a copy or a fill.
    fn transfer(&self, capture: Option<Arc<Capture>>, checked: Checked) -> Result<(), Error> {
        if let Some(capture) = capture {
            return capture.add(&self.queue, Node::Transfer(checked.into()));
        }
        let Checked { what, wanted, .. } = checked;
        let transfer = Transferring { what, wanted, owner: None };
        self.queue.push(Vec::new(), Operation::Transfer(transfer.into())).map(drop)
    }

    /// Copies a buffer's values to the host, in the stream's order.
    ///
    /// # Errors
    /// When there is no room for them, the buffer is another device's, the device was closed, or the stream captures.
    pub fn read<T: Plain>(&self, from: &DeviceBuffer<T>) -> Result<Readback<T>, Error> {
        self.core().check_own(&from.allocation.core, "the buffer")?;
        refuse_captured(self, || GraphError::Read, "read")?;
        let bytes = from.bytes().len();
        let to = Arc::new(Readable { staging: self.core().staging(bytes)?, refused: OnceLock::new() });
        let what = Transfer::Read { to: to.clone(), from: from.address(), bytes };
        let transfer = Transferring { what, wanted: vec![from.wanted(Access::Read)], owner: None };
        let position = self.queue.push(Vec::new(), Operation::Transfer(transfer.into()))?;
        let (queue, len) = (self.queue.clone(), from.len());
        Ok(Readback { queue, position, memory: to, len, values: PhantomData })
    }

    /// Copies the values of `from` to `to`, on the device and in the stream's order. The target comes first.
    ///
    /// `from` may be of another device of the same kind; AMD GPUs do not reach each other's memory yet. The bytes do not go
    /// through the host where the machine has a way past it. What uses either buffer, on both devices, is put in order as
    /// within one device.
    ///
    /// # Errors
    /// When they have different lengths or overlap, `to` is another device's, `from` is out of reach or another device's in a
    /// capture, or the device was closed.
    pub fn copy<T: Plain>(&self, to: &DeviceBuffer<T>, from: &DeviceBuffer<T>) -> Result<(), Error> {
        let capture = capture_of(self, "copy")?;
        let checked = match &capture {
            Some(_) => transfer::check_copy(self.core(), to, from)?,
            None => transfer::check_copy_from(self.core(), to, from)?,
        };
        self.transfer(capture, checked)
    }

    /// Sets every value of a buffer to `value`, in the stream's order.
    ///
    /// # Errors
    /// When the buffer is another device's, or the device was closed.
    pub fn fill<T: Plain>(&self, buffer: &DeviceBuffer<T>, value: T) -> Result<(), Error> {
        let capture = capture_of(self, "fill")?;
        self.transfer(capture, transfer::check_fill(self.core(), buffer, value)?)
    }

    /// Sets a buffer to the bytes of a value, over and over, in the stream's order.
    ///
    /// # Errors
    /// As for [`Stream::fill`], and when the buffer does not hold a whole number of such values.
    pub fn fill_bytes(&self, buffer: &DeviceBuffer<u8>, value: &[u8]) -> Result<(), Error> {
        let capture = capture_of(self, "fill")?;
        self.transfer(capture, transfer::check_fill_bytes(self.core(), buffer, value)?)
    }

    /// Calls a function on the host when all work so far is done; later work waits until it has returned. It runs on a
    /// thread of hostcall's, of which a device has up to 64. It may use the device, but not wait for this stream. If it
    /// panics, [`Stream::synchronize`] tells.
    ///
    /// # Errors
    /// When the device was closed, or the stream captures.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let stream = hostcall::Device::open("cpu")?.stream()?;
    /// let (sender, receiver) = mpsc::channel();
    /// stream.host_function(move || sender.send("done").expect("somebody listens"))?;
    /// stream.synchronize()?;
    /// assert_eq!(receiver.try_recv(), Ok("done"));
    /// # Ok::<(), hostcall::Error>(())
    /// ```
    pub fn host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        refuse_captured(self, || GraphError::OneShotFunction, "host_function")?;
        self.queue.push(Vec::new(), Operation::HostFunction(Box::new(function))).map(drop)
    }

    /// Does what [`Stream::host_function`] does, with a function that may run again: a capturing stream records it, and each
    /// replay calls it.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn repeated_function(&self, function: impl Fn() + Send + Sync + 'static) -> Result<(), Error> {
        match capture_of(self, "repeated_function")? {
            Some(capture) => capture.add(&self.queue, Node::Function(Arc::new(function))),
            None => self.host_function(function),
        }
    }

    /// Makes an event that happens when all work so far is done.
    ///
    /// # Errors
    /// When the device was closed.
    pub fn record(&self) -> Result<Event, Error> {
        let mark = Arc::new(OnceLock::new());
        let captured = capture_event(self)?;
        let position = match &captured {
            Some(_) => 0,
            None => self.queue.push(Vec::new(), Operation::Record(mark.clone()))?,
        };
        Ok(Event { queue: self.queue.clone(), position, mark, captured })
    }

    /// Lets later work of this stream wait for an event of the same device.
    ///
    /// # Errors
    /// When the event is another device's, or the device was closed.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.core().check_own(event.core(), "the event")?;
        if capture_wait(self, event.captured.as_ref())? {
            return Ok(());
        }
        self.queue.push(vec![event.queue.point(event.position)], Operation::Wait).map(drop)
    }

    /// Waits until all work so far is done. Services go on meanwhile; what kernels printed and posted has been handled.
    /// Whether an output could be written says [`Stdio::flush`](crate::services::Stdio::flush).
    ///
    /// # Errors
    /// The first failure since the last call: with a kernel's panic come kernel, workgroup, lane, message and place. Also
    /// when a handler or host function calls this for which the stream waits, also through other handlers or host functions
    /// that wait, and when the stream captures.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.refuse_wait("synchronize")?;
        match self.queue.synchronize(None) {
            Err(Some(error)) => Err(error),
            // Without a limit none passes.
            Ok(()) | Err(None) => Ok(()),
        }
    }

    /// Waits until all work so far is done, at most `limit`. What is not done by then goes on.
    ///
    /// # Errors
    /// As for [`Stream::synchronize`], and [`Error::TimedOut`].
    pub fn synchronize_for(&self, limit: Duration) -> Result<(), Error> {
        self.refuse_wait("synchronize_for")?;
        let timed_out = || self.queue.timed_out("the stream's work", u64::MAX, limit);
        let deadline = Instant::now().checked_add(limit);
        self.queue.synchronize(deadline).map_err(|error| error.unwrap_or_else(timed_out))
    }

    /// Refuses to wait for a stream that captures.
    fn refuse_wait(&self, call: &'static str) -> Result<(), Error> {
        refuse_captured(self, || GraphError::Synchronized { call }, call)
    }

    /// Says whether all work so far is done.
    pub fn is_done(&self) -> bool {
        self.queue.is_settled(self.queue.last_asked())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.core().is_forked() {
            std::mem::forget(self.queue.clone());
            return;
        }
        leave_capture(self);
        let last = self.queue.last();
        let may_wait = !std::thread::panicking() && !waiting::is_in_handler();
        let waits = may_wait.then(|| self.queue.may_wait(last, "dropping a stream", None));
        let Some(Ok(_waits)) = waits else {
            self.core().reaper.adopt(self.queue.clone());
            return;
        };
        let device = &self.core().name;
        self.queue.wait_or_tell(last, TELL_AFTER, || {
            let work = self.queue.under_way().unwrap_or_else(|| "its work".into());
            hostcall_server::report_line(format_args!(
                "a stream of {device} was dropped and still waits for {work} after {TELL_AFTER:?}: cancel its launches \
                 before dropping it, by `Launch::cancel` or `Launch::cancel_after`"
            ));
        });
        if let Some(error) = self.queue.take_failure() {
            hostcall_server::report_line(format_args!(
                "a stream of {device} was dropped, and its last failure was not asked for: {error}"
            ));
            hostcall_server::flush_reports();
        }
    }
}
