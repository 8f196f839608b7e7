//! Contexts, from which kernels call that others launch.

use crate::device::hostcall_device;
use crate::error::{Failure, c_text, hostcall_status};
use crate::functions::functions;
use crate::handle::{Out, place, put};
use hostcall::services::{FailedCheck, check_number};
use hostcall::{Context, Fence};
use hostcall_locks::Mutex;
use std::collections::VecDeque;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::time::Duration;

/// A place from which kernels call that others launch, by the functions of hostcall_device.h. Any thread may use it; it is the
/// caller's, who frees it: calls of its kernels end with HOSTCALL_CALL_CANCELLED from then on. A device that had contexts keeps
/// its channel's memory until the process ends, since a kernel may still have the address.
pub struct hostcall_context {
    context: Context,
    /// Checks that have failed and were not given yet.
    failed: Mutex<VecDeque<FailedCheck>>,
}

/// A text of the library's. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_text(CString);

/// A place in a stream of others, behind kernels with a context. Any thread may use it; it is the caller's, who frees it.
pub struct hostcall_fence(Fence);

impl hostcall_context {
    pub(crate) fn get(&self) -> &Context {
        &self.context
    }

    fn next_failed(&self) -> Result<Option<FailedCheck>, Failure> {
        let mut failed = self.failed.lock();
        if failed.is_empty() {
            failed.extend(self.context.failed_checks()?);
        }
        Ok(failed.pop_front())
    }
}

functions! {
    /// Makes a context. `name` is what reports call its kernels.
    make hostcall_context_new(device: &hostcall_device, name: &str) -> hostcall_context as context {
        hostcall_context { context: device.device.context(name)?, failed: Mutex::default() }
    }

    /// Frees a context and sets the handle to NULL. NULL is let be.
    free hostcall_context_free(context: hostcall_context) { drop(context) }

    /// Returns the address that kernels take as an argument, or that is put into a variable of their module; 0 for NULL. It stays
    /// the same.
    ask hostcall_context_address(context: &hostcall_context) -> u64 { context.context.address().get() }

    /// Says that kernels with the context come soon: whoever looks for calls does it without a pause for a while. Else the first
    /// call after a long silence may wait for 2.2 ms on a GPU.
    run hostcall_context_attend(context: &hostcall_context) { context.context.attend()? }

    /// Waits until the posts have been handled of kernels with the context that have ended. The caller knows that they have: it
    /// has waited for their stream.
    run hostcall_context_flush(context: &hostcall_context) { context.context.flush()? }

    /// Takes the place in a stream of others behind all that has been submitted to it, and says that kernels run there
    /// (hostcall_context_attend). `stream` is a CUstream or cudaStream_t of the primary context, or 0 for the default stream; only
    /// CUDA's devices have such. It fails for a stream that is being captured into a graph.
    make hostcall_context_fence(context: &hostcall_context, stream: u64) -> hostcall_fence as fence {
        // SAFETY: as the caller says.
        hostcall_fence(unsafe { context.context.fence(stream) }?)
    }

    /// Returns whether there is nothing more to wait for: the kernels before the fence have ended and their posts have been handled,
    /// or the device failed or was closed, which hostcall_fence_wait tells. False for NULL.
    ask hostcall_fence_is_done(fence: &hostcall_fence) -> bool { fence.0.is_done().unwrap_or(true) }

    /// Waits until the kernels before the fence have ended and their posts have been handled, at most for `limit_ns`; UINT64_MAX is
    /// without a limit.
    run hostcall_fence_wait(fence: &hostcall_fence, limit_ns: u64) {
        match limit_ns {
            u64::MAX => fence.0.wait()?,
            limit => fence.0.wait_for(Duration::from_nanos(limit))?,
        }
    }

    /// Frees a fence and sets the handle to NULL. NULL is let be.
    free hostcall_fence_free(fence: hostcall_fence) { drop(fence) }

    /// Gives the next check that has failed in kernels with the context (hostcall_check), as a sentence with its file, line, block,
    /// thread and count: each place that has failed since it was given last. Of kernels that have ended all are there after
    /// hostcall_context_flush. `text` is NULL when there is none, which is no error; else it is the caller's, who frees it by
    /// hostcall_text_free.
    run hostcall_context_failed_check(context: &hostcall_context, text: Out<'_, hostcall_text>) {
        let place = place::make(text, "text")?;
        if let Some(check) = context.next_failed()? {
            put(place, hostcall_text(c_text(&check.to_string())));
        }
    }

    /// Returns the number of a check by which kernels tell of it that have no text (hostcall_check_number of
    /// hostcall_library.c): a hash of its text, file ("" if nobody knows it) and line (0), for all devices and processes. Each
    /// process says the text once before it runs the kernel, and may do so of 4,096 checks.
    run hostcall_number_check(condition: &str, file: &str, line: u32, number: &mut MaybeUninit<u32>) {
        let refused = |error| Failure::new(hostcall_status::Refused, error);
        number.write(check_number(condition, file, line).map_err(refused)?);
    }

    /// Returns a text's characters, which end with a zero byte; NULL for NULL. They are good until the text is freed.
    ask hostcall_text_get(text: &hostcall_text) -> *const c_char { text.0.as_ptr() }

    /// Frees a text and sets the handle to NULL. NULL is let be.
    free hostcall_text_free(text: hostcall_text) { drop(text) }

    /// Ends the calls of kernels with the context: those that wait, and all that come until it is renewed. A kernel that does not
    /// call runs on.
    run hostcall_context_cancel(context: &hostcall_context) { context.context.cancel()? }

    /// Has calls answered again after hostcall_context_cancel.
    run hostcall_context_renew(context: &hostcall_context) { context.context.renew()? }
}
