//! Trace points: what a kernel says to a trace of it. [`span!`](crate::span), [`counter!`](crate::counter) and
//! [`event!`](crate::event) write to a trace of the device: from its beginning (`hostcall run --trace FILE`, or
//! `Device::builder(..).trace(..)`), or for a while in a process that runs (`hostcall trace on`, or `Device::record_points`).
//! They write with the device's time, which the host puts on its own time line.
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
//! | with it, while nobody traces | a look at a word: in memory of the device, or on NVIDIA's GPUs at the workgroup's copy of it |
//! | while somebody does, who does not want it | a look at another word |
//! | while somebody wants it | a record of 32 bytes, or of an event with more than one value 48 or 64 |
//!
//! A wave never waits for the trace: what finds no free page is dropped and counted, as
//! [`DropNewest`](crate::raw::DropNewest) does. The first use of each trace point since points were switched asks the host for a number, and now and
//! then, each tenth of a second or so, a wave asks for the host's time. A span that was begun is ended although points are switched
//! off meanwhile. Where a workgroup has a copy of the switch, its next point brings another one: the first point after points are
//! switched in a running launch does as the one before it.

use crate::call::{call_rarely, enter};
use crate::group::Group;
use crate::pieces::send_texts;
use crate::print::Argument;
use crate::raw::{OfPoints, RawStream, append_to_lent_page};
use crate::services::TracePoints;
use crate::target;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};
use hostcall_abi::MAX_WORDS;
use hostcall_abi::raw::RawParams;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::trace::{
    MAX_POINT_WORDS, POINT_ID_BITS, PointHead, PointKind, PointSwitch, UNWANTED, owner, record_bytes,
};
use hostcall_channel::Words;
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
    /// which differ between the instances of a generic function; 44–63 the switch's number. One word, so that whoever
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

    /// The point's id for values of these types: [`UNWANTED`] if nobody wants it, 0 when the host gives none.
    fn id(&self, on: On, tags: u64) -> u32 {
        match self.known_id(on, tags) {
            0 => self.register(on, tags),
            id => id,
        }
    }

    /// What [`Point::id`] is, if the host has said it: else 0.
    #[inline(always)]
    fn known_id(&self, on: On, tags: u64) -> u32 {
        let registered = target::seen(&self.registered);
        let id = registered as u32 & ((1 << POINT_ID_BITS) - 1);
        let is_of_these = registered >> POINT_ID_BITS == on.key(tags) & (u64::MAX >> POINT_ID_BITS);
        if is_of_these { id } else { 0 }
    }

    /// Whether nobody wants to hear of the point.
    #[inline(always)]
    fn is_unwanted(&self, on: On, tags: u64) -> bool {
        self.known_id(on, tags) == UNWANTED
    }

    #[cold]
    #[inline(never)]
    fn register(&self, on: On, tags: u64) -> u32 {
        let id = self.ask(tags).unwrap_or(0);
        if id >> POINT_ID_BITS != 0 {
            return 0;
        }
        self.registered.store(on.key(tags) << POINT_ID_BITS | id, Ordering::Relaxed);
        id as u32
    }

    fn ask(&self, tags: u64) -> Result<u64, CallError> {
        enter(target::here())?;
        let [text, file] = [self.text, self.file].map(cut);
        let lane = send_texts(&[text, file])?;
        let now_ns = target::here().clock_ns();
        let words = [lane, self.kind as u64, tags, self.line.into(), now_ns, text.len() as u64, 0];
        call_rarely(REGISTER, 6, words, 1)
    }
}

/// Where trace points write, which write now or did so.
#[derive(Clone, Copy)]
pub struct On(PointSwitch);

impl On {
    /// Where points write that were on before. What is rare asks again, and has no more to keep for it.
    #[inline(always)]
    fn before() -> Self {
        Self(PointSwitch::of_word(target::here().point_switch()))
    }

    /// Whom an id holds for: the switch's number, and values of these types.
    #[inline(always)]
    fn key(self, tags: u64) -> u64 {
        u64::from(self.0.number()) << TAG_BITS | tags
    }

    /// The raw channel of the device's trace points.
    #[inline(always)]
    fn records(self) -> Records {
        // SAFETY: the host gives the address of the channel's parameters before it switches points on, and keeps both until no
        // launch is left. Nobody changes the parameters.
        unsafe { Records::of_params(*target::global(self.0.params()).cast::<RawParams>()) }
    }
}

// Called by their methods, as what is rare is.
const NOW_NS: &Method = &TracePoints::METHODS[0];
const CLOCK_PAIR: &Method = &TracePoints::METHODS[1];
const REGISTER: &Method = &TracePoints::METHODS[2];

/// A text up to [`MAX_TEXT_BYTES`], whole characters.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default()
}

/// Nanoseconds of a clock's tick in [`sample_clock`], as a power of two: 2²⁶ ns, 67 ms.
const SAMPLE_LOG2: u32 = 26;

/// When the clocks were compared last: the switch's number in bits 44–63, ticks below.
static SAMPLED: AtomicU64 = AtomicU64::new(0);

/// Compares the device's clock with the host's, if nobody has done so in the last tick.
#[inline(always)]
fn sample_clock(on: On, now_ns: u64) {
    let number = u64::from(on.0.number()) << 44;
    let sampled = target::seen(&SAMPLED);
    let now = number | (now_ns >> SAMPLE_LOG2) & ((1 << 44) - 1);
    // The next tick may begin at once.
    if sampled != now && sampled.wrapping_add(1) != now {
        compare_clocks(sampled, now);
    }
}

#[cold]
#[inline(never)]
fn compare_clocks(sampled: u64, now: u64) {
    let here = target::here();
    if SAMPLED.compare_exchange(sampled, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let before_ns = here.clock_ns();
    if let Ok(host_ns) = enter(here).and_then(|()| call_rarely(NOW_NS, 0, [0; MAX_WORDS], 1)) {
        let words = [before_ns, host_ns, here.clock_ns(), 0, 0, 0, 0];
        // Fails only when the launch is over.
        let _ = call_rarely(CLOCK_PAIR, 3, words, 0);
    }
}

/// Returns where trace points write, if they do: never without this crate's feature `trace`, else while somebody traces.
#[inline(always)]
pub fn on() -> Option<On> {
    if !cfg!(feature = "trace") {
        return None;
    }
    let switch = PointSwitch::of_word(target::here().point_switch_before());
    switch.is_on().then_some(On(switch))
}

type Records = RawStream<'static, u64, OfPoints>;

/// Writes one record of a group that came to `point` together, with the values of its first lane. Returns the point's id and
/// the time; `None` if the record was not kept.
#[inline(always)]
fn write_record(group: Group, point: &'static Point, tags: u64, words: &[u64]) -> Option<(u32, u64)> {
    if group.here.unwinding() {
        return None;
    }
    let on = On::before();
    let (mut id, mut now_ns) = (0, 0);
    if group.is_leader() {
        now_ns = group.here.clock_ns();
        sample_clock(on, now_ns);
        id = point.id(on, tags);
    }
    let id = group.of_leader(id.into()) as u32;
    if id == 0 || id == UNWANTED {
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
    let is_kept = on.records().append(group, 1, head.record_bytes(), |to, _, at| {
        if group.is_leader() {
            // SAFETY: RAW-PAGE: the leader stores the group's one record, of as many bytes as the head says.
            unsafe { put_record(to, at, now_ns, head, words) };
        }
    });
    is_kept.then_some((id, now_ns))
}

/// Does what [`write_record`] does for lanes that are all of their wave, where that is no more than to store: the host has given
/// the point's id, and the wave has a page with room. `None` if it is not that, and then nothing is done. Of the time, the first
/// lane's is written. Where lanes do not run in step, it would have them wait for each other.
#[inline(always)]
fn write_at_once(on: On, point: &'static Point, tags: u64, words: &[u64]) -> Option<(u32, u64)> {
    if !target::IN_STEP {
        return None;
    }
    let here = target::here();
    let (together, wave) = (here.converge(site(point)), here.wave_lanes());
    if together != wave || here.same(wave, site(point)) != wave {
        return None;
    }
    let (now_ns, id) = (here.clock_ns(), point.known_id(on, tags));
    let (kind, words_of_point) = (point.kind, words.len() as u32);
    let head = PointHead { kind, point: id, words: words_of_point, lanes: wave.count_ones(), first_lane: 0 };
    let bytes = record_bytes(words_of_point);
    let is_known = id != 0 && id != UNWANTED;
    let is_written = append_to_lent_page(here, wave, bytes, now_ns, is_known, |to, at| {
        // SAFETY: RAW-PAGE: the first lane has taken the place of one record.
        unsafe { put_record(to, at, now_ns, head, words) };
    });
    is_written.then_some((id, now_ns))
}

/// Stores a record from word `at` on.
///
/// # Safety
/// RAW-PAGE: the calling lane has this place, of as many bytes as the head says.
#[inline(always)]
unsafe fn put_record(to: Words<'_>, at: u32, now_ns: u64, head: PointHead, words: &[u64]) {
    let here = target::here();
    let owner = owner(here.params().launch.to_bits(), here.workgroup_index());
    // SAFETY: the caller's promise.
    unsafe {
        to.put_pair(at, [now_ns, head.of_wave(here.wave_in_workgroup())]);
        to.put_pair(at + 2, [owner, words.first().copied().unwrap_or(0)]);
    }
    for (i, pair) in words.get(1..).unwrap_or_default().chunks(2).enumerate() {
        let pair = [pair[0], pair.get(1).copied().unwrap_or(0)];
        // SAFETY: as above.
        unsafe { to.put_pair(at + 4 + 2 * i as u32, pair) };
    }
}

/// The lanes that come to this point, as a site to meet at.
#[inline(always)]
fn site(point: &'static Point) -> u64 {
    core::ptr::from_ref(point) as usize as u64
}

/// A span of a kernel that has begun, from [`span!`](crate::span). It ends where it is dropped.
#[must_use = "a span ends when it is dropped: `let _span = span!(..)` keeps it to the end of the block"]
pub struct Span {
    /// The point's id, 0 if nothing was written, or [`UNWANTED`]. Of the span's first lane with [`Span::FIRST`].
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
        let (id, began_ns) = on().map_or((0, 0), |on| begin(on, point));
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

// Two functions for each kind of record, called one after the other: what only stores calls nothing, and so saves no registers.

#[inline(always)]
fn begin(on: On, point: &'static Point) -> (u32, u64) {
    match begin_at_once(on, point) {
        (0, _) => begin_slowly(point),
        begun => begun,
    }
}

#[inline(never)]
fn begin_at_once(on: On, point: &'static Point) -> (u32, u64) {
    if point.is_unwanted(on, 0) {
        return (UNWANTED, 0);
    }
    let Some((id, now_ns)) = write_at_once(on, point, 0, &[]) else { return (0, 0) };
    (id | if target::here().lane_index() == 0 { Span::FIRST } else { 0 }, now_ns)
}

#[cold]
#[inline(never)]
fn begin_slowly(point: &'static Point) -> (u32, u64) {
    Group::meet(site(point), (0, 0), |group| match write_record(group, point, 0, &[]) {
        Some((id, now_ns)) => (id | if group.is_leader() { Span::FIRST } else { 0 }, now_ns),
        None => (0, 0),
    })
}

#[inline(always)]
fn end(id: u32, began_ns: u64) {
    if !end_at_once(id, began_ns) {
        end_slowly(id, began_ns);
    }
}

/// Ends a span that all lanes of the wave end together, of which the first one is the span's, if that is no more than to store, or
/// one that nobody wants.
#[inline(never)]
fn end_at_once(id: u32, began_ns: u64) -> bool {
    if id == UNWANTED {
        return true;
    }
    if !target::IN_STEP {
        return false;
    }
    let here = target::here();
    let wave = here.wave_lanes();
    if here.converge(0) != wave {
        return false;
    }
    let now_ns = here.clock_ns();
    let (kind, point, lanes) = (PointKind::End, id & !Span::FIRST, wave.count_ones());
    let head = PointHead { kind, point, words: 1, lanes, first_lane: 0 };
    let is_only_first = (id & Span::FIRST != 0) == (here.lane_index() == 0);
    append_to_lent_page(here, wave, record_bytes(1), now_ns, is_only_first, |to, at| {
        // SAFETY: RAW-PAGE: the first lane has taken the place of one record.
        unsafe { put_record(to, at, now_ns, head, &[began_ns]) };
    })
}

/// Ends the spans of the lanes that come here together. Each of their first lanes writes a record.
#[cold]
#[inline(never)]
fn end_slowly(id: u32, began_ns: u64) {
    let on = On::before();
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
    on.records().append(group, firsts.count, head.record_bytes(), |to, records, at| {
        if is_first && records.contains(&firsts.rank) {
            let at = at + (firsts.rank - records.start) * (record_bytes(1) / 8);
            // SAFETY: RAW-PAGE: each first lane stores a record of its own, of one pair beside its head.
            unsafe { put_record(to, at, now_ns, head, &[began_ns]) };
        }
    });
}

/// Writes a counter's value, or an event with its values, if somebody wants it.
#[inline(always)]
pub fn write<const N: usize>(on: On, point: &'static Point, tags: [u8; N], words: [u64; N]) {
    const { assert!(N <= MAX_POINT_WORDS, "an event has five values at most") };
    let tags = tags::of(&tags);
    if !write_values_at_once(on, point, tags, words) {
        write_values(point, tags, words);
    }
}

/// Writes a record of all lanes of the wave, if somebody wants it and that is no more than to store. Returns whether nothing is left
/// to do.
#[inline(never)]
fn write_values_at_once<const N: usize>(on: On, point: &'static Point, tags: u64, words: [u64; N]) -> bool {
    point.is_unwanted(on, tags) || write_at_once(on, point, tags, &words).is_some()
}

#[cold]
#[inline(never)]
fn write_values<const N: usize>(point: &'static Point, tags: u64, words: [u64; N]) {
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
pub fn count<T: Argument>(on: On, point: &'static Point, value: T) {
    write(on, point, [tag_of(&value)], [value.word()]);
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
        if let ::core::option::Option::Some(__hostcall_on) = $crate::trace::on() {
            $crate::trace::count(__hostcall_on, &__hostcall_point, $value)
        }
    }};
}
