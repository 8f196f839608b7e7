//! Graphs: work of streams that is recorded once and replayed many times.

use crate::error::Failure;
use crate::functions::functions;
use crate::stream::hostcall_stream;
use hostcall::graph::{CaptureMode, Graph, Instance, Replay};
use std::time::Duration;

/// What can break a capture, besides waiting for its streams and reading on them, which does in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_capture_mode {
    /// Allocations by any thread.
    Global = 1,
    /// Allocations by the thread that began the capture, and other threads' work on its streams.
    ThreadLocal = 2,
    /// Nothing else.
    Relaxed = 3,
}

/// Recorded work of a stream. Any thread may use it; it is the caller's, who frees it. It keeps the buffers, closures and
/// functions that the work uses.
pub struct hostcall_graph(pub(crate) Graph);

/// A graph that is ready to be replayed. Any thread may use it; it is the caller's, who frees it. Replays that were launched
/// go on without the handle.
pub struct hostcall_instance(Instance);

/// A replay of an instance. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_replay(Replay);

functions! {
    /// Begins to record the stream's work, in one of the hostcall_capture_modes: launches, writes, copies, fills, repeated
    /// functions and graphs. None of it is done. A stream that waits for an event of the capture is recorded as well.
    run hostcall_stream_begin_capture(stream: &hostcall_stream, mode: u32) {
        use hostcall_capture_mode as is;
        let modes = [
            (is::Global, CaptureMode::Global),
            (is::ThreadLocal, CaptureMode::ThreadLocal),
            (is::Relaxed, CaptureMode::Relaxed),
        ];
        let found = modes.into_iter().find(|(known, _)| *known as u32 == mode);
        let (_, mode) = found.ok_or_else(|| {
            Failure::invalid(format!("there is no mode {mode} of captures: pass a hostcall_capture_mode"))
        })?;
        stream.0.begin_capture(mode)?
    }

    /// Ends the capture that was begun on this stream. Fails with what broke the capture; the stream is as before it then, too.
    make hostcall_stream_end_capture(stream: &hostcall_stream) -> hostcall_graph as graph {
        hostcall_graph(stream.0.end_capture()?)
    }

    /// Adds a graph to what a stream records, as one node.
    run hostcall_stream_add_graph(stream: &hostcall_stream, graph: &hostcall_graph) {
        stream.0.add_graph(&graph.0)?
    }

    /// Returns how many nodes the graph has; 0 for NULL.
    ask hostcall_graph_len(graph: &hostcall_graph) -> usize { graph.0.len() }

    /// Frees a graph and sets the handle to NULL; its instances stay. NULL is let be.
    free hostcall_graph_free(graph: hostcall_graph) { drop(graph) }

    /// Makes an instance of the graph as it is now.
    make hostcall_graph_instantiate(graph: &hostcall_graph) -> hostcall_instance as instance {
        hostcall_instance(graph.0.instantiate()?)
    }

    /// Prepares replays on a stream, so that the device takes kernels that follow each other at once. May wait for kernels that
    /// run.
    run hostcall_instance_upload(instance: &hostcall_instance, stream: &hostcall_stream) {
        instance.0.upload(&stream.0)?
    }

    /// Makes later replays those of another graph, which differs from the instance's in grids, arguments, functions and memory
    /// only. Fails with HOSTCALL_STATUS_REFUSED and the first node that differs else; nothing changes then.
    run hostcall_instance_update(instance: &hostcall_instance, graph: &hostcall_graph) {
        instance.0.try_update(&graph.0)?
    }

    /// Puts a replay on a stream: all of the graph's work, in order, after the instance's replay before it. What fails in it,
    /// hostcall_stream_synchronize tells. `replay` may be NULL.
    begin hostcall_instance_launch(
        instance: &hostcall_instance,
        stream: &hostcall_stream,
    ) -> hostcall_replay as replay {
        hostcall_replay(instance.0.launch(&stream.0)?)
    }

    /// Frees an instance and sets the handle to NULL. NULL is let be.
    free hostcall_instance_free(instance: hostcall_instance) { drop(instance) }

    /// Frees a replay's handle and sets it to NULL; the replay goes on. NULL is let be.
    free hostcall_replay_free(replay: hostcall_replay) { drop(replay) }

    /// Returns which replay of its instance it is, from 1; 0 for NULL.
    ask hostcall_replay_number(replay: &hostcall_replay) -> u64 { replay.0.number() }

    /// Returns whether the replay has ended; false for NULL.
    ask hostcall_replay_is_done(replay: &hostcall_replay) -> bool { replay.0.is_done() }

    /// Waits until the replay has ended, at most for `limit_ns`; UINT64_MAX is without a limit. Fails with its first failure, of
    /// which hostcall_stream_synchronize tells as well.
    run hostcall_replay_wait(replay: &hostcall_replay, limit_ns: u64) {
        let replay = &replay.0;
        match limit_ns {
            u64::MAX => replay.wait()?,
            limit => replay.wait_for(Duration::from_nanos(limit))?,
        }
    }

    /// Asks the replay to end: what runs of it is cancelled as by hostcall_launch_cancel, and the rest is not begun.
    run hostcall_replay_cancel(replay: &hostcall_replay) { replay.0.cancel(); }

    /// Cancels the replay if it has not ended when `limit_ns` has passed from now on; it then fails with
    /// HOSTCALL_STATUS_TIMED_OUT.
    run hostcall_replay_cancel_after(replay: &hostcall_replay, limit_ns: u64) {
        replay.0.cancel_after(Duration::from_nanos(limit_ns));
    }
}
