//! What a trace consists of.

use crate::descriptor::Descriptor;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::status::{CallError, Status as AbiStatus};
use hostcall_abi::trace::{MAX_POINT_WORDS, PointKind};
use std::fmt;
use std::sync::Arc;

/// The workgroup or wave of a call whose protocol does not tell it.
pub const UNKNOWN: u32 = u32::MAX;

/// One call: of all lanes of a wave that made it together. Times are nanoseconds since the trace began, by a clock that
/// never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// When the server took the request.
    pub picked_up_ns: u64,
    /// When the handler began: of several lanes' handlers the first one. [`Call::handler_ended_ns`] says when the last
    /// one ended. Both are equal to [`Call::replied_ns`] if no handler ran.
    pub handler_began_ns: u64,
    /// When the handler had its result.
    pub handler_ended_ns: u64,
    /// When all lanes had their answers.
    pub replied_ns: u64,
    /// The launch, by the number that the trace gives it; 0 when it is not known.
    pub launch: u64,
    /// Bytes of all lanes' requests: arguments and messages.
    pub request_bytes: u64,
    /// Bytes of all lanes' replies.
    pub reply_bytes: u64,
    /// The method, by the number that the trace gives it.
    pub method: u32,
    /// The channel's slot, LLVM's port or ROCm's packet: no two calls are in one at the same time.
    pub slot: u32,
    /// Linear index of the workgroup in its grid, x fastest; or [`UNKNOWN`].
    pub workgroup: u32,
    /// Index of the wave in its workgroup; or [`UNKNOWN`].
    pub wave: u32,
    /// The source: a device's server, by the number that the trace gives it.
    pub source: u16,
    /// Lanes that called.
    pub lanes: u8,
    /// Lanes that got an error.
    pub failed_lanes: u8,
    /// How the call ended for the first of the failed lanes.
    pub status: Status,
}

impl Call {
    /// Returns a call of one lane that was picked up, handled and answered at this time.
    pub fn at(ns: u64) -> Self {
        Self {
            picked_up_ns: ns,
            handler_began_ns: ns,
            handler_ended_ns: ns,
            replied_ns: ns,
            workgroup: UNKNOWN,
            wave: UNKNOWN,
            lanes: 1,
            ..Self::default()
        }
    }

    /// Nanoseconds from when the request was picked up until the answer was there.
    pub fn latency_ns(&self) -> u64 {
        self.replied_ns.saturating_sub(self.picked_up_ns)
    }
}

/// How a launch ended, as a code. Whatever is not 0 ended its lanes before they came to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ending(pub u8);

impl Ending {
    /// All of its lanes came to their end.
    pub const OK: Self = Self(0);
    /// Somebody asked for it, or the device was closed.
    pub const CANCELLED: Self = Self(1);
    /// A lane panicked.
    pub const PANICKED: Self = Self(2);
    /// A lane ended the program.
    pub const EXITED: Self = Self(3);
    /// A lane did what the device does not allow, or the device failed.
    pub const FAILED: Self = Self(4);
    /// Its time limit passed.
    pub const TIMED_OUT: Self = Self(5);

    /// Returns a word for it, as tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OK => "ok",
            Self::PANICKED => "panicked",
            Self::EXITED => "exited",
            Self::FAILED => "failed",
            Self::TIMED_OUT => "timed out",
            _ => "cancelled",
        }
    }
}

/// How a call ended, as a code. A handler's own error code is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// The handler returned a result.
    pub const OK: Self = Self(0);

    /// Returns a word for the status, as tables have it.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "ok",
            1 => "no such service",
            2 => "failed",
            3 => "panicked",
            4 => "cancelled",
            5 => "too large",
            6 => "timed out",
            7 => "type mismatch",
            8 => "malformed",
            9 => "busy",
            10 => "unreachable",
            11 => "may have run",
            _ => "unknown",
        }
    }
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        AbiStatus::Error(error).into()
    }
}

impl From<AbiStatus> for Status {
    fn from(status: AbiStatus) -> Self {
        Self(status.to_bits() as u8)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Posts that a server took within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posts {
    /// Begin of the time, in nanoseconds since the trace began.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// How many.
    pub count: u64,
    /// The method, by the number that the trace gives it.
    pub method: u32,
    /// The source.
    pub source: u16,
}

/// What a tracer has counted when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// When it ended, in nanoseconds since the trace began.
    pub ended_ns: u64,
    /// Calls in the file.
    pub calls: u64,
    /// Calls that were dropped because too many waited to be written.
    pub dropped_calls: u64,
    /// Launches, posts and names that were dropped for the same reason, or are too many for a trace.
    pub dropped_others: u64,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitsFor {
    /// Its handler has not returned.
    #[default]
    Handler,
    /// A thread for its handler.
    Thread,
    /// The wave has not written all of its request.
    Words,
    /// Posts of the wave that come before it.
    Posts,
    /// Calls before it that are handled one after the other.
    Turn,
}

impl WaitsFor {
    const ALL: [Self; 5] = [Self::Handler, Self::Thread, Self::Words, Self::Posts, Self::Turn];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Handler => "its handler",
            Self::Thread => "a free thread",
            Self::Words => "its request",
            Self::Posts => "earlier posts",
            Self::Turn => "its turn",
        })
    }
}

/// A call that has waited for a while and has no answer yet. Servers tell of each such call again and again;
/// the longest waits come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// When the server looked, in nanoseconds since the trace began. All that it tells of at one look have
    /// the same time.
    pub at_ns: u64,
    /// How long the call has waited then.
    pub waited_ns: u64,
    /// The launch, by the number that the trace gives it; 0 when it is not known.
    pub launch: u64,
    /// The channel's slot, LLVM's port or ROCm's packet.
    pub slot: u32,
    /// The workgroup in x, y and z, and the index of the wave in it, if they are known.
    pub place: Option<([u32; 3], u32)>,
    /// Lanes that wait.
    pub lanes: u32,
    /// The source.
    pub source: u16,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// The method's name, or its number.
    pub method: Arc<str>,
}

/// A page of a raw channel, or the part of one that was written when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The stream, by the number that the trace gives it.
    pub stream: u16,
    /// Which page of the channel it is, in the order of their opening.
    pub sequence: u64,
    /// Where in the page the part begins.
    pub offset_bytes: u32,
    /// Whether the page has no more than this.
    pub is_last: bool,
    /// The bits of the launch's id.
    pub launch: u32,
    /// The writer: the home slot of the wave.
    pub slot: u32,
    /// Linear index of the workgroup in its grid.
    pub workgroup: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// The device's clock when the page was opened, in ns.
    pub opened_ns: u64,
    /// Records that waves of the slot have dropped between the page before and this one.
    pub dropped_before: u64,
    /// Bytes of the channel that were overwritten between the page that was read before and this one.
    pub overwritten_before: u64,
    /// What was written.
    pub bytes: Box<[u8]>,
}

/// What a stream had in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Pages that were closed.
    pub pages: u64,
    /// Bytes that kernels wrote, whether they are in the file or not.
    pub bytes: u64,
    /// Records that kernels dropped, because no page was free.
    pub dropped_records: u64,
    /// Bytes that were overwritten before they were read.
    pub overwritten_bytes: u64,
    /// Bytes that could not be copied from the device, or not be written to the file.
    pub lost_bytes: u64,
}

/// What a trace point of a kernel said: `span!`, `counter!` or `event!`. Times are on the trace's time line: the device's,
/// corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// When, in nanoseconds since the trace began.
    pub at_ns: u64,
    /// Of a span's end, when it began. Else [`Point::at_ns`].
    pub began_ns: u64,
    /// What was said.
    pub kind: PointKind,
    /// Which point, by the number that the trace gives it for its source.
    pub point: u32,
    /// The launch, by the number that the trace gives it; 0 when it is not known.
    pub launch: u64,
    /// The writer: the home slot of the wave.
    pub slot: u32,
    /// Linear index of the workgroup in its grid.
    pub workgroup: u32,
    /// Index of the wave in its workgroup.
    pub wave: u32,
    /// The source.
    pub source: u16,
    /// Lanes that came there together.
    pub lanes: u8,
    /// The first of them; of a span's end, that lane of its begin.
    pub first_lane: u8,
    /// How many values there are.
    pub count: u8,
    /// The values' words, as the point's tags say.
    pub values: [u64; MAX_POINT_WORDS],
}

impl Point {
    /// Returns the values' words.
    pub fn words(&self) -> &[u64] {
        &self.values[..usize::from(self.count).min(self.values.len())]
    }
}

/// A comparison of a device's clock with the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockPair {
    /// The source.
    pub source: u16,
    /// The device's clock, in ns.
    pub device_ns: u64,
    /// The moment by the host's clock, in nanoseconds since the trace began.
    pub host_ns: u64,
    /// How far the two may be apart, since it took a while to ask.
    pub error_ns: u64,
    /// How far the times of trace points were away from this when it was found, which later ones are less.
    pub off_ns: i64,
    /// By how much the device's clock is slow, in parts of 10⁹, as far as it is known by then.
    pub drift_ppb: i64,
}

impl ClockPair {
    /// How far times of trace points are from the host's clock at most, as far as this says.
    pub fn within_ns(&self) -> u64 {
        self.error_ns.saturating_add(self.off_ns.unsigned_abs())
    }
}

/// What a trace file has to say, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A server that records.
    Source {
        /// Its number.
        source: u16,
        /// The device's name.
        device: Arc<str>,
        /// The protocol that it serves.
        protocol: Arc<str>,
    },
    /// A method that was called for the first time.
    Method {
        /// Its number.
        method: u32,
        /// The number by which kernels call it: of the service, the opcode.
        number: u32,
        /// Its name, such as `Inventory::lookup`.
        name: Arc<str>,
    },
    /// A launch was given to the device.
    LaunchBegan {
        /// Its number, from 1 on.
        launch: u64,
        /// The source.
        source: u16,
        /// When, in nanoseconds since the trace began.
        at_ns: u64,
        /// Workgroups in x, y and z.
        workgroups: [u32; 3],
        /// The kernel's name.
        kernel: Arc<str>,
        /// Its id on the device, which pages of raw channels name it by; [`LaunchId::NONE`] when the trace does not say it.
        id: LaunchId,
    },
    /// The host learned that a launch has ended.
    LaunchEnded {
        /// Its number.
        launch: u64,
        /// When, in nanoseconds since the trace began.
        at_ns: u64,
        /// How it ended.
        ending: Ending,
    },
    /// A call.
    Call(Call),
    /// Posts.
    Posts(Posts),
    /// A call that waits.
    Waiting(Waiting),
    /// A stream of records out of kernels.
    Stream {
        /// Its number.
        stream: u16,
        /// Bytes of each record; 1 for bytes.
        record_bytes: u32,
        /// Hash of the records' type.
        schema: u64,
        /// Its name.
        name: Arc<str>,
        /// The name of its policy.
        policy: Arc<str>,
        /// What its records consist of, if the file says it.
        descriptor: Option<Arc<Descriptor>>,
    },
    /// A page of a stream.
    Page(Page),
    /// A stream has ended.
    StreamEnded {
        /// Its number.
        stream: u16,
        /// What it had.
        totals: StreamTotals,
    },
    /// A trace point that is there for the first time.
    NamedPoint {
        /// The source.
        source: u16,
        /// Its number.
        point: u32,
        /// What it says. Spans are [`PointKind::Begin`].
        kind: PointKind,
        /// Types of its values, as [`hostcall_format::tags`] has them.
        tags: u64,
        /// Its line in the source file.
        line: u32,
        /// The source file.
        file: Arc<str>,
        /// Its name; of an event, the format.
        text: Arc<str>,
    },
    /// What a trace point said.
    Point(Point),
    /// So many records of trace points were dropped because the trace was too slow, or could not be read.
    PointsLost {
        /// The source.
        source: u16,
        /// How many.
        records: u64,
    },
    /// A comparison of clocks.
    Clock(ClockPair),
    /// So many more calls were dropped before the next event because too many waited to be written.
    Dropped(u64),
    /// The file's blocks say that this many of them are missing here.
    Missing(u64),
    /// This many bytes of the file are damaged and were skipped.
    Damaged(u64),
    /// The tracer was ended in order; nothing follows.
    Ended(Totals),
}
