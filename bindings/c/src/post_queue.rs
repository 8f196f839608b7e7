//! Post queues, whose posts a thread of the caller's polls.

use crate::device::hostcall_device;
use crate::error::Failure;
use crate::functions::functions;
use hostcall::device::{PostBatch, PostQueue, PostQueueSizes, PostQueueStatistics};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Where kernels post messages of 0 to 128 bytes for a thread of the caller's that polls, by the functions of hostcall_device.h
/// (hostcall_post_message). Any thread may use it; it is the caller's, who frees it. Its memory stays until the process ends,
/// since a kernel may still have the address.
pub struct hostcall_post_queue(PostQueue);

/// Messages of one wave that lie one after the other, with the same tag and number of words. They live until the function that
/// gets them returns.
#[repr(C)]
pub struct hostcall_post_batch {
    /// The words of all messages, message after message.
    pub words: *const u64,
    /// How many messages there are, at least one.
    pub count: usize,
    /// How many words each has, 0 to 16.
    pub words_each: usize,
    /// What the kernel called them: 48 bits, or 32 with more than five words.
    pub tag: u64,
    /// The slot through which they came: of messages through one slot each comes after the one before.
    pub slot: u32,
    /// Linear index of the workgroup.
    pub workgroup: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// Zero.
    pub reserved: u32,
}

/// Gets messages, on the thread that polls. It polls no queue itself. It must return: a C++ exception that leaves it, or a longjmp
/// out of it, ends the process or is undefined.
pub type hostcall_post_function =
    Option<unsafe extern "C" fn(state: *mut c_void, batch: &hostcall_post_batch)>;

/// What became of a queue's messages since it was made.
#[repr(C)]
pub struct hostcall_post_counts {
    /// Messages that polls handed over.
    pub posts: u64,
    /// Messages of before a cancellation or a renewal, which polls dropped; and those that nobody had read when the queue was
    /// closed.
    pub dropped: u64,
    /// Calls, for which a queue is the wrong place: they ended with HOSTCALL_CALL_NO_SUCH_SERVICE.
    pub refused_calls: u64,
    /// Words that made no sense and were skipped: memory was overwritten.
    pub garbage: u64,
}

impl From<PostQueueStatistics> for hostcall_post_counts {
    fn from(of: PostQueueStatistics) -> Self {
        let PostQueueStatistics { posts, dropped, refused_calls, garbage } = of;
        Self { posts, dropped, refused_calls, garbage }
    }
}

functions! {
    /// Makes a post queue. `name` is what errors call it. `waves`: how many waves post at the same time or hold a scope, 1 to 65,536;
    /// more of them wait for each other. `ring_entries`: of 16 bytes in each wave's ring, a power of two from 16 a lane to 65,536; a
    /// message of n words takes 1 + n / 2. 0 of both is the usual: 256 waves, 2,048 entries.
    make hostcall_post_queue_new(
        device: &hostcall_device,
        name: &str,
        waves: u32,
        ring_entries: u32,
    ) -> hostcall_post_queue as queue {
        let usual = PostQueueSizes::default();
        let or = |given, usual| if given == 0 { usual } else { given };
        let sizes =
            PostQueueSizes { waves: or(waves, usual.waves), ring_entries: or(ring_entries, usual.ring_entries) };
        hostcall_post_queue(device.device.post_queue(name, sizes)?)
    }

    /// Returns the address that kernels take in the place of a context's; 0 for NULL. It stays the same.
    ask hostcall_post_queue_address(queue: &hostcall_post_queue) -> u64 { queue.0.address().get() }

    /// Looks once for messages and calls `take` with `state` and those that are there, `most` at most, in batches. Puts into `count`
    /// how many these were, unless it is NULL. It waits for nothing: whoever wants the next message calls it again, as often as its
    /// latency matters. One thread polls at a time: HOSTCALL_STATUS_REFUSED for another, and for `take` itself.
    run hostcall_post_queue_poll(
        queue: &hostcall_post_queue,
        most: usize,
        take: hostcall_post_function,
        state: *mut c_void,
        count: Option<&mut MaybeUninit<usize>>,
    ) {
        let mut count = count;
        if let Some(count) = &mut count {
            count.write(0);
        }
        let Some(take) = take else { return Err(Failure::invalid("`take` is NULL")) };
        let taken = queue.0.poll(most, |batch| {
            let of_batch = described(&batch);
            // SAFETY: CALLER: a function that gets this state and a batch.
            unsafe { take(state, &of_batch) }
        })?;
        if let Some(count) = count {
            count.write(taken);
        }
    }

    /// Returns whether messages lie there, or were announced, that no poll has taken: of kernels that have ended, all of theirs. It looks at
    /// every wave's bell, which takes longer than a poll. False for NULL, and while another thread polls.
    ask hostcall_post_queue_has_posts(queue: &hostcall_post_queue) -> bool { queue.0.has_posts().unwrap_or(false) }

    /// Ends waits for room in the queue's rings (such messages return 0) and of hostcall_wait_word. Polls drop what lies there and what
    /// comes, until the queue is renewed.
    run hostcall_post_queue_cancel(queue: &hostcall_post_queue) { queue.0.cancel()? }

    /// Has messages handed over again after hostcall_post_queue_cancel. Polls drop what was posted before, and what is posted through
    /// a slot that was held before.
    run hostcall_post_queue_renew(queue: &hostcall_post_queue) { queue.0.renew()? }

    /// Puts what became of the queue's messages until the last poll that ended into `counts`.
    run hostcall_post_queue_statistics(
        queue: &hostcall_post_queue,
        counts: &mut MaybeUninit<hostcall_post_counts>,
    ) {
        counts.write(queue.0.statistics().into());
    }

    /// Cancels a queue for good, frees it and sets the handle to NULL. Puts its counts into `counts`, in which messages that nobody had
    /// read are among the dropped ones.
    run hostcall_post_queue_close(
        queue: Box<hostcall_post_queue>,
        counts: &mut MaybeUninit<hostcall_post_counts>,
    ) {
        counts.write(queue.0.close().into());
    }

    /// Cancels a queue for good, frees it and sets the handle to NULL. NULL is let be. What nobody had read is lost and not told
    /// (hostcall_post_queue_close tells).
    free hostcall_post_queue_free(queue: hostcall_post_queue) { drop(queue) }
}

fn described(batch: &PostBatch<'_>) -> hostcall_post_batch {
    hostcall_post_batch {
        words: batch.words().as_ptr(),
        count: batch.len(),
        words_each: batch.words_each(),
        tag: batch.tag(),
        slot: batch.slot(),
        workgroup: batch.workgroup(),
        wave: batch.wave(),
        reserved: 0,
    }
}
