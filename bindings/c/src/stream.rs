//! Streams and events.

use crate::device::hostcall_device;
use crate::functions::functions;
use crate::handle::{get, nanoseconds};
use hostcall::{Event, Stream};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Work of a device in order. Any thread may use it; it is the caller's, who frees it. A launch that panicked, exited or was
/// cancelled keeps later launches of the stream from running, until hostcall_stream_synchronize has told of it.
pub struct hostcall_stream(pub(crate) Stream);

/// A point in a stream's order. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_event(Event);

/// Does something on the host when it is a stream's turn.
pub type hostcall_host_function = Option<unsafe extern "C" fn(state: *mut c_void)>;

functions! {
    /// Makes a stream.
    make hostcall_stream_new(device: &hostcall_device) -> hostcall_stream as stream {
        hostcall_stream(device.device.stream()?)
    }

    /// Waits for the stream's work, frees the stream and sets the handle to NULL. A failure that nobody asked for is written to
    /// the standard error. NULL is let be. In a function that the library calls it does not wait: the work goes on.
    free hostcall_stream_free(stream: hostcall_stream) { drop(stream) }

    /// Waits until all work so far is done. Fails with the first failure since the last call: a panic, a fault, a cancelled
    /// launch. Then the stream goes on.
    run hostcall_stream_synchronize(stream: &hostcall_stream) { stream.0.synchronize()? }

    /// Does what hostcall_stream_synchronize does, at most for `limit_ns`. What is not done by then goes on.
    run hostcall_stream_synchronize_for(stream: &hostcall_stream, limit_ns: u64) {
        stream.0.synchronize_for(Duration::from_nanos(limit_ns))?
    }

    /// Returns whether all work so far is done; false for NULL.
    ask hostcall_stream_is_done(stream: &hostcall_stream) -> bool { stream.0.is_done() }

    /// Calls `function` once when all work so far is done, on a thread of the library's; later work waits until it has returned.
    /// It may use the device, but not wait for this stream, and must return. `free_state` gets `state` afterwards, when it is not
    /// called because the stream was stopped, or when this function fails; also on any thread.
    run hostcall_stream_host_function(stream: &hostcall_stream, function: hostcall_host_function; state) {
        let function = get(function, "function")?;
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        stream.0.host_function(move || unsafe { function(state.pointer()) })?
    }

    /// Does what hostcall_stream_host_function does, with a function that may be called again: a stream that records takes it
    /// into its graph, whose replays call it: several threads at the same time where several instances replay. `free_state`
    /// gets `state` when nobody can call it any more.
    run hostcall_stream_repeated_function(stream: &hostcall_stream, function: hostcall_host_function; state) {
        let function = get(function, "function")?;
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        stream.0.repeated_function(move || unsafe { function(state.pointer()) })?
    }

    /// Makes an event that happens when all work so far is done.
    make hostcall_stream_record(stream: &hostcall_stream) -> hostcall_event as event {
        hostcall_event(stream.0.record()?)
    }

    /// Lets later work of the stream wait for an event of the same device.
    run hostcall_stream_wait_for(stream: &hostcall_stream, event: &hostcall_event) {
        stream.0.wait_for(&event.0)?
    }

    /// Frees an event and sets the handle to NULL. NULL is let be.
    free hostcall_event_free(event: hostcall_event) { drop(event) }

    /// Returns whether the event has happened; false for NULL.
    ask hostcall_event_is_done(event: &hostcall_event) -> bool { event.0.is_done() }

    /// Waits until the event has happened, at most for `limit_ns`; UINT64_MAX is without a limit.
    run hostcall_event_wait(event: &hostcall_event, limit_ns: u64) {
        let event = &event.0;
        match limit_ns {
            u64::MAX => event.wait()?,
            limit => event.wait_for(Duration::from_nanos(limit))?,
        }
    }

    /// Puts the time on the device from `earlier` to `event` into `elapsed_ns`: 0 when `event` came first, and UINT64_MAX while
    /// one of them has not happened and when its device failed before it did.
    run hostcall_event_elapsed(
        event: &hostcall_event,
        earlier: &hostcall_event,
        elapsed_ns: &mut MaybeUninit<u64>,
    ) {
        let elapsed = event.0.elapsed_since(&earlier.0)?;
        elapsed_ns.write(elapsed.map_or(u64::MAX, nanoseconds));
    }
}
