//! Trace points: what a kernel says to a trace of it. [`span!`](crate::span), [`counter!`](crate::counter) and
//! [`event!`](crate::event) write to the file of a device that is traced (`hostcall run --trace FILE`, or
//! `Device::builder(..).trace(..)`), with the device's time, which the host puts on its own time line.
//!
//! ```
//! use hostcall_device::{Global, Lane, counter, event, kernel, span};
//!
//! #[kernel]
//! fn relax(lane: &Lane, steps: u32, cells: &[Global<f32>]) {
//!     let _whole = span!("relax"); // until the end of the block
//!     for step in 0..steps {
//!         let change = {
//!             let _step = span!("step");
//!             let i = lane.global_id() % cells.len();
//!             let change = cells[(i + 1) % cells.len()].get() - cells[i].get();
//!             cells[i].set(cells[i].get() + change / 2.0);
//!             change
//!         };
//!         counter!("change", change);
//!         if change.abs() < 1e-6 {
//!             event!("settled after {step} steps");
//!             break;
//!         }
//!     }
//! }
//! ```
//!
//! The lanes of a wave that come to a trace point together write one record, with the values of the first of them. A span
//! begins for all of them, and ends when that lane ends it.
//!
//! | | a trace point costs |
//! |---|---|
//! | without this crate's feature `trace` (a default one) | nothing: the machine code is the same as without it |
//! | with it, on a device that is not traced | a look at a word of the launch's parameters |
//! | on one that is | a record of 16 bytes (a span's begin), 32 (its end, a counter), or 16 to 64 (an event) |
//!
//! A wave never waits for the trace: what finds no free page is dropped and counted, as
//! [`DropNewest`] does. The first use of each trace point asks the host for a number, and now and
//! then, each tenth of a second or so, a wave asks for the host's time.

use crate::group::Group;
use crate::print::Argument;
use crate::raw::{DropNewest, RawStream};
use crate::services::TracePoints;
use crate::target;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_abi::launch::TRACED;
use hostcall_abi::trace::{MAX_POINT_WORDS, POINT_ID_BITS, PointHead, PointKind, record_bytes};
use hostcall_format::tags;

/// Bits of the tags of as many values as a point has.
const TAG_BITS: u32 = tags::BITS * MAX_POINT_WORDS as u32;

/// Longest name and file of a point, in bytes each; longer ones are cut.
const MAX_TEXT_BYTES: usize = 256;

/// One trace point in the source.
pub struct Point {
    kind: PointKind,
    text: &'static str,
    file: &'static str,
    line: u32,
    /// The id that the host gave last, and whom it holds for: bits 0–23 the id, 0 for none; 24–43 the tags of the values,
    /// which differ between the instances of a generic function; 44–63 the channel's epoch. One word, so that whoever
    /// reads it (relaxed) has all of it.
    registered: AtomicU64,
}

impl Point {
    const fn new(kind: PointKind, text: &'static str, file: &'static str, line: u32) -> Self {
        Self { kind, text, file, line, registered: AtomicU64::new(0) }
    }

    /// A span of this name.
    pub const fn span(text: &'static str, file: &'static str, line: u32) -> Self {
        Self::new(PointKind::Begin, text, file, line)
    }

    /// A counter of this name.
    pub const fn counter(text: &'static str, file: &'static str, line: u32) -> Self {
        Self::new(PointKind::Counter, text, file, line)
    }

    /// An event with this format.
    pub const fn event(text: &'static str, file: &'static str, line: u32) -> Self {
        Self::new(PointKind::Event, text, file, line)
    }

    /// The point's id for values of these types, 0 when the host gives none.
    fn id(&self, tags: u64) -> u32 {
        let key = u64::from(target::here().channel().epoch) << TAG_BITS | tags;
        let registered = self.registered.load(Ordering::Relaxed);
        let id = registered as u32 & ((1 << POINT_ID_BITS) - 1);
        if registered >> POINT_ID_BITS == key & (u64::MAX >> POINT_ID_BITS) && id != 0 {
            return id;
        }
        self.register(key, tags)
    }

    #[cold]
    fn register(&self, key: u64, tags: u64) -> u32 {
        let [text, file] = [self.text, self.file].map(|text| &text.as_bytes()[..cut(text)]);
        let mut texts = [0; 2 * MAX_TEXT_BYTES];
        texts[..text.len()].copy_from_slice(text);
        texts[text.len()..text.len() + file.len()].copy_from_slice(file);
        // Both are cut between characters.
        let Ok(texts) = core::str::from_utf8(&texts[..text.len() + file.len()]) else { return 0 };
        let now_ns = target::here().clock_ns();
        let id = TracePoints::register(self.kind as u32, tags, self.line, now_ns, text.len() as u32, texts);
        let id = id.unwrap_or(0);
        if id >> POINT_ID_BITS != 0 {
            return 0;
        }
        self.registered.store(key << POINT_ID_BITS | u64::from(id), Ordering::Relaxed);
        id
    }
}

/// Bytes of a text up to [`MAX_TEXT_BYTES`], whole characters.
fn cut(text: &str) -> usize {
    text.floor_char_boundary(MAX_TEXT_BYTES)
}

/// Nanoseconds of a clock's tick in [`sample_clock`], as a power of two: 2²⁶ ns, 67 ms.
const SAMPLE_LOG2: u32 = 26;

/// When the clocks of this image's channel were compared last: the channel's epoch in bits 44–63, ticks below.
static SAMPLED: AtomicU64 = AtomicU64::new(0);

/// Compares the device's clock with the host's, if nobody has done so in the last tick.
fn sample_clock() {
    let here = target::here();
    let before_ns = here.clock_ns();
    let epoch = u64::from(here.channel().epoch) << 44;
    let sampled = SAMPLED.load(Ordering::Relaxed);
    let now = epoch | (before_ns >> SAMPLE_LOG2) & ((1 << 44) - 1);
    // The next tick may begin at once.
    if sampled == now || sampled.wrapping_add(1) == now {
        return;
    }
    if SAMPLED.compare_exchange(sampled, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        && let Ok(host_ns) = TracePoints::now_ns()
    {
        let after_ns = here.clock_ns();
        // Fails only when the launch is over.
        let _ = TracePoints::clock_pair(before_ns, host_ns, after_ns);
    }
}

/// Returns whether trace points write: never without this crate's feature `trace`, else where the device is traced.
#[inline(always)]
pub fn is_on() -> bool {
    cfg!(feature = "trace") && target::here().params().flags & TRACED != 0
}

type Records = RawStream<'static, u64, DropNewest>;

/// The raw channel of the device's trace points. The launch is traced.
#[inline(always)]
fn records() -> Records {
    // SAFETY: the host gives the channel's parameters to each device whose launches are traced, and keeps it until no
    // launch is left.
    unsafe { Records::of_params(target::here().channel().trace) }
}

/// Writes one record of a group that came to `point` together, with the values of its first lane. Returns the point's id and
/// the time; `None` if the record was not kept.
#[inline(always)]
fn write_record(group: Group, point: &'static Point, tags: u64, words: &[u64]) -> Option<(u32, u64)> {
    if group.here.unwinding() {
        return None;
    }
    let (mut id, mut now_ns) = (0, 0);
    if group.is_leader() {
        sample_clock();
        id = point.id(tags);
        now_ns = group.here.clock_ns();
    }
    let id = group.of_leader(id.into()) as u32;
    if id == 0 {
        return None;
    }
    let head = PointHead {
        kind: point.kind,
        point: id,
        words: words.len() as u32,
        lanes: group.count,
        first_lane: group.leader(),
    };
    let now_ns = group.of_leader(now_ns);
    let is_kept = records().append(group, 1, head.record_bytes(), |to, _, at| {
        if group.is_leader() {
            // SAFETY: RAW-PAGE: the leader stores the group's one record, of as many bytes as the head says.
            unsafe { to.put_pair(at, [now_ns, head.to_word()]) };
            for (i, pair) in words.chunks(2).enumerate() {
                let pair = [pair[0], pair.get(1).copied().unwrap_or(0)];
                // SAFETY: as above.
                unsafe { to.put_pair(at + 2 + 2 * i as u32, pair) };
            }
        }
    });
    is_kept.then_some((id, now_ns))
}

/// The lanes that come to this point, as a site to meet at.
#[inline(always)]
fn site(point: &'static Point) -> u64 {
    core::ptr::from_ref(point) as usize as u64
}

/// A span of a kernel that has begun, from [`span!`](crate::span). It ends where it is dropped.
#[must_use = "a span ends when it is dropped: `let _span = span!(..)` keeps it to the end of the block"]
pub struct Span {
    /// The point's id, 0 if nothing was written. Of the span's first lane with [`Span::FIRST`].
    id: u32,
    began_ns: u64,
    // It is the lane's.
    not_send: PhantomData<*const ()>,
}

impl Span {
    const FIRST: u32 = 1 << 31;

    /// Begins a span.
    #[inline(always)]
    pub fn begin(point: &'static Point) -> Self {
        let (id, began_ns) = if is_on() { begin(point) } else { (0, 0) };
        Self { id, began_ns, not_send: PhantomData }
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if cfg!(feature = "trace") && self.id != 0 {
            end(self.id, self.began_ns);
        }
    }
}

#[cold]
#[inline(never)]
fn begin(point: &'static Point) -> (u32, u64) {
    Group::meet(site(point), (0, 0), |group| match write_record(group, point, 0, &[]) {
        Some((id, now_ns)) => (id | if group.is_leader() { Span::FIRST } else { 0 }, now_ns),
        None => (0, 0),
    })
}

/// Ends the spans of the lanes that come here together. Each of their first lanes writes a record.
#[cold]
#[inline(never)]
fn end(id: u32, began_ns: u64) {
    static SITE: u8 = 0;
    let group = Group::converge(core::ptr::from_ref(&SITE) as usize as u64);
    let is_first = id & Span::FIRST != 0;
    let firsts = group.those(is_first);
    if firsts.count == 0 || group.here.unwinding() {
        return;
    }
    let head = PointHead {
        kind: PointKind::End,
        point: id & !Span::FIRST,
        words: 1,
        lanes: group.count,
        first_lane: group.here.lane_index(),
    };
    let now_ns = group.here.clock_ns();
    records().append(group, firsts.count, head.record_bytes(), |to, records, at| {
        if is_first && records.contains(&firsts.rank) {
            let at = at + (firsts.rank - records.start) * (record_bytes(1) / 8);
            // SAFETY: RAW-PAGE: each first lane stores a record of its own, of one pair beside its head.
            unsafe {
                to.put_pair(at, [now_ns, head.to_word()]);
                to.put_pair(at + 2, [began_ns, 0]);
            }
        }
    });
}

/// Writes a counter's value, or an event with its values, on a device that is traced.
#[inline(always)]
pub fn write<const N: usize>(point: &'static Point, tags: [u8; N], words: [u64; N]) {
    write_values(point, tags::of(&tags), words);
}

#[cold]
#[inline(never)]
fn write_values<const N: usize>(point: &'static Point, tags: u64, words: [u64; N]) {
    const { assert!(N <= MAX_POINT_WORDS, "an event has five values at most") };
    Group::meet(site(point), (), |group| _ = write_record(group, point, tags, &words));
}

/// The tag of a value's type, which has a fixed size.
#[inline(always)]
pub const fn tag_of<T: Argument + ?Sized>(_: &T) -> u8 {
    const {
        assert!(
            T::TAG != tags::STR,
            "a trace point has no text but its own: give numbers, `bool`s, `char`s or pointers"
        );
        T::TAG
    }
}

/// Writes a counter's value.
#[inline(always)]
pub fn count<T: Argument>(point: &'static Point, value: T) {
    write(point, [tag_of(&value)], [value.word()]);
}

/// Begins a span of this name (a literal), and gives a [`Span`](crate::trace::Span) that ends it when it is dropped. The
/// module [`trace`](mod@crate::trace) has an example.
#[macro_export]
macro_rules! span {
    ($name:literal) => {{
        static POINT: $crate::trace::Point =
            $crate::trace::Point::span($name, ::core::file!(), ::core::line!());
        $crate::trace::Span::begin(&POINT)
    }};
}

/// Says what the counter of this name (a literal) shows now: a number of any type, of the first of the lanes that come here
/// together. Where the device is not traced, the value is not computed. The module [`trace`](mod@crate::trace) has an example.
#[macro_export]
macro_rules! counter {
    ($name:literal, $value:expr $(,)?) => {{
        #[allow(non_upper_case_globals, reason = "its name is one that no user's value has")]
        static __hostcall_point: $crate::trace::Point =
            $crate::trace::Point::counter($name, ::core::file!(), ::core::line!());
        if $crate::trace::is_on() {
            $crate::trace::count(&__hostcall_point, $value)
        }
    }};
}
