//! Streams and events.

use crate::device::hostcall_device;
use crate::error::{hostcall_error, hostcall_status, run};
use crate::handle::{self, Out, State, answer, get, hostcall_free_function, nanoseconds, place, put};
use hostcall::{Event, Stream};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Work of a device in order. Any thread may use it; it is the caller's, who frees it. A launch that panicked, exited or was
/// cancelled keeps later launches of the stream from running, until hostcall_stream_synchronize has told of it.
pub struct hostcall_stream(pub(crate) Stream);

/// A point in a stream's order. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_event(Event);

/// Makes a stream.
pub extern "C" fn hostcall_stream_new(
    device: Option<&hostcall_device>,
    stream: Out<'_, hostcall_stream>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(stream, "stream")?;
        put(place, hostcall_stream(get(device, "device")?.device.stream()?));
        Ok(())
    })
}

/// Waits for the stream's work, frees the stream and sets the handle to NULL. A failure that nobody asked for is written to
/// the standard error. NULL is let be. In a function that the library calls it does not wait: the work goes on.
pub extern "C" fn hostcall_stream_free(stream: Option<&mut *mut hostcall_stream>) {
    handle::free(stream);
}

/// Waits until all work so far is done. Fails with the first failure since the last call: a panic, a fault, a cancelled
/// launch. Then the stream goes on.
pub extern "C" fn hostcall_stream_synchronize(
    stream: Option<&hostcall_stream>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || Ok(get(stream, "stream")?.0.synchronize()?))
}

/// Does what hostcall_stream_synchronize does, at most for `limit_ns`. What is not done by then goes on.
pub extern "C" fn hostcall_stream_synchronize_for(
    stream: Option<&hostcall_stream>,
    limit_ns: u64,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || Ok(get(stream, "stream")?.0.synchronize_for(Duration::from_nanos(limit_ns))?))
}

/// Returns whether all work so far is done; false for NULL.
pub extern "C" fn hostcall_stream_is_done(stream: Option<&hostcall_stream>) -> bool {
    answer(|| stream.is_some_and(|stream| stream.0.is_done()))
}

/// Does something on the host when it is a stream's turn.
pub type hostcall_host_function = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// Calls `function` once when all work so far is done, on a thread of the library's; later work waits until it has returned.
/// It may use the device, but not wait for this stream, and must return. `free_state` gets `state` afterwards, when it is not
/// called because the stream was stopped, or when this function fails; also on any thread.
pub extern "C" fn hostcall_stream_host_function(
    stream: Option<&hostcall_stream>,
    function: hostcall_host_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let (stream, function) = (&get(stream, "stream")?.0, get(function, "function")?);
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        Ok(stream.host_function(move || unsafe { function(state.pointer()) })?)
    })
}

/// Does what hostcall_stream_host_function does, with a function that may be called again: a stream that records takes it
/// into its graph, whose replays call it: several threads at the same time where several instances replay. `free_state`
/// gets `state` when nobody can call it any more.
pub extern "C" fn hostcall_stream_repeated_function(
    stream: Option<&hostcall_stream>,
    function: hostcall_host_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let (stream, function) = (&get(stream, "stream")?.0, get(function, "function")?);
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        Ok(stream.repeated_function(move || unsafe { function(state.pointer()) })?)
    })
}

/// Makes an event that happens when all work so far is done.
pub extern "C" fn hostcall_stream_record(
    stream: Option<&hostcall_stream>,
    event: Out<'_, hostcall_event>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(event, "event")?;
        put(place, hostcall_event(get(stream, "stream")?.0.record()?));
        Ok(())
    })
}

/// Lets later work of the stream wait for an event of the same device.
pub extern "C" fn hostcall_stream_wait_for(
    stream: Option<&hostcall_stream>,
    event: Option<&hostcall_event>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || Ok(get(stream, "stream")?.0.wait_for(&get(event, "event")?.0)?))
}

/// Frees an event and sets the handle to NULL. NULL is let be.
pub extern "C" fn hostcall_event_free(event: Option<&mut *mut hostcall_event>) {
    handle::free(event);
}

/// Returns whether the event has happened; false for NULL.
pub extern "C" fn hostcall_event_is_done(event: Option<&hostcall_event>) -> bool {
    answer(|| event.is_some_and(|event| event.0.is_done()))
}

/// Waits until the event has happened, at most for `limit_ns`; UINT64_MAX is without a limit.
pub extern "C" fn hostcall_event_wait(
    event: Option<&hostcall_event>,
    limit_ns: u64,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let event = &get(event, "event")?.0;
        match limit_ns {
            u64::MAX => event.wait()?,
            limit => event.wait_for(Duration::from_nanos(limit))?,
        }
        Ok(())
    })
}

/// Puts the time on the device from `earlier` to `event` into `elapsed_ns`: 0 when `event` came first, and UINT64_MAX while
/// one of them has not happened and when its device failed before it did.
pub extern "C" fn hostcall_event_elapsed(
    event: Option<&hostcall_event>,
    earlier: Option<&hostcall_event>,
    elapsed_ns: Option<&mut MaybeUninit<u64>>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let elapsed = get(event, "event")?.0.elapsed_since(&get(earlier, "earlier")?.0)?;
        get(elapsed_ns, "elapsed_ns")?.write(elapsed.map_or(u64::MAX, nanoseconds));
        Ok(())
    })
}
