//! Raw channels: kernels stream bytes to the host while they run, in pages of memory that was allocated
//! before. A raw channel has memory of its own, and nothing of it goes through the server.
//! [`hostcall_abi::raw`] has the layouts, [`Writer`] is what a wave does, [`Collector`] what the host does,
//! [`Copies`] what a copy engine brings of staged pages.
//!
//! ```text
//!  wave (device.rs)                     shared memory                     host (host/)
//!  ────────────────────────────────────────────────────────────────────────────────────────────────────────────
//!  takes the next of the ring      ◄─── ring of free pages  ◄──────────── gives pages out
//!  header: who, when, dropped      ───► header
//!  lanes write side by side        ───► page
//!  now and then, and in `flush`    ───► place: so many bytes ───────────► a chunk: lent to a reader, in place
//!  full, or the wave's end         ───► place: closed       ───────────► the last chunk; once no reader has one,
//!                                                                         the page goes into the ring again
//! ```
//!
//! # Pages
//! A page belongs to one wave from its opening until it is full or the wave ends. So a wave's records come in
//! its order, and no wave waits for another one to finish a record. What a wave remembers of a channel is its
//! [`RawState`], one for each home slot, in device memory; the wave links the states that it uses to its
//! slot, and its end closes their pages. A whole wave uses its state without a lock, parts of a diverged wave
//! take turns.
//!
//! Two counters give pages out, both in device memory ([`RawRing`]). `known` counts pages that waves have
//! seen to be free: a wave that decrements it owns one. `head` says which entry of the ring: the wave
//! increments it and reads the entry at that position. Only a wave that finds no known page looks at the
//! host's word that says how many pages it has given, ever. `known` also holds how much of that word was
//! seen, so nothing is dropped while pages are free. (If each wave took its page by a compare-exchange on
//! `head`, each page would cost a look over the link of every wave that waits.)
//!
//! A wave may be slow to read its entry. The host keeps a page back rather than overwrite an entry whose page
//! was not opened, until nothing runs that could read it. Each opening has a number, its *ticket*; every word
//! about a page names its ticket.
//!
//! # Losses, half-filled pages, killed waves
//! - With `Block` a wave waits for a page until its launch is cancelled or nobody reads any more. With
//!   `DropNewest` it drops, counts, and looks over the link at every 16th time only, since a look takes a
//!   microsecond. With `OverwriteOldest` it waits, and a thread of the host's keeps a quarter of the pages
//!   free by taking the oldest chunks from the readers.
//! - A page's header has how many records the waves of its home slot have dropped so far; the host tells the
//!   difference with the page. What a wave drops when no page follows is read from its state.
//! - A wave tells the host of a half-filled page with the first write in each period of its clock (131 us;
//!   with every write on the software device), in `flush`, and when it ends. So a wave that falls silent may
//!   keep what it wrote in its last period.
//! - The host *sweeps* pages that are open although their launch has ended: their waves were killed. It takes
//!   what the wave's state says, or, if another wave has that state by now, what that wave found in it and
//!   stored into the header (`header::LEFT`). A page that was taken and has no header yet is given out again
//!   when no launch runs.
//! - The host believes a place only if its ticket is the page's, and its bytes are whole records, no fewer
//!   than were found and no more than a page has. So chunks lie within their pages, whatever a device writes.
//!   Who wrote a page is the device's claim.
//! - The host looks at open pages in the order of their tickets, which is the order in which waves take them.
//!   A look mostly ends where an eighth of all pages in a row said nothing; every 16th look, and one that
//!   finds nothing, goes on to the end.
//!
//! Waves of kernels that other compilers made have no home slot. They use
//! `bindings/c/include/hostcall_device.h`, which does what `device.rs` does: each lane has a writer in its
//! registers, of lanes that write together the first one's is used, and dropped records are added to one
//! count behind the states. Nobody reads such a writer after its lane has ended: what it wrote since it last
//! told the host is lost, and `swept_pages` counts the page.
//!
//! Pages of trace points are of no launch and are never swept. The waves that hold a home slot one after the other write to one
//! page, which each tells of at its end ([`AtEnd::LeavesOpen`]): many waves are short, and say little. Where waves were killed, the
//! host tells how far pages are written in the wave's name (`RawRegion::tell_place`).
//!
//! Waves of kernels that others launch tell of nothing: they have a page for each place, which many may have at a time
//! (`hostcall_abi::context::PointsParams`), take room in it by one addition, and store records that say by themselves that they are
//! there (`hostcall_abi::trace::OwnRecords`). So the host fills pages with zeros before it gives them out, reads such a page up to the
//! first word that is 0, and a place's next page not before that one is full. Room that was taken and not filled while the place's next
//! page waited for some seconds is a killed wave's: the records behind it are counted as dropped, and the page is nobody's until it is
//! full after all.
//!
//! # Staged pages
//! With staged pages, waves fill pages in device memory, and a copy engine brings them to the twin of each
//! page in host memory, which readers read. The ring of free pages has a copy in device memory, so that
//! taking a page reads nothing over the link. `host/hostcall/src/device/raw/copier.rs` says when it copies
//! what.
//!
//! A wave that takes a page may see the count of given pages before the copy of the entry has arrived. It
//! waits some microseconds for it, and then looks at the host's own entry now and then: the copy is a matter
//! of speed alone.
//!
//! # Invariants
//! - **RAW-STATE**: a [`RawState`] is accessed only by lanes of the wave that holds the home slot, of which
//!   one at a time acts on it: a whole wave excludes its parts, and parts have the state's lock. The host
//!   looks at its words when the slot's launch has ended. While the wave's record has its page ([`OpenPage`]), that is
//!   a part of the state. The state behind those of the home slots is
//!   nobody's: waves of kernels that other compilers made count in it what they dropped, by atomic additions.
//! - **RAW-PAGE**: the wave that took a page (of a place, each wave that took room in it, to that room) stores to it and its header
//!   until it has closed it (or filled the room); the host
//!   puts a page into the ring once it was closed, or its launch has ended, and nobody reads it. All accesses
//!   are atomic, so that a device which breaks this makes garbage of bytes and of nothing else.
//! - **RAW-COPY**: a copy of a staged page's bytes is asked for after the host saw the place that covers
//!   them, with acquire order, or the end of the launch that wrote them; and readers get them after the host
//!   saw the copy's end. Each page that a copy touches has a chunk that waits for it, so that the page is in
//!   no ring meanwhile. What a copy brings beyond its chunks is either bytes that the page has already, or
//!   bytes behind the page's last chunk, which no reader has.
//!
//! | what | who may write | until |
//! |---|---|---|
//! | an entry of the ring | the host | the next entry in its place, once the wave that took the position has opened its page |
//! | how many pages were given, ever | the host | |
//! | `head`, `known` | waves, by atomic operations | |
//! | a page, its header and its place | the wave that took it; of a place's page the words of records, each wave that took their room | it has stored the closed place, or its launch has ended; the records are there |
//! | a staged page's twin on the host | the copy engine, between what readers have | the batch has ended |
//! | a chunk | nobody; readers read it | the reader drops it |
//! | a state | the wave that holds the home slot | the wave ends |
//! | `header::LEFT` of a page that was left open | the home slot's next wave, once | |
//!
//! # Orderings
//!
//! | store | load | why it is enough |
//! |---|---|---|
//! | entry of the ring: release (host) | relaxed, until it is the position's; then an acquire fence (device) | the wave writes after the host's last load |
//! | pages given: release (host) | relaxed (device) | a hint: the wave looks at its position's entry, and the fence is behind that |
//! | `head`, `known`: relaxed | the same | they give each position to one wave, and order nothing: an entry says whose it is |
//! | records, header: relaxed; the lanes meet; release fence, place (device) | place: acquire, then relaxed (host) | what the place says was written is seen |
//! | words of a record that says by itself that it is there: relaxed, in any order (device) | relaxed, until none is 0 (host) | each is valid by itself; the page was zeros when it was given out, and a wave knows its address by the place's word, which its opener stored behind the acquire fence |
//! | state: as of a slot | the host, once the launch has ended | the device's end orders it |
//! | a copy's words, then its signal (device) | `Queue::completed`: acquire, then the words relaxed (host) | the seam promises it |
//! | a page's entry after its last copy: release (host), copied to the device | as above: the acquire fence (device) | the copy has read before the wave writes |
//!
//! A copy engine reads what was written because of the fence before the place. On NVIDIA a fence of the
//! system's scope performs earlier stores in the GPU's L2, through which its copy engines read; on gfx942 the
//! compiler makes it a write-back of the L2 (`buffer_wbl2`), since engines read memory. Two looks at the
//! places find each wave's pages in order: the second sees every page that was closed before the last one
//! that the first saw. Loom models: `loom_tests.rs`.

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod copies;
mod device;
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod host;
mod open_page;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod own_records_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use copies::{Copies, Run};
#[cfg(not(loom))]
pub(crate) use device::close_all;
pub use device::{AtEnd, Opening, RawRing, RawState, Writer};
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub use host::{Chunk, Collector, Counts, News, RawRegion};
pub use open_page::{OpenPage, Room};

/// Has the processor fetch the line of a word that is read soon. Any address will do.
#[cfg(not(any(loom, target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline(always)]
pub fn prefetch(word: *const core::sync::atomic::AtomicU64) {
    crate::primitive::prefetch(word);
}
