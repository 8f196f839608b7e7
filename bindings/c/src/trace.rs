//! Traces of calls, launches, posts and trace points.

use crate::device::hostcall_device;
use crate::error::{Failure, hostcall_status};
use crate::functions::functions;
use crate::handle::{system_text, text};
use crate::options::hostcall_options;
use hostcall::trace::Tracer;
use hostcall::{PointFilter, PointRecording};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Records the calls of the devices that are opened with it. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_tracer(Tracer);

/// Trace points of a device that are recorded until this is freed. Any thread may use it; it is the caller's, who frees it. It does
/// not keep the device.
pub struct hostcall_point_recording(PointRecording);

/// What a tracer has counted.
#[repr(C)]
pub struct hostcall_trace_summary {
    /// Calls that were recorded: one for each call of a wave.
    pub calls: u64,
    /// Posts that were counted.
    pub posts: u64,
    /// Calls that were dropped because too many waited to be written.
    pub dropped_calls: u64,
    /// Launches, posts and names that were dropped because they were too many.
    pub dropped_others: u64,
    /// Records of kernels' trace points that were dropped because they came faster than they were read.
    pub lost_points: u64,
    /// Calls that were recorded and are not in the file, if there is to be one.
    pub unwritten_calls: u64,
    /// All of it was written in time.
    pub is_whole: bool,
}

functions! {
    /// Makes a tracer that writes the file `path`, which `hostcall trace` reads; NULL is without a file.
    make hostcall_tracer_new(path: *const c_char) -> hostcall_tracer as tracer {
        let failed = |error| Failure::new(hostcall_status::Device, error);
        let mut builder = Tracer::builder();
        if !path.is_null() {
            // SAFETY: CALLER.
            builder = builder.file(unsafe { system_text(path, "path") }?).map_err(failed)?;
        }
        hostcall_tracer(builder.start().map_err(failed)?)
    }

    /// Has the device record there what its kernels call.
    run hostcall_options_trace(options: &mut hostcall_options, tracer: &hostcall_tracer) {
        options.change(|builder| builder.trace(&tracer.0));
    }

    /// Records trace points of the device into the tracer's file from now on, also of kernels that run; kernels need no other
    /// build. `points` is the name of the points, and `kernels` that of the kernels, that are recorded, in which `*` and `?` stand
    /// for any characters; NULL is all. Points of a device are recorded once at a time: another recording of them is refused.
    make hostcall_device_record_points(
        device: &hostcall_device,
        tracer: &hostcall_tracer,
        points: *const c_char,
        kernels: *const c_char,
    ) -> hostcall_point_recording as recording {
        let mut filter = PointFilter::default();
        if !points.is_null() {
            // SAFETY: CALLER.
            filter = filter.name(unsafe { text(points, "points") }?);
        }
        if !kernels.is_null() {
            // SAFETY: CALLER.
            filter = filter.kernel(unsafe { text(kernels, "kernels") }?);
        }
        hostcall_point_recording(device.device.record_points(&tracer.0, filter)?)
    }

    /// Has points written no more, but for the ends of spans that were begun.
    run hostcall_point_recording_pause(recording: &hostcall_point_recording) { recording.0.pause()? }

    /// Has points written again.
    run hostcall_point_recording_resume(recording: &hostcall_point_recording) { recording.0.resume()? }

    /// Ends a recording and sets the handle to NULL. What was recorded is in the file once the tracer has finished. NULL is let be.
    free hostcall_point_recording_free(recording: hostcall_point_recording) { drop(recording) }

    /// Ends the recording and waits until all is written, at most for `limit_ns`. Puts what was counted into `summary`, which may
    /// be NULL. What could not be written is an error.
    run hostcall_tracer_finish(
        tracer: &hostcall_tracer,
        limit_ns: u64,
        summary: Option<&mut MaybeUninit<hostcall_trace_summary>>,
    ) {
        let counted = tracer.0.finish(Duration::from_nanos(limit_ns));
        if let Some(summary) = summary {
            summary.write(hostcall_trace_summary {
                calls: counted.calls,
                posts: counted.posts,
                dropped_calls: counted.dropped_calls,
                dropped_others: counted.dropped_others,
                lost_points: counted.lost_points,
                unwritten_calls: counted.unwritten_calls,
                is_whole: counted.is_whole,
            });
        }
        if let Some(lost) = counted.lost().filter(|_| !counted.is_whole) {
            return Err(Failure::new(hostcall_status::Device, lost));
        }
    }

    /// Frees a tracer and sets the handle to NULL; devices that have it still record, and the last one ends the file. NULL is let
    /// be.
    free hostcall_tracer_free(tracer: hostcall_tracer) { drop(tracer) }
}
