//! Raw channels, to which kernels write that other compilers made.

use crate::device::hostcall_device;
use crate::error::Failure;
use crate::functions::functions;
use crate::handle::{Out, get, place, put};
use hostcall::raw::{
    Block, DropNewest, OverwriteOldest, Policy, RawChannel, RawPage, RawReader, RawStatistics,
};
use hostcall::rocm::KernelArgument;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Duration;

/// What a wave does that finds no free page of a raw channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum hostcall_raw_policy {
    /// It waits until one comes back from the reader: nothing is lost while somebody reads.
    Block = 1,
    /// It drops what it would have written, and counts it.
    DropNewest = 2,
    /// The host gives it the oldest page that nobody has read.
    OverwriteOldest = 3,
}

/// Memory through which kernels stream bytes to the host while they run, by the functions of hostcall_device.h. Any thread may
/// use it; it is the caller's, who frees it. Launches keep its memory, and their waves drop what finds no page once it was freed.
pub struct hostcall_raw_channel {
    channel: Channel,
    reader: RawReader<u8>,
}

/// The channel with its policy, which is a type.
enum Channel {
    Block(RawChannel<u8, Block>),
    DropNewest(RawChannel<u8, DropNewest>),
    OverwriteOldest(RawChannel<u8, OverwriteOldest>),
}

/// A page of a raw channel, or the part of one that was written, lent to the reader. Any thread may use it; it is the caller's,
/// who frees it: no wave gets the page before that.
pub struct hostcall_raw_page(RawPage<u8>);

/// What is known of a page. Who wrote it is what the device says.
#[repr(C)]
pub struct hostcall_raw_info {
    /// How many bytes there are: whole records, if the kernel wrote only records.
    pub bytes: usize,
    /// Where in the page they begin.
    pub offset_bytes: u32,
    /// The page has no more than this.
    pub is_last: bool,
    /// Which page of the channel it is, in the order of their opening. Parts of one page have the same number.
    pub sequence: u64,
    /// The launch, as hostcall_launch_id says it.
    pub launch: u32,
    /// The writer's home slot; for all kernels that other compilers made it is the same number.
    pub slot: u32,
    /// Linear index of the workgroup.
    pub workgroup: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// The device's clock when the page was opened, in ns.
    pub opened_ns: u64,
    /// Records (words, of bytes) that writers of the slot have dropped between the page before and this one.
    pub dropped_before: u64,
    /// Bytes of the channel that were overwritten between the page that was read before and this one.
    pub overwritten_before: u64,
}

/// What was written to a raw channel, ever, as far as the host knows.
#[repr(C)]
pub struct hostcall_raw_counts {
    /// Pages that were closed.
    pub pages: u64,
    /// Bytes that waves said they had written.
    pub bytes: u64,
    /// Records (words, of bytes) that waves dropped because no page was free.
    pub dropped_records: u64,
    /// Bytes that were overwritten before anybody read them.
    pub overwritten_bytes: u64,
    /// Pages that were closed for waves which did not close them: what these wrote last may be lost.
    pub swept_pages: u64,
    /// Words of the device that made no sense and were left alone.
    pub malformed_words: u64,
}

impl Channel {
    fn statistics(&self) -> RawStatistics {
        match self {
            Self::Block(channel) => channel.statistics(),
            Self::DropNewest(channel) => channel.statistics(),
            Self::OverwriteOldest(channel) => channel.statistics(),
        }
    }
}

impl hostcall_raw_channel {
    fn of<P: Policy>(
        device: &hostcall_device,
        pages: u32,
        page_bytes: u32,
        of: impl FnOnce(RawChannel<u8, P>) -> Channel,
    ) -> Result<Self, Failure> {
        let channel = RawChannel::new(&device.device, pages, page_bytes)?;
        let reader = channel.reader();
        Ok(Self { channel: of(channel), reader })
    }

    /// Returns the channel as an argument of a kernel that another compiler made.
    pub(crate) fn argument(&self) -> KernelArgument {
        match &self.channel {
            Channel::Block(channel) => KernelArgument::raw_channel(channel),
            Channel::DropNewest(channel) => KernelArgument::raw_channel(channel),
            Channel::OverwriteOldest(channel) => KernelArgument::raw_channel(channel),
        }
    }
}

functions! {
    /// Makes a raw channel of so many pages of so many bytes, both powers of two: 16 to 65,536 pages of 128 bytes to 16 MiB. Pages
    /// of 4 to 64 KiB are good ones. `policy` is one of hostcall_raw_policy.
    make hostcall_raw_channel_new(
        device: &hostcall_device,
        pages: u32,
        page_bytes: u32,
        policy: u32,
    ) -> hostcall_raw_channel as channel {
        use hostcall_raw_policy as is;
        let made = match policy {
            policy if policy == is::Block as u32 => {
                hostcall_raw_channel::of(device, pages, page_bytes, Channel::Block)
            }
            policy if policy == is::DropNewest as u32 => {
                hostcall_raw_channel::of(device, pages, page_bytes, Channel::DropNewest)
            }
            policy if policy == is::OverwriteOldest as u32 => {
                hostcall_raw_channel::of(device, pages, page_bytes, Channel::OverwriteOldest)
            }
            policy => Err(Failure::invalid(format!(
                "there is no policy {policy} of raw channels: pass a hostcall_raw_policy"
            ))),
        };
        made?
    }

    /// Frees a raw channel and sets the handle to NULL. NULL is let be. Pages that were lent stay.
    free hostcall_raw_channel_free(channel: hostcall_raw_channel) { drop(channel) }

    /// Gives the next page, or the part of one that is written, and waits for one at most for `limit_ns`. `page` is NULL when none
    /// came, which is no error. What waves of launches that were waited for have written is there at once. Several threads that
    /// call it share the pages; those of one writer come in its order.
    run hostcall_raw_channel_next(
        channel: Option<&hostcall_raw_channel>,
        limit_ns: u64,
        page: Out<'_, hostcall_raw_page>,
    ) {
        let place = place::make(page, "page")?;
        let reader = &get(channel, "channel")?.reader;
        let found = match limit_ns {
            0 => reader.try_next(),
            limit_ns => reader.next_within(Duration::from_nanos(limit_ns)),
        };
        if let Some(page) = found {
            put(place, hostcall_raw_page(page));
        }
    }

    /// Puts what was written to the channel so far into `counts`: of pages and bytes, what was there when hostcall_raw_channel_next
    /// looked last; of what waves dropped, all that happened before in launches that have ended.
    run hostcall_raw_channel_statistics(
        channel: &hostcall_raw_channel,
        counts: &mut MaybeUninit<hostcall_raw_counts>,
    ) {
        let counted = channel.channel.statistics();
        counts.write(hostcall_raw_counts {
            pages: counted.pages,
            bytes: counted.bytes,
            dropped_records: counted.dropped_records,
            overwritten_bytes: counted.overwritten_bytes,
            swept_pages: counted.swept_pages,
            malformed_words: counted.malformed_words,
        });
    }

    /// Returns where a page's bytes lie, at a multiple of 8; NULL for NULL. It is good until the page is freed. A device that breaks
    /// the rules could still write there.
    ask hostcall_raw_page_data(page: &hostcall_raw_page) -> *const c_void {
        page.0.words().as_ptr().cast()
    }

    /// Puts what is known of a page into `info`.
    run hostcall_raw_page_info(page: &hostcall_raw_page, info: &mut MaybeUninit<hostcall_raw_info>) {
        let page = &page.0;
        let writer = page.writer();
        info.write(hostcall_raw_info {
            bytes: page.len_bytes() as usize,
            offset_bytes: page.offset_bytes(),
            is_last: page.is_last(),
            sequence: page.sequence(),
            launch: writer.launch.to_bits(),
            slot: writer.slot,
            workgroup: writer.workgroup,
            wave: writer.wave,
            opened_ns: page.opened_ns(),
            dropped_before: page.dropped_before(),
            overwritten_before: page.overwritten_before(),
        });
    }

    /// Frees a page and sets the handle to NULL: waves can have it again. NULL is let be.
    free hostcall_raw_page_free(page: hostcall_raw_page) { drop(page) }
}
